"""Angular frequencies, in float64 and in double-double."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, get_args

import numpy as np

from .. import _core
from .._core_api import read
from .._core_api.arrays import Float64
from .._core_api.constants import MOST_WIDTH
from .._core_api.door import door, fail, fail_value, shown

Schedule = Literal["geometric", "power"]
Denominator = Literal["dim", "half-1"]
DENOMINATORS: tuple[Denominator, ...] = get_args(Denominator)


@door
def sinusoidal_frequencies(
    dim: int,
    *,
    base: float = 10000.0,
    schedule: Schedule = "geometric",
    alpha: float = 1.0,
    denominator: Denominator = "dim",
) -> Float64:
    """Return the angular frequencies of a sinusoidal encoding.

    ``w[i] = base**-t``, or ``w[i] = t**alpha`` for the power schedule, with ``t = 2 i / dim`` by default.

    Parameters
    ----------
    dim : int
        Width of the encoding, at least 1.
    base : float
        Positive. If it is above 1, the geometric wavelengths grow from ``2 pi`` to less than ``2 pi base``, or to
        ``2 pi base`` with "half-1" and a dim of at least 4.
    schedule : {"geometric", "power"}
        ``base**-t`` or ``t**alpha``.
    alpha : float
        Exponent of the power schedule, at least 0. The frequency of t = 0 is 0, or 1 if alpha is 0.
    denominator : {"dim", "half-1"}
        "dim": ``t = 2 i / dim``, as in the paper. "half-1": ``t = i / max(dim // 2 - 1, 1)``, as in tensor2tensor,
        fairseq and Whisper; the last geometric frequency is then ``1 / base`` if dim is at least 4.

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
    Vaswani et al. 2017, section 3.5. Implementations differ in the denominator: keras-hub, Marian and Transformer-XL
    have "dim"; tensor2tensor, fairseq and Whisper have "half-1".

    Examples
    --------
    >>> import posenc
    >>> posenc.sinusoidal_frequencies(8)
    array([1.   , 0.1  , 0.01 , 0.001])
    >>> posenc.sinusoidal_frequencies(4, denominator="half-1")
    array([1.e+00, 1.e-04])
    """
    dim = read.index("dim", dim, 1, MOST_WIDTH)
    read.choice("schedule", schedule, get_args(Schedule))
    read.choice("denominator", denominator, DENOMINATORS)
    geometric, _ = exact_frequencies(dim, base, denominator)
    exponent = read.number("alpha", alpha)
    if exponent < 0:
        fail_value(ValueError, "alpha", alpha, "at least 0")
    if schedule == "geometric":
        return geometric.copy()
    count, numerator, divisor = _exponents(dim, denominator)
    return (np.arange(count) * numerator / divisor) ** exponent


def _exponents(dim: int, denominator: Denominator) -> tuple[int, int, int]:
    """Return (number of frequencies, numerator, divisor), where ``t = i numerator / divisor``."""
    if denominator == "dim":
        return (dim + 1) // 2, 2, dim
    return dim // 2, 1, max(dim // 2 - 1, 1)


def exact_frequencies(dim: int, base: float, denominator: Denominator) -> tuple[Float64, Float64]:
    """Return base**-t as the sum of two float64 numbers, (high, low).

    With `high` alone, an angle at position 2**31 could be wrong by 1e-7.
    """
    number = read.positive("base", base)
    # A Python int stays exact: float64 could round an int beyond 2**53.
    return _exact_frequencies(dim, base if isinstance(base, int) else number, denominator)


@lru_cache(maxsize=64)
def _exact_frequencies(dim: int, base: float, denominator: Denominator) -> tuple[Float64, Float64]:
    from decimal import Context, Decimal

    count, numerator, divisor = _exponents(dim, denominator)
    context = Context(prec=60)  # two float64 hold 32 digits; `count` products lose log10(count) digits
    exponent = context.multiply(context.ln(Decimal(base)), Decimal(-numerator))
    root = context.exp(context.divide(exponent, Decimal(divisor)))
    high, low = np.empty(count), np.empty(count)
    power = Decimal(1)
    for i in range(count):
        high[i] = float(power)
        low[i] = float(context.subtract(power, Decimal(float(power))))
        power = context.multiply(power, root)
    high.flags.writeable = low.flags.writeable = False
    return high, low


def check_plain(argument: str, frequencies: object) -> None:
    """Refuse a RopeFrequencies with a field that only a rotation applies."""
    if not hasattr(frequencies, "inv_freq"):
        return
    for name, neutral in (("attention_factor", 1.0), ("softmax_factor", 1.0), ("layout", None), ("rotary_dim", None)):
        value = getattr(frequencies, name, neutral)
        if value != neutral:
            fail(ValueError, argument, f"{name} {shown(value)}", f"{argument}.inv_freq, because nothing is rotated")


def as_frequencies(frequencies: object) -> Float64:
    """Return the user's frequencies as float64. Refuse an array that does not have one axis."""
    check_plain("frequencies", frequencies)
    return _core.read("f64 frequencies(f) alone", frequencies=frequencies)
