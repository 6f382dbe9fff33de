"""Gated distance: numbers worked by hand, gates with batch axes, and refusals."""

import re

import numpy as np
import pytest
from cases import F64

import posenc

H, N, M, D = 2, 70, 150, 8


def qkv(rng, *batch, n=N, m=M):
    q = rng.standard_normal((*batch, H, n, D))
    return q, *rng.standard_normal((2, *batch, 1, m, D))


def test_rows_by_hand():
    """Gate 1 for queries 0 and 1, gate 2 for query 2; a table whose numbers tell its rows."""
    gates = np.array([1.0, 1.0, 2.0])[None, :, None]
    for rows, table, wanted in (
        ("clipped", [-1.0, 7.0, 1.0], [[7, 1, 1], [-1, 7, 1], [-2, -2, 14]]),
        ("past", [5.0, 3.0], [[5, 0, 0], [3, 5, 0], [0, 6, 10]]),
        ("buckets", [9.0, 1.0, 8.0, 2.0], [[9, 2, 2], [1, 9, 2], [2, 2, 18]]),
    ):
        options = {"max_distance": 2} if rows == "buckets" else {}
        bias = posenc.gated_distance(gates, np.array(table)[:, None], rows=rows, **options)
        assert bias.matrix(3)[0].tolist() == wanted


@pytest.mark.parametrize("batch", [(), (3,), (2, 1)], ids=str)
def test_gates_of_a_batch(batch, rng):
    """Leading axes of gates broadcast with those of q; their gradient is summed over what they were broadcast to."""
    gates, table = rng.standard_normal((*batch, H, N, 3)), rng.standard_normal((H, 21, 3))
    q, k, v = qkv(rng, 2, 3)
    grad, options = rng.standard_normal(q.shape), {"causal": True, "align": "end"}
    bias, whole = posenc.gated_distance(gates, table), np.broadcast_to(gates, (2, 3, H, N, 3))
    out = posenc.attention(q, k, v, bias=bias, **options)
    found = posenc.attention_vjp(grad, q, k, v, bias=bias, **options).bias[0]
    d_gates, d_table = np.zeros(gates.shape), np.zeros(table.shape)
    for row in np.ndindex(2, 3):
        one = {"bias": posenc.gated_distance(whole[row], table), **options}
        assert np.array_equal(posenc.attention(q[row], k[row], v[row], **one), out[row])
        gradient = posenc.attention_vjp(grad[row], q[row], k[row], v[row], **one).bias[0]
        d_table += gradient.table
        own = tuple(i if length > 1 else 0 for i, length in zip(row[2 - len(batch) :], batch, strict=True))
        d_gates[own] += gradient.gates
    assert np.abs(found.gates - d_gates).max() <= 1e-12
    assert np.abs(found.table - d_table).max() <= 1e-12
    dense = posenc.dense(bias.matrix(N, M, align="end", dtype=F64))
    assert np.abs(out - posenc.attention(q, k, v, bias=dense, **options)).max() <= 1e-12


def test_same_table_with_other_gates(rng):
    """Two operators made from one table keep their products apart."""
    q, k, v = qkv(rng)
    table = rng.standard_normal((41, 2))
    one, other = (posenc.gated_distance(rng.standard_normal((H, N, 2)), table) for _ in range(2))
    both = posenc.attention(q, k, v, bias=(one, other), align="end")
    dense = posenc.dense(one.matrix(N, M, align="end", dtype=F64) + other.matrix(N, M, align="end", dtype=F64))
    assert np.abs(both - posenc.attention(q, k, v, bias=dense)).max() <= 1e-12


GATES, TABLE = np.ones((2, 5, 3)), np.ones((7, 3))


@pytest.mark.parametrize(
    ("gates", "table", "options", "message"),
    [
        (np.ones((5, 3)), TABLE, {}, "gates has shape (5, 3); expected (..., H, N, R)"),
        (GATES, np.ones((7, 2)), {}, "table has 2 channels; expected 3, as gates"),
        (GATES, np.ones((3, 7, 3)), {}, "table has 3 heads; expected 2, as gates"),
        (GATES, np.ones(7), {}, "table has shape (7,); expected (T, R) or (H, T, R)"),
        (GATES, np.ones((6, 3)), {}, "table has 6 rows; expected 2 K + 1 rows, K at least 1"),
        (GATES, np.ones((0, 3)), {"rows": "past"}, "table has no rows; expected at least one"),
        (GATES, np.ones((3, 3)), {"rows": "buckets", "max_distance": 9}, "table has 3 rows; expected at least 4"),
        (GATES, TABLE, {"rows": "buckets"}, 'max_distance is None; expected an integer, because rows is "buckets"'),
        (GATES, TABLE, {"rows": "buckets", "max_distance": 1}, "max_distance is 1; expected at least 2"),
        (
            GATES,
            TABLE,
            {"rows": "buckets", "max_distance": 2**20 + 1},
            "max_distance is 1048577; expected at most 1048576",
        ),
        (GATES, TABLE, {"max_distance": 9}, 'max_distance is 9; expected None, because rows is "clipped"'),
    ],
)
def test_refusals(gates, table, options, message):
    with pytest.raises(ValueError, match="^" + re.escape("gated_distance: " + message)):
        posenc.gated_distance(gates, table, **options)


def test_refusals_of_a_call(rng):
    q, k, v = qkv(rng)
    bias = posenc.gated_distance(np.ones((3, H, N, 1)), np.ones((3, 1)))
    with pytest.raises(ValueError, match=r"^attention: gates has shape \(3, 2, 70, 1\); .* \(gated_distance\)"):
        posenc.attention(q, k, v, bias=bias, align="end")
    with pytest.raises(ValueError, match=r"^attention: gates has 70 queries .gated_distance.; expected 9, as q"):
        posenc.attention(q[:, :9], k, v, bias=bias, align="end")
    with pytest.raises(ValueError, match=r"^gated_distance.matrix: gates has 70 queries .*; expected 9, as q"):
        bias.matrix(9)
    with pytest.raises(ValueError, match=r"^gated_distance.matrix: q_positions has batch axes \(2,\)"):
        bias.matrix(N, q_positions=np.zeros((2, N)))
