"""MNIST: 70,000 handwritten digits, as pixel grids or as graphs of superpixels."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.datasets.files import InvalidData, read_npz
from model.superpixels import superpixel_graph

FILE = "mnist.npz"
SUPERPIXEL_FILE = "mnist-superpixels.npz"
WHERE = (
    "it holds x_train [60000, 28, 28] uint8, y_train, x_test and y_test, as Keras has it: "
    "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz"
)
LABELS = tuple(str(digit) for digit in range(10))
VALIDATION = 5000  # the last training digits, where settings are compared


@dataclass(frozen=True)
class Digits:
    images: NDArray[np.uint8]  # [n, 28, 28]
    labels: NDArray[np.int64]


@dataclass(frozen=True)
class DigitGraphs:
    """Graphs of superpixels end to end; graph g has nodes node_ptr[g] to node_ptr[g + 1]."""

    features: NDArray[np.float32]  # [nodes, 1]
    positions: NDArray[np.float32]  # [nodes, 2]
    edges: NDArray[np.uint8]  # [2, E] within each graph, which has at most 75 nodes
    node_ptr: NDArray[np.int64]
    edge_ptr: NDArray[np.int64]
    labels: NDArray[np.int64]


def load_digits(data: Path) -> tuple[Digits, Digits]:
    """All training and all test images."""
    path = data / FILE
    arrays = read_npz(path, {"x_train": 3, "y_train": 1, "x_test": 3, "y_test": 1}, WHERE)
    parts = []
    for part in ("train", "test"):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"].astype(np.int64)
        if x.dtype != np.uint8 or x.shape[1:] != (28, 28) or len(x) != len(y) or len(y) == 0:
            raise InvalidData(f"{path}: x_{part} is {x.dtype} {list(x.shape)}; {WHERE}")
        if y.min() < 0 or y.max() > 9:
            raise InvalidData(f"{path}: y_{part} must lie in [0, 10)")
        parts.append(Digits(x, y))
    return parts[0], parts[1]


def load_superpixels(data: Path) -> tuple[DigitGraphs, DigitGraphs]:
    """All training and all test images as superpixels; made at the first call and kept."""
    path = data / SUPERPIXEL_FILE
    if not path.exists():
        make_superpixels(data)
    names = {"features": 2, "positions": 2, "edges": 2, "node_ptr": 1, "edge_ptr": 1, "labels": 1}
    wanted = {f"{part}_{name}": d for part in ("train", "test") for name, d in names.items()}
    arrays = read_npz(path, wanted, "delete it, and it is made anew from mnist.npz")
    train, test = (
        DigitGraphs(**{name: arrays[f"{part}_{name}"] for name in names})
        for part in ("train", "test")
    )
    return train, test


def make_superpixels(
    data: Path, progress: Callable[[int, int], None] | None = None, processes: int = 2
) -> Path:
    """Cut every image into superpixels and keep the graphs, about 1 ms each."""
    arrays = {}
    parts = load_digits(data)
    total, done = sum(len(digits.labels) for digits in parts), 0
    with ProcessPoolExecutor(processes) as pool:
        for name, digits in zip(("train", "test"), parts, strict=True):
            graphs = []
            for graph in pool.map(superpixel_graph, digits.images, chunksize=256):
                graphs.append(graph)
                done += 1
                if progress and done % 256 == 0:
                    progress(done, total)
            features, positions, edges = zip(*graphs, strict=True)
            arrays[f"{name}_features"] = np.concatenate(features)
            arrays[f"{name}_positions"] = np.concatenate(positions)
            arrays[f"{name}_edges"] = np.concatenate(edges, 1).astype(np.uint8)
            arrays[f"{name}_node_ptr"] = np.cumsum([0, *(len(f) for f in features)])
            arrays[f"{name}_edge_ptr"] = np.cumsum([0, *(e.shape[1] for e in edges)])
            arrays[f"{name}_labels"] = digits.labels
    path = data / SUPERPIXEL_FILE
    partial = path.with_name(SUPERPIXEL_FILE + ".partial.npz")
    np.savez(partial, **arrays)  # type: ignore[arg-type]
    partial.replace(path)
    return path
