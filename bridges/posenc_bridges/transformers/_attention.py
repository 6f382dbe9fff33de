"""The attention function that models of transformers call."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NoReturn

import torch
from torch import Tensor

from posenc_bridges import torch as pt

from ._lazy import LazyTensor, Module, Structure, T5Bias, structure_of
from ._private import find

_UNUSED = frozenset((
    "cache_position", "deterministic", "max_length_k", "max_length_q", "num_items_in_batch", "output_hidden_states",
    "output_router_logits", "return_dict", "seq_idx", "sliding_window", "use_cache",
))  # fmt: skip
"""Arguments that models pass through and that their eager attention does not read either; a mask has the window."""
_COLLECTOR = find("utils.output_capturing._active_collector")


def fail(module: torch.nn.Module, argument: str, what: str, error: type[Exception] = NotImplementedError) -> NoReturn:
    raise error(f"posenc_bridges.transformers: {argument} of {type(module).__name__} {what}")


@lru_cache(maxsize=1024)
def _prepared(width: int, scaling: float | None, **options: object) -> pt.PreparedAttention:
    """Return the attention of layers with these options, which are those of each token that they decode."""
    return pt.prepare(scale=None if scaling == width**-0.5 else scaling, **options)


def attention_forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    sinks: Tensor | None = None,
    position_bias: Tensor | pt.Operator | None = None,
    indices: Tensor | None = None,
    block_indices: Tensor | None = None,
    output_attentions: bool | None = None,
    cu_seq_lens_q: Tensor | None = None,
    cu_seq_lens_k: Tensor | None = None,
    position_ids: Tensor | None = None,
    precision: str = "high",
    **kwargs: object,
) -> tuple[Tensor, None]:
    """Return attention (batch, queries, heads, channels) and no weights, as transformers' attention interface asks.

    Arguments that have no meaning here are an error.
    """
    unknown = [name for name, given in kwargs.items() if given is not None and name not in _UNUSED]
    if unknown:
        fail(module, unknown[0], "is unknown; expected arguments of transformers 5.24's text models", TypeError)
    collected = None if _COLLECTOR is None or torch.compiler.is_compiling() else _COLLECTOR.get()
    if output_attentions or any(name.endswith("attentions") for name in collected or ()):
        fail(module, "output_attentions", 'is True; expected False, because only "eager" has the weights')

    n, m = query.shape[2], key.shape[2]
    if block_indices is not None:
        attention_mask = _block_mask(module, query, m, attention_mask, block_indices, position_ids)
    if attention_mask is not None:
        has = attention_mask.sizes if isinstance(attention_mask, LazyTensor) else tuple(attention_mask.shape)
        shape = (*query.shape[:3], m)
        if has != (shape[0], 1, n, m):
            pairs = zip(reversed(has), reversed(shape))  # noqa: B905 - torch.compile knows no strict
            if len(has) > len(shape) or any(length not in (1, other) for length, other in pairs):
                fail(module, "attention_mask", f"has shape {has}; expected one that broadcasts to {shape}", ValueError)
    options: dict[str, Any] = {"softcap": softcap, "precision": precision}
    biases = []
    shift = None  # position of query 0 - position of key 0
    structure, described = structure_of(attention_mask), structure_of(position_bias)
    if isinstance(structure, Structure):
        shift = structure.shift
        options |= structure.options()
    elif attention_mask is not None:
        options["keep"], added = _split_mask(module, attention_mask)
        if added is not None:
            biases.append(pt.dense(added))
    elif n > 1 and (getattr(module, "is_causal", False) if is_causal is None else is_causal):
        shift, options["causal"] = 0, True
    if (cu_seq_lens_q is not None or cu_seq_lens_k is not None) and "q_segments" not in options:
        options["q_segments"] = _segments(module, "cu_seq_lens_q", cu_seq_lens_q, query)
        options["k_segments"] = _segments(module, "cu_seq_lens_k", cu_seq_lens_k, key)
    if indices is not None:
        selected = torch.zeros(query.shape[0], 1, n, m, dtype=torch.bool)
        selected.scatter_(-1, indices[:, None].long(), True)
        options["keep"] = selected if options.get("keep") is None else selected & options["keep"]

    if isinstance(described, T5Bias) and shift in (None, described.shift):
        shift = described.shift
        biases.append(pt.t5(described.table, **described.options))
    elif isinstance(position_bias, pt.Operator):
        biases.append(position_bias)
    elif position_bias is not None and position_bias.numel() > 1:  # one number changes nothing
        if position_bias.shape[-1] != m:
            fail(module, "position_bias", f"has shape {tuple(position_bias.shape)}; expected {m} keys", ValueError)
        dense = position_bias.dense() if isinstance(position_bias, LazyTensor) else position_bias
        if _may_add(dense):  # UMT5's cross attention adds zeros
            biases.append(pt.dense(dense))
    if shift is not None:
        options |= _positions(shift, n, m)
    if s_aux is not None:
        options["sink"] = s_aux
    has_tensors = biases or sinks is not None or any(isinstance(one, Tensor) for one in options.values())
    if not (has_tensors or dropout or torch.compiler.is_compiling()):
        out = _prepared(query.shape[-1], scaling, **options)(query, key, value)
        return out.transpose(1, 2).contiguous(), None
    options |= {"bias": biases, "scale": scaling, "dropout": dropout}
    if sinks is None:
        out = pt.attention(query, key, value, **options)
    else:  # (batch, heads, queries, 1): a logit without a value for each query
        out, lse = pt.attention(query, key, value, return_lse=True, **options)
        out = out * torch.sigmoid(lse[..., None] - sinks).to(out.dtype)
    return out.transpose(1, 2).contiguous(), None


def _segments(module: torch.nn.Module, argument: str, ends: Tensor | None, rows: Tensor) -> Tensor:
    """Return the number of the packed sequence of each row; transformers finds none if a call has a cache."""
    is_traced = torch.compiler.is_compiling()
    if ends is None or rows.shape[0] != 1 or not (is_traced or int(ends[-1]) == rows.shape[2]):
        given = None if ends is None else ends.tolist()
        fail(module, argument, f"is {given}; expected the ends of sequences in one row of {rows.shape[2]} tokens")
    return torch.searchsorted(ends, torch.arange(rows.shape[2]), right=True)[None]


def _positions(shift: int, n: int, m: int) -> dict[str, object]:
    """Return the options that say where the queries are."""
    if shift + n == m:
        return {"align": "end"}
    if shift == 0:
        return {"align": "start"}
    return {"q_positions": torch.arange(shift, shift + n), "k_positions": torch.arange(m)}


def _split_mask(module: torch.nn.Module, mask: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return `keep` and the dense bias of a mask with 4 axes, which is boolean or added to the logits."""
    if isinstance(mask, LazyTensor):
        mask = mask.dense()
    if mask.dtype == torch.bool:
        return mask, None
    if not mask.is_floating_point():
        fail(module, "attention_mask", f"has dtype {mask.dtype}; expected torch.bool or floating point", TypeError)
    keep = mask > torch.finfo(mask.dtype).min / 2
    added = torch.where(keep, mask, 0)
    return keep, added if _may_add(added) else None


def _may_add(tensor: Tensor) -> bool:
    """Return whether adding a tensor may change anything; a graph cannot depend on its numbers."""
    return tensor.requires_grad or torch.compiler.is_compiling() or bool(tensor.any())


def _block_mask(
    module: Module, query: Tensor, m: int, mask: Tensor | None, block_indices: Tensor, positions: Tensor | None
) -> Tensor:
    """Return the mask of MiniMax M3's blocks of keys, as the model makes it for eager attention."""
    batch, _, n, _ = query.shape
    if positions is None:
        positions = torch.arange(m - n, m)
    positions = (positions if positions.ndim > 1 else positions[None]).expand(batch, -1)
    made: Tensor = module.indexer.build_block_mask(block_indices, mask, m, query.dtype, query.device, positions)
    return made
