"""Carry a value from one mesh to another over their correspondences with the reference."""

import sys

import numpy as np
import trimesh

from service.client import Client

url, first, second = sys.argv[1:4]
a, b = (trimesh.load(name, process=False) for name in (first, second))
with Client(url) as client:
    of_a, of_b = client.correspondence(a), client.correspondence(b)

height = a.vertices[:, 2]  # any value per vertex: a texture coordinate, a bone weight, a label
on_reference = np.full(of_a.index.max() + 1, np.nan)
on_reference[of_a.index] = height
found = np.isin(of_b.index, of_a.index)
carried = np.full(len(b.vertices), np.nan)
carried[found] = on_reference[of_b.index[found]]
print(f"{found.mean():.0%} of {second}'s vertices got a value from {first}")
