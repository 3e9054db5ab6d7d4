"""Cells of meshes by distance on the surface, and the way back from landmarks to the reference."""

import numpy as np
import pytest
import torch
import trimesh
from torch import Tensor

import ops
from ops import geodesic

SIZES = [60, 20, 5]
LONGEST = 0.1
native = pytest.mark.skipif(not ops.NATIVE, reason="the judge would judge itself")


def bumpy(seed: int = 0, subdivisions: int = 2) -> tuple[Tensor, Tensor]:
    """A sphere with uneven bumps, so that no two distances are equal."""
    ball = trimesh.creation.icosphere(subdivisions=subdivisions)
    noise = np.random.default_rng(seed).uniform(0.8, 1.2, len(ball.vertices))
    vertices = ball.vertices * noise[:, None] * [1.0, 1.3, 2.1]
    return torch.from_numpy(vertices).float(), torch.from_numpy(np.array(ball.faces)).long()


def cells(vertices: Tensor, faces: Tensor, ptr: Tensor | None = None, variant: int = 0):
    if ptr is None:
        ptr = torch.tensor([0, len(vertices)])
    return torch.ops.splinecnn.hierarchy(vertices, faces, ptr, SIZES, variant, LONGEST)


def two_balls() -> tuple[Tensor, Tensor]:
    a, f = bumpy(1, 1)
    b, g = bumpy(2, 1)
    return torch.cat([a, b + torch.tensor([0.0, 9.0, 0.0])]), torch.cat([f, g + len(a)])


@native
@pytest.mark.parametrize("variant", [0, 3])
@pytest.mark.parametrize("make", [bumpy, lambda: bumpy(4, 1), two_balls])
def test_cells_are_those_of_the_judge(make, variant: int) -> None:
    vertices, faces = make()
    ptr = torch.tensor([0, len(vertices)])
    judged = geodesic.hierarchy(vertices, faces, ptr, SIZES, variant, LONGEST)
    for mine, wanted in zip(cells(vertices, faces, variant=variant), judged, strict=True):
        torch.testing.assert_close(mine, wanted, rtol=0, atol=1e-6)


def test_a_cube_is_halved_into_even_cells() -> None:
    box = trimesh.creation.box()
    vertices, faces = (
        torch.from_numpy(np.array(box.vertices)).float(),
        torch.from_numpy(np.array(box.faces)),
    )
    *_, cell, cell_ptr, parent, edge_index, edge_ptr, heard = cells(vertices, faces)
    assert cell_ptr.tolist() == [[0, 60], [0, 20], [0, 5]]
    for a, b in ((0, 60), (60, 80), (80, 85)):
        torch.testing.assert_close(cell[a:b, 6].sum(), torch.tensor(1.0))
    assert parent[:60].max() == 19 and parent[60:].max() == 4
    assert parent[60:65].tolist() == [0, 1, 2, 3, 4]  # the coarser seeds are the first finer ones
    assert edge_ptr.tolist()[0] == 0 and edge_ptr[-1] == edge_index.size(1)
    assert set(heard[1].tolist()) == set(range(8))


def test_edges_go_both_ways_and_never_to_oneself() -> None:
    *_, edge_index, edge_ptr, _ = cells(*bumpy())
    for a, b in zip(edge_ptr[:-1], edge_ptr[1:], strict=True):
        pairs = {tuple(pair) for pair in edge_index[:, a:b].T.tolist()}
        assert all((t, s) in pairs and s != t for s, t in pairs)


def test_place_and_size_change_nothing_and_a_rotation_turns_the_cells() -> None:
    vertices, faces = bumpy()
    turn = torch.linalg.qr(torch.randn(3, 3, generator=torch.manual_seed(0)))[0]
    turn = turn * torch.linalg.det(turn)
    plain = cells(vertices, faces)
    moved = cells(vertices @ turn.T * 7 + 3, faces)
    for before, after in zip(plain[3:], moved[3:], strict=True):
        assert torch.equal(before, after)
    torch.testing.assert_close(plain[2][:, :3] @ turn.T, moved[2][:, :3], rtol=0, atol=1e-5)
    torch.testing.assert_close(plain[2][:, 3:6] @ turn.T, moved[2][:, 3:6], rtol=0, atol=1e-5)


