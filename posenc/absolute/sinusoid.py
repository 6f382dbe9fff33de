"""The sinusoidal encoding."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import (
    F64,
    Array,
    Dtype,
    Float64,
    as_index,
    as_number,
    check_choice,
    check_range,
    door,
    fail,
    result_dtype,
    unbroadcast,
    without_warnings,
)
from .._core_api.constants import MOST_WIDTH
from .frequency import DENOMINATORS, Denominator, as_frequencies, exact_frequencies

Layout = Literal["interleaved", "halves"]
Order = Literal["sincos", "cossin"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
ORDERS: tuple[Order, ...] = get_args(Order)
BLOCK_NUMBERS = 1 << 17
"""Numbers of an array that a gradient widens to float64 at a time, so that its temporary arrays stay in the cache."""


class SinusoidalGradient(NamedTuple):
    """Gradients of `sinusoidal`.

    Attributes
    ----------
    positions : float64 array (..., N)
    frequencies : float64 array (e,)
        One number per sine, also if `base` gives the frequencies.
    """

    positions: Float64
    frequencies: Float64


class Columns(NamedTuple):
    """Frequencies in float64 or double-double, and the columns of their sines and cosines in a row of the encoding."""

    frequencies: Float64
    low: Float64 | None
    """The exact frequencies minus `frequencies`; None if the user passed frequencies, which count as exact."""
    sine: int
    """Column of the first sine."""
    cosine: int
    """Column of the first cosine."""
    step: int
    """Columns from a sine to the next sine, and from a cosine to the next cosine."""


def read_columns(
    dim: int, base: float, frequencies: npt.ArrayLike | None, layout: Layout, order: Order, denominator: Denominator
) -> Columns:
    """Check the options of an encoding of width `dim`, and return its frequencies and columns."""
    check_choice("layout", layout, LAYOUTS)
    check_choice("order", order, ORDERS)
    check_choice("denominator", denominator, DENOMINATORS)
    low: Float64 | None
    if frequencies is None:
        high, low = exact_frequencies(dim, base, denominator)
    else:
        high, low = as_frequencies(frequencies), None
        if len(high) not in (dim // 2, (dim + 1) // 2):
            counts = f"{(dim + 1) // 2} or {dim // 2}" if dim % 2 else f"{dim // 2}"
            fail(ValueError, "frequencies", f"{len(high)} entries", counts)
    step, second = (2, 1) if layout == "interleaved" else (1, len(high))
    sine, cosine = (0, second) if order == "sincos" else (second, 0)
    return Columns(high, low, sine, cosine, step)


@lru_cache(maxsize=64, typed=True)
def _exact_columns(dim: int, base: float, layout: Layout, order: Order, denominator: Denominator) -> Columns:
    return read_columns(as_index("dim", dim, 1, MOST_WIDTH), base, None, layout, order, denominator)


def cos_sin_table(
    positions: Array, frequencies: Float64, dtype: Dtype, factor: float = 1.0, low: Float64 | None = None
) -> Array:
    """Return [cos | sin] of the angles ``positions * frequencies``, times `factor`: (..., 2 len(frequencies))."""
    count = len(frequencies)
    table = _core.sinusoid(
        positions=positions.reshape(positions.shape or 1), frequencies=frequencies, lo=low, sine=count,
        cosine=0, step=1, sine_scale=factor, cosine_scale=factor, d=2 * count, dtype=dtype,
    )  # fmt: skip
    return table if positions.ndim else table[0]


def halves(table: Array) -> tuple[Array, Array]:
    """View a table [cos | sin] as (cos, sin)."""
    pairs = table.shape[-1] // 2
    return table[..., :pairs], table[..., pairs:]


def with_axes(array: Array, axes: int) -> Array:
    """View an array with more leading axes, of length 1."""
    return array.reshape((1,) * (axes - array.ndim) + array.shape)


def row_blocks(rows: tuple[int, ...], width: int) -> Iterator[tuple[slice, ...]]:
    """Cut arrays (*rows, width) into blocks of at most BLOCK_NUMBERS numbers; a row stays whole."""
    inner, axis = width, len(rows)
    while axis and inner * rows[axis - 1] <= BLOCK_NUMBERS:
        axis -= 1
        inner *= rows[axis]
    if axis == 0:
        yield (slice(None),) * len(rows)
        return
    step = max(1, BLOCK_NUMBERS // inner)
    for outer in np.ndindex(*rows[: axis - 1]):
        whole = tuple([slice(i, i + 1) for i in outer]), (slice(None),) * (len(rows) - axis)
        for first in range(0, rows[axis - 1], step):
            yield (*whole[0], slice(first, first + step), *whole[1])


def select_rows(index: tuple[slice, ...], rows: tuple[int, ...]) -> tuple[slice, ...]:
    """Return the index of a block for an array whose axes of length 1 are broadcast."""
    return tuple([slice(None) if length == 1 else own for own, length in zip(index, rows, strict=False)])


@door
def sinusoidal(
    positions: npt.ArrayLike,
    dim: int,
    *,
    base: float = 10000.0,
    frequencies: npt.ArrayLike | None = None,
    layout: Layout = "interleaved",
    order: Order = "sincos",
    denominator: Denominator = "dim",
    scale: float = 1.0,
    start: int = 0,
    dtype: npt.DTypeLike | None = None,
    out: Array | None = None,
) -> Array:
    """Return sinusoidal position encodings.

    ``PE[p, 2i] = scale sin(p w[i])``, ``PE[p, 2i+1] = scale cos(p w[i])``.

    Parameters
    ----------
    positions : int or array (..., N)
        An int n means start .. start+n-1, by default 0 .. n-1. An array has integers or reals up to 2**53 in magnitude.
    dim : int
        Width of the encoding, at least 1.
    base : float
        ``w[i] = base**-t``, ``t = 2 i / dim``. w is not rounded to float64. See the function `frequencies`.
    frequencies : array (ceil(dim / 2),) or (dim // 2,), optional
        w in radians per position; replaces `base` and `denominator`. The float64 numbers count as exact.
    layout : {"interleaved", "halves"}
        ``sin, cos, sin, cos, ...`` or ``[sin ... | cos ...]``. `rope` has the layouts "half" and "interleaved".
    order : {"sincos", "cossin"}
        The function that comes first: in each pair, or with "halves" in the first half of the columns.
    denominator : {"dim", "half-1"}
        Decides t; see the function `frequencies`.
    scale : float
        Factor on the result.
    start : int
        The first position, if `positions` is an int n: start .. start+n-1.
    dtype : dtype, optional
        The dtype of the result; by default the dtype of `out`, or float32.
    out : array (..., N, dim), optional
        Filled and returned.

    Returns
    -------
    ndarray (..., N, dim)
        If `dim` is odd, the function that comes first has one column more than the other function. With only
        ``dim // 2`` frequencies both have equally many, and the last column is 0.

    Raises
    ------
    TypeError
        Positions that are a bare float, bools or complex numbers; a dtype that is not one of the four.
    ValueError
        NaN or infinite positions, positions past 2**53, an unknown option, a wrong number of frequencies.

    Notes
    -----
    Vaswani et al. 2017, section 3.5. Angles are reduced in double-double. At integer positions below 2**31, float32
    results are within 1 ulp and float64 results within 4e-16. At integer positions below 2**53, float32 results are
    within 2**-24. The usual float32 formula is wrong by 0.005 at position 131072, and its angles by up to a radian at
    2**24. The bits of a row depend on its position and the options, not on the other positions of the call. Between
    instruction sets (`use_isa`) two float32 entries in 10**9 differ, by 1 ulp.

    Options of other implementations. The paper, keras-hub, XLM, DistilBERT: the defaults. Marian, Pegasus, RoFormer,
    CTRL, Transformer-XL, XLNet: ``layout="halves"``. x-transformers: ``layout="halves"`` and a learned `scale`.
    tensor2tensor, fairseq, M2M100, Whisper: ``layout="halves", denominator="half-1"`` (fairseq counts positions from
    padding_idx + 1). MusicGen: ``layout="halves", denominator="half-1", order="cossin"``. tensor2tensor pads an odd
    width with zeros, as this function does with "half-1".

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.sinusoidal(2, 4)
    array([[0.        , 1.        , 0.        , 1.        ],
           [0.84147096, 0.5403023 , 0.00999983, 0.99995   ]], dtype=float32)

    Add the encoding to word vectors that continue a text after 100 tokens:

    >>> words = np.ones((2, 3, 4), np.float32)
    >>> encoded = words + posenc.sinusoidal(3, 4, start=100)
    """
    try:
        columns = _exact_columns(dim, base, layout, order, denominator) if frequencies is None else None
    except TypeError:  # an argument that is not hashable
        columns = None
    if columns is None:
        dim = as_index("dim", dim, 1, MOST_WIDTH)
        columns = read_columns(dim, base, frequencies, layout, order, denominator)
    if type(scale) is not float or scale != 1.0:
        scale = as_number("scale", scale)
        check_range("scale", scale, result_dtype(dtype, out))
    return _core.sinusoid(
        positions=positions, frequencies=columns.frequencies, lo=columns.low, out=out, sine=columns.sine,
        cosine=columns.cosine, step=columns.step, sine_scale=scale, cosine_scale=scale, d=dim, dtype=dtype, start=start,
    )  # fmt: skip


@door
def sinusoidal_vjp(
    grad: npt.ArrayLike,
    positions: npt.ArrayLike,
    dim: int,
    *,
    base: float = 10000.0,
    frequencies: npt.ArrayLike | None = None,
    layout: Layout = "interleaved",
    order: Order = "sincos",
    denominator: Denominator = "dim",
    scale: float = 1.0,
    start: int = 0,
) -> SinusoidalGradient:
    """Return the gradients of `sinusoidal`.

    ``dp = sum_i w da``, ``dw = sum_n p da``, where ``da = scale (cos grad_sin - sin grad_cos)`` for each angle.

    Parameters
    ----------
    grad : array (..., N, dim)
        Cotangent of the encoding. See `sinusoidal` for the other arguments.

    Returns
    -------
    SinusoidalGradient
        ``positions`` (..., N) and ``frequencies``, both in float64. If `base` gives the frequencies, their gradient
        is returned as well, so that training can start from them.

    Raises
    ------
    TypeError, ValueError
        As `sinusoidal`. Also if `grad` does not have the shape of the encoding.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.sinusoidal_vjp(np.ones((1, 2)), [0.0], 2)
    SinusoidalGradient(positions=array([1.]), frequencies=array([0.]))
    """
    dim = as_index("dim", dim, 1, MOST_WIDTH)
    columns = read_columns(dim, base, frequencies, layout, order, denominator)
    positions, grad = _core.read("sinusoid", positions=positions, grad=grad, d=dim, start=start)
    scale = as_number("scale", scale)
    check_range("scale", scale, grad.dtype)
    w, count = columns.frequencies, len(columns.frequencies)
    d_positions, d_frequencies = np.empty(positions.shape), np.zeros(count)
    for index in row_blocks(positions.shape, dim):
        places = positions[index]
        cos, sin = halves(cos_sin_table(places, w, F64, scale, columns.low))
        own = np.zeros((*places.shape, 2 * count))  # 0 where the last column of an odd width has no partner
        own[..., :dim] = grad[index][..., : 2 * count]
        grad_sin, grad_cos = (own[..., first :: columns.step][..., :count] for first in (columns.sine, columns.cosine))
        with without_warnings():
            d_angles = cos * grad_sin - sin * grad_cos
            d_positions[index] = (w * d_angles).sum(-1)
            d_frequencies += unbroadcast(places[..., None] * d_angles, (count,), F64)
    return SinusoidalGradient(d_positions, d_frequencies)
