"""Measured scores of a trained network, from its shipped files and through its TorchScript."""

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model import plots
from model.bundle import Bundle, open_bundle
from model.datasets.bodies import load_bodies
from model.datasets.cora import NodeData, load_cora
from model.datasets.graphs import load_graph_file
from model.datasets.meshes import Meshes, load_faust, load_mesh_folder
from model.datasets.mnist import DigitGraphs, Digits, load_digits, load_superpixels
from model.errors import UnsupportedTask
from model.export import arguments, export_bundle
from model.geodesics import Surface, princeton_curve
from model.graph import Graph
from model.problems import NodeLabels, gather_graphs
from model.recipes import RECIPES
from model.sweep import compare_splines
from model.tasks import image_graph, mesh_graph
from model.zoo import read_entry, read_zoo, write_zoo

T = TypeVar("T")
Progress = Callable[[int, int], None]  # done, of how many

BATCH = 100  # digits scored at a time
RADII = np.linspace(0, 0.1, 201)  # of the Princeton curve, as shares of the diameter


def evaluate(
    model: Path,
    data: Path,
    out: Path,
    task: str | None = None,
    limit: int | None = None,
    runs: int = 0,
    record: bool = False,
    splines: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Score a zoo entry or a bundle on its test data; write scores.json and pictures to `out`.

    `task` says which data, if the network does not; `limit` takes only the first test graphs;
    `runs` also trains Cora's network that many times; `record` writes the scores into model.json;
    `splines` also trains the superpixel network for that many steps with every spline degree;
    `progress` is told how many of the test graphs are done.
    """
    if (model / "model.json").exists():
        _check_net(read_entry(model).net)  # before an export that would take its time
    with tempfile.TemporaryDirectory() as scratch:
        zoo = not (model / "manifest.json").exists()
        path = export_bundle(model, Path(scratch), with_onnx=False) if zoo else model
        bundle = open_bundle(path)
        task = task or bundle.manifest.source.get("data", {}).get("training")
        out.mkdir(parents=True, exist_ok=True)
        _check_net(bundle.manifest.source.get("net"))
        scores = _score(bundle, task, data, out, limit, progress)
    if task == "cora" and runs:
        scores |= repeat_cora(data, runs, out=out, progress=progress)
    if task == "mnist-superpixels" and splines:
        compare_splines(data, out, splines)
    (out / "scores.json").write_text(json.dumps(scores, indent=2) + "\n")
    if zoo:
        entry, net = read_zoo(model)
        plots.draw_kernels(net, out / "kernels.png")
        if record:
            write_zoo(model, replace(entry, scores=scores), net.state_dict())
    return scores


def _check_net(net: str | None) -> None:
    if net == "any-mesh":
        raise UnsupportedTask("this network is measured by: python -m model.anymesh evaluate DATA")


def _score(
    bundle: Bundle,
    task: str | None,
    data: Path,
    out: Path,
    limit: int | None,
    progress: Progress | None,
) -> dict[str, Any]:
    module = torch.jit.load(bundle.file("model.ts"))
    module.eval()
    if task == "bodies":
        return score_meshes(module, load_bodies(data), out, limit, progress)
    if task == "faust":
        return score_meshes(module, load_faust(data), out, limit, progress)
    if task == "meshes":
        return score_meshes(module, load_mesh_folder(data), out, limit, progress)
    if task == "cora":
        return score_nodes(module, load_cora(data))
    if task == "graph":
        return score_nodes(module, load_graph_file(data))
    if task == "mnist-superpixels":
        return score_superpixels(module, load_superpixels(data)[1], out, limit, progress)
    if task == "mnist-grid":
        return score_grids(module, load_digits(data)[1], out, limit, progress)
    raise UnsupportedTask(f"the network does not say what it was trained on; task={task!r}")


def _answer(module: Any, graphs: Sequence[Graph]) -> Tensor:
    """The first output of a served network: classes of vertices, or probabilities."""
    with torch.inference_mode():
        first: Tensor = module(*arguments(graphs).values())[0]
    return first


def score_meshes(
    module: Any,
    meshes: Meshes,
    out: Path,
    limit: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Exact hits, and the Princeton curve by geodesics on the reference."""
    surface = Surface(meshes.reference, meshes.faces)
    shapes = meshes.test[:limit]
    found = np.stack(
        [
            _answer(module, [mesh_graph(shape, meshes.faces)])[:, 0].numpy()
            for shape in _watched(list(shapes), progress)
        ]
    )
    errors = np.stack([surface.errors(answer) for answer in found])  # [n, V]
    plots.draw_curve(RADII, princeton_curve(errors, RADII), out / "princeton.png")
    plots.draw_bodies(shapes, meshes.faces, errors, out / "errors.png")
    exact = (found == np.arange(len(meshes.reference))).mean(1)
    return {
        "exact": round(float(exact.mean()), 5),
        "exact_worst_shape": round(float(exact.min()), 5),
        "within_1_percent": round(float((errors <= 0.01).mean()), 5),
        "within_5_percent": round(float((errors <= 0.05).mean()), 5),
        "mean_geodesic_error": round(float(errors.mean()), 6),
        "test_shapes": len(shapes),
    }


def score_nodes(module: Any, data: NodeData) -> dict[str, Any]:
    right = _answer(module, [data.graph]).argmax(1).numpy() == data.labels
    return {
        "accuracy": round(float(right[data.test].mean()), 5),
        "validation_accuracy": round(float(right[data.validation].mean()), 5),
        "test_nodes": len(data.test),
    }


def score_superpixels(
    module: Any,
    graphs: DigitGraphs,
    out: Path,
    limit: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    chosen = np.arange(len(graphs.labels))[:limit]
    parts = (gather_graphs(graphs, part) for part in _watched(_parts(chosen), progress))
    with torch.inference_mode():
        found = np.concatenate([module(*part)[0].argmax(1).numpy() for part in parts])
    return _digit_scores(found, graphs.labels[chosen], out)


def score_grids(
    module: Any,
    digits: Digits,
    out: Path,
    limit: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    images, labels = digits.images[:limit], digits.labels[:limit]
    found = [
        _answer(module, [image_graph(image, "grid") for image in images[part]]).argmax(1).numpy()
        for part in _watched(_parts(np.arange(len(images))), progress)
    ]
    return _digit_scores(np.concatenate(found), labels, out)


def _parts(chosen: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    return np.array_split(chosen, max(1, len(chosen) // BATCH))


def _watched(items: Sequence[T], progress: Progress | None) -> Iterator[T]:
    """The items, each told when it is done."""
    for done, item in enumerate(items, 1):
        yield item
        if progress is not None:
            progress(done, len(items))


def _digit_scores(found: NDArray[np.int64], labels: NDArray[np.int64], out: Path) -> dict[str, Any]:
    plots.draw_confusion(found, labels, out / "confusion.png")
    return {"accuracy": round(float((found == labels).mean()), 5), "test_graphs": len(labels)}


def repeat_cora(
    data: Path,
    runs: int = 100,
    processes: int = 2,
    out: Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train Cora's network from `runs` seeds and test each: mean and standard deviation."""
    context = get_context("spawn")  # a forked torch may hang in its threads
    with ProcessPoolExecutor(processes, context) as pool:
        found = pool.map(_run_cora, [data] * runs, range(runs))
        accuracy = np.array([next(found) for _ in _watched(range(runs), progress)])
    if out is not None:
        plots.draw_runs(100 * accuracy, out / "runs.png")
    return {
        "runs": runs,
        "runs_mean": round(float(accuracy.mean()), 5),
        "runs_std": round(float(accuracy.std()), 5),
    }


def _run_cora(data: Path, seed: int) -> float:
    from model.train import run

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    recipe = replace(RECIPES["cora"], seed=seed)
    problem = NodeLabels(recipe, load_cora(data))
    with tempfile.TemporaryDirectory() as scratch:
        run(problem, recipe, Path(scratch))
    problem.net.eval()
    with torch.inference_mode():
        return problem.accuracy(torch.from_numpy(problem.data.test))
