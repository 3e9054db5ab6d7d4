"""Every Prometheus metric by name, with labels that cannot grow with what callers send."""

from __future__ import annotations

import os
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.samples import Sample

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_NODES = (64, 256, 1024, 4096, 16384, 65536, 262144)


class Metrics:
    """One registry per app, so that several apps can live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._children: dict[tuple[Any, tuple[str, ...]], Any] = {}
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

    def _merged(self) -> CollectorRegistry:
        """The numbers of all workers."""
        if not self.multiprocess:
            return self.registry
        merged = CollectorRegistry()
        MultiProcessCollector(merged)  # type: ignore[no-untyped-call]
        return merged

    def observe(self, model: str, stages: dict[str, float]) -> None:
        """The seconds of the stages of a prediction."""
        for stage, seconds in stages.items():
            self._child(self.stage_seconds, model, stage).observe(seconds)

    def observe_batch(self, model: str, graphs: int, nodes: int, edges: int) -> None:
        self._child(self.batch_graphs, model).observe(graphs)
        self._child(self.batch_nodes, model).observe(nodes)
        self._child(self.batch_edges, model).observe(edges)

    def observe_prediction(self, model: str, version: str, status: int) -> None:
        self._child(self.predictions, model, version, str(status)).inc()

    def observe_request(self, route: str, method: str, status: int, seconds: float) -> None:
        self._child(self.requests, route, method, str(status)).inc()
        self._child(self.request_seconds, route).observe(seconds)

    def _child(self, metric: Any, *labels: str) -> Any:
        """The metric with these labels, remembered: looking it up costs more than counting."""
        key = (metric, labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = metric.labels(*labels)
        return child

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        return Counter(f"splinecnn_{name}", text, labels, registry=self.registry)

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...], labels: tuple[str, ...]
    ) -> Histogram:
        return Histogram(f"splinecnn_{name}", text, labels, buckets=buckets, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: tuple[str, ...], mode: str = "livesum") -> Gauge:
        return Gauge(
            f"splinecnn_{name}",
            text,
            labels,
            registry=self.registry,
            multiprocess_mode=mode,  # type: ignore[arg-type]
        )
