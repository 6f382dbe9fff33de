"""Convolutions as position encodings."""

from __future__ import annotations

import numpy as np

from posenc import reference

from . import Case, at, ulp

PADDINGS = ("zero", "circular", "replicate")


def sum_of_magnitudes(oracle):
    """Every FMA rounds a partial sum that is no larger than the sum of magnitudes, which costs half an ulp. Without FMA
    the product costs another half. The residual costs one more ulp. The prefix is copied."""

    def tolerance(expected, work, arguments):
        size = {**arguments, "x": np.abs(arguments["x"]), "kernel": np.abs(arguments["kernel"])}
        if arguments.get("bias") is not None:
            size["bias"] = np.abs(arguments["bias"])
        steps = arguments["kernel"][:1].size + 1
        bound = steps * ulp(oracle(**size), work)
        bound[..., : arguments.get("prefix", 0), :] = 0
        return (bound,)

    return tolerance


def make_1d(taps, channels=lambda n: n, bias=True, **options):
    def make(rng, n):
        d = channels(max(n, 1))
        return {
            "x": rng.standard_normal((2, n, d)),
            "kernel": rng.standard_normal((d, taps)),
            "bias": rng.standard_normal(d) if bias else None,
            **options,
        }

    return make


def make_wrapped(rng, n):
    """The widest circular kernel that reaches around once: at most 2 N + 1 taps."""
    return make_1d(min(2 * n, 34) + 1, lambda n: 5, padding="circular")(rng, n)


def make_2d(rows, columns, prefix=0, **options):
    def make(rng, n):
        height, width, d = (n + 2) // 3, max(n // 2, 1), 3 + n % 40
        front = prefix if n else 0  # n = 0 has no tokens
        return {
            "x": rng.standard_normal((2, front + height * width, d)),
            "kernel": rng.standard_normal((d, rows, columns)),
            "bias": rng.standard_normal(d),
            "height": height,
            "width": width,
            "prefix": front,
            **options,
        }

    return make


def real_1d(rng):
    return {"x": rng.standard_normal((8, 1024, 512)), "kernel": rng.standard_normal((512, 31)), "bias": np.ones(512)}


AXES = {"x": "b n d", "kernel": "d t", "bias": "d"}
GRID_AXES = {"x": "b n! d", "kernel": "d r s", "bias": "d"}
DATA, GRADIENTS = ("x", "kernel", "bias"), at("x", "kernel", "bias")


def case_1d(label, make, **changes):
    return Case(
        **{
            "function": "conv_position",
            "label": label,
            "oracle": reference.conv_position,
            "make": make,
            "real": real_1d,
            "tolerance": sum_of_magnitudes(reference.conv_position),
            "axes": AXES,
            "data": DATA,
            "gradients": GRADIENTS,
            **changes,
        }
    )


def case_2d(label, make):
    return Case(
        function="conv_position_2d",
        label=label,
        oracle=reference.conv_position_2d,
        make=make,
        axes=GRID_AXES,
        tolerance=sum_of_magnitudes(reference.conv_position_2d),
        data=DATA,
        gradients=GRADIENTS,
    )


# Numbers of taps on both sides of the register tiles of csrc/kernels/absolute/convolution.c.
CASES = [
    case_1d("", make_1d(3)),
    case_1d("residual", make_1d(8, residual=True, left=7)),
    case_1d("replicate", make_1d(12, padding="replicate", left=4, residual=True)),
    case_1d("wav2vec", make_1d(18, left=9)),
    case_1d("wider", make_1d(70, lambda n: 33, padding="replicate")),
    case_1d("circular", make_wrapped),
    case_1d(
        "no-bias", make_1d(1, lambda n: 2 * n + 1, bias=False), axes={"x": "b n d", "kernel": "d t"},
        data=("x", "kernel"), gradients=at("x", "kernel"),
    ),
    case_2d("", make_2d(3, 3)),
    case_2d("prefix", make_2d(3, 3, 2, residual=True)),
    case_2d("replicate", make_2d(4, 5, 1, padding="replicate", residual=True)),
    case_2d("circular", make_2d(2, 3, padding="circular")),
]  # fmt: skip
