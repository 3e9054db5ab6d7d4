"""`bodies-any` as it is served: raw meshes in, reference vertices out, for `torch.jit.script`."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.anymesh.net import AnyMeshNet
from model.anymesh.reference import Tables


class ServedAnyMesh(nn.Module):
    """The best `top_k` reference vertices of every vertex, and how sure each is.

    A vertex's probabilities over landmarks p are compared with those of each reference vertex q:
    the sum of sqrt(p q) is 1 where they agree, which also makes it the confidence.
    """

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
        self, vertices: Tensor, faces: Tensor, ptr: Tensor, top_k: int
    ) -> tuple[Tensor, Tensor]:
        score = torch.sqrt(self.net(vertices, faces, ptr))
        index, value = torch.ops.splinecnn.match(
            score.cpu(), self.candidate_ptr.cpu(), self.candidate.cpu(), self.landmark.cpu(),
            self.root.cpu(), min(top_k, self.fewest),
        )  # fmt: skip
        index, value = index.to(vertices.device), value.to(vertices.device)
        # more were asked for than ever come into question: the rest has no chance
        missing = top_k - index.size(1)
        last = index[:, -1:].expand(-1, max(missing, 0))
        confidence = F.pad(value.clamp(0.0, 1.0), [0, max(missing, 0)])
        return torch.cat([index, last], 1), confidence
