"""Errors of results against the oracle of their Case, and of gradients against central differences of the oracle.

Tests compare the errors with bounds, and so do the benchmarks that call every Case.
"""

import numpy as np

from posenc import reference

from . import get_path, set_path

STEP = 1e-5
ALLOWED = 1e-6
"""The documented bound on the error of a gradient, relative to its largest entry.

Central differences of a function of size 1 with step h in float64 are off by about eps/h = 2e-11, and by h**2 = 1e-10
times the third derivative. That derivative is w**3 <= 8 for a position and p**3 for a frequency, so the step of a
frequency is divided by the largest position.
"""


def cotangents(case, arguments, seed=1):
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal(np.shape(e)) for e in case.expect(arguments))


def differences(case, arguments, grads, path):
    """Central differences of sum(grad * oracle), by at most 24 drawn entries of the argument; NaN for others, and 0 for
    an entry that is infinite."""
    given = np.array(get_path(arguments, path), np.float64)
    step = STEP
    if path[0] in ("frequencies", "frequency"):
        step /= 1 + max(
            np.abs(np.asarray(arguments[a])).max(initial=0) for a in ("positions", "offset") if a in arguments
        )
    finite = np.flatnonzero(np.isfinite(given))
    chosen = np.random.default_rng(0).permutation(finite)[:24]

    def function(numbers):
        changed = given.copy()
        changed.flat[chosen] = numbers
        return case.truth(set_path(arguments, path, changed))

    gradient = np.zeros(given.shape)
    gradient.flat[finite] = np.nan
    grad = grads if len(grads) > 1 else grads[0]
    gradient.flat[chosen] = reference.gradient(function, given.flat[chosen], grad=grad, step=step)
    return gradient


def relative_deviation(gradient, wanted):
    """The largest deviation, relative to the largest wanted entry; NaN is not wanted."""
    known = ~np.isnan(wanted)
    error = np.nan_to_num(np.abs(gradient[known] - wanted[known]), nan=np.inf)
    return error.max(initial=0.0) / max(np.abs(wanted[known]).max(initial=0.0), 1e-9)


def share_of_bound(case, results, arguments, dtype):
    """The largest error of the results of a call, as a share of its bound."""
    expected, share = case.expect(arguments), 0.0
    for result, e, bound in zip(results, expected, case.bounds(expected, dtype, arguments), strict=True):
        wide, finite = np.asarray(result).astype(np.float64), np.isfinite(e)
        if not np.array_equal(wide[~finite], e[~finite], equal_nan=True):
            return np.inf
        error = np.nan_to_num(np.abs(wide[finite] - e[finite]), nan=np.inf)
        shares = np.divide(error, bound[finite], out=np.where(error > 0, np.inf, 0.0), where=bound[finite] > 0)
        share = max(share, float(shares.max(initial=0)))
    return share
