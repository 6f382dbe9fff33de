"""The weights of attention."""

import numpy as np
import pytest

import posenc

RNG = np.random.default_rng(0)


def test_values_of_operators_are_left_out():
    q, k = RNG.standard_normal((2, 2, 9, 4))
    rel_k, rel_v = RNG.standard_normal((2, 5, 4))
    alibi = posenc.alibi([0.5, 0.25])
    expected = posenc.attention_weights(q, k, bias=[posenc.shaw(rel_k), alibi])
    for bias in ([posenc.shaw(rel_k, rel_v), alibi], posenc.shaw(rel_k, rel_v) + alibi):
        assert np.array_equal(posenc.attention_weights(q, k, bias=bias), expected)
    placed = [posenc.shaw(rel_k, one, k_min=2).at(q_positions=9, k_positions=9) for one in (None, rel_v)]
    assert np.array_equal(*(posenc.attention_weights(q, k, bias=one) for one in placed))


def test_refusals_name_the_function():
    q = np.ones((1, 2, 4))
    with pytest.raises(ValueError, match="attention_weights: k has 3 channels"):
        posenc.attention_weights(q, np.ones((1, 2, 3)))
    with pytest.raises(TypeError, match="attention_weights: bias has type"):
        posenc.attention_weights(q, q, bias="alibi")
    with pytest.raises(ValueError, match="attention_weights: k has 1 axes"):
        posenc.attention_weights(q, np.ones(4))
