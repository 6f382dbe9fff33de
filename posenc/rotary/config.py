"""The rotary part of a checkpoint's config.json, in every shape that transformers has written it."""

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
OF_A_LENGTH = ("dynamic", "ntk_by_parts", "yarn", "longrope", "llama3")
"""Types that read the length of training, which may stand beside the rope part."""
SECTIONS = ("mrope_section", "mrope_interleaved")
"""Of no effect on frequencies: arguments of `mrope`."""
BASES = ("rope_theta", "rotary_emb_base", "global_rope_theta")
SLIDING_BASES = ("rope_local_base_freq", "local_rope_theta")
PARTS = ("partial_rotary_factor", "rotary_pct")
KNOWN = (*BASES, *SLIDING_BASES, *PARTS, "rope_parameters", "rope_scaling", "rotary_dim", "rope_interleave")
ROPE_PART = re.compile(r"rope_|rotary_|rotery_|partial_rotary|.*(ntk|yarn|_rope_theta|rope_scal)")
"""Names of the rope part; one that is none of KNOWN changes a rotation in a way that is not known here."""


class _Layer(NamedTuple):
    """What a config says about the layers of one type."""

    config: Mapping[str, Any]
    model: Model
    rope: Mapping[str, Any]
    """Its scaling and what else stands beside it; without nulls."""
    nested: bool
    """Whether that is the layer's own, so that nothing outside contradicts it."""
    layer_type: str | None

    def one(self, names: Iterable[str], inner: str) -> float | None:
        """The number that a config gives under several names, or None."""
        found = {} if self.nested and inner in self.rope else _present(self.config, names)
        if inner in self.rope:
            found = {f"{inner} inside": self.rope[inner], **found}
        values = [as_number(FUNCTION, name.split()[0], value) for name, value in found.items()]
        if len(set(values)) > 1:
            fail(ValueError, FUNCTION, inner, " and ".join(f"{k} {v}" for k, v in found.items()), "one value")
        # an integer base stays one: its powers are exact
        return next(iter(found.values()), None)


def _present(config: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: config[name] for name in names if config.get(name) is not None}


def _check_names(config: Mapping[str, Any]) -> None:
    for key, value in config.items():
        if not isinstance(key, str):
            fail(TypeError, FUNCTION, "config", f"a key of type {type(key).__name__}", "strings")
        if value is not None and key not in KNOWN and ROPE_PART.match(key):
            fail(
                TypeError, FUNCTION, "config", repr(key), "only what is known of rotary embeddings: " + ", ".join(KNOWN)
            )


