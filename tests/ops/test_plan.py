"""The plan: every entry of the graph exactly once, sorted, whatever built it."""

import pytest
import torch
from op_cases import KERNELS, make_case, spline

from ops import reference, spline_plan
from ops.spline import Plan


def entries(plan: Plan | list[torch.Tensor], num_nodes: int) -> list[tuple[int, ...]]:
    """(target, weight, source, pair) of every entry in plan order."""
    coef, src, pair, row_ptr, row_node, group_ptr, group_weight, tile_ptr = plan[:8]
    tile_nodes = -(-num_nodes // max(1, tile_ptr.numel() - 1))
    found = []
    for t in range(tile_ptr.numel() - 1):
        for g in range(tile_ptr[t], tile_ptr[t + 1]):
            for r in range(group_ptr[g], group_ptr[g + 1]):
                assert t * tile_nodes <= row_node[r] < (t + 1) * tile_nodes
                for q in range(row_ptr[r], row_ptr[r + 1]):
                    found.append((row_node[r], group_weight[g], src[q], pair[q]))
    return [tuple(int(v) for v in entry) for entry in found]


@pytest.mark.parametrize("D, degree, is_open", [k for k in KERNELS if k[0] < 4])
def test_plan_holds_every_nonzero_pair_once(D, degree, is_open):
    case = make_case(D, degree, is_open, edges=60)
    plan = spline_plan(*spline(case))
    value, index = reference.basis(case.pseudo, case.kernel_size, case.is_open, degree)
    S = value.size(1)
    expected = {
        (int(case.edge_index[1, e]), int(index[e, s]), int(case.edge_index[0, e]), e * S + s)
        for e, s in torch.nonzero(value).tolist()
    }
    found = entries(plan, case.num_nodes)
    assert set(found) == expected and len(found) == len(expected)


def test_coefficients_are_averaged_over_the_edges_of_a_node():
    edge_index = torch.tensor([[0, 1, 2], [1, 1, 0]])
    pseudo = torch.tensor([[0.25], [0.75], [0.25]])
    plan = spline_plan(edge_index, pseudo, [2], [1], 1, 3)
    weight = {pair: float(c) for pair, c in zip(plan.pair.tolist(), plan.coef, strict=True)}
    assert weight == {0: 0.375, 1: 0.125, 2: 0.125, 3: 0.375, 4: 0.75, 5: 0.25}
    total = spline_plan(edge_index, pseudo, [2], [1], 1, 3, mean=False)
    assert sorted(total.coef.tolist()) == [0.25, 0.25, 0.25, 0.75, 0.75, 0.75]


def test_reversed_plan_is_the_plan_of_the_reversed_graph():
    case = make_case(2, 2, 2)
    plan = spline_plan(*spline(case), backward=True)
    forward = entries(plan, case.num_nodes)
    backward = entries(plan.back, case.num_nodes)
    # `pair` of the reversed plan says which entry of the plan an entry is
    assert {(s, w, t) for t, w, s, _ in forward} == {(t, w, s) for t, w, s, _ in backward}
    for target, weight, source, entry in backward:
        assert forward[entry][:3] == (source, weight, target)
    assert torch.equal(plan.back[0], plan.coef[plan.back[2].long()])


def test_zero_coefficients_are_kept_only_for_gradients():
    edge_index, pseudo = torch.tensor([[0], [1]]), torch.tensor([[0.0]])
    assert spline_plan(edge_index, pseudo, [3], [1], 1, 2).coef.tolist() == [1.0]
    with_gradient = spline_plan(edge_index, pseudo.clone().requires_grad_(), [3], [1], 1, 2)
    assert sorted(with_gradient.coef.tolist()) == [0.0, 1.0]


@pytest.mark.parametrize("nodes", [0, 5, 3000])
def test_graphs_without_edges_have_empty_plans(nodes):
    plan = spline_plan(
        torch.empty(2, 0, dtype=torch.long), torch.empty(0, 2), [3, 3], [1, 1], 1, nodes
    )
    assert plan.coef.numel() == 0 and plan.row_ptr.tolist() == [0]
    assert plan.tile_ptr.abs().sum() == 0
