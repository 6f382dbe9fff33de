"""Parts of the keys, merged."""

import itertools

import numpy as np
import pytest
from cases.attention import qkv
from cases.layouts import same_bits

import posenc


@pytest.mark.parametrize(
    ("dtype", "cuts"), [(np.float16, (60,)), (np.float32, (1, 2, 3, 99)), (np.float64, (0, 50, 50))]
)
def test_merged_parts_are_the_whole(dtype, cuts, rng):
    """Merging adds two roundings of the storage dtype, at the size of the largest value."""
    arguments = {a: x.astype(dtype) for a, x in qkv(rng, 40, 100).items()}
    q_at, k_at = np.arange(40) + 30, np.arange(100)
    bias = posenc.alibi([0.2, 0.01])

    def part(keys):
        chunk = {a: x[:, keys] if a in "kv" else x for a, x in arguments.items()}
        return posenc.attention(
            **chunk, q_positions=q_at, k_positions=k_at[keys], causal=True, bias=bias, return_lse=True
        )

    edges = (0, *cuts, 100)
    parts = [part(slice(a, b)) for a, b in itertools.pairwise(edges)]
    whole, whole_lse = part(slice(None))
    for out, lse in (
        posenc.merge_attention(*zip(*parts, strict=True)),
        posenc.merge_attention(*map(np.stack, zip(*parts, strict=True))),
    ):
        assert out.dtype == dtype
        bound = (4 if dtype == "f2" else 8 + 2 * len(parts)) * np.spacing(np.abs(arguments["v"]).max())
        assert np.abs(out.astype(np.float64) - whole).max() <= bound
        assert np.abs(lse - whole_lse).max() <= 16 * np.spacing(np.abs(whole_lse).max())


def test_merge_of_nothing_and_of_large_sums():
    with np.errstate(all="raise"):
        nothing, none = posenc.merge_attention(np.zeros((2, 1, 2)), np.full((2, 1), -np.inf))
    assert not nothing.any()
    assert np.all(none == -np.inf)
    far, _ = posenc.merge_attention(np.array([[[1.0]], [[3.0]]]), np.array([[1000.0], [1000.0]]))
    assert far[0, 0] == 2.0


@pytest.mark.parametrize("other", [0.0, -np.inf, np.nan])
def test_merge_keeps_a_nan(other):
    """The log-sum-exp of a part whose logits are not numbers."""
    outs = np.ones((2, 1, 2))
    for lses in ([[np.nan], [other]], [[other], [np.nan]]):
        assert all(np.isnan(merged).all() for merged in posenc.merge_attention(outs, np.array(lses)))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_merge_with_parts_that_saw_nothing_keeps_every_bit(dtype, rng):
    """Chunks of a longer text are merged with more parts, most of them empty for a query."""
    outs, lses = rng.standard_normal((3, 5, 8)).astype(dtype), rng.standard_normal((3, 5))
    outs[:, :, 3] = -0.0
    nothing, none = np.zeros_like(outs[0]), np.full_like(lses[0], -np.inf)
    one, lse = posenc.merge_attention(outs[:1], lses[:1])
    assert same_bits(one, outs[0])
    assert same_bits(lse, lses[0].astype(lse.dtype))
    merged = posenc.merge_attention(outs, lses)
    more = posenc.merge_attention([outs[0], nothing, *outs[1:], nothing], [lses[0], none, *lses[1:], none])
    assert all(map(same_bits, merged, more))


@pytest.mark.parametrize(
    ("outs", "lses", "argument"),
    [
        ((), (), "outs"),
        ((np.ones((2, 3)), np.ones((2, 4))), np.ones((2, 2)), "outs"),
        (np.ones((2, 3, 4)), np.ones((3, 3)), "lses"),
        (np.ones(3), np.ones(3), "outs"),
        (np.ones((0, 3, 4)), np.ones((0, 3)), "outs"),
    ],
    ids=str,
)
def test_merge_refuses(outs, lses, argument):
    with pytest.raises(ValueError, match=rf"^merge_attention: {argument} (has|is) .+; expected "):
        posenc.merge_attention(outs, lses)
