"""Keys in parts, and results that do not depend on how queries are passed."""

import numpy as np
import pytest
from cases import BF16, F16, F32, F64
from cases.attention import ANY, TWO_SLOPES, check, qkv
from cases.layouts import same_bits
from draws import draw_operator

import posenc

DTYPES = [d for d in (F16, BF16, F32, F64) if d is not None]


def test_the_last_of_many_heads_may_be_nan(rng, isa):
    """Heads that decode together are told apart by a bit each. A bias keeps them heads."""
    share = 40
    arguments = ANY.cast(qkv(rng, 1, 60, share, 1), F32)
    bias = posenc.alibi(np.zeros(share))
    wanted = posenc.attention(**arguments, bias=bias, align="end")
    for head in (0, 31, share - 1):
        q = arguments["q"].copy()
        q[head] = np.nan
        out = posenc.attention(q, arguments["k"], arguments["v"], bias=bias, align="end")
        assert np.isnan(out[head]).all()
        assert same_bits(np.delete(out, head, 0), np.delete(wanted, head, 0))


# ---- split keys ----

LONG = 8192 + 77
SPLITS = [
    (20, {"softcap": 2.0}),
    (20, {"causal": True, "align": "end"}),
    (1, {"sink": np.array([3.0, -1.0])}),
    (1, {"bias": TWO_SLOPES, "align": "end"}),
    (20, {"window": (300, 0), "align": "end"}),
    (1, {"window": (None, -20000), "align": "end"}),  # sees no key
]


@pytest.mark.parametrize(("n", "options"), SPLITS)
def test_split_keys_are_within_the_bounds(n, options, rng):
    """Keys in parts that are merged, against the oracle; the bounds are those of one part."""
    arguments = qkv(rng, n, LONG, 2, 2, width=8, value_width=8)
    assert check(arguments, dtypes=(F32,), **options)[0].shape == (2, n, 8)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [1, 40])
def test_split_keys_do_not_depend_on_threads_or_the_batch(dtype, n, rng, isa):
    arguments = ANY.cast(qkv(rng, n, LONG, 1, 1, width=64, value_width=64, batch=(2,)), dtype)
    with posenc.threads(1):
        wanted = posenc.attention(**arguments, return_lse=True)
    assert wanted[0].dtype == dtype
    for threads in (2, 5):
        with posenc.threads(threads):
            assert all(map(same_bits, posenc.attention(**arguments, return_lse=True), wanted))
    alone = posenc.attention(*(arguments[a][:1] for a in "qkv"), return_lse=True)
    assert all(same_bits(a, b[:1]) for a, b in zip(alone, wanted, strict=True))


def test_nan_in_one_part(rng, isa):
    """A visible NaN makes the result NaN. With a masked one, panels compute the query instead of decoding, which sums
    in another order: some roundings of the largest value."""
    arguments = ANY.cast(qkv(rng, 1, LONG, 2, 2), F32)
    keep = np.arange(LONG) != 5000
    wanted = posenc.attention(**arguments, keep=keep)
    arguments["v"][:, 5000] = np.nan
    found = posenc.attention(**arguments, keep=keep)
    assert np.abs(found - wanted).max() <= 64 * 2.0**-24 * np.abs(arguments["v"][:, keep]).max()
    assert np.isnan(posenc.attention(**arguments)).all()


def test_gates_are_not_split(rng):
    """cope sums its gates over all keys: a call with many keys is one part, and equals the invariant call."""
    arguments = ANY.cast(qkv(rng, 9, LONG, 1, 1, width=4), F32)
    bias = posenc.cope(rng.standard_normal((5, 4)))
    whole = posenc.attention(**arguments, bias=bias, causal=True, align="end")
    assert same_bits(whole, posenc.attention(**arguments, bias=bias, causal=True, align="end", invariant=True))


# ---- invariant ----


OPERATORS = {
    "none": (),
    "positions": ("alibi", "t5", "kerple_log", "sandwich", "fox"),
    "content": ("shaw", "transformer_xl", "deberta"),
}
OPERATORS["both"] = OPERATORS["positions"] + OPERATORS["content"]


