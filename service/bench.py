"""How fast the models answer on this machine: their own samples, without HTTP."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from rich.table import Table

from model.bundle import open_bundle
from model.errors import BundleError
from model.graph import pack
from model.request import request_graph
from service.runner import check_device, open_runtime
from service.settings import Settings


def measure(models: Path, settings: Settings, seconds: float = 2.0) -> Table:
    """One row per bundle: the sample's size, and the median and slowest time of a run of it."""
    paths = sorted(path.parent for path in models.glob("*/*/manifest.json"))
    if not paths:
        raise BundleError(f"there are no bundles in {models}/: make them with splinecnn export")
    check_device(settings.devices[0], settings.runtime)
    table = Table("model", "nodes", "median ms", "slowest ms", "runs", box=None, pad_edge=False)
    for path in paths:
        bundle = open_bundle(path)
        manifest = bundle.manifest
        graph = request_graph(
            manifest.task, bundle.sample, manifest.num_features, manifest.coordinates
        )
        runtime = open_runtime(bundle, settings.runtime, settings.devices[0], settings.run_threads)
        for _ in range(3):  # TorchScript specialises on its first runs
            runtime.run(pack([graph]), {"top_k": 1, "refine": 0})
        times: list[float] = []
        while sum(times) < seconds:
            started = time.perf_counter()
            runtime.run(pack([graph]), {"top_k": 1, "refine": 0})
            times.append(time.perf_counter() - started)
        median, slowest = (f"{1000 * t:.2f}" for t in (statistics.median(times), max(times)))
        name = f"{manifest.name}/{manifest.version}"
        table.add_row(name, str(graph.num_nodes), median, slowest, str(len(times)))
    return table
