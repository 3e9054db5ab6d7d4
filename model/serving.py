"""Networks as they are served: raw graph tensors in, answers out, for `torch.jit.script`."""

from torch import Tensor, nn

import ops
from model.anymesh.net import AnyMeshNet
from model.anymesh.serve import ServedAnyMesh
from model.errors import UnsupportedTask
from model.graph import (
    CORRESPONDENCE,
    GRAPH_LABEL,
    NODE_LABELS,
    POSITIONS,
    PSEUDO,
    Coordinates,
    tensor_names,
)
from model.nets import CorrespondenceNet, GridNet, NodeNet, SuperpixelNet
from model.pseudo import DEGREE, GIVEN


class ServedCorrespondence(nn.Module):
    """The best `top_k` reference vertices of every vertex, and how sure each is."""

    def __init__(self, net: CorrespondenceNet) -> None:
        super().__init__()
        self.net = net

    def forward(
        self, vertices: Tensor, faces: Tensor, ptr: Tensor, top_k: int
    ) -> tuple[Tensor, Tensor]:
        x = self.net.features(self.net.plan(vertices, faces, ptr))
        head = self.net.head
        value, index, total = ops.linear_top_k(x, head.weight, head.bias, top_k)
        return index, ops.exp(value - total[:, None])


class ServedNodeLabels(nn.Module):
    """The probability of every class for every node."""

    def __init__(self, net: NodeNet) -> None:
        super().__init__()
        self.net = net

    def forward(
        self,
        feature_ptr: Tensor,
        feature_index: Tensor,
        feature_value: Tensor,
        edge_index: Tensor,
        ptr: Tensor,
    ) -> tuple[Tensor]:
        plan = self.net.plan(edge_index, ptr, feature_ptr.numel() - 1)
        logits = self.net.logits(feature_ptr, feature_index, feature_value, plan)
        return (ops.softmax(logits),)


class ServedPlacedNodes(nn.Module):
    """The same, for a network that takes coordinates of its nodes or edges."""

    def __init__(self, net: NodeNet) -> None:
        super().__init__()
        self.net = net

    def forward(
        self,
        feature_ptr: Tensor,
        feature_index: Tensor,
        feature_value: Tensor,
        edge_index: Tensor,
        coordinates: Tensor,
        ptr: Tensor,
    ) -> tuple[Tensor]:
        plan = self.net.plan(edge_index, ptr, feature_ptr.numel() - 1, coordinates)
        logits = self.net.logits(feature_ptr, feature_index, feature_value, plan)
        return (ops.softmax(logits),)


class ServedGraphLabel(nn.Module):
    """The probability of every class for every graph."""

    def __init__(self, net: SuperpixelNet | GridNet) -> None:
        super().__init__()
        self.net = net

    def forward(
        self, features: Tensor, positions: Tensor, edge_index: Tensor, ptr: Tensor
    ) -> tuple[Tensor]:
        levels = self.net.levels(positions, edge_index, ptr)
        # each network takes the levels it has just made
        return (ops.softmax(self.net.logits(features, levels)),)  # type: ignore[arg-type]


OUTPUTS: dict[str, tuple[str, ...]] = {
    CORRESPONDENCE: ("index", "confidence"),
    NODE_LABELS: ("probabilities",),
    GRAPH_LABEL: ("probabilities",),
}


def input_names(
    task: str, refines: bool = False, coordinates: Coordinates | None = None
) -> list[str]:
    """The arguments of a served network, in order; `refine` for one that can."""
    names = [*tensor_names(task, coordinates), "ptr"]
    if task != CORRESPONDENCE:
        return names
    return [*names, "top_k", "refine"] if refines else [*names, "top_k"]


def coordinates_of(net: nn.Module) -> Coordinates | None:
    """What a node network takes beside features and edges."""
    if not isinstance(net, NodeNet) or net.pseudo == DEGREE:
        return None
    return Coordinates(PSEUDO if net.pseudo == GIVEN else POSITIONS, len(net.first.kernel_size))


def refines(served: nn.Module) -> bool:
    """Whether the network takes `refine` (0 or 1) as its last argument; it says so itself."""
    return bool(getattr(served, "refines", False))


def serve(net: nn.Module) -> nn.Module:
    """The network in its serving form, not training."""
    served: nn.Module
    if isinstance(net, CorrespondenceNet):
        served = ServedCorrespondence(net)
    elif isinstance(net, AnyMeshNet):
        served = ServedAnyMesh(net)
    elif isinstance(net, NodeNet):
        served = ServedNodeLabels(net) if coordinates_of(net) is None else ServedPlacedNodes(net)
    elif isinstance(net, SuperpixelNet | GridNet):
        served = ServedGraphLabel(net)
    else:
        raise UnsupportedTask(f"{type(net).__name__} has no serving form")
    return served.eval()
