"""Masks: the pictures of the docstring, queries that see no key, and numbers that are visible."""

import numpy as np
import pytest
from cases import DTYPES, F64
from cases.attention import ANY, DEAD, qkv

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
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_that_see_nothing(kind, dtype, rng, isa):
    """A query without a visible key has out = 0 (not -0), lse = -inf or exactly the sink, and raises no warning."""
    options = DEAD[kind]
    if "q_positions" not in options and not {"keep", "segments", "bias"} & {kind.split("_")[0]}:
        options = {**options, "align": "start"}
    given, sink = ANY.cast({**qkv(rng, 5, 7), **options, "return_lse": True}, dtype), np.array([0.7, -3.0])
    with np.errstate(all="ignore"):
        dead = np.isneginf(ANY.expect(given)[1])
    assert dead.any()
    with np.errstate(all="raise"):
        results = ANY.call(given), ANY.call({**given, "sink": sink})
    for (out, lse), wanted in zip(results, (np.full(2, -np.inf), sink), strict=True):
        assert np.array_equal(lse[dead], np.broadcast_to(wanted[:, None].astype(lse.dtype), dead.shape)[dead])
        assert np.isfinite(lse[~dead]).all()
        assert not out[dead].any()
        assert not np.signbit(out[dead].astype(F64)).any()
        assert np.isfinite(out.astype(F64)).all()


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
