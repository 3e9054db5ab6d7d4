"""The networks of the paper's experiments (section 5), side by side.

Each splits into what depends on the graph alone (`plan` or `levels`, which training keeps) and what
depends on the weights, and has a `forward` that takes raw graph tensors and does both.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ops
from model.layers import Linear, SparseSplineConv, SplineConv
from model.mesh import mesh_edges
from model.pooling import (
    average_pool,
    cell_index,
    cell_max_pool,
    cluster,
    max_pool,
    mean_pool,
)
from model.pseudo import DEGREE, cartesian, node_share, open_dimensions, pseudo_coordinates
from model.tasks import grid
from ops import Plan


class CorrespondenceNet(nn.Module):
    """Vertices of a mesh to vertices of the reference: SConv x 6, Lin(256), Lin(classes)."""

    def __init__(
        self,
        num_classes: int = 6890,
        channels: tuple[int, ...] = (32, 64, 64, 64, 64, 64),
        hidden: int = 256,
        kernel_size: int = 5,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        sizes = [1, *channels]
        self.convs = nn.ModuleList(
            SplineConv(a, b, [kernel_size] * 3, [1, 1, 1])
            for a, b in zip(sizes[:-1], sizes[1:], strict=True)
        )
        self.kernel_size = [kernel_size] * 3
        self.hidden = Linear(sizes[-1], hidden)
        self.head = Linear(hidden, num_classes)
        self.dropout = dropout

    def plan(self, vertices: Tensor, faces: Tensor, ptr: Tensor, backward: bool = False) -> Plan:
        """The mesh as all six convolutions see it."""
        edge_index = mesh_edges(faces, vertices.size(0))
        pseudo = cartesian(vertices, edge_index, ptr)
        return ops.spline_plan(
            edge_index, pseudo, self.kernel_size, [1, 1, 1], 1, vertices.size(0), backward=backward
        )

    def features(self, plan: Plan) -> Tensor:
        """What the last layer scores: [V, hidden]. Every vertex starts with the constant 1."""
        x = torch.ones(plan.num_nodes, 1, dtype=plan.coef.dtype, device=plan.coef.device)
        for conv in self.convs:
            x = ops.elu(conv(x, plan))
        x = ops.elu(self.hidden(x))
        return F.dropout(x, self.dropout, self.training)

    def forward(self, vertices: Tensor, faces: Tensor, ptr: Tensor) -> Tensor:
        """Scores [V, classes]; serving never builds them, see `ops.linear_top_k`."""
        return self.head(self.features(self.plan(vertices, faces, ptr)))


class NodeNet(nn.Module):
    """Nodes of a graph to labels: SConv((2), F, 16), SConv((2), 16, C), u = degree.

    Or u from node positions ("cartesian", say, in 2 or 3 dimensions), or "given" with the graph.
    With `loops` every node is also its own neighbour, u = its own degree.
    """

    def __init__(
        self,
        num_features: int = 1433,
        num_classes: int = 7,
        hidden: int = 16,
        kernel_size: int = 2,
        dropout: float = 0.5,
        pseudo: str = "degree",
        dimensions: int = 1,
        loops: bool = False,
        input_dropout: float | None = None,
    ) -> None:
        super().__init__()
        if loops and pseudo != DEGREE:
            raise ValueError(f"loops have a degree, but no {pseudo} pseudo-coordinates")
        is_open = open_dimensions(pseudo, dimensions)
        self.first = SparseSplineConv(num_features, hidden, [kernel_size] * dimensions, is_open)
        self.second = SplineConv(hidden, num_classes, [kernel_size] * dimensions, is_open)
        self.pseudo = pseudo
        self.loops = loops
        self.dropout = dropout
        self.input_dropout = dropout if input_dropout is None else input_dropout

    def plan(
        self,
        edge_index: Tensor,
        ptr: Tensor,
        num_nodes: int,
        coordinates: Tensor | None = None,
        backward: bool = False,
    ) -> Plan:
        """The graph as both convolutions see it; coordinates as `model.graph.Coordinates` says."""
        if coordinates is None:
            share = node_share(edge_index, ptr, num_nodes)
            if self.loops:
                loop = torch.arange(num_nodes, device=edge_index.device)
                edge_index = torch.cat([edge_index, torch.stack([loop, loop])], 1)
            pseudo = share[edge_index[0]]
        elif self.pseudo == "given":
            pseudo = coordinates
        else:
            pseudo = pseudo_coordinates(self.pseudo, coordinates, edge_index, ptr)
        return self.first.plan(edge_index, pseudo, num_nodes, backward)

    def scores(
        self, feature_ptr: Tensor, feature_index: Tensor, feature_value: Tensor, plan: Plan
    ) -> Tensor:
        """Log-probabilities [N, classes] from compressed rows of features."""
        return F.log_softmax(self.logits(feature_ptr, feature_index, feature_value, plan), 1)

    def logits(
        self, feature_ptr: Tensor, feature_index: Tensor, feature_value: Tensor, plan: Plan
    ) -> Tensor:
        value = F.dropout(feature_value, self.input_dropout, self.training)
        x = ops.elu(self.first(feature_ptr, feature_index, value, plan))
        x = F.dropout(x, self.dropout, self.training)
        return self.second(x, plan)

    def forward(
        self,
        feature_ptr: Tensor,
        feature_index: Tensor,
        feature_value: Tensor,
        edge_index: Tensor,
        ptr: Tensor,
        coordinates: Tensor | None = None,
    ) -> Tensor:
        plan = self.plan(edge_index, ptr, feature_ptr.numel() - 1, coordinates)
        return self.scores(feature_ptr, feature_index, feature_value, plan)


class SuperpixelLevels(NamedTuple):
    """A batch of superpixel graphs, and what two poolings make of it."""

    plan1: Plan
    members1: Tensor
    plan2: Plan
    members2: Tensor
    ptr: Tensor  # clusters of each graph after the second pooling


class SuperpixelNet(nn.Module):
    """Image graphs to classes: SConv, MaxP(4), SConv, MaxP(4), AvgP, FC(128), FC(classes)."""

    def __init__(
        self,
        num_features: int = 1,
        num_classes: int = 10,
        channels: tuple[int, int] = (32, 64),
        hidden: int = 128,
        kernel_size: int = 5,
        degree: int = 1,
        pseudo: str = "cartesian",
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        is_open = open_dimensions(pseudo, 2)
        a, b = channels
        self.conv1 = SplineConv(num_features, a, [kernel_size] * 2, is_open, degree)
        self.conv2 = SplineConv(a, b, [kernel_size] * 2, is_open, degree)
        self.hidden = Linear(b, hidden)
        self.head = Linear(hidden, num_classes)
        self.pseudo = pseudo
        self.dropout = dropout

    def levels(
        self,
        positions: Tensor,
        edge_index: Tensor,
        ptr: Tensor,
        seed: int = 0,
        backward: bool = False,
    ) -> SuperpixelLevels:
        """Everything that depends on the graphs alone."""
        pseudo = pseudo_coordinates(self.pseudo, positions, edge_index, ptr)
        plan1 = self.conv1.plan(edge_index, pseudo, positions.size(0), backward)
        members1, edge_index, ptr = cluster(edge_index, ptr, seed)
        positions = mean_pool(positions, members1)
        pseudo = pseudo_coordinates(self.pseudo, positions, edge_index, ptr)
        plan2 = self.conv2.plan(edge_index, pseudo, positions.size(0), backward)
        members2, _, ptr = cluster(edge_index, ptr, seed)
        return SuperpixelLevels(plan1, members1, plan2, members2, ptr)

    def scores(self, features: Tensor, levels: SuperpixelLevels) -> Tensor:
        """Log-probabilities [B, classes]."""
        return F.log_softmax(self.logits(features, levels), 1)

    def logits(self, features: Tensor, levels: SuperpixelLevels) -> Tensor:
        x = ops.elu(self.conv1(features, levels.plan1))
        x = max_pool(x, levels.members1)
        x = ops.elu(self.conv2(x, levels.plan2))
        x = max_pool(x, levels.members2)
        x = average_pool(x, levels.ptr)
        x = ops.elu(self.hidden(x))
        x = F.dropout(x, self.dropout, self.training)
        return self.head(x)

    def forward(
        self, features: Tensor, positions: Tensor, edge_index: Tensor, ptr: Tensor
    ) -> Tensor:
        return self.scores(features, self.levels(positions, edge_index, ptr))


class GridLevels(NamedTuple):
    """A batch of pixel grids, and the coarser grid that a pooling makes of it."""

    plan1: Plan
    cell: Tensor  # [N] which cell of the coarser grid each pixel falls into
    plan2: Plan
    num_graphs: int


class GridNet(nn.Module):
    """Pixel grids to classes: SConv, MaxP(4), SConv, MaxP(4), FC(512), FC(classes).

    FC(512) needs every graph to end with the same nodes in the same order, so MaxP(4) takes the
    cells of 2 x 2 pixels here, which are clusters of four in any grid, and the coarser grid again
    joins 5 x 5 neighbourhoods.
    """

    def __init__(
        self,
        num_features: int = 1,
        num_classes: int = 10,
        channels: tuple[int, int] = (32, 64),
        hidden: int = 512,
        kernel_size: int = 5,
        side: int = 28,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        if side % 4:
            raise ValueError(f"side must be a multiple of 4, got {side}")
        a, b = channels
        self.conv1 = SplineConv(num_features, a, [kernel_size] * 2, [1, 1])
        self.conv2 = SplineConv(a, b, [kernel_size] * 2, [1, 1])
        self.hidden = Linear(b * (side // 4) ** 2, hidden)
        self.head = Linear(hidden, num_classes)
        self.side = side
        self.coarse_positions: Tensor
        self.coarse_edges: Tensor
        self.dropout = dropout
        positions, edge_index = grid(side // 2, side // 2)
        self.register_buffer("coarse_positions", torch.from_numpy(positions), persistent=False)
        self.register_buffer("coarse_edges", torch.from_numpy(edge_index), persistent=False)

    def levels(
        self, positions: Tensor, edge_index: Tensor, ptr: Tensor, backward: bool = False
    ) -> GridLevels:
        """Everything that depends on the graphs alone; positions are pixels, 0 <= x, y < side."""
        B, half = ptr.numel() - 1, self.side // 2
        pseudo = cartesian(positions, edge_index, ptr)
        plan1 = self.conv1.plan(edge_index, pseudo, positions.size(0), backward)
        cell = cell_index(positions, ptr, 2.0, half)
        first = torch.arange(B + 1, device=ptr.device) * (half * half)
        coarse = (self.coarse_edges[:, None, :] + first[:-1, None]).reshape(2, -1)
        pseudo = cartesian(self.coarse_positions.repeat(B, 1), coarse, first)
        plan2 = self.conv2.plan(coarse, pseudo, B * half * half, backward)
        return GridLevels(plan1, cell, plan2, B)

    def scores(self, features: Tensor, levels: GridLevels) -> Tensor:
        """Log-probabilities [B, classes]."""
        return F.log_softmax(self.logits(features, levels), 1)

    def logits(self, features: Tensor, levels: GridLevels) -> Tensor:
        B, quarter = levels.num_graphs, self.side // 4
        x = ops.elu(self.conv1(features, levels.plan1))
        x = cell_max_pool(x, levels.cell, levels.plan2.num_nodes)
        x = ops.elu(self.conv2(x, levels.plan2))
        x = x.view(B, quarter, 2, quarter, 2, x.size(1)).amax([2, 4]).view(B, -1)
        x = ops.elu(self.hidden(x))
        x = F.dropout(x, self.dropout, self.training)
        return self.head(x)

    def forward(
        self, features: Tensor, positions: Tensor, edge_index: Tensor, ptr: Tensor
    ) -> Tensor:
        return self.scores(features, self.levels(positions, edge_index, ptr))
