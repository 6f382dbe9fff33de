"""Biases that read both positions of a pair, not only their difference: the PAIR rows of csrc/ops.def."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from .. import _core
from .._core_api.arguments import F64, Array, Float64, broadcasts_to, fail, finish_out, prepare_out, unbroadcast
from ._parameters import array_axes, check_arrays, check_cotangent, check_heads, operands_by_name, row_results
from ._positions import Positions
from .operator import Arrays, PositionBias, Reduction, Reductions, Term, make_term


class PairBias(PositionBias[Arrays]):
    """A bias that is a function of both positions, named after its PAIR row."""

    __slots__ = ()
    is_relative = False

    @property
    @abstractmethod
    def _heads(self) -> int:
        """Number of heads."""

    @property
    def _batch(self) -> tuple[int, ...]:
        """Batch axes of the arrays."""
        return ()

    def _operands_vjp(self, gradients: tuple[Float64, ...]) -> tuple[Float64, ...]:
        """Return the gradients of the arrays from those of the first operands of the kernel."""
        return gradients

    def _check_positions(self, function: str, q: Array, k: Array) -> None:
        """Refuse positions at which the bias is undefined."""

    def _read_positions(self, function: str, positions: Positions) -> tuple[Array, Array]:
        """Return checked positions of queries and keys; zeros if there is no pair, since nothing is read then."""
        q, k = positions.as_arrays()
        if not (positions.n and positions.m):
            return np.zeros_like(q), np.zeros_like(k)
        self._check_positions(function, q, k)
        return q, k

    def _broadcast_batch(self, function: str, q: Array, k: Array) -> tuple[int, ...]:
        """Return the batch axes of the arrays and of positions, broadcast."""
        batch = np.broadcast_shapes(q.shape[:-1], k.shape[:-1])
        try:
            return np.broadcast_shapes(self._batch, batch)
        except ValueError:
            argument = "q_positions" if q.shape[:-1] == batch else "k_positions"
            fail(ValueError, function, argument, f"batch axes {batch}", f"to broadcast against {self._batch}")

    def _matrix(self, function: str, positions: Positions, dtype: np.dtype[Any], out: Array | None) -> Array:
        q, k = self._read_positions(function, positions)
        shape = (*self._broadcast_batch(function, q, k), self._heads, positions.n, positions.m)
        out, buffer = prepare_out(function, out, shape, dtype, (q, k))
        operands = operands_by_name(self.name, *self._operands)
        getattr(_core, self.name)(function, **operands, q_positions=q, k_positions=k, out=buffer)
        return finish_out(out, buffer)

    def _vjp(self, function: str, grad: Array, positions: Positions) -> tuple[Float64, ...]:
        q, k = self._read_positions(function, positions)
        batch = self._broadcast_batch(function, q, k)
        shape = (*batch, self._heads, positions.n, positions.m)
        cotangent = unbroadcast(check_cotangent(function, grad, shape).astype(F64, copy=False), shape, F64)
        ranks = [len(axes) for axes in array_axes(self.name).values()]
        differentiable, constant = self._operands[: len(ranks)], self._operands[len(ranks) :]
        arrays = [_over_batch(array, rank, batch) for array, rank in zip(differentiable, ranks, strict=True)]
        q, k = _over_batch(q, 1, batch), _over_batch(k, 1, batch)
        gradients, kernel = [np.zeros(array.shape) for array in arrays], f"{self.name}_vjp"
        for row in np.ndindex(batch):
            parts = [np.zeros(gradient.shape[len(batch) :]) for gradient in gradients]
            operands = operands_by_name(self.name, *(np.asarray(array[row]) for array in arrays), *constant)
            getattr(_core, kernel)(
                function, grad=cotangent[row], **operands, q_positions=q[row], k_positions=k[row],
                **dict(zip(row_results(kernel), parts, strict=True)),
            )  # fmt: skip
            for gradient, part in zip(gradients, parts, strict=True):
                gradient[row] = part
        pairs = zip(gradients, differentiable, strict=True)
        return self._operands_vjp(tuple(unbroadcast(gradient, array.shape, F64) for gradient, array in pairs))

    def _term(self, function: str, dtype: np.dtype[Any], shape: tuple[int, ...], positions: Positions) -> Term:
        check_heads(function, self.name, self._heads, shape, self.arrays)
        check_arrays(function, self.arrays, dtype)
        if not broadcasts_to(self._batch, shape[:-3]):
            batch = f"batch axes {self._batch} ({self.name})"
            fail(ValueError, function, "bias", batch, f"to broadcast to {shape[:-3]}")
        self._read_positions(function, positions)
        return make_term(self.name, *self._operands)

    def _reductions(self, positions: Positions) -> tuple[Reduction, ...]:
        return ("parameters",)

    def _gradient(self, function: str, reductions: Reductions, positions: Positions) -> tuple[Float64, ...]:
        return self._operands_vjp(reductions.parameters)


def _over_batch(array: Array, rank: int, batch: tuple[int, ...]) -> Array:
    """Return an array whose last `rank` axes are its own, with all batch axes before them."""
    return np.broadcast_to(array, (*batch, *array.shape[array.ndim - rank :]))


def check_table_positions(function: str, q: Array, k: Array, length: int) -> None:
    """Refuse positions that are not integers from 0 to length - 1."""
    for argument, positions in (("q_positions", q), ("k_positions", k)):
        if positions.dtype.kind != "i":
            fail(TypeError, function, argument, f"dtype {positions.dtype}", "integers")
        bad = (positions < 0) | (positions >= length)
        if bad.any():
            fail(IndexError, function, argument, positions[bad][0], f"0 to {length - 1}")
