"""An optimiser for the weights of hidden layers: steps that turn every direction alike."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn, optim

MOMENTUM = 0.95
FLAT = 1e-6  # directions this much weaker (squared) than the strongest are not raised further


class Muon(optim.Optimizer):
    """Momentum whose steps are made orthogonal (Jordan et al. 2024, "Muon").

    A gradient of a weight matrix is dominated by a few directions; its nearest orthogonal matrix
    has them all with equal strength. Weights [K, in, out] are one matrix [K * in, out].
    """

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                state["momentum"].lerp_(parameter.grad, 1 - MOMENTUM)
                ahead = parameter.grad.lerp(state["momentum"], MOMENTUM)
                matrix = ahead.reshape(-1, parameter.size(-1))
                scale = max(1.0, matrix.size(0) / matrix.size(1)) ** 0.5
                parameter.sub_(orthogonal(matrix).view_as(parameter), alpha=group["lr"] * scale)


def orthogonal(matrix: Tensor) -> Tensor:
    """M (M'M)^(-1/2): the nearest matrix whose columns, or rows if fewer, are orthonormal."""
    if matrix.size(0) < matrix.size(1):
        return orthogonal(matrix.t()).t()
    values, vectors = torch.linalg.eigh((matrix.t() @ matrix).double())
    values = values.clamp(min=float(values[-1]) * FLAT + 1e-30)
    return matrix @ (vectors * values.rsqrt() @ vectors.t()).to(matrix.dtype)
