"""The sinusoidal encoding, and the linear map from the encoding of one position to that of another."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api import convert, read
from .._core_api.arrays import F64, Array, Float64
from .._core_api.constants import MOST_WIDTH
from .._core_api.door import door, fail, fail_value
from .frequency import DENOMINATORS, Denominator, as_frequencies, exact_frequencies
from .rotated_pairs import LAYOUTS, Layout, angle_gradient, cos_sin_table, halves, pair_gradient, row_blocks

Order = Literal["sincos", "cossin"]
ORDERS: tuple[Order, ...] = get_args(Order)
EVEN_WIDTH = "an even width: a sine without its cosine cannot be shifted"


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


class ShiftGradient(NamedTuple):
    """Gradients of `shift`.

    Attributes
    ----------
    encoding : array (..., N, d)
        In the dtype of the encoding.
    offset : float64 array
        In the shape of the argument.
    frequencies : float64 array (e,)
        One number per pair, also if `base` gives the frequencies.
    """

    encoding: Array
    offset: Float64
    frequencies: Float64


class Columns(NamedTuple):
    """Frequencies in float64 or double-double, and the columns of their sines and cosines in a row of the encoding."""

    width: int
    frequencies: Float64
    low: Float64 | None
    """The exact frequencies minus `frequencies`; None if the user passed frequencies, which count as exact."""
    sine: int
    """Column of the first sine."""
    cosine: int
    """Column of the first cosine."""
    step: int
    """Columns from a sine to the next sine, and from a cosine to the next cosine."""

    @property
    def layout(self) -> Layout:
        """The layout of pairs (sin, cos) or (cos, sin)."""
        return "interleaved" if self.step == 2 else "half"

    @property
    def sign(self) -> int:
        """1 if a larger angle turns these pairs counter-clockwise."""
        return -1 if self.sine < self.cosine else 1


def read_columns(
    dim: int | None,
    base: float,
    frequencies: npt.ArrayLike | None,
    layout: Layout,
    order: Order,
    denominator: Denominator,
) -> Columns:
    """Check the options of an encoding, and return its frequencies and columns."""
    read.choice("layout", layout, LAYOUTS)
    read.choice("order", order, ORDERS)
    read.choice("denominator", denominator, DENOMINATORS)
    low: Float64 | None = None
    if frequencies is None:
        if dim is None:
            fail_value(TypeError, "dim", None, "an integer, or frequencies")
        dim = read.index("dim", dim, 1, MOST_WIDTH)
        w, low = exact_frequencies(dim, base, denominator)
    else:
        w = as_frequencies(frequencies)
        dim = 2 * len(w) if dim is None else read.index("dim", dim, 1, MOST_WIDTH)
        if len(w) not in (dim // 2, (dim + 1) // 2):
            counts = f"{(dim + 1) // 2} or {dim // 2}" if dim % 2 else f"{dim // 2}"
            fail(ValueError, "frequencies", f"{len(w)} entries", counts)
    step, second = (2, 1) if layout == "interleaved" else (1, len(w))
    sine, cosine = (0, second) if order == "sincos" else (second, 0)
    return Columns(dim, w, low, sine, cosine, step)


_kept_columns: Callable[..., Columns] = lru_cache(maxsize=64, typed=True)(read_columns)


def _find_columns(dim: int | None, base: float, frequencies: npt.ArrayLike | None, *options: Any) -> Columns:
    """Return the columns, which are kept if `base` gives the frequencies."""
    read_or_find = _kept_columns if frequencies is None else read_columns
    try:
        return read_or_find(dim, base, frequencies, *options)
    except TypeError:  # an argument that is not hashable, or one that is wrong
        return read_columns(dim, base, frequencies, *options)


@door
def sinusoidal(
    positions: npt.ArrayLike,
    dim: int | None = None,
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
    dim : int, optional
        Width of the encoding, at least 1. With `frequencies` it may be left out: twice their number.
    base : float
        ``w[i] = base**-t``, ``t = 2 i / dim``. w is not rounded to float64. See `sinusoidal_frequencies`.
    frequencies : array (ceil(dim / 2),) or (dim // 2,), optional
        w in radians per position; replaces `base` and `denominator`. The float64 numbers count as exact. A
        RopeFrequencies is refused if it has a factor or an option of `rope`.
    layout : {"interleaved", "half"}
        ``sin, cos, sin, cos, ...`` or ``[sin ... | cos ...]``.
    order : {"sincos", "cossin"}
        The function that comes first: in each pair, or with "half" in the first half of the columns.
    denominator : {"dim", "half-1"}
        Decides t; see `sinusoidal_frequencies`.
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
    CTRL, Transformer-XL, XLNet: ``layout="half"``. x-transformers: ``layout="half"`` and a learned `scale`.
    tensor2tensor, fairseq, M2M100, Whisper: ``layout="half", denominator="half-1"`` (fairseq counts positions from
    padding_idx + 1). MusicGen: ``layout="half", denominator="half-1", order="cossin"``. tensor2tensor pads an odd
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
    columns = _find_columns(dim, base, frequencies, layout, order, denominator)
    if type(scale) is not float or scale != 1.0:
        scale = read.number("scale", scale)
        read.check_range("scale", scale, read.result_dtype(dtype, out))
    return _core.sinusoid(
        positions=positions,
        frequencies=columns.frequencies,
        lo=columns.low,
        out=out,
        sine=columns.sine,
        cosine=columns.cosine,
        step=columns.step,
        sine_scale=scale,
        cosine_scale=scale,
        d=columns.width,
        dtype=dtype,
        start=start,
    )


@door
def sinusoidal_vjp(
    grad: npt.ArrayLike,
    positions: npt.ArrayLike,
    dim: int | None = None,
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
    columns = _find_columns(dim, base, frequencies, layout, order, denominator)
    positions, grad = _core.read("sinusoid", positions=positions, grad=grad, d=columns.width, start=start)
    scale = read.number("scale", scale)
    read.check_range("scale", scale, grad.dtype)
    width = 2 * len(columns.frequencies)
    d_positions, d_frequencies = np.empty(positions.shape), np.zeros(width // 2)
    for index in row_blocks(positions.shape, width):
        rows, places = grad[index], positions[index]
        if width != columns.width:  # the last column of an odd width has no partner
            rows = np.zeros((*places.shape, width), grad.dtype)
            rows[..., : columns.width] = grad[index][..., :width]
        encoding = _core.sinusoid(
            positions=places.reshape(-1),
            frequencies=columns.frequencies,
            lo=columns.low,
            sine=columns.sine,
            cosine=columns.cosine,
            step=columns.step,
            sine_scale=columns.sign * scale,
            cosine_scale=columns.sign * scale,
            d=width,
            dtype=F64,
        )
        _, d_angles = _core.rotation_vjp(
            x=encoding[None],
            grad=rows.reshape(1, *encoding.shape),
            layout=columns.layout,
            rotary_offset=0,
            out_layout=columns.layout,
            e=width // 2,
        )
        with convert.without_warnings():
            d_positions[index] = (columns.frequencies * d_angles).sum(-1).reshape(places.shape)
            d_frequencies += convert.unbroadcast(places.reshape(-1, 1) * d_angles, d_frequencies.shape, F64)
    return SinusoidalGradient(d_positions, d_frequencies)


def _even_width(encoding: Array) -> int:
    width: int = encoding.shape[-1]
    if width % 2 or not width:
        fail(ValueError, "encoding", f"last axis {width}", EVEN_WIDTH)
    return width


def _read_offset(encoding: Array, offset: npt.ArrayLike) -> Array:
    offset = _core.read("pos offset()", offset=offset)
    if not convert.broadcasts_to(offset.shape, encoding.shape[:-1]) or (
        offset.ndim and offset.shape[-1] != encoding.shape[-2]
    ):
        expected = f"one offset, or one per row of {encoding.shape[:-1]}"
        fail(ValueError, "offset", f"shape {offset.shape}", expected)
    return offset


def _rotate(encoding: Array, offset: Array, columns: Columns, out: Array | None = None) -> Array:
    """Rotate the pairs (sin, cos) or (cos, sin) of an encoding: sin(a + b) = sin a cos b + cos a sin b."""
    if encoding.ndim == 1:
        return convert.store(out, _rotate(encoding[None], offset, columns)[0], encoding.dtype)
    dtype = convert.arithmetic(encoding)
    table = cos_sin_table(np.asarray(columns.sign * offset), columns.frequencies, dtype, low=columns.low)
    cos, sin = halves(np.broadcast_to(table, (*encoding.shape[:-1], table.shape[-1])))
    return _core.rope(x=encoding, cos=cos, sin=sin, out=out, layout=columns.layout)


@door
def shift(
    encoding: npt.ArrayLike,
    offset: npt.ArrayLike,
    *,
    base: float = 10000.0,
    frequencies: npt.ArrayLike | None = None,
    layout: Layout = "interleaved",
    order: Order = "sincos",
    denominator: Denominator = "dim",
    out: Array | None = None,
) -> Array:
    """Shift sinusoidal encodings to other positions.

    ``PE[p + k]`` from ``PE[p]``, by ``sin(a + b) = sin a cos b + cos a sin b`` and its equivalent for the cosine.

    The map is linear in the encoding and equal at every position: it needs the offset k, not p.

    Parameters
    ----------
    encoding : array (..., N, d)
        Rows made by `sinusoidal` with the same options and any `scale`; d is even.
    offset : number or array (..., N)
        One k for all rows, or one for each row; integers or reals.
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
    Vaswani et al. 2017, section 3.5, states that the shift is a linear map.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> p = posenc.sinusoidal(4, 6, dtype=np.float64)
    >>> bool(np.allclose(posenc.shift(p, 1000), posenc.sinusoidal(np.arange(4) + 1000, 6, dtype=np.float64)))
    True
    """
    data = _core.read("real encoding(d)", encoding=encoding)
    columns = read_columns(_even_width(data), base, frequencies, layout, order, denominator)
    return _rotate(data, _read_offset(data, offset), columns, out)


@door
def shift_vjp(
    grad: npt.ArrayLike,
    encoding: npt.ArrayLike,
    offset: npt.ArrayLike,
    *,
    base: float = 10000.0,
    frequencies: npt.ArrayLike | None = None,
    layout: Layout = "interleaved",
    order: Order = "sincos",
    denominator: Denominator = "dim",
) -> ShiftGradient:
    """Return the gradients of `shift`.

    ``dencoding`` is `grad` shifted by ``-offset``. With the gradient dtheta of each angle ``theta = offset w``,
    ``doffset = sum_i w dtheta`` and ``dw = sum_n offset dtheta``.

    Parameters
    ----------
    grad : array (..., N, d)
        Cotangent of the shifted encoding. See `shift` for the other arguments.

    Returns
    -------
    ShiftGradient
        ``encoding`` in its dtype, ``offset`` and ``frequencies`` in float64, each in the shape of its argument.

    Raises
    ------
    TypeError, ValueError
        As `shift`. Also if `grad` does not have the shape of `encoding`.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.shift_vjp(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]), 0)
    ShiftGradient(encoding=array([[1., 0.]]), offset=array(1.), frequencies=array([0.]))
    """
    data, cotangent = _core.read("real encoding(d) -> real out(d)", encoding=encoding, grad=grad)
    columns = read_columns(_even_width(data), base, frequencies, layout, order, denominator)
    offset, dtype = _read_offset(data, offset), convert.arithmetic(data)
    d_encoding = _rotate(cotangent.astype(dtype, copy=False), -offset, columns)
    rows, d_y = np.atleast_2d(data, cotangent)
    positions = columns.sign * offset.reshape((1,) * (rows.ndim - offset.ndim) + offset.shape)
    cos, sin = halves(cos_sin_table(positions[0], columns.frequencies, dtype, low=columns.low))
    d_angle, _ = pair_gradient(d_y, rows, cos, sin, (columns.layout, columns.layout))
    d_positions, d_w = angle_gradient(d_angle, positions, columns.frequencies[None])
    d_offset = columns.sign * d_positions.reshape(offset.shape)
    return ShiftGradient(convert.result(d_encoding, data.dtype), np.asarray(d_offset), d_w[0])


@door
def shift_matrix(
    offset: float,
    dim: int,
    *,
    base: float = 10000.0,
    frequencies: npt.ArrayLike | None = None,
    layout: Layout = "interleaved",
    order: Order = "sincos",
    denominator: Denominator = "dim",
) -> Float64:
    """Return the matrix of `shift`.

    ``PE[p + offset] = matrix @ PE[p]`` for every p.

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

    Notes
    -----
    Vaswani et al. 2017, section 3.5: ``PE[p + k]`` is a linear function of ``PE[p]``.

    Examples
    --------
    >>> import posenc
    >>> posenc.shift_matrix(1, 2).round(3)
    array([[ 0.54 ,  0.841],
           [-0.841,  0.54 ]])
    """
    dim = read.index("dim", dim, 1, MOST_WIDTH)
    number = _core.read("pos offset() alone", offset=offset)
    if dim % 2:
        fail_value(ValueError, "dim", dim, EVEN_WIDTH)
    read.check_table_size(dim * dim, dim=dim)
    columns = read_columns(dim, base, frequencies, layout, order, denominator)
    return np.ascontiguousarray(_rotate(np.eye(dim), number, columns).T)
