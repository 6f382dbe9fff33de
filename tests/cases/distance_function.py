"""A bias that is a Python function of the distance: a Gaussian window with a learned width."""

from __future__ import annotations

from dataclasses import dataclass

from . import ulps
from .bias import REAL, BiasCase


def window(rel, width):
    return -((rel / width[:, None]) ** 2)


def window_vjp(grad, rel, width):
    return (2 * (grad * rel**2).sum(-1) / width**3,)


@dataclass(frozen=True, kw_only=True, eq=False)
class FunctionCase(BiasCase):
    """A case whose only gradient is that of the first array."""

    def vjp(self, grads, arguments):
        return {"arrays": self.gradient(grads, arguments).arrays[0]}


def made(rng):
    return {"function": window, "heads": 3, "arrays": (rng.uniform(1, 9, 3),), "vjp": window_vjp}


def placed(rng, n):
    return {
        **made(rng), "n": n, "m": n + 2, "q_positions": rng.uniform(-50, 50, n),
        "k_positions": rng.integers(-50, 50, n + 2),
    }  # fmt: skip


def placed_integers(rng, n):
    return {**placed(rng, n), "q_positions": rng.integers(-50, 50, n)}


ONE = {"arrays": ("arrays", 0)}
# A rounded division counts twice in the square, and the square is rounded.
CASES = [
    FunctionCase(
        function="distance_function", tolerance=ulps(4), gradients=ONE,
        make=lambda rng, n: {**made(rng), "n": n, "m": n + 2}, real=lambda rng: {**made(rng), **REAL},
    ),
    FunctionCase(
        function="distance_function", label="placed", tolerance=ulps(4),
        gradients=ONE, make=placed, real=lambda rng: placed(rng, 512), axes={"q_positions": "n", "k_positions": "m"},
    ),
    FunctionCase(
        function="distance_function", label="placed at integers",
        tolerance=ulps(4), gradients=ONE, make=placed_integers, real=lambda rng: placed_integers(rng, 512),
        axes={"q_positions": "n", "k_positions": "m"},
    ),
]  # fmt: skip
