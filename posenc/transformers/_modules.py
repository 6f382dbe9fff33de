"""Modules of transformers that posenc changes: T5's biases, and attention that never reaches the interface."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable
from functools import lru_cache, partial, wraps
from types import ModuleType
from typing import Any, NoReturn

import torch
from torch.nn.functional import dropout
from transformers import Cache, PreTrainedConfig
from transformers.modeling_utils import PreTrainedModel
from transformers.models.bloom import modeling_bloom
from transformers.models.falcon import modeling_falcon

from posenc import torch as pt

from ._attention import attention_forward, fail
from ._lazy import RelativeBias, Structure, attach, read_t5, structure_of
from ._masks import describe_mask_functions

NAMES: set[str] = set()
"""Names under which posenc is registered."""

T5_KIND = {
    "longt5": "LongT5Attention",
    "mt5": "MT5Attention",
    "pix2struct": "Pix2StructTextAttention",
    "pop2piano": "Pop2PianoAttention",
    "switch_transformers": "SwitchTransformersAttention",
    "t5": "T5Attention",
    "udop": "UdopAttention",
    "umt5": "UMT5Attention",
}
"""Attention modules with T5's method `compute_bias`, by model type."""

REPLACED = ("BloomAttention", "FalconAttention")
"""Attention modules that do not use the interface and are replaced."""


def is_ours(module: object) -> bool:
    """Return whether the attention implementation of a module's config is posenc's."""
    return getattr(getattr(module, "config", None), "_attn_implementation", None) in NAMES


def change(name: str) -> None:
    """Change transformers' modules, once, so that they ask for the implementation at each call."""
    modeling_falcon.FALCON_ATTENTION_CLASSES[name] = modeling_falcon.FalconAttention
    if not NAMES:
        describe_mask_functions()
        for model_type, cls in T5_KIND.items():
            _describe_bias(getattr(_model(model_type), cls))
        _replace(modeling_bloom.BloomAttention, _bloom_forward)
        _replace(modeling_falcon.FalconAttention, _falcon_forward)
        modeling_bloom.BloomPreTrainedModel._can_set_attn_implementation_cached_value = True
        modeling_falcon.FalconPreTrainedModel._can_set_attn_implementation_cached_value = True
        _refuse_other_models()
    NAMES.add(name)


def _model(model_type: str) -> ModuleType:
    return importlib.import_module(f"transformers.models.{model_type}.modeling_{model_type}")


def _refuse_other_models() -> None:
    """Let models that would ignore the choice of posenc raise; transformers accepts any registered name for them."""
    for name in ("get_correct_attn_implementation", "set_attn_implementation"):
        method = getattr(PreTrainedModel, name)

        def checked(
            self: PreTrainedModel,
            requested: object,
            *args: object,
            theirs: Callable[..., object] = method,
            **kwargs: object,
        ) -> object:
            _check(self, requested, self.config)
            return theirs(self, requested, *args, **kwargs)

        setattr(PreTrainedModel, name, wraps(method)(checked))
    finish = PreTrainedModel.post_init

    @wraps(finish)
    def post_init(self: PreTrainedModel) -> None:
        finish(self)
        if is_ours(self):
            _check_modules(self)

    PreTrainedModel.post_init = post_init


def _check_modules(module: torch.nn.Module) -> None:
    """Refuse modules that compute attention themselves, in a model without the models inside it."""
    if _computes_attention(type(module)):  # type: ignore[arg-type, unused-ignore]
        _refuse(type(module))
    for child in module.children():
        if not isinstance(child, PreTrainedModel):
            _check_modules(child)


_ATTENTION = re.compile(r"(?!.*(?:Map|Residual)$)\w*Att")
"""Names of classes of attention. Maps have no values, and residuals attend to layers instead of tokens."""


@lru_cache(maxsize=1024)
def _computes_attention(cls: type) -> bool:
    """Return whether a class of transformers computes attention itself.

    transformers reads the source of a file to find whether a model can choose its attention. This reads the source of
    a class, because some files have classes of both kinds.
    """
    owner = next(kind for kind in cls.__mro__ if "forward" in vars(kind))
    if not _ATTENTION.match(cls.__name__) or cls.__name__ in REPLACED or owner.__module__[:6] == "torch.":
        return False
    try:
        source = inspect.getsource(owner)
    except (OSError, TypeError):
        return False
    has_product = "softmax" in source and re.search(r"matmul|einsum|bmm| @ ", source)
    return bool(has_product or "scaled_dot_product_attention(" in source) and "get_interface(" not in source


