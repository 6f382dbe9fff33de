"""Pictures of objects for notebooks."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

Draw = Callable[..., "bytes | None"]
_draw: list[Draw] = []


def draw_with(function: Draw) -> None:
    """Let `picture` call this function. `posenc` passes one of `posenc.plot`, which imports all that it draws."""
    _draw[:] = [function]


def picture(value: object, *lengths: int) -> bytes | None:
    """Return the PNG of an operator at numbers of queries and keys, or of frequencies; None without matplotlib."""
    return _draw[0](value, *lengths) if _draw and find_spec("matplotlib") else None
