"""Spline convolution against the reference, its gradients, and what it must equal elsewhere."""

import pytest
import torch
from op_cases import KERNELS, TOLERANCE, Case, compress, make_case, spline

from ops import reference, spline_conv, spline_conv_sparse, spline_plan


def expected(case: Case, mean: bool = True) -> torch.Tensor:
    return reference.spline_conv(
        case.x, case.edge_index, case.pseudo, case.weight, case.kernel_size, case.is_open,
        case.degree, case.num_nodes, mean, case.root, case.bias,
    )  # fmt: skip


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got, want, rtol=0, atol=TOLERANCE[got.dtype] * 3)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("D, degree, is_open", KERNELS)
def test_convolution_equals_the_reference(D, degree, is_open, dtype):
    case = make_case(D, degree, is_open, dtype)
    plan = spline_plan(*spline(case))
    close(spline_conv(case.x, case.weight, plan, case.root, case.bias), expected(case))


@pytest.mark.parametrize("D, degree", [(5, 2), (9, 1)])
def test_any_number_of_dimensions_works(D, degree):
    case = make_case(D, degree, 2, torch.float64, nodes=4, edges=6, channels=(2, 3))
    leaves = [t.requires_grad_() for t in (case.x, case.pseudo, case.weight)]
    got = spline_conv(case.x, case.weight, spline_plan(*spline(case)), case.root, case.bias)
    want = expected(case)
    close(got, want)
    grad = torch.cos(want).detach()
    for ours, theirs in zip(
        torch.autograd.grad(got, leaves, grad), torch.autograd.grad(want, leaves, grad), strict=True
    ):
        close(ours, theirs)


@pytest.mark.parametrize("M_in", [1, 2, 3, 16, 65, 130])
@pytest.mark.parametrize("M_out", [1, 2, 3, 5, 15, 17, 31, 63, 100])
def test_any_number_of_channels_works(M_in, M_out):
    case = make_case(channels=(M_in, M_out))
    close(spline_conv(case.x, case.weight, spline_plan(*spline(case)), case.root, case.bias),
          expected(case))  # fmt: skip


def test_sum_instead_of_mean_and_two_node_sets():
    case = make_case(dtype=torch.float64, edges=500)
    targets = case.edge_index[1] % 7
    edge_index = torch.stack([case.edge_index[0], targets])
    plan = spline_plan(edge_index, case.pseudo, case.kernel_size, case.is_open, 1, 7, 90, False)
    want = reference.spline_conv(
        case.x, edge_index, case.pseudo, case.weight, case.kernel_size, case.is_open, 1, 7, False
    )
    close(spline_conv(case.x, case.weight, plan), want)


@pytest.mark.parametrize("with_value", [False, True])
def test_sparse_features_give_what_dense_ones_give(with_value):
    case = make_case(channels=(40, 9), dtype=torch.float64)
    dense = (case.x > 1) * (case.x if with_value else torch.ones_like(case.x))
    ptr, index, value = compress(dense)
    plan = spline_plan(*spline(case))
    for integer in (torch.int64, torch.int32):
        got = spline_conv_sparse(
            ptr.to(integer), index.to(integer), value if with_value else None,
            case.weight, plan, case.root, case.bias,
        )  # fmt: skip
        close(got, expected(case._replace(x=dense)))


@pytest.mark.parametrize("k, reach", [(3, 1), (5, 2)])
def test_convolution_on_a_grid_is_conv2d(k, reach):
    # one spline weight per pixel offset: u = offset / (2 * reach) + 1/2 lies on the knots
    H, W, C_in, C_out = 6, 7, 3, 8
    pixel = torch.arange(H * W).view(H, W)
    source, target, pseudo = [], [], []
    for dy in range(-reach, reach + 1):
        for dx in range(-reach, reach + 1):
            here = pixel[max(0, -dy) : H - max(0, dy), max(0, -dx) : W - max(0, dx)].flatten()
            target.append(here)
            source.append(here + dy * W + dx)
            offset = torch.tensor([dx, dy]) / (2 * reach) + 0.5
            pseudo.append(offset.double().expand(here.numel(), 2))
    edge_index = torch.stack([torch.cat(source), torch.cat(target)])
    image = torch.randn(C_in, H, W, dtype=torch.float64)
    weight = torch.randn(k * k, C_in, C_out, dtype=torch.float64)
    plan = spline_plan(edge_index, torch.cat(pseudo), [k, k], [1, 1], 1, H * W)
    got = spline_conv(image.flatten(1).T, weight, plan)
    kernel = weight.view(k, k, C_in, C_out).permute(3, 2, 0, 1)
    want = torch.nn.functional.conv2d(image[None], kernel, padding=reach)[0].flatten(1).T
    close(got * torch.bincount(edge_index[1])[:, None], want)


