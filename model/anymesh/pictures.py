"""The pictures of the model card of `bodies-any`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from model.anymesh.evaluate import Case, Result
from model.geodesics import princeton_curve
from model.plots import paint, save

RADII = np.linspace(0, 10, 101)


def draw_curves(lines: Mapping[str, Sequence[Result]], path: Path) -> None:
    """Vertices within a geodesic radius of where they belong, a line per way of asking."""
    figure, axes = plt.subplots(figsize=(6, 4))
    for name, results in lines.items():
        errors = np.concatenate([result.error for result in results])
        axes.plot(RADII, princeton_curve(errors, RADII), linewidth=2, label=name)
    axes.set_xlabel("geodesic error x 100 / sqrt(area)")
    axes.set_ylabel("vertices, %")
    axes.set_ylim(0, 101)
    axes.grid(alpha=0.3)
    axes.legend()
    save(figure, path)


def draw_errors(cases: Sequence[Case], results: Sequence[Result], path: Path) -> None:
    """The best, the median and the worst mesh, coloured by error."""
    order = np.argsort([result.error.mean() for result in results])
    figure, axes = plt.subplots(1, 3, figsize=(9, 5))
    names = ("best", "median", "worst")
    for place, name, n in zip(axes, names, order[[0, len(order) // 2, -1]], strict=True):
        case, error = cases[n], np.zeros(len(cases[n].vertices))
        error[np.unique(case.faces)] = results[n].error
        image = paint(place, case.standing, case.faces, error, 10)
        place.set_title(f"{name}: {results[n].error.mean():.2f}, {len(case.vertices)} vertices")
    bar = figure.colorbar(image, ax=axes, fraction=0.02)
    bar.set_label("geodesic error x 100 / sqrt(area)")
    save(figure, path, tight=False)
