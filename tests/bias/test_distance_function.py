"""Biases that are Python functions of the distance."""

import pickle

import numpy as np
import pytest
from cases.distance_function import window, window_vjp

import posenc

RNG = np.random.default_rng(7)
SLOPES = np.array([0.5, 0.25])


def slanted(rel, slopes):
    return -slopes[:, None] * np.abs(rel)


def slanted_vjp(grad, rel, slopes):
    return (-(grad * np.abs(rel)).sum(-1),)


def alibi(**options):
    return posenc.distance_function(slanted, 2, arrays=[SLOPES], vjp=slanted_vjp, **options)


def qkv(n=70, m=130):
    return RNG.standard_normal((2, n, 4)), *RNG.standard_normal((2, 2, m, 4))


PLACES = {
    "window": {"align": "end", "causal": True, "window": (9, 3)},
    "integers": {"q_positions": RNG.integers(0, 99, 70), "k_positions": RNG.integers(0, 99, 130), "causal": True},
    "gaps": {"q_positions": RNG.integers(0, 9, 70) * 10**9, "k_positions": RNG.integers(0, 9, 130) * 10**9},
    "fractions": {"q_positions": RNG.uniform(0, 9, 70), "k_positions": RNG.uniform(0, 9, 130)},
}


@pytest.mark.parametrize("place", PLACES)
def test_alibi_as_a_function_is_alibi(place):
    (q, k, v), options = qkv(), PLACES[place]
    expected = posenc.attention(q, k, v, bias=posenc.alibi(SLOPES), **options, return_lse=True)
    found = posenc.attention(q, k, v, bias=alibi(), **options, return_lse=True)
    assert all(map(np.array_equal, found, expected))
    out, lse = found
    grad = RNG.standard_normal(out.shape)
    one = posenc.attention_vjp(grad, q, k, v, out=out, lse=lse, bias=alibi(), **options)
    other = posenc.attention_vjp(grad, q, k, v, out=out, lse=lse, bias=posenc.alibi(SLOPES), **options)
    assert all(map(np.array_equal, one[:3], other[:3]))
    size = np.abs(grad).sum() * np.abs(v).max()
    assert np.abs(one.bias[0].arrays[0] - other.bias[0].slopes).max() <= 1e-13 * size * 130


def test_one_call_with_the_visible_distances():
    calls = []

    def function(rel):
        calls.append(rel.copy())
        with pytest.raises(ValueError, match="read-only"):
            rel[0] = 0
        return np.log(1 - rel)[None].repeat(2, 0)  # NaN for keys after the query

    q, k, v = qkv()
    posenc.attention(q, k, v, bias=posenc.distance_function(function, 2), causal=True, align="end", window=(20, None))
    posenc.attention(
        q,
        k,
        v,
        bias=posenc.distance_function(function, 2),
        causal=True,
        window=(20, None),
        q_positions=np.arange(70)[::-1] + 60,
        k_positions=np.arange(130),
    )
    assert len(calls) == 2
    assert all(np.array_equal(rel, np.arange(-20.0, 1)) for rel in calls)


