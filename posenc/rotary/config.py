"""Rotary frequencies from a checkpoint's config.json, in the formats of transformers 4 and 5."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from .._core_api import read
from .._core_api.door import door, fail, fail_value, shown
from .models import FULL, MODELS, OTHERS, ROTATES_IF, ROTATES_LAST, SLIDING, Model
from .scaling import LENGTHS, Keys, RopeFrequencies, scaled_frequencies

Config: TypeAlias = Keys
"""The content of a config.json, or a part of it."""
ALIASES = {"su": "longrope", "mrope": "default", "deepseek_yarn": "yarn"}
"""Other names of types."""
LENGTH_TYPES = ("dynamic", "ntk_by_parts", "yarn", "longrope", "llama3")
"""Types that read the length of training, which configs also store outside the rope part."""
OTHER_ARGUMENTS = ("mrope_section", "mrope_interleaved", "llama_4_scaling_beta")
"""Arguments of `mrope_frequencies` and of `floor_log_scale`, which do not change frequencies."""
TEXT_PARTS = ("text_config", "thinker_config", "llm_config", "language_config")
"""Names of the part for text in configs of models that read images or sound, too."""
BASES = ("rope_theta", "rotary_emb_base", "global_rope_theta")
SLIDING_BASES = ("rope_local_base_freq", "local_rope_theta", "swa_rope_theta")
PARTS = ("partial_rotary_factor", "rotary_pct", "rotary_emb_fraction", "partial_rotary_factors")
BY_LAYER = ("layer_rope_theta", "rope_scaling_layers", "compress_rope_theta")
"""Bases by the layer's index, the indices of the scaled layers, and the second base of DeepSeek-V4."""
HIDDEN = ("hidden_size", "n_embd", "d_model")
HEADS = ("num_attention_heads", "n_head", "n_heads", "decoder_num_attention_heads")
KNOWN = (
    *BASES, *SLIDING_BASES, *PARTS, *BY_LAYER, "rope_parameters", "rope_scaling", "rotary_dim", "rope_interleave",
    "rotary_emb_interleaved", "rotary_value", "yarn_only_types",
)  # fmt: skip
ROPE_PART = re.compile(r"rope_|rotary_|rotery_|partial_rotary|.*(ntk|yarn|_rope_theta|rope_scal)")
"""Names that change a rotation. A name that matches and is not in KNOWN is refused, because its effect is unknown."""
ROTATED_LAYERS = ("no_rope_layers", "use_rope_layers")
"""Lists with a number for each layer, which is 1 or True if the layer rotates."""
USES_ROPE = re.compile(r"(use_)?(rope|rotary)(_\w*emb(edding)?s?)?")
"""Names that are False if no layer rotates."""
EXPECTED_ROTATION = "a model that rotates q and k: this one has, or may have, layers without positions (NoPE)"


class LayerType(NamedTuple):
    """The part of a config that describes the layers of one type."""

    config: Config
    model: Model
    rope: Config
    """The layer's rope_parameters or rope_scaling, without nulls."""
    nested: bool
    """True if `rope` was stored by layer type, so that keys outside it belong to other layers."""
    layer_type: str | None
    is_part: bool
    """The config is a part of a larger one."""

    def number(self, names: Iterable[str], key: str) -> float | None:
        """Return the number stored as `key` in `rope` or under one of `names` in the config, or None.

        An integer stays an integer, because its powers are exact.
        """
        inside = {f"{key} inside": self.rope[key]} if key in self.rope else {}
        stored = inside if self.nested and inside else {**inside, **present(self.config, names)}
        stored = {name: _one_of(self, name.split()[0], value) for name, value in stored.items()}
        values = [read.number(name.split()[0], value) for name, value in stored.items()]
        if len(set(values)) > 1:
            fail(ValueError, key, " and ".join(f"{k} {v}" for k, v in stored.items()), "one value")
        return next(iter(stored.values()), None)


def present(config: Config, names: Iterable[str]) -> Config:
    """Return the keys among `names` that the config has and that are not null."""
    return {name: config[name] for name in names if config.get(name) is not None}


class Rotation(NamedTuple):
    """The rotation of the layers of one type, as a config states it."""

    frequencies: RopeFrequencies
    base: float
    rope_type: str
    layer: LayerType


class HasDict(Protocol):
    """An object with a method that returns its config as a dict, such as the configs of transformers."""

    def to_dict(self) -> dict[str, object]: ...


