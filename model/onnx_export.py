"""Networks as ONNX, in standard operators with free numbers of graphs, nodes and edges."""

import os
import time
from typing import Any

import numpy as np
import torch
from onnx import helper
from torch import Tensor, nn

from model.errors import BundleError, UnsupportedTask
from model.graph import POSITIONS
from model.nets import CorrespondenceNet, GridNet, NodeNet, SuperpixelNet
from model.onnx_graph import FLOAT, INT64
from model.onnx_pooling import NetBuilder
from model.onnx_spline import Table
from model.pseudo import cartesian
from model.serving import coordinates_of
from ops import reference

REPEATS = 100
SECONDS = 4.0
"""How often, and at most how long, a graph is run again to find answers that vary."""


def export_onnx(net: nn.Module) -> bytes:
    """The network as the bytes of a .onnx file, inputs and outputs named as in its manifest."""
    g = NetBuilder()
    if isinstance(net, CorrespondenceNet):
        return _correspondence(g, net)
    if isinstance(net, NodeNet):
        return _node_labels(g, net)
    if isinstance(net, SuperpixelNet):
        return _superpixels(g, net)
    if isinstance(net, GridNet):
        return _grid(g, net)
    raise UnsupportedTask(f"{type(net).__name__} has no ONNX form")


def _correspondence(g: NetBuilder, net: CorrespondenceNet) -> bytes:
    inputs = [
        _value("vertices", FLOAT, ["V", 3]),
        _value("faces", INT64, ["F", 3]),
        _value("ptr", INT64, ["P"]),
        _value("top_k", INT64, []),
    ]
    N = g.size("vertices")
    source, target = g.mesh_edges("faces", N)
    pseudo = g.pseudo("cartesian", "vertices", source, target, "ptr")
    table = g.plan(source, target, pseudo, N, net.convs[0], is_sorted=True)
    x = g.op("Expand", g.f32([[1]]), g.shape(N, g.const(1)))
    for conv in net.convs:
        x = g.op("Elu", g.conv(x, conv, table))
    scores = g.linear(g.op("Elu", g.linear(x, net.hidden)), net.head)
    value, index = g.many("TopK", 2, scores, g.shape("top_k"), axis=1)
    best = g.op("Slice", value, g.const([0]), g.const([1]), g.const([1]))
    total = g.op("ReduceSum", g.op("Exp", g.op("Sub", scores, best)), g.const([1]), keepdims=1)
    confidence = g.op("Div", g.op("Exp", g.op("Sub", value, best)), total)
    outputs = [
        _output(g, index, "index", INT64, ["V", "k"]),
        _output(g, confidence, "confidence", FLOAT, ["V", "k"]),
    ]
    return g.finish("correspondence", inputs, outputs)


def _node_labels(g: NetBuilder, net: NodeNet) -> bytes:
    inputs = [
        _value("feature_ptr", INT64, ["N1"]),
        _value("feature_index", INT64, ["X"]),
        _value("feature_value", FLOAT, ["X"]),
        _value("edge_index", INT64, [2, "E"]),
        _value("ptr", INT64, ["P"]),
    ]
    N = g.op("Sub", g.size("feature_ptr"), g.const(1))
    source, target = _ends(g)
    taken = coordinates_of(net)
    if taken is None:
        share = g.node_share(target, "ptr", N)
        if net.loops:
            loop = g.arange(N)
            source, target = (g.op("Concat", x, loop, axis=0) for x in (source, target))
        pseudo = g.op("Gather", share, source)
    else:
        rows = "N" if taken.name == POSITIONS else "E"
        inputs.insert(-1, _value(taken.name, FLOAT, [rows, taken.size]))
        pseudo = taken.name
        if taken.name == POSITIONS:
            pseudo = g.pseudo(net.pseudo, POSITIONS, source, target, "ptr")
    table = g.plan(source, target, pseudo, N, net.first, is_sorted=False)
    x = g.sparse_conv("feature_ptr", "feature_index", "feature_value", net.first, table)
    x = g.conv(g.op("Elu", x), net.second, table)
    return _probabilities(g, "node-labels", x, inputs, "N")


def _superpixels(g: NetBuilder, net: SuperpixelNet) -> bytes:
    N = g.size("positions")
    source, target = _ends(g)
    pseudo = g.pseudo(net.pseudo, "positions", source, target, "ptr")
    table = g.plan(source, target, pseudo, N, net.conv1, is_sorted=False)
    x = g.op("Elu", g.conv("features", net.conv1, table))
    first = g.cluster(source, target, "ptr", N)
    x = g.max_pool(x, first.members)
    positions = g.mean_pool("positions", first.members)
    pseudo = g.pseudo(net.pseudo, positions, first.source, first.target, first.ptr)
    table = g.plan(first.source, first.target, pseudo, first.size, net.conv2, is_sorted=True)
    x = g.op("Elu", g.conv(x, net.conv2, table))
    second = g.cluster(first.source, first.target, first.ptr, first.size)
    x = g.average_pool(g.max_pool(x, second.members), second.ptr, net.hidden.in_features)
    x = g.linear(g.op("Elu", g.linear(x, net.hidden)), net.head)
    return _probabilities(g, "graph-label", x, _image_inputs(net.conv1), "B")


