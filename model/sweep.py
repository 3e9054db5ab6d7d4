"""The superpixel network over spline degrees and coordinate types (paper, figure 6)."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from model import plots
from model.datasets.mnist import load_superpixels
from model.problems import Superpixels, gather_graphs
from model.pseudo import CARTESIAN, POLAR
from model.recipes import RECIPES
from model.train import run

DEGREES = (1, 2, 3)


def compare_splines(data: Path, out: Path, steps: int = 2000) -> dict[str, list[float]]:
    """Train each variant for `steps` steps, test it, and write splines.json and splines.png.

    Returns the test accuracies for degrees 1, 2, 3 by coordinate type. Short trainings compare
    the variants with each other; they do not reach what the full recipe does.
    """
    train, test = load_superpixels(data)
    parts = np.array_split(np.arange(len(test.labels)), max(1, len(test.labels) // 250))
    found: dict[str, list[float]] = {CARTESIAN: [], POLAR: []}
    for pseudo, scores in found.items():
        for degree in DEGREES:
            recipe = replace(
                RECIPES["mnist-superpixels"],
                pseudo=pseudo,
                steps=steps,
                parameters={**RECIPES["mnist-superpixels"].parameters, "degree": degree},
            )
            torch.manual_seed(recipe.seed)
            problem = Superpixels(recipe, train)
            with tempfile.TemporaryDirectory() as scratch:
                run(problem, recipe, Path(scratch), quiet=False)
            problem.net.eval()
            with torch.inference_mode():
                answers = [problem.net(*gather_graphs(test, p)).argmax(1).numpy() for p in parts]
            scores.append(float((np.concatenate(answers) == test.labels).mean()))
    out.mkdir(parents=True, exist_ok=True)
    (out / "splines.json").write_text(json.dumps(found, indent=2) + "\n")
    plots.draw_splines(DEGREES, found, out / "splines.png")
    return found
