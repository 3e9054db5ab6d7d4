"""A training that can be taken up again: parameters, optimiser and step, without pickles."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import safetensors
import safetensors.torch
from torch import Tensor, nn, optim

from model.errors import SplineCNNError
from model.recipes import Recipe

FILE = "checkpoint.safetensors"
_MOMENTS = ("step", "exp_avg", "exp_avg_sq", "momentum")


class CheckpointError(SplineCNNError):
    """A checkpoint that is broken or belongs to another training."""


def save_checkpoint(
    directory: Path,
    recipe: Recipe,
    net: nn.Module,
    optimisers: Sequence[optim.Optimizer],
    step: int,
    mean: list[Tensor] | None = None,
) -> Path:
    """Write everything in one step, so that an interruption leaves the old one whole.

    `mean`: the running means of the parameters, in their order, if any are kept.
    """
    tensors = {f"net.{name}": value.detach() for name, value in net.named_parameters()}
    for name, parameter in net.named_parameters():
        for optimiser in optimisers:
            for moment, value in optimiser.state.get(parameter, {}).items():
                tensors[f"{moment}.{name}"] = value
    for (name, _), value in zip(net.named_parameters(), mean or [], strict=bool(mean)):
        tensors[f"mean.{name}"] = value
    facts = {"recipe": json.dumps(asdict(recipe), sort_keys=True), "step": str(step)}
    path = directory / FILE
    aside = path.with_name(f".{FILE}.{os.getpid()}")
    try:
        safetensors.torch.save_file(tensors, aside, facts)
        aside.replace(path)
    except (OSError, safetensors.SafetensorError) as error:  # the latter when the disk is full
        aside.unlink(missing_ok=True)
        raise CheckpointError(f"{path} could not be written: {error}") from None
    return path


def load_checkpoint(
    directory: Path,
    recipe: Recipe,
    net: nn.Module,
    optimisers: Sequence[optim.Optimizer],
    mean: list[Tensor] | None = None,
) -> int:
    """Fill the network, its optimisers and the running means; say how many steps are done."""
    path = directory / FILE
    facts, tensors = _read(path)
    if facts.get("recipe") != json.dumps(asdict(recipe), sort_keys=True):
        raise CheckpointError(
            f"{path} was made by another recipe; train into another directory, or without resuming"
        )
    for n, (name, parameter) in enumerate(net.named_parameters()):
        stored = tensors.get(f"net.{name}")
        if stored is None or stored.shape != parameter.shape:
            found = "nothing" if stored is None else list(stored.shape)
            raise CheckpointError(
                f"{path} belongs to another network: {name} should be {list(parameter.shape)}, "
                f"found {found}"
            )
        parameter.data.copy_(stored)
        moments = {m: tensors[f"{m}.{name}"] for m in _MOMENTS if f"{m}.{name}" in tensors}
        for optimiser in optimisers:
            if moments and any(parameter is p for g in optimiser.param_groups for p in g["params"]):
                optimiser.state[parameter] = moments
        if mean:
            mean[n].copy_(tensors[f"mean.{name}"])
    return int(facts.get("step", "0"))


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    try:
        with safetensors.safe_open(path, "pt") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing: nothing to resume") from None
    except (OSError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
