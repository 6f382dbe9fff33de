"""Gradients of rotated pairs of channels, and of the tables, positions and frequencies that rotate them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np

from .. import _core
from .._core_api.arguments import F64, Array, Float64, unbroadcast, without_warnings
from .sinusoid import halves, row_blocks, select_rows, with_axes

Index: TypeAlias = tuple[slice, ...]


class AngleGradient(NamedTuple):
    """Gradients of angles ``sum_a positions[..., a] * frequencies[a]``."""

    positions: Float64
    frequencies: Float64


class RotatedPairs(NamedTuple):
    """The channels of x that a rotation reads as pairs, and the channels of its result."""

    offset: int
    """The first rotated channel."""
    pairs: int
    interleaved: bool
    out_interleaved: bool

    def x_gradient(self, grad: Array, cos: Array, sin: Array) -> Array:
        """Rotate `grad` by the negated angles, from the result's layout to that of x."""
        return _core.rope(
            x=grad, cos=cos, sin=-sin, offset=self.offset,
            interleaved=self.out_interleaved, out_interleaved=self.interleaved,
        )  # fmt: skip

    def table_gradients(self, grad: Array, x: Array, rows: tuple[int, ...]) -> Iterator[tuple[Index, Float64, Float64]]:
        """Yield (index, d_cos, d_sin), terms of the gradients of cos and sin with `rows`, as many axes as x has rows.

        ``d_cos = dy0 x0 + dy1 x1`` and ``d_sin = dy1 x0 - dy0 x1``, summed over the rows of x that share a row. Only
        a block of x is widened to float64 at a time.
        """
        for index in row_blocks(x.shape[:-1], x.shape[-1]):
            x0, x1 = self._widen(x[index], self.interleaved)
            dy0, dy1 = self._widen(grad[index], self.out_interleaved)
            with without_warnings():
                d_cos, d_sin = dy0 * x0 + dy1 * x1, dy1 * x0 - dy0 * x1
            block = tuple([1 if length == 1 else own for length, own in zip(rows, x0.shape[:-1], strict=True)])
            shape = (*block, self.pairs)
            yield select_rows(index, rows), unbroadcast(d_cos, shape, F64), unbroadcast(d_sin, shape, F64)

    def _widen(self, x: Array, interleaved: bool) -> tuple[Float64, Float64]:
        """Return both channels of each pair in float64."""
        wide = x[..., self.offset : self.offset + 2 * self.pairs].astype(F64, order="C")
        return (wide[..., 0::2], wide[..., 1::2]) if interleaved else halves(wide)

    def angle_gradient(
        self, grad: Array, x: Array, table: Array, positions: Array, frequencies: Float64, growth: Float64 | None = None
    ) -> AngleGradient:
        """Return the gradients of positions (..., N, A) and of frequencies (A, ..., pairs) of a table [cos | sin].

        The rows of the table, of positions and of frequencies broadcast against x (..., N, D), axis by axis from the
        last. ``d_angle = dy1 y0 - dy0 y1 = cos d_sin - sin d_cos``, ``d_position = sum_k w d_angle`` and ``d_w =
        sum_n p d_angle``. One position adds `growth` (A, pairs) to the logarithm of the size of each pair.
        """
        axes = x.ndim - 1
        cos, sin = halves(with_axes(table, axes + 1))
        places = with_axes(positions, axes + 1)
        w = frequencies.reshape(len(frequencies), *with_axes(frequencies[0], axes + 1).shape)
        rows = cos.shape[:-1]
        d_rows, d_w = np.zeros((*rows, len(w))), np.zeros(w.shape)
        for index, d_cos, d_sin in self.table_gradients(grad, x, rows):
            c, s = cos[index].astype(F64), sin[index].astype(F64)
            p = places[select_rows(index, places.shape)].astype(F64)
            with without_warnings():
                d_angle = c * d_sin - s * d_cos
                for axis in range(len(w)):
                    own = select_rows(index, w.shape[1:])
                    d_rows[index][..., axis] += (w[axis][own] * d_angle).sum(-1)
                    if growth is not None:
                        d_rows[index][..., axis] += (growth[axis] * (c * d_cos + s * d_sin)).sum(-1)
                    of_angles = p[..., axis, None] * d_angle
                    d_w[axis][own] += unbroadcast(of_angles, w[axis][own].shape, F64)
        return AngleGradient(
            unbroadcast(d_rows, places.shape, F64).reshape(positions.shape), d_w.reshape(frequencies.shape)
        )
