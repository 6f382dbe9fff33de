"""Attention modules of transformers that do not use its interface, computed by posenc."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, wraps
from math import sqrt
from typing import Any

import torch
from torch.nn.functional import dropout
from transformers import Cache, PreTrainedConfig
from transformers.modeling_utils import PreTrainedModel
from transformers.models.bloom import modeling_bloom
from transformers.models.codegen import modeling_codegen
from transformers.models.deberta_v2 import modeling_deberta_v2
from transformers.models.falcon import modeling_falcon
from transformers.models.gpt_neo import modeling_gpt_neo
from transformers.models.gptj import modeling_gptj
from transformers.models.mpnet import modeling_mpnet
from transformers.models.mpt import modeling_mpt

from posenc import torch as pt

from ._attention import attention_forward, fail
from ._lazy import Structure, structure_of

NAMES: set[str] = set()
"""Names under which posenc is registered."""


def is_ours(module: object) -> bool:
    """Return whether the attention implementation of a module's config is posenc's."""
    return getattr(getattr(module, "config", None), "_attn_implementation", None) in NAMES


def _replace(cls: Any, method: str, ours: Callable[..., object]) -> None:
    """Let the modules of a class call `ours` where the implementation is posenc's."""
    make, theirs = cls.__init__, getattr(cls, method)

    @wraps(make)
    def __init__(self: Any, config: PreTrainedConfig, *args: object, **kwargs: object) -> None:
        make(self, config, *args, **kwargs)
        self.config = config

    @wraps(theirs)
    def replaced(self: torch.nn.Module, *args: object, **kwargs: object) -> object:
        if not is_ours(self):
            return theirs(self, *args, **kwargs)
        if kwargs.get("output_attentions"):
            fail(self, "output_attentions", 'is True; expected False, because only "eager" has the weights')
        return ours(self, *args, **kwargs)

    cls.__init__ = __init__
    setattr(cls, method, replaced)


def _dropout(module: torch.nn.Module, layer: torch.nn.Dropout) -> float:
    return layer.p if module.training else 0.0


# ---- ALiBi and rotary positions ----


