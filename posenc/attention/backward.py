"""The gradient of attention: split the work, call the kernel, and reduce its sums to gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from .. import _core
from .._core_api.arguments import F64, Array, Dtype, unbroadcast
from .._core_api.constants import BLOCK_M, VJP_MODES, VJP_PARTS
from ..bias.operator import Bias, is_sum, name_gradients
from ..bias.parameters import has_slots, zero_gradients
from ..bias.terms import Gradients
from .forward import count_weight_parts
from .inputs import Inputs, KernelTerm, Shape

FEWEST_BLOCKS = 2
"""Fewest blocks of queries in a chunk."""
SEPARATE, TOGETHER, PAIRS = map(VJP_MODES.index, ("apart", "together", "across"))
"""Modes of the kernel. Each chunk has its own sums; all chunks of a kv head share them; only pairs are reduced."""


class Saved(NamedTuple):
    """Results of the forward call, and cotangents."""

    out: Array
    lse: Array
    grad: Array
    grad_lse: Array | None
    precision: str


class _Split(NamedTuple):
    """Chunks that the work of a kv head is split into.

    Chunks fix the order of the sums over queries, so that it is the same for every batch and number of threads.
    """

    head_parts: int
    block_parts: int
    separate: bool
    """True if each chunk has its own sums, which are added afterwards."""

    @property
    def chunks(self) -> int:
        return self.head_parts * self.block_parts

    @property
    def slots_per_kv_head(self) -> int:
        """Buffers of the gradients of k and v, per kv head."""
        return self.chunks if self.separate else 1

    @property
    def slots_per_head(self) -> int:
        """Buffers of a sum over queries, per head."""
        return self.block_parts if self.separate else 1


class _Gradients(NamedTuple):
    """Gradients before they are summed over axes that were broadcast, and rounded to the dtypes of arguments."""

    q: Array
    k: Array
    v: Array
    parts: list[Gradients]
    """The gradients of the arrays of each part."""
    sink: Array | None
    """That of each query's sink."""


def backward(function: str, inputs: Inputs, saved: Saved) -> tuple[Array, Array, Array, Gradients, Array | None]:
    """Return the gradients of q, k, v, of the arrays of each operator, and of the sink."""
    found = _differentiate(function, inputs, saved)
    of_parts = map(name_gradients, inputs.parts, found.parts)
    pairs = zip((found.q, found.k, found.v), (inputs.q, inputs.k, inputs.v), strict=True)
    q, k, v = (unbroadcast(d, array.shape, array.dtype) for d, array in pairs)
    return q, k, v, assemble(inputs.operators, of_parts), _reduce_sink(inputs, found.sink)


def _differentiate(function: str, inputs: Inputs, saved: Saved) -> _Gradients:
    """Return the gradients of a call."""
    split = _split_work(inputs)
    d_q, d_k, d_v = _allocate_gradients(inputs, split)
    d_sink = None if inputs.sink is None else np.zeros(inputs.shape[:-1])
    sums = _allocate_sums(inputs, split)
    batch, heads = inputs.shape[:-3], inputs.shape[-3]
    buffers = [zero_gradients(term, batch, heads, split.slots_per_head, inputs.dtype) for term in inputs.terms]
    terms = inputs.kernel_terms(buffers)
    mode = SEPARATE if split.separate else TOGETHER
    results = {"dq": d_q, "dk": d_k, "dv": d_v, "d_sink": d_sink, **sums}
    _call_kernel(function, inputs, terms, saved, results, split, mode)

    shared = _reduce_shared(inputs, split, sums)
    of_parts: list[Gradients] = []
    for part, own, term, buffer in zip(inputs.parts, inputs.part_positions, inputs.terms, buffers, strict=True):
        found = {name: shared[name] for name in term.reads if name in shared}
        for name, array in buffer.items():
            found[name] = _sum_buffer(inputs.shape, array) if has_slots(term.row, name) else array
        if "pairs" in term.reads:
            found["pairs"] = _reduce_pairs(function, inputs, saved, split, part, sums.get("pairs"))
        of_parts.append(part._gradient(function, found, own))

    d_k, d_v = (_sum_slots(d, split.slots_per_kv_head) for d in (d_k, d_v))
    return _Gradients(d_q, d_k, d_v, of_parts, d_sink)


