"""The networks of `bodies-any`: which way a body faces, and which landmarks a vertex is near."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ops
from model.anymesh.cells import (
    FEATURES,
    RADII,
    Cells,
    Level,
    make_cells,
    make_level,
    metric,
    pool,
    rotate,
    thin,
)
from model.anymesh.rotations import (
    compose,
    cube_rotations,
    half_turn,
    principal_axes,
    turn_by,
    undo,
)
from model.layers import Linear, SplineConv
from ops import Plan

KERNEL, OPEN = [3, 3, 3], [1, 1, 1]
ASKED = 1024  # vertices of a mesh that decide which way it faces


class Block(nn.Module):
    """A spline convolution, normalised and activated; added to its input where widths allow."""

    def __init__(self, wide: int, out: int) -> None:
        super().__init__()
        self.conv = SplineConv(wide, out, KERNEL, OPEN)
        self.norm = nn.LayerNorm(out)
        self.residual = wide == out

    def forward(self, x: Tensor, plan: Plan) -> Tensor:
        y = F.elu(self.norm(self.conv(x, plan)))
        return x + y if self.residual else y


class Summary(nn.Module):
    """All cells of a mesh as one vector: mean and maximum, through one layer."""

    def __init__(self, wide: int, out: int) -> None:
        super().__init__()
        self.mix = Linear(2 * wide, out)

    def forward(self, x: Tensor, level: Level, num_meshes: int) -> Tensor:
        total = torch.zeros(num_meshes, x.size(1), dtype=x.dtype, device=x.device)
        total = total.index_add(0, level.mesh, x)
        count = torch.zeros(num_meshes, 1, dtype=x.dtype, device=x.device)
        count = count.index_add(0, level.mesh, torch.ones_like(x[:, :1]))
        most = pool(x, level.mesh, num_meshes)
        return F.elu(self.mix(torch.cat([total / count, most], 1)))


class Encoder(nn.Module):
    """One level: two convolutions over the cells, given what was pooled from the finer one."""

    def __init__(self, below: int, out: int) -> None:
        super().__init__()
        self.first = Block(below + FEATURES, out)
        self.second = Block(out, out)

    def forward(self, below: Tensor, level: Level) -> Tensor:
        x = self.first(torch.cat([below, level.feature], 1), level.plan)
        return self.second(x, level.plan)


class OrientationNet(nn.Module):
    """Which of the 24 turns of a cube a body is nearest to, and how far it is turned beyond."""

    cube: Tensor

    def __init__(self, widths: tuple[int, int, int] = (48, 96, 160), hidden: int = 256) -> None:
        super().__init__()
        a, b, c = widths
        self.first, self.second, self.third = Encoder(0, a), Encoder(a, b), Encoder(b, c)
        self.summary = Summary(c, hidden)
        self.head = Linear(hidden, 24 * 4)
        cube = cube_rotations()
        self.register_buffer("cube", cube, persistent=False)
        self.about = int((cube * half_turn()).sum((1, 2)).argmax())  # the half turn among the 24

    def forward(
        self, cells: Cells, rotation: Tensor, backward: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Logits of the 24 turns [B, 24]; the turn beyond each, axis times angle [B, 24, 3]."""
        one = make_level(cells, 1, rotation, backward)
        two = make_level(cells, 2, rotation, backward)
        three = make_level(cells, 3, rotation, backward)
        x = self.first(one.feature[:, :0], one)
        x = self.second(pool(x, one.parent, two.feature.size(0)), two)
        x = self.third(pool(x, two.parent, three.feature.size(0)), three)
        out = self.head(self.summary(x, three, rotation.size(0))).view(-1, 24, 4)
        return out[:, :, 0], out[:, :, 1:]

    def correct(self, cells: Cells, rotation: Tensor) -> tuple[Tensor, Tensor]:
        """The rotation after one look, and how likely it was that nothing was left to turn. [B]"""
        logits, beyond = self.forward(cells, rotation)
        nearest = logits.argmax(1)
        by = beyond[torch.arange(nearest.size(0), device=nearest.device), nearest]
        # what is seen is cube @ turn_by @ upright
        turn = compose(self.cube[nearest], turn_by(by))
        return undo(turn, rotation), torch.softmax(logits, 1)[:, 0]

    def upright(self, cells: Cells) -> Tensor:
        """Rotations [B, 3, 3] that turn each mesh as the reference stands.

        The body's own axes are the first guess, so that a turned mesh gets the same answer; the
        four ways to read them are each corrected, and the one that ends up surest is kept.
        """
        ptr = cells.cell_ptr[1]
        before, count = int(cells.cell_ptr[0, -1]), int(ptr[-1])
        rows = cells.cell[before : before + count]
        guesses = principal_axes(rows[:, :3], rows[:, 6], ptr)  # [4, B, 3, 3]
        best = guesses[0]
        surest = torch.full_like(best[:, 0, 0], -1.0)
        for g in range(4):
            rotation, _ = self.correct(cells, guesses[g])
            rotation, sure = self.correct(cells, rotation)
            better = sure > surest
            best = torch.where(better[:, None, None], rotation, best)
            surest = torch.where(better, sure, surest)
        return self.correct(cells, best)[0]

    def likely(self, cells: Cells, rotation: Tensor) -> Tensor:
        """How likely each mesh is upright, facing the front or the back. [B]"""
        chance = torch.softmax(self.forward(cells, rotation)[0], 1)
        return chance[:, 0] + chance[:, self.about]


