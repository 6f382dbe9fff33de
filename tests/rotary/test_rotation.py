"""RoPE by its equations: products, pairs, and frequencies of longer contexts."""

import ml_dtypes
import numpy as np
import pytest

import posenc


def test_products_depend_on_the_offset(rng):
    q, k = rng.standard_normal((2, 1, 64))
    w = posenc.rope_frequencies(64)

    def at(x, p):
        return posenc.rope(x, [p], w, layout="interleaved")[0]

    reached = [at(q, m + 3) @ at(k, m) for m in (0, 1, 10, 1000, 10**6)]
    assert np.ptp(reached) <= 64 * 1e-15 * np.linalg.norm(q) * np.linalg.norm(k)
    assert np.array_equal(at(q, 0), q[0])
    assert np.linalg.norm(at(q, 12345)) == pytest.approx(np.linalg.norm(q), rel=1e-14)


def test_matrix_of_one_pair():
    theta, m = 0.25, 5
    c, s = np.cos(m * theta), np.sin(m * theta)
    assert np.abs(posenc.rope_matrix(m, [theta], layout="half") - [[c, -s], [s, c]]).max() <= 4e-16
    z = (0.6 + 0.8j) * np.exp(1j * m * theta)
    assert np.abs(posenc.rope([[0.6, 0.8]], [m], [theta], layout="half") - [z.real, z.imag]).max() <= 8e-16


def test_sum_over_pairs(rng):
    q, k = rng.standard_normal((2, 16))
    theta, m, n = posenc.rope_frequencies(16).inv_freq, 40, 11
    formula = ((q[0::2] + 1j * q[1::2]) * (k[0::2] - 1j * k[1::2]) * np.exp(1j * (m - n) * theta)).sum().real
    rotated = posenc.rope(np.stack([q, k]), [m, n], theta, layout="interleaved")
    assert rotated[0] @ rotated[1] == pytest.approx(formula, abs=1e-13)  # 16 products of size 4


def test_interpolation_divides_positions():
    x = np.random.default_rng(0).standard_normal((5, 8))
    w = posenc.rope_frequencies(8, rope_type="linear", factor=2.0)
    at = np.array([0, 1, 2, 1000, 1749])
    halved = posenc.rope(x, at / 2, posenc.rope_frequencies(8), layout="half")
    assert np.abs(posenc.rope(x, at, w, layout="half") - halved).max() <= 1e-12


def test_ntk_is_a_change_of_base():
    d, factor = 64, 8.0
    before = posenc.rope_frequencies(d).inv_freq
    after = posenc.rope_frequencies(d, rope_type="ntk", factor=factor).inv_freq
    assert after.shape == before.shape
    assert after[0] == before[0]
    assert after[-1] == pytest.approx(before[-1] / factor, rel=1e-13)
    bases = after[:-1] / after[1:]
    assert np.ptp(bases) <= 1e-13
    assert np.all(bases > before[:-1] / before[1:])


def test_the_rotation_error_of_bfloat16_positions(rng):
    w = posenc.rope_frequencies(128)
    assert w.inv_freq[0] * (5000 - 4992) == 8
    x = rng.standard_normal((4096, 128))
    true, wrong = (posenc.rope(x, np.full(4096, p), w, layout="half") for p in (5000, 4992))
    error = np.linalg.norm(wrong - true) / np.linalg.norm(true)
    expected = np.sqrt(np.mean(np.abs(1 - np.exp(8j * w.inv_freq)) ** 2))
    assert error == pytest.approx(expected, rel=0.02)  # 262144 pairs of random length
    assert f"{expected:.2f}" == "0.76"
    rounded = w.inv_freq.astype(ml_dtypes.bfloat16).astype(np.float64)
    assert round(np.abs(5000 * (rounded - w.inv_freq)).max()) == 6


def test_angles_are_an_arithmetic_progression():
    theta = 0.3
    q, k = (posenc.rope(np.tile(x, (9, 1)), 9, [theta], layout="half") @ [1, 1j] for x in ([3.0, 5.0], [1.0, 6.0]))
    assert np.abs(np.angle(q / k) - np.angle(q[0] / k[0])).max() <= 1e-14
    for z in (q, k):
        assert np.abs(np.unwrap(np.angle(z / z[0])) - theta * np.arange(9)).max() <= 1e-14
    one = q[1:] * k[:-1].conj()  # products of the offset 1
    assert np.abs(np.angle(one) + np.angle(k[0]) - np.angle(q[0]) - theta).max() <= 1e-14
