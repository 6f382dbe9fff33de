"""ALiBi: matrix, slopes, and weights."""

import numpy as np
import pytest

import posenc
from posenc import reference


def test_matrix_of_5_positions():
    picture = [[0, -1, -2, -3, -4], [-1, 0, -1, -2, -3], [-2, -1, 0, -1, -2], [-3, -2, -1, 0, -1], [-4, -3, -2, -1, 0]]
    slopes = posenc.alibi_slopes(8)
    assert np.array_equal(posenc.alibi(slopes).matrix(5, dtype=np.float64), np.multiply.outer(slopes, picture))


def test_formula_of_the_slopes():
    heads = 8
    h = np.arange(1, heads + 1)
    garbled = (1 / 2 ** (2 ** (1 / (np.log2(heads) + 3)))) ** h
    assert [f"{m:.3f}" for m in garbled[:2]] == ["0.459", "0.211"]
    ours = posenc.alibi_slopes(heads)
    assert np.array_equal(ours, [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256])
    assert np.array_equal(ours, (1 / 2 ** (2 ** -(np.log2(heads) - 3))) ** h)
    assert np.abs(ours - garbled).max() > 0.03


def authors_slopes(n):

    def power_of_2(n):
        start = 2 ** (-(2 ** -(np.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if np.log2(n).is_integer():
        return power_of_2(n)
    closest = 2 ** int(np.floor(np.log2(n)))
    return power_of_2(closest) + authors_slopes(2 * closest)[0::2][: n - closest]


def test_slopes_are_the_authors():
    for heads in (4, 8, 16):  # S4: their exponents differ by a constant
        exponents = np.log2(posenc.alibi_slopes(heads))
        assert np.abs(exponents + np.arange(1.0, heads + 1) * 8 / heads).max() <= 4e-15  # 2**0.5 is rounded
    for heads in range(1, 257):
        np.testing.assert_allclose(posenc.alibi_slopes(heads), authors_slopes(heads), rtol=256 * 2.0**-52, atol=0)


def test_slope_scales_the_bias_alone(rng):
    q, k, v = rng.standard_normal((3, 6, 8))
    m, distance = 0.25, np.abs(np.arange(6)[:, None] - np.arange(6))
    found = posenc.attention(q, k, v, bias=posenc.alibi([m]), scale=1.0)

    def weighted(logits):
        return reference.attention(np.zeros_like(q), k, v, bias=posenc.dense(logits[None]))

    assert np.abs(found - weighted(q @ k.T - m * distance)).max() <= 1e-14
    assert np.abs(found - weighted(m * (q @ k.T - distance))).max() > 0.1


def test_weights_by_distance():
    m, zeros = 0.5, np.zeros((64, 4))
    weights = posenc.attention_weights(zeros, zeros, bias=posenc.alibi([m]), causal=True)[-1]
    steps = np.diff(np.log(weights))  # towards the query
    assert np.abs(steps - m).max() <= 1e-13
    assert weights[-1] == pytest.approx(1 - np.exp(-m), rel=1e-13)  # the sum of 64 terms ends at exp(-32)


def test_a_causal_picture_has_15_of_25_scores(rng):
    q, k = rng.standard_normal((2, 5, 8))
    weights = posenc.attention_weights(q, k, bias=posenc.alibi([0.25]), scale=1.0, causal=True)
    assert np.count_nonzero(weights) == 15
    assert np.array_equal(weights, np.tril(weights))
