"""Longer contexts: moved keys, factors on queries, positions of far pairs."""

from __future__ import annotations

import numpy as np

import posenc

from . import Case, ulps
from .rope import ROTATED
from .sinusoid import integers


def make_rerotate(rng, n):
    half = max(n, 1)
    return {
        "k": rng.standard_normal((2, n, 2 * half)),
        "old_positions": integers(rng, n),
        "new_positions": integers(rng, n),
        "frequencies": rng.uniform(0, 2, half),
        "layout": "half",
    }


def make_cache(rng, n):
    half = max(n, 1)
    return {
        "k": rng.standard_normal((2, n, 3, 2 * half + 5)),
        "old_positions": integers(rng, 2, 1, n),
        "new_positions": n,
        "frequencies": posenc.RopeFrequencies(rng.uniform(0, 2, half), 1.25, 1.0),
        "layout": "interleaved",
        "rotary_dim": 2 * half,
        "rotary_offset": 3,
        "seq_axis": 1,
    }


AXES = {"k": "b n d!", "old_positions": "n", "new_positions": "n", "frequencies": "e!"}
CASES = [
    Case(
        # the same roundings as rope
        function="rerotate", tolerance=ROTATED, make=make_rerotate, axes=AXES, data=("k",),
    ),
    Case(
        function="rerotate", label="cache", tolerance=ROTATED, make=make_cache,
        axes={"k": "b n h d", "old_positions": "b 1 n"}, data=("k",),
    ),
    Case(
        # a logarithm within an ulp, a product and a sum
        function="floor_log_scale", tolerance=ulps(3), axes={"positions": "n"},
        make=lambda rng, n: {
            "positions": rng.integers(0, 99999, n), "floor": 8192, "scale": 0.1, "offset": 1,
        },
    ),
    Case(
        # two logarithms, each within an ulp, and their quotient
        function="logn_scale", precise=("train_length",), tolerance=ulps(4), axes={"positions": "n"},
        make=lambda rng, n: {"positions": rng.integers(0, 9999, n), "train_length": 512},
    ),
    Case(
        function="logn_scale", label="clip", precise=("train_length",), tolerance=ulps(4), axes={"positions": "b n"},
        make=lambda rng, n: {"positions": rng.uniform(0, 99, (2, n)), "train_length": 51.5, "base_clip": 0.5},
    ),
    Case(
        function="rerope_positions", tolerance=ulps(0), axes={"positions": "n"},
        make=lambda rng, n: {"positions": integers(rng, n), "window": 512},
    ),
    Case(
        # Three roundings of numbers below 2**14: a product, a sum and a quotient. The result may be near 0.
        function="rerope_positions", label="leaky", axes={"positions": "n"},
        tolerance=lambda expected, work, arguments: tuple(np.full(e.shape, 2.0**-38) for e in expected),
        make=lambda rng, n: {"positions": integers(rng, n), "window": 512, "leak": 7.5},
    ),
    Case(
        # Two roundings of numbers below 2**11: a fraction of the window, and the sum with whole numbers.
        function="self_extend_positions", precise=("window",), kinds="f", axes={"positions": "n"},
        tolerance=lambda expected, work, arguments: tuple(np.full(e.shape, 2.0**-41) for e in expected),
        make=lambda rng, n: {"positions": integers(rng, n), "group": 7, "window": 1000},
    ),
]  # fmt: skip
