"""Attention modules of transformers that do not use its interface, computed by posenc."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from math import log, sqrt
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import dropout, normalize
from transformers import Cache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel

import posenc
from posenc_bridges import torch as pt

from ._attention import fail
from ._lazy import Module, Structure, structure_of
from ._private import FAMILIES, has_names, look_up

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
    module: Module,
    qkv: tuple[Tensor, ...],
    mask: Tensor | None,
    bias: object,
    drop: Module,
    scaling: object = None,
    **others: object,
) -> Tensor:
    """Return attention (batch, queries, heads, channels); `drop` is a probability in training, or a layer with one."""
    attend = ALL_ATTENTION_FUNCTIONS[module.config._attn_implementation]
    options = {"dropout": getattr(drop, "p", drop) if module.training else 0.0, "scaling": scaling}
    out: Tensor = attend(module, *qkv, mask, position_bias=bias, is_causal=False, **options, **others)[0]
    return out


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
    drop, scaling = module.attention_dropout, module.inv_norm_factor
    out = _attend(module, (query, key, value), attention_mask, bias, drop, scaling, **kwargs)
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
    out = _attend(module, (query, key, value), attention_mask, None, 0.0, **kwargs)  # eager attention drops none either
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
    drop, scaling = module.attn_dropout_p, module.softmax_scale
    out = _attend(module, (query, key, value), attention_mask, bias, drop, scaling, **kwargs)
    return module.out_proj(out.flatten(2)), None


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
        module, (query, key, value), attention_mask, position_bias, module.dropout, module.attention_head_size ** (-0.5)
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
    mask = None if attention_mask is None else attention_mask.bool()
    scaling = 1 / sqrt(query.shape[-1] * (1 + len(terms)))
    out = _attend(module, (query, key, value), mask, bias, module.dropout, scaling)
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
    out = _attend(module, (query, key, value), mask, bias, module.dropout, module.scaling)
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
    out = _attend(module, (query, key, value), None, bias, module.dropout, module.scale)
    return module.proj(out.flatten(2).unflatten(1, (height, width))), None


def _swin_forward(
    module: Module, hidden_states: Tensor, attention_mask: Tensor | None, **unused: object
) -> tuple[Tensor]:
    """Compute `Swinv2SelfAttention.forward`, whose logits are cosines times a scale for each head."""
    heads = module.num_attention_heads
    query, key, value = (_split(make(hidden_states), heads) for make in (module.query, module.key, module.value))
    scale = module.logit_scale.clamp(max=log(100)).exp()
    table = 16 * torch.sigmoid(module.continuous_position_bias_mlp(module.relative_coords_table))
    mask = None
    if attention_mask is not None:  # (windows, tokens, tokens), which the model adds twice
        mask = 2 * attention_mask[:, None].repeat(query.shape[0] // attention_mask.shape[0], 1, 1, 1)
    bias = pt.swin(table.view(-1, heads), *module.window_size)
    qkv = scale * normalize(query, dim=-1), normalize(key, dim=-1), value
    out = _attend(module, qkv, mask, bias, module.dropout, 1.0)
    return (out.flatten(2),)


OWN: dict[str, tuple[Callable[..., object] | None, ...]] = {
    "bloom": (_bloom_forward,),
    "deberta": (_deberta_forward, _deberta_mask, _deberta_positions),
    "deberta_v2": (_deberta_forward, _deberta_mask, _deberta_positions),
    "falcon": (_falcon_forward,),
    "mpnet": (_mpnet_forward, _mpnet_bias),
    "mpt": (_mpt_forward, None),
    "sam": (_sam_forward,),
    "sam_hq": (_sam_forward,),
    "swinv2": (_swin_forward,),
    "wavlm": (_wavlm_forward,),
}
"""For each type of models what replaces its methods of `FAMILIES`; None checks the arguments alone."""


REPLACED: set[type[torch.nn.Module]] = set()
"""Classes whose methods are replaced."""


def replace_all() -> None:
    """Replace the methods of `OWN`, once, and let their models choose an implementation."""
    for model_type, functions in OWN.items():
        names = FAMILIES[model_type]
        owners = [look_up(model_type, name.partition(".")[0]) for name in names]
        if any(one and "get_interface(" in inspect.getsource(one) for one in owners):
            continue  # a transformers whose module uses the interface
        if not has_names(model_type):
            continue
        for cls, name, ours in zip(owners, names, functions, strict=True):
            REPLACED.add(cls)
            _replace(cls, name.partition(".")[2], ours)
        for one in vars(sys.modules[owners[0].__module__]).values():
            if isinstance(one, type) and PreTrainedModel in one.__bases__:
                one._can_set_attn_implementation_cached_value = True  # type: ignore[attr-defined, unused-ignore]
