"""A scale for each head: its refusals."""

import numpy as np
import pytest

import posenc

RNG = np.random.default_rng(3)
Q, (K, V) = RNG.standard_normal((2, 4, 70, 8)), RNG.standard_normal((2, 2, 2, 70, 8))
SCALE = np.array([0.0, -1.0, 0.1, 30.0])


def test_refused():
    with pytest.raises(ValueError, match=r"scale has shape \(3,\); expected a number, or \(4,\), one for each head"):
        posenc.attention(Q, K, V, scale=np.ones(3))
    with pytest.raises(TypeError, match=r"scale has shape \(4,\); expected a number, because shaw reads queries and"):
        posenc.attention(Q, K, V, scale=SCALE, bias=posenc.shaw(np.ones((3, 8))))
    with pytest.raises(ValueError, match="scale is nan; expected a finite number"):
        posenc.attention(Q, K, V, scale=np.full(4, np.nan))
