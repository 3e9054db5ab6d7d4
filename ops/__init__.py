"""Spline convolution for torch: our own CPU and CUDA kernels behind `torch.ops.splinecnn`."""

import ast
import warnings
from pathlib import Path

import torch

_here = Path(__file__).parent
_extension = _here / "_C.so"

NATIVE = _extension.exists()
"""Whether the compiled kernels are in use (else plain torch: right, but slow)."""

if NATIVE:
    from ops import pooling, reference

    torch.ops.load_library(_extension)
    torch.library.impl("splinecnn::pool", "cuda", pooling.pool)
    torch.library.impl("splinecnn::elu", "cuda", reference.elu)
    torch.library.impl("splinecnn::exp", "cuda", reference.exp)
    torch.library.impl("splinecnn::softmax", "cuda", reference.softmax)
else:
    from ops import fallback

    warnings.warn(
        "splinecnn: the compiled operator is not installed, plain torch is used instead (right, "
        "but many times slower). Install a C++ compiler and reinstall the package to build it.",
        stacklevel=2,
    )
    _library = torch.library.Library("splinecnn", "DEF")
    for _schema in ast.literal_eval("[" + (_here / "schemas.inc").read_text() + "]"):
        _name = _library.define(_schema)
        _library.impl(_name, getattr(fallback, _name), "CompositeExplicitAutograd")

from ops import autograd, fake  # noqa: E402, F401  (both register themselves)
from ops.pointwise import elu, exp, softmax  # noqa: E402
from ops.spline import (  # noqa: E402
    Plan,
    linear_top_k,
    spline_basis,
    spline_conv,
    spline_conv_sparse,
    spline_plan,
)

__all__ = [
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
