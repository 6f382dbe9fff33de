"""The rotation of any model of transformers, by its class for cos and sin and its function that applies them.

`directories` lists the directories of models with rotary code, and `survey` compares one with `rope_from_config`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from transformers import PretrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, model_type_to_module_name
from transformers.models.auto.modeling_auto import MODEL_MAPPING, MODEL_MAPPING_NAMES

import posenc
from posenc.rotary.config import _text_part
from posenc.rotary.models import OTHERS

MODELS_OF_TRANSFORMERS = Path(transformers.__file__).parent / "models"
EMBEDDINGS = {
    "qwen2_5_omni_talker": "Qwen2_5OmniRotaryEmbedding", "qwen2_5_omni_text": "Qwen2_5OmniRotaryEmbedding",
    "qwen3_omni_moe_text": "Qwen3OmniMoeThinkerTextRotaryEmbedding",
    "qwen3_omni_moe_talker_code_predictor": "Qwen3OmniMoeRotaryEmbedding",
    "qwen3_omni_moe_talker_text": "Qwen3OmniMoeTalkerRotaryEmbedding",
    "t5gemma2_decoder": "T5Gemma2RotaryEmbedding", "voxtral_realtime_encoder": "VoxtralRealtimeRotaryEmbedding",
    "voxtral_realtime_text": "VoxtralRealtimeRotaryEmbedding",
    "nemotron3_5_transcribe_asr_audio": "Nemotron3_5TranscribeRotaryEmbedding",
    "nemotron3_5_transcribe_word_timestamp": "Nemotron3_5TranscribeRotaryEmbedding",
}  # fmt: skip
"""Classes for cos and sin in modules that have several, unless the type of their argument tells them apart."""
FUNCTIONS = {"dots3_note_audio_encoder": "apply_rotary_pos_emb"}
"""Functions that rotate in modules that have several, unless the config tells them apart."""
THREE_AXES = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [8, 12, 12], "partial_rotary_factor": 0.5}
LAYERS = {"rope_type": "default", "rope_theta": 50000.0, "mrope_section": [24, 20, 20]}
STATED: dict[str, dict[str, Any]] = {
    "cohere_compass_text": {"rope_parameters": {"full_attention": LAYERS, "sliding_attention": None}},
    "esm": {"position_embedding_type": "rotary"},
    "glm4_moe": {"head_dim": 128},
    "glm4v_moe_text": {"head_dim": 128},
    "glm4v_text": {"rope_parameters": THREE_AXES},
    "glm_image_text": {"rope_parameters": THREE_AXES},
    "granitemoehybrid": {"position_embedding_type": "rope"},
    "hunyuan_vl_text": {"rope_parameters": {"rope_theta": 10000.0, "mrope_section": [16, 16, 16, 16]}},
    "minimax_m3_vl_text": {"partial_rotary_factor": 0.5},
    "qwen3_omni_moe_text": {"head_dim": 128},
    "zamba2": {"use_mem_rope": True},
}
"""Keys that checkpoints state, where the defaults of the class have no rotation or one that cannot run."""


def modeling(config: Any) -> Any:
    """The module with the model of a config, which may be in another directory."""
    own = type(config).__module__.replace("configuration_", "modeling_")
    return import_module(own if find_spec(own) else MODEL_MAPPING[type(config)].__module__)


def config_of(config: dict[str, Any]) -> Any:
    """The configuration object of transformers for a config.json."""
    return CONFIG_MAPPING[config["model_type"]].from_dict(dict(config))


def embedding(config: Any) -> Any:
    """The module that computes cos and sin, without the model."""
    module = modeling(config)
    if config.model_type in EMBEDDINGS:
        return getattr(module, EMBEDDINGS[config.model_type])(config)
    found = [
        value
        for name, value in vars(module).items()
        if name.endswith("RotaryEmbedding") and value.__module__ == module.__name__
    ]
    own = [one for one in found if _argument(one) == type(config).__name__]
    found = own or [one for one in found if "VisionRotary" not in one.__name__]
    assert len(found) == 1, found
    return found[0](config)


def _argument(cls: type) -> str:
    """The type of the first argument of a class."""
    annotation = next(iter(inspect.signature(cls).parameters.values())).annotation
    return getattr(annotation, "__name__", str(annotation))


def inv_freq(config: Any, positions: np.ndarray, layer_type: str | None = None) -> tuple[np.ndarray, float]:
    """Frequencies and factor of the module after a call with these positions."""
    rotary, prefix = embedding(config), "" if layer_type is None else f"{layer_type}_"
    rotary(torch.zeros(1), torch.from_numpy(positions)[None], *([layer_type] if layer_type else []))
    return getattr(rotary, f"{prefix}inv_freq").double().numpy(), float(getattr(rotary, f"{prefix}attention_scaling"))


def rotate(config: Any, x: np.ndarray, positions: np.ndarray, layer_type: str | None = None) -> np.ndarray:
    """The rotated channels of x (B, H, N, r), in float32."""
    module, given = modeling(config), torch.from_numpy(x)
    if config.model_type == "roformer":  # a table [sin | cos]
        table = module.RoFormerSinusoidalPositionalEmbedding(int(positions.max()) + 1, x.shape[-1])
        rotate_both = module.RoFormerSelfAttention.apply_rotary_position_embeddings
        return rotate_both(table.create_weight()[torch.from_numpy(positions)], given, given)[0].numpy()
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
    if function is None or not getattr(config, "rope_interleave", True) or config.model_type in FUNCTIONS:
        function = module.apply_rotary_pos_emb
    if "q" in inspect.signature(function).parameters:
        return function(given, given, *made)[0].numpy()
    return function(given, *made).numpy()


# ---- every directory ----


class Row(NamedTuple):
    """The outcome of `rope_from_config` for the config of one class."""

    directory: str
    model_type: str
    outcome: str
    """agreed, refused or missing."""
    reason: str = ""
    """Why it is refused or missing."""
    share: float = 0.0
    """The largest difference of a rotated number, over the allowed one."""
    out_layout: str | None = None
    """The layout that the model writes."""


def directories() -> list[str]:
    """The directories of transformers with rotary code, and those whose models are in such a directory."""
    files = list(MODELS_OF_TRANSFORMERS.glob("*/modeling_*.py"))
    found = {path.parent.name for path in files if re.search("inv_freq|apply_rotary", path.read_text("utf-8"))}
    without = {path.parent.name for path in MODELS_OF_TRANSFORMERS.glob("*/configuration_*.py")}
    without -= {path.parent.name for path in files}
    for model_type in MODEL_MAPPING_NAMES:
        name = model_type_to_module_name(model_type)
        if name in without and MODEL_MAPPING[CONFIG_MAPPING[model_type]].__module__.split(".")[-2] in found:
            found.add(name)
    return sorted(found)


def configs(directory: str) -> Iterator[Any]:
    """A configuration object of every class of a directory that has a model_type."""
    for path in sorted((MODELS_OF_TRANSFORMERS / directory).glob("configuration_*.py")):
        module = import_module(f"transformers.models.{directory}.{path.stem}")
        for value in vars(module).values():
            is_class = inspect.isclass(value) and issubclass(value, PretrainedConfig)
            if is_class and value.__module__ == module.__name__ and value.model_type:
                yield value(**STATED.get(value.model_type, {}))


def written(config: Any) -> dict[str, Any]:
    """The config.json of a configuration object, in which parts state what checkpoints state."""
    found = config.to_dict()
    for name in config.sub_configs:
        part = getattr(config, name, None)
        if isinstance(part, PretrainedConfig):
            found[name] = written(type(part)(**STATED[part.model_type]) if part.model_type in STATED else part)
    return found


def layer_types(config: dict[str, Any]) -> list[str | None]:
    """The layer types of a config with a rotation of their own, or None for all layers together."""
    parameters = config.get("rope_parameters") or {}
    types = [name for name, value in parameters.items() if isinstance(value, dict)]
    used = [name for name in types if name in (config.get("layer_types") or types)]
    return list(used or types) or [None]


def known(w: posenc.RopeFrequencies) -> tuple[Any, ...]:
    """All but the frequencies."""
    return w.attention_factor, w.softmax_factor, w.layout, w.rotary_dim


def allowed(w: posenc.RopeFrequencies, where: np.ndarray, relative: float) -> np.ndarray:
    """The error (N, r/2) of float32 frequencies, angles, tables and sums of numbers below 6."""
    eps = 2.0**-24
    angle = np.abs(where[:, None] * w.inv_freq) * (relative + eps) + 4 * eps
    return 6 * max(w.attention_factor, 1.0) * angle


def share(config: Any, w: posenc.RopeFrequencies, layer_type: str | None, relative: float) -> tuple[float, str]:
    """The largest difference of rotated queries and keys from the model's, over the allowed one, and its layout."""
    assert w.layout is not None
    rng, where = np.random.default_rng(1), np.arange(32)
    bound, found = allowed(w, where, relative), []
    x = np.clip(rng.standard_normal((1, 6, 32, 2 * len(w))), -3, 3).astype(np.float32)
    theirs = [rotate(config, part, where, layer_type) for part in (x[:, :4], x[:, 4:])]  # q, k
    for out_layout in dict.fromkeys((w.layout, "half")):  # some models write interleaved pairs as halves
        ours = posenc.rope(x, where, w, out_layout=out_layout)
        by_channel = np.repeat(bound, 2, -1) if out_layout == "interleaved" else np.tile(bound, 2)
        found.append((float((np.abs(ours - np.concatenate(theirs, 1)) / by_channel).max()), out_layout))
    return min(found)


