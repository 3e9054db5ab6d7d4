"""Thousands of mixed requests at once: every answer is, bit for bit, the one it has alone."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from tests.trust.trust_corpus import mixture
from tests.trust.trust_load import Ask, Reply, callers
from tests.trust.trust_results import FULL, ROOT, Row, record
from tests.trust.trust_server import Server

TOTAL = 10_000 if FULL else 300
ASKS = 200 if FULL else 40
CALLERS = 32
PATIENCE = 300  # a queue full of meshes is slow, and this is not about time
TOLERANCE = 1e-4  # between runtimes, as export demands it
HOUSES: dict[str, dict[str, Any]] = {
    "one thread": {"threads": 1},
    "two threads": {"threads": 2},
    "two workers": {"workers": 2},
    "small batches": {"batch_nodes": 300, "batch_edges": 3000},
    "reloads": {"watch_seconds": 0.1},
}


def substance(reply: Reply) -> bytes:
    """The answer without what must differ from one time to the next."""
    assert reply.status == 200, (reply.ask.kind, reply.status, reply.body[:300])
    if "inference-header-content-length" in reply.headers:
        return reply.body
    answer = reply.json()
    return orjson.dumps({k: v for k, v in answer.items() if k not in ("request_id", "timings_ms")})


async def alone(server: Server, asks: Iterable[Ask]) -> dict[int, bytes]:
    """Each request asked when nobody else asks."""
    async with callers(server.port, PATIENCE) as pool:
        return {ask.key: substance(await pool.send(ask)) for ask in asks}


async def together(
    server: Server, asks: list[Ask], count: int, expected: dict[int, bytes], models: Path | None
) -> int:
    """So many requests by many callers; how many answers were wrong."""
    wrong = 0
    turn = 0

    def enough() -> bool:
        reloaded = models is None or server.log.count("loaded cora/1") > 2
        return turn >= count and reloaded

    async with callers(server.port, PATIENCE) as pool:

        async def call() -> None:
            nonlocal wrong, turn
            while not enough():
                turn += 1
                reply = await pool.send(asks[turn % len(asks)])
                wrong += substance(reply) != expected[reply.ask.key]

        async def reload() -> None:
            while models is not None:
                for name in ("cora", "bodies", "mnist-superpixels"):
                    os.utime(models / name / "1" / "manifest.json")
                await asyncio.sleep(0.5)

        reloading = asyncio.create_task(reload())
        await asyncio.gather(*[call() for _ in range(CALLERS)])
        reloading.cancel()
        assert pool.tally.unanswered == 0
        assert len(pool.tally.replies) >= count
    return wrong


def test_the_mixture_asks_for_all_that_can_be_asked() -> None:
    asks = mixture(40, 12, seed=11)
    default = [ask.raw for ask in asks if ask.raw.startswith(b"POST /v1/correspondence HTTP")]
    assert any(b'"model"' not in raw for raw in default)
    for wish in (b'"refine":true', b'"landmarks"', b'"segments"', b'"points"', b'"reverse"'):
        assert any(wish in raw for raw in default), wish


@pytest.mark.timeout(3600)
def test_an_answer_is_the_same_bits_alone_and_in_any_company(
    all_models: Path, features: int
) -> None:
    asks = mixture(ASKS, features, seed=11)
    with Server(models=all_models, batching=False, threads=1) as server:
        expected = asyncio.run(alone(server, asks))
        assert server.stop() == 0
    houses = HOUSES if FULL else {k: HOUSES[k] for k in ("one thread", "reloads")}
    share = TOTAL // len(houses)
    shared = 0
    for name, changes in houses.items():
        with Server(models=all_models, deadline_ms=1000 * PATIENCE, **changes) as server:
            moving = all_models if name == "reloads" else None
            wrong = asyncio.run(together(server, asks, share, expected, moving))
            assert wrong == 0, f"{wrong} of {share} answers differ with {name}"
            shared += _batched(server)
            assert server.stop() == 0
    assert shared > 0, "nothing was batched, so nothing was shown"
    worst, compared = other_runtimes(all_models, asks, expected)
    record(
        "truth",
        [
            Row(
                f"{share * len(houses)} mixed requests, {CALLERS} at once ({', '.join(houses)})",
                f"0 wrong, 0 lost; {shared} shared a run",
                "each the bits it has alone",
            ),
            Row(
                f"TorchScript, ONNX Runtime and plain torch on {compared} requests",
                f"probability of the likeliest class within {worst:.1g}",
                "≤ 1e-4",
                worst <= TOLERANCE,
            ),
        ],
    )  # fmt: skip


def _batched(server: Server) -> int:
    """Requests that shared a model run with others, as the log tells."""
    return sum('"batch":' in line and '"batch":1,' not in line for line in server.lines)


def other_runtimes(models: Path, asks: list[Ask], expected: dict[int, bytes]) -> tuple[float, int]:
    """The largest difference of a probability between the runtimes, and how many were compared."""
    chosen = [ask for ask in asks if ask.kind in ("picture", "papers", "mesh-json")]
    chosen = chosen if FULL else chosen[:12]
    with Server(models=models, runtime="onnx", batching=True) as server:
        onnx = asyncio.run(alone(server, chosen))
        assert server.stop() == 0
    plain_house = models.parent / "plain"
    plain_house.mkdir()
    for package in ("model", "service", "ops"):
        skip = shutil.ignore_patterns("*.so", "csrc", "viewer", "__pycache__")
        shutil.copytree(ROOT / package, plain_house / package, ignore=skip)
    with Server(models=models, root=plain_house) as server:
        assert "plain torch" in _says(plain_house)
        small = [ask for ask in chosen if len(ask.raw) < 60_000]
        plain = asyncio.run(alone(server, small))
        assert server.stop() == 0
    worst = 0.0
    for found in (onnx, plain):
        for key, answer in found.items():
            worst = max(worst, _difference(orjson.loads(expected[key]), orjson.loads(answer)))
    return worst, len(chosen)


def _says(root: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "import ops; assert not ops.NATIVE"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def _difference(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Of the likeliest classes' probabilities; a class ahead by more must be the same."""
    sure = np.atleast_1d(np.asarray(one["confidence"], float))
    found = np.atleast_1d(np.asarray(other["confidence"], float))
    name = next(name for name in ("correspondence", "labels", "label") if name in one)
    same = np.atleast_1d(one[name]) == np.atleast_1d(other[name])
    if "probabilities" in one:
        ranked = np.sort(one["probabilities"])
        assert same.all() or ranked[-1] - ranked[-2] < TOLERANCE
        return float(np.abs(np.subtract(one["probabilities"], other["probabilities"])).max())
    # where two classes are as good as equal either may win, and then both are as likely
    return float(np.abs(sure - found).max())