def _read_config(config: Config | str | os.PathLike[str] | HasDict) -> Config:
    """Return a config that is a dict, an object with to_dict(), the path of a config.json, or its text."""
    expected = "a dict, the path of a config.json or its text, or an object with to_dict()"
    content: object = config
    if isinstance(config, str | os.PathLike):
        content = _read_json(os.fspath(config), expected)
    elif not isinstance(config, Mapping | type) and hasattr(config, "to_dict"):
        content = config.to_dict()
    if not isinstance(content, Mapping):
        fail(TypeError, "config", f"type {type(content).__name__}", expected)
    return content


def _read_json(text: str, expected: str) -> object:
    """Return the content of a config.json, from its path or its text."""
    is_text = text.lstrip().startswith("{")
    if not (is_text or os.path.isfile(text)):
        hub = ", such as transformers.AutoConfig.from_pretrained(name): posenc downloads nothing"
        raise FileNotFoundError(f": config is {text!r}, which is no file; expected {expected}{hub}")
    try:
        return json.loads(text if is_text else Path(text).read_bytes())
    except ValueError as error:
        has = f"no JSON at {'its text' if is_text else repr(text)}: {error}"
        fail(ValueError, "config", has, "the path of a config.json, or its text")


def _text_part(config: Config) -> Config:
    """Return the part for text of a config, or the config itself."""
    config = _named_text_part(config)
    has_rotation = present(config, (*BASES, "rope_parameters", "rope_scaling"))
    model_type = config.get("model_type")
    if has_rotation or (isinstance(model_type, str) and model_type in {*MODELS, *OTHERS}):
        return config
    inner = {name: part for name, part in config.items() if isinstance(part, Mapping)}
    for known in (MODELS, OTHERS):
        parts = [name for name, part in inner.items() if model_type_of(_named_text_part(part)) in known]
        if len(parts) > 1:
            each = ", ".join(f"config[{name!r}]" for name in parts)
            fail(ValueError, "config", f"{len(parts)} parts with positions of their own", f"one of {each}")
        if parts:
            return _text_part(config[parts[0]])
    return config


def _named_text_part(config: Config) -> Config:
    """Return the part of a config with one of the names of the part for text, or the config itself.

    A part that does not name its model_type has that of the whole with `_text`.
    """
    for name in TEXT_PARTS:
        part = config.get(name)
        if isinstance(part, Mapping) and part:
            return _named_text_part({"model_type": f"{config.get('model_type')}_text", **part})
    return config


def model_type_of(config: object) -> str | None:
    """Return the model_type of a config. A model_type that is known only for its part for text is that part's."""
    name = config.get("model_type") if isinstance(config, Mapping) else None
    if not isinstance(name, str):
        return None
    return f"{name}_text" if name not in {*MODELS, *OTHERS} and f"{name}_text" in MODELS else name


def _check(config: Config) -> None:
    """Refuse models that rotate no queries and keys by their positions, and unknown keys of the rope part."""
    name = model_type_of(config)
    if name in OTHERS:
        expected = f"a model that rotates q and k by their positions; this one {OTHERS[name]}"
        fail_value(ValueError, "model_type", name, expected)
    if name in ROTATES_IF:
        key, needed, default = ROTATES_IF[name]
        if config.get(key, default) != needed:
            fail_value(ValueError, key, config.get(key, default), f"{needed!r}: {name} rotates only with it")
    for key, value in config.items():
        if not isinstance(key, str):
            fail(TypeError, "config", f"a key of type {type(key).__name__}", "strings")
        if _says_nope(config, key, value):
            fail_value(ValueError, key, value, EXPECTED_ROTATION)
        if value is not None and key not in KNOWN and ROPE_PART.match(key):
            fail(TypeError, "config", repr(key), "only known keys of the rope part: " + ", ".join(KNOWN))


def _says_nope(config: Config, key: str, value: object) -> bool:
    """Return whether a key says that no layer rotates, or may say so. `no_rope_layers` with a 1 is not read."""
    if key in ROTATED_LAYERS:
        return bool(rotated := listed(config, key)) and not any(rotated)
    if key == "no_rope_layer_interval":
        return value == 1 and not config.get("no_rope_layers")
    if "nope" in key.lower():  # qk_nope_head_dim is a width
        is_neutral = value is None or key.endswith("qk_nope_head_dim") or (key.endswith("use_nope") and value is False)
        return not is_neutral
    return (isinstance(value, str) and value.lower() == "nope") or (value is False and bool(USES_ROPE.fullmatch(key)))


