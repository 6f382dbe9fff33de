"""FoX: products of gates worked by hand, long sums, and gates with batch axes."""

import math

import numpy as np
import pytest
from cases import F64

import posenc
from posenc import reference


def test_fox_by_hand():
    """Gates 1/2, 1/4, 1/8: the product of gates 1 and 2, from query 2 to key 0, is 1/32."""
    matrix = posenc.fox(np.log([[0.5, 0.25, 0.125]])).matrix(3, dtype=F64)[0]
    assert abs(matrix[2, 0] - math.log(1 / 32)) <= 1e-15
    assert abs(matrix[1, 0] - math.log(1 / 4)) <= 1e-15
    assert not np.diag(matrix).any()


def test_fox_keeps_differences_of_long_sums():
    """Differences of sums of size 1e6 are exact to 1e-9; float32 sums would be off by 0.06."""
    gates = np.full((1, 1 << 20), -1.0)
    row = posenc.fox(gates).matrix(1, 3, q_positions=[(1 << 20) - 1], k_positions=[(1 << 20) - 4, 5, 0])
    assert row[0, 0].tolist() == [-3.0, -(2.0**20 - 6), -(2.0**20 - 1)]


@pytest.mark.parametrize("batch", [(), (3,), (2, 1)], ids=str)
def test_forget_gates_of_a_batch(batch, rng):
    """Leading axes of log_forget broadcast with those of q, and may not add to them."""
    gates = -rng.uniform(0, 1, (*batch, 4, 70))
    q, k, v = rng.standard_normal((2, 3, 4, 70, 8)), *rng.standard_normal((2, 3, 2, 70, 8))
    options = {"bias": posenc.fox(gates), "causal": True}
    assert np.abs(posenc.attention(q, k, v, **options) - reference.attention(q, k, v, **options)).max() <= 1e-13
    with pytest.raises(ValueError, match=r"^attention: log_forget has shape .* \(fox\)"):
        posenc.attention(q, k, v, bias=posenc.fox(np.zeros((5, 1, 4, 70))), causal=True)


def test_gradient_of_gates_is_summed_over_what_it_was_broadcast_to(rng):
    gates, places = -rng.uniform(0, 1, (1, 2, 9)), rng.integers(0, 9, (3, 5))
    grad = rng.standard_normal((3, 2, 5, 5))
    whole = posenc.fox(gates).matrix_vjp(grad, 5, q_positions=places, k_positions=places).log_forget
    parts = sum(
        posenc.fox(gates[0]).matrix_vjp(grad[b], 5, q_positions=places[b], k_positions=places[b]).log_forget
        for b in range(3)
    )
    assert whole.shape == gates.shape
    assert np.abs(whole[0] - parts).max() <= 1e-13


GATES = np.zeros((2, 9))


def test_more_queries_than_keys_have_no_position_before_the_first(rng):
    """align="end" puts query 0 at -2, for which there is no gate."""
    q, k = rng.standard_normal((2, 5, 4)), rng.standard_normal((2, 3, 4))
    with pytest.raises(IndexError, match="attention: q_positions has -2; expected 0 to 8"):
        posenc.attention(q, k, k, bias=posenc.fox(GATES), align="end")
    assert posenc.attention(q, k, k, bias=posenc.fox(GATES), align="start").shape == q.shape


@pytest.mark.parametrize(("batch", "length"), [((0, 2), 9), ((3,), 0)], ids=str)
def test_gradient_without_rows_or_positions(batch, length):
    """An empty batch and gates of no position have a gradient: zeros in the shape of the gates."""
    q = np.ones((*batch, 2, length, 4))
    for leading in {(), batch, (1,) * len(batch)}:
        gates = posenc.fox(np.full((*leading, 2, length), -0.5))
        d = posenc.attention_vjp(q, q, q, q, out=q, lse=q[..., 0], bias=gates, causal=True)
        assert d.bias[0].log_forget.shape == (*leading, 2, length)
        assert not d.bias[0].log_forget.any()
        assert d.q.shape == q.shape


@pytest.mark.parametrize("end", [3, 30])
def test_gradient_without_keys(end, rng):
    """Without keys no gate is read: neither the dtype of their positions nor a query beyond the gates matters."""
    q, k = rng.standard_normal((2, 3, 4)), np.zeros((2, 0, 4))
    bias = posenc.fox(-rng.random((2, 8)))
    at = {"q_positions": np.arange(end - 3, end), "k_positions": np.zeros(0, np.float32)}
    out, lse = posenc.attention(q, k, k, bias=bias, return_lse=True, **at)
    gradient = posenc.attention_vjp(np.ones_like(q), q, k, k, out=out, lse=lse, bias=bias, **at)
    assert np.array_equal(gradient.bias[0].log_forget, np.zeros((2, 8)))