def in_chunks(q, k, v, size, **options):
    """A causal text in chunks: each call has the keys so far."""
    n = q.shape[-2]
    parts = []
    for a in range(0, n, size):
        b = min(a + size, n)
        if isinstance(k, posenc.Quantized):
            seen = [posenc.Quantized(x.codes[..., :b, :], x.scale[..., :b]) for x in (k, v)]
        else:
            seen = [x[..., :b, :] for x in (k, v)]
        at = {"q_positions": np.arange(a, b), "k_positions": np.arange(b)}
        parts.append(posenc.attention(q[..., a:b, :], *seen, **at, causal=True, return_lse=True, **options))
    return tuple(np.concatenate(x, axis) for x, axis in zip(zip(*parts, strict=True), (-2, -1), strict=True))


@pytest.mark.parametrize(("kind", "size"), [("none", 1), ("positions", 1), ("content", 7), ("both", 64)])
def test_chunks_have_the_bits_of_the_whole(kind, size, rng, isa):
    """Prefill, chunked prefill and decoding agree bit for bit, for every kind of operator and shared keys."""
    n = 150
    arguments = ANY.cast(qkv(rng, n, n, 4, 2, width=16, value_width=16), F32)
    drawn = [draw_operator(rng, name, 4, n, n, 16, 16, n) for name in OPERATORS[kind]]
    bias = [getattr(posenc, one.name)(**one.arguments) for one in drawn]
    options = {"bias": bias, "sink": rng.standard_normal(4), "scale": 0.3, "invariant": True}
    whole = posenc.attention(**arguments, causal=True, return_lse=True, **options)
    assert all(map(same_bits, in_chunks(**arguments, size=size, **options), whole))


@pytest.mark.parametrize("dtype", [*DTYPES, "int8"], ids=str)
@pytest.mark.parametrize("size", [1, 7])
def test_chunks_of_every_storage(dtype, size, rng, isa):
    n = 130
    arguments = ANY.cast(qkv(rng, n, n, 8, 1, width=64, value_width=32), F32 if dtype == "int8" else dtype)
    if dtype == "int8":
        arguments.update({a: posenc.quantize(arguments[a]) for a in "kv"})
    whole = posenc.attention(**arguments, causal=True, return_lse=True, invariant=True)
    assert all(map(same_bits, in_chunks(**arguments, size=size, invariant=True), whole))


def test_invariant_in_any_batch_and_threads(rng):
    arguments = ANY.cast(qkv(rng, 100, 9000, 2, 2, width=16, batch=(3,)), F32)
    with posenc.threads(1):
        wanted = posenc.attention(**arguments, invariant=True)
    with posenc.threads(2):
        found = posenc.attention(*(arguments[a][:1] for a in "qkv"), invariant=True)
    assert same_bits(found, wanted[:1].copy())
    one = posenc.attention(arguments["q"][..., 41:42, :], arguments["k"], arguments["v"], invariant=True)
    assert same_bits(one, wanted[..., 41:42, :].copy())


@pytest.mark.parametrize("own", [False, True])
def test_invariant_at_positions_with_gaps(own, rng):
    """Token by token: the positions of the first tokens count up by one, those of the whole text do not. A
    number of sandwich has the same bits for a row of distances and for pairs."""
    n = 24
    bias = posenc.sandwich(4, 24)
    for _ in range(2):
        arguments = ANY.cast(qkv(rng, n, n, 4, 2), F64)
        p = rng.integers(0, 500) + np.cumsum(rng.choice([1, 1, 1, 5], n))

        def attend(queries, keys, arguments=arguments, p=p):
            q, k, v = (arguments[a][..., part, :] for a, part in zip("qkv", (queries, keys, keys), strict=True))
            at = {"q_positions": p[queries], "k_positions": p[keys]}
            return posenc.attention(q, k, v, bias=bias.at(**at) if own else bias, causal=True, **at, invariant=True)

        whole = attend(slice(n), slice(n))
        tokens = [attend(slice(i, i + 1), slice(i + 1)) for i in range(n)]
        assert same_bits(np.concatenate(tokens, -2), whole)