def test_a_symmetric_mesh_is_cut_the_same_however_it_is_turned() -> None:
    ball = trimesh.creation.icosphere(2)
    vertices, faces = (
        torch.from_numpy(ball.vertices).float(),
        torch.from_numpy(np.array(ball.faces)),
    )
    vertices = vertices * torch.tensor([1.0, 1.5, 2.0])
    angle = torch.tensor(0.7)
    c, s = torch.cos(angle).item(), torch.sin(angle).item()
    turn = torch.tensor([[c, 0, s], [0, 1, 0], [-s, 0, c]])
    for before, after in zip(
        cells(vertices, faces)[3:], cells(vertices @ turn.T * 3, faces)[3:], strict=True
    ):
        assert torch.equal(before, after)


def test_the_order_of_vertices_changes_nothing() -> None:
    vertices, faces = bumpy()
    order = torch.randperm(len(vertices), generator=torch.manual_seed(1))
    plain = cells(vertices, faces)
    mixed = cells(vertices[order], torch.argsort(order)[faces.flip(0)])
    torch.testing.assert_close(plain[2], mixed[2], rtol=0, atol=1e-5)
    torch.testing.assert_close(plain[0][order], mixed[0], rtol=0, atol=1e-6)


def test_a_mesh_has_the_same_cells_alone_and_in_a_batch() -> None:
    (a, f), (b, g) = bumpy(1), two_balls()
    alone = cells(b, g)
    ptr = torch.tensor([0, len(a), len(a) + len(b)])
    both = cells(torch.cat([a, b]), torch.cat([f, g + len(a)]), ptr)
    assert torch.equal(both[0][len(a) :], alone[0])
    start, end = both[3][0, 1:].tolist()
    assert torch.equal(both[2][start:end], alone[2][: end - start])
    finest = both[5][:, : both[6][1]]
    assert torch.equal(finest[:, finest[1] >= start] - start, alone[5][:, : alone[6][1]])


def test_repeated_vertices_are_welded() -> None:
    vertices, faces = bumpy()
    soup = cells(vertices[faces].reshape(-1, 3), torch.arange(faces.numel()).view(-1, 3))
    torch.testing.assert_close(soup[2][:, 6].sum(), torch.tensor(3.0))
    torch.testing.assert_close(soup[0].view(-1, 3, 3), cells(vertices, faces)[0][faces])


def test_a_mesh_turned_inside_out_is_turned_back() -> None:
    vertices, faces = bumpy()
    torch.testing.assert_close(cells(vertices, faces.flip(1))[1], cells(vertices, faces)[1])


def test_pieces_hang_together() -> None:
    *_, edge_index, edge_ptr, _ = cells(*two_balls())
    seen, count = {0}, 0
    while count < len(seen):
        count = len(seen)
        seen |= {t for s, t in edge_index[:, : edge_ptr[1]].T.tolist() if s in seen}
    assert seen == set(range(60))


@pytest.mark.parametrize(
    ("vertices", "faces"),
    [
        ([[0, 0, 0]], []),
        ([[1, 2, 3]] * 4, [[0, 1, 2]]),
        ([[0, 0, 0], [1, 0, 0], [2, 0, 0]], [[0, 1, 2]]),
        ([[0, 0, 0], [1, 0, 0], [0, 1, 0], [5, 5, 5]], [[0, 1, 2], [0, 0, 1]]),
    ],
)
def test_meshes_that_are_hardly_any_still_have_cells(vertices, faces) -> None:
    out = cells(torch.tensor(vertices).float(), torch.tensor(faces).long().view(-1, 3))
    assert all(torch.isfinite(t).all() for t in out[:3])
    assert set(out[7][1].tolist()) == set(range(len(vertices)))


