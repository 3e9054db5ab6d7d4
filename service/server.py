"""run(settings): check what can be checked, listen, serve, and leave without losing an answer."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import ssl
import sys
import time
from types import FrameType

import uvicorn

from model.errors import BundleError
from service.app import create_app
from service.auth import Doorkeeper, KeyFileError
from service.exchange import Desk
from service.logs import configure
from service.protocol import patient
from service.runner import DeviceError, check_device
from service.settings import Settings
from service.state import State
from service.traces import Traces, TracesError

log = logging.getLogger("splinecnn.server")

REFUSED = 2  # exit code when the settings cannot be served
_EARS = 16
FAILED = 1  # exit code when serving failed


class StartupError(Exception):
    """One line that says why the service will not start and what to do."""


def run(settings: Settings) -> int:
    """Serve until told to stop; the exit code says how it went."""
    try:
        check(settings)
        listening = listen(settings)
    except (StartupError, DeviceError, KeyFileError, TracesError) as error:
        print(f"splinecnn: {error}", file=sys.stderr)
        return REFUSED
    from service.supervisor import supervise  # here, for its children come back to this module

    try:
        if settings.workers > 1:
            return supervise(settings, listening)
        return serve(settings, [listening])
    finally:
        listening.close()


def check(settings: Settings) -> None:
    """Everything that would fail later, found before a port is taken."""
    for device in settings.devices:
        check_device(device, settings.runtime)
    _check_models(settings)
    _check_tls(settings)
    Doorkeeper(settings)  # reads the key file
    if settings.traces:
        Traces().close()


def _check_models(settings: Settings) -> None:
    folder = settings.models
    if not folder.is_dir():
        raise StartupError(
            f"there is no directory {folder}; export models with 'splinecnn export', "
            "or name another with --models"
        )
    if not os.access(folder, os.R_OK | os.X_OK):
        raise StartupError(
            f"user {os.geteuid()} may not read the directory {folder}; "
            "let it read and enter, or name another with --models"
        )
    found = {manifest.parent.parent.name for manifest in folder.glob("*/*/manifest.json")}
    if not found:
        raise StartupError(
            f"{folder} holds no bundle (<name>/<version>/manifest.json); "
            "make some with 'splinecnn export'"
        )
    asked = [("--only", name) for name in settings.only]
    asked += [("--default-models", name) for name in settings.default_models.values()]
    for flag, name in asked:
        if name not in found:
            raise StartupError(
                f"{flag} names {name!r}, but {folder} holds {', '.join(sorted(found))}; "
                f"make it with 'splinecnn export {name}', or leave it out"
            )


def _check_tls(settings: Settings) -> None:
    if settings.tls_cert is None or settings.tls_key is None:
        return
    for path in (settings.tls_cert, settings.tls_key):
        if not path.is_file():
            raise StartupError(f"there is no file {path}, which TLS needs")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as error:  # ssl.SSLError is one
        raise StartupError(
            f"TLS cannot use {settings.tls_cert} with {settings.tls_key}: "
            f"{error.strerror or error}; give a certificate and its own key, both in PEM"
        ) from None


def listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        listening.close()
        where = f"{settings.host}:{settings.port}"
        raise StartupError(
            f"cannot listen on {where}: {os.strerror(error.errno or 0)}; "
            "stop what uses it, or choose another with --port"
            if error.errno
            else f"cannot listen on {where}: {error}"
        ) from None
    listening.set_inheritable(True)
    return listening


def serve(settings: Settings, sockets: list[socket.socket]) -> int:
    """One server in this process."""
    configure(settings)
    server = DrainingServer(settings)
    server.run(sockets)
    code = FAILED if server.failed else 0
    if server.left_behind:  # a run that came to its end while the interpreter ends would abort it
        logging.shutdown()
        os._exit(code)
    return code


def _ears(listening: socket.socket) -> list[socket.socket]:
    """The same socket several times: uvloop takes one connection of each per turn of its loop.

    With a single one, new callers under load wait unheard behind those who are already connected.
    """
    return [listening, *[listening.dup() for _ in range(_EARS - 1)]]


class DrainingServer(uvicorn.Server):
    """On the first signal answers what it took, tells new callers 503, and only then closes."""

    def __init__(self, settings: Settings) -> None:
        self._began = time.perf_counter()
        self._settings = settings
        app = create_app(settings)
        self._state: State = app.state.service
        # Answers to other origins must pass through the layers of the app.
        desk = None if settings.cors_origins else Desk(self._state)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None
        self.failed = False
        super().__init__(
            uvicorn.Config(
                app,
                http=patient(settings.body_seconds, desk),
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="on",
                backlog=2048,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
                ssl_certfile=settings.tls_cert,
                ssl_keyfile=settings.tls_key,
            )
        )

    @property
    def left_behind(self) -> int:
        return self._state.engine.left_behind

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            await asyncio.to_thread(self._state.repository.load_all)
        except BundleError as error:
            log.error("%s", error)
            self.failed = self.should_exit = True
            return
        if self.should_exit:
            return
        await super().startup([ear for listening in sockets or [] for ear in _ears(listening)])
        gc.collect()
        gc.freeze()  # what lives now lives on; scanning it again only adds pauses
        gc.set_threshold(50_000, 50, 100)
        # Loop and runners pass the interpreter to and fro; 5 ms at a time would be most of a wait.
        sys.setswitchinterval(0.0005)
        for listening in sockets or []:
            self._announce(*listening.getsockname()[:2])

    def _announce(self, host: str, port: int) -> None:
        scheme = "https" if self._settings.tls_cert else "http"
        address = f"[{host}]" if ":" in host else host
        seconds = time.perf_counter() - self._began
        log.info("serving on %s://%s:%d after %.1f s", scheme, address, port, seconds)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._settings.workers > 1 and sig == signal.SIGINT:
            return  # a terminal interrupts us all; the parent passes it on, once
        if self._loop is None or not self.started:
            self.should_exit = True
        elif self._draining is not None:
            self.should_exit = True
            self.force_exit = True
        else:
            self._loop.call_soon_threadsafe(self._begin_drain)

    def _begin_drain(self) -> None:
        if self._draining is None:
            self._draining = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        engine = self._state.engine
        engine.draining = True
        log.info("draining: %d requests in flight", engine.in_flight)
        begun = time.monotonic()
        await asyncio.sleep(self._settings.drain_notice_seconds)
        while engine.in_flight and time.monotonic() - begun < self._settings.drain_seconds:
            await asyncio.sleep(0.02)
        self.failed = engine.in_flight > 0
        log.info("drained in %.1f s", time.monotonic() - begun)
        self.should_exit = True
