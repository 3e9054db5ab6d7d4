"""The argument checks of plain torch, in the order and the words of csrc/checks.h."""

from collections.abc import Sequence
from typing import NoReturn

import torch
from torch import Tensor

_MOST = 2**31 - 1
_WIDE, _HALF = (torch.float32, torch.float64), (torch.float16, torch.bfloat16)


def fail(words: str) -> NoReturn:
    raise RuntimeError(words)


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def check_dims(t: Tensor, name: str, dims: int, shape: str) -> None:
    if t.dim() != dims:
        fail(f"{name} must be {shape}, got {list(t.shape)}")


def check_size(t: Tensor, name: str, dim: int, size: int) -> None:
    if t.size(dim) != size:
        fail(f"{name} must have size {size} in dimension {dim}, got {list(t.shape)}")


def check_count(count: int, name: str) -> None:
    if count < 0:
        fail(f"{name} must not be negative, got {count}")


def _check_dtype(t: Tensor, name: str, dtype: torch.dtype) -> None:
    if t.dtype != dtype:
        fail(f"{name} must be {_dtype_name(dtype)}, got {_dtype_name(t.dtype)}")


def _check_same_device(t: Tensor, name: str, like: Tensor) -> None:
    if t.device != like.device:
        fail(f"{name} must be on the same device as the other arguments")


def check_floating(t: Tensor, name: str) -> None:
    if t.device.type == "cpu" and t.dtype not in _WIDE:
        fail(f"{name} must be float32 or float64, got {_dtype_name(t.dtype)}")
    if t.dtype not in _WIDE + _HALF:
        fail(f"{name} must be float32, float64, float16 or bfloat16, got {_dtype_name(t.dtype)}")


def check_like(t: Tensor, name: str, like: Tensor, dims: int, shape: str) -> None:
    _check_same_device(t, name, like)
    _check_dtype(t, name, like.dtype)
    check_dims(t, name, dims, shape)


def _check_ints(t: Tensor, name: str, like: Tensor, dtype: torch.dtype) -> None:
    _check_same_device(t, name, like)
    _check_dtype(t, name, dtype)
    check_dims(t, name, 1, "one-dimensional")


def check_basis(
    pseudo: Tensor, kernel_size: Sequence[int], is_open: Sequence[int], degree: int
) -> None:
    check_floating(pseudo, "pseudo")
    check_dims(pseudo, "pseudo", 2, "[E, D]")
    E, D = pseudo.shape
    if D < 1:
        fail("pseudo must have at least one dimension, got none")
    if not 1 <= degree <= 3:
        fail(f"degree must be 1, 2 or 3, got {degree}")
    if len(kernel_size) != D or len(is_open) != D:
        fail(f"kernel_size and is_open must have one entry per dimension of pseudo ({D}), "
             f"got {len(kernel_size)} and {len(is_open)}")  # fmt: skip
    K = 1
    for d, k in enumerate(kernel_size):
        if k < degree + 1:
            fail(f"kernel_size must be at least degree + 1 = {degree + 1}, "
                 f"got {k} in dimension {d}")  # fmt: skip
        if k >= _MOST // K:
            fail(f"kernel_size must have a product below 2^31, too large in dimension {d}")
        if is_open[d] not in (0, 1):
            fail(f"is_open must be 0 or 1, got {is_open[d]} in dimension {d}")
        K *= k
    S = (degree + 1) ** D
    if E >= _MOST // S:
        fail(f"pseudo has too many edges: E * S must stay below 2^31, got {E} * {S}")


def check_pseudo(pseudo: Tensor) -> None:
    outside = ~((pseudo >= 0) & (pseudo <= 1))
    if bool(outside.any()):
        e, d = torch.nonzero(outside)[0].tolist()
        fail(f"pseudo must lie in [0, 1], got {pseudo[e, d].item():g} at edge {e}, dimension {d}")


def check_edges(edge_index: Tensor, pseudo: Tensor, num_nodes: int, num_sources: int) -> None:
    _check_same_device(edge_index, "edge_index", pseudo)
    _check_dtype(edge_index, "edge_index", torch.int64)
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        fail(f"edge_index must be [2, E], got {list(edge_index.shape)}")
    if edge_index.size(1) != pseudo.size(0):
        fail("edge_index and pseudo must have the same number of edges, "
             f"got {edge_index.size(1)} and {pseudo.size(0)}")  # fmt: skip
    for name, count in (("num_nodes", num_nodes), ("num_sources", num_sources)):
        if not 0 <= count < _MOST:
            fail(f"{name} must lie in [0, 2^31), got {count}")
    for row, bound in ((0, num_sources), (1, num_nodes)):
        bad = (edge_index[row] < 0) | (edge_index[row] >= bound)
        if bool(bad.any()):
            e = int(torch.nonzero(bad)[0])
            fail(f"edge_index must lie in [0, {bound}), "
                 f"got {int(edge_index[row, e])} at [{row}, {e}]")  # fmt: skip


def _check_index(t: Tensor, name: str, bound: int) -> None:
    bad = (t < 0) | (t >= bound)
    if bool(bad.any()):
        at = int(torch.nonzero(bad)[0])
        fail(f"{name} must lie in [0, {bound}), got {int(t[at])} at {at}")


def _check_run(ptr: Tensor, name: str, end: int) -> None:
    if int(ptr[0]) != 0 or int(ptr[-1]) != end:
        fail(f"{name} must run from 0 to {end}, got {int(ptr[0])} to {int(ptr[-1])}")


