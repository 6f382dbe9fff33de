"""The JAX bridge: results and gradients of every Case under jit and alone, transformations, operators, errors."""

from __future__ import annotations

import importlib
from collections import UserList
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from bridge_cases import ROWS, differentiable, floats, of_values, rows, through
from cases import BF16, F16, F32, F64, as_tuple, map_arrays
from cases.complex_order import pairs
from cases.deviation import cotangents

import posenc
from posenc import _core

jax = pytest.importorskip("jax", reason="JAX is not installed")
import jax.numpy as jnp  # noqa: E402

import posenc_bridges.jax as pj  # noqa: E402


@pytest.fixture
def x64() -> Any:
    with (jax if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental")).enable_x64(True):
        yield


def traced(case: Any, arguments: dict[str, Any], dtype: Any) -> tuple[Any, list[Any]]:
    """The case as a function of the arrays that have gradients, and these arrays. All its arrays are JAX's."""
    function = of_values(pj, case, map_arrays(jnp.asarray, arguments), case.options(dtype))
    return lambda *values: as_tuple(function(*values)), [jnp.asarray(v) for v in differentiable(case, arguments)]


@rows(F16, BF16, F32, F64)
@pytest.mark.usefixtures("x64")
def test_is_our_function_and_vjp(case: Any, dtype: Any) -> None:
    """Results and gradients have the bits and dtypes of posenc, and in jit."""
    arguments = floats(case, case.arguments(max(5, case.least), dtype))
    grads = tuple(g.astype(dtype) for g in cotangents(case, arguments))
    expected, plain = case.vjp(grads, arguments), case.call(arguments, **case.options(dtype))
    function, values = traced(case, arguments, dtype)
    for transformed in (function, jax.jit(function)):
        results, vjp = jax.vjp(transformed, *values)
        for result, one in zip(results, plain, strict=True):
            found = pairs(np.asarray(result)) if jnp.iscomplexobj(result) else np.asarray(result)
            assert found.dtype == one.dtype
            assert np.array_equal(found, one, equal_nan=True)
        given = tuple(
            jnp.asarray(g[..., 0].astype(F64) - 1j * g[..., 1].astype(F64) if jnp.iscomplexobj(r) else g, r.dtype)
            for g, r in zip(grads, results, strict=True)
        )  # JAX's cotangents of complex numbers are conjugates of ours
        for name, value, found in zip(case.gradients, values, vjp(given), strict=True):
            assert found.dtype == value.dtype
            assert np.array_equal(np.asarray(found), expected[name].astype(value.dtype)), name


@pytest.mark.parametrize("case", ROWS)
@pytest.mark.usefixtures("x64")
def test_shapes_are_found_whatever_the_memory_holds(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without kernels, results and intermediate arrays are not written, and casting their contents gives no warning."""
    empty = np.empty

    def full(shape: Any, dtype: Any = F64, **options: Any) -> np.ndarray:
        array = empty(shape, dtype, **options)
        if array.dtype.kind not in "biu":
            with np.errstate(over="ignore"):
                array[...] = [np.nan, np.inf, -1e300][array.size % 3]
        return array

    monkeypatch.setattr(np, "empty", full)
    arguments = floats(case, case.arguments(max(5, case.least), F32))
    function, values = traced(case, arguments, F32)
    shapes = jax.eval_shape(function, *values)
    monkeypatch.undo()
    results = as_tuple(through(pj, case, arguments, case.options(F32)))
    assert [(one.shape, one.dtype) for one in shapes] == [(one.shape, one.dtype) for one in results]


def qkv(heads: int = 4, groups: int = 2, n: int = 6, dtype: Any = F32) -> list[Any]:
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.standard_normal((h, n, 3)), dtype) for h in (heads, groups, groups)]


def slopes_and_table() -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    return jnp.asarray(rng.uniform(0, 1, 4), jnp.float32), jnp.asarray(rng.standard_normal((8, 4)), jnp.float32)


def loss(q: Any, k: Any, v: Any, slopes: Any, table: Any) -> Any:
    bias = [pj.alibi(slopes), posenc.sandwich(4, 6), pj.t5(table, max_distance=9, bidirectional=False)]
    return (pj.attention(q, k, v, bias=bias, causal=True) ** 2).sum()


def test_a_trainable_bias() -> None:
    """Transformations agree with each other bit for bit."""
    arrays = (*qkv(), *slopes_and_table())
    value, found = jax.value_and_grad(loss, range(5))(*arrays)
    others = jax.jit(jax.value_and_grad(loss, range(5))), jax.value_and_grad(jax.checkpoint(loss), range(5))
    for other in others:
        again, gradients = other(*arrays)
        assert np.isclose(again, value, rtol=2.0**-20)  # XLA may sum in another order
        assert all(np.array_equal(a, b) for a, b in zip(found, gradients, strict=True))


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
def test_one_forward_and_one_backward_call(transform: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    arrays = (*qkv(), *slopes_and_table())
    gradient = transform(jax.value_and_grad(loss, range(5)))
    jax.block_until_ready(gradient(*arrays))  # shapes are found by calls that run no kernel
    for name in ("attention", "attention_vjp"):
        row = getattr(_core, name)
        counted = lambda name=name, row=row, **operands: calls.append(name) or row(**operands)  # noqa: E731
        monkeypatch.setattr(_core, name, counted)
    jax.block_until_ready(gradient(*arrays))
    assert calls == ["attention", "attention_vjp"]


def test_gradient_of_lse() -> None:
    """The lse alone is differentiated; its gradient by q is the mean of the keys."""
    q, k, v = qkv(2, 2)
    found = jax.grad(lambda q: pj.attention(q, k, v, scale=1.0, return_lse=True)[1].sum())(q)
    weights = jax.nn.softmax(jnp.einsum("hnd,hmd->hnm", q, k), axis=-1)
    assert np.allclose(found, weights @ k, rtol=0, atol=1e-6)  # six products of size 2, a few ulp each


def test_operator_is_a_pytree() -> None:
    q, k, v = qkv()
    _, table = slopes_and_table()
    bias = pj.tupe(q, jnp.concatenate([k, k])) + pj.t5(table, max_distance=9, bidirectional=True)
    assert len(jax.tree.leaves(bias)) == 3
    gradients = jax.jit(jax.grad(lambda bias: (pj.attention(q, k, v, bias=bias) ** 2).sum()))(bias)
    assert isinstance(gradients, pj.Operator)
    stepped = jax.tree.map(lambda value, gradient: value - 0.1 * gradient, bias, gradients)
    assert not np.array_equal(stepped.arguments["parts"][1].arguments["table"], table)
    assert np.array_equal(stepped.matrix(6), stepped.bias.matrix(6))
    assert (
        repr(pj.t5(table, max_distance=9, bidirectional=True))
        == "<posenc_bridges.jax.t5: table (8, 4), max_distance 9, bidirectional True>"
    )
    assert len(jax.tree.leaves(pj.alibi([0.5, 0.25]))) == 1
    assert jax.tree.structure(pj.t5(table, bidirectional=True)) != jax.tree.structure(
        pj.t5(table, max_distance=9, bidirectional=True)
    )


def test_vmap() -> None:
    """A call for each row, whatever axis has the rows; also of the gradient, and of an array inside a bias."""
    q, k, v = qkv(4, 4)
    stacked = jnp.stack([q, 2 * q, -q], axis=1)
    slopes = jnp.asarray([[0.5, 0.1, 0.2, 0.3], [1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 0.0]])

    def of_one(q: Any, slopes: Any) -> Any:
        return jax.grad(lambda q, slopes: pj.attention(q, k, v, bias=pj.alibi(slopes)).sum(), (0, 1))(q, slopes)

    found = jax.jit(jax.vmap(of_one, in_axes=(1, 0)))(stacked, slopes)
    for row in range(3):
        expected = of_one(stacked[:, row], slopes[row])
        assert all(np.array_equal(a[row], b) for a, b in zip(found, expected, strict=True))


def dropped(seed: Any, *arrays: Any) -> Any:
    return (pj.attention(*arrays, dropout=0.5, seed=seed) ** 2).sum()


@pytest.mark.parametrize("as_key", [jax.random.key, jax.random.PRNGKey])
def test_dropout_draws_by_a_key(as_key: Any) -> None:
    """A key gives the seed of two of its random numbers, and an integer is the seed itself; both may be traced."""
    arrays, keys = qkv(), jax.random.split(as_key(1))
    gradient = jax.grad(dropped, (1, 2, 3))
    traced, mapped = jax.jit(gradient), jax.vmap(gradient, (0, None, None, None))(keys, *arrays)
    for row, key in enumerate(keys):
        high, low = np.asarray(jax.random.bits(key, (2,), "uint32")).tolist()
        expected = gradient(high << 32 | low, *arrays)
        for found in (gradient(key, *arrays), traced(key, *arrays), [one[row] for one in mapped]):
            assert all(map(np.array_equal, found, expected))
    assert not np.array_equal(mapped[0][0], mapped[0][1])
    assert all(map(np.array_equal, traced(7, *arrays), gradient(7, *arrays)))
    with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match="attention: seed is -1; expected at least 0"):
        jax.block_until_ready(traced(-1, *arrays))


SHARDED = """
import jax, jax.numpy as jnp, numpy as np, pytest
import posenc_bridges.jax as pj
P, key = jax.sharding.PartitionSpec, jax.random.key(1)
mesh = jax.make_mesh((2,), ("device",), axis_types=(jax.sharding.AxisType.Auto,))
q, k, v = jax.random.normal(jax.random.key(0), (3, 4, 6, 3))
arrays, specs = (q, jnp.arange(4.0), k[:1], v[:1]), (P("device"), P("device"), P(), P())
def attend(device, q, slopes, k, v):
    seed = jax.random.fold_in(key, device)
    out, lse = pj.attention(q, k, v, bias=pj.alibi(slopes), dropout=0.5, seed=seed, return_lse=True)
    return out + lse[..., None]
def on_devices(*arrays, out=P("device")):
    own = lambda *parts: attend(jax.lax.axis_index("device"), *parts)
    return jax.shard_map(own, mesh=mesh, in_specs=specs, out_specs=out)(*arrays)
def in_turn(q, slopes, k, v):
    return jnp.concatenate([attend(i, q[2 * i :][:2], slopes[2 * i :][:2], k, v) for i in range(2)])
def result(function):
    return jax.jit(jax.value_and_grad(lambda *x: (function(*x) ** 2).sum(), range(4)))(*arrays)
expected = result(in_turn)
jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-5), result(on_devices), expected)
with pytest.raises(ValueError, match="out_specs"):
    jax.jit(lambda *x: on_devices(*x, out=P()))(*arrays)
