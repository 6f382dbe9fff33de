"""Tables, recursions, convolutions and digits beside the positions they were made for."""

import numpy as np
import pytest

import posenc


def test_a_sum_needs_equal_widths():
    assert posenc.combine(np.zeros((3, 8)), posenc.sinusoidal(3, 8)).shape == (3, 8)
    with pytest.raises(ValueError, match="combine: p"):
        posenc.combine(np.zeros((3, 8)), posenc.sinusoidal(3, 6))


def test_rows_beyond_a_learned_table(rng):
    table = rng.standard_normal((512, 4))
    with pytest.raises(IndexError, match="learned: positions"):
        posenc.learned(table, [512])
    longer = np.concatenate([table, rng.standard_normal((512, 4))])
    assert np.array_equal(posenc.learned(longer, 1024)[:512], table)
    target = np.zeros((1024, 4))
    loss = np.square(posenc.learned(longer, 1024) - target).sum()
    grad = posenc.learned_vjp(2 * (posenc.learned(longer, 1024) - target), longer, 1024).table
    assert np.all(grad[512:] != 0)
    assert np.square(posenc.learned(longer - 0.1 * grad, 1024)).sum() < loss


def test_solutions_of_differential_equations(rng):
    p = posenc.sinusoidal(9, 2, dtype=np.float64)
    rotation = np.array([[0.0, 1.0], [-1.0, 0.0]])
    turned = posenc.integrate(lambda t, p: rotation @ p, p[0], np.arange(9), substeps=50)
    assert np.abs(turned - p).max() <= 1e-6
    fading = posenc.integrate(lambda t, p: -p, p[0], np.arange(9), substeps=50)
    assert np.abs(np.linalg.norm(fading, axis=1) - np.exp(-np.arange(9.0))).max() <= 1e-6
    any_sinusoid = posenc.sinusoidal(9, 2, frequencies=rng.uniform(0, 3, 1), dtype=np.float64)
    assert np.ptp(np.linalg.norm(any_sinusoid, axis=1)) <= 1e-15


def test_kernels_tell_directions(rng):
    x = rng.standard_normal((9, 1))
    for kernel, mirrored in (([[1.0, 2.0, 1.0]], True), ([[0.0, 1.0, 2.0]], False)):
        there, back = posenc.conv_position(x, kernel), posenc.conv_position(x[::-1], kernel)[::-1]
        assert np.allclose(there, back, rtol=0, atol=1e-14) == mirrored


def test_a_reserved_digit_is_not_read():
    numbers = np.arange(1000)
    weights = np.linalg.lstsq(posenc.digits(numbers, width=4), numbers, rcond=None)[0]
    assert np.abs(posenc.digits(numbers, width=4) @ weights - numbers).max() <= 1e-9
    assert posenc.digits(1749, width=4) @ weights == pytest.approx(749)


def test_interpolation_crowds_the_last_digit_alone():
    digits = posenc.digits(np.arange(2000) / 2, width=3)
    assert [np.unique(np.diff(np.unique(column))).tolist() for column in digits.T] == [[1.0], [1.0], [0.5]]


def test_digits_in_smaller_bases():
    for base, width in ((10, 3), (8, 4), (6, 4), (2, 10)):
        digits = posenc.digits(np.arange(1000), base=base, width=width)
        assert digits.max() == base - 1
        with pytest.raises(ValueError, match="digits: numbers"):
            posenc.digits(999, base=base, width=width - 1)


def test_recursion_counts_positions():
    rows = posenc.recurrent(np.array([1.0, 0.5]), np.array([[0.0, -1.0], [1.0, 0.0]]), np.zeros(2), 64)
    distances = np.linalg.norm(rows[:, None] - rows, axis=-1)
    assert distances[~np.eye(64, dtype=bool)].min() > 1e-4
