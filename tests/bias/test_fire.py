"""FIRE: a number worked by hand, the corner at the threshold, and a forged operator."""

import pickle

import numpy as np
import pytest
from cases import F64

import posenc


def test_fire_by_hand():
    """c = 1, L = 7, query at 3, key at 0: log 4 / (log 8 + 1e-6) = 2/3. One hidden neuron 6 z - 1 is doubled, and 1/2
    added."""
    bias = posenc.fire([[6.0]], [-1.0], [[2.0], [-1.0]], [0.5, 0.0], 1.0, 7.0)
    values = bias.matrix(4, dtype=F64)[:, 3, 0]
    assert np.abs(values - [6.5, -3.0]).max() <= 1e-5  # the 1e-6 in the divisor changes 12 z by 4e-6


def test_gradient_of_fire_at_the_threshold_is_the_mean_of_both_sides():
    """max(i, |threshold|) is not differentiable where both are equal."""
    made = {"w1": [[1.0]], "b1": [1.0], "w2": [[1.0]], "b2": [0.0], "c": 0.5}
    grad = np.ones((1, 1, 1))
    sides = [
        posenc.fire(**made, threshold=4 + d).matrix_vjp(grad, 1, q_positions=[4], k_positions=[1]).threshold
        for d in (-1e-9, 0.0, 1e-9)
    ]
    assert sides[0] == 0
    assert abs(sides[1] - sides[2] / 2) <= 1e-8


@pytest.mark.parametrize("inputs", [0, 2])
def test_a_forged_w1_is_refused(inputs):
    """As a pickle may hold it: it passes no check of `fire`, and the kernel reads one column."""
    bias = posenc.fire(np.ones((4, 1)), np.ones(4), np.ones((2, 4)), np.ones(2), 0.3, 9)
    object.__setattr__(bias, "arrays", bias.arrays._replace(w1=np.ones((4, inputs))))
    forged = pickle.loads(pickle.dumps(bias))
    q = np.ones((2, 3, 4))
    with pytest.raises(ValueError, match="has lengths that do not fit"):
        posenc.attention(q, q, q, bias=forged)
    with pytest.raises(ValueError, match="has lengths that do not fit"):
        forged.matrix(3)