names = pj._UNDOCUMENTED
for gone in names:
    jax.clear_caches()
    pj._UNDOCUMENTED = [name.replace(gone, "gone") for name in names]
    jax.tree.map(np.testing.assert_array_equal, result(in_turn), expected)
    with pytest.raises(ValueError, match="manual axis types do not match"):
        result(on_devices)
"""


@pytest.mark.skipif(not hasattr(jax.sharding, "ManualAxisType"), reason="JAX is older than 0.10")
def test_shard_map(run_python: Any) -> None:
    """Gradients of arrays that all devices hold are summed over the devices; results vary where an argument does.

    Without a name that JAX does not document, JAX refuses the call in `shard_map`, and all others work.
    """
    done = run_python(SHARDED, XLA_FLAGS="--xla_force_host_platform_device_count=2")
    assert done.returncode == 0, done.stderr


def test_frequencies_that_are_trained() -> None:
    """RopeFrequencies is a pytree with one leaf."""
    x = jnp.asarray(np.random.default_rng(0).standard_normal((6, 8)), jnp.float32)
    w = posenc.RopeFrequencies(jnp.asarray([1.0, 0.5, 0.25, 0.125]), 1.25, 1.0, "half")
    for loss in (lambda w: pj.rope(x, 6, w).sum(), jax.jit(lambda w: pj.rope(x, 6, w).sum())):
        found = jax.grad(loss)(w)
        assert (found.attention_factor, found.layout) == (1.25, "half")
        wanted = posenc.rope_vjp(np.ones((6, 8)), np.asarray(x), 6, replace(w, inv_freq=np.asarray(w.inv_freq)))
        np.testing.assert_array_equal(found.inv_freq, wanted.frequencies.astype(np.float32))
    assert len(jax.tree.leaves(w)) == 1


def test_without_x64() -> None:
    """Frequencies of NumPy stay float64; results and gradients of positions are float32."""
    (x, *_), w = qkv(), posenc.rope_frequencies(2).inv_freq * 0.1
    positions = jnp.asarray([1e4, 1e5, 1e6, 1e7, 2.5, 3.0], jnp.float32)
    options: dict[str, Any] = {"layout": "half", "rotary_dim": 2}
    rotated = jax.jit(lambda x: pj.rope(x, positions, w, **options))(x)
    assert rotated.dtype == jnp.float32
    assert np.array_equal(rotated, posenc.rope(np.asarray(x), np.asarray(positions), w, **options))
    found = jax.grad(lambda p: pj.rope(x, p, w, **options).sum())(positions)
    expected = posenc.rope_vjp(np.ones(x.shape, F32), np.asarray(x), np.asarray(positions), w, **options).positions
    assert found.dtype == jnp.float32
    assert np.array_equal(found, expected.astype(F32))
    assert pj.rope(np.ones((6, 2)), 6, w, layout="half").dtype == jnp.float32
    assert pj.sinusoidal(4, 8, dtype=jnp.float64).dtype == jnp.float32
    assert pj.sinusoidal(4, 8, dtype=jnp.bfloat16).dtype == jnp.bfloat16
    assert pj.complex_order(jnp.ones((2, 3)), np.ones(3), 2).dtype == jnp.complex64


def test_results_share_no_memory_with_arguments() -> None:
    p = np.ones((2, 3), F32)
    result = pj.combine(np.zeros((2, 3), F32), p, mode="replace")
    p[:] = 5.0
    assert np.array_equal(result, np.ones((2, 3)))


def test_large_arrays_in_jit() -> None:
    """The callback of an array that JAX copies in the background does not wait for itself."""
    x = jnp.ones((64, 2048, 64))
    assert jax.jit(lambda x: pj.rope(2 * x, 2048, posenc.rope_frequencies(64), layout="half"))(x).shape == x.shape


# ---- errors ----


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
def test_arguments_without_gradient(transform: Any) -> None:
    q, k, v = qkv()
    message = "^attention: {} is differentiated; expected a constant, because it has no gradient"
    with pytest.raises(TypeError, match=message.format("softcap")):
        jax.grad(transform(lambda s: pj.attention(q, k, v, softcap=s).sum()))(0.5)
    with pytest.raises(TypeError, match=message.format("q_positions")):
        jax.grad(transform(lambda p: pj.attention(q, k, v, q_positions=p, causal=True).sum()))(jnp.arange(6.0))
    assert transform(lambda s: pj.attention(q, k, v, softcap=s))(0.5).shape == q.shape  # traced but not differentiated


def test_only_first_derivatives() -> None:
    arrays = (*qkv(), *slopes_and_table())
    message = "^attention: its gradient is differentiated; expected first derivatives, in reverse mode"
    for second in (jax.grad(lambda *given: jax.grad(loss)(*given).sum()), jax.jit(jax.hessian(loss))):
        with pytest.raises(NotImplementedError, match=message):
            second(*arrays)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(lambda q: loss(q, *arrays[1:]), arrays[:1], arrays[:1])


X = np.ones((6, 4), np.float32)
ERRORS: dict[str, tuple[Any, Any]] = {
    "^rope: out is unknown; ": (TypeError, lambda: rotated(X, 6, out=X)),
    "^rope: positions has length 5; expected 6": (ValueError, lambda: rotated(X, 5)),
    "rope: positions has length 5; expected 6": (ValueError, lambda: jax.jit(lambda x: rotated(x, 5))(X)),
    "Abstract tracer": (jax.errors.ConcretizationTypeError, lambda: jax.jit(lambda n: rotated(X, n))(6)),
    "^attention: q has dtype complex64; expected ": (TypeError, lambda: pj.attention(X[None] + 0j, X[None], X[None])),
    "^learned: positions has id 9; expected ": (IndexError, lambda: pj.learned(jnp.ones((4, 8)), jnp.asarray([9]))),
    "learned: positions has id 9; expected ": (  # that of the callback
        jax.errors.JaxRuntimeError,
        lambda: jax.block_until_ready(jax.jit(pj.learned)(X, jnp.asarray([9]))),
    ),
    "^alibi: slopes has nan; expected ": (ValueError, lambda: pj.alibi(jnp.asarray([jnp.nan]))),
    "^shaw: rel_k has 6 rows; expected": (
        ValueError,
        lambda: jax.jit(lambda t: pj.shaw(t).logits(X[None], X[None]))(X),
    ),
    "^alibi: missing a required argument: 'slopes'$": (TypeError, lambda: pj.alibi()),
    "^attention: bias has type ndarray; expected a": (TypeError, lambda: pj.attention(*[X[None]] * 3, bias=X)),
}


def rotated(x: Any, positions: Any, **options: Any) -> Any:
    return pj.rope(x, positions, [1.0, 2.0], layout="half", **options)


@pytest.mark.parametrize("message", ERRORS)
def test_errors(message: str) -> None:
    error, call = ERRORS[message]
    with pytest.raises(error, match=message):
        call()


def test_shapes_are_found_without_functions_of_the_user() -> None:
    """A function of the user may call posenc and keep the result, so it must not run while kernels do not."""
    q = jnp.ones((1, 4, 4))
    for module in (pj, posenc):
        kept: list[Any] = []

        def function(rel: Any, width: Any, kept: list[Any] = kept) -> Any:
            if not kept:
                del [np.full((8, 4), 7.7, np.float32) for _ in range(9)][:]  # memory that the result may get
                kept.append(posenc.sinusoidal(8, 4))
            return -np.abs(np.asarray(rel))[None] * kept[0][1, 1]

        bias = module.distance_function(function, 1, arrays=[np.ones(2)], vjp=lambda grad, rel, width: (width,))
        for given in (bias, module.alibi([0.5]) + bias, UserList([bias]) if module is posenc else [bias]):
            shape = jax.eval_shape(lambda q, bias=given: pj.attention(q, q, q, bias=bias), q).shape
            assert shape == q.shape
        assert all(np.array_equal(one, posenc.sinusoidal(8, 4)) for one in kept)


def test_constants_are_those_of_the_traced_call() -> None:
    """JAX runs the call later, so posenc copies the arrays that the caller may change."""
    q = jnp.asarray(np.random.default_rng(0).standard_normal((1, 6, 4)), np.float32)
    keep = np.tri(6, dtype=bool)
    out, vjp = jax.vjp(jax.jit(lambda q: pj.attention(q, q, q, keep=keep)), q)
    expected = vjp(jnp.ones_like(out))[0]
    keep[...] = True
    assert np.array_equal(vjp(jnp.ones_like(out))[0], expected)
