"""Base class of the cases of attention-bias operators.

The oracle of a bias is its twin in `posenc.reference`: the same method of the same operator.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

import posenc
from posenc import reference

from . import Case

OF_METHOD = ("n", "m", "q", "k", "q_positions", "k_positions", "scale", "align")
"""Arguments of the methods of a Bias; all others make it."""


def of_method(arguments):
    return {name: value for name, value in arguments.items() if name in OF_METHOD}


@dataclass(frozen=True, kw_only=True, eq=False)
class BiasCase(Case):
    """A function that returns a Bias; the results of the case are those of a method of the Bias."""

    method: str = "matrix"
    """"logits" for an operator that reads q and k."""

    def __post_init__(self):
        """Without positions, the queries of a matrix are at the last keys."""
        if self.method == "matrix":
            object.__setattr__(self, "make", partial(aligned, self.make))

    @property
    def target(self):
        return getattr(posenc.ContentBias if self.method == "logits" else posenc.PositionBias, self.method)

    def bias(self, arguments, module=posenc):
        return operator_of((self.function, {k: v for k, v in arguments.items() if k not in OF_METHOD}), module)

    def call(self, arguments, **options):
        return (getattr(self.bias(arguments), self.method)(**of_method(arguments), **options),)

    def gradient(self, grads, arguments):
        if self.method == "matrix":
            return self.bias(arguments).matrix_vjp(grads[0], **of_method(arguments))
        return self.bias(arguments).logits_vjp(grads[0], **of_method(arguments))

    def vjp(self, grads, arguments):
        gradient = self.gradient(grads, arguments)
        if self.method == "matrix":
            return gradient._asdict()
        return {"q": gradient.q, "k": gradient.k, **gradient.bias._asdict()}

    def truth(self, arguments):
        given = {name: np.longdouble(value) if name in self.precise else value for name, value in arguments.items()}
        return self.twin(given)

    def twin(self, arguments):
        return getattr(self.bias(arguments, reference), self.method)(**of_method(arguments))


def aligned(make, rng, n):
    given = make(rng, n)
    is_placed = "q_positions" in given or "k_positions" in given
    return {k: v for k, v in given.items() if k != "align"} if is_placed else {**given, "align": "end"}


def operator_of(operator, module=posenc):
    """The operator of (function, its arguments) in posenc, or in another module with these functions. The argument "at"
    is the operator's own positions."""
    function, operands = operator
    arguments = {name: value for name, value in operands.items() if name != "at"}
    made = (function if callable(function) else getattr(module, function))(**arguments)
    return made.at(**operands["at"]) if "at" in operands else made


REAL = {"n": 2048, "m": 2048}


def with_placed(case, *, low=-50, high=50, whole=False):
    """The case, and the same at drawn positions: integers for keys, and fractions for queries unless `whole`."""

    def make(rng, n):
        given = case.make(rng, n)
        queries = (rng.integers if whole else rng.uniform)(low, high, n)
        return {**given, "q_positions": queries, "k_positions": rng.integers(low, high, given["m"])}

    axes = {**case.axes, "q_positions": "n!", "k_positions": "m!"}
    return case, replace(case, label="placed", make=make, axes=axes, real=None)