def rope_part(config: Config) -> tuple[str, Config]:
    """Return the name and the value of rope_parameters or rope_scaling."""
    parts = present(config, ("rope_parameters", "rope_scaling"))
    for name, value in parts.items():
        if not isinstance(value, Mapping):
            fail(TypeError, name, f"type {type(value).__name__}", "a dict")
    parts = {name: value for name, value in parts.items() if value}
    if len(parts) == 2 and parts["rope_parameters"] != parts["rope_scaling"]:
        fail(ValueError, "config", "rope_parameters and rope_scaling that differ", "one of them")
    return next(iter(parts.items()), ("rope_parameters", {}))


def listed(config: Config, key: str) -> list[object]:
    """Return the list that a config stores as `key`, or an empty one."""
    values = config.get(key)
    return list(values) if isinstance(values, list | tuple) else []


def by_layer_type(config: Config, model: Model, rope: Config) -> tuple[Config | None, bool]:
    """Return the rope part of each layer type, or None if all layers share one, and whether it was stored by type."""
    if any(isinstance(value, Mapping) for value in rope.values()):
        mixed = [key for key, value in rope.items() if not (value is None or isinstance(value, Mapping))]
        if mixed:
            fail(TypeError, "config", f"{mixed[0]!r} beside layer types", "parameters inside each layer type")
        return dict(rope), True
    if config.get("compress_rope_theta") is not None:  # DeepSeek-V4: layers that compress keys, and all others
        factor = {"attention_factor": 1.0} if _rope_type(rope) == "yarn" else {}
        compress = {**factor, **rope, "rope_theta": config["compress_rope_theta"]}
        return {"main": {}, "compress": compress}, True
    if config.get("rope_scaling_layers") is not None and _rope_type(rope) != "default":
        return {"scaled": rope, "unscaled": present(rope, ["rope_theta"])}, False  # Molmo 2
    types, has_two_bases = config.get("yarn_only_types"), _has_two_bases(config, model)
    if not (types is None or isinstance(types, list | tuple)):
        fail(TypeError, "yarn_only_types", f"type {type(types).__name__}", "a list of layer types")
    scaled = model.scaled or types or ([FULL] if has_two_bases else [])
    if scaled:
        unscaled = present(rope, PARTS[:1] if has_two_bases else (*PARTS[:1], "rope_theta"))
        return {layer_type: rope if layer_type in scaled else unscaled for layer_type in (FULL, SLIDING)}, False
    return None, False


def _has_two_bases(config: Config, model: Model) -> bool:
    """Return whether sliding layers have a base with a name of its own."""
    return model.sliding_base is not None or bool(present(config, SLIDING_BASES))


def read_layer(config: Config, layer_type: str | None, is_part: bool) -> LayerType:
    """Return the part of a config about the layers of one type. `read_part` has accepted the config."""
    model_type = model_type_of(config)
    model = MODELS.get(model_type or "", Model())
    name, rope = rope_part(config)
    by_type, nested = by_layer_type(config, model, rope)
    if by_type is None:
        if layer_type is not None and layer_type not in listed(config, "layer_types"):
            fail_value(ValueError, "layer_type", layer_type, "None, because all layers have one rotation")
    else:
        if layer_type is None or layer_type not in by_type:
            fail_value(ValueError, "layer_type", layer_type, "one of " + ", ".join(map(shown, by_type)))
        rope = by_type[layer_type]
        if rope is None:
            fail_value(ValueError, "layer_type", layer_type, "a type of layers with a rotation")
    if model.requires_scaling and not rope:
        expected = f"the scaling, which is not the same for all checkpoints of {model_type!r}"
        fail(ValueError, name, "no value", expected)
    return LayerType(config, model, present(rope, rope), nested, layer_type, is_part)


