"""TUPE: positions have queries and keys of their own, untied from those of the words."""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import numpy.typing as npt

from .._core_api.arrays import Array, Dtype
from .._core_api.door import door, fail
from ..bias import operator
from ..bias.operator import Bias, Gradients, Kind, PositionBias, Scheme, Term
from ..bias.positions import Positions
from . import content


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


def _check_lengths(bias: Bias, n: int, m: int) -> None:
    for argument, length in (("pos_q", n), ("pos_k", m)):
        positions = getattr(bias.arrays, argument).shape[1]
        if positions != length:
            fail(ValueError, argument, f"{positions} positions", str(length))


def _gradient(bias: Bias, sums: Gradients, term: Term) -> Gradients:
    # the kernel multiplies pos_q by the scale before it adds to d_pos_k, so only d_pos_q lacks it
    width = bias.arrays.pos_q.shape[-1]
    d_pos_q, d_pos_k = operator.add_rows(sums[0], 2), operator.add_rows(sums[1], 2)[..., :width]
    d_pos_q *= 1 / sqrt(2 * (width or 1))  # in place: it may be as large as q
    return (d_pos_q, d_pos_k, *[None if reset is None else operator.add_rows(reset, 0) for reset in sums[2:]])


def _matrix(bias: Bias, positions: Positions, dtype: Dtype, out: Array | None) -> Array:
    _check_lengths(bias, positions.n, positions.m)
    return content.product_matrix(bias, positions, dtype, out)


def _vjp(bias: Bias, grad: Array, positions: Positions) -> Gradients:
    _check_lengths(bias, positions.n, positions.m)
    return content.product_vjp(bias, grad, positions)


TUPE = Scheme(
    "tupe",
    Kind(_gradient, _matrix, _vjp),
    TupeArrays,
    default_scale=lambda bias, width: 1 / sqrt(2 * (width or 1)),
    reads_positions=False,  # only their numbers
)


@door
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
        For ``attention(bias=...)``, whose default scale becomes ``1 / sqrt(2 D)``. Plus `t5` it is TUPE-R.

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
    >>> bias += posenc.t5(rng.standard_normal((32, 8)), bidirectional=True)
    >>> q, k, v = rng.standard_normal((3, 8, 100, 64), np.float32)
    >>> posenc.attention(q, k, v, bias=bias).shape
    (8, 100, 64)

    A reset column:

    >>> posenc.tupe(np.ones((1, 2, 2)), np.ones((1, 2, 2)), any_to_cls=[7.0]).matrix(2)
    array([[[7., 1.],
            [7., 1.]]], dtype=float32)
    """
    queries, keys = content.as_table("pos_q", pos_q, "(H, N, D)"), content.as_table("pos_k", pos_k, "(H, M, D)")
    row = None if cls_to_any is None else content.as_table("cls_to_any", cls_to_any, "(H,)")
    column = None if any_to_cls is None else content.as_table("any_to_cls", any_to_cls, "(H,)")
    content.check_axes("tupe", pos_q=queries, pos_k=keys, cls_to_any=row, any_to_cls=column)
    return TUPE.from_arrays(queries, keys, row, column)
