"""Attention against its oracle: every mask, every bias, every combination, and what must never happen."""

import itertools
import re
import sys

import numpy as np
import pytest
from cases import BF16, F32, F64
from cases.attention import AttentionCase, attention, make_plain, rounding_bounds
from cases.layouts import same_bits

import posenc

ANY = AttentionCase(
    function="attention", make=make_plain, real=None, oracle=attention, tolerance=rounding_bounds, data=("q", "k", "v")
)


def qkv(rng, n, m, heads=2, groups=2, width=8, value_width=8, batch=()):
    return {
        "q": rng.standard_normal((*batch, heads, n, width)), "k": rng.standard_normal((*batch, groups, m, width)),
        "v": rng.standard_normal((*batch, groups, m, value_width)),
    }  # fmt: skip


def check(arguments, dtypes=(F64, F32), **options):
    """Our result, with its log-sum-exp, within the bound of every dtype; returns those of float64."""
    whole = {**arguments, **options, "return_lse": True}
    first = None
    for dtype in dtypes:
        given = ANY.cast(whole, dtype)
        results = ANY.call(given)
        expected = ANY.expect(given)
        for result, e, bound in zip(results, expected, ANY.bounds(expected, dtype, given), strict=True):
            finite = np.isfinite(e)
            assert result.shape == e.shape
            assert np.array_equal(result[~finite], e[~finite])
            assert np.all(np.abs(result[finite] - e[finite]) <= bound[finite])
        first = results if first is None else first
    return first


SHAPES = [(1, 1), (1, 7), (7, 1), (2, 3), (17, 17), (33, 65), (64, 64), (65, 33), (64, 128), (130, 97), (97, 260)]


@pytest.mark.parametrize(("n", "m"), SHAPES)
@pytest.mark.parametrize("dtype", [d for d in (np.dtype(np.float16), BF16, F32, F64) if d is not None], ids=str)
def test_plain(n, m, dtype, rng, isa):
    arguments = qkv(rng, n, m, width=16, value_width=24)
    out, lse = check(arguments, (dtype,))
    assert out.dtype == dtype
    assert lse.dtype == (F64 if dtype == F64 else F32)


@pytest.mark.parametrize("width", [1, 2, 3, 5, 8, 15, 17, 31, 64, 72, 100, 128, 200, 257])
@pytest.mark.parametrize("value_width", [1, 7, 64, 130])
def test_any_width(width, value_width, rng, isa):
    assert check(qkv(rng, 20, 70, width=width, value_width=value_width))[0].shape == (2, 20, value_width)


