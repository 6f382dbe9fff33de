"""Attention modules of transformers that do not use its interface, computed by posenc."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import partial, wraps
from math import sqrt
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import dropout
from transformers import Cache
from transformers.modeling_utils import PreTrainedModel

import posenc
from posenc_bridges import torch as pt

from ._attention import attention_forward, fail
from ._lazy import Module, Structure, structure_of
from ._private import has_names, look_up
from ._recorded import record

NAMES: set[str] = set()
"""Names under which posenc is registered."""


def is_ours(module: object) -> bool:
    """Return whether the attention implementation of a module's config is posenc's."""
    return getattr(getattr(module, "config", None), "_attn_implementation", None) in NAMES


CHANGED: set[type[torch.nn.Module]] = set()
"""Classes of modules that get the config of their model, because a method reads the implementation."""


def _replace(cls: type[torch.nn.Module], method: str, ours: Callable[..., object] | None) -> None:
    """Let the modules of a class call `ours` where the implementation is posenc's; None checks the arguments alone.

    `ours` gets all arguments of the method of transformers by name, also those that have their default.
    """
    theirs = getattr(cls, method)
    _, *parameters = inspect.signature(theirs).parameters.values()
    names = [one.name for one in parameters]
    defaults = {one.name: one.default for one in parameters if one.default is not one.empty}

    @wraps(theirs)
    def replaced(self: torch.nn.Module, *args: object, **kwargs: object) -> object:
        if not is_ours(self):
            return theirs(self, *args, **kwargs)
        given = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
        if given.get("output_attentions"):
            fail(self, "output_attentions", 'is True; expected False, because only "eager" has the weights')
        return ours(self, **given) if ours else theirs(self, *args, **kwargs)

    CHANGED.add(cls)
    setattr(cls, method, replaced)


def _attend(
    module: Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, drop: Module, **options: Any
) -> Tensor:
    """Return attention (batch, queries, heads, channels); `drop` is a probability in training, or a layer with one."""
    dropout: Any = getattr(drop, "p", drop) if module.training else 0.0
    return attention_forward(module, query, key, value, mask, dropout=dropout, **options)[0]


def _split(x: Tensor, heads: int) -> Tensor:
    """Return x (..., tokens, channels) as (..., heads, tokens, channels of a head)."""
    return x.unflatten(-1, (heads, -1)).transpose(-3, -2)


# ---- ALiBi and rotary positions ----


def _bloom_forward(
    module: Module,
    hidden_states: Tensor,
    residual: Tensor,
    alibi: Tensor,
    attention_mask: Tensor,
    layer_past: Cache | None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute `BloomAttention.forward`.

    `alibi` is slope x position of the key; padding has no position. For each query it differs from -slope x distance
    by a constant, which does not change the softmax. With padding between words it does not, and stays a tensor.
    """
    if module.pretraining_tp > 1 and module.slow_but_exact:
        fail(module, "slow_but_exact", "is True; expected False")
    query, key, value = module._reshape(module.query_key_value(hidden_states))
    if layer_past is not None:
        key, value = layer_past.update(key, value, module.layer_idx)
    bias: Tensor | pt.Operator = alibi.view(query.shape[0], module.num_heads, 1, -1)
    structure = structure_of(attention_mask)
    if isinstance(structure, Structure) and _is_consecutive(structure.padding):
        bias = pt.alibi(posenc.alibi_slopes(module.num_heads))
    out = _attend(
        module,
        query,
        key,
        value,
        attention_mask,
        module.attention_dropout,
        scaling=module.inv_norm_factor,
        position_bias=bias,
        **kwargs,
    )
    return residual + dropout(module.dense(out.flatten(2)), module.hidden_dropout, module.training), None


def _is_consecutive(padding: Tensor | None) -> bool:
    """Return whether padding is known to be only before and after the words of each sentence."""
    if padding is None or torch.compiler.is_compiling():
        return padding is None
    return bool(((padding[:, 1:] & ~padding[:, :-1]).sum(1) + padding[:, 0] <= 1).all())


