"""Pictures of objects for notebooks, which `posenc.plot` draws."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec


def picture(function: str, value: object) -> bytes | None:
    """Return the PNG that a function of `posenc.plot.notebook` draws; None without matplotlib.

    This is the only place that calls the plots from below, and it imports them at the first picture.
    """
    if find_spec("matplotlib") is None:
        return None
    drawn: bytes = getattr(import_module("posenc.plot.notebook"), function)(value)
    return drawn
