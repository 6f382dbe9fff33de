"""Rotary frequencies from a checkpoint's config.json, in the formats of transformers 4 and 5."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .._core_api.arguments import as_index, as_number, fail, fail_value
from ._models import FULL, MODELS, SLIDING, Model
from .scaling import LENGTHS, RopeFrequencies, scaled_frequencies

__all__ = ["rope_from_config"]

FUNCTION = "rope_from_config"
ALIASES = {"su": "longrope", "mrope": "default"}
"""Old names of types."""
LENGTH_TYPES = ("dynamic", "ntk_by_parts", "yarn", "longrope", "llama3")
"""Types that read the length of training, which configs also store outside the rope part."""
SECTIONS = ("mrope_section", "mrope_interleaved")
"""Arguments of `mrope`, which do not change frequencies."""
BASES = ("rope_theta", "rotary_emb_base", "global_rope_theta")
SLIDING_BASES = ("rope_local_base_freq", "local_rope_theta")
PARTS = ("partial_rotary_factor", "rotary_pct")
KNOWN = (*BASES, *SLIDING_BASES, *PARTS, "rope_parameters", "rope_scaling", "rotary_dim", "rope_interleave")
ROPE_PART = re.compile(r"rope_|rotary_|rotery_|partial_rotary|.*(ntk|yarn|_rope_theta|rope_scal)")
"""Names that change a rotation. A name that matches and is not in KNOWN is refused, because its effect is unknown."""


class _Layer(NamedTuple):
    """The part of a config that describes the layers of one type."""

    config: Mapping[str, Any]
    model: Model
    rope: Mapping[str, Any]
    """The layer's rope_parameters or rope_scaling, without nulls."""
    nested: bool
    """True if `rope` was stored by layer type, so that keys outside it belong to other layers."""
    layer_type: str | None

    def number(self, names: Iterable[str], key: str) -> float | None:
        """Return the number stored as `key` in `rope` or under one of `names` in the config, or None.

        An integer stays an integer, because its powers are exact.
        """
        found = {} if self.nested and key in self.rope else _present(self.config, names)
        if key in self.rope:
            found = {f"{key} inside": self.rope[key], **found}
        values = [as_number(FUNCTION, name.split()[0], value) for name, value in found.items()]
        if len(set(values)) > 1:
            fail(ValueError, FUNCTION, key, " and ".join(f"{k} {v}" for k, v in found.items()), "one value")
        return next(iter(found.values()), None)


