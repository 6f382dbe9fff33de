"""xPos: a rotation with a decay, (x0 + i x1) zeta**t exp(i p w)."""

from __future__ import annotations

import numpy as np

import posenc
from posenc.reference._numbers import places

from . import Case, at
from .sinusoid import integers, of_pairs


def make_xpos(**options):
    def make(rng, n):
        half = max(n, 1)
        return {
            "x": rng.standard_normal((2, n, 2 * half)),
            "positions": integers(rng, n),
            "frequencies": rng.uniform(0, 2, half),
            **options,
        }

    return make


def make_batch(rng, n):
    half = max(n, 1)
    return {
        "x": rng.standard_normal((2, n, 3, 2 * half)),
        "positions": rng.uniform(-9, 9, (2, 1, n)),
        "frequencies": posenc.RopeFrequencies(rng.uniform(0, 2, half), 1.25, 1.0),
        "layout": "half",
        "scale_base": 20.0,
        "gamma": 0.7,
        "center": 5.5,
        "downscale": True,
        "seq_axis": 1,
    }


def make_partial(rng, n):
    """Only the middle channels are rotated and scaled, and the positions are counted from 7."""
    half = max(n, 1)
    return {
        "x": rng.standard_normal((2, n, 2 * half + 5)),
        "positions": n,
        "frequencies": rng.uniform(0, 2, half),
        "layout": "half",
        "rotary_dim": 2 * half,
        "rotary_offset": 3,
        "scale_base": 20.0,
        "start": 7,
    }


def real_xpos(rng):
    return {
        "x": rng.standard_normal((32, 2048, 128)),
        "positions": np.arange(2048),
        "layout": "interleaved",
        "frequencies": 10000.0 ** (-np.arange(64) / 64),
        "center": 1024,
    }


# 3 ulps of the norm of the scaled pair, as rope. In float64 the scale has an error, too: positions up to 2000 have
# exponents up to 2000 / 512 * log(3.5) = 5, whose rounding and that of the logarithm are 10 * 2**-53 of the result, 5
# to 10 spacings; the exp of NumPy 1.23 adds its own error. 16 covers all.


def tolerance(expected, work, arguments):
    """16 spacings at the norm of the pair, and in proportion beyond four times scale_base, because a rounded exponent
    counts as often as it is large."""
    where = places(arguments["positions"], arguments.get("start", 0))
    distance = np.abs(where - arguments.get("center", 0)).max(initial=0)
    return of_pairs(16 * max(1, distance / arguments.get("scale_base", 512) / 4))(expected, work, arguments)


CASES = [
    Case(
        function="xpos",
        tolerance=tolerance,
        make=make_xpos(layout="interleaved"),
        real=real_xpos,
        axes={"x": "b n d!", "positions": "n", "frequencies": "e!"},
        data=("x",),
        gradients=at("x", "positions", "frequencies"),
    ),
    Case(
        function="xpos",
        label="keys",
        tolerance=tolerance,
        make=make_batch,
        axes={"x": "b n h d!", "positions": "b 1 n"},
        data=("x",),
        gradients={**at("x", "positions"), "frequencies": ("frequencies", "inv_freq")},
    ),
    Case(
        function="xpos",
        label="partial",
        tolerance=tolerance,
        make=make_partial,
        axes={"x": "b n d"},
        data=("x",),
        gradients=at("x", "frequencies"),
    ),
]
