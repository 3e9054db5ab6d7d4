"""A model on a device: TorchScript or ONNX Runtime, packed tensors in, named tensors out."""

from __future__ import annotations

import io
import logging
import os
import re
import threading
import warnings
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

import ops  # noqa: F401  (registers the operators that model.ts calls)
from model.bundle import Bundle
from model.errors import BundleError
from model.graph import GRAPH_LABEL, TASKS
from ops.express import Lane, teach

log = logging.getLogger("splinecnn.runner")


class DeviceError(Exception):
    """The device or runtime asked for is not there; said before anything is served."""


class Runtime(Protocol):
    def run(self, tensors: Mapping[str, Tensor], options: Mapping[str, int]) -> dict[str, Tensor]:
        """One packed batch; safe to call from several threads at once."""
        ...


class TorchScriptRuntime:
    """model.ts under inference_mode, one CUDA stream per calling thread."""

    def __init__(self, bundle: Bundle, device: str) -> None:
        self._device = torch.device(device)
        self._module: Any = torch.jit.load(
            io.BytesIO(bundle.read("model.ts")), map_location=self._device
        )
        self._module.eval()
        self._forward = self._module.forward  # looked up once: a script module does so in Python
        self._inputs = [spec.name for spec in bundle.manifest.inputs]
        self._outputs = [spec.name for spec in bundle.manifest.outputs]

    @torch.inference_mode()
    def run(self, tensors: Mapping[str, Tensor], options: Mapping[str, int]) -> dict[str, Tensor]:
        arguments: list[Any] = [
            options[name] if name in options else tensors[name] for name in self._inputs
        ]
        if self._device.type != "cuda":
            return self._named(self._forward(*arguments))
        with torch.cuda.stream(_stream(self._device)):
            there = [a.to(self._device) if isinstance(a, Tensor) else a for a in arguments]
            return {name: t.cpu() for name, t in self._named(self._forward(*there)).items()}

    def teach(self) -> bool:
        """Learn to `serve`, if the network is one that can."""
        plain = self._inputs == [*TASKS[GRAPH_LABEL], "ptr"] and len(self._outputs) == 1
        if not (ops.NATIVE and plain and self._device.type == "cpu"):
            return False
        try:
            teach(self._module)
        except RuntimeError as error:  # it has a `serve` of its own, or answers in another form
            log.info("runs by runners alone: %s", str(error).strip().partition("\n")[0])
            return False
        return True

    @torch.inference_mode()
    def serve(self, lane: Lane) -> None:
        """Run the graphs of a lane on this thread alone, until it is closed."""
        torch.set_num_threads(1)
        lane.serve(self._module)

    def _named(self, result: Any) -> dict[str, Tensor]:
        tensors = (result,) if isinstance(result, Tensor) else result
        return dict(zip(self._outputs, tensors, strict=True))


class OnnxRuntime:
    """model.onnx in ONNX Runtime, on the provider that was asked for or not at all."""

    def __init__(self, bundle: Bundle, device: str, threads: int) -> None:
        ort = _import_onnxruntime()
        if "model.onnx" not in bundle.manifest.files:
            raise BundleError("it has no ONNX form; serve it with --runtime torchscript")
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        provider = "CUDAExecutionProvider" if device.startswith("cuda") else "CPUExecutionProvider"
        settings: dict[str, str] = {}
        if ":" in device:
            settings["device_id"] = device.partition(":")[2]
        self._session = ort.InferenceSession(
            bundle.read("model.onnx"), options, providers=[(provider, settings)]
        )
        if provider not in self._session.get_providers():
            raise DeviceError(f"ONNX Runtime would not use {provider} on {device}")
        self._inputs = {item.name for item in self._session.get_inputs()}
        self._outputs = [item.name for item in self._session.get_outputs()]

    def run(self, tensors: Mapping[str, Tensor], options: Mapping[str, int]) -> dict[str, Tensor]:
        feed = {name: t.numpy() for name, t in tensors.items() if name in self._inputs}
        for name, value in options.items():
            if name in self._inputs:
                feed[name] = torch.tensor(value, dtype=torch.int64).numpy()
        results = self._session.run(self._outputs, feed)
        return {n: torch.from_numpy(r) for n, r in zip(self._outputs, results, strict=True)}


def check_device(device: str, runtime: str) -> None:
    """Refuse a device that is not there, instead of quietly using another."""
    if runtime == "onnx":
        providers = _import_onnxruntime().get_available_providers()
        if device.startswith("cuda") and "CUDAExecutionProvider" not in providers:
            raise DeviceError(
                f"device {device} was asked for, but this ONNX Runtime has no CUDA provider; "
                "install onnxruntime-gpu or use --device cpu"
            )
    if not device.startswith("cuda"):
        return
    # torch tells of a driver that is too old in a warning; here it becomes part of the one line
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        available = torch.cuda.is_available()
    if not available:
        raise DeviceError(f"device {device} was asked for, but {_why_no_cuda(said)}")
    count = torch.cuda.device_count()
    index = int(device.partition(":")[2] or 0)
    if index >= count:
        raise DeviceError(f"device {device} was asked for, but only {count} CUDA devices are here")


def _why_no_cuda(said: list[warnings.WarningMessage]) -> str:
    if not torch.version.cuda:
        return f"this PyTorch ({torch.__version__}) is built without CUDA; use --device cpu"
    for warning in said:
        if found := re.search(r"driver .*too old \(found version (\d+)\)", str(warning.message)):
            version = int(found[1])
            return (
                f"the NVIDIA driver is too old: it has CUDA {version // 1000}."
                f"{version % 1000 // 10}, this PyTorch needs {torch.version.cuda}; "
                "update the driver or use --device cpu"
            )
    return (
        "no usable NVIDIA driver or device was found; check that nvidia-smi lists one "
        "(in a container: run it with --gpus all), or use --device cpu"
    )


def open_runtime(bundle: Bundle, kind: str, device: str, threads: int) -> Runtime:
    if kind == "onnx":
        return OnnxRuntime(bundle, device, threads)
    return TorchScriptRuntime(bundle, device)


def prepare_thread(threads: int, device: str) -> None:
    """The same number of threads in every runner: sums must not depend on who adds them."""
    torch.set_num_threads(threads)
    if device.startswith("cuda"):
        torch.cuda.set_device(torch.device(device))


def device_bytes(device: str) -> int | None:
    return torch.cuda.memory_allocated(device) if device.startswith("cuda") else None


_local = threading.local()


def _stream(device: torch.device) -> Any:
    streams: dict[torch.device, Any] = _local.__dict__.setdefault("streams", {})
    if device not in streams:
        streams[device] = torch.cuda.Stream(device)
    return streams[device]


def _import_onnxruntime() -> Any:
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # must stand before the import
    try:
        import onnxruntime
    except ImportError:
        raise DeviceError("runtime onnx needs ONNX Runtime: pip install '.[onnx]'") from None
    return onnxruntime
