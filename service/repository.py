"""Bundles on disk to models in memory: scan, verify, load, warm up, swap, unload."""

from __future__ import annotations

import ctypes
import gc
import logging
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from model.bundle import open_bundle
from model.errors import BundleError
from model.request import request_graph
from service.errors import Invalid, NotFound, NotReady
from service.metrics import Metrics
from service.models import Model
from service.runner import prepare_thread
from service.settings import Settings

log = logging.getLogger("splinecnn.repository")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_WARM_SIZES = (1, 1, 2, 16)  # TorchScript specialises on the first runs of a kind

Signature = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class State:
    """How a version on disk stands: READY, LOADING or UNAVAILABLE, and why."""

    state: str
    reason: str = ""
    signature: Signature = ()


class Repository:
    """Readers see a whole dictionary or the next one; writers take a lock."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._models: dict[str, dict[str, Model]] = {}
        self._defaults: tuple[dict[str, dict[str, Model]], dict[str, Model]] = ({}, {})
        self._states: dict[tuple[str, str], State] = {}
        self._unloaded: set[str] = set()
        self._vanished: set[tuple[str, str]] = set()
        self._writing = threading.RLock()

    # Reading

    def resolve(self, task: str, wanted: str | None) -> Model:
        """The model a request means: by name, by name@version, or the default of the task."""
        if wanted is None:
            return self._default(task)
        name, _, version = wanted.partition("@")
        model = self.get(name, version or None)
        if model.task != task:
            raise Invalid(f"model {name!r} answers {model.task}, not {task}", path="model")
        return model

    def get(self, name: str, version: str | None = None) -> Model:
        versions = self._models.get(name)
        if not versions:
            known = ", ".join(sorted(self._models)) or "none"
            raise NotFound(f"no model {name[:100]!r} is served here; served: {known}")
        if version is None:
            newest = (
                max(versions, key=_version_order) if len(versions) > 1 else next(iter(versions))
            )
            return versions[newest]
        if version not in versions:
            known = ", ".join(versions)
            raise NotFound(f"model {name!r} has no version {version[:100]!r}; served: {known}")
        return versions[version]

    def models(self) -> list[Model]:
        """Every served model, by name, then version."""
        models = [m for versions in self._models.values() for m in versions.values()]
        return sorted(models, key=lambda m: (m.name, _version_order(m.version)))

    def index(self) -> list[dict[str, str]]:
        """Every version on disk or in memory, as the repository protocol lists them."""
        states = dict(self._states)
        known = {(model.name, model.version) for model in self.models()}
        for name, version, _ in self._scan():
            known.add((name, version))
            states.setdefault((name, version), State("UNAVAILABLE", "not loaded"))
        return [
            {"name": name, "version": version, "state": state.state, "reason": state.reason}
            for (name, version), state in sorted(states.items())
            if (name, version) in known
        ]

    @property
    def ready(self) -> bool:
        return bool(self._models)

    def _default(self, task: str) -> Model:
        models, known = self._defaults
        if models is not self._models:  # something was loaded or unloaded since
            models, known = self._defaults = self._models, {}
        if task not in known:
            known[task] = self._find_default(task)
        return known[task]

    def _find_default(self, task: str) -> Model:
        newest = [v[max(v, key=_version_order)] for _, v in sorted(self._models.items())]
        able = [model for model in newest if model.task == task]
        if not able:
            raise NotReady(f"no model for {task} is loaded")
        configured = self._settings.default_models.get(task)
        return min(able, key=lambda m: (m.name != configured, not m.manifest.default))

    # Writing

    def load_all(self) -> None:
        """At the start: what is good is served, what is not is said and left out."""
        if self._models:
            return
        self.refresh()
        if not self._models:
            reasons = [f"{n}/{v} {s.reason}" for (n, v), s in self._states.items()]
            why = "; ".join(reasons) or "no bundle found"
            raise BundleError(f"no model in {self._settings.models} can be served: {why}")
        for task, name in self._settings.default_models.items():
            for model in self._models.get(name, {}).values():
                if model.task != task:
                    raise BundleError(
                        f"--default-models names {name!r} for {task}, but it answers {model.task}"
                    )
        for task in sorted({model.task for model in self.models()}):
            log.info("%s is answered by %s unless a request names another", task,
                     self._default(task).name)  # fmt: skip

    def refresh(self) -> None:
        """Load what is new or changed on disk; a bad bundle never displaces a good one."""
        with self._writing:
            wanted = self._wanted()
            self._tell_vanished()
            for name, version, signature in wanted:
                known = self._states.get((name, version))
                if name not in self._unloaded and (known is None or known.signature != signature):
                    self._try_load(name, version, signature)
            if self._settings.versions == "latest":
                self._fall_back()

    def _fall_back(self) -> None:
        """Where the newest version is bad and none is served, an older one is better than none."""
        for name, version, signature in sorted(
            self._allowed(), key=lambda e: _version_order(e[1]), reverse=True
        ):
            known = self._states.get((name, version))
            untried = known is None or known.signature != signature
            if untried and name not in self._models and name not in self._unloaded:
                self._try_load(name, version, signature)

    def _tell_vanished(self) -> None:
        """Once: a mount that is gone for a moment should not stop what works."""
        here = {(name, version) for name, version, _ in self._scan()}
        served = {(model.name, model.version) for model in self.models()}
        for name, version in sorted((served - here) - self._vanished):
            log.warning("bundle %s/%s is gone from disk and served on from memory", name, version)
        self._vanished = served - here

    def load(self, name: str) -> Model:
        """Load the newest version of a name now, or say why not."""
        with self._writing:
            found = [entry for entry in self._wanted() if entry[0] == name]
            if not found:
                raise NotFound(f"the repository holds no bundle {name[:100]!r}")
            for _, version, signature in found:
                problem = self._try_load(name, version, signature)
                if problem:
                    raise Invalid(problem)
            self._unloaded.discard(name)
            return self.get(name)

    def unload(self, name: str) -> None:
        """Stop serving a name; requests in flight still get their answers."""
        with self._writing:
            if name not in self._models:
                raise NotFound(f"no model {name[:100]!r} is served here")
            self._unloaded.add(name)
            self._models = {n: v for n, v in self._models.items() if n != name}
            self._defaults = ({}, {})  # which would keep it in memory
            for key in [key for key in self._states if key[0] == name]:
                self._states[key] = State("UNAVAILABLE", "unloaded")
        release_memory()

    def _try_load(self, name: str, version: str, signature: Signature) -> str | None:
        started = time.perf_counter()
        path = self._settings.models / name / version
        serving = version in self._models.get(name, {})
        if not serving:
            self._states[name, version] = State("LOADING", "", signature)
        try:
            model = self._open(path, name, version)
        except Exception as error:  # a bundle may be broken in any way; the service goes on
            reason = _one_line(error).replace(f"{self._settings.models}/", "")
            kept = self._models.get(name)
            log.error(
                "refused bundle %s/%s: %s%s",
                name,
                version,
                reason,
                f"; still serving version {', '.join(kept)}" if kept else "",
            )
            state = "READY" if serving else "UNAVAILABLE"
            self._states[name, version] = State(state, f"refused: {reason}", signature)
            self._metrics.loads.labels(name, "refused").inc()
            return f"bundle {name}/{version} was refused: {reason}"
        self._swap_in(model, signature)
        seconds = time.perf_counter() - started
        self._metrics.loads.labels(name, "loaded").inc()
        self._metrics.load_seconds.labels(name, version).set(seconds)
        log.info("loaded %s/%s in %.2f s", name, version, seconds)
        return None

    def _open(self, path: Path, name: str, version: str) -> Model:
        bundle = open_bundle(path, self._settings.trusted_keys)
        if (bundle.manifest.name, str(bundle.manifest.version)) != (name, version):
            raise BundleError(f"its manifest says {bundle.manifest.name}/{bundle.manifest.version}")
        model = Model(bundle, self._settings)
        self._warm(model)
        return model

    def _warm(self, model: Model) -> None:
        """Answer the bundle's own sample on every device, alone and in company.

        Unrefined: refining takes several times as long, and export has proven it.
        """
        graph = request_graph(
            model.task, model.bundle.sample, model.manifest.num_features, model.manifest.coordinates
        )
        sizes = _WARM_SIZES if graph.num_nodes <= self._settings.small_nodes else (1,)
        for device in self._settings.devices:
            prepare_thread(self._settings.run_threads, device)
            for size in sizes if self._settings.batching else (1, 1):
                if size * graph.num_nodes <= max(self._settings.small_nodes, graph.num_nodes):
                    model.run([graph] * size, None, device)
        if graph.num_nodes <= self._settings.small_nodes:
            model.learn_pace(graph, self._settings.devices[0])
            model.learn_to_serve(graph)

    def _swap_in(self, model: Model, signature: Signature) -> None:
        older = self._models.get(model.name, {})
        versions = {model.version: model}
        if self._settings.versions == "all":
            versions = {**older, **versions}
        self._models = {**self._models, model.name: versions}
        self._defaults = ({}, {})
        for version in older:
            if version not in versions:
                self._states[model.name, version] = State(
                    "UNAVAILABLE", f"replaced by {model.version}"
                )
        self._states[model.name, model.version] = State("READY", "", signature)
        if older:
            del older
            release_memory()

    def _wanted(self) -> list[tuple[str, str, Signature]]:
        found = self._allowed()
        if self._settings.versions == "all":
            return found
        newest: dict[str, tuple[str, str, Signature]] = {}
        for entry in sorted(found, key=lambda e: _version_order(e[1])):
            newest[entry[0]] = entry
        return list(newest.values())

    def _allowed(self) -> list[tuple[str, str, Signature]]:
        only = self._settings.only
        return [entry for entry in self._scan() if not only or entry[0] in only]

    def _scan(self) -> list[tuple[str, str, Signature]]:
        found = []
        for manifest in sorted(self._settings.models.glob("*/*/manifest.json")):
            folder = manifest.parent
            if _NAME.fullmatch(folder.name) and _NAME.fullmatch(folder.parent.name):
                try:
                    found.append((folder.parent.name, folder.name, _sign(folder)))
                except OSError:
                    continue  # vanished while we looked; the next look will tell
        return found


def release_memory() -> None:
    """Give freed memory back to the system, where the C library can."""
    frozen = gc.get_freeze_count() > 0  # the server freezes what it started with
    gc.unfreeze()
    gc.collect()
    if frozen:
        gc.freeze()
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        return


def _sign(folder: Path) -> Signature:
    entries = []
    for file in sorted(folder.iterdir()):
        stat = file.stat()
        entries.append((file.name, stat.st_size, stat.st_mtime_ns))
    return tuple(entries)


def _version_order(version: str) -> list[tuple[int, int, str]]:
    parts = re.split(r"[.\-_]", version)
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]


def _one_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