def _rope_type(rope: Config) -> str:
    """Return `rope_type`, or `type`, its old name; if both are there, they must agree."""
    names = present(rope, ("rope_type", "type"))
    for name, value in names.items():
        if not isinstance(value, str):
            fail(TypeError, name, f"type {type(value).__name__}", "a string")
    types = {ALIASES.get(value) or str(value) for value in names.values()}
    if len(types) > 1:
        fail(ValueError, "rope_type", " and ".join(map(repr, names.values())), "one type")
    rope_type = next(iter(types), "default")
    if rope_type == "axial":
        expected = "a rotation by one position; rope_nd rotates by rows and columns of patches"
        fail_value(ValueError, "rope_type", rope_type, expected)
    if rope_type == "yarn" and "short_factor" in rope:  # early configs of Phi-3 call longrope yarn
        return "longrope"
    if not names and "factor" in rope:
        fail(ValueError, "rope_type", "no value", "the type of the scaling")
    return rope_type


def _one_of(layer: LayerType, name: str, values: object) -> object:
    """Return the value of the layers of the type from a list by the layer's index. Return any other value itself."""
    if not isinstance(values, list | tuple):
        return values
    types = listed(layer.config, "layer_types") if layer.layer_type is not None else [None] * len(values)
    chosen = [value for value, layer_type in zip(values, types, strict=False) if layer_type == layer.layer_type]
    for value in chosen:
        read.number(name, value)
    rotated = sorted({*chosen} - {0})  # layers with base 0 have no rotation
    if len(rotated) != 1:
        has = f"values {', '.join(map(str, rotated))}" if rotated else "no value above 0"
        fail(ValueError, name, has, "one value: choose layers by layer_type")
    return rotated[0]


def _base(layer: LayerType) -> float:
    has_own = layer.layer_type == SLIDING and _has_two_bases(layer.config, layer.model)
    names, base = (SLIDING_BASES, layer.model.sliding_base) if has_own else (BASES, layer.model.base)
    by_index = layer.config.get("layer_rope_theta")
    if isinstance(by_index, list | tuple):
        base = read.number("layer_rope_theta", _one_of(layer, "layer_rope_theta", by_index))
    elif (stored := layer.number(names, "rope_theta")) is not None:
        base = stored
    if base is None:
        expected = f"the base, because model_type {layer.config.get('model_type')!r} has no known default"
        fail(ValueError, names[0], "no value", expected)
    if base <= 0:
        fail_value(ValueError, names[0], base, "a positive number")
    return base


def size(config: Config, *names: str) -> int | None:
    """Return the first of `names` that the config has, or None."""
    for name, value in present(config, names).items():
        return read.index(name, value, 1)
    return None


def _per_layer_head_dim(layer: LayerType) -> int | None:
    """Return the head width of the layer's type, or None.

    Layers of full attention have wider heads in Gemma 4, and transformers 5 stores the width by the layer's index.
    """
    overrides = layer.config.get("per_layer_config")
    if isinstance(overrides, Mapping) and layer.layer_type is not None:
        by_index = {str(i).lstrip("0") or "0": override for i, override in overrides.items()}
        types = listed(layer.config, "layer_types")
        chosen = [by_index.get(str(i)) for i, layer_type in enumerate(types) if layer_type == layer.layer_type]
        for override in chosen:
            if not (override is None or isinstance(override, Mapping)):
                fail(TypeError, "per_layer_config", f"type {type(override).__name__}", "a dict of each layer")
        widths = [size(override or {}, "head_dim") for override in chosen]
        if len(set(widths)) > 1:
            fail(ValueError, "per_layer_config", "several widths for one layer type", "one head_dim")
        return widths[0] if widths else None
    own = {FULL: "global_head_dim", SLIDING: "swa_head_dim"}.get(layer.layer_type or "")
    return size(layer.config, own) if own else None


def head_dim_of(layer: LayerType) -> int:
    config = layer.config
    # attention_head_dim is the name in Zamba 2, whose kv_channels is something else; kv_channels is the name in JetMoE.
    stored = size(config, "head_dim", "attention_head_dim", "kv_channels")
    if width := _per_layer_head_dim(layer) or stored or layer.model.head_dim:
        return width
    hidden, heads = size(config, *HIDDEN), size(config, *HEADS)
    if layer.is_part and layer.model.sizes is not None:
        hidden, heads = hidden or layer.model.sizes[0], heads or layer.model.sizes[1]
    if hidden is None or heads is None:
        missing = "hidden_size" if hidden is None else "num_attention_heads"
        fail(ValueError, "head_dim", f"no value, nor has {missing}", "the width of a head")
    if hidden % heads:
        fail_value(ValueError, "hidden_size", hidden, f"a multiple of num_attention_heads, {heads}")
    return hidden // heads


