"""Graclus-style clustering in plain torch: what CUDA runs, and the judge of the CPU kernel.

A matching pairs each node with at most one neighbour, by the normalised cut
w_ij (1 / d_i + 1 / d_j). In every round an edge that is the best one at both of its ends is taken,
so that all nodes of all graphs of a batch choose at once. Ties are broken by a hash of the two
nodes' numbers within their graph, never by their place in the batch.
"""

import torch
from torch import Tensor

WEIGHT_BITS = 17  # the cut of an edge, at most 2, is compared in steps of 2^-17
INDEX_BITS = 22  # nodes of one graph
PAIR_MASK = (1 << 2 * INDEX_BITS) - 1
MULTIPLIER = 0x9E3779B97F5  # odd, so that multiplying is one-to-one modulo 2^44


def edge_keys(source: Tensor, target: Tensor, local: Tensor, weight: Tensor, seed: int) -> Tensor:
    """One number per edge, the same for both directions of equal weight, else unique. [E]

    Higher is better: the cut first, then the hash.
    """
    degree = torch.zeros(local.numel(), dtype=torch.float64, device=local.device)
    degree = degree.index_add(0, source, weight).index_add(0, target, weight)
    cut = weight / degree[source] + weight / degree[target]
    step = torch.floor(cut * float(1 << WEIGHT_BITS)).long().clamp(max=2 << WEIGHT_BITS)
    a, b = local[source], local[target]
    pair = torch.minimum(a, b) * (1 << INDEX_BITS) + torch.maximum(a, b)
    multiplier = (MULTIPLIER * (2 * seed + 1)) & PAIR_MASK
    return step * (PAIR_MASK + 1) + ((pair * multiplier) & PAIR_MASK)


def match(
    source: Tensor, target: Tensor, local: Tensor, weight: Tensor, rounds: int, seed: int
) -> Tensor:
    """The partner of every node, or itself. [N]"""
    partner = torch.arange(local.numel(), device=local.device)
    single = torch.ones_like(partner, dtype=torch.bool)
    key = edge_keys(source, target, local, weight, seed)
    for _ in range(rounds):
        free = single[source] & single[target]
        offer = torch.where(free, key, -1)
        best = torch.full_like(partner, -1)
        best = best.scatter_reduce(0, target, offer, "amax").scatter_reduce(
            0, source, offer, "amax"
        )
        taken = free & (key == best[source]) & (key == best[target])
        s, t = source[taken], target[taken]
        partner[s], partner[t] = t, s
        single[s] = False
        single[t] = False
    return partner


def pool(
    edge_index: Tensor, ptr: Tensor, matchings: int, rounds: int, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Clusters of up to 2^matchings nodes, and the graph among them.

    Returns members [C, 2^matchings] (a smaller cluster names its nodes more than once), the edges
    [2, E'] between different clusters, each once, sorted by target and source, and the clusters'
    ptr [B + 1]. Clusters are numbered by their first member, so graphs stay in order.
    """
    num_nodes = int(ptr[-1])
    source, target = edge_index[0], edge_index[1]
    loops = source == target
    source, target = source[~loops], target[~loops]
    weight = torch.ones(source.numel(), dtype=torch.float64, device=ptr.device)
    members = torch.arange(num_nodes, device=ptr.device)[:, None]
    for _ in range(matchings):
        local = torch.arange(num_nodes, device=ptr.device) - torch.repeat_interleave(
            ptr[:-1], ptr[1:] - ptr[:-1]
        )
        partner = match(source, target, local, weight, rounds, seed)
        number = torch.arange(num_nodes, device=ptr.device)
        leads = partner >= number
        first = number[leads]
        count = torch.cat([ptr.new_zeros(1), leads.long().cumsum(0)])
        cluster = count[torch.minimum(number, partner)]
        members = torch.cat([members[first], members[partner[first]]], 1)
        ptr, num_nodes = count[ptr], first.numel()
        source, target = cluster[source], cluster[target]
        apart = source != target
        key, inverse = torch.unique(
            (target * max(num_nodes, 1) + source)[apart], return_inverse=True
        )
        weight = torch.zeros(key.numel(), dtype=torch.float64, device=ptr.device).index_add(
            0, inverse, weight[apart]
        )
        target = torch.div(key, max(num_nodes, 1), rounding_mode="floor")
        source = key - target * num_nodes
    return members, torch.stack([source, target]), ptr