def _rope_part(config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """rope_parameters or rope_scaling, and which of the two it is."""
    given = _present(config, ("rope_parameters", "rope_scaling"))
    for name, value in given.items():
        if not isinstance(value, Mapping):
            fail(TypeError, FUNCTION, name, f"type {type(value).__name__}", "a dict")
    given = {name: value for name, value in given.items() if value}
    if len(given) == 2 and given["rope_parameters"] != given["rope_scaling"]:
        fail(ValueError, FUNCTION, "config", "rope_parameters and rope_scaling that differ", "one of them")
    return next(iter(given.items()), ("rope_parameters", {}))


def _layer_types(config: Mapping[str, Any]) -> list[Any]:
    kinds = config.get("layer_types")
    return list(kinds) if isinstance(kinds, list | tuple) else []


def _layers(config: Mapping[str, Any], model: Model, rope: Mapping[str, Any]) -> tuple[dict[str, Any] | None, bool]:
    """The rope part of each layer type, or None where all layers have one; and whether it was nested so."""
    if any(isinstance(value, Mapping) for value in rope.values()):
        mixed = [key for key, value in rope.items() if not (value is None or isinstance(value, Mapping))]
        if mixed:
            fail(TypeError, FUNCTION, "config", f"{mixed[0]!r} beside layer types", "parameters inside each layer type")
        return dict(rope), True
    scaled = model.scaled or ((FULL,) if _present(config, SLIDING_BASES) else ())
    if scaled:
        return {kind: rope if kind in scaled else {} for kind in (FULL, SLIDING)}, False
    return None, False


def _layer(config: Mapping[str, Any], layer_type: str | None) -> _Layer:
    model_type = config.get("model_type")
    model = MODELS.get(model_type, Model()) if isinstance(model_type, str) else Model()
    name, rope = _rope_part(config)
    layers, nested = _layers(config, model, rope)
    if layers is None:
        if layer_type is not None and layer_type not in _layer_types(config):
            fail_value(ValueError, FUNCTION, "layer_type", layer_type, "None, since all layers have one rotation")
    else:
        if layer_type not in layers:
            fail_value(ValueError, FUNCTION, "layer_type", layer_type, "one of " + ", ".join(map(repr, layers)))
        rope = layers[layer_type]
        if rope is None:
            fail_value(ValueError, FUNCTION, "layer_type", layer_type, "layers that have a rotation; these have none")
    if model.says_scaling and not rope:
        fail(ValueError, FUNCTION, name, "no value", f"the scaling: {model_type!r} has one that is not always the same")
    inside = {key: value for key, value in rope.items() if value is not None}
    return _Layer(config, model, inside, nested, layer_type)


def _rope_type(rope: Mapping[str, Any]) -> str:
    """`rope_type`, or `type` as it was called; where both are there they mean one."""
    names = _present(rope, ("rope_type", "type"))
    for name, value in names.items():
        if not isinstance(value, str):
            fail(TypeError, FUNCTION, name, f"type {type(value).__name__}", "a string")
    found = {ALIASES.get(value, value) for value in names.values()}
    if len(found) > 1:
        fail(ValueError, FUNCTION, "rope_type", " and ".join(map(repr, names.values())), "one type")
    kind = next(iter(found), "default")
    if kind == "yarn" and "short_factor" in rope:  # what early configs of Phi-3 call it
        return "longrope"
    if not names and "factor" in rope:
        fail(ValueError, FUNCTION, "rope_type", "no value", "the type of the scaling")
    return kind


def _base(layer: _Layer) -> float:
    two = layer.model.sliding_base is not None or _present(layer.config, SLIDING_BASES)
    sliding = bool(two) and layer.layer_type == SLIDING
    names = SLIDING_BASES if sliding else BASES
    given = layer.one(names, "rope_theta")
    base = (layer.model.sliding_base if sliding else layer.model.base) if given is None else given
    if base is None:
        has = f"no value, and model_type {layer.config.get('model_type')!r} no known default"
        inside = "config['text_config'], where the rope part is, or " if "text_config" in layer.config else ""
        fail(ValueError, FUNCTION, names[0], has, inside + "the base")
    if base <= 0:
        fail(ValueError, FUNCTION, names[0], base, "a positive number")
    return base


def _size(config: Mapping[str, Any], *names: str) -> int | None:
    for name, value in _present(config, names).items():
        return as_index(FUNCTION, name, value, 1)
    return None


def _per_layer_head_dim(layer: _Layer) -> int | None:
    """Gemma 4: layers of full attention have wider heads, which v5 writes down by the layer's index."""
    overrides = layer.config.get("per_layer_config")
    if isinstance(overrides, Mapping) and layer.layer_type is not None:
        by_index = {str(i).lstrip("0") or "0": override for i, override in overrides.items()}
        of_kind = [i for i, kind in enumerate(_layer_types(layer.config)) if kind == layer.layer_type]
        found = [_size(by_index.get(str(i)) or {}, "head_dim") for i in of_kind]
        if len(set(found)) > 1:
            fail(ValueError, FUNCTION, "per_layer_config", "several widths for one layer type", "one head_dim")
        return found[0] if found else None
    return _size(layer.config, "global_head_dim") if layer.layer_type == FULL else None


def _head_dim(layer: _Layer) -> int:
    config = layer.config
    # the other names are those of Zamba 2, which has a kv_channels for something else, and JetMoE
    own = _size(config, "head_dim", "attention_head_dim", "kv_channels")
    given = _per_layer_head_dim(layer) or own or layer.model.head_dim
    if given is not None:
        return given
    hidden, heads = _size(config, "hidden_size", "n_embd"), _size(config, "num_attention_heads", "n_head")
    if hidden is None or heads is None:
        missing = "hidden_size" if hidden is None else "num_attention_heads"
        fail(ValueError, FUNCTION, "head_dim", f"no value, nor has {missing}", "the width of a head")
    if hidden % heads:
        fail_value(ValueError, FUNCTION, "hidden_size", hidden, f"a multiple of num_attention_heads, {heads}")
    return hidden // heads


def _rotary_dim(layer: _Layer, rope_type: str) -> int:
    """How many channels turn."""
    config, model = layer.config, layer.model
    said = layer.one(PARTS, "partial_rotary_factor")
    part = model.partial if said is None else said
    if not 0 < part <= 1:
        fail_value(ValueError, FUNCTION, "partial_rotary_factor", part, "a number above 0, at most 1")
    if model.rotary_dim and "rotary_dim" in config and config["rotary_dim"] is None:
        fail(ValueError, FUNCTION, "rotary_dim", None, "a width: transformers takes the hidden size for null")
    own = _size(config, "rotary_dim") or model.rotary_dim
    latent = _size(config, "qk_rope_head_dim") or model.qk_rope_head_dim
    if rope_type == "proportional":  # the whole head turns, a part of it by 0
        name, dim = "head_dim", latent or _head_dim(layer)
    elif own is not None:
        name, dim = "rotary_dim", own
        if said is not None and int(_head_dim(layer) * part) != own:
            fail_value(ValueError, FUNCTION, "rotary_dim", own, f"what partial_rotary_factor {said} says")
    elif latent is not None:
        name, dim = "qk_rope_head_dim", latent
        head = _size(config, "head_dim") or latent
        if part != 1:
            dim = int(head * part)
            if head != latent and dim != latent:
                fail_value(
                    ValueError, FUNCTION, name, latent, f"what head_dim {head} and partial_rotary_factor {part} say"
                )
    else:
        name, dim = ("partial_rotary_factor" if part != 1 else "head_dim"), int(_head_dim(layer) * part)
    if dim < 2 or dim % 2:
        has = f"{part if name == 'partial_rotary_factor' else dim}, so that {dim} channels turn"
        fail(ValueError, FUNCTION, name, has, "an even number of them")
    return dim


def rope_from_config(
    config: Mapping[str, Any], *, seq_len: int | None = None, layer_type: str | None = None
) -> RopeFrequencies:
    """What a checkpoint's config.json says of its rotary embedding: `rope_frequencies` of its keys.

    Parameters
    ----------
    config : dict
        As ``json.load`` gives it, of transformers 4 (``rope_theta``, ``rope_scaling``) or 5 (``rope_parameters``, for
        all layers or nested by layer type). Of models with vision or sound, the part for text.
    seq_len : int, optional
        Length of the sequence, which only the types dynamic and longrope read. None is a length within training's.
    layer_type : str, optional
        ``"full_attention"``, ``"sliding_attention"`` ..., required where layers differ (Gemma 3, ModernBERT, OLMo 3).

    Returns
    -------
    RopeFrequencies
        ``2 * len(inv_freq)`` is the number of channels that turn. Their layout a config does not say:
        docs/rotary-checkpoints.md lists it by model_type.

    Raises
    ------
    TypeError
        A config that is not a dict, a key of the rope part that is not known, a value of the wrong kind.
    ValueError
        A missing key or base, two values that contradict each other, an odd width, an unknown `layer_type` or type of
        scaling; whatever `rope_frequencies` refuses.

    Notes
    -----
    Widths, in this order: ``rotary_dim``, ``qk_rope_head_dim``, ``partial_rotary_factor`` or ``rotary_pct`` of
    ``head_dim``, which may be left to ``hidden_size`` over ``num_attention_heads``. Where a config leaves base, part or
    head width out, a known model_type supplies what transformers 5 has for it; the base of another model_type is
    required. ``type`` is the old name of ``rope_type``, ``"su"`` of ``"longrope"``, ``"mrope"`` of ``"default"``.
    ``mrope_section`` and ``mrope_interleaved`` are arguments of `mrope` and change no frequency; a null is a key that
    is not there; keys outside the rope part are not read.

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
        fail(TypeError, FUNCTION, "config", f"type {type(config).__name__}", "a dict, as config.json has it")
    if layer_type is not None and not isinstance(layer_type, str):
        fail(TypeError, FUNCTION, "layer_type", f"type {type(layer_type).__name__}", "a string or None")
    _check_names(config)
    layer = _layer(config, layer_type)
    rope_type = _rope_type(layer.rope)
    keys = {
        key: value
        for key, value in layer.rope.items()
        if key not in ("rope_type", "type", "rope_theta", "partial_rotary_factor", *SECTIONS)
    }
    if rope_type in OF_A_LENGTH:
        # where a length stands inside and outside transformers reads the one outside
        keys.update(_present(config, LENGTHS[:1] if layer.nested else LENGTHS))
        keys.setdefault(LENGTHS[0], config.get("n_positions"))
        keys.setdefault(LENGTHS[1], layer.model.original_length)
    if rope_type == "proportional":
        keys["partial_rotary_factor"] = layer.one(PARTS, "partial_rotary_factor")
    dim, base = _rotary_dim(layer, rope_type), _base(layer)
    return scaled_frequencies(FUNCTION, dim, base, rope_type, seq_len, keys, "config")
