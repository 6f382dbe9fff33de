"""ALiBi: a bias of -slope |distance|."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from . import Case, at, ulps
from .bias import REAL, BiasCase, on_positions


def alibi(q, k, slopes):
    """Press et al. 2022, section 3: -m |i - j|."""
    return -slopes[:, None, None] * np.abs(np.expand_dims(k[..., None, :] - q[..., :, None], -3))


def alibi_slopes(heads, *, bias_max=8.0):
    """The authors' get_slopes: 2**(-8/n) to the powers 1..n if n is a power of two. Otherwise the slopes of the power
    of two below n, then every second slope of the power of two above n. Exponents are exact fractions."""

    def power(n):
        return [Fraction(bias_max) * (h + 1) / n for h in range(n)]

    closest = 1 << (heads.bit_length() - 1)
    exponents = power(closest) + power(2 * closest)[0::2][: heads - closest]
    return np.array([np.longdouble(2) ** -(np.longdouble(e.numerator) / e.denominator) for e in exponents])


def make_alibi(rng, n):
    return {"slopes": rng.uniform(0, 1, 3), "n": n, "m": n + 2}


def make_alibi_placed(rng, n):
    return {
        "slopes": rng.uniform(0, 1, 3), "n": n, "m": n + 2, "q_positions": rng.uniform(-50, 50, n),
        "k_positions": rng.integers(-50, 50, n + 2),
    }  # fmt: skip


# The distance is exact or rounded once, the product once.
CASES = [
    Case(
        # The exponent, at most 8, is off by half an ulp after the division; |d 2**-x| = ln 2 d x.
        function="alibi_slopes", oracle=alibi_slopes, tolerance=ulps(8), least=1,
        make=lambda rng, n: {"heads": n}, real=lambda rng: {"heads": 112},
    ),
    BiasCase(
        function="alibi", oracle=on_positions(alibi), tolerance=ulps(2), make=make_alibi,
        real=lambda rng: {"slopes": 2.0 ** -np.arange(1, 33), **REAL}, axes={"slopes": "h"}, gradients=at("slopes"),
    ),
    BiasCase(
        function="alibi", label="placed", oracle=on_positions(alibi), tolerance=ulps(2), make=make_alibi_placed,
        real=lambda rng: {
            "slopes": 2.0 ** -np.arange(1, 33), **REAL, "q_positions": np.sort(rng.uniform(0, 4096, 2048)),
        },
        axes={"slopes": "h", "q_positions": "n!", "k_positions": "m!"}, gradients=at("slopes"),
    ),
]  # fmt: skip
