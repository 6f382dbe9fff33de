"""The tour: the effect of each position-encoding operator on real text.

`schemes` says how each operator enters attention, and `functions` shows a number for every other function. `measure`
computes, `tables` and `terminal` print, `pictures` draws, and `fonts` finds fonts for the words. Random numbers are
seeded by the words, so that the same text gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import posenc

from .fonts import drawing_with, families_for
from .pictures import DPI, LABELS, Picture, all_pictures, can_draw
from .schemes import all_schemes
from .tables import cost_table, functions_table, shift_table, swap_table
from .terminal import Terminal
from .text import MAX_WORDS, Text, embedded, of_user

__all__ = ["can_draw", "embedded", "of_user", "run"]


def draw(pictures: Sequence[Picture], text: Text, directory: Path, step: Callable[[str], None]) -> str:
    """Write the pictures; return the characters of the text that no installed font has."""
    families, missing = families_for("".join((*text.drawn.words, *text.words[:LABELS])))
    with drawing_with(families):
        for picture in pictures:
            step(picture.file)
            picture.draw().savefig(directory / picture.file, dpi=DPI)
    return missing


def run(text: Text, directory: Path) -> None:
    """Print the tables and write the pictures. With matplotlib installed, the directory must exist."""
    terminal = Terminal()
    schemes = all_schemes()
    pictures = all_pictures(schemes, text) if can_draw() else []
    terminal.say(f"posenc {posenc.__version__}: {posenc.isa()} kernels, {posenc.get_num_threads()} threads")
    used = f", of which the first {MAX_WORDS:,} are used" if text.total > MAX_WORDS else ""
    terminal.say(f"Text: {text.name}" + (f", {text.total:,} words{used}" if text.words else ""))
    if terminal.console is None:
        terminal.say("Colours and a progress bar need rich: pip install rich")
    terminal.say()
    with terminal.progress(2 * len(schemes) + 1 + len(pictures)) as step:
        for make_table in (swap_table, shift_table, cost_table):
            terminal.show(make_table(schemes, text, step))
        terminal.show(functions_table(text, step))
        missing = draw(pictures, text, directory, step) if pictures else ""
    if pictures:
        terminal.say(f"Pictures in {directory}:")
        for picture in pictures:
            terminal.say(f"  {picture.file:20} {picture.caption}")
        if missing:
            terminal.say(
                f"The pictures show boxes for {missing[:8]}{'...' if missing[8:] else ''}: no installed font has them. "
                "Install one and run the tour again; Noto Sans CJK has Chinese, Japanese and Korean (Debian and "
                "Ubuntu: apt install fonts-noto-cjk)."
            )
    else:
        terminal.say("No pictures: matplotlib is not installed (pip install matplotlib).")
    terminal.say(
        "To train small models with these schemes and test them on longer texts: "
        "pip install autograd matplotlib rich && python -m posenc study --quick"
    )
