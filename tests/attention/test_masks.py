"""Causal masks, windows, positions, key masks and segments against the oracle; masked keys change no bit."""

import numpy as np
import pytest
from cases import BF16, F32, F64
from cases.attention import ANY, DEAD, WALLS, qkv
from cases.layouts import same_bits

import posenc


def test_causal_pictures():
    """The table of the docstring, for 2 queries and 3 keys."""

    def seen(**options):
        out = posenc.attention(np.zeros((1, 2, 1)), np.zeros((1, 3, 1)), np.eye(3)[None], causal=True, **options)
        return (out[0] > 0).astype(int).tolist()

    assert seen(align="start") == [[1, 0, 0], [1, 1, 0]]
    assert seen(align="end") == [[1, 1, 0], [1, 1, 1]]
    assert seen(q_positions=[5, 0], k_positions=[5, 6, 0]) == [[1, 0, 1], [0, 0, 1]]


@pytest.mark.parametrize("kind", DEAD)
@pytest.mark.parametrize("dtype", [d for d in (np.dtype(np.float16), BF16, F32, F64) if d is not None], ids=str)
def test_rows_that_see_nothing(kind, dtype, rng, isa):
    """A query without a visible key has out = 0 (not -0), lse = -inf, and raises no warning."""
    options = DEAD[kind]
    if "q_positions" not in options and not {"keep", "segments", "bias"} & {kind.split("_")[0]}:
        options = {**options, "align": "start"}
    with np.errstate(all="raise"):
        out, lse = ANY.call(ANY.cast({**qkv(rng, 5, 7), **options, "return_lse": True}, dtype))
    with np.errstate(all="ignore"):
        expected = ANY.expect(ANY.cast({**qkv(np.random.default_rng(0), 5, 7), **options, "return_lse": True}, dtype))[
            1
        ]
    dead = np.isneginf(expected)
    assert dead.any()
    assert np.array_equal(np.isneginf(lse), dead)
    assert not out[dead].any()
    assert not np.signbit(out[dead].astype(np.float64)).any()
    assert np.isfinite(out.astype(np.float64)).all()


@pytest.mark.parametrize("kind", WALLS)
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 1e38])
@pytest.mark.parametrize("dtype", [d for d in (np.dtype(np.float16), BF16, F32, F64) if d is not None], ids=str)
def test_wall(kind, poison, dtype, rng, isa):
    """NaN and infinity in masked keys and values change no bit, in tiles with visible keys and in tiles without."""
    n, m = 9, 300
    arguments = qkv(rng, n, m, width=16, value_width=5)
    bad = (rng.random(m) > 0.5) | (np.arange(m) // 64 == 2)
    clean = {a: np.where(bad[:, None], 0.0, x) if a in "kv" else x for a, x in arguments.items()}
    with np.errstate(over="ignore"):  # 1e38 is infinity in float16
        dirty = ANY.cast(
            {a: np.where(bad[:, None], poison, x) if a in "kv" else x for a, x in arguments.items()}, dtype
        )
    options = {**WALLS[kind](n, m, bad), "return_lse": True}
    with np.errstate(all="raise"):
        ours = ANY.call({**dirty, **options})
    wanted = ANY.call({**ANY.cast(clean, dtype), **options})
    assert all(same_bits(a, b) for a, b in zip(ours, wanted, strict=True))
    assert np.isfinite(ours[0].astype(np.float64)).all()


def test_causal_wall_per_row(rng, isa):
    """NaN in key j changes no bit of the queries before j, and makes all later queries NaN."""
    q, k, v = rng.standard_normal((3, 1, 150, 8))
    wanted = posenc.attention(q, k, v, causal=True)
    for j in (1, 47, 48, 63, 64, 95, 96, 100, 149):
        for dirty_k, dirty_v in ((True, False), (False, True)):
            bad_k, bad_v = k.copy(), v.copy()
            bad_k[0, j] = np.nan if dirty_k else bad_k[0, j]
            bad_v[0, j] = np.nan if dirty_v else bad_v[0, j]
            out = posenc.attention(q, bad_k, bad_v, causal=True)
            assert same_bits(out[0, :j].copy(), wanted[0, :j].copy())
            assert np.isnan(out[0, j:]).all()


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_poison_that_is_seen_is_shown(poison, rng, isa):
    """A visible NaN makes the result NaN; a visible infinity in a value makes it infinite or NaN."""
    q, k, v = rng.standard_normal((3, 1, 70, 8))
    v[0, 40, 3] = poison
    out = posenc.attention(q, k, v)
    assert not np.isfinite(out[..., 3]).any()
    assert np.isfinite(np.delete(out, 3, -1)).all()
    k[0, 40, 0] = np.nan
    assert np.isnan(posenc.attention(q, k, v)).all()
