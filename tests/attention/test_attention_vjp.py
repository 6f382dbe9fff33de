"""The gradient of attention against its formula at sizes beyond central differences; masked numbers change no bit."""

import numpy as np
import pytest
from cases import BF16, F16, F32, F64, ulp, working
from cases.gradient import call, formula_and_bounds, problem
from cases.layouts import same_bits
from cases.rounding import Error, weight_error

import posenc

FEATURES = {
    "plain": {},
    "causal": {"causal": True},
    "softcap": {"softcap": 2.0},
    "window": {"window": (40, 10)},
    "alibi": {"bias": (("alibi", {"slopes": np.array([0.5, 0.25, 0.125, 0.0625])}),)},
}


def assert_within_bounds(found, arguments, options, dtype):
    """Assert that each entry is within its a-priori bound; in float64 twice, because the formula is in float64 too."""
    for name, exact, bound in zip("qkv", *formula_and_bounds(*arguments, work=working(dtype), **options), strict=True):
        gradient = getattr(found, name)
        assert gradient.dtype == dtype
        whole = bound * (2 if dtype == F64 else 1)
        whole += 0 if dtype in (F32, F64) else ulp(np.abs(exact) + bound, dtype) / 2
        assert np.all(np.abs(gradient.astype(F64) - exact) <= whole), name


@pytest.mark.parametrize("options", FEATURES.values(), ids=FEATURES)
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_error_is_within_its_bound(options, dtype, rng, isa):
    """From the same out and lse."""
    arguments, ours, theirs = problem(rng, 200, 200, width=64, value_width=64, dtype=dtype, **options)
    assert_within_bounds(posenc.attention_vjp(*arguments, **ours), arguments, theirs, dtype)


def test_gradients_below_the_smallest_normal_number(rng, isa):
    """Weights near 2**-126: terms and results may be flushed to 0, but the gradients of the other key are right."""
    n, m = 2, 166
    bias = (("dense", {"array": np.linspace(-90, -80, 4 * n * m).reshape(4, n, m) * (np.arange(m) > 0)}),)
    arguments, ours, theirs = problem(rng, n, m, width=87, value_width=5, dtype=F32, bias=bias)
    found = posenc.attention_vjp(*arguments, **ours)
    assert_within_bounds(found, arguments, theirs, F32)
    assert (np.abs(found.v[..., 1:, :]) < 2.0**-110).all()


@pytest.mark.parametrize("dtype", [d for d in (F16, BF16) if d is not None], ids=str)
def test_half_storage(dtype, rng):
    """Arithmetic is float32, and the result is rounded once; test_sixteen_vjp.py has the other variants."""
    arguments, ours, theirs = problem(rng, 130, 100, dtype=dtype, causal=True, align="start")
    with posenc.runtime.use_isa("base"):
        assert_within_bounds(posenc.attention_vjp(*arguments, **ours), arguments, theirs, dtype)


