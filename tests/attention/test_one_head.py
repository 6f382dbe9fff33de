"""q, k and v without an axis of heads are one head: the bits of a call with an axis of length 1."""

import numpy as np
import pytest
from cases import F16, F32, F64
from cases.layouts import same_bits

import posenc


def one_head(dtype=F64, n=5, m=7):
    rng = np.random.default_rng(0)
    return [rng.standard_normal((length, width)).astype(dtype) for length, width in ((n, 8), (m, 8), (m, 4))]


def options():
    rng = np.random.default_rng(1)
    keep = rng.random((5, 7)) < 0.8
    yield {}, {}
    yield {"keep": keep, "bias": posenc.alibi([0.5]), "align": "end", "causal": True}, {}
    yield {"sink": 0.5}, {"sink": [0.5]}
    yield {"sink": np.array([0.5], F32)}, {}
    yield {"scale": np.array([0.25])}, {"scale": 0.25}
    yield {"scale": [-0.5], "softcap": 2.0}, {"scale": -0.5}
    yield {"bias": (posenc.shaw(rng.standard_normal((5, 8))), posenc.dense(keep * 1.0)), "align": "start"}, {}


@pytest.mark.parametrize("dtype", [F16, F64])
@pytest.mark.parametrize(("given", "with_heads"), [*options()])
def test_bits_are_those_of_an_axis_of_one_head(given, with_heads, dtype):
    arrays = one_head(dtype)
    if dtype == F16 and "scale" in given:  # a number, unlike an array, allows 16-bit products
        with_heads = {}
    heads, others = [array[None] for array in arrays], {**given, **with_heads}
    out, lse = posenc.attention(*arrays, return_lse=True, **given)
    expected = posenc.attention(*heads, return_lse=True, **others)
    assert (out.shape, lse.shape) == ((5, 4), (5,))
    assert same_bits(out, expected[0][0])
    assert same_bits(lse, expected[1][0])
    buffer = np.empty_like(out)
    assert posenc.attention(*arrays, **given, out=buffer) is buffer
    assert same_bits(buffer, out)
    weights = posenc.attention_weights(*arrays[:2], **given)
    assert same_bits(weights, posenc.attention_weights(*heads[:2], **others)[0])

    found = posenc.attention_vjp(out, *arrays, out=out, lse=lse, grad_lse=lse, **given)
    wanted = posenc.attention_vjp(out[None], *heads, out=out[None], lse=lse[None], grad_lse=lse[None], **others)
    for one, other in zip(found[:3], wanted[:3], strict=True):
        assert same_bits(one, other[0])
    for one, other in zip(found.bias, wanted.bias, strict=True):
        assert all(a is b is None or same_bits(a, b) for a, b in zip(one, other, strict=True))
    if "sink" in given:
        assert found.sink.shape == np.shape(given["sink"])
        assert found.sink.ravel() == wanted.sink


def content_operators():
    rng = np.random.default_rng(2)
    table, rows, vector = rng.standard_normal((3, 5, 8)), rng.standard_normal((2, 1, 4, 8)), np.ones((1, 8))
    yield posenc.shaw(table[0], table[1])
    yield posenc.transformer_xl(table[:1], vector, -vector)
    yield posenc.deberta(*rows)
    yield posenc.cope(table[0])
    yield posenc.shaw(table[0]) + posenc.deberta(*rows).at(q_positions=np.arange(5), k_positions=np.arange(7))


@pytest.mark.parametrize("dtype", [F16, F64])
@pytest.mark.parametrize("bias", [*content_operators()], ids=lambda bias: bias.name)
def test_logits_are_those_of_an_axis_of_one_head(bias, dtype):
    q, k, _ = one_head(dtype)
    logits, expected = bias.logits(q, k), bias.logits(q[None], k[None])
    assert logits.shape == (5, 7)
    assert same_bits(logits, expected[0])
    buffer = np.empty_like(logits)
    assert bias.logits(q, k, out=buffer) is buffer
    assert same_bits(buffer, logits)

    found, wanted = bias.logits_vjp(logits, q, k), bias.logits_vjp(expected, q[None], k[None])
    assert same_bits(found.q, wanted.q[0])
    assert same_bits(found.k, wanted.k[0])
    parts = [(found.bias, wanted.bias)] if len(bias.parts) == 1 else zip(found.bias, wanted.bias, strict=True)
    for one, other in parts:
        assert all(a is b is None or same_bits(a, b) for a, b in zip(one, other, strict=True))


def test_quantized_keys_and_values():
    q, k, v = one_head(F32)
    codes = posenc.quantize(k), posenc.quantize(v)
    heads = [posenc.Quantized(x.codes[None], x.scale[None]) for x in codes]
    assert same_bits(posenc.attention(q, *codes), posenc.attention(q[None], *heads)[0])


SHAW, ONES = posenc.shaw(np.ones((3, 8))), np.ones((5, 4))
ERRORS = [
    (lambda q, k, v: posenc.attention(q, k[None], v[None]), "attention: q has 2 axes; expected at least 3"),
    (lambda q, k, v: posenc.attention(q[None], k[None], v), "attention: v has 2 axes; expected at least 3"),
    (
        lambda q, k, v: posenc.attention_vjp(ONES, q, k, v, out=ONES),
        "attention_vjp: lse is None; expected an array, because out is passed, or both None",
    ),
    (
        lambda q, k, v: posenc.attention_vjp(ONES, q, k, v, lse=np.ones(5)),
        "attention_vjp: out is None; expected an array, because lse is passed, or both None",
    ),
    # it read the name of the array whose heads are counted, which is none
    (lambda q, k, v: posenc.attention(q, k, v, sink=np.ones(3)), "attention: sink has 3 heads; expected 1, as q"),
    (
        lambda q, k, v: SHAW.logits(q, k[None]),
        r"shaw.logits: q has 2 axes; expected at least 3, heads, sequence and channels, or 2 axes of q and k",
    ),
    (
        lambda q, k, v: SHAW.logits_vjp(np.ones((1, 5, 7)), q, k),
        r"shaw.logits_vjp: grad has shape \(1, 5, 7\); expected \(5, 7\)",
    ),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_errors(call, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call(*one_head())


def test_gradient_without_results_computes_them():
    q, k, v = (np.stack([array] * 2) for array in one_head(F32))
    given = {"bias": posenc.alibi([0.5, 0.25]), "align": "end", "sink": [0.0, 1.0], "dropout": 0.5, "seed": 0}
    out, lse = posenc.attention(q, k, v, return_lse=True, **given)
    found = posenc.attention_vjp(np.ones_like(out), q, k, v, **given)
    expected = posenc.attention_vjp(np.ones_like(out), q, k, v, out=out, lse=lse, **given)
    for one, other in zip(found[:3], expected[:3], strict=True):
        assert same_bits(one, other)
    assert same_bits(found.bias[0].slopes, expected.bias[0].slopes)
    assert same_bits(found.sink, expected.sink)
