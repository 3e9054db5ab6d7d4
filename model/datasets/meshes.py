"""Shapes in full correspondence: FAUST's registrations, or a folder of people's own meshes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import trimesh
from numpy.typing import NDArray

from model.datasets.files import InvalidData, MissingData
from model.errors import InvalidGraph
from model.tasks import mesh_graph

FAUST = "FAUST is for registered researchers: https://faust-leaderboard.is.tuebingen.mpg.de"
SUFFIXES = {".ply", ".obj", ".off", ".stl", ".glb"}


@dataclass(frozen=True)
class Meshes:
    """Shapes with one vertex order and one triangulation; vertex n of one is vertex n of all."""

    faces: NDArray[np.int64]  # [F, 3]
    reference: NDArray[np.float32]  # [V, 3]
    train: NDArray[np.float32]  # [n, V, 3]
    validation: NDArray[np.float32]
    test: NDArray[np.float32]


def load_faust(data: Path) -> Meshes:
    """tr_reg_000.ply to tr_reg_099.ply: the first 80 train, the last 20 test, as in the paper.

    The first scan is the reference. Settings are compared on training shapes only, so the
    validation part repeats the last ten of them.
    """
    folder = next((p for p in (data, *data.glob("**/registrations")) if _registered(p)), data)
    paths = [folder / f"tr_reg_{n:03d}.ply" for n in range(100)]
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise MissingData(
            f"{len(missing)} of FAUST's 100 registrations are missing in {folder}, "
            f"the first is {missing[0].name}. {FAUST}"
        )
    shapes, faces = read_meshes(paths)
    return Meshes(faces, shapes[0], shapes[:80], shapes[70:80], shapes[80:])


def _registered(folder: Path) -> bool:
    return (folder / "tr_reg_000.ply").is_file()


def load_mesh_folder(folder: Path) -> Meshes:
    """All meshes of a folder; `reference.*`, or the first by name, is what the others map to.

    By name, the last fifth tests and the tenth before it validates.
    """
    paths = sorted(p for p in folder.glob("*") if p.suffix.lower() in SUFFIXES)
    if len(paths) < 10:
        wanted = ", ".join(sorted(SUFFIXES))
        raise MissingData(f"{folder} holds {len(paths)} meshes ({wanted}); 10 are the fewest")
    first = next((p for p in paths if p.stem == "reference"), paths[0])
    others = [path for path in paths if path.stem != "reference"]
    shapes, faces = read_meshes([first, *others])
    reference, shapes = shapes[0], shapes[1:]
    test = len(shapes) - max(1, len(shapes) // 5)
    validation = test - max(1, len(shapes) // 10)
    parts = shapes[:validation], shapes[validation:test], shapes[test:]
    return Meshes(faces, reference, *parts)


def read_meshes(paths: Sequence[Path]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Vertices [n, V, 3] and the faces they share, or InvalidData naming the odd one out."""
    first, faces = _read(paths[0])
    shapes = [first]
    for path in paths[1:]:
        vertices, own = _read(path)
        if vertices.shape != first.shape or not np.array_equal(own, faces):
            raise InvalidData(
                f"{path.name} is not triangulated like {paths[0].name}: all meshes must have the "
                f"same faces in the same order ({len(vertices)} and {len(first)} vertices)"
            )
        shapes.append(vertices)
    return np.stack(shapes), faces


def _read(path: Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    try:
        # process=False: merging or reordering vertices would break the correspondence
        mesh: Any = trimesh.load(path, force="mesh", process=False)
    except Exception as error:  # every format has its own way to fail
        raise InvalidData(f"{path} cannot be read as a mesh: {error}") from error
    try:
        graph = mesh_graph(np.asarray(mesh.vertices), np.asarray(mesh.faces))
    except InvalidGraph as error:
        raise InvalidData(f"{path}: {error}") from None
    return graph.arrays["vertices"], graph.arrays["faces"]
