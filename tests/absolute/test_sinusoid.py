"""Sinusoids: odd widths, schedules, gradients over tiles of columns, and errors."""

import numpy as np
import pytest
from cases.layouts import same_bits

import posenc
from posenc import reference


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 5, 15])
def test_frequencies_over_half_1(dim):
    """A single frequency is 1; fairseq divides by zero for d = 2 and 3. The last is exactly 1 / base. An odd width has
    a last column of zeros, as in tensor2tensor."""
    w = posenc.sinusoidal_frequencies(dim, denominator="half-1")
    assert len(w) == dim // 2
    assert len(w) < 2 or w[-1] == 1e-4
    assert dim % 2 == 0 or posenc.sinusoidal([3], dim, denominator="half-1")[0, -1] == 0


def test_power_schedule():
    """t**alpha with t = 0 first: 0, and 0**0 = 1. alpha = 1 is t itself, rounded once."""
    t = reference.sinusoidal_frequencies(9, schedule="power", alpha=1)
    assert np.array_equal(posenc.sinusoidal_frequencies(9, schedule="power", alpha=0), np.ones(5))
    assert np.array_equal(posenc.sinusoidal_frequencies(9, schedule="power", alpha=1), t)
    assert posenc.sinusoidal_frequencies(9, schedule="power", alpha=3)[0] == 0


def test_frequencies_belong_to_the_caller():
    """The frequencies of a (dim, base) are cached, and each call returns a copy."""
    first = posenc.sinusoidal_frequencies(16)
    first[:] = 0
    assert posenc.sinusoidal_frequencies(16)[0] == 1


@pytest.mark.parametrize("base", [1, 0.5, 2, 1e-300, 1e300, 10000, np.float32(500)])
def test_any_positive_base(base):
    w = posenc.sinusoidal_frequencies(8, base=base)
    assert np.allclose(w, np.longdouble(base) ** -(np.arange(4) / np.longdouble(4)), rtol=2.0**-52, atol=0)


def test_frequencies_give_the_width():
    w = posenc.sinusoidal_frequencies(6)
    assert np.array_equal(posenc.sinusoidal(3, frequencies=w), posenc.sinusoidal(3, 6, frequencies=w))


def test_gradient_of_frequencies_that_a_base_gives():
    """The gradients with base= and with the same frequencies= agree, up to the rounding of the frequencies to
    float64."""
    rng = np.random.default_rng(0)
    positions, grad = rng.uniform(-100, 100, (2, 9)), rng.standard_normal((2, 9, 7))
    by_base = posenc.sinusoidal_vjp(grad, positions, 7, base=500)
    given = posenc.sinusoidal_vjp(grad, positions, 7, frequencies=posenc.sinusoidal_frequencies(7, base=500))
    for ours, theirs in zip(by_base, given, strict=True):  # angles of size 100 that differ by half an ulp
        assert np.abs(ours - theirs).max() <= 1e-12 * np.abs(theirs).max()


@pytest.mark.parametrize(("dim", "dtype"), [(511, np.float16), (513, np.float32), (1026, np.float64)])
def test_gradient_over_tiles(dim, dtype, isa):
    """Widths on both sides of the tile of 256 pairs, integer and fractional positions, any storage dtype of the
    cotangent."""
    rng = np.random.default_rng(dim)
    positions = np.concatenate([np.arange(20), rng.integers(-(10**6), 10**6, 5), rng.uniform(-100, 100, 5)])
    grad = rng.standard_normal((30, dim)).astype(dtype)
    ours = posenc.sinusoidal_vjp(grad, positions, dim)
    w = posenc.sinusoidal_frequencies(dim).astype(np.longdouble)
    angle = positions[:, None] * w
    sines, cosines = grad[:, 0::2], grad[:, 1::2]
    phase = np.cos(angle) * sines
    phase[:, : dim // 2] -= np.sin(angle[:, : dim // 2]) * cosines
    # each term is within 4 * 2**-52 of |grad| < 8, and an angle of the oracle within 2**-52 of itself, as w is rounded
    wide = np.abs(positions[:, None]) * 2.0**-52 * w + 2.0**-50
    assert np.all(np.abs(ours.positions - phase @ w) <= (wide * w * 16).sum(1))
    assert np.all(np.abs(ours.frequencies - positions @ phase) <= (wide * np.abs(positions[:, None]) * 16).sum(0))
    whole = posenc.sinusoidal_vjp(grad[::-1], positions[::-1], dim)
    assert same_bits(whole.positions[::-1].copy(), ours.positions)  # each row has its own gradient


ERRORS = [
    (lambda: posenc.sinusoidal_frequencies(0), ValueError, "frequencies: dim is 0; expected at least 1"),
    (
        lambda: posenc.sinusoidal_frequencies(4, base=0),
        ValueError,
        "frequencies: base is 0; expected a positive number",
    ),
    (lambda: posenc.sinusoidal_frequencies(4, alpha=-1), ValueError, "frequencies: alpha is -1; expected at least 0"),
    (lambda: posenc.sinusoidal(4, 0), ValueError, "sinusoidal: dim is 0; expected at least 1"),
    (lambda: posenc.sinusoidal(4.0, 4), TypeError, "sinusoidal: positions is 4.0; expected"),
    (lambda: posenc.sinusoidal(-1, 4), ValueError, "sinusoidal: positions is -1; expected at least 0"),
    (lambda: posenc.sinusoidal(4, 4, frequencies=[1.0]), ValueError, "frequencies has 1 entries; expected 2"),
    (lambda: posenc.sinusoidal(4, 5, frequencies=[1.0]), ValueError, "frequencies has 1 entries; expected 3 or 2"),
    (lambda: posenc.sinusoidal(4, 2, frequencies=[[1.0]]), ValueError, "frequencies has 2 axes; expected 1"),
    (lambda: posenc.sinusoidal([2**53], 2, frequencies=[9.0]), ValueError, "expected at most 2**56 radians"),
    (lambda: posenc.sinusoidal([1], 2, frequencies=[1e30]), ValueError, "sinusoidal: frequencies has 1e+30; expected "),
    (lambda: posenc.sinusoidal(4), TypeError, "sinusoidal: dim is None; expected an integer, or frequencies"),
    (lambda: posenc.sinusoidal(4, 4, dtype=np.int64), TypeError, "sinusoidal: dtype is int64; expected float16"),
    (lambda: posenc.shift(np.zeros((4, 3)), 1), ValueError, "shift: encoding has last axis 3; expected an even width"),
    (lambda: posenc.shift(np.zeros((4, 4)), [1, 2]), ValueError, "shift: offset has shape (2,); expected one offset"),
    (lambda: posenc.shift_matrix(1, 3), ValueError, "shift_matrix: dim is 3; expected an even width"),
    (lambda: posenc.shift_matrix([1], 4), ValueError, "shift_matrix: offset has 1 axes; expected one number"),
]


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS)
def test_errors_say_what_and_what_instead(call, kind, message):
    with pytest.raises(kind) as raised:
        call()
    assert message in str(raised.value)
