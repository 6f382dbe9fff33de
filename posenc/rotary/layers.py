"""What each layer of a checkpoint does with positions, from its config.json."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .._core_api import read
from .._core_api.door import door, fail
from ..absolute.rotated_pairs import Layout
from . import config as reader
from .config import Config, HasDict, LayerType, Rotation, listed, present, size
from .models import ATTENTION, FULL, MODELS, SLIDING, Attention, Model
from .scaling import EXTENDED, TRAINED, RopeFrequencies

CHUNKED, LINEAR, INDEXED = "chunked_attention", "linear_attention", "indexed_attention"
READ = (FULL, SLIDING, CHUNKED, INDEXED)
"""Types of layers that are read. All others are recurrent, or select or compress keys."""
OLD_TYPES = {"attention": FULL, "deepseek_sparse_attention": INDEXED, "mamba": LINEAR}
PATTERNS = {"sliding_window_pattern": SLIDING, "_sliding_window_pattern": SLIDING, "full_attention_interval": LINEAR}
"""Keys with the distance of layers of full attention, and the type of the layers between them."""
WINDOWS = {"sliding_window_size": 1, "sliding_window": 0, "local_attention": 0}
"""Keys of the window, and 1 if the query itself is not counted."""
CHUNK = "attention_chunk_size"
SINKS = {FULL: "add_full_attention_sink_bias", SLIDING: "add_swa_attention_sink_bias"}
CAP = "attn_logit_softcapping"
COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")


class Layer(NamedTuple):
    """What one layer does with positions. `layers` returns it."""

    number: int
    """The index of the layer, from 0."""
    attention: str
    """full_attention, sliding_attention, chunked_attention, or indexed_attention, where an indexer selects keys. Of any
    other type, such as linear_attention, which is recurrent, nothing else is read."""
    rotation: RopeFrequencies | None = None
    """The rotation of q and k. None for a layer without a rotation (NoPE) and for a layer that is not read."""
    base: float | None = None
    scaling: str | None = None
    """The type of the scaling: default, yarn, llama3, and so on."""
    part: float | None = None
    """The rotated part of the channels of a head."""
    pairs: int | None = None
    """Pairs whose frequency is not 0."""
    layout: Layout | None = None
    window: int | None = None
    """Keys that a query sees, its own included; None for all keys before it."""
    chunk: int | None = None
    """Positions of a chunk. A query sees the keys of its chunk."""
    sink: bool = False
    softcap: float | None = None
    scale: float | None = None
    """The factor of the products of q and k. It includes ``rotation.softmax_factor`` if the model applies it."""


@door
def layers(config: Config | str | os.PathLike[str] | HasDict) -> list[Layer]:
    """Return what each layer of a checkpoint does with positions, from its config.json.

    `rope_from_config` for each layer, with its window, chunk, sink, softcap and scale.

    Parameters
    ----------
    config : dict, path, str or object with to_dict()
        As in `rope_from_config`.

    Returns
    -------
    list of Layer
        A NamedTuple for each layer: ``number`` (from 0), ``attention`` (the type), ``rotation`` (a `RopeFrequencies`,
        or None for a layer without a rotation), ``base``, ``scaling``, ``part``, ``pairs``, ``layout``, ``window``,
        ``chunk``, ``sink``, ``softcap``, ``scale``. Of a layer that is recurrent, or that compresses keys, only the
        type is named.

    Raises
    ------
    OSError, TypeError, ValueError
        As `rope_from_config`. Also if the config has no number of layers, or does not list their types although their
        rotations differ.

    Warns
    -----
    UserWarning
        The config is probably wrong: the base is missing and has a default, ``beta_fast`` and ``beta_slow`` are equal
        or exchanged (they are read in order), ``mscale`` and ``mscale_all_dim`` cancel, a key is ignored, or the factor
        times the original length is not the maximal length.

    Notes
    -----
    A config does not say everything: models.json lists sinks, scales, and layers without a rotation of known model
    types, by the classes of transformers 5.24. A window counts the query itself, as in transformers (Mistral); the
    ``window`` of `attention` is ``(window - 1, 0)``. Models without a causal mask (ModernBERT) share it between both
    sides. Which keys an indexer selects is not read (DeepSeek-V3.2, GLM-5), nor are factors of queries (Llama 4:
    `floor_log_scale`).

    Examples
    --------
    SmolLM3, in which every fourth layer has no rotation:

    >>> import posenc
    >>> config = {"model_type": "smollm3", "num_hidden_layers": 4, "hidden_size": 2048, "num_attention_heads": 16}
    >>> for layer in posenc.layers({**config, "rope_theta": 5e6}):
    ...     print(layer.number, layer.attention, layer.base, layer.pairs)
    0 full_attention 5000000.0 64
    1 full_attention 5000000.0 64
    2 full_attention 5000000.0 64
    3 full_attention None None
    """
    part, is_part = reader.read_part(config)
    (model, facts), doubts, rotations = _known(part), list[str](), dict[str, Rotation | None]()
    by_type = reader.by_layer_type(part, model, reader.rope_part(part)[1])[0]
    types = _types(part, by_type is not None, facts)
    for kind in dict.fromkeys(kind for kind in types if kind in READ):
        has_none = by_type is not None and by_type.get(kind, {}) is None
        rotations[kind] = None if has_none else _read(part, kind if by_type else None, is_part, doubts)
    found = [Layer(number, kind) for number, kind in enumerate(types)]
    found = [_filled(one, part, is_part, rotations[one.attention]) if one.attention in READ else one for one in found]
    doubts += _doubts(part, types, [rotation for rotation in rotations.values() if rotation])
    for sentence in dict.fromkeys(doubts):
        warnings.warn(f"layers: {sentence}", stacklevel=3)
    return found


def _known(config: Config) -> tuple[Model, Attention]:
    """Return what is known about a model_type."""
    name = reader.model_type_of(config) or ""
    return MODELS.get(name, Model()), ATTENTION.get(name, Attention())


def _types(config: Config, rotations_differ: bool, facts: Attention) -> list[str]:
    """Return the type of each layer: listed, by a pattern, or by the keys of a window or of chunks."""
    for key in ("layer_types", "layers_block_type", "hybrid_layer_pattern"):
        if types := listed(config, key):
            words = [(FULL, SLIDING)[kind] if kind in (0, 1) else str(kind) for kind in types]
            return [OLD_TYPES.get(kind, kind) for kind in words]
    if not (stated := present(config, COUNTS)):
        fail(ValueError, COUNTS[0], "no value", "the number of layers")
    count = read.index(*next(iter(stated.items())), 1, read.MOST_CHANNELS)
    pattern = facts.types
    for key, between in PATTERNS.items():
        if isinstance(config.get(key), int):
            pattern = (*[between] * (read.index(key, config[key], 1) - 1), FULL)
    if pattern:
        return [pattern[i % len(pattern)] for i in range(count)]
    if rotations_differ:
        fail(ValueError, "layer_types", "no value", "the type of each layer, because their rotations differ")
    if size(config, CHUNK):
        return [CHUNKED if _rotates(config, facts, i, CHUNKED) else FULL for i in range(count)]
    slides = _windows(config) and _uses_windows(config)
    first = read.index("max_window_layers", config.get("max_window_layers") or 0, 0)
    return [SLIDING if slides and i >= first else FULL for i in range(count)]


def _windows(config: Config) -> Config:
    """Return the keys of a config that state a window; 0 states none."""
    return {key: size for key, size in present(config, WINDOWS).items() if size}


def _uses_windows(config: Config) -> bool:
    """Return whether the windows of a config are used. Models with max_window_layers (Qwen 2 and 3) must say so."""
    return config.get("use_sliding_window", "max_window_layers" not in config) is not False


def _rotates(config: Config, facts: Attention, index: int, kind: str) -> bool:
    """Return whether a layer rotates, if the layers of its type do."""
    for key in reader.ROTATED_LAYERS:
        if rotated := listed(config, key):
            return index >= len(rotated) or bool(rotated[index])
    bases = listed(config, "layer_rope_theta")
    if bases[index : index + 1] == [0] or (kind in facts.without_rotation and _windows(config)):
        return False
    interval = size(config, "no_rope_layer_interval") or facts.no_rope_interval
    return not interval or (index + 1) % interval != 0


def _width(layer: LayerType) -> int:
    """Return the width of a head of q and k, with both parts of latent attention."""
    nope, rope = (size(layer.config, f"qk_{name}_head_dim") for name in ("nope", "rope"))
    return nope + rope if nope and rope else reader.head_dim_of(layer)


def _is_latent(layer: LayerType) -> bool:
    """Return whether the attention is latent. Such models apply mscale_all_dim to the scale, and no others do."""
    return bool(size(layer.config, "qk_rope_head_dim") or layer.model.qk_rope_head_dim)


def _filled(layer: Layer, config: Config, is_part: bool, rotation: Rotation | None) -> Layer:
    """Return a layer with all that is read of it."""
    kind, (model, facts) = layer.attention, _known(config)
    of = LayerType(config, model, {}, False, kind, is_part)
    windows = [read.index(key, value, 1) + WINDOWS[key] for key, value in _windows(config).items()]
    stated = config.get(SINKS.get(kind, ""))
    scalar = config.get("query_pre_attn_scalar") or _width(of)
    scale = facts.scale or read.positive("query_pre_attn_scalar", scalar) ** -0.5
    if config.get("attention_multiplier") is not None:
        scale = read.number("attention_multiplier", config["attention_multiplier"])
    if rotation is not None and _is_latent(of):
        scale *= rotation.frequencies.softmax_factor
    layer = layer._replace(
        window=windows[0] if kind == SLIDING and windows else None,
        chunk=size(config, CHUNK) if kind == CHUNKED else None,
        sink=kind in facts.sinks if stated is None else read.flag(SINKS[kind], stated),
        softcap=read.positive(CAP, config[CAP]) if config.get(CAP) else None,
        scale=scale,
    )
    if rotation is None or not _rotates(config, facts, layer.number, kind):
        return layer
    w, base, scaling, _ = rotation
    pairs = int(np.count_nonzero(w.inv_freq))
    layer = layer._replace(rotation=w, base=float(base), scaling=scaling, layout=w.layout)
    return layer._replace(part=2 * pairs / _width(of), pairs=pairs)


# ---- what is probably wrong ----


def _read(config: Config, kind: str | None, is_part: bool, doubts: list[str]) -> Rotation:
    """Return the rotation of the layers of a type. If beta_fast and beta_slow are exchanged, read them in order."""
    layer = reader.read_layer(config, kind, is_part)
    fast, slow = (layer.rope.get(key) for key in ("beta_fast", "beta_slow"))
    if isinstance(fast, int | float) and isinstance(slow, int | float) and fast < slow:
        doubts.append(f"beta_fast is {fast:g} and beta_slow is {slow:g}, exchanged; they are read in order.")
        layer = layer._replace(rope={**layer.rope, "beta_fast": slow, "beta_slow": fast})
    return reader.read_rotation(layer)


def _doubts(config: Config, types: list[str], rotations: list[Rotation]) -> Iterator[str]:
    """Yield a sentence for each sign that a config is wrong."""
    name, bases = reader.rope_part(config)[0], (*reader.BASES, *reader.SLIDING_BASES)
    for rotation in rotations:
        layer, rope, model_type = rotation.layer, rotation.layer.rope, repr(config.get("model_type"))
        if "rope_theta" not in rope and not present(config, (*bases, "layer_rope_theta")):
            yield f"rope_theta has no value; {rotation.base:g} is the default of model_type {model_type}."
        if rope.get("beta_fast") is not None and rope.get("beta_fast") == rope.get("beta_slow"):
            yield f"beta_fast and beta_slow are both {rope['beta_fast']:g}: the ramp is a step. YaRN has 32 and 1."
        mscale = rope.get("mscale")
        if mscale and mscale == rope.get("mscale_all_dim") and not _is_latent(layer):
            yield f"mscale and mscale_all_dim are both {mscale:g} and cancel: {model_type} keeps no factor of YaRN."
        if mscale and rope.get("attention_factor"):
            yield "mscale is ignored, because attention_factor is there."
        for key, value in present(config, (EXTENDED,) if layer.nested else (EXTENDED, TRAINED)).items():
            if key in rope and rope[key] != value:
                yield f"{key} {rope[key]} in {name} is ignored, because the config has {value} outside."
        for key in present(config, (*bases, *reader.PARTS)) if layer.nested else ():
            if ("rope_theta" if key in bases else "partial_rotary_factor") in rope:
                yield f"{key} outside of {name} is ignored, because {name} has one for each type of layers."
        trained, most = (config.get(key) or rope.get(key) for key in (TRAINED, EXTENDED))
        factor = rope.get("factor")
        if rotation.rope_type in ("yarn", "longrope") and factor and trained and most and factor * trained != most:
            yield f"factor {factor:g} x {TRAINED} {trained} = {factor * trained:g}; {EXTENDED} is {most}."
    if SLIDING not in types and {*types} <= {*READ} and _uses_windows(config):
        yield from (f"{key} is ignored, because no layer slides." for key in _windows(config))
    if CHUNKED not in types and size(config, CHUNK):
        yield f"{CHUNK} is ignored, because no layer has chunks."
