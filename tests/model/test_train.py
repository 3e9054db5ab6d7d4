import json
import resource
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from model import train as training
from model.checkpoint import CheckpointError, load_checkpoint
from model.datasets.cora import NodeData
from model.datasets.meshes import Meshes
from model.datasets.mnist import DigitGraphs, Digits
from model.errors import UnsupportedTask
from model.problems import (
    Correspondence,
    Grids,
    NodeLabels,
    Problem,
    Superpixels,
    gather_graphs,
    grid_scores,
)
from model.recipes import RECIPES, Recipe
from model.superpixels import superpixel_graph
from model.tasks import image_graph, node_graph
from model.train import (
    averaging,
    balance,
    choose,
    make_optimisers,
    run,
    schedule,
    score,
    train,
    write_entry,
)
from model.zoo import read_zoo


def nodes(recipe: Recipe) -> NodeLabels:
    """Two cliques whose nodes have one feature each, and a label by clique."""
    edges = [(a, b) for c in (0, 8) for a in range(c, c + 8) for b in range(a + 1, c + 8)]
    features = np.eye(16, dtype=np.float32)
    every = np.arange(16)
    data = NodeData(
        node_graph(16, edges, features), 16, (every >= 8).astype(np.int64), ("a", "b"),
        every[::2], every[1::4], every[3::4],
    )  # fmt: skip
    return NodeLabels(recipe, data)


def bars() -> Digits:
    """Upright and level bars, as digits 0 and 1."""
    images = np.zeros((40, 28, 28), np.uint8)
    for n in range(40):
        at = 6 + n // 2 % 14
        if n % 2:
            images[n, at : at + 3, 4:24] = 255
        else:
            images[n, 4:24, at : at + 3] = 255
    return Digits(images, np.arange(40) % 2)


def bar_graphs() -> DigitGraphs:
    digits = bars()
    features, positions, edges = zip(*map(superpixel_graph, digits.images), strict=True)
    return DigitGraphs(
        np.concatenate(features),
        np.concatenate(positions),
        np.concatenate(edges, 1).astype(np.uint8),
        np.cumsum([0, *map(len, features)]),
        np.cumsum([0, *(e.shape[1] for e in edges)]),
        digits.labels,
    )


def shapes() -> Meshes:
    """A bent strip of triangles, in a few bends."""
    u, v = np.meshgrid(np.arange(6.0), np.arange(4.0))
    quad = np.array([[a, a + 1, a + 6] for a in range(18) if a % 6 < 5])
    faces = np.concatenate([quad, quad + [1, 6, 0]])
    faces[len(quad) :, 1:] = np.stack([quad[:, 0] + 7, quad[:, 0] + 6], 1)
    bends = [
        np.stack([u.ravel() ** 1.3, v.ravel() ** 1.5, np.sin(b * u.ravel())], 1).astype(np.float32)
        for b in np.linspace(0.1, 0.5, 6)
    ]
    return Meshes(faces, bends[0], np.stack(bends), np.stack(bends[1:3]), np.stack(bends[3:4]))


def make(task: str, **changes: object) -> Problem:
    recipe = replace(RECIPES[task], **changes)
    torch.manual_seed(0)
    if task == "cora":
        return nodes(recipe)
    if task == "mnist-superpixels":
        return Superpixels(recipe, bar_graphs())
    if task == "mnist-grid":
        return Grids(recipe, bars())
    return Correspondence(recipe, shapes())


SMALL = {
    "cora": {"steps": 60, "weight_decay": 0.0},
    "mnist-superpixels": {"steps": 80, "batch": 12, "learning_rate": 0.005, "warmup": 1},
    "mnist-grid": {
        "steps": 20, "batch": 8, "warmup": 1, "learning_rate": 0.001, "balance": True,
        "parameters": {"hidden": 16},
    },
    "bodies": {
        "steps": 120, "warmup": 5, "learning_rate": 0.01,
        "parameters": {"channels": (8, 16), "hidden": 32, "dropout": 0.0},
    },
}  # fmt: skip


@pytest.mark.parametrize("task", SMALL)
def test_every_network_learns_a_small_problem_by_heart(task: str, tmp_path: Path):
    problem = make(task, **SMALL[task])
    assert run(problem, problem.recipe, tmp_path) == (problem.recipe.steps, True)
    assert score(problem) > 0.9


PAUSED = {
    "cora": {"steps": 12, "average": 0.9},
    "bodies": {**SMALL["bodies"], "steps": 12},
}


