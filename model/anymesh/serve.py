"""`bodies-any` as it is served: raw meshes in, reference vertices out, for `torch.jit.script`."""

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.anymesh.net import AnyMeshNet
from model.anymesh.reference import Tables


class ServedAnyMesh(nn.Module):
    """The best `top_k` reference vertices of every vertex, and how sure each is.

    A vertex's probabilities over landmarks p are compared with those of each reference vertex q:
    the sum of sqrt(p q) is 1 where they agree.
    """

    refines: Final = True

    landmark: Tensor
    root: Tensor
    candidate: Tensor
    candidate_ptr: Tensor

    def __init__(self, net: AnyMeshNet) -> None:
        super().__init__()
        self.net = net
        tables = Tables(net.landmark.long(), net.near, net.landmarks.head.out_features)
        self.register_buffer("landmark", tables.landmark, persistent=False)
        self.register_buffer("root", tables.probability.sqrt(), persistent=False)
        self.register_buffer("candidate", tables.candidate, persistent=False)
        self.register_buffer("candidate_ptr", tables.candidate_ptr, persistent=False)
        self.fewest = int(tables.candidate_ptr.diff().min())  # candidates of a landmark

    def forward(
        self, vertices: Tensor, faces: Tensor, ptr: Tensor, top_k: int, refine: int = 0
    ) -> tuple[Tensor, Tensor]:
        probability, upright = self.net(vertices, faces, ptr, refine)
        index, agreement = torch.ops.splinecnn.match(
            torch.sqrt(probability).cpu(), self.candidate_ptr.cpu(), self.candidate.cpu(),
            self.landmark.cpu(), self.root.cpu(), min(top_k, self.fewest),
        )  # fmt: skip
        index, agreement = index.to(vertices.device), agreement.to(vertices.device)
        # a body that may lie the wrong way round has no sure vertex
        mesh = torch.repeat_interleave(ptr[1:] - ptr[:-1])
        confidence = chance(agreement, self.net.calibration) * upright[mesh, None]
        # more were asked for than ever come into question: the rest has no chance
        missing = top_k - index.size(1)
        last = index[:, -1:].expand(-1, max(missing, 0))
        return torch.cat([index, last], 1), F.pad(confidence, [0, max(missing, 0)])


def chance(agreement: Tensor, calibration: float) -> Tensor:
    """How likely the right place is within `CLOSE` of the one named.

    Two Gaussian labels d apart agree by exp(-d² / 8 WIDTH²); if d² is what is to be expected of the
    error, the error stays below r with the chance 1 - exp(-r² / d²). `calibration` is r² / 8 WIDTH²
    times what measuring adds (see `model.anymesh.evaluate.calibrate`).
    """
    doubt = -torch.log(agreement.clamp(1e-6, 1 - 1e-6))
    return 1 - torch.exp(-calibration / doubt)
