"""How far results are from the oracle of their Case, and gradients from its central differences: for the tests, which
compare with the bound, and for benchmarks/accuracy/agreement.py and gradients.py, which print it."""

import numpy as np

from . import get_path, set_path, ulp

STEP = 1e-5
# Central differences of a function of size 1 with step h in float64 are off by about eps/h = 2e-11 and h**2 = 1e-10
# times its third derivative (positions count with w**3 <= 8, frequencies with p**3, which is why the step there is
# relative to the largest position); 1e-6 of the largest entry is the documented bound.
ALLOWED = 1e-6


def cotangents(case, arguments, seed=1):
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal(np.shape(e)) for e in case.expect(arguments))


def differences(case, arguments, grads, path):
    """d sum(grad * oracle) / d argument, entry by entry."""
    given = np.array(get_path(arguments, path), np.float64)
    gradient = np.zeros(given.shape)
    step = STEP
    if path[0] in ("frequencies", "frequency"):
        step /= 1 + max(
            np.abs(np.asarray(arguments[a])).max(initial=0) for a in ("positions", "offset") if a in arguments
        )
    for entry in np.ndindex(given.shape):
        sides = []
        for sign in (1, -1):
            moved = given.copy()
            moved[entry] += sign * step
            results = case.truth(set_path(arguments, path, moved))
            results = results if isinstance(results, tuple) else (results,)
            sides.append((moved[entry], sum((g * r).sum() for g, r in zip(grads, results, strict=True))))
        (above, up), (below, down) = sides
        gradient[entry] = (up - down) / (above - below)
    return gradient


def relative_deviation(gradient, wanted):
    """The largest, relative to the largest entry."""
    error = np.nan_to_num(np.abs(gradient - wanted), nan=np.inf)
    return error.max(initial=0.0) / max(np.abs(wanted).max(initial=0.0), 1e-9)


def gradient_deviations(case, n):
    """Field of the vjp -> its relative deviation from central differences."""
    arguments = case.arguments(n)
    grads = cotangents(case, arguments)
    gradients = case.vjp(grads, arguments)
    return {
        name: relative_deviation(gradients[name], differences(case, arguments, grads, path))
        for name, path in case.gradients.items()
    }


def forward_error(case, arguments, dtype):
    """The worst error of one call: in ulps of the result's dtype at its largest entry, and as a share of the bound."""
    results = case.call(arguments, **case.options(dtype))
    expected = case.expect(arguments)
    worst, share = 0.0, 0.0
    for result, e, bound in zip(results, expected, case.bounds(expected, dtype, arguments), strict=True):
        array = np.asarray(result)
        finite = np.isfinite(e)
        wide = array.astype(np.float64)
        if not np.array_equal(wide[~finite], e[~finite], equal_nan=True):
            return np.inf, np.inf
        if not finite.any():
            continue
        error = np.nan_to_num(np.abs(wide[finite] - e[finite]), nan=np.inf)
        unit = 1.0 if array.dtype.kind in "biu" else ulp(np.abs(e[finite]).max(), array.dtype)
        worst = max(worst, float(error.max() / unit))
        shares = np.divide(error, bound[finite], out=np.where(error > 0, np.inf, 0.0), where=bound[finite] > 0)
        share = max(share, float(shares.max()))
    return worst, share
