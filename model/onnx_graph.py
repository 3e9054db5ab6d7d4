"""Building blocks of an ONNX graph: the operator, pseudo-coordinates and pooling in standard nodes.

Sums over neighbours gather padded neighbour lists and multiply: ONNX Runtime's ScatterND(add), the
obvious other way, gives wrong sums now and then when it runs on more than one thread.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from model.pooling import ROUNDS
from ops.pooling import INDEX_BITS, MULTIPLIER, PAIR_MASK, WEIGHT_BITS

OPSET = 18
INT64, FLOAT, DOUBLE, BOOL = (
    TensorProto.INT64,
    TensorProto.FLOAT,
    TensorProto.DOUBLE,
    TensorProto.BOOL,
)


class Table(NamedTuple):
    """A planned graph: of every node its neighbours, padded to the longest list."""

    rows: str  # [N, L] source * K + weight index
    coef: str  # [N, 1, L] basis value / number of neighbours, 0 in the padding
    K: int


class Coarse(NamedTuple):
    """What a pooling leaves: clusters, the edges among them, and where each graph begins."""

    members: str  # [C, 4]
    source: str
    target: str
    ptr: str
    size: str  # C


class GraphBuilder:
    """Nodes and constants of one ONNX graph, written down in the order they are called."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[tuple[str, bytes, tuple[int, ...]], str] = {}
        self.initializers: list[Any] = []
        self.count = 0

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.many(kind, 1, *inputs, **attributes)[0]

    def many(self, kind: str, outputs: int, *inputs: str, **attributes: Any) -> list[str]:
        names = [f"{kind}_{self.count + i}" for i in range(outputs)]
        self.count += outputs
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names

    def const(self, value: Any, dtype: Any = np.int64) -> str:
        array = np.asarray(value, dtype, order="C")
        key = (array.dtype.str, array.tobytes(), array.shape)
        if key not in self.constants:
            name = f"constant_{len(self.initializers)}"
            self.constants[key] = name
            self.initializers.append(numpy_helper.from_array(array, name))
        return self.constants[key]

    def f32(self, value: Any) -> str:
        return self.const(value, np.float32)

    def finish(self, name: str, inputs: list[Any], outputs: list[Any]) -> bytes:
        graph = helper.make_graph(self.nodes, name, inputs, outputs, self.initializers)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="splinecnn"
        )
        model.ir_version = 9
        onnx.checker.check_model(model, full_check=False)
        content: bytes = model.SerializeToString()
        return content

    # sizes and ranges

    def size(self, x: str, axis: int = 0) -> str:
        return self.op("Gather", self.op("Shape", x), self.const(axis), axis=0)

    def shape(self, *sizes: str) -> str:
        parts = [self.op("Reshape", s, self.const([1])) for s in sizes]
        return self.op("Concat", *parts, axis=0)

    def arange(self, n: str) -> str:
        return self.op("Range", self.const(0), n, self.const(1))

    def fill(self, value: str, *sizes: str) -> str:
        return self.op("Expand", value, self.shape(*sizes))

    def column(self, x: str, at: int) -> str:
        return self.op("Gather", x, self.const(at), axis=1)

    def unsqueeze(self, x: str, axis: int) -> str:
        return self.op("Unsqueeze", x, self.const([axis]))

    def part(self, x: str, start: int, end: int) -> str:
        return self.op("Slice", x, self.const([start]), self.const([end]), self.const([0]))

    # per-graph and per-node sums

    def graph_of_node(self, ptr: str, N: str) -> str:
        """Which graph each node belongs to: how many graphs ended before it. [N]"""
        ends = self.unsqueeze(self.part(ptr, 1, 2**62), 0)
        passed = self.op("GreaterOrEqual", self.unsqueeze(self.arange(N), 1), ends)
        return self.op("ReduceSum", self.op("Cast", passed, to=INT64), self.const([1]), keepdims=0)

    def scatter(self, base: str, index: str, value: str, how: str) -> str:
        return self.op("ScatterElements", base, index, value, axis=0, reduction=how)

    def count_of(self, index: str, N: str) -> str:
        ones = self.op("Expand", self.const(1), self.op("Shape", index))
        return self.scatter(self.fill(self.const(0), N), index, ones, "add")

    def padded(self, start: str, count: str, total: str) -> str:
        """Positions start .. start + count of every row, then `total` as padding. [N, L]"""
        longest = self.op(
            "ReduceMax", self.op("Concat", count, self.const([1]), axis=0), keepdims=0
        )
        step = self.unsqueeze(self.arange(longest), 0)
        inside = self.op("Less", step, self.unsqueeze(count, 1))
        return self.op("Where", inside, self.op("Add", self.unsqueeze(start, 1), step), total)

    # meshes and pseudo-coordinates

    def mesh_edges(self, faces: str, N: str) -> tuple[str, str]:
        a, b, c = (self.column(faces, i) for i in range(3))
        source = self.op("Concat", a, b, b, c, c, a, axis=0)
        target = self.op("Concat", b, a, c, b, a, c, axis=0)
        return self.unique_edges(source, target, N)[:2]

    def unique_edges(self, source: str, target: str, N: str) -> tuple[str, str, str]:
        """Each edge that is no loop once, sorted by target and source, and how often it was."""
        key = self.op("Add", self.op("Mul", target, N), source)
        apart = self.op("Not", self.op("Equal", source, target))
        key = self.op("Compress", key, apart, axis=0)
        key, _, _, count = self.many("Unique", 4, key, sorted=1)
        target = self.op("Div", key, N)
        return self.op("Sub", key, self.op("Mul", target, N)), target, count

    def graph_max(self, value: str, graph: str, B: str) -> str:
        return self.scatter(self.fill(self.f32(0), B), graph, value, "max")

    def scaled(self, value: str, largest: str) -> str:
        zero = self.f32(0)
        some = self.op("Greater", largest, zero)
        safe = self.op("Where", some, largest, self.f32(1))
        return self.op("Where", some, self.op("Div", value, safe), zero)

    def pseudo(self, kind: str, positions: str, source: str, target: str, ptr: str) -> str:
        """Pseudo-coordinates [E, D], as in model/pseudo.py."""
        N, B = self.size(positions), self.size(self.part(ptr, 1, 2**62))
        graph = self.op("Gather", self.graph_of_node(ptr, N), target)
        if kind == "degree":
            raise ValueError("degrees need no positions; call `degree`")
        offset = self.op(
            "Sub", self.op("Gather", positions, source), self.op("Gather", positions, target)
        )
        if kind == "cartesian":
            extent = self.op("ReduceMax", self.op("Abs", offset), self.const([1]), keepdims=0)
            largest = self.op("Gather", self.graph_max(extent, graph, B), graph)
            twice = self.unsqueeze(self.op("Mul", largest, self.f32(2)), 1)
            return self.op("Add", self.scaled(offset, twice), self.f32(0.5))
        if kind != "polar":
            raise ValueError(f"no ONNX form of {kind} pseudo-coordinates")
        square = self.op("ReduceSum", self.op("Mul", offset, offset), self.const([1]), keepdims=0)
        distance = self.op("Sqrt", square)
        largest = self.op("Gather", self.graph_max(distance, graph, B), graph)
        turn = self.turn(self.column(offset, 1), self.column(offset, 0))
        columns = [self.unsqueeze(c, 1) for c in (self.scaled(distance, largest), turn)]
        return self.op("Concat", *columns, axis=1)

    def turn(self, y: str, x: str) -> str:
        """The angle of (x, y) as a fraction of a full turn; ONNX has no atan2."""
        zero, half = self.f32(0), self.f32(0.5)
        level = self.op("Equal", x, zero)
        slope = self.op("Div", y, self.op("Where", level, self.f32(1), x))
        angle = self.op("Div", self.op("Atan", slope), self.f32(2 * math.pi))
        left = self.op("Less", x, zero)
        angle = self.op("Where", left, self.op("Add", angle, half), angle)
        angle = self.op("Where", level, self.op("Mul", self.op("Sign", y), self.f32(0.25)), angle)
        below = self.op("Less", angle, zero)
        return self.op("Where", below, self.op("Add", angle, self.f32(1)), angle)

    def degree(self, source: str, target: str, ptr: str, N: str) -> str:
        count = self.op("Cast", self.count_of(target, N), to=FLOAT)
        graph = self.graph_of_node(ptr, N)
        B = self.size(self.part(ptr, 1, 2**62))
        largest = self.op("Gather", self.graph_max(count, graph, B), graph)
        return self.unsqueeze(self.op("Gather", self.scaled(count, largest), source), 1)

    # the convolution

    def plan(
        self, source: str, target: str, pseudo: str, N: str, spline: Any, is_sorted: bool
    ) -> Table:
        """Padded neighbour lists with basis values, for a `SplineConv`'s kernel."""
        if not is_sorted:
            size = self.shape(self.size(target))
            target, order = self.many("TopK", 2, target, size, largest=0, sorted=1, axis=0)
            source, pseudo = (self.op("Gather", x, order) for x in (source, pseudo))
        value, index = self.basis(pseudo, spline.kernel_size, spline.is_open, spline.degree)
        K, S = math.prod(spline.kernel_size), (spline.degree + 1) ** len(spline.kernel_size)
        rows = self.op("Add", self.unsqueeze(self.op("Mul", source, self.const(K)), 1), index)
        count = self.count_of(target, N)
        start = self.op("Sub", self.op("CumSum", count, self.const(0)), count)
        table = self.padded(start, count, self.size(target))  # [N, L]
        rows = self.op("Concat", rows, self.const(np.zeros((1, S))), axis=0)
        value = self.op("Concat", value, self.f32(np.zeros((1, S))), axis=0)
        flat = self.shape(N, self.const(-1))
        rows = self.op("Reshape", self.op("Gather", rows, table), flat)
        coef = self.op("Reshape", self.op("Gather", value, table), flat)
        degree = self.op("Max", self.op("Cast", count, to=FLOAT), self.f32(1))
        coef = self.op("Div", coef, self.unsqueeze(degree, 1))
        return Table(rows, self.unsqueeze(coef, 1), K)

    def basis(
        self, pseudo: str, kernel_size: list[int], is_open: list[int], degree: int
    ) -> tuple[str, str]:
        """B-spline products and weight indices [E, S], as in ops/reference.py."""
        value, index, stride = "", "", 1
        for d, k in enumerate(kernel_size):
            intervals = k - degree if is_open[d] else k
            v = self.op("Mul", self.column(pseudo, d), self.f32(intervals))
            cell = self.op("Min", self.op("Floor", v), self.f32(intervals - 1))
            b = self.bspline(self.op("Sub", v, cell), degree)  # [E, degree + 1]
            cell = self.unsqueeze(self.op("Cast", cell, to=INT64), 1)
            p = self.op("Add", cell, self.const(np.arange(degree + 1)))
            p = self.op("Mul", self.op("Mod", p, self.const(k)), self.const(stride))
            if d == 0:
                value, index = b, p
            else:
                flat = self.const([0, (degree + 1) ** (d + 1)])
                value = self.op("Mul", self.unsqueeze(b, 2), self.unsqueeze(value, 1))
                index = self.op("Add", self.unsqueeze(p, 2), self.unsqueeze(index, 1))
                value, index = (self.op("Reshape", x, flat) for x in (value, index))
            stride *= k
        return value, index

    def bspline(self, v: str, degree: int) -> str:
        """The degree + 1 B-splines at the fraction v, as polynomials: powers of v by a matrix."""
        matrix = {
            1: [[1, -1], [0, 1]],
            2: [[0.5, -1, 0.5], [0.5, 1, -1], [0, 0, 0.5]],
            3: np.array([[1, -3, 3, -1], [4, 0, -6, 3], [1, 3, 3, -3], [0, 0, 0, 1]]) / 6,
        }[degree]
        powers = [self.op("Expand", self.f32(1), self.op("Shape", v)), v]
        for _ in range(degree - 1):
            powers.append(self.op("Mul", powers[-1], v))
        stacked = self.op("Concat", *[self.unsqueeze(p, 1) for p in powers], axis=1)
        return self.op("MatMul", stacked, self.f32(np.asarray(matrix).T))

    def conv(self, x: str, layer: Any, table: Table) -> str:
        """A spline convolution: every node by every weight, then sums over padded neighbours."""
        M_in, M_out = layer.root.shape
        wide = layer.weight.detach().numpy().transpose(1, 0, 2).reshape(M_in, -1)
        y = self.op("MatMul", x, self.f32(wide))
        own = self.op("MatMul", x, self.f32(layer.root.detach().numpy()))
        return self.gather(y, own, layer, table)

    def gather(self, y: str, own: str, layer: Any, table: Table) -> str:
        y = self.op("Reshape", y, self.const([-1, layer.bias.numel()]))
        near = self.op("MatMul", table.coef, self.op("Gather", y, table.rows))  # [N, 1, M]
        near = self.op("Squeeze", near, self.const([1]))
        return self.op("Add", self.op("Add", near, own), self.f32(layer.bias.detach().numpy()))

    def sparse_conv(self, ptr: str, index: str, value: str, layer: Any, table: Table) -> str:
        """The same of features in compressed rows: their weights are gathered and summed."""
        M_in, M_out = layer.root.shape
        wide = layer.weight.detach().numpy().transpose(1, 0, 2).reshape(M_in, -1)
        wide = np.concatenate([wide, layer.root.detach().numpy()], 1)
        start = self.part(ptr, 0, -1)
        count = self.op("Sub", self.part(ptr, 1, 2**62), start)
        entry = self.padded(start, count, self.size(index))
        index = self.op("Gather", self.op("Concat", index, self.const([0]), axis=0), entry)
        value = self.op("Gather", self.op("Concat", value, self.f32([0]), axis=0), entry)
        y = self.op("MatMul", self.unsqueeze(value, 1), self.op("Gather", self.f32(wide), index))
        split = self.const([table.K * M_out, M_out])
        y, own = self.many("Split", 2, self.op("Squeeze", y, self.const([1])), split, axis=1)
        return self.gather(y, own, layer, table)

    def linear(self, x: str, layer: Any) -> str:
        weight, bias = (self.f32(t.detach().numpy()) for t in (layer.weight, layer.bias))
        return self.op("Gemm", x, weight, bias, transB=1)

    # pooling

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
        count = self.op("Sub", self.part(ptr, 1, 2**62), start)
        table = self.padded(start, count, self.size(x))
        rows = self.op("Concat", x, self.f32(np.zeros((1, channels))), axis=0)
        total = self.op("ReduceSum", self.op("Gather", rows, table), self.const([1]), keepdims=0)
        size = self.op("Max", self.op("Cast", count, to=FLOAT), self.f32(1))
        return self.op("Div", total, self.unsqueeze(size, 1))
