"""Meshes, pseudo-coordinates and spline convolutions in standard ONNX operators."""

import math
from typing import Any, NamedTuple

import numpy as np

from model.onnx_graph import END, FLOAT, INT64, GraphBuilder


class Table(NamedTuple):
    """A planned graph: of every node its neighbours, padded to the longest list."""

    rows: str  # [N, L] source * U + which of the used weights
    coef: str  # [N, 1, L] basis value / number of neighbours, 0 in the padding
    used: str  # [U] the weights that any edge needs


class SplineBuilder(GraphBuilder):
    """A graph builder that knows the operator, as ops/reference.py and model/pseudo.py do."""

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
        N, B = self.size(positions), self.size(self.part(ptr, 1, END))
        graph = self.op("Gather", self.graph_of_node(ptr, N), target)
        if kind == "degree":
            raise ValueError("degrees need no positions; call `node_share`")
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

    def node_share(self, target: str, ptr: str, N: str) -> str:
        """deg / max deg of every node. [N, 1]"""
        count = self.op("Cast", self.count_of(target, N), to=FLOAT)
        graph = self.graph_of_node(ptr, N)
        B = self.size(self.part(ptr, 1, END))
        largest = self.op("Gather", self.graph_max(count, graph, B), graph)
        return self.unsqueeze(self.scaled(count, largest), 1)

    def plan(
        self, source: str, target: str, pseudo: str, N: str, spline: Any, is_sorted: bool
    ) -> Table:
        """Padded neighbour lists with basis values, for a `SplineConv`'s kernel."""
        if not is_sorted:
            size = self.shape(self.size(target))
            target, order = self.many("TopK", 2, target, size, largest=0, sorted=1, axis=0)
            source, pseudo = (self.op("Gather", x, order) for x in (source, pseudo))
        value, index = self.basis(pseudo, spline.kernel_size, spline.is_open, spline.degree)
        S = (spline.degree + 1) ** len(spline.kernel_size)
        used, U, index = self.used_weights(value, index, math.prod(spline.kernel_size))
        rows = self.op("Add", self.unsqueeze(self.op("Mul", source, U), 1), index)
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
        return Table(rows, self.unsqueeze(coef, 1), used)

    def used_weights(self, value: str, index: str, K: int) -> tuple[str, str, str]:
        """Which weights matter [U], U, and every index counted among those: meshes need a third."""
        flat = self.const([-1])
        matters = self.op("Cast", self.op("Greater", value, self.f32(0)), to=INT64)
        flags = self.scatter(
            self.const([1] + [0] * (K - 1)),  # never none at all, even in a graph without edges
            self.op("Reshape", index, flat),
            self.op("Reshape", matters, flat),
            "max",
        )
        used = self.op("Reshape", self.op("NonZero", flags), flat)
        place = self.op("Sub", self.op("CumSum", flags, self.const(0)), self.const(1))
        return used, self.size(used), self.op("Gather", place, index)

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
        weight = self.op("Gather", self.f32(layer.weight.detach().numpy()), table.used)
        wide = self.op("Transpose", weight, perm=[1, 0, 2])  # [M_in, U, M_out]
        wide = self.op("Reshape", wide, self.const([layer.weight.size(1), -1]))
        own = self.op("MatMul", x, self.f32(layer.root.detach().numpy()))
        return self.gather(self.op("MatMul", x, wide), own, layer, table)

    def sparse_conv(self, ptr: str, index: str, value: str, layer: Any, table: Table) -> str:
        """The same of features in compressed rows: their weights are gathered and summed."""
        M_in, M_out = layer.root.shape
        weight = self.op("Gather", self.f32(layer.weight.detach().numpy()), table.used)
        wide = self.op("Transpose", weight, perm=[1, 0, 2])
        wide = self.op("Reshape", wide, self.const([M_in, -1]))
        wide = self.op("Concat", wide, self.f32(layer.root.detach().numpy()), axis=1)
        start = self.part(ptr, 0, -1)
        count = self.op("Sub", self.part(ptr, 1, END), start)
        entry = self.padded(start, count, self.size(index))
        index = self.op("Gather", self.op("Concat", index, self.const([0]), axis=0), entry)
        value = self.op("Gather", self.op("Concat", value, self.f32([0]), axis=0), entry)
        y = self.op("MatMul", self.unsqueeze(value, 1), self.op("Gather", wide, index))
        y = self.op("Squeeze", y, self.const([1]))
        split, end = self.const([-M_out]), self.const([END])
        own = self.op("Slice", y, split, end, self.const([1]))
        y = self.op("Slice", y, self.const([0]), split, self.const([1]))
        return self.gather(y, own, layer, table)

    def gather(self, y: str, own: str, layer: Any, table: Table) -> str:
        """The weighted sums over neighbours of y [N, U * M_out], a node's own part, and bias."""
        y = self.op("Reshape", y, self.const([-1, layer.bias.numel()]))
        near = self.op("MatMul", table.coef, self.op("Gather", y, table.rows))  # [N, 1, M_out]
        near = self.op("Squeeze", near, self.const([1]))
        return self.op("Add", self.op("Add", near, own), self.f32(layer.bias.detach().numpy()))

    def linear(self, x: str, layer: Any) -> str:
        weight, bias = (self.f32(t.detach().numpy()) for t in (layer.weight, layer.bias))
        return self.op("Gemm", x, weight, bias, transB=1)
