"""The service as a Ray Serve application: the same app and engine in every replica.

`splinecnn serve --ray` runs it here; `serve run service.ray_app:build_app models=bundles` and
KubeRay's RayService run it on a cluster. Ray spreads requests over replicas, adds and removes
replicas, and heals them; each replica batches and refuses by itself, as it does alone.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from service.app import create_app
from service.auth import KeyFileError
from service.logs import configure
from service.runner import DeviceError
from service.server import FAILED, REFUSED, StartupError, check, listen
from service.settings import Settings

NAME = "splinecnn"


@dataclass(frozen=True)
class Scale:
    """How many replicas Ray may run, and what it reserves for each."""

    least: int = 1
    most: int = 1
    cpus: float = 1.0
    gpus: float = 0.0
    busy: float = 4.0  # requests in one replica, on average, above which another is added
    idle: float = 60.0  # seconds with too little to do, after which one is removed

    @classmethod
    def parse(cls, replicas: str, **given: float) -> Scale:
        """From "2" (always two) or "1:4" (one to four, as needed)."""
        least, _, most = replicas.partition(":")
        if not least.isdecimal() or not (most or least).isdecimal():
            raise StartupError(f"replicas must look like 2 or 1:4, got {replicas!r}")
        scale = cls(int(least), int(most or least), **given)
        if not 1 <= scale.least <= scale.most:
            raise StartupError(f"replicas must be at least 1 and in order, got {replicas!r}")
        return scale


class Replica:
    """What Ray asks of each copy, beside the app itself."""

    app: FastAPI  # put here by serve.ingress

    async def check_health(self) -> None:
        """Ray replaces a replica whose device failed or whose runs hang."""
        trouble = self.app.state.service.engine.health()
        if trouble is not None:
            raise RuntimeError(trouble)


def make_application(
    settings: Settings, scale: Scale, environment: dict[str, str] | None = None
) -> Any:
    """A Ray Serve Application; `environment` is set in every replica."""
    from ray import serve

    changes: dict[str, object] = {}
    if not settings.threads:
        changes["threads"] = max(1, int(scale.cpus))  # its share, not every core of the node
    if scale.gpus and settings.device == "cpu":
        changes["device"] = "cuda"  # Ray shows each replica only its own device
    own = settings.model_copy(update=changes)

    def build() -> FastAPI:
        configure(own)
        return create_app(own)

    deployment = serve.deployment(
        serve.ingress(build)(Replica),
        name=NAME,
        max_ongoing_requests=settings.max_queue,
        autoscaling_config={
            "min_replicas": scale.least,
            "max_replicas": scale.most,
            "target_ongoing_requests": scale.busy,
            "upscale_delay_s": 2,
            "downscale_delay_s": scale.idle,
        },
        ray_actor_options={
            "num_cpus": scale.cpus,
            "num_gpus": scale.gpus,
            "runtime_env": {"env_vars": environment or {}},
        },
        graceful_shutdown_wait_loop_s=0.5,
        graceful_shutdown_timeout_s=settings.drain_seconds + 5,
        health_check_period_s=5,
        health_check_timeout_s=settings.stuck_seconds,
    )
    return deployment.bind()


def build_app(args: dict[str, str]) -> Any:
    """For `serve run` and RayService: any setting, and every field of `Scale`."""
    given = dict(args)
    replicas = str(given.pop("replicas", "1"))
    asked = {"cpus", "gpus", "busy", "idle"} & given.keys()
    scale = Scale.parse(replicas, **{key: float(given.pop(key)) for key in asked})
    return make_application(Settings(**given), scale)  # type: ignore[arg-type]


def run_ray(settings: Settings, replicas: str = "1", cpus: float = 1.0, gpus: float = 0.0) -> int:
    """Serve by Ray until told to stop; joins the cluster of RAY_ADDRESS, or starts one here."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        from ray import serve
        from ray.exceptions import RayError
    except ImportError:
        return _refuse("--ray needs Ray Serve: pip install '.[ray]'")
    try:
        scale = Scale.parse(replicas, cpus=cpus, gpus=gpus)
        check(settings)
        with listen(settings) as free:
            host, port = free.getsockname()[:2]
    except (StartupError, DeviceError, KeyFileError) as error:
        return _refuse(str(error))
    # the replicas of one machine add up their metrics in files, as server processes do
    shared = Path(tempfile.mkdtemp(prefix="splinecnn-metrics-"))
    stop = threading.Event()
    try:
        address = os.environ.get("RAY_ADDRESS", "local")
        ray.init(address, include_dashboard=False, logging_level="warning")
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, lambda *_: stop.set())
        serve.start(http_options=_http(settings, host, port))
        environment = {"PROMETHEUS_MULTIPROC_DIR": str(shared)}
        absolute = settings.model_copy(update={"models": settings.models.resolve()})
        serve.run(make_application(absolute, scale, environment), name=NAME, route_prefix="/")
        print(f"splinecnn: serving on {host}:{port} by Ray, replicas {replicas}", file=sys.stderr)
        stop.wait()
        serve.delete(NAME)  # waits until every replica has answered what it took
        return 0
    except (RayError, RuntimeError, TimeoutError) as error:
        print(f"splinecnn: {str(error).splitlines()[0]}", file=sys.stderr)
        return FAILED
    finally:
        serve.shutdown()
        ray.shutdown()
        shutil.rmtree(shared, ignore_errors=True)


def _http(settings: Settings, host: str, port: int) -> dict[str, object]:
    options: dict[str, object] = {"host": host, "port": port}
    if settings.tls_cert and settings.tls_key:
        options |= {"ssl_certfile": str(settings.tls_cert), "ssl_keyfile": str(settings.tls_key)}
    return options


def _refuse(why: str) -> int:
    print(f"splinecnn: {why}", file=sys.stderr)
    return REFUSED
