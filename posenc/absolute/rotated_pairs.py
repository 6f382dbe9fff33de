"""Pairs of channels that a table of cosines and sines rotates, and the gradients of the rotation."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from .. import _core
from .._core_api import convert
from .._core_api.arrays import F64, Array, Dtype, Float64

Index: TypeAlias = tuple[slice, ...]
Layout = Literal["half", "interleaved"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
BLOCK_NUMBERS = 1 << 17
"""Numbers of an array that a gradient widens to float64 at a time, so that its temporary arrays stay in the cache."""


def cos_sin_table(
    positions: Array,
    frequencies: Float64,
    dtype: Dtype,
    cosine_scale: float = 1.0,
    sine_scale: float | None = None,
    low: Float64 | None = None,
) -> Array:
    """Return [cos | sin] of the angles ``positions * frequencies``, times their scales: (..., 2 len(frequencies))."""
    count = len(frequencies)
    table = _core.sinusoid(
        positions=positions.reshape(positions.shape or 1),
        frequencies=frequencies,
        lo=low,
        sine=count,
        cosine=0,
        step=1,
        sine_scale=cosine_scale if sine_scale is None else sine_scale,
        cosine_scale=cosine_scale,
        d=2 * count,
        dtype=dtype,
    )
    return table if positions.ndim else table[0]


def halves(table: Array) -> tuple[Array, Array]:
    """View a table [cos | sin] as (cos, sin)."""
    pairs = table.shape[-1] // 2
    return table[..., :pairs], table[..., pairs:]


def with_axes(array: Array, axes: int) -> Array:
    """View an array with more leading axes, of length 1."""
    return array.reshape((1,) * (axes - array.ndim) + array.shape)


def row_blocks(rows: tuple[int, ...], width: int) -> Iterator[tuple[slice, ...]]:
    """Cut arrays (*rows, width) into blocks of at most BLOCK_NUMBERS numbers; a row stays whole."""
    if width * prod(rows) <= BLOCK_NUMBERS:
        return iter([(slice(None),) * len(rows)])
    cuts: list[list[slice]] = []
    for length in reversed(rows):
        step = max(BLOCK_NUMBERS // width, 1)
        cuts.insert(0, [slice(first, first + step) for first in range(0, length, step)])
        width *= length
    return product(*cuts)


def select_rows(index: tuple[slice, ...], rows: tuple[int, ...]) -> tuple[slice, ...]:
    """Return the index of a block for an array whose axes of length 1 are broadcast."""
    return tuple([slice(None) if length == 1 else block for block, length in zip(index, rows, strict=False)])


class RotatedPairs(NamedTuple):
    """The channels of x that a rotation reads as pairs, and the channels of its result."""

    offset: int
    """The first rotated channel."""
    pairs: int
    interleaved: bool
    out_interleaved: bool

    def rotate(self, x: Array, cos: Array, sin: Array, out: Array | None = None) -> Array:
        """Rotate x by cos and sin, which broadcast against x."""
        return _core.rope(
            x=x,
            cos=cos,
            sin=sin,
            out=out,
            offset=self.offset,
            interleaved=self.interleaved,
            out_interleaved=self.out_interleaved,
        )

    def x_gradient(self, grad: Array, cos: Array, sin: Array) -> Array:
        """Rotate `grad` by the negated angles, from the result's layout to that of x."""
        return RotatedPairs(self.offset, self.pairs, self.out_interleaved, self.interleaved).rotate(grad, cos, -sin)

    def table_gradients(self, grad: Array, x: Array, rows: tuple[int, ...]) -> Iterator[tuple[Index, Float64, Float64]]:
        """Yield (index, d_cos, d_sin), terms of the gradients of cos and sin with `rows`, as many axes as x has rows.

        ``d_cos = dy0 x0 + dy1 x1`` and ``d_sin = dy1 x0 - dy0 x1``, summed over the rows of x that share a row. Only
        a block of x is widened to float64 at a time.
        """
        for index in row_blocks(x.shape[:-1], x.shape[-1]):
            x0, x1 = self._widen(x[index], self.interleaved)
            dy0, dy1 = self._widen(grad[index], self.out_interleaved)
            with convert.without_warnings():
                d_cos, d_sin = dy0 * x0 + dy1 * x1, dy1 * x0 - dy0 * x1
            shape = (*[1 if row == 1 else of_x for row, of_x in zip(rows, x0.shape[:-1], strict=True)], self.pairs)
            d_cos, d_sin = convert.unbroadcast(d_cos, shape, F64), convert.unbroadcast(d_sin, shape, F64)
            yield select_rows(index, rows), d_cos, d_sin

    def _widen(self, x: Array, interleaved: bool) -> tuple[Float64, Float64]:
        """Return both channels of each pair in float64."""
        wide = x[..., self.offset : self.offset + 2 * self.pairs].astype(F64, order="C")
        return (wide[..., 0::2], wide[..., 1::2]) if interleaved else halves(wide)

    def angle_gradient(
        self, grad: Array, x: Array, table: Array, positions: Array, frequencies: Float64, growth: Float64 | None = None
    ) -> tuple[Float64, Float64]:
        """Return the gradients of positions (..., N, A) and of frequencies (A, ..., pairs) of a table [cos | sin].

        The angles are ``sum_a positions[..., a] * frequencies[a]``. The rows of the table, of positions and of
        frequencies broadcast against x (..., N, D), axis by axis from the last. ``d_angle = dy1 y0 - dy0 y1 = cos d_sin
        - sin d_cos``, ``d_position = sum_k w d_angle`` and ``d_w = sum_n p d_angle``. One position adds `growth`
        (A, pairs) to the logarithm of the size of each pair.
        """
        cos, sin = halves(with_axes(table, x.ndim))
        places = with_axes(positions, x.ndim)
        w = frequencies.reshape(len(frequencies), *with_axes(frequencies[0], x.ndim).shape)
        rows = cos.shape[:-1]
        d_rows, d_w = np.zeros((*rows, len(w))), np.zeros(w.shape)
        for index, d_cos, d_sin in self.table_gradients(grad, x, rows):
            c, s = cos[index].astype(F64), sin[index].astype(F64)
            p = places[select_rows(index, places.shape)].astype(F64)
            with convert.without_warnings():
                d_angle = c * d_sin - s * d_cos
                for axis in range(len(w)):
                    heads = select_rows(index, w.shape[1:])
                    d_rows[index][..., axis] += (w[axis][heads] * d_angle).sum(-1)
                    if growth is not None:
                        d_rows[index][..., axis] += (growth[axis] * (c * d_cos + s * d_sin)).sum(-1)
                    d_w[axis][heads] += convert.unbroadcast(p[..., axis, None] * d_angle, w[axis][heads].shape, F64)
        d_positions = convert.unbroadcast(d_rows, places.shape, F64).reshape(positions.shape)
        return d_positions, d_w.reshape(frequencies.shape)
