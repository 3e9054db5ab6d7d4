"""Clustering: the kernel against plain torch, number for number."""

import pytest
import torch
from torch import Tensor

import ops
from ops.pooling import pool

pytestmark = pytest.mark.skipif(not ops.NATIVE, reason="the compiled operator is not installed")


def random_batch(
    seed: int, graphs: int = 5, symmetric: bool = True, mixed: bool = False
) -> tuple[Tensor, Tensor]:
    """Graphs of 1 to 40 nodes with up to 150 random edges each, loops among them."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(1, 40, (graphs,), generator=generator)
    ptr = torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)])
    counts = torch.randint(0, 150, (graphs,), generator=generator).tolist()
    parts = [
        torch.randint(0, int(size), (2, count), generator=generator) + start
        for size, count, start in zip(sizes, counts, ptr[:-1], strict=True)
    ]
    edges = torch.cat(parts, 1)
    if symmetric:
        edges = torch.unique(torch.cat([edges, edges.flip(0)], 1).flip(0), dim=1).flip(0)
    if mixed:
        edges = edges[:, torch.randperm(edges.size(1), generator=generator)]
    return edges, ptr


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("matchings", [1, 2, 3])
def test_the_kernel_clusters_exactly_as_plain_torch_does(seed: int, matchings: int) -> None:
    edges, ptr = random_batch(seed, symmetric=seed % 2 == 0, mixed=seed % 3 == 0)
    expected = pool(edges, ptr, matchings, 8, seed)
    found = torch.ops.splinecnn.pool(edges, ptr, matchings, 8, seed)
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


@pytest.mark.parametrize("mixed", [False, True])
def test_many_graphs_are_clustered_so_by_any_number_of_threads(mixed: bool) -> None:
    edges, ptr = random_batch(1, graphs=150, mixed=mixed)
    assert edges.size(1) > 10_000  # worth several threads
    expected = pool(edges, ptr, 2, 8, 0)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            found = torch.ops.splinecnn.pool(edges, ptr, 2, 8, 0)
            assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    finally:
        torch.set_num_threads(before)


def test_one_large_graph_among_small_ones_keeps_its_place() -> None:
    small, small_ptr = random_batch(2, graphs=3)
    large = torch.randint(0, 500, (2, 9000), generator=torch.Generator().manual_seed(3))
    shift = int(small_ptr[-1])
    edges = torch.cat([small, large + shift, small + shift + 500], 1)
    ptr = torch.cat([small_ptr, small_ptr + shift + 500])
    expected = pool(edges, ptr, 2, 8, 0)
    found = torch.ops.splinecnn.pool(edges, ptr, 2, 8, 0)
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("node", [-1, 9])
def test_an_edge_to_no_node_is_told_by_its_place(row: int, node: int) -> None:
    edges = torch.tensor([[0, 1, 5], [1, 0, 4]])
    edges[row, 2] = node
    with pytest.raises(
        RuntimeError, match=rf"edge_index must lie in \[0, 9\), got {node} at \[{row}, 2\]"
    ):
        torch.ops.splinecnn.pool(edges, torch.tensor([0, 4, 9]), 2, 8, 0)
