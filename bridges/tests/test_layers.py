"""posenc.layers against the layers of transformers' models: scale, window, sink, softcap, and whether they rotate."""

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModel

import posenc
from posenc.rotary.models import ATTENTION

PLAIN = ("deepseek_v3", "llama", "minimax_m2", "mistral", "olmo3", "qwen2", "qwen3_vl_text", "starcoder2", "vaultgemma")
ELSEWHERE = {
    "dia_decoder", "dia_encoder", "diffusion_gemma_text", "mimo_v2",  # without a class that AutoModel builds
    "embedding_gemma2_text", "openai_privacy_filter",  # windows to both sides
    "gemma3n_text",  # needs more layers
}  # fmt: skip


@pytest.mark.parametrize("name", sorted({*ATTENTION, *PLAIN} - ELSEWHERE))
def test_layers_are_those_of_the_model(name):
    config = CONFIG_MAPPING[name](num_hidden_layers=6)
    with torch.device("meta"):
        model = AutoModel.from_config(config)
    modules = [
        m for n, m in model.named_modules() if n.endswith((".self_attn", ".attention")) and hasattr(m, "scaling")
    ]
    found = [layer for layer in posenc.layers(config.to_dict()) if layer.scale is not None]
    assert len(found) == len(modules) > 0
    for layer, module in zip(found, modules, strict=True):
        assert layer.scale == pytest.approx(module.scaling)
        assert layer.sink == (getattr(module, "sinks", None) is not None)
        assert layer.softcap == getattr(module, "attn_logit_softcapping", None)
        if layer.attention == "sliding_attention":
            assert layer.window == getattr(module, "sliding_window", layer.window)
        assert (layer.rotation is not None) == bool(getattr(module, "use_rope", layer.rotation is not None))
