"""Sinusoids: frequencies, the encoding, and the linear map that shifts it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._call import (
    F32,
    F64,
    Array,
    Float64,
    as_data,
    as_float64,
    as_index,
    as_number,
    as_positions,
    as_reals,
    broadcasts_to,
    check_positions,
    fail,
    finish,
    one_of,
    output,
    reduce_to,
    result_dtype,
    working,
)

__all__ = [
    "ShiftGradient",
    "SinusoidalGradient",
    "frequencies",
    "shift",
    "shift_matrix",
    "shift_vjp",
    "sinusoidal",
    "sinusoidal_vjp",
]

DENOMINATORS = ("dim", "half-1")
LAYOUTS = ("interleaved", "halves")
ORDERS = ("sincos", "cossin")


class SinusoidalGradient(NamedTuple):
    """Gradients of `sinusoidal`, float64."""

    positions: Float64
    frequencies: Float64


class ShiftGradient(NamedTuple):
    """Gradients of `shift`: `encoding` in its dtype, the others float64."""

    encoding: Array
    offset: Float64
    frequencies: Float64


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
    one_of(function, "schedule", schedule, ("geometric", "power"))
    one_of(function, "denominator", denominator, DENOMINATORS)
    geometric = exact_frequencies(function, dim, base, denominator)[0]
    exponent = as_number(function, "alpha", alpha)
    if exponent < 0:
        fail(ValueError, function, "alpha", alpha, "at least 0")
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
        fail(ValueError, function, "base", base, "a positive number")
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


class _Columns(NamedTuple):
    """Frequencies as double-doubles and where their sines and cosines lie in a row of `dim` columns."""

    high: Float64
    low: Float64 | None
    sine: int
    cosine: int
    step: int


def _columns(
    function: str, dim: int, base: float, frequencies: Any, layout: str, order: str, denominator: str
) -> _Columns:
    one_of(function, "layout", layout, LAYOUTS)
    one_of(function, "order", order, ORDERS)
    one_of(function, "denominator", denominator, DENOMINATORS)
    low: Float64 | None
    if frequencies is None:
        high, low = exact_frequencies(function, dim, base, denominator)
    else:
        high, low = given_frequencies(function, frequencies), None
        if len(high) not in (dim // 2, (dim + 1) // 2):
            counts = f"{(dim + 1) // 2} or {dim // 2}" if dim % 2 else f"{dim // 2}"
            fail(ValueError, function, "frequencies", f"{len(high)} entries", counts)
    second = 1 if layout == "interleaved" else len(high)
    step = 2 if layout == "interleaved" else 1
    return _Columns(high, low, *((0, second) if order == "sincos" else (second, 0)), step)


def sinusoidal(
    positions: npt.ArrayLike | int,
    dim: int,
    *,
    base: float = 10000.0,
    frequencies: npt.ArrayLike | None = None,
    layout: str = "interleaved",
    order: str = "sincos",
    denominator: str = "dim",
    scale: float = 1.0,
    dtype: npt.DTypeLike | None = None,
    out: Array | None = None,
) -> Array:
    """Sinusoidal encoding: ``PE[p, 2i] = scale sin(p w[i])``, ``PE[p, 2i+1] = scale cos(p w[i])``.

    Parameters
    ----------
    positions : int or array (..., N)
        ``n`` means 0..n-1. Any integers or reals up to 2**53 in magnitude.
    dim : int
        Width d of the encoding, at least 1.
    base : float
        ``w[i] = base**-t``, ``t = 2 i / dim``, as the exact real number; see `frequencies`.
    frequencies : array (ceil(dim / 2),) or (dim // 2,), optional
        Radians per position, taken as exact float64, in place of `base` and `denominator`.
    layout : {"interleaved", "halves"}
        ``sin, cos, sin, cos, ...`` or ``[sin ... | cos ...]``. (The pairs of `rope` are another matter: "half".)
    order : {"sincos", "cossin"}
        Which of the two comes first.
    denominator : {"dim", "half-1"}
        See `frequencies`.
    scale : float
        Factor on the result.
    dtype : dtype, optional
        float32 unless given, or that of `out`.
    out : array (..., N, dim), optional
        Filled and returned.

    Returns
    -------
    ndarray (..., N, dim)
        An odd `dim` has one sine more than cosines; where there are only ``dim // 2`` frequencies its last column is 0.

    Raises
    ------
    TypeError
        A bare float, bool or complex positions, a dtype that is none of the four.
    ValueError
        NaN or infinite positions, positions past 2**53, an unknown option, a wrong number of frequencies.

    Notes
    -----
    Vaswani et al. 2017, section 3.5. Angles are reduced in double-double: float32 results are within 1 ulp at every
    integer position below 2**31 and within 2**-24 below 2**53; float64 within 4e-16 below 2**31. The usual float32
    formula is wrong by 0.005 at 131072 and by a radian at 2**24. A row depends on its position alone, bit for bit.
    Between instruction sets (`use_isa`) two float32 entries in 10**9 differ, by 1 ulp.

    What others call by name: Vaswani, keras-hub, XLM, DistilBERT: the defaults. Marian, Pegasus, RoFormer, CTRL,
    Transformer-XL, XLNet: ``layout="halves"``, and x-transformers with a learned `scale`. tensor2tensor, fairseq,
    M2M100, Whisper: ``layout="halves", denominator="half-1"`` (fairseq counts positions from padding_idx + 1).
    MusicGen: the same with ``order="cossin"``. tensor2tensor pads an odd width with zeros, as here.

    Examples
    --------
    >>> import posenc
    >>> posenc.sinusoidal(2, 4)
    array([[0.        , 1.        , 0.        , 1.        ],
           [0.84147096, 0.5403023 , 0.00999983, 0.99995   ]], dtype=float32)
    """
    function = "sinusoidal"
    where = as_positions(function, "positions", positions)
    dim = as_index(function, "dim", dim, 1)
    columns = _columns(function, dim, base, frequencies, layout, order, denominator)
    factor = as_number(function, "scale", scale)
    kind = result_dtype(function, dtype, out)
    out, memory, staged = output(function, out, (*where.shape, dim), kind, (where, columns.high))
    _core.sinusoid(
        function, where, columns.high, columns.low, memory, columns.sine, columns.cosine, columns.step, factor, factor
    )
    return finish(out, staged)


def sinusoidal_vjp(
    grad: npt.ArrayLike,
    positions: npt.ArrayLike | int,
    dim: int,
    *,
    base: float = 10000.0,
    frequencies: npt.ArrayLike | None = None,
    layout: str = "interleaved",
    order: str = "sincos",
    denominator: str = "dim",
    scale: float = 1.0,
) -> SinusoidalGradient:
    """Gradient of `sinusoidal`: ``dp = sum_i w phase``, ``dw = sum_n p phase``, phase = cos grad_sin - sin grad_cos.

    Parameters
    ----------
    grad : array (..., N, dim)
        Cotangent of the encoding; the other arguments are those of `sinusoidal`.

    Returns
    -------
    SinusoidalGradient
        ``positions`` (..., N) and ``frequencies``, both float64. The frequencies are those of `base` where none are
        given, so that they can be trained from there.

    Raises
    ------
    TypeError, ValueError
        As `sinusoidal`; also where `grad` does not have the shape of the encoding.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.sinusoidal_vjp(np.ones((1, 2)), [0.0], 2)
    SinusoidalGradient(positions=array([1.]), frequencies=array([0.]))
    """
    function = "sinusoidal_vjp"
    where = as_positions(function, "positions", positions)
    dim = as_index(function, "dim", dim, 1)
    columns = _columns(function, dim, base, frequencies, layout, order, denominator)
    factor = as_number(function, "scale", scale)
    cotangent = as_data(function, "grad", grad)
    if cotangent.shape != (*where.shape, dim):
        fail(ValueError, function, "grad", f"shape {cotangent.shape}", str((*where.shape, dim)))
    d_positions, d_frequencies = np.empty(where.shape), np.empty(columns.high.shape)
    _core.sinusoid_vjp(
        function, cotangent, where, columns.high, columns.low, d_positions, d_frequencies,
        columns.sine, columns.cosine, columns.step, factor, factor,
    )  # fmt: skip
    return SinusoidalGradient(d_positions, d_frequencies)


class _Shift(NamedTuple):
    """What `shift` and its gradient prepare alike."""

    angle: Array
    """The offset, negated where a pair is (sin, cos): position of the rotation that does the shift."""
    sign: float
    columns: _Columns
    table: Array
    interleaved: bool


def _shift(
    function: str,
    encoding: Array,
    offset: Any,
    base: float,
    frequencies: Any,
    layout: str,
    order: str,
    denominator: str,
) -> _Shift:
    if encoding.ndim < 1 or encoding.shape[-1] % 2 or not encoding.shape[-1]:
        has = f"last axis {encoding.shape[-1]}" if encoding.ndim else "no axes"
        fail(ValueError, function, "encoding", has, "an even width: a sine without its cosine cannot be shifted")
    columns = _columns(function, encoding.shape[-1], base, frequencies, layout, order, denominator)
    by = as_reals(function, "offset", offset)
    check_positions(function, "offset", by)
    if not broadcasts_to(by.shape, encoding.shape[:-1]) or (by.ndim and by.shape[-1] != encoding.shape[-2]):
        fail(
            ValueError, function, "offset", f"shape {by.shape}", f"one offset, or one per row of {encoding.shape[:-1]}"
        )
    # sin(a + b) = sin a cos b + cos a sin b turns the pair (sin, cos) backwards, (cos, sin) forwards
    sign = -1 if order == "sincos" else 1
    angle, half = np.asarray(by * sign), len(columns.high)
    table = np.empty((*by.shape, 2 * half), F64 if encoding.dtype.char == "d" else F32)
    _core.sinusoid(function, angle, columns.high, columns.low, table, half, 0, 1, 1.0, 1.0)
    return _Shift(angle, sign, columns, table, layout == "interleaved")


def shift(
    encoding: npt.ArrayLike,
    offset: npt.ArrayLike,
    *,
    base: float = 10000.0,
    frequencies: npt.ArrayLike | None = None,
    layout: str = "interleaved",
    order: str = "sincos",
    denominator: str = "dim",
    out: Array | None = None,
) -> Array:
    """``PE[p + k]`` from ``PE[p]``: ``sin(a+b) = sin a cos b + cos a sin b``, and the same for cos.

    The map is linear in the encoding and the same at every position: it needs the offset k, not p.

    Parameters
    ----------
    encoding : array (..., N, d)
        Rows made by `sinusoidal` with the same options, d even; any `scale`.
    offset : number or array (..., N)
        k, one for all rows or one for each; integers or reals.
    base, frequencies, layout, order, denominator
        As in `sinusoidal`.
    out : array (..., N, d), optional
        Filled and returned.

    Returns
    -------
    ndarray (..., N, d)
        In the dtype of `encoding`.

    Raises
    ------
    TypeError, ValueError
        An odd width (its last sine has no cosine), an offset whose shape does not fit, an unknown option.

    Notes
    -----
    Vaswani et al. 2017, section 3.5, claims the linear map; this is it.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> p = posenc.sinusoidal(4, 6, dtype=np.float64)
    >>> bool(np.allclose(posenc.shift(p, 1000), posenc.sinusoidal(np.arange(4) + 1000, 6, dtype=np.float64)))
    True
    """
    function = "shift"
    data = as_data(function, "encoding", encoding)
    s = _shift(function, data, offset, base, frequencies, layout, order, denominator)
    out, memory, staged = output(function, out, data.shape, data.dtype, (data, offset, frequencies))
    _core.rope(function, data, s.table, memory, 0, s.interleaved, s.interleaved, False)
    return finish(out, staged)


def shift_vjp(
    grad: npt.ArrayLike,
    encoding: npt.ArrayLike,
    offset: npt.ArrayLike,
    *,
    base: float = 10000.0,
    frequencies: npt.ArrayLike | None = None,
    layout: str = "interleaved",
    order: str = "sincos",
    denominator: str = "dim",
) -> ShiftGradient:
    """Gradient of `shift`: the shift by ``-offset`` of `grad`, and what turning each pair does to it.

    Parameters
    ----------
    grad : array (..., N, d)
        Cotangent of the shifted encoding; the other arguments are those of `shift`.

    Returns
    -------
    ShiftGradient
        ``encoding`` in its dtype, ``offset`` and ``frequencies`` in float64, each in the shape of its argument.

    Raises
    ------
    TypeError, ValueError
        As `shift`; also where `grad` does not have the shape of `encoding`.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.shift_vjp(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]), 0)
    ShiftGradient(encoding=array([[1., 0.]]), offset=array(1.), frequencies=array([0.]))
    """
    function = "shift_vjp"
    data = as_data(function, "encoding", encoding)
    s = _shift(function, data, offset, base, frequencies, layout, order, denominator)
    cotangent = as_data(function, "grad", grad)
    if cotangent.shape != data.shape:
        fail(ValueError, function, "grad", f"shape {cotangent.shape}", str(data.shape))
    wide = data.dtype.char == "d"
    kind = F64 if wide else F32
    d_encoding = np.empty(data.shape, kind)
    d_offset, d_frequencies = np.empty((*data.shape[:-1], 1)), np.empty((1, len(s.columns.high)))
    _core.rope_vjp(
        function, cotangent.astype(kind, copy=False), working(data, wide), s.table, s.angle[..., None],
        s.columns.high[None], None, d_encoding, d_offset, d_frequencies, 0, s.interleaved, s.interleaved,
    )  # fmt: skip
    return ShiftGradient(
        d_encoding.astype(data.dtype, copy=False),
        reduce_to(s.sign * d_offset[..., 0], s.angle.shape, F64),
        d_frequencies[0],
    )


def shift_matrix(
    offset: float,
    dim: int,
    *,
    base: float = 10000.0,
    frequencies: npt.ArrayLike | None = None,
    layout: str = "interleaved",
    order: str = "sincos",
    denominator: str = "dim",
) -> Float64:
    """The matrix of `shift`: ``PE[p + offset] = matrix @ PE[p]`` for every p.

    Parameters
    ----------
    offset : number
        k, an integer or a real.
    dim : int
        Even width of the encoding.
    base, frequencies, layout, order, denominator
        As in `sinusoidal`.

    Returns
    -------
    ndarray of float64, shape (dim, dim)
        A rotation: its inverse is its transpose, and the matrix of ``-offset``.

    Raises
    ------
    TypeError, ValueError
        An odd width, an offset that is not one number, an unknown option.

    Examples
    --------
    >>> import posenc
    >>> posenc.shift_matrix(1, 2).round(3)
    array([[ 0.54 ,  0.841],
           [-0.841,  0.54 ]])
    """
    function = "shift_matrix"
    dim = as_index(function, "dim", dim, 1)
    by = as_reals(function, "offset", offset)
    if by.ndim:
        fail(ValueError, function, "offset", f"{by.ndim} axes", "one number")
    if dim % 2:
        fail(ValueError, function, "dim", dim, "an even width: a sine without its cosine cannot be shifted")
    identity = np.eye(dim)
    s = _shift(function, identity, by, base, frequencies, layout, order, denominator)
    rows = np.empty((dim, dim))
    _core.rope(function, identity, s.table, rows, 0, s.interleaved, s.interleaved, False)
    return np.ascontiguousarray(rows.T)
