"""CoPE: positions worked by hand from the paper."""

import math

import numpy as np
import pytest
from cases.content import column

import posenc


def test_cope():
    """Equations 3 to 5: gates 3/4, 1/2 and 1/4 give the positions 3/2, 3/4 and 1/4, counted back from the last
    query."""
    log3 = math.log(3.0)
    q, k = column(0, 0, 1), column(log3, 0, -log3)
    table = column(0, 8, 20)[0]
    added = posenc.cope(table).logits(q, k, scale=1.0)[0]
    assert added[2] == pytest.approx([14, 6, 2], rel=1e-15)
    assert not added[:2].any()  # q = 0
    assert posenc.cope(table[:2]).logits(q, k, scale=1.0)[0, 2] == pytest.approx([8, 6, 2], rel=1e-15)  # at most P - 1
    assert posenc.cope(table[1:2]).logits(q, k, scale=1.0)[0, 2].tolist() == [8, 8, 8]


def test_cope_counts_what_is_visible():
    """Only visible keys are counted: without the key in the middle the positions are 1 and 1/4."""
    log3 = math.log(3.0)
    q, k = column(1), column(log3, 0, -log3)
    bias, keep = posenc.cope(column(0, 8, 20)[0]), np.array([True, False, True])
    _, lse = posenc.attention(q, k, k, bias=bias, keep=keep, scale=1.0, align="end", return_lse=True)
    assert lse[0, 0] == pytest.approx(np.logaddexp(log3 + 8, -log3 + 2), rel=1e-15)
