"""What operators that read q and k share: their tables, their checks, and their logits in the open."""

from __future__ import annotations

from collections import namedtuple
from functools import cache
from math import sqrt
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import (
    F32,
    F64,
    Array,
    Float64,
    as_data,
    as_number,
    broadcasts_to,
    cast_finite,
    cast_operand,
    compute_dtype,
    fail,
    finish_out,
    prepare_out,
    unbroadcast,
)
from .._core_api.constants import VECTOR_PADDING
from ..bias._diagonals import Where, position_pair
from ..bias.operator import Bias, Sums, check_heads

INFINITY = float("inf")


class Content(Bias):
    """An operator that reads q and k: a CONTENT row of the table with the rows that its distances take."""

    __slots__ = ("rows",)
    rows: tuple[Array, ...]

    def __init__(
        self, name: str, arrays: tuple[Any, ...], dtypes: tuple[Any, ...], rows: tuple[Array, ...] = ()
    ) -> None:
        super().__init__(name, arrays, dtypes)
        object.__setattr__(self, "rows", rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, tuple(self.arrays), self._dtypes, self.rows)

    def default_scale(self, width: int) -> float | None:
        if self.name != "deberta":
            return None
        terms = sum(array is not None for array in self.arrays)
        return 1 / sqrt((width or 1) * (1 + terms))

    def matrix(self, n: int, m: int | None = None, **options: Any) -> NoReturn:
        """An operator that reads q and k has no matrix of its own: TypeError. Use `logits`."""
        fail(TypeError, self.name, "matrix", "an operator that reads q and k", "a position operator; use logits")

    def vjp(self, grad: npt.ArrayLike, n: int, m: int | None = None, **options: Any) -> NoReturn:
        """An operator that reads q and k has no matrix of its own: TypeError. Use `logits_vjp`."""
        fail(TypeError, self.name, "vjp", "an operator that reads q and k", "a position operator; use logits_vjp")

    def _matrix(self, *_: Any) -> NoReturn:
        self.matrix(0)

    def _vjp(self, *_: Any) -> NoReturn:
        self.vjp(0, 0)

    def wants(self, shape: tuple[int, ...], distances: Float64 | None) -> tuple[str, ...]:
        return ("tables",)

    def tables(
        self, shape: tuple[int, ...], batch: tuple[int, ...], rows: int, dtype: np.dtype[Any]
    ) -> tuple[Array | None, ...]:
        """As the arrays, a slot for each head and chunk; rows of matrices are filled up to whole vectors."""
        room: list[Array | None] = []
        for array in self.arrays:
            if array is None:
                room.append(None)
            elif array.ndim == 2 and self.name == "transformer_xl":
                room.append(np.zeros((*batch, rows, array.shape[-1])))
            else:
                room.append(np.zeros((*batch, rows, array.shape[-2], whole_vectors(array.shape[-1])), dtype))
        return tuple(room)

    def gradients(self, function: str, sums: Sums, distances: Float64 | None, where: Where = None) -> tuple[Any, ...]:
        found: list[Array | None] = []
        for array, table in zip(self.arrays, sums.tables, strict=True):
            if array is None:
                found.append(None)
                continue
            part = table[..., : array.shape[-1]]
            found.append(part if part.ndim == array.ndim else part.sum(0, dtype=F64))
        return tuple(found)

    def term(
        self,
        function: str,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        distances: Float64 | None,
        where: Where = None,
    ) -> tuple[Any, ...]:
        """As `_core.attention` takes it; tables that heads share get the axis of heads, with stride 0."""
        tables: list[Array | None] = []
        for argument, array in zip(self.arrays._fields, self.arrays, strict=True):
            if array is None:
                tables.append(None)
                continue
            table = cast_finite(function, argument, array, dtype)
            if self.name != "transformer_xl" and table.ndim == 2:
                table = np.broadcast_to(table, (shape[-3], *table.shape))
            check_heads(function, self.name, table.shape[0], shape)
            tables.append(table)
        return (self.name, *tables, *self.rows)

    def check_widths(self, function: str, width: int, value_width: int | None) -> None:
        """Tables that meet q and k are as wide as they are, tables that are added to values as wide as those."""
        for argument, array in zip(self.arrays._fields, self.arrays, strict=True):
            wanted = value_width if argument == "rel_v" else width
            if array is not None and wanted is not None and array.shape[-1] != wanted:
                of = "v" if argument == "rel_v" else "q"
                fail(
                    ValueError, function, argument, f"width {array.shape[-1]} ({self.name})", f"{wanted}, that of {of}"
                )

    def logits(
        self,
        q: npt.ArrayLike,
        k: npt.ArrayLike,
        *,
        q_positions: npt.ArrayLike | None = None,
        k_positions: npt.ArrayLike | None = None,
        scale: float | None = None,
        out: Array | None = None,
    ) -> Array:
        function = f"{self.name}.logits"
        query, key, where, factor = _operands(function, self, q, k, q_positions, k_positions, scale)
        heads, n, m = query.shape[-3], query.shape[-2], key.shape[-2]
        batch = np.broadcast_shapes(query.shape[:-3], key.shape[:-3])
        dtype = compute_dtype(query)
        reads = (query, key, *self.arrays, *(where or ()))
        out, buffer = prepare_out(function, out, (*batch, heads, n, m), query.dtype, reads)
        term = self.term(function, dtype, buffer.shape, None)
        _core.logits(
            function, query, cast_operand(key, dtype), None, None, *(where or (None, None)), None, None, (term,),
            buffer, factor, 0.0, -INFINITY, INFINITY, float(m - n) if where is None else 0.0,
        )  # fmt: skip
        return finish_out(out, buffer)

    def logits_vjp(
        self,
        grad: npt.ArrayLike,
        q: npt.ArrayLike,
        k: npt.ArrayLike,
        *,
        q_positions: npt.ArrayLike | None = None,
        k_positions: npt.ArrayLike | None = None,
        scale: float | None = None,
    ) -> Any:
        function = f"{self.name}.logits_vjp"
        query, key, where, factor = _operands(function, self, q, k, q_positions, k_positions, scale)
        heads, n, m = query.shape[-3], query.shape[-2], key.shape[-2]
        batch = np.broadcast_shapes(query.shape[:-3], key.shape[:-3])
        shape, dtype = (*batch, heads, n, m), compute_dtype(query)
        cotangent = as_data(function, "grad", grad)
        if cotangent.shape != shape:
            fail(ValueError, function, "grad", f"shape {cotangent.shape}", str(shape))
        tables = self.tables(shape, batch, heads, dtype)
        d_q, d_k = (np.zeros((*batch, *x.shape[-3:]), dtype) for x in (query, key))
        if cotangent.size:
            _core.logits_vjp(
                function, query, cast_operand(key, dtype), None, None, *(where or (None, None)), None, None,
                ((*self.term(function, dtype, shape, None), *tables),), cast_operand(cotangent, dtype), d_q, d_k,
                factor, 0.0, -INFINITY, INFINITY, float(m - n) if where is None else 0.0,
            )  # fmt: skip
        over = tuple(range(len(batch)))
        total = tuple(t if t is None or not over else t.sum(over, dtype=F64) for t in tables)
        arrays = self.as_gradients(self.gradients(function, Sums(tables=total), None))
        back = (unbroadcast(d, x.shape, x.dtype.newbyteorder("=")) for d, x in ((d_q, query), (d_k, key)))
        return _gradient_of(self.name, arrays._fields)(*back, *arrays)


