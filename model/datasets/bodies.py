"""Human bodies in many shapes and poses, made with anny, all with the template's vertex order."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.datasets.files import MissingData, read_npz
from model.datasets.meshes import Meshes

FILE = "bodies.npz"
TEMPLATE = Path(__file__).with_name("body_template.npz")
WHERE = "make it with `splinecnn data bodies` (needs `pip install anny==0.6.2`; about two minutes)"
BATCH = 20  # bodies anny poses at a time


@dataclass(frozen=True)
class Census:
    """How many bodies; every one is its own person in its own pose, so no two splits share any."""

    train: int = 12_000
    validation: int = 60
    test: int = 100
    seed: int = 1
    reach: float = 1.2  # training poses go this much further, so that no test pose is at their edge


# Each joint turns about the subject's own axes: x to the left, y to the back, z up. Degrees,
# (low, high) per axis, for the left side; the right side mirrors y and z.
_LIMBS = {
    "clavicle": ((-5, 5), (-12, 5), (-5, 5)),
    "upperarm01": ((-45, 20), (-70, 25), (-20, 20)),
    "lowerarm01": ((-70, 0), (-8, 8), (-15, 15)),
    "wrist": ((-15, 15), (-15, 15), (-15, 15)),
    "upperleg01": ((-40, 12), (-18, 5), (-8, 8)),
    "lowerleg01": ((0, 50), (0, 0), (0, 0)),
    "foot": ((-15, 15), (-5, 5), (-5, 5)),
}
_TRUNK = {
    "spine05": ((-4, 9), (-5, 5), (-6, 6)),
    "spine04": ((-4, 9), (-5, 5), (-6, 6)),
    "spine03": ((-4, 9), (-5, 5), (-6, 6)),
    "spine02": ((-4, 9), (-5, 5), (-6, 6)),
    "neck01": ((-10, 12), (-8, 8), (-15, 15)),
    "head": ((-12, 15), (-8, 8), (-20, 20)),
}
_TURN = ((-4, 4), (-4, 4), (-10, 10))  # the whole body
_PEOPLE = {
    "gender": (0.0, 1.0),
    "age": (0.55, 0.95),
    "muscle": (0.2, 0.85),
    "weight": (0.2, 0.85),
    "height": (0.2, 0.85),
    "proportions": (0.2, 0.9),
}
_LOCAL_CHANGE = 0.25  # standard deviation of each of anny's local changes


def load_bodies(data: Path) -> Meshes:
    """The bodies of `make_bodies` in a data directory."""
    arrays = read_npz(
        data / FILE, {"train": 3, "validation": 3, "test": 3, "faces": 2, "reference": 2}, WHERE
    )
    return Meshes(**{name: arrays[name] for name in Meshes.__dataclass_fields__})


def make_bodies(
    data: Path,
    census: Census | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Draw people and poses, pose them, and write bodies.npz."""
    census = census or Census()
    total, made = census.train + census.validation + census.test, 0

    def told(count: int) -> None:
        nonlocal made
        made += count
        if progress is not None:
            progress(made, total)

    body = load_anny()
    with np.load(TEMPLATE) as file:
        template = {name: file[name] for name in file.files}
    vertex_index = torch.from_numpy(template["anny_vertex_index"].astype(np.int64))
    parts = {
        # a part draws from a stream of its own: more training bodies leave the test as it was
        name: _pose_people(
            body, vertex_index, count, np.random.default_rng((census.seed, part)), reach, told
        )
        for part, (name, count, reach) in enumerate(
            [
                ("train", census.train, census.reach),
                ("validation", census.validation, 1.0),
                ("test", census.test, 1.0),
            ]
        )
    }
    path = data / FILE
    data.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(FILE + ".partial.npz")
    np.savez(
        partial,
        faces=template["faces"].astype(np.int64),
        reference=template["vertices"].astype(np.float32),
        **parts,  # type: ignore[arg-type]
    )
    partial.replace(path)
    return path


