"""The rotary keys of the config.json of published checkpoints, restated.

The factor lists of Phi-3 (LongRoPE) are drawn: growing numbers of the published range. Widths of hidden layers are the
published ones, if the width of a head depends on them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Checkpoint(NamedTuple):
    """A config, and the rotation that it describes."""

    config: dict[str, Any]
    layout: str = "half"
    out_layout: str | None = None
    layer_types: tuple[str | None, ...] = (None,)
    attention_factor: float = 1.0
    softmax_factor: float = 1.0
    start: int = 0
    """First position of the test: past the original length where something happens there."""


def drawn(largest: float) -> list[float]:
    return np.sort(np.random.default_rng(3).uniform(1, largest, 48)).tolist()


def mscale(factor: float) -> float:
    return 0.1 * float(np.log(factor)) + 1


PHI3 = {
    "model_type": "phi3",
    "hidden_size": 3072,
    "num_attention_heads": 32,
    "rope_theta": 10000.0,
    "max_position_embeddings": 131072,
    "original_max_position_embeddings": 4096,
    "rope_scaling": {"type": "longrope", "short_factor": drawn(1.3), "long_factor": drawn(65.0)},
}
PHI3_FACTOR = float(np.sqrt(1 + np.log(32) / np.log(4096)))
MLA_YARN = {
    "beta_fast": 32,
    "beta_slow": 1,
    "factor": 40,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 4096,
    "type": "yarn",
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "qk_rope_head_dim": 64,
    "max_position_embeddings": 163840,
    "rope_theta": 10000,
    "rope_scaling": MLA_YARN,
}
MIMO_V2 = {
    "model_type": "mimo_v2_flash",
    "swa_head_dim": 192,
    "partial_rotary_factor": 0.334,
    "rope_theta": 5000000,
    "swa_rope_theta": 10000,
}
STEP_3_5 = {
    "model_type": "step3p5",
    "num_hidden_layers": 4,
    "layer_types": ["full_attention", *["sliding_attention"] * 3],
    "rope_theta": [5000000.0, *[10000.0] * 3],
    "partial_rotary_factors": [0.5, *[1.0] * 3],
    "yarn_only_types": ["full_attention"],
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 2.0,
        "original_max_position_embeddings": 131072,
        "low_freq_factor": 1.0,
        "high_freq_factor": 32.0,
    },
}
HUNYUAN_SCALING = {
    "alpha": 1000.0,
    "beta_fast": 32,
    "beta_slow": 1,
    "factor": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 0.0,
    "type": "dynamic",
}
CHECKPOINTS = {
    "Llama 3.1 8B": Checkpoint(
        {
            "model_type": "llama",
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "max_position_embeddings": 131072,
            "rope_theta": 500000.0,
            "rope_scaling": {
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
                "rope_type": "llama3",
            },
        }
    ),
    "Phi-3 mini 128k, long": Checkpoint(PHI3, attention_factor=PHI3_FACTOR, start=4090),
    "Gemma 3 4B": Checkpoint(
        {
            "model_type": "gemma3_text",
            "hidden_size": 2560,
            "num_attention_heads": 8,
            "head_dim": 256,
            "rope_theta": 1000000.0,
            "rope_local_base_freq": 10000.0,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        },
        layer_types=("full_attention", "sliding_attention"),
    ),
    "DeepSeek-V3": Checkpoint(
        DEEPSEEK_V3,
        layout="interleaved",
        out_layout="half",
        softmax_factor=mscale(40) ** 2,
    ),
    "GPT-J 6B": Checkpoint(
        {"model_type": "gptj", "n_embd": 4096, "n_head": 16, "n_positions": 2048, "rotary_dim": 64, "rotary": True},
        layout="interleaved",
    ),
    "HunYuan 7B": Checkpoint(
        {
            "model_type": "hunyuan_v1_dense",
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "head_dim": 128,
            "max_position_embeddings": 32768,
            "rope_theta": 10000.0,
            "rope_scaling": HUNYUAN_SCALING,
        }
    ),
    "Kimi K2": Checkpoint(  # transformers reads its model_type, kimi_k2, as deepseek_v3
        {**DEEPSEEK_V3, "rope_theta": 50000.0, "rope_scaling": {**MLA_YARN, "beta_fast": 1, "factor": 32}},
        layout="interleaved",
        out_layout="half",
        softmax_factor=mscale(32) ** 2,
    ),
    "MiMo-V2-Flash": Checkpoint(MIMO_V2, layer_types=("full_attention", "sliding_attention")),
    "Step-3.5-Flash": Checkpoint(STEP_3_5, layer_types=("full_attention", "sliding_attention")),
    "HunyuanOCR": Checkpoint(
        {
            "model_type": "hunyuan_vl_text",
            "attention_head_dim": 128,
            "rope_theta": 10000.0,
            "rope_scaling": {**HUNYUAN_SCALING, "type": "xdrope", "xdrope_section": [16, 16, 16, 16]},
        }
    ),
    "GPT-NeoX 20B": Checkpoint(
        {
            "model_type": "gpt_neox",
            "hidden_size": 6144,
            "num_attention_heads": 64,
            "max_position_embeddings": 2048,
            "rotary_emb_base": 10000,
            "rotary_pct": 0.25,
        }
    ),
}
