"""The rotation of any text model of transformers, by its module for cos and sin and its function that applies them."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import numpy as np
import torch
from transformers.models.auto.configuration_auto import CONFIG_MAPPING


def modeling(model_type: str) -> Any:
    return import_module(CONFIG_MAPPING[model_type].__module__.replace("configuration_", "modeling_"))


def config_of(config: dict[str, Any]) -> Any:
    """The configuration object of transformers for a config.json."""
    return CONFIG_MAPPING[config["model_type"]].from_dict(dict(config))


def embedding(config: Any) -> Any:
    """The module that computes cos and sin, without the model."""
    module = modeling(config.model_type)
    found = [
        value
        for name, value in vars(module).items()
        if name.endswith("RotaryEmbedding") and value.__module__ == module.__name__ and "Vision" not in name
    ]
    assert len(found) == 1, found
    return found[0](config)


def inv_freq(config: Any, positions: np.ndarray, layer_type: str | None = None) -> tuple[np.ndarray, float]:
    """Frequencies and factor of the module after a call with these positions."""
    rotary, prefix = embedding(config), "" if layer_type is None else f"{layer_type}_"
    rotary(torch.zeros(1), torch.from_numpy(positions)[None], *([layer_type] if layer_type else []))
    return getattr(rotary, f"{prefix}inv_freq").double().numpy(), float(getattr(rotary, f"{prefix}attention_scaling"))


def rotate(config: Any, x: np.ndarray, positions: np.ndarray, layer_type: str | None = None) -> np.ndarray:
    """The rotated channels of x (B, H, N, r), in float32."""
    module, given = modeling(config.model_type), torch.from_numpy(x)
    if hasattr(module, "create_sinusoidal_positions"):  # GPT-J, CodeGen: heads after the sequence, [sin | cos]
        table = module.create_sinusoidal_positions(int(positions.max()) + 1, config.rotary_dim)
        sin, cos = torch.split(table[torch.from_numpy(positions)][None], x.shape[-1] // 2, dim=-1)
        return module.apply_rotary_pos_emb(given.transpose(1, 2), sin, cos).transpose(1, 2).numpy()
    made = embedding(config)(given, torch.from_numpy(positions)[None], *([layer_type] if layer_type else []))
    if torch.is_tensor(made):  # complex numbers
        if config.model_type == "llama4_text":
            given = given.transpose(1, 2)
            return module.apply_rotary_emb(given, given, made)[0].transpose(1, 2).numpy()
        return module.apply_rotary_emb(given, given, made)[0].numpy()
    function = getattr(module, "apply_rotary_pos_emb_interleave", None)
    if function is None or not getattr(config, "rope_interleave", True):
        function = module.apply_rotary_pos_emb
    if "q" in inspect.signature(function).parameters:
        return function(given, given, *made)[0].numpy()
    return function(given, *made).numpy()
