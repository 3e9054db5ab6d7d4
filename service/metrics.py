"""Every Prometheus metric by name, with labels that cannot grow with what callers send."""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.samples import Sample

_SECONDS = (
    *(0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
disable_created_metrics()  # type: ignore[no-untyped-call]  # more series that nobody reads
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_NODES = (64, 256, 1024, 4096, 16384, 65536, 262144)


class _Count:
    """What the event loop counts; a counter, which takes a lock each time, hears of it later."""

    def __init__(self, child: Any) -> None:
        self._child = child
        self.seen = 0

    def hand_on(self) -> None:
        seen, self.seen = self.seen, 0
        if seen:
            self._child.inc(seen)


class _Spread:
    """The same for a histogram: how many values lie in which bucket, and their sum."""

    def __init__(self, child: Any, bounds: tuple[float, ...]) -> None:
        self._child = child
        self._bounds = bounds
        self._seen = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._seen[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def hand_on(self) -> None:
        # the library has no public way to tell several values at once
        for bucket, seen in enumerate(self._seen):
            if seen:
                self._child._buckets[bucket].inc(seen)
        if self._sum:
            self._child._sum.inc(self._sum)
        self._seen = [0] * len(self._seen)
        self._sum = 0.0


class Metrics:
    """One registry per app, so that several apps can live in one process.

    What happens with every request is counted on the event loop alone, without a lock.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._counts: dict[tuple[Any, ...], _Count] = {}
        self._spreads: dict[tuple[Any, ...], _Spread] = {}
        self._bounds: dict[Histogram, tuple[float, ...]] = {}
        self._answered: dict[str, float] = {}
        self.multiprocess = "PROMETHEUS_MULTIPROC_DIR" in os.environ
        if not self.multiprocess:
            ProcessCollector(registry=self.registry)
            PlatformCollector(registry=self.registry)
        self.requests = self._counter(
            "requests", "Requests answered.", ("route", "method", "status")
        )
        self.predictions = self._counter(
            "predictions", "Requests that reached a model.", ("model", "version", "status")
        )
        self.rejected = self._counter("rejected", "Requests not served.", ("reason",))
        self.request_seconds = self._histogram(
            "request_seconds", "Time from first byte to last, by route.", _SECONDS, ("route",)
        )
        self.stage_seconds = self._histogram(
            "stage_seconds", "Time of each stage of a prediction.", _SECONDS, ("model", "stage")
        )
        self.batch_graphs = self._histogram(
            "batch_graphs", "Graphs per model run.", _SIZES, ("model",)
        )
        self.batch_nodes = self._histogram(
            "batch_nodes", "Nodes per model run.", _NODES, ("model",)
        )
        self.batch_edges = self._histogram(
            "batch_edges", "Edges per model run.", _NODES, ("model",)
        )
        self.last_prediction = self._gauge(
            "last_prediction_timestamp_seconds", "When a model last answered.", ("model",), "max"
        )
        self.isolated = self._counter(
            "isolated_batches", "Batches run again one graph at a time after a failure.", ("model",)
        )
        self.queue_depth = self._gauge("queue_depth", "Requests waiting for a run.", ("lane",))
        self.in_flight = self._gauge("in_flight", "Requests accepted and not yet answered.", ())
        self.ready = self._gauge("ready", "1 when the service takes work.", (), mode="livemin")
        self.loads = self._counter("model_loads", "Bundles loaded or refused.", ("model", "result"))
        self.load_seconds = self._gauge(
            "model_load_seconds",
            "Time the last load took, warm-up included; with several workers, of the slowest.",
            ("model", "version"),
            mode="livemax",
        )
        self.resident_bytes = self._gauge("resident_bytes", "Resident memory.", ())
        self.device_bytes = self._gauge("device_bytes", "Memory in use on a device.", ("device",))

    def render(self) -> bytes:
        return generate_latest(self._merged())

    def samples(self) -> list[Sample]:
        """Every number as `render` tells it."""
        return [sample for family in self._merged().collect() for sample in family.samples]

    def hand_on(self) -> None:
        """Tell the registry what was counted since the last time; on the event loop."""
        for count in self._counts.values():
            count.hand_on()
        for spread in self._spreads.values():
            spread.hand_on()
        answered, self._answered = self._answered, {}
        for model, when in answered.items():
            self.last_prediction.labels(model).set(when)

    def _merged(self) -> CollectorRegistry:
        """The numbers of all workers."""
        self.hand_on()
        if not self.multiprocess:
            return self.registry
        merged = CollectorRegistry()
        MultiProcessCollector(merged)  # type: ignore[no-untyped-call]
        return merged

    def observe(self, model: str, stages: dict[str, float]) -> None:
        """The seconds of the stages of a prediction."""
        self._answered[model] = time.time()
        for stage, seconds in stages.items():
            self._spread(self.stage_seconds, model, stage).add(seconds)

    def observe_batch(self, model: str, graphs: int, nodes: int, edges: int) -> None:
        """A run of a model."""
        self._spread(self.batch_graphs, model).add(graphs)
        self._spread(self.batch_nodes, model).add(nodes)
        self._spread(self.batch_edges, model).add(edges)

    def observe_prediction(self, model: str, version: str, status: int) -> None:
        self._count(self.predictions, model, version, status).seen += 1

    def observe_request(self, route: str, method: str, status: int, seconds: float) -> None:
        self._count(self.requests, route, method, status).seen += 1
        self._spread(self.request_seconds, route).add(seconds)

    def _count(self, metric: Counter, *labels: object) -> _Count:
        key = (metric, labels)
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = _Count(metric.labels(*labels))
        return count

    def _spread(self, metric: Histogram, *labels: str) -> _Spread:
        key = (metric, labels)
        spread = self._spreads.get(key)
        if spread is None:
            bounds = self._bounds[metric]
            spread = self._spreads[key] = _Spread(metric.labels(*labels), bounds)
        return spread

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        return Counter(f"splinecnn_{name}", text, labels, registry=self.registry)

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...], labels: tuple[str, ...]
    ) -> Histogram:
        metric = Histogram(
            f"splinecnn_{name}", text, labels, buckets=buckets, registry=self.registry
        )
        self._bounds[metric] = buckets
        return metric

    def _gauge(self, name: str, text: str, labels: tuple[str, ...], mode: str = "livesum") -> Gauge:
        return Gauge(
            f"splinecnn_{name}",
            text,
            labels,
            registry=self.registry,
            multiprocess_mode=mode,  # type: ignore[arg-type]
        )
