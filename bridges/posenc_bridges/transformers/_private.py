"""Names of transformers beyond its interfaces. transformers may rename any of them, at any time."""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

import torch
import transformers

from posenc_bridges.torch._private import NAMES
from posenc_bridges.torch._private import find as find_in_torch

_DEBERTA = "DisentangledSelfAttention.forward"
FAMILIES = {
    "bloom": ("BloomAttention.forward",),
    "deberta": (_DEBERTA, "DebertaEncoder.get_attention_mask", "DebertaEncoder.get_rel_pos"),
    "deberta_v2": (_DEBERTA, "DebertaV2Encoder.get_attention_mask", "DebertaV2Encoder.get_rel_pos"),
    "falcon": ("FalconAttention.forward",),
    "longt5": ("LongT5Attention.compute_bias",),
    "mpnet": ("MPNetSelfAttention.forward", "MPNetEncoder.compute_position_bias"),
    "mpt": ("MptAttention.forward", "MptBlock.forward"),
    "mt5": ("MT5Attention.compute_bias",),
    "pix2struct": ("Pix2StructTextAttention.compute_bias",),
    "pop2piano": ("Pop2PianoAttention.compute_bias",),
    "sam": ("SamVisionAttention.forward",),
    "sam_hq": ("SamHQVisionAttention.forward",),
    "swinv2": ("Swinv2SelfAttention.forward",),
    "switch_transformers": ("SwitchTransformersAttention.compute_bias",),
    "t5": ("T5Attention.compute_bias",),
    "udop": ("UdopAttention.compute_bias",),
    "umt5": ("UMT5Attention.compute_bias",),
    "wavlm": ("WavLMAttention.forward",),
}
"""Methods that posenc replaces, by type of models. If one is gone, posenc refuses the models of that type by name."""
MASKS = [
    "masking_utils.and_masks", "masking_utils.chunked_overlay", "masking_utils.packed_sequence_mask_function",
    "masking_utils.remap_positions_for_packed_sequence", "masking_utils.sliding_window_bidirectional_overlay",
    "masking_utils.sliding_window_overlay",
]  # fmt: skip
"""Functions that posenc wraps, to read the structure of masks. If one is gone, its masks are arrays."""
CHOICE = [
    "modeling_utils.PreTrainedModel._can_set_attn_implementation", "modeling_utils.PreTrainedModel.post_init",
    "modeling_utils.PreTrainedModel.get_correct_attn_implementation",
    "modeling_utils.PreTrainedModel.set_attn_implementation", "masking_utils.bidirectional_mask_function",
    "masking_utils.causal_mask_function", "masking_utils.eager_mask", "masking_utils.prepare_padding_mask",
    "utils.import_utils.is_tracing",
]  # fmt: skip
"""What refuses models with attention of their own, and makes masks. If one is gone, the bridge is not imported."""
OF_TORCH = [name for name, result in NAMES.items() if "posenc_bridges.transformers" in result]
OPTIONAL = ("utils.output_capturing._active_collector", "modeling_utils.PreTrainedModel._supports_sdpa")
"""If the first is gone, no error says that attention weights which a model asks for are missing in its output. If the
second is gone, decoding takes longer.
"""

MISSING: dict[str, list[str]] = {}
"""Names that the installed transformers does not have, by type of models, or by another module of transformers."""


def find(name: str) -> Any:
    """Return an object of transformers by its module and name; None if it is gone."""
    try:
        return resolve_name(f"transformers.{name}")
    except (ImportError, AttributeError):
        return None


def check_names() -> None:
    """Raise an ImportError if a name is gone without which nothing runs."""
    for library, names, search in ((transformers, CHOICE, find), (torch, OF_TORCH, find_in_torch)):
        for name in names:
            if search(name) is None:
                has = f"{library.__name__} {library.__version__} has no {name}"
                raise ImportError(f"posenc_bridges.transformers: {has}; expected transformers 5.24 and torch 2.13")


def look_up(model_type: str, name: str) -> Any:
    """Return an object of a type of models by its name, such as "BloomAttention.forward"; None if it is gone."""
    return find(f"models.{model_type}.modeling_{model_type}.{name}")


def has_names(model_type: str) -> bool:
    """Return whether transformers has the names of a family, and add those that are gone to `MISSING`."""
    gone = [name for name in FAMILIES[model_type] if look_up(model_type, name) is None]
    if gone:
        MISSING[model_type] = gone
    return not gone


def missing_for(cls: Callable[..., object]) -> str:
    """Return a name that is gone and that posenc needs for a class of a model; or an empty text."""
    model_type = "".join(cls.__module__.split(".")[2:3])
    return f"{model_type}.{MISSING[model_type][0]}" if model_type in MISSING else ""
