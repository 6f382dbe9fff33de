"""posenc_bridges.autograd: every gradient of every Case on a tape, against the vjp and against central differences."""

from dataclasses import replace

import numpy as np
import pytest
from bridge_cases import differentiable, floats, of_values, rows
from cases import F32, F64, as_tuple
from cases.complex_order import pairs
from cases.deviation import cotangents

import posenc

pytest.importorskip("autograd", reason="needs HIPS autograd: pip install autograd")

import autograd.numpy as anp
from autograd import grad, make_jvp
from autograd.core import make_vjp
from autograd.test_util import check_grads

from posenc import _core
from posenc_bridges import autograd as pa


def cotangent(case, grads):
    """The cotangent in the convention of autograd: the conjugate for a complex number."""
    if case.function == "complex_order":
        return grads[0][..., 0] - 1j * grads[0][..., 1]
    return grads[0] if len(grads) == 1 else tuple(grads)


@rows(F32, F64)
def test_is_our_vjp(case, dtype):
    """Gradients on a tape have the bits and dtypes of the vjp."""
    arguments = floats(case, case.arguments(5, dtype))
    grads = tuple(g.astype(dtype) for g in cotangents(case, arguments))
    expected, options, values = case.vjp(grads, arguments), case.options(F64), differentiable(case, arguments)
    function = of_values(pa, case, arguments, options)
    vjp, result = make_vjp(lambda values: function(*values), values)
    for part, plain in zip(as_tuple(result), case.call(arguments, **options), strict=True):
        assert np.array_equal(pairs(part) if np.iscomplexobj(part) else part, plain, equal_nan=True)
    for name, value, found in zip(case.gradients, values, vjp(cotangent(case, grads)), strict=True):
        assert type(found) is np.ndarray
        assert found.shape == expected[name].shape
        assert found.dtype == value.dtype
        assert np.array_equal(found, expected[name]), name


def qkv(dtype=F64, heads=4, groups=2, n=6):
    rng = np.random.default_rng(0)
    return [rng.standard_normal((h, n, 3)).astype(dtype) for h in (heads, groups, groups)]


def test_one_backward_for_q_k_v_and_operators(monkeypatch):
    calls = []
    row = _core.attention_vjp
    monkeypatch.setattr(_core, "attention_vjp", lambda *name, **given: (calls.append(1), row(*name, **given))[1])
    q, k, v = qkv(F32)

    def loss(q, k, v, slopes, r1):
        bias = pa.alibi(slopes), pa.kerple_log(r1, np.ones(4))
        return anp.sum(pa.attention(q, k, v, bias=bias, causal=True) ** 2)

    gradients = grad(loss, (0, 1, 2, 3, 4))(q, k, v, np.ones(4, np.float32), np.ones(4))
    assert len(calls) == 1
    assert [g.dtype for g in gradients] == [F32, F32, F32, F32, F64]


def test_numbers_and_tables():
    """Python floats, RopeFrequencies and tables are traced."""
    network = ([[1.0], [2.0]], [0.1, -0.2], [[1.0, -1.0]], [0.0])
    d_c = grad(lambda c: anp.sum(pa.fire(*network, c, 2.0).matrix(4, dtype=np.float64)))(0.3)
    assert isinstance(d_c, float)
    x = np.random.default_rng(0).standard_normal((5, 4))
    scaled = posenc.RopeFrequencies(np.array([1.0, 0.1]), 1.5, 1.0)

    def of_frequencies(w):
        return anp.sum(pa.rope(x, 5, replace(scaled, inv_freq=w), layout="half") ** 3)

    wanted = posenc.rope_vjp(3 * posenc.rope(x, 5, scaled, layout="half") ** 2, x, 5, scaled, layout="half")
    assert np.array_equal(grad(of_frequencies)(scaled.inv_freq), wanted.frequencies)
    cos, sin = posenc.rope_table(5, scaled)
    found = grad(lambda *table: anp.sum(pa.rope_by_table(x, *table, layout="half")), (0, 1))(cos, sin)
    wanted = posenc.rope_by_table_vjp(np.ones_like(x), x, cos, sin, layout="half")
    assert np.array_equal(found[0], wanted.cos)
    assert np.array_equal(found[1], wanted.sin)


