"""Steps that `rope_2d` and `mrope` share: rotations by more than one coordinate."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import F64, Array, Float64, as_reals, check_positions, compute_dtype, fail
from ._rotation import Rotation

Indices = npt.NDArray[np.int64]


def read_coordinates(rotation: Rotation, positions: npt.ArrayLike, count: int) -> Array:
    """Return positions (count, ..., N), one row for each coordinate."""
    array = as_reals(rotation.function, "positions", positions)
    if array.ndim < 2 or len(array) != count:
        expected = f"({count}, N), or ({count}, ...) with as many axes as x: one row for each coordinate"
        fail(ValueError, rotation.function, "positions", f"shape {array.shape}", expected)
    rotation.check_fits_sequence("positions", array.shape[1:])
    return array


def table_by_coordinate(
    rotation: Rotation, positions: Array, frequencies: Float64, factor: float, coordinate_of_pair: Indices
) -> tuple[Array, Array, Float64]:
    """Return the table, positions (..., N, A) and frequencies (A, pairs) of a rotation by A coordinates.

    Pair k is rotated by ``positions[coordinate_of_pair[k]] * frequencies[k]``.
    """
    spread = np.zeros((len(positions), len(frequencies)))
    spread[coordinate_of_pair, np.arange(len(frequencies))] = frequencies
    table = tabulate(rotation, positions, frequencies, factor, coordinate_of_pair)
    return table, coordinates_last(positions), spread


def tabulate(
    rotation: Rotation, positions: Array, frequencies: Float64, factor: float, coordinate_of_pair: Indices
) -> Array:
    """Return the table of `table_by_coordinate`."""
    pairs = len(frequencies)
    table = np.empty((*positions.shape[1:], 2 * pairs), compute_dtype(rotation.x))
    sin_scale, cos_scale = (-1 / factor, 1 / factor) if rotation.inverse else (factor, factor)
    order = coordinate_of_pair.argsort(kind="stable")
    first = coordinate_of_pair[order].searchsorted(np.arange(len(positions) + 1)).astype(F64)
    own = frequencies[order]
    try:
        _core.coordinate_table(
            rotation.function, positions=coordinates_last(positions), frequencies=own, first=first, out=table,
            sine_scale=sin_scale, cosine_scale=cos_scale,
        )  # fmt: skip
    except ValueError:
        # The kernel bounds the largest position times the largest frequency, also of different coordinates.
        check_positions(rotation.function, "positions", positions)
        bounds = first.astype(int).tolist()
        for row, begin, end in zip(positions, bounds[:-1], bounds[1:], strict=True):
            if begin < end:  # Each call clears the columns right of its own.
                _core.sinusoid(
                    rotation.function, positions=row, frequencies=own[begin:end], out=table,
                    sine=pairs + begin, cosine=begin, step=1, sine_scale=sin_scale, cosine_scale=cos_scale,
                )  # fmt: skip
    if (order[:-1] > order[1:]).any():
        place = np.argsort(order)
        table = np.take(table, np.concatenate([place, pairs + place]), axis=-1)
    return table


def coordinates_last(positions: Array) -> Array:
    """View (A, ..., N) as (..., N, A); np.moveaxis takes ten times as long."""
    return positions.transpose(*range(1, positions.ndim), 0)


def coordinates_first(d_positions: Float64) -> Float64:
    """Return the gradient (..., N, A) in the shape of the argument, (A, ..., N)."""
    return np.ascontiguousarray(np.moveaxis(d_positions, -1, 0))
