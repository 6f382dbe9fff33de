"""A bias that is a Python function of the distance: a Gaussian window with a learned width."""

from __future__ import annotations

from dataclasses import dataclass, replace

from . import ulps
from .bias import REAL, BiasCase, with_placed


def window(rel, width):
    return -((rel / width[:, None]) ** 2)


def window_vjp(grad, rel, width):
    return (2 * (grad * rel**2).sum(-1) / width**3,)


@dataclass(frozen=True, kw_only=True, eq=False)
class FunctionCase(BiasCase):
    """A case whose only gradient is that of the first array."""

    def vjp(self, grads, arguments):
        return {"arrays": self.gradient(grads, arguments).arrays[0]}


def made(rng, n):
    return {"function": window, "heads": 3, "arrays": (rng.uniform(1, 9, 3),), "vjp": window_vjp, "n": n, "m": n + 2}


# A rounded division counts twice in the square, and the square is rounded.
PLAIN = FunctionCase(
    function="distance_function",
    tolerance=ulps(4),
    gradients={"arrays": ("arrays", 0)},
    make=made,
    real=lambda rng: {**made(rng, 1), **REAL},
)
CASES = [*with_placed(PLAIN), replace(with_placed(PLAIN, whole=True)[1], label="placed at integers")]
