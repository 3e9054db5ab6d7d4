import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from model import export
from model.bundle import open_bundle
from model.errors import BundleError
from model.export import arguments, compare, export_bundle, run
from model.graph import Coordinates, Graph
from model.nets import NodeNet, SuperpixelNet
from model.onnx_export import export_onnx, run_onnx
from model.request import request_graph
from model.serving import serve
from model.tasks import image_graph, label_graph, mesh_graph, node_graph
from model.zoo import ZooEntry, read_zoo, write_zoo
from tests.toys import TOYS, make_toy_zoo

rng = np.random.default_rng(0)


def graphs_of(name: str) -> list[Graph]:
    """Graphs of several sizes, some with isolated nodes, one without any edge."""
    if name == "toy-body":
        return [
            mesh_graph(rng.normal(size=(V, 3)), rng.integers(0, V, (F, 3)))
            for V, F in ((20, 30), (5, 1), (60, 150), (3, 1))
        ]
    if name == "toy-nodes":
        return [
            node_graph(n, rng.integers(0, n, (e, 2)), rng.integers(0, 2, (n, 20)), undirected)
            for n, e, undirected in ((15, 30, True), (4, 0, True), (40, 90, False))
        ]
    how = TOYS[name].image
    assert how is not None
    images = [rng.integers(0, 256, (28, 28)).astype(np.uint8) for _ in range(2)]
    blank = label_graph(2, [], [[0.5], [1]], [[3, 4], [20, 9]])
    return [image_graph(images[0], how), blank, image_graph(images[1], how)]


@pytest.mark.parametrize("name", TOYS)
def test_eager_torchscript_and_onnx_agree_alone_and_in_a_batch(name, toy_bundles, tmp_path):
    bundle = open_bundle(toy_bundles[name])
    _, net = read_zoo(make_toy_zoo(tmp_path, name) / name)
    scripted = torch.jit.load(bundle.file("model.ts"))
    onnx_model = bundle.file("model.onnx").read_bytes()
    graphs = graphs_of(name)
    for batch in [graphs, *([graph] for graph in graphs)]:
        inputs = arguments(batch, top_k=2)
        expected = run(serve(net), inputs)
        for a, b in zip(expected, run(scripted, inputs), strict=True):
            assert np.array_equal(a, b)
        compare(expected, run_onnx(onnx_model, inputs, repeats=1), "ONNX Runtime")


@pytest.mark.parametrize("name", TOYS)
def test_onnx_runtime_gives_the_same_bits_a_hundred_times_on_two_threads(name, toy_bundles):
    model = open_bundle(toy_bundles[name]).file("model.onnx").read_bytes()
    run_onnx(model, arguments(graphs_of(name)), threads=2, repeats=100, seconds=20)


@pytest.mark.parametrize("pseudo, degree", [("cartesian", 2), ("cartesian", 3), ("polar", 1)])
def test_onnx_knows_every_degree_and_polar_coordinates(pseudo, degree):
    net = SuperpixelNet(channels=(4, 8), hidden=8, pseudo=pseudo, degree=degree).eval()
    inputs = arguments(graphs_of("toy-superpixels"))
    expected = run(serve(net), inputs)
    compare(expected, run_onnx(export_onnx(net), inputs, repeats=1), "ONNX Runtime")


PLACES = {
    "plane": ("cartesian", Coordinates("positions", 2)),
    "space": ("cartesian", Coordinates("positions", 3)),
    "around": ("polar", Coordinates("positions", 2)),
    "edges": ("given", Coordinates("pseudo", 2)),
}


def placed_graphs(coordinates: Coordinates) -> list[Graph]:
    graphs = []
    for n, e in ((15, 40), (4, 0), (30, 70)):
        edges = np.unique(rng.integers(0, n, (e, 2)), axis=0)
        positions = rng.normal(size=(n, 3 if coordinates.size == 3 else 2))
        pseudo = rng.random((len(edges), 2)) if len(edges) else np.zeros((0, 2))
        features = rng.integers(0, 2, (n, 20))
        graphs.append(node_graph(n, edges, features, False, positions, pseudo, 20, coordinates))
    return graphs