def _rotary_dim(layer: LayerType, rope_type: str) -> tuple[int, bool]:
    """Return the number of rotated channels, and whether they are known to be the first of a head."""
    config, model = layer.config, layer.model
    stored = layer.number(PARTS, "partial_rotary_factor")
    part = model.partial_rotary_factor if stored is None else stored
    if not 0 < part <= 1:
        fail_value(ValueError, "partial_rotary_factor", part, "a number above 0, at most 1")
    if model.rotary_dim and "rotary_dim" in config and config["rotary_dim"] is None:
        fail_value(ValueError, "rotary_dim", None, "a number, because transformers replaces null by the hidden size")
    rotary_dim = size(config, "rotary_dim") or model.rotary_dim
    own = ("swa_qk_rope_head_dim",) if layer.layer_type == SLIDING else ()
    qk_rope_head_dim = size(config, *own, "qk_rope_head_dim") or model.qk_rope_head_dim
    if rope_type == "proportional":  # all channels are rotated, a part of them by frequency 0
        name, dim = "head_dim", qk_rope_head_dim or head_dim_of(layer)
    elif rotary_dim is not None:
        name, dim = "rotary_dim", rotary_dim
        if model.ignores_rotary_dim and stored is None:
            expected = "partial_rotary_factor beside it, which alone is read by transformers"
            fail_value(ValueError, name, dim, expected)
        if stored is not None and int(head_dim_of(layer) * part) != dim:
            fail_value(ValueError, name, dim, f"the width of partial_rotary_factor {stored}")
    elif qk_rope_head_dim is not None:
        name, dim = "qk_rope_head_dim", qk_rope_head_dim
        head_dim = size(config, "head_dim") or model.head_dim or dim
        if part != 1:
            dim = int(head_dim * part)
            if head_dim != qk_rope_head_dim != dim:
                expected = f"the width of head_dim {head_dim} and partial_rotary_factor {part}"
                fail_value(ValueError, name, qk_rope_head_dim, expected)
    else:
        name, dim = ("partial_rotary_factor" if part != 1 else "head_dim"), int(head_dim_of(layer) * part)
    value = part if name == "partial_rotary_factor" else dim
    if dim < 2 or dim % 2:
        fail_value(ValueError, name, value, f"an even number of rotated channels, not {dim}")
    if dim > read.MOST_CHANNELS:
        fail_value(ValueError, name, value, f"at most {read.MOST_CHANNELS} rotated channels, not {dim}")
    return dim, qk_rope_head_dim is None and model_type_of(config) not in ROTATES_LAST


