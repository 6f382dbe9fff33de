"""Attention modules of transformers that do not use its interface, computed by posenc."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from functools import partial, wraps
from math import sqrt
from types import ModuleType
from typing import Any

import torch
from torch.nn.functional import dropout
from transformers import Cache
from transformers.modeling_utils import PreTrainedModel
from transformers.models.bloom import modeling_bloom
from transformers.models.falcon import modeling_falcon

from posenc_bridges import torch as pt

from ._attention import attention_forward, fail
from ._lazy import Module, Structure, structure_of
from ._recorded import record

NAMES: set[str] = set()
"""Names under which posenc is registered."""


def is_ours(module: object) -> bool:
    """Return whether the attention implementation of a module's config is posenc's."""
    return getattr(getattr(module, "config", None), "_attn_implementation", None) in NAMES


def file_of(model_type: str) -> ModuleType:
    """Return the file of transformers with a type of models."""
    return importlib.import_module(f"transformers.models.{model_type}.modeling_{model_type}")


CHANGED: set[type[torch.nn.Module]] = set()
"""Classes of modules that get the config of their model, because a method reads the implementation."""


def _replace(cls: type[torch.nn.Module], method: str, ours: Callable[..., object]) -> None:
    """Let the modules of a class call `ours` where the implementation is posenc's."""
    theirs = getattr(cls, method)
    names = list(inspect.signature(theirs).parameters)
    place = names.index("output_attentions") - 1 if "output_attentions" in names else len(names)

    @wraps(theirs)
    def replaced(self: torch.nn.Module, *args: object, **kwargs: object) -> object:
        if not is_ours(self):
            return theirs(self, *args, **kwargs)
        if kwargs.get("output_attentions") or (len(args) > place and args[place]):
            fail(self, "output_attentions", 'is True; expected False, because only "eager" has the weights')
        return ours(self, *args, **kwargs)

    CHANGED.add(cls)
    setattr(cls, method, replaced)


def _dropout(module: torch.nn.Module, layer: torch.nn.Dropout) -> float:
    return layer.p if module.training else 0.0


# ---- ALiBi and rotary positions ----


def _bloom_forward(
    module: Module,
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
        dropout=_dropout(module, module.attention_dropout), output_attentions=output_attentions, **kwargs,
    )  # fmt: skip
    return residual + dropout(module.dense(out.flatten(2)), module.hidden_dropout, module.training), None


def _is_consecutive(padding: torch.Tensor | None) -> bool:
    """Return whether padding is known to be only before and after the words of each sentence."""
    if padding is None or torch.compiler.is_compiling():
        return padding is None
    return bool(((padding[:, 1:] & ~padding[:, :-1]).sum(1) + padding[:, 0] <= 1).all())


def _falcon_forward(
    module: Module,
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
    module: Module,
    hidden_states: torch.Tensor,
    position_bias: torch.Tensor,
    cache: Cache | None = None,
    attention_mask: torch.Tensor | None = None,
    past_key_values: Cache | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
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
    module: Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
) -> tuple[torch.Tensor, None]:
    """Compute the attention of GPT-J, CodeGen, GPT-NeoX Japanese and GPT-Neo, which does not scale its logits."""
    n, m = query.shape[2], key.shape[2]
    if getattr(module, "attention_type", None) == "local":
        near = module.bias[:, :, m - n : m, :m]
        hidden = torch.finfo(torch.float32).min
        attention_mask = near if attention_mask is None else torch.where(near, attention_mask, hidden)
    out, _ = attention_forward(
        module, query, key, value, attention_mask,
        scaling=1 / float(getattr(module, "scale_attn", getattr(module, "norm_factor", 1))),
        dropout=_dropout(module, getattr(module, "attn_dropout", None) or module.attention_dropout),
    )  # fmt: skip
    return out.transpose(1, 2), None


def _openai_attn(
    module: Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    output_attentions: bool = False,
) -> list[torch.Tensor]:
    """Compute the attention of GPT, whose keys are transposed and whose mask has padding alone."""
    n = query.shape[2]
    if attention_mask is not None:
        hidden = torch.finfo(attention_mask.dtype).min
        attention_mask = torch.where(module.bias[:, :, :n, :n] > 0, attention_mask, hidden)
    out, _ = attention_forward(
        module, query, key.transpose(-1, -2), value, attention_mask, scaling=None if module.scale else 1.0,
        is_causal=True, dropout=_dropout(module, module.attn_dropout),
    )  # fmt: skip
    return [out.transpose(1, 2)]


def _pass(module: torch.nn.Module, *args: object, theirs: Callable[..., object], **kwargs: object) -> object:
    """Call the method of transformers, whose arguments `_replace` has checked."""
    return theirs(module, *args, **kwargs)


# ---- MPNet and DeBERTa ----


def _mpnet_bias(module: Module, x: torch.Tensor, position_ids: object = None, num_buckets: int = 32) -> pt.Operator:
    """Return `MPNetEncoder.compute_position_bias`, which is T5's bias."""
    if position_ids is not None:
        fail(module, "position_ids", "is not None; expected None, for consecutive positions")
    bias: pt.Operator = pt.t5(module.relative_attention_bias.weight[:num_buckets])
    return bias


