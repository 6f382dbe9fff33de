"""A bias that is any Python function of the positions of queries and keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import (
    F32,
    F64,
    Array,
    Dtype,
    as_data,
    cast_operand,
    cast_result,
    fail,
    store_result,
)
from .._core_api.constants import BLOCK_M
from ._function import Function, FunctionArrays, FunctionBias, Vjp, call_vjp, read_arguments
from .dense import DenseArrays, DenseBias
from .operator import PositionBias, check_heads
from .parameters import read_cotangent
from .positions import Positions
from .terms import Call, Sums, Term

_PAIRS = 1 << 20
"""Pairs of a block, times heads and rows of a batch of positions, where a block has more than BLOCK_M queries."""
_MOST_PAIRS = 1 << 23
"""Most pairs of a block of more than one query: 64 MB of float64."""


class PairFunctionBias(FunctionBias):
    """A function of both positions, called for one block of queries after the other.

    Attention replaces the operator by an array of numbers for each block.
    """

    is_relative = False

    @property
    def heads(self) -> int | None:
        heads: int | None = self.options["heads"]
        return heads

    def _matrix(self, function: str, positions: Positions, dtype: Dtype, out: Array | None) -> Array:
        result = np.empty(_shape_of(self, positions), dtype)
        for rows, block in _blocks(self, positions):
            result[..., rows, :] = cast_result(pair_values(self, function, block), dtype)
        return result if out is None else store_result(function, out, result, dtype)

    def _term(self, call: Call, positions: Positions) -> Term:
        """Check the call. The term of a block is that of `as_array`."""
        check_heads(call.function, self, call.shape)
        for array in self.arrays.arrays:
            cast_operand(call.function, "arrays", array, call.dtype)
        return Term(self.name, {})

    def _gradient(self, function: str, sums: Sums, positions: Positions) -> tuple[tuple[Array, ...]]:
        raise NotImplementedError("attention computes the gradient in blocks")

    def _matrix_gradient(self, function: str, grad: Array, positions: Positions) -> tuple[tuple[Array, ...]]:
        cotangent = read_cotangent(function, grad, _shape_of(self, positions))
        total = tuple(np.zeros(array.shape) for array in self.arrays.arrays)
        for rows, block in _blocks(self, positions):
            total = tuple(map(np.add, total, pair_values_vjp(self, function, cotangent[..., rows, :], block)))
        return (total,)


def count_block_rows(bias: PairFunctionBias, batch: tuple[int, ...], n: int, m: int) -> int:
    """Return how many queries a block has. It depends on shapes alone, so bits depend on no number of threads."""
    if bias.options["function"] is None:
        return max(1, n)
    pairs = max(1, m * (bias.heads or 1) * prod(batch))
    rows = min(_MOST_PAIRS // pairs, max(_PAIRS // pairs, BLOCK_M))
    return max(1, rows - rows % BLOCK_M if rows > BLOCK_M else rows)


def pair_values(bias: PairFunctionBias, function: str, positions: Positions, dtype: Dtype = F64) -> Array:
    """Return the numbers of all pairs of a block, (batch axes, H, n, m), with one head if all share it.

    They are float64, or float32 if `dtype` is or the user's function returns float32.
    """
    shape = _shape_of(bias, positions)
    if bias.options["function"] is None or 0 in shape:  # only shapes matter, or there are no pairs
        return np.broadcast_to(0.0, shape)
    if len(shape) == 3:
        return _call(bias, function, *positions.as_arrays(), positions, dtype)
    found = np.empty(shape, dtype)
    for row, q, k in _rows(positions):
        found[row] = _call(bias, function, q, k, positions, dtype)
    return found


def as_array(bias: PairFunctionBias, values: Array) -> tuple[DenseBias, bool]:
    """Return the operator of these numbers for a block, and whether its gradient is read."""
    return DenseBias("dense", DenseArrays(values)), bool(bias.arrays.arrays)


def pair_values_vjp(bias: PairFunctionBias, function: str, grad: Array, positions: Positions) -> tuple[Array, ...]:
    """Return the gradient of each array for a cotangent of `pair_values`."""
    total = tuple(np.zeros(array.shape) for array in bias.arrays.arrays)
    for row, q, k in _rows(positions):
        cotangent = grad[row] if bias.options["heads"] is not None else grad[row][0]
        total = tuple(map(np.add, total, call_vjp(bias, function, cotangent, q, k)))
    return total


def _call(bias: PairFunctionBias, function: str, q: Array, k: Array, positions: Positions, dtype: Dtype) -> Array:
    """Return the checked result of the user's function for one row of the batch."""
    has_heads = bias.options["heads"] is not None
    shape = (bias.heads or 1, positions.n, positions.m)
    found = as_data(function, "function", bias.options["function"](_frozen(q), _frozen(k), *bias.arrays.arrays))
    if found.shape != (shape if has_heads else shape[1:]):
        hint = "" if has_heads or found.ndim != 3 else f"; pass heads={len(found)} for a result with heads"
        expected = f"{shape}, heads, queries and keys" if has_heads else f"{shape[1:]}, queries and keys{hint}"
        fail(ValueError, function, "function", f"a result of shape {found.shape}", expected)
    given = found.reshape(shape)
    found = cast_result(given, F32 if F32 in (given.dtype, dtype) else F64)  # numbers beyond float32 become infinite
    if not (found.max((0, 1)) < np.inf).all():  # the maximum of numbers with NaN is NaN
        bad = np.isnan(found) | (found == np.inf)
        rel = k - q[:, None]
        visible = bad & (rel >= positions.low) & (rel <= positions.high)
        if visible.any():
            _, i, j = np.argwhere(visible)[0]
            has = f"{given[visible][0]} at query position {q[i]} and key position {k[j]}"
            fail(ValueError, function, "function", has, f"numbers of {dtype}, or -inf for a mask")
        found = np.where(bad, 0.0, found)
    return found


