"""The tour: what each way of telling attention where a word stands does to real text.

A `Scheme` says how an operator enters attention (`schemes.py`); what is around the schemes has a number each
(`others.py`). Both are measured (`measure.py`), shown as tables (`tables.py`, `terminal.py`) and drawn (`pictures.py`).
Everything is seeded by the words, so that the same text gives the same numbers.
"""

from __future__ import annotations

from pathlib import Path

import posenc

from .pictures import all_pictures, can_draw
from .schemes import all_schemes
from .tables import cost_table, others_table, shift_table, swap_table
from .terminal import Terminal
from .text import LONGEST, Text, embedded, of_user

__all__ = ["can_draw", "embedded", "of_user", "run"]


def run(text: Text, directory: Path) -> None:
    """Measure, show, draw. The directory exists where matplotlib does."""
    terminal = Terminal()
    plans, figures = all_schemes(), can_draw()
    files = all_pictures(plans) if figures else []
    terminal.say(f"posenc {posenc.__version__}: {posenc.isa()} kernels, {posenc.get_num_threads()} threads")
    used = f", {text.total:,} words" + (f", the first {LONGEST:,} are used" if text.total > LONGEST else "")
    terminal.say(f"Text: {text.name}{used if text.words else ''}")
    if terminal.console is None:
        terminal.say('rich is not installed, so this is plain; for colours and a bar: pip install "posenc[tour]"')
    terminal.say()
    with terminal.progress(2 * len(plans) + 1 + len(files)) as step:
        for make in (swap_table, shift_table, cost_table):
            terminal.show(make(plans, text, step))
        terminal.show(others_table(text, step))
        for name, _, draw in files:
            step(name)
            draw().savefig(directory / name, dpi=120)
    if figures:
        terminal.say(f"Pictures in {directory}:")
        for name, what, _ in files:
            terminal.say(f"  {name:18} {what}")
    else:
        terminal.say('No pictures: matplotlib is not installed (pip install "posenc[tour]").')
    terminal.say(
        'What do they do for a model that is trained, on longer texts? pip install "posenc[study]", '
        "then: python -m posenc study --quick"
    )
