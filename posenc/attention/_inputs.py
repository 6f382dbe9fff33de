"""What `attention` and its gradient are asked for, checked: arrays, visible range, positions and terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._core_api.arguments import (
    F64,
    I64,
    Array,
    Float64,
    as_array,
    as_data,
    as_number,
    broadcasts_to,
    cast_operand,
    check_choice,
    compute_dtype,
    fail,
    fail_value,
)
from ..bias._diagonals import Where, consecutive, diagonal_distances, position_pair
from ..bias.operator import Bias

INFINITY = float("inf")


def _heads(function: str, argument: str, value: Any) -> Array:
    array = as_data(function, argument, value)
    if array.ndim < 3:
        fail(ValueError, function, argument, f"{array.ndim} axes", "at least 3, heads, sequence and channels")
    return array


def _batch_array(function: str, argument: str, array: Array, batch: tuple[int, ...], length: int) -> Array:
    """(N,) or (batch axes, N), without a head axis."""
    if array.ndim < 1 or array.shape[-1] != length or not broadcasts_to(array.shape[:-1], batch):
        expected = f"({length},)" + (f" or {(*batch, length)}" if batch else "")
        fail(ValueError, function, argument, f"shape {array.shape}", expected)
    return array


def _segments(function: str, argument: str, value: Any, batch: tuple[int, ...], length: int) -> Array:
    array = as_array(function, argument, value)
    if array.dtype.kind not in "iu":
        fail(TypeError, function, argument, f"dtype {array.dtype}", "integers")
    if array.dtype.char in "QL" and array.size and int(array.max()) >= 2**63:
        fail(ValueError, function, argument, int(array.max()), "at most 2**63 - 1")
    return _batch_array(function, argument, array.astype(I64, copy=False), batch, length)


def _range(function: str, causal: bool, window: Any) -> tuple[float, float]:
    """Visible relative positions, low <= rel <= high."""
    if not isinstance(causal, bool | np.bool_):
        fail(TypeError, function, "causal", f"type {type(causal).__name__}", "True or False")
    low, high = -INFINITY, INFINITY
    if window is not None:
        if not isinstance(window, tuple | list) or len(window) != 2:
            fail_value(ValueError, function, "window", window, "(left, right), each a number or None")
        left, right = window
        low = -INFINITY if left is None else -as_number(function, "window", left)
        high = INFINITY if right is None else as_number(function, "window", right)
    return low, min(high, 0.0) if causal else high


def _operators(function: str, bias: Any) -> tuple[Bias, ...]:
    operators = (bias,) if isinstance(bias, Bias) else bias
    if not isinstance(operators, Sequence) or not all(isinstance(operator, Bias) for operator in operators):
        fail(TypeError, function, "bias", f"type {type(bias).__name__}", "a Bias, as dense(array) makes it, or some")
    return tuple(operators)


def _scale(function: str, width: int, operators: tuple[Bias, ...]) -> float:
    """D**-0.5, or what the operators ask for, if they agree."""
    asked = [(operator.name, one) for operator in operators if (one := operator.default_scale(width)) is not None]
    if len({one for _, one in asked}) > 1:
        names = ", ".join(sorted({name for name, _ in asked}))
        fail_value(ValueError, function, "scale", None, f"a number: {names} ask for different ones")
    return asked[0][1] if asked else (width or 1) ** -0.5


class Inputs(NamedTuple):
    """Arguments of a call, as the kernels take them."""

    q: Array
    k: Array
    v: Array
    keep: Array | None
    positions: tuple[Array, Array] | tuple[None, None]
    segments: tuple[Array | None, Array | None]
    operators: tuple[Bias, ...]
    every: tuple[Bias, ...]
    """Operators and those that come along with them: one for each term."""
    terms: tuple[Any, ...]
    distances: Float64 | None
    """Of the diagonals, where positions are consecutive and an operator reads them."""
    shape: tuple[int, ...]
    """(batch axes, H, N, M)"""
    numbers: tuple[float, ...]
    """scale, softcap, the lowest and the highest visible rel, and where query 0 stands"""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the arithmetic."""
        return compute_dtype(self.q)

    @property
    def where(self) -> Where:
        """Positions, unless they are consecutive and only their distances are read."""
        q, k = self.positions
        return None if q is None or k is None else (q, k)

    @property
    def operands(self) -> tuple[Any, ...]:
        """The first operands of the rows of the table."""
        k, v = cast_operand(self.k, self.dtype), cast_operand(self.v, self.dtype)
        return (self.q, k, v, self.keep, *self.positions, *self.segments, self.terms)

    @property
    def arrays(self) -> tuple[Any, ...]:
        """Everything that is read."""
        of_bias = (array for operator in self.every for array in operator.arrays if isinstance(array, np.ndarray))
        return (self.q, self.k, self.v, self.keep, *self.positions, *self.segments, *of_bias)


