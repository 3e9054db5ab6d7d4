"""Carry a value from one mesh to another over their correspondences with the reference."""

import sys

import numpy as np
import trimesh

from service.client import Client

url, first, second = sys.argv[1:4]
a, b = (trimesh.load(name, process=False) for name in (first, second))
with Client(url) as client:
    of_a = client.correspondence(a, include=["reverse"])
    of_b = client.correspondence(b, include=["points"])
    reference = client.get(f"v1/models/{of_a.model}/reference")["mesh"]

height = a.vertices[:, 2]  # any value per vertex: a texture coordinate, a bone weight, a label
on_reference = of_a.reverse.interpolate(a.faces, height)
carried = of_b.points.interpolate(reference["faces"], on_reference)
print(f"{np.isfinite(carried).mean():.0%} of {second}'s vertices got a value from {first}")
