"""A bundle whose network is as bad as asked: it raises, answers NaN, or never comes back."""

from __future__ import annotations

import io
from hashlib import sha256
from pathlib import Path

import orjson
import torch
from torch import Tensor, nn

from model.bundle import Manifest, TensorSpec, write_bundle
from tests.trust.trust_load import Ask, prepare

RAISE, NAN, HANG = 101.0, 102.0, 103.0
_INPUTS = ("feature_ptr", "feature_index", "feature_value", "edge_index", "ptr")


class Hostile(nn.Module):
    """Two classes, equally likely, unless a feature says otherwise."""

    def forward(
        self,
        feature_ptr: Tensor,
        feature_index: Tensor,
        feature_value: Tensor,
        edge_index: Tensor,
        ptr: Tensor,
    ) -> Tensor:
        if bool((feature_value == 101.0).any()):
            raise ValueError("the network was asked to fail")
        turns = 0
        while bool((feature_value == 103.0).any()) and turns < 2000000000:
            turns += 1
        odd = torch.where(feature_value == 102.0, float("nan"), 0.5)
        return odd.unsqueeze(1).expand(-1, 2).contiguous()


def write_hostile(repository: Path) -> Path:
    """A well-formed bundle of it; its own sample is harmless."""
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(Hostile()), buffer)
    files = {"model.ts": buffer.getvalue(), "sample.json": orjson.dumps({"graph": graph(1.0)})}
    manifest = Manifest(
        name="hostile",
        version="1",
        task="node-labels",
        description="A network that misbehaves when asked",
        labels=None,
        num_classes=2,
        num_features=1,
        image=None,
        reference=None,
        scores={},
        inputs=[TensorSpec(name, "float32", [-1]) for name in _INPUTS],
        outputs=[TensorSpec("probabilities", "float32", [-1, 2])],
        source={},
        created="2026-01-01T00:00:00+00:00",
        files={name: sha256(content).hexdigest() for name, content in files.items()},
    )
    return write_bundle(repository, manifest, files)


def graph(value: float) -> dict[str, object]:
    return {"num_nodes": 3, "edges": [[0, 1], [1, 2]], "features": [[1.0], [value], [1.0]]}


def ask_hostile(value: float, **headers: str) -> Ask:
    body = {"graph": graph(value), "model": "hostile"}
    return prepare("hostile", "/v1/node-labels", body, headers)
