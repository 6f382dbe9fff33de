"""How the gradient of attention is cut into calls, and what its operators get of it."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from . import _core
from ._call import F32, F64, Array, reduce_to
from ._inputs import Inputs
from .bias.operator import Sums

TILE, CHUNKS, LEAST = 64, 8, 2
"""Queries in a block; chunks that the queries of a kv head are cut into at most; blocks in a chunk at least. The chunks
fix the order of the sums over queries, so that it is the same for every batch and number of threads."""
APART, TOGETHER, ACROSS = range(3)
Read = tuple[Array, Array, Array, Array | None]


def chunks(share: int, n: int) -> tuple[int, int]:
    """Parts that the `share` heads of a kv head, and their blocks of queries, are cut into."""
    blocks = -(-n // TILE)
    heads = min(share, CHUNKS)
    return heads, max(1, min(blocks // LEAST, CHUNKS // heads))


def backward(function: str, given: Inputs, read: Read) -> tuple[Array, Array, Array, tuple[Any, ...]]:
    """Gradients of q, k, v and of the arrays of each operator. `read` is (out, lse, grad, grad_lse)."""
    *batch, heads, n, m = given.shape
    work = F64 if given.wide else F32
    groups, width = given.k.shape[-3], given.q.shape[-1]
    heads_cut, blocks_cut = chunks(heads // groups if groups else 1, n)
    parts = heads_cut * blocks_cut
    apart = prod(batch) * groups < CHUNKS
    slots = blocks_cut if apart else 1
    wants = [operator.wants(given.shape, given.distances) for operator in given.operators]
    wanted = {name for names in wants for name in names}
    whole = [_leads(operator, given.shape) == given.shape[:-2] for operator in given.operators]
    direct = any("pairs" in names and all_of_it for names, all_of_it in zip(wants, whole, strict=True))

    d_q = np.zeros((*batch, heads, n, width), _stored(given.q, batch, work))
    d_keys = []
    for array in (given.k, given.v):
        stored = work if apart else _stored(array, batch, work)
        d_keys.append(np.zeros((*batch, groups * (parts if apart else 1), m, array.shape[-1]), stored))
    diagonals = np.zeros((*batch, heads * slots, max(n + m - 1, 0))) if "diagonals" in wanted else None
    rows = np.zeros((*batch, heads, n)) if "rows" in wanted else None
    columns = np.zeros((*batch, heads * slots, m)) if "columns" in wanted else None
    pairs = np.zeros(given.shape, work) if direct else None
    sizes = [
        sum(array.size for array in operator.arrays) if "own" in names else 0
        for operator, names in zip(given.operators, wants, strict=True)
    ]
    own = np.zeros(sum(sizes)) if "own" in wanted else None
    empty = 0 in given.shape or not groups
    operands = given.operands
    if not empty:
        mode = APART if apart else TOGETHER
        _core.attention_vjp(
            function, *operands, *read, d_q, *d_keys, diagonals, rows, columns, pairs, own, *given.numbers, heads_cut,
            blocks_cut, mode,
        )  # fmt: skip
    if apart:
        d_keys = [_in_order(part, groups, parts) for part in d_keys]
    if diagonals is not None:
        diagonals = reduce_to(_in_order(diagonals, heads, slots, 1), (heads, diagonals.shape[-1]), F64)
    if columns is not None:
        columns = _in_order(columns, heads, slots, 1)

    gradients, start = [], 0
    for operator, names, all_of_it, size in zip(given.operators, wants, whole, sizes, strict=True):
        of_pairs = pairs
        if "pairs" in names and not all_of_it:
            of_pairs = np.zeros((*_leads(operator, given.shape), n, m), work)
            if not empty:
                shared = _shared(of_pairs, given.shape)
                none = (None,) * 6
                _core.attention_vjp(
                    function, *operands, *read, *none, shared, None, *given.numbers, heads_cut, blocks_cut, ACROSS
                )
        sums = Sums(
            diagonals,
            rows,
            columns,
            of_pairs,
            _cut(own[start : start + size], operator) if own is not None and "own" in names else None,
        )
        chosen = sums._replace(**{name: None for name in Sums._fields if name not in names})
        gradients.append(operator.as_gradients(operator.gradients(function, chosen, given.distances)))
        start += size
    d_q, d_k, d_v = (
        reduce_to(gradient, array.shape, array.dtype.newbyteorder("="))
        for gradient, array in zip((d_q, *d_keys), (given.q, given.k, given.v), strict=True)
    )
    return d_q, d_k, d_v, tuple(gradients)


def _stored(array: Array, batch: list[int], work: np.dtype[Any]) -> np.dtype[Any]:
    """How a gradient leaves the kernel: as its argument where nothing is left to add up."""
    ready = array.shape[:-3] == tuple(batch) and (array.dtype.char == "d") == (work is F64)
    return array.dtype.newbyteorder("=") if ready else work


def _in_order(parts: Array, count: int, slots: int, axes: int = 2) -> Array:
    """The sum over the `slots` that follow each other on the axis before the last `axes`, first to last."""
    shape = parts.shape
    split = parts.reshape(*shape[: -axes - 1], count, slots, *shape[-axes:])
    index = (..., *(slice(None),) * axes)
    total = split[(Ellipsis, 0, *index[1:])]
    if slots > 1:
        total = total.copy()
    for slot in range(1, slots):
        total += split[(Ellipsis, slot, *index[1:])]
    return total


def _leads(operator: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Leading axes of a dense array, filled up with ones."""
    leads = operator.arrays[0].shape[:-2] if operator.arrays else ()
    return (1,) * (len(shape) - 2 - len(leads)) + tuple(leads)


def _shared(array: Array, shape: tuple[int, ...]) -> Array:
    """A writeable view in which heads and rows of the batch that share a matrix have the same memory."""
    strides = tuple(0 if have == 1 else step for have, step in zip(array.shape, array.strides, strict=True))
    return as_strided(array, shape, strides, writeable=True)


def _cut(flat: Array, operator: Any) -> tuple[Array, ...]:
    found, start = [], 0
    for array in operator.arrays:
        found.append(flat[start : start + array.size].reshape(array.shape))
        start += array.size
    return tuple(found)
