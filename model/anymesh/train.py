"""Training of both networks of `bodies-any`, in steps that can be stopped and taken up again."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from model.anymesh.cells import Cells
from model.anymesh.net import AnyMeshNet, LandmarkNet, OrientationNet
from model.anymesh.reference import Tables, load_tables
from model.anymesh.rotations import (
    axis_angle,
    compose,
    cube_rotations,
    principal_axes,
    turn_by,
    undo,
)
from model.anymesh.samples import Sample, collate, read_shard
from model.datasets.files import MissingData

SHARDS = 8  # in memory at a time


@dataclass(frozen=True)
class Recipe:
    """How long and how fast; the rate falls from `rate` to nothing over `steps`."""

    steps: int
    batch: int
    rate: float = 2e-3
    warm_up: int = 100
    tilt: float = 0.15  # standard deviation of the angle by which "upright" is off, in radians
    seed: int = 0


RECIPES = {
    "orientation": Recipe(steps=9_000, batch=12),
    "landmarks": Recipe(steps=20_000, batch=4),
}
"""The two networks are trained apart: what one learns is of no use to the other."""


def train(data: Path, out: Path, part: str, recipe: Recipe, stop_at: int | None = None) -> None:
    """Train one network on the shards in `data`, from the checkpoint in `out` if there is one."""
    out.mkdir(parents=True, exist_ok=True)
    tables = load_tables(data)
    torch.manual_seed(recipe.seed)
    net = build(part)
    optimizer = torch.optim.AdamW(net.parameters(), recipe.rate, betas=(0.9, 0.98))
    done = restore(checkpoint(out, part), net, optimizer)
    torch.manual_seed(recipe.seed + done)
    batches = draw_batches(data, recipe, done)
    began, seen = time.process_time(), [0.0, 0.0]
    net.train()
    last = min(recipe.steps, stop_at or recipe.steps)
    for step in range(done, last):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(recipe, step)
        samples = next(batches)
        cells, ptr = collate(samples)
        if isinstance(net, LandmarkNet):
            losses = [landmark_loss(net, cells, ptr, samples, tables, recipe.tilt)]
        else:
            of_class, of_turn = orientation_loss(net, cells)
            losses = [0.5 * of_class, 2 * of_turn]
        optimizer.zero_grad(set_to_none=True)
        torch.stack(losses).sum().backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        for i, loss in enumerate(losses):
            seen[i] += (loss.item() - seen[i]) / min(50, step - done + 1)
        if (step + 1) % 50 == 0:
            told = " ".join(f"{value:.4f}" for value in seen[: len(losses)])
            print(
                f"{part} {step + 1} loss {told} {time.process_time() - began:.0f} CPU s", flush=True
            )
        if (step + 1) % 250 == 0 or step + 1 == last:
            save(checkpoint(out, part), net, optimizer, step + 1)


def build(part: str) -> LandmarkNet | OrientationNet:
    return LandmarkNet() if part == "landmarks" else OrientationNet()


def checkpoint(out: Path, part: str) -> Path:
    return out / f"{part}.safetensors"


def rate_at(recipe: Recipe, step: int) -> float:
    warm = min(1.0, (step + 1) / recipe.warm_up)
    return recipe.rate * warm * (0.5 + 0.5 * float(np.cos(np.pi * step / recipe.steps))) + 1e-6


def draw_batches(data: Path, recipe: Recipe, done: int) -> Iterator[list[Sample]]:
    """Batches from a few shards at a time; shards that arrive meanwhile are used too."""
    rng = np.random.default_rng(recipe.seed + done)
    while True:
        paths = sorted((data / "samples").glob("*.safetensors"))
        if not paths:
            raise MissingData(f"{data} holds no samples: python -m model.anymesh data {data}")
        chosen = rng.permutation(len(paths))[:SHARDS]
        pool = [sample for i in chosen for sample in read_shard(paths[i])]
        order = rng.permutation(len(pool))
        for start in range(0, len(order) - recipe.batch + 1, recipe.batch):
            yield [pool[i] for i in order[start : start + recipe.batch]]


def landmark_loss(
    net: LandmarkNet, cells: Cells, ptr: Tensor, samples: list[Sample], tables: Tables, tilt: float
) -> Tensor:
    """Cross-entropy with the soft labels of the places that vertices correspond to."""
    logits = net(cells, turn_by(torch.randn(len(samples), 3) * tilt), ptr, True)
    corner = torch.cat([s.corner for s in samples]).long()
    weight = torch.cat([s.weight for s in samples])
    index = tables.landmark[corner].flatten(1)  # [n, 3 * SEEN_BY]
    target = (tables.probability[corner] * weight[:, :, None]).flatten(1)
    return -(F.log_softmax(logits, 1).gather(1, index) * target).sum(1).mean()


def orientation_loss(net: OrientationNet, cells: Cells) -> tuple[Tensor, Tensor]:
    """Which turn of a cube, and by how much beyond: two losses."""
    rotation = draw_rotations(cells)
    cube = cube_rotations()
    nearest = torch.einsum("kij,bij->bk", cube, rotation).argmax(1)
    beyond = axis_angle(undo(cube[nearest], rotation))
    logits, turns = net(cells, rotation, True)
    turn = turns[torch.arange(len(nearest)), nearest]
    return F.cross_entropy(logits, nearest), ((turn - beyond) ** 2).sum(1).mean()


def draw_rotations(cells: Cells) -> Tensor:
    """Any rotation, a body's own axes, or nearly upright: what the network meets in use."""
    B = cells.cell_ptr.size(1) - 1
    before, count = int(cells.cell_ptr[0, -1]), int(cells.cell_ptr[1, -1])
    rows = cells.cell[before : before + count]
    axes = principal_axes(rows[:, :3], rows[:, 6], cells.cell_ptr[1])
    any_turn = torch.linalg.qr(torch.randn(B, 3, 3))[0]
    any_turn = any_turn * torch.linalg.det(any_turn)[:, None, None]
    own = axes[torch.randint(4, (B,)), torch.arange(B)]
    kind = torch.rand(B)[:, None, None]
    far = torch.where(kind < 0.2, any_turn, own)
    slight = turn_by(torch.randn(B, 3) * torch.where(kind[:, :, 0] < 0.6, 0.1, 0.3))
    return torch.where(kind < 0.6, compose(slight, far), slight)


def save(path: Path, net: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    tensors = {f"net.{name}": value for name, value in net.state_dict().items()}
    for number, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": value for name, value in state.items()}
    tensors["step"] = torch.tensor(step)
    partial = path.with_suffix(".partial")
    save_file({name: t.contiguous() for name, t in tensors.items()}, partial)
    partial.replace(path)


def restore(path: Path, net: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """How many steps were done."""
    if not path.exists():
        return 0
    tensors = load_file(path)
    net.load_state_dict(_of_net(tensors))
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, number, field = name.split(".")
            state.setdefault(int(number), {})[field] = tensor
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    return int(tensors["step"])


def _of_net(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name[4:]: t for name, t in tensors.items() if name.startswith("net.")}


def load_net(data: Path, out: Path) -> AnyMeshNet:
    """The networks of the last checkpoints, ready to answer."""
    tables, net = load_tables(data), AnyMeshNet()
    net.landmark.copy_(tables.landmark)
    net.near.copy_(tables.near)
    for part, module in (("landmarks", net.landmarks), ("orientation", net.orientation)):
        module.load_state_dict(_of_net(load_file(checkpoint(out, part))))
    return net.eval()
