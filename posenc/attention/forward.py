"""Call the forward kernel.

If heads share keys and have at most `MOST_ROWS` queries each, their queries are stacked as rows of one head. If there
are not many blocks of queries but many keys, the keys are split into parts, whose results are merged.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _core
from .._core_api.arguments import Array, Dtype
from .._core_api.constants import BLOCK_M, FEWEST_KEYS, KEY_PARTS
from .inputs import INFINITY, Inputs

MOST_ROWS = 16
"""Most queries of a head that are stacked with queries of other heads. More queries fill panels by themselves."""


def forward(
    function: str, inputs: Inputs, dtype: Dtype, invariant: bool, precision: str = "high", out: Array | None = None
) -> tuple[Array, Array]:
    """Return the result in `dtype`, and lse. The result is in `out` where one call of the kernel can write it."""
    heads, n, width = *inputs.shape[-3:-1], inputs.v.shape[-1]
    operands, stacked = inputs.operands, None
    if heads != inputs.k.shape[-3] and not inputs.terms and not inputs.parameters["dropout"]:
        stacked = _stack_heads(inputs)
    if stacked is not None:
        operands, q = stacked
        heads, n = q.shape[-3:-1]
    arguments: dict[str, Any] = {**operands, "bias": inputs.kernel_terms() if inputs.terms else (), **inputs.parameters}
    arguments |= {"invariant": invariant, "weight_parts": count_weight_parts(inputs.q, precision), "dtype": dtype}
    parts = 1 if invariant else _count_parts(inputs, heads, n)
    if parts == 1:
        own = None if stacked or inputs.is_one_head else out
        result, lse = _core.attention(function, **arguments, out=own, lse=True, parts=1)
    else:
        batch = inputs.shape[:-3]
        _, part_out, part_lse = _core.attention(
            function, **arguments, part_out=True, part_lse=True, parts=parts, p=heads * parts
        )
        outs = part_out.reshape(*batch, heads, parts, n, width).swapaxes(-2, -3)
        lses = part_lse.reshape(*batch, heads, parts, n).swapaxes(-1, -2)
        result, lse = _core.merge_attention(function, outs=outs, lses=lses, dtype=dtype)
    if stacked or inputs.is_one_head:
        result, lse = result.reshape(*inputs.rows, width), lse.reshape(inputs.rows)
    return result, lse


def count_weight_parts(q: Array, precision: str) -> int:
    """Return the number of bfloat16 numbers into which 16-bit products split a weight; 0 if q is not 16-bit."""
    if q.dtype.itemsize != 2:
        return 0
    return 2 if precision == "high" or q.dtype.char == "e" else 1


def _count_parts(inputs: Inputs, heads: int, n: int) -> int:
    """Return the number of parts into which the keys are split; each part of the keys of a head is a unit of work.

    Neither the number of threads nor the batch changes this number, so that neither changes a bit of the result.
    """
    m = inputs.shape[-1]
    if m < 2 * FEWEST_KEYS or any(part.counts_keys for part in inputs.parts):
        return 1
    return max(1, min(KEY_PARTS // max(heads * -(-n // BLOCK_M), 1), m // FEWEST_KEYS))


def _stack_heads(inputs: Inputs) -> tuple[dict[str, Array | None], Array] | None:
    """Stack the queries of the heads that share a kv head: return operands with kv_heads heads, and their q.

    Return None if this call is not stacked. With stacked queries the kernel reads the keys of a kv head once, and more
    lanes of a panel hold a query. The numbers of heads and queries also decide whether the kernel decodes and into how
    many parts the keys are split; apart from these two choices, stacking changes no bit of the result.
    """
    stacked, q = inputs.operands.copy(), inputs.q
    keep, q_segments, sink = stacked["keep"], stacked["q_segments"], stacked["sink"]
    heads, n, width = q.shape[-3:]
    kv_heads = inputs.k.shape[-3]
    share = heads // kv_heads if kv_heads else 0
    if share <= 1 or not 0 < n <= MOST_ROWS or (keep is not None and n > 1):
        return None
    stacked["q"] = q = q.reshape(*q.shape[:-3], kv_heads, share * n, width)
    if keep is not None:
        stacked["keep"] = keep.reshape(*keep.shape[:-3], kv_heads, share, keep.shape[-1])
    if inputs.parameters["low"] == -INFINITY and inputs.parameters["high"] == INFINITY:
        stacked["q_positions"] = stacked["k_positions"] = None
    else:
        stacked["q_positions"] = np.tile(inputs.positions.as_arrays()[0], share)
    if q_segments is not None:
        stacked["q_segments"] = np.tile(q_segments, share)
    if sink is not None:
        stacked["sink"] = sink.reshape(*sink.shape[:-2], kv_heads, share * n)
    return stacked, q
