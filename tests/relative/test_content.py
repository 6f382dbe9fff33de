"""Every relative operator: default scales, and rows that meet what is not finite."""

import math

import numpy as np
import pytest

import posenc


def logit(bias, **options):
    """The logit of a query and a key with 4 channels whose product is 12, with operators that add 0."""
    q, k = np.full((1, 1, 4), 3.0), np.ones((1, 1, 4))
    return posenc.attention(q, k, k, bias=bias, return_lse=True, **options)[1][0, 0]


ZERO = np.zeros((1, 2, 4))
DEBERTA = posenc.deberta(ZERO, ZERO)
C2P = posenc.deberta(None, ZERO, terms=("c2p",))
P2C = posenc.deberta(ZERO, None, terms=["p2c"])
TUPE = posenc.tupe(ZERO[:, :1], ZERO[:, :1])
SHAW = posenc.shaw(np.zeros((3, 4)))
XL = posenc.transformer_xl(np.zeros((1, 3, 4)), np.zeros((1, 4)), np.zeros((1, 4)))
COPE = posenc.cope(np.zeros((3, 4)))


@pytest.mark.parametrize(
    ("bias", "parts"),
    [
        (DEBERTA, 3),
        (C2P, 2),
        (P2C, 2),
        (TUPE, 2),
        (SHAW, 1),
        (XL, 1),
        (COPE, 1),
        ([C2P, P2C, TUPE], 2),
        ([SHAW, DEBERTA], 3),
        ([DEBERTA, DEBERTA, posenc.alibi([1.0])], 3),
        ([COPE, TUPE], 2),
    ],
    ids=lambda x: "+".join(one.name for one in x) if isinstance(x, list) else getattr(x, "name", str(x)),
)
def test_default_scale(bias, parts):
    """The default scale is 1 / sqrt(D times the number of parts), if all operators with a scale of their own agree."""
    assert logit(bias) == pytest.approx(12 / math.sqrt(4 * parts), rel=1e-15)
    assert logit(bias, scale=0.25) == 3


@pytest.mark.parametrize("operators", [(DEBERTA, C2P), (TUPE, DEBERTA), (P2C, SHAW, DEBERTA)], ids=len)
def test_scales_that_disagree(operators):
    with pytest.raises(ValueError, match=r"^attention: scale is None; expected a number, .*deberta"):
        logit(operators)
    assert logit(operators, scale=1.0) == 12


def test_rows_that_meet_what_is_not_finite_get_nan():
    """The gradient of a table's row that meets such a query or key is NaN; one that meets none stays finite."""
    q, k = np.ones((1, 3, 2)), np.ones((1, 3, 2))
    q[0, 1, 0] = np.inf
    grad = np.tri(3)[None]  # query 1 reads rows 0 and 1
    found = posenc.shaw(np.ones((3, 2))).logits_vjp(grad, q, k).bias.rel_k
    np.testing.assert_array_equal(found, [[np.nan, np.nan], [np.nan, np.nan], [0, 0]])
    bias = posenc.deberta(np.ones((1, 4, 2)), np.ones((1, 4, 2)))
    for gradient in bias.logits_vjp(grad, q, k).bias.rel_k, bias.logits_vjp(grad, k, q).bias.rel_q:
        np.testing.assert_array_equal(gradient[0], [[0, 0], [0, 0], [np.nan, np.nan], [np.nan, np.nan]])