def test_loops_are_part_of_every_form_of_a_network():
    torch.manual_seed(0)
    net = NodeNet(20, 3, loops=True).eval()
    scripted = torch.jit.script(serve(net))
    graphs = graphs_of("toy-nodes")
    for batch in [graphs, *([graph] for graph in graphs)]:
        inputs = arguments(batch)
        expected = run(serve(net), inputs)
        assert np.array_equal(expected[0], run(scripted, inputs)[0])
        compare(expected, run_onnx(export_onnx(net), inputs, repeats=1), "ONNX Runtime")


@pytest.mark.parametrize("kind", PLACES)
def test_node_networks_take_positions_or_pseudo_coordinates(kind, tmp_path):
    pseudo, coordinates = PLACES[kind]
    torch.manual_seed(0)
    parameters = {"num_features": 20, "kernel_size": 3, "dimensions": coordinates.size}
    entry = ZooEntry(name="placed", net="node", parameters=parameters, pseudo=pseudo)
    net = entry.build().eval()
    write_zoo(tmp_path / "zoo", entry, net.state_dict(), half=False)
    bundle = open_bundle(export_bundle(tmp_path / "zoo", tmp_path / "bundles"))
    assert bundle.manifest.coordinates == coordinates
    scripted = torch.jit.load(bundle.file("model.ts"))
    onnx_model = bundle.file("model.onnx").read_bytes()
    graphs = placed_graphs(coordinates)
    together = run(serve(net), arguments(graphs))[0]
    alone = np.concatenate([run(serve(net), arguments([graph]))[0] for graph in graphs])
    assert np.array_equal(together, alone)
    for batch in [graphs, *([graph] for graph in graphs)]:
        inputs = arguments(batch)
        assert list(inputs) == [spec.name for spec in bundle.manifest.inputs]
        expected = run(serve(net), inputs)
        assert np.array_equal(expected[0], run(scripted, inputs)[0])
        compare(expected, run_onnx(onnx_model, inputs, repeats=1), "ONNX Runtime")
    elsewhere = placed_graphs(coordinates)  # the same kind of graph, other places
    assert not np.array_equal(together, run(serve(net), arguments(elsewhere))[0])


@pytest.mark.parametrize("name", TOYS)
def test_the_sample_works_and_inputs_are_named_in_the_manifest(name, toy_bundles):
    bundle = open_bundle(toy_bundles[name])
    graph = request_graph(bundle.manifest.task, bundle.sample, bundle.manifest.num_features)
    inputs = arguments([graph])
    assert list(inputs) == [spec.name for spec in bundle.manifest.inputs]
    outputs = run(torch.jit.load(bundle.file("model.ts")), inputs)
    assert len(outputs) == len(bundle.manifest.outputs)
    for output, spec in zip(outputs, bundle.manifest.outputs, strict=True):
        assert str(output.dtype) == spec.dtype and output.ndim == len(spec.shape)
    assert set(bundle.manifest.files) >= {"model.ts", "model.onnx", "sample.json"}
    assert ("reference.ply" in bundle.manifest.files) == (name == "toy-body")


def test_the_scripted_network_loads_where_only_the_operator_was_imported(toy_bundles):
    code = (
        "import sys, warnings; warnings.simplefilter('ignore'); import ops, torch;"
        f"m = torch.jit.load({str(toy_bundles['toy-body'] / 'model.ts')!r});"
        "i, c = m(torch.rand(4, 3), torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.tensor([0, 4]), 3);"
        "assert i.shape == c.shape == (4, 3);"
        "assert not any(name.split('.')[0] == 'model' for name in sys.modules)"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)


def test_confidences_are_the_largest_probabilities(toy_bundles, tmp_path):
    _, net = read_zoo(make_toy_zoo(tmp_path, "toy-body") / "toy-body")
    inputs = arguments(graphs_of("toy-body"), top_k=5)
    index, confidence = run(torch.jit.load(toy_bundles["toy-body"] / "model.ts"), inputs)
    with torch.inference_mode():
        scores = net(*list(inputs.values())[:-1])
    expected, best = torch.softmax(scores, 1).topk(5)
    assert np.array_equal(index[:, 0], best[:, 0]) and np.allclose(confidence, expected, atol=1e-6)


