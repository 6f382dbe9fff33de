"""Longer contexts: moved keys, the factor on queries, and positions of far pairs."""

import numpy as np
import pytest
from cases import DTYPES, F64, ulp
from cases.layouts import same_bits
from cases.rope import W, heads
from cases.sinusoid import norm_of_pairs

import posenc
from posenc import reference


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_moved_keys(dtype, rng, isa):
    """Keys moved by 0 keep their bits. Other moves agree with rope at the new position within the error of two
    rotations."""
    w = posenc.RopeFrequencies(W.inv_freq, 1.25, 1.0)
    x, old, new = heads(rng, 30, dtype), rng.integers(0, 2**31, 30), rng.integers(0, 2**31, 30)
    cache = posenc.rope(x, old, w, layout="half")
    assert same_bits(posenc.rerotate(cache, old, old, w, layout="half"), cache)
    wanted = posenc.rope(x, new, w, layout="half").astype(F64)
    norm = 1.25 * norm_of_pairs(x.astype(F64), layout="half")
    moved = posenc.rerotate(cache, old, new, w, layout="half", out=cache)
    assert moved is cache
    assert (np.abs(moved.astype(F64) - wanted) <= 3 * ulp(norm, np.dtype(dtype))).all()  # three rotations, 1 ulp each


def test_moves_are_exact_or_refused():
    k = np.ones((1, 2))
    far, near = np.array([-(2**53)]), np.array([2**53])
    with pytest.raises(ValueError, match=r"^rerotate: new_positions has a move by 18014398509481984; expected "):
        posenc.rerotate(k, far, near, [1.0], layout="half")
    with pytest.raises(ValueError, match=r"^rerotate: old_positions has 9007199254740993; expected "):
        posenc.rerotate(k, [2**53 + 1], [0], [1.0], layout="half")
    exact = posenc.rerotate(k, [2**52], [2**53], [1.0], layout="half")
    assert same_bits(exact, posenc.rope(k, [2**52], [1.0], layout="half"))


def test_logn_is_1_at_the_trained_length_and_doubles_at_its_square():
    for length in (2, 512, 4096, 1e6, 77.5):
        assert posenc.logn_scale([length - 1], length, base_clip=0)[0] == 1
    np.testing.assert_allclose(posenc.logn_scale([2**24 - 1], 2**12), [2.0], rtol=2**-51)
    assert posenc.logn_scale(9, 4096).max() == 1
    assert posenc.logn_scale([0], 4096, base_clip=-np.finfo(float).max)[0] == 0


def distances(of, window, n=200):
    """Distance of query i to key j as attention sees it: near pairs have their own distance, far pairs that of the
    given positions."""
    i = np.arange(n)
    q, k = of
    return np.where(i[:, None] - i < window, i[:, None] - i, q[:, None] - k)


def test_far_positions_continue_the_near_ones():
    """The distance has no jump at the window's edge, and never shrinks beyond it."""
    window = 32
    flat = distances(posenc.rerope_positions(200, window=window), window)
    assert flat.max() == window
    leaky = distances(posenc.rerope_positions(200, window=window, leak=4), window)
    assert leaky[199, 0] == window + (199 - window) / 4
    grouped = distances(posenc.self_extend_positions(200, group=4, window=window), window)
    assert grouped[199, 0] == 199 // 4 + window - window // 4
    for seen in (flat, leaky, grouped):
        steps = seen[199, :-1] - seen[199, 1:]
        assert (steps >= 0).all()
        assert steps.max() <= 1


def test_two_passes_and_a_merge_are_attention_with_far_positions(rng):
    """ReRoPE and Self-Extend from two calls of attention, near and far pairs, merged by their lse, against one
    softmax."""
    n, window = 48, 8
    q, k, v = (rng.standard_normal((2, n, 8)) for _ in range(3))
    w = posenc.rope_frequencies(8)
    for far in (posenc.rerope_positions(n, window=window), posenc.rerope_positions(n, window=window, leak=3),
                posenc.self_extend_positions(n, group=2, window=window)):  # fmt: skip
        rotated = {}
        for name, q_at, k_at in (("near", n, n), ("far", *far)):
            rotated[name] = posenc.rope(q, q_at, w, layout="half"), posenc.rope(k, k_at, w, layout="half")
        options = {"return_lse": True, "q_positions": n, "k_positions": n}
        near = posenc.attention(*rotated["near"], v, window=(window - 1, 0), **options)
        rest = posenc.attention(*rotated["far"], v, window=(None, -window), **options)
        merged, _ = posenc.merge_attention((near[0], rest[0]), (near[1], rest[1]))
        i = np.arange(n)
        logits = [qs @ ks.swapaxes(-1, -2) / 8**0.5 for qs, ks in rotated.values()]
        bias = reference.dense(np.where(i[:, None] - i < window, *logits))
        wanted = reference.attention(q, k, v, bias=bias, scale=0.0, causal=True)
        np.testing.assert_allclose(merged, wanted, rtol=0, atol=1e-13)  # two softmaxes of 48 terms of size 1


def test_floor_log_scale_refuses_positions_below_its_offset():
    assert posenc.floor_log_scale([-1, 0], floor=4, scale=0.1, offset=1).tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match=r"floor_log_scale: positions has -2; expected at least -1.0"):
        posenc.floor_log_scale([-2], floor=4, scale=0.1, offset=1)
    with pytest.raises(ValueError, match="floor_log_scale: floor is 0"):
        posenc.floor_log_scale(3, floor=0, scale=0.1)