@pytest.mark.parametrize(("heads", "groups"), [(1, 1), (4, 1), (4, 2), (6, 3), (8, 8), (5, 5), (12, 4)])
def test_grouped_heads(heads, groups, rng):
    """Head h reads kv head h // (H // G): the same as repeating each kv head."""
    arguments = qkv(rng, 9, 11, heads, groups)
    out, _ = check(arguments, causal=True, align="end")
    k, v = (np.repeat(arguments[a], heads // groups, 0) for a in "kv")
    assert same_bits(out, posenc.attention(arguments["q"], k, v, causal=True, align="end"))


@pytest.mark.parametrize("softcap", [0.5, 5.0, 50.0])
def test_softcap(softcap, rng, isa):
    arguments = qkv(rng, 11, 11)
    arguments["q"] *= 10
    out, _ = check(arguments, softcap=softcap, bias=(("alibi", {"slopes": np.array([1.0, 0.5])}),))
    assert np.abs(out - posenc.attention(**arguments)).max() > 1e-6


@pytest.mark.parametrize("scale", [0.0, -1.0, 1.0, 30.0])
def test_scale(scale, rng):
    assert np.isfinite(check(qkv(rng, 9, 70), scale=scale)[0]).all()


@pytest.mark.parametrize("align", ["start", "end"])
@pytest.mark.parametrize(("n", "m"), [(3, 7), (7, 3), (5, 5), (64, 200), (200, 64), (1, 100), (100, 1)])
@pytest.mark.parametrize("options", [
    {"causal": True}, {"window": (2, 1)}, {"window": (None, -2)}, {"window": (-1, None)},
    {"window": (3, None), "causal": True},
    {"window": (0, 0)}, {"window": (-3, 1)}, {"window": (None, None)}, {"window": (70, -3)}, {"window": (1.5, 0.5)},
], ids=str)  # fmt: skip
def test_causal_and_windows(align, n, m, options, rng):
    """Negative sides look away; (-3, 1) is empty and sees nothing."""
    arguments = qkv(rng, n, m, 1, 1)
    out, lse = check(arguments, align=align, **options)
    if options.get("window") == (-3, 1):
        assert not out.any()
        assert np.all(lse == -np.inf)


def test_causal_pictures():
    """The table of the docstring: N = 2 queries and M = 3 keys."""

    def seen(**options):
        out = posenc.attention(np.zeros((1, 2, 1)), np.zeros((1, 3, 1)), np.eye(3)[None], causal=True, **options)
        return (out[0] > 0).astype(int).tolist()

    assert seen(align="start") == [[1, 0, 0], [1, 1, 0]]
    assert seen(align="end") == [[1, 1, 0], [1, 1, 1]]
    assert seen(q_positions=[5, 0], k_positions=[5, 6, 0]) == [[1, 0, 1], [0, 0, 1]]


ALIBI = (("alibi", {"slopes": np.array([0.3, 0.05])}),)
PLACES = {
    "int": lambda rng, n, m: (np.arange(n) + 3, np.arange(m)),
    "gaps": lambda rng, n, m: (np.cumsum(rng.integers(1, 9, n)), np.cumsum(rng.integers(1, 9, m))),
    "repeats": lambda rng, n, m: (np.arange(n) // 3, np.arange(m) // 2),
    "unsorted": lambda rng, n, m: (rng.permutation(n), rng.permutation(m)),
    "negative": lambda rng, n, m: (np.arange(n) - 50, np.arange(m) - 60),
    "float": lambda rng, n, m: (rng.uniform(-30, 30, n), rng.uniform(-30, 30, m)),
    "far": lambda rng, n, m: (np.arange(n) + 2**40, np.arange(m) * 2 + 2**40),
    "queries": lambda rng, n, m: (np.arange(n) + 2, None),
    "keys": lambda rng, n, m: (None, np.arange(m) - 5),
    "batched": lambda rng, n, m: (rng.integers(0, m, (2, n)), np.sort(rng.integers(0, m, (2, m)), -1)),
    "batch_of_queries": lambda rng, n, m: (rng.integers(0, m, (2, n)), np.arange(m)),
}


@pytest.mark.parametrize(
    "options",
    [{"causal": True}, {"window": (9, 4)}, {"bias": ALIBI}, {"bias": ALIBI, "causal": True}],
    ids=["causal", "window", "alibi", "both"],
)
@pytest.mark.parametrize("kind", PLACES)
def test_positions(kind, options, rng):
    """ALiBi of batched positions has batch axes: the oracle's (B, H, N, M)."""
    q, k = PLACES[kind](rng, 37, 81)
    places = {name: value for name, value in (("q_positions", q), ("k_positions", k)) if value is not None}
    out, _ = check(qkv(rng, 37, 81, batch=(2,)), **places, **options)
    assert np.isfinite(out).all()


def test_batched_alibi_equals_one_call_each(rng):
    arguments = qkv(rng, 9, 11, batch=(3,))
    q, k = rng.integers(0, 20, (3, 9)), rng.integers(0, 20, (3, 11))
    bias = posenc.alibi([0.3, 0.1])
    whole = posenc.attention(**arguments, q_positions=q, k_positions=k, bias=bias, causal=True)
    for b in range(3):
        each = {a: x[b] for a, x in arguments.items()}
        assert same_bits(
            whole[b].copy(), posenc.attention(**each, q_positions=q[b], k_positions=k[b], bias=bias, causal=True)
        )


@pytest.mark.parametrize("shape", [
    (), (1,), (81,), (1, 81), (37, 1), (37, 81), (2, 1, 1), (2, 37, 81), (1, 37, 81), (3, 1, 1, 81), (3, 1, 37, 1),
    (3, 2, 37, 81), (1, 1, 1, 1), (1, 2, 1, 81),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("options", [{}, {"causal": True, "align": "end"}], ids=["keep", "causal"])
def test_keep(shape, options, rng):
    keep = rng.random(shape) > 0.4
    out, lse = check(qkv(rng, 37, 81, batch=(3,)), keep=np.asarray(keep), **options)
    assert np.array_equal(np.isneginf(lse), ~out.any(-1))


def test_keep_of_any_layout(rng):
    arguments = qkv(rng, 37, 81, batch=(3,))
    keep = rng.random((81, 37, 3)) > 0.4
    laid = keep.transpose(2, 1, 0)[:, None][..., ::-1]
    assert same_bits(posenc.attention(**arguments, keep=laid), posenc.attention(**arguments, keep=laid.copy()))


@pytest.mark.parametrize("batched", [False, True])
def test_segments(batched, rng):
    shape = (3,) if batched else ()
    segments = {"q_segments": rng.integers(-1, 3, (*shape, 37)), "k_segments": rng.integers(-1, 3, (*shape, 81))}
    assert check(qkv(rng, 37, 81, batch=(3,)), **segments)[0].shape == (3, 2, 37, 8)
    small = {a: s.astype(np.int8) for a, s in segments.items()}
    assert check(qkv(rng, 37, 81, batch=(3,)), **small)[0].shape == (3, 2, 37, 8)


DEAD = {
    "keep": {"keep": np.zeros((5, 7), bool)},
    "keep_rows": {"keep": np.array([0, 1, 0, 1, 0], bool)[:, None]},
    "window": {"window": (None, -50)},
    "empty_window": {"window": (-3, -3), "causal": True},
    "segments": {"q_segments": np.array([0, 9, 0, 9, 9]), "k_segments": np.zeros(7, int)},
    "bias": {"bias": (("dense", {"array": np.full((5, 7), -np.inf)}),)},
    "bias_rows": {"bias": (("dense", {"array": np.where(np.arange(5) % 2, 0.0, -np.inf)[:, None]}),)},
    "causal": {"causal": True, "q_positions": np.array([-1, 0, -2, 3, -9]), "k_positions": np.arange(7)},
    "both": {"causal": True, "keep": np.triu(np.ones((5, 7), bool), 1)},
}


@pytest.mark.parametrize("kind", DEAD)
@pytest.mark.parametrize("dtype", [d for d in (np.dtype(np.float16), BF16, F32, F64) if d is not None], ids=str)
def test_rows_that_see_nothing(kind, dtype, rng, isa):
    """Exactly 0 (and not -0), lse = -inf, no warning (the suite makes warnings errors, errstate the flags)."""
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


@pytest.mark.parametrize(("n", "m"), [(0, 5), (5, 0), (0, 0)])
@pytest.mark.parametrize("options", [{}, {"causal": True, "align": "end"}, {"bias": ALIBI, "align": "start"}], ids=str)
def test_empty(n, m, options, rng):
    out, lse = check(qkv(rng, n, m), **options)
    assert not out.any()
    assert np.all(lse == -np.inf)


@pytest.mark.parametrize("empty", ["batch", "heads", "width", "value_width"])
def test_other_empty_axes(empty, rng):
    sizes = {
        "batch": {"batch": (0,)},
        "heads": {"heads": 0, "groups": 0},
        "width": {"width": 0},
        "value_width": {"value_width": 0},
    }
    arguments = qkv(rng, 3, 4, **sizes[empty])
    out, lse = posenc.attention(**arguments, return_lse=True)
    assert out.shape == (*arguments["q"].shape[:-1], arguments["v"].shape[-1])
    if empty == "width":  # all logits are 0: the mean of the values, and log M
        assert np.abs(out - arguments["v"].mean(-2, keepdims=True)).max() <= 1e-15
        assert np.abs(lse - np.log(4)).max() <= 1e-15


# ---- masked keys and values are never used ----

WALLS = {
    "keep": lambda n, m, bad: {"keep": ~bad},
    "keep_rows": lambda n, m, bad: {"keep": np.broadcast_to(~bad, (n, m)).copy()},
    "causal": lambda n, m, bad: {"causal": True, "q_positions": np.zeros(n), "k_positions": np.where(bad, 1, -1)},
    "window": lambda n, m, bad: {"window": (5, 5), "q_positions": np.zeros(n), "k_positions": np.where(bad, 77, 3)},
    "segments": lambda n, m, bad: {"q_segments": np.zeros(n, int), "k_segments": bad.astype(int)},
    "bias": lambda n, m, bad: {"bias": (("dense", {"array": np.where(bad, -np.inf, 0.0)[None]}),)},
    "bias_rows": lambda n, m, bad: {
        "bias": (("dense", {"array": np.tile(np.where(bad, -np.inf, 0.0), (2, n, 1))}), *ALIBI), "align": "start",
    },
    "cap": lambda n, m, bad: {"keep": ~bad, "softcap": 3.0},
}  # fmt: skip


@pytest.mark.parametrize("kind", WALLS)
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 1e38])
@pytest.mark.parametrize("dtype", [d for d in (np.dtype(np.float16), BF16, F32, F64) if d is not None], ids=str)
def test_wall(kind, poison, dtype, rng, isa):
    """NaN and infinity in masked K and V change no bit, whether a tile holds some of them or nothing else."""
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
    """Key j poisoned: queries before j never notice, queries from j on do."""
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
    """A NaN that may be seen is never hidden; +inf in a value is inf or NaN, never a finite number."""
    q, k, v = rng.standard_normal((3, 1, 70, 8))
    v[0, 40, 3] = poison
    out = posenc.attention(q, k, v)
    assert not np.isfinite(out[..., 3]).any()
    assert np.isfinite(np.delete(out, 3, -1)).all()
    k[0, 40, 0] = np.nan
    assert np.isnan(posenc.attention(q, k, v)).all()


def test_large_logits_do_not_overflow(rng, isa):
    """The largest logit is subtracted first, tile by tile, whichever tile it is in."""
    for top in (0, 70, 299):
        q, k, v = (rng.standard_normal((1, 300, 8)).astype(np.float32) for _ in range(3))
        k[0, top] = q[0, 5] * 1e4
        out, lse = posenc.attention(q, k, v, return_lse=True)
        assert np.array_equal(out[0, 5], v[0, top])
        assert np.isfinite(out).all()
        assert np.isfinite(lse).all()


# ---- biases ----

BIASES = {
    "alibi": lambda rng, n, m: ("alibi", {"slopes": rng.uniform(0, 1, 2)}),
    "toeplitz": lambda rng, n, m: ("toeplitz", {"diagonals": rng.standard_normal((2, n + m - 1))}),
    "dense": lambda rng, n, m: ("dense", {"array": rng.standard_normal((3, 2, n, m))}),
    "dense_head": lambda rng, n, m: ("dense", {"array": rng.standard_normal((2, 1, m))}),
    "dense_row": lambda rng, n, m: ("dense", {"array": rng.standard_normal((n, 1))}),
}


@pytest.mark.parametrize("names", [
    *[(name,) for name in BIASES], ("alibi", "toeplitz"), ("toeplitz", "dense"), ("alibi", "dense"), ("alibi", "alibi"),
    ("alibi", "toeplitz", "dense", "dense_head", "dense_row"),
], ids="+".join)  # fmt: skip
@pytest.mark.parametrize("placed", [False, True], ids=["aligned", "placed"])
def test_biases_add_up(names, placed, rng, isa):
    n, m = 70, 135
    bias = tuple(BIASES[name](rng, n, m) for name in names)
    where = {"q_positions": rng.uniform(0, 99, n), "k_positions": rng.uniform(0, 99, m)} if placed else {"align": "end"}
    out, _ = check(qkv(rng, n, m, batch=(3,)), bias=bias, causal=True, **where)
    assert out.shape == (3, 2, n, 8)


def test_bias_of_another_dtype(rng):
    """The dtype of a bias decides nothing about that of the result."""
    q, k, v = rng.standard_normal((3, 2, 9, 8)).astype(np.float32)
    array = rng.standard_normal((2, 9, 9)).astype(np.float16)
    wanted = posenc.attention(q, k, v, bias=posenc.dense(array.astype(np.float32)))
    for dtype in (np.float16, np.float64):
        out = posenc.attention(q, k, v, bias=posenc.dense(array.astype(dtype)))
        assert same_bits(out, wanted)
    assert posenc.attention(q, k.astype(np.float64), v.astype(np.float16)).dtype == np.float32


def test_dense_and_toeplitz_read_no_positions(rng):
    """They need no align, and positions do not move them."""
    arguments = qkv(rng, 5, 8)
    array, diagonals = rng.standard_normal((2, 5, 8)), rng.standard_normal((2, 12))
    for bias in (posenc.dense(array), posenc.toeplitz(diagonals)):
        wanted = posenc.attention(**arguments, bias=bias)
        assert same_bits(wanted, posenc.attention(**arguments, bias=[bias], q_positions=np.arange(5) * 7.5))


def test_more_biases_than_fit_are_refused(rng):
    arguments = qkv(rng, 5, 5)
    for count in (16, 17, 40):
        biases = [posenc.alibi([0.1, 0.2])] * count
        if count <= 16:
            assert check(arguments, bias=ALIBI * count)[0].shape == (2, 5, 8)
        else:
            with pytest.raises((TypeError, ValueError), match="attention: bias has"):
                posenc.attention(**arguments, bias=biases)


# ---- parts and wholes ----


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
    """Two roundings of the storage more than one call, at the size of the largest value."""
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
    """One token at a time against the cache so far; tiles are cut elsewhere, so sums differ in their last bits."""
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
    """Wherever they lie in the pack (OLMo-core#591), up to rounding: tiles of keys begin elsewhere in each document."""
    one = qkv(rng, 64, 64)
    arguments = {a: np.concatenate([x, x], 1) for a, x in one.items()}
    segments = np.repeat([0, 1], 64)
    where = np.tile(np.arange(64), 2)
    out = posenc.attention(
        **arguments, causal=True, q_segments=segments, k_segments=segments, q_positions=where, k_positions=where
    )
    assert np.abs(out[:, :64] - out[:, 64:]).max() <= 1e-14


def test_other_rows_of_the_batch_do_not_matter(rng, isa):
    arguments = qkv(rng, 70, 90, batch=(3,))
    whole = posenc.attention(**arguments, causal=True, align="end")
    for b in range(3):
        alone = posenc.attention(**{a: x[b] for a, x in arguments.items()}, causal=True, align="end")
        assert same_bits(whole[b].copy(), alone)


# ---- errors ----

N, M = 4, 6
ERRORS = {
    "align_missing_causal": ({"causal": True}, ValueError, "align"),
    "align_missing_window": ({"window": (1, 1)}, ValueError, "align"),
    "align_missing_bias": ({"bias": posenc.alibi([1.0, 1.0])}, ValueError, "align"),
    "align_unknown": ({"align": "top-left"}, ValueError, "align"),
    "align_with_positions": ({"align": "end", "q_positions": np.arange(N)}, ValueError, "align"),
    "keep_integers": ({"keep": np.ones((N, M), np.int64)}, TypeError, "keep"),
    "keep_floats": ({"keep": np.ones((N, M))}, TypeError, "keep"),
    "keep_shape": ({"keep": np.ones((N, M + 1), bool)}, ValueError, "keep"),
    "keep_axes": ({"keep": np.ones((5, 2, N, M), bool)}, ValueError, "keep"),
    "one_segment": ({"q_segments": np.zeros(N, int)}, ValueError, "k_segments"),
    "other_segment": ({"k_segments": np.zeros(M, int)}, ValueError, "q_segments"),
    "float_segments": ({"q_segments": np.zeros(N), "k_segments": np.zeros(M)}, TypeError, "q_segments"),
    "segments_shape": ({"q_segments": np.zeros(N, int), "k_segments": np.zeros(N, int)}, ValueError, "k_segments"),
    "q_positions_length": ({"q_positions": np.arange(M)}, ValueError, "q_positions"),
    "k_positions_length": ({"k_positions": np.arange(N)}, ValueError, "k_positions"),
    "positions_per_head": ({"q_positions": np.zeros((2, N))}, ValueError, "q_positions"),
    "positions_nan": ({"q_positions": [0, 1, np.nan, 3]}, ValueError, "q_positions"),
    "positions_complex": ({"q_positions": np.zeros(N, complex)}, TypeError, "q_positions"),
    "window_number": ({"window": 3}, ValueError, "window"),
    "window_three": ({"window": (1, 2, 3)}, ValueError, "window"),
    "window_nan": ({"window": (np.nan, 1), "align": "end"}, ValueError, "window"),
    "window_text": ({"window": ("a", 1)}, TypeError, "window"),
    "softcap_zero": ({"softcap": 0.0}, ValueError, "softcap"),
    "softcap_negative": ({"softcap": -1.0}, ValueError, "softcap"),
    "softcap_inf": ({"softcap": np.inf}, ValueError, "softcap"),
    "scale_nan": ({"scale": np.nan}, ValueError, "scale"),
    "scale_text": ({"scale": "auto"}, TypeError, "scale"),
    "causal_array": ({"causal": np.ones((N, M), bool)}, TypeError, "causal"),
    "bias_array": ({"bias": np.zeros((N, M))}, TypeError, "bias"),
    "bias_list_of_arrays": ({"bias": [np.zeros((N, M))]}, TypeError, "bias"),
    "bias_heads": ({"bias": posenc.alibi([1.0, 1.0, 1.0]), "align": "end"}, ValueError, None),
    "bias_dense_shape": ({"bias": posenc.dense(np.zeros((N, M + 1)))}, ValueError, "array"),
    "bias_dense_batch": ({"bias": posenc.dense(np.zeros((3, 1, N, M)))}, ValueError, "array"),
    "bias_toeplitz_length": ({"bias": posenc.toeplitz(np.zeros((2, N + M)))}, ValueError, "diagonals"),
    "bias_toeplitz_heads": ({"bias": posenc.toeplitz(np.zeros((3, N + M - 1)))}, ValueError, "bias"),
    "k_width": ({"k": np.zeros((2, M, 9))}, ValueError, "k"),
    "k_heads": ({"k": np.zeros((3, M, 8)), "v": np.zeros((3, M, 8))}, ValueError, "k"),
    "k_no_heads": ({"k": np.zeros((0, M, 8)), "v": np.zeros((0, M, 8))}, ValueError, "k"),
    "v_length": ({"v": np.zeros((2, M + 1, 8))}, ValueError, "v"),
    "v_heads": ({"v": np.zeros((1, M, 8))}, ValueError, "v"),
    "v_batch": ({"v": np.zeros((3, 2, M, 8)), "k": np.zeros((2, 2, M, 8))}, ValueError, None),
    "q_axes": ({"q": np.zeros((N, 8))}, ValueError, "q"),
    "q_bool": ({"q": np.zeros((2, N, 8), bool)}, TypeError, "q"),
    "out_shape": ({"out": np.zeros((2, N, 9))}, ValueError, "out"),
    "out_dtype": ({"out": np.zeros((2, N, 8), np.float32)}, TypeError, "out"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ERRORS)
def test_errors(kind, rng):
    options, exception, argument = ERRORS[kind]
    with pytest.raises(exception, match=rf"^attention: {argument or r'[a-z]+'} (has|is) .+; expected "):
        posenc.attention(**{**qkv(rng, N, M), **options})


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda q: posenc.attention(q, q, q, keep=np.ones((2, 4), bool)), "keep[..., None, None, :]"),
        (lambda q: posenc.attention(q, q, q, bias=np.zeros((4, 4))), "dense(array)"),
        (lambda q: posenc.attention(q, q, q, bias=posenc.alibi(3)), "alibi_slopes(H)"),
    ],
)
def test_what_is_meant_is_named(call, hint):
    """Habits from other libraries: a mask of words, a matrix, a number of heads."""
    with pytest.raises((TypeError, ValueError), match=re.escape(hint)):
        call(np.zeros((2, 3, 4, 8)))


def test_what_needs_no_align(rng):
    """N = M, no position in play, or positions given."""
    arguments = qkv(rng, N, M)
    assert posenc.attention(**arguments).shape == (2, N, 8)
    assert posenc.attention(**arguments, align="end").shape == (2, N, 8)
    assert posenc.attention(**arguments, causal=True, q_positions=np.arange(N)).shape == (2, N, 8)
    assert posenc.attention(**arguments, window=(None, None)).shape == (2, N, 8)
    same = qkv(rng, N, N)
    both = [posenc.attention(**same, causal=True, align=align) for align in (None, "start", "end")]
    assert same_bits(both[0], both[1])
    assert same_bits(both[0], both[2])


# ---- memory ----

GROWTH = """
import resource, sys
import numpy as np
import posenc
rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal((32, {n}, 64), dtype=np.float32) for _ in range(3))
out = np.full((32, {n}, 64), 1, np.float32)  # touched: its pages are not the growth
bias = posenc.alibi(posenc.alibi_slopes(32))
posenc.attention(q[:, :128], k[:, :128], v[:, :128], bias=bias, causal=True)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
posenc.attention(q, k, v, bias=bias, causal=True, out=out, {options})
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the resource module is POSIX")
@pytest.mark.parametrize(("n", "options"), [
    (2048, ""), (2048, "q_positions=np.arange(2048) * 1.5, k_positions=np.arange(2048) * 1.5"),
    pytest.param(8192, "", marks=pytest.mark.slow),
    pytest.param(8192, "q_positions=np.arange(8192) * 1.5, k_positions=np.arange(8192) * 1.5", marks=pytest.mark.slow),
])  # fmt: skip
def test_memory_does_not_grow_with_n_times_m(n, options, run_python):
    """R5: 64 MiB at H = 32, N = 8192, where a dense float32 bias would be 8 GiB (at 2048: 512 MiB)."""
    done = run_python(GROWTH.format(n=n, options=options), timeout=300)
    assert int(done.stdout) < 64 << 20, done.stderr


@pytest.mark.parametrize("dtype", ["<f4", ">f4", ">f8"])
def test_a_broadcast_dense_bias_is_not_spread_out(dtype):
    import tracemalloc

    q, bias = np.ones((8, 600, 4), np.float32), posenc.dense(np.zeros((1, 1, 600), dtype))
    tracemalloc.start()
    posenc.attention(q, q, q, bias=bias)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20  # H x N x M floats would be 11 MiB


def test_softcap_beyond_the_working_precision():
    q, v = np.ones((1, 3, 4), np.float32), np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    assert np.abs(posenc.attention(q, q, v, softcap=1e39) - posenc.attention(q, q, v)).max() <= 1e-6  # one rounding
    for tiny in (1e-46, 1e-40):
        assert np.abs(posenc.attention(q * [[[1], [2], [3]]], q, v, softcap=tiny) - v.mean(1)).max() <= 1e-6


def test_parameters_beyond_float32_are_refused_by_name():
    q = np.ones((1, 3, 2), np.float32)
    large, ones = np.full((1, 3, 2), 1e300), np.ones((1, 3, 2))
    for bias, argument in (
        (posenc.shaw(large[0]), "rel_k"),
        (posenc.shaw(ones[0], large[0]), "rel_v"),
        (posenc.tupe(large, ones), "pos_q"),
        (posenc.tupe(ones, ones, any_to_cls=[1e300]), "any_to_cls"),
        (posenc.toeplitz(np.full((1, 5), 1e300)), "diagonals"),
    ):
        with pytest.raises(ValueError, match=f"attention: {argument} has numbers beyond float32"):
            posenc.attention(q, q, q, bias=bias)
        posenc.attention(q.astype(np.float64), q, q, bias=bias)
    mask = np.triu(np.full((3, 3), np.finfo(np.float64).min), 1)
    np.testing.assert_array_equal(
        posenc.attention(q, q, q, bias=posenc.dense(mask)), posenc.attention(q, q, q, causal=True)
    )


@pytest.mark.parametrize("n", [1, 3, 20])
@pytest.mark.parametrize(("d", "e"), [(0, 3), (3, 0), (0, 0)])
def test_heads_without_channels(isa, n, d, e):
    """A kernel for few queries divided by the width of a row."""
    q, k, v = np.ones((2, n, d), np.float32), np.ones((2, 5, d), np.float32), np.arange(10.0 * e).reshape(2, 5, e)
    out, lse = posenc.attention(q, k, v, return_lse=True)
    np.testing.assert_allclose(out, np.broadcast_to(v.mean(1, keepdims=True), (2, n, e)), rtol=1e-6)
    np.testing.assert_allclose(lse, d**0.5 + np.log(5), rtol=1e-6)
    gradient = posenc.attention_vjp(np.ones_like(out), q, k, v, out=out, lse=lse)
    assert [part.shape for part in gradient[:3]] == [q.shape, k.shape, v.shape]
    np.testing.assert_allclose(gradient.v, np.full((2, 5, e), n / 5), rtol=1e-6)
