"""Small random models of every text model class of transformers, built from their configs alone."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto

VOCABULARY = 128
MAPPINGS = (
    modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)
NO_TEXT = ("audio", "image", "vision", "vq", "depth", "word_timestamp", "projector", "acoustic")
"""Parts of the names of configs inside the config of a model that reads more than text."""
SIZES = {
    name: size
    for size, names in {
        1: "n_group topk_group n_shared_experts",
        2: "num_hidden_layers n_layer n_layers num_layers decoder_layers encoder_layers num_decoder_layers "
        "num_key_value_heads num_kv_heads multi_query_group_num num_experts_per_tok moe_topk moe_k "
        "num_experts_per_token moe_top_k tubelet_size",
        4: "num_attention_heads n_head n_heads num_heads decoder_attention_heads encoder_attention_heads num_experts "
        "num_local_experts n_routed_experts moe_num_experts rotary_dim num_frames frames_per_clip",
        6: "sliding_window attention_window_size local_attention window_size sliding_window_size",
        8: "patch_size head_dim d_kv attention_head_dim global_head_dim swa_head_dim kv_channels attention_chunk_size "
        "qk_nope_head_dim qk_rope_head_dim v_head_dim qk_head_dim",
        16: "q_lora_rank kv_lora_rank",
        32: "hidden_size d_model n_embd dim embedding_size emb_dim embed_dim hidden_dim word_embed_proj_dim lru_width "
        "hidden_size_per_layer_input attention_hidden_size image_size crop_size",
        48: "intermediate_size ffn_dim d_ff n_inner decoder_ffn_dim encoder_ffn_dim ffn_hidden_size "
        "moe_intermediate_size shared_expert_intermediate_size moe_shared_expert_intermediate_size "
        "intermediate_size_mlp expert_ffn_hidden_size shared_intermediate_size decoder_intermediate_size",
        256: "max_position_embeddings n_positions max_seq_len seq_length n_ctx",
    }.items()
    for name in names.split()
}
"""Sizes by the names that configs have for them."""

EXPERTS = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_d_state": 8, "mamba_chunk_size": 8}
OVERRIDES: dict[str, dict[str, Any]] = {
    "bamba": {**MAMBA, "attn_layer_indices": [1]},
    "deepseek_v2": {**EXPERTS, "topk_method": "greedy", "n_shared_experts": 1},
    "deberta": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "deberta-v2": {
        "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 8, "share_att_key": True,
        "norm_rel_ebd": "layer_norm", "conv_kernel_size": 3,
    },
    "dory": {
        "num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2, "n_input_layers": 1,
        "n_output_layers": 1,
    },
    "dots1": {**EXPERTS, "n_shared_experts": 1},
    "esm": {"vocab_size": VOCABULARY, "pad_token_id": 0, "mask_token_id": 3},
    "falcon_h1": {**MAMBA, "mamba_d_ssm": 64},
    "gemma3n_text": {"num_kv_shared_layers": 0},
    "gemma4_assistant": {"hidden_size_per_layer_input": 0},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": {**MAMBA, "layer_types": ["mamba", "attention"]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "use_mamba_kernels": False},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "longcat_flash": {"head_dim": 8, "qk_head_dim": 16},
    "neomme": {"head_dim": 16},
    "perceiver": {  # its outputs are as many as positions
        "max_position_embeddings": 14, "num_latents": 16, "d_latents": 32, "num_self_attends_per_block": 2,
    },
    "recurrent_gemma": {"block_types": ["recurrent", "attention"], "num_hidden_layers": 2},
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
    "zamba": {
        "layers_block_type": ["mamba", "hybrid"] * 2, "num_hidden_layers": 4, "n_mamba_heads": 2,
        "attention_hidden_size": 64, "attention_head_dim": 16, "use_mamba_kernels": False,
    },
    "zamba2": {
        "layers_block_type": ["mamba", "hybrid"], "hybrid_layer_ids": [1], "n_mamba_heads": 8, "mamba_d_state": 8,
        "mamba_ngroups": 1, "chunk_size": 8, "attention_hidden_size": 64, "attention_head_dim": 16,
    },
}  # fmt: skip
"""Sizes that only fit together in one way, by model type."""


def text_classes() -> list[str]:
    """Return the language models of the auto classes whose config has no part for images or sound."""
    found = set()
    for mapping in MAPPINGS:
        for names in mapping.values():
            found.update((names,) if isinstance(names, str) else names)
    return sorted(name for name in found if not _reads_more_than_text(getattr(transformers, name).config_class))


def _reads_more_than_text(config_class: Any) -> bool:
    return any(part in name for name in config_class.sub_configs for part in NO_TEXT)


def shrink(config: Any) -> dict[str, Any]:
    """Return arguments of the config's class: small sizes in place of those of the published model."""
    given: dict[str, Any] = {}
    for name in {*vars(config), *config.attribute_map}:
        value = vars(config).get(name)
        if isinstance(getattr(type(config), name, None), property):
            continue
        if name in config.sub_configs:
            given[name] = shrink(value) if value is not None else None
        elif name in config.attribute_map:
            continue
        elif name in SIZES and isinstance(value, int) and not isinstance(value, bool) and value > 0:
            given[name] = min(value, SIZES[name])
        elif name in SIZES and isinstance(value, list) and value:
            given[name] = SIZES[name]
        elif ("dropout" in name or "pdrop" in name or name == "layerdrop") and isinstance(value, float):
            given[name] = 0.0
        elif name.endswith("token_id") and isinstance(value, int | list):
            given[name] = {"pad_token_id": 0, "bos_token_id": 1, "decoder_start_token_id": 1}.get(name, 2)
        elif "vocab_size" in name and isinstance(value, int):
            given[name] = VOCABULARY
        elif value is None and name in ("head_dim", "num_key_value_heads", "moe_topk"):
            given[name] = SIZES[name]
    types = list(dict.fromkeys(getattr(config, "layer_types", None) or ()))
    has_layer_types = "layer_types" in vars(config) and "layer_types" not in config.attribute_map
    if types and has_layer_types and not isinstance(getattr(type(config), "layer_types", None), property):
        given["layer_types"] = types if len(types) > 1 else types * 2
        for name in ("num_hidden_layers", "n_layer", "num_layers"):
            if name in given:
                given[name] = len(given["layer_types"])
    heads = vars(config).get("num_attention_heads", 0)
    if vars(config).get("num_key_value_heads") == heads:
        given["num_key_value_heads"] = given.get("num_attention_heads", heads)
    return given


def build(name: str, implementation: str = "eager", **changes: Any) -> Any:
    """Return a small random model of a class in evaluation mode, the same one for each implementation."""
    cls = getattr(transformers, name)
    config_class = cls.config_class
    config = config_class(**{**shrink(config_class()), **OVERRIDES.get(config_class.model_type, {}), **changes})
    if name.endswith(("LMHeadModel", "ForCausalLM", "Decoder")) and hasattr(config, "is_decoder"):
        config.is_decoder = True
    torch.manual_seed(0)
    model = cls._from_config(config, attn_implementation=implementation).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2 and parameter.numel():  # with small numbers every softmax is nearly uniform
                parameter.normal_(0, parameter[0].numel() ** -0.5, generator=generator)
    return model
