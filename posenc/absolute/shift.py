"""The linear map that takes the sinusoid of one position to that of another."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import (
    F32,
    F64,
    Array,
    Float64,
    as_data,
    as_index,
    as_reals,
    broadcasts_to,
    cast_operand,
    check_positions,
    compute_dtype,
    fail,
    fail_value,
    finish_out,
    prepare_out,
    unbroadcast,
)
from .sinusoid import Columns
from .sinusoid import read_columns as columns_of

__all__ = ["ShiftGradient", "shift", "shift_matrix", "shift_vjp"]


class ShiftGradient(NamedTuple):
    """Gradients of `shift`: `encoding` in its dtype, the others float64."""

    encoding: Array
    offset: Float64
    frequencies: Float64


class _Shift(NamedTuple):
    """What `shift` and its gradient prepare alike."""

    angle: Array
    """The offset, negated where a pair is (sin, cos): position of the rotation that does the shift."""
    sign: float
    columns: Columns
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
    columns = columns_of(function, encoding.shape[-1], base, frequencies, layout, order, denominator)
    by = as_reals(function, "offset", offset)
    check_positions(function, "offset", by)
    if not broadcasts_to(by.shape, encoding.shape[:-1]) or (by.ndim and by.shape[-1] != encoding.shape[-2]):
        fail(
            ValueError, function, "offset", f"shape {by.shape}", f"one offset, or one per row of {encoding.shape[:-1]}"
        )
    # sin(a + b) = sin a cos b + cos a sin b turns the pair (sin, cos) backwards, (cos, sin) forwards
    sign = -1 if order == "sincos" else 1
    angle, half = np.asarray(by * sign), len(columns.frequencies)
    table = np.empty((*by.shape, 2 * half), F64 if encoding.dtype.char == "d" else F32)
    _core.sinusoid(function, angle, columns.frequencies, columns.low, table, half, 0, 1, 1.0, 1.0)
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
    out, buffer = prepare_out(function, out, data.shape, data.dtype, (data, offset, frequencies))
    _core.rope(function, data, s.table, buffer, 0, s.interleaved, s.interleaved, False)
    return finish_out(out, buffer)


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
    kind = compute_dtype(data)
    d_encoding = np.empty(data.shape, kind)
    d_offset, d_frequencies = np.empty((*data.shape[:-1], 1)), np.empty((1, len(s.columns.frequencies)))
    _core.rope_vjp(
        function, cotangent.astype(kind, copy=False), cast_operand(data, kind), s.table, s.angle[..., None],
        s.columns.frequencies[None], None, d_encoding, d_offset, d_frequencies, 0, s.interleaved, s.interleaved,
    )  # fmt: skip
    return ShiftGradient(
        d_encoding.astype(data.dtype, copy=False),
        unbroadcast(s.sign * d_offset[..., 0], s.angle.shape, F64),
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
        fail_value(ValueError, function, "dim", dim, "an even width: a sine without its cosine cannot be shifted")
    identity = np.eye(dim)
    s = _shift(function, identity, by, base, frequencies, layout, order, denominator)
    rows = np.empty((dim, dim))
    _core.rope(function, identity, s.table, rows, 0, s.interleaved, s.interleaved, False)
    return np.ascontiguousarray(rows.T)
