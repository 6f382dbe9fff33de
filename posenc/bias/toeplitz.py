"""A bias given by its diagonals."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import Array, as_data, as_parameter, cast_operand, cast_result, fail
from ._diagonals import fill_matrix, read_diagonal_sums
from ._parameters import check_heads
from ._positions import Positions
from .operator import PositionBias, Reduction, Reductions, Term

__all__ = ["toeplitz"]


class ToeplitzArrays(NamedTuple):
    """Arrays of `toeplitz`, or their gradients."""

    diagonals: Array


def diagonal_term(diagonals: Array) -> Term:
    """Return the term of a bias that has one number per head and diagonal, (H, N + M - 1)."""
    return Term("toeplitz", {"diagonals": diagonals})


class ToeplitzBias(PositionBias[ToeplitzArrays]):
    """One number per head and diagonal."""

    __slots__ = ()

    @property
    def reads_positions(self) -> bool:
        return False

    @property
    def _shown_lengths(self) -> tuple[int, int]:
        n = (self.arrays.diagonals.shape[1] + 1) // 2
        return n, self.arrays.diagonals.shape[1] + 1 - n

    def _check_length(self, function: str, n: int, m: int) -> None:
        length = self.arrays.diagonals.shape[1]
        if length != max(n + m - 1, 0):
            expected = f"n + m - 1 = {max(n + m - 1, 0)}, because it fits one n and one m; distance_function fits all"
            fail(ValueError, function, "diagonals", f"{length} entries", expected)

    def _matrix(self, function: str, positions: Positions, dtype: np.dtype[Any], out: Array | None) -> Array:
        self._check_length(function, positions.n, positions.m)
        return fill_matrix(function, cast_result(self.arrays.diagonals, dtype), positions.n, positions.m, out)

    def _vjp(self, function: str, grad: Array, positions: Positions) -> tuple[Array, ...]:
        self._check_length(function, positions.n, positions.m)
        heads = self.arrays.diagonals.shape[0]
        return (read_diagonal_sums(function, grad, heads, positions.n, positions.m),)

    def _term(self, function: str, dtype: np.dtype[Any], shape: tuple[int, ...], positions: Positions) -> Term:
        check_heads(function, self.name, self.arrays.diagonals.shape[0], shape)
        self._check_length(function, *shape[-2:])
        return diagonal_term(
            cast_operand(function, "diagonals", self.arrays.diagonals, dtype).astype(dtype, copy=False)
        )

    def _reductions(self, positions: Positions) -> tuple[Reduction, ...]:
        return ("diagonals",)

    def _gradient(self, function: str, reductions: Reductions, positions: Positions) -> tuple[Array, ...]:
        return (reductions.diagonals,)


def toeplitz(diagonals: npt.ArrayLike) -> PositionBias[ToeplitzArrays]:
    """Return a bias given by its diagonals, one number per head and difference of column and row.

    ``b[h, i, j] = diagonals[h, j - i + N - 1]``

    Parameters
    ----------
    diagonals : array (H, N + M - 1)
        Finite. The index counts rows and columns, whatever the positions are, so the bias fits one N and one M. A
        function of the distance that fits every N and M, in decoding too, is a `distance_function`. Differentiable.

    Returns
    -------
    PositionBias
        For ``attention(bias=...)`` with exactly N queries and M keys.

    Raises
    ------
    TypeError, ValueError
        An array that is not two-dimensional and finite.

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
    array = as_data("toeplitz", "diagonals", diagonals)
    as_parameter("toeplitz", "diagonals", array, 2)
    return ToeplitzBias("toeplitz", ToeplitzArrays(np.array(array, array.dtype.newbyteorder("="), order="C")))