def _falcon_forward(
    module: Module,
    hidden_states: Tensor,
    alibi: Tensor | None,
    attention_mask: Tensor,
    position_ids: Tensor | None,
    layer_past: Cache | None,
    position_embeddings: tuple[Tensor, Tensor],
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute `FalconAttention.forward` without ALiBi."""
    if alibi is not None:
        fail(module, "alibi", "is not None; expected None, because eager attention adds it twice and sdpa once")
    query, key, value = (part.transpose(1, 2) for part in module._split_heads(module.query_key_value(hidden_states)))
    cos, sin = (one.unsqueeze(1) for one in position_embeddings)  # each angle twice, in halves
    query, key = (x * cos + torch.cat([-x.chunk(2, -1)[1], x.chunk(2, -1)[0]], -1) * sin for x in (query, key))
    if layer_past is not None:
        key, value = layer_past.update(key, value, module.layer_idx)
    out = _attend(module, query, key, value, attention_mask, 0.0, **kwargs)  # nor has eager attention a dropout
    return module.dense(out.flatten(2)), None


def _mpt_forward(
    module: Module,
    hidden_states: Tensor,
    position_bias: Tensor,
    attention_mask: Tensor | None = None,
    cache: Cache | None = None,
    past_key_values: Cache | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute `MptAttention.forward`; transformers 5.23 calls the cache `past_key_values`.

    `position_bias` (heads, 1, longest) is slope x (key - last key). For each query it differs from -slope x distance by
    a constant, which does not change the softmax. A boolean mask is True where a key is hidden.
    """
    mixed = module.Wqkv(hidden_states)
    if module.clip_qkv:
        mixed = mixed.clamp(min=-module.clip_qkv, max=module.clip_qkv)
    query, key, value = (_split(part, module.n_heads) for part in mixed.chunk(3, dim=2))
    cache = past_key_values if cache is None else cache
    if cache is not None:
        key, value = cache.update(key, value, module.layer_idx)
    bias: Tensor | pt.Operator = position_bias[None, :, :, -key.shape[2] :]
    if isinstance(structure_of(attention_mask), Structure) and position_bias.shape[2] > 1:
        bias = pt.alibi(-position_bias[:, 0, -2])
    elif attention_mask is not None:
        attention_mask = ~attention_mask.bool()
    out = _attend(
        module,
        query,
        key,
        value,
        attention_mask,
        module.attn_dropout_p,
        scaling=module.softmax_scale,
        position_bias=bias,
        **kwargs,
    )
    return module.out_proj(out.flatten(2)), None


def _gpt_attn(
    module: Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None
) -> tuple[Tensor, None]:
    """Compute the attention of GPT-J, CodeGen, GPT-NeoX Japanese and GPT-Neo, which does not scale its logits."""
    n, m = query.shape[2], key.shape[2]
    if getattr(module, "attention_type", None) == "local":
        near = module.bias[:, :, m - n : m, :m]
        hidden = torch.finfo(torch.float32).min
        attention_mask = near if attention_mask is None else torch.where(near, attention_mask, hidden)
    scaling = 1 / float(getattr(module, "scale_attn", getattr(module, "norm_factor", 1)))
    drop = getattr(module, "attn_dropout", None) or module.attention_dropout
    return _attend(module, query, key, value, attention_mask, drop, scaling=scaling).transpose(1, 2), None


def _openai_attn(
    module: Module, q: Tensor, k: Tensor, v: Tensor, attention_mask: Tensor | None, **unused: object
) -> list[Tensor]:
    """Compute the attention of GPT, whose keys are transposed and whose mask has padding alone."""
    n = q.shape[2]
    if attention_mask is not None:
        hidden = torch.finfo(attention_mask.dtype).min
        attention_mask = torch.where(module.bias[:, :, :n, :n] > 0, attention_mask, hidden)
    out = _attend(
        module,
        q,
        k.transpose(-1, -2),
        v,
        attention_mask,
        module.attn_dropout,
        scaling=None if module.scale else 1.0,
        is_causal=True,
    )
    return [out.transpose(1, 2)]


# ---- Distances ----


def _mpnet_bias(module: Module, position_ids: object, num_buckets: int, **unused: object) -> pt.Operator:
    """Return `MPNetEncoder.compute_position_bias`, which is T5's bias."""
    if position_ids is not None:
        fail(module, "position_ids", "is not None; expected None, for consecutive positions")
    bias: pt.Operator = pt.t5(module.relative_attention_bias.weight[:num_buckets], bidirectional=True)
    return bias


def _mpnet_forward(
    module: Module,
    hidden_states: Tensor,
    attention_mask: Tensor | None,
    position_bias: Tensor | pt.Operator | None,
    **kwargs: Any,
) -> tuple[Tensor]:
    """Compute `MPNetSelfAttention.forward`."""
    heads = module.num_attention_heads
    query, key, value = (_split(make(hidden_states), heads) for make in (module.q, module.k, module.v))
    out = _attend(
        module,
        query,
        key,
        value,
        attention_mask,
        module.dropout,
        scaling=module.attention_head_size**-0.5,
        position_bias=position_bias,
        **kwargs,
    )
    return (module.o(out.flatten(2)),)


def _deberta_mask(module: Module, attention_mask: Tensor) -> Tensor | None:
    """Return the mask of `DebertaV2Encoder.get_attention_mask` with one row for all queries, not one for each query."""
    if attention_mask.dim() <= 2:
        keep = attention_mask[:, None, None, :].bool()
        return None if not torch.compiler.is_compiling() and keep.all() else keep
    return attention_mask.unsqueeze(1) if attention_mask.dim() == 3 else attention_mask


def _deberta_positions(module: Module, relative_pos: Tensor | None, **unused: object) -> Tensor | None:
    """Return `DebertaV2Encoder.get_rel_pos`: None for consecutive positions, instead of a number for each pair."""
    return relative_pos


def _deberta_forward(
    module: Module,
    hidden_states: Tensor,
    attention_mask: Tensor | None,
    query_states: Tensor | None,
    relative_pos: Tensor | None,
    rel_embeddings: Tensor | None,
    **unused: object,
) -> tuple[Tensor, None]:
    """Compute `DisentangledSelfAttention.forward` of DeBERTa, and of its versions 2 and 3, which have `query_proj`."""
    if relative_pos is not None:
        fail(module, "relative_pos", "is not None; expected None, for consecutive positions")
    heads, rows, buckets, limit = module.num_attention_heads, rel_embeddings, None, None
    of_queries: Module
    of_keys: Module
    if hasattr(module, "query_proj"):
        query = _split(module.query_proj(hidden_states if query_states is None else query_states), heads)
        key, value = (_split(make(hidden_states), heads) for make in (module.key_proj, module.value_proj))
        shared = module.share_att_key
        of_queries = module.query_proj if shared else getattr(module, "pos_query_proj", None)
        of_keys = module.key_proj if shared else getattr(module, "pos_key_proj", None)
        rows = None if rows is None else rows[: 2 * getattr(module, "pos_ebd_size", 0)]
        if module.relative_attention and module.position_buckets > 0:
            buckets, limit = module.position_buckets, module.max_relative_positions
    else:
        if module.talking_head or query_states is not None:
            argument = "talking_head" if module.talking_head else "query_states"
            fail(module, argument, "is given; expected none, because heads that mix and other queries are unknown")
        query, key, value = _split(module.in_proj(hidden_states), heads).chunk(3, dim=-1)
        query, value = query + module.q_bias.view(heads, 1, -1), value + module.v_bias.view(heads, 1, -1)
        of_queries, of_keys = getattr(module, "pos_q_proj", None), getattr(module, "pos_proj", None)
    bias, terms = None, tuple(term for term in ("c2p", "p2c") if term in module.pos_att_type)
    if module.relative_attention and terms and rows is not None:
        rows = module.pos_dropout(rows)
        rel_q = _split(of_queries(rows), heads) if "p2c" in terms else None
        rel_k = _split(of_keys(rows), heads) if "c2p" in terms else None
        bias = pt.deberta(rel_q, rel_k, num_buckets=buckets, max_distance=limit, terms=terms)
    out = _attend(
        module,
        query,
        key,
        value,
        None if attention_mask is None else attention_mask.bool(),
        module.dropout,
        scaling=1 / sqrt(query.shape[-1] * (1 + len(terms))),
        position_bias=bias,
        is_causal=False,
    )
    return out.flatten(2), None


def _wavlm_forward(
    module: Module, hidden_states: Tensor, attention_mask: Tensor | None, position_bias: Tensor | None, **unused: object
) -> tuple[Tensor, None, Tensor]:
    """Compute `WavLMAttention.forward`; `position_bias` is the table of the first layer, which all layers gate."""
    heads = module.num_heads
    table = module.rel_attn_embed.weight if position_bias is None else position_bias
    sums = module.gru_rel_pos_linear(_split(hidden_states, heads)).unflatten(-1, (2, 4)).sum(-1)
    a, b = torch.sigmoid(sums).chunk(2, dim=-1)
    gates = a * (b * module.gru_rel_pos_const - 1) + 2
    bias = pt.gated_distance(gates, table.T[..., None], rows="buckets", max_distance=module.max_distance)
    query, key, value = (_split(make(hidden_states), heads) for make in (module.q_proj, module.k_proj, module.v_proj))
    mask = None if attention_mask is None else attention_mask[:, None, None, :].eq(1)
    out = _attend(
        module, query, key, value, mask, module.dropout, scaling=module.scaling, position_bias=bias, is_causal=False
    )
    return module.out_proj(out.flatten(2)), None, table


def _sam_forward(module: Module, hidden_states: Tensor, **unused: object) -> tuple[Tensor, None]:
    """Compute `SamVisionAttention.forward`, whose queries read a table for rows and one for columns."""
    height, width = hidden_states.shape[1:3]
    mixed = module.qkv(hidden_states).flatten(1, 2).unflatten(-1, (3, module.num_attention_heads, -1))
    query, key, value = mixed.permute(2, 0, 3, 1, 4)
    bias: pt.Operator | None = None
    for axis, table in enumerate((module.rel_pos_h, module.rel_pos_w) if module.use_rel_pos else ()):
        if len(table) != 2 * hidden_states.shape[1 + axis] - 1:
            fail(module, "rel_pos_h, rel_pos_w", f"has {len(table)} rows; expected a row for each offset")
        at = torch.arange(height * width) % width if axis else torch.arange(height * width) // width
        # the model does not scale these terms, and attention scales them as q . k
        term = pt.shaw(table.flip(0) / module.scale).at(q_positions=at, k_positions=at)
        bias = term if bias is None else bias + term
    out = _attend(
        module, query, key, value, None, module.dropout, scaling=module.scale, position_bias=bias, is_causal=False
    )
    return module.proj(out.flatten(2).unflatten(1, (height, width))), None


# ---- XLNet ----


def _xlnet_core(
    module: Module,
    q_head: Tensor,
    k_head_h: Tensor,
    v_head_h: Tensor,
    k_head_r: Tensor,
    seg_mat: Tensor | None,
    attn_mask: Tensor | None,
    **unused: object,
) -> Tensor:
    """Compute `XLNetRelativeAttention.rel_attn_core` of either stream, whose arrays begin (tokens, batch, heads).

    Row p of `k_head_r` (rows, batch, heads, D) is for the key p - M places after the query. Sentences of a batch have
    the same rows, unless half of them read backwards, or dropout has changed the rows.
    """
    query, key, value = (part.permute(1, 2, 0, 3) for part in (q_head, k_head_h, v_head_h))
    n, m = query.shape[2], key.shape[2]
    rows = k_head_r[1:].permute(1, 2, 0, 3)
    rows = torch.nn.functional.pad(rows, (0, 0, 0, 2 * m - 1 - rows.shape[2]))  # a query has fewer keys after it
    at = {"q_positions": torch.arange(m - n, m), "k_positions": torch.arange(m)}
    keep = None if attn_mask is None else attn_mask.permute(2, 3, 0, 1) == 0
    is_one = not (module.config.bi_data or (module.training and module.config.dropout))
    parts = []
    for part in [slice(None)] if is_one else [slice(b, b + 1) for b in range(query.shape[0])]:
        bias: pt.Operator = pt.transformer_xl(rows[part][0], module.r_w_bias, module.r_r_bias).at(**at)
        if seg_mat is not None:
            bias = bias + _segment_bias(module, query[part], seg_mat[:, :, part, 0] > 0)
        mask = keep if keep is None or keep.shape[0] == 1 else keep[part]
        out = _attend(
            module,
            query[part],
            key[part],
            value[part],
            mask,
            module.dropout,
            scaling=module.scale,
            position_bias=bias,
            is_causal=False,
        )
        parts.append(out)
    out = torch.cat(parts)  # (batch, tokens, heads, D)
    if keep is not None:  # like eager attention, a query that sees no key takes the mean of all
        out = torch.where(keep.any(-1).transpose(1, 2)[..., None], out, value.mean(2)[:, None])
    return out.transpose(0, 1)


def _segment_bias(module: Module, query: Tensor, is_same: Tensor) -> pt.Operator:
    """Return XLNet's bias of segments. Of a query's two logits only their difference has an effect on the softmax.

    `is_same` (N, M, batch) says whether a query and a key are in one segment. The number of a key's segment is the
    first query in it, or -1, so that a distance of 0 is one segment.
    """
    n, m, _ = is_same.shape
    number = torch.where(is_same.any(0), is_same.to(torch.uint8).argmax(0), -1).T
    of_segments = torch.einsum("bhnd,shd->sbhn", query + module.r_s_bias[:, None], module.seg_embed)
    gates = module.scale * (of_segments[0] - of_segments[1])[..., None]
    only_zero = torch.tensor([[0.0], [1.0], [0.0]], dtype=query.dtype)
    bias: pt.Operator = pt.gated_distance(gates, only_zero)
    return bias.at(q_positions=number[:, m - n :], k_positions=number)


OWN: dict[str, dict[str, Callable[..., object] | None]] = {
    "bloom": {"BloomAttention.forward": _bloom_forward},
    "codegen": {"CodeGenAttention.forward": None, "CodeGenAttention._attn": _gpt_attn},
    "deberta": {
        "DisentangledSelfAttention.forward": _deberta_forward, "DebertaEncoder.get_attention_mask": _deberta_mask,
        "DebertaEncoder.get_rel_pos": _deberta_positions,
    },
    "deberta_v2": {
        "DisentangledSelfAttention.forward": _deberta_forward, "DebertaV2Encoder.get_attention_mask": _deberta_mask,
        "DebertaV2Encoder.get_rel_pos": _deberta_positions,
    },
    "falcon": {"FalconAttention.forward": _falcon_forward},
    "gpt_neo": {"GPTNeoSelfAttention.forward": None, "GPTNeoSelfAttention._attn": _gpt_attn},
    "gpt_neox_japanese": {"GPTNeoXJapaneseAttention.forward": None, "GPTNeoXJapaneseAttention._attn": _gpt_attn},
    "gptj": {"GPTJAttention.forward": None, "GPTJAttention._attn": _gpt_attn},
    "mpnet": {"MPNetSelfAttention.forward": _mpnet_forward, "MPNetEncoder.compute_position_bias": _mpnet_bias},
    "mpt": {"MptAttention.forward": _mpt_forward, "MptBlock.forward": None},
    "openai": {"Attention.forward": None, "Attention._attn": _openai_attn},
    "sam": {"SamVisionAttention.forward": _sam_forward},
    "sam_hq": {"SamHQVisionAttention.forward": _sam_forward},
    "wavlm": {"WavLMAttention.forward": _wavlm_forward},
    "xlnet": {"XLNetRelativeAttention.forward": None, "XLNetRelativeAttention.rel_attn_core": _xlnet_core},
}  # fmt: skip
"""For each model type whose attention is replaced: its methods and what replaces them; None checks the arguments."""


RECORDED = {
    "cpmant": "CpmAntAttention", "flaubert": "MultiHeadAttention", "fsmt": "Attention", "git": "GitSelfAttention",
    "layoutlmv3": "LayoutLMv3SelfAttention", "megatron_bert": "MegatronBertSelfAttention", "mvp": "MvpAttention",
    "perceiver": "PerceiverSelfAttention", "rembert": "RemBertSelfAttention", "roformer": "RoFormerSelfAttention",
    "squeezebert": "SqueezeBertSelfAttention", "swinv2": "Swinv2SelfAttention", "tapas": "TapasSelfAttention",
    "trocr": "TrOCRAttention", "xglm": "XGLMAttention", "xlm": "MultiHeadAttention",
}  # fmt: skip
"""Classes whose forward method is recorded, by model type."""
OWN |= {model_type: {f"{name}.forward": record} for model_type, name in RECORDED.items()}


REPLACED: set[type[torch.nn.Module]] = set()
"""Classes of `OWN` that are replaced."""


def replace_all() -> None:
    """Replace the methods of `OWN`, once, and let their models choose an implementation."""
    for model_type, changes in OWN.items():
        owners = [look_up(model_type, name.partition(".")[0]) for name in changes]
        if any(one and "get_interface(" in inspect.getsource(one) for one in owners):
            continue  # transformers after 5.23, where more of its modules use the interface
        if not has_names(model_type, [*changes]):
            continue
        for cls, (name, ours) in zip(owners, changes.items(), strict=True):
            REPLACED.add(cls)
            _replace(cls, name.partition(".")[2], partial(record, theirs=cls.forward) if ours is record else ours)
        for one in vars(sys.modules[owners[0].__module__]).values():
            if isinstance(one, type) and PreTrainedModel in one.__bases__:
                one._can_set_attn_implementation_cached_value = True  # type: ignore[attr-defined, unused-ignore]
