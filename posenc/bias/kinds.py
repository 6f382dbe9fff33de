"""Kinds of biases that read positions: a row of csrc/ops.def for one distance, or for one pair of positions."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided

from .. import _core
from .._core_api import convert
from .._core_api.arrays import F64, Array, Dtype, Float64
from .._core_api.door import fail
from . import operator
from .operator import Bias, Gradients, Kind, Term
from .positions import Positions


def as_computed(bias: Bias, sums: Gradients, term: Term) -> Gradients:
    """Return the gradients that `_core` has computed for the term."""
    return sums


def _row_gradients(bias: Bias, **arguments: Array) -> Gradients:
    """Return the gradients of the operator's arrays, as the row ``<name>_vjp`` computes them."""
    gradients = getattr(_core, f"{bias.name}_vjp")(**arguments)
    return gradients if type(gradients) is tuple else (gradients,)


# ---- matrices whose diagonals are constant, kept as one number per diagonal ----


def fill_matrix(diagonals: Array, n: int, m: int, out: Array | None) -> Array:
    """Return the read-only (..., n, m) view of (..., n + m - 1) numbers, or fill `out` with that matrix.

    Entry (i, j) is number j - i + n - 1.
    """
    if out is not None:
        return _core.toeplitz_matrix(row=diagonals, out=out, n=n, m=m)
    shape = (*diagonals.shape[:-1], n, m)
    if n == 0 or m == 0:
        return np.empty(shape, diagonals.dtype)
    step = diagonals.strides[-1]
    return as_strided(diagonals[..., n - 1 :], shape, (*diagonals.strides[:-1], -step, step), writeable=False)


def read_diagonal_sums(grad: Array, heads: int, n: int, m: int) -> Float64:
    """Return the cotangent of such a matrix, dense or as diagonal sums, as new memory (heads, n + m - 1)."""
    length = max(n + m - 1, 0)
    if grad.shape[-3:] == (heads, n, m):
        matrix, grad = grad, np.zeros((*grad.shape[:-2], length))
        if matrix.size:
            _core.diagonal_sums(grad=matrix, out=grad)
    elif grad.shape[-2:] != (heads, length):
        expected = f"(..., {heads}, {n}, {m}) or (..., {heads}, {length})"
        fail(ValueError, "grad", f"shape {grad.shape}", expected)
    return convert.unbroadcast(np.array(grad, F64, order="C"), (heads, length), F64)


# ---- functions of the distance ----


def distance_values(bias: Bias, rel: Float64, dtype: Dtype) -> Array:
    """Return b_h(rel), (..., H, l), for distances (..., l)."""
    values: Array = getattr(_core, bias.name)(**bias._term.operands, rel=rel, dtype=dtype)
    return values


def distance_values_vjp(bias: Bias, grad: Float64, rel: Float64) -> Gradients:
    """Return the gradient of each array for a cotangent (..., H, l) of the values, summed over its batch axes."""
    return _row_gradients(bias, grad=grad, **bias._term.operands, rel=rel)


def _distance_matrix(bias: Bias, positions: Positions, dtype: Dtype, out: Array | None) -> Array:
    positions = positions if positions.arrays is None else positions.as_consecutive()
    n, m = positions.n, positions.m
    if positions.arrays is None:
        values = distance_values(bias, positions.distances(), dtype)
        return fill_matrix(values, n, m, out)
    rel = positions.pair_distances()
    values = distance_values(bias, rel.reshape(*rel.shape[:-2], n * m), dtype)
    matrix = values.reshape(*values.shape[:-1], n, m)
    return matrix if out is None else convert.store(out, matrix, dtype)


def _distance_vjp(bias: Bias, grad: Array, positions: Positions) -> Gradients:
    """Accept sums of `grad` along diagonals where distances are those of consecutive positions."""
    positions = positions.as_consecutive()
    heads, n, m = bias.heads or 1, positions.n, positions.m
    if positions.arrays is None:
        sums = read_diagonal_sums(grad, heads, n, m)
        return distance_values_vjp(bias, sums, positions.distances())
    rel = positions.pair_distances()
    batch = rel.shape[:-2]
    cotangent = operator.read_cotangent(grad, (*batch, heads, n, m)).reshape(*batch, heads, n * m)
    return distance_values_vjp(bias, cotangent, rel.reshape(*batch, n * m))


DISTANCE = Kind(as_computed, _distance_matrix, _distance_vjp)
"""A function of rel = position of key - position of query, whose values are those of its DISTANCE row."""


# ---- functions of both positions ----


def batch_of(bias: Bias, positions: Positions) -> tuple[int, ...]:
    """Return the batch axes of positions broadcast with those of the arrays, which only the first may have."""
    axes, batch = next(iter(operator.read_row(bias.name).axes.values())), positions.batch
    of_arrays: tuple[int, ...] = bias.arrays[0].shape[: bias.arrays[0].ndim - len(axes)]
    try:
        return np.broadcast_shapes(of_arrays, batch)
    except ValueError:
        argument = "q_positions" if positions.as_arrays()[0].shape[:-1] == batch else "k_positions"
        fail(ValueError, argument, f"batch axes {batch}", f"to broadcast against {of_arrays}")


def _pair_matrix(bias: Bias, positions: Positions, dtype: Dtype, out: Array | None) -> Array:
    batch_of(bias, positions)  # which names the argument whose axes do not fit
    q, k = positions.as_arrays()
    matrix: Array = getattr(_core, bias.name)(**bias._term.operands, q_positions=q, k_positions=k, out=out, dtype=dtype)
    return matrix


def pair_vjp(bias: Bias, grad: Array, positions: Positions) -> Gradients:
    """Return the gradient of each operand. The kernel sums over the batch: it is called for each row of an array."""
    batch = batch_of(bias, positions)
    cotangent = operator.read_cotangent(grad, (*batch, bias.heads or 1, positions.n, positions.m))
    axes = operator.read_row(bias.name).axes
    arrays = {
        name: _over_batch(array, len(axes[name]), batch) for name, array in bias._term.operands.items() if name in axes
    }
    q, k = (_over_batch(side, 1, batch) for side in positions.as_arrays())
    gradients = [np.zeros(arrays[name].shape) for name in axes]
    for row in np.ndindex(batch):
        operands = {**bias._term.operands, **{name: array[(*row, ...)] for name, array in arrays.items()}}
        sums = _row_gradients(bias, grad=cotangent[row], **operands, q_positions=q[row], k_positions=k[row])
        for gradient, one in zip(gradients, sums, strict=True):
            gradient[(*row, ...)] = one
    return tuple(
        convert.unbroadcast(d, bias._term.operands[name].shape, F64) for d, name in zip(gradients, axes, strict=True)
    )


def _over_batch(array: Array, rank: int, batch: tuple[int, ...]) -> Array:
    """Return an array whose last `rank` axes are its own, with all batch axes before them."""
    shape = (*batch, *array.shape[array.ndim - rank :])
    return array if array.shape == shape else np.broadcast_to(array, shape)


PAIR = Kind(as_computed, _pair_matrix, pair_vjp, is_relative=False)
"""A function of both positions, whose numbers are those of its PAIR row."""
