"""How well `bodies-any` does on people, poses and triangulations it has not seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from model.anymesh.people import load_people
from model.anymesh.reference import Reference, mirror_map
from model.anymesh.rotations import turn_by
from model.anymesh.samples import damage, shake
from model.anymesh.topologies import Topology

HAND = 0.14  # of the square root of the area: within this distance of a middle finger's tip
CLEARLY = 0.15  # a vertex this far from its mirror image can be taken for it


@dataclass(frozen=True)
class Case:
    """A mesh turned at random, with the reference vertex nearest to each vertex's place."""

    vertices: NDArray[np.float32]
    faces: NDArray[np.int64]
    truth: NDArray[np.int64]


@dataclass(frozen=True)
class Score:
    """Mean errors along the reference, times 100 / sqrt(area); flips in percent of vertices."""

    error: float
    median: float
    hands: float
    elsewhere: float
    flips: float
    confidence: float


def draw_cases(
    data: Path, topology: Topology, count: int, split: str, worn: bool = False
) -> list[Case]:
    """The first people of a split with one triangulation, each turned some way; worn if asked."""
    people = load_people(data)[split]
    if count > len(people):
        raise ValueError(f"{split} has {len(people)} people, {count} were asked for")
    rng = np.random.default_rng(len(topology.corner))
    nearest = topology.corner[np.arange(len(topology.corner)), topology.weight.argmax(1)]
    cases = []
    for body in people[:count].astype(np.float32):
        vertices, faces = topology.place(body), topology.faces
        if worn:
            faces = damage(vertices, faces, rng)
            vertices = shake(vertices, rng)
        turn = turn_by(torch.from_numpy(rng.normal(0, 2, (1, 3))))[0].numpy()
        cases.append(Case((vertices @ turn.T).astype(np.float32), faces, nearest))
    return cases


class Judge:
    """Scores answers by distance on the reference."""

    def __init__(self, reference: Reference) -> None:
        self.distance = reference.distance
        self.mirror = mirror_map(reference.vertices.astype(np.float64))
        side = reference.vertices[:, 0]
        tips = [int(side.argmin()), int(side.argmax())]
        self.is_hand = self.distance[tips].min(0) < HAND

    def score(
        self,
        found: NDArray[np.int64],
        truth: NDArray[np.int64],
        confidence: NDArray[np.float32],
    ) -> Score:
        error = 100 * self.distance[found, truth].astype(np.float64)
        other = self.mirror[truth]
        flipped = 100 * self.distance[found, other].astype(np.float64) < error
        flipped &= self.distance[truth, other] > CLEARLY
        hand = self.is_hand[truth]
        return Score(
            error=float(error.mean()),
            median=float(np.median(error)),
            hands=float(error[hand].mean()) if hand.any() else 0.0,
            elsewhere=float(error[~hand].mean()) if not hand.all() else 0.0,
            flips=float(100 * flipped.mean()),
            confidence=float(confidence.mean()),
        )


def evaluate(served: nn.Module, cases: Sequence[Case], judge: Judge) -> Score:
    """The score over all vertices of all cases, each asked alone."""
    found, truth, sure = [], [], []
    for case in cases:
        ptr = torch.tensor([0, len(case.vertices)])
        with torch.inference_mode():
            index, confidence = served(
                torch.from_numpy(case.vertices), torch.from_numpy(case.faces), ptr, 1
            )
        used = np.unique(case.faces)
        found.append(index[:, 0].numpy()[used])
        truth.append(case.truth[used])
        sure.append(confidence[:, 0].numpy()[used])
    return judge.score(np.concatenate(found), np.concatenate(truth), np.concatenate(sure))
