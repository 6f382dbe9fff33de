"""Angular frequencies, and more of their digits than one double has."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from .._core_api.arguments import Float64, as_float64, as_index, as_number, check_choice, fail, fail_value

__all__ = ["frequencies"]

DENOMINATORS = ("dim", "half-1")


def frequencies(
    dim: int, *, base: float = 10000.0, schedule: str = "geometric", alpha: float = 1.0, denominator: str = "dim"
) -> Float64:
    """Angular frequencies of a sinusoidal encoding: ``w[i] = base**-t``, ``t = 2 i / dim``, or ``t**alpha``.

    Parameters
    ----------
    dim : int
        Width of the encoding, at least 1.
    base : float
        Positive. The wavelengths run from ``2 pi`` to ``2 pi base``.
    schedule : {"geometric", "power"}
        ``base**-t`` or ``t**alpha``.
    alpha : float
        Exponent of the power schedule, at least 0; t = 0 has frequency 0, or 1 where alpha is 0.
    denominator : {"dim", "half-1"}
        ``t = 2 i / dim`` (the paper), or ``t = i / max(dim // 2 - 1, 1)`` (tensor2tensor, fairseq, Whisper), whose
        last frequency is ``1 / base`` exactly.

    Returns
    -------
    ndarray of float64, shape (ceil(dim / 2),), or (dim // 2,) with "half-1"
        Radians per position, correctly rounded for the geometric schedule.

    Raises
    ------
    TypeError, ValueError
        A width below 1, a base that is not positive, a negative alpha, an unknown option.

    Notes
    -----
    Vaswani et al. 2017, section 3.5. References disagree about the denominator: keras-hub, Marian and Transformer-XL
    use ``dim``; tensor2tensor, fairseq and Whisper use ``half-1``.

    Examples
    --------
    >>> import posenc
    >>> posenc.frequencies(8)
    array([1.   , 0.1  , 0.01 , 0.001])
    >>> posenc.frequencies(4, denominator="half-1")
    array([1.e+00, 1.e-04])
    """
    function = "frequencies"
    dim = as_index(function, "dim", dim, 1)
    check_choice(function, "schedule", schedule, ("geometric", "power"))
    check_choice(function, "denominator", denominator, DENOMINATORS)
    geometric = exact_frequencies(function, dim, base, denominator)[0]
    exponent = as_number(function, "alpha", alpha)
    if exponent < 0:
        fail_value(ValueError, function, "alpha", alpha, "at least 0")
    if schedule == "geometric":
        return geometric.copy()
    count, numerator, divisor = _exponents(dim, denominator)
    return (np.arange(count) * numerator / divisor) ** exponent


def _exponents(dim: int, denominator: str) -> tuple[int, int, int]:
    """How many frequencies there are, and the ratio t / i as (numerator, divisor)."""
    if denominator == "dim":
        return (dim + 1) // 2, 2, dim
    return dim // 2, 1, max(dim // 2 - 1, 1)


def exact_frequencies(function: str, dim: int, base: float, denominator: str) -> tuple[Float64, Float64]:
    """base**-t as double-doubles (high, low): the angle at position 2**31 needs more bits than one double has."""
    number = as_number(function, "base", base)
    if number <= 0:
        fail_value(ValueError, function, "base", base, "a positive number")
    return _exact_frequencies(dim, base if isinstance(base, int) else number, denominator)


@lru_cache(maxsize=64)
def _exact_frequencies(dim: int, base: float, denominator: str) -> tuple[Float64, Float64]:
    from decimal import Context, Decimal

    count, numerator, divisor = _exponents(dim, denominator)
    context = Context(prec=60)  # 32 digits are needed; powers by repeated multiplication lose log10(count) more
    root = context.exp(
        context.divide(context.multiply(context.ln(Decimal(base)), Decimal(-numerator)), Decimal(divisor))
    )
    high, low = np.empty(count), np.empty(count)
    power = Decimal(1)
    for i in range(count):
        high[i] = float(power)
        low[i] = float(context.subtract(power, Decimal(float(power))))
        power = context.multiply(power, root)
    high.flags.writeable = low.flags.writeable = False
    return high, low


def given_frequencies(function: str, frequencies: Any) -> Float64:
    array = as_float64(function, "frequencies", frequencies)
    if array.ndim != 1:
        fail(ValueError, function, "frequencies", f"{array.ndim} axes", "1")
    return array