@pytest.mark.parametrize("form", ["TorchScript", "ONNX Runtime"])
def test_a_form_that_differs_is_not_exported_and_nothing_is_written(form, tmp_path, monkeypatch):
    zoo = make_toy_zoo(tmp_path / "zoo", "toy-nodes")
    honest = export.compare

    def spoil(expected, found, what):
        honest(expected, [f + 0.01 if what == form else f for f in found], what)

    monkeypatch.setattr(export, "compare", spoil)
    with pytest.raises(BundleError, match=f"{form} differs from the network by 0.01"):
        export_bundle(zoo / "toy-nodes", tmp_path / "bundles")
    assert not (tmp_path / "bundles").exists()


def test_another_class_counts_only_where_it_is_clearly_ahead():
    sure, torn = np.array([[0.9, 0.1]]), np.array([[0.50001, 0.49999]])
    compare([torn], [torn[:, ::-1]], "X")
    with pytest.raises(BundleError, match="X names another class 1 times"):
        compare([np.array([[3, 1]]), sure], [np.array([[1, 3]]), sure], "X")
    with pytest.raises(BundleError, match="differs from the network by nan"):
        compare([sure], [sure * np.nan], "X")


def test_without_onnx_the_export_says_what_to_install(tmp_path, monkeypatch):
    zoo = make_toy_zoo(tmp_path / "zoo", "toy-nodes")
    monkeypatch.setitem(sys.modules, "onnx", None)
    for name in ("export", "pooling", "spline", "graph"):
        monkeypatch.delitem(sys.modules, f"model.onnx_{name}")
    with pytest.raises(BundleError, match=r"pip install '\.\[onnx\]'"):
        export_bundle(zoo / "toy-nodes", tmp_path / "bundles")


def test_answers_that_vary_are_refused(monkeypatch):
    import onnxruntime

    class Flaky:
        def __init__(self, *_: object, **__: object) -> None:
            self.count = 0

        def run(self, *_: object) -> list[np.ndarray]:
            self.count += 1
            return [np.array([self.count // 50])]

    monkeypatch.setattr(onnxruntime, "InferenceSession", Flaky)
    with pytest.raises(BundleError, match="vary from run to run"):
        run_onnx(b"", {}, repeats=100)


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(labels=["one"]), "3 classes, but 1 labels"),
        (dict(name="toy-body"), None),
    ],
)
def test_facts_must_fit_the_network(change, message, tmp_path):
    directory = make_toy_zoo(tmp_path / "zoo", "toy-nodes") / "toy-nodes"
    path = directory / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    if message is None:
        written = export_bundle(directory, tmp_path / "bundles", with_onnx=False)
        assert written == tmp_path / "bundles" / "toy-body" / "1"
        return
    with pytest.raises(BundleError, match=message):
        export_bundle(directory, tmp_path / "bundles")


def test_a_reference_of_another_size_is_refused(tmp_path):
    import trimesh

    directory = make_toy_zoo(tmp_path / "zoo", "toy-body") / "toy-body"
    trimesh.creation.box().export(directory / "reference.ply")
    with pytest.raises(BundleError, match="42 classes, but the reference 8 vertices"):
        export_bundle(directory, tmp_path / "bundles")


def test_a_given_sample_is_used_and_checked(tmp_path):
    directory = make_toy_zoo(tmp_path / "zoo", "toy-nodes") / "toy-nodes"
    request = {"graph": {"num_nodes": 1, "edges": [], "features": [[1] * 20]}}
    (directory / "sample.json").write_text(json.dumps(request))
    path = export_bundle(directory, tmp_path / "bundles", with_onnx=False)
    assert open_bundle(path).sample == request
    request["graph"]["features"] = [[1]]
    (directory / "sample.json").write_text(json.dumps(request))
    with pytest.raises(BundleError, match="the sample is not a valid request: graph.features"):
        export_bundle(directory, tmp_path / "bundles", with_onnx=False)
    (directory / "sample.json").write_text("{")
    with pytest.raises(BundleError, match="sample.json is not JSON"):
        export_bundle(directory, tmp_path / "bundles", with_onnx=False)
