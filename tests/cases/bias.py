"""Base class of the cases of attention-bias operators.

The oracle of a bias maps positions of queries (..., N) and of keys (..., M) to numbers (..., H, N, M).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import posenc

from . import Case

OF_METHOD = ("n", "m", "q", "k", "q_positions", "k_positions", "scale")
"""Arguments of the methods of a Bias; all others make it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BiasCase(Case):
    """A function that returns a Bias; the results of the case are those of a method of the Bias."""

    method: str = "matrix"
    """"logits" for an operator that reads q and k."""

    @property
    def target(self):
        return getattr(posenc.ContentBias if self.method == "logits" else posenc.PositionBias, self.method)

    def bias(self, arguments):
        return operator_of((self.function, {k: v for k, v in arguments.items() if k not in OF_METHOD}))

    def call(self, arguments, **options):
        selected = {k: v for k, v in arguments.items() if k in OF_METHOD}
        return (getattr(self.bias(arguments), self.method)(**selected, **options),)

    def gradient(self, grads, arguments):
        options = {k: v for k, v in arguments.items() if k in OF_METHOD}
        vjp = "vjp" if self.method == "matrix" else "logits_vjp"
        return getattr(self.bias(arguments), vjp)(grads[0], **options)

    def values(self, q_positions, k_positions, **arguments):
        """The numbers that the oracle of attention adds to the logits."""
        return self.oracle(q_positions=q_positions, k_positions=k_positions, **arguments)


def is_operator(value):
    """Return whether a value is (function, its arguments)."""
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[-1], dict)


def operator_of(operator, module=posenc):
    """The operator of (function, its arguments) in posenc, or in another module with these functions. An argument may
    be such a pair, too; "at" is the operator's own positions."""
    function, operands = operator
    inner = {k: operator_of(v, module) if is_operator(v) else v for k, v in operands.items() if k != "at"}
    made = getattr(module, function)(**inner)
    return made.at(**operands["at"]) if "at" in operands else made


def standing(n, m, q_positions=None, k_positions=None):
    """Positions of queries and keys. By default the queries are the last n of the m keys."""
    if q_positions is None and k_positions is None:
        return np.arange(n) + (m - n), np.arange(m)
    q = np.arange(n) if q_positions is None else q_positions
    return q, np.arange(m) if k_positions is None else k_positions


def on_positions(values):
    """Turn an oracle on positions into an oracle on the arguments of `matrix`."""

    def oracle(n=None, m=None, q_positions=None, k_positions=None, **arguments):
        if n is not None:
            q_positions, k_positions = standing(n, n if m is None else m, q_positions, k_positions)
        return values(np.asarray(q_positions), np.asarray(k_positions), **arguments)

    return oracle


REAL = {"n": 2048, "m": 2048}
