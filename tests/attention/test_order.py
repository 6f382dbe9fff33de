"""What attention computes from the order of its inputs."""

import numpy as np
import pytest

import posenc
from posenc import analysis


def test_permuted_keys(rng):
    q, k, v = rng.standard_normal((3, 2, 9, 8))
    order = rng.permutation(9)
    plain, permuted = posenc.attention(q, k, v), posenc.attention(q, k[:, order], v[:, order])
    assert np.abs(plain - permuted).max() <= 1e-14
    bias = posenc.alibi(posenc.alibi_slopes(2))
    placed = posenc.attention(q, k, v, bias=bias)
    assert np.abs(placed - posenc.attention(q, k[:, order], v[:, order], bias=bias)).max() > 1e-3
    same = posenc.attention(q, k[:, order], v[:, order], bias=bias, k_positions=order)
    assert np.abs(placed - same).max() <= 1e-14


def test_a_pooled_model_is_symmetric(rng):
    x, p = rng.standard_normal((6, 8)), posenc.sinusoidal(6, 8, dtype=np.float64)

    def f(x):
        return np.tanh(posenc.attention(x, x, x)).sum()

    for m, n in ((1, 4), (2, 3)):
        order = np.arange(6)
        order[[m, n]] = n, m
        assert abs(f(x) - f(x[order])) <= 1e-14 * x.size
        assert abs(f(x + p) - f(x[order] + p)) > 1e-3


def test_five_terms_depend_on_one_position(rng):
    x, p = rng.standard_normal((6, 6)), rng.standard_normal((2, 6, 6))

    def f(x):
        return np.tanh(posenc.attention(x, x, x)).sum()

    only_m, only_n = p[0].copy(), p[0].copy()
    only_m[1], only_n[4] = p[1, 1], p[1, 4]
    first, moved_m, moved_n = (np.array(analysis.taylor_terms(f, x, q, 1, 4)) for q in (p[0], only_m, only_n))
    assert (moved_m != first).tolist() == [False, True, False, True, False, True]
    assert (moved_n != first).tolist() == [False, False, True, False, True, True]


def test_expansion_of_the_logits(rng):
    x, p = rng.standard_normal((2, 6, 8))
    w_q, w_k = rng.standard_normal((2, 8, 8))
    whole = (x + p) @ w_q @ w_k.T @ (x + p).T
    parts = [a @ w_q @ w_k.T @ b.T for a in (x, p) for b in (x, p)]
    assert np.abs(whole - sum(parts)).max() <= 1e-12


def test_scale_of_the_logits(rng):
    q, k, v = rng.standard_normal((3, 6, 16))
    scaled, printed = posenc.attention(q, k, v), posenc.attention(q, k, v, scale=1.0)
    assert np.abs(posenc.attention(q / 4, k, v, scale=1.0) - scaled).max() <= 1e-14
    assert np.abs(printed - scaled).max() > 0.1


def test_attention_spreads_over_more_keys(rng):
    entropies = []
    for m in (64, 512):
        q, k = rng.standard_normal((1, 64, 32)), rng.standard_normal((1, m, 32))
        weights = posenc.attention_weights(q, k)
        entropies.append(float(-(weights * np.log(weights)).sum(-1).mean()))
    assert entropies[1] - entropies[0] == pytest.approx(np.log(8), abs=0.2)


def test_zero_padding_tells_attention_nothing(rng):
    x, zeros = rng.standard_normal((7, 8)), np.zeros((2, 8))

    def padded(x):
        keys = np.concatenate([zeros, x, zeros])[None]
        return posenc.attention(x[None], keys, keys)[0]

    kernel = rng.standard_normal((8, 3))
    assert analysis.order_sensitivity(padded, x).max() <= 1e-14
    assert analysis.order_sensitivity(lambda x: posenc.conv_position(x, kernel), x).min() > 0.1
