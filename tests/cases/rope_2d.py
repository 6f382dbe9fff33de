"""Rotary encodings by rows and columns: each pair is a complex number, times exp(i coordinate frequency)."""

from __future__ import annotations

import numpy as np

import posenc

from . import Case, at, ulps
from .rope import ROTATED, frequencies_of, norm_of_pairs, pairs, unpaired
from .sinusoid import integers


def rotated(x, angle, factor, layout, out_layout, inverse):
    """Multiply the pairs of x (..., N, 2e) by factor * exp(i angle), or divide them by it."""
    rotor = factor * (np.cos(angle) + 1j * np.sin(angle))
    z = pairs(x, layout)
    return unpaired(z / rotor if inverse else z * rotor, out_layout or layout)


def part(x, rotary_dim, rotary_offset):
    end = x.shape[-1] if rotary_dim is None else rotary_offset + rotary_dim
    return slice(rotary_offset, end)


def rope_2d(x, positions, frequencies, *, layout, axes="concat", rotary_dim=None, rotary_offset=0, inverse=False,
            out_layout=None, seq_axis=-2):  # fmt: skip
    """RoFormer eq. 15 for rows and for columns; Qwen2-VL, Gemma 4 and Pixtral in their order of pairs."""
    x = np.moveaxis(np.array(x, np.longdouble), seq_axis, -2)
    w, factor = frequencies_of(frequencies)
    row, column = np.asarray(positions, np.longdouble)[..., None]
    here = part(x, rotary_dim, rotary_offset)
    width = here.stop - here.start
    options = (factor, layout, out_layout, inverse)
    if axes == "blocks":
        for block, coordinate in ((slice(here.start, here.start + width // 2), row),
                                  (slice(here.start + width // 2, here.stop), column)):  # fmt: skip
            x[..., block] = rotated(x[..., block], coordinate * w, *options)
    else:
        of_rows, of_columns = (w, w) if axes == "concat" else (w[0::2], w[1::2])
        angle = np.concatenate([row * of_rows, column * of_columns], -1)
        x[..., here] = rotated(x[..., here], angle, *options)
    return np.moveaxis(x, -2, seq_axis)


def norm_in_blocks(x, positions, frequencies, *, rotary_dim=None, rotary_offset=0, **options):
    """Norm of the pair of each result; each half of the rotated channels has its own pairs."""
    half = (x.shape[-1] - rotary_offset if rotary_dim is None else rotary_dim) // 2
    return sum(
        norm_of_pairs(x, positions, frequencies, rotary_dim=half, rotary_offset=first, **options)
        for first in (rotary_offset, rotary_offset + half)
    )


def grid(rng, n, count):
    return integers(rng, count, n)


def make_2d(axes, layout="half", per_axis=1):
    def make(rng, n):
        quarter = max(n // 4, 1)
        return {
            "x": rng.standard_normal((2, n, 4 * quarter)), "positions": grid(rng, n, 2), "layout": layout,
            "frequencies": rng.uniform(0, 2, per_axis * quarter), "axes": axes,
        }  # fmt: skip

    return make


def make_2d_part(axes):
    """Fractional positions for each row of the batch, heads after the sequence axis, an attention factor, an inverse
    rotation of the middle channels."""

    def make(rng, n):
        quarter = max(n // 4, 1)
        return {
            "x": rng.standard_normal((2, n, 3, 4 * quarter + 5)), "positions": rng.uniform(-9, 9, (2, 2, 1, n)),
            "frequencies": posenc.RopeFrequencies(rng.uniform(0, 2, quarter), 1.25, 1.0), "axes": axes,
            "layout": "half", "out_layout": "interleaved", "rotary_dim": 4 * quarter, "rotary_offset": 2,
            "seq_axis": 1, "inverse": True,
        }  # fmt: skip

    return make


def real_2d(axes, count):
    def real(rng):
        return {
            "x": rng.standard_normal((16, 1024, 64)), "positions": np.indices((32, 32)).reshape(2, -1),
            "frequencies": 10000.0 ** (-np.arange(count) / count), "layout": "half", "axes": axes,
        }  # fmt: skip

    return real


ALL = at("x", "positions", "frequencies")
OF_FACTOR = {**at("x", "positions"), "frequencies": ("frequencies", 0)}
AXES = {"x": "b n d!", "positions": "c! n", "frequencies": "e!"}
PART = {"x": "a n h d", "positions": "c! a 1 n"}
# The table is within 1 ulp; two products and a sum of numbers no larger than the pair follow, as in rope.
CASES = [
    Case(
        function="rope_2d", oracle=rope_2d, tolerance=ROTATED, make=make_2d("concat"), real=real_2d("concat", 16),
        axes=AXES, data=("x",), gradients=ALL,
    ),
    Case(
        function="rope_2d", label="interleaved", oracle=rope_2d, tolerance=ROTATED,
        make=make_2d("concat", "interleaved"), real=real_2d("concat", 16), axes=AXES, data=("x",), gradients=ALL,
    ),
    Case(
        function="rope_2d", label="blocks", oracle=rope_2d, tolerance=ulps(3, norm_in_blocks), axes=AXES, data=("x",),
        make=make_2d("blocks"), real=real_2d("blocks", 16), gradients=ALL,
    ),
    Case(
        function="rope_2d", label="alternate", oracle=rope_2d, tolerance=ROTATED, make=make_2d("alternate", per_axis=2),
        real=real_2d("alternate", 32), axes=AXES, data=("x",), gradients=ALL,
    ),
    Case(
        function="rope_2d", label="part", oracle=rope_2d, tolerance=ROTATED, real=real_2d("concat", 16),
        make=make_2d_part("concat"), axes=PART, data=("x",), gradients=OF_FACTOR,
    ),
    Case(
        function="rope_2d", label="blocks-part", oracle=rope_2d, tolerance=ulps(3, norm_in_blocks), axes=PART,
        make=make_2d_part("blocks"), real=real_2d("blocks", 16), data=("x",), gradients=OF_FACTOR,
    ),
]  # fmt: skip