@native
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vertices": torch.zeros(3, 2)}, r"vertices must be \[V, 3\], got \[3, 2\]"),
        ({"vertices": torch.full((3, 3), torch.nan)}, "vertices must be finite"),
        ({"faces": torch.tensor([[0, 1, 3]])}, r"faces must lie in \[0, 3\), got 3 at 0"),
        ({"ptr": torch.tensor([0, 2])}, "ptr must run from 0 to 3"),
        ({"ptr": torch.tensor([0, 1, 3])}, "faces must stay within one mesh"),
        ({"sizes": [4, 8]}, "sizes must be positive and descend, got 8 at 1"),
        ({"variant": -1}, r"variant must lie in \[0, 1024\), got -1"),
        ({"longest": 0.0}, "longest must be positive, got 0"),
    ],
)
def test_bad_meshes_are_refused(change, message: str) -> None:
    given = {
        "vertices": torch.eye(3),
        "faces": torch.tensor([[0, 1, 2]]),
        "ptr": torch.tensor([0, 3]),
        "sizes": [4],
        "variant": 0,
        "longest": 0.5,
    }
    with pytest.raises(RuntimeError, match=message):
        torch.ops.splinecnn.hierarchy(**(given | change))


def landmarks() -> tuple[Tensor, ...]:
    """Three landmarks, four points of the reference between them."""
    candidate_ptr, candidate = torch.tensor([0, 2, 4, 6]), torch.tensor([0, 1, 2, 1, 3, 2])
    landmark = torch.tensor([[0, 1], [0, 1], [1, 2], [2, 1]])
    value = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6], [1.0, 0.0]])
    return candidate_ptr, candidate, landmark, value


def test_the_best_candidates_of_the_best_landmark_are_found() -> None:
    score = torch.tensor([[1.0, 0.0, 0.0], [0.6, 0.5, 0.0], [0.0, 0.5, 0.6]])
    index, value = torch.ops.splinecnn.match(score, *landmarks(), 2)
    assert index.tolist() == [[0, 1], [1, 0], [2, 3]]
    wanted = torch.tensor([[1.0, 0.6], [0.76, 0.6], [0.76, 0.6]])
    torch.testing.assert_close(value, wanted)


@native
def test_matches_are_those_of_the_judge() -> None:
    generator = torch.manual_seed(3)
    M, R, S = 20, 90, 6
    score = torch.rand(700, M, generator=generator)
    tables = (
        torch.arange(M + 1) * 30,
        torch.stack([torch.randperm(R, generator=generator)[:30] for _ in range(M)]).flatten(),
        torch.randint(M, (R, S), generator=generator),
        torch.rand(R, S, generator=generator),
    )
    index, value = torch.ops.splinecnn.match(score, *tables, 5)
    judged_index, judged_value = geodesic.match(score, *tables, 5)
    torch.testing.assert_close(value, judged_value)
    assert torch.equal(index, judged_index)


def test_more_matches_than_candidates_are_refused() -> None:
    with pytest.raises(RuntimeError, match="every landmark needs at least k = 3 candidates"):
        torch.ops.splinecnn.match(torch.ones(1, 3), *landmarks(), 3)


def test_shapes_are_known_without_running() -> None:
    vertices, faces = bumpy(0, 1)
    ptr = torch.tensor([0, len(vertices)])
    tests = ("test_schema", "test_faketensor")
    mesh = (vertices, faces, ptr, SIZES, 0, LONGEST)
    torch.library.opcheck(torch.ops.splinecnn.hierarchy.default, mesh, test_utils=tests)
    rows = (torch.rand(5, 3), *landmarks(), 1)
    torch.library.opcheck(torch.ops.splinecnn.match.default, rows, test_utils=tests)