def test_isolated_nodes_get_root_and_bias_only():
    case = make_case(dtype=torch.float64)
    plan = spline_plan(
        torch.empty(2, 0, dtype=torch.long), torch.empty(0, 2).double(), [3, 3], [1, 1], 1, 90
    )
    got = spline_conv(case.x, torch.zeros(9, 64, 32).double(), plan, case.root, case.bias)
    close(got, case.x @ case.root + case.bias)


def test_graph_without_nodes_works():
    plan = spline_plan(torch.empty(2, 0, dtype=torch.long), torch.empty(0, 1), [3], [1], 1, 0)
    assert spline_conv(torch.empty(0, 4), torch.ones(3, 4, 5), plan).shape == (0, 5)


def test_duplicate_edges_count_twice():
    case = make_case(dtype=torch.float64)
    doubled = case._replace(
        edge_index=torch.cat([case.edge_index, case.edge_index], 1),
        pseudo=torch.cat([case.pseudo, case.pseudo]),
    )
    got = [
        spline_conv(case.x, case.weight, spline_plan(*spline(c), mean=False))
        for c in (case, doubled)
    ]
    close(got[1], 2 * got[0])


def test_long_sums_are_rounded_less_than_in_plain_torch():
    torch.manual_seed(0)
    N, E = 40, 1200
    edge_index, pseudo = torch.randint(0, N, (2, E)), torch.rand(E, 2)
    x, weight = torch.randn(N, 64) + 1, torch.randn(25, 64, 16) + 0.5

    def ours(dtype):
        plan = spline_plan(edge_index, pseudo.to(dtype), [5, 5], [1, 1], 1, N)
        return spline_conv(x.to(dtype), weight.to(dtype), plan)

    plain = reference.spline_conv(
        x, edge_index, pseudo, weight, [5, 5], [1, 1], 1, N, True, None, None
    )
    exact = ours(torch.float64)
    assert (ours(torch.float32) - exact).abs().mean() < (plain - exact).abs().mean()


def test_hub_of_a_hundred_thousand_neighbours_works():
    E = 100_000
    case = make_case(nodes=1000, edges=E, channels=(4, 4), dtype=torch.float64)
    case.edge_index[1] = 3
    plan = spline_plan(*spline(case), backward=True)
    weight = case.weight.clone().requires_grad_()
    out = spline_conv(case.x, weight, plan, case.root, case.bias)
    close(out, expected(case))
    out.sum().backward()
    assert weight.grad.isfinite().all() and weight.grad.abs().sum() > 0


@pytest.mark.parametrize("D, degree, is_open", [(1, 1, 0), (2, 2, 2), (3, 1, 1), (2, 3, 1)])
def test_gradients_are_right(D, degree, is_open):
    case = make_case(D, degree, is_open, torch.float64, nodes=5, edges=8, channels=(3, 2))
    pseudo = case.pseudo[3:] * 0.98 + 0.01
    edge_index = case.edge_index[:, 3:]

    def run(x, pseudo, weight, root, bias):
        plan = spline_plan(edge_index, pseudo, case.kernel_size, case.is_open, degree, 5)
        return spline_conv(x, weight, plan, root, bias)

    inputs = [
        t.clone().requires_grad_() for t in (case.x, pseudo, case.weight, case.root, case.bias)
    ]
    assert torch.autograd.gradcheck(run, inputs)


def test_gradients_of_sparse_features_are_right():
    case = make_case(nodes=5, edges=12, channels=(6, 2), dtype=torch.float64)
    ptr, index, value = compress(torch.where(case.x > 0.5, case.x, 0.0))

    def run(pseudo, weight, root, bias):
        plan = spline_plan(case.edge_index, pseudo, case.kernel_size, case.is_open, 1, 5)
        return spline_conv_sparse(ptr, index, value, weight, plan, root, bias)

    pseudo = case.pseudo * 0.98 + 0.013
    inputs = [t.clone().requires_grad_() for t in (pseudo, case.weight, case.root, case.bias)]
    assert torch.autograd.gradcheck(run, inputs)
