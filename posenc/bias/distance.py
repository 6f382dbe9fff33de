"""Biases that are functions of rel = position of key - position of query: the DISTANCE rows of the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import (
    F64,
    Array,
    Float64,
    as_index,
    as_number,
    fail,
    fail_value,
    finish_out,
    prepare_out,
    unbroadcast,
)
from ._diagonals import Where, consecutive, diagonal_distances, fill_matrix, summed_rows
from .operator import Bias, Sums, arrays_of, check_heads, fits_end, keep_arrays

__all__ = ["alibi", "alibi_slopes", "kerple_log", "kerple_power"]


class Distance(Bias):
    """A bias that is a function of rel alone: a DISTANCE row of the table."""

    __slots__ = ()

    @property
    def heads(self) -> int:
        for (_, axes), array in zip(arrays_of(self.name), self.arrays, strict=True):
            if "h" in axes:
                return int(array.shape[axes.index("h")])
        return 1

    def _values(self, function: str, rel: Float64, dtype: np.dtype[Any]) -> Array:
        """b_h(rel), (..., H, l)."""
        values = np.empty((*rel.shape[:-1], self.heads, rel.shape[-1]), dtype)
        getattr(_core, self.name)(function, *self.operands, rel, values)
        return values

    def _rel(self, n: int, m: int, where: Where) -> tuple[Float64, bool]:
        """Distances of the diagonals and True, or (..., n, m) distances and False."""
        if where is None:
            return diagonal_distances(n, m, m - n), True
        q, k = where
        if consecutive(q) and consecutive(k):
            return diagonal_distances(n, m, float(q[0] - k[0]) if n and m else 0.0), True
        return np.subtract(k[..., None, :], q[..., :, None]).astype(F64, copy=False), False

    def _matrix(self, function: str, n: int, m: int, where: Where, dtype: np.dtype[Any], out: Array | None) -> Array:
        rel, is_row = self._rel(n, m, where)
        if is_row:
            return fill_matrix(function, self._values(function, rel, dtype), n, m, out)
        values = self._values(function, rel.reshape(*rel.shape[:-2], n * m), dtype)
        out, buffer = prepare_out(function, out, (*values.shape[:-1], n, m), dtype)
        buffer[...] = values.reshape(buffer.shape)
        return finish_out(out, buffer)

    def _vjp(self, function: str, grad: Array, n: int, m: int, where: Where) -> tuple[Array, ...]:
        rel, is_row = self._rel(n, m, where)
        if is_row:
            return self._sum(function, summed_rows(function, grad, self.heads, n, m), rel)
        shape = (*rel.shape[:-2], self.heads, n, m)
        weights = unbroadcast(fits_end(function, grad, shape).astype(F64, copy=False), shape, F64)
        total = tuple(np.zeros(array.shape) for array in self.arrays)
        for batch in np.ndindex(shape[:-3]):
            part = self._sum(function, weights[batch].reshape(self.heads, n * m), rel[batch].reshape(n * m))
            total = tuple(map(np.add, total, part))
        return total

    def _sum(self, function: str, weights: Float64, rel: Float64) -> tuple[Array, ...]:
        sums = tuple(np.zeros(array.shape) for array in self.arrays)
        getattr(_core, f"{self.name}_vjp")(function, weights, *self.operands, rel, *sums)
        return sums

    def term(
        self,
        function: str,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        distances: Float64 | None,
        where: Where = None,
    ) -> tuple[Any, ...]:
        check_heads(function, self.name, self.heads, shape)
        if distances is None:
            return (self.name, *self.operands)
        return ("toeplitz", self._values(function, distances, dtype))

    def wants(self, shape: tuple[int, ...], distances: Float64 | None) -> tuple[str, ...]:
        return ("own",) if distances is None else ("diagonals",)

    def gradients(self, function: str, sums: Sums, distances: Float64 | None, where: Where = None) -> tuple[Array, ...]:
        own: tuple[Array, ...] = sums.own
        return own if distances is None else self._sum(function, sums.diagonals, distances)


def alibi_slopes(heads: int, *, bias_max: float = 8.0) -> Float64:
    """ALiBi's slopes: ``m[h] = 2**(-bias_max (h + 1) / H)`` for H a power of two.

    Parameters
    ----------
    heads : int
        H, at least 1.
    bias_max : float
        8 in the paper; ``alibi_bias_max`` of MPT.

    Returns
    -------
    ndarray of float64, shape (heads,)
        For other H, the slopes of the power of two below, then every second slope of the power of two above, as the
        authors' code, BLOOM, Falcon and MPT order them. They are not sorted.

    Raises
    ------
    TypeError, ValueError
        `heads` is no positive integer, `bias_max` no number.

    Notes
    -----
    Press et al. 2022 (Train Short, Test Long), section 3. A formula with ``2**(1 / (log2 H + 3))`` in the exponent is
    in circulation; it is garbled: at H = 8 it gives 0.459, 0.211, ... where the paper has 1/2, 1/4, ....

    Examples
    --------
    >>> import posenc
    >>> posenc.alibi_slopes(8)[:3]
    array([0.5  , 0.25 , 0.125])
    >>> posenc.alibi_slopes(3)
    array([0.0625    , 0.00390625, 0.25      ])
    """
    function = "alibi_slopes"
    heads = as_index(function, "heads", heads, 1)
    top = as_number(function, "bias_max", bias_max)
    power = 1 << (heads.bit_length() - 1)
    slopes = 2.0 ** (-top * np.arange(1, power + 1) / power)
    between = 2.0 ** (-top * np.arange(1, 2 * power + 1, 2) / (2 * power))
    return np.concatenate([slopes, between[: heads - power]])


def alibi(slopes: npt.ArrayLike) -> Bias:
    """ALiBi: ``b[h](rel) = -slopes[h] |rel|``.

    Parameters
    ----------
    slopes : array (H,)
        Finite; see `alibi_slopes`. Differentiable, see `Bias.vjp`.

    Returns
    -------
    Bias
        For ``attention(bias=...)``; its `matrix` shows it.

    Raises
    ------
    TypeError, ValueError
        Slopes that are not one finite number per head.

    Notes
    -----
    Press et al. 2022, section 3. Added after the scaling of the logits. Code that adds ``m j`` or ``m (j - M + 1)``
    instead differs by a constant in each row, which the softmax of a causal attention does not see; only this form is
    right without a causal mask. Falcon also divides the bias by sqrt(D).

    Examples
    --------
    >>> import posenc
    >>> posenc.alibi(posenc.alibi_slopes(8)).matrix(3)[0]
    array([[ 0. , -0.5, -1. ],
           [-0.5,  0. , -0.5],
           [-1. , -0.5,  0. ]], dtype=float32)
    """
    if isinstance(slopes, int | float):
        fail_value(ValueError, "alibi", "slopes", slopes, "an array (H,), as alibi_slopes(H) makes it")
    return Distance("alibi", *keep_arrays("alibi", slopes))


def kerple_log(r1: npt.ArrayLike, r2: npt.ArrayLike) -> Bias:
    """KERPLE, logarithmic: ``b[h](rel) = -r1[h] log(1 + r2[h] |rel|)``.

    Parameters
    ----------
    r1, r2 : array (H,)
        Finite; r2 at least 0 (both positive in the paper). Differentiable.

    Returns
    -------
    Bias

    Raises
    ------
    TypeError, ValueError
        Parameters that are not one finite number per head, or a negative r2.

    Notes
    -----
    Chi et al. 2022 (KERPLE), equation 6, there for a causal model. The authors' code clamps both parameters to at least
    0.01 in each forward pass; here they are taken as they are.

    Examples
    --------
    >>> import posenc
    >>> posenc.kerple_log([1.0], [1.0]).matrix(3).round(3)
    array([[[ 0.   , -0.693, -1.099],
            [-0.693,  0.   , -0.693],
            [-1.099, -0.693,  0.   ]]], dtype=float32)
    """
    bias = Distance("kerple_log", *keep_arrays("kerple_log", r1, r2))
    if (bias.arrays.r2 < 0).any():
        fail(ValueError, "kerple_log", "r2", "a negative number", "at least 0")
    return bias


def kerple_power(r1: npt.ArrayLike, r2: npt.ArrayLike) -> Bias:
    """KERPLE, power: ``b[h](rel) = -r1[h] |rel|**r2[h]``.

    Parameters
    ----------
    r1, r2 : array (H,)
        Finite; r2 positive (in the paper r1 too, and r2 at most 2). Differentiable.

    Returns
    -------
    Bias

    Raises
    ------
    TypeError, ValueError
        Parameters that are not one finite number per head, or an r2 that is not positive.

    Notes
    -----
    Chi et al. 2022 (KERPLE), equation 5, there for a causal model: conditionally positive definite for r1 > 0 and
    0 < r2 <= 2. The authors' code clamps r1 to at least 0.01 and r2 to 0.01..2 in each forward pass; here they are
    taken as they are. With r2 = 1 it is ALiBi with slopes r1. The gradient with respect to r2 is 0 at distance 0.

    Examples
    --------
    >>> import posenc
    >>> posenc.kerple_power([1.0], [0.5]).matrix(3).round(3)
    array([[[ 0.   , -1.   , -1.414],
            [-1.   ,  0.   , -1.   ],
            [-1.414, -1.   ,  0.   ]]], dtype=float32)
    """
    bias = Distance("kerple_power", *keep_arrays("kerple_power", r1, r2))
    if (bias.arrays.r2 <= 0).any():
        fail(ValueError, "kerple_power", "r2", "a number that is not positive", "more than 0")
    return bias
