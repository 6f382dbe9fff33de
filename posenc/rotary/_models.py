"""Defaults of transformers for the rotary part of a config, by model_type.

tests/peers/test_transformers_configs.py derives every row from the configuration classes of transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__: list[str] = []

FULL, SLIDING = "full_attention", "sliding_attention"


class Model(NamedTuple):
    """Defaults of one model_type. The config must have the values that are None here, unless a field says otherwise."""

    base: float | None = None
    partial_rotary_factor: float = 1.0
    """The part of the head that is rotated."""
    head_dim: int | None = None
    """If None, the hidden size over the number of heads."""
    rotary_dim: int | None = None
    """If None, the other widths decide."""
    qk_rope_head_dim: int | None = None
    """If None, the model has no latent attention."""
    sliding_base: float | None = None
    """Base of the sliding layers. If None, the model has one base."""
    scaled: tuple[str, ...] = ()
    """The layer types that a scaling is for, if old configs have one scaling and two types of layers."""
    original_length: int | None = None
    """original_max_position_embeddings; if None, max_position_embeddings."""
    requires_scaling: bool = False
    """The class of transformers has a scaling of its own, so the config must say which scaling it has."""


_BASES = {
    10000.0: "afmoe arcee bamba cohere2 deepseek_v2 deepseek_v3 diffllama doge dots1 exaone4 falcon falcon_h1 gemma "
    "gemma2 glm glm4 glm4_moe glm4_moe_lite gpt_neox gpt_neox_japanese gptj codegen granite granitemoe "
    "granitemoehybrid granitemoeshared hyperclovax llama minicpm3 ministral mistral nanochat nemotron olmo "
    "olmo2 olmoe persimmon phi phi3 phi4_multimodal qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next qwen3_5_text "
    "qwen3_5_moe_text recurrent_gemma seed_oss stablelm starcoder2 vaultgemma youtu",
    100000.0: "helium",
    150000.0: "gpt_oss",
    500000.0: "bitnet cohere ernie4_5 ernie4_5_moe flex_olmo llama4_text olmo3",
    1000000.0: "cwm lfm2 lfm2_moe minimax mixtral phimoe solar_open gemma3_text gemma3n_text",
    160000.0: "modernbert modernbert-decoder",
    2000000.0: "smollm3",
    5000000.0: "minimax_m2",
    10000000.0: "longcat_flash",
    12000000.0: "apertus",
}  # fmt: skip
_PARTIAL = {
    0.25: "gpt_neox qwen3_5_moe_text qwen3_5_text qwen3_next stablelm",
    0.5: "bamba glm glm4 glm4_moe nemotron persimmon phi recurrent_gemma",
}
_HEAD_DIM = {
    64: "gpt_oss",
    128: "afmoe cwm ernie4_5 glm glm4 helium llama4_text minimax_m2 qwen3 seed_oss solar_open",
    256: "gemma gemma2 gemma3_text gemma3n_text qwen3_5_moe_text qwen3_5_text qwen3_next vaultgemma",
}
_ROTARY_DIM = {64: "gptj codegen"}
_QK_ROPE = {32: "minicpm3", 64: "deepseek_v2 deepseek_v3 glm4_moe_lite longcat_flash youtu"}
_SLIDING_BASE = {10000.0: "gemma3_text gemma3n_text modernbert modernbert-decoder"}
_SCALED = {
    (FULL,): "gemma3_text gemma3n_text olmo3",
    (FULL, SLIDING): "modernbert modernbert-decoder",
}
_ORIGINAL_LENGTH = {4096: "phi3 phi4_multimodal"}
_REQUIRES_SCALING = {True: "apertus cwm gpt_oss"}


def _models() -> dict[str, Model]:
    found: dict[str, Model] = {}
    columns: tuple[tuple[str, Mapping[Any, str]], ...] = (
        ("base", _BASES), ("partial_rotary_factor", _PARTIAL), ("head_dim", _HEAD_DIM), ("rotary_dim", _ROTARY_DIM),
        ("qk_rope_head_dim", _QK_ROPE), ("sliding_base", _SLIDING_BASE), ("scaled", _SCALED),
        ("original_length", _ORIGINAL_LENGTH), ("requires_scaling", _REQUIRES_SCALING),
    )  # fmt: skip
    for column, names_of in columns:
        for value, names in names_of.items():
            for name in names.split():
                found[name] = found.get(name, Model())._replace(**{column: value})
    return found


MODELS = _models()
