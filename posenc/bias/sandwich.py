"""Sandwich: inner products of the sinusoids of two positions. They depend on the distance alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .. import _core
from .._core_api.arguments import (
    F32,
    F64,
    MOST_CHANNELS,
    Array,
    Dtype,
    Float64,
    as_index,
    cast_result,
    fail_value,
    finish_out,
    prepare_out,
)
from .._core_api.constants import MOST_WIDTH
from ..absolute.frequency import exact_frequencies
from ._diagonals import fill_matrix
from .operator import PositionBias, check_heads
from .parameters import check_cotangent
from .positions import Positions
from .terms import Call, Reductions, Term
from .toeplitz import diagonal_term

_BLOCK = 8192
"""Number of distances whose sinusoids are in memory at a time."""


class SandwichArrays(NamedTuple):
    """Arrays of `sandwich`: none, so there is no gradient."""


class SandwichBias(PositionBias[SandwichArrays]):
    """A sum of cosines of the distance, minus its value at distance 0, divided by one number per head."""

    def _matrix(self, function: str, positions: Positions, dtype: Dtype, out: Array | None) -> Array:
        positions = positions.as_consecutive()
        n, m = positions.n, positions.m
        if positions.arrays is None:  # round half precision from float32, as the kernel does
            values = cast_result(_values(self, function, positions.distances(function)), F64 if dtype == F64 else F32)
            return fill_matrix(function, cast_result(values, dtype), n, m, out)
        q, k = positions.arrays
        batch = np.broadcast_shapes(q.shape[:-1], k.shape[:-1])
        out, buffer = prepare_out(function, out, (*batch, self.options["heads"], n, m), dtype, (q, k))
        _core.sandwich(function, **_pair_operands(self, function, q, k), q_positions=q, k_positions=k, out=buffer)
        return finish_out(out, buffer)

    def _term(self, call: Call, positions: Positions) -> Term:
        check_heads(call.function, self, call.shape)
        if positions.arrays is None:
            return diagonal_term(
                _values(self, call.function, positions.distances(call.function)).astype(call.dtype)
            )._replace(reductions=())
        return Term(self.name, _pair_operands(self, call.function, *positions.arrays))

    def _gradient(self, function: str, reductions: Reductions, positions: Positions) -> tuple[()]:
        heads, n, m = self.options["heads"], positions.n, positions.m
        grad = reductions.cotangent
        if grad is not None and grad.shape[-2:] != (heads, max(n + m - 1, 0)):
            check_cotangent(function, grad, (heads, n, m))
        return ()


def _divisors(bias: SandwichBias) -> Float64:
    heads = bias.options["heads"]
    divisors: Float64 = 8.0 * np.arange(1, heads + 1) / heads
    return divisors


def _sinusoids(bias: SandwichBias, function: str, positions: Array) -> Float64:
    """Return [sin | cos] of positions, (..., N, dim)."""
    dim = bias.options["dim"]
    # With "half-1", width dim + 2 has the frequencies 10000**(-2 t / dim), t = 0 .. dim / 2. Leave out t = 0.
    high, low = (part[1:] for part in exact_frequencies(function, dim + 2, 10000, "half-1"))
    sinusoids = np.empty((*positions.shape, dim))
    _core.sinusoid(
        function, positions=positions, frequencies=high, lo=low, out=sinusoids,
        sine=0, cosine=dim // 2, step=1, sine_scale=1.0, cosine_scale=1.0,
    )  # fmt: skip
    return sinusoids


def _values(bias: SandwichBias, function: str, rel: Float64) -> Float64:
    """Return the bias of each head at the distances rel, (H, l)."""
    half = bias.options["dim"] // 2
    sums = np.empty(len(rel))
    for first in range(0, len(rel), _BLOCK):
        block = slice(first, first + _BLOCK)
        sums[block] = _sinusoids(bias, function, rel[block])[:, half:].sum(axis=-1)
    values: Float64 = (sums - half) / _divisors(bias)[:, None]
    return values


def _pair_operands(bias: SandwichBias, function: str, q: Array, k: Array) -> dict[str, Array | None]:
    """Return the operands of the PAIR row, whose kernel multiplies the sinusoids of queries and keys."""
    queries = np.ascontiguousarray(np.swapaxes(_sinusoids(bias, function, q), -1, -2))
    return {"queries": queries, "keys": _sinusoids(bias, function, k), "divisor": _divisors(bias)}


def sandwich(heads: int, dim: int) -> PositionBias[SandwichArrays]:
    """Return the bias of Sandwich, a sum of cosines of the distance.

    ``b[h](rel) = (sum_t cos(rel 10000**(-2 t / dim)) - dim / 2) / (8 h / H)``, t = 1..dim/2, h = 1..H

    Parameters
    ----------
    heads : int
        H, at least 1.
    dim : int
        Width of the sinusoids; even, at least 2. In the authors' code it is the width of a head.

    Returns
    -------
    PositionBias
        For ``attention(bias=...)``. It has no learned parameters.

    Raises
    ------
    TypeError, ValueError
        Numbers that are not integers, or are below 1; an odd `dim`.

    Notes
    -----
    Chi et al. 2023 (Dissecting Transformer Length Extrapolation via the Lens of Receptive Field Analysis), section 4:
    the inner product of the sinusoids of two positions, with one slope per head. The sum counts t from 1, but the first
    frequency of `sinusoidal` is the one of t = 0. The paper's listing counts t from 0 and omits ``- dim / 2``, which
    changes no weight of the softmax. NeMo counts t from 1 and subtracts ``dim / 2``, as here.

    Examples
    --------
    The bias of the last query falls with the distance of the key, and faster in the first head than in the second:

    >>> import posenc
    >>> posenc.sandwich(4, 64).matrix(4)[:2, -1].round(3)
    array([[-2.211, -1.14 , -0.312,  0.   ],
           [-1.106, -0.57 , -0.156,  0.   ]], dtype=float32)
    """
    heads = as_index("sandwich", "heads", heads, 1, MOST_CHANNELS)
    dim = as_index("sandwich", "dim", dim, 2, MOST_WIDTH)
    if dim % 2:
        fail_value(ValueError, "sandwich", "dim", dim, "an even number")
    return SandwichBias("sandwich", SandwichArrays(), {"heads": heads, "dim": dim})