@pytest.mark.parametrize("task", PAUSED)
def test_pausing_changes_nothing(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    through = make(task, **PAUSED[task])
    run(through, through.recipe, tmp_path)

    paused = make(task, **PAUSED[task])
    folder = tmp_path / "paused"
    folder.mkdir()
    take = paused.step

    def interrupt(chosen: np.ndarray, number: int):
        if number == 4:
            signal.raise_signal(signal.SIGINT)
        return take(chosen, number)

    monkeypatch.setattr(paused, "step", interrupt)
    assert run(paused, paused.recipe, folder) == (5, False)
    again = make(task, **PAUSED[task])
    for parameter in again.net.parameters():  # the checkpoint alone must count
        torch.nn.init.zeros_(parameter)
    assert run(again, again.recipe, folder, resume=True) == (12, True)
    for a, b in zip(through.net.parameters(), again.net.parameters(), strict=True):
        assert torch.equal(a, b)
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [5, 12]


def test_a_checkpoint_of_another_recipe_is_refused(tmp_path: Path):
    problem = make("cora", steps=2)
    run(problem, problem.recipe, tmp_path)
    other = make("cora", steps=3)
    with pytest.raises(CheckpointError, match="another recipe"):
        run(other, other.recipe, tmp_path, resume=True)


def test_a_checkpoint_of_another_network_is_refused(tmp_path: Path):
    problem = make("cora", steps=2)
    run(problem, problem.recipe, tmp_path)
    wide = make("cora", parameters={"hidden": 20}, steps=2)
    optimiser = torch.optim.Adam(wide.net.parameters())
    with pytest.raises(CheckpointError, match=r"another network: first.weight should be"):
        load_checkpoint(tmp_path, problem.recipe, wide.net, [optimiser])


def test_without_a_checkpoint_there_is_nothing_to_resume(tmp_path: Path):
    problem = make("cora")
    with pytest.raises(CheckpointError, match="nothing to resume"):
        run(problem, problem.recipe, tmp_path, resume=True)


def test_a_broken_checkpoint_is_refused(tmp_path: Path):
    (tmp_path / "checkpoint.safetensors").write_bytes(b"not tensors")
    problem = make("cora")
    with pytest.raises(CheckpointError, match="cannot be read"):
        run(problem, problem.recipe, tmp_path, resume=True)


def test_a_disk_that_fills_up_leaves_the_old_checkpoint(tmp_path: Path):
    problem = make("cora", steps=2)
    run(problem, problem.recipe, tmp_path)
    whole = (tmp_path / "checkpoint.safetensors").read_bytes()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) // 2, before[1]))
    try:
        with pytest.raises(CheckpointError, match="could not be written: .*File too large"):
            run(problem, problem.recipe, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == whole
    assert {p.name for p in tmp_path.iterdir()} == {"checkpoint.safetensors", "log.jsonl"}


@pytest.mark.parametrize("task", SMALL)
def test_a_trained_network_is_written_and_read_back(task: str, tmp_path: Path):
    problem = make(task, **SMALL[task])
    write_entry(problem, tmp_path, {"validation": 0.5})
    entry, net = read_zoo(tmp_path)
    assert entry.name == task and entry.scores == {"validation": 0.5}
    for name, value in problem.net.named_parameters():
        assert torch.equal(net.get_parameter(name), value.half().float())


def test_a_whole_training_from_a_file_leaves_a_zoo_entry(tmp_path: Path):
    graph = {
        "num_nodes": 20,
        "edges": [[n, n + 2] for n in range(18)],
        "features": [[n % 2, 1.0] for n in range(20)],
    }
    path = tmp_path / "graph.json"
    path.write_text(json.dumps({"graph": graph, "labels": [n % 2 for n in range(20)]}))
    trained = train("graph", path, tmp_path / "out", name="parity", steps=100, quiet=True)
    assert trained.finished and trained.validation == 1.0
    assert read_zoo(tmp_path / "out")[0].name == "parity"


def compass(pseudo: bool = False) -> dict[str, Any]:
    """Pairs of nodes; a node's label says on which side of it the other lies."""
    rng = np.random.default_rng(0)
    start = rng.uniform(-9, 9, (40, 2))
    side = rng.choice([-1.0, 1.0], 40)
    positions = np.stack([start, start + np.stack([side, rng.uniform(-0.3, 0.3, 40)], 1)], 1)
    edges = np.arange(80).reshape(40, 2)
    graph = {"num_nodes": 80, "edges": edges.tolist(), "features": [[1.0]] * 80}
    if pseudo:
        both = np.concatenate([edges, edges[:, ::-1]])
        flat = positions.reshape(80, 2)
        offset = flat[both[:, 0], :1] - flat[both[:, 1], :1]
        graph |= {"edges": both.tolist(), "undirected": False}
        graph["pseudo"] = (offset / 2 + 0.5).clip(0, 1).tolist()
    else:
        graph["positions"] = positions.reshape(80, 2).tolist()
    labels = np.stack([side > 0, side < 0], 1).astype(int).ravel()
    return {"graph": graph, "labels": labels.tolist(), "names": ["left", "right"]}


@pytest.mark.parametrize("pseudo", [False, True])
def test_a_graph_with_positions_or_pseudo_coordinates_is_learned_by_them(
    pseudo: bool, tmp_path: Path
):
    content = compass(pseudo)
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(content))
    trained = train("graph", path, tmp_path / "placed", name="compass", steps=100, quiet=True)
    assert trained.validation == 1.0
    entry, _ = read_zoo(tmp_path / "placed")
    assert entry.pseudo == ("given" if pseudo else "cartesian")
    assert entry.parameters["dimensions"] == (1 if pseudo else 2)
    for name in ("positions", "pseudo"):  # without them nothing tells the nodes apart
        content["graph"].pop(name, None)
    path.write_text(json.dumps(content))
    blind = train("graph", path, tmp_path / "blind", name="blind", steps=100, quiet=True)
    assert blind.validation is not None and blind.validation < 0.9
    assert read_zoo(tmp_path / "blind")[0].pseudo == "degree"


