"""The pictures of the model cards."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from torch import nn  # noqa: E402

import ops  # noqa: E402
from model.layers import SplineConv  # noqa: E402

DPI = 80


def draw_curve(radii: NDArray[np.float64], percent: NDArray[np.float64], path: Path) -> None:
    """The Princeton curve: vertices within a geodesic radius of where they belong."""
    figure, axes = plt.subplots(figsize=(6, 4))
    axes.plot(100 * radii, percent, linewidth=2)
    axes.set_xlabel("geodesic error, % of the diameter")
    axes.set_ylabel("vertices, %")
    axes.set_ylim(min(95.0, float(percent.min()) - 1), 100.1)
    axes.grid(alpha=0.3)
    save(figure, path)


def draw_bodies(
    shapes: NDArray[np.float32],
    faces: NDArray[np.int64],
    errors: NDArray[np.float64],
    path: Path,
) -> None:
    """The best, the median and the worst shape, coloured by geodesic error."""
    order = np.argsort(errors.mean(1))
    figure, axes = plt.subplots(1, 3, figsize=(9, 5))
    for place, what, shape in zip(
        axes, ("best", "median", "worst"), order[[0, len(order) // 2, -1]], strict=True
    ):
        image = paint(place, shapes[shape], faces, 100 * errors[shape])
        wrong = int((errors[shape] > 0).sum())
        place.set_title(f"{what}: {wrong} vertices off")
    bar = figure.colorbar(image, ax=axes, fraction=0.02)
    bar.set_label("geodesic error, % of the diameter")
    save(figure, path, tight=False)


def paint(
    axes: Any,
    vertices: NDArray[np.float32],
    faces: NDArray[np.int64],
    error: NDArray[np.float64],
    most: float = 5,
) -> Any:
    """The front of a mesh that stands on z and looks along -y."""
    corners = vertices[faces]
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    front = faces[normal[:, 1] < 0]
    depth = vertices[front][:, :, 1].mean(1)
    front = front[np.argsort(-depth)]  # far triangles first
    image = axes.tripcolor(
        vertices[:, 0],
        vertices[:, 2],
        front,
        error[front].max(1),
        cmap="viridis",
        vmin=0,
        vmax=most,
    )
    axes.set_aspect("equal")
    axes.axis("off")
    return image


def draw_runs(accuracy: NDArray[np.float64], path: Path) -> None:
    """How the test accuracies of repeated trainings spread."""
    figure, axes = plt.subplots(figsize=(6, 3.5))
    values, counts = np.unique(accuracy.round(1), return_counts=True)
    axes.bar(values, counts, width=0.16)
    axes.axvline(accuracy.mean(), color="black", linestyle="--")
    axes.set_title(f"{accuracy.mean():.2f} ± {accuracy.std():.2f} %, {len(accuracy)} runs")
    axes.set_xlabel("test accuracy, %")
    axes.set_ylabel("runs")
    save(figure, path)


def draw_confusion(found: NDArray[np.int64], labels: NDArray[np.int64], path: Path) -> None:
    """Which digits are taken for which others."""
    table = np.zeros((10, 10), int)
    np.add.at(table, (labels, found), 1)
    off = np.where(np.eye(10, dtype=bool), 0, table)
    figure, axes = plt.subplots(figsize=(5, 5))
    axes.imshow(off, cmap="Reds", vmin=0, vmax=max(1, off.max()))
    for (row, column), count in np.ndenumerate(table):
        if count:
            axes.text(column, row, str(count), ha="center", va="center", fontsize=8)
    axes.set_xticks(range(10))
    axes.set_yticks(range(10))
    axes.set_xlabel("answer")
    axes.set_ylabel("digit")
    save(figure, path)


def draw_splines(degrees: Sequence[int], found: dict[str, list[float]], path: Path) -> None:
    """Accuracy over the spline degree m, a line per coordinate type."""
    figure, axes = plt.subplots(figsize=(5, 3.5))
    for name, scores in found.items():
        axes.plot(degrees, [100 * score for score in scores], marker="o", label=name)
    axes.set_xticks(list(degrees))
    axes.set_xlabel("spline degree m")
    axes.set_ylabel("test accuracy, %")
    axes.grid(alpha=0.3)
    axes.legend()
    save(figure, path)


def draw_kernels(net: nn.Module, path: Path, side: int = 41) -> None:
    """The first layer's kernels over their pseudo-coordinates; of 3-D ones, the middle slice."""
    layer = next(m for m in net.modules() if isinstance(m, SplineConv))
    D = len(layer.kernel_size)
    if D == 1 or layer.weight.size(1) != 1:
        return
    across = torch.linspace(0, 1, side)
    v, u = torch.meshgrid(across, across, indexing="ij")
    middle = [torch.full_like(u, 0.5)] * (D - 2)
    pseudo = torch.stack([u, v, *middle], -1).view(-1, D)
    value, index = ops.spline_basis(pseudo, layer.kernel_size, layer.is_open, layer.degree)
    weight = layer.weight.detach()[:, 0]  # [K, M]
    kernels = (value[:, :, None] * weight[index]).sum(1).T.reshape(-1, side, side)
    columns = 8
    rows = -(-len(kernels) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(0.8 * columns, 0.8 * rows), squeeze=False)
    largest = float(kernels.abs().max())
    for place in axes.flat:
        place.axis("off")
    for place, kernel in zip(axes.flat, kernels.numpy(), strict=False):
        place.imshow(kernel, cmap="RdBu", vmin=-largest, vmax=largest, origin="lower")
    save(figure, path)


def save(figure: Any, path: Path, tight: bool = True) -> None:
    figure.savefig(path, dpi=DPI, bbox_inches="tight" if tight else None)
    plt.close(figure)
