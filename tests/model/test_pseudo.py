import pytest
import torch

from model.pseudo import cartesian, degree, open_dimensions, polar, pseudo_coordinates, spherical

PTR = torch.tensor([0, 2])
EDGE = torch.tensor([[0], [1]])  # a message from node 0 to node 1


def place(offset: list[float]) -> torch.Tensor:
    """Two nodes, the first at `offset` from the second."""
    return torch.tensor([offset, [0.0] * len(offset)])


@pytest.mark.parametrize(
    "offset, expected",
    [([2, 0], [1, 0.5]), ([-2, 1], [0, 0.75]), ([0, 0], [0.5, 0.5]), ([1, 1, -1], [1, 1, 0])],
)
def test_cartesian_is_the_offset_over_twice_the_largest_plus_a_half(offset, expected):
    assert cartesian(place(offset), EDGE, PTR).tolist() == [expected]


@pytest.mark.parametrize(
    "offset, angle",
    [([1, 0], 0), ([1, 1], 1 / 8), ([0, 2], 1 / 4), ([-1, 0], 1 / 2), ([0, -1], 3 / 4),
     ([1, -1], 7 / 8)],
)  # fmt: skip
def test_polar_is_distance_and_the_fraction_of_a_turn(offset, angle):
    (found,) = polar(place(offset), EDGE, PTR).tolist()
    assert found == pytest.approx([1, angle], abs=1e-6)


@pytest.mark.parametrize(
    "offset, angles",
    [([0, 0, 1], [0, 0]), ([0, 0, -3], [0, 1]), ([1, 0, 0], [0, 0.5]), ([0, -2, 0], [0.75, 0.5]),
     ([1, 0, 1], [0, 0.25])],
)  # fmt: skip
def test_spherical_is_distance_azimuth_and_inclination(offset, angles):
    (found,) = spherical(place(offset), EDGE, PTR).tolist()
    assert found == pytest.approx([1, *angles], abs=1e-6)


def test_degree_is_that_of_the_source_over_the_largest():
    star = torch.tensor([[0, 0, 0, 1, 2, 3], [1, 2, 3, 0, 0, 0]])
    found = degree(star, torch.tensor([0, 4]), 4)
    assert torch.allclose(found[:, 0], torch.tensor([1, 1, 1, 1 / 3, 1 / 3, 1 / 3]))


@pytest.mark.parametrize(
    "kind, width", [("cartesian", 2), ("cartesian", 3), ("polar", 2), ("spherical", 3)]
)
def test_coordinates_stay_in_the_unit_cube_and_do_not_depend_on_the_batch(kind, width):
    positions = [torch.randn(20, width) * scale for scale in (1, 1e-3, 1e6)]
    edges = [torch.randint(0, 20, (2, 60)) for _ in positions]
    alone = [
        pseudo_coordinates(kind, p, e, torch.tensor([0, 20]))
        for p, e in zip(positions, edges, strict=True)
    ]
    shifted = torch.cat([e + 20 * i for i, e in enumerate(edges)], 1)
    together = pseudo_coordinates(kind, torch.cat(positions), shifted, torch.arange(0, 61, 20))
    assert torch.equal(together, torch.cat(alone))
    assert together.min() >= 0 and together.max() <= 1


def test_coordinates_of_coinciding_points_are_numbers():
    zero = torch.zeros(2, 3)
    assert cartesian(zero, EDGE, PTR).tolist() == [[0.5, 0.5, 0.5]]
    assert spherical(zero, EDGE, PTR).isfinite().all()
    assert polar(zero[:, :2], EDGE, PTR).tolist() == [[0, 0]]


def test_a_graph_without_edges_has_no_coordinates():
    none = torch.zeros(2, 0, dtype=torch.long)
    assert cartesian(torch.zeros(2, 3), none, PTR).shape == (0, 3)
    assert degree(none, PTR, 2).shape == (0, 1)


def test_angles_are_closed_and_everything_else_open():
    assert open_dimensions("cartesian", 3) == [1, 1, 1]
    assert open_dimensions("polar", 2) == [1, 0]
    assert open_dimensions("spherical", 3) == [1, 0, 0]
    assert open_dimensions("degree", 1) == [1]
    with pytest.raises(ValueError, match="polar pseudo-coordinates have 2 dimensions"):
        open_dimensions("polar", 3)
    with pytest.raises(ValueError, match="unknown pseudo-coordinates: angle"):
        open_dimensions("angle", 2)


def test_scripted_coordinates_are_the_same_bits():
    positions, edges = torch.randn(9, 2), torch.randint(0, 9, (2, 30))
    scripted = torch.jit.script(pseudo_coordinates)
    for kind in ("cartesian", "polar", "degree"):
        arguments = (kind, positions, edges, torch.tensor([0, 9]))
        assert torch.equal(scripted(*arguments), pseudo_coordinates(*arguments))
