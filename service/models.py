"""One loaded version of a model: its bundle, its runtimes, and how it answers a batch."""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from model.bundle import Bundle
from model.graph import GRAPH_LABEL, NODE_LABELS, Graph, pack, unpack
from model.places import Shape
from ops.express import Lane
from service.batching import Budget
from service.express import Express
from service.meshfiles import read_exported
from service.runner import Runtime, TorchScriptRuntime, open_runtime
from service.settings import Settings
from service.shares import side_by_side, split

# A run shorter than this gains less by another thread than it loses where that core is busy.
_THREAD_SECONDS = 0.005
# Express threads share nothing, so another one pays sooner, but small batches take longer a graph.
_EXPRESS_SECONDS = 0.002


@dataclass(frozen=True)
class Options:
    """What a run is told beside its graphs; graphs that differ in it do not share a run."""

    top_k: int = 1
    refine: bool = False


class Model:
    """Immutable once loaded; requests in flight keep theirs while a newer one takes its place."""

    def __init__(self, bundle: Bundle, settings: Settings) -> None:
        self.bundle = bundle
        self.manifest = bundle.manifest
        self.name: str = bundle.manifest.name
        self.version: str = str(bundle.manifest.version)
        self.task: str = bundle.manifest.task
        files = bundle.manifest.files
        # in memory, so that it can be shown when the bundle on disk is gone or changed
        self.reference = bundle.read("reference.ply") if "reference.ply" in files else None
        self._runtimes: dict[str, Runtime] = {
            device: open_runtime(bundle, settings.runtime, device, settings.run_threads)
            for device in settings.devices
        }
        self._most_threads = settings.run_threads
        self._batching = settings.batching
        self._pace: float | None = None  # seconds of one thread per node or edge
        self._quick: TorchScriptRuntime | None = None  # it that can serve graphs by itself

    @property
    def includes(self) -> list[str]:
        """What an answer may hold beside itself, when asked for."""
        if self.task == NODE_LABELS:
            return ["probabilities"]
        if self.task == GRAPH_LABEL:
            return ["graph"]
        known = ["points", "reverse"] if self.reference is not None else []
        attributes = self.bundle.attributes
        if known and attributes is not None:
            known += ["landmarks"] if attributes.landmarks else []
            known += ["segments"] if attributes.segment_names else []
        return sorted(known)

    @cached_property
    def surface(self) -> Shape:
        """The reference mesh of a correspondence model, parsed when first needed."""
        assert self.reference is not None, "includes says whether there is one"
        return Shape(*read_exported(self.reference))

    @property
    def num_classes(self) -> int:
        return int(self.manifest.num_classes)

    def run(
        self, graphs: list[Graph], options: Hashable, device: str
    ) -> list[dict[str, np.ndarray]]:
        """Answers in the order of the graphs; their bits depend on neither shares nor threads."""
        threads = self._threads_for(graphs)
        if self._pace is None or device != "cpu" or threads == 1 or len(graphs) < 2 * threads:
            return self._run(graphs, options, device, threads)
        shares = split(graphs, threads)
        answers = side_by_side([partial(self._run, each, options, device, 1) for each in shares])
        return [answer for share in answers for answer in share]

    def _run(
        self, graphs: list[Graph], options: Hashable, device: str, threads: int
    ) -> list[dict[str, np.ndarray]]:
        told = options if isinstance(options, Options) else Options()
        named = {"top_k": told.top_k, "refine": int(told.refine)}
        torch.set_num_threads(threads)
        outputs = self._runtimes[device].run(pack(graphs), named)
        return unpack(outputs, graphs)

    def learn_pace(self, graph: Graph, device: str) -> None:
        """Time one thread on a graph, so that small batches need not wake the others."""
        self._pace = 0.0  # so that it runs on this thread alone, whose own time is counted
        started = time.thread_time()
        self.run([graph], None, device)
        self._pace = (time.thread_time() - started) / (graph.num_nodes + graph.num_edges)

    def learn_to_serve(self, graph: Graph) -> None:
        """Where small graphs can do without the interpreter, let them, and warm that up."""
        runtime = next(iter(self._runtimes.values()))
        many = len(self._runtimes) > 1 or not self._batching
        if many or not isinstance(runtime, TorchScriptRuntime) or not runtime.teach():
            return
        for graphs in (1, 16):  # a script is made better after each of its first calls
            lane = Lane(-1, graphs * graph.num_nodes, graphs * graph.num_edges, graphs, share=1)
            for ticket in range(16):
                lane.put(ticket, graph.arrays)
            lane.close()
            runtime.serve(lane)
        self._quick = runtime

    def open_express(self, wake: int, budget: Budget) -> Express | None:
        """A way for small graphs that needs no runner, if this model has one."""
        if self._quick is None or self._pace is None:
            return None
        share = 1 + int(_EXPRESS_SECONDS / self._pace)
        return Express(self.name, self._quick.serve, wake, budget, self._most_threads, share)

    def _threads_for(self, graphs: list[Graph]) -> int:
        if self._pace is None:
            return self._most_threads
        size = sum(graph.num_nodes + graph.num_edges for graph in graphs)
        return min(self._most_threads, 1 + int(self._pace * size / _THREAD_SECONDS))

    def describe(self) -> dict[str, Any]:
        """What a caller may know of this model."""
        manifest = self.manifest
        links = {"sample": f"/v1/models/{self.name}/sample"}
        if self.reference is not None:
            links["reference"] = f"/v1/models/{self.name}/reference"
        if self.bundle.attributes is not None:
            links["attributes"] = f"/v1/models/{self.name}/attributes"
        attributes = self.bundle.attributes
        return {
            "name": self.name,
            "version": self.version,
            "task": self.task,
            "description": manifest.description,
            "labels": manifest.labels,
            "num_classes": manifest.num_classes,
            "num_features": manifest.num_features,
            "image": manifest.image,
            "include": self.includes,
            "refine": manifest.refines,
            "doubt": manifest.doubt,
            "landmarks": attributes and list(attributes.landmarks),
            "segments": attributes and attributes.segment_names,
            "scores": manifest.scores,
            "created": manifest.created,
            "links": links,
        }
