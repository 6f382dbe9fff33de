"""Forgetting Transformer: forget gates between two positions."""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import F64, Array, Float64, as_data, fail, unbroadcast
from ._pair import PairBias, check_positions
from .operator import PositionBias
from .positions import Positions
from .terms import Call, Operands, Sums, Term


class FoxArrays(NamedTuple):
    """Arrays of `fox`, or their gradients.

    Attributes
    ----------
    log_forget : array (..., H, T)
    """

    log_forget: Array


class FoxBias(PairBias[FoxArrays]):
    """Sums of logarithms of forget gates between two positions; the kernel takes their cumulative sums C."""

    @cached_property
    def operands(self) -> Operands:
        return {"sums": np.cumsum(self.arrays.log_forget, axis=-1)}

    @property
    def positions_end(self) -> int:
        return int(self.arrays.log_forget.shape[-1])

    def _term(self, call: Call, positions: Positions) -> Term:
        return super()._term(call, positions)._replace(reads=("rows", "columns"))

    def _gradient(self, function: str, sums: Sums, positions: Positions) -> tuple[Float64, ...]:
        """b_ij = C[query i] - C[key j], so d C[query i] += sum_j dS_ij and d C[key j] -= sum_i dS_ij."""
        shape = self.arrays.log_forget.shape
        d_cumulative = np.zeros((*sums["rows"].shape[:-1], shape[-1]))
        count = prod(d_cumulative.shape[:-1])
        table = d_cumulative.reshape(count, shape[-1])  # one row per head of each batch row
        row = np.arange(count)[:, None]
        checked = check_positions(self, function, positions)
        for at, part in zip(checked, (sums["rows"], -sums["columns"]), strict=True):
            # All heads have the same positions: integers, or zeros where there is no pair.
            column = np.broadcast_to(np.expand_dims(at.astype(np.intp), -2), part.shape)
            np.add.at(table, (row, column.reshape(count, part.shape[-1])), part.reshape(count, part.shape[-1]))
        return (_sum_from_the_end(unbroadcast(d_cumulative, shape, F64)),)

    def _matrix_gradient(self, function: str, grad: Array, positions: Positions) -> tuple[Float64, ...]:
        return (_sum_from_the_end(*super()._matrix_gradient(function, grad, positions)),)


def _sum_from_the_end(d_cumulative: Float64) -> Float64:
    """C[t] = sum of log_forget[s] over s <= t, so d log_forget[s] = sum of d C[t] over t >= s."""
    d_gates: Float64 = np.cumsum(d_cumulative[..., ::-1], axis=-1)[..., ::-1]
    return d_gates


def fox(log_forget: npt.ArrayLike) -> PositionBias[FoxArrays]:
    """Return the bias of the Forgetting Transformer, the forget gates between key and query.

    ``b[h, i, j] = C[h, i] - C[h, j]``, ``C = cumsum(log_forget)``

    Parameters
    ----------
    log_forget : array (..., H, T)
        Logarithms of the forget gates of positions 0..T-1. Finite. Leading axes broadcast against the batch axes of q.
        Differentiable.

    Returns
    -------
    PositionBias
        For ``attention(bias=..., causal=True)``. Positions must be integers from 0 to T - 1, else TypeError or
        IndexError.

    Raises
    ------
    TypeError, ValueError
        An array with fewer than two axes, or not finite.

    Notes
    -----
    Lin et al. 2025 (Forgetting Transformer), equation 5. Sums are in float64, because they grow with the length, and
    the difference of two large float32 sums would be inaccurate. The gate of position t counts for keys before t, so
    the diagonal is 0.
    The same bias is known as CABLE, and as data-dependent ALiBi in x-transformers. A constant gate f is ALiBi with
    slope -log f.

    Examples
    --------
    Gates of 6 positions, computed from the inputs of a layer:

    >>> import numpy as np, posenc
    >>> rng = np.random.default_rng(0)
    >>> x, w = rng.standard_normal((6, 8)), rng.standard_normal((8, 2))
    >>> log_forget = -np.logaddexp(0, -x @ w).T  # log sigmoid, (heads, positions)
    >>> q, k, v = rng.standard_normal((3, 2, 6, 4))
    >>> posenc.attention(q, k, v, bias=posenc.fox(log_forget), causal=True).shape
    (2, 6, 4)

    Three gates and the sums between each pair of positions:

    >>> posenc.fox([[-0.5, -1.0, -2.0]]).matrix(3)
    array([[[ 0.,  1.,  3.],
            [-1.,  0.,  2.],
            [-3., -2.,  0.]]], dtype=float32)
    """
    array = as_data("fox", "log_forget", log_forget)
    if array.ndim < 2:
        fail(ValueError, "fox", "log_forget", f"{array.ndim} axes", "at least 2, heads and positions")
    gates = np.array(array, F64, order="C")
    with np.errstate(all="ignore"):
        finite = np.isfinite(gates).all() and np.isfinite(np.cumsum(gates, axis=-1)).all()
    if not finite:
        fail(ValueError, "fox", "log_forget", "NaN or infinity, or a sum beyond float64", "finite numbers")
    return FoxBias("fox", FoxArrays(gates), dtypes=(array.dtype,))
