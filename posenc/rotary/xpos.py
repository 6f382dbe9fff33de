"""xPos: rotary position embeddings whose pairs also grow or shrink with the position."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api import convert, read
from .._core_api.arrays import F32, F64, Array, Float64
from .._core_api.door import door, fail
from ..absolute.rotated_pairs import Layout, cos_sin_table, halves
from .rotations import Frequencies, Options, RopeGradient, gradient, read_options, refuse_table


def _growth(pairs: int, scale_base: float, gamma: float, downscale: bool) -> Float64:
    """Return the logarithm of the factor by which one position scales each pair."""
    base, offset = read.positive("scale_base", scale_base), read.positive("gamma", gamma)
    zeta = (np.arange(pairs) / pairs + offset) / (1 + offset)  # (2k + gamma r) / ((1 + gamma) r), r = 2 pairs
    return np.log(zeta) / (-base if read.flag("downscale", downscale) else base)


def _logarithm_limit(dtype: np.dtype[np.floating]) -> float:
    """Return the largest a for which exp(a) and exp(-a) are normal numbers of a storage dtype."""
    numbers = np.finfo(dtype if dtype.char in "efd" else F32)  # bfloat16 has the exponents of float32
    return float(min(np.log(F64.type(numbers.max)), -np.log(F64.type(numbers.smallest_normal))))


class _Rotation(NamedTuple):
    """The checked arguments of `xpos`."""

    x: Array
    options: Options
    """Those of `_core.rope`."""
    positions: Array
    frequencies: Float64
    table: Array
    """[cos | sin] of the angles, scaled by the growth since the center."""
    growth: Float64


def _read(
    x: npt.ArrayLike,
    positions: npt.ArrayLike,
    start: int,
    rotation: tuple[npt.ArrayLike, float, Options],
    scale_base: float,
    gamma: float,
    center: float,
    downscale: bool,
) -> _Rotation:
    w, factor, options = rotation
    x, positions, w = _core.read(
        "rope_positions", x=x, positions=positions, start=start, frequencies=w, attention_factor=factor, **options
    )
    growth = _growth(len(w), scale_base, gamma, downscale)
    distance = positions.astype(F64) - read.number("center", center)
    # growth[0] is the largest. The limit is equal on both sides of center, so a query and its key fail alike.
    limit = _logarithm_limit(x.dtype) / np.abs(growth).max(initial=1e-300)
    if np.abs(distance).max(initial=0) > limit:
        expected = f"at most {limit:.0f} from center, because {x.dtype.name} cannot hold the scale beyond: move "
        expected += "center, or use float64"
        fail(ValueError, "positions", positions.flat[np.abs(distance).argmax()], expected)
    table = cos_sin_table(positions, w, F64, factor)
    cos_and_sin = table.reshape(*positions.shape, 2, len(w))
    cos_and_sin *= np.exp(distance[..., None, None] * growth)
    return _Rotation(x, options, positions, w, convert.result(table, convert.arithmetic(x)), growth)


@door
def xpos(
    x: npt.ArrayLike,
    positions: npt.ArrayLike,
    frequencies: Frequencies,
    *,
    layout: Layout | None = None,
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    scale_base: float = 512,
    gamma: float = 0.4,
    center: float = 0,
    downscale: bool = False,
    seq_axis: int = -2,
    start: int = 0,
    out: Array | None = None,
) -> Array:
    """Apply rotary position embeddings whose scores decay with distance (xPos).

    `rope` times ``zeta[k]**((p - center) / scale_base)``, with ``zeta[k] = (2k + gamma r) / ((1 + gamma) r)``
    for r rotated channels.

    Keys are divided where queries are multiplied, so scores contain the factor ``zeta**((i - j) / scale_base)``.

    Parameters
    ----------
    x : array (..., N, D)
        Queries, or keys with `downscale`.
    positions, frequencies, layout, rotary_dim, rotary_offset
        As in `rope`. The scale multiplies the rotated channels only.
    scale_base : float
        Positive. A score decays by zeta over a distance of `scale_base` positions.
    gamma : float
        Positive. The smaller it is, the faster the first pairs decay.
    center : number
        The position where the scale is 1. It must be equal for queries and keys, whatever their lengths.
    downscale : bool
        Divide by the scale, for keys.
    seq_axis, start : int
        As in `rope`.
    out : array like x, optional
        Filled and returned. May be x itself.

    Returns
    -------
    ndarray
        Shape and dtype of x; integers become float64.

    Raises
    ------
    TypeError, ValueError
        As `rope`. Also for positions so far from `center` that a scale is not a normal number of the dtype of x.

    Notes
    -----
    Sun et al. 2022 (A Length-Extrapolatable Transformer), section 4.2 and algorithm 1. Scores decay with ``i - j``
    where keys come before queries and grow where keys come after them, so xPos is for causal attention only. The scale
    is computed in float64 and is part of the table, which is rounded once.

    One factor shrinks as the other grows, so at long range both leave the range of a dtype, although their product is
    moderate. With the defaults the first pair, the worst, reaches the limit of float16 at 3966 positions from center,
    the limit of float32 and bfloat16 at 35694, and the limit of float64 at 289519. Positions beyond the limit are a
    ValueError; the scale is never 0 or infinite.

    References take ``center = N // 2`` of the tensor that they rotate (torchscale rounds up). In rotary-embedding-torch
    queries and cached keys of different lengths therefore have different centers, and wrong scores.

    Examples
    --------
    Scores depend on the distance only:

    >>> import numpy as np, posenc
    >>> q = k = np.ones((600, 8))
    >>> w = posenc.rope_frequencies(8)
    >>> q, k = posenc.xpos(q, 600, w, layout="half"), posenc.xpos(k, 600, w, layout="half", downscale=True)
    >>> bool(np.isclose(q[512] @ k[500], q[52] @ k[40]))
    True
    """
    refuse_table(positions)
    rotation = read_options(frequencies, layout, rotary_dim, rotary_offset, seq_axis=seq_axis)
    r = _read(x, positions, start, rotation, scale_base, gamma, center, downscale)
    cos, sin = halves(r.table)
    return _core.rope(x=r.x, cos=cos, sin=sin, out=out, **r.options)


@door
def xpos_vjp(
    grad: npt.ArrayLike,
    x: npt.ArrayLike,
    positions: npt.ArrayLike,
    frequencies: Frequencies,
    *,
    layout: Layout | None = None,
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    scale_base: float = 512,
    gamma: float = 0.4,
    center: float = 0,
    downscale: bool = False,
    seq_axis: int = -2,
    start: int = 0,
) -> RopeGradient:
    """Return the gradients of `xpos`.

    The gradients of `rope`, and ``dp += sum_k log(zeta[k]) / scale_base (dy0 y0 + dy1 y1)``, where dy is `grad` and y
    is the result of `xpos`.

    Parameters
    ----------
    grad : array like x
        Cotangent of the result. See `xpos` for the other arguments.

    Returns
    -------
    RopeGradient
        ``x`` in its dtype, ``positions`` and ``frequencies`` in float64, in their arguments' shapes.

    Raises
    ------
    TypeError, ValueError
        As `xpos`. Also if `grad` does not have the shape of x.

    Notes
    -----
    The gradient with respect to x is multiplied by the scale, as x is, not divided by it.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> g = posenc.xpos_vjp(np.array([[0.0, 1.0]]), np.array([[1.0, 0.0]]), [0.0], [1.0], layout="half")
    >>> g.x, g.positions, g.frequencies
    (array([[0., 1.]]), array([1.]), array([0.]))
    """
    refuse_table(positions)
    rotation = read_options(frequencies, layout, rotary_dim, rotary_offset, seq_axis=seq_axis)
    r = _read(x, positions, start, rotation, scale_base, gamma, center, downscale)
    found = gradient(grad, r.x, r.options, r.table, r.positions[None], r.frequencies[None], r.growth[None])
    return RopeGradient(found.x, found.positions[0], found.frequencies[0])
