"""Choose installed fonts that have the characters of a picture's text."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

PREFERRED = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "PingFang SC", "Hiragino Sans GB", "Microsoft YaHei",
    "SimHei", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Arial Unicode MS",
)  # fmt: skip
"""Families with Chinese and Japanese characters. They are tried after DejaVu Sans and before all others."""
WITHOUT_GLYPHS = "Last Resort"
"""Families whose names begin so draw every character as a box. They are never used."""


def characters_of(path: str) -> set[str]:
    """Return the characters of a font file; none if matplotlib cannot read it, as a font of colour emoji."""
    from matplotlib.ft2font import FT2Font

    try:
        return {chr(code) for code in FT2Font(path).get_charmap()}
    except RuntimeError:
        return set()


def installed() -> dict[str, str]:
    """Return the file of each installed family, PREFERRED families first.

    Matplotlib keeps a list of fonts. Fonts that were installed later are added to the list.
    """
    from matplotlib import font_manager

    known = {entry.fname for entry in font_manager.fontManager.ttflist}
    for path in font_manager.findSystemFonts():
        if path not in known:
            try:
                font_manager.fontManager.addfont(path)
            except RuntimeError:  # a format that matplotlib cannot read
                continue
    found = {entry.name: entry.fname for entry in reversed(font_manager.fontManager.ttflist)}
    names = [name for name in PREFERRED if name in found] + sorted(found)
    return {name: found[name] for name in names if not name.startswith(WITHOUT_GLYPHS)}


def families_for(text: str) -> tuple[list[str], str]:
    """Return the families that have the characters of a text, and the characters that no installed font has."""
    from matplotlib import font_manager

    missing = {c for c in text if not c.isspace()} - characters_of(font_manager.findfont("DejaVu Sans"))
    families = ["DejaVu Sans"]
    for name, path in installed().items() if missing else ():
        has = missing & characters_of(path)
        if has:
            families.append(name)
            missing -= has
        if not missing:
            break
    return families, "".join(sorted(missing))


@contextmanager
def drawing_with(families: list[str]) -> Iterator[None]:
    """Draw and save figures with these families.

    Matplotlib's warnings about missing characters are silenced, because the caller reports the characters once; so are
    those about the weights of fonts.
    """
    from matplotlib import rc_context

    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)

    with rc_context({"font.family": families}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        yield
