"""Biases that read both positions of a pair, not only their difference: PAIR rows of the table."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _core
from .._core_api.arguments import (
    F64,
    I64,
    Array,
    Float64,
    broadcasts_to,
    fail,
    finish_out,
    prepare_out,
    unbroadcast,
)
from ._diagonals import Where
from .operator import Bias, Sums, arrays_of, check_heads, fits_end


class Pair(Bias):
    """A bias of both positions: a PAIR row of the table."""

    __slots__ = ()
    is_relative = False

    @property
    def heads(self) -> int:
        raise NotImplementedError

    @property
    def batch(self) -> tuple[int, ...]:
        """Leading axes of its arrays."""
        return ()

    def pull_back(self, gradients: tuple[Array, ...]) -> tuple[Array, ...]:
        """From gradients of what the kernel takes to those of the arrays."""
        return gradients

    def check_places(self, function: str, q: Array, k: Array) -> None:
        """Refuse positions that it does not have."""

    def _places(self, function: str, n: int, m: int, where: Where, shift: int) -> tuple[Array, Array]:
        """Positions of queries and keys; query i is at i + shift where none are given."""
        q, k = (np.arange(n, dtype=I64) + shift, np.arange(m, dtype=I64)) if where is None else where
        if n and m:
            self.check_places(function, q, k)
        else:  # nothing is looked up
            q, k = np.zeros_like(q), np.zeros_like(k)
        return q, k

    def _matrix(self, function: str, n: int, m: int, where: Where, dtype: np.dtype[Any], out: Array | None) -> Array:
        q, k = self._places(function, n, m, where, m - n)
        batch = self._batch(function, q, k)
        out, buffer = prepare_out(function, out, (*batch, self.heads, n, m), dtype, (q, k))
        getattr(_core, self.name)(function, *self.operands, q, k, buffer)
        return finish_out(out, buffer)

    def _batch(self, function: str, q: Array, k: Array) -> tuple[int, ...]:
        places = np.broadcast_shapes(q.shape[:-1], k.shape[:-1])
        try:
            return np.broadcast_shapes(self.batch, places)
        except ValueError:
            argument = "q_positions" if q.shape[:-1] == places else "k_positions"
            fail(ValueError, function, argument, f"batch axes {places}", f"to broadcast against {self.batch}")

    def _vjp(self, function: str, grad: Array, n: int, m: int, where: Where) -> tuple[Array, ...]:
        q, k = self._places(function, n, m, where, m - n)
        batch = self._batch(function, q, k)
        shape = (*batch, self.heads, n, m)
        weights = unbroadcast(fits_end(function, grad, shape).astype(F64, copy=False), shape, F64)
        axes = [len(letters) for _, letters in arrays_of(self.name)]
        whole = [self._spread(array, count, batch) for array, count in zip(self.operands, axes, strict=False)]
        rest = self.operands[len(axes) :]
        q, k = self._spread(q, 1, batch), self._spread(k, 1, batch)
        sums = [np.zeros(array.shape) for array in whole]
        for row in np.ndindex(batch):
            parts = [np.zeros(total.shape[len(batch) :]) for total in sums]
            arrays = [np.asarray(array[row]) for array in whole]
            getattr(_core, f"{self.name}_vjp")(function, weights[row], *arrays, *rest, q[row], k[row], *parts)
            for total, part in zip(sums, parts, strict=True):
                total[row] = part
        reduced = (unbroadcast(total, a.shape, F64) for total, a in zip(sums, self.operands, strict=False))
        return self.pull_back(tuple(reduced))

    @staticmethod
    def _spread(array: Array, axes: int, batch: tuple[int, ...]) -> Array:
        return np.broadcast_to(array, (*batch, *array.shape[array.ndim - axes :]))

    def term(
        self,
        function: str,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        distances: Float64 | None,
        where: Where = None,
    ) -> tuple[Any, ...]:
        check_heads(function, self.name, self.heads, shape)
        if not broadcasts_to(self.batch, shape[:-3]):
            fail(
                ValueError, function, "bias", f"batch axes {self.batch} ({self.name})", f"to broadcast to {shape[:-3]}"
            )
        n, m = shape[-2:]
        # diagonal 0 is key 0 and the last query, i = n - 1 + shift
        shift = 0 if distances is None or not distances.size else -int(distances[0]) - (n - 1)
        self._places(function, n, m, where, shift)
        return (self.name, *self.operands)

    def wants(self, shape: tuple[int, ...], distances: Float64 | None) -> tuple[str, ...]:
        return ("own",)

    def gradients(self, function: str, sums: Sums, distances: Float64 | None, where: Where = None) -> tuple[Array, ...]:
        return self.pull_back(sums.own)


def check_integers(function: str, q: Array, k: Array, length: int) -> None:
    """Positions that are integers from 0 to length - 1."""
    for argument, positions in (("q_positions", q), ("k_positions", k)):
        if positions.dtype.kind != "i":
            fail(TypeError, function, argument, f"dtype {positions.dtype}", "integers")
        bad = (positions < 0) | (positions >= length)
        if bad.any():
            fail(IndexError, function, argument, positions[bad][0], f"0 to {length - 1}")
