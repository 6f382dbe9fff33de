"""The linear map from the sinusoid of one position to the sinusoid of another."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import (
    Array,
    Float64,
    as_index,
    broadcasts_to,
    cast_result,
    check_table_size,
    compute_dtype,
    door,
    fail,
    fail_value,
)
from .._core_api.constants import MOST_WIDTH
from .frequency import Denominator
from .rotated_pairs import RotatedPairs
from .sinusoid import Layout, Order, cos_sin_table, halves, read_columns

EVEN_WIDTH = "an even width: a sine without its cosine cannot be shifted"


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


class _Shift(NamedTuple):
    """A shift as a rotation of the pairs (sin, cos) or (cos, sin)."""

    table: Array
    """[cos | sin] of ``positions * frequencies``."""
    positions: Array
    """``sign * offset``: a shift rotates pairs (sin, cos) clockwise and pairs (cos, sin) counter-clockwise."""
    sign: float
    frequencies: Float64
    interleaved: bool

    def rotate(self, x: Array, out: Array | None = None) -> Array:
        """Return the rows of x, shifted, in `out` if it is an array."""
        cos, sin = halves(self.table)
        return _core.rope(
            x=x, cos=cos, sin=sin, out=out, offset=0, interleaved=self.interleaved,
            out_interleaved=self.interleaved,
        )  # fmt: skip


def _read_shift(
    encoding: Array,
    offset: npt.ArrayLike,
    base: float,
    frequencies: npt.ArrayLike | None,
    layout: Layout,
    order: Order,
    denominator: Denominator,
) -> _Shift:
    width = encoding.shape[-1]
    if width % 2 or not width:
        fail(ValueError, "encoding", f"last axis {width}", EVEN_WIDTH)
    columns = read_columns(width, base, frequencies, layout, order, denominator)
    offset = _core.read("pos offset()", offset=offset)
    if not broadcasts_to(offset.shape, encoding.shape[:-1]) or (offset.ndim and offset.shape[-1] != encoding.shape[-2]):
        expected = f"one offset, or one per row of {encoding.shape[:-1]}"
        fail(ValueError, "offset", f"shape {offset.shape}", expected)
    sign = -1 if order == "sincos" else 1  # sin(a + b) = sin a cos b + cos a sin b
    positions = np.asarray(offset * sign)
    table = cos_sin_table(positions, columns.frequencies, compute_dtype(encoding), low=columns.low)
    return _Shift(table, positions, sign, columns.frequencies, layout == "interleaved")


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
    s = _read_shift(data, offset, base, frequencies, layout, order, denominator)
    return s.rotate(data, out)


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
    data, grad = _core.read("real encoding(d) -> real out(d)", encoding=encoding, grad=grad)
    s = _read_shift(data, offset, base, frequencies, layout, order, denominator)
    grad = grad.astype(s.table.dtype, copy=False)
    pairs = RotatedPairs(0, len(s.frequencies), s.interleaved, s.interleaved)
    d_encoding = pairs.x_gradient(grad, *halves(s.table))
    found = pairs.angle_gradient(grad, data, s.table, s.positions[..., None], s.frequencies[None])
    d_offset = np.asarray(s.sign * found.positions[..., 0])  # an array for one offset, too
    return ShiftGradient(cast_result(d_encoding, data.dtype), d_offset, found.frequencies[0])


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
    dim = as_index("dim", dim, 1, MOST_WIDTH)
    number = _core.read("pos offset:()", offset=offset)
    if dim % 2:
        fail_value(ValueError, "dim", dim, EVEN_WIDTH)
    check_table_size(dim * dim, dim=dim)
    identity = np.eye(dim)
    s = _read_shift(identity, number, base, frequencies, layout, order, denominator)
    return np.ascontiguousarray(s.rotate(identity).T)
