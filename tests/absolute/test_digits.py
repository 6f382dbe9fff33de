"""Digits of numbers, and position ids from a mask: worked numbers, exactness, and refusals."""

import numpy as np
import pytest
from cases.layouts import same_bits

import posenc


def test_1749_by_four_methods():
    """Three digits, whose numbers end at 999."""
    assert posenc.digits(999, width=3).tolist() == [9, 9, 9]  # three digits reach 999
    assert posenc.digits(1749, width=4).tolist() == [1, 7, 4, 9]  # extrapolation: one more digit
    assert posenc.digits(1749 / 2, width=3).tolist() == [8, 7, 4.5]  # interpolation: 874.5
    assert posenc.from_digits([7, 4, 9]) * 2 == 1498  # [7, 4, 9] then stands for 1498
    assert np.diff(posenc.digits(np.array([1748, 1749]) / 2, width=3)[:, -1]).tolist() == [0.5]  # closer neighbours
    assert posenc.digits(1749, base=16, width=3).tolist() == [6, 13, 5]  # another base: three digits are enough
    assert posenc.digits(16**3 - 1, base=16, width=3).tolist() == [15, 15, 15]  # up to 4095
    assert 16**3 - 1 == 4095 > 1999
    assert posenc.from_digits([6, 13, 5], base=16) == 1749
    for number, base in [(1000, 10), (1749, 10), (999.5 + 1, 10), (4096, 16)]:
        with pytest.raises(ValueError, match=rf"digits: numbers has {number}.*; expected less than {base}\*\*3"):
            posenc.digits(number, base=base, width=3)


@pytest.mark.parametrize("base", [2, 3, 10, 16, 1000, 2**32 - 1, 2**32, 2**53])
def test_digits_of_large_integers_are_exact(base, rng):
    edges = [0, 1, base - 1, 2**32 - 1, 2**32, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1]
    numbers = edges + rng.integers(0, 2**63, 50).tolist()
    for dtype in (np.uint64, np.int64):
        kept = [n for n in numbers if n <= np.iinfo(dtype).max]
        for number, row in zip(kept, posenc.digits(np.array(kept, dtype), base=base, width=64), strict=True):
            assert row.tolist() == [number // base**k % base for k in range(63, -1, -1)]
            if base < 2**32:
                assert posenc.from_digits(row, base=base) == float(number)


@pytest.mark.parametrize("base", [2, 3, 10, 97])
def test_from_digits_undoes_digits(base, rng):
    """from_digits(digits(x)) is x to the bit, with fractions and up to 2**64."""
    numbers = np.concatenate([rng.uniform(0, 1e6, 200), np.floor(np.exp2(rng.uniform(0, 64, 200)))])
    back = posenc.from_digits(posenc.digits(numbers, base=base, width=64), base=base)
    assert same_bits(back, numbers)


def test_digits_refuses():
    for numbers in ([-1], [-0.5], [np.nan], [np.inf], [2.0**64], [1e300], [2**70], 2**64):
        with pytest.raises(ValueError, match="digits: numbers has"):
            posenc.digits(numbers, width=400)
    for numbers in ([2.0**64], [2**70], 2**70, 2**64):
        with pytest.raises(ValueError, match=r"^digits: numbers has [\d.e+]+; expected less than 2\*\*64$"):
            posenc.digits(numbers, width=30)
    for base in (1, 0, -2, 2**53 + 1):
        with pytest.raises(ValueError, match="digits: base is"):
            posenc.digits(5, base=base, width=3)
    for options in ({"base": 2.0, "width": 3}, {"width": 3.0}, {"width": True}):
        with pytest.raises(TypeError, match=r"digits: (base|width) has"):
            posenc.digits(5, **options)
    with pytest.raises(ValueError, match="digits: width is 0"):
        posenc.digits(5, width=0)
    assert posenc.from_digits(np.full(400, 9.0)) == np.inf  # beyond float64, as an overflow


def test_positions_from_mask_of_both_sides():
    keep = np.array([[1, 1, 1, 0, 0], [0, 0, 1, 1, 1], [0, 1, 0, 1, 0], [0, 0, 0, 0, 0]], bool)
    ids = posenc.positions_from_mask(keep)
    assert ids.dtype == np.int64
    assert ids.tolist() == [[0, 1, 2, 2, 2], [0, 0, 0, 1, 2], [0, 0, 0, 1, 1], [0] * 5]
    fairseq = np.cumsum(keep, -1) * keep + 1  # padding_idx 1: padding tokens have a position of their own
    assert np.array_equal(np.where(keep, posenc.positions_from_mask(keep, start=2), 1), fairseq)
    with pytest.raises(TypeError, match="positions_from_mask: keep has dtype int64"):
        posenc.positions_from_mask([[1, 0]])
    with pytest.raises(TypeError, match="start"):
        posenc.positions_from_mask(keep, start=1.0)
    with pytest.raises(ValueError, match="positions_from_mask: keep is True; expected an array with at least 1 axis"):
        posenc.positions_from_mask(np.True_)


def test_digits_do_not_take_the_power_of_a_wide_number():
    """10**5_000_000 itself would take longer than its digits."""
    found = posenc.digits(7, width=5_000_000)
    assert found[-1] == 7
    assert not found[:-1].any()
