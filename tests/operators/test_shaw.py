"""Shaw's relative positions, and NEZHA's table: numbers worked by hand from the papers."""

import math

import numpy as np
import pytest
from cases.content import column

import posenc


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
    row = posenc.nezha(4)[65]
    assert row == pytest.approx([math.sin(65), math.cos(65), math.sin(0.65), math.cos(0.65)], abs=4e-16)
    assert posenc.nezha(4).shape == (129, 4)
