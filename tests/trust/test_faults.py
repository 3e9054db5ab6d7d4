"""Faults while others are being served: only the request at fault fails, and the service heals."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.service.test_repository import add_version
from tests.trust.trust_corpus import ask_mesh, ask_papers, ask_picture
from tests.trust.trust_hostile import HANG, NAN, RAISE, ask_hostile, write_hostile
from tests.trust.trust_load import LOST, Ask, Callers, Tally, callers
from tests.trust.trust_results import FULL, Row, record
from tests.trust.trust_server import Server, workers

QUIET = 1.0 if FULL else 0.2  # how long the others go on before and after a fault
TIMES = 5 if FULL else 1  # how often each fault is repeated
rows: list[Row] = []


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[None]:
    yield
    record("faults", rows)


@pytest.fixture(scope="module")
def asks(features: int) -> list[Ask]:
    rng = np.random.default_rng(3)
    small = [ask_picture(int(rng.integers(5, 76)), rng) for _ in range(20)]
    return small + [ask_papers(int(rng.integers(5, 80)), features, rng) for _ in range(5)]


class Others:
    """Callers who have nothing to do with the fault; all of them must be answered."""

    def __init__(self, pool: Callers, asks: list[Ask], number: int = 4) -> None:
        self._pool = pool
        self._asks = asks
        self._number = number
        self._stop = asyncio.Event()
        self.until: set[int] = set()  # statuses after which a caller goes elsewhere

    async def __aenter__(self) -> Tally:
        self._tasks = [asyncio.create_task(self._call(n)) for n in range(self._number)]
        await asyncio.sleep(QUIET)
        return self._pool.tally

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(QUIET)
        self._stop.set()
        await asyncio.gather(*self._tasks)

    async def _call(self, turn: int) -> None:
        while not self._stop.is_set():
            reply = await self._pool.send(self._asks[turn % len(self._asks)])
            if reply.status in self.until:
                return
            turn += self._number
            await asyncio.sleep(0.01)


async def until(done: Callable[[], Awaitable[bool]], seconds: float = 60.0) -> float:
    """How long it takes until something is so."""
    begun = time.monotonic()
    while not await done():
        assert time.monotonic() - begun < seconds, "it did not heal"
        await asyncio.sleep(0.02)
    return time.monotonic() - begun


async def fetch(server: Server, path: str) -> Any:
    return await asyncio.to_thread(server.get, path)


def all_served(tally: Tally) -> str:
    assert tally.unanswered == 0
    assert set(tally.statuses) == {200}, tally.statuses
    return f"{len(tally.replies)} others answered"


def note(what: str, callers_saw: str, others: str, healed: float | None = None) -> None:
    after = "" if healed is None else f"; healed after {healed:.1f} s"
    rows.append(Row(what, f"{callers_saw}; {others}{after}", "only the affected; none unanswered"))


_KILL_RUNNER = """
import ctypes, signal, threading
def kill(*_):
    for thread in threading.enumerate():
        if thread.name.startswith("runner-small"):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
