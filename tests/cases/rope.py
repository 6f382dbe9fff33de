"""Rotary encodings: rotations of pairs of channels."""

from __future__ import annotations

import numpy as np

import posenc

from . import Case, at, ulps
from .sinusoid import integers, of_pairs


def exact(expected, work, arguments):
    return tuple(np.zeros(e.shape) for e in expected)


def make_rope(**options):
    def make(rng, n):
        half = max(n, 1)
        return {
            "x": rng.standard_normal((2, n, 2 * half)),
            "positions": integers(rng, n),
            "frequencies": rng.uniform(0, 2, half),
            **options,
        }

    return make


def make_partial(rng, n):
    """Only the middle channels are rotated, and their layout changes; heads follow the sequence axis; positions differ
    between rows of the batch."""
    half = max(n, 1)
    return {
        "x": rng.standard_normal((2, n, 3, 2 * half + 5)),
        "positions": rng.uniform(-99, 99, (2, 1, n)),
        "frequencies": posenc.RopeFrequencies(rng.uniform(0, 2, half), 1.25, 1.0),
        "layout": "half",
        "out_layout": "interleaved",
        "rotary_dim": 2 * half,
        "rotary_offset": 3,
        "seq_axis": 1,
    }


def make_table(rng, n):
    half = max(n, 1)
    angle = rng.uniform(-3, 3, (n, half))
    return {
        "x": rng.standard_normal((2, n, 2 * half)),
        "cos": 1.1 * np.cos(angle),
        "sin": 1.1 * np.sin(angle),
        "layout": "interleaved",
    }


D = 32
W = posenc.rope_frequencies(D)
LAYOUTS = ("half", "interleaved")


def heads(rng, n, dtype=np.float32, d=D):
    """Random queries or keys, (2, 3, n, d)."""
    return rng.standard_normal((2, 3, n, d)).astype(dtype)


def real_rope(rng):
    return {
        "x": rng.standard_normal((32, 2048, 128)),
        "positions": np.arange(2048),
        "layout": "half",
        "frequencies": 10000.0 ** (-np.arange(64) / 64),
    }


AXES = {"x": "b n d!", "positions": "n", "frequencies": "e!"}
# A table entry is within 1 ulp; two products and a sum follow, of numbers no larger than the norm of the pair.
ROTATED = of_pairs(3)


def by_table(expected, work, arguments):
    """As ROTATED; the inverse divides by ``cos**2 + sin**2``, which costs three more roundings."""
    return of_pairs(6 if arguments.get("inverse") else 3)(expected, work, arguments)


CASES = [
    Case(
        # correctly rounded by construction; the longdouble power of the oracle has an error of its own
        function="rope_frequencies", tolerance=ulps(0.5001), make=lambda rng, n: {"dim": 2 * n}, least=1,
    ),
    Case(
        function="rope", label="half", tolerance=ROTATED, make=make_rope(layout="half"), real=real_rope,
        axes=AXES, data=("x",), gradients=at("x", "positions", "frequencies"),
    ),
    Case(
        function="rope", label="interleaved", tolerance=ROTATED, make=make_rope(layout="interleaved"),
        axes=AXES, data=("x",), gradients=at("x", "positions", "frequencies"),
    ),
    Case(
        function="rope", label="inverse", tolerance=ROTATED,
        make=make_rope(layout="half", inverse=True), axes=AXES, data=("x",),
        gradients=at("x", "positions", "frequencies"),
    ),
    Case(
        function="rope", label="partial", tolerance=ROTATED, make=make_partial,
        axes={"x": "b n h d", "positions": "b 1 n"}, data=("x",),
        gradients={**at("x", "positions"), "frequencies": ("frequencies", "inv_freq")},
    ),
    Case(
        function="rope_by_table", tolerance=by_table, make=make_table,
        axes={"x": "b n d!", "cos": "n e!", "sin": "n e!"}, data=("x", "cos", "sin"), gradients=at("x", "cos", "sin"),
    ),
    Case(
        function="rope_by_table", label="inverse", tolerance=by_table,
        make=lambda rng, n: {**make_table(rng, n), "inverse": True},
        axes={"x": "b n d!", "cos": "n e!", "sin": "n e!"}, data=("x", "cos", "sin"), gradients=at("x", "cos", "sin"),
    ),
    Case(
        # 1 ulp of a sine or cosine in float32, 4e-16 in float64, and one rounding for the factor
        function="rope_table",
        tolerance=lambda expected, work, arguments: tuple(
            np.full(e.shape, 8e-16) if work == np.float64 else 2.0 * np.spacing(np.abs(e).astype(np.float32))
            for e in expected
        ),
        make=lambda rng, n: {
            "positions": integers(rng, 2, n),
            "frequencies": posenc.RopeFrequencies(rng.uniform(0, 2, max(n, 1)), 1.25, 1.0),
        },
        axes={"positions": "b n"},
    ),
    Case(
        # entries are sines and cosines, within the bound of the table, or exact zeros and ones
        function="rope_matrix", tolerance=lambda expected, work, arguments: (4e-16,),
        make=lambda rng, n: {
            "position": 1234.5, "frequencies": rng.uniform(0, 2, n), "layout": "half", "dim": 2 * n + 1,
        },
        axes={"frequencies": "e!"}, least=1,
    ),
    Case(
        function="convert_layout", tolerance=exact, axes={"x": "b d"}, data=("x",),
        make=lambda rng, n: {
            "x": rng.standard_normal((3, 2 * n + 1)), "source": "half", "target": "interleaved", "rotary_dim": 2 * n,
            "axis": -1,
        },
    ),
    Case(
        function="convert_layout", label="weights", tolerance=exact, axes={"x": "hd! c?"}, data=("x",),
        make=lambda rng, n: {
            "x": rng.standard_normal((3 * 2 * n, 5)), "source": "interleaved", "target": "half", "heads": 3,
        },
    ),
]  # fmt: skip
