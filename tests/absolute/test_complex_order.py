"""Complex order: phases at far positions, shared frequencies, and refused angles."""

import numpy as np
import pytest
from cases import DTYPES
from cases.layouts import same_bits

import posenc
from posenc import reference


def test_phases_are_added_exactly():
    """A phase counts to the last bit at position 2**52, where frequency * position is within 2**-20 of a whole number
    of turns: the sum with the phase is as exact as the angle."""
    where = np.array([0.0, 2.0**31, 2.0**52 + 1])
    w, theta = np.array([[0.25], [0.5], [1.0]]), np.array([[1e-3], [-7.5], [3.0]])
    mpmath = pytest.importorskip("mpmath", reason="mpmath is not installed")
    with mpmath.workprec(200):
        exact = [np.vectorize(mpmath.mpf, otypes=[object])(a) for a in (w, where, theta)]
        wanted = reference.complex_order(np.ones((3, 1)), *exact[:2], phase=exact[2]).astype(complex)
    for name in posenc.runtime.isas():
        with posenc.runtime.use_isa(name):
            result = posenc.complex_order(np.ones((3, 1)), w, where, phase=theta)
            assert np.abs(result[:2] - wanted[:2]).max() <= 4e-16  # the bound of sinusoidal below 2**31
            assert np.abs(result[2] - wanted[2]).max() <= 1e-12  # and below 2**53


def test_complex_order_dtypes(rng):
    for dtype in DTYPES:
        z = posenc.complex_order(np.ones((2, 3), dtype), np.ones(3), 2)
        assert z.dtype == (np.complex128 if dtype == np.float64 else np.complex64)
    amplitude = rng.standard_normal((4, 3)).astype(np.float32)
    gradient = posenc.complex_order_vjp(np.ones((4, 3)), amplitude, np.ones(3), 4)
    assert gradient.phase is None
    assert gradient.amplitude.dtype == np.float32
    assert np.abs(gradient.amplitude - np.cos(np.arange(4.0))[:, None]).max() <= 1e-7  # a real cotangent is real


def test_sharing_patterns_agree(rng):
    """A frequency for each word or for each dimension gives the bits of the same frequencies written out."""
    amplitude, where = rng.standard_normal((2, 5, 300)), rng.integers(-99, 99, (2, 5))
    for shape in [(2, 5, 1), (300,), (1, 1, 300), (5, 1), ()]:
        w, theta = rng.standard_normal(shape), rng.standard_normal(shape)
        shared = posenc.complex_order(amplitude, w, where, phase=theta)
        whole = [np.broadcast_to(a, amplitude.shape).copy() for a in (w, theta)]
        assert same_bits(shared, posenc.complex_order(amplitude, whole[0], where, phase=whole[1]))
        assert posenc.complex_order_vjp(shared, amplitude, w, where, phase=theta).phase.shape == shape


def test_complex_order_refuses_angles_past_what_is_known():
    with pytest.raises(ValueError, match=r"complex_order: frequency has 1e\+30; expected at most 2\*\*56 radians"):
        posenc.complex_order(np.ones((2, 1)), [1e30], 2)
    with pytest.raises(ValueError, match="complex_order: phase has"):
        posenc.complex_order(np.ones((2, 1)), [1.0], 2, phase=[1e30])
    with pytest.raises(ValueError, match="complex_order: frequency has shape"):
        posenc.complex_order(np.ones((2, 1)), np.ones((2, 2)), 2)


def test_entries_of_words(rng):
    r, omega, theta = rng.standard_normal((3, 10, 8))
    words = np.array([3, 1, 4, 1, 5, 9])
    z = posenc.complex_order(r[words], omega[words], 6, phase=theta[words])
    assert np.abs(z - r[words] * np.exp(1j * (omega[words] * np.arange(6)[:, None] + theta[words]))).max() <= 1e-14
