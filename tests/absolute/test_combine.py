"""Merging an encoding with the data: zeros, infinities, and dtypes of gradients."""

import numpy as np
import pytest
from cases import DTYPES
from cases.layouts import same_bits

import posenc


def test_a_product_with_a_sinusoid_erases_half_of_position_0(rng):
    x, p = rng.standard_normal((3, 8)), posenc.sinusoidal(3, 8, dtype=np.float64)
    product = posenc.combine(x, p, mode="mul")
    assert not product[0, ::2].any()
    assert product[0, 1::2].tolist() == x[0, 1::2].tolist()
    kept = posenc.combine(x, p, mode="mul1p")
    assert kept[0, ::2].tolist() == x[0, ::2].tolist()
    assert kept[0, 1::2].tolist() == (2 * x[0, 1::2]).tolist()
    assert same_bits(posenc.combine(x, np.zeros(8), mode="mul1p"), x)


def test_infinite_words_stay_infinite():
    """mul1p computes x (1 + p); x + x p would be NaN."""
    assert posenc.combine([np.inf], [-0.5], mode="mul1p").tolist() == [np.inf]


@pytest.mark.parametrize("mode", ["add", "mul", "mul1p", "concat", "replace"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_have_the_dtypes_of_the_arguments(mode, dtype):
    """The cotangent may have any dtype, also the other one of 16 bits."""
    x, p = np.ones((2, 3, 4), dtype), np.ones((3, 4), dtype)
    for grad_dtype in DTYPES:
        grad = np.full((2, 3, 8 if mode == "concat" else 4), 0.5, grad_dtype)
        gradient = posenc.combine_vjp(grad, x, p, mode=mode)
        assert gradient.x.dtype == gradient.p.dtype == dtype
        assert np.all(gradient.p == 1)


def test_the_gradient_of_p_in_the_shape_of_x_is_not_summed():
    x, p, grad = np.arange(6.0).reshape(2, 3), np.ones((2, 3)), np.full((2, 3), 2.0)
    np.testing.assert_array_equal(posenc.combine_vjp(grad, x, p, mode="mul").p, 2 * x)
