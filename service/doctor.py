"""What is installed, what is not, and what to do about it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from rich.console import Console
from rich.table import Table

State = Literal["ok", "note", "bad"]
_MARK = {"ok": "[green]ok[/]", "note": "[yellow]note[/]", "bad": "[red]bad[/]"}


class Finding(NamedTuple):
    """One thing looked at; `bad` means that the service cannot do its work."""

    state: State
    what: str
    found: str
    advice: str = ""


def examine(models: Path, out: Console) -> bool:
    """Print a table of findings; True if nothing stands in the way of serving."""
    findings = [*_python(), *_operator(), *_cuda(), *_onnx(), *_page(), *_bundles(models)]
    table = Table(box=None, pad_edge=False)
    for column in ("", "what", "found", "what to do"):
        table.add_column(column)
    for finding in findings:
        table.add_row(_MARK[finding.state], finding.what, finding.found, finding.advice)
    out.print(table)
    return all(finding.state != "bad" for finding in findings)


def _python() -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0))
    yield Finding("ok", "machine", f"{platform.machine()}, {cores} cores")
    for name in ("splinecnn-service", "torch"):
        yield Finding("ok", name, importlib.metadata.version(name))


def _operator() -> Iterator[Finding]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fallback's warning is the finding below
        import torch

        import ops
    if ops.NATIVE:
        yield Finding("ok", "operator", f"compiled, {torch.ops.splinecnn.simd_level()}")
    else:
        advice = "install a C++ compiler (Debian: apt install g++) and run make build"
        yield Finding("note", "operator", "plain torch, slow", advice)


def _cuda() -> Iterator[Finding]:
    import torch

    from ops import CUDA_NATIVE

    if not torch.cuda.is_available():
        kernels = "kernels built" if CUDA_NATIVE else "kernels not built"
        yield Finding("note", "CUDA", f"no device, {kernels}", "models run on the CPU")
        return
    for index in range(torch.cuda.device_count()):
        yield Finding("ok", f"cuda:{index}", torch.cuda.get_device_name(index))
    if not CUDA_NATIVE:
        yield Finding("note", "CUDA", "kernels not built", "SPLINECNN_CUDA=1 make build (nvcc)")


def _onnx() -> Iterator[Finding]:
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime
    except ImportError:
        advice = "pip install '.[onnx]' for --runtime onnx"
        yield Finding("note", "ONNX Runtime", "not installed", advice)
        return
    providers = ", ".join(p.removesuffix("ExecutionProvider") for p in
                          onnxruntime.get_available_providers())  # fmt: skip
    yield Finding("ok", "ONNX Runtime", f"{onnxruntime.__version__}: {providers}")


def _page() -> Iterator[Finding]:
    built = (Path(__file__).parent / "viewer" / "dist" / "index.html").exists()
    yield (
        Finding("ok", "viewer", "built")
        if built
        else Finding("note", "viewer", "not built", "make page (needs node)")
    )


def _bundles(models: Path) -> Iterator[Finding]:
    from model.bundle import open_bundle
    from model.errors import BundleError

    manifests = sorted(models.glob("*/*/manifest.json"))
    if not manifests:
        yield Finding("bad", "bundles", f"none in {models}/", "make bundles, or splinecnn export")
    for path in manifests:
        name = "/".join(path.parent.parts[-2:])
        try:
            task = open_bundle(path.parent).manifest.task
            yield Finding("ok", name, f"{task}, every file matches its hash")
        except BundleError as error:
            yield Finding("bad", name, str(error), f"splinecnn export {path.parts[-3]}")
