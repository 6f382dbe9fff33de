"""Sinusoids: odd widths, schedules, gradients over tiles of columns, and errors."""

import warnings

import numpy as np
import pytest
from cases.layouts import same_bits

import posenc
from posenc import reference


@pytest.mark.parametrize("denominator", ["dim", "half-1"])
@pytest.mark.parametrize("order", ["sincos", "cossin"])
@pytest.mark.parametrize("layout", ["interleaved", "half"])
@pytest.mark.parametrize("dim", [1, 2, 3, 4, 5, 15])
def test_odd_widths(dim, layout, order, denominator):
    """Over dim, an odd width has one more column of the first kind: keras-hub drops the last cosine, Marian has
    ceil(d/2) sines. Over half - 1, floor(d/2) columns of each kind and then a column of zeros, as in tensor2tensor."""
    options = {"layout": layout, "order": order, "denominator": denominator}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = posenc.sinusoidal([3], dim, **options, dtype=np.float64)[0]
    wanted = reference.sinusoidal([3], dim, **options)[0]
    assert np.abs(result - wanted).max() <= 2e-15  # an angle of 3 rounded twice in NumPy
    assert denominator == "dim" or dim % 2 == 0 or result[-1] == 0


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 5, 15])
def test_frequencies_over_half_1(dim):
    """A single frequency is 1; fairseq divides by zero for d = 2 and 3. The last is exactly 1 / base."""
    w = posenc.frequencies(dim, denominator="half-1")
    assert np.allclose(w, reference.frequencies(dim, denominator="half-1"), rtol=1e-14, atol=0)
    assert len(w) == dim // 2
    assert len(w) < 2 or w[-1] == 1e-4


@pytest.mark.parametrize("denominator", ["dim", "half-1"])
@pytest.mark.parametrize("dim", [1, 2, 3, 4, 9])
def test_power_schedule(dim, denominator):
    """t**alpha with t = 0 first: 0, and 0**0 = 1. alpha = 1 is t itself, rounded once."""

    def power(alpha, module=posenc):
        return module.frequencies(dim, schedule="power", alpha=alpha, denominator=denominator)

    t = power(1, reference)
    assert np.array_equal(power(0), np.ones(len(t)))
    assert np.array_equal(power(1), t)
    assert np.array_equal(power(0.5), np.sqrt(t)) or np.allclose(power(0.5), np.sqrt(t), rtol=2.0**-52, atol=0)
    assert not power(3)[:1].any()


def test_frequencies_belong_to_the_caller():
    """The frequencies of a (dim, base) are cached, and each call returns a copy."""
    first = posenc.frequencies(16)
    first[:] = 0
    assert posenc.frequencies(16)[0] == 1


@pytest.mark.parametrize("base", [1, 0.5, 2, 1e-300, 1e300, 10000, np.float32(500)])
def test_any_positive_base(base):
    w = posenc.frequencies(8, base=base)
    assert np.allclose(w, np.longdouble(base) ** -(np.arange(4) / np.longdouble(4)), rtol=2.0**-52, atol=0)


def test_frequencies_give_the_width():
    w = posenc.frequencies(6)
    assert np.array_equal(posenc.sinusoidal(3, frequencies=w), posenc.sinusoidal(3, 6, frequencies=w))


def test_gradient_of_frequencies_that_a_base_gives():
    """The gradients with base= and with the same frequencies= agree, up to the rounding of the frequencies to
    float64."""
    rng = np.random.default_rng(0)
    positions, grad = rng.uniform(-100, 100, (2, 9)), rng.standard_normal((2, 9, 7))
    by_base = posenc.sinusoidal_vjp(grad, positions, 7, base=500)
    given = posenc.sinusoidal_vjp(grad, positions, 7, frequencies=posenc.frequencies(7, base=500))
    for ours, theirs in zip(by_base, given, strict=True):
        assert (
            np.abs(ours - theirs).max() <= 1e-12 * np.abs(theirs).max()
        )  # angles of size 100 that differ by half an ulp


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("layout", ["interleaved", "half"])
@pytest.mark.parametrize("dim", [1, 2, 7, 511, 513, 1026])
def test_gradient_over_tiles(dim, layout, dtype, isa):
    """Widths on both sides of the tile of 256 pairs, integer and fractional positions, any storage dtype of the
    cotangent."""
    rng = np.random.default_rng(dim)
    positions = np.concatenate([np.arange(20), rng.integers(-(10**6), 10**6, 5), rng.uniform(-100, 100, 5)])
    grad = rng.standard_normal((30, dim)).astype(dtype)
    ours = posenc.sinusoidal_vjp(grad, positions, dim, layout=layout)
    w = posenc.frequencies(dim).astype(np.longdouble)
    angle = positions[:, None] * w
    column = np.arange(dim)
    sines = column[0::2] if layout == "interleaved" else column[: len(w)]
    cosines = column[1::2] if layout == "interleaved" else column[len(w) :]
    phase = np.cos(angle) * grad[:, sines]
    phase[:, : len(cosines)] -= np.sin(angle[:, : len(cosines)]) * grad[:, cosines]
    # each term is within 4 * 2**-52 of |grad| < 8, and an angle of the oracle within 2**-52 of itself, as w is rounded
    wide = np.abs(positions[:, None]) * 2.0**-52 * w + 2.0**-50
    assert np.all(np.abs(ours.positions - phase @ w) <= (wide * w * 16).sum(1))
    assert np.all(np.abs(ours.frequencies - positions @ phase) <= (wide * np.abs(positions[:, None]) * 16).sum(0))
    whole = posenc.sinusoidal_vjp(grad[::-1], positions[::-1], dim, layout=layout)
    assert same_bits(whole.positions[::-1].copy(), ours.positions)  # each row has its own gradient


ERRORS = [
    (lambda: posenc.frequencies(0), ValueError, "frequencies: dim is 0; expected at least 1"),
    (lambda: posenc.frequencies(4, base=0), ValueError, "frequencies: base is 0; expected a positive number"),
    (lambda: posenc.frequencies(4, alpha=-1), ValueError, "frequencies: alpha is -1; expected at least 0"),
    (lambda: posenc.sinusoidal(4, 0), ValueError, "sinusoidal: dim is 0; expected at least 1"),
    (lambda: posenc.sinusoidal(4.0, 4), TypeError, "sinusoidal: positions is 4.0; expected"),
    (lambda: posenc.sinusoidal(-1, 4), ValueError, "sinusoidal: positions is -1; expected at least 0"),
    (lambda: posenc.sinusoidal(4, 4, frequencies=[1.0]), ValueError, "frequencies has 1 entries; expected 2"),
    (lambda: posenc.sinusoidal(4, 5, frequencies=[1.0]), ValueError, "frequencies has 1 entries; expected 3 or 2"),
    (lambda: posenc.sinusoidal(4, 2, frequencies=[[1.0]]), ValueError, "frequencies has 2 axes; expected 1"),
    (lambda: posenc.sinusoidal([2**53], 2, frequencies=[9.0]), ValueError, "expected at most 2**56 radians"),
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


def test_angles_past_their_bits_are_refused():
    with pytest.raises(ValueError, match=r"^sinusoidal: frequencies has 1e\+30; expected "):
        posenc.sinusoidal([1], 2, frequencies=[1e30])
    assert posenc.sinusoidal([2**53], 2, frequencies=[8.0]).shape == (1, 2)
