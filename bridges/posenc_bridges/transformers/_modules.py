"""Modules of transformers that posenc changes, and models that it refuses."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from functools import lru_cache, partial, wraps
from typing import NoReturn

import torch
from transformers import PreTrainedConfig, __version__
from transformers.modeling_utils import PreTrainedModel

from ._lazy import LazyTensor, attach, read_t5
from ._masks import CONFIGS_OF_SDPA, describe_mask_functions
from ._private import FAMILIES, has_names, look_up, missing_for
from ._replaced import CHANGED, NAMES, REPLACED, is_ours, replace_all


def change(name: str) -> None:
    """Change transformers' modules, once, so that they ask for the implementation at each call."""
    if not NAMES:
        describe_mask_functions()
        for model_type, (name_of_method, *_) in FAMILIES.items():
            if name_of_method.endswith(".compute_bias") and has_names(model_type):
                _describe_bias(look_up(model_type, name_of_method.partition(".")[0]))
        replace_all()
        _refuse_other_models()
    for cls in REPLACED:
        for table in _tables(cls):
            table[name] = cls
    NAMES.add(name)


def _refuse_other_models() -> None:
    """Let models that would ignore the choice of posenc raise; transformers accepts any registered name for them."""

    def check_first(name: str) -> None:
        method = getattr(PreTrainedModel, name)

        @wraps(method)
        def checked(self: PreTrainedModel, requested: object, *args: object, **kwargs: object) -> object:
            _check(self, requested, self.config)
            return method(self, requested, *args, **kwargs)

        setattr(PreTrainedModel, name, checked)

    check_first("get_correct_attn_implementation")
    check_first("set_attn_implementation")
    finish = PreTrainedModel.post_init

    @wraps(finish)
    def post_init(self: PreTrainedModel) -> None:
        finish(self)
        _give_config(self, self.config)
        CONFIGS_OF_SDPA.update({type(self.config)} if getattr(self, "_supports_sdpa", False) else ())
        if is_ours(self):
            _check_modules(self)

    PreTrainedModel.post_init = post_init


def _give_config(module: torch.nn.Module, config: PreTrainedConfig) -> None:
    """Give the modules of a model that posenc changes the config, which says the implementation."""
    if type(module) in CHANGED and not hasattr(module, "config"):
        module.config = config  # type: ignore[assignment, unused-ignore]
    for child in module.children():
        if not isinstance(child, PreTrainedModel):
            _give_config(child, config)


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
    """Return whether a class of transformers computes attention itself, or names that posenc needs for it are gone.

    transformers reads the source of a file to find whether a model can choose its attention. This reads the source of
    a class, because some files have classes of both kinds.
    """
    if missing_for(cls):
        return True
    owner = next(kind for kind in cls.__mro__ if "forward" in vars(kind))
    if not _ATTENTION.match(cls.__name__) or cls in REPLACED or owner.__module__[:6] == "torch.":
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
    if isinstance(module, PreTrainedModel):
        _give_config(module, module.config)  # it may be older than `register`
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
    if missing := missing_for(cls):
        has = f"is left out, because transformers {__version__} has no {missing}"
        raise NotImplementedError(f"transformers: {cls.__name__} {has}; expected transformers 5.24")
    expected = "a model that uses transformers' attention interface, or a dict with its parts that do"
    raise NotImplementedError(f"transformers: {cls.__name__} computes attention itself; expected {expected}")


# ---- T5 ----


def _describe_bias(cls: type[torch.nn.Module]) -> None:
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
        if is_ours(self) and not torch.compiler.is_compiling():
            structure = read_t5(self, int(past_seen_tokens))
            shape = 1, structure.table.shape[1], query_length, key_length
            make = partial(dense, self, query_length, key_length, past_seen_tokens=structure.shift)
            return LazyTensor(structure, lambda dtype: make(), shape, structure.table.dtype, structure.table.device)
        bias = dense(self, query_length, key_length, device, past_seen_tokens)
        if is_ours(self) and not isinstance(past_seen_tokens, torch.Tensor):
            return attach(bias, read_t5(self, past_seen_tokens))
        return bias

    theirs = cls.forward

    @wraps(theirs)
    def forward(self: torch.nn.Module, *args: object, **kwargs: object) -> object:
        # Cross attention has no bias; without one it would make zeros for each pair.
        if not self.has_relative_attention_bias and kwargs.get("position_bias", self) is None and is_ours(self):
            kwargs["position_bias"] = torch.zeros(1, 1, 1, 1)
        return theirs(self, *args, **kwargs)

    cls.compute_bias, cls.forward = compute_bias, forward
