"""Merging an encoding with the data."""

from __future__ import annotations

import numpy as np

from . import Case, at, ulps


def merge(x, p, *, mode="add"):
    """Vaswani et al. 2017, 3.4, adds; bert4keras, layers.PositionEmbedding: its "mul" is x (1 + p), its "zero" is p."""
    if mode == "concat":
        return np.concatenate([x, np.broadcast_to(p, (*x.shape[:-1], p.shape[-1]))], -1)
    return {"add": x + p, "mul": x * p, "mul1p": x * (1 + p), "replace": p + 0 * x}[mode]


def factors(x, p, mode):
    """The rounding of 1 + p is multiplied by x: an ulp of x, or of x p if p is large."""
    return np.abs(x) * (1 + np.abs(p))


def make(mode):
    def arguments(rng, n):
        x, p = rng.standard_normal((2, n, n + 1)), rng.standard_normal((n, n + 1 + 2 * (mode == "concat")))
        return {"x": x, "p": p, "mode": mode}

    return arguments


def make_broadcast(shape):
    """An encoding that lacks axes at the end and in the middle."""

    def arguments(rng, n):
        x, whole = rng.standard_normal((3, n, 2, 5)), rng.standard_normal((3, n, 2, 5))
        return {"x": x, "p": whole[tuple(slice(None if c == "n" else 1) for c in shape)].copy(), "mode": "mul"}

    return arguments


def real(mode):
    return lambda rng: {"x": rng.standard_normal((8, 1024, 1024)), "p": rng.standard_normal((1024, 1024)), "mode": mode}


AXES = {"x": "b n d", "p": "n? d?"}

# An exact sum or product is rounded once. mul1p rounds 1 + p and the product. The other modes copy.
CASES = [
    Case(function="merge", oracle=merge, tolerance=ulps(0.5001), make=make("add"), real=real("add"), axes=AXES,
         data=("x", "p"), gradients=at("x", "p")),
    Case(function="merge", label="mul", oracle=merge, tolerance=ulps(0.5001), make=make("mul"), real=real("mul"),
         axes=AXES, data=("x", "p"), gradients=at("x", "p")),
    Case(function="merge", label="mul1p", oracle=merge, tolerance=ulps(2, factors), make=make("mul1p"),
         real=real("mul1p"), axes=AXES, data=("x", "p"), gradients=at("x", "p")),
    Case(function="merge", label="concat", oracle=merge, tolerance=ulps(0), make=make("concat"), real=real("concat"),
         axes={"x": "b n d", "p": "n? c"}, data=("x", "p"), gradients=at("x", "p")),
    Case(function="merge", label="replace", oracle=merge, tolerance=ulps(0), make=make("replace"), real=real("replace"),
         axes=AXES, data=("x", "p"), gradients=at("x", "p")),
    Case(function="merge", label="middle", oracle=merge, tolerance=ulps(0.5001), make=make_broadcast("1n1n"),
         real=real("mul"), data=("x", "p"), gradients=at("x", "p"), axes={"x": "b n h d", "p": "1 n? 1 d?"}),
    Case(function="merge", label="narrow", oracle=merge, tolerance=ulps(0.5001), make=make_broadcast("nn11"),
         real=real("mul"), data=("x", "p"), gradients=at("x", "p"), axes={"x": "b n h d", "p": "b n? 1 1"}),
]  # fmt: skip