def _check(module: torch.nn.Module, requested: object, config: PreTrainedConfig) -> None:
    """Refuse posenc for a module that computes attention itself, alone or inside the module.

    `requested` is an implementation, or a dict with one for the model of the config and for its sub-configs.
    """
    own = requested.get("") if isinstance(requested, dict) else requested
    if own in NAMES:
        for table in _tables(type(module)):
            table.setdefault(own, partial(_refuse, next(iter(table.values()))))  # models are made by tables, too
            if type(module) in table.values() and table[own] is not type(module):
                _refuse(type(module))
        has_no_choice = isinstance(module, PreTrainedModel) and not module._can_set_attn_implementation()
        if has_no_choice or _computes_attention(type(module)):  # type: ignore[arg-type, unused-ignore]
            _refuse(type(module))
    for child in module.children():
        inner, choice = getattr(child, "config", config), requested
        if isinstance(requested, dict) and isinstance(child, PreTrainedModel) and inner is not config:
            choice = next((requested.get(name) for name in config.sub_configs if getattr(config, name) is inner), None)
        _check(child, choice, inner if isinstance(child, PreTrainedModel) else config)


def _tables(cls: type) -> list[dict[object, Callable[..., object]]]:
    """Return the tables of a file of transformers that have a class of attention for each implementation."""
    names = vars(sys.modules[cls.__module__])
    return [table for name, table in names.items() if name.endswith("_ATTENTION_CLASSES")]


def _refuse(cls: Callable[..., object], *args: object, **kwargs: object) -> NoReturn:
    expected = "a model that uses transformers' attention interface, or a dict with its parts that do"
    raise NotImplementedError(f"posenc.transformers: {cls.__name__} computes attention itself; expected {expected}")


# ---- T5 ----


def _describe_bias(cls: Any) -> None:
    """Let the modules of a class describe their relative bias instead of computing it."""
    dense: Callable[..., torch.Tensor] = cls.compute_bias

    @wraps(dense)
    def compute_bias(
        self: torch.nn.Module,
        query_length: int,
        key_length: int,
        device: object = None,
        past_seen_tokens: int | torch.Tensor = 0,
    ) -> torch.Tensor:
        if is_ours(self):
            if not torch.compiler.is_compiling():
                return RelativeBias(self, dense, query_length, key_length, int(past_seen_tokens))
            bias = dense(self, query_length, key_length, device, past_seen_tokens)
            return bias if isinstance(past_seen_tokens, torch.Tensor) else attach(bias, read_t5(self, past_seen_tokens))
        return dense(self, query_length, key_length, device, past_seen_tokens)

    theirs = cls.forward

    @wraps(theirs)
    def forward(self: torch.nn.Module, *args: object, **kwargs: object) -> object:
        # Cross attention has no bias; without one it would make zeros for each pair.
        if is_ours(self) and not self.has_relative_attention_bias and kwargs.get("position_bias", self) is None:
            kwargs["position_bias"] = torch.zeros(1, 1, 1, 1)
        return theirs(self, *args, **kwargs)

    cls.compute_bias, cls.forward = compute_bias, forward


# ---- modules that compute attention themselves ----


def _replace(cls: Any, ours: Callable[..., object]) -> None:
    """Let the modules of a class call `ours` where the implementation is posenc's."""
    make, theirs = cls.__init__, cls.forward

    @wraps(make)
    def __init__(self: Any, config: PreTrainedConfig, *args: object, **kwargs: object) -> None:
        make(self, config, *args, **kwargs)
        self.config = config

    @wraps(theirs)
    def forward(self: torch.nn.Module, *args: object, **kwargs: object) -> object:
        return ours(self, *args, **kwargs) if is_ours(self) else theirs(self, *args, **kwargs)

    cls.__init__, cls.forward = __init__, forward


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
    """Return `BloomAttention.forward`.

    `alibi` is slope x position of the key, where padding has no position. For the keys that a query sees it differs
    from -slope x distance by a number for each query, which changes nothing, unless padding lies between words.
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
    """Return whether it is known that there is padding only before and after the words of each sentence."""
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
    """Return `FalconAttention.forward` without ALiBi."""
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
