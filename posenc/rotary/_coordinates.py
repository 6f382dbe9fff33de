"""Steps that `rope_2d` and `mrope` share: rotations by more than one coordinate."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import Array, Float64, as_reals, check_positions, compute_dtype, fail
from ._rotation import Rotation

Indices = npt.NDArray[np.int64]


def read_coordinates(rotation: Rotation, positions: npt.ArrayLike, count: int) -> Array:
    """Return positions (count, ..., N), one row for each coordinate."""
    array = as_reals(rotation.function, "positions", positions)
    if array.ndim < 2 or len(array) != count:
        expected = f"({count}, N), or ({count}, ...) with as many axes as x: one row for each coordinate"
        fail(ValueError, rotation.function, "positions", f"shape {array.shape}", expected)
    rotation.check_fits_sequence("positions", array.shape[1:])
    check_positions(rotation.function, "positions", array)
    return array


def table_by_coordinate(
    rotation: Rotation, positions: Array, frequencies: Float64, factor: float, coordinate_of_pair: Indices
) -> tuple[Array, Array, Float64]:
    """Return the table, positions (..., N, A) and frequencies (A, pairs) of a rotation by A coordinates.

    Pair k is rotated by ``positions[coordinate_of_pair[k]] * frequencies[k]``.
    """
    pairs = len(frequencies)
    order = np.argsort(coordinate_of_pair, kind="stable")
    table = np.empty((*positions.shape[1:], 2 * pairs), compute_dtype(rotation.x))
    sin_scale, cos_scale = (-1 / factor, 1 / factor) if rotation.inverse else (factor, factor)
    first = 0
    # The pairs of one coordinate after the other, from left to right: each call clears the columns right of its own.
    for row, count in zip(positions, np.bincount(coordinate_of_pair, minlength=len(positions)).tolist(), strict=True):
        if count:
            own = frequencies[order[first : first + count]]
            _core.sinusoid(rotation.function, row, own, None, table, pairs + first, first, 1, sin_scale, cos_scale)
        first += count
    if (order[:-1] > order[1:]).any():
        place = np.argsort(order)
        table = np.take(table, np.concatenate([place, pairs + place]), axis=-1)
    spread = np.zeros((len(positions), pairs))
    spread[coordinate_of_pair, np.arange(pairs)] = frequencies
    return table, np.moveaxis(positions, 0, -1), spread


def coordinates_first(d_positions: Float64) -> Float64:
    """Return the gradient (..., N, A) in the shape of the argument, (A, ..., N)."""
    return np.ascontiguousarray(np.moveaxis(d_positions, -1, 0))
