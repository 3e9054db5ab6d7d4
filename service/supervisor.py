"""Several server processes on one socket: started, replaced when they die, drained together."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from multiprocessing.context import SpawnProcess

from prometheus_client.multiprocess import mark_process_dead

from service.logs import configure
from service.server import FAILED, serve
from service.settings import Settings

log = logging.getLogger("splinecnn.supervisor")

_PR_SET_PDEATHSIG = 1  # from <sys/prctl.h>
_SETTLED_SECONDS = 30.0  # a worker that dies younger than this has probably never served


def supervise(settings: Settings, listening: socket.socket) -> int:
    """Keep the wished number of workers alive until a signal comes."""
    configure(settings)
    folder = tempfile.mkdtemp(prefix="splinecnn-metrics-")
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder  # read by the children when they start
    try:
        return Supervisor(settings, listening).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Supervisor:
    def __init__(self, settings: Settings, listening: socket.socket) -> None:
        self._settings = settings
        self._listening = listening
        self._context = multiprocessing.get_context("spawn")
        self._workers: dict[SpawnProcess, float] = {}
        self._stopping = threading.Event()
        self._early_deaths = 0

    def run(self) -> int:
        for wanted in (signal.SIGTERM, signal.SIGINT):
            signal.signal(wanted, lambda *_: self._stopping.set())
        for _ in range(self._settings.workers):
            self._start()
        while not self._stopping.wait(0.2):
            if not self._replace_dead():
                self._stop()
                return FAILED
        return self._stop()

    def _start(self) -> None:
        worker = self._context.Process(
            target=_work, args=(self._settings, self._listening), name="splinecnn-worker"
        )
        worker.start()
        self._workers[worker] = time.monotonic()

    def _replace_dead(self) -> bool:
        """False when workers die as fast as they start: then the fault is not theirs."""
        for worker, started in list(self._workers.items()):
            if worker.is_alive():
                continue
            self._bury(worker)
            young = time.monotonic() - started < _SETTLED_SECONDS
            self._early_deaths = self._early_deaths + 1 if young else 0
            log.error("worker %s ended with code %s", worker.pid, worker.exitcode)
            if worker.exitcode == FAILED or self._early_deaths > 2 * self._settings.workers:
                return False
            self._start()
        return True

    def _bury(self, worker: SpawnProcess) -> None:
        worker.join()
        del self._workers[worker]
        if worker.pid is not None:
            mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]

    def _stop(self) -> int:
        self._listening.close()  # or callers would queue here with nobody left to answer
        alive = [worker for worker in self._workers if worker.is_alive()]
        for worker in alive:
            worker.terminate()
        patience = time.monotonic() + 2 * self._settings.drain_seconds + 10
        for worker in alive:
            worker.join(max(0.1, patience - time.monotonic()))
            if worker.is_alive():
                worker.kill()
                worker.join()
        # One that was still starting knew no better way to end, and had accepted nothing.
        clean = (0, -signal.SIGTERM)
        unclean = [worker for worker in alive if worker.exitcode not in clean]
        for worker in unclean:
            log.error("worker %s ended with code %s", worker.pid, worker.exitcode)
        return FAILED if unclean else 0


def _work(settings: Settings, listening: socket.socket) -> None:
    _end_with_parent()
    raise SystemExit(serve(settings, [listening]))


def _end_with_parent() -> None:
    """Drain when the parent is gone, however it went; nobody else would ever tell us to."""
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        raise SystemExit(FAILED)
