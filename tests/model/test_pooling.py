import pytest
import torch

import ops
from model.pooling import (
    average_pool,
    cell_index,
    cell_max_pool,
    cluster,
    max_pool,
    mean_pool,
)
from ops.pooling import match


def random_batch(seed: int, symmetric: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """Five graphs of 1 to 40 nodes with up to 150 random edges each, loops among them."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(1, 40, (5,), generator=generator)
    ptr = torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)])
    counts = torch.randint(0, 150, (5,), generator=generator).tolist()
    edges = torch.cat(
        [
            torch.randint(0, int(size), (2, count), generator=generator) + start
            for size, count, start in zip(sizes, counts, ptr[:-1], strict=True)
        ],
        1,
    )
    if symmetric:
        edges = torch.unique(torch.cat([edges, edges.flip(0)], 1), dim=1)
    return edges, ptr


@pytest.mark.parametrize("seed", range(5))
def test_a_matching_pairs_neighbours_and_leaves_no_two_free_ones(seed):
    edges, ptr = random_batch(seed)
    source, target = edges[:, edges[0] != edges[1]]
    number = torch.arange(int(ptr[-1]))
    local = number - ptr[torch.bucketize(number, ptr[1:], right=True)]
    partner = match(source, target, local, torch.ones(len(source), dtype=torch.float64), 64, 0)
    assert torch.equal(partner[partner], number)
    pairs = set(zip(source.tolist(), target.tolist(), strict=True))
    assert all((a, b) in pairs for a, b in enumerate(partner.tolist()) if a != b)
    single = partner == number
    assert not (single[source] & single[target]).any()


@pytest.mark.parametrize("seed", range(5))
def test_clusters_are_a_partition_within_each_graph(seed):
    edges, ptr = random_batch(seed)
    members, coarse, coarse_ptr = cluster(edges, ptr)
    assert members.unique().tolist() == list(range(int(ptr[-1])))
    sizes = [len(set(row)) for row in members.tolist()]
    assert sum(sizes) == int(ptr[-1]) and max(sizes) <= 4
    graph = torch.bucketize(members, ptr[1:], right=True)
    assert (graph == graph[:, :1]).all()
    counts = torch.bincount(graph[:, 0], minlength=5)
    assert coarse_ptr.tolist() == [0, *counts.cumsum(0).tolist()]
    owner = torch.empty(int(ptr[-1]), dtype=torch.long)
    owner[members] = torch.arange(len(members))[:, None].expand(-1, 4)
    between = {(int(a), int(b)) for a, b in owner[edges].T if a != b}
    assert list(map(tuple, coarse.T.tolist())) == sorted(between, key=lambda e: (e[1], e[0]))


def test_a_graph_is_clustered_the_same_alone_and_in_a_batch():
    edges, ptr = random_batch(3)
    members, _, coarse_ptr = cluster(edges, ptr)
    for g in range(5):
        start, end = int(ptr[g]), int(ptr[g + 1])
        own = edges[:, (edges[0] >= start) & (edges[0] < end)] - start
        alone, _, _ = cluster(own, torch.tensor([0, end - start]))
        assert torch.equal(alone + start, members[coarse_ptr[g] : coarse_ptr[g + 1]])


def test_another_seed_clusters_another_way():
    edges, ptr = random_batch(0)
    assert not torch.equal(cluster(edges, ptr, 0)[0][:20], cluster(edges, ptr, 1)[0][:20])


def test_nodes_without_edges_stay_single():
    members, edges, ptr = cluster(torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, 2, 3]))
    assert members.tolist() == [[0] * 4, [1] * 4, [2] * 4]
    assert edges.shape == (2, 0) and ptr.tolist() == [0, 2, 3]


@pytest.mark.skipif(not ops.NATIVE, reason="the compiled operator is not installed")
@pytest.mark.parametrize(
    "edges, ptr, message",
    [
        ([[0], [7]], [0, 2], r"edge_index must lie in \[0, 2\), got 7 at \[1, 0\]"),
        ([[-1], [0]], [0, 2], r"got -1 at \[0, 0\]"),
        ([[0], [1]], [0, 3, 2], "ptr must rise"),
        ([[0], [1]], [1, 2], "ptr must start with 0"),
        ([0, 1], [0, 2], r"edge_index must be \[2, E\], got \[2\]"),
    ],
)
def test_clustering_refuses_indices_that_do_not_exist(edges, ptr, message):
    with pytest.raises(RuntimeError, match=message):
        cluster(torch.tensor(edges), torch.tensor(ptr))


def test_the_operator_tells_torch_its_shapes():
    edges, ptr = random_batch(0)
    torch.library.opcheck(torch.ops.splinecnn.pool.default, (edges, ptr, 2, 8, 0))


def test_max_pool_takes_the_largest_and_mean_pool_counts_each_node_once():
    x = torch.tensor([[1.0, -5], [3, -6], [9, -7]])
    members = torch.tensor([[0, 1, 0, 1], [2, 2, 2, 2]])
    assert max_pool(x, members).tolist() == [[3, -5], [9, -7]]
    assert mean_pool(x, members).tolist() == [[2, -5.5], [9, -7]]


def test_mean_pool_of_three_nodes_is_their_mean():
    x = torch.tensor([[0.0], [3.0], [6.0]])
    assert mean_pool(x, torch.tensor([[0, 1, 2, 2]])).tolist() == [[3]]
    assert mean_pool(x, torch.tensor([[0, 0, 1, 2]])).tolist() == [[3]]


def test_gradients_of_max_pool_reach_the_winner_only():
    x = torch.tensor([[1.0], [3.0]], requires_grad=True)
    max_pool(x, torch.tensor([[0, 1, 0, 1]])).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[0], [1]]


def test_average_pool_is_the_mean_of_each_graph():
    x = torch.tensor([[1.0], [3.0], [10.0]])
    assert average_pool(x, torch.tensor([0, 2, 3])).tolist() == [[2], [10]]


def test_cells_are_numbered_row_by_row_and_graph_by_graph():
    positions = torch.tensor([[0.0, 0], [3, 1], [1, 2], [99, 99]])
    assert cell_index(positions, torch.tensor([0, 3, 4]), 2.0, 2).tolist() == [0, 1, 2, 7]
    pooled = cell_max_pool(torch.tensor([[-1.0], [-2], [-3], [4]]), torch.tensor([0, 0, 2, 2]), 3)
    assert pooled.tolist() == [[-1], [0], [4]]
