"""Matrices whose diagonals are constant, kept as one number per diagonal."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided

from .. import _core
from .._core_api.arguments import F64, Array, Float64, fail, unbroadcast


def matrix_view(diagonals: Array, n: int, m: int) -> Array:
    """Return the read-only (..., n, m) view of (..., n + m - 1) numbers: entry (i, j) is number j - i + n - 1."""
    if n == 0 or m == 0:
        return np.empty((*diagonals.shape[:-1], n, m), diagonals.dtype)
    step = diagonals.strides[-1]
    shape, strides = (*diagonals.shape[:-1], n, m), (*diagonals.strides[:-1], -step, step)
    return as_strided(diagonals[..., n - 1 :], shape, strides, writeable=False)


def fill_matrix(function: str, diagonals: Array, n: int, m: int, out: Array | None) -> Array:
    """Return the view of `diagonals` as a matrix, or fill `out` with that matrix."""
    if out is None:
        return matrix_view(diagonals, n, m)
    return _core.toeplitz_matrix(function, row=diagonals, out=out, n=n, m=m)


def sum_diagonals(function: str, matrix: Array, n: int, m: int) -> Float64:
    """Return the sums of (..., n, m) along its diagonals, (..., n + m - 1)."""
    sums = np.zeros((*matrix.shape[:-2], max(n + m - 1, 0)))
    if matrix.size:
        _core.diagonal_sums(function, grad=matrix, out=sums)
    return sums


def read_diagonal_sums(function: str, grad: Array, heads: int, n: int, m: int) -> Float64:
    """Return the cotangent of a matrix view, dense or as diagonal sums, as (heads, n + m - 1)."""
    length = max(n + m - 1, 0)
    if grad.shape[-3:] == (heads, n, m):
        grad = sum_diagonals(function, grad, n, m)
    elif grad.shape[-2:] != (heads, length):
        expected = f"(..., {heads}, {n}, {m}) or (..., {heads}, {length})"
        fail(ValueError, function, "grad", f"shape {grad.shape}", expected)
    return unbroadcast(grad.astype(F64, copy=False), (heads, length), F64)
