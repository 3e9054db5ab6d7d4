"""B-spline values and weight indices, by hand and against the reference."""

import pytest
import torch
from op_cases import KERNELS, TOLERANCE, make_case

from ops import reference, spline_basis

# pseudo, kernel_size, is_open, degree -> values, weight indices; worked by hand
TABLE = [
    ([0.0], [5], [1], 1, [1, 0], [0, 1]),
    ([0.3125], [5], [1], 1, [0.75, 0.25], [1, 2]),
    ([1.0], [5], [1], 1, [0, 1], [3, 4]),
    ([0.0625], [4], [0], 1, [0.75, 0.25], [0, 1]),
    ([0.9375], [4], [0], 1, [0.25, 0.75], [3, 0]),
    ([1.0], [4], [0], 1, [0, 1], [3, 0]),
    ([0.0], [4], [1], 2, [0.5, 0.5, 0], [0, 1, 2]),
    ([0.25], [4], [1], 2, [0.125, 0.75, 0.125], [0, 1, 2]),
    ([0.5], [4], [1], 2, [0.5, 0.5, 0], [1, 2, 3]),
    ([0.875], [4], [0], 2, [0.125, 0.75, 0.125], [3, 0, 1]),
    ([0.0], [4], [1], 3, [1 / 6, 4 / 6, 1 / 6, 0], [0, 1, 2, 3]),
    ([0.5], [4], [1], 3, [1 / 48, 23 / 48, 23 / 48, 1 / 48], [0, 1, 2, 3]),
    ([1.0], [5], [0], 3, [0, 1 / 6, 4 / 6, 1 / 6], [4, 0, 1, 2]),
    # the first dimension varies fastest, in values and in indices
    ([0.25, 0.125], [3, 5], [1, 1], 1, [0.25, 0.25, 0.25, 0.25], [0, 1, 3, 4]),
    ([0.125, 0.25], [3, 4], [1, 0], 1, [0.75, 0.25, 0, 0], [3, 4, 6, 7]),
]


@pytest.mark.parametrize("pseudo, kernel_size, is_open, degree, value, index", TABLE)
def test_basis_is_what_was_worked_out_by_hand(pseudo, kernel_size, is_open, degree, value, index):
    got, weights = spline_basis(
        torch.tensor([pseudo], dtype=torch.float64), kernel_size, is_open, degree
    )
    torch.testing.assert_close(got[0], torch.tensor(value, dtype=torch.float64))
    assert weights[0].tolist() == index


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("D, degree, is_open", KERNELS)
def test_basis_equals_the_reference_and_sums_to_one(D, degree, is_open, dtype):
    case = make_case(D, degree, is_open, dtype)
    arguments = (case.pseudo, case.kernel_size, case.is_open, degree)
    value, index = spline_basis(*arguments)
    expected, expected_index = reference.basis(*arguments)
    torch.testing.assert_close(value, expected, rtol=0, atol=TOLERANCE[dtype])
    assert torch.equal(index, expected_index)
    torch.testing.assert_close(value.sum(1), torch.ones_like(value[:, 0]))
    assert 0 <= int(index.min()) <= int(index.max()) < case.weight.size(0)


@pytest.mark.parametrize("D, degree", [(8, 3), (15, 1), (18, 1)])
def test_any_number_of_dimensions_has_a_basis(D, degree):
    random = torch.Generator().manual_seed(D)
    arguments = (torch.rand(3, D, generator=random), [degree + 1] * D, [1] * D, degree)
    value, index = spline_basis(*arguments)
    expected, expected_index = reference.basis(*arguments)
    torch.testing.assert_close(value, expected)
    assert torch.equal(index, expected_index)
    torch.testing.assert_close(value.sum(1), torch.ones(3))


@pytest.mark.parametrize("D, degree, is_open", KERNELS)
def test_basis_gradient_is_right(D, degree, is_open):
    # away from the knots, where linear splines have no slope
    intervals = 2 if D < 4 else 1
    kernel_size = [degree + intervals] * D
    random = torch.Generator().manual_seed(1)
    inner = 0.2 + 0.6 * torch.rand(3, D, generator=random, dtype=torch.float64)
    cells = degree + intervals if is_open == 0 else intervals
    pseudo = ((torch.randint(0, cells, (3, D), generator=random) + inner) / cells).requires_grad_()
    opened = [int(is_open != 0)] * D
    assert torch.autograd.gradcheck(
        lambda u: spline_basis(u, kernel_size, opened, degree)[0], (pseudo,)
    )