def _split_work(inputs: Inputs) -> _Split:
    """Split the work of a kv head by heads first, then by blocks of queries."""
    heads, n = inputs.q.shape[-3:-1]
    kv_heads = inputs.k.shape[-3]
    wanted, blocks = -(-VJP_PARTS // max(kv_heads, 1)), -(-n // BLOCK_M)
    head_parts = max(1, min(heads // max(kv_heads, 1), wanted))
    block_parts = max(1, min(blocks // FEWEST_BLOCKS, wanted // head_parts))
    batch_rows = prod(inputs.shape[:-3])
    return _Split(head_parts, block_parts, head_parts * block_parts > 1 and batch_rows * kv_heads < VJP_PARTS)


def _allocate_gradients(inputs: Inputs, split: _Split) -> tuple[Array, Array, Array]:
    """Return buffers for the gradients of q, k and v: in the dtype of the argument if nothing is left to add up."""
    batch, work = inputs.shape[:-3], inputs.dtype

    def final_dtype(array: Array) -> Dtype:
        is_final = array.shape[:-3] == batch and (array.dtype.char == "d") == (work is F64)
        return array.dtype.newbyteorder("=") if is_final else work

    def of_keys(array: Array) -> Array:
        kv_heads, m, width = array.shape[-3:]
        shape = (*batch, kv_heads * split.slots_per_kv_head, m, width)
        return np.zeros(shape, final_dtype(array) if split.chunks == 1 else work)

    d_q = np.zeros((*batch, *inputs.q.shape[-3:]), final_dtype(inputs.q))
    return d_q, of_keys(inputs.k), of_keys(inputs.v)


def _allocate_sums(inputs: Inputs, split: _Split) -> dict[str, Array]:
    """Return arrays for the sums of dS that a part reads, which the kernel fills for all parts."""
    *batch, heads, n, m = inputs.shape
    wanted = {name for term in inputs.terms for name in term.reads}
    slots = heads * split.slots_per_head
    sums: dict[str, Array] = {}
    if "diagonals" in wanted:
        sums["diagonals"] = np.zeros((*batch, slots, max(n + m - 1, 0)))
    if "rows" in wanted:
        sums["rows"] = np.zeros((*batch, heads, n))
    if "columns" in wanted:
        sums["columns"] = np.zeros((*batch, slots, m))
    if "pairs" in wanted and _has_unshared_pairs(inputs):
        sums["pairs"] = np.zeros(inputs.shape, inputs.dtype)
    return sums


def _call_kernel(
    function: str,
    inputs: Inputs,
    terms: tuple[KernelTerm, ...],
    saved: Saved,
    results: Mapping[str, Array | None],
    split: _Split,
    mode: int,
) -> None:
    if 0 in inputs.shape[:-1] or (inputs.shape[-1] == 0 and inputs.sink is None):
        return
    _core.attention_vjp(
        function, **inputs.operands, **inputs.parameters, **results,
        bias=terms, out=saved.out, lse=saved.lse, grad=saved.grad, grad_lse=saved.grad_lse,
        head_parts=split.head_parts, block_parts=split.block_parts, mode=mode,
        weight_parts=count_weight_parts(inputs.q, saved.precision),
    )  # fmt: skip


def _reduce_shared(inputs: Inputs, split: _Split, sums: Mapping[str, Array]) -> dict[str, Array]:
    """Return the sums that all parts read alike, added up over their slots."""
    shared = {**sums}
    for name in sums.keys() & {"diagonals", "columns"}:
        shared[name] = _sum_slots(sums[name][..., None, :], split.slots_per_head)[..., 0, :]
    if "diagonals" in shared:
        diagonals = shared["diagonals"]
        shared["diagonals"] = unbroadcast(diagonals, (inputs.shape[-3], diagonals.shape[-1]), F64)
    return shared


def _reduce_sink(inputs: Inputs, of_queries: Array | None) -> Array | None:
    """Return the gradient of the sink from that of each query's."""
    if inputs.sink is None or of_queries is None:
        return None
    return unbroadcast(of_queries.sum(-1), inputs.sink.shape, inputs.sink.dtype)


def _reduce_pairs(
    function: str, inputs: Inputs, saved: Saved, split: _Split, part: Bias, unshared: Array | None
) -> Array:
    """Return dS summed over the heads and rows of the batch that share a matrix of a dense array.

    If there are any, the kernel runs again in an order in which no two threads add to the same number.
    """
    shape = _pairs_shape(part, inputs.shape)
    if unshared is not None and shape == inputs.shape:
        return unshared
    pairs = np.zeros(shape, inputs.dtype)
    strides = tuple(0 if length == 1 else step for length, step in zip(shape, pairs.strides, strict=True))
    stretched = as_strided(pairs, inputs.shape, strides, writeable=True)
    _call_kernel(function, inputs, inputs.kernel_terms(), saved, {"pairs": stretched}, split, PAIRS)
    return pairs


def _pairs_shape(part: Bias, shape: Shape) -> Shape:
    """Return the shape of a part's dense array with leading axes of length 1, and rows and columns of the logits."""
    leads = part.arrays[0].shape[:-2]
    return (*(1,) * (len(shape) - 2 - len(leads)), *leads, *shape[-2:])


def _has_unshared_pairs(inputs: Inputs) -> bool:
    parts = zip(inputs.parts, inputs.terms, strict=True)
    return any("pairs" in term.reads and _pairs_shape(part, inputs.shape) == inputs.shape for part, term in parts)


def _sum_buffer(shape: Shape, buffer: Array) -> Array:
    """Return (batch axes, heads x slots, ...) as (heads, ...): float64, or unchanged if nothing is left to add up."""
    batch, heads = len(shape) - 3, shape[-3]
    slots = buffer.shape[batch] // max(heads, 1)
    split = buffer.reshape(*buffer.shape[:batch], heads, slots, *buffer.shape[batch + 1 :])
    over = (*range(batch), batch + 1)
    if all(split.shape[axis] == 1 for axis in over):
        return split.reshape(heads, *split.shape[batch + 2 :])
    total: Array = split.sum(over, dtype=F64)
    return total


def _sum_slots(buffer: Array, slots: int) -> Array:
    """Return (..., count x slots, a, b) as (..., count, a, b), summed from the first slot to the last."""
    if slots == 1:
        return buffer
    split = buffer.reshape(*buffer.shape[:-3], buffer.shape[-3] // slots, slots, *buffer.shape[-2:])
    total: Array = split[..., 0, :, :].copy()
    for slot in range(1, slots):
        total += split[..., slot, :, :]
    return total


def assemble(operators: tuple[Bias, ...], gradients: Iterable[Gradients]) -> tuple[Gradients, ...]:
    """Return one gradient per operator of the user from those of all parts."""
    rest = iter(gradients)
    return tuple(tuple(next(rest) for _ in one.parts) if is_sum(one) else next(rest) for one in operators)