def survey(directory: str, relative: float) -> list[Row]:
    """Compare `rope_from_config` with every class of a directory, the classes of its model's parts included."""
    rows = []
    for config in configs(directory):
        found = written(config)
        try:
            text = _text_part(found)
            results = [(layer, posenc.rope_from_config(found, layer_type=layer)) for layer in layer_types(text)]
        except (TypeError, ValueError) as error:
            rows.append(Row(directory, config.model_type, "refused", re.sub("^rope_from_config: ", "", str(error))))
            continue
        if text is found:
            worst, out_layout = max(share(config, w, layer, relative) for layer, w in results)
            outcome = "agreed" if worst <= 1 else "missing"
            row = Row(directory, config.model_type, outcome, "", worst, out_layout)
        else:  # the part has a row of its own
            alone = [posenc.rope_from_config(text, layer_type=layer) for layer, _ in results]
            same = all(
                w.inv_freq.tobytes() == one.inv_freq.tobytes() and known(w) == known(one)
                for (_, w), one in zip(results, alone, strict=True)
            )
            row = Row(directory, config.model_type, "agreed" if same else "missing", f"as {text['model_type']}")
        rows.append(row)
    return rows


def of_directory(rows: list[Row]) -> Row:
    """The outcome of a directory: agreed if one class agrees and none differs, refused if all have a stated reason."""
    for kind in ("missing", "agreed"):
        for row in rows:
            if row.outcome == kind:
                return row
    named = [row for row in rows if row.model_type in OTHERS or "axial" in row.reason]
    return named[0] if named else rows[0]._replace(outcome="missing")
