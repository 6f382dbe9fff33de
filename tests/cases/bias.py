"""Position biases. The oracle of each is a function of the positions of queries and keys: (..., N) and (..., M) give
(..., H, N, M)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

import posenc

from . import Case, at, ulps

OF_METHOD = ("n", "m", "q", "k", "q_positions", "k_positions", "scale")
"""Arguments of the methods of a Bias; all others make it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BiasCase(Case):
    """A function that returns a Bias; what is tested is what its method returns."""

    method: str = "matrix"
    """"logits" for an operator that reads q and k."""

    @property
    def target(self):
        return getattr(posenc.Bias, self.method)

    def bias(self, arguments):
        return made((self.function, {k: v for k, v in arguments.items() if k not in OF_METHOD}))

    def call(self, arguments, **options):
        given = {k: v for k, v in arguments.items() if k in OF_METHOD}
        return (getattr(self.bias(arguments), self.method)(**given, **options),)

    def vjp(self, grads, arguments):
        given = {k: v for k, v in arguments.items() if k in OF_METHOD}
        back = "vjp" if self.method == "matrix" else "logits_vjp"
        return getattr(self.bias(arguments), back)(grads[0], **given)._asdict()

    def values(self, q_positions, k_positions, **arguments):
        """The oracle in the form that the oracle of attention adds up."""
        return self.oracle(q_positions=q_positions, k_positions=k_positions, **arguments)


def made(operator):
    """(function, its arguments) as our object; an argument may be such a pair too."""
    function, given = operator
    inner = {k: made(v) if isinstance(v, tuple) and v and isinstance(v[-1], dict) else v for k, v in given.items()}
    return getattr(posenc, function)(**inner)


def standing(n, m, q_positions=None, k_positions=None):
    """Positions of queries and keys: without any, the queries are the last n of the m keys."""
    if q_positions is None and k_positions is None:
        return np.arange(n) + (m - n), np.arange(m)
    q = np.arange(n) if q_positions is None else q_positions
    return q, np.arange(m) if k_positions is None else k_positions


def on_positions(values):
    """An oracle on positions as one on the arguments of `matrix`."""

    def oracle(n=None, m=None, q_positions=None, k_positions=None, **arguments):
        if n is not None:
            q_positions, k_positions = standing(n, n if m is None else m, q_positions, k_positions)
        return values(np.asarray(q_positions), np.asarray(k_positions), **arguments)

    return oracle


def alibi(q, k, slopes):
    """Press et al. 2022, section 3: -m |i - j|."""
    return -slopes[:, None, None] * np.abs(np.expand_dims(k[..., None, :] - q[..., :, None], -3))


def kerple_log(q, k, r1, r2):
    """Chi et al. 2022, equation 6: -r1 log(1 + r2 |i - j|)."""
    distance = np.abs(np.expand_dims(k[..., None, :] - q[..., :, None], -3))
    return -r1[:, None, None] * np.log1p(r2[:, None, None] * distance)


def kerple_power(q, k, r1, r2):
    """Chi et al. 2022, equation 5: -r1 |i - j|**r2."""
    return -r1[:, None, None] * np.abs(np.expand_dims(k[..., None, :] - q[..., :, None], -3)) ** r2[:, None, None]


def toeplitz(q, k, diagonals):
    """By row and column: entry (i, j) is diagonals[:, j - i + N - 1]."""
    i, j = np.arange(q.shape[-1])[:, None], np.arange(k.shape[-1])
    return diagonals[:, j - i + q.shape[-1] - 1] if q.size and k.size else np.zeros((len(diagonals), q.size, k.size))


def dense(q, k, array):
    return np.broadcast_to(array, (*array.shape[:-2], q.shape[-1], k.shape[-1]))


def alibi_slopes(heads, *, bias_max=8.0):
    """The authors' get_slopes: 2**(-8/n) to the powers 1..n; else those of the power of two below, then every second
    of the power of two above. Exponents as exact fractions."""

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


REAL = {"n": 2048, "m": 2048}
# alibi: distance is exact or rounded once, the product once. toeplitz and dense are copies, rounded to storage.
CASES = [
    Case(
        # float64 division of the exponent, half an ulp of a number of at most 8, then exp2: |d 2**-x| = ln2 x ulp(x)
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
    BiasCase(
        # a product and a sum before the logarithm (2 ulp), the product after it
        function="kerple_log", oracle=on_positions(kerple_log), tolerance=ulps(4),
        make=lambda rng, n: {"r1": rng.uniform(0.1, 2, 3), "r2": rng.uniform(0, 1, 3), "n": n, "m": n + 2},
        real=lambda rng: {"r1": np.linspace(0.1, 2, 32), "r2": np.linspace(0.01, 1, 32), **REAL},
        axes={"r1": "h", "r2": "h"}, gradients=at("r1", "r2"),
    ),
    BiasCase(
        # 2 + r2 ulp of the power (elementary.h), r2 <= 2, one more for NumPy's, the product after it
        function="kerple_power", oracle=on_positions(kerple_power), tolerance=ulps(6),
        make=lambda rng, n: {"r1": rng.uniform(0.1, 2, 3), "r2": np.array([0.1, 1.3, 2.0]), "n": n, "m": n + 2},
        real=lambda rng: {"r1": np.linspace(0.1, 2, 32), "r2": np.linspace(0.01, 2, 32), **REAL},
        axes={"r1": "h", "r2": "h"}, gradients=at("r1", "r2"),
    ),
    BiasCase(
        function="kerple_power", label="placed", oracle=on_positions(kerple_power), tolerance=ulps(6),
        make=lambda rng, n: {
            "r1": rng.uniform(0.1, 2, 3), "r2": np.array([0.3, 1.0, 1.9]), "n": n, "m": n + 2,
            "q_positions": rng.uniform(-50, 50, n), "k_positions": rng.integers(-50, 50, n + 2),
        },
        real=lambda rng: {
            "r1": np.linspace(0.1, 2, 8), "r2": np.linspace(0.1, 2, 8), **REAL, "k_positions": np.arange(2048) * 3,
        },
        axes={"r1": "h", "r2": "h", "q_positions": "n!", "k_positions": "m!"}, gradients=at("r1", "r2"),
    ),
    BiasCase(
        function="toeplitz", oracle=on_positions(toeplitz), tolerance=ulps(0.5), axes={"diagonals": "h l!"},
        make=lambda rng, n: {"diagonals": rng.standard_normal((3, 2 * n + 1)), "n": n, "m": n + 2},
        real=lambda rng: {"diagonals": rng.standard_normal((32, 4095)), **REAL}, gradients=at("diagonals"),
    ),
    BiasCase(
        function="dense", oracle=on_positions(dense), tolerance=ulps(0.5), axes={"array": "h? n! m!"},
        make=lambda rng, n: {"array": rng.standard_normal((3, n, n + 2)), "n": n, "m": n + 2},
        real=lambda rng: {"array": rng.standard_normal((8, 2048, 2048)), **REAL}, gradients=at("array"),
    ),
]  # fmt: skip
