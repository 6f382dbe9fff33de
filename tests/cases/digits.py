"""Digits of numbers, and position ids of padded text."""

from __future__ import annotations

import numpy as np

from . import Case, IntegerCase, ulps


def digits(numbers, *, base=10, width):
    """Digit k from the left is floor(number / base**(width-1-k)) mod base; the last digit keeps the fraction."""
    powers = float(base) ** np.arange(width - 1, -1, -1)
    out = np.floor(numbers[..., None] / powers) % base
    out[..., -1] += numbers % 1
    return out


def from_digits(digits, *, base=10):
    """sum_k digit_k base**(width-1-k)."""
    return (digits * float(base) ** np.arange(digits.shape[-1] - 1, -1, -1)).sum(-1)


def horner(digits, base=10):
    """The sum of magnitudes, because the float64 oracle rounds every product and every sum."""
    return from_digits(np.abs(digits), base=base)


def positions_from_mask(keep, *, start=0):
    """fairseq's make_positions and transformers' position_ids: the number of tokens before each token."""
    rows = keep.reshape(-1, keep.shape[-1]) if keep.size else keep.reshape(0, keep.shape[-1])
    out = [[start + max(sum(bool(k) for k in row[: i + 1]) - 1, 0) for i in range(len(row))] for row in rows]
    return np.array(out, np.int64).reshape(keep.shape)


def make_reals(rng, n):
    """Multiples of 1/8, for which the quotients of the oracle are exact enough to be floored."""
    return {"numbers": rng.integers(0, 8 * 10**4, (2, n)) / 8, "width": 5}


CASES = [
    Case(
        function="digits", oracle=digits, tolerance=ulps(0), make=make_reals,
        real=lambda rng: {"numbers": rng.uniform(0, 1e4, 8192), "width": 5},
    ),
    Case(
        function="digits", label="integers", oracle=digits, tolerance=ulps(0),
        make=lambda rng, n: {"numbers": rng.integers(0, 16**4, (n,)), "width": 4, "base": 16},
        real=lambda rng: {"numbers": rng.integers(0, 16**4, 8192), "width": 4, "base": 16},
    ),
    Case(
        function="from_digits", oracle=from_digits, tolerance=ulps(8, horner), axes={"digits": "b d"},
        make=lambda rng, n: {"digits": rng.uniform(-9, 9, (n, 7)), "base": 7},
        real=lambda rng: {"digits": rng.uniform(0, 9, (8192, 5))},
    ),
    IntegerCase(
        function="positions_from_mask", oracle=positions_from_mask, tolerance=ulps(0), axes={"keep": "b n"},
        make=lambda rng, n: {"keep": rng.random((3, n)) < 0.6, "start": 2},
        real=lambda rng: {"keep": rng.random((4, 256)) < 0.9},
    ),
]  # fmt: skip
