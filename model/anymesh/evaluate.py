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
CLOSE = 3.0  # an answer is as good as right within this error
CLEARLY = 0.15  # a vertex this far from its mirror image can be taken for it


@dataclass(frozen=True)
class Case:
    """A mesh turned at random, with the reference vertex nearest to each vertex's place."""

    vertices: NDArray[np.float32]
    faces: NDArray[np.int64]
    truth: NDArray[np.int64]
    standing: NDArray[np.float32]  # the vertices before they were turned


@dataclass(frozen=True)
class Result:
    """What was found for the vertices that a face uses; errors along the reference, times 100."""

    error: NDArray[np.float64]
    flipped: NDArray[np.bool_]
    hand: NDArray[np.bool_]
    confidence: NDArray[np.float32]


@dataclass(frozen=True)
class Score:
    """Mean errors along the reference, times 100 / sqrt(area); flips in percent of vertices."""

    error: float
    median: float
    worst: float  # the mean error of the worst mesh
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
        cases.append(Case((vertices @ turn.T).astype(np.float32), faces, nearest, vertices))
    return cases


class Judge:
    """Scores answers by distance on the reference."""

    def __init__(self, reference: Reference) -> None:
        self.distance = reference.distance
        self.mirror = mirror_map(reference.vertices.astype(np.float64))
        side = reference.vertices[:, 0]
        tips = [int(side.argmin()), int(side.argmax())]
        self.is_hand = self.distance[tips].min(0) < HAND

    def judge(
        self,
        found: NDArray[np.int64],
        truth: NDArray[np.int64],
        confidence: NDArray[np.float32],
    ) -> Result:
        error = 100 * self.distance[found, truth].astype(np.float64)
        other = self.mirror[truth]
        flipped = 100 * self.distance[found, other].astype(np.float64) < error
        flipped &= self.distance[truth, other] > CLEARLY
        return Result(error, flipped, self.is_hand[truth], confidence)


def score(results: Sequence[Result]) -> Score:
    """The score over all vertices of some meshes."""
    error = np.concatenate([result.error for result in results])
    hand = np.concatenate([result.hand for result in results])
    return Score(
        error=float(error.mean()),
        median=float(np.median(error)),
        worst=float(max(result.error.mean() for result in results)),
        hands=float(error[hand].mean()) if hand.any() else 0.0,
        elsewhere=float(error[~hand].mean()) if not hand.all() else 0.0,
        flips=float(100 * np.concatenate([result.flipped for result in results]).mean()),
        confidence=float(np.concatenate([result.confidence for result in results]).mean()),
    )


def answer(
    served: nn.Module, case: Case, refine: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Reference vertices and confidences of one mesh, asked alone."""
    ptr = torch.tensor([0, len(case.vertices)])
    with torch.inference_mode():
        index, confidence = served(
            torch.from_numpy(case.vertices), torch.from_numpy(case.faces), ptr, 1, int(refine)
        )
    return index[:, 0].numpy(), confidence[:, 0].numpy()


def ask(served: nn.Module, case: Case, judge: Judge, refine: bool = False) -> Result:
    """One mesh, asked and judged."""
    index, confidence = answer(served, case, refine)
    used = np.unique(case.faces)
    return judge.judge(index[used], case.truth[used], confidence[used])


def restlessness(served: nn.Module, case: Case, judge: Judge) -> NDArray[np.float64]:
    """How far each answer moves when the mesh is turned, scaled, moved and renumbered."""
    rng = np.random.default_rng(len(case.faces))
    order = rng.permutation(len(case.vertices))  # what is now at n was at order[n]
    place = np.argsort(order)
    turn = turn_by(torch.from_numpy(rng.normal(0, 2, (1, 3))))[0].numpy()
    moved = 100 * (case.vertices @ turn.T + rng.normal(0, 5, 3))[order]
    other = Case(moved.astype(np.float32), place[case.faces], case.truth[order], case.standing)
    before, after = answer(served, case)[0], answer(served, other)[0][place]
    used = np.unique(case.faces)
    return 100 * judge.distance[before[used], after[used]].astype(np.float64)


def calibrate(results: Sequence[Result], calibration: float) -> float:
    """The calibration with which as many answers are close as their confidences promise.

    `results` were measured with `calibration`; scaling it moves all confidences together.
    """
    error = np.concatenate([result.error for result in results])
    confidence = np.concatenate([result.confidence for result in results]).astype(np.float64)
    share = -np.log1p(-confidence.clip(0, 1 - 1e-12))
    close = float((error <= CLOSE).mean())
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        if float((1 - np.exp(-middle * share)).mean()) < close:
            low = middle
        else:
            high = middle
    return calibration * high
