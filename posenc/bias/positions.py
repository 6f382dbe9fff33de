"""Positions of the queries and keys of a call."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .._core_api import read
from .._core_api.arrays import F64, I64, Array, Float64
from .._core_api.constants import LARGEST_POSITION
from .._core_api.door import fail, fail_value

OwnPositions = tuple[Array | None, Array | None]
"""An operator's own positions of queries and of keys; None is those of the call."""


class Positions(NamedTuple):
    """Positions of n queries and m keys; without `arrays`, query i is at i + shift and key j at j."""

    n: int
    m: int
    shift: float = 0.0
    arrays: tuple[Array, Array] | None = None
    """Positions of queries (..., n) and of keys (..., m), int64 or float64."""
    low: float = -np.inf
    high: float = np.inf
    """The lowest and the highest distance that causality and windows leave visible."""

    def distances(self) -> Float64:
        """Return the relative positions of the diagonals t = j - i + n - 1, (n + m - 1,); only without `arrays`."""
        try:
            return np.arange(max(self.n + self.m - 1, 0), dtype=np.float64) - (self.n - 1 + self.shift)
        except (MemoryError, ValueError):  # of sizes beyond memory, and of sizes beyond an address
            argument, length = ("n", self.n) if self.n >= self.m else ("m", self.m)
            fail_value(MemoryError, argument, length, "a length whose distances fit in memory")

    def as_consecutive(self) -> Positions:
        """Return the positions without arrays if both count up by one, shifted so that key 0 is at 0."""
        if self.arrays is None or not all(map(is_consecutive, self.arrays)):
            return self
        q, k = self.arrays
        shift = float(q[0] - k[0]) if self.n and self.m else 0.0
        if abs(shift) > LARGEST_POSITION:  # no position of a query, if key 0 is at 0
            return self
        return self._replace(shift=shift, arrays=None)

    def as_arrays(self) -> tuple[Array, Array]:
        """Return the positions of queries and of keys as arrays."""
        if self.arrays is None:
            return np.arange(self.n, dtype=I64) + int(self.shift), np.arange(self.m, dtype=I64)
        return self.arrays

    @property
    def batch(self) -> tuple[int, ...]:
        """The batch axes."""
        return () if self.arrays is None else np.broadcast_shapes(*(side.shape[:-1] for side in self.arrays))

    def pair_distances(self) -> Float64:
        """Return rel of every query and key, (..., n, m)."""
        q, k = self.as_arrays()
        return np.subtract(k[..., None, :], q[..., :, None]).astype(F64, copy=False)


def is_consecutive(positions: Array) -> bool:
    """Return whether positions are (N,) integers that count up by one."""
    return positions.ndim == 1 and positions.dtype.kind == "i" and bool((np.diff(positions) == 1).all())


def read_positions(n: int, m: int, q_positions: npt.ArrayLike | None, k_positions: npt.ArrayLike | None) -> Positions:
    """Return the positions that a user passed. If only one of the two is passed, the other is 0, 1, 2, ...."""
    q = read_side("q_positions", n if q_positions is None else q_positions, n)
    k = read_side("k_positions", m if k_positions is None else k_positions, m)
    try:
        np.broadcast_shapes(q.shape[:-1], k.shape[:-1])
    except ValueError:
        batch = f"batch axes {k.shape[:-1]}"
        fail(ValueError, "k_positions", batch, f"to broadcast against {q.shape[:-1]}")
    return Positions(n, m, 0.0, (q, k))


def read_side(argument: str, value: npt.ArrayLike, length: int) -> Array:
    """Return the positions of the queries or of the keys."""
    array = read.positions(argument, value)
    if array.shape[-1] != length:
        fail(ValueError, argument, f"length {array.shape[-1]}", str(length))
    return array


def copy_positions(argument: str, value: npt.ArrayLike) -> Array:
    """Return a copy of positions for an operator to keep."""
    array = read.positions(argument, value)
    return np.array(array, array.dtype.newbyteorder("="), order="C")
