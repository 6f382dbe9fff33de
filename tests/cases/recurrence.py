"""Recurrent encodings: the recurrence in float64, position by position."""

from __future__ import annotations

import numpy as np

from posenc import reference

from . import Case, at, ulp


def tolerance(expected, work, arguments):
    """A state has size 1 or that of p0. A step has C products and sums, each rounded once at the size of the sum, about
    2 here, and a tanh within 4 ulps; a step of a GRU has three sums and four functions. The weights have a norm below
    1, so the errors of earlier steps are a geometric series, which a factor of 4 covers. Inputs add products."""
    size = np.abs(arguments["p0"]).max(initial=1.0)
    products = arguments["weight"].shape[-1]
    if "inputs" in arguments:
        size, products = (
            max(size, np.abs(arguments["inputs"]).max(initial=1.0)),
            products + arguments["inputs"].shape[-1],
        )
    step = (np.sqrt(products) + 4) * (3 if arguments.get("cell") == "gru" else 1)
    return (4 * step * ulp(2 * size, work),)


def make(cell, width=None, n=None, batch=(2,), inputs=None, **options):
    """Weights that contract: a random matrix with entries of size 0.35 / sqrt(C) has norm 0.7. `inputs` has the batch
    and the width of inputs."""

    def arguments(rng, size):
        c, count = width or size, size if n is None else n
        rows = {"tanh": c, "gru": 3 * c}[cell]
        given = {}
        if inputs is not None:
            *batch_of_inputs, e = inputs
            given["inputs"] = rng.standard_normal((*batch_of_inputs, count, e))
            given["input_weight"] = rng.standard_normal((rows, e)) * 0.35 / np.sqrt(e)
        return {
            "p0": rng.standard_normal((*batch, c)),
            "weight": rng.standard_normal((rows, c)) * 0.35 / np.sqrt(max(c, 1)),
            "bias": rng.standard_normal((2, rows) if cell == "gru" else rows) * 0.5,
            "n": count,
            "cell": cell,
            **options,
            **given,
        }

    return arguments


def real(cell, c=256, n=512):
    return lambda rng: make(cell, c, n, ())(rng, c)


DATA, GRADIENTS = ("p0", "weight", "bias"), at("p0", "weight", "bias")
TANH_AXES = {"p0": "b c!", "weight": "d! e!", "bias": "f!"}
GRU_AXES = {"p0": "b c!", "weight": "d! e!", "bias": "f! g!"}
INPUT_AXES = {"inputs": "b n! x", "input_weight": "h! x"}
WITH_INPUTS = {"data": (*DATA, "inputs", "input_weight"), "gradients": {**GRADIENTS, **at("inputs", "input_weight")}}

CASES = [
    Case(
        function="recurrent",
        oracle=reference.recurrent,
        tolerance=tolerance,
        make=make("tanh", 5),
        real=real("tanh"),
        axes=TANH_AXES,
        data=DATA,
        gradients=GRADIENTS,
    ),
    Case(
        # as wide as the panels of weights and wider
        function="recurrent",
        label="wide",
        oracle=reference.recurrent,
        tolerance=tolerance,
        make=make("tanh", n=4, include_p0=False),
        axes=TANH_AXES,
        data=DATA,
        gradients=GRADIENTS,
    ),
    Case(
        function="recurrent",
        label="gru",
        oracle=reference.recurrent,
        tolerance=tolerance,
        make=make("gru", 3),
        axes=GRU_AXES,
        data=DATA,
        gradients=GRADIENTS,
    ),
    Case(
        # more streams than a group of columns holds, so that there are several work items
        function="recurrent",
        label="gru-streams",
        oracle=reference.recurrent,
        tolerance=tolerance,
        make=make("gru", 4, include_p0=False, batch=(3, 9)),
        axes={**GRU_AXES, "p0": "b s? c!"},
        data=DATA,
        gradients=GRADIENTS,
    ),
    Case(
        function="recurrent",
        label="gru-wide",
        oracle=reference.recurrent,
        tolerance=tolerance,
        make=make("gru", n=3),
        axes=GRU_AXES,
        data=DATA,
        gradients=GRADIENTS,
    ),
    Case(
        function="recurrent",
        label="inputs",
        oracle=reference.recurrent,
        tolerance=tolerance,
        make=make("tanh", n=5, inputs=(2, 3)),
        axes={**TANH_AXES, **INPUT_AXES},
        **WITH_INPUTS,
    ),
    Case(
        # one p0 for several work items of inputs that are wider than a panel, as a layer has them
        function="recurrent",
        label="gru-inputs",
        oracle=reference.recurrent,
        tolerance=tolerance,
        make=make("gru", n=4, batch=(), inputs=(3, 9, 70), include_p0=False),
        axes={**GRU_AXES, "p0": "c!", "inputs": "b? s? n! x", "input_weight": "h! x"},
        **WITH_INPUTS,
    ),
]
