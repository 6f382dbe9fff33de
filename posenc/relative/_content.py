"""Operators that multiply q or k by tables of embeddings: their base class, and the checks of their arrays."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import ClassVar, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import (
    F64,
    I64,
    LARGEST_SCALE32,
    Array,
    Dtype,
    as_data,
    as_number,
    broadcasts_to,
    cast_operand,
    check_range,
    compute_dtype,
    fail,
    store_result,
    unbroadcast,
    without_warnings,
)
from ..bias.operator import Arrays, ContentBias, Gradient, check_heads, name_gradients, read_method_positions
from ..bias.parameters import array_axes, cast_arrays, copy_finite, row_gradients, zero_gradients
from ..bias.positions import Positions
from ..bias.terms import Call, Operands, Sums, Term

INFINITY = float("inf")


class TableBias(ContentBias[Arrays, Gradient]):
    """An operator that multiplies q or k by tables: (rows, D), which the heads share, or (H, rows, D), one per head.

    Its name is the name of its CONTENT row in csrc/ops.def. The operands of the kernel are the arrays and, except in
    `cope`, maps of an odd length B: entry B // 2 + rel is the table row of the relative position rel.
    """

    gradient_type: ClassVar[type[NamedTuple]]
    """The type that `logits_vjp` returns."""

    @cached_property
    def operands(self) -> Operands:
        """The arrays, and the map of tables with 2 K + 1 rows: rel = -K .. K reads the rows 0 .. 2 K."""
        return {**self.arrays._asdict(), "rows": np.arange(self.arrays[0].shape[-2], dtype=I64)}

    @cached_property
    def _tables(self) -> list[tuple[str, Array, str]]:
        """The name, the array and the axes of each array that was passed. An axis is a letter of csrc/ops.def."""
        axes = array_axes(self.name)
        fields = zip(self.arrays._fields, self.arrays, strict=True)
        return [(name, array, axes[name]) for name, array in fields if array is not None]

    _last: tuple[tuple[Dtype, int] | None, Operands] = None, {}
    """(dtype, heads) of the last call, and its operands. The next call reuses them if its dtype and heads are equal."""

    def _term(self, call: Call, positions: Positions) -> Term:
        for name, array, axes in self._tables:
            owner, width = ("q", call.width) if axes[-1] == "d" else ("v", call.value_width)
            if width is not None and array.shape[-1] != width:
                has = f"width {array.shape[-1]} ({self.name})"
                fail(ValueError, call.function, name, has, f"{width}, the width of {owner}")
        check_heads(call.function, self, call.shape)
        kind = call.dtype, call.shape[-3]
        if self._last[0] != kind:
            vars(self)["_last"] = kind, self._cast_operands(call)
        return Term(self.name, self._last[1], row_gradients(self.name))

    def _cast_operands(self, call: Call) -> Operands:
        arrays = cast_arrays(call.function, {name: array for name, array, _ in self._tables}, call.dtype)
        for name, array, axes in self._tables:
            if array.ndim < len(axes):  # the heads share the array
                arrays[name] = np.broadcast_to(arrays[name], (call.shape[-3], *array.shape))
        return {**self.operands, **arrays}

    def _gradient(self, function: str, sums: Sums, positions: Positions) -> tuple[Array | None, ...]:
        gradients: list[Array | None] = []
        pairs = zip(self.arrays, array_axes(self.name).values(), row_gradients(self.name), strict=True)
        for array, axes, name in pairs:
            if array is None:
                gradients.append(None)
                continue
            per_head = sums[name][..., : array.shape[-1]]  # the kernel rounds rows up to whole vectors
            gradients.append(per_head.sum(0, dtype=F64) if array.ndim < len(axes) else per_head)
        return tuple(gradients)

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
        inputs = _read_inputs(function, self, q, k, q_positions, k_positions, scale)
        logits: Array = _core.logits(function, **inputs.operands, bias=inputs.terms(), **inputs.parameters)
        result = logits.reshape(inputs.user_shape)
        return result if out is None else store_result(function, out, result, result.dtype)

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
        inputs = _read_inputs(function, self, q, k, q_positions, k_positions, scale)
        batch, heads, dtype = inputs.shape[:-3], inputs.shape[-3], inputs.dtype
        cotangent = as_data(function, "grad", grad)
        if cotangent.shape != inputs.user_shape:
            fail(ValueError, function, "grad", f"shape {cotangent.shape}", str(inputs.user_shape))
        cotangent = cotangent.reshape(inputs.shape)
        buffers = zero_gradients(inputs.term, batch, heads, 1, dtype)
        d_q, d_k = (np.zeros((*batch, *x.shape[-3:]), dtype) for x in (inputs.q, inputs.k))
        if cotangent.size:
            _core.logits_vjp(
                function, **inputs.operands, bias=inputs.terms(buffers), **inputs.parameters,
                grad=cast_operand(function, "grad", cotangent, dtype), dq=d_q, dk=d_k,
            )  # fmt: skip
        batch_axes = tuple(range(len(batch)))
        with without_warnings():
            sums = {name: table.sum(batch_axes, dtype=F64) if batch else table for name, table in buffers.items()}
            arrays = name_gradients(self, self._gradient(function, sums, inputs.positions))
        d_q = unbroadcast(d_q, inputs.q.shape, inputs.q.dtype)
        d_k = unbroadcast(d_k, inputs.k.shape, inputs.k.dtype)
        if inputs.is_one_head:
            d_q, d_k = d_q[0], d_k[0]
        return cast("Gradient", self.gradient_type._make((d_q, d_k, *arrays)))


class _LogitsInputs(NamedTuple):
    """Checked arguments of `logits` and `logits_vjp`."""

    q: Array
    k: Array
    is_one_head: bool
    """True if the user passed q and k without an axis of heads. Here q and k have such an axis, of length 1."""
    positions: Positions
    shape: tuple[int, ...]
    """(batch axes, H, N, M)"""
    dtype: Dtype
    """The dtype of the arithmetic."""
    term: Term
    operands: Operands
    """Operands of the kernel without the term: q, k and their positions."""
    parameters: dict[str, float]
    """Parameters of the kernel: the scale, no cap, no limit of rel, and the position of query 0 without positions."""

    @property
    def user_shape(self) -> tuple[int, ...]:
        """The shape of the logits that the user gets: (N, M) if q and k have no axis of heads."""
        return self.shape[1:] if self.is_one_head else self.shape

    def terms(self, gradients: Mapping[str, Array] = MappingProxyType({})) -> tuple[tuple[str, Operands, None, None]]:
        """Return the term in the form that the kernel takes, with the arrays to which the kernel adds gradients."""
        return ((self.term.row, {**self.term.operands, **gradients}, None, None),)


def _read_inputs(
    function: str,
    bias: TableBias,
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    q_positions: npt.ArrayLike | None,
    k_positions: npt.ArrayLike | None,
    scale: float | None,
) -> _LogitsInputs:
    query, key = as_data(function, "q", q), as_data(function, "k", k)
    is_one_head = query.ndim == key.ndim == 2
    if is_one_head:
        query, key = query[None], key[None]
    for argument, array in (("q", query), ("k", key)):
        if array.ndim < 3:
            expected = "(..., heads, positions, width), or 2 axes of q and k, for one head"
            fail(ValueError, function, argument, f"shape {array.shape}", expected)
    heads, n, width = query.shape[-3:]
    kv_heads, m = key.shape[-3:-1]
    if key.shape[-1] != width:
        fail(ValueError, function, "k", f"width {key.shape[-1]}", f"{width}, the width of q")
    if heads % kv_heads if kv_heads else heads:  # without kv heads, q must have no heads
        fail(ValueError, function, "k", f"{kv_heads} heads", f"a divisor of the {heads} heads of q")
    try:
        batch = np.broadcast_shapes(query.shape[:-3], key.shape[:-3])
    except ValueError:
        fail(ValueError, function, "k", f"batch axes {key.shape[:-3]}", f"to broadcast against {query.shape[:-3]}")
    if bias.heads not in (None, heads):
        fail(ValueError, function, "q", f"{heads} heads", f"{bias.heads}, the heads of {bias.name}")
    positions = read_method_positions(function, bias, n, m, q_positions, k_positions)
    for argument, array in zip(("q_positions", "k_positions"), positions.arrays or (), strict=False):
        if not broadcasts_to(array.shape[:-1], batch):
            fail(ValueError, function, argument, f"batch axes {array.shape[:-1]}", f"to broadcast to {batch}")
    factor = (width or 1) ** -0.5 if scale is None else as_number(function, "scale", scale)
    check_range(function, "scale", factor, query.dtype, LARGEST_SCALE32)
    shape, dtype = (*batch, heads, n, m), compute_dtype(query)
    term = bias._term(Call(function, dtype, shape, width, None), positions)
    q_at, k_at = positions.operands
    operands = {"q": query, "k": cast_operand(function, "k", key, dtype), "q_positions": q_at, "k_positions": k_at}
    parameters = {"scale": factor, "softcap": 0.0, "low": -INFINITY, "high": INFINITY, "shift": positions.shift}
    return _LogitsInputs(query, key, is_one_head, positions, shape, dtype, term, operands, parameters)


def as_table(function: str, argument: str, value: npt.ArrayLike, *shapes: str) -> Array:
    """Return a copy of an array that has as many axes as one of `shapes`, such as "(H, 2 K + 1, D)"."""
    array = as_data(function, argument, value)
    if array.ndim not in [len(shape.strip("(,)").split(",")) for shape in shapes]:
        fail(ValueError, function, argument, f"shape {array.shape}", " or ".join(shapes))
    return copy_finite(function, argument, array)


def check_odd_rows(function: str, argument: str, table: Array) -> None:
    """Refuse a table that does not have 2 K + 1 rows, one for each rel = -K .. K, with K at least 1."""
    rows = table.shape[-2]
    if rows % 2 == 0 or rows < 3:
        fail(ValueError, function, argument, f"{rows} rows", "2 K + 1 rows, K at least 1")


def check_table_heads(function: str, argument: str, table: Array, heads: int) -> None:
    """Refuse an array (H, ...) for another number of heads."""
    if table.shape[0] != heads:
        fail(ValueError, function, argument, f"{table.shape[0]} heads", str(heads))