def test_one_call_for_pairs(monkeypatch):
    """Where positions do not count up by one, the function is called with the distinct distances of all pairs, which
    attention collects in blocks of queries."""
    import sys

    module = sys.modules["posenc.bias.distance_function"]
    monkeypatch.setattr(module, "_BLOCK", 300)
    calls = []

    def function(rel):
        calls.append(len(rel))
        return -np.abs(rel)[None]

    bias, plain = posenc.distance_function(function, 1), posenc.alibi([1.0])
    fractions = {"q_positions": RNG.uniform(0, 9, (3, 1, 7))[:, 0], "k_positions": RNG.uniform(0, 9, 20)}
    assert np.array_equal(bias.matrix(7, 20, **fractions), plain.matrix(7, 20, **fractions))
    integers = {"q_positions": np.arange(40) // 2, "k_positions": np.arange(20) // 2}
    out = np.empty((1, 40, 20))
    assert np.array_equal(bias.matrix(40, 20, **integers, out=out), plain.matrix(40, 20, **integers))
    assert calls == [3 * 7 * 20, 10 + 20 - 1]
    q, k, v = RNG.standard_normal((3, 3, 1, 20, 4))
    posenc.attention(q[..., :7, :], k, v, bias=bias, **fractions)
    assert calls[2:] == [3 * 7 * 20]
    monkeypatch.setattr(module, "_MOST", 100)
    with pytest.raises(ValueError, match="attention: q_positions has more than 100 distinct distances"):
        posenc.attention(q[..., :7, :], k, v, bias=bias, **fractions)


@pytest.mark.parametrize("kind", [int, float])
def test_gradient_at_positions_of_a_batch(kind, rng):
    """It is the sum over all rows of the batch, as that of `alibi`; once it was that of the last row."""
    where = {"q_positions": rng.integers(0, 9, (2, 1, 5)).astype(kind), "k_positions": rng.integers(0, 9, (3, 7))}
    grad = rng.standard_normal((2, 3, 2, 5, 7))
    found = alibi().matrix_vjp(grad, 5, 7, **where).arrays[0]
    expected = posenc.alibi(SLOPES).matrix_vjp(grad, 5, 7, **where).slopes
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_gradient_without_arrays_and_without_vjp():
    q, k, v = qkv(5, 5)
    plain = posenc.distance_function(lambda rel: np.zeros((2, len(rel))), 2)
    assert plain.matrix_vjp(np.ones((2, 3, 3)), 3).arrays == ()
    for places in ({}, {"q_positions": [0, 2, 4, 1, 1], "k_positions": np.arange(5)}):
        out, lse = posenc.attention(q, k, v, bias=plain, **places, return_lse=True)
        assert posenc.attention_vjp(out, q, k, v, out=out, lse=lse, bias=plain, **places).bias[0].arrays == ()
    bias = posenc.distance_function(slanted, 2, arrays=[SLOPES])
    with pytest.raises(
        TypeError, match=r"distance_function.matrix_vjp: vjp is None; expected a function, because there are"
    ):
        bias.matrix_vjp(np.ones((2, 3, 3)), 3)
    with pytest.raises(TypeError, match="attention_vjp: vjp is None"):
        posenc.attention_vjp(out, q, k, v, out=out, lse=lse, bias=bias)


def test_pickle_and_repr():
    bias = posenc.distance_function(window, 1, arrays=[np.array([2.0])], vjp=window_vjp)
    again = pickle.loads(pickle.dumps(bias.at(q_positions=[0, 5], k_positions=[1, 2])))
    assert np.array_equal(again.matrix(2), bias.matrix(2, q_positions=[0, 5], k_positions=[1, 2]))
    assert repr(bias) == "<posenc.distance_function: arrays ((1,),), function=window, heads=1, vjp=window_vjp>"


def of(result, heads=2, **options):
    return posenc.distance_function(lambda rel: result, heads, **options)


def with_gradient(result):
    return posenc.distance_function(slanted, 2, arrays=[SLOPES], vjp=lambda grad, rel, slopes: result)


REFUSED = [
    (lambda: posenc.distance_function(3, 2), TypeError, ": function has type int; expected a function"),
    (lambda: posenc.distance_function(window, 2, vjp=3), TypeError, ": vjp has type int; expected a function"),
    (lambda: posenc.distance_function(window, 2, arrays=SLOPES), TypeError,
     ": arrays has type ndarray; expected a tuple or list"),
    (lambda: posenc.distance_function(window, 0), ValueError, ": heads is 0"),
    (lambda: of(np.ones((2, 5), bool)).matrix(3), TypeError, ".matrix: function has dtype bool"),
    (lambda: of(np.zeros((1, 5))).matrix(3), ValueError,
     r".matrix: function has a result of shape \(1, 5\); expected \(2, 5\), heads and"),
    (lambda: of(np.zeros((2, 5)), None).matrix(3), ValueError,
     r".matrix: function has a result of shape \(2, 5\); expected \(5,\); pass heads=2"),
    (lambda: of(np.full((2, 5), np.nan)).matrix(3), ValueError,
     ".matrix: function has nan at distance -2.0; expected numbers, or -inf"),
    (lambda: of(np.full((2, 5), np.inf)).matrix(3), ValueError,
     ".matrix: function has inf at distance -2.0; expected numbers, or -inf"),
    (lambda: with_gradient(np.zeros(2)).matrix_vjp(np.ones((2, 3, 3)), 3), ValueError,
     ".matrix_vjp: vjp has a result of ndarray; expected a tuple of 1"),
    (lambda: with_gradient(()).matrix_vjp(np.ones((2, 3, 3)), 3), ValueError,
     ".matrix_vjp: vjp has a result of 0; expected a tuple of 1"),
    (lambda: with_gradient((np.zeros(3),)).matrix_vjp(np.ones((2, 3, 3)), 3), ValueError,
     r".matrix_vjp: vjp has a gradient of shape \(3,\); expected \(2,\)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message"), REFUSED)
def test_refused(call, kind, message):
    with pytest.raises(kind, match="^distance_function" + message):
        call()


def test_refused_in_attention():
    q, k, v = (x.astype(np.float32) for x in qkv(5, 5))
    with pytest.raises(ValueError, match="function has numbers beyond float32"):
        posenc.attention(q, k, v, bias=of(np.full((2, 9), 1e200)))
    masked = posenc.attention(q, k, v, bias=of(np.full((2, 9), -np.inf)))  # as where a key is not seen
    assert (masked == 0).all()
    q = np.ones((8, 4, 2))
    message = r"bias has 1 heads \(distance_function\); .*; pass heads=8 to distance_function"
    with pytest.raises(ValueError, match=message):
        posenc.attention(q, q, q, bias=of(np.ones((8, 7)), None))


def test_one_head_without_heads(rng):
    """The function, its arrays and its gradient are those of a head, in `matrix`, `matrix_vjp` and `attention`."""

    def one(rel, width):
        return -((rel / width) ** 2)

    def one_vjp(grad, rel, width):
        return (2 * (grad * rel**2).sum() / width**3,)

    plain = posenc.distance_function(one, arrays=[np.array(2.0)], vjp=one_vjp)
    headed = posenc.distance_function(
        lambda rel, width: one(rel, width)[None],
        1,
        arrays=[np.array(2.0)],
        vjp=lambda grad, rel, width: one_vjp(grad[0], rel, width),
    )
    assert (plain.heads, plain.options["heads"], headed.options["heads"]) == (1, None, 1)
    q, k, v, g = rng.standard_normal((4, 1, 3, 3))
    for where in ({}, {"q_positions": [0, 2.5, 9], "k_positions": [1, 4, 4]}):
        assert np.array_equal(plain.matrix(3, **where), headed.matrix(3, **where))
        assert plain.matrix_vjp(g[None, 0], 3, **where).arrays == headed.matrix_vjp(g[None, 0], 3, **where).arrays
    ours, theirs = (posenc.attention_vjp(g, q, k, v, bias=bias) for bias in (plain, headed))
    assert ours.bias[0].arrays == theirs.bias[0].arrays
    assert np.array_equal(ours.q, theirs.q)


def test_fractions_whose_ends_look_like_a_range_of_integers():
    """The distances 0, 0.5 and 2 span two steps, as 0, 1 and 2 do."""
    bias = posenc.distance_function(lambda rel: 10 * rel)
    where = {"q_positions": [0.0], "k_positions": [0.0, 0.5, 2.0]}
    assert np.array_equal(bias.matrix(1, 3, **where), [[[0, 5, 20]]])
    q, k, v = np.zeros((1, 1, 1)), np.zeros((1, 3, 1)), np.eye(3)[None]
    expected = np.exp(10 * np.array([0, 0.5, 2]))
    weights = posenc.attention(q, k, v, bias=bias, **where)[0, 0]
    assert np.allclose(weights, expected / expected.sum(), rtol=1e-14)


@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize(("batch", "n", "m"), [((2, 0), 3, 4), ((), 3, 0), ((), 0, 3)])
def test_calls_without_pairs(batch, n, m, kind):
    """An empty batch, no queries or no keys: no distance occurs, so neither function is called."""

    def unwanted(*_):
        raise AssertionError("there is no distance")

    bias = posenc.distance_function(unwanted, 2, arrays=[np.ones(3)], vjp=unwanted)
    where = {
        "q_positions": np.arange(n * 1.0).astype(kind) * np.ones((*batch, 1), kind),
        "k_positions": np.full((*batch, m), 7, kind),
    }
    matrix = bias.matrix(n, m, **where)
    assert matrix.shape == (*batch, 2, n, m)
    assert np.array_equal(bias.matrix_vjp(np.ones(matrix.shape), n, m, **where).arrays, [np.zeros(3)])
    q, k = np.ones((*batch, 2, n, 4)), np.ones((*batch, 2, m, 4))
    out, lse = posenc.attention(q, k, k, bias=bias, return_lse=True, **where)
    assert np.array_equal(out, np.zeros((*batch, 2, n, 4)))
    gradient = posenc.attention_vjp(out, q, k, k, out=out, lse=lse, bias=bias, **where)
    assert np.array_equal(gradient.bias[0].arrays, [np.zeros(3)])
    assert gradient.q.shape == q.shape


def test_a_function_without_arrays_leaves_the_other_gradients():
    """Its distances were counted among the gradients of the call, which were then all 0."""
    (q, k, v), where = qkv(), PLACES["integers"]
    function = posenc.distance_function(lambda rel: -0.01 * rel**2 * np.ones((2, 1)), 2)
    places = {name: where[name] for name in ("q_positions", "k_positions")}
    same = posenc.dense(function.matrix(70, 130, **places, dtype=np.float64))
    grad = RNG.standard_normal((2, 70, 4))
    found, expected = (
        posenc.attention_vjp(grad, q, k, v, bias=[posenc.alibi(SLOPES), other], **where).bias[0].slopes
        for other in (function, same)
    )
    assert found.all()
    np.testing.assert_allclose(found, expected, rtol=1e-12)
