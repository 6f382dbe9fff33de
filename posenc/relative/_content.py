"""Operators whose logits are products of q or k with tables of embeddings: the CONTENT rows of csrc/ops.def."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import (
    F32,
    F64,
    LARGEST_SCALE32,
    Array,
    as_data,
    as_number,
    broadcasts_to,
    cast_operand,
    check_range,
    compute_dtype,
    fail,
    finish_out,
    prepare_out,
    unbroadcast,
    without_warnings,
)
from .._core_api.constants import VECTOR_PADDING
from ..bias._parameters import check_heads
from ..bias._positions import Positions
from ..bias.operator import Arrays, ContentBias, Gradient, Reduction, Reductions, Term, make_term

INFINITY = float("inf")


class TableBias(ContentBias[Arrays, Gradient]):
    """An operator named after its CONTENT row, with tables (rows, D) or (H, rows, D) that heads share or not.

    The operands of the kernel are the arrays, then the row of a table for each relative position.
    """

    __slots__ = ()
    gradient_type: ClassVar[type[Any]]
    """The NamedTuple that `logits_vjp` returns."""
    value_tables: ClassVar[tuple[str, ...]] = ()
    """Arrays that are added to values, and so have their width."""
    head_vectors: ClassVar[tuple[str, ...]] = ()
    """Arrays (H, D) with one vector per head."""

    def _row_operands(self) -> tuple[Array, ...]:
        """Return the table row of each relative position -B // 2 .. B // 2, once or for each table."""
        return ()

    def _kernel_operands(self) -> tuple[Array | None, ...]:
        return (*self.arrays, *self._row_operands())

    def _tables(self) -> list[tuple[str, Array]]:
        """Return (name, array) of the arrays that were passed."""
        pairs = zip(self.arrays._fields, self.arrays, strict=True)
        return [(name, array) for name, array in pairs if array is not None]

    def _has_heads(self, name: str, array: Array) -> bool:
        """Return whether the first axis of an array counts heads."""
        return name in self.head_vectors or array.ndim == 3

    def _check_widths(self, function: str, width: int, value_width: int | None) -> None:
        for name, array in self._tables():
            of, expected = ("v", value_width) if name in self.value_tables else ("q", width)
            if expected is not None and array.shape[-1] != expected:
                has = f"width {array.shape[-1]} ({self.name})"
                fail(ValueError, function, name, has, f"{expected}, that of {of}")

    def _term(self, function: str, dtype: np.dtype[Any], shape: tuple[int, ...], positions: Positions) -> Term:
        operands: dict[str, Array] = {}
        for name, array in self._tables():
            operand = cast_operand(function, name, array, dtype).astype(dtype, copy=False)
            if not self._has_heads(name, array):
                operand = np.broadcast_to(operand, (shape[-3], *operand.shape))
            check_heads(function, self.name, operand.shape[0], shape)
            operands[name] = operand
        rows = self._operands[len(self.arrays) :]
        return make_term(self.name, *map(operands.get, self.arrays._fields), *rows)

    def _reductions(self, positions: Positions) -> tuple[Reduction, ...]:
        return ("tables",)

    def _gradient_buffers(
        self, shape: tuple[int, ...], batch: tuple[int, ...], rows: int, dtype: np.dtype[Any]
    ) -> tuple[Array | None, ...]:
        buffers: dict[str, Array] = {}
        for name, array in self._tables():
            if name in self.head_vectors:
                buffers[name] = np.zeros((*batch, rows, array.shape[-1]))
            else:
                buffers[name] = np.zeros((*batch, rows, array.shape[-2], padded_width(array.shape[-1])), dtype)
        return tuple(map(buffers.get, self.arrays._fields))

    def _gradient(self, function: str, reductions: Reductions, positions: Positions) -> tuple[Array | None, ...]:
        gradients: dict[str, Array] = {}
        tables = [table for table in reductions.tables if table is not None]
        for (name, array), table in zip(self._tables(), tables, strict=True):
            per_head = table[..., : array.shape[-1]]
            gradients[name] = per_head if self._has_heads(name, array) else per_head.sum(0, dtype=F64)
        return tuple(map(gradients.get, self.arrays._fields))

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
        inputs = self._read_inputs(function, q, k, q_positions, k_positions, scale)
        read = (inputs.q, inputs.k, *self.arrays, *inputs.positions.operands)
        out, buffer = prepare_out(function, out, inputs.shape, inputs.q.dtype, read)
        term = self._term(function, inputs.dtype, inputs.shape, inputs.positions)
        _core.logits(function, **inputs.operands(function), bias=(term,), out=buffer, **inputs.parameters())
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
    ) -> Gradient:
        function = f"{self.name}.logits_vjp"
        inputs = self._read_inputs(function, q, k, q_positions, k_positions, scale)
        batch, heads, dtype = inputs.shape[:-3], inputs.shape[-3], inputs.dtype
        cotangent = as_data(function, "grad", grad)
        if cotangent.shape != inputs.shape:
            fail(ValueError, function, "grad", f"shape {cotangent.shape}", str(inputs.shape))
        buffers = self._gradient_buffers(inputs.shape, batch, heads, dtype)
        d_q, d_k = (np.zeros((*batch, *x.shape[-3:]), dtype) for x in (inputs.q, inputs.k))
        if cotangent.size:
            term = self._term(function, dtype, inputs.shape, inputs.positions).with_gradients(buffers)
            cotangent = cast_operand(function, "grad", cotangent, dtype)
            _core.logits_vjp(
                function, **inputs.operands(function), bias=(term,), grad=cotangent, dq=d_q, dk=d_k,
                **inputs.parameters(),
            )  # fmt: skip
        over = tuple(range(len(batch)))
        with without_warnings():
            tables = tuple(t if t is None or not over else t.sum(over, dtype=F64) for t in buffers)
            arrays = self._named(self._gradient(function, Reductions(tables=tables), inputs.positions))
        d_q = unbroadcast(d_q, inputs.q.shape, inputs.q.dtype.newbyteorder("="))
        d_k = unbroadcast(d_k, inputs.k.shape, inputs.k.dtype.newbyteorder("="))
        gradient: Gradient = self.gradient_type(d_q, d_k, *arrays)
        return gradient

    def _read_inputs(
        self, function: str, q: Any, k: Any, q_positions: Any, k_positions: Any, scale: float | None
    ) -> _LogitsInputs:
        query, key = as_data(function, "q", q), as_data(function, "k", k)
        for argument, array in (("q", query), ("k", key)):
            if array.ndim < 3:
                fail(ValueError, function, argument, f"shape {array.shape}", "(..., heads, positions, width)")
        heads, n, width = query.shape[-3:]
        kv_heads, m = key.shape[-3:-1]
        if key.shape[-1] != width:
            fail(ValueError, function, "k", f"width {key.shape[-1]}", f"{width}, that of q")
        if heads % kv_heads if kv_heads else heads:
            fail(ValueError, function, "k", f"{kv_heads} heads", f"a divisor of the {heads} heads of q")
        try:
            batch = np.broadcast_shapes(query.shape[:-3], key.shape[:-3])
        except ValueError:
            fail(ValueError, function, "k", f"batch axes {key.shape[:-3]}", f"to broadcast against {query.shape[:-3]}")
        self._check_widths(function, width, None)
        for name, array in self._tables():
            if self._has_heads(name, array) and array.shape[0] != heads:
                fail(ValueError, function, "q", f"{heads} heads", f"{array.shape[0]}, as {name}")
        positions = self._resolve(function, self._read_call(function, n, m, q_positions, k_positions))
        for argument, array in zip(("q_positions", "k_positions"), positions.arrays or (), strict=False):
            if not broadcasts_to(array.shape[:-1], batch):
                fail(ValueError, function, argument, f"batch axes {array.shape[:-1]}", f"to broadcast to {batch}")
        factor = (width or 1) ** -0.5 if scale is None else as_number(function, "scale", scale)
        check_range(function, "scale", factor, query.dtype, LARGEST_SCALE32)
        return _LogitsInputs(query, key, positions, (*batch, heads, n, m), factor)


