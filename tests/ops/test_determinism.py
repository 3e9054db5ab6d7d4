"""The same bits for any number of threads, alone or in a batch, and nearly so at any SIMD level."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from op_cases import make_case, spline

import ops
from ops import linear_top_k, spline_conv, spline_plan

pytestmark = pytest.mark.skipif(not ops.NATIVE, reason="a promise of the compiled kernels")


@pytest.fixture(autouse=True)
def keep_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def everything() -> list[torch.Tensor]:
    """Outputs and all gradients of a layer and a head, the graph large enough for many tiles."""
    case = make_case(3, nodes=4000, edges=24000, channels=(24, 40))
    x, pseudo, weight, root, bias = (
        t.clone().requires_grad_() for t in (case.x, case.pseudo, case.weight, case.root, case.bias)
    )
    plan = spline_plan(case.edge_index, pseudo, case.kernel_size, case.is_open, 1, 4000)
    out = spline_conv(x, weight, plan, root, bias)
    value, index, logsumexp = linear_top_k(out, case.weight.view(-1, 40)[:500], None, 3)
    out.backward(torch.cos(case.x[:, :1] * case.bias))
    grads = [t.grad for t in (x, pseudo, weight, root, bias)]
    assert all(g is not None for g in grads)
    return [out.detach(), value.detach(), index, logsumexp.detach(), *grads]


@pytest.mark.parametrize("threads", [2, 3])
def test_bits_do_not_depend_on_the_number_of_threads(threads):
    torch.set_num_threads(1)
    alone = everything()
    torch.set_num_threads(threads)
    for one, many in zip(alone, everything(), strict=True):
        assert torch.equal(one, many)


def test_a_graph_alone_and_in_a_batch_gives_the_same_bits():
    cases = [make_case(2, nodes=30 + 7 * i, edges=150 + 41 * i, seed=i) for i in range(20)]
    offset = torch.tensor([0] + [c.num_nodes for c in cases]).cumsum(0)
    edge_index = torch.cat([c.edge_index + o for c, o in zip(cases, offset[:-1], strict=True)], 1)
    first = cases[0]
    plan = spline_plan(
        edge_index, torch.cat([c.pseudo for c in cases]), first.kernel_size, first.is_open, 1,
        int(offset[-1]),
    )  # fmt: skip
    together = spline_conv(
        torch.cat([c.x for c in cases]), first.weight, plan, first.root, first.bias
    )
    classes = torch.randn(700, 32)
    scores = linear_top_k(together, classes, None, 2)
    for i, case in enumerate(cases):
        rows = slice(int(offset[i]), int(offset[i + 1]))
        alone = spline_conv(
            case.x, first.weight, spline_plan(*spline(case)), first.root, first.bias
        )
        assert torch.equal(alone, together[rows])
        for one, many in zip(linear_top_k(alone, classes, None, 2), scores, strict=True):
            assert torch.equal(one, many[rows])


@pytest.mark.parametrize("channels", [(1, 32), (3, 5), (40, 24)])
def test_a_hub_in_the_same_batch_changes_no_bits(channels):
    small = make_case(2, nodes=40, edges=200, channels=channels)
    hub = make_case(2, nodes=3, edges=3000, channels=channels, seed=1)
    edge_index = torch.cat([small.edge_index, hub.edge_index + 40], 1)
    plan = spline_plan(
        edge_index, torch.cat([small.pseudo, hub.pseudo]), small.kernel_size, small.is_open, 1, 43
    )
    together = spline_conv(torch.cat([small.x, hub.x]), small.weight, plan, small.root, small.bias)
    for case, rows in ((small, slice(0, 40)), (hub, slice(40, 43))):
        alone = spline_conv(
            case.x, small.weight, spline_plan(*spline(case)), small.root, small.bias
        )
        assert torch.equal(alone, together[rows])


def test_rows_without_entries_are_zero():
    case = make_case(2, nodes=40, edges=200, channels=(40, 24))
    plan = spline_plan(*spline(case))
    want = spline_conv(case.x, case.weight, plan)
    row_ptr = plan.row_ptr.clone()
    row_ptr[5] = row_ptr[4]  # the fourth row gives its entries to the fifth, and keeps none
    found = spline_conv(case.x, case.weight, plan._replace(row_ptr=row_ptr))
    nodes = plan.row_node[4:6]
    same = torch.ones(40, dtype=torch.bool)
    same[nodes] = False
    assert torch.equal(found[same], want[same])
    assert torch.isfinite(found).all() and not torch.equal(found, want)


RUN = """
import json, sys, torch, ops
sys.path.insert(0, sys.argv[1])
from op_cases import make_case, spline
case = make_case(3, nodes=100, edges=600, channels=(70, 45))
out = ops.spline_conv(case.x, case.weight, ops.spline_plan(*spline(case)), case.root, case.bias)
value, index, logsumexp = ops.linear_top_k(out, case.weight.view(-1, 45)[:300], None, 1)
print(json.dumps([torch.ops.splinecnn.simd_level(), out.tolist(), logsumexp.tolist()]))
"""


def test_simd_levels_agree_and_can_be_chosen():
    here = os.path.dirname(__file__)
    results = {}
    for wish in ("baseline", "avx2", "avx512"):
        done = subprocess.run(
            [sys.executable, "-c", RUN, here],
            env={**os.environ, "SPLINECNN_SIMD": wish, "OMP_NUM_THREADS": "1"},
            cwd=os.path.dirname(os.path.dirname(here)),
            capture_output=True,
            text=True,
            check=True,
        )
        level, out, logsumexp = json.loads(done.stdout)
        results[level] = torch.tensor(out), torch.tensor(logsumexp)
    assert "baseline" in results
    for out, logsumexp in results.values():
        torch.testing.assert_close(out, results["baseline"][0], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(logsumexp, results["baseline"][1], rtol=1e-5, atol=1e-4)


def test_unknown_simd_level_is_refused():
    done = subprocess.run(
        [sys.executable, "-c", "import torch, ops; torch.ops.splinecnn.simd_level()"],
        env={**os.environ, "SPLINECNN_SIMD": "mmx"},
        cwd=os.path.dirname(os.path.dirname(os.path.dirname(__file__))),
        capture_output=True,
        text=True,
    )
    assert "SPLINECNN_SIMD must be baseline, avx2 or avx512, got mmx" in done.stderr