@cache
def _gradient_of(name: str, fields: tuple[str, ...]) -> Any:
    return namedtuple(f"{name}_gradients", ["q", "k", *fields])


def whole_vectors(width: int) -> int:
    """The width of a gradient's rows: kernels write whole vectors."""
    return -(-width // VECTOR_PADDING) * VECTOR_PADDING


def _operands(
    function: str, operator: Content, q: Any, k: Any, q_positions: Any, k_positions: Any, scale: float | None
) -> tuple[Array, Array, Where, float]:
    query, key = as_data(function, "q", q), as_data(function, "k", k)
    for argument, array in (("q", query), ("k", key)):
        if array.ndim < 3:
            fail(ValueError, function, argument, f"shape {array.shape}", "(..., heads, positions, width)")
    heads, n, width = query.shape[-3:]
    groups, m = key.shape[-3:-1]
    if key.shape[-1] != width:
        fail(ValueError, function, "k", f"width {key.shape[-1]}", f"{width}, that of q")
    if heads % groups if groups else heads:
        fail(ValueError, function, "k", f"{groups} heads", f"a divisor of the {heads} heads of q")
    try:
        np.broadcast_shapes(query.shape[:-3], key.shape[:-3])
    except ValueError:
        fail(ValueError, function, "k", f"batch axes {key.shape[:-3]}", f"to broadcast against {query.shape[:-3]}")
    operator.check_widths(function, width, None)
    for argument, table in zip(operator.arrays._fields, operator.arrays, strict=True):
        if table is not None and (table.ndim == 3 or operator.name == "transformer_xl") and table.shape[0] != heads:
            fail(ValueError, function, "q", f"{heads} heads", f"{table.shape[0]}, as {argument}")
    where = position_pair(function, n, m, q_positions, k_positions)
    batch = np.broadcast_shapes(query.shape[:-3], key.shape[:-3])
    for argument, array in zip(("q_positions", "k_positions"), where or (), strict=False):
        if not broadcasts_to(array.shape[:-1], batch):
            fail(ValueError, function, argument, f"batch axes {array.shape[:-1]}", f"to broadcast to {batch}")
    factor = (width or 1) ** -0.5 if scale is None else as_number(function, "scale", scale)
    return query, key, where, factor


def as_table(function: str, argument: str, value: Any, axes: str) -> Array:
    """A read-only copy of a table in its own dtype; finite, with as many axes as one of the words of `axes`."""
    given = as_data(function, argument, value)
    ranks = [len(word) for word in axes.split()]
    if given.ndim not in ranks:
        fail(
            ValueError,
            function,
            argument,
            f"shape {given.shape}",
            " or ".join(f"({', '.join(w)})" for w in axes.split()),
        )
    kept = np.array(given, given.dtype.newbyteorder("="), order="C")
    if not np.isfinite(kept.astype(F32 if kept.itemsize == 2 else kept.dtype, copy=False)).all():
        fail(ValueError, function, argument, "NaN or infinity", "finite numbers")
    return kept


def dtypes(*arrays: Array | None) -> tuple[Any, ...]:
    return tuple(None if array is None else array.dtype for array in arrays)


def clipped(function: str, argument: str, table: Array) -> int:
    """K of a table with 2 K + 1 rows."""
    if table.shape[-2] % 2 == 0 or table.shape[-2] < 3:
        fail(ValueError, function, argument, f"{table.shape[-2]} rows", "2 K + 1 of them, K at least 1")
    return int(table.shape[-2]) // 2


def same_heads(function: str, argument: str, table: Array, heads: int) -> None:
    if table.shape[0] != heads:
        fail(ValueError, function, argument, f"{table.shape[0]} heads", str(heads))
