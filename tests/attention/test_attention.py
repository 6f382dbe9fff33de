"""Attention against its oracle: shapes, dtypes, heads, scales, caps, biases, and memory."""

import sys

import numpy as np
import pytest
from cases import BF16, F32, F64
from cases.attention import TWO_SLOPES, check, qkv
from cases.layouts import same_bits

import posenc

SHAPES = [(1, 1), (1, 7), (7, 1), (2, 3), (17, 17), (33, 65), (64, 64), (65, 33), (64, 128), (130, 97), (97, 260)]


@pytest.mark.parametrize(("n", "m"), SHAPES)
@pytest.mark.parametrize("dtype", [d for d in (np.dtype(np.float16), BF16, F32, F64) if d is not None], ids=str)
def test_plain(n, m, dtype, rng, isa):
    arguments = qkv(rng, n, m, width=16, value_width=24)
    out, lse = check(arguments, (dtype,))
    assert out.dtype == dtype
    assert lse.dtype == (F64 if dtype == F64 else F32)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("width", [*range(1, 17), 64, 66, 128])
def test_two_panels_have_the_bits_of_one(width, dtype, rng, isa):
    """With AVX-512 two panels that see the same keys are multiplied together: 64 queries are two halves of them. The
    rest of a width, divided by blocks of 6 and 4 rows, takes another way."""
    q, k, v = (rng.standard_normal((2, n, width)).astype(dtype) for n in (64, 45, 45))
    halves = (slice(0, 32), slice(32, 64)) if dtype == F32 else [slice(i, i + 16) for i in range(0, 64, 16)]
    bias = posenc.alibi([0.5, 0.25])
    for options in ({}, {"bias": bias, "q_positions": np.arange(64), "k_positions": np.arange(45)}):
        out, lse = posenc.attention(q, k, v, **options, return_lse=True, invariant=True)
        d = posenc.attention_vjp(out, q, k, v, out=out, lse=lse, **options)
        for half in halves:
            own = dict(options, q_positions=np.arange(64)[half]) if options else {}
            some, of_some = posenc.attention(q[:, half], k, v, **own, return_lse=True, invariant=True)
            assert same_bits(some, out[:, half].copy())
            assert same_bits(of_some, lse[:, half].copy())
            dq = posenc.attention_vjp(some, q[:, half], k, v, out=some, lse=of_some, **own).q
            assert same_bits(dq, d.q[:, half].copy())


@pytest.mark.parametrize("width", [1, 2, 3, 5, 8, 15, 17, 31, 64, 72, 100, 128, 200, 257])
@pytest.mark.parametrize("value_width", [1, 7, 64, 130])
def test_any_width(width, value_width, rng, isa):
    assert check(qkv(rng, 20, 70, width=width, value_width=value_width))[0].shape == (2, 20, value_width)


@pytest.mark.parametrize(("heads", "groups"), [(1, 1), (4, 1), (4, 2), (6, 3), (8, 8), (5, 5), (12, 4)])
def test_grouped_heads(heads, groups, rng):
    """Head h reads kv head h // (H // G); repeating each kv head gives the same bits."""
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


@pytest.mark.parametrize(("n", "m"), [(0, 5), (5, 0), (0, 0)])
@pytest.mark.parametrize(
    "options", [{}, {"causal": True, "align": "end"}, {"bias": TWO_SLOPES, "align": "start"}], ids=str
)
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


def test_large_logits_do_not_overflow(rng, isa):
    """The running maximum is subtracted from the logits, whichever tile the largest logit is in."""
    for top in (0, 70, 299):
        q, k, v = (rng.standard_normal((1, 300, 8)).astype(np.float32) for _ in range(3))
        k[0, top] = q[0, 5] * 1e4
        out, lse = posenc.attention(q, k, v, return_lse=True)
        assert np.array_equal(out[0, 5], v[0, top])
        assert np.isfinite(out).all()
        assert np.isfinite(lse).all()


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
    """The dtype of the result does not depend on the dtype of a bias."""
    q, k, v = rng.standard_normal((3, 2, 9, 8)).astype(np.float32)
    array = rng.standard_normal((2, 9, 9)).astype(np.float16)
    wanted = posenc.attention(q, k, v, bias=posenc.dense(array.astype(np.float32)))
    for dtype in (np.float16, np.float64):
        out = posenc.attention(q, k, v, bias=posenc.dense(array.astype(dtype)))
        assert same_bits(out, wanted)
    assert posenc.attention(q, k.astype(np.float64), v.astype(np.float16)).dtype == np.float32


def test_dense_and_toeplitz_read_no_positions(rng):
    """dense and toeplitz need no align, and do not depend on positions."""
    arguments = qkv(rng, 5, 8)
    array, diagonals = rng.standard_normal((2, 5, 8)), rng.standard_normal((2, 12))
    for bias in (posenc.dense(array), posenc.toeplitz(diagonals)):
        wanted = posenc.attention(**arguments, bias=bias)
        assert same_bits(wanted, posenc.attention(**arguments, bias=[bias], q_positions=np.arange(5) * 7.5))


