"""Write a folder of dented balls with one triangulation: a small data set to train on."""

import sys
from pathlib import Path

import numpy as np
import trimesh

folder = Path(sys.argv[1])
folder.mkdir(exist_ok=True)
rng = np.random.default_rng(0)
ball = trimesh.creation.icosphere(2)
ball.export(folder / "reference.ply")
for n in range(20):
    directions = rng.normal(size=(6, 3))
    dents = np.exp(4 * (ball.vertices @ directions.T - np.linalg.norm(directions, axis=1))).sum(1)
    shape = ball.vertices * (1 - 0.2 * dents[:, None]) * rng.uniform(0.8, 1.2, 3)
    trimesh.Trimesh(shape, ball.faces, process=False).export(folder / f"ball_{n:02d}.ply")
print(f"wrote 20 balls and their reference to {folder}/")
