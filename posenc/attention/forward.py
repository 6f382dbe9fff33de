"""The forward call: heads that share keys become rows of queries, and the keys of few heads are split into parts."""

from __future__ import annotations

import numpy as np

from .. import _core
from .._core_api.arguments import Array
from .._core_api.constants import BLOCK_M, FEWEST_KEYS, KEY_PARTS
from .blocks import cut_blocks, has_functions
from .inputs import INFINITY, Inputs

MOST_ROWS = 16
"""Most queries of a head that become rows together with those of other heads; more queries fill panels themselves."""


def forward(function: str, inputs: Inputs, out: Array, lse: Array, invariant: bool, precision: str = "high") -> None:
    """Fill `out` and `lse`, which have an axis of heads if the user's arrays have one."""
    if has_functions(inputs):
        for block in cut_blocks(function, inputs):
            forward(function, block.inputs, out[..., block.rows, :], lse[..., block.rows], invariant, precision)
        return
    operands = inputs.operands
    if inputs.is_one_head:
        out, lse = out[None], lse[None]
    if inputs.shape[-3] != inputs.k.shape[-3] and not inputs.terms and not inputs.parameters["dropout"]:
        folded = _fold_heads(inputs)
        if folded is not None:
            if not out.flags.c_contiguous:  # decoded as any other `out`, because decoding sums in another order
                contiguous = np.empty(out.shape, out.dtype)
                forward(function, inputs, contiguous, lse, invariant, precision)
                out[...] = contiguous
                return
            operands, q = folded
            heads, n = q.shape[-3:-1]
            out = out.reshape(*out.shape[:-3], heads, n, out.shape[-1])
            lse = lse.reshape(*lse.shape[:-2], heads, n)
    parts = 1 if invariant else _count_parts(inputs, *out.shape[-3:-1])
    terms = inputs.kernel_terms() if inputs.terms else ()
    numbers = {**inputs.parameters, "invariant": invariant, "weight_parts": count_weight_parts(inputs.q, precision)}
    if parts == 1:
        _core.attention(function, **operands, bias=terms, out=out, lse=lse, **numbers, parts=1)
        return
    *batch, heads, n, width = out.shape
    part_outs, part_lses = np.empty((*batch, heads * parts, n, width), lse.dtype), np.empty((*batch, heads * parts, n))
    _core.attention(
        function, **operands, bias=terms, out=out, lse=lse, part_out=part_outs, part_lse=part_lses,
        **numbers, parts=parts,
    )  # fmt: skip
    outs = part_outs.reshape(*batch, heads, parts, n, width).swapaxes(-2, -3)
    lses = part_lses.reshape(*batch, heads, parts, n).swapaxes(-1, -2)
    _core.merge_attention(function, outs=outs, lses=lses, out=out, lse=lse)


def count_weight_parts(q: Array, precision: str) -> int:
    """Return in how many bfloat16 numbers a weight is split where products are of 16-bit numbers; 0: it is not."""
    if q.dtype.itemsize != 2:
        return 0
    return 2 if precision == "high" or q.dtype.char == "e" else 1


def _count_parts(inputs: Inputs, heads: int, n: int) -> int:
    """Return how many parts of the keys are work items of their own.

    It depends neither on the number of threads nor on the batch, so that no bit of the result does.
    """
    m = inputs.shape[-1]
    if m < 2 * FEWEST_KEYS or any(part.counts_keys for part in inputs.parts):
        return 1
    return max(1, min(KEY_PARTS // max(heads * -(-n // BLOCK_M), 1), m // FEWEST_KEYS))


def _fold_heads(inputs: Inputs) -> tuple[dict[str, Array | None], Array] | None:
    """Return operands in which the queries of all heads of a kv head are rows of one head, and their q, or None.

    Then the keys are read once, by full panels. Results are the same bit for bit, except where the number of rows
    decides between decoding and panels.
    """
    folded, q = inputs.operands.copy(), inputs.q
    keep, q_segments, sink = folded["keep"], folded["q_segments"], folded["sink"]
    heads, n, width = q.shape[-3:]
    kv_heads = inputs.k.shape[-3]
    share = heads // kv_heads if kv_heads else 0
    if share <= 1 or not 0 < n <= MOST_ROWS or (keep is not None and n > 1):
        return None
    folded["q"] = q = q.reshape(*q.shape[:-3], kv_heads, share * n, width)
    if keep is not None:
        folded["keep"] = keep.reshape(*keep.shape[:-3], kv_heads, share, keep.shape[-1])
    if inputs.parameters["low"] == -INFINITY and inputs.parameters["high"] == INFINITY:
        folded["q_positions"] = folded["k_positions"] = None
    else:
        folded["q_positions"] = np.tile(inputs.positions.as_arrays()[0], share)
    if q_segments is not None:
        folded["q_segments"] = np.tile(q_segments, share)
    if sink is not None:
        folded["sink"] = sink.reshape(*sink.shape[:-2], kv_heads, share * n)
    return folded, q
