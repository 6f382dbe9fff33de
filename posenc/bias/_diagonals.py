"""Where queries and keys stand; a matrix whose diagonals are equal as a row of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from .. import _core
from .._core_api.arguments import (
    F64,
    Array,
    Float64,
    as_index,
    as_positions,
    check_positions,
    fail,
    finish_out,
    prepare_out,
    unbroadcast,
)

Where = tuple[Array, Array] | None
"""Positions of queries and of keys; None where the queries are the last of the keys, which stand at 0, 1, 2, ...."""


def lengths(function: str, n: int, m: int | None) -> tuple[int, int]:
    n = as_index(function, "n", n, 0)
    return n, n if m is None else as_index(function, "m", m, 0)


def consecutive(positions: Array) -> bool:
    """Whether positions are (N,) integers that go up by one."""
    return positions.ndim == 1 and positions.dtype.kind == "i" and bool((np.diff(positions) == 1).all())


def position_pair(function: str, n: int, m: int, q_positions: Any, k_positions: Any) -> Where:
    """Positions of queries and keys, or None where neither is given; one alone has 0, 1, 2, ... beside it."""
    if q_positions is None and k_positions is None:
        return None
    pair = []
    for argument, given, length in (("q_positions", q_positions, n), ("k_positions", k_positions, m)):
        array = as_positions(function, argument, length if given is None else given)
        check_positions(function, argument, array)
        if array.shape[-1] != length:
            fail(ValueError, function, argument, f"length {array.shape[-1]}", str(length))
        pair.append(array)
    try:
        np.broadcast_shapes(pair[0].shape[:-1], pair[1].shape[:-1])
    except ValueError:
        batch = f"batch axes {pair[1].shape[:-1]}"
        fail(ValueError, function, "k_positions", batch, f"to broadcast against {pair[0].shape[:-1]}")
    return pair[0], pair[1]


def diagonal_distances(n: int, m: int, shift: float) -> Float64:
    """rel of the diagonals t = j - i + n - 1 when query i is at i + shift and key j at j."""
    return np.arange(max(n + m - 1, 0), dtype=np.float64) - (n - 1 + shift)


def matrix_view(row: Array, n: int, m: int) -> Array:
    """(..., n + m - 1) numbers as the read-only (..., n, m) matrix whose entry (i, j) is number j - i + n - 1."""
    if n == 0 or m == 0:
        return np.empty((*row.shape[:-1], n, m), row.dtype)
    step = row.strides[-1]
    return as_strided(row[..., n - 1 :], (*row.shape[:-1], n, m), (*row.strides[:-1], -step, step), writeable=False)


def fill_matrix(function: str, row: Array, n: int, m: int, out: Array | None) -> Array:
    """The view of `row`, or `out` filled from it."""
    if out is None:
        return matrix_view(row, n, m)
    out, buffer = prepare_out(function, out, (*row.shape[:-1], n, m), row.dtype, (row,))
    if n and m:
        _core.toeplitz_matrix(function, row, buffer)
    return finish_out(out, buffer)


def diagonal_sums(function: str, grad: Array, n: int, m: int) -> Float64:
    """Sums of (..., n, m) along its diagonals, float64 (..., n + m - 1)."""
    sums = np.zeros((*grad.shape[:-2], max(n + m - 1, 0)))
    if grad.size:
        _core.diagonal_sums(function, grad, sums)
    return sums


def summed_rows(function: str, grad: Array, heads: int, n: int, m: int) -> Float64:
    """A cotangent of a matrix view, given dense or as diagonal sums, as (heads, n + m - 1)."""
    if grad.shape[-3:] == (heads, n, m):
        grad = diagonal_sums(function, grad, n, m)
    elif grad.shape[-2:] != (heads, max(n + m - 1, 0)):
        expected = f"(..., {heads}, {n}, {m}) or (..., {heads}, {max(n + m - 1, 0)})"
        fail(ValueError, function, "grad", f"shape {grad.shape}", expected)
    return unbroadcast(grad.astype(F64, copy=False), (heads, max(n + m - 1, 0)), F64)
