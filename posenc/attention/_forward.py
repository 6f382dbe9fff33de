"""The forward call: heads that share keys become rows of queries, and the keys of few heads are split into parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _core
from .._core_api.arguments import Array
from .._core_api.constants import BLOCK_M, FEWEST_KEYS, KEY_PARTS
from ._inputs import INFINITY, Inputs

MOST_ROWS = 16
"""Most queries of a head that become rows together with those of other heads; more queries fill panels themselves."""


def forward(function: str, inputs: Inputs, out: Array, lse: Array, invariant: bool) -> None:
    """Fill `out` and `lse`."""
    operands = inputs.operands
    if inputs.shape[-3] != inputs.k.shape[-3] and not inputs.terms and out.flags.c_contiguous:
        folded = _fold_heads(inputs)
        if folded is not None:
            operands = folded
            heads, n = operands[0].shape[-3:-1]
            out = out.reshape(*out.shape[:-3], heads, n, out.shape[-1])
            lse = lse.reshape(*lse.shape[:-2], heads, n)
    parts = 1 if invariant else _count_parts(inputs, *out.shape[-3:-1])
    numbers = (*inputs.parameters, parts, invariant)
    if parts == 1:
        _core.attention(function, *operands, inputs.terms, out, lse, None, None, *numbers)
        return
    *batch, heads, n, width = out.shape
    part_outs, part_lses = np.empty((*batch, heads * parts, n, width), lse.dtype), np.empty((*batch, heads * parts, n))
    _core.attention(function, *operands, inputs.terms, out, lse, part_outs, part_lses, *numbers)
    outs = part_outs.reshape(*batch, heads, parts, n, width).swapaxes(-2, -3)
    _core.merge_attention(function, outs, part_lses.reshape(*batch, heads, parts, n).swapaxes(-1, -2), out, lse)


def _count_parts(inputs: Inputs, heads: int, n: int) -> int:
    """Return how many parts of the keys are work items of their own.

    It depends neither on the number of threads nor on the batch, so that no bit of the result does.
    """
    m = inputs.shape[-1]
    if m < 2 * FEWEST_KEYS or any(part.counts_keys for part in inputs.parts):
        return 1
    return max(1, min(KEY_PARTS // max(heads * -(-n // BLOCK_M), 1), m // FEWEST_KEYS))


def _fold_heads(inputs: Inputs) -> tuple[Any, ...] | None:
    """Return operands in which the queries of all heads of a kv head are rows of one head, or None.

    Then the keys are read once, by full panels. Results are the same bit for bit, except where the number of rows
    decides between decoding and panels.
    """
    q, k, v, k_scale, v_scale, keep, q_at, k_at, q_segments, k_segments, sink = inputs.operands
    *_, heads, n, _ = q.shape
    kv_heads = k.shape[-3]
    share = heads // kv_heads if kv_heads else 0
    if share <= 1 or not 0 < n <= MOST_ROWS or (keep is not None and n > 1):
        return None
    if keep is not None:
        keep = keep.reshape(*keep.shape[:-3], kv_heads, share, keep.shape[-1])
    low, high = inputs.parameters[2:4]
    if low == -INFINITY and high == INFINITY:
        q_at = k_at = None
    else:
        q_at = np.tile(inputs.positions.as_arrays()[0], share)
    if q_segments is not None:
        q_segments = np.tile(q_segments, share)
    if sink is not None:
        sink = sink.reshape(*sink.shape[:-2], kv_heads, share * n)
    q = q.reshape(*q.shape[:-3], kv_heads, share * n, q.shape[-1])
    return q, k, v, k_scale, v_scale, keep, q_at, k_at, q_segments, k_segments, sink
