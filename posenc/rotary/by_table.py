"""Rotary embeddings by a table of cos and sin that the caller has, and their gradients."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api import convert, read
from .._core_api.arrays import F64, Array, Float64
from .._core_api.door import door, fail
from ..absolute.rotated_pairs import Layout, table_gradient, with_heads
from .rotations import channels

TABLE = "real x(n,d), real cos(n,e) beside, real sin(n,e) beside"


class RopeTableGradient(NamedTuple):
    """Gradients of `rope_by_table`, each in its argument's dtype.

    Attributes
    ----------
    x : array (..., N, D)
    cos, sin : array (..., N, rotary_dim // 2)
        In the shape of the argument.
    """

    x: Array
    cos: Array
    sin: Array


@door
def rope_by_table(
    x: npt.ArrayLike,
    cos: npt.ArrayLike,
    sin: npt.ArrayLike,
    *,
    layout: Layout,
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    inverse: bool = False,
    out_layout: Layout | None = None,
    seq_axis: int = -2,
    out: Array | None = None,
) -> Array:
    """Apply rotary position embeddings by a table of cos and sin.

    ``y0 = x0 cos - x1 sin``, ``y1 = x0 sin + x1 cos`` for each pair of channels, as `rope` with the cos and sin of its
    angles.

    Parameters
    ----------
    x : array (..., N, D)
        Queries or keys.
    cos, sin : array (N, rotary_dim // 2), (B, N, rotary_dim // 2) or (B, H, N, rotary_dim // 2)
        One column for each pair, as `rope_table` returns them. Code that follows LLaMA in transformers has each column
        twice: pass ``cos[..., : rotary_dim // 2]``. Axes before the columns are those of `positions` in `rope`, and
        cos and sin broadcast against each other.
    layout : {"half", "interleaved"}
        As in `rope`. A table does not know it.
    rotary_dim : int, optional
        Number of rotated channels, even. The other channels are copied bit for bit. By default the channels from
        `rotary_offset` on are rotated.
    rotary_offset : int
        First rotated channel.
    inverse : bool
        Apply the inverse: negate the angle and divide by ``cos**2 + sin**2``.
    out_layout : {"half", "interleaved"}, optional
        Layout of the rotated channels in the result; the default is `layout`.
    seq_axis : int
        The sequence axis of x. That of cos and sin is always the one before the last.
    out : array like x, optional
        Filled and returned. May be x itself.

    Returns
    -------
    ndarray
        Shape and dtype of x; integers become float64.

    Raises
    ------
    TypeError
        Bool, complex or object arrays.
    ValueError
        An odd width, an unknown layout, a table that does not fit the channels or the sequence axis, or whose cos and
        sin are both 0 if `inverse` divides by them.

    Notes
    -----
    Su et al. 2021 (RoFormer), equation 34. The arithmetic is float32, or float64 if the result is float64. A table in
    another dtype is converted to it, and the result is rounded once, at the end.

    Examples
    --------
    One table serves the queries and the keys of a layer:

    >>> import numpy as np, posenc
    >>> w = posenc.rope_frequencies(8)
    >>> cos, sin = posenc.rope_table(6, w)
    >>> q, k = np.ones((4, 6, 8)), np.ones((2, 6, 8))
    >>> rotated = [posenc.rope_by_table(x, cos, sin, layout="half") for x in (q, k)]
    >>> bool((rotated[0] == posenc.rope(q, 6, w, layout="half")).all())
    True
    """
    options = channels(layout, rotary_dim, rotary_offset, out_layout, seq_axis)
    if read.flag("inverse", inverse):
        x, cos, sin = _core.read(TABLE, x=x, cos=cos, sin=sin, seq_axis=seq_axis)
        cos, sin = _inverted(with_heads(cos, x.ndim - 1, 1), with_heads(sin, x.ndim - 1, 1))
    return _core.rope(x=x, cos=cos, sin=sin, out=out, **options)


@door
def rope_by_table_vjp(
    grad: npt.ArrayLike,
    x: npt.ArrayLike,
    cos: npt.ArrayLike,
    sin: npt.ArrayLike,
    *,
    layout: Layout,
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    inverse: bool = False,
    out_layout: Layout | None = None,
    seq_axis: int = -2,
) -> RopeTableGradient:
    """Return the gradients of `rope_by_table`.

    ``dx`` is `grad` rotated by the negated angle; ``dcos = dy0 x0 + dy1 x1`` and ``dsin = dy1 x0 - dy0 x1``, summed
    over the rows of x that share a row of the table.

    Parameters
    ----------
    grad : array like x
        Cotangent of the result. See `rope_by_table` for the other arguments.

    Returns
    -------
    RopeTableGradient
        ``(x, cos, sin)``, each in its argument's shape and dtype.

    Raises
    ------
    TypeError, ValueError
        As `rope_by_table`. Also if `grad` does not have the shape of x.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> x, grad = np.array([[1.0, 0.0]]), np.array([[2.0, 3.0]])
    >>> posenc.rope_by_table_vjp(grad, x, np.array([[0.6]]), np.array([[0.8]]), layout="half")
    RopeTableGradient(x=array([[3.6, 0.2]]), cos=array([[2.]]), sin=array([[3.]]))
    """
    options = channels(out_layout or layout, rotary_dim, rotary_offset, layout, seq_axis)  # of the cotangent
    x, cos, sin = _core.read(TABLE, x=x, cos=cos, sin=sin, seq_axis=seq_axis)
    _, grad = _core.read("real x(n,d) -> real out(n,d)", x=x, grad=grad, seq_axis=seq_axis)
    c, s = with_heads(cos, x.ndim - 1, 1), with_heads(sin, x.ndim - 1, 1)
    is_inverse = read.flag("inverse", inverse)
    cosine, sine = _inverted(c, s) if is_inverse else (c, s)
    d_x = _core.rope(x=grad.astype(convert.arithmetic(x), copy=False), cos=cosine, sin=-sine, **options)
    rows, d_y = np.moveaxis(x, seq_axis, -2), np.moveaxis(grad, seq_axis, -2)
    layouts = layout, options["layout"]
    d_cos, d_sin = table_gradient(d_y, rows, c, s, layouts, rotary_offset)
    if is_inverse:
        d_cos, d_sin = _of_inverse(d_cos, d_sin, c.astype(F64), s.astype(F64))
    return RopeTableGradient(
        convert.result(d_x, x.dtype),
        convert.unbroadcast(d_cos, c.shape, cos.dtype).reshape(cos.shape),
        convert.unbroadcast(d_sin, s.shape, sin.dtype).reshape(sin.shape),
    )


def _inverted(cos: Array, sin: Array) -> tuple[Array, Array]:
    """Return cos and sin of the inverse rotation."""
    cos, sin = cos.astype(F64), sin.astype(F64)
    with convert.without_warnings():
        norm = cos**2 + sin**2
        if not norm.all():
            fail(ValueError, "cos", "a 0 where sin is 0", "a table that can be inverted")
        return cos / norm, -sin / norm


def _of_inverse(d_cos: Float64, d_sin: Float64, cos: Float64, sin: Float64) -> tuple[Float64, Float64]:
    """Return the gradients of a table from those of its inverse ``(c, -s) / (c**2 + s**2)``."""
    with convert.without_warnings():
        norm = cos**2 + sin**2
        same, other = (sin**2 - cos**2) / norm**2, 2 * cos * sin / norm**2
        return same * d_cos + other * d_sin, same * d_sin - other * d_cos