@door
def rope_from_config(
    config: Config | str | os.PathLike[str] | HasDict, *, seq_len: int | None = None, layer_type: str | None = None
) -> RopeFrequencies:
    """Return the rotary frequencies of a checkpoint from its config.json.

    `rope_frequencies` with the keys of the config.

    Parameters
    ----------
    config : dict, path, str or object with to_dict()
        The content of a config.json, its path or its text, or a config of transformers, in the format of transformers
        4 (``rope_theta``, ``rope_scaling``) or 5 (``rope_parameters``, for all layers or nested by layer type). In
        configs of models that also read images or sound, the part for text counts (``text_config``). A string that
        begins with ``{`` is text, any other string a path.
    seq_len : int, optional
        Length of the sequence, which only the types dynamic and longrope read. None means a length within the
        trained length.
    layer_type : str, optional
        ``"full_attention"``, ``"sliding_attention"``, and so on. Required for models whose layers differ (Gemma 3,
        MiMo-V2, ModernBERT, OLMo 3).

    Returns
    -------
    RopeFrequencies
        With ``layout`` and ``rotary_dim``, the number of rotated channels, which `rope` takes for its own. The layout
        is None for an unknown model_type. The rotary_dim is None for latent attention (``qk_rope_head_dim``) and for
        DeepSeek-V4, where the rotated channels are not the first of a head. The frequencies of nanochat are negative,
        because it rotates backwards.

    Raises
    ------
    OSError
        A path that cannot be read, such as the name of a repository.
    TypeError
        A config of another type, an unknown key of the rope part, a value of the wrong kind.
    ValueError
        A model without a rotation (BERT, BLOOM, T5), whose encoding the message names; a key that says that layers
        have no positions (``use_nope``, or ``no_rope_layers`` without a 1); a file that is not JSON; a missing key or
        base, two values that contradict each other, an odd width, an unknown `layer_type` or type of scaling, or values
        that `rope_frequencies` refuses.

    Notes
    -----
    The width is the first that is there: ``rotary_dim``, ``qk_rope_head_dim``, or the part ``partial_rotary_factor``,
    ``rotary_pct`` or ``rotary_emb_fraction`` of ``head_dim``, which defaults to ``hidden_size`` over
    ``num_attention_heads``. If base, part or head width are missing, a known model_type supplies the default of
    transformers 5. The base is required for any other model_type. `layer_type` selects the base and the part
    (``partial_rotary_factors``) from lists by the layer's index. ``type`` is the old name of ``rope_type``, ``"su"`` of
    ``"longrope"``, ``"mrope"`` of ``"default"``, and ``"deepseek_yarn"`` a name of ``"yarn"``. ``"xdrope"`` with
    ``alpha`` is ``"ntk"`` with that factor. ``mrope_section`` and ``mrope_interleaved`` are arguments of
    `mrope_frequencies`, and ``llama_4_scaling_beta`` is the scale of `floor_log_scale`. A null counts as a missing key.
    Keys outside the rope part are not read, except keys about layers without positions.
    docs/guides/rotary-checkpoints.md lists the model types.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> llama = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "rope_theta": 500000.0}
    >>> llama["rope_scaling"] = {
    ...     "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    ...     "original_max_position_embeddings": 8192,
    ... }
    >>> w = posenc.rope_from_config(llama)
    >>> w
    <RopeFrequencies: 64 pairs, base 500000, llama3, factor 8, half>
    >>> posenc.rope(np.ones((32, 10, w.rotary_dim)), 10, w).shape  # w includes the layout
    (32, 10, 128)
    """
    part, is_part = read_part(config)
    if layer_type is not None and not isinstance(layer_type, str):
        fail(TypeError, "layer_type", f"type {type(layer_type).__name__}", "a string or None")
    return read_rotation(read_layer(part, layer_type, is_part), seq_len).frequencies


def read_part(config: Config | str | os.PathLike[str] | HasDict) -> tuple[Config, bool]:
    """Return the part of a config that describes the rotation, and whether it is a part of a larger one."""
    try:
        whole = _read_config(config)
        part = _text_part(whole)
    except RecursionError:
        fail(ValueError, "config", "more nested dicts than Python can read", "the text of a config.json")
    _check(part)
    return part, part is not whole


def read_rotation(layer: LayerType, seq_len: int | None = None) -> Rotation:
    """Return the rotation of the layers of one type."""
    part, rope_type = layer.config, _rope_type(layer.rope)
    keys = {
        key: value
        for key, value in layer.rope.items()
        if key not in ("rope_type", "type", "rope_theta", "partial_rotary_factor", *OTHER_ARGUMENTS)
    }
    if keys.get("alpha") and (rope_type == "xdrope" or (rope_type == "dynamic" and layer.model.reads_alpha)):
        rope_type, keys = "ntk", {"factor": keys["alpha"]}
    if rope_type in LENGTH_TYPES:
        # If the length of training is stored inside and outside the rope part, transformers reads the one outside.
        keys.update(present(part, LENGTHS[:1] if layer.nested else LENGTHS))
        keys.setdefault(LENGTHS[0], part.get("n_positions"))
        keys.setdefault(LENGTHS[1], layer.model.original_length)
    if rope_type == "proportional":
        keys["partial_rotary_factor"] = layer.number(PARTS, "partial_rotary_factor")
    (dim, is_first), base = _rotary_dim(layer, rope_type), _base(layer)
    w = scaled_frequencies(dim, base, rope_type, seq_len, keys, "config")
    inv_freq = -w.inv_freq if layer.model.is_backwards else w.inv_freq
    layout = layer.model.layout
    if part.get("rotary_emb_interleaved") is not None:
        layout = "interleaved" if read.flag("rotary_emb_interleaved", part["rotary_emb_interleaved"]) else "half"
    elif layout == "interleaved" and part.get("rope_interleave") is False:
        layout = "half"
    found = replace(w, inv_freq=inv_freq, layout=layout, rotary_dim=dim if is_first else None)
    return Rotation(found, base, rope_type, layer)
