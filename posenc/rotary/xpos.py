"""xPos: rotary embedding whose pairs also shrink or grow with the position."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import (
    F32,
    F64,
    Array,
    Float64,
    as_data,
    as_number,
    as_positions,
    fail,
    fail_value,
    finish_out,
    prepare_out,
)
from ._rotation import fits_sequence, radians, rotation, turned_back
from .rope import RopeGradient

__all__ = ["xpos", "xpos_vjp"]


def _growth(function: str, half: int, scale_base: float, gamma: float, downscale: bool) -> Float64:
    """What one position adds to the logarithm of the size of each pair."""
    base, shift = as_number(function, "scale_base", scale_base), as_number(function, "gamma", gamma)
    for name, number, given in (("scale_base", base, scale_base), ("gamma", shift, gamma)):
        if number <= 0:
            fail_value(ValueError, function, name, given, "a positive number")
    zeta = (np.arange(half) / half + shift) / (1 + shift)  # (2k + gamma d) / ((1 + gamma) d), d = 2 half
    return np.log(zeta) / (-base if downscale else base)


def _logarithm_limit(dtype: np.dtype[Any]) -> float:
    """Scales of at most exp(this), and at least its inverse, are normal numbers of a storage dtype."""
    numbers = np.finfo(dtype if dtype.char in "efd" else F32)  # bfloat16 has the exponents of float32
    return float(min(np.log(F64.type(numbers.max)), -np.log(F64.type(numbers.smallest_normal))))


def _angles(
    scale_base: float, gamma: float, center: float, downscale: bool, stored: np.dtype[Any], function: str,
    positions: Any, frequencies: Any, x: Array, turned: int, dtype: np.dtype[Any], inverse: bool,
) -> tuple[Array, Array, Float64]:  # fmt: skip
    w, factor = radians(function, frequencies)
    if len(w) != turned // 2:
        fail(ValueError, function, "frequencies", f"{len(w)} entries", f"rotary_dim // 2 = {turned // 2}")
    where = as_positions(function, "positions", positions)
    fits_sequence(function, where.shape, x)
    growth, middle = _growth(function, len(w), scale_base, gamma, downscale), as_number(function, "center", center)
    halves = np.empty((*where.shape, 2, len(w)))
    table = halves.reshape(*where.shape, turned)
    _core.sinusoid(function, where, w, None, table, len(w), 0, 1, factor, factor)
    away = where.astype(F64) - middle
    # growth[0] is the largest; the limit is the same at both ends, so that a query and its key fail alike
    limit = _logarithm_limit(stored) / np.abs(growth).max(initial=1e-300)
    if np.abs(away).max(initial=0) > limit:
        expected = f"at most {limit:.0f} from center, or the scale leaves {stored.name}: move center, or use float64"
        fail(ValueError, function, "positions", f"{where.flat[np.abs(away).argmax()]}", expected)
    halves *= np.exp(away[..., None, None] * growth)
    return table.astype(dtype, copy=False), where[..., None], w[None]


def xpos(
    x: npt.ArrayLike,
    positions: Any,
    frequencies: Any,
    *,
    layout: str,
    scale_base: float = 512,
    gamma: float = 0.4,
    center: float = 0,
    downscale: bool = False,
    seq_axis: int = -2,
    out: Array | None = None,
) -> Array:
    """`rope` times ``zeta[k]**((p - center) / scale_base)``, ``zeta[k] = (2k + gamma D) / ((1 + gamma) D)``.

    Keys are divided where queries are multiplied, so that scores carry ``zeta**((i - j) / scale_base)``.

    Parameters
    ----------
    x : array (..., N, D)
        Queries, or keys with `downscale`.
    positions, frequencies, layout
        As in `rope`; a table cannot take their place.
    scale_base : float
        Positive; over so many positions a score decays by zeta.
    gamma : float
        Positive; the smaller it is, the faster the first pairs decay.
    center : number
        The position where the scale is 1, the same for queries and keys, whatever their lengths.
    downscale : bool
        Divide instead, for keys.
    seq_axis : int
        As in `rope`.
    out : array like x, optional
        May be x itself.

    Returns
    -------
    ndarray
        Shape and dtype of x; integers become float64.

    Raises
    ------
    TypeError, ValueError
        As `rope`; positions so far from `center` that a scale is no normal number of the dtype of x.

    Notes
    -----
    Sun et al. 2022 (A Length-Extrapolatable Transformer), section 4.2 and algorithm 1. Scores decay with ``i - j``
    where keys come before queries and grow where they come after: for causal attention only. The scale is computed in
    float64 and is part of the table, which is rounded once.

    One factor shrinks as the other grows, so at long range both leave the range of a dtype, although their product is
    moderate. With the defaults the first pair, the worst, reaches the limit of float16 at 3966 positions from center,
    that of float32 and bfloat16 at 35694, that of float64 at 289519; further is a ValueError, never 0 or infinity.

    References take ``center = N // 2`` of whatever is rotated (torchscale rounds up). In rotary-embedding-torch
    queries and cached keys of different lengths so get different centers, and wrong scores.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> q = k = np.ones((600, 8))
    >>> w = posenc.rope_frequencies(8)
    >>> q, k = posenc.xpos(q, 600, w, layout="half"), posenc.xpos(k, 600, w, layout="half", downscale=True)
    >>> bool(np.isclose(q[512] @ k[500], q[52] @ k[40]))
    True
    """
    function = "xpos"
    data = as_data(function, "x", x)
    rows, table, _, _, first, pairs_in, pairs_out = rotation(
        function, data, positions, frequencies, layout, None, 0, False, None, seq_axis,
        partial(_angles, scale_base, gamma, center, downscale, data.dtype),
    )  # fmt: skip
    given = out is not None
    out, buffer = prepare_out(function, out, data.shape, data.dtype, (data,), in_place=True)
    _core.rope(function, rows, table, buffer, first, pairs_in, pairs_out, given)
    return finish_out(out, buffer)


def xpos_vjp(
    grad: npt.ArrayLike,
    x: npt.ArrayLike,
    positions: Any,
    frequencies: Any,
    *,
    layout: str,
    scale_base: float = 512,
    gamma: float = 0.4,
    center: float = 0,
    downscale: bool = False,
    seq_axis: int = -2,
) -> RopeGradient:
    """Gradient of `xpos`: that of `rope`, and ``dp += sum_k log(zeta[k]) / scale_base (dy0 y0 + dy1 y1)``.

    Parameters
    ----------
    grad : array like x
        Cotangent of the result; the other arguments are those of `xpos`.

    Returns
    -------
    RopeGradient
        ``x`` in its dtype, ``positions`` and ``frequencies`` in float64, in their arguments' shapes.

    Raises
    ------
    TypeError, ValueError
        As `xpos`; also where `grad` does not have the shape of x.

    Notes
    -----
    The gradient with respect to x has the scale of x, not its inverse.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> g = posenc.xpos_vjp(np.array([[0.0, 1.0]]), np.array([[1.0, 0.0]]), [0.0], [1.0], layout="half")
    >>> g.x, g.positions, g.frequencies
    (array([[0., 1.]]), array([1.]), array([0.]))
    """
    function = "xpos_vjp"
    data = as_data(function, "x", x)
    turn = rotation(
        function, data, positions, frequencies, layout, None, 0, False, None, seq_axis,
        partial(_angles, scale_base, gamma, center, downscale, data.dtype),
    )  # fmt: skip
    growth = _growth(function, turn[3].shape[-1], scale_base, gamma, downscale)[None]
    d_x, d_positions, d_frequencies = turned_back(function, grad, turn, seq_axis, growth)
    return RopeGradient(d_x, d_positions[..., 0], d_frequencies[0])