def _present(config: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the keys among `names` that the config has and that are not null."""
    return {name: config[name] for name in names if config.get(name) is not None}


def _check_names(config: Mapping[str, Any]) -> None:
    for key, value in config.items():
        if not isinstance(key, str):
            fail(TypeError, FUNCTION, "config", f"a key of type {type(key).__name__}", "strings")
        if value is not None and key not in KNOWN and ROPE_PART.match(key):
            fail(TypeError, FUNCTION, "config", repr(key), "only known keys of the rope part: " + ", ".join(KNOWN))


def _rope_part(config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the name and the value of rope_parameters or rope_scaling."""
    parts = _present(config, ("rope_parameters", "rope_scaling"))
    for name, value in parts.items():
        if not isinstance(value, Mapping):
            fail(TypeError, FUNCTION, name, f"type {type(value).__name__}", "a dict")
    parts = {name: value for name, value in parts.items() if value}
    if len(parts) == 2 and parts["rope_parameters"] != parts["rope_scaling"]:
        fail(ValueError, FUNCTION, "config", "rope_parameters and rope_scaling that differ", "one of them")
    return next(iter(parts.items()), ("rope_parameters", {}))


def _types_of_layers(config: Mapping[str, Any]) -> list[Any]:
    types = config.get("layer_types")
    return list(types) if isinstance(types, list | tuple) else []


def _by_layer_type(
    config: Mapping[str, Any], model: Model, rope: Mapping[str, Any]
) -> tuple[dict[str, Any] | None, bool]:
    """Return the rope part of each layer type, or None if all layers share one, and whether it was stored by type."""
    if any(isinstance(value, Mapping) for value in rope.values()):
        mixed = [key for key, value in rope.items() if not (value is None or isinstance(value, Mapping))]
        if mixed:
            fail(TypeError, FUNCTION, "config", f"{mixed[0]!r} beside layer types", "parameters inside each layer type")
        return dict(rope), True
    scaled = model.scaled or ((FULL,) if _present(config, SLIDING_BASES) else ())
    if scaled:
        return {layer_type: rope if layer_type in scaled else {} for layer_type in (FULL, SLIDING)}, False
    return None, False


def _read_layer(config: Mapping[str, Any], layer_type: str | None) -> _Layer:
    model_type = config.get("model_type")
    model = MODELS.get(model_type, Model()) if isinstance(model_type, str) else Model()
    name, rope = _rope_part(config)
    by_type, nested = _by_layer_type(config, model, rope)
    if by_type is None:
        if layer_type is not None and layer_type not in _types_of_layers(config):
            fail_value(ValueError, FUNCTION, "layer_type", layer_type, "None, because all layers have one rotation")
    else:
        if layer_type not in by_type:
            fail_value(ValueError, FUNCTION, "layer_type", layer_type, "one of " + ", ".join(map(repr, by_type)))
        rope = by_type[layer_type]
        if rope is None:
            fail_value(ValueError, FUNCTION, "layer_type", layer_type, "layers that have a rotation; these have none")
    if model.requires_scaling and not rope:
        expected = f"the scaling, which is not the same for all checkpoints of {model_type!r}"
        fail(ValueError, FUNCTION, name, "no value", expected)
    return _Layer(config, model, _present(rope, rope), nested, layer_type)


def _rope_type(rope: Mapping[str, Any]) -> str:
    """Return `rope_type`, or `type`, its old name; if both are there, they must agree."""
    names = _present(rope, ("rope_type", "type"))
    found: set[str] = set()
    for name, value in names.items():
        if not isinstance(value, str):
            fail(TypeError, FUNCTION, name, f"type {type(value).__name__}", "a string")
        found.add(ALIASES.get(value, value))
    if len(found) > 1:
        fail(ValueError, FUNCTION, "rope_type", " and ".join(map(repr, names.values())), "one type")
    rope_type = next(iter(found), "default")
    if rope_type == "yarn" and "short_factor" in rope:  # early configs of Phi-3 call longrope yarn
        return "longrope"
    if not names and "factor" in rope:
        fail(ValueError, FUNCTION, "rope_type", "no value", "the type of the scaling")
    return rope_type


def _base(layer: _Layer) -> float:
    has_two_bases = layer.model.sliding_base is not None or _present(layer.config, SLIDING_BASES)
    sliding = bool(has_two_bases) and layer.layer_type == SLIDING
    names = SLIDING_BASES if sliding else BASES
    base = layer.number(names, "rope_theta")
    if base is None:
        base = layer.model.sliding_base if sliding else layer.model.base
    if base is None:
        has = f"no value, and model_type {layer.config.get('model_type')!r} no known default"
        inside = "config['text_config'], where the rope part is, or " if "text_config" in layer.config else ""
        fail(ValueError, FUNCTION, names[0], has, inside + "the base")
    if base <= 0:
        fail_value(ValueError, FUNCTION, names[0], base, "a positive number")
    return base


def _size(config: Mapping[str, Any], *names: str) -> int | None:
    """Return the first of `names` that the config has, or None."""
    for name, value in _present(config, names).items():
        return as_index(FUNCTION, name, value, 1)
    return None


def _per_layer_head_dim(layer: _Layer) -> int | None:
    """Return the head width of the layer's type, or None.

    Layers of full attention have wider heads in Gemma 4, and transformers 5 stores the width by the layer's index.
    """
    overrides = layer.config.get("per_layer_config")
    if isinstance(overrides, Mapping) and layer.layer_type is not None:
        by_index = {str(i).lstrip("0") or "0": override for i, override in overrides.items()}
        indices = [i for i, layer_type in enumerate(_types_of_layers(layer.config)) if layer_type == layer.layer_type]
        widths = [_size(by_index.get(str(i)) or {}, "head_dim") for i in indices]
        if len(set(widths)) > 1:
            fail(ValueError, FUNCTION, "per_layer_config", "several widths for one layer type", "one head_dim")
        return widths[0] if widths else None
    return _size(layer.config, "global_head_dim") if layer.layer_type == FULL else None


def _head_dim(layer: _Layer) -> int:
    config = layer.config
    # attention_head_dim is the name in Zamba 2, whose kv_channels is something else; kv_channels is the name in JetMoE.
    own = _size(config, "head_dim", "attention_head_dim", "kv_channels")
    width = _per_layer_head_dim(layer) or own or layer.model.head_dim
    if width is not None:
        return width
    hidden, heads = _size(config, "hidden_size", "n_embd"), _size(config, "num_attention_heads", "n_head")
    if hidden is None or heads is None:
        missing = "hidden_size" if hidden is None else "num_attention_heads"
        fail(ValueError, FUNCTION, "head_dim", f"no value, nor has {missing}", "the width of a head")
    if hidden % heads:
        fail_value(ValueError, FUNCTION, "hidden_size", hidden, f"a multiple of num_attention_heads, {heads}")
    return hidden // heads


def _rotary_dim(layer: _Layer, rope_type: str) -> int:
    """Return the number of rotated channels."""
    config, model = layer.config, layer.model
    stored = layer.number(PARTS, "partial_rotary_factor")
    part = model.partial_rotary_factor if stored is None else stored
    if not 0 < part <= 1:
        fail_value(ValueError, FUNCTION, "partial_rotary_factor", part, "a number above 0, at most 1")
    if model.rotary_dim and "rotary_dim" in config and config["rotary_dim"] is None:
        fail_value(ValueError, FUNCTION, "rotary_dim", None, "a width: transformers takes the hidden size for null")
    rotary_dim = _size(config, "rotary_dim") or model.rotary_dim
    qk_rope_head_dim = _size(config, "qk_rope_head_dim") or model.qk_rope_head_dim
    if rope_type == "proportional":  # all channels are rotated, a part of them by frequency 0
        name, dim = "head_dim", qk_rope_head_dim or _head_dim(layer)
    elif rotary_dim is not None:
        name, dim = "rotary_dim", rotary_dim
        if stored is not None and int(_head_dim(layer) * part) != dim:
            fail_value(ValueError, FUNCTION, name, dim, f"the width of partial_rotary_factor {stored}")
    elif qk_rope_head_dim is not None:
        name, dim = "qk_rope_head_dim", qk_rope_head_dim
        head_dim = _size(config, "head_dim") or dim
        if part != 1:
            dim = int(head_dim * part)
            if head_dim != qk_rope_head_dim != dim:
                expected = f"the width of head_dim {head_dim} and partial_rotary_factor {part}"
                fail_value(ValueError, FUNCTION, name, qk_rope_head_dim, expected)
    else:
        name, dim = ("partial_rotary_factor" if part != 1 else "head_dim"), int(_head_dim(layer) * part)
    if dim < 2 or dim % 2:
        value = part if name == "partial_rotary_factor" else dim
        fail_value(ValueError, FUNCTION, name, value, f"an even number of rotated channels, not {dim}")
    return dim


def rope_from_config(
    config: Mapping[str, Any], *, seq_len: int | None = None, layer_type: str | None = None
) -> RopeFrequencies:
    """Return the rotary frequencies of a checkpoint from its config.json.

    `rope_frequencies` with the keys of the config.

    Parameters
    ----------
    config : dict
        The result of ``json.load``, in the format of transformers 4 (``rope_theta``, ``rope_scaling``) or 5
        (``rope_parameters``, for all layers or nested by layer type). For models with vision or sound, the part for
        text.
    seq_len : int, optional
        Length of the sequence, which only the types dynamic and longrope read. None means a length within that of
        training.
    layer_type : str, optional
        ``"full_attention"``, ``"sliding_attention"``, and so on. Required for models whose layers differ (Gemma 3,
        ModernBERT, OLMo 3).

    Returns
    -------
    RopeFrequencies
        ``2 * len(inv_freq)`` is the number of rotated channels. A config does not say their layout;
        docs/rotary-checkpoints.md lists it by model_type.

    Raises
    ------
    TypeError
        A config that is not a dict, an unknown key of the rope part, a value of the wrong kind.
    ValueError
        A missing key or base, two values that contradict each other, an odd width, an unknown `layer_type` or type of
        scaling, or values that `rope_frequencies` refuses.

    Notes
    -----
    The width is the first that is there: ``rotary_dim``, ``qk_rope_head_dim``, or the part ``partial_rotary_factor`` or
    ``rotary_pct`` of ``head_dim``, which defaults to ``hidden_size`` over ``num_attention_heads``. If base, part or
    head width are missing, a known model_type supplies the default of transformers 5. The base is required for any
    other model_type. ``type`` is the old name of ``rope_type``, ``"su"`` of ``"longrope"``, ``"mrope"`` of
    ``"default"``. ``mrope_section`` and ``mrope_interleaved`` are arguments of `mrope` and change no frequency. A null
    counts as a missing key. Keys outside the rope part are not read.

    Examples
    --------
    >>> import posenc
    >>> llama = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "rope_theta": 500000.0}
    >>> llama["rope_scaling"] = {
    ...     "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    ...     "original_max_position_embeddings": 8192,
    ... }
    >>> w = posenc.rope_from_config(llama)
    >>> 2 * len(w.inv_freq), w.attention_factor
    (128, 1.0)
    """
    if not isinstance(config, Mapping):
        fail(TypeError, FUNCTION, "config", f"type {type(config).__name__}", "a dict, the content of config.json")
    if layer_type is not None and not isinstance(layer_type, str):
        fail(TypeError, FUNCTION, "layer_type", f"type {type(layer_type).__name__}", "a string or None")
    _check_names(config)
    layer = _read_layer(config, layer_type)
    rope_type = _rope_type(layer.rope)
    keys = {
        key: value
        for key, value in layer.rope.items()
        if key not in ("rope_type", "type", "rope_theta", "partial_rotary_factor", *SECTIONS)
    }
    if rope_type in LENGTH_TYPES:
        # If the length of training is stored inside and outside the rope part, transformers reads the one outside.
        keys.update(_present(config, LENGTHS[:1] if layer.nested else LENGTHS))
        keys.setdefault(LENGTHS[0], config.get("n_positions"))
        keys.setdefault(LENGTHS[1], layer.model.original_length)
    if rope_type == "proportional":
        keys["partial_rotary_factor"] = layer.number(PARTS, "partial_rotary_factor")
    dim, base = _rotary_dim(layer, rope_type), _base(layer)
    return scaled_frequencies(FUNCTION, dim, base, rope_type, seq_len, keys, "config")
