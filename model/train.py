"""The training loop of all networks: seeded, resumable, interruptible without loss."""

import io
import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor, nn

from model.checkpoint import load_checkpoint, save_checkpoint
from model.datasets.bodies import make_bodies
from model.datasets.cora import load_cora
from model.datasets.meshes import load_faust
from model.datasets.mnist import load_digits, make_superpixels
from model.errors import UnsupportedTask
from model.layers import SplineConv
from model.muon import Muon
from model.problems import Correspondence, Problem, load_problem
from model.recipes import RECIPES, Recipe
from model.zoo import ZooEntry, write_whole, write_zoo

LOG = "log.jsonl"
SAVE_EVERY = 60.0  # seconds
SMOOTHING = 0.98  # of the loss and accuracy that are shown


@dataclass(frozen=True)
class Trained:
    """Where a training stands when it returns."""

    directory: Path
    steps: int
    finished: bool  # False after Ctrl-C: resume to go on
    validation: float | None


def prepare_data(task: str, data: Path, progress: Callable[[int, int], None] | None = None) -> Path:
    """Make the data of a task in a directory, or check that it is there."""
    if task == "bodies":
        return make_bodies(data, progress=progress)
    if task == "mnist-superpixels":
        return make_superpixels(data, progress)
    checks: dict[str, Callable[[Path], Any]] = {
        "cora": load_cora,
        "mnist-grid": load_digits,
        "faust": load_faust,
    }
    if task not in checks:
        known = ", ".join(sorted([*checks, "bodies", "mnist-superpixels"]))
        raise UnsupportedTask(f"no data is prepared for {task!r}; known: {known}")
    checks[task](data)
    return data


def train(
    task: str,
    data: Path,
    out: Path,
    resume: bool = False,
    name: str | None = None,
    steps: int | None = None,
    seed: int | None = None,
    threads: int | None = None,
    quiet: bool = False,
) -> Trained:
    """Train the network of a task and write it to `out` as a zoo entry.

    task is one of `RECIPES`; data the directory of its files (for "graph", the file). Ctrl-C keeps
    a checkpoint in `out` that `resume` goes on from, to the same weights as without the pause.
    """
    if task not in RECIPES:
        raise UnsupportedTask(f"task must be one of {', '.join(RECIPES)}, got {task!r}")
    changes: dict[str, Any] = {"name": name, "steps": steps, "seed": seed}
    recipe = replace(RECIPES[task], **{k: v for k, v in changes.items() if v is not None})
    if threads:
        torch.set_num_threads(threads)
    torch.manual_seed(recipe.seed)
    problem = load_problem(task, data, recipe)
    out.mkdir(parents=True, exist_ok=True)
    done, finished = run(problem, recipe, out, resume, quiet)
    validation = None
    if finished:
        validation = score(problem)
        _log(out, step=done, validation=validation)
        write_entry(problem, out, {"validation": validation}, {"training": task})
    return Trained(out, done, finished, validation)