def _mpnet_forward(
    module: Module,
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


def _deberta_v2_forward(
    module: Module,
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor | None,
    output_attentions: bool = False,
    query_states: torch.Tensor | None = None,
    relative_pos: torch.Tensor | None = None,
    rel_embeddings: torch.Tensor | None = None,
) -> tuple[torch.Tensor, None]:
    """Compute `DisentangledSelfAttention.forward` of DeBERTa v2 and v3."""
    heads = module.num_attention_heads
    query = _split(module.query_proj(hidden_states if query_states is None else query_states), heads)
    key, value = (_split(make(hidden_states), heads) for make in (module.key_proj, module.value_proj))
    of_queries: Module = module.query_proj if module.share_att_key else getattr(module, "pos_query_proj", None)
    of_keys: Module = module.key_proj if module.share_att_key else getattr(module, "pos_key_proj", None)
    rows = None if rel_embeddings is None else rel_embeddings[: 2 * getattr(module, "pos_ebd_size", 0)]
    buckets = module.position_buckets if module.relative_attention and module.position_buckets > 0 else None
    return _disentangled(module, query, key, value, attention_mask, relative_pos, rows, of_queries, of_keys, buckets)


def _deberta_forward(
    module: Module,
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor | None,
    output_attentions: bool = False,
    query_states: torch.Tensor | None = None,
    relative_pos: torch.Tensor | None = None,
    rel_embeddings: torch.Tensor | None = None,
) -> tuple[torch.Tensor, None]:
    """Compute `DisentangledSelfAttention.forward` of DeBERTa."""
    if module.talking_head or query_states is not None:
        argument = "talking_head" if module.talking_head else "query_states"
        fail(module, argument, "is given; expected none, because heads that mix and other queries are unknown")
    heads = module.num_attention_heads
    query, key, value = _split(module.in_proj(hidden_states), heads).chunk(3, dim=-1)
    query, value = query + module.q_bias.view(heads, 1, -1), value + module.v_bias.view(heads, 1, -1)
    of_queries, of_keys = getattr(module, "pos_q_proj", None), getattr(module, "pos_proj", None)
    return _disentangled(module, query, key, value, attention_mask, relative_pos, rel_embeddings, of_queries, of_keys)


def _disentangled(
    module: Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    relative_pos: torch.Tensor | None,
    rows: torch.Tensor | None,
    of_queries: Module,
    of_keys: Module,
    buckets: int | None = None,
) -> tuple[torch.Tensor, None]:
    """Compute attention with relative terms, whose rows are projected by `of_queries` and `of_keys`."""
    if relative_pos is not None:
        fail(module, "relative_pos", "is not None; expected None, for consecutive positions")
    heads, terms = module.num_attention_heads, [term for term in ("c2p", "p2c") if term in module.pos_att_type]
    bias = None
    if module.relative_attention and terms and rows is not None:
        rows = module.pos_dropout(rows)
        bias = pt.deberta(
            _split(of_queries(rows), heads) if "p2c" in terms else None,
            _split(of_keys(rows), heads) if "c2p" in terms else None,
            buckets=buckets, max_position=module.max_relative_positions if buckets else None, terms=tuple(terms),
        )  # fmt: skip
    out, _ = attention_forward(
        module, query, key, value, None if mask is None else mask.bool(),
        scaling=1 / sqrt(query.shape[-1] * (1 + len(terms))), position_bias=bias, is_causal=False,
        dropout=_dropout(module, module.dropout),
    )  # fmt: skip
    return out.flatten(2), None


def _wavlm_forward(
    module: Module,
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    position_bias: torch.Tensor | None = None,
    index: int = 0,
    output_attentions: bool = False,
    **kwargs: object,
) -> tuple[torch.Tensor, None, torch.Tensor]:
    """Compute `WavLMAttention.forward`; `position_bias` is the table of the first layer, which all layers gate."""
    heads = module.num_heads
    table = module.rel_attn_embed.weight if position_bias is None else position_bias
    sums = module.gru_rel_pos_linear(_split(hidden_states, heads)).unflatten(-1, (2, 4)).sum(-1)
    a, b = torch.sigmoid(sums).chunk(2, dim=-1)
    gates = a * (b * module.gru_rel_pos_const - 1) + 2
    bias = pt.gated_distance(gates, table.T[..., None], rows="buckets", max_distance=module.max_distance)
    query, key, value = (_split(make(hidden_states), heads) for make in (module.q_proj, module.k_proj, module.v_proj))
    out, _ = attention_forward(
        module, query, key, value, None if attention_mask is None else attention_mask[:, None, None, :].eq(1),
        scaling=module.scaling, position_bias=bias, dropout=module.dropout if module.training else 0.0, is_causal=False,
    )  # fmt: skip
    return module.out_proj(out.flatten(2)), None, table


def _sam_forward(
    module: Module, hidden_states: torch.Tensor, output_attentions: bool | None = None
) -> tuple[torch.Tensor, None]:
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
    out, _ = attention_forward(
        module, query, key, value, None, scaling=module.scale, position_bias=bias, is_causal=False,
        dropout=module.dropout if module.training else 0.0,
    )  # fmt: skip
    return module.proj(out.flatten(2).unflatten(1, (height, width))), None


# ---- XLNet ----


def _xlnet_core(
    module: Module,
    q_head: torch.Tensor,
    k_head_h: torch.Tensor,
    v_head_h: torch.Tensor,
    k_head_r: torch.Tensor,
    seg_mat: torch.Tensor | None = None,
    attn_mask: torch.Tensor | None = None,
    output_attentions: bool = False,
) -> torch.Tensor:
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
        out, _ = attention_forward(
            module, query[part], key[part], value[part], mask, scaling=module.scale, position_bias=bias,
            is_causal=False, dropout=_dropout(module, module.dropout),
        )  # fmt: skip
        parts.append(out)
    out = torch.cat(parts)  # (batch, tokens, heads, D)
    if keep is not None:  # like eager attention, a query that sees no key takes the mean of all
        out = torch.where(keep.any(-1).transpose(1, 2)[..., None], out, value.mean(2)[:, None])
    return out.transpose(0, 1)


def _segment_bias(module: Module, query: torch.Tensor, is_same: torch.Tensor) -> pt.Operator:
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


OWN: tuple[tuple[str, str, str, Callable[..., object]], ...] = (
    ("bloom", "BloomAttention", "forward", _bloom_forward),
    ("codegen", "CodeGenAttention", "_attn", _gpt_attn),
    ("deberta", "DisentangledSelfAttention", "forward", _deberta_forward),
    ("deberta_v2", "DisentangledSelfAttention", "forward", _deberta_v2_forward),
    ("falcon", "FalconAttention", "forward", _falcon_forward),
    ("gpt_neo", "GPTNeoSelfAttention", "_attn", _gpt_attn),
    ("gpt_neox_japanese", "GPTNeoXJapaneseAttention", "_attn", _gpt_attn),
    ("gptj", "GPTJAttention", "_attn", _gpt_attn),
    ("mpnet", "MPNetSelfAttention", "forward", _mpnet_forward),
    ("mpt", "MptAttention", "forward", _mpt_forward),
    ("openai", "Attention", "_attn", _openai_attn),
    ("sam", "SamVisionAttention", "forward", _sam_forward),
    ("sam_hq", "SamHQVisionAttention", "forward", _sam_forward),
    ("wavlm", "WavLMAttention", "forward", _wavlm_forward),
    ("xlnet", "XLNetRelativeAttention", "rel_attn_core", _xlnet_core),
)
"""Model types and classes that do not use the interface, the method that is replaced, and the function in its place."""


RECORDED = (
    ("cpmant", "CpmAntAttention"),
    ("flaubert", "MultiHeadAttention"),
    ("fsmt", "Attention"),
    ("git", "GitSelfAttention"),
    ("layoutlmv3", "LayoutLMv3SelfAttention"),
    ("megatron_bert", "MegatronBertSelfAttention"),
    ("mvp", "MvpAttention"),
    ("perceiver", "PerceiverSelfAttention"),
    ("rembert", "RemBertSelfAttention"),
    ("roformer", "RoFormerSelfAttention"),
    ("squeezebert", "SqueezeBertSelfAttention"),
    ("swinv2", "Swinv2SelfAttention"),
    ("tapas", "TapasSelfAttention"),
    ("trocr", "TrOCRAttention"),
    ("xglm", "XGLMAttention"),
    ("xlm", "MultiHeadAttention"),
)
"""Model types and classes whose forward method is recorded."""


REPLACED: set[type[torch.nn.Module]] = set()
"""Classes of the two tables that the installed transformers has."""


def replace_all() -> None:
    """Replace the modules, once, and let their models choose an implementation."""
    for model_type, name, method, ours in (*OWN, *((*row, "forward", None) for row in RECORDED)):
        file = file_of(model_type)
        cls = getattr(file, name, None)
        if cls is None or not hasattr(cls, method) or "get_interface(" in inspect.getsource(cls):
            continue  # transformers after 5.23, where more of its modules use the interface
        REPLACED.add(cls)
        if method != "forward":  # for the error of output_attentions, which the replaced method does not get
            _replace(cls, "forward", partial(_pass, theirs=cls.forward))
        _replace(cls, method, ours or partial(record, theirs=cls.forward))
        for one in vars(file).values():
            if isinstance(one, type) and PreTrainedModel in one.__bases__:
                one._can_set_attn_implementation_cached_value = True  # type: ignore[attr-defined, unused-ignore]
    block = file_of("mpt").MptBlock  # it gets output_attentions, and its attention does not
    _replace(block, "forward", partial(_pass, theirs=block.forward))
    _replace(file_of("mpnet").MPNetEncoder, "compute_position_bias", _mpnet_bias)
    for encoder in (file_of("deberta").DebertaEncoder, file_of("deberta_v2").DebertaV2Encoder):
        _replace(encoder, "get_attention_mask", _deberta_mask)
        _replace(encoder, "get_rel_pos", _deberta_positions)
