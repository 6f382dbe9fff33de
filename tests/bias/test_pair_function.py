"""Biases that are Python functions of the positions of queries and keys."""

import pickle

import numpy as np
import pytest
from cases.pair_function import sloped, sloped_vjp

import posenc
from posenc import reference
from posenc.bias import pair_function as module

RNG = np.random.default_rng(11)
H, G, N, M, D = 4, 2, 150, 260, 16
Q, K, V = RNG.standard_normal((2, H, N, D)), *RNG.standard_normal((2, 2, G, M, D))
GRAD = RNG.standard_normal(Q.shape)
SLOPES = RNG.uniform(0, 1, H)


def masked(i, j, slopes):
    return sloped(i, j, slopes) + np.where(i[:, None] // 50 == j // 50, 0, -np.inf)


def function_of(**options):
    return posenc.pair_function(masked, H, arrays=[SLOPES], vjp=sloped_vjp, **options)


CALLS = {
    "end": {"align": "end"},
    "window": {"align": "end", "window": (30, 20)},
    "sink, keep": {"align": "start", "sink": np.ones(H), "keep": RNG.random((2, 1, 1, M)) < 0.9},
    "segments": {"align": "start", "q_segments": np.arange(N) // 20, "k_segments": np.arange(M) // 20},
    "positions": {"q_positions": RNG.integers(0, 200, (2, N)), "k_positions": np.arange(M), "causal": True},
}
OTHERS = {
    "none": [],
    "distance": [posenc.alibi(SLOPES)],
    "positions": [posenc.fire(*map(RNG.standard_normal, ((4, 1), 4, (H, 4), H)), 1.0, 5.0)],
    "queries and keys": [posenc.shaw(RNG.standard_normal((9, D)))],
    "diagonals": [posenc.toeplitz(RNG.standard_normal((H, N + M - 1)))],
    "pairs": [posenc.dense(RNG.standard_normal((N, 1))), posenc.dense(RNG.standard_normal((2, 1, 1, M)))],
    "arrays of queries": [posenc.tupe(RNG.standard_normal((H, N, 8)), RNG.standard_normal((H, M, 8)))],
    "a scan": [posenc.cope(RNG.standard_normal((5, D)))],
}


@pytest.fixture
def _small_blocks(monkeypatch):
    """Blocks of 7 queries for all keys of two rows of a batch."""
    monkeypatch.setattr(module, "_PAIRS", 1)
    monkeypatch.setattr(module, "_MOST_PAIRS", 2 * H * M * 7)


def flat(gradients):
    """All arrays of the gradients of several operators."""
    if isinstance(gradients, np.ndarray):
        return [gradients]
    return [] if gradients is None else [array for one in gradients for array in flat(one)]


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize("call", CALLS)
def test_blocks_are_attention_with_an_array(call, others):
    options, own = CALLS[call], OTHERS[others]
    side = {"q_positions": np.arange(N)} if options.get("align") == "start" else {}
    side |= {name: options[name] for name in ("q_positions", "k_positions") if name in options}
    whole = posenc.dense(function_of().matrix(N, M, dtype=np.float64, **side))
    expected, lse = posenc.attention(Q, K, V, bias=[whole, *own], return_lse=True, **options)
    found = posenc.attention(Q, K, V, bias=[function_of(), *own], return_lse=True, **options)
    assert np.allclose(found[0], expected, rtol=0, atol=1e-13)
    assert np.allclose(found[1], lse, rtol=0, atol=1e-12)
    one = posenc.attention_vjp(GRAD, Q, K, V, out=expected, lse=lse, bias=[whole, *own], **options)
    two = posenc.attention_vjp(GRAD, Q, K, V, out=expected, lse=lse, bias=[function_of(), *own], **options)
    of_slopes = function_of().vjp(one.bias[0].array, N, M, **side).arrays
    wanted, found = flat((one[:3], of_slopes, one.bias[1:], one.sink)), flat((two[:3], two.bias, two.sink))
    for a, b in zip(found, wanted, strict=True):
        assert np.abs(a - b).max() <= 1e-12 * max(1, np.abs(b).max())


@pytest.mark.usefixtures("_small_blocks")
def test_bits_depend_on_no_thread_and_invariant_bits_on_no_block():
    found = []
    for threads in (1, 2, 8):
        with posenc.threads(threads):
            found.append(posenc.attention(Q, K, V, bias=function_of(), align="end", dropout=0.3, seed=5))
    assert all(np.array_equal(one, found[0]) for one in found)
    options = {"align": "end", "invariant": True, "causal": True}
    small = posenc.attention(Q, K, V, bias=function_of(), **options)
    whole = posenc.dense(function_of().matrix(N, M, dtype=np.float64))
    assert np.array_equal(small, posenc.attention(Q, K, V, bias=whole, **options))


@pytest.mark.usefixtures("_small_blocks")
def test_dropout_of_blocks_has_its_gradient():
    def loss(v, slopes):
        bias = posenc.pair_function(sloped, H, arrays=[slopes], vjp=sloped_vjp)
        return (posenc.attention(Q, K, v, bias=bias, align="end", dropout=0.5, seed=3) * GRAD).sum()

    bias = posenc.pair_function(sloped, H, arrays=[SLOPES], vjp=sloped_vjp)
    found = posenc.attention_vjp(GRAD, Q, K, V, bias=bias, align="end", dropout=0.5, seed=3)
    step, direction = 1e-5, RNG.standard_normal(V.shape)
    slope = (loss(V + step * direction, SLOPES) - loss(V - step * direction, SLOPES)) / (2 * step)
    assert abs((found.v * direction).sum() - slope) <= 1e-8 * np.abs(found.v * direction).sum()
    slope = (loss(V, SLOPES + step) - loss(V, SLOPES - step)) / (2 * step)  # central differences: step**2, eps / step
    assert abs(found.bias[0].arrays[0].sum() - slope) <= 1e-7 * np.abs(found.bias[0].arrays[0]).sum()


def test_calls_have_bounded_memory_and_skip_hidden_keys():
    sizes, keys = [], []

    def near(i, j):
        sizes.append(len(i) * len(j))
        keys.append(len(j))
        return np.where(abs(j - i[:, None]) < 5, 0.0, -np.inf)

    q = np.zeros((8, 4096, 1), np.float32)
    q[...] = RNG.standard_normal(q.shape)
    found = posenc.attention(q, q, q, bias=posenc.pair_function(near))
    assert np.abs(found - posenc.attention(q, q, q, window=(4, 4))).max() <= 1e-6
    assert max(sizes) <= 2**20
    assert set(keys) == {4096}
    keys.clear()
    posenc.attention(q, q, q, bias=posenc.pair_function(near), window=(9, 9))
    assert max(keys) <= 256 + 18 + 96


def test_all_heads_may_share_a_function():
    def mask(i, j):
        assert i.dtype == j.dtype == np.int64
        return np.where(i[:, None] >= j, 0.0, -np.inf)

    bias = posenc.pair_function(mask)
    assert bias.heads is None
    assert bias.matrix(3).shape == (1, 3, 3)
    q = RNG.standard_normal((3, 20, 4))
    assert np.array_equal(posenc.attention(q, q, q, bias=bias), posenc.attention(q, q, q, causal=True))

    def shared(i, j, weight):
        return weight * (j % 2 == i[:, None] % 2)

    bias = posenc.pair_function(shared, arrays=[np.ones(1)], vjp=lambda g, i, j, w: [(g * shared(i, j, 1)).sum()[None]])
    grad = RNG.standard_normal(q.shape)
    whole = posenc.attention_vjp(grad, q, q, q, bias=posenc.dense(bias.matrix(20, dtype=np.float64)))
    found = posenc.attention_vjp(grad, q, q, q, bias=bias)
    assert np.allclose(found.bias[0].arrays[0], bias.vjp(whole.bias[0].array, 20).arrays[0], rtol=1e-12, atol=0)


def test_pickles_and_is_shown():
    bias = pickle.loads(pickle.dumps(function_of()))
    assert np.array_equal(bias.matrix(9), function_of().matrix(9))
    assert repr(bias) == f"<posenc.pair_function: masked, heads={H}, ({H},)>"
    twin = reference.pair_function(masked, H, arrays=[SLOPES])
    assert np.array_equal(twin.matrix(9), bias.matrix(9, dtype=np.float64))


def test_refused():
    q = np.zeros((2, 4, 8))
    for function, heads, message in (
        (lambda i, j: np.zeros((3, 3)), None, r"result of shape \(3, 3\); expected \(4, 4\), queries and keys"),
        (lambda i, j: np.zeros((2, 4, 4)), None, "pass heads=2"),
        (lambda i, j: np.zeros((4, 4)), 2, r"expected \(2, 4, 4\), heads, queries and keys"),
        (lambda i, j: np.where(i[:, None] == j, np.nan, 0.0), None, "nan at query position 0 and key position 0"),
        (lambda i, j: np.full((3, 4, 4), 0.0), 3, "bias has 3 heads"),
    ):
        with pytest.raises(ValueError, match=message):
            posenc.attention(q, q, q, bias=posenc.pair_function(function, heads))
    for bad in (np.nan, np.inf, 1e43):  # 1e43 is infinite in float32
        later = posenc.pair_function(lambda i, j, bad=bad: np.where(i[:, None] < j, bad, 0.0))
        narrow = q.astype(np.float32)
        assert np.isfinite(posenc.attention(narrow, narrow, narrow, bias=later, causal=True)).all()
        with pytest.raises(ValueError, match="at query position 0 and key position 1; expected numbers of"):
            posenc.attention(narrow, narrow, narrow, bias=later)
    without = posenc.pair_function(sloped, 2, arrays=[np.ones(2)])
    with pytest.raises(TypeError, match="attention_vjp: vjp is None; expected a function, because there are arrays"):
        posenc.attention_vjp(q, q, q, q, bias=without)
    with pytest.raises(TypeError, match="pair_function: function has type int"):
        posenc.pair_function(3)
