"""People for `bodies-any`: wider shapes and poses than the paper's bodies, made with anny."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from model.datasets.bodies import TEMPLATE, rotations
from model.datasets.files import MissingData, read_npz

FILE = "people.npz"
WHERE = "make it with `python -m model.anymesh data DIRECTORY` (needs `pip install anny==0.6.2`)"
SPLITS = {"train": 8000, "validation": 24, "test": 120}
BATCH = 20  # bodies anny poses at a time

Ranges = dict[str, tuple[tuple[float, float], tuple[float, float], tuple[float, float]]]

# Degrees (low, high) about the subject's own x (left), y (back), z (up), for the left side; the
# right side mirrors y and z. Zero is anny's A-pose.
_ARM: Ranges = {
    "clavicle": ((-8, 8), (-22, 8), (-12, 8)),
    "upperarm01": ((-60, 35), (-125, 38), (-75, 30)),
    "upperarm02": ((-30, 30), (0, 0), (0, 0)),
    "lowerarm01": ((-125, 0), (-10, 10), (-40, 15)),
    "lowerarm02": ((-25, 25), (-10, 10), (-10, 10)),
    "wrist": ((-30, 30), (-30, 30), (-25, 25)),
}
_LEG: Ranges = {
    "upperleg01": ((-110, 28), (-45, 10), (-25, 25)),
    "lowerleg01": ((0, 120), (0, 0), (-5, 5)),
    "foot": ((-30, 25), (-10, 10), (-12, 12)),
}
# One person in four stands with hanging arms, as people do who are being scanned.
_STANDING: Ranges = {
    **_ARM,
    "clavicle": ((-4, 4), (-6, 6), (-6, 6)),
    "upperarm01": ((-20, 15), (22, 44), (-20, 15)),
    "lowerarm01": ((-45, 0), (-10, 10), (-25, 10)),
    "upperleg01": ((-12, 10), (-6, 14), (-15, 15)),
    "lowerleg01": ((0, 15), (0, 0), (-5, 5)),
    "foot": ((-8, 8), (-5, 5), (-12, 12)),
}
_TRUNK: Ranges = {
    "spine05": ((-8, 20), (-9, 9), (-12, 12)),
    "spine04": ((-8, 20), (-9, 9), (-12, 12)),
    "spine03": ((-8, 16), (-9, 9), (-12, 12)),
    "spine02": ((-8, 16), (-9, 9), (-12, 12)),
    "neck01": ((-20, 22), (-15, 15), (-30, 30)),
    "head": ((-20, 22), (-12, 12), (-30, 30)),
}
_PEOPLE = {
    "gender": (0.0, 1.0),
    "age": (0.25, 1.0),
    "muscle": (0.05, 0.95),
    "weight": (0.05, 1.0),
    "height": (0.1, 0.95),
    "proportions": (0.1, 0.95),
}
_LOCAL_CHANGE = 0.3  # standard deviation of each of anny's local changes


def load_people(data: Path) -> dict[str, NDArray[Any]]:
    """The arrays train, validation and test: [n, 6890, 3] float16, in metres."""
    return read_npz(data / FILE, dict.fromkeys(SPLITS, 3), WHERE)


def make_people(data: Path, seed: int = 7) -> Path:
    """Draw and pose everyone; each has a body and a pose of their own, so splits share neither."""
    try:
        import anny
    except ImportError as error:
        raise MissingData("people are made with anny: pip install anny==0.6.2") from error
    body = anny.Anny(local_changes="default")
    with np.load(TEMPLATE) as template:
        index = torch.from_numpy(template["anny_vertex_index"].astype(np.int64))
    rng = np.random.default_rng(seed)
    arrays = {}
    for split, count in SPLITS.items():
        parts = [_pose(body, min(BATCH, count - i), rng) for i in range(0, count, BATCH)]
        arrays[split] = np.concatenate([part[:, index] for part in parts])
    data.mkdir(parents=True, exist_ok=True)
    partial = data / (FILE + ".partial.npz")
    np.savez(partial, allow_pickle=False, **arrays)
    return partial.replace(data / FILE)


def _pose(body: Any, n: int, rng: np.random.Generator) -> NDArray[np.float16]:
    with torch.no_grad():
        posed = body(
            pose_parameters=torch.from_numpy(_draw_poses(body.bone_labels, n, rng)),
            phenotype_kwargs={
                name: torch.from_numpy(rng.uniform(low, high, n))
                for name, (low, high) in _PEOPLE.items()
            },
            local_changes_kwargs=_draw_changes(body.local_change_labels, n, rng),
        )["vertices"].float()
    return np.asarray((posed - posed.mean(1, keepdim=True)).numpy(), np.float16)


def _draw_changes(labels: list[str], n: int, rng: np.random.Generator) -> dict[str, torch.Tensor]:
    """Bodies are nearly symmetric: what changes on the left changes on the right, almost alike."""
    changes: dict[str, torch.Tensor] = {}
    for label in labels:
        twin = changes.get("l" + label[1:]) if label.startswith("r-") else None
        drawn = rng.normal(0, _LOCAL_CHANGE if twin is None else _LOCAL_CHANGE / 6, n)
        value = drawn if twin is None else twin.numpy() + drawn
        changes[label] = torch.from_numpy(value.clip(-0.95, 0.95))
    return changes


def _draw_poses(bones: list[str], n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Bone rotations [n, bones, 4, 4]: arms, legs and trunk each between still and wild."""
    pose = np.tile(np.eye(4), (n, len(bones), 1, 1))

    def turn(bone: str, degrees: NDArray[np.float64]) -> None:
        pose[:, bones.index(bone), :3, :3] = rotations(degrees)

    def draw(ranges: Any, vigour: NDArray[np.float64]) -> NDArray[np.float64]:
        low, high = np.array(ranges, float).T
        return vigour * rng.uniform(low, high, (n, 3))

    mirror = np.array([1, -1, -1])
    standing, wholly = rng.random((n, 1)) < 0.25, np.ones((n, 1))
    for group in (_ARM, _LEG):
        alike, vigour = rng.random((n, 1)) < 0.3, rng.uniform(0.1, 1, (n, 1)) ** 0.7
        for bone, ranges in group.items():
            left, right = (
                np.where(standing, draw(_STANDING[bone], wholly), draw(ranges, vigour))
                for _ in range(2)
            )
            turn(f"{bone}.L", left)
            turn(f"{bone}.R", np.where(alike, left, right) * mirror)
    vigour = rng.uniform(0, 1, (n, 1))
    for bone, ranges in _TRUNK.items():
        turn(bone, draw(ranges, vigour))
    for side in "LR":
        curl = rng.uniform(-10, 70, (n, 1)) * rng.uniform(0, 1, (n, 1))
        for finger in range(1, 6):
            for joint in range(1, 4):
                angle = curl * rng.uniform(0.7, 1.2, (n, 1)) * (0.3 if finger == 1 else 1)
                turn(f"finger{finger}-{joint}.{side}", angle * np.array([1, 0, 0]))
    return pose