def _bloom_forward(
    module: Any,
    hidden_states: torch.Tensor,
    residual: torch.Tensor,
    alibi: torch.Tensor,
    attention_mask: torch.Tensor,
    layer_past: Cache | None = None,
    use_cache: bool = False,
    output_attentions: bool = False,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Compute `BloomAttention.forward`.

    `alibi` is slope x position of the key; padding has no position. For each query it differs from -slope x distance
    by a constant, which does not change the softmax. With padding between words it does not, and stays a tensor.
    """
    if module.pretraining_tp > 1 and module.slow_but_exact:
        fail(module, "slow_but_exact", "is True; expected False")
    query, key, value = module._reshape(module.query_key_value(hidden_states))
    if layer_past is not None:
        key, value = layer_past.update(key, value, module.layer_idx)
    bias: torch.Tensor | pt.Operator = alibi.view(query.shape[0], module.num_heads, 1, -1)
    structure = structure_of(attention_mask)
    if isinstance(structure, Structure) and _is_consecutive(structure.padding):
        bias = pt.alibi(modeling_bloom._get_alibi_slopes(module.num_heads, query.device))
    out, _ = attention_forward(
        module, query, key, value, attention_mask, scaling=module.inv_norm_factor, position_bias=bias,
        dropout=module.attention_dropout.p if module.training else 0.0, output_attentions=output_attentions, **kwargs,
    )  # fmt: skip
    return residual + dropout(module.dense(out.flatten(2)), module.hidden_dropout, module.training), None


def _is_consecutive(padding: torch.Tensor | None) -> bool:
    """Return whether padding is known to be only before and after the words of each sentence."""
    if padding is None or torch.compiler.is_compiling():
        return padding is None
    return bool(((padding[:, 1:] & ~padding[:, :-1]).sum(1) + padding[:, 0] <= 1).all())


def _falcon_forward(
    module: Any,
    hidden_states: torch.Tensor,
    alibi: torch.Tensor | None,
    attention_mask: torch.Tensor,
    position_ids: torch.Tensor | None = None,
    layer_past: Cache | None = None,
    use_cache: bool = False,
    output_attentions: bool = False,
    position_embeddings: tuple[torch.Tensor, torch.Tensor] | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Compute `FalconAttention.forward` without ALiBi."""
    if alibi is not None:
        fail(module, "alibi", "is not None; expected None, because eager attention adds it twice and sdpa once")
    assert position_embeddings is not None
    query, key, value = (part.transpose(1, 2) for part in module._split_heads(module.query_key_value(hidden_states)))
    query, key = modeling_falcon.apply_rotary_pos_emb(query, key, *position_embeddings)
    if layer_past is not None:
        key, value = layer_past.update(key, value, module.layer_idx)
    # eager attention without ALiBi has no dropout
    out, _ = attention_forward(module, query, key, value, attention_mask, output_attentions=output_attentions, **kwargs)
    return module.dense(out.flatten(2)), None


def _mpt_forward(
    module: Any,
    hidden_states: torch.Tensor,
    position_bias: torch.Tensor,
    past_key_values: Cache | None = None,
    attention_mask: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Compute `MptAttention.forward`.

    `position_bias` (heads, 1, longest) is slope x (key - last key). For each query it differs from -slope x distance by
    a constant, which does not change the softmax. A boolean mask is True where a key is hidden.
    """
    mixed = module.Wqkv(hidden_states)
    if module.clip_qkv:
        mixed = mixed.clamp(min=-module.clip_qkv, max=module.clip_qkv)
    query, key, value = (_split(part, module.n_heads) for part in mixed.chunk(3, dim=2))
    if past_key_values is not None:
        key, value = past_key_values.update(key, value, module.layer_idx)
    bias: torch.Tensor | pt.Operator = position_bias[None, :, :, -key.shape[2] :]
    if isinstance(structure_of(attention_mask), Structure) and position_bias.shape[2] > 1:
        bias = pt.alibi(-position_bias[:, 0, -2])
    elif attention_mask is not None:
        attention_mask = ~attention_mask.bool()
    out, _ = attention_forward(
        module, query, key, value, attention_mask, scaling=module.softmax_scale, position_bias=bias,
        dropout=module.attn_dropout_p if module.training else 0.0, **kwargs,
    )  # fmt: skip
    return module.out_proj(out.flatten(2)), None


def _split(x: torch.Tensor, heads: int) -> torch.Tensor:
    """Return x (..., tokens, channels) as (..., heads, tokens, channels of a head)."""
    return x.unflatten(-1, (heads, -1)).transpose(-3, -2)


def _gpt_attn(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
) -> tuple[torch.Tensor, None]:
    """Compute the attention of GPT-J, CodeGen and GPT-Neo. GPT-Neo has no `scale_attn`: it does not scale logits."""
    n, m = query.shape[2], key.shape[2]
    if getattr(module, "attention_type", None) == "local":
        near = module.bias[:, :, m - n : m, :m]
        hidden = torch.finfo(torch.float32).min
        attention_mask = near if attention_mask is None else torch.where(near, attention_mask, hidden)
    out, _ = attention_forward(
        module, query, key, value, attention_mask, scaling=1 / float(getattr(module, "scale_attn", 1)),
        dropout=_dropout(module, module.attn_dropout),
    )  # fmt: skip
    return out.transpose(1, 2), None


def _pass(module: torch.nn.Module, *args: object, theirs: Callable[..., object], **kwargs: object) -> object:
    """Call the method of transformers, whose arguments `_replace` has checked."""
    return theirs(module, *args, **kwargs)


# ---- MPNet and DeBERTa ----


def _mpnet_bias(module: Any, x: torch.Tensor, position_ids: object = None, num_buckets: int = 32) -> pt.Operator:
    """Return `MPNetEncoder.compute_position_bias`, which is T5's bias."""
    if position_ids is not None:
        fail(module, "position_ids", "is not None; expected None, for consecutive positions")
    bias: pt.Operator = pt.t5(module.relative_attention_bias.weight[:num_buckets])
    return bias


def _mpnet_forward(
    module: Any,
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    position_bias: torch.Tensor | pt.Operator | None = None,
    output_attentions: bool = False,
    **kwargs: Any,
) -> tuple[torch.Tensor]:
    """Compute `MPNetSelfAttention.forward`."""
    heads = module.num_attention_heads
    query, key, value = (_split(make(hidden_states), heads) for make in (module.q, module.k, module.v))
    out, _ = attention_forward(
        module, query, key, value, attention_mask, scaling=module.attention_head_size**-0.5,
        position_bias=position_bias, dropout=_dropout(module, module.dropout), output_attentions=output_attentions,
        **kwargs,
    )  # fmt: skip
    return (module.o(out.flatten(2)),)


def _deberta_mask(module: torch.nn.Module, attention_mask: torch.Tensor) -> torch.Tensor | None:
    """Return the mask of `DebertaV2Encoder.get_attention_mask` with one row for all queries, not one for each query."""
    if attention_mask.dim() <= 2:
        keep = attention_mask[:, None, None, :].bool()
        return None if not torch.compiler.is_compiling() and keep.all() else keep
    return attention_mask.unsqueeze(1) if attention_mask.dim() == 3 else attention_mask


def _deberta_positions(
    module: torch.nn.Module,
    hidden_states: torch.Tensor,
    query_states: object = None,
    relative_pos: torch.Tensor | None = None,
) -> torch.Tensor | None:
    """Return `DebertaV2Encoder.get_rel_pos`: None for consecutive positions, instead of a number for each pair."""
    return relative_pos


def _deberta_forward(
    module: Any,
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor | None,
    output_attentions: bool = False,
    query_states: torch.Tensor | None = None,
    relative_pos: torch.Tensor | None = None,
    rel_embeddings: torch.Tensor | None = None,
) -> tuple[torch.Tensor, None]:
    """Compute `DisentangledSelfAttention.forward` of DeBERTa v2 and v3."""
    if relative_pos is not None:
        fail(module, "relative_pos", "is not None; expected None, for consecutive positions")
    heads, terms = module.num_attention_heads, [term for term in ("c2p", "p2c") if term in module.pos_att_type]
    query = _split(module.query_proj(hidden_states if query_states is None else query_states), heads)
    key, value = (_split(make(hidden_states), heads) for make in (module.key_proj, module.value_proj))
    bias = None
    if module.relative_attention and terms:
        assert rel_embeddings is not None
        rows = module.pos_dropout(rel_embeddings)[: 2 * module.pos_ebd_size]
        of_queries: Any = module.query_proj if module.share_att_key else getattr(module, "pos_query_proj", None)
        of_keys: Any = module.key_proj if module.share_att_key else getattr(module, "pos_key_proj", None)
        has_buckets = module.position_buckets > 0
        bias = pt.deberta(
            _split(of_queries(rows), heads) if "p2c" in terms else None,
            _split(of_keys(rows), heads) if "c2p" in terms else None,
            buckets=module.position_buckets if has_buckets else None,
            max_position=module.max_relative_positions if has_buckets else None,
            terms=tuple(terms),
        )
    out, _ = attention_forward(
        module, query, key, value, None if attention_mask is None else attention_mask.bool(),
        scaling=1 / sqrt(query.shape[-1] * (1 + len(terms))), position_bias=bias, is_causal=False,
        dropout=_dropout(module, module.dropout), output_attentions=output_attentions,
    )  # fmt: skip
    return out.flatten(2), None


REPLACED: dict[type[torch.nn.Module], tuple[str, Callable[..., object]]] = {
    modeling_bloom.BloomAttention: ("forward", _bloom_forward),
    modeling_codegen.CodeGenAttention: ("_attn", _gpt_attn),
    modeling_deberta_v2.DisentangledSelfAttention: ("forward", _deberta_forward),
    modeling_falcon.FalconAttention: ("forward", _falcon_forward),
    modeling_gpt_neo.GPTNeoSelfAttention: ("_attn", _gpt_attn),
    modeling_gptj.GPTJAttention: ("_attn", _gpt_attn),
    modeling_mpnet.MPNetSelfAttention: ("forward", _mpnet_forward),
    modeling_mpt.MptAttention: ("forward", _mpt_forward),
}
"""Attention modules that do not use the interface, the method that is replaced, and the function in its place."""


def replace_all() -> None:
    """Replace the modules, once, and let their models choose an implementation."""
    for cls, (method, ours) in REPLACED.items():
        _replace(cls, method, ours)
        for one in vars(sys.modules[cls.__module__]).values():
            if isinstance(one, type) and PreTrainedModel in one.__bases__:
                one._can_set_attn_implementation_cached_value = True  # type: ignore[attr-defined, unused-ignore]
    for cls in (
        modeling_codegen.CodeGenAttention,
        modeling_gpt_neo.GPTNeoSelfAttention,
        modeling_gptj.GPTJAttention,
        modeling_mpt.MptBlock,
    ):  # for the error of output_attentions, which the replaced method does not get
        _replace(cls, "forward", partial(_pass, theirs=cls.forward))
    _replace(modeling_mpnet.MPNetEncoder, "compute_position_bias", _mpnet_bias)
    _replace(modeling_deberta_v2.DebertaV2Encoder, "get_attention_mask", _deberta_mask)
    _replace(modeling_deberta_v2.DebertaV2Encoder, "get_rel_pos", _deberta_positions)
