"""A bias by distance with gates that each query brings along, as WavLM and Inkling have it."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import (
    F32,
    F64,
    I64,
    Array,
    Dtype,
    Float64,
    as_index,
    broadcasts_to,
    check_choice,
    fail,
    fail_value,
    store_result,
    unbroadcast,
)
from ..bias.operator import PositionBias, check_heads
from ..bias.parameters import cast_arrays, copy_finite, read_cotangent, row_gradients
from ..bias.positions import Positions
from ..bias.t5 import t5_bucket
from ..bias.terms import Call, Operands, Sums, Term
from ._content import as_table, check_odd_rows, check_table_heads

_ROWS: tuple[Literal["clipped", "past", "buckets"], ...] = ("clipped", "past", "buckets")
_FARTHEST = 2**20
"""The largest `max_distance`: the kernel has the table row of every distance up to there."""


class GatedDistanceArrays(NamedTuple):
    """Arrays of `gated_distance`, or their gradients.

    Attributes
    ----------
    gates : array (..., H, N, R)
    table : array (T, R) or (H, T, R)
    """

    gates: Array
    table: Array


class GatedDistanceBias(PositionBias[GatedDistanceArrays]):
    """A product of the gates of each query with the table row of each distance.

    Operands of the kernel are the gates, the table, and its row for each relative position -(B // 2) .. B // 2. Rows of
    ``"past"`` are the distances 0 .. T-1. Another row of zeros serves all pairs that are not in the table.
    """

    @cached_property
    def operands(self) -> Operands:
        gates, table = self.arrays
        count = table.shape[-2]
        rows = np.arange(count, dtype=I64)
        if self.options["rows"] == "buckets":
            reach = self.options["max_distance"]
            rows = t5_bucket(np.arange(-reach, reach + 1), buckets=count, max_distance=reach)
        elif self.options["rows"] == "past":
            beyond = np.zeros((*table.shape[:-2], 1, table.shape[-1]), table.dtype)
            past = np.arange(count, -1, -1, dtype=I64)  # of rel = -T .. 0
            table, rows = np.concatenate([table, beyond], -2), np.concatenate([past, np.full(count, count)])
        return {"gates": gates, "table": table, "rows": rows}

    def _matrix(self, function: str, positions: Positions, dtype: Dtype, out: Array | None) -> Array:
        gates, table = _cast_arrays(self, function, F64 if dtype.char == "d" else F32)
        rows, _ = _table_rows(self, function, positions)
        by_row = np.matmul(gates, table.swapaxes(-1, -2))
        matrix = np.take_along_axis(*_aligned(by_row, rows), -1)
        return store_result(function, out, matrix, dtype)

    def _term(self, call: Call, positions: Positions) -> Term:
        gates, table = _cast_arrays(self, call.function, call.dtype)
        check_heads(call.function, self, call.shape)
        _check_queries(self, call.function, call.shape[-2])
        batch = gates.shape[:-3]
        if not broadcasts_to(batch, call.shape[:-3]):
            has = f"batch axes {batch} ({self.name})"
            fail(ValueError, call.function, "bias", has, f"to broadcast to {call.shape[:-3]}")
        by_head = np.broadcast_to(table, (gates.shape[-3], *table.shape[-2:]))
        operands = {"gates": gates, "table": by_head, "rows": self.operands["rows"]}
        return Term(self.name, operands, row_gradients(self.name))

    def _gradient(self, function: str, sums: Sums, positions: Positions) -> tuple[Float64, Float64]:
        return _in_shape(self, sums["d_gates"], sums["d_table"])

    def _matrix_gradient(self, function: str, grad: Array, positions: Positions) -> tuple[Float64, Float64]:
        return _in_shape(self, *_cotangent_vjp(self, function, grad, positions))


def _in_shape(bias: GatedDistanceBias, d_gates: Array, d_table: Array) -> tuple[Float64, Float64]:
    """Return the gradients of gates for a whole batch and of a table for each head in the shapes of the arrays."""
    gates, table = bias.arrays
    if table.ndim == 2:
        d_table = d_table.sum(0, dtype=F64)
    return unbroadcast(d_gates, gates.shape, F64), d_table[..., : table.shape[-2], : table.shape[-1]]


def _check_queries(bias: GatedDistanceBias, function: str, n: int) -> None:
    queries = bias.arrays.gates.shape[-2]
    if queries != n:
        fail(ValueError, function, "gates", f"{queries} queries", str(n))


def _cast_arrays(bias: GatedDistanceBias, function: str, dtype: Dtype) -> tuple[Array, Array]:
    """Return the gates and the table of the kernel, in the dtype of the arithmetic."""
    found = cast_arrays(function, {name: bias.operands[name] for name in ("gates", "table")}, dtype)
    return found["gates"], found["table"]


def _table_rows(bias: GatedDistanceBias, function: str, positions: Positions) -> tuple[Array, tuple[int, ...]]:
    """Return the table row of each pair, (..., 1, N, M), and the batch axes broadcast with those of the gates."""
    _check_queries(bias, function, positions.n)
    q, k = positions.as_arrays()
    of_distance: Array = bias.operands["rows"]
    reach = len(of_distance) // 2
    rel = np.trunc(np.clip(k[..., None, :] - q[..., :, None], -reach, reach)).astype(np.intp)
    of_gates, batch = bias.arrays.gates.shape[:-3], rel.shape[:-2]
    try:
        return of_distance[np.expand_dims(rel, -3) + reach], np.broadcast_shapes(of_gates, batch)
    except ValueError:
        fail(ValueError, function, "q_positions", f"batch axes {batch}", f"to broadcast against {of_gates}")


def _cotangent_vjp(
    bias: GatedDistanceBias, function: str, grad: Array, positions: Positions
) -> tuple[Float64, Float64]:
    """Return the gradients of gates for a whole batch and of a table for each head, for a cotangent of the matrix."""
    rows, batch = _table_rows(bias, function, positions)
    gates, table = _cast_arrays(bias, function, F64)
    shape = (*batch, gates.shape[-3], positions.n, positions.m)
    cotangent = read_cotangent(function, grad, shape)
    count, size = table.shape[-2], int(np.prod(shape[:-1]))
    flat = np.broadcast_to(rows, shape).reshape(size, shape[-1]) + count * np.arange(size)[:, None]
    by_row = np.bincount(flat.ravel(), cotangent.ravel(), size * count).reshape(*shape[:-1], count)
    d_table = np.matmul(by_row.swapaxes(-1, -2), gates)
    return np.matmul(by_row, table), unbroadcast(d_table, d_table.shape[-3:], F64)


def _aligned(by_row: Array, rows: Array) -> tuple[Array, Array]:
    """Return both with equally many axes; `np.take_along_axis` broadcasts them."""
    axes = max(by_row.ndim, rows.ndim)
    one, other = (array.reshape((1,) * (axes - array.ndim) + array.shape) for array in (by_row, rows))
    return one, other


def gated_distance(
    gates: npt.ArrayLike,
    table: npt.ArrayLike,
    *,
    rows: Literal["clipped", "past", "buckets"] = "clipped",
    max_distance: int | None = None,
) -> PositionBias[GatedDistanceArrays]:
    """Return a bias by distance that each query gates, as in WavLM and Inkling.

    ``b[h, i, j] = gates[h, i] . table[h, t]``, where t is the table row of the distance from query i to key j.

    Parameters
    ----------
    gates : array (..., H, N, R)
        R numbers for each head and query, finite; a layer computes them from its input. Leading axes broadcast against
        the batch axes of q. Differentiable.
    table : array (T, R) or (H, T, R)
        R profiles over the distance, which the gates mix. Differentiable.
    rows : {"clipped", "past", "buckets"}
        "clipped": T is 2 K + 1, row t is rel = t - K, and distances beyond K take the first or the last row.
        "past": row t is the key t positions before the query; the bias of all other keys is 0.
        "buckets": row t is a bucket of `t5_bucket`, bidirectional, with this `max_distance`.
    max_distance : int, optional
        For "buckets", at most 2**20. Required there, and refused elsewhere.

    Returns
    -------
    PositionBias
        For ``attention(bias=...)``, with gates of exactly N queries; in decoding these are the gates of the new query.

    Raises
    ------
    TypeError, ValueError
        Gates or a table that are not finite, or differ in R or H; too few rows, an even number of rows for "clipped".

    Notes
    -----
    With R = 1 this is the gated relative position bias of XLM-E (Chi et al. 2022) and WavLM (Chen et al. 2022, section
    3.2), where the gate is ``1 + (1 - update) + update reset w`` of two sigmoids. Inkling mixes R = 16 profiles of the
    past. The papers of XLM-E and WavLM compute the gates from the query, but the code of the three models computes
    them from the input of the layer, before rotation and normalisation of q. Hence gates are an argument here. For
    gates that depend on q, compute them with `posenc_bridges.torch`, ``.jax`` or ``.autograd``, which pass the gradient
    on to q. Gates that are linear in q are `shaw` with the table ``table @ W.T``. Fractional distances are truncated
    towards zero.

    Examples
    --------
    A layer of WavLM with 2 heads of 8 channels; ``project`` is ``gru_rel_pos_linear``, a (8, 8) weight and a bias, and
    ``const`` is ``gru_rel_pos_const``:

    >>> import numpy as np, posenc
    >>> rng = np.random.default_rng(0)
    >>> x, weight, bias, const = rng.standard_normal((2, 50, 8)), rng.standard_normal((8, 8)), np.zeros(8), np.ones(2)
    >>> embed = rng.standard_normal((320, 2))  # rel_attn_embed.weight
    >>> logits = (x @ weight.T + bias).reshape(2, 50, 2, 4).sum(-1)
    >>> a, b = np.moveaxis(1 / (1 + np.exp(-logits)), -1, 0)
    >>> gates = a * (b * const[:, None] - 1) + 2
    >>> bias = posenc.gated_distance(gates[..., None], embed.T[..., None], rows="buckets", max_distance=800)
    >>> q, k, v = rng.standard_normal((3, 2, 50, 8))
    >>> posenc.attention(q, k, v, bias=bias).shape
    (2, 50, 8)

    Two profiles of the past, of which query 1 takes the first and query 2 the second:

    >>> gates = [[[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]]
    >>> posenc.gated_distance(gates, [[1.0, 10.0], [2.0, 20.0]], rows="past").matrix(3)
    array([[[ 0.,  0.,  0.],
            [ 2.,  1.,  0.],
            [ 0., 20., 10.]]], dtype=float32)
    """
    function = "gated_distance"
    check_choice(function, "rows", rows, _ROWS)
    of_queries = copy_finite(function, "gates", _core.read(function, "real gates()", gates=gates))
    if of_queries.ndim < 3:
        fail(ValueError, function, "gates", f"shape {of_queries.shape}", "(..., H, N, R)")
    kept = as_table(function, "table", table, "(T, R)", "(H, T, R)")
    if kept.ndim == 3:
        check_table_heads(function, "table", kept, of_queries.shape[-3])
    if kept.shape[-1] != of_queries.shape[-1]:
        fail(ValueError, function, "table", f"width {kept.shape[-1]}", f"{of_queries.shape[-1]}, the width of gates")
    options: dict[str, str | int] = {"rows": rows}
    count = int(kept.shape[-2])
    if rows == "clipped":
        check_odd_rows(function, "table", kept)
    if rows == "past" and not count:
        fail(ValueError, function, "table", "no rows", "at least one")
    if rows == "buckets":
        if max_distance is None:
            fail_value(ValueError, function, "max_distance", None, 'an integer, because rows is "buckets"')
        if count < 4:
            fail(ValueError, function, "table", f"{count} rows", "at least 4")
        options["max_distance"] = as_index(function, "max_distance", max_distance, count // 4 + 1, _FARTHEST)
    elif max_distance is not None:
        fail_value(ValueError, function, "max_distance", max_distance, f'None, because rows is "{rows}"')
    return GatedDistanceBias(function, GatedDistanceArrays(of_queries, kept), options)
