"""Defaults of transformers for the rotary part of a config, by model_type; and models that have no such part.

models.json has the table. bridges/tests/test_transformers_configs.py derives the rows from the configuration classes of
transformers, except those of `ELSEWHERE`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal, NamedTuple

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
    """None for an unknown model_type. The table omits "half"."""
    is_backwards: bool = False
    """The model rotates by minus the angle."""
    ignores_rotary_dim: bool = False
    """transformers reads partial_rotary_factor alone, although the config has rotary_dim."""
    reads_alpha: bool = False
    """A scaling of type "dynamic" with the key alpha means ntk with the factor alpha, at any length."""


class Attention(NamedTuple):
    """What the attention of one model_type does and no key of its config says."""

    types: tuple[str, ...] = ()
    """The types of the layers, again and again, if a config does not list them."""
    without_rotation: tuple[str, ...] = ()
    """Types of layers that do not rotate, if others have a window."""
    no_rope_interval: int = 0
    """Every layer with a number that this number divides does not rotate, if a config does not list them."""
    sinks: tuple[str, ...] = ()
    """Types of layers with a sink."""
    scale: float | None = None
    """The scale of the logits; None for 1 / sqrt(width of a head)."""


_TABLE = json.loads(Path(__file__).with_name("models.json").read_text("utf-8"))

MODELS = {name: Model(**{"layout": "half", **row}) for name, row in _TABLE["models"].items()}

ATTENTION = {name: Attention(**row) for name, row in _TABLE["attention"].items()}

ELSEWHERE: dict[str, str] = _TABLE["elsewhere"]
"""Models without a class in transformers 5.24, and the public repository and file that their row follows."""

ROTATES_IF: dict[str, tuple[str, object, object]] = _TABLE["rotates_if"]
"""The key and the value with which a model rotates queries and keys, and the key's default."""

ROTATES_LAST: list[str] = _TABLE["rotates_last"]
"""Models that rotate the last channels of a head."""

OTHERS: dict[str, str] = {name: what for what, names in _TABLE["other_positions"].items() for name in names}
"""Models that rotate no queries and keys by one position for each word, and the encoding that they have instead."""
