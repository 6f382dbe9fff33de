"""How the gradient of attention is cut into calls, and what its operators get of it."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from .. import _core
from .._core_api.arguments import F64, Array, unbroadcast
from .._core_api.constants import BLOCK_M, VJP_MODES, VJP_PARTS
from ..bias.operator import Bias, Sums
from ._inputs import Inputs

LEAST = 2
"""Fewest blocks of queries in a chunk. A row of the batch is cut into VJP_PARTS chunks unless it has more kv heads.
Chunks fix the order of the sums over queries: it is the same for every batch and number of threads."""
APART, TOGETHER, ACROSS = map(VJP_MODES.index, ("apart", "together", "across"))
Read = tuple[Array, Array, Array, Array | None]


def chunks(heads: int, groups: int, n: int) -> tuple[int, int]:
    """Parts that the heads of one kv head, and their blocks of queries, are cut into."""
    wanted, blocks = -(-VJP_PARTS // max(groups, 1)), -(-n // BLOCK_M)
    of_heads = max(1, min(heads // max(groups, 1), wanted))
    return of_heads, max(1, min(blocks // LEAST, wanted // of_heads))


def backward(function: str, given: Inputs, read: Read) -> tuple[Array, Array, Array, tuple[Any, ...]]:
    """Gradients of q, k, v and of the arrays of each operator. `read` is (out, lse, grad, grad_lse)."""
    *batch, heads, n, m = given.shape

    def operands(terms: tuple[Any, ...]) -> tuple[Any, ...]:
        return (function, *given._replace(terms=terms).operands, *read)

    groups, work = given.k.shape[-3], given.dtype
    cut = chunks(heads, groups, n)
    parts = prod(cut)
    apart = parts > 1 and prod(batch) * groups < VJP_PARTS
    slots = parts if apart else 1
    rows = cut[1] if apart else 1  # of sums over queries, for each head

    wants = [operator.wants(given.shape, given.distances) for operator in given.every]
    wanted = {name for names in wants for name in names}
    unshared = [
        "pairs" in names and _leads(operator, given.shape) == given.shape[:-2]
        for operator, names in zip(given.every, wants, strict=True)
    ]
    d_q = np.zeros((*batch, heads, n, given.q.shape[-1]), _stored(given.q, batch, work))
    d_k, d_v = (
        np.zeros((*batch, groups * slots, m, x.shape[-1]), work if parts > 1 else _stored(x, batch, work))
        for x in (given.k, given.v)
    )
    sums = Sums(
        np.zeros((*batch, heads * rows, max(n + m - 1, 0))) if "diagonals" in wanted else None,
        np.zeros((*batch, heads, n)) if "rows" in wanted else None,
        np.zeros((*batch, heads * rows, m)) if "columns" in wanted else None,
        np.zeros(given.shape, work) if any(unshared) else None,
        np.zeros(sum(map(_size, given.every, wants))) if "own" in wanted else None,
    )
    tables = [
        operator.tables(given.shape, tuple(batch), heads * rows, work) if "tables" in names else ()
        for operator, names in zip(given.every, wants, strict=True)
    ]
    terms = tuple((*term, *room) for term, room in zip(given.terms, tables, strict=True))
    empty = 0 in given.shape or groups == 0
    if not empty:
        _core.attention_vjp(
            *operands(terms), d_q, d_k, d_v, *sums[:5], *given.numbers, *cut, APART if apart else TOGETHER
        )
    if sums.diagonals is not None:
        diagonals = _in_order(sums.diagonals[..., None, :], heads, rows)[..., 0, :]
        sums = sums._replace(diagonals=unbroadcast(diagonals, (heads, diagonals.shape[-1]), F64))
    if sums.columns is not None:
        sums = sums._replace(columns=_in_order(sums.columns[..., None, :], heads, rows)[..., 0, :])

    biases, start = [], 0
    for operator, names, whole, room in zip(given.every, wants, unshared, tables, strict=True):
        mine = Sums(**{name: getattr(sums, name) for name in names})
        if "tables" in names:
            mine = mine._replace(tables=tuple(_added_up(array, len(batch), heads) for array in room))
        if "pairs" in names and not whole:
            mine = mine._replace(pairs=np.zeros((*_leads(operator, given.shape), n, m), work))
            if not empty:
                into = Sums(pairs=_stretched(mine.pairs, given.shape))
                _core.attention_vjp(*operands(given.terms), None, None, None, *into[:5], *given.numbers, *cut, ACROSS)
        if "own" in names:
            ends = start + np.cumsum([0, *(array.size for array in operator.operands)])
            pieces = zip(ends[:-1], ends[1:], operator.arrays, strict=False)  # what has gradients comes first
            mine = mine._replace(own=tuple(_as_kept(sums.own[a:b], array) for a, b, array in pieces))
            start = ends[-1]
        biases.append(operator.as_gradients(operator.gradients(function, mine, given.distances, given.where)))
    gradients = zip((d_q, _in_order(d_k, groups, slots), _in_order(d_v, groups, slots)), given[:3], strict=True)
    q, k, v = (unbroadcast(d, x.shape, x.dtype.newbyteorder("=")) for d, x in gradients)
    return q, k, v, _nested(given.operators, biases)


def _nested(operators: tuple[Bias, ...], gradients: list[Any]) -> tuple[Any, ...]:
    """One gradient for each operator of the user; what came along with it is in its field `relative`."""
    rest, nested = iter(gradients), []
    for operator in operators:
        gradient = next(rest)
        for _ in operator.within:
            gradient = gradient._replace(relative=next(rest))
        nested.append(gradient)
    return tuple(nested)


def _added_up(table: Array | None, batch: int, heads: int) -> Array | None:
    """(batch axes, heads x rows, ...) as (heads, ...): float64, or as it is where there is nothing to add up."""
    if table is None:
        return None
    rows = table.shape[batch] // max(heads, 1)
    split = table.reshape(*table.shape[:batch], heads, rows, *table.shape[batch + 1 :])
    over = tuple(range(batch)) + (batch + 1,)
    if all(split.shape[axis] == 1 for axis in over):
        return split.reshape(split.shape[batch], *split.shape[batch + 2 :])
    added: Array = split.sum(over, dtype=F64)
    return added


def _stored(array: Array, batch: list[int], work: np.dtype[Any]) -> np.dtype[Any]:
    """How a gradient leaves the kernel: as its argument is stored, where nothing is left to add up."""
    ready = array.shape[:-3] == tuple(batch) and (array.dtype.char == "d") == (work is F64)
    return array.dtype.newbyteorder("=") if ready else work


def _size(operator: Bias, names: tuple[str, ...]) -> int:
    return sum(array.size for array in operator.operands) if "own" in names else 0


def _as_kept(flat: Array, array: Array) -> Array:
    """Numbers in the order in which the memory of an operator's array has them."""
    return flat.reshape(array.shape, order="C" if array.flags.c_contiguous else "F")


def _in_order(parts: Array, count: int, slots: int) -> Array:
    """(..., count * slots, a, b) summed over the slots of each, first to last."""
    if slots == 1:
        return parts
    split = parts.reshape(*parts.shape[:-3], count, slots, *parts.shape[-2:])
    total: Array = split[..., 0, :, :].copy()
    for slot in range(1, slots):
        total += split[..., slot, :, :]
    return total


def _leads(operator: Bias, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The leading axes of a dense array, filled up with ones."""
    leads = operator.arrays[0].shape[:-2]
    return (1,) * (len(shape) - 2 - len(leads)) + tuple(leads)


def _stretched(array: Array, shape: tuple[int, ...]) -> Array:
    """A writeable view in which all heads and rows of the batch that share a matrix have its memory."""
    strides = tuple(0 if length == 1 else step for length, step in zip(array.shape, array.strides, strict=True))
    return as_strided(array, shape, strides, writeable=True)
