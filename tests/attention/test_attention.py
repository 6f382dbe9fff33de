"""Attention beside its values: equal bits of panels, large logits, subnormal numbers, and memory."""

import sys

import numpy as np
import pytest
from cases import F32, F64
from cases.layouts import same_bits

import posenc


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("width", [1, 5, 6, 10, 11, 64, 66])
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


def test_large_logits_do_not_overflow(rng, isa):
    """The running maximum is subtracted from the logits, whichever tile the largest logit is in."""
    for top in (0, 70, 299):
        q, k, v = (rng.standard_normal((1, 300, 8)).astype(np.float32) for _ in range(3))
        k[0, top] = q[0, 5] * 1e4
        out, lse = posenc.attention(q, k, v, return_lse=True)
        assert np.array_equal(out[0, 5], v[0, top])
        assert np.isfinite(out).all()
        assert np.isfinite(lse).all()


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
posenc.attention(q[:, :128], k[:, :128], v[:, :128], bias=small, causal=True, scale=0.1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
posenc.attention(q, k, v, bias=large, causal=True, scale=0.1, out=out, {options})
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
ALIBI, PLACED = "posenc.alibi(posenc.alibi_slopes(H))", "q_positions=np.arange(N) * 1.5, k_positions=np.arange(N) * 1.5"
SMALL, LARGE = (32, 2048, 64), (32, 8192, 64)
RELATIVE = """[
    posenc.shaw(normal((129, D)), normal((129, D))),
    posenc.transformer_xl(normal((H, 129, D)), normal((H, D)), normal((H, D))),
    posenc.deberta(normal((H, 64, D)), normal((H, 64, D)), num_buckets=32, max_distance=512),
    posenc.cope(normal((64, D))), posenc.tupe(normal((H, n, D)), normal((H, n, D))),
    posenc.gated_distance(normal((H, n, 16)), normal((1024, 16)), rows="past"),
]"""


@pytest.mark.skipif(sys.platform == "win32", reason="the resource module is POSIX")
@pytest.mark.parametrize(
    ("sizes", "bias", "options"),
    [
        (SMALL, ALIBI, ""),
        (SMALL, ALIBI, PLACED),
        pytest.param((16, 2048, 32), RELATIVE, "", id="relative"),
        *[pytest.param(LARGE, ALIBI, options, marks=pytest.mark.slow) for options in ("", PLACED)],
    ],
)
def test_memory_does_not_grow_with_n_times_m(sizes, bias, options, run_python):
    """At most 64 MiB with 32 heads, where a dense float32 bias would be 512 MiB, and 8 GiB at N = 8192; dense logits of
    the relative operators would be 256 MiB each."""
    done = run_python(GROWTH.format(sizes=sizes, bias=bias, options=options), timeout=300)
    assert float(done.stdout) < 64, done.stderr


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


def test_scales_of_heads_that_are_all_0():
    q = np.random.default_rng(0).standard_normal((2, 5, 4))
    np.testing.assert_array_equal(posenc.attention(q, q, q, scale=np.zeros(2)), posenc.attention(q, q, q, scale=0.0))


@pytest.mark.parametrize("other", [1e32, 1e-32, 0.0, -1e37])
def test_a_scale_of_a_head_changes_no_other_head(other, rng):
    """Each head has the bits of a call with its own scale alone, in the gradient too; scales may be far apart."""
    scales, arrays = np.array([1e-8, 0.3, other], np.float32), rng.standard_normal((4, 3, 5, 4)).astype(np.float32)
    found, gradient = posenc.attention(*arrays[1:], scale=scales), posenc.attention_vjp(*arrays, scale=scales)
    for h in range(2):
        alone = [x[h : h + 1] for x in arrays]
        assert np.array_equal(found[h : h + 1], posenc.attention(*alone[1:], scale=float(scales[h])))
        wanted = posenc.attention_vjp(*alone, scale=scales[h : h + 1])
        assert all(np.array_equal(getattr(gradient, name)[h : h + 1], getattr(wanted, name)) for name in "qkv")
        assert gradient.scale[h] == wanted.scale[0]
    two = np.array([[[1e8]], [[0.0]]], np.float32)
    weights = posenc.attention_weights(
        np.ones((2, 1, 1), np.float32), np.repeat(two.reshape(1, 2, 1), 2, 0), scale=[1e-8, 1e32]
    )
    assert weights[0, 0, 0] == pytest.approx(1 / (1 + np.exp(-1)), rel=1e-6)


class OfDlpack:
    """An array that has the DLPack protocol alone."""

    def __init__(self, array):
        self.array = np.asarray(array)

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_arrays_of_heads_by_dlpack(rng):
    x, numbers = rng.standard_normal((4, 2, 5, 4)), np.array([0.5, 2.0])
    for name in ("sink", "scale"):
        wanted = posenc.attention_vjp(*x, **{name: numbers})
        found = posenc.attention_vjp(*x, **{name: OfDlpack(numbers)})
        assert all(a is b is None or np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))
        assert np.array_equal(
            posenc.attention(*x[1:], **{name: OfDlpack(numbers)}), posenc.attention(*x[1:], **{name: numbers})
        )
    assert np.array_equal(posenc.attention(*x[1:], scale=OfDlpack(0.5)), posenc.attention(*x[1:], scale=0.5))
    with pytest.raises(TypeError, match=r"^attention: scale has type list; expected an array"):
        posenc.attention(*x[1:], scale=[[1], [1, 2]])
