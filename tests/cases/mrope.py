"""Multimodal rotary encodings: each pair is rotated by one of three coordinates."""

from __future__ import annotations

import numpy as np

import posenc

from . import Case
from .rope import ROTATED
from .rope_2d import ALL, AXES, OF_FACTOR, PART, grid


def make_mrope(**options):
    def make(rng, n):
        half = max(n, 1)
        first, second = (half + 2) // 3, half // 4
        return {
            "x": rng.standard_normal((2, n, 2 * half)),
            "positions": grid(rng, n, 3),
            "frequencies": rng.uniform(0, 2, half),
            "sections": (first, second, half - first - second),
            **options,
        }

    return make


def make_mrope_part(rng, n):
    half = max(n, 1)
    return {
        "x": rng.standard_normal((2, n, 3, 2 * half + 5)),
        "positions": rng.uniform(-9, 9, (3, 2, 1, n)),
        "frequencies": posenc.RopeFrequencies(rng.uniform(0, 2, half), 1.25, 1.0),
        "layout": "interleaved",
        "out_layout": "half",
        "rotary_dim": 2 * half,
        "rotary_offset": 3,
        "seq_axis": 1,
        "sections": (0, half // 2, half - half // 2),
        "interleaved": True,
        "overflow": 2,
    }


def real_mrope(rng):
    return {
        "x": rng.standard_normal((16, 2048, 128)),
        "positions": np.indices((2, 32, 32)).reshape(3, -1),
        "layout": "half",
        "frequencies": 1e6 ** (-np.arange(64) / 64),
        "sections": (16, 24, 24),
    }


# The same roundings as rope_2d.
CASES = [
    Case(
        function="mrope",
        tolerance=ROTATED,
        make=make_mrope(layout="half"),
        axes=AXES,
        data=("x",),
        real=real_mrope,
        gradients=ALL,
    ),
    Case(
        function="mrope",
        label="part",
        tolerance=ROTATED,
        make=make_mrope_part,
        axes=PART,
        data=("x",),
        gradients=OF_FACTOR,
    ),
]