class _LogitsInputs(NamedTuple):
    """Arguments of `ContentBias.logits`, checked."""

    q: Array
    k: Array
    positions: Positions
    shape: tuple[int, ...]
    """(batch axes, H, N, M)"""
    scale: float

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the arithmetic."""
        return compute_dtype(self.q)

    def operands(self, function: str) -> dict[str, Array | None]:
        """Return the inputs of `_core.logits`; no values and no masks."""
        q_at, k_at = self.positions.operands
        k = cast_operand(function, "k", self.k, self.dtype)
        return {"q": self.q, "k": k, "q_positions": q_at, "k_positions": k_at}

    def parameters(self) -> dict[str, float]:
        """Return the scale, no cap, the visible range of rel, and the position of query 0."""
        shift = self.positions.shift
        return {"scale": self.scale, "softcap": 0.0, "low": -INFINITY, "high": INFINITY, "shift": shift}


def padded_width(width: int) -> int:
    """Return the width of a gradient buffer, whose rows the kernels write in whole vectors."""
    return -(-width // VECTOR_PADDING) * VECTOR_PADDING


def as_table(function: str, argument: str, value: Any, *axes: str) -> Array:
    """Return a finite copy of a table in its own dtype, with the axes of one of the words, one letter per axis."""
    array = as_data(function, argument, value)
    if array.ndim not in map(len, axes):
        expected = " or ".join(f"({', '.join(word)})" for word in axes)
        fail(ValueError, function, argument, f"shape {array.shape}", expected)
    return copy_finite(function, argument, array)


def copy_finite(function: str, argument: str, value: Any) -> Array:
    """Return a finite copy of an array in its own dtype."""
    array = as_data(function, argument, value)
    kept = np.array(array, array.dtype.newbyteorder("="), order="C")
    if not np.isfinite(kept.astype(F32 if kept.itemsize == 2 else kept.dtype, copy=False)).all():
        fail(ValueError, function, argument, "NaN or infinity", "finite numbers")
    return kept


def clipped_distance(function: str, argument: str, table: Array) -> int:
    """Return K of a table with 2 K + 1 rows, one for each distance up to K."""
    rows = int(table.shape[-2])
    if rows % 2 == 0 or rows < 3:
        fail(ValueError, function, argument, f"{rows} rows", "2 K + 1 of them, K at least 1")
    return rows // 2


def check_table_heads(function: str, argument: str, table: Array, heads: int) -> None:
    """Refuse a table for another number of heads."""
    if table.shape[0] != heads:
        fail(ValueError, function, argument, f"{table.shape[0]} heads", str(heads))
