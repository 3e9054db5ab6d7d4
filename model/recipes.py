"""How each network is trained: a few numbers each, chosen on validation data only."""

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Recipe:
    """One training, complete with its seed."""

    name: str
    net: str  # one of model.zoo.NETS
    pseudo: str
    steps: int  # of the optimisers
    batch: int  # graphs per step
    learning_rate: float  # of Adam
    parameters: dict[str, Any] = field(default_factory=dict)  # of the network, beyond the data's
    warmup: int = 0  # steps over which the rate rises from nothing
    cosine: bool = False  # let the rate fall to nothing along a half cosine
    weight_decay: float = 0.0
    rows: int = 0  # correspondence: vertices scored per step, all others cost nothing
    balance: bool = False  # start with every layer's outputs scaled to mean 0 and deviation 1
    muon: float = 0.0  # a rate: Muon trains the weights of the hidden layers, Adam the rest
    average: float = 0.0  # keep a running mean of the weights that forgets this slowly
    bfloat16: bool = False  # correspondence: score in half the bits, several times faster
    augment: bool = False  # graph labels: turn, stretch and shift the training digits
    seed: int = 0
    description: str = ""
    version: str = "1"


RECIPES = {
    "cora": Recipe(
        name="cora",
        net="node",
        pseudo="degree",
        steps=200,
        batch=1,
        learning_rate=0.01,
        cosine=True,
        weight_decay=0.01,
        average=0.97,
        parameters={"loops": True, "input_dropout": 0.4},
        description="Research topics of papers from their words and citations (Cora).",
    ),
    "mnist-superpixels": Recipe(
        name="mnist-superpixels",
        net="superpixels",
        pseudo="cartesian",
        steps=10_000,
        batch=64,
        learning_rate=0.012,
        warmup=200,
        cosine=True,
        balance=True,
        augment=True,
        parameters={"dropout": 0.0},
        description="Handwritten digits seen as graphs of at most 75 superpixels.",
    ),
    "mnist-grid": Recipe(
        name="mnist-grid",
        net="grid",
        pseudo="cartesian",
        steps=9_000,
        batch=64,
        learning_rate=0.002,
        warmup=200,
        cosine=True,
        augment=True,
        parameters={"dropout": 0.2},
        description="Handwritten digits seen as grids of 28 x 28 pixels.",
    ),
    "bodies": Recipe(
        name="bodies",
        net="correspondence",
        pseudo="cartesian",
        steps=20_000,
        batch=1,
        learning_rate=0.004,
        warmup=50,
        cosine=True,
        rows=1024,
        parameters={"dropout": 0.0},
        balance=True,
        average=0.999,
        muon=0.02,
        bfloat16=True,
        description="Every vertex of a human body mesh to its place on a reference body.",
    ),
}
"""The shipped networks."""

RECIPES["faust"] = replace(
    RECIPES["bodies"],
    name="faust",
    steps=8_000,
    description="Every vertex of a FAUST registration to its place on the first one.",
)
RECIPES["meshes"] = replace(
    RECIPES["bodies"],
    name="meshes",
    steps=5_000,
    description="Every vertex of a mesh to its place on a reference mesh.",
)
RECIPES["graph"] = replace(
    RECIPES["cora"],
    name="graph",
    parameters={},
    description="Labels of the nodes of a graph.",
)