def test_row_strides_of_4096_bytes(rng):
    """Rows 4096 bytes apart are copied before use, with the same bits."""
    buffer = rng.standard_normal((4, 70, 1024)).astype(F32)
    apart = buffer[..., :16]
    grad = rng.standard_normal((4, 70, 16)).astype(F32)
    found, wanted = (
        posenc.attention_vjp(*(a := call(x, x, x, grad))[0], **a[1]) for x in (apart, np.ascontiguousarray(apart))
    )
    assert all(same_bits(a, b) for a, b in zip(found[:3], wanted[:3], strict=True))


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_delta_is_summed_in_double(dtype, isa):
    """In float32 the sum 2**24 + 1 - 2**24 + ... of grad out would lose the ones. With values of 0 and equal logits,
    dS is -p times their number."""
    n, m, width = 3, 4, 1024
    q, k, v = np.zeros((1, n, 2), dtype), np.zeros((1, m, 2), dtype), np.zeros((1, m, width), dtype)
    out = np.tile(np.array([2.0**24, 1, -(2.0**24), 0], dtype), (1, n, width // 4))
    lse = np.full((1, n), np.log(m), dtype)
    bias = posenc.dense(np.zeros((1, n, m), dtype))
    found = posenc.attention_vjp(np.ones_like(out), q, k, v, out=out, lse=lse, bias=bias).bias[0].array
    u = float(np.finfo(dtype).eps) / 2
    weight = weight_error(Error(np.zeros(()), np.zeros(())), lse[0, 0])  # and the roundings of lse and of a product
    assert np.abs(found / -(width / 4 / m) - 1).max() <= u * (weight.bound + np.log(m) + 1)


# ---- masked numbers ----


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("where", ["k", "v", "q", "grad", "out"])
def test_nothing_leaks_from_what_is_masked(bad, where, rng, isa):
    """Every third key is masked, and every fifth query sees no key; NaN or infinity there changes no other bit."""
    n, m = 100, 130
    keep = np.ones((n, m), bool)
    keep[:, ::3] = False
    keep[::5] = False
    bias = (("alibi", {"slopes": np.array([0.5, 0.25])}), ("dense", {"array": rng.standard_normal((n, m))}))
    (grad, q, k, v), ours, _ = problem(rng, n, m, 2, 1, dtype=F32, keep=keep, bias=bias, align="end", softcap=5.0)
    wanted = posenc.attention_vjp(grad, q, k, v, **ours)
    given = {"grad": grad.copy(), "q": q.copy(), "k": k.copy(), "v": v.copy(), "out": ours["out"].copy()}
    given[where][:, :: 3 if where in "kv" else 5] = bad
    found = posenc.attention_vjp(*(given[a] for a in ("grad", "q", "k", "v")), **{**ours, "out": given["out"]})
    assert all(same_bits(a, b) for a, b in zip(found[:3], wanted[:3], strict=True))
    assert all(same_bits(a[0], b[0]) for a, b in zip(found.bias, wanted.bias, strict=True))


@pytest.mark.parametrize("where", ["q", "k", "v", "grad"])
def test_a_nan_reaches_only_what_sees_it(where, rng, isa):
    """In a causal call, NaN in row 40 of one argument makes exactly the dependent rows of the gradients NaN."""
    n, at = 100, 40
    (grad, q, k, v), ours, _ = problem(rng, n, n, 2, 2, dtype=F32, causal=True)
    before = posenc.attention_vjp(grad, q, k, v, **ours)
    given = {"grad": grad.copy(), "q": q.copy(), "k": k.copy(), "v": v.copy()}
    given[where][0, at, 1] = np.nan
    out, lse = posenc.attention(given["q"], given["k"], given["v"], causal=True, return_lse=True)
    found = posenc.attention_vjp(*given.values(), **{**ours, "out": out, "lse": lse, "bias": ()})
    seen = np.arange(n) <= at if where in ("q", "grad") else np.full(n, True)
    later = np.arange(n) == at if where in ("q", "grad") else np.arange(n) >= at
    assert np.array_equal(np.isnan(found.q[0]).any(-1), later)
    assert np.isnan(found.k[0][at]).any()
    for a, b in zip(found[:3], before[:3], strict=True):
        assert same_bits(a[1], b[1])
    assert same_bits(found.q[0][~later], before.q[0][~later])
    assert same_bits(found.k[0][~seen], before.k[0][~seen])
    assert same_bits(found.v[0][~seen], before.v[0][~seen])


# ---- gradients from out and lse ----


@pytest.mark.parametrize("shape", [(0, 5, 5), (2, 0, 5), (2, 5, 0)])
def test_empty(shape, rng):
    heads, n, m = shape
    bias = (("alibi", {"slopes": np.zeros(heads)}), ("dense", {"array": np.zeros((heads, n, m))}))
    arguments, ours, _ = problem(rng, n, m, heads, heads, bias=bias, align="end")
    found = posenc.attention_vjp(*arguments, **ours)
    assert [g.shape for g in found[:3]] == [x.shape for x in arguments[1:]]
    assert not any(g.any() for g in (*found[:3], *(of[0] for of in found.bias)))


@pytest.mark.parametrize(
    ("name", "shape"), [("out", (2, 5, 3)), ("lse", (2, 5, 1)), ("grad", (1, 5, 4)), ("grad_lse", (5,))]
)
def test_errors(name, shape, rng):
    (grad, q, k, v), ours, _ = problem(rng, 5, 5, 2, 2, 4, 4)
    with pytest.raises(ValueError, match=f"attention_vjp: {name} has shape"):
        posenc.attention_vjp(**{"grad": grad, "q": q, "k": k, "v": v, **ours, name: np.zeros(shape)})


GROWTH = """
import resource
import numpy as np, posenc
posenc.set_num_threads({threads})
seen = {{"causal": True, "window": (256, 0)}}
def run(n, h, g, d=64):
    q, grad = np.ones((2, h, n, d), np.float32)
    k, v = np.ones((2, g, n, d), np.float32)
    bias = {bias}
    out, lse = posenc.attention(q, k, v, bias=bias, return_lse=True, **seen)
    return q.nbytes + k.nbytes + v.nbytes, (q, k, v, grad, out, lse, bias)
nbytes, (q, k, v, grad, out, lse, bias) = run({n}, {h}, {g})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = posenc.attention_vjp(grad, q, k, v, out=out, lse=lse, bias=bias, **seen)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before / 1024 - nbytes / 2**20)
"""


TWO_BIASES = "[posenc.alibi(np.full(h, 0.1)), posenc.dense(np.zeros((1, n), np.float32))]"
LARGE_TABLE = "posenc.swin(np.zeros((127 * 255, h), np.float32), 64, 128)"  # float64 sums of 8 MiB for each block


@pytest.mark.parametrize(("bias", "h", "g", "threads"), [(TWO_BIASES, 32, 2, 2), (LARGE_TABLE, 32, 32, 2)])
def test_memory(bias, h, g, threads, run_python):
    """Growth of memory besides the gradients, at a length where one matrix of scores has 256 MiB."""
    pytest.importorskip("resource", reason="this platform has no resource module")
    done = run_python(GROWTH.format(n=8192, bias=bias, h=h, g=g, threads=threads), timeout=120)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 64


@pytest.mark.parametrize(("above", "dtype"), [(80, F32), (95, F32), (95, F64), (1000, F64)])
def test_a_logit_far_above_the_given_lse(above, dtype, isa):
    """Its weight exp(logit - lse) is as given where it is finite, and infinite beyond, never a wrong finite number."""
    q, k, v = (np.full((1, 1, 1), x, dtype) for x in (above, 1, 1))
    lse, out = np.zeros((1, 1), dtype), np.zeros((1, 1, 1), dtype)
    gradient = posenc.attention_vjp(np.ones_like(v), q, k, v, out=out, lse=lse, scale=1.0)
    with np.errstate(over="ignore"):
        weight = np.exp(np.asarray(above, dtype))
    # The logit in units of log 2 is rounded, which the exponential multiplies by its size.
    assert np.allclose(gradient.v, weight, rtol=4 * above * np.finfo(dtype).eps)
    assert np.all(np.isfinite(gradient.q) == np.isfinite(weight))
