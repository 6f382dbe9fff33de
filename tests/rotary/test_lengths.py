"""Longer contexts: moved keys, the factor on queries, and positions of far pairs."""

import numpy as np
import pytest
from cases import DTYPES, F64, ulp
from cases.layouts import same_bits
from cases.rope import W, heads
from cases.sinusoid import norm_of_pairs

import posenc


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


def test_floor_log_scale_refuses_positions_below_its_offset():
    assert posenc.floor_log_scale([-1, 0], floor=4, scale=0.1, offset=1).tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match=r"floor_log_scale: positions has -2; expected at least -1.0"):
        posenc.floor_log_scale([-2], floor=4, scale=0.1, offset=1)
    with pytest.raises(ValueError, match=r"floor_log_scale: positions has -5; expected at least 0.0, because p"):
        posenc.floor_log_scale([-5], floor=8, scale=0.1)
    with pytest.raises(ValueError, match="floor_log_scale: floor is 0"):
        posenc.floor_log_scale(3, floor=0, scale=0.1)
