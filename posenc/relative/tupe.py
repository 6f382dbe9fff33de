"""TUPE: positions have queries and keys of their own, untied from those of the words."""

from __future__ import annotations

from math import prod, sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import (
    F32,
    F64,
    Array,
    Dtype,
    fail,
    store_result,
)
from ..bias.operator import PositionBias, check_heads
from ..bias.parameters import cast_arrays, read_cotangent, row_gradients
from ..bias.positions import Positions
from ..bias.terms import Call, Gradients, Sums, Term
from ._content import as_table, check_table_heads


class TupeArrays(NamedTuple):
    """Arrays of `tupe`, or their gradients.

    Attributes
    ----------
    pos_q, pos_k : array (H, N, D) and (H, M, D)
    cls_to_any, any_to_cls : array (H,) or None
    """

    pos_q: Array
    pos_k: Array
    cls_to_any: Array | None
    any_to_cls: Array | None


class TupeBias(PositionBias[TupeArrays]):
    """A product of position vectors, (H, N, M), with a resettable first row and column."""

    reads_positions = False

    def _matrix(self, function: str, positions: Positions, dtype: Dtype, out: Array | None) -> Array:
        work = F64 if dtype.char == "d" else F32
        _check_lengths(self, function, positions.n, positions.m)
        pos_q, pos_k, cls_to_any, any_to_cls = cast_arrays(function, self.operands, work).values()
        matrix: Array = np.matmul(pos_q * work.type(_scale(self)), pos_k.swapaxes(-1, -2))
        if any_to_cls is not None and positions.m:
            matrix[:, :, 0] = any_to_cls[:, None]
        if cls_to_any is not None and positions.n:
            matrix[:, 0, :] = cls_to_any[:, None]
        return store_result(function, out, matrix, dtype)

    def _term(self, call: Call, positions: Positions) -> Term:
        operands = cast_arrays(call.function, self.operands, call.dtype)
        check_heads(call.function, self, call.shape)
        _check_lengths(self, call.function, *call.shape[-2:])
        return Term(self.name, operands, row_gradients(self.name), 1 / sqrt(2 * (call.width or 1)))

    def _gradient(self, function: str, sums: Sums, positions: Positions) -> Gradients:
        d_pos_q, d_pos_k = sums["d_pos_q"], sums["d_pos_k"]
        *batch, heads, n, width = d_pos_q.shape
        flat = d_pos_q.reshape(prod(batch), heads, n, width)
        d_pos_q = flat[0] if len(flat) == 1 else flat.sum(0, dtype=F64)
        d_pos_q *= _scale(self)  # in place: it may be as large as q
        return (d_pos_q, d_pos_k[..., : d_pos_q.shape[-1]], sums.get("d_cls"), sums.get("d_any"))

    def _matrix_gradient(self, function: str, grad: Array, positions: Positions) -> Gradients:
        shape = _check_lengths(self, function, positions.n, positions.m)
        pos_q, pos_k, cls_to_any, any_to_cls = self.arrays
        d_cls_to_any = d_any_to_cls = None
        d_matrix = np.array(read_cotangent(function, grad, shape))
        if cls_to_any is not None:
            d_cls_to_any = d_matrix[:, :1].sum((1, 2))
            d_matrix[:, :1] = 0
        if any_to_cls is not None:
            d_any_to_cls = d_matrix[:, :, :1].sum((1, 2))
            d_matrix[:, :, :1] = 0
        d_pos_q = _scale(self) * (d_matrix @ pos_k.astype(F64, copy=False))
        d_pos_k = _scale(self) * (d_matrix.swapaxes(-1, -2) @ pos_q.astype(F64, copy=False))
        return d_pos_q, d_pos_k, d_cls_to_any, d_any_to_cls


def _scale(bias: TupeBias) -> float:
    return 1 / sqrt(2 * (bias.arrays.pos_q.shape[-1] or 1))


