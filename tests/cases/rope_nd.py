"""Rotary encodings by several coordinates: axial frequencies, and frequencies in which all coordinates take part."""

from __future__ import annotations

import numpy as np

import posenc

from . import Case, at, ulps
from .rope import ROTATED
from .sinusoid import integers


def grid(rng, n, count):
    return integers(rng, count, n)


def one_each(rng, axes, pairs):
    """Frequencies of pairs that have one coordinate each, in any order."""
    w = np.zeros((axes, pairs))
    w[rng.integers(0, axes, pairs), np.arange(pairs)] = rng.uniform(0, 2, pairs)
    return w


def make_axial(rng, n):
    half = max(n, 1)
    return {
        "x": rng.standard_normal((2, n, 2 * half)),
        "positions": grid(rng, n, 3),
        "frequencies": one_each(rng, 3, half),
        "layout": "half",
    }


def make_part(rng, n):
    """Fractional positions for each row of the batch, heads after the sequence axis, an attention factor, an inverse
    rotation of the middle channels."""
    half = max(n, 1)
    return {
        "x": rng.standard_normal((2, n, 3, 2 * half + 5)),
        "positions": rng.uniform(-9, 9, (2, 2, 1, n)),
        "frequencies": posenc.RopeFrequencies(one_each(rng, 2, half), 1.25, 1.0),
        "layout": "half",
        "out_layout": "interleaved",
        "rotary_dim": 2 * half,
        "rotary_offset": 2,
        "seq_axis": 1,
        "inverse": True,
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


def make_sections(interleaved):
    def make(rng, n):
        first, second = (n + 2) // 3, n // 4
        return {
            "frequencies": rng.uniform(0, 2, n),
            "sections": (first, second, n - first - second),
            "interleaved": interleaved,
            "overflow": 2 * interleaved,
        }

    return make


ALL = at("x", "positions", "frequencies")
# The table is within 1 ulp, because an angle is reduced in two numbers and its sum is rounded once; two products and a
# sum of numbers no larger than the pair follow, as in rope.
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
        label="part",
        tolerance=ROTATED,
        make=make_part,
        axes={"x": "a n h d", "positions": "c! a 1 n"},
        data=("x",),
        gradients={**at("x", "positions"), "frequencies": ("frequencies", "inv_freq")},
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
    # Copies.
    Case(function="mrope_frequencies", tolerance=ulps(0), least=1, make=make_sections(False)),
    Case(function="mrope_frequencies", label="interleaved", tolerance=ulps(0), least=1, make=make_sections(True)),
]
