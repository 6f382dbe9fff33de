"""The a-priori bounds of cases/rounding.py are tight, and wrong implementations exceed them."""

import numpy as np
import pytest
from cases import CASES, F32, F64
from cases.deviation import share_of_bound

CASE = CASES[[case.function for case in CASES].index("attention")]
ATTENTION = [case for case in CASES if case.function == "attention"]
TIGHT = 1 / 50
"""The worst error of a call is between 1/4 and 1/20 of its bound in float32 (observed on every instruction set). The
bound takes four standard deviations of errors that are all as large as u, where errors of a third of u are usual, and
adds up the magnitudes of roundings that several pairs share."""


@pytest.mark.parametrize("case", ATTENTION, ids=lambda case: case.name)
def test_bounds_are_tight(case):
    """The largest error over several sizes is within a small factor of its bound."""
    each = (case.arguments(n, F32) for n in (33, 97))
    shares = [share_of_bound(case, case.call(one, **case.options(F32)), one, F32) for one in each]
    assert TIGHT <= max(shares) <= 1


def narrow(array, bits):
    """Round an array to significands of `bits` bits; float32 has 24."""
    fraction, exponent = np.frexp(array)
    return np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits)


def problem(rng):
    q, k, v = (rng.standard_normal((2, n, 16)).astype(F32) for n in (33, 65, 65))
    bias = (("alibi", {"slopes": np.array([0.25, 0.0625])}),)
    return {"q": q, "k": k, "v": v, "bias": bias, "scale": 0.25, "align": "end", "return_lse": True}


WRONG = {
    "a key is missing": lambda a: {**a, "k": a["k"][:, 1:], "v": a["v"][:, 1:]},
    "the bias is missing": lambda a: {**a, "bias": ()},
    "positions are off by one": lambda a: {**a, "align": None, "q_positions": np.arange(33) + 33},
    "values have lost seven bits": lambda a: {**a, "v": narrow(a["v"], 17)},
    "queries have lost seven bits": lambda a: {**a, "q": narrow(a["q"], 17)},
    "the scale is off by 64 u": lambda a: {**a, "scale": a["scale"] * (1 + 2**-18)},
}
"""Arguments for which the exact result is that of a wrong implementation for `problem`."""


@pytest.mark.parametrize("name", WRONG)
def test_wrong_results_exceed_the_bounds(name, rng):
    arguments = problem(rng)
    wide = CASE.cast(arguments, F64)
    wrong, expected = CASE.truth(WRONG[name](wide)), CASE.expect(arguments)
    bounds = CASE.bounds(expected, F32, arguments)
    assert max((np.abs(w - e) / bound).max() for w, e, bound in zip(wrong, expected, bounds, strict=True)) > 1