def _check_lengths(bias: TupeBias, function: str, n: int, m: int) -> tuple[int, int, int]:
    """Return the shape of the matrix of n queries and m keys, which the vectors must fit."""
    for argument, array, length in (("pos_q", bias.arrays.pos_q, n), ("pos_k", bias.arrays.pos_k, m)):
        if array.shape[1] != length:
            fail(ValueError, function, argument, f"{array.shape[1]} positions", str(length))
    return len(bias.arrays.pos_q), n, m


def tupe(
    pos_q: npt.ArrayLike,
    pos_k: npt.ArrayLike,
    *,
    cls_to_any: npt.ArrayLike | None = None,
    any_to_cls: npt.ArrayLike | None = None,
) -> PositionBias[TupeArrays]:
    """Return the bias of TUPE, a product of position vectors with the [CLS] token untied.

    ``b[h, i, j] = pos_q[h, i] . pos_k[h, j] / sqrt(2 D)``

    Parameters
    ----------
    pos_q, pos_k : array (H, N, D) and (H, M, D)
        Projected positions of queries and keys, by row and column whatever the positions are. Differentiable.
    cls_to_any, any_to_cls : array (H,), optional
        Numbers that replace the product in row 0 and in column 0; the corner is `cls_to_any`. Differentiable.

    Returns
    -------
    PositionBias
        For ``attention(bias=...)``, whose default scale becomes ``1 / sqrt(2 D)``. The sum with `t5` is TUPE-R.

    Raises
    ------
    TypeError, ValueError
        Arrays whose heads or widths differ, NaN.

    Notes
    -----
    Ke et al. 2021 (TUPE), equations 7, 8 and 10. The authors' code computes the two resets from positions: one is the
    product of an extra position with itself, the other the product of the first position with itself. Its projections
    have biases, and it normalises positions before the projections. Do this before calling this function.

    Examples
    --------
    TUPE-R for 100 tokens and 8 heads, with normalised position vectors of 512 channels:

    >>> import numpy as np, posenc
    >>> rng = np.random.default_rng(0)
    >>> vectors, w_q, w_k = rng.standard_normal((100, 512)), *rng.standard_normal((2, 512, 8, 64)) / 22
    >>> pos_q, pos_k = (np.einsum("nd,dhc->hnc", vectors, w) for w in (w_q, w_k))
    >>> bias = posenc.tupe(pos_q, pos_k, cls_to_any=np.zeros(8), any_to_cls=np.zeros(8))
    >>> bias = bias + posenc.t5(rng.standard_normal((32, 8)))
    >>> q, k, v = rng.standard_normal((3, 8, 100, 64), np.float32)
    >>> posenc.attention(q, k, v, bias=bias).shape
    (8, 100, 64)

    A reset column:

    >>> posenc.tupe(np.ones((1, 2, 2)), np.ones((1, 2, 2)), any_to_cls=[7.0]).matrix(2)
    array([[[7., 1.],
            [7., 1.]]], dtype=float32)
    """
    function = "tupe"
    queries, keys = as_table(function, "pos_q", pos_q, "(H, N, D)"), as_table(function, "pos_k", pos_k, "(H, M, D)")
    heads, _, width = queries.shape
    check_table_heads(function, "pos_k", keys, heads)
    if keys.shape[2] != width:
        fail(ValueError, function, "pos_k", f"width {keys.shape[2]}", f"{width}, the width of pos_q")
    row = _read_reset(function, "cls_to_any", cls_to_any, heads)
    column = _read_reset(function, "any_to_cls", any_to_cls, heads)
    return TupeBias(function, TupeArrays(queries, keys, row, column))


def _read_reset(function: str, argument: str, reset: npt.ArrayLike | None, heads: int) -> Array | None:
    if reset is None:
        return None
    array = as_table(function, argument, reset, "(H,)")
    check_table_heads(function, argument, array, heads)
    return array
