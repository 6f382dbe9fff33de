"""Defaults of transformers for the rotary part of a config, by model_type; and models that have no such part.

bridges/tests/test_transformers_configs.py derives every row from the configuration classes of transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

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
    sizes: tuple[int, int] | None = None
    """hidden_size and num_attention_heads, which the part for text of a larger config may omit."""
    layout: Literal["half", "interleaved"] | None = None
    """None for an unknown model_type."""
    is_backwards: bool = False
    """The model rotates by minus the angle."""
    ignores_rotary_dim: bool = False
    """transformers reads partial_rotary_factor alone, although the config has rotary_dim."""
    reads_alpha: bool = False
    """A scaling of type "dynamic" with the key alpha means ntk with the factor alpha, at any length."""


_BASES = {
    1000.0: "nomic_bert",
    10000.0: "afmoe arcee aria_text axk1 axk2 bamba blt_patcher chameleon codegen cohere2 cohere2_moe dbrx "
    "deepseek_ocr2_encoder deepseek_ocr2_text deepseek_v2 deepseek_v3 deepseek_v32 dia_decoder dia_encoder "
    "diffllama doge dots1 dots3_note_audio_encoder esm esmc eurobert exaone4 exaone_moe falcon falcon_h1 "
    "flint gemma gemma2 glm glm4 glm4_moe glm4_moe_lite glm4v_moe_text glm4v_text glm_image_text glm_moe_dsa "
    "glm_ocr_text glmasr_encoder gpt_neox gpt_neox_japanese gptj gradium_phonon_tts granite "
    "granite4_vision_text granite_docling_text granite_swa granitemoe granitemoe_swa granitemoehybrid "
    "granitemoeshared hrm_text hunyuan_v1_dense hunyuan_v1_moe hunyuan_vl_text hy_v4 hyperclovax idefics "
    "jais2 jetmoe kolibri1 kyutai_speech_to_text lasr_encoder llama mimi mimi_decoder mimi_encoder minicpm3 "
    "ministral mistral mistral4 molmo2_text moonshine moonshine_streaming moshi muse_glimmer_text nanochat "
    "nemotron nemotron3_5_transcribe_asr_audio nemotron3_5_transcribe_word_timestamp "
    "nemotron3_diarization_audio neucodec olmo olmo2 olmoe persimmon phi phi3 phi4_multimodal pocket_tts "
    "pocket_tts_audio_tokenizer pocket_tts_audio_tokenizer_decoder pocket_tts_audio_tokenizer_encoder qwen2 "
    "qwen2_5_omni_dit qwen2_moe qwen3 qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next "
    "qwen3_omni_moe_talker_code_predictor qwen3_omni_moe_talker_text qwen4_exp_text recurrent_gemma seed_oss "
    "stablelm starcoder2 t5_gemma_module timesfm2_5 unlimited_ocr_text vaultgemma voxtral_realtime_encoder "
    "voxtral_realtime_text xcodec2 youtu zamba2",
    20000.0: "jina_embeddings_v3 pe_audio_encoder pe_audio_video_encoder pe_video_encoder",
    100000.0: "helium",
    150000.0: "gpt_oss openai_privacy_filter",
    160000.0: "gte modernbert modernbert-decoder",
    500000.0: "bitnet blt_global_transformer blt_local_decoder blt_local_encoder cohere csm csm_depth_decoder_model "
    "ernie4_5 ernie4_5_moe ernie4_5_vl_moe_text evolla flex_olmo higgs_audio_v2 llama4_text mllama_text_model "
    "muse_glimmer_assistant muse_spark_text olmo3 paddleocr_vl_text qwen3_vl_moe_text qwen3_vl_text",
    1000000.0: "cwm emu3_text_model gemma3_text gemma3n_text lfm2 lfm2_moe minimax ministral3 mixtral phimoe "
    "qwen2_5_omni_talker qwen2_5_omni_text qwen2_5_vl_text qwen2_vl_text qwen3_omni_moe_text solar_open",
    2000000.0: "smollm3",
    5000000.0: "minimax_m2 minimax_m3_vl_text",
    6000000.0: "bailing_hybrid",
    10000000.0: "longcat_flash",
    11158840.0: "hy_v3",
    12000000.0: "apertus",
    100000000.0: "cosmos3_edge_text",
}  # fmt: skip
_PARTIAL = {
    0.25: "gpt_neox qwen3_5_moe_text qwen3_5_text qwen3_next stablelm",
    0.5: "bamba dots3_note_audio_encoder glm glm4 glm4_moe glm4v_moe_text glmasr_encoder nemotron "
    "nemotron3_5_transcribe_asr_audio nemotron3_5_transcribe_word_timestamp persimmon phi recurrent_gemma",
    0.8: "moonshine_streaming",
    0.9: "moonshine",
}  # fmt: skip
_HEAD_DIM = {
    64: "gpt_oss muse_spark_text neomme neucodec openai_privacy_filter qwen2_5_omni_dit voxtral_realtime_encoder "
    "xcodec2",
    80: "timesfm2_5",
    128: "afmoe beam cohere2_moe cosmos3_edge_text cwm dia_decoder dia_encoder ernie4_5 flint glm glm4 helium "
    "higgs_audio_v2 hrm_text hy_v3 kolibri1 laguna lfm3 llama4_text mellum minimax_m2 minimax_m3_vl_text "
    "ministral3 molmo2_text muse_glimmer_assistant muse_glimmer_text paddleocr_vl_text pe_audio_encoder "
    "pe_audio_video_encoder pe_video_encoder qwen2_5_omni_talker qwen3 qwen3_omni_moe_talker_code_predictor "
    "qwen3_vl_text seed_oss solar_open step3p5 zaya",
    192: "mimo_v2_flash",
    256: "diffusion_gemma_text dots3_note_text embedding_gemma2_text gemma gemma2 gemma3_text gemma3n_text "
    "gemma4_text gemma4_unified_text qwen3_5_moe_text qwen3_5_text qwen3_next qwen4_exp_text t5_gemma_module "
    "t5gemma2_decoder t5gemma2_text vaultgemma",
    512: "deepseek_v4",
}  # fmt: skip
_ROTARY_DIM = {64: "gptj codegen"}
_QK_ROPE = {
    32: "axk2 minicpm3",
    64: "axk1 bailing_hybrid deepseek_v2 deepseek_v3 deepseek_v32 dots3_note_text glm4_moe_lite glm_moe_dsa hy_v4 "
    "longcat_flash mistral4 youtu",
}  # fmt: skip
_SLIDING_BASE = {10000.0: "gemma3_text gemma3n_text modernbert modernbert-decoder"}
_SCALED = {
    (FULL,): "gemma3_text gemma3n_text olmo3",
    (FULL, SLIDING): "modernbert modernbert-decoder",
}
_ORIGINAL_LENGTH = {4096: "phi3 phi4_multimodal"}
_REQUIRES_SCALING = {True: "apertus cwm gpt_oss higgs_audio_v2 ministral3 mistral4 openai_privacy_filter"}
_SIZES = {
    (512, 8): "lasr_encoder mimi nemotron3_diarization_audio",
    (768, 12): "blt_patcher modernbert",
    (1024, 8): "csm_depth_decoder_model",
    (1024, 16): "blt_local_decoder blt_local_encoder glm_ocr_text granite_docling_text qwen3_omni_moe_talker_text",
    (1280, 10): "nemotron3_5_transcribe_asr_audio unlimited_ocr_text",
    (1280, 16): "nemotron3_5_transcribe_word_timestamp",
    (1280, 20): "glmasr_encoder",
    (2048, 16): "blt_global_transformer qwen3_vl_moe_text",
    (2560, 20): "ernie4_5_vl_moe_text",
    (2560, 32): "lfm2",
    (2560, 40): "esmc",
    (3584, 28): "qwen2_5_omni_text",
    (4096, 32): "aria_text deepseek_ocr2_encoder deepseek_ocr2_text emu3_text_model exaone4 glm4v_text glm_image_text "
    "granite granite4_vision_text hunyuan_vl_text hyperclovax llama mistral mllama_text_model qwen2 ultrabert "
    "voxtral_realtime_text",
    (4096, 64): "persimmon",
    (8192, 64): "cohere2 qwen2_5_vl_text qwen2_vl_text",
}  # fmt: skip
_LAYOUT = {
    "interleaved": "axk1 axk2 bailing_hybrid blt_global_transformer blt_local_decoder blt_local_encoder blt_patcher "
    "codegen cohere cohere2 cohere2_moe deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 dots3_note_text ernie4_5 "
    "ernie4_5_moe ernie4_5_vl_moe_text glm glm4 glm4_moe_lite glm4v_text glm_moe_dsa glm_ocr_text gptj helium "
    "llama4_text longcat_flash mistral4 moonshine moonshine_streaming openai_privacy_filter pe_audio_encoder "
    "pe_audio_video_encoder pe_video_encoder youtu",
    "half": "beam cohere_compass_text diffusion_gemma_text embedding_gemma2_text gemma4_text gemma4_unified_text "
    "laguna lfm3 mellum mimo_v2_flash neomme olmo_hybrid step3p5 t5gemma2_decoder t5gemma2_text ultrabert "
    "zaya",
}  # fmt: skip
"""Models in neither list have the layout half. The second list has the models with this layout and no default base."""
_BACKWARDS = {True: "nanochat"}
_IGNORES_ROTARY_DIM = {True: "minimax_m3_vl_text"}
_READS_ALPHA = {True: "hunyuan_v1_dense hunyuan_v1_moe hunyuan_vl_text"}

ROTATES_IF = {
    "esm": ("position_embedding_type", "rotary", "absolute"),
    "falcon": ("alibi", False, False),
    "granitemoehybrid": ("position_embedding_type", "rope", None),
    "zamba2": ("use_mem_rope", True, False),
}
"""The key and the value with which a model rotates queries and keys, and the key's default."""

