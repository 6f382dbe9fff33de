"""Rotary encodings by rows and columns."""

from __future__ import annotations

import numpy as np

import posenc

from . import Case, at
from .rope import ROTATED
from .sinusoid import integers


def grid(rng, n, count):
    return integers(rng, count, n)


def make_2d(axes, layout="half", per_axis=1):
    def make(rng, n):
        quarter = max(n // 4, 1)
        return {
            "x": rng.standard_normal((2, n, 4 * quarter)),
            "positions": grid(rng, n, 2),
            "layout": layout,
            "frequencies": rng.uniform(0, 2, per_axis * quarter),
            "axes": axes,
        }

    return make


def make_2d_part(axes):
    """Fractional positions for each row of the batch, heads after the sequence axis, an attention factor, an inverse
    rotation of the middle channels."""

    def make(rng, n):
        quarter = max(n // 4, 1)
        return {
            "x": rng.standard_normal((2, n, 3, 4 * quarter + 5)),
            "positions": rng.uniform(-9, 9, (2, 2, 1, n)),
            "frequencies": posenc.RopeFrequencies(rng.uniform(0, 2, quarter), 1.25, 1.0),
            "axes": axes,
            "layout": "half",
            "out_layout": "interleaved",
            "rotary_dim": 4 * quarter,
            "rotary_offset": 2,
            "seq_axis": 1,
            "inverse": True,
        }

    return make


def real_2d(rng):
    return {
        "x": rng.standard_normal((16, 1024, 64)),
        "positions": np.indices((32, 32)).reshape(2, -1),
        "frequencies": 10000.0 ** (-np.arange(16) / 16),
        "layout": "half",
    }


ALL = at("x", "positions", "frequencies")
OF_FACTOR = {**at("x", "positions"), "frequencies": ("frequencies", "inv_freq")}
AXES = {"x": "b n d!", "positions": "c! n", "frequencies": "e!"}
PART = {"x": "a n h d", "positions": "c! a 1 n"}
# The table is within 1 ulp; two products and a sum of numbers no larger than the pair follow, as in rope.
CASES = [
    Case(
        function="rope_2d",
        tolerance=ROTATED,
        make=make_2d("concat"),
        real=real_2d,
        axes=AXES,
        data=("x",),
        gradients=ALL,
    ),
    Case(
        function="rope_2d",
        label="blocks",
        tolerance=ROTATED,
        axes=AXES,
        data=("x",),
        make=make_2d("blocks"),
        gradients=ALL,
    ),
    Case(
        function="rope_2d",
        label="alternate",
        tolerance=ROTATED,
        make=make_2d("alternate", per_axis=2),
        axes=AXES,
        data=("x",),
        gradients=ALL,
    ),
    Case(
        function="rope_2d",
        label="part",
        tolerance=ROTATED,
        make=make_2d_part("concat"),
        axes=PART,
        data=("x",),
        gradients=OF_FACTOR,
    ),
    Case(
        function="rope_2d",
        label="blocks-part",
        tolerance=ROTATED,
        axes=PART,
        make=make_2d_part("blocks"),
        data=("x",),
        gradients=OF_FACTOR,
    ),
]
