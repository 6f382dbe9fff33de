"""Operators at positions of their own, and sums of operators."""

import numpy as np
import pytest

import posenc

RNG = np.random.default_rng(19)
N, M = 70, 130
X_Q, X_K = RNG.integers(0, 9, N), RNG.integers(0, 9, M)
OPERATORS = {
    "alibi": posenc.alibi([0.5, 0.25]),
    "fox": posenc.fox(np.linspace(-1, 0, 2 * 9).reshape(2, 9)),
    "t5": posenc.t5(np.linspace(-1, 1, 64).reshape(32, 2), bidirectional=True),
    "sandwich": posenc.sandwich(2, 8),
    "shaw": posenc.shaw(np.linspace(-1, 1, 20).reshape(5, 4)),
    "transformer_xl": posenc.transformer_xl(np.ones((2, 5, 4)), np.ones((2, 4)), np.ones((2, 4))),
}


def qkv(batch=()):
    q = RNG.standard_normal((*batch, 2, N, 4))
    return q, *RNG.standard_normal((2, *batch, 2, M, 4))


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("sides", ["qk", "q", "k"])
def test_attention_reads_own_positions_bit_for_bit(name, sides):
    """Without masks it makes no difference whose positions they are."""
    bias, (q, k, v) = OPERATORS[name], qkv((3,))
    at = {"q_positions": X_Q, "k_positions": X_K}
    placed = bias.at(**{name: at[name] for name in at if name[0] in sides})
    call = {name: at[name] for name in at if name[0] not in sides} or {"align": "end"}
    out, lse = posenc.attention(q, k, v, bias=bias, **at, return_lse=True)
    assert all(map(np.array_equal, posenc.attention(q, k, v, bias=placed, **call, return_lse=True), (out, lse)))
    grad = RNG.standard_normal(out.shape)
    one = posenc.attention_vjp(grad, q, k, v, out=out, lse=lse, bias=placed, **call)
    other = posenc.attention_vjp(grad, q, k, v, out=out, lse=lse, bias=bias, **at)
    for a, b in zip((*one[:3], *one.bias[0]), (*other[:3], *other.bias[0]), strict=True):
        assert (a is None and b is None) or np.array_equal(a, b)


def test_both_sides_need_no_align():
    q, k, v = qkv()
    bias = posenc.alibi([0.5, 0.25])
    posenc.attention(q, k, v, bias=bias.at(q_positions=X_Q, k_positions=X_K))
    with pytest.raises(ValueError, match="align is None"):
        posenc.attention(q, k, v, bias=bias.at(q_positions=X_Q))


# ---- sums ----


def test_parts_flatten_and_sum_starts_at_zero():
    a, b, c = posenc.alibi([1.0]), posenc.t5(np.ones((32, 1)), bidirectional=True), posenc.sandwich(1, 4)
    assert (a + b + c).parts == (a, b, c) == (a + (b + c)).parts == sum([a, b, c]).parts
    assert a.parts == (a,)
    assert sum([a]) is a


def test_kinds_of_sums():
    position, content = posenc.alibi([1.0]), posenc.shaw(np.ones((3, 4)))
    assert isinstance(position + position, posenc.PositionBias)
    assert isinstance(content + content, posenc.ContentBias)
    mixed = position + content
    assert not isinstance(mixed, posenc.PositionBias | posenc.ContentBias)
    for method in ("matrix", "matrix_vjp", "logits", "logits_vjp"):
        with pytest.raises(AttributeError, match=f"has no attribute '{method}'"):
            getattr(mixed, method)


def test_matrix_of_a_sum_of_distances_is_dense():
    bias = posenc.alibi([1.0, 0.5]) + posenc.t5(np.linspace(0, 1, 64).reshape(32, 2), bidirectional=True)
    parts = sum(part.matrix(3, 5, align="end", dtype=np.float64) for part in bias.parts)
    matrix = bias.matrix(3, 5, align="end")
    assert matrix.flags.c_contiguous
    assert matrix.flags.writeable
    assert np.array_equal(matrix, parts.astype(np.float32))
    assert np.array_equal(bias.matrix(3, 5, align="end", out=np.empty((2, 3, 5), np.float32)), matrix)
    grad = RNG.standard_normal((2, 3, 5))
    for own, part in zip(bias.matrix_vjp(grad, 3, 5, align="end"), bias.parts, strict=True):
        assert all(map(np.array_equal, own, part.matrix_vjp(grad, 3, 5, align="end")))
    with pytest.raises(ValueError, match=r"^\(alibi \+ t5\).matrix_vjp: grad has shape \(2, 7\); expected"):
        bias.matrix_vjp(np.ones((2, 7)), 3, 5, align="end")


def test_logits_of_a_sum():
    (q, k, _), parts = qkv(), [OPERATORS["shaw"], OPERATORS["transformer_xl"]]
    bias, grad = sum(parts), RNG.standard_normal((2, N, M))
    assert np.allclose(bias.logits(q, k), sum(part.logits(q, k) for part in parts), rtol=0, atol=1e-12)
    out = np.empty((2, N, M), np.float16)
    assert bias.logits(q.astype(np.float16), k, out=out) is out
    found, each = bias.logits_vjp(grad, q, k), [part.logits_vjp(grad, q, k) for part in parts]
    assert np.allclose(found.q, sum(one.q for one in each))
    assert np.allclose(found.k, sum(one.k for one in each))
    assert [type(own) for own in found.bias] == [type(part.arrays) for part in parts]