def test_unknown_tasks_are_named(tmp_path: Path):
    with pytest.raises(UnsupportedTask, match="cora, .*got 'cats'"):
        train("cats", tmp_path, tmp_path)
    with pytest.raises(UnsupportedTask, match="'cats'"):
        training.prepare_data("cats", tmp_path)


def test_images_convolved_as_images_score_like_graphs():
    torch.manual_seed(0)
    net = make("mnist-grid", parameters={"hidden": 16}).net.eval()
    images = bars().images[:3]
    fast = grid_scores(net, torch.from_numpy(images).float()[:, None] / 255)
    for image, row in zip(images, fast, strict=True):
        arrays = image_graph(image, "grid").arrays
        ptr = torch.tensor([0, 28 * 28])
        given = (torch.from_numpy(arrays[n]) for n in ("features", "positions", "edge_index"))
        torch.testing.assert_close(net(*given, ptr)[0], row, atol=2e-5, rtol=1e-5)


def test_gathered_graphs_are_those_chosen():
    graphs = bar_graphs()
    features, positions, edge_index, ptr = gather_graphs(graphs, np.array([7, 2]))
    for g, (a, b) in zip((7, 2), ((0, 1), (1, 2)), strict=True):
        own = superpixel_graph(bars().images[g])
        part = slice(int(ptr[a]), int(ptr[b]))
        assert np.array_equal(features[part], own[0]) and np.array_equal(positions[part], own[1])
    inside = edge_index[:, edge_index[1] >= ptr[1]] - ptr[1]
    assert np.array_equal(inside, superpixel_graph(bars().images[2])[2])


def test_every_graph_comes_once_before_any_comes_again():
    problem = make("mnist-grid", batch=6)
    first = np.concatenate([choose(problem, problem.recipe, step) for step in range(6)])
    assert sorted(first) == list(range(36))
    assert not np.array_equal(first[:6], choose(problem, problem.recipe, 6))


def test_balanced_layers_keep_the_signal_alive():
    problem = make("bodies", **SMALL["bodies"])
    balance(problem.net, lambda: problem.step(np.array([0]), 0))
    plan = problem.net.plan(torch.from_numpy(problem.meshes.train[0]), problem.faces, problem.ptr)
    x = torch.ones(24, 1)
    for conv in problem.net.convs:
        x = conv(x, plan).detach()
        assert x.mean(0).abs().max() < 1e-3 and abs(float(x.std(0).mean()) - 1) < 1e-3
        x = torch.nn.functional.elu(x)


def test_the_rate_warms_up_and_falls_to_nothing():
    recipe = replace(RECIPES["bodies"], steps=100, warmup=10)
    assert schedule(recipe, 0) == pytest.approx(0.1)
    assert schedule(recipe, 50) == pytest.approx(0.5)
    assert schedule(recipe, 99) < 0.001


def test_hidden_weights_are_muons_and_all_others_adams():
    problem = make("bodies", **SMALL["bodies"])
    adam, muon = make_optimisers(problem.net, problem.recipe)
    names = {id(p): name for name, p in problem.net.named_parameters()}
    hidden = {names[id(p)] for p in muon.param_groups[0]["params"]}
    assert hidden == {"convs.1.weight", "convs.1.root", "hidden.weight"}
    rest = {names[id(p)] for p in adam.param_groups[0]["params"]}
    assert rest == set(names.values()) - hidden
    assert len(make_optimisers(problem.net, replace(problem.recipe, muon=0.0))) == 1


def test_a_running_mean_of_the_weights_is_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    problem = make("cora", steps=3, average=0.5)
    take, seen = problem.step, []

    def watch(chosen: np.ndarray, number: int):
        seen.append(problem.net.first.weight.detach().clone())
        return take(chosen, number)

    monkeypatch.setattr(problem, "step", watch)
    run(problem, problem.recipe, tmp_path)
    last = load_file(tmp_path / "checkpoint.safetensors")["net.first.weight"]
    expected = seen[0]
    for step, weight in enumerate([*seen[1:], last]):
        share = averaging(problem.recipe, step)
        expected = share * expected + (1 - share) * weight
    torch.testing.assert_close(problem.net.first.weight.detach(), expected)
    assert averaging(problem.recipe, 0) == pytest.approx(0.1)
    assert averaging(problem.recipe, 1000) == 0.5