class LandmarkNet(nn.Module):
    """A U-Net over the cells of an upright body; landmark scores for its vertices."""

    def __init__(
        self,
        landmarks: int = 512,
        widths: tuple[int, int, int, int] = (48, 96, 160, 224),
        hidden: int = 128,
    ) -> None:
        super().__init__()
        a, b, c, d = widths
        self.down0, self.down1 = Encoder(0, a), Encoder(a, b)
        self.down2, self.down3 = Encoder(b, c), Encoder(c, d)
        self.summary = Summary(d, d)
        self.fall2, self.fall1, self.fall0 = Linear(d, c), Linear(c, b), Linear(b, a)
        self.up2, self.up1, self.up0 = Block(c, c), Block(b, b), Block(a, a)
        self.radius = RADII[0]
        bound = (27 * a) ** -0.5
        self.hear = nn.Parameter(torch.empty(27, a, hidden).uniform_(-bound, bound))
        self.own = Linear(6, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.head = Linear(hidden, landmarks)

    def forward(
        self, cells: Cells, rotation: Tensor, ptr: Tensor, backward: bool = False
    ) -> Tensor:
        """Landmark logits [V, landmarks] of meshes that `rotation` turns upright."""
        zero = make_level(cells, 0, rotation, backward)
        one = make_level(cells, 1, rotation, backward)
        two = make_level(cells, 2, rotation, backward)
        three = make_level(cells, 3, rotation, backward)
        x0 = self.down0(zero.feature[:, :0], zero)
        x1 = self.down1(pool(x0, zero.parent, one.feature.size(0)), one)
        x2 = self.down2(pool(x1, one.parent, two.feature.size(0)), two)
        x3 = self.down3(pool(x2, two.parent, three.feature.size(0)), three)
        x3 = x3 + self.summary(x3, three, rotation.size(0))[three.mesh]
        x2 = self.up2(x2 + self.fall2(x3)[two.parent], two.plan)
        x1 = self.up1(x1 + self.fall1(x2)[one.parent], one.plan)
        x0 = self.up0(x0 + self.fall0(x1)[zero.parent], zero.plan)
        return self.head(self.listen(x0, zero, cells, rotation, ptr, backward))

    def listen(
        self, x: Tensor, finest: Level, cells: Cells, rotation: Tensor, ptr: Tensor, backward: bool
    ) -> Tensor:
        """What each vertex hears from the cells around it. [V, hidden]"""
        mesh = torch.repeat_interleave(ptr[1:] - ptr[:-1])
        point = rotate(cells.point, rotation, mesh)
        normal = rotate(cells.normal, rotation, mesh)
        source, target = cells.heard[0], cells.heard[1]
        position = finest.feature[:, :3] / 2
        pseudo = metric(position[source] - point[target], self.radius)
        plan = ops.spline_plan(
            cells.heard, pseudo, [3, 3, 3], [1, 1, 1], 1, point.size(0), x.size(0),
            backward=backward,
        )  # fmt: skip
        heard = ops.spline_conv(x, self.hear, plan)
        own = self.own(torch.cat([point * 2, normal], 1))
        return F.elu(self.norm(heard + own))


class AnyMeshNet(nn.Module):
    """Both networks, and how landmarks see the reference (see `model.anymesh.reference`).

    Answers can be averaged over several `clusterings` of a mesh, `refined` of them when that is
    asked for: it costs time and no training. `calibration` makes chances of how well landmarks
    agree (see `model.anymesh.serve.chance`).
    """

    landmark: Tensor
    near: Tensor

    def __init__(
        self,
        reference: int = 6890,
        landmarks: int = 512,
        seen_by: int = 20,
        clusterings: int = 1,
        refined: int = 6,
        calibration: float = 0.05,
    ) -> None:
        super().__init__()
        self.calibration, self.asked = calibration, ASKED
        self.clusterings, self.refined = clusterings, refined
        self.orientation = OrientationNet()
        self.landmarks = LandmarkNet(landmarks)
        # floating, as everything in a file of weights is; whole numbers below 2048 stay exact
        self.register_buffer("landmark", torch.zeros(reference, seen_by))
        self.register_buffer("near", torch.zeros(reference, seen_by))

    def forward(
        self, vertices: Tensor, faces: Tensor, ptr: Tensor, refine: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Probabilities [V, landmarks] of raw meshes; how sure it is of each one's stance [B]."""
        clusterings = self.refined if refine > 0 else self.clusterings
        cells = make_cells(vertices, faces, ptr)
        rotation = self.face(cells, self.orientation.upright(cells), ptr)
        sure = self.orientation.likely(cells, rotation)
        total = torch.softmax(self.landmarks(cells, rotation, ptr), 1)
        for variant in range(1, clusterings):
            # the first few begin at the tips of limbs, and cut nearly the same cells
            other = make_cells(vertices, faces, ptr, variant + 3)
            total = total + torch.softmax(self.landmarks(other, rotation, ptr), 1)
        return total / clusterings, sure

    def face(self, cells: Cells, rotation: Tensor, ptr: Tensor) -> Tensor:
        """Each rotation, or half a turn more where landmarks are told apart better so.

        Front and back are what the orientation network mixes up on bodies unlike those it knows;
        the other network, which knows more of bodies, has seen none from behind.
        """
        about = compose(half_turn().to(rotation).expand_as(rotation), rotation)
        few, few_ptr = thin(cells, ptr, self.asked)
        mesh = torch.repeat_interleave(few_ptr[1:] - few_ptr[:-1])
        gain = self.clarity(few, rotation, few_ptr) - self.clarity(few, about, few_ptr)
        gain = torch.zeros_like(rotation[:, 0, 0]).index_add(0, mesh, gain)
        return torch.where((gain < 0)[:, None, None], about, rotation)

    def clarity(self, cells: Cells, rotation: Tensor, ptr: Tensor) -> Tensor:
        """How clearly each vertex sees its landmarks: minus the entropy of its probabilities."""
        log = torch.log_softmax(self.landmarks(cells, rotation, ptr), 1)
        return (log * torch.exp(log)).sum(1)
