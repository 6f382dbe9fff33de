"""Complex order. Results and cotangents are pairs of reals (..., 2), as in the tests of the other functions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import posenc

from . import F64, Case, at, working


def pairs(z):
    """(..., C) complex -> (..., C, 2) real."""
    return np.ascontiguousarray(z)[..., None].view(z.real.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class PairCase(Case):
    """A Case of a function whose result is complex."""

    def call(self, arguments, **options):
        return tuple(map(pairs, super().call(arguments, **options)))

    def truth(self, arguments):
        return pairs(super().truth(arguments))

    def twin(self, arguments):
        z = super().twin(arguments)
        return np.stack([np.vectorize(getattr, otypes=[object])(z, part) for part in ("real", "imag")], -1)

    def result_dtypes(self, dtype, count):
        return (working(dtype),) * count

    def gradient(self, grads, arguments):
        real = F64 if grads[0].dtype == F64 else np.dtype(np.float32)
        grad = np.ascontiguousarray(grads[0], real)
        return posenc.complex_order_vjp(grad[..., 0] + 1j * grad[..., 1], **arguments)


def tolerance(expected, work, arguments):
    """complex64: the float64 product is rounded once, so half an ulp and a little. complex128: 4e-16 of a float64 sine
    (see sinusoidal) times the amplitude, and a rounding. Angles of 1e4 in longdouble are off by 1e4 2**-64 = 5e-16."""
    r = np.abs(arguments["amplitude"])[..., None]
    if work == F64:
        return (np.broadcast_to(5e-16 * r, expected[0].shape),)
    return (0.501 * np.spacing(np.abs(expected[0]).astype(np.float32)).astype(np.float64) + 5e-16 * r,)


def make(shape, with_phase=False, count=False):
    """Frequencies (and phases) for each word and dimension, "nc", for each word, "n1", or for each dimension, "1c"."""

    def arguments(rng, n):
        c = n + 1
        kept = {"nc": (2, n, c), "n1": (2, n, 1), "1c": (c,)}[shape]
        made = {
            "amplitude": rng.standard_normal((2, n, c)),
            "frequency": rng.uniform(-2, 2, kept),
            "positions": n if count else rng.integers(-2000, 2000, (2, n)),
        }
        return {**made, "phase": rng.uniform(-9, 9, kept)} if with_phase else made

    return arguments


FIELDS = at("amplitude", "frequency", "positions")
PAIR = {"function": "complex_order", "tolerance": tolerance, "data": ("amplitude",)}

CASES = [
    PairCase(
        **PAIR,
        make=make("nc"),
        axes={"amplitude": "b n c", "frequency": "b n? c?", "positions": "b n"},
        gradients=FIELDS,
    ),
    PairCase(
        **PAIR,
        label="word",
        make=make("n1", with_phase=True),
        gradients={**FIELDS, **at("phase")},
        axes={"amplitude": "b n c", "frequency": "b n? 1", "phase": "b n? 1", "positions": "b n"},
    ),
    PairCase(
        **PAIR,
        label="dimension",
        make=make("1c", with_phase=True),
        gradients={**FIELDS, **at("phase")},
        axes={"amplitude": "b n c", "frequency": "c?", "phase": "c?", "positions": "b n"},
    ),
    PairCase(
        **PAIR,
        label="count",
        make=make("1c", count=True),
        gradients=at("amplitude", "frequency"),
        axes={"amplitude": "b n c", "frequency": "c?"},
    ),
]