signal.signal(signal.SIGUSR1, kill)
"""


def test_a_runner_thread_that_dies_is_replaced(models: Path, asks: list[Ask]) -> None:
    async def work(server: Server) -> None:
        blows = 0

        async def die() -> float:
            """Strike until the thread dies: in mid-run it survives, and only the run is lost."""
            nonlocal blows
            deaths = server.log.count("replacing a runner")
            for _ in range(200):
                struck = time.monotonic()
                os.kill(server.pid, signal.SIGUSR1)
                blows += 1
                while time.monotonic() - struck < 1.5:  # the service looks once a second
                    if server.log.count("replacing a runner") > deaths:
                        return time.monotonic() - struck
                    await asyncio.sleep(0.02)
            raise AssertionError("no runner died, or none was replaced")

        healed = 0.0
        async with callers(server.port) as pool:
            async with Others(pool, asks) as tally:
                for _ in range(TIMES):
                    healed = max(healed, await die())
            lost = tally.of(503, 504)
            assert tally.unanswered == 0
            assert set(tally.statuses) <= {200, 503, 504}, tally.statuses
            # what the thread held when it was struck, and nothing else
            assert len(lost) <= 4 * blows
            assert (await fetch(server, "/healthz")).status_code == 200
        good = f"{len(tally.of(200))} others answered"
        what = f"a runner thread is struck {blows}× and dies {TIMES}×"
        note(what, f"{len(lost)} × 503/504", good, healed)

    with Server(_KILL_RUNNER, models=models, deadline_ms=5000) as server:
        asyncio.run(work(server))
        assert server.stop() == 0


def test_a_worker_that_is_killed_is_replaced(toys: Path, asks: list[Ask]) -> None:
    small = [ask for ask in asks if ask.kind == "picture"]

    async def work(server: Server) -> None:
        async with callers(server.port) as pool:
            async with Others(pool, small) as tally:
                victim = workers(server.pid)[-1]
                os.kill(victim, signal.SIGKILL)

                async def two() -> bool:
                    now = workers(server.pid)
                    return victim not in now and len(now) == 2

                await until(two)

                async def serving() -> bool:
                    return server.log.count("serving on") == 3

                healed = await until(serving)
            # those whose request the killed process held see a closed connection at once
            assert tally.statuses[LOST] <= 4
            assert set(tally.statuses) <= {200, LOST}, tally.statuses
            assert all(reply.seconds < 30 for reply in tally.of(LOST))
        good = f"{len(tally.of(200))} others answered by the other worker"
        saw = f"{tally.statuses[LOST]} connections closed at once"
        note("a worker process is killed (-9)", saw, good, healed)

    with Server(models=toys, workers=2) as server:
        asyncio.run(work(server))
        assert server.stop() == 0


@pytest.mark.parametrize(("value", "status"), [(RAISE, 500), (NAN, 500)], ids=["raises", "NaN"])
def test_a_model_that_fails_fails_alone(
    own_models: Path, asks: list[Ask], value: float, status: int
) -> None:
    write_hostile(own_models)

    async def work(server: Server) -> None:
        async with callers(server.port) as pool, callers(server.port) as bad:
            async with Others(pool, [*asks, ask_hostile(1.0)]) as tally:
                # together with good graphs of the same model, which share its batches
                turns = [bad.send(ask_hostile(value)) for _ in range(4 * TIMES)]
                for reply in await asyncio.gather(*turns):
                    assert reply.status == status
                    assert b"asked to fail" not in reply.body
            others = all_served(tally)
            what = "raises" if value == RAISE else "answers NaN"
            note(f"a model {what}, {4 * TIMES}×", f"{4 * TIMES} × {status}", others)

    with Server(models=own_models) as server:
        asyncio.run(work(server))
        assert server.stop() == 0


def test_a_model_that_hangs_costs_one_request_and_one_thread(
    own_models: Path, asks: list[Ask]
) -> None:
    write_hostile(own_models)

    async def work(server: Server) -> None:
        async with callers(server.port) as pool, callers(server.port) as bad:
            async with Others(pool, asks) as tally:
                begun = time.monotonic()
                hung = await bad.send(ask_hostile(HANG, **{"X-Timeout-Ms": "800"}))
                assert hung.status == 504

                async def ready() -> bool:
                    good = (await fetch(server, "/readyz")).status_code == 200
                    return good and "replacing a runner" in server.log

                await until(ready)
                healed = time.monotonic() - begun
                assert (await fetch(server, "/healthz")).status_code == 200
            others = all_served(tally)
            note("a model hangs (taken as such after 1 s)", "504", others, healed)

    with Server(models=own_models, stuck_seconds=1.0) as server:
        asyncio.run(work(server))
        # the thread that hangs cannot be ended, and must not keep the process from ending
        assert server.stop() == 0


def test_bundles_changed_damaged_and_deleted_on_disk_disturb_nobody(
    own_models: Path, asks: list[Ask]
) -> None:
    async def version(server: Server, name: str) -> str:
        answer = await fetch(server, f"/v1/models/{name}")
        return str(answer.json()["version"])

    async def work(server: Server) -> None:
        rng = np.random.default_rng(1)
        mesh = ask_mesh(1, rng)
        async with callers(server.port) as pool, Others(pool, [*asks, mesh]) as tally:
            add_version(own_models, "cora", "2")

            async def swapped() -> bool:
                return await version(server, "cora") == "2"

            healed = await until(swapped)
            model = own_models / "mnist-superpixels" / "1" / "model.ts"
            good = model.read_bytes()
            model.write_bytes(good[: len(good) // 2])  # half copied, or a bad disk

            async def refused() -> bool:
                return "refused bundle mnist-superpixels/1" in server.log

            await until(refused)
            model.write_bytes(good)
            shutil.rmtree(own_models / "bodies")
            await asyncio.sleep(0.5)
            reference = await fetch(server, "/v1/models/bodies/reference")
            assert reference.status_code == 200
            assert reference.content.startswith(b"ply")
        others = all_served(tally)
        what = "bundles swapped, cut in half and deleted on disk"
        note(what, "nothing", f"{others} by the new or the kept version", healed)

    with Server(models=own_models, watch_seconds=0.1) as server:
        asyncio.run(work(server))
        assert server.stop() == 0


_FILL_DISK = """
import os, resource, signal
def fill(*_):
    os.dup2(os.open("/dev/full", os.O_WRONLY), 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
signal.signal(signal.SIGUSR1, fill)
"""


def test_a_full_disk_takes_the_log_but_not_the_answers(models: Path, asks: list[Ask]) -> None:
    async def work(server: Server) -> None:
        async with callers(server.port) as pool:
            async with Others(pool, asks) as tally:
                os.kill(server.pid, signal.SIGUSR1)
                await asyncio.sleep(QUIET)
                assert (await fetch(server, "/readyz")).status_code == 200
            note("the disk is full: no log line can be written", "nothing", all_served(tally))

    with Server(_FILL_DISK, models=models) as server:
        asyncio.run(work(server))
        assert server.stop() == 0


def test_a_jump_of_the_clock_moves_no_deadline(
    models: Path, asks: list[Ask], tmp_path: Path
) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("shifting a clock needs a C compiler")
    library, shift = tmp_path / "clock.so", tmp_path / "shift"
    source = Path(__file__).parent / "clock.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    shift.write_text("0\n")

    async def work(server: Server) -> None:
        async with callers(server.port) as pool:
            async with Others(pool, asks) as tally:
                for jump in ("86400", "-86400", "0"):
                    shift.write_text(jump)
                    await asyncio.sleep(QUIET)
                    assert (await fetch(server, "/readyz")).status_code == 200
            others = all_served(tally)
        days = {json.loads(line)["time"][:10] for line in server.lines if line.startswith("{")}
        assert len(days) >= 3, f"the clock did not jump: {days}"
        note("the clock jumps a day ahead, two back, one ahead", "nothing", others)

    environment = {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(shift)}
    with Server(models=models, deadline_ms=10000, env=environment) as server:
        asyncio.run(work(server))
        assert server.stop() == 0


def _begin(port: int, ask: Ask, share: float) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port))
    sock.sendall(ask.raw[: int(len(ask.raw) * share)])
    return sock


def test_callers_who_leave_trickle_or_stop_halfway_hold_nothing(
    models: Path, asks: list[Ask]
) -> None:
    rng = np.random.default_rng(2)
    mesh = ask_mesh(3 if FULL else 2, rng)

    async def work(server: Server) -> None:
        async with callers(server.port) as pool:
            async with Others(pool, asks) as tally:
                for _ in range(10 * TIMES):
                    _begin(server.port, mesh, 1.0).close()  # asked, and left
                    _begin(server.port, mesh, 0.5).close()  # left in the middle
                slow = [_begin(server.port, mesh, 0.5) for _ in range(4)]  # silent from here on
                header = [_begin(server.port, mesh, 46 / len(mesh.raw)) for _ in range(4)]
                answers = await asyncio.gather(
                    *[asyncio.to_thread(_trickle, sock) for sock in [*slow, *header]]
                )
            others = all_served(tally)
            await asyncio.to_thread(server.settle)
        assert all(b" 408 " in answer for answer in answers[:4]), answers
        assert answers[4:] == [b""] * 4
        gone = f"{20 * TIMES} who left; 4 trickled a body: 408; 4 trickled a header: closed"
        note("callers hang up, trickle a byte a second, send half", gone, others)

    with Server(models=models, body_seconds=2.0) as server:
        before = server.vitals().files
        asyncio.run(work(server))
        assert server.vitals().files <= before + 4
        assert server.stop() == 0


def _trickle(sock: socket.socket) -> bytes:
    """A byte a second, until the service has had enough; what it said then."""
    sock.settimeout(1.0)
    with sock:
        for _ in range(60):
            try:
                return sock.recv(4096)
            except TimeoutError:
                sock.sendall(b"a")
            except OSError:
                return b""
    raise AssertionError("a caller who trickles was never sent away")


def test_sigterm_in_mid_flight_loses_nothing(models: Path, asks: list[Ask]) -> None:
    async def work(server: Server) -> None:
        rng = np.random.default_rng(5)
        mesh = ask_mesh(4 if FULL else 3, rng)
        async with callers(server.port) as pool, callers(server.port) as flight:
            others = Others(pool, asks)
            others.until = {503, LOST}
            async with others as tally:
                taken = [asyncio.create_task(flight.send(mesh)) for _ in range(4)]

                async def accepted() -> bool:
                    text = (await fetch(server, "/metrics")).text
                    served = text.count('route="/v2/models/{name}/infer"')
                    return "splinecnn_in_flight 0.0" not in text or served > 0

                await until(accepted)
                os.kill(server.pid, signal.SIGTERM)
                begun = time.monotonic()
                answers = await asyncio.gather(*taken)
                ended = time.monotonic() - begun
            assert {reply.status for reply in answers} <= {200, 503}
            assert tally.unanswered == 0
            assert set(tally.statuses) == {200, 503}, tally.statuses
            assert len(tally.of(503)) == 4  # each was told once, and went elsewhere
        saw = f"4 meshes in flight: {sum(r.status == 200 for r in answers)} answered"
        good = f"{len(tally.of(200))} others answered, then 503"
        rows.append(Row("SIGTERM in mid-flight", f"{saw}; {good}; gone after {ended:.1f} s",
                        "every accepted one answered"))  # fmt: skip

    with Server(models=models, drain_notice_seconds=1.5) as server:
        asyncio.run(work(server))
        assert server.wait() == 0
