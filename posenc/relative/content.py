"""Operators that multiply q or k by tables of embeddings: their records, their kind, and the checks of their arrays."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api import convert, read
from .._core_api.arrays import F32, F64, LARGEST_SCALE32, Array, Dtype
from .._core_api.door import door, fail
from ..bias import operator
from ..bias.operator import SUM, Arrays, Bias, Call, Gradient, Gradients, Kind, Operands, Term
from ..bias.positions import Positions

INFINITY = float("inf")


class SumGradient(NamedTuple):
    """Gradients of the logits of a sum.

    Attributes
    ----------
    q : array (..., H, N, D)
    k : array (..., G, M, D)
    parts : tuple of NamedTuples
        The gradients of the arrays of each part.
    """

    q: Array
    k: Array
    parts: Gradients


class ContentBias(Bias[Arrays], Generic[Arrays, Gradient]):
    """An operator that reads queries and keys: `attention` adds its logits before scale and cap.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> bias = posenc.shaw(np.zeros((3, 64)))
    >>> isinstance(bias, posenc.ContentBias), hasattr(bias, "matrix")
    (True, False)
    """

    @door
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
        """Return what the operator adds to the logits, before the common scale.

        Parameters
        ----------
        q : array (..., H, N, D)
            Queries. Arrays q (N, D) and k (M, D), both without an axis of heads, are one head.
        k : array (..., G, M, D)
            Keys; head h reads kv head ``h // (H // G)``.
        q_positions, k_positions : array (N,) and (M,), or with batch axes before, optional
            As in `PositionBias.matrix`.
        scale : float, optional
            Scale of the gates of `cope`; ``D**-0.5`` by default. Other operators ignore it.
        out : array (..., H, N, M), optional
            Filled and returned.

        Returns
        -------
        ndarray (..., H, N, M)
            In the dtype of q; (N, M) for one head.

        Raises
        ------
        TypeError
            Arrays of a dtype that is none of the four.
        ValueError
            Shapes that do not fit.

        Examples
        --------
        >>> import numpy as np, posenc
        >>> posenc.shaw(np.array([[-1.0], [0.0], [2.0]])).logits(np.ones((1, 2, 1)), np.ones((1, 2, 1)))
        array([[[ 0.,  2.],
                [-1.,  0.]]])
        """
        inputs = read_logits(self, q, k, q_positions, k_positions, scale)
        logits = inputs.without_heads(_core.logits(**inputs.arguments))
        return logits if out is None else convert.store(out, logits, logits.dtype)

    @door
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
        """Return the gradient of `logits` with respect to q, k and the operator's arrays.

        Parameters
        ----------
        grad : array (..., H, N, M)
            Cotangent of the logits.
        q, k, q_positions, k_positions, scale
            As in `logits`.

        Returns
        -------
        NamedTuple
            ``q``, ``k``, then one gradient per array of the operator, each in the shape and dtype of its argument. For
            one head, too, the gradients of the operator's arrays keep their axis of heads. The gradient of an array
            that no logit reads, such as ``rel_v`` of `shaw`, is 0.

        Raises
        ------
        TypeError, ValueError
            As `logits`; also a `grad` that has not the shape of the logits.

        Examples
        --------
        >>> import numpy as np, posenc
        >>> q = k = np.ones((1, 2, 1))
        >>> posenc.shaw(np.array([[-1.0], [0.0], [2.0]])).logits_vjp(np.ones((1, 2, 2)), q, k).rel_k
        array([[1.],
               [2.],
               [1.]])
        """
        inputs = read_logits(self, q, k, q_positions, k_positions, scale)
        cotangent = read.data("grad", grad)
        if cotangent.shape != inputs.shape[inputs.is_one_head :]:
            fail(ValueError, "grad", f"shape {cotangent.shape}", str(inputs.shape[inputs.is_one_head :]))
        d_q, d_k, arrays = differentiate_logits(self, inputs, cotangent)
        if self.scheme is SUM:
            return cast("Gradient", SumGradient(d_q, d_k, arrays))
        gradient_type = self.scheme.gradient_type
        assert gradient_type is not None  # every scheme of this class has one
        return cast("Gradient", gradient_type(d_q, d_k, *arrays))


# ---- calls of the kernel of logits, without attention ----


class LogitsInputs(NamedTuple):
    """Checked arguments of `logits` and `logits_vjp`."""

    q: Array
    k: Array
    is_one_head: bool
    """True if the user passed q and k without an axis of heads. Here q and k have such an axis, of length 1."""
    shape: tuple[int, ...]
    """(batch axes, H, N, M)"""
    dtype: Dtype
    """The dtype of the arithmetic."""
    positions: tuple[Positions, ...]
    """Those that each part reads."""
    arguments: dict[str, Any]
    """Arguments of the kernel."""

    def without_heads(self, array: Array) -> Array:
        """Return an array of the logits, of q or of k in the shape that the user knows."""
        one: Array = array[0] if self.is_one_head else array
        return one


def read_logits(
    bias: Bias,
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    q_positions: npt.ArrayLike | None,
    k_positions: npt.ArrayLike | None,
    scale: float | None,
) -> LogitsInputs:
    query, key = read.data("q", q), read.data("k", k)
    is_one_head = query.ndim == key.ndim == 2
    if is_one_head:
        query, key = query[None], key[None]
    for argument, array in (("q", query), ("k", key)):
        if array.ndim < 3:
            expected = "(..., heads, positions, width), or 2 axes of q and k, for one head"
            fail(ValueError, argument, f"shape {array.shape}", expected)
    heads, n, width = query.shape[-3:]
    m = key.shape[-2]
    if key.shape[-1] != width:
        fail(ValueError, "k", f"width {key.shape[-1]}", f"{width}, the width of q")
    try:
        batch = np.broadcast_shapes(query.shape[:-3], key.shape[:-3])
    except ValueError:
        fail(ValueError, "k", f"batch axes {key.shape[:-3]}", f"to broadcast against {query.shape[:-3]}")
    if bias.heads not in (None, heads):
        fail(ValueError, "q", f"{heads} heads", f"{bias.heads}, the heads of {bias.name}")
    of_call = operator.read_method_positions(bias, n, m, q_positions, k_positions)
    for argument, array in zip(("q_positions", "k_positions"), of_call.arrays or (), strict=False):
        if not convert.broadcasts_to(array.shape[:-1], batch):
            fail(ValueError, argument, f"batch axes {array.shape[:-1]}", f"to broadcast to {batch}")
    factor = (width or 1) ** -0.5 if scale is None else read.number("scale", scale)
    read.check_range("scale", factor, query.dtype, LARGEST_SCALE32)
    shape, dtype = (*batch, heads, n, m), convert.arithmetic(query)
    call = Call(dtype, shape, width)
    positions = tuple(operator.resolve_positions(part, of_call, batch) for part in bias.parts)
    terms = tuple(operator.place_term(part, call, own) for part, own in zip(bias.parts, positions, strict=True))
    arguments = _arguments(query, convert.operand("k", key, dtype), of_call, terms, factor)
    return LogitsInputs(query, key, is_one_head, shape, dtype, positions, arguments)


def _arguments(q: Array, k: Array, positions: Positions, terms: tuple[Term, ...], scale: float) -> dict[str, Any]:
    q_at, k_at = positions.arrays or (None, None)
    return {
        "q": q,
        "k": k,
        "q_positions": q_at,
        "k_positions": k_at,
        "bias": terms,
        "scale": scale,
        "softcap": 0.0,
        "low": -INFINITY,
        "high": INFINITY,
        "shift": positions.shift,
    }


def differentiate_logits(bias: Bias, inputs: LogitsInputs, grad: Array) -> tuple[Array, Array, Any]:
    """Return the gradients of q, of k and of the arrays by name, for a cotangent of the logits."""
    grad = convert.operand("grad", grad.reshape(inputs.shape), inputs.dtype)
    with convert.without_warnings():
        d_q, d_k, sums = _core.logits_vjp(**inputs.arguments, grad=grad)
        parts = zip(bias.parts, sums, inputs.positions, strict=True)
        gradients = [part.scheme.kind.gradient(part, own, at) for part, own, at in parts]
    d_q = convert.unbroadcast(operator.add_slots(d_q, 2), inputs.q.shape, inputs.q.dtype)
    d_k = convert.unbroadcast(operator.add_slots(d_k, 2), inputs.k.shape, inputs.k.dtype)
    return inputs.without_heads(d_q), inputs.without_heads(d_k), operator.name_gradients(bias, gradients)


def _product_inputs(bias: Bias, positions: Positions, batch: tuple[int, ...], dtype: Dtype) -> LogitsInputs:
    """Return inputs without channels of q and k, for an operator that adds a product of its own vectors."""
    shape = (*batch, bias.heads or 1, positions.n, positions.m)
    q, k = np.empty((*shape[:-1], 0), dtype), np.empty((*batch, shape[-3], shape[-1], 0), dtype)
    term = bias.scheme.kind.term(bias, Call(dtype, shape, 0), positions)
    return LogitsInputs(q, k, False, shape, dtype, (positions,), _arguments(q, k, positions, (term,), 1.0))


def product_matrix(bias: Bias, positions: Positions, batch: tuple[int, ...], dtype: Dtype, out: Array | None) -> Array:
    """Return the matrix of an operator that adds a product of its own vectors, from its CONTENT row."""
    inputs = _product_inputs(bias, positions, batch, F64 if dtype.char == "d" else F32)
    return convert.store(out, _core.logits(**inputs.arguments), dtype)


def product_vjp(bias: Bias, positions: Positions, batch: tuple[int, ...], grad: Array) -> Gradients:
    """Return the gradient of each array, for a cotangent of the matrix."""
    inputs = _product_inputs(bias, positions, batch, F64)
    cotangent = operator.read_cotangent(grad, inputs.shape)
    _, _, (sums,) = _core.logits_vjp(**inputs.arguments, grad=cotangent)
    return bias.scheme.kind.gradient(bias, sums, positions)


# ---- the kind of operators with tables ----


def _table_term(bias: Bias, call: Call, positions: Positions) -> Term:
    for name, axes in operator.read_row(bias.name).axes.items():
        array = getattr(bias.arrays, name)
        owner, width = ("q", call.width) if axes[-1] == "d" else ("v", call.value_width)
        if array is not None and width is not None and array.shape[-1] != width:
            has = f"width {array.shape[-1]} ({bias.name})"
            fail(ValueError, name, has, f"{width}, the width of {owner}")
    operator.check_heads(bias, call.shape)
    key = call.dtype, call.shape[-3]
    operands = bias.casts.get(key)
    if operands is None:
        operands = _cast_tables(bias, call)
        bias.casts.clear()  # a table for each dtype would take memory
        bias.casts[key] = operands
    return Term(bias.name, operands)


def _cast_tables(bias: Bias, call: Call) -> Operands:
    """Return the operands with tables in the dtype of the arithmetic, for each head."""
    arrays = operator.cast_arrays(bias.arrays._asdict(), call.dtype)
    for name, axes in operator.read_row(bias.name).axes.items():
        if arrays[name] is not None and arrays[name].ndim < len(axes):  # the heads share the array
            arrays[name] = np.broadcast_to(arrays[name], (call.shape[-3], *arrays[name].shape))
    return {**bias.operands, **arrays}


def _table_gradient(bias: Bias, sums: Gradients, positions: Positions) -> Gradients:
    gradients: list[Array | None] = []
    for array, axes, padded in zip(bias.arrays, operator.read_row(bias.name).axes.values(), sums, strict=True):
        if padded is None:  # the array was left out
            gradients.append(None)
            continue
        per_head, shares = operator.add_rows(padded, len(axes) - 1)[..., : array.shape[-1]], array.ndim < len(axes)
        gradients.append(per_head.sum(0, dtype=F64) if shares else per_head)
    return tuple(gradients)


TABLE = Kind(_table_term, _table_gradient)
"""Tables that multiply q or k: (rows, D), which the heads share, or (H, rows, D), one per head.

