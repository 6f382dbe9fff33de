"""Tables of cosines and sines that rotate pairs of channels, and the gradients of their angles."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Literal, get_args

import numpy as np

from .. import _core
from .._core_api import convert
from .._core_api.arrays import F64, Array, Dtype, Float64

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


def with_heads(array: Array, rows: int, after: int = 0) -> Array:
    """View angles (N,), (batch, N) or (batch, H, N) with `rows` axes, that of heads included; `after` axes follow."""
    if 1 < array.ndim - after == rows - 1:
        array = np.expand_dims(array, -2 - after)
    return array.reshape((1,) * (rows + after - array.ndim) + array.shape)


def table_gradient(
    grad: Array, x: Array, cos: Array, sin: Array, layouts: tuple[Layout, Layout], offset: int = 0
) -> tuple[Float64, Float64]:
    """Return the gradients (..., H, N, pairs) of the cos and sin that rotate x (..., H, N, D), see rotation_vjp.c.

    cos and sin have as many axes as x. If their axis of heads has length 1, so have the gradients, and C adds the heads
    up. `layouts` are those of x and of its cotangent, from channel `offset` on.
    """
    share = x.ndim > 2 and cos.shape[-3] == sin.shape[-3] == 1
    if not share:
        x, grad = x[..., None, :, :], grad[..., None, :, :]
    layout, out_layout = layouts
    d_cos, d_sin = _core.rotation_vjp(
        x=x, grad=grad, layout=layout, rotary_offset=offset, out_layout=out_layout, e=cos.shape[-1]
    )
    return (d_cos[..., None, :, :], d_sin[..., None, :, :]) if share else (d_cos, d_sin)


def pair_gradient(
    grad: Array, x: Array, cos: Array, sin: Array, layouts: tuple[Layout, Layout], offset: int = 0
) -> tuple[Float64, Float64]:
    """Return the gradients of the angle of each pair, and of the logarithm of its size, as `table_gradient` does."""
    d_cos, d_sin = table_gradient(grad, x, cos, sin, layouts, offset)
    with convert.without_warnings():
        return cos * d_sin - sin * d_cos, cos * d_cos + sin * d_sin


def angle_gradient(d_angle: Float64, positions: Array, frequencies: Float64) -> tuple[Float64, Float64]:
    """Return the gradients of positions and frequencies from those of the angles (..., H, N, pairs).

    The angles are ``sum_a positions[a] * frequencies[a]``, with positions (A, N), (A, ..., N) without heads or
    (A, ..., H, N), and frequencies (A, pairs) or (A, H, pairs). ``d_positions = sum_k w d_angle`` and ``d_w = sum_n p
    d_angle``.
    """
    w = frequencies if frequencies.ndim == 2 else frequencies[:, :, None]
    d_positions, d_w = np.empty(positions.shape), np.empty(frequencies.shape)
    with convert.without_warnings():
        for axis, one in enumerate(positions):
            place = with_heads(one, d_angle.ndim - 1)
            d_rows, d_products = (w[axis] * d_angle).sum(-1), place[..., None] * d_angle
            d_positions[axis] = convert.unbroadcast(d_rows, place.shape, F64).reshape(one.shape)
            d_w[axis] = convert.unbroadcast(d_products, w.shape[1:], F64).reshape(d_w.shape[1:])
    return d_positions, d_w
