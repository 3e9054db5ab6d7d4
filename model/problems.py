"""What each task trains on: its network, its batches and its loss, behind one small interface."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from model.augment import stretch_images, stretch_positions
from model.datasets.bodies import load_bodies
from model.datasets.cora import NodeData, load_cora
from model.datasets.graphs import load_graph_file
from model.datasets.meshes import Meshes, load_faust, load_mesh_folder
from model.datasets.mnist import (
    LABELS,
    VALIDATION,
    DigitGraphs,
    Digits,
    load_digits,
    load_superpixels,
)
from model.errors import UnsupportedTask
from model.graph import POSITIONS, pack
from model.nets import CorrespondenceNet, GridNet, NodeNet, SuperpixelNet
from model.pseudo import CARTESIAN, GIVEN
from model.recipes import Recipe


@dataclass(frozen=True)
class Step:
    """The loss of one batch, and how many of its answers were right."""

    loss: Tensor
    right: int
    count: int


class Problem(ABC):
    """A network, and the data it learns from."""

    net: nn.Module
    parameters: dict[str, Any]  # how to build the network again
    labels: list[str] | None = None
    image: str | None = None

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.pseudo = recipe.pseudo

    @property
    @abstractmethod
    def size(self) -> int:
        """How many training graphs there are."""

    @abstractmethod
    def step(self, chosen: NDArray[np.int64], number: int) -> Step:
        """The loss of the chosen training graphs; all chance comes from the step's number."""

    @abstractmethod
    def validate(self) -> float:
        """The share of right answers on the validation data, network in eval mode."""


class Correspondence(Problem):
    """Which vertex of the reference is each vertex? The classes are the vertices themselves."""

    net: CorrespondenceNet

    def __init__(self, recipe: Recipe, meshes: Meshes) -> None:
        super().__init__(recipe)
        self.meshes = meshes
        self.faces = torch.from_numpy(meshes.faces)
        self.ptr = torch.tensor([0, len(meshes.reference)])
        # where the processor has no such numbers, they would be slower than float32
        self.bfloat16 = recipe.bfloat16 and torch.cpu.get_capabilities().get("avx512_bf16", False)
        self.parameters = {"num_classes": len(meshes.reference), **recipe.parameters}
        self.net = CorrespondenceNet(**self.parameters)

    @property
    def size(self) -> int:
        return len(self.meshes.train)

    def step(self, chosen: NDArray[np.int64], number: int) -> Step:
        V = len(self.meshes.reference)
        rows = torch.randperm(V)[: self.recipe.rows or V]
        logits = []
        for n in chosen:
            vertices = torch.from_numpy(self.meshes.train[n])
            plan = self.net.plan(vertices, self.faces, self.ptr, backward=True)
            features = self.net.features(plan)[rows]
            # the last layer is most of the work: only the sampled rows go through it
            with torch.autocast("cpu", torch.bfloat16, self.bfloat16):
                logits.append(self.net.head(features).float())
        return _step(torch.cat(logits), rows.repeat(len(chosen)))

    def validate(self) -> float:
        target = torch.arange(len(self.meshes.reference))
        right = [
            (self.net(torch.from_numpy(shape), self.faces, self.ptr).argmax(1) == target)
            for shape in self.meshes.validation
        ]
        return float(torch.cat(right).float().mean())


class NodeLabels(Problem):
    """Which class is each node of the one graph?"""

    net: NodeNet

    def __init__(self, recipe: Recipe, data: NodeData) -> None:
        super().__init__(recipe)
        self.data = data
        self.labels = list(data.names)
        packed = pack([data.graph])
        self.features = packed["feature_ptr"], packed["feature_index"], packed["feature_value"]
        self.target = torch.from_numpy(data.labels)
        self.train, self.validation = (
            torch.from_numpy(data.train),
            torch.from_numpy(data.validation),
        )
        self.parameters = {"num_features": data.num_features, "num_classes": len(data.names)}
        coordinates = None
        if (taken := data.graph.coordinates) is not None:
            self.pseudo = CARTESIAN if taken.name == POSITIONS else GIVEN
            # three weights a dimension: before, beside and behind
            self.parameters |= {"kernel_size": 3, "dimensions": taken.size}
            coordinates = packed[taken.name]
        self.parameters |= recipe.parameters
        self.net = NodeNet(pseudo=self.pseudo, **self.parameters)
        self.plan = self.net.plan(
            packed["edge_index"], packed["ptr"], data.graph.num_nodes, coordinates, backward=True
        )

    @property
    def size(self) -> int:
        return 1

    def step(self, chosen: NDArray[np.int64], number: int) -> Step:
        scores = self.net.scores(*self.features, self.plan)
        return _step(scores[self.train], self.target[self.train])

    def validate(self) -> float:
        return self.accuracy(self.validation)

    def accuracy(self, nodes: Tensor) -> float:
        right = self.net.scores(*self.features, self.plan).argmax(1) == self.target
        return float(right[nodes].float().mean())


