"""Graclus-style pooling in standard ONNX operators, number for number as in ops/pooling.py."""

from typing import NamedTuple

import numpy as np

from model.onnx_graph import DOUBLE, END, FLOAT, INT64
from model.onnx_spline import SplineBuilder
from model.pooling import ROUNDS
from ops.pooling import INDEX_BITS, MULTIPLIER, PAIR_MASK, WEIGHT_BITS


class Coarse(NamedTuple):
    """What a pooling leaves: clusters, the edges among them, and where each graph begins."""

    members: str  # [C, 4]
    source: str
    target: str
    ptr: str
    size: str  # C


class NetBuilder(SplineBuilder):
    """A graph builder that knows every layer of our networks."""

    def cluster(self, source: str, target: str, ptr: str, N: str) -> Coarse:
        """Two matchings, as in ops/pooling.py."""
        members = self.unsqueeze(self.arange(N), 1)
        apart = self.op("Not", self.op("Equal", source, target))
        source, target = (self.op("Compress", x, apart, axis=0) for x in (source, target))
        weight = self.op("Expand", self.const(1), self.op("Shape", source))
        for _ in range(2):
            partner = self.match(source, target, ptr, N, weight)
            number = self.arange(N)
            leads = self.op("GreaterOrEqual", partner, number)
            first = self.op("Compress", number, leads, axis=0)
            ended = self.op("CumSum", self.op("Cast", leads, to=INT64), self.const(0))
            begun = self.op("Concat", self.const([0]), ended, axis=0)
            other = self.op("Gather", members, self.op("Gather", partner, first))
            members = self.op("Concat", self.op("Gather", members, first), other, axis=1)
            cluster = self.op("Gather", begun, self.op("Min", number, partner))
            ptr, N = self.op("Gather", begun, ptr), self.size(first)
            source, target = (self.op("Gather", cluster, x) for x in (source, target))
            source, target, weight = self.unique_edges(source, target, N)
        return Coarse(members, source, target, ptr, N)

    def match(self, source: str, target: str, ptr: str, N: str, weight: str) -> str:
        key = self.edge_keys(source, target, ptr, N, weight)
        nobody = self.const(-1)
        partner = none = self.fill(nobody, N)
        for _ in range(ROUNDS):
            single = self.op("Less", partner, self.const(0))
            free = self.op(
                "And", self.op("Gather", single, source), self.op("Gather", single, target)
            )
            offer = self.op("Where", free, key, nobody)
            best = self.scatter(none, target, offer, "max")
            best = self.scatter(best, source, offer, "max")
            taken = self.op(
                "And",
                self.op("Equal", key, self.op("Gather", best, source)),
                self.op("Equal", key, self.op("Gather", best, target)),
            )
            taken = self.op("And", taken, free)
            for end, other in ((target, source), (source, target)):
                chosen = self.op("Where", taken, other, nobody)
                partner = self.scatter(partner, end, chosen, "max")
        alone = self.op("Less", partner, self.const(0))
        return self.op("Where", alone, self.arange(N), partner)

    def edge_keys(self, source: str, target: str, ptr: str, N: str, weight: str) -> str:
        degree = self.scatter(self.fill(self.const(0), N), source, weight, "add")
        degree = self.op("Cast", self.scatter(degree, target, weight, "add"), to=DOUBLE)
        wide = self.op("Cast", weight, to=DOUBLE)
        cut = self.op(
            "Add",
            self.op("Div", wide, self.op("Gather", degree, source)),
            self.op("Div", wide, self.op("Gather", degree, target)),
        )
        steps = self.op("Mul", cut, self.const(float(1 << WEIGHT_BITS), np.float64))
        step = self.op("Cast", self.op("Floor", steps), to=INT64)
        step = self.op("Min", step, self.const(2 << WEIGHT_BITS))
        start = self.op("Gather", ptr, self.graph_of_node(ptr, N))
        local = self.op("Sub", self.arange(N), start)
        a, b = self.op("Gather", local, source), self.op("Gather", local, target)
        low = self.op("Mul", self.op("Min", a, b), self.const(1 << INDEX_BITS))
        pair = self.op("Mul", self.op("Add", low, self.op("Max", a, b)), self.const(MULTIPLIER))
        hashed = self.op("BitwiseAnd", pair, self.const(PAIR_MASK))
        return self.op("Add", self.op("Mul", step, self.const(PAIR_MASK + 1)), hashed)

    def max_pool(self, x: str, members: str) -> str:
        return self.op("ReduceMax", self.op("Gather", x, members), self.const([1]), keepdims=0)

    def mean_pool(self, positions: str, members: str) -> str:
        a, b, c, d = (self.column(members, m) for m in range(4))

        def differ(x: str, y: str) -> str:
            return self.op("Not", self.op("Equal", x, y))

        second = differ(c, a)
        counted = [differ(b, a), second, self.op("And", second, differ(d, c))]
        total, size = self.op("Gather", positions, a), self.f32([[1]])
        for member, once in zip((b, c, d), counted, strict=True):
            share = self.unsqueeze(self.op("Cast", once, to=FLOAT), 1)
            total = self.op(
                "Add", total, self.op("Mul", self.op("Gather", positions, member), share)
            )
            size = self.op("Add", size, share)
        return self.op("Div", total, size)

    def average_pool(self, x: str, ptr: str, channels: int) -> str:
        start = self.part(ptr, 0, -1)
        count = self.op("Sub", self.part(ptr, 1, END), start)
        table = self.padded(start, count, self.size(x))
        rows = self.op("Concat", x, self.f32(np.zeros((1, channels))), axis=0)
        total = self.op("ReduceSum", self.op("Gather", rows, table), self.const([1]), keepdims=0)
        size = self.op("Max", self.op("Cast", count, to=FLOAT), self.f32(1))
        return self.op("Div", total, self.unsqueeze(size, 1))
