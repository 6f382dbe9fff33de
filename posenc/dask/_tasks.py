"""The tasks of attention over chunks: a pair of chunks, and sums and merges of their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

import posenc
from posenc._core_api.arguments import F32, I64, Array, is_bfloat16


@dataclass(frozen=True)
class _Pair:
    """A task of one pair of chunks, with the arguments that all pairs share."""

    causal: bool
    window: tuple[float | None, float | None] | None
    scale: float
    softcap: float | None
    invariant: bool
    value_width: int
    parameters: int
    """Number of arrays of all operators, and one more for a sink."""

    def arguments(
        self, q: Array, k: Array | None, v: Array | None, *others: Any
    ) -> tuple[tuple[Array, Any, Any], dict[str, Any]]:
        """Return the arguments of `posenc.attention`; without keys, those of a call that sees none."""
        k_scale, v_scale, keep, *places, sink, parts = others
        if k is None or v is None:
            q = _widen(q)
            nothing = np.zeros((1, 0, q.shape[-1]), q.dtype), np.zeros((1, 0, self.value_width), q.dtype)
            return (q, *nothing), {"sink": sink}
        q_positions, k_positions, q_segments, k_segments = places
        options = {
            "bias": [part.bias for part in parts], "keep": keep, "causal": self.causal, "window": self.window,
            "q_positions": _as_positions(q_positions), "k_positions": _as_positions(k_positions),
            "q_segments": q_segments, "k_segments": k_segments,
            "scale": self.scale, "softcap": self.softcap, "sink": sink, "invariant": self.invariant,
        }  # fmt: skip
        keys = k if k_scale is None else posenc.Quantized(k, k_scale)
        return (_widen(q), keys, v if v_scale is None else posenc.Quantized(v, v_scale)), options


class Forward(_Pair):
    def __call__(self, *operands: Any) -> tuple[Array, Array]:
        """Return out and lse of a pair of chunks, in float32 or wider."""
        arrays, options = self.arguments(*operands)
        result: tuple[Array, Array] = posenc.attention(*arrays, **options, return_lse=True)
        return result


class Backward(_Pair):
    def __call__(self, *operands: Any) -> tuple[_Row, tuple[Array, Array]]:
        """Return the gradients of a pair of chunks in float32 or wider: of (q, parameters) and of (k, v).

        The last operand is the gradient of (q, parameters) of an earlier pair, which is added, or None.
        """
        *given, grad, out, lse, grad_lse, sink_start, earlier = operands
        arrays, options = self.arguments(*given)
        if options["sink"] is not None:
            options["sink"] = _widen(options["sink"])
        gradient = posenc.attention_vjp(grad, *map(_widen, arrays), out=out, lse=lse, grad_lse=grad_lse, **options)
        pieces: list[_Piece | None] = [
            None if array is None or start is None else (start, array)
            for part, arrays_of_part in zip(given[-1], gradient.bias, strict=True)
            for start, array in zip_longest(part.starts, arrays_of_part)
        ]
        pieces += [None] * (self.parameters - len(pieces))  # without keys there are no operators
        if gradient.sink is not None:
            pieces[-1] = (tuple(sink_start), gradient.sink)
        row = gradient.q, tuple(pieces)
        return row if earlier is None else add_rows([earlier, row]), (gradient.k, gradient.v)


_Piece = tuple[tuple[int, ...], Array]
"""(first index along each axis, array): a part of a larger array."""
_Row = tuple[Array, tuple[_Piece | None, ...]]
"""The gradient of a chunk of q, and pieces of those of all parameters."""


def _widen(array: Array) -> Array:
    """Return half precision as float32, so that partial results are float32."""
    return array.astype(F32) if array.dtype.char == "e" or is_bfloat16(array.dtype) else array


def _as_positions(positions: Any) -> Array | None:
    return np.arange(positions.start, positions.stop, dtype=I64) if isinstance(positions, range) else positions


def merge_parts(parts: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    outs, lses = zip(*parts, strict=True)
    return posenc.merge_attention(list(outs), list(lses))


def item_of(values: Sequence[Any], number: int) -> Any:
    return values[number]


def take(values: Any, number: int | None, dtype: np.dtype[Any] | None) -> Array:
    """Return a result, or one of several, in `dtype`."""
    array: Array = values if number is None else values[number]
    if dtype is None or array.dtype == dtype:
        return array
    with np.errstate(over="ignore"):
        return array.astype(dtype)


def add(values: list[Array]) -> Array:
    total = values[0].copy()
    with np.errstate(over="ignore", invalid="ignore"):
        for value in values[1:]:
            total += value
    return total


def add_pairs(values: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    first, second = zip(*values, strict=True)
    return add(list(first)), add(list(second))


def add_rows(values: list[_Row]) -> _Row:
    queries, pieces = zip(*values, strict=True)
    return add(list(queries)), add_pieces(list(pieces))


def add_pieces(values: list[tuple[_Piece | None, ...]]) -> tuple[_Piece | None, ...]:
    """Sum the pieces of each array; the sum covers the smallest box with all of them."""
    return tuple(_add_pieces_of_one([piece for piece in of_array if piece is not None])
                 for of_array in zip(*values, strict=True))  # fmt: skip


def _add_pieces_of_one(pieces: list[_Piece]) -> _Piece | None:
    if len(pieces) < 2:
        return pieces[0] if pieces else None
    first = tuple(map(min, zip(*(start for start, _ in pieces), strict=True)))
    ends = [[a + n for a, n in zip(start, array.shape, strict=True)] for start, array in pieces]
    end = map(max, zip(*ends, strict=True))
    total = np.zeros([b - a for a, b in zip(first, end, strict=True)], pieces[0][1].dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        for start, array in pieces:
            total[_box(start, first, array)] += array
    return first, total


def _box(start: tuple[int, ...], origin: tuple[int, ...], array: Array) -> Any:
    """Return the index of a piece in an array that begins at `origin`."""
    return (..., *(slice(a - o, a - o + n) for a, o, n in zip(start, origin, array.shape, strict=True)))


def whole_gradient(pieces: tuple[_Piece | None, ...], number: int, shape: list[int], dtype: np.dtype[Any]) -> Array:
    """Return a whole gradient from the sum of its pieces."""
    total = np.zeros(shape, dtype)
    piece = pieces[number]
    if piece is not None:
        start, array = piece
        total[_box(start, (0,) * len(start), array)] = take(array, None, dtype)
    return total


def zeros(shape: list[int], dtype: np.dtype[Any]) -> Array:
    return np.zeros(shape, dtype)
