"""What torch must know of every operator: shapes, gradients, TorchScript, export."""

import ast
import io
from pathlib import Path

import pytest
import torch
from op_cases import compress, make_case, spline

import ops
from ops import Plan, fallback, linear_top_k, spline_conv, spline_plan

SCHEMAS = ast.literal_eval("[" + (Path(ops.__file__).parent / "schemas.inc").read_text() + "]")
NAMES = [schema.split("(")[0] for schema in SCHEMAS]
library = torch.ops.splinecnn


def calls() -> list[tuple[str, tuple]]:
    """One call of every operator of the convolution, small, with gradients where there are some."""
    case = make_case(2, 2, 2, torch.float64, nodes=6, edges=12, channels=(3, 4))
    K = case.weight.size(0)
    plan = spline_plan(*spline(case), backward=True)
    arrays = (plan.coef, plan.src, *plan[3:8])
    back = (plan.back[0], plan.back[1], *plan.back[3:])
    kernel = (case.kernel_size, case.is_open, case.degree)
    ptr, index, value = compress(torch.where(case.x > 0, case.x, 0.0))

    def leaf(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64).requires_grad_()

    x, weight, root, bias = leaf(6, 3), leaf(K, 3, 4), leaf(3, 4), leaf(4)
    grad, y = leaf(6, 4).detach(), leaf(6, K, 4)
    pseudo = (case.pseudo * 0.98 + 0.01).requires_grad_()
    return [
        ("basis", (pseudo, *kernel)),
        ("basis_grad", (torch.rand(12, 9, dtype=torch.float64), pseudo.detach(), *kernel)),
        ("plan", (case.edge_index, pseudo, *kernel, 6, 6, True, True)),
        ("transpose", (*arrays, 6, 6)),
        ("conv", (x, weight, root, bias, *arrays, 6, [])),
        ("conv", (x, weight, None, None, *arrays, 6, plan.back)),
        ("conv_weight_grad", (grad, x.detach(), *arrays, K)),
        ("conv_coef_grad", (grad, x.detach(), weight.detach(), *arrays)),
        ("gather", (y, bias, *arrays, 6, [])),
        ("gather_grad", (grad, *back, 6, K)),
        ("gather_coef_grad", (grad, y.detach(), *arrays)),
        ("spmm", (ptr, index, value, leaf(3, 5))),
        ("spmm_t", (ptr, index, None, leaf(6, 5).detach(), 3)),
        ("head", (x, leaf(7, 3), leaf(7), 2)),
    ]


CALLS = calls()


@pytest.mark.parametrize("number", range(len(CALLS)), ids=[name for name, _ in CALLS])
def test_operator_passes_torchs_own_check(number):
    name, arguments = CALLS[number]
    tests = ["test_schema", "test_faketensor", "test_autograd_registration"]
    if name not in ("plan", "transpose"):  # their output shapes depend on the data
        tests.append("test_aot_dispatch_dynamic")
    torch.library.opcheck(getattr(library, name).default, arguments, test_utils=tests)


@pytest.mark.parametrize("number", range(len(CALLS)), ids=[name for name, _ in CALLS])
def test_kernel_and_plain_torch_agree(number):
    name, arguments = CALLS[number]
    if name in ("plan", "transpose"):
        pytest.skip("tiles may differ; the plan's own tests compare what is in it")
    got, want = getattr(library, name)(*arguments), getattr(fallback, name)(*arguments)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("name", NAMES)
def test_every_operator_has_a_plain_torch_form(name):
    assert callable(getattr(fallback, name))


@pytest.mark.parametrize("name", [n for n in NAMES if n != "simd_level"])
def test_every_operator_has_a_shape_function(name):
    entry = torch._library.simple_registry.singleton.find(f"splinecnn::{name}")
    assert entry.fake_impl.kernel is not None


def test_every_gradient_is_registered():
    case = make_case()
    leaves = [
        t.clone().requires_grad_() for t in (case.x, case.weight, case.root, case.bias, case.pseudo)
    ]
    x, weight, root, bias, pseudo = leaves
    plan = spline_plan(case.edge_index, pseudo, case.kernel_size, case.is_open, 1, case.num_nodes)
    out = spline_conv(x, weight, plan, root, bias)
    value, _, logsumexp = linear_top_k(out, torch.randn(9, 32), None, 1)
    (value.sum() - logsumexp.sum()).backward()
    for leaf in leaves:
        assert leaf.grad is not None and leaf.grad.abs().sum() > 0


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(make_case().weight)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, pseudo: torch.Tensor):
        plan: Plan = spline_plan(edge_index, pseudo, [2, 3], [1, 1], 1, x.size(0))
        out = spline_conv(x, self.weight, plan)
        return linear_top_k(out, out[:5], None, 2)


def test_scripted_and_saved_module_gives_the_same():
    case, layer = make_case(), Layer()
    arguments = (case.x, case.edge_index, case.pseudo)
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(layer), file)
    file.seek(0)
    loaded = torch.jit.load(file)
    for got, want in zip(loaded(*arguments), layer(*arguments), strict=True):
        assert torch.equal(got, want)
    loaded(*arguments)[2].sum().backward()
    layer(*arguments)[2].sum().backward()
    assert torch.equal(loaded.weight.grad, layer.weight.grad)


def test_exported_module_gives_the_same_for_any_graph():
    case, layer = make_case(), Layer()
    nodes, edges = torch.export.Dim("nodes", min=5), torch.export.Dim("edges")
    program = torch.export.export(
        layer,
        (case.x, case.edge_index, case.pseudo),
        dynamic_shapes=({0: nodes}, {1: edges}, {0: edges}),
    )
    other = make_case(nodes=33, edges=120, seed=1)
    arguments = (other.x, other.edge_index, other.pseudo)
    for got, want in zip(program.module()(*arguments), layer(*arguments), strict=True):
        assert torch.equal(got, want)


def test_a_compiled_layer_gives_the_same_answers_and_gradients():
    case = make_case()
    plan = spline_plan(*spline(case), backward=True)

    def layer(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return ops.elu(spline_conv(x, weight, plan, case.root, case.bias)).square().sum()

    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    found = []
    for run in (layer, compiled):
        x, weight = (t.clone().requires_grad_() for t in (case.x, case.weight))
        out = run(x, weight)
        out.backward()
        found.append((out.detach(), x.grad, weight.grad))
    for expected, got in zip(*found, strict=True):
        assert torch.equal(expected, got)


def test_a_plan_can_be_made_in_compiled_code():
    case = make_case()

    def whole(edge_index: torch.Tensor, pseudo: torch.Tensor) -> torch.Tensor:
        plan = spline_plan(edge_index, pseudo, case.kernel_size, case.is_open, case.degree, 90)
        return spline_conv(case.x, case.weight, plan)

    compiled = torch.compile(whole, backend="aot_eager", fullgraph=True)
    expected = whole(case.edge_index, case.pseudo)
    assert torch.equal(compiled(case.edge_index, case.pseudo), expected)
