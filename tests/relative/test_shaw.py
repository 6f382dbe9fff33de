"""Shaw's relative positions, and NEZHA's table: numbers worked by hand from the papers."""

import math

import numpy as np
import pytest
from cases.content import column

import posenc
from posenc import reference


def test_shaw():
    """Equations 3 to 5 with K = 1: e = x_i (x_j + a^K), z = sum of softmax(e) (x_j + a^V)."""
    rel_k, rel_v = column(10, 20, 40)[0], column(-1, 5, 100)[0]
    bias = posenc.shaw(rel_k, rel_v)
    q, k, v = column(1, 0, -1), column(3, 4, 5), column(7, 8, 9)
    assert bias.logits(q, k)[0].tolist() == [[20, 40, 40], [0, 0, 0], [-10, -10, -20]]
    out = posenc.attention(q, k, v, bias=bias)[0, :, 0]
    assert out[1] == pytest.approx(((7 - 1) + (8 + 5) + (9 + 100)) / 3, rel=1e-15)  # logits are equal
    weights = np.exp([-13 + 13, -14 + 13, -25 + 13])  # of the last query, whose logits are -(3 + 10), -(4 + 10), ...
    assert out[2] == pytest.approx(weights @ [7 - 1, 8 - 1, 9 + 5] / weights.sum(), rel=1e-15)


def test_shaw_scales_both_terms():
    """Equation 5 divides the sum of both terms by sqrt(D)."""
    q, k = np.full((1, 1, 4), 1.0), np.full((1, 2, 4), 1.0)
    rel_k = np.array([[0.0], [0.0], [2.0]]) * np.ones(4)
    _, lse = posenc.attention(q, k, k, bias=posenc.shaw(rel_k), align="start", return_lse=True)
    assert lse[0, 0] == pytest.approx(np.logaddexp(4 / 2, (4 + 8) / 2), rel=1e-15)


def test_nezha():
    """Equation 8: the row of rel = 1 is number 65, and its angle is 65, not 1."""
    row = posenc.nezha_table(64, 4)[65]
    assert row == pytest.approx([math.sin(65), math.cos(65), math.sin(0.65), math.cos(0.65)], abs=4e-16)
    assert posenc.nezha_table(64, 4).shape == (129, 4)


def test_both_ends_clip_apart():
    """Five rows from -3 to 1, for values too."""
    rng = np.random.default_rng(0)
    rel_k, rel_v = rng.standard_normal((2, 5, 4))
    q, k, v = rng.standard_normal((3, 2, 9, 4))
    bias = posenc.shaw(rel_k, rel_v, k_min=3)
    expected = reference.attention(q, k, v, bias=reference.shaw(rel_k, rel_v, k_min=3))
    assert np.allclose(posenc.attention(q, k, v, bias=bias), expected, rtol=0, atol=1e-14)
    assert repr(bias) == "<posenc.shaw: rel_k (5, 4), rel_v (5, 4), k_min=3>"


def test_refusals_of_k_min():
    with pytest.raises(ValueError, match="shaw: k_min is 5; expected at most 4"):
        posenc.shaw(np.ones((5, 4)), k_min=5)
    with pytest.raises(ValueError, match="shaw: rel_k has no rows; expected at least one"):
        posenc.shaw(np.ones((0, 4)), k_min=0)