def run(
    problem: Problem, recipe: Recipe, out: Path, resume: bool = False, quiet: bool = True
) -> tuple[int, bool]:
    """Take the recipe's steps; returns how many are done and whether all are."""
    net = problem.net
    optimisers = make_optimisers(net, recipe)
    start = 0
    if not resume and recipe.balance:
        balance(net, lambda: problem.step(choose(problem, recipe, 0), 0))
    mean = [p.detach().clone() for p in net.parameters()] if recipe.average else []
    if resume:
        start = load_checkpoint(out, recipe, net, optimisers, mean)
    net.train()
    began = saved = time.monotonic()
    loss = accuracy = math.nan
    with _progress(quiet) as progress:
        bar = progress.add_task(recipe.name, total=recipe.steps, completed=start, loss="", right="")
        with _interrupts() as interrupted:
            for step in range(start, recipe.steps):
                torch.manual_seed(recipe.seed * 1_000_003 + step)  # resuming repeats no chance
                for optimiser in optimisers:
                    for group in optimiser.param_groups:
                        group["lr"] = group["rate"] * schedule(recipe, step)
                result = problem.step(choose(problem, recipe, step), step)
                net.zero_grad()
                result.loss.backward()
                for optimiser in optimisers:
                    optimiser.step()
                for kept, parameter in zip(mean, net.parameters(), strict=bool(mean)):
                    kept.lerp_(parameter.detach(), 1 - averaging(recipe, step))
                loss = _smooth(loss, float(result.loss.detach()))
                accuracy = _smooth(accuracy, result.right / result.count)
                progress.update(
                    bar, completed=step + 1, loss=f"loss {loss:.4f}", right=f"{accuracy:.2%}"
                )
                now = time.monotonic()
                if interrupted.is_set() or now - saved > SAVE_EVERY or step + 1 == recipe.steps:
                    save_checkpoint(out, recipe, net, optimisers, step + 1, mean)
                    seconds = round(now - began, 1)
                    _log(out, step=step + 1, loss=loss, accuracy=accuracy, seconds=seconds)
                    saved = now
                if interrupted.is_set():
                    return step + 1, step + 1 == recipe.steps
    for kept, parameter in zip(mean, net.parameters(), strict=bool(mean)):
        parameter.data.copy_(kept)
    return recipe.steps, True


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """Ctrl-C waits for the end of the step, so that a checkpoint never holds half of one."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = signal.signal(signal.SIGINT, lambda *_: event.set())
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, before)


def score(problem: Problem) -> float:
    """The validation accuracy of the network as it stands."""
    problem.net.eval()
    with torch.inference_mode():
        return problem.validate()


def write_entry(
    problem: Problem, out: Path, scores: dict[str, Any], data: dict[str, Any] | None = None
) -> ZooEntry:
    """weights.safetensors and model.json, and the reference mesh where there is one."""
    recipe = problem.recipe
    reference = None
    if isinstance(problem, Correspondence):
        reference = "reference.npz"
        shape, faces = problem.meshes.reference, problem.meshes.faces
        content = io.BytesIO()
        np.savez_compressed(content, vertices=shape, faces=faces.astype(np.int32))
        write_whole(out / reference, content.getvalue())
    entry = ZooEntry(
        name=recipe.name,
        net=recipe.net,
        parameters=problem.parameters,
        pseudo=problem.pseudo,
        description=recipe.description,
        version=recipe.version,
        labels=problem.labels,
        image=problem.image,
        reference=reference,
        data={**(data or {}), "recipe": asdict(recipe)},
        seed=recipe.seed,
        scores=scores,
    )
    write_zoo(out, entry, dict(problem.net.named_parameters()))
    return entry


def choose(problem: Problem, recipe: Recipe, step: int) -> NDArray[np.int64]:
    """The training graphs of a step: every graph once before any comes again."""
    size, batch = problem.size, min(recipe.batch, problem.size)
    per_epoch = size // batch
    epoch, place = divmod(step, per_epoch)
    order = np.random.default_rng((recipe.seed, epoch)).permutation(size)
    return order[place * batch : (place + 1) * batch]


def schedule(recipe: Recipe, step: int) -> float:
    """The share of the full learning rate that a step takes."""
    share = min(1.0, (step + 1) / max(1, recipe.warmup))
    if recipe.cosine:
        share *= 0.5 + 0.5 * math.cos(math.pi * step / recipe.steps)
    return share


def make_optimisers(net: nn.Module, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Adam, and Muon for the weights between the first and the last layer if it has a rate."""
    layers = [m for m in net.modules() if isinstance(m, SplineConv | nn.Linear)][1:-1]
    hidden = [p for layer in layers for p in layer.parameters() if p.dim() > 1]
    if not recipe.muon:
        hidden = []
    inner = {id(p) for p in hidden}
    rest = [p for p in net.parameters() if id(p) not in inner]
    adam = torch.optim.Adam(rest, recipe.learning_rate, weight_decay=recipe.weight_decay)
    optimisers: list[torch.optim.Optimizer] = [adam]
    if hidden:
        optimisers.append(Muon(hidden, recipe.muon))
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["rate"] = group["lr"]
    return optimisers


def averaging(recipe: Recipe, step: int) -> float:
    """How much of the running mean stays: little at first, when it is still far off."""
    return min(recipe.average, (1 + step) / (10 + step))


def balance(net: nn.Module, forward: Callable[[], Any]) -> None:
    """Scale each layer so that its outputs on one batch have mean 0 and deviation 1.

    The usual start shrinks the signal about tenfold in every convolution with 125 weights, and six
    of them take hundreds of steps to recover from that. The last layer is left alone.
    """

    def centre(layer: Any, _: Any, output: Tensor) -> Tensor:
        mean, scale = output.mean(0), 1 / output.std(0).mean().clamp(min=1e-12)
        layer.weight.mul_(scale)
        if isinstance(layer, SplineConv):
            layer.root.mul_(scale)
        layer.bias.copy_((layer.bias - mean) * scale)
        return (output - mean) * scale

    layers = [m for m in net.modules() if isinstance(m, SplineConv | nn.Linear)][:-1]
    hooks = [layer.register_forward_hook(centre) for layer in layers]
    with torch.no_grad():
        forward()
    for hook in hooks:
        hook.remove()


def _smooth(old: float, new: float) -> float:
    return new if math.isnan(old) else SMOOTHING * old + (1 - SMOOTHING) * new


def _log(out: Path, **facts: Any) -> None:
    with (out / LOG).open("a") as file:
        file.write(json.dumps({"time": time.time(), **facts}) + "\n")


def _progress(quiet: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}  {task.fields[loss]}  {task.fields[right]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        disable=quiet,
    )
