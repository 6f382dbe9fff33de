"""Rotary encodings by several coordinates: axial frequencies, and frequencies in which all coordinates take part."""

from __future__ import annotations

import numpy as np

from . import Case, ulps
from .rope import ROTATED
from .rope_2d import ALL, grid


def make_axial(rng, n):
    half = max(n, 1)
    w = np.zeros((3, half))
    w[rng.integers(0, 3, half), np.arange(half)] = rng.uniform(0, 2, half)
    return {
        "x": rng.standard_normal((2, n, 2 * half)),
        "positions": grid(rng, n, 3),
        "frequencies": w,
        "layout": "half",
    }


def make_mixed(rng, n):
    half = max(n, 1)
    return {
        "x": rng.standard_normal((2, n, 3, 2 * half + 5)),
        "positions": rng.uniform(-9, 9, (2, 2, 1, n)),
        "frequencies": rng.uniform(-2, 2, (2, half)),
        "layout": "interleaved",
        "out_layout": "half",
        "rotary_dim": 2 * half,
        "rotary_offset": 3,
        "seq_axis": 1,
    }


def make_by_head(rng, n):
    half = max(n, 1)
    return {
        "x": rng.standard_normal((2, 3, n, 2 * half)),
        "positions": grid(rng, n, 4),
        "frequencies": rng.uniform(-2, 2, (4, 3, half)),
        "layout": "half",
        "inverse": True,
    }


def make_by_head_placed(rng, n):
    half = max(n, 1)
    return {
        "x": rng.standard_normal((2, n, 3, 2 * half)),
        "positions": rng.uniform(-9, 9, (2, 2, 3, n)),
        "frequencies": rng.uniform(-2, 2, (2, 3, half)),
        "layout": "interleaved",
        "seq_axis": -3,
    }


def real_axial(rng):
    w = np.zeros((3, 64))
    for axis, (first, width) in enumerate(((0, 8), (8, 28), (36, 28))):
        w[axis, first : first + width] = 1e4 ** (-np.arange(width) / width)
    return {
        "x": rng.standard_normal((16, 2048, 128)),
        "positions": np.indices((2, 32, 32)).reshape(3, -1),
        "layout": "interleaved",
        "frequencies": w,
    }


# The same roundings as rope_2d: the angle is reduced in two numbers, and its sum is rounded once.
CASES = [
    Case(
        function="rope_nd",
        tolerance=ROTATED,
        make=make_axial,
        data=("x",),
        real=real_axial,
        gradients=ALL,
        axes={"x": "b n d!", "positions": "a n", "frequencies": "a e!"},
    ),
    Case(
        function="rope_nd",
        label="mixed",
        tolerance=ROTATED,
        make=make_mixed,
        data=("x",),
        gradients=ALL,
        axes={"x": "a n h d", "positions": "c a 1 n", "frequencies": "c e!"},
    ),
    Case(
        function="rope_nd",
        label="by head",
        tolerance=ROTATED,
        make=make_by_head,
        data=("x",),
        gradients=ALL,
        axes={"x": "b h n d!", "positions": "a n", "frequencies": "a h e!"},
    ),
    Case(
        function="rope_nd",
        label="by head, placed",
        tolerance=ROTATED,
        make=make_by_head_placed,
        data=("x",),
        gradients=ALL,
        axes={"x": "a n h d!", "positions": "c a h n", "frequencies": "c h e!"},
    ),
    Case(
        # One rounding of a number that the oracle has in wider precision.
        function="axial_frequencies",
        tolerance=ulps(1),
        least=1,
        make=lambda rng, n: {"dims": (2 * n, 0, 4), "base": (1e4, 5.0, 100.0)},
    ),
]
