"""Offsets of edges and means of clusters: the kernels against plain torch, to the last bit."""

import pytest
import torch
from torch import Tensor

import ops
from ops import positions as plain

library = torch.ops.splinecnn


def batch(dtype: torch.dtype = torch.float32, dimensions: int = 2) -> tuple[Tensor, ...]:
    """Three graphs, the second without an extent, the last without edges."""
    generator = torch.Generator().manual_seed(1)
    ptr = torch.tensor([0, 40, 43, 45])
    places = torch.randn(45, dimensions, generator=generator, dtype=torch.float64).to(dtype)
    places[40:43] = 1.5
    first = torch.randint(0, 40, (2, 300), generator=generator)
    second = torch.randint(40, 43, (2, 9), generator=generator)
    edges = torch.cat([first, second], 1)
    return places, edges[:, torch.randperm(309, generator=generator)], ptr


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_offsets_have_the_bits_of_plain_torch(dtype: torch.dtype, dimensions: int) -> None:
    case = batch(dtype, dimensions)
    assert torch.equal(library.cartesian(*case), plain.cartesian(*case))


def test_many_edges_have_them_for_any_number_of_threads():
    places, edges, ptr = batch()
    case = places, edges.repeat(1, 200), ptr
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            assert torch.equal(library.cartesian(*case), plain.cartesian(*case))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_means_have_the_bits_of_plain_torch(dtype: torch.dtype) -> None:
    places = batch(dtype)[0]
    members = torch.tensor([[0, 1, 2, 3], [4, 4, 4, 4], [5, 6, 6, 5], [7, 8, 9, 9]])
    assert torch.equal(library.cluster_mean(places, members), plain.cluster_mean(places, members))


def test_nothing_at_all_is_fine():
    none = torch.zeros(2, 0, dtype=torch.long)
    assert library.cartesian(torch.zeros(0, 2), none, torch.zeros(1, dtype=torch.long)).shape == (
        0, 2,
    )  # fmt: skip
    assert library.cluster_mean(torch.zeros(3, 2), none.view(0, 4)).shape == (0, 2)


def test_gradients_reach_the_positions():
    places, edges, ptr = batch(torch.float64)
    places = places[:40].clone().requires_grad_()
    edges, ptr = edges[:, (edges < 40).all(0)], ptr[:2]
    assert torch.autograd.gradcheck(lambda x: library.cartesian(x, edges, ptr), places)
    members = torch.tensor([[0, 1, 2, 3], [4, 4, 4, 4], [5, 6, 6, 5]])
    assert torch.autograd.gradcheck(lambda x: library.cluster_mean(x, members), places)


@pytest.mark.skipif(not ops.NATIVE, reason="the operator is not compiled")
@pytest.mark.parametrize(
    "change, message",
    [
        ({"places": torch.zeros(45)}, r"positions must be \[N, D\], got \[45\]"),
        ({"places": torch.zeros(45, 2).half()}, "positions must be float32 or float64"),
        ({"edges": torch.zeros(2, 3).int()}, "edge_index must be int64, got int32"),
        ({"edges": torch.zeros(3, 2).long()}, "edge_index must have size 2 in dimension 0"),
        ({"edges": torch.tensor([[0, 45], [1, 2]])}, r"\[0, 45\), got 45 at \[0, 1\]"),
        ({"edges": torch.tensor([[0, 4], [1, -2]])}, r"\[0, 45\), got -2 at \[1, 1\]"),
        ({"ptr": torch.tensor([0, 44])}, "ptr must run from 0 to 45"),
        ({"ptr": torch.tensor([0, 50, 45])}, "ptr must not decrease, got 0 and 50 at 1"),
        ({"ptr": torch.zeros(0).long()}, "ptr must run from 0 to 45"),
    ],
)
def test_bad_arguments_are_named(change: dict[str, Tensor], message: str) -> None:
    case = dict(zip(("places", "edges", "ptr"), batch(), strict=True))
    with torch.inference_mode(), pytest.raises(RuntimeError, match=message):
        library.cartesian(*(case | change).values())


@pytest.mark.skipif(not ops.NATIVE, reason="the operator is not compiled")
def test_members_must_exist():
    with pytest.raises(RuntimeError, match=r"members must lie in \[0, 3\), got 3 at 1"):
        library.cluster_mean(torch.zeros(3, 2), torch.tensor([[0, 3]]))


@pytest.mark.parametrize("name", ["cartesian", "cluster_mean"])
def test_torchs_own_check(name: str) -> None:
    places, edges, ptr = batch(torch.float64)
    rest = (edges, ptr) if name == "cartesian" else (torch.tensor([[0, 1], [2, 2]]),)
    operator = getattr(library, name).default
    torch.library.opcheck(operator, (places.requires_grad_(), *rest))