def load_anny() -> Any:
    try:
        import anny
    except ImportError as error:
        raise MissingData("bodies are made with anny: pip install anny==0.6.2") from error
    return anny.Anny(local_changes="default")


def _pose_people(
    body: Any,
    vertex_index: Tensor,
    count: int,
    rng: np.random.Generator,
    reach: float,
    told: Callable[[int], None],
) -> NDArray[np.float32]:
    out = []
    for start in range(0, count, BATCH):
        n = min(BATCH, count - start)
        with torch.no_grad():
            posed = body(
                pose_parameters=torch.from_numpy(_draw_poses(body.bone_labels, n, rng, reach)),
                phenotype_kwargs={
                    name: torch.from_numpy(rng.uniform(low, high, n))
                    for name, (low, high) in _PEOPLE.items()
                },
                local_changes_kwargs=_draw_changes(body.local_change_labels, n, rng),
            )
        out.append(posed["vertices"][:, vertex_index].float().numpy())
        told(n)
    return np.concatenate(out)


def _draw_changes(labels: list[str], n: int, rng: np.random.Generator) -> dict[str, Tensor]:
    """Bodies are nearly symmetric: what changes on the left changes on the right, almost alike."""
    changes: dict[str, Tensor] = {}
    for label in labels:
        twin = changes.get("l" + label[1:]) if label.startswith("r-") else None
        if twin is None:
            value = rng.normal(0, _LOCAL_CHANGE, n)
        else:
            value = twin.numpy() + rng.normal(0, _LOCAL_CHANGE / 8, n)
        changes[label] = torch.from_numpy(value.clip(-0.9, 0.9))
    return changes


def _draw_poses(
    bones: list[str], n: int, rng: np.random.Generator, reach: float
) -> NDArray[np.float64]:
    """Bone rotations [n, bones, 4, 4]; a third of the bodies move both sides alike."""
    pose = np.tile(np.eye(4), (n, len(bones), 1, 1))

    def turn(bone: str, angles: NDArray[np.float64]) -> None:
        pose[:, bones.index(bone), :3, :3] = rotations(angles)

    alike = rng.random((n, 1)) < 1 / 3
    mirror = np.array([1, -1, -1])
    for limb, ranges in _LIMBS.items():
        left, right = _draw(ranges, n, rng, reach), _draw(ranges, n, rng, reach)
        turn(f"{limb}.L", left)
        turn(f"{limb}.R", np.where(alike, left, right) * mirror)
    for bone, ranges in _TRUNK.items():
        turn(bone, _draw(ranges, n, rng, reach))
    turn("root", _draw(_TURN, n, rng, reach))
    for side in "LR":
        curl = rng.uniform(-5, 35, (n, 1))
        for finger in range(2, 6):
            for joint in range(1, 4):
                turn(f"finger{finger}-{joint}.{side}", curl * np.array([1, 0, 0]))
    return pose


def _draw(
    ranges: tuple[tuple[float, float], ...], n: int, rng: np.random.Generator, reach: float
) -> NDArray[np.float64]:
    """Angles within `ranges`, widened about their middle by `reach`."""
    low, high = np.array(ranges, float).T
    middle, half = (low + high) / 2, reach * (high - low) / 2
    return rng.uniform(middle - half, middle + half, (n, 3))


def rotations(degrees: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rz Ry Rx of [n, 3] angles, as [n, 3, 3]."""
    a, b, c = np.radians(degrees).T
    one, zero = np.ones_like(a), np.zeros_like(a)

    def matrix(*entries: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.stack(entries, -1).reshape(-1, 3, 3)

    x = matrix(one, zero, zero, zero, np.cos(a), -np.sin(a), zero, np.sin(a), np.cos(a))
    y = matrix(np.cos(b), zero, np.sin(b), zero, one, zero, -np.sin(b), zero, np.cos(b))
    z = matrix(np.cos(c), -np.sin(c), zero, np.sin(c), np.cos(c), zero, zero, zero, one)
    return z @ y @ x
