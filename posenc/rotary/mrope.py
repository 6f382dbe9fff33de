"""Rotary embedding by time, height and width, each a section of the spectrum: text with images and video."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import I64, Array, Float64, as_data, as_index, fail, fail_value, finish_out, prepare_out
from ._coordinates import Indices, coordinate_gradients, coordinates, counted, scales, table_by_pair
from ._rotation import rotation
from .rope import RopeGradient

__all__ = ["mrope", "mrope_vjp"]


def _of_sections(function: str, sections: Any, interleaved: bool, overflow: Any, e: int) -> Indices:
    """The coordinate of each of e pairs."""
    if not isinstance(sections, Iterable) or isinstance(sections, str | bytes):
        fail(TypeError, function, "sections", f"type {type(sections).__name__}", "three integers")
    counts = [as_index(function, "sections", count, 0) for count in sections]
    if len(counts) != 3 or sum(counts) != e:
        fail(
            ValueError,
            function,
            "sections",
            f"{counts}, {sum(counts)} pairs",
            f"three numbers that add up to rotary_dim // 2 = {e}",
        )
    rest = as_index(function, "overflow", overflow, 0)
    if rest > 2:
        fail_value(ValueError, function, "overflow", rest, "0, 1 or 2, a row of positions")
    if not interleaved:
        return np.repeat(np.arange(3), counts)
    k = np.arange(e)
    return np.where(k < 3 * np.array(counts, I64)[k % 3], k % 3, rest)


def _angles_by_sections(
    sections: Any, interleaved: bool, overflow: int, function: str, positions: Any, frequencies: Any, x: Array,
    turned: int, dtype: np.dtype[Any], inverse: bool,
) -> tuple[Array, Array, Float64]:  # fmt: skip
    where = coordinates(function, positions, 3, x)
    w, factor = counted(function, frequencies, turned // 2, "rotary_dim // 2")
    of_pair = _of_sections(function, sections, interleaved, overflow, turned // 2)
    return table_by_pair(function, where, w, of_pair, scales(factor, inverse), dtype)


def mrope(
    x: npt.ArrayLike,
    positions: Any,
    frequencies: Any,
    *,
    layout: str,
    sections: Any,
    interleaved: bool = False,
    overflow: int = 0,
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    inverse: bool = False,
    out_layout: str | None = None,
    seq_axis: int = -2,
    out: Array | None = None,
) -> Array:
    """`rope` by three coordinates, M-RoPE: pair k turns by ``positions[a(k)] * w[k]``.

    Parameters
    ----------
    x : array (..., N, D)
        Queries or keys.
    positions : array (3, N), or (3, ...) with as many axes as x
        Time, height and width of each token; for text all three are the same. After the first axis as in `rope`.
    frequencies : array (rotary_dim // 2,) or RopeFrequencies
        One spectrum, that of `rope`, which the coordinates share.
    layout : {"half", "interleaved"}
        Which channels are a pair, as in `rope`.
    sections : three integers
        How many pairs turn by time, height and width; they add up to rotary_dim // 2.
    interleaved : bool
        False: a(k) is 0 for the first ``sections[0]`` pairs, then 1, then 2. True: a(k) is ``k % 3`` while
        ``k < 3 * sections[k % 3]``, and `overflow` for the other pairs.
    overflow : {0, 1, 2}
        The coordinate of pairs past their section, with `interleaved` only.
    rotary_dim, rotary_offset, inverse, out_layout, seq_axis
        As in `rope`.
    out : array like x, optional
        May be x itself.

    Returns
    -------
    ndarray
        Shape and dtype of x; integers become float64. Where the coordinates are equal it is that of `rope`, bit for
        bit.

    Raises
    ------
    TypeError, ValueError
        As `rope`; positions without a first axis of 3, sections that do not add up.

    Notes
    -----
    Wang et al. 2024 (Qwen2-VL), section 2.1: in sections, such as [16, 24, 24]. Qwen3-VL interleaves, with
    [24, 20, 20] and the pairs past 60 turned by time, as here with ``overflow=0``; llama.cpp turns pairs 61 and 62 by
    a fourth coordinate, which is 0 in text.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> x, w = np.ones((5, 16)), posenc.rope_frequencies(16)
    >>> text = np.broadcast_to(np.arange(5), (3, 5))
    >>> same = posenc.mrope(x, text, w, layout="half", sections=(2, 3, 3)) == posenc.rope(x, 5, w, layout="half")
    >>> bool(same.all())
    True
    """
    function = "mrope"
    data = as_data(function, "x", x)
    rows, table, _, _, first, pairs_in, pairs_out = rotation(
        function, data, positions, frequencies, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis,
        partial(_angles_by_sections, sections, interleaved, overflow),
    )  # fmt: skip
    given = out is not None
    out, buffer = prepare_out(function, out, data.shape, data.dtype, (data,), in_place=True)
    _core.rope(function, rows, table, buffer, first, pairs_in, pairs_out, given)
    return finish_out(out, buffer)


def mrope_vjp(
    grad: npt.ArrayLike,
    x: npt.ArrayLike,
    positions: Any,
    frequencies: Any,
    *,
    layout: str,
    sections: Any,
    interleaved: bool = False,
    overflow: int = 0,
    rotary_dim: int | None = None,
    rotary_offset: int = 0,
    inverse: bool = False,
    out_layout: str | None = None,
    seq_axis: int = -2,
) -> RopeGradient:
    """Gradient of `mrope`: each pair as in `rope_vjp`, its angle's share to its own coordinate.

    Parameters
    ----------
    grad : array like x
        Cotangent of the result; the other arguments are those of `mrope`.

    Returns
    -------
    RopeGradient
        ``x`` in its dtype, ``positions`` (3, ...) and ``frequencies`` in float64, in their arguments' shapes.

    Raises
    ------
    TypeError, ValueError
        As `mrope`; also where `grad` does not have the shape of x.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> grad, x = np.array([[0.0] * 3 + [1.0] * 3]), np.array([[1.0, 2.0, 3.0] + [0.0] * 3])
    >>> g = posenc.mrope_vjp(grad, x, np.zeros((3, 1)), np.ones(3), layout="half", sections=(1, 1, 1))
    >>> g.positions[:, 0]
    array([1., 2., 3.])
    """
    function = "mrope_vjp"
    data = as_data(function, "x", x)
    turn = rotation(
        function, data, positions, frequencies, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis,
        partial(_angles_by_sections, sections, interleaved, overflow),
    )  # fmt: skip
    d_x, d_positions, d_spread = coordinate_gradients(function, grad, turn, seq_axis, inverse)
    e = d_spread.shape[-1]
    of_pair = _of_sections(function, sections, interleaved, overflow, e)
    return RopeGradient(d_x, d_positions, d_spread[of_pair, np.arange(e)])
