"""Merged parts of the keys, decoding, left padding, and packed documents."""

import itertools

import numpy as np
import pytest
from cases.attention import check, qkv
from cases.layouts import same_bits

import posenc


@pytest.mark.parametrize(
    "batches", [((2, 1), (1, 3), (3,)), ((), (2,), (2,)), ((4,), (), ()), ((1,), (5,), (1,))], ids=str
)
def test_batch_axes_broadcast(batches, rng):
    arguments = {
        a: rng.standard_normal((*b, h, n, 8)) for a, b, h, n in zip("qkv", batches, (4, 2, 2), (9, 11, 11), strict=True)
    }
    out, _ = check(arguments, causal=True, align="end")
    batch = np.broadcast_shapes(*batches)
    whole = {a: np.broadcast_to(x, (*batch, *x.shape[-3:])).copy() for a, x in arguments.items()}
    assert same_bits(out, posenc.attention(**whole, causal=True, align="end"))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("cuts", [(60,), (1, 2, 3, 99), (0, 50, 50), (100,)], ids=str)
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
        bound = (4 if dtype == np.float16 else 8 + 2 * len(parts)) * np.spacing(np.abs(arguments["v"]).max())
        assert np.abs(out.astype(np.float64) - whole).max() <= bound
        assert np.abs(lse - whole_lse).max() <= 16 * np.spacing(np.abs(whole_lse).max())


def test_merge_with_parts_that_saw_nothing():
    outs, lses = np.array([[[1.0, 2.0]], [[0.0, 0.0]]]), np.array([[0.5], [-np.inf]])
    with np.errstate(all="raise"):
        out, lse = posenc.merge_attention(outs, lses)
        nothing, none = posenc.merge_attention(0 * outs, np.full((2, 1), -np.inf))
    assert same_bits(out, outs[0])
    assert same_bits(lse, lses[0])
    assert not nothing.any()
    assert np.all(none == -np.inf)
    far, _ = posenc.merge_attention(np.array([[[1.0]], [[3.0]]]), np.array([[1000.0], [1000.0]]))
    assert far[0, 0] == 2.0


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


@pytest.mark.parametrize(("outs", "lses", "argument"), [
    ((), (), "outs"), ((np.ones((2, 3)), np.ones((2, 4))), np.ones((2, 2)), "outs"),
    (np.ones((2, 3, 4)), np.ones((2, 4)), "lses"), (np.ones((2, 3, 4)), np.ones((3, 3)), "lses"),
    (np.ones(3), np.ones(3), "outs"), (np.ones((0, 3, 4)), np.ones((0, 3)), "outs"),
], ids=str)  # fmt: skip
def test_merge_refuses(outs, lses, argument):
    with pytest.raises(ValueError, match=rf"^merge_attention: {argument} (has|is) .+; expected "):
        posenc.merge_attention(outs, lses)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_decode_is_prefill(dtype, rng, isa):
    """One token at a time against the cache is prefill, up to the last bits: tiles of keys are the same, decoding adds
    in another order."""
    n = 140
    arguments = {a: x.astype(dtype) for a, x in qkv(rng, n, n, 4, 2, 16).items()}
    bias = posenc.alibi(posenc.alibi_slopes(4))
    whole = posenc.attention(**arguments, causal=True, bias=bias)
    bound = 8 * np.spacing(np.abs(arguments["v"]).max())
    for i in (0, 1, 2, 47, 48, 63, 64, 65, 95, 96, 97, 139):
        q, k, v = arguments["q"][:, i : i + 1], arguments["k"][:, : i + 1], arguments["v"][:, : i + 1]
        for options in (
            {"align": "end"},
            {"q_positions": [i]},
            {"q_positions": [i + 0.0], "k_positions": np.arange(i + 1)},
        ):
            step = posenc.attention(q, k, v, causal=True, bias=bias, **options)
            assert np.abs(step[:, 0].astype(np.float64) - whole[:, i]).max() <= bound


def test_left_padding_changes_nothing(rng, isa):
    arguments = qkv(rng, 50, 50)
    padded = {a: np.concatenate([np.full((2, 13, 8), np.nan), x], 1) for a, x in arguments.items()}
    padded["q"][:, :13] = 0
    where = np.arange(63) - 13
    options = {"causal": True, "bias": posenc.alibi([0.5, 0.1])}
    out = posenc.attention(**padded, keep=where >= 0, q_positions=where, k_positions=where, **options)
    wanted = posenc.attention(**arguments, **options)
    assert np.abs(out[:, 13:] - wanted).max() <= 1e-14  # sums of 50 weights in another order, |v| < 5
    assert not out[:, :13].any()


def test_packed_documents_are_separate_calls(rng, isa):
    lengths = (17, 1, 40, 64, 28)
    arguments = qkv(rng, sum(lengths), sum(lengths))
    segments = np.repeat(np.arange(len(lengths)), lengths)
    where = np.concatenate([np.arange(length) for length in lengths])
    bias = posenc.alibi([0.5, 0.1])
    packed = posenc.attention(**arguments, causal=True, bias=bias, q_segments=segments, k_segments=segments,
                              q_positions=where, k_positions=where)  # fmt: skip
    start = 0
    for length in lengths:
        own = {a: x[:, start : start + length] for a, x in arguments.items()}
        alone = posenc.attention(**own, causal=True, bias=bias)
        assert np.abs(packed[:, start : start + length] - alone).max() <= 1e-14  # as above
        start += length


def test_identical_documents_give_identical_rows(rng):
    """Copies of a document in one pack agree up to rounding (OLMo-core#591): tiles of keys begin elsewhere in each
    copy."""
    one = qkv(rng, 64, 64)
    arguments = {a: np.concatenate([x, x], 1) for a, x in one.items()}
    segments = np.repeat([0, 1], 64)
    where = np.tile(np.arange(64), 2)
    out = posenc.attention(
        **arguments, causal=True, q_segments=segments, k_segments=segments, q_positions=where, k_positions=where
    )
    assert np.abs(out[:, :64] - out[:, 64:]).max() <= 1e-14
