"""Transformer-XL: numbers worked by hand from the paper."""

import math

import numpy as np
import pytest
from cases.content import column

import posenc


def test_transformer_xl():
    """Terms (b), (c) and (d) of section 3.3 for two queries and two keys: q r + u k + v r. Term (a) is q k."""
    bias = posenc.transformer_xl(column(10, 20, 40), [[7.0]], [[11.0]])
    q, k = column(1, 2), column(3, 5)
    wanted = [[20 + 21 + 220, 40 + 35 + 440], [2 * 10 + 21 + 110, 2 * 20 + 35 + 220]]
    assert bias.logits(q, k)[0].tolist() == wanted
    _, lse = posenc.attention(q, k, k, bias=bias, return_lse=True)
    assert lse[0] == pytest.approx([np.logaddexp(3 + 261, 5 + 515), np.logaddexp(6 + 151, 10 + 295)], rel=1e-15)


def test_xl_table_is_of_the_distance():
    """R_d with d = i - j: the row of rel = -2 is that of distance 2, sines first."""
    assert posenc.xl_table(3, 4)[3 - 2] == pytest.approx(
        [math.sin(2), math.sin(0.02), math.cos(2), math.cos(0.02)], abs=4e-16
    )
