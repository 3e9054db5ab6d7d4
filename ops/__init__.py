"""Spline convolution for torch: our own CPU and CUDA kernels behind `torch.ops.splinecnn`."""

import ast
import warnings
from pathlib import Path

import torch

from ops import fallback

_here = Path(__file__).parent
_extension = _here / "_C.so"

NATIVE = _extension.exists()
"""Whether the compiled kernels are in use (else plain torch: right, but slow)."""

CUDA_NATIVE = False
"""Whether they include the CUDA kernels (else plain torch runs on a CUDA device)."""

_schemas = ast.literal_eval("[" + (_here / "schemas.inc").read_text() + "]")

if NATIVE:
    torch.ops.load_library(_extension)
    _has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    CUDA_NATIVE = _has_kernel("splinecnn::conv", "CUDA")
    for _name in (schema.split("(")[0] for schema in _schemas):
        # what has no CUDA kernel, or was built without nvcc, runs in plain torch on the device
        if not _has_kernel(f"splinecnn::{_name}", "CUDA"):
            torch.library.impl(f"splinecnn::{_name}", "cuda", getattr(fallback, _name))
else:
    warnings.warn(
        "splinecnn: the compiled operator is not installed, plain torch is used instead (right, "
        "but many times slower). Install a C++ compiler and reinstall the package to build it.",
        stacklevel=2,
    )
    _library = torch.library.Library("splinecnn", "DEF")
    for _schema in _schemas:
        _name = _library.define(_schema)
        _library.impl(_name, getattr(fallback, _name), "CompositeExplicitAutograd")

from ops import autograd, fake, positions  # noqa: E402, F401  (the first two register themselves)
from ops.pointwise import elu, exp, softmax  # noqa: E402
from ops.spline import (  # noqa: E402
    Plan,
    linear_top_k,
    spline_basis,
    spline_conv,
    spline_conv_sparse,
    spline_plan,
)

positions.register()

__all__ = [
    "CUDA_NATIVE",
    "NATIVE",
    "Plan",
    "elu",
    "exp",
    "linear_top_k",
    "softmax",
    "spline_basis",
    "spline_conv",
    "spline_conv_sparse",
    "spline_plan",
]
