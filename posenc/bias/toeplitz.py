"""A bias given by its diagonals."""

from __future__ import annotations

from typing import NamedTuple

import numpy.typing as npt

from .. import _core
from .._core_api import convert
from .._core_api.arrays import F64, Array, Dtype
from .._core_api.door import door, fail
from . import operator
from .kinds import fill_matrix, read_diagonal_sums
from .operator import Bias, Gradients, Kind, PositionBias, Scheme, Term
from .positions import Positions


class ToeplitzArrays(NamedTuple):
    """Arrays of `toeplitz`, or their gradients.

    Attributes
    ----------
    diagonals : array (H, N + M - 1)
    """

    diagonals: Array


def _read_diagonals(bias: Bias, n: int, m: int) -> Array:
    """Return the diagonals, which must be those of n queries and m keys."""
    diagonals: Array = bias.arrays.diagonals
    length = diagonals.shape[1]
    if length != max(n + m - 1, 0):
        expected = f"n + m - 1 = {max(n + m - 1, 0)}, because it fits one n and one m; distance_function fits all"
        fail(ValueError, "diagonals", f"{length} entries", expected)
    return diagonals


def _gradient(bias: Bias, sums: Gradients, term: Term) -> Gradients:
    return (convert.unbroadcast(operator.add_slots(sums[0], 1), bias.arrays.diagonals.shape, F64),)


def _matrix(bias: Bias, positions: Positions, dtype: Dtype, out: Array | None) -> Array:
    n, m = positions.n, positions.m
    return fill_matrix(convert.result(_read_diagonals(bias, n, m), dtype), n, m, out)


def _vjp(bias: Bias, grad: Array, positions: Positions) -> Gradients:
    n, m = positions.n, positions.m
    return (read_diagonal_sums(grad, len(_read_diagonals(bias, n, m)), n, m),)


TOEPLITZ = Scheme("toeplitz", Kind(_gradient, _matrix, _vjp), ToeplitzArrays, reads_positions=False)


@door
def toeplitz(diagonals: npt.ArrayLike) -> PositionBias[ToeplitzArrays]:
    """Return a bias given by its diagonals, one number per head and difference of column and row.

    ``b[h, i, j] = diagonals[h, j - i + N - 1]``

    Parameters
    ----------
    diagonals : array (H, N + M - 1)
        Finite. The index is j - i + N - 1 for query i and key j, not a difference of positions, so the bias fits one N
        and one M. `distance_function` makes a bias for any N and M, also in decoding. Differentiable.

    Returns
    -------
    PositionBias
        For ``attention(bias=...)`` with exactly N queries and M keys.

    Raises
    ------
    TypeError, ValueError
        An array that is not two-dimensional and finite.

    Notes
    -----
    A FlexAttention ``score_mod`` that adds ``table[h, kv_idx - q_idx + N - 1]``.

    Examples
    --------
    A Gaussian window around each query of a sequence of 4, for one head:

    >>> import numpy as np, posenc
    >>> rel = np.arange(-3, 4)
    >>> bias = posenc.toeplitz(-(rel[None] ** 2) / 2.0)
    >>> bias.matrix(4)[0]
    array([[ 0. , -0.5, -2. , -4.5],
           [-0.5,  0. , -0.5, -2. ],
           [-2. , -0.5,  0. , -0.5],
           [-4.5, -2. , -0.5,  0. ]], dtype=float32)
    """
    array = _core.read("real diagonals(h,l) alone", diagonals=diagonals)
    return TOEPLITZ.from_arrays(operator.copy_finite("diagonals", array))
