"""Merging an encoding with the data."""

from __future__ import annotations

import numpy as np

from posenc import reference

from . import Case, at, ulps


def factors(x, p, mode):
    """The rounding of 1 + p is multiplied by x: an ulp of x, or of x p if p is large."""
    return np.abs(x) * (1 + np.abs(p))


def converted(tolerance):
    """A tolerance, and the error of p in the precision of x, to which p is converted first."""

    def allowed(expected, work, arguments):
        x, p, mode = (arguments[name] for name in ("x", "p", "mode"))
        error = np.abs(p - p.astype(work)) * (np.abs(x) if mode in ("mul", "mul1p") else 1)
        if mode == "concat":
            shape = (*x.shape[:-1], error.shape[-1])
            error = np.concatenate([np.zeros(x.shape), np.broadcast_to(error, shape)], -1)
        (bound,) = tolerance(expected, work, arguments)
        return (bound + error,)

    return allowed


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


def case(label, make, count=0.5001, size=None, axes=None):
    return Case(
        function="combine",
        label=label,
        oracle=reference.combine,
        tolerance=converted(ulps(count, size)),
        make=make,
        axes=axes or {"x": "b n d", "p": "n? d?"},
        data=("x", "p"),
        gradients=at("x", "p"),
    )


# An exact sum or product is rounded once, by the float64 oracle, too; one in np.longdouble would be rounded twice.
# mul1p rounds 1 + p and the product. The other modes copy.
CASES = [
    case("", make("add")),
    case("mul", make("mul")),
    case("mul1p", make("mul1p"), 2, factors),
    case("concat", make("concat"), 0, axes={"x": "b n d", "p": "n? c"}),
    case("replace", make("replace"), 0),
    case("middle", make_broadcast("1n1n"), axes={"x": "b n h d", "p": "1 n? 1 d?"}),
    case("narrow", make_broadcast("nn11"), axes={"x": "b n h d", "p": "b n? 1 1"}),
]
