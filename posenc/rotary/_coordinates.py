"""Rotary embedding by more than one coordinate: what images and video have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import Array, Float64, as_reals, check_positions, fail
from ._rotation import Rotation, fits_sequence, radians, turned_back

Indices = npt.NDArray[np.int64]


def coordinates(function: str, positions: Any, count: int, x: Array) -> Array:
    """positions (count, ..., N): one row for each coordinate."""
    array = as_reals(function, "positions", positions)
    if array.ndim < 2 or len(array) != count:
        expected = f"({count}, N), or ({count}, ...) with as many axes as x: one row for each coordinate"
        fail(ValueError, function, "positions", f"shape {array.shape}", expected)
    fits_sequence(function, array.shape[1:], x)
    check_positions(function, "positions", array)
    return array


def scales(factor: float, inverse: bool) -> tuple[float, float]:
    """Factors on sin and cos."""
    return (-1 / factor, 1 / factor) if inverse else (factor, factor)


def counted(function: str, frequencies: Any, count: int, what: str) -> tuple[Float64, float]:
    w, factor = radians(function, frequencies)
    if len(w) != count:
        fail(ValueError, function, "frequencies", f"{len(w)} entries", f"{what} = {count}")
    return w, factor


def table_by_pair(
    function: str, where: Array, w: Float64, of_pair: Indices, on: tuple[float, float], dtype: np.dtype[Any]
) -> tuple[Array, Array, Float64]:
    """Pair k turns by where[of_pair[k]] * w[k]: the table, positions (..., N, A) and frequencies (A, pairs)."""
    e = len(w)
    order = np.argsort(of_pair, kind="stable")
    table = np.empty((*where.shape[1:], 2 * e), dtype)
    first = 0
    for rows, sharing in zip(where, np.bincount(of_pair, minlength=len(where)).tolist(), strict=True):
        if sharing:  # from left to right: each call clears what is right of its columns
            mine = w[order[first : first + sharing]]
            _core.sinusoid(function, rows, mine, None, table, e + first, first, 1, *on)
        first += sharing
    if (order[:-1] > order[1:]).any():
        place = np.argsort(order)
        table = np.take(table, np.concatenate([place, e + place]), axis=-1)
    spread = np.zeros((len(where), e))
    spread[of_pair, np.arange(e)] = w
    return table, np.moveaxis(where, 0, -1), spread


def coordinate_gradients(
    function: str, grad: Any, turn: Rotation, seq_axis: int, inverse: bool
) -> tuple[Array, Float64, Float64]:
    """Gradients to x, to positions (A, ..., N), and to frequencies (A, pairs)."""
    d_x, d_positions, d_spread = turned_back(function, grad, turn, seq_axis)
    sign = -1.0 if inverse else 1.0
    return d_x, sign * np.ascontiguousarray(np.moveaxis(d_positions, -1, 0)), sign * d_spread
