"""Relative positions by their equations, one head, without a scale."""

import numpy as np
import pytest

import posenc
from posenc import reference

N, D = 6, 8
ROW, COLUMN = np.arange(N)[:, None], np.arange(N)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.fixture
def drawn(rng):
    """(x, W_Q, W_K, W_V, W_KR)."""
    return rng.standard_normal((N, D)), *rng.standard_normal((4, D, D)) / 3


def test_shaw_with_rows_by_query_minus_key(drawn, rng):
    x, w_q, w_k, w_v, _ = drawn
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    low, high = -2, 3
    p_k, p_v = rng.standard_normal((2, high - low + 1, D))  # row 0 is i - j = low
    at = np.clip(ROW - COLUMN, low, high) - low
    weights = softmax(np.einsum("ic,ijc->ij", q, k + p_k[at]))
    bias = posenc.shaw(p_k[::-1], p_v[::-1], k_min=high)
    assert np.abs(posenc.attention_weights(q, k, bias=bias, scale=1.0) - weights).max() <= 1e-14
    expected = np.einsum("ij,ijc->ic", weights, v + p_v[at])
    assert np.abs(posenc.attention(q, k, v, bias=bias, scale=1.0) - expected).max() <= 1e-13
    forward = posenc.shaw(p_k, p_v, k_min=high)
    assert np.abs(posenc.attention_weights(q, k, bias=forward, scale=1.0) - weights).max() > 1e-2


@pytest.mark.parametrize("final", [False, True])
def test_transformer_xl(final, drawn, rng):
    """The four terms with one projection of keys; `final`: with one of their own for the table, and u, v projected."""
    x, w_q, w_k, w_v, w_kr = drawn
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    rows = posenc.xl_table(N, D) @ (w_kr if final else w_k)
    u, w = rng.standard_normal((2, D)) @ (np.eye(D) if final else w_q)
    r = rows[N - (ROW - COLUMN)]
    logits = q @ k.T + np.einsum("ic,ijc->ij", q, r) + u @ k.T + r @ w
    bias = posenc.transformer_xl([rows], [u], [w])
    assert np.abs(posenc.attention(q, k, v, bias=bias, scale=1.0) - softmax(logits) @ v).max() <= 1e-13


@pytest.mark.parametrize("index", ["paper", "code"])
def test_deberta(index, drawn, rng):
    x, w_q, w_k, *_ = drawn
    q, k, table = x @ w_q, x @ w_k, rng.standard_normal((N, D))
    delta = {"paper": COLUMN - ROW, "code": ROW - COLUMN}[index]
    r_ij, r_ji = (table[np.clip(d + N // 2, 0, N - 1)] for d in (ROW - COLUMN, delta))
    logits = q @ k.T + np.einsum("ic,ijc->ij", q, r_ij @ w_k) + np.einsum("ijc,jc->ij", r_ji @ w_q, k)
    bias = posenc.deberta([table @ w_q], [table @ w_k], p2c_index=index)
    assert np.abs(posenc.attention_weights(q, k, bias=bias, scale=1.0) - softmax(logits)).max() <= 1e-14


def test_t5(rng):
    x, table = rng.standard_normal((1, 6, 8)), rng.standard_normal((32, 1))
    bias = posenc.t5(table, unscaled=True, bidirectional=True)
    logits = x @ x.swapaxes(-1, -2) + bias.matrix(6, dtype=np.float64)
    expected = reference.attention(x, x, x, bias=posenc.dense(logits), scale=0.0)
    assert np.abs(posenc.attention(x, x, x, bias=bias) - expected).max() <= 1e-13


def test_only_shaw_adds_to_values(rng):
    q, k, v = rng.standard_normal((3, 2, 5, 8))
    table, zeros = rng.standard_normal((2, 9, 8)), np.zeros_like(v)
    pairs = rng.standard_normal((2, 8, 8))
    later = [
        posenc.transformer_xl(table, *rng.standard_normal((2, 2, 8))),
        posenc.t5(rng.standard_normal((32, 2)), bidirectional=True),
        posenc.tupe(q, k),
        posenc.deberta(pairs, pairs),
        posenc.alibi([0.5, 0.25]),
    ]
    for bias in later:
        assert not posenc.attention(q, k, zeros, bias=bias).any()
    assert posenc.attention(q, k, zeros, bias=posenc.shaw(table, table)).any()


def test_t5_buckets_widen():
    found = posenc.t5_bucket(-np.arange(5000), bidirectional=True)
    assert found[:8].tolist() == list(range(8))
    widths = np.bincount(found)
    assert widths[8] == 4
    assert np.all(np.diff(widths[8:]) >= 0)
    assert found[-1] == found.max() == posenc.t5_bucket(-(10**9), bidirectional=True) == 15
