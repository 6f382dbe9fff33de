"""FLOATER and any other flow: fixed-step Runge-Kutta solvers in float64, from their tableaus."""

from __future__ import annotations

import numpy as np

from posenc import reference

from . import Case, at, ulp


def floater_tolerance(expected, work, arguments):
    """Each row is rounded once from a float64 state. The field has sums of C + 1 and E + 1 products, which are rounded
    in the working precision at the size of their terms. Its error is multiplied by the time of the flow, |dt| n, and
    the flow of these weights amplifies errors by at most e**2. In float64 the state is also rounded once per step."""
    (result,) = expected
    size = np.abs(result).max(initial=1.0)
    weights = max(np.abs(arguments[w]).sum(axis=-1).max(initial=1.0) for w in ("w1", "w2"))
    time, steps = abs(arguments["dt"]) * arguments["n"], arguments["n"] * arguments.get("substeps", 5)
    terms = 2 * np.sqrt(arguments["w1"].shape[-1] + arguments["w2"].shape[-1])
    states = steps * ulp(size, work) if work == np.float64 else 0.0
    return (ulp(np.abs(result), work) + 8 * (time * terms * weights**2 * ulp(size, work) + states),)


def make_floater(c=None, e=None, n=None, batch=(2,), span=0.5, **options):
    """Weights of size 1 / sqrt(width), integrated over a time of `span`."""

    def arguments(rng, size):
        width, hidden = c or size, e or size + 3
        count = size if n is None else n
        return {
            "p0": rng.standard_normal((*batch, width)),
            "w1": rng.standard_normal((hidden, width + 1)) / np.sqrt(width + 1),
            "b1": rng.standard_normal(hidden) * 0.5,
            "w2": rng.standard_normal((width, hidden + 1)) / np.sqrt(hidden + 1),
            "b2": rng.standard_normal(width) * 0.5,
            "n": count,
            "dt": span / max(count, 1),
            **options,
        }

    return arguments


def real_floater(rng):
    return make_floater(512, 512, 64, ())(rng, 64)


def rotation(t, p):
    """A flow that depends on time, computed in the dtype of its arguments."""
    return np.stack([p[..., 1], -p[..., 0] * 2, p[..., 0] * np.asarray(np.cos(t), p.dtype)], axis=-1)


def integrate_tolerance(expected, work, arguments):
    """h is rounded in the working precision; float64 states are rounded once per stage and step. The time is below
    3."""
    (result,) = expected
    size = np.abs(result).max(initial=1.0)
    steps = result.shape[-2] * 20
    states = steps * ulp(size, np.dtype(np.float64))
    return (ulp(np.abs(result), work) + 64 * ulp(size, work) + states,)


def make_integrate(**options):
    def arguments(rng, size):
        return {"h": rotation, "p0": rng.standard_normal((2, 3)), "times": np.sort(rng.uniform(-1, 2, size)), **options}

    return arguments


DATA = ("p0", "w1", "b1", "w2", "b2")
AXES = {"p0": "b c!", "w1": "e f!", "b1": "e", "w2": "g h!", "b2": "g"}


def floater_case(label, make, **changes):
    return Case(
        function="floater",
        label=label,
        oracle=reference.floater,
        tolerance=floater_tolerance,
        make=make,
        real=real_floater,
        data=DATA,
        gradients=at(*DATA),
        **{"axes": AXES, **changes},
    )


CASES = [
    floater_case("", make_floater(5, 7)),
    # as wide as the panels of weights and wider
    floater_case("wide", make_floater(n=3)),
    # more streams than a group of columns holds, so that there are several work items
    floater_case("streams", make_floater(3, 4, batch=(3, 9), substeps=2, method="rk4"), axes={**AXES, "p0": "b s? c!"}),
    # more substeps than the gradient keeps at once, backwards in time
    floater_case("midpoint", make_floater(4, 3, span=-0.5, substeps=19, method="midpoint")),
    floater_case("euler", make_floater(2, 9, substeps=1, method="euler")),
    Case(
        function="integrate",
        oracle=reference.integrate,
        tolerance=integrate_tolerance,
        make=make_integrate(),
        axes={"p0": "b c", "times": "n"},
        data=("p0",),
    ),
    Case(
        function="integrate",
        label="midpoint",
        oracle=reference.integrate,
        tolerance=integrate_tolerance,
        make=make_integrate(substeps=3, method="midpoint"),
        axes={"p0": "b c", "times": "n"},
        data=("p0",),
    ),
]