class Superpixels(Problem):
    """Which digit is each graph of superpixels?"""

    net: SuperpixelNet
    image = "superpixels"

    def __init__(self, recipe: Recipe, graphs: DigitGraphs) -> None:
        super().__init__(recipe)
        self.graphs = graphs
        self.labels = list(LABELS)
        self.parameters = dict(recipe.parameters)
        self.net = SuperpixelNet(pseudo=recipe.pseudo, **self.parameters)

    @property
    def size(self) -> int:
        return len(self.graphs.labels) - min(VALIDATION, len(self.graphs.labels) // 10)

    def step(self, chosen: NDArray[np.int64], number: int) -> Step:
        features, positions, edge_index, ptr = gather_graphs(self.graphs, chosen)
        seed = 0  # clusters as in serving; always the same ones are soon learned by heart
        if self.recipe.augment:
            positions, seed = stretch_positions(positions, ptr), number
        levels = self.net.levels(positions, edge_index, ptr, seed)
        return _step(
            self.net.scores(features, levels), torch.from_numpy(self.graphs.labels[chosen])
        )

    def validate(self) -> float:
        chosen = np.arange(self.size, len(self.graphs.labels))
        right = [
            self.net(*gather_graphs(self.graphs, part)).argmax(1).numpy()
            == self.graphs.labels[part]
            for part in np.array_split(chosen, max(1, len(chosen) // 250))
        ]
        return float(np.concatenate(right).mean())


class Grids(Problem):
    """Which digit is each grid of pixels?"""

    net: GridNet
    image = "grid"

    def __init__(self, recipe: Recipe, digits: Digits) -> None:
        super().__init__(recipe)
        self.images = torch.from_numpy(digits.images)
        self.target = torch.from_numpy(digits.labels)
        self.labels = list(LABELS)
        self.parameters = dict(recipe.parameters)
        self.net = GridNet(**self.parameters)

    @property
    def size(self) -> int:
        return len(self.images) - min(VALIDATION, len(self.images) // 10)

    def step(self, chosen: NDArray[np.int64], number: int) -> Step:
        images = self.images[chosen].float()[:, None] / 255
        if self.recipe.augment:
            images = stretch_images(images)
        return _step(grid_scores(self.net, images), self.target[chosen])

    def validate(self) -> float:
        right = [
            grid_scores(self.net, self.images[part].float()[:, None] / 255).argmax(1)
            == self.target[part]
            for part in np.array_split(np.arange(self.size, len(self.images)), 10)
        ]
        return float(torch.cat(right).float().mean())


def grid_scores(net: GridNet, images: Tensor) -> Tensor:
    """What `net` says of full pixel grids [B, 1, side, side], by image convolutions.

    On a grid every offset falls on a knot of the spline, so that each edge has exactly one weight
    and the spline convolution is an image convolution over the same parameters, averaged over the
    neighbours that exist. The same numbers, several times faster to train.
    """

    def conv(layer: Any, x: Tensor) -> Tensor:
        K, a, b = layer.weight.shape
        side = layer.kernel_size[0]
        kernel = layer.weight.view(side, side, a, b).permute(3, 2, 0, 1)
        off_centre = torch.ones(side, side)
        off_centre[side // 2, side // 2] = 0
        ones = torch.ones(1, 1, *x.shape[2:])
        count = F.conv2d(ones, off_centre[None, None], padding=side // 2)
        own = torch.einsum("bchw,co->bohw", x, layer.root)
        around = F.conv2d(x, kernel * off_centre, padding=side // 2) / count
        return around + own + layer.bias[:, None, None]

    x = F.max_pool2d(F.elu(conv(net.conv1, images)), 2)
    x = F.max_pool2d(F.elu(conv(net.conv2, x)), 2)
    x = F.elu(net.hidden(x.permute(0, 2, 3, 1).flatten(1)))
    x = F.dropout(x, net.dropout, net.training)
    return F.log_softmax(net.head(x), 1)


def gather_graphs(
    graphs: DigitGraphs, chosen: NDArray[np.int64]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Some graphs side by side: features, positions, edge_index, ptr."""

    def ranges(ptr: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        start, size = ptr[chosen], ptr[chosen + 1] - ptr[chosen]
        ends = np.cumsum(size)
        return np.arange(ends[-1]) + np.repeat(start - ends + size, size), size

    nodes, node_count = ranges(graphs.node_ptr)
    edges, edge_count = ranges(graphs.edge_ptr)
    ptr = np.concatenate([[0], np.cumsum(node_count)])
    edge_index = graphs.edges[:, edges].astype(np.int64) + np.repeat(ptr[:-1], edge_count)
    arrays = graphs.features[nodes], graphs.positions[nodes], edge_index, ptr
    features, positions, index, offsets = (torch.from_numpy(array) for array in arrays)
    return features, positions, index, offsets


def _step(scores: Tensor, target: Tensor) -> Step:
    right = int((scores.detach().argmax(1) == target).sum())
    return Step(F.cross_entropy(scores, target), right, len(target))


def load_problem(task: str, data: Path, recipe: Recipe) -> Problem:
    """The problem called `task`, from a data directory (for "graph": a file)."""
    if task == "cora":
        return NodeLabels(recipe, load_cora(data))
    if task == "graph":
        return NodeLabels(recipe, load_graph_file(data))
    if task == "mnist-superpixels":
        return Superpixels(recipe, load_superpixels(data)[0])
    if task == "mnist-grid":
        return Grids(recipe, load_digits(data)[0])
    if task == "bodies":
        return Correspondence(recipe, load_bodies(data))
    if task == "faust":
        return Correspondence(recipe, load_faust(data))
    if task == "meshes":
        return Correspondence(recipe, load_mesh_folder(data))
    raise UnsupportedTask(f"unknown training task {task!r}")
