"""Half an hour of everything: nothing piles up, and the last answer is as quick as the first."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.trust.trust_corpus import mixture
from tests.trust.trust_load import Tally, callers, closed_loop, prepare
from tests.trust.trust_results import FULL, Row, record
from tests.trust.trust_server import Server, Vitals

SECONDS = 1800.0 if FULL else 5.0
WARM_UP = 120.0 if FULL else 1.0
TURN = 10.0 if FULL else 0.5  # how often models come, go and change
CALLERS, PACE = (4, 0.2) if FULL else (3, 0.02)
ADMIN = {"X-API-Key": "soak-admin"}

# Always the same work, in a process of its own: how quick the machine is by itself.
YARDSTICK = """
import sys, time
while True:
    began = time.monotonic()
    table = {}
    for n in range(60_000):
        table[n & 4095] = table.get(n & 511, 0) + n
    print(began, time.monotonic() - began, flush=True)
    time.sleep(float(sys.argv[1]))
"""


class Unrest:
    """Loads, unloads, reloads, changes on disk, bad requests and callers who hang up."""

    def __init__(self, server: Server, models: Path) -> None:
        self._server = server
        self._models = models
        self.turns = 0
        self.statuses: set[int] = set()

    async def go_on(self) -> None:
        async with httpx.AsyncClient(base_url=self._server.url, timeout=60) as client:
            while True:
                await asyncio.sleep(TURN)
                await self._turn(client)
                self.turns += 1

    async def _turn(self, client: httpx.AsyncClient) -> None:
        for path in ("load", "unload"):
            answer = await client.post(f"/v2/repository/models/extra/{path}", headers=ADMIN)
            self.statuses.add(answer.status_code)
        answer = await client.post("/v2/repository/models/cora/load", headers=ADMIN)
        self.statuses.add(answer.status_code)
        os.utime(self._models / "mnist-superpixels" / "1" / "manifest.json")  # so: looked at anew
        for body in (b"{", b'{"graph": {}}', b'{"graph": {"num_nodes": 1e400}}'):
            bad = await client.post("/v1/node-labels", content=body)
            assert bad.status_code in (400, 422), bad.text
        self._hang_up()

    def _hang_up(self) -> None:
        with socket.create_connection(("127.0.0.1", self._server.port)) as half:
            half.sendall(b"POST /v1/graph-label HTTP/1.1\r\nHost: t\r\nContent-Length: 99\r\n\r\n{")


class Yardstick:
    """Seconds of the same piece of work, measured again and again beside the service."""

    def __enter__(self) -> Yardstick:
        command = [sys.executable, "-c", YARDSTICK, str(SECONDS / 1800)]
        self._child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._lines: list[str] = []
        assert self._child.stdout is not None
        self._reader = threading.Thread(target=self._lines.extend, args=(self._child.stdout,))
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._child.terminate()
        self._child.wait()
        self._reader.join()
        assert self._child.stdout is not None
        self._child.stdout.close()

    def seconds(self) -> list[tuple[float, float]]:
        """When each began and how long it took, once it has been left."""
        words = [line.split() for line in self._lines]
        return [(float(began), float(took)) for began, took in words]


async def weigh(server: Server, seen: list[tuple[float, Vitals]]) -> None:
    while True:
        seen.append((time.monotonic(), server.vitals()))
        await asyncio.sleep(SECONDS / 360)


def add_extra(models: Path) -> None:
    """A model that comes and goes beside those that stay."""
    shutil.copytree(models / "mnist-superpixels", models / "extra")
    path = models / "extra" / "1" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"name": "extra"}))


@pytest.mark.timeout(SECONDS + 300)
def test_nothing_grows_and_nothing_slows(all_models: Path, features: int, tmp_path: Path) -> None:
    add_extra(all_models)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with Server(
        models=all_models,
        admin_key="soak-admin",
        watch_seconds=TURN / 5,
        threads=1,
        env={"TMPDIR": str(temporary)},
    ) as server:
        asyncio.run(soak(server, all_models, features))
        assert server.stop() == 0
    assert list(temporary.iterdir()) == []


async def soak(server: Server, models: Path, features: int) -> None:
    asks = mixture(200, features)
    if not FULL:
        asks = [ask for ask in asks if ask.kind in ("picture", "papers", "any-mesh")]
    seen: list[tuple[float, Vitals]] = []
    unrest = Unrest(server, models)
    async with callers(server.port) as pool:
        chores = [asyncio.create_task(unrest.go_on())]
        await closed_loop(pool, asks, CALLERS, WARM_UP, PACE)
        server.settle()
        before = server.vitals()
        chores.append(asyncio.create_task(weigh(server, seen)))
        begun = time.monotonic()
        with Yardstick() as yardstick:
            run = await closed_loop(pool, asks, CALLERS, SECONDS, PACE)
        while not unrest.turns:  # on a slow machine the short form is over before its first turn
            await closed_loop(pool, asks, CALLERS, 1.0, PACE)
        for chore in chores:
            chore.cancel()
        ended = await asyncio.gather(*chores, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ended), ended
        server.settle()
        await asyncio.sleep(1)
        after = server.vitals()
        answer = await pool.send(prepare("last", "/v1/node-labels", {"graph": {}}))
    assert answer.status == 422
    judge(run, begun, before, after, seen, unrest, yardstick.seconds())


def judge(
    run: Tally,
    begun: float,
    before: Vitals,
    after: Vitals,
    seen: list[tuple[float, Vitals]],
    unrest: Unrest,
    yardstick: list[tuple[float, float]],
) -> None:
    assert run.unanswered == 0
    assert set(run.statuses) == {200}, run.statuses
    assert unrest.turns > 0
    assert unrest.statuses == {200}
    # a connection or two of the callers' pool, a codec thread made on demand; never more
    assert after.threads <= before.threads + 2, f"{before} became {after}"
    assert after.files <= before.files + 4, f"{before} became {after}"
    assert yardstick
    if not FULL:
        return  # a few seconds tell nothing of growth
    tenth = SECONDS / 10

    def resident(start: float) -> float:
        held = [v.resident for t, v in seen if start <= t - begun < start + tenth]
        return float(np.mean(held))

    def change(times: list[tuple[float, float]]) -> float:
        """The median of the last tenth against that of the first."""
        first, last = (
            np.median([took for at, took in times if start <= at - begun < start + tenth])
            for start in (0, 9 * tenth)
        )
        return float(last / first)

    service, machine = change([(r.sent, r.seconds) for r in run.replies]), change(yardstick)

    growth = resident(9 * tenth) / resident(0) - 1
    assert growth < 0.2, f"resident memory grew by {100 * growth:.1f} %"
    record(
        "soak",
        [
            Row(
                f"{SECONDS / 60:.0f} minutes, {len(run.replies)} requests, {3 * unrest.turns} "
                "loads and unloads, bad requests, callers who hang up",
                "all answered with 200, 0 lost",
                "0 lost",
            ),
            Row(
                "resident memory, last tenth against first",
                f"{100 * growth:+.1f} % ({resident(9 * tenth) / 1e6:.0f} MB)",
                "≤ +2 %",
                growth <= 0.02,
            ),
            Row(
                "threads, open files, temporary files left over",
                f"{after.threads - before.threads:+d}, {after.files - before.files:+d}, 0",
                "0",
            ),
            tell_pace(service, machine),
        ],
    )


def tell_pace(service: float, machine: float) -> Row:
    """Far quicker is missed too: then the first tenth was disturbed, and nothing can be told."""
    change = service / machine - 1
    return Row(
        "median time, last tenth against first, in turns of a fixed piece of work beside it",
        f"{100 * change:+.1f} % (the service {100 * (service - 1):+.1f} %, "
        f"the machine by itself {100 * (machine - 1):+.1f} %)",
        "within ± 5 %",
        abs(change) <= 0.05,
    )


def test_a_pace_that_changed_either_way_is_missed() -> None:
    changes = (0.12, 0.96, 1.04, 1.06)
    assert [tell_pace(change, 1.0).met for change in changes] == [False, True, True, False]
    assert tell_pace(1.2, 1.18).met and not tell_pace(1.0, 1.18).met
