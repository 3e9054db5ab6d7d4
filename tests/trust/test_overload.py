"""Ten times what can be served: whoever is served is served well, and the rest is told so."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.load.caller import COMPILER, Run, closed_loop, open_loop
from tests.trust.trust_corpus import ask_mesh, ask_papers, ask_picture
from tests.trust.trust_load import Ask, Callers, callers
from tests.trust.trust_results import FULL, Row, record
from tests.trust.trust_server import Server

SECONDS = 60.0
CAPACITY_SECONDS = 12.0
DEADLINE_MS = 2000
TIMES = 10


MIXES = {
    "a third each of pictures, papers and meshes": (33, 33, 33),
    "70 % pictures, 20 % papers, 10 % meshes": (70, 20, 10),
}
# How many callers the capacity is measured with. Of few, everyone is answered and the capacity is
# that of the mix; of many, meshes are refused and it is that of the rest, many times as much.
FEW, MANY = (2, 4, 8, 12), (16, 48, 128)
rows: dict[str, list[Row]] = {"overload": [], "flood": []}
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


@pytest.fixture(scope="module", autouse=True)
def figures() -> Iterator[None]:
    yield
    for piece, found in rows.items():
        if found:
            record(piece, found)


def mixed(features: int, pictures: int, papers: int, meshes: int) -> list[Ask]:
    """Small graphs, citation graphs and meshes, the largest like a body scan."""
    rng = np.random.default_rng(7)
    asks = [ask_picture(int(rng.integers(10, 76)), rng) for _ in range(pictures)]
    asks += [ask_papers(int(rng.integers(20, 300)), features, rng) for _ in range(papers)]
    asks += [ask_mesh((3, 4, 3, 5, 3, 4, 3, 5, 4, 5)[turn % 10], rng) for turn in range(meshes)]
    return [asks[index] for index in rng.permutation(len(asks))]


@dataclass
class Watch:
    """What a prober saw while the load was on."""

    beats: int = 0
    missed: int = 0
    slowest: float = 0.0
    resident: list[int] = field(default_factory=list)


async def watch(server: Server, seen: Watch) -> None:
    """Ask for signs of life and weigh the process, four times a second."""
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
        while True:
            begun = time.monotonic()
            try:
                alive = (await client.get("/healthz")).status_code == 200
            except httpx.HTTPError:
                alive = False
            seen.beats += 1
            seen.slowest = max(seen.slowest, time.monotonic() - begun)
            seen.missed += not alive
            seen.resident.append(server.vitals().resident)
            await asyncio.sleep(0.25)


async def recovery(pool: Callers, ask: Ask, after: float, usual: float) -> float:
    """How long after the arrivals end a new caller is again answered as in quiet times."""
    await asyncio.sleep(after)
    begun = time.monotonic()
    while time.monotonic() - begun < 60:
        reply = await pool.send(ask)
        if reply.status == 200 and reply.seconds <= 3 * usual:
            break
        await asyncio.sleep(0.05)
    return time.monotonic() - begun


def kinds_of(replies: np.ndarray, asks: list[Ask]) -> Counter[str]:
    """How many of each kind were among the requests."""
    return Counter(asks[request].kind for request in replies["request"])


def work_of(run: Run, asks: list[Ask], cost: dict[str, float]) -> float:
    """Seconds of model runs that were answered, each kind at what it costs alone."""
    return sum(cost[kind] * count for kind, count in kinds_of(run.of(200), asks).items())


async def costs(pool: Callers, asks: list[Ask]) -> dict[str, float]:
    """What one of each kind takes when nobody else asks."""
    cost: dict[str, float] = {}
    for kind in sorted({ask.kind for ask in asks}):
        ask = next(ask for ask in asks if ask.kind == kind)
        cost[kind] = min([(await pool.send(ask)).seconds for _ in range(4)])
    return cost


def test_callers_beyond_the_queue_are_told_so_and_the_others_served(
    toys: Path, features: int
) -> None:
    rng = np.random.default_rng(7)
    asks = [ask_picture(int(rng.integers(10, 76)), rng) for _ in range(70)]
    asks += [ask_mesh(2, rng) for _ in range(10)]

    async def work(server: Server) -> None:
        seen = Watch()
        async with callers(server.port) as pool:
            watching = asyncio.create_task(watch(server, seen))
            load = await closed_loop(server.port, [ask.raw for ask in asks], 40, 1.5)
            watching.cancel()
            check(load, seen)
            server.settle()
            assert (await pool.send(asks[0])).status == 200

    with Server(models=toys, max_queue=4) as server:
        asyncio.run(work(server))
        assert server.stop() == 0


@pytest.mark.skipif(not FULL, reason="minutes on a quiet machine: make trust")
@pytest.mark.timeout(420)
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("piece", rows)
def test_ten_times_the_capacity_takes_nothing_from_those_who_are_served(
    models: Path, features: int, piece: str, mix: str
) -> None:
    asks = mixed(features, *MIXES[mix])
    with Server(models=models, deadline_ms=DEADLINE_MS, threads=0) as server:
        asyncio.run(overload(server, asks, piece, mix))
        assert server.stop() == 0


async def capacity(server: Server, raw: list[bytes], piece: str) -> list[Run]:
    """Closed loops; those of few callers count only where nobody was refused."""
    if piece == "flood":
        return [await closed_loop(server.port, raw, many, CAPACITY_SECONDS) for many in MANY]
    runs = [await closed_loop(server.port, raw, few, CAPACITY_SECONDS) for few in FEW]
    whole = [run for run in runs if set(run.statuses) == {200}]
    assert whole, "even a few callers were refused"
    return whole


async def overload(server: Server, asks: list[Ask], piece: str, mix: str) -> None:
    raw = [ask.raw for ask in asks]
    async with callers(server.port) as pool:
        cost = await costs(pool, asks)
        runs = await capacity(server, raw, piece)
        best = max(len(run.of(200)) for run in runs) / CAPACITY_SECONDS
        best_work = max(work_of(run, asks, cost) for run in runs) / CAPACITY_SECONDS
        small = next(ask for ask in asks if ask.kind == "picture")
        usual = float(np.median([(await pool.send(small)).seconds for _ in range(40)]))
        seen = Watch(resident=[server.vitals().resident])
        watching = asyncio.create_task(watch(server, seen))
        probes = Callers(server.port)
        load, recovered = await asyncio.gather(
            open_loop(server.port, raw, TIMES * best, SECONDS),
            recovery(probes, small, SECONDS, usual),
        )
        watching.cancel()
        await probes.close()
    rows[piece] += judge(mix, asks, load, recovered, seen, best, best_work, cost)


def check(load: Run, seen: Watch) -> None:
    """What must hold however slow the machine is."""
    assert load.unanswered == 0
    assert set(load.statuses) <= {200, 429, 504}, load.statuses
    assert load.of(429, 504)["retry_after"].all()
    assert load.statuses[200] > 0
    assert load.statuses[429] > 0, "this was no overload"
    assert seen.missed == 0, f"{seen.missed} of {seen.beats} signs of life were missed"


def judge(
    mix: str,
    asks: list[Ask],
    load: Run,
    recovered: float,
    seen: Watch,
    best: float,
    best_work: float,
    cost: dict[str, float],
) -> list[Row]:
    check(load, seen)
    grown = max(seen.resident) / seen.resident[0]
    assert grown < 2, f"memory grew {grown:.2f} times"
    goodput = len(load.of(200)) / SECONDS / best
    work = work_of(load, asks, cost) / SECONDS / best_work
    late = load.seconds(0.99, 200)
    plain = [replace(ask, kind=ask.kind.rstrip("0123456789")) for ask in asks]
    offered, served = kinds_of(load.replies, plain), kinds_of(load.of(200), plain)
    shares = ", ".join(f"{100 * served[kind] / offered[kind]:.0f} % of {kind}" for kind in served)
    return [
        Row(
            f"{mix}: {load.asked / SECONDS / best:.1f}× capacity for {SECONDS:.0f} s, "
            f"{load.asked} requests offered",
            f"{load.statuses[200]} answered, {load.statuses[429]} × 429, "
            f"{load.statuses[504]} × 504, 0 others, 0 unanswered",
            "only 200, 429, 504",
        ),
        Row(
            f"… goodput against the best ({best:.0f}/s)",
            f"{100 * goodput:.0f} % of the requests, {100 * work:.0f} % of the work ({shares})",
            "≥ 90 %",
            min(goodput, work) >= 0.9,
        ),
        Row(
            "… p99 of the accepted",
            f"{late:.2f} s of {DEADLINE_MS / 1000:.0f} s",
            "≤ the deadline",
            late <= DEADLINE_MS / 1000,
        ),
        Row(
            "… memory: highest against before",
            f"{max(seen.resident) / 1e6:.0f} MB, {grown:.2f}×",
            "bounded",
        ),
        Row("… as quick as before after", f"{recovered:.2f} s", "≤ 2 s", recovered <= 2),
        Row(
            f"… liveness, asked {seen.beats} times",
            f"0 missed, slowest {seen.slowest:.2f} s",
            "never flaps",
        ),
    ]