def check_plan(
    plan: Sequence[Tensor], like: Tensor, num_nodes: int, num_sources: int, num_weights: int
) -> None:
    """coef, src, row_ptr, row_node, group_ptr, group_weight and tile_ptr, and all their numbers."""
    coef, src, row_ptr, row_node, group_ptr, group_weight, tile_ptr = plan
    check_like(coef, "coef", like, 1, "[Q]")
    names = ("src", "row_ptr", "row_node", "group_ptr", "group_weight", "tile_ptr")
    for name, t in zip(names, plan[1:], strict=True):
        _check_ints(t, name, like, torch.int32)
    Q, R, G, tiles = coef.numel(), row_node.numel(), group_weight.numel(), tile_ptr.numel() - 1
    check_size(src, "src", 0, Q)
    check_size(row_ptr, "row_ptr", 0, R + 1)
    check_size(group_ptr, "group_ptr", 0, G + 1)
    if tiles < 0:
        fail("tile_ptr must not be empty")
    if tiles == 0 and num_nodes:
        fail("tile_ptr must have at least one tile, got none")
    _check_run(row_ptr, "row_ptr", Q)
    _check_run(group_ptr, "group_ptr", R)
    _check_run(tile_ptr, "tile_ptr", G)
    for name, t in (("tile_ptr", tile_ptr), ("group_ptr", group_ptr)):
        if bool((t.diff() < 0).any()):
            fail(f"{name} must not decrease")
    if bool((group_weight < 0).any()):
        fail(f"group_weight must lie in [0, {num_weights})")
    if G and int(group_weight.max()) >= num_weights:
        fail(f"weight must have at least {int(group_weight.max()) + 1} rows for this plan, "
             f"got {num_weights}")  # fmt: skip
    _check_rows_of_tiles(row_ptr, row_node, group_ptr, tile_ptr, num_nodes)
    _check_index(src, "src", num_sources)


def _check_rows_of_tiles(
    row_ptr: Tensor, row_node: Tensor, group_ptr: Tensor, tile_ptr: Tensor, num_nodes: int
) -> None:
    group = torch.repeat_interleave(group_ptr.diff().long())  # of each row
    tile = torch.repeat_interleave(tile_ptr.diff().long())[group]  # of each row
    back = row_ptr.diff() < 0
    if bool(back.any()):
        fail(f"row_ptr must not decrease, but does in tile {int(tile[back][0])}")
    size = -(-num_nodes // max(1, tile_ptr.numel() - 1))
    bad = (row_node < tile * size) | (row_node >= ((tile + 1) * size).clamp(max=num_nodes))
    bad[1:] |= (row_node.diff() <= 0) & (group.diff() == 0)
    if bool(bad.any()):
        fail(f"row_node must ascend in each group within its tile of {size} nodes, "
             f"but does not in tile {int(tile[bad][0])}")  # fmt: skip


def check_features(x: Tensor) -> None:
    check_floating(x, "x")
    check_dims(x, "x", 2, "[num_sources, M_in]")


def check_conv(
    x: Tensor, weight: Tensor, root: Tensor | None, bias: Tensor | None, num_nodes: int
) -> None:
    check_features(x)
    check_like(weight, "weight", x, 3, "[K, M_in, M_out]")
    check_size(weight, "weight", 1, x.size(1))
    check_count(num_nodes, "num_nodes")
    if root is not None:
        check_like(root, "root", x, 2, "[M_in, M_out]")
        check_size(root, "root", 0, x.size(1))
        check_size(root, "root", 1, weight.size(2))
        if x.size(0) != num_nodes:
            fail(f"root needs as many sources as nodes, got {x.size(0)} and {num_nodes}")
    if bias is not None:
        check_like(bias, "bias", x, 1, "[M_out]")
        check_size(bias, "bias", 0, weight.size(2))


def check_gather(y: Tensor) -> None:
    check_floating(y, "y")
    check_dims(y, "y", 3, "[num_sources, K, C]")


def check_head(x: Tensor, weight: Tensor, bias: Tensor | None, k: int) -> None:
    check_floating(x, "x")
    check_dims(x, "x", 2, "[N, F]")
    check_like(weight, "weight", x, 2, "[C, F]")
    check_size(weight, "weight", 1, x.size(1))
    if bias is not None:
        check_like(bias, "bias", x, 1, "[C]")
        check_size(bias, "bias", 0, weight.size(0))
    if not 1 <= k <= weight.size(0):
        fail(f"k must lie in [1, {weight.size(0)}], got {k}")


def check_sparse(
    ptr: Tensor, index: Tensor, value: Tensor | None, dense: Tensor, columns: int
) -> None:
    check_floating(dense, "dense")
    check_dims(dense, "dense", 2, "[rows, C]")
    if ptr.dtype not in (torch.int32, torch.int64):
        fail(f"ptr must be int32 or int64, got {_dtype_name(ptr.dtype)}")
    _check_ints(ptr, "ptr", dense, ptr.dtype)
    _check_ints(index, "index", dense, ptr.dtype)
    if not ptr.numel():
        fail("ptr must have at least one entry")
    if value is not None:
        check_like(value, "value", dense, 1, "[nnz]")
        check_size(value, "value", 0, index.numel())
    _check_run(ptr, "ptr", index.numel())
    back = torch.nonzero(ptr.diff() < 0)
    if back.numel():
        at = int(back[0])
        fail(f"ptr must not decrease, got {int(ptr[at + 1])} after {int(ptr[at])} at {at + 1}")
    _check_index(index, "index", columns)