def _grid(g: NetBuilder, net: GridNet) -> bytes:
    N, half, M = g.size("positions"), net.side // 2, net.conv1.bias.numel()
    B = g.op("Sub", g.size("ptr"), g.const(1))
    source, target = _ends(g)
    pseudo = g.pseudo("cartesian", "positions", source, target, "ptr")
    table = g.plan(source, target, pseudo, N, net.conv1, is_sorted=False)
    x = g.op("Elu", g.conv("features", net.conv1, table))
    at = g.op("Floor", g.op("Div", "positions", g.f32(2)))
    at = g.op("Cast", g.op("Clip", at, g.f32(0), g.f32(half - 1)), to=INT64)
    row = g.op("Add", g.op("Mul", g.graph_of_node("ptr", N), g.const(half)), g.column(at, 1))
    cell = g.op("Add", g.op("Mul", row, g.const(half)), g.column(at, 0))
    cell = g.op("Expand", g.unsqueeze(cell, 1), g.shape(N, g.const(M)))
    empty = g.f32(-np.inf)
    base = g.fill(empty, g.op("Mul", B, g.const(half * half)), g.const(M))
    x = g.scatter(base, cell, x, "max")
    x = g.op("Where", g.op("Equal", x, empty), g.f32(0), x)
    x = g.op("Elu", g.conv(x, net.conv2, _coarse_table(g, net, B)))
    quarter = net.side // 4
    parts = g.shape(B, *(g.const(s) for s in (quarter, 2, quarter, 2, net.conv2.bias.numel())))
    x = g.op("ReduceMax", g.op("Reshape", x, parts), g.const([2, 4]), keepdims=0)
    x = g.op("Reshape", x, g.shape(B, g.const(-1)))
    x = g.linear(g.op("Elu", g.linear(x, net.hidden)), net.head)
    return _probabilities(g, "graph-label", x, _image_inputs(net.conv1), "B")


def _coarse_table(g: NetBuilder, net: GridNet, B: str) -> Table:
    """The pooled grid is the same for all images: its plan is a constant, shifted per image."""
    conv, edges = net.conv2, net.coarse_edges
    nodes = len(net.coarse_positions)
    pseudo = cartesian(net.coarse_positions, edges, torch.tensor([0, nodes]))
    value, index = reference.basis(pseudo, conv.kernel_size, conv.is_open, conv.degree)
    K, S = conv.weight.size(0), value.size(1)
    source, target = edges[0], edges[1]  # sorted by target
    count = torch.bincount(target, minlength=nodes)
    place = torch.arange(len(target)) - (count.cumsum(0) - count)[target]
    rows = torch.zeros(nodes, int(count.max()), S, dtype=torch.long)
    coef = torch.zeros(nodes, int(count.max()), S)
    rows[target, place] = source[:, None] * K + index
    coef[target, place] = value / count[target, None]
    # one copy of the table per image, each pointing at its own nodes
    image = g.op("Mul", g.arange(B), g.const(nodes * K))
    shifted = g.op(
        "Add", g.const(rows.flatten(1)[None].numpy()), g.op("Reshape", image, g.const([-1, 1, 1]))
    )
    shape = g.const([-1, rows[0].numel()])
    many = g.op("Expand", g.f32(coef.flatten(1)[None].numpy()), g.shape(B, g.const(1), g.const(1)))
    coefs = g.unsqueeze(g.op("Reshape", many, shape), 1)
    return Table(g.op("Reshape", shifted, shape), coefs, g.const(np.arange(K)))


def _ends(g: NetBuilder) -> tuple[str, str]:
    source, target = (g.op("Gather", "edge_index", g.const(row)) for row in (0, 1))
    return source, target


def _image_inputs(conv: Any) -> list[Any]:
    return [
        _value("features", FLOAT, ["N", conv.weight.size(1)]),
        _value("positions", FLOAT, ["N", 2]),
        _value("edge_index", INT64, [2, "E"]),
        _value("ptr", INT64, ["P"]),
    ]


def _probabilities(g: NetBuilder, name: str, x: str, inputs: list[Any], rows: str) -> bytes:
    out = g.op("Softmax", x, axis=1)
    return g.finish(name, inputs, [_output(g, out, "probabilities", FLOAT, [rows, "C"])])


def _value(name: str, dtype: int, shape: list[Any]) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def _output(g: NetBuilder, inner: str, name: str, dtype: int, shape: list[Any]) -> Any:
    g.nodes.append(helper.make_node("Identity", [inner], [name]))
    return _value(name, dtype, shape)


def run_onnx(
    model: bytes,
    inputs: dict[str, Tensor | int],
    threads: int = 2,
    repeats: int = REPEATS,
    seconds: float = SECONDS,
) -> list[np.ndarray]:
    """Answers of ONNX Runtime on several threads, refused if they vary from run to run."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feed = {name: np.asarray(value) for name, value in inputs.items()}
    first: list[np.ndarray] = session.run(None, feed)
    end = time.monotonic() + seconds
    for _ in range(repeats - 1):
        if time.monotonic() > end:
            break
        again = session.run(None, feed)
        for a, b in zip(first, again, strict=True):
            if not np.array_equal(a, b):
                raise BundleError("ONNX Runtime's answers vary from run to run; not exported")
    return first
