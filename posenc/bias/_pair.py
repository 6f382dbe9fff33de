"""Biases that read both positions of a pair, not only their difference: the PAIR rows of csrc/ops.def."""

from __future__ import annotations

import numpy as np

from .. import _core
from .._core_api.arguments import F64, Array, Dtype, Float64, broadcasts_to, fail, unbroadcast
from .operator import Arrays, PositionBias, check_heads, check_range
from .parameters import array_axes, read_cotangent, row_gradients
from .positions import Positions
from .terms import Call, Sums, Term


class PairBias(PositionBias[Arrays]):
    """A bias that is a function of both positions, named after its PAIR row."""

    heads: int

    is_relative = False

    def _matrix(self, function: str, positions: Positions, dtype: Dtype, out: Array | None) -> Array:
        q, k, _ = _read_positions(self, function, positions)
        matrix: Array = getattr(_core, self.name)(
            function, **self.operands, q_positions=q, k_positions=k, out=out, dtype=dtype
        )
        return matrix

    def _term(self, call: Call, positions: Positions) -> Term:
        check_heads(call.function, self, call.shape)
        check_range(call.function, self, call.dtype)
        batch = _batch_of(self)
        if not broadcasts_to(batch, call.shape[:-3]):
            has = f"batch axes {batch} ({self.name})"
            fail(ValueError, call.function, "bias", has, f"to broadcast to {call.shape[:-3]}")
        check_positions(self, call.function, positions)
        return Term(self.name, self.operands, row_gradients(self.name))

    def _gradient(self, function: str, sums: Sums, positions: Positions) -> tuple[Float64, ...]:
        return tuple(sums.values())

    def _matrix_gradient(self, function: str, grad: Array, positions: Positions) -> tuple[Float64, ...]:
        q, k, batch = _read_positions(self, function, positions)
        shape = (*batch, self.heads, positions.n, positions.m)
        cotangent = read_cotangent(function, grad, shape)
        ranks = {name: len(axes) for name, axes in array_axes(self.name).items()}
        arrays = {name: _over_batch(self.operands[name], rank, batch) for name, rank in ranks.items()}
        q, k = _over_batch(q, 1, batch), _over_batch(k, 1, batch)
        gradients = [np.zeros(array.shape) for array in arrays.values()]
        for row in np.ndindex(batch):
            operands = {**self.operands, **{name: array[(*row, ...)] for name, array in arrays.items()}}
            parts = [gradient[(*row, ...)] for gradient in gradients]
            getattr(_core, f"{self.name}_vjp")(
                function, grad=cotangent[row], **operands, q_positions=q[row], k_positions=k[row],
                **dict(zip(row_gradients(self.name), parts, strict=True)),
            )  # fmt: skip
        pairs = zip(gradients, ranks, strict=True)
        return tuple(unbroadcast(gradient, self.operands[name].shape, F64) for gradient, name in pairs)


def _batch_of(bias: PairBias) -> tuple[int, ...]:
    """Return the batch axes of the arrays, which only the first may have."""
    axes = next(iter(array_axes(bias.name).values()))
    shape = bias.arrays[0].shape
    return tuple(shape[: len(shape) - len(axes)])


def check_positions(bias: PairBias, function: str, positions: Positions) -> tuple[Array, Array]:
    """Return checked positions of queries and keys; zeros if there is no pair, since nothing is read then."""
    q, k = positions.as_arrays()
    if not (positions.n and positions.m):
        return np.zeros_like(q), np.zeros_like(k)
    end = bias.positions_end
    for argument, side in (("q_positions", q), ("k_positions", k)):
        if end is None:
            continue
        if side.dtype.kind != "i":
            fail(TypeError, function, argument, f"dtype {side.dtype}", "integers")
        bad = (side < 0) | (side >= end)
        if bad.any():
            fail(IndexError, function, argument, side[bad][0], f"0 to {end - 1}")
    return q, k


def _read_positions(bias: PairBias, function: str, positions: Positions) -> tuple[Array, Array, tuple[int, ...]]:
    """Return checked positions of queries and keys, and their batch axes broadcast with those of the arrays."""
    q, k = check_positions(bias, function, positions)
    batch, of_arrays = np.broadcast_shapes(q.shape[:-1], k.shape[:-1]), _batch_of(bias)
    try:
        return q, k, np.broadcast_shapes(of_arrays, batch)
    except ValueError:
        argument = "q_positions" if q.shape[:-1] == batch else "k_positions"
        fail(ValueError, function, argument, f"batch axes {batch}", f"to broadcast against {of_arrays}")


def _over_batch(array: Array, rank: int, batch: tuple[int, ...]) -> Array:
    """Return an array whose last `rank` axes are its own, with all batch axes before them."""
    shape = (*batch, *array.shape[array.ndim - rank :])
    return array if array.shape == shape else np.broadcast_to(array, shape)
