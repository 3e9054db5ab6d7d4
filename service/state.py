"""What the routes share: settings, models, engine, metrics and doorkeeper of one app."""

from __future__ import annotations

import asyncio
import importlib
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from starlette.requests import Request

from model.graph import CORRESPONDENCE
from service import logs
from service.auth import Doorkeeper
from service.engine import Engine
from service.errors import Invalid
from service.metrics import Metrics
from service.repository import Repository
from service.runner import device_bytes
from service.settings import Settings
from service.traces import Traces

_INLINE_BYTES = 64 * 1024  # about 0.2 ms of decoding; a thread costs half of that
P = ParamSpec("P")
T = TypeVar("T")


class State:
    """Built once by `create_app`, found at `request.app.state.service`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.repository = Repository(settings, self.metrics)
        self.engine = Engine(settings, self.metrics)
        self.doorkeeper = Doorkeeper(settings)
        self.traces = Traces() if settings.traces else None
        self._codecs = ThreadPoolExecutor(max(2, (os.cpu_count() or 2) // 2), "codec")
        self._tending: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await asyncio.to_thread(self.repository.load_all)
        self.engine.start()
        self._tending = [asyncio.create_task(self._tend()), asyncio.create_task(self._prepare())]
        if self.settings.watch_seconds:
            self._tending.append(asyncio.create_task(self._watch()))

    async def stop(self) -> None:
        self.engine.draining = True
        for task in self._tending:
            task.cancel()
        await self.engine.stop()
        self.metrics.hand_on()
        self._codecs.shutdown(wait=False, cancel_futures=True)
        if self.traces is not None:
            await asyncio.to_thread(self.traces.close)

    async def off_loop(
        self, size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Do small work here and large work in a thread, so that the loop never waits for it."""
        if size <= _INLINE_BYTES:
            return work(*args, **kwargs)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._codecs, lambda: work(*args, **kwargs))

    def trouble(self) -> str | None:
        """Why the service is not ready, if it is not."""
        if not self.repository.ready:
            return "no model is loaded"
        return self.engine.trouble()

    def publish(self) -> None:
        """Bring the gauges up to date."""
        self.metrics.ready.set(self.trouble() is None)
        self.metrics.resident_bytes.set(resident_bytes())
        for device in self.settings.devices:
            used = device_bytes(device)
            if used is not None:
                self.metrics.device_bytes.labels(device).set(used)

    async def _tend(self) -> None:
        while True:
            self.engine.tend()
            self.publish()
            self.metrics.hand_on()  # other workers show these numbers too
            logs.flush()
            await asyncio.sleep(1.0)

    async def _prepare(self) -> None:
        """Import what the first `include` would have to wait for, once everything else stands."""
        if any(model.task == CORRESPONDENCE for model in self.repository.models()):
            await asyncio.to_thread(importlib.import_module, "scipy.spatial")

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.settings.watch_seconds)
            await asyncio.to_thread(self.repository.refresh)


def state_of(request: Request) -> State:
    state: State = request.app.state.service
    return state


def deadline_of(headers: Mapping[str, str], settings: Settings) -> float:
    """When this request must be answered; a caller may ask for less time, not for more."""
    given = headers.get("x-timeout-ms")
    allowed = settings.deadline_ms
    if given is not None:
        if not (given.isascii() and given.isdigit() and int(given[:12]) > 0):
            raise Invalid(
                f"X-Timeout-Ms must be a whole number above 0, got {given[:40]!r}",
                path="X-Timeout-Ms",
            )
        allowed = min(allowed, int(given[:12]))
    return time.monotonic() + allowed / 1000


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
