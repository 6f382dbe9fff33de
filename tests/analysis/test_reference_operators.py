"""posenc.analysis.reference_matrix and reference_logits: the equation of the operator of each Case."""

import numpy as np
import pytest
from cases import CASES
from cases.bias import BiasCase, of_method
from cases.calls import arguments_of

import posenc
from posenc import analysis

ROWS = [pytest.param(case, id=case.name) for case in CASES if isinstance(case, BiasCase)]
SHAW, ALIBI = posenc.shaw(np.ones((3, 2))), posenc.alibi([0.5])


@pytest.mark.parametrize("case", ROWS)
def test_is_the_equation(case):
    """Also after `at`. Positions with batch axes are refused."""
    arguments = arguments_of(case)
    bias, given = case.bias(arguments), of_method(arguments)
    given.pop("scale", None)  # of the gates alone
    function, places = getattr(analysis, f"reference_{case.method}"), [a for a in given if a.endswith("positions")]
    if any(given[place].ndim > 1 for place in places):
        with pytest.raises(ValueError, match=r"_positions has shape \(2, "):
            function(bias, **given)
        return
    if "scale" in arguments:
        arguments = {name: value for name, value in arguments.items() if name != "scale"}
    (expected,) = case.expect(arguments)
    assert np.abs(function(bias, **given) - expected).max() <= 1e-13 * max(1, np.abs(expected).max())
    if places:
        placed = bias.at(**{place: given.pop(place) for place in places})
        assert np.array_equal(function(placed, **given), function(bias, **of_method(arguments)))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: analysis.reference_matrix(SHAW, 3), TypeError, "bias has type ContentBias"),
        (lambda: analysis.reference_matrix(ALIBI, 3, q_positions=[1, 2]), ValueError, "q_positions has shape"),
        (lambda: analysis.reference_logits(ALIBI, 0, 0), TypeError, "bias has type PositionBias"),
        (lambda: analysis.reference_logits(SHAW, 0, 0), ValueError, "q has 0 axes; expected"),
    ],
)
def test_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call()