The operands of the row are the arrays and, except in `cope`, maps of an odd length B: entry B // 2 + rel is the table
row of the relative position rel.
"""


def rows_in_order(bias: Bias) -> Operands:
    """Return the arrays, and the map of tables with 2 K + 1 rows: rel = -K .. K reads the rows 0 .. 2 K."""
    return {**bias.arrays._asdict(), "rows": np.arange(bias.arrays[0].shape[-2], dtype=np.int64)}


# ---- checks of arrays ----


def as_table(argument: str, value: npt.ArrayLike, *shapes: str) -> Array:
    """Return a copy of an array that has as many axes as one of `shapes`, such as "(H, 2 K + 1, D)"."""
    array = read.data(argument, value)
    if array.ndim not in [len(shape.strip("(,)").split(",")) for shape in shapes]:
        fail(ValueError, argument, f"shape {array.shape}", " or ".join(shapes))
    return operator.copy_finite(argument, array)


def check_odd_rows(argument: str, table: Array) -> None:
    """Refuse a table that does not have 2 K + 1 rows, one for each rel = -K .. K, with K at least 1."""
    rows = table.shape[-2]
    if rows % 2 == 0 or rows < 3:
        fail(ValueError, argument, f"{rows} rows", "2 K + 1 rows, K at least 1")


def check_table_heads(argument: str, table: Array, heads: int) -> None:
    """Refuse an array (H, ...) for another number of heads."""
    if table.shape[0] != heads:
        fail(ValueError, argument, f"{table.shape[0]} heads", str(heads))