def read_inputs(
    function: str,
    q: Any,
    k: Any,
    v: Any,
    *,
    bias: Any = (),
    keep: Any = None,
    causal: Any = False,
    align: Any = None,
    window: Any = None,
    q_positions: Any = None,
    k_positions: Any = None,
    q_segments: Any = None,
    k_segments: Any = None,
    scale: Any = None,
    softcap: Any = None,
) -> Inputs:
    query, key, value = (_heads(function, argument, x) for argument, x in (("q", q), ("k", k), ("v", v)))
    heads, n, width = query.shape[-3:]
    groups, m = key.shape[-3:-1]
    if key.shape[-1] != width:
        fail(ValueError, function, "k", f"width {key.shape[-1]}", f"{width}, that of q")
    if value.shape[-3:-1] != (groups, m):
        fail(ValueError, function, "v", f"shape {value.shape}", f"(..., {groups}, {m}, Dv), as k")
    if heads % groups if groups else heads:
        fail(ValueError, function, "k", f"{groups} heads", f"a divisor of the {heads} heads of q")
    batch = query.shape[:-3]
    for argument, array in (("k", key), ("v", value)):
        if array.shape[:-3] == batch:  # broadcast_shapes takes longer than the kernel does for a few words
            continue
        try:
            batch = np.broadcast_shapes(batch, array.shape[:-3])
        except ValueError:
            fail(ValueError, function, argument, f"batch axes {array.shape[:-3]}", f"to broadcast against {batch}")
    dtype = compute_dtype(query)
    operators = _operators(function, bias)
    every = tuple(one for operator in operators for one in (operator, *operator.within))
    for operator in every:
        operator.check_widths(function, width, value.shape[-1])
    low, high = _range(function, causal, window)
    cap = 0.0 if softcap is None else as_number(function, "softcap", softcap)
    if softcap is not None:
        if cap <= 0:
            fail_value(ValueError, function, "softcap", softcap, "a positive number or None")
        size = (
            1e300 if dtype is F64 else 1e37
        )  # it and its inverse are numbers of the working precision; results are the same
        cap = min(max(cap, 1 / size), size)
    factor = _scale(function, width, every) if scale is None else as_number(function, "scale", scale)

    where = position_pair(function, n, m, q_positions, k_positions)
    if align is not None:
        check_choice(function, "align", align, ("start", "end"))
        if where is not None:
            fail_value(ValueError, function, "align", align, "None where positions are given")
    needs_positions = low > -INFINITY or high < INFINITY or any(operator.reads_positions for operator in every)
    shift = 0.0
    if where is not None:
        for argument, array, length in (("q_positions", where[0], n), ("k_positions", where[1], m)):
            _batch_array(function, argument, array, batch, length)
        relative = all(operator.is_relative for operator in every)
        if relative and consecutive(where[0]) and consecutive(where[1]):
            shift, where = float(where[0][0] - where[1][0]) if n and m else 0.0, None
    elif n != m and align is None and needs_positions:
        fail_value(ValueError, function, "align", None, f"'start', or 'end' as in decoding: N = {n} and M = {m} differ")
    elif align == "end":
        shift = float(m - n)
    reads = where is None and any(operator.reads_positions for operator in every)
    distances = diagonal_distances(n, m, shift) if reads else None

    mask = None
    if keep is not None:
        mask = as_array(function, "keep", keep)
        if mask.dtype != np.bool_:
            fail(TypeError, function, "keep", f"dtype {mask.dtype}", "bool, True = this key may be seen")
        try:
            mask = np.broadcast_to(mask, (*batch, heads, n, m))
        except ValueError:
            words = "; keep[..., None, None, :] if it tells of keys" if mask.shape == (*batch, m) else ""
            expected = f"to broadcast to {(*batch, heads, n, m)}{words}"
            fail(ValueError, function, "keep", f"shape {mask.shape}", expected)
    if (q_segments is None) != (k_segments is None):
        missing = "q_segments" if q_segments is None else "k_segments"
        fail_value(ValueError, function, missing, None, "segments of both queries and keys")
    of_q = None if q_segments is None else _segments(function, "q_segments", q_segments, batch, n)
    of_k = None if k_segments is None else _segments(function, "k_segments", k_segments, batch, m)
    terms = tuple(operator.term(function, dtype, (*batch, heads, n, m), distances, where) for operator in every)
    return Inputs(
        query, key, value, mask, where or (None, None), (of_q, of_k), operators, every, terms, distances,
        (*batch, heads, n, m), (factor, cap, low, high, shift),
    )  # fmt: skip
