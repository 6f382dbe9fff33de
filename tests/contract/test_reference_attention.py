"""posenc.reference: operators on the logits, their sums and positions, and attention in every form of its arguments."""

import numpy as np
import pytest
from cases import CASES, F64
from cases.attention import AttentionCase

import posenc
from posenc import reference

ATTENTION = [case for case in CASES if isinstance(case, AttentionCase) and "bias" in case.arguments(5)]
EPS = np.finfo(F64).eps


@pytest.mark.parametrize("case", ATTENTION, ids=lambda case: case.name)
def test_attention_takes_operators_of_posenc(case):
    """An operator of posenc is converted by its name, arrays, options and positions."""
    given = case.arguments(9)
    twin = getattr(reference, case.function)
    found, wanted = twin(**case.with_operators(given)), twin(**case.with_operators(given, reference))
    for one, other in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, wanted)), strict=True):
        assert np.array_equal(one, other)


def test_two_axes_are_one_head(rng):
    q, k, v, table = *rng.standard_normal((3, 7, 4)), rng.standard_normal((5, 4))
    options = {"bias": reference.shaw(table) + reference.alibi([0.5]), "causal": True, "return_lse": True}
    found = reference.attention(q, k, v, sink=0.5, **options)
    wanted = reference.attention(q[None], k[None], v[None], sink=[0.5], **options)
    assert all(np.array_equal(one, other[0]) for one, other in zip(found, wanted, strict=True))
    assert np.array_equal(reference.attention_weights(q, k), reference.attention_weights(q[None], k[None])[0])
    assert np.array_equal(reference.shaw(table).logits(q, k), reference.shaw(table).logits(q[None], k[None])[0])
    gaussian = reference.distance_function(lambda rel: -(rel**2))
    assert np.array_equal(gaussian.matrix(3), reference.distance_function(lambda rel: -(rel[None] ** 2), 1).matrix(3))


@pytest.mark.parametrize("axis", [-1, 0])
def test_codes_are_those_of_posenc(axis, rng):
    """In float64, because posenc divides numbers of float32 in float32."""
    x = rng.standard_normal((3, 7, 8))
    ours, twin = posenc.quantize(x, axis=axis), reference.quantize(x, axis=axis)
    assert np.array_equal(ours.codes, twin.codes)
    assert np.array_equal(ours.scale, twin.scale)
    assert np.abs(twin.dequantize() - ours.dequantize()).max() <= 2.0**-24 * np.abs(x).max()


def test_attention_takes_codes_of_either(rng):
    q, k, v = rng.standard_normal((3, 2, 7, 8))
    ours, twins = ([quantize(x) for x in (k, v)] for quantize in (posenc.quantize, reference.quantize))
    wanted = reference.attention(q, *(x.dequantize() for x in twins))
    for pair in (ours, twins):
        assert np.array_equal(reference.attention(q, *pair), wanted)
    weights = [reference.attention_weights(q, one) for one in (ours[0], twins[0], twins[0].dequantize())]
    assert all(np.array_equal(one, weights[-1]) for one in weights)