ROTATES_LAST = ("deepseek_v4",)
"""Models that rotate the last channels of a head."""

_OTHER_POSITIONS = {
    "adds a bias that is linear in the distance (alibi)": "bloom mpt",
    "adds a learned bias for buckets of distances (t5)": "cpmant longt5 mpnet mt5 pix2struct_text_model pop2piano "
    "switch_transformers t5 udop umt5",
    "adds a learned vector for each position to the words (learned)": "albert bart bert bert-generation big_bird "
    "bigbird_pegasus biogpt blenderbot blenderbot-small camembert clip clip_text_model clvp_decoder convbert "
    "data2vec-text distilbert electra ernie flaubert fnet git gpt-sw3 gpt2 gpt_bigcode gpt_neo layoutlm led longformer "
    "luke mbart megatron-bert mobilebert mra mvp nystromformer openai-gpt opt plbart prophetnet reformer rembert "
    "roberta roberta-prelayernorm roc_bert squeezebert tapas whisper xlm xlm-roberta xlm-roberta-xl xmod yoso",
    "adds sinusoids of the position to the words (sinusoidal)": "ctrl fsmt m2m_100 marian musicgen musicgen_decoder "
    "musicgen_melody nllb-moe pegasus pegasus_x speech_to_text xglm videoprism videoprism_text_model",
    "attends to words and to distances apart (deberta)": "deberta deberta-v2 sew-d",
    "attends to sinusoids of the distance (transformer_xl)": "funnel nemotron_asr_streaming_encoder parakeet_encoder "
    "transfo-xl xlnet",
    "learns the order by a recurrence": "falcon_mamba glm5_next_text jamba mamba mamba2 nemotron_h rwkv xlstm zamba",
    "adds a bias for distances that is weighted by the words": "inkling2_text inkling_text",
    "rotates by rows and columns of patches (rope_2d, rope_nd)": "dinov3_vit edgetam_video efficientloftr eomt_dinov3 "
    "llama4_vision_model mlcd_vision_model pixtral sam2_video sam3 sam3_tracker_video sam3_vit_model sapiens2 vjepa2",
    "rotates by the coordinates of atoms (rope_nd)": "esmfold2",
    "adds a bias for the corners of boxes": "bros pp_doclayout_v2",
    "rotates v as well": "clvp clvp_encoder",
    "rotates hidden states before their projection to q and k": "seamless_m4t wav2vec2-bert wav2vec2-conformer",
    "has a rotation for each of its parts, of which one is expected": "blt",
    "multiplies each frequency by a factor that is a weight": "mistral_large4_text",
}  # fmt: skip


def _models() -> dict[str, Model]:
    found: dict[str, Model] = {}
    columns: tuple[tuple[str, Mapping[Any, str]], ...] = (
        ("base", _BASES), ("partial_rotary_factor", _PARTIAL), ("head_dim", _HEAD_DIM), ("rotary_dim", _ROTARY_DIM),
        ("qk_rope_head_dim", _QK_ROPE), ("sliding_base", _SLIDING_BASE), ("scaled", _SCALED),
        ("original_length", _ORIGINAL_LENGTH), ("requires_scaling", _REQUIRES_SCALING), ("sizes", _SIZES),
        ("layout", _LAYOUT), ("is_backwards", _BACKWARDS), ("ignores_rotary_dim", _IGNORES_ROTARY_DIM),
        ("reads_alpha", _READS_ALPHA),
    )  # fmt: skip
    for column, names_of in columns:
        for value, names in names_of.items():
            for name in names.split():
                found[name] = found.get(name, Model(layout="half"))._replace(**{column: value})
    return found


MODELS = _models()
OTHERS = {name: what for what, names in _OTHER_POSITIONS.items() for name in names.split()}
"""Models that rotate no queries and keys by one position for each word, and the encoding that they have instead."""