def test_parts_have_positions_of_their_own():
    free, fixed = posenc.alibi([1.0]), posenc.alibi([0.5]).at(q_positions=[0, 0], k_positions=[0, 3])
    found = (free + fixed).matrix(2, q_positions=[1, 2], k_positions=[4, 5])
    assert np.array_equal(found[0], [[-3, -5.5], [-2, -4.5]])
    with pytest.raises(TypeError, match=r"^\(alibi \+ alibi\).at: q_positions has a value; expected None for a sum"):
        (free + fixed).at(q_positions=[1, 2])
    bias = fixed + fixed
    with pytest.raises(ValueError, match=r"^\(alibi \+ alibi\).matrix: q_positions has a value; expected None"):
        bias.matrix(2, q_positions=[0, 1])
    logits = posenc.shaw(np.ones((3, 1)))
    both = sum([logits.at(q_positions=[0, 1], k_positions=[0, 1])] * 2)
    with pytest.raises(ValueError, match=r"^\(shaw \+ shaw\).logits: q_positions has a value"):
        both.logits(np.ones((1, 2, 1)), np.ones((1, 2, 1)), q_positions=[0, 1])


def test_attention_takes_a_sum_as_its_parts():
    q, k, v = qkv()
    parts = [posenc.alibi([1.0, 0.5]), OPERATORS["shaw"], posenc.t5(np.ones((32, 2)), bidirectional=True)]
    options = {"causal": True, "align": "end"}
    out, lse = posenc.attention(q, k, v, bias=parts, **options, return_lse=True)
    assert np.array_equal(posenc.attention(q, k, v, bias=sum(parts), **options), out)
    assert np.array_equal(posenc.attention(q, k, v, bias=[parts[0] + parts[1], parts[2]], **options), out)
    grad = np.ones_like(out)
    found = posenc.attention_vjp(grad, q, k, v, out=out, lse=lse, bias=[sum(parts[:2]), parts[2]], **options).bias
    each = posenc.attention_vjp(grad, q, k, v, out=out, lse=lse, bias=parts, **options).bias
    assert type(found[0]) is tuple
    assert np.array_equal(found[0][0].slopes, each[0].slopes)
    assert np.array_equal(found[0][1].rel_k, each[1].rel_k)
    assert np.array_equal(found[1].table, each[2].table)


PLACED = OPERATORS["alibi"].at(q_positions=X_Q, k_positions=X_K)
REFUSED = [
    (lambda *_: OPERATORS["alibi"].at(), "alibi.at: q_positions is None; expected positions of queries, of keys"),
    (lambda *_: OPERATORS["alibi"].at(k_positions=[0.0, np.nan]), "alibi.at: k_positions has nan"),
    (lambda *_: OPERATORS["alibi"].at(k_positions=["a"]), "alibi.at: k_positions has dtype <U1"),
    (lambda *_: PLACED.matrix(N, M, k_positions=X_K),
     "alibi.matrix: k_positions has a value; expected None, because alibi has"),
    (lambda *_: PLACED.matrix(N + 1, M), r"alibi.matrix: q_positions has length 70 \(alibi.at\); expected 71"),
    (lambda q, k, v: posenc.attention(q, k[..., 1:, :], v[..., 1:, :], bias=PLACED),
     r"attention: k_positions has 130 keys \(alibi\); expected 129, as k"),
    (lambda q, k, v: posenc.attention(q, k, v, bias=OPERATORS["alibi"].at(q_positions=[X_Q] * 2, k_positions=X_K)),
     r"attention: q_positions has shape \(2, 70\); expected a shape that broadcasts to \(3, 70\) \(alibi\)"),
    (lambda q, k, _: OPERATORS["shaw"].at(q_positions=X_Q, k_positions=X_K).logits(q, k, q_positions=X_Q),
     "shaw.logits: q_positions has a value; expected None"),
    (lambda *_: (posenc.dense(np.ones((2, 1, 3, 3))) + posenc.dense(np.ones((3, 1, 3, 3)))).matrix(3),
     r"\(dense \+ dense\).matrix: bias has parts of shapes \(2, 1, 3, 3\), \(3, 1, 3, 3\); expected"),
    (lambda *_: OPERATORS["alibi"] + posenc.alibi([1.0, 2.0, 3.0]),
     r"alibi \+ alibi: alibi has 3 heads; expected 2, as alibi"),
    (lambda *_: OPERATORS["alibi"] + (PLACED,), "unsupported operand"),
    (lambda *_: OPERATORS["alibi"] + np.ones(2), r"alibi is an operator, not an array; expected alibi\.matrix\(N\)"),
    (lambda *_: np.ones(2) + OPERATORS["alibi"], r"alibi is an operator, not an array; expected alibi\.matrix\(N\)"),
    (lambda *_: OPERATORS["alibi"] * 2, r"alibi is an operator, not an array; expected alibi\.matrix\(N\)"),
    (lambda *_: np.asarray(OPERATORS["alibi"]), r"alibi is an operator, not an array; expected alibi\.matrix\(N\)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_refused(call, message):
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        call(*qkv((3,)))
