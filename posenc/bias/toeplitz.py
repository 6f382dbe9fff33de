"""Bias given by its diagonals."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import (
    Array,
    Float64,
    as_data,
    as_parameter,
    cast_finite,
    fail,
)
from ._diagonals import Where, fill_matrix, summed_rows
from .operator import Bias, Sums, check_heads

__all__ = ["toeplitz"]


class Toeplitz(Bias):
    """A number for each diagonal."""

    __slots__ = ()
    reads_positions = False

    def _check(self, function: str, n: int, m: int) -> None:
        have = self.arrays.diagonals.shape[1]
        if have != max(n + m - 1, 0):
            fail(ValueError, function, "diagonals", f"{have} entries", f"n + m - 1 = {max(n + m - 1, 0)}")

    def _matrix(self, function: str, n: int, m: int, where: Where, dtype: np.dtype[Any], out: Array | None) -> Array:
        self._check(function, n, m)
        with np.errstate(over="ignore"):  # infinite, as every bias that the dtype has no number for
            row = self.arrays.diagonals.astype(dtype, copy=False)
        return fill_matrix(function, row, n, m, out)

    def _vjp(self, function: str, grad: Array, n: int, m: int, where: Where) -> tuple[Array, ...]:
        self._check(function, n, m)
        return (summed_rows(function, grad, self.arrays.diagonals.shape[0], n, m),)

    def term(
        self,
        function: str,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        distances: Float64 | None,
        where: Where = None,
    ) -> tuple[Any, ...]:
        check_heads(function, self.name, self.arrays.diagonals.shape[0], shape)
        self._check(function, *shape[-2:])
        return (self.name, cast_finite(function, "diagonals", self.arrays.diagonals, dtype))

    def wants(self, shape: tuple[int, ...], distances: Float64 | None) -> tuple[str, ...]:
        return ("diagonals",)

    def gradients(self, function: str, sums: Sums, distances: Float64 | None, where: Where = None) -> tuple[Array, ...]:
        return (sums.diagonals,)


def toeplitz(diagonals: npt.ArrayLike) -> Bias:
    """Your own function of row and column difference: entry (i, j) is ``diagonals[h, j - i + N - 1]``.

    Parameters
    ----------
    diagonals : array (H, N + M - 1)
        Finite. By row and column, whatever the positions. Differentiable.

    Returns
    -------
    Bias
        For N queries and M keys.

    Raises
    ------
    TypeError, ValueError
        An array that is not two-dimensional and finite.

    Examples
    --------
    >>> import posenc
    >>> posenc.toeplitz([[-1.0, 0.0, 1.0]]).matrix(2)
    array([[[ 0.,  1.],
            [-1.,  0.]]], dtype=float32)
    """
    given = as_data("toeplitz", "diagonals", diagonals)
    as_parameter("toeplitz", "diagonals", given, 2)
    kept = np.array(given, given.dtype.newbyteorder("="), order="C")
    return Toeplitz("toeplitz", (kept,), (kept.dtype,))