def _shape_of(bias: PairFunctionBias, positions: Positions) -> tuple[int, ...]:
    batch = () if positions.arrays is None else np.broadcast_shapes(*(side.shape[:-1] for side in positions.arrays))
    return (*batch, bias.heads or 1, positions.n, positions.m)


def _blocks(bias: PairFunctionBias, positions: Positions) -> Iterator[tuple[slice, Positions]]:
    """Yield blocks of queries, and their positions and those of all keys."""
    step = count_block_rows(bias, _shape_of(bias, positions)[:-3], positions.n, positions.m)
    for first in range(0, positions.n, step):
        rows = slice(first, min(first + step, positions.n))
        yield rows, positions.cut(rows, slice(0, positions.m))


def _rows(positions: Positions) -> Iterator[tuple[tuple[int, ...], Array, Array]]:
    """Yield the index of each row of a batch, and the positions of queries and keys of the row."""
    q, k = positions.as_arrays()
    batch = np.broadcast_shapes(q.shape[:-1], k.shape[:-1])
    q, k = (np.broadcast_to(side, (*batch, side.shape[-1])) for side in (q, k))
    for row in np.ndindex(batch):
        yield row, _frozen(q[row]), _frozen(k[row])


def _frozen(positions: Array) -> Array:
    """Return positions that the function of the user cannot change."""
    view = positions.view()
    view.flags.writeable = False
    return view


def pair_function(
    function: Function, heads: int | None = None, *, arrays: Sequence[npt.ArrayLike] = (), vjp: Vjp | None = None
) -> PositionBias[FunctionArrays]:
    """Return a bias that is any Python function of the positions of queries and keys.

    ``b[h, i, j] = function(q_positions, k_positions, *arrays)[h, i, j]``

    Parameters
    ----------
    function : callable
        ``function(q_positions, k_positions, *arrays)`` returns the bias of n queries and m keys, (heads, n, m), for
        their positions (n,) and (m,): int64, or float64 if the positions of the call are. -inf masks a pair.
        `attention` calls the function for one block of queries after the other. The function must not change its
        arguments.
    heads : int, optional
        H. Without it all heads share one bias, and the function returns (n, m).
    arrays : sequence of arrays
        Parameters of the function, finite; copied. Differentiable if `vjp` is passed.
    vjp : callable, optional
        ``vjp(grad, q_positions, k_positions, *arrays)`` returns one gradient per array for a cotangent of the
        function's result.

    Returns
    -------
    PositionBias
        For ``attention(bias=...)``, at any N and M, in decoding too. It can be pickled if the functions can.

    Raises
    ------
    TypeError
        A `function` that cannot be called, results that are no numbers; a gradient without `vjp` if there are arrays.
    ValueError
        Arrays that are not finite, results of another shape, NaN or +inf at a pair that causality and windows leave.

    Notes
    -----
    FlexAttention's ``score_mod`` and ``mask_mod`` (PyTorch) of positions, which have no backward on CPUs.
    `distance_function` is faster where only the distance matters. A block has at most 2**23 pairs, 64 MB of float64, or
    one query. Keys before the first and after the last visible key of a block are skipped: the function is not called
    for keys that causality or a window hides from the whole block, and keys at which it returns -inf for the whole
    block cost no attention. With `dropout` and without, blocks depend on shapes and masks only, so results have the
    same bits for any number of threads.

    Examples
    --------
    Causal attention within documents, for all heads:

    >>> import numpy as np, posenc
    >>> document = np.array([0, 0, 1, 1])
    >>> def mask(i, j):
    ...     return np.where((document[i][:, None] == document[j]) & (i[:, None] >= j), 0.0, -np.inf)
    >>> posenc.pair_function(mask).matrix(4)[0]
    array([[  0., -inf, -inf, -inf],
           [  0.,   0., -inf, -inf],
           [-inf, -inf,   0., -inf],
           [-inf, -inf,   0.,   0.]], dtype=float32)

    A learned number for each head that is added where both positions are even, with its gradient:

    >>> def even(i, j, weight):
    ...     return weight[:, None, None] * ((i[:, None] % 2 == 0) & (j % 2 == 0))
    >>> def even_vjp(grad, i, j, weight):
    ...     return ((grad * ((i[:, None] % 2 == 0) & (j % 2 == 0))).sum((1, 2)),)
    >>> bias = posenc.pair_function(even, 1, arrays=[np.array([2.0])], vjp=even_vjp)
    >>> bias.matrix(3)
    array([[[2., 0., 2.],
            [0., 0., 0.],
            [2., 0., 2.]]], dtype=float32)
    >>> bias.vjp(np.ones((1, 3, 3)), 3).arrays
    (array([4.]),)
    """
    name = "pair_function"
    kept, options = read_arguments(name, function, heads, arrays, vjp)
    return PairFunctionBias(name, kept, options, (None,))
