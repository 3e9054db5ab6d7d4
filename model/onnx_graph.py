"""An ONNX graph as it is written down: nodes, constants, and sums that are safe on many threads.

Sums over neighbours gather padded neighbour lists and multiply: ONNX Runtime's ScatterND(add), the
obvious other way, gives wrong sums now and then when it runs on more than one thread.
"""

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 18
INT64, FLOAT, DOUBLE = TensorProto.INT64, TensorProto.FLOAT, TensorProto.DOUBLE
END = 2**62  # of a slice: as far as there is


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
        ends = self.unsqueeze(self.part(ptr, 1, END), 0)
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