GROWTH = """
import resource
import numpy as np
import posenc
rng = np.random.default_rng(0)
normal, (H, N, D) = rng.standard_normal, {sizes}
q, k, v = (normal((H, N, D), dtype=np.float32) for _ in range(3))
made = lambda n: {bias}
out = np.full((H, N, D), 1, np.float32)  # touched: its pages are not the growth
small, large = made(128), made(N)
posenc.attention(q[:, :128], k[:, :128], v[:, :128], bias=small, causal=True)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
posenc.attention(q, k, v, bias=large, causal=True, out=out, {options})
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
ALIBI, PLACED = "posenc.alibi(posenc.alibi_slopes(H))", "q_positions=np.arange(N) * 1.5, k_positions=np.arange(N) * 1.5"
SMALL, LARGE = (32, 2048, 64), (32, 8192, 64)
RELATIVE = {
    "shaw": "posenc.shaw(normal((129, D)), normal((129, D)))",
    "transformer_xl": "posenc.transformer_xl(normal((H, 129, D)), normal((H, D)), normal((H, D)))",
    "deberta": "posenc.deberta(normal((H, 64, D)), normal((H, 64, D)), buckets=32, max_position=512)",
    "cope": "posenc.cope(normal((64, D)))", "tupe": "posenc.tupe(normal((H, n, D)), normal((H, n, D)))",
    "gated_distance": 'posenc.gated_distance(normal((H, n, 16)), normal((1024, 16)), rows="past")',
}  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="the resource module is POSIX")
@pytest.mark.parametrize(("sizes", "bias", "options", "most"), [
    (SMALL, ALIBI, "", 64), (SMALL, ALIBI, PLACED, 64),
    *[pytest.param(LARGE, ALIBI, options, 64, marks=pytest.mark.slow) for options in ("", PLACED)],
    *[pytest.param((16, 2048, 32), bias, "", 32, id=name) for name, bias in RELATIVE.items()],
])  # fmt: skip
def test_memory_does_not_grow_with_n_times_m(sizes, bias, options, most, run_python):
    """At most 64 MiB with 32 heads, where a dense float32 bias would be 512 MiB, and 8 GiB at N = 8192; tables and the
    scratch of all threads are below 32 MiB, where dense logits would be 256 MiB."""
    done = run_python(GROWTH.format(sizes=sizes, bias=bias, options=options), timeout=300)
    assert float(done.stdout) < most, done.stderr


@pytest.mark.parametrize("dtype", ["<f4", ">f4", ">f8"])
def test_a_broadcast_dense_bias_is_not_spread_out(dtype):
    """A dense bias that broadcasts is not copied to (H, N, M)."""
    import tracemalloc

    q, bias = np.ones((8, 600, 4), np.float32), posenc.dense(np.zeros((1, 1, 600), dtype))
    tracemalloc.start()
    posenc.attention(q, q, q, bias=bias)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20  # H x N x M floats would be 11 MiB


def test_softcap_beyond_the_working_precision():
    """A cap beyond float32 is no cap, and a cap of 1e-40 makes all logits 0."""
    q, v = np.ones((1, 3, 4), np.float32), np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    assert np.abs(posenc.attention(q, q, v, softcap=1e39) - posenc.attention(q, q, v)).max() <= 1e-6  # one rounding
    for tiny in (1e-46, 1e-40):
        assert np.abs(posenc.attention(q * [[[1], [2], [3]]], q, v, softcap=tiny) - v.mean(1)).max() <= 1e-6


@pytest.mark.parametrize("n", [1, 3, 20])
@pytest.mark.parametrize(("d", "e"), [(0, 3), (3, 0), (0, 0)])
def test_heads_without_channels(isa, n, d, e):
    """D = 0 makes all logits 0, and E = 0 all results empty; the kernel for few queries must not divide by the
    width."""
    q, k, v = np.ones((2, n, d), np.float32), np.ones((2, 5, d), np.float32), np.arange(10.0 * e).reshape(2, 5, e)
    out, lse = posenc.attention(q, k, v, return_lse=True)
    np.testing.assert_allclose(out, np.broadcast_to(v.mean(1, keepdims=True), (2, n, e)), rtol=1e-6)
    np.testing.assert_allclose(lse, d**0.5 + np.log(5), rtol=1e-6)
    gradient = posenc.attention_vjp(np.ones_like(out), q, k, v, out=out, lse=lse)
    assert [part.shape for part in gradient[:3]] == [q.shape, k.shape, v.shape]
    np.testing.assert_allclose(gradient.v, np.full((2, 5, e), n / 5), rtol=1e-6)


@pytest.mark.parametrize("width", [4, 8])
def test_subnormal_float16_is_not_flushed(width, rng, isa):
    """Attention flushes subnormal float32 numbers. Those of float16 are normal in float32 and keep their values."""
    q = (2.0**-16 * rng.standard_normal((2, 33, width))).astype(np.float16)
    k = (2.0**14 * np.sign(rng.standard_normal((2, 9, width)))).astype(np.float16)
    v = rng.standard_normal((2, 9, width)).astype(np.float16)
    result = posenc.attention(q, k, v, align="end")
    wide, mean = (posenc.attention(*(x.astype(np.float32) for x in (one, k, v)), align="end") for one in (q, 0 * q))
    largest = np.abs(v).max()
    assert np.abs(wide - mean).max() > 2**-6 * largest
    if isa in ("amx", "amx-emulated"):  # rounding, and as much for products of 16-bit numbers
        assert np.abs(result.astype(np.float32) - wide).max() <= 2**-10 * largest
    else:
        assert same_bits(result, wide.astype(np.float16))