@pytest.mark.parametrize("container", [tuple, list])
def test_distance_functions_without_a_vjp(container):
    """A function of autograd.numpy is differentiated as it is."""
    q, k, v = qkv()

    def loss(slopes, c):
        bias = pa.distance_function(
            lambda rel, s, c: -anp.outer(s, anp.log1p(c * anp.abs(rel))), 4, arrays=container([slopes, c])
        )
        return anp.sum(pa.attention(q, k, v, bias=bias, align="end") ** 2)

    slopes, c = np.linspace(0.2, 1, 4), np.array(0.7)
    check_grads(loss, modes=["rev"], order=1)(slopes, c)


def test_unused_table_has_gradient_zero():
    q, k, v = qkv()

    def loss(rel_q):
        return anp.sum(pa.attention(q, k, v, bias=pa.deberta(rel_q, np.ones((4, 6, 3)), terms=("c2p",))))

    assert not grad(loss)(np.ones((4, 6, 3))).any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: pa.attention(np.ones((1, 2, 3)), *np.ones((2, 1, 2, 3)), scale=x), "attention: scale has a traced"),
        (lambda x: pa.sinusoidal(3, 4, scale=x), "sinusoidal: scale has a traced"),
        (
            lambda x: pa.t5(np.ones((32, 1)), max_distance=x, bidirectional=True),
            "t5: max_distance has type|t5: max_distance has a traced",
        ),
        (lambda x: pa.alibi([1.0]).matrix(2, q_positions=x * np.arange(2.0)), "matrix: q_positions has a traced"),
        (lambda x: pa.attention(*np.ones((3, 1, 2, 3)) * x, out=np.ones((1, 2, 3))), "attention: out is unknown"),
        (lambda x: pa.alibi(x * np.ones(2), slope=1), "alibi: slope is unknown; expected slopes"),
        (lambda x: pa.rope(x * np.ones((2, 2)), [1.0, x], [1.0], layout="half"), "rope: positions has a traced"),
        (lambda x: pa.alibi(x * np.ones(2)) + 1, "unsupported operand"),
        (lambda x: 1 + pa.alibi(x * np.ones(2)), "unsupported operand"),
        (lambda x: pa.alibi(x * np.ones((2, 2))).matrix(3), "alibi: slopes has"),
    ],
)
def test_refused(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        grad(lambda x: anp.sum(call(x)))(2.0)


def test_second_derivatives_and_forward_mode_are_refused():
    def function(s):
        return anp.sum(pa.alibi(s).matrix(3, dtype=np.float64) ** 2)

    slopes = np.ones(2)
    with pytest.raises(NotImplementedError, match="first derivatives only"):
        grad(lambda s: anp.sum(grad(function)(s)))(slopes)
    with pytest.raises(NotImplementedError):
        make_jvp(function)(slopes)(slopes)


def test_sum_of_operators_at_positions_of_their_own():
    np.random.seed(0)  # noqa: NPY002
    y, x = np.divmod(np.arange(6), 3)
    q, k, v = qkv()

    def function(rows, columns, rel_k):
        by_row = pa.alibi(rows).at(q_positions=y, k_positions=y)
        by_column = pa.alibi(columns).at(q_positions=x, k_positions=x)
        bias = sum([by_row, by_column]) + posenc.sandwich(4, 6) + pa.shaw(rel_k)
        return pa.attention(q, k, v, bias=posenc.alibi(np.ones(4)) + bias)

    slopes = np.linspace(0.1, 1, 8).reshape(2, 4)
    check_grads(function, modes=["rev"], order=1)(*slopes, np.linspace(-1, 1, 9).reshape(3, 3))
    check_grads(lambda s: (pa.alibi(s) + pa.alibi(s)).matrix(3, dtype=np.float64), modes=["rev"], order=1)(slopes[0])


def test_arrays_may_change_before_the_gradient():
    q = np.random.default_rng(0).standard_normal((1, 6, 4))
    gradients = []
    for is_changed in (False, True):
        keep, slopes = np.tri(6, dtype=bool), np.ones(1)
        bias = pa.alibi(slopes)
        vjp, out = make_vjp(lambda q, keep=keep, bias=bias: pa.attention(q, q, q, keep=keep, bias=bias), q)
        if is_changed:
            keep[...], slopes[...] = True, 3
        gradients.append(vjp(np.ones_like(out)))
    assert np.array_equal(*gradients)
