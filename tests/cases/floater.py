"""FLOATER and any other flow: fixed-step Runge-Kutta solvers in float64, from their tableaus."""

from __future__ import annotations

import numpy as np

from . import Case, at, ulp

METHODS = {
    # k_i = h(t + c_i d, y + d sum_j a_ij k_j), y' = y + d sum_i b_i k_i: (c, a, b)
    "rk4_38": ([0, 1 / 3, 2 / 3, 1], [[], [1 / 3], [-1 / 3, 1], [1, -1, 1]], [1 / 8, 3 / 8, 3 / 8, 1 / 8]),
    "rk4": ([0, 1 / 2, 1 / 2, 1], [[], [1 / 2], [0, 1 / 2], [0, 0, 1]], [1 / 6, 1 / 3, 1 / 3, 1 / 6]),
    "midpoint": ([0, 1 / 2], [[], [1 / 2]], [0, 1]),
    "euler": ([0], [[]], [1]),
}


def solver_step(h, t, p, d, method):
    slopes = []
    c, a, b = METHODS[method]
    for ci, row in zip(c, a, strict=True):
        slopes.append(h(t + ci * d, p + d * sum((x * k for x, k in zip(row, slopes, strict=True)), np.zeros_like(p))))
    return p + d * sum(x * k for x, k in zip(b, slopes, strict=True))


def integrate(h, p0, times, *, substeps=5, method="rk4_38"):
    """p(times[k]), with `substeps` equal steps between two times."""
    out, p = np.empty((*p0.shape[:-1], len(times), p0.shape[-1])), p0
    for k, t in enumerate(times):
        if k:
            d = (t - times[k - 1]) / substeps
            for j in range(substeps):
                p = solver_step(h, times[k - 1] + j * d, p, d, method)
        out[..., k, :] = p
    return out


def field(w1, b1, w2, b2):
    """Liu et al. 2020 and their code: h(t, p) = W2 [relu(W1 [p; t] + b1); t] + b2."""

    def beside(x, t):
        return np.concatenate([x, np.full((*x.shape[:-1], 1), t)], axis=-1)

    return lambda t, p: beside(np.maximum(beside(p, t) @ w1.T + b1, 0), t) @ w2.T + b2


def floater(p0, w1, b1, w2, b2, n, *, dt=0.01, substeps=5, method="rk4_38"):
    """p(k dt), k < n."""
    return integrate(field(w1, b1, w2, b2), p0, dt * np.arange(n), substeps=substeps, method=method)


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
            "b2": rng.standard_normal(width) * 0.5, "n": count, "dt": span / max(count, 1), **options,
        }  # fmt: skip

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
        return {
            "h": rotation, "p0": rng.standard_normal((2, 3)), "times": np.sort(rng.uniform(-1, 2, size)), **options,
        }  # fmt: skip

    return arguments


DATA = ("p0", "w1", "b1", "w2", "b2")
AXES = {"p0": "b c!", "w1": "e f!", "b1": "e", "w2": "g h!", "b2": "g"}


def floater_case(label, make, **changes):
    return Case(
        function="floater", label=label, oracle=floater, tolerance=floater_tolerance, make=make, real=real_floater,
        data=DATA, gradients=at(*DATA), **{"axes": AXES, **changes},
    )  # fmt: skip


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
        function="integrate", oracle=integrate, tolerance=integrate_tolerance, make=make_integrate(),
        real=lambda rng: make_integrate()(rng, 64), axes={"p0": "b c", "times": "n"}, data=("p0",),
    ),
    Case(
        function="integrate", label="midpoint", oracle=integrate, tolerance=integrate_tolerance,
        make=make_integrate(substeps=3, method="midpoint"), real=lambda rng: make_integrate()(rng, 64),
        axes={"p0": "b c", "times": "n"}, data=("p0",),
    ),
]  # fmt: skip
