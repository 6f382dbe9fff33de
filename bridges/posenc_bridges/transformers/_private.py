"""Private names of transformers, which it may rename at any time. A model whose names are gone is left out."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

MISSING: dict[str, list[str]] = {}
"""Names that the installed transformers does not have, by model type, or by another module of transformers."""


def look_up(model_type: str, name: str) -> Any:
    """Return an object of a type of models by its name, such as "BloomAttention.forward"; None if it is gone."""
    try:
        return attrgetter(name)(importlib.import_module(f"transformers.models.{model_type}.modeling_{model_type}"))
    except (ImportError, AttributeError):
        return None


def has_names(model_type: str, names: Sequence[str]) -> bool:
    """Return whether transformers has these names, and add those that are gone to `MISSING`."""
    gone = [name for name in names if look_up(model_type, name) is None]
    if gone:
        MISSING[model_type] = gone
    return not gone


def missing_for(cls: Callable[..., object]) -> str:
    """Return a name that is gone and that posenc needs for a class of a model; or an empty text."""
    model_type = "".join(cls.__module__.split(".")[2:3])
    return f"{model_type}.{MISSING[model_type][0]}" if model_type in MISSING else ""
