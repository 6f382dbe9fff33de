"""Calls in blocks of queries, for the operator whose numbers a function in Python computes: `pair_function`.

Each block is a call with the numbers of its pairs as a dense array. The other operators, masks and positions of the
call are cut to the block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import EllipsisType
from typing import NamedTuple, TypeAlias

import numpy as np

from .._core_api.arguments import Array
from ..bias.operator import Bias, allows_shift
from ..bias.pair_function import PairFunctionBias, as_array, count_block_rows, pair_values
from ..bias.parameters import array_axes
from ..bias.positions import Positions
from ..bias.terms import Call
from .inputs import INFINITY, Inputs, with_arrays

Index: TypeAlias = tuple[slice, ...]
_FIRST_KEYS = 96
"""A block begins at a multiple of this number of keys, as a tile of the kernel does: skipped keys change no bit."""
_SEED_STEP = 0x9E3779B97F4A7C15
"""An odd number of 64 bits: seeds of other calls plus small multiples of it are not expected."""
_AXES = {
    "q": "n.", "k": "m.", "v": "m.", "k_scale": "m", "v_scale": "m", "keep": "nm", "q_positions": "n",
    "k_positions": "m", "q_segments": "n", "k_segments": "m", "sink": "n",
}  # fmt: skip
"""The last axes of the operands of a call: queries n, keys m, others."""


class Block(NamedTuple):
    """A block of queries with the keys that they may see."""

    inputs: Inputs
    rows: slice
    columns: slice
    indices: tuple[tuple[Index, ...], ...]
    """For each array of each part, which of its numbers the block reads."""
    of_functions: tuple[Positions | None, ...]
    """For each part that is a function of positions, the positions of the block."""


def has_functions(inputs: Inputs) -> bool:
    """Return whether the call has to be computed in blocks."""
    return any(isinstance(part, PairFunctionBias) for part in inputs.parts)


def cut_blocks(function: str, inputs: Inputs) -> Iterator[Block]:
    """Yield the blocks of a call, one after the other."""
    batch, (n, m) = inputs.shape[:-3], inputs.shape[-2:]
    step = min(count_block_rows(part, batch, n, m) for part in inputs.parts if isinstance(part, PairFunctionBias))
    for first in range(0, n, step):
        yield _cut_block(function, inputs, slice(first, min(first + step, n)))


def _cut_block(function: str, inputs: Inputs, rows: slice) -> Block:
    columns = _visible_keys(inputs, rows)
    found: dict[int, Array] = {}
    seen = np.ones(columns.stop - columns.start, np.bool_)
    for i, (part, own) in enumerate(zip(inputs.parts, inputs.part_positions, strict=True)):
        if isinstance(part, PairFunctionBias):
            found[i] = pair_values(part, function, with_arrays(own).cut(rows, columns), inputs.dtype)
            seen &= found[i].max(tuple(range(found[i].ndim - 1)), initial=-INFINITY) > -INFINITY
    inner = _span(inputs, seen)
    columns = slice(columns.start + inner.start, columns.start + inner.stop)

    *heads, n, m = inputs.shape
    shape = (*heads, rows.stop - rows.start, columns.stop - columns.start)
    cuts = {"n": rows, "m": columns}
    operands = {
        name: None if array is None else _cut(array, tuple(cuts.get(axis, slice(None)) for axis in _AXES[name]))
        for name, array in inputs.operands.items()
    }
    positions = inputs.positions.cut(rows, columns)
    parts: list[Bias] = []
    indices: list[tuple[Index, ...]] = []
    is_read = [True] * len(inputs.parts)
    for i, part in enumerate(inputs.parts):
        index = _indices(part, rows, columns, n, m)
        indices.append(index)
        if isinstance(part, PairFunctionBias):
            made, is_read[i] = as_array(part, found[i][..., inner])
            parts.append(made)
        else:
            arrays = [_cut(array, at) if at else array for array, at in zip(part.arrays, index, strict=True)]
            parts.append(replace(part, arrays=part.arrays._make(arrays)) if any(index) else part)
    of_parts = tuple(own.cut(rows, columns) for own in inputs.part_positions)
    call = Call(function, inputs.dtype, shape, inputs.q.shape[-1], inputs.v.shape[-1])
    terms = [part._term(call, own) for part, own in zip(parts, of_parts, strict=True)]
    cut = inputs._replace(
        q=inputs.q[..., rows, :], k=inputs.k[..., columns, :], v=inputs.v[..., columns, :], shape=shape,
        parts=tuple(parts), positions=positions, part_positions=of_parts, operands=operands,
        terms=tuple(term if read else term._replace(reads=()) for term, read in zip(terms, is_read, strict=True)),
        parameters={**inputs.parameters, "shift": positions.shift, **_seed_of_block(inputs, rows.start)},
    )  # fmt: skip
    functions = tuple(
        with_arrays(own).cut(rows, columns) if i in found else None for i, own in enumerate(inputs.part_positions)
    )
    return Block(cut, rows, columns, tuple(indices), functions)


def _seed_of_block(inputs: Inputs, first_query: int) -> dict[str, float]:
    """Return the seed of dropout for a block, whose queries and keys the kernel counts from 0."""
    seed = int(inputs.parameters["seed_low"]) + (int(inputs.parameters["seed_high"]) << 32)
    seed = (seed + first_query * _SEED_STEP) % 2**64
    return {"seed_low": seed % 2**32, "seed_high": seed >> 32}


def _cut(array: Array, index: Index) -> Array:
    """Return the numbers of an array at the index of its last axes."""
    places: tuple[EllipsisType | slice, ...] = (..., *index)
    cut: Array = array[places]
    return cut


def _visible_keys(inputs: Inputs, rows: slice) -> slice:
    """Return the keys from the first to the last that causality and windows leave to a block of queries."""
    positions = inputs.positions
    m = inputs.shape[-1]
    if positions.low == -INFINITY and positions.high == INFINITY:
        return slice(0, m)
    q, k = positions.as_arrays()
    of_rows = q[..., rows]
    low, high = of_rows.min(-1, keepdims=True) + positions.low, of_rows.max(-1, keepdims=True) + positions.high
    seen = (k >= low) & (k <= high)
    return _span(inputs, seen.any(tuple(range(seen.ndim - 1))))


def _span(inputs: Inputs, seen: Array) -> slice:
    """Return the keys from the first to the last visible one, and some keys if none is visible."""
    keys = np.flatnonzero(seen)
    if any(part.counts_keys for part in inputs.parts):
        return slice(0, len(seen))
    if not len(keys):
        return slice(0, min(len(seen), _FIRST_KEYS))
    others = (part for part in inputs.parts if not isinstance(part, PairFunctionBias))
    may_move = inputs.positions.arrays is not None or all(map(allows_shift, others))
    first = int(keys[0]) if may_move else 0
    return slice(first - first % _FIRST_KEYS, int(keys[-1]) + 1)


def _indices(part: Bias, rows: slice, columns: slice, n: int, m: int) -> tuple[Index, ...]:
    """Return which numbers of each array a block reads: those of its queries, keys or diagonals."""
    first = columns.start + n - rows.stop
    diagonals = slice(first, first + rows.stop - rows.start + columns.stop - columns.start - 1)
    axes, cuts = array_axes(part.name), {"n": (rows, n), "m": (columns, m), "l": (diagonals, n + m - 1)}
    found: list[Index] = []
    for name, array in zip(part.arrays._fields, part.arrays, strict=True):
        letters, lengths = (axes.get(name, ""), array.shape) if isinstance(array, np.ndarray) else ("", ())
        index = [
            cuts[letter][0] if letter in cuts and length == cuts[letter][1] else slice(None)
            for letter, length in zip(reversed(letters), reversed(lengths), strict=False)
        ]
        found.append(tuple(reversed(index)))
    return tuple(found)
