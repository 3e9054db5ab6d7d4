"""Errors, hands and flips are told apart."""

import numpy as np
import pytest
import torch

from model.anymesh.evaluate import Judge, Result, Score, calibrate, score
from model.anymesh.reference import Reference, Tables

# a rod along x: two hands, two elbows, a middle
PLACES = np.array([-0.6, -0.3, 0.0, 0.3, 0.6], np.float32)


@pytest.fixture
def judge() -> Judge:
    vertices = np.stack([PLACES, 0 * PLACES, 0 * PLACES], 1)
    distance = np.abs(PLACES[:, None] - PLACES).astype(np.float16)
    return Judge(Reference(vertices, np.zeros((0, 3), np.int64), distance))


def judged(judge: Judge, found: list[int]) -> Score:
    truth = np.arange(5)
    return score([judge.judge(np.array(found), truth, np.full(5, 0.5, np.float32))])


def test_right_answers_have_no_error(judge: Judge) -> None:
    right = judged(judge, [0, 1, 2, 3, 4])
    assert (right.error, right.median, right.hands, right.flips) == (0, 0, 0, 0)
    assert right.confidence == 0.5


def test_an_error_on_a_hand_is_told_from_one_elsewhere(judge: Judge) -> None:
    off = judged(judge, [1, 1, 2, 3, 4])
    assert off.hands == pytest.approx(15, abs=0.1)
    assert off.elsewhere == 0
    assert off.error == pytest.approx(6, abs=0.1)


def test_the_other_side_is_a_flip_and_the_middle_never_is(judge: Judge) -> None:
    assert judged(judge, [4, 3, 2, 1, 0]).flips == pytest.approx(80)
    assert judged(judge, [0, 1, 4, 3, 4]).flips == 0


def test_candidates_of_a_landmark_are_the_vertices_near_it() -> None:
    landmark = torch.tensor([[0, 1], [1, 0], [1, 2], [2, 1]])
    near = torch.tensor([[0.0, 0.05], [0.02, 0.04], [0.01, 0.2], [0.0, 0.3]])
    tables = Tables(landmark, near, 3)
    assert tables.candidate_ptr.tolist() == [0, 2, 5, 6]
    assert tables.candidate.tolist() == [0, 1, 0, 1, 2, 3]
    torch.testing.assert_close(tables.probability.sum(1), torch.ones(4))


def test_calibrated_confidences_promise_what_is_kept() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.2, 0.9, 4000).astype(np.float32)
    error = np.where(rng.random(4000) < 0.7, 1.0, 9.0)
    no = np.zeros(4000, bool)
    factor = calibrate([Result(error, no, no, confidence)], 1.0)
    promised = 1 - (1 - confidence) ** factor
    assert promised.mean() == pytest.approx((error <= 3).mean(), abs=1e-3)
    assert factor > 1


def test_the_worst_mesh_is_told() -> None:
    no, sure = np.zeros(2, bool), np.ones(2, np.float32)
    results = [
        Result(np.array([1.0, 2.0]), no, no, sure),
        Result(np.array([4.0, 6.0]), no, no, sure),
    ]
    assert (score(results).worst, score(results).error) == (5.0, 3.25)
