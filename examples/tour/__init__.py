"""The tour: the effect of each position-encoding operator on real text.

The schemes and their effects are those of `python -m posenc`, in posenc/__main__.py. `text` chooses the words, and
`functions` computes a number with each function that is no scheme. `tables` arranges the numbers, and `terminal` prints
them. `pictures` draws and describes, `kinds` has words of three kinds for one picture, `fonts` finds fonts for the
words, and `pages` writes index.html and slides.html. The same text gives the same numbers, except times.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import posenc
from posenc.__main__ import all_schemes

from .fonts import drawing_with, families_for
from .pages import write_index, write_slides
from .pictures import DPI, LABELS, SLIDES, SLIDES_ONLY, Lecture, Picture, can_draw
from .tables import functions_table, operators_table, short_table
from .terminal import Terminal
from .text import MAX_WORDS, Text, embedded, of_user

__all__ = ["embedded", "of_user", "run"]


def png(picture: Picture) -> bytes:
    """The picture as the bytes of a PNG file."""
    if isinstance(picture.figure, Path):
        return picture.figure.read_bytes()
    buffer = io.BytesIO()
    picture.figure.savefig(buffer, format="png", dpi=DPI)
    return buffer.getvalue()


def draw(lecture: Lecture, directory: Path, step: Callable[[str], None]) -> tuple[list[Picture], str]:
    """Write the pictures and slides.html. Return the pictures of index.html, and the characters that no font has."""
    text, slides, shown = lecture.text, [], []
    families, missing = families_for("".join((*text.drawn.words, *text.words[:LABELS])))
    with drawing_with(families):
        for make in SLIDES:
            step(make.__name__)
            picture = make(lecture)
            slides.append((picture, png(picture)))
            if make not in SLIDES_ONLY:
                (directory / picture.file).write_bytes(slides[-1][1])
                shown.append(picture)
    write_slides(directory, text, slides)
    return shown, missing


def run(text: Text, directory: Path) -> Path:
    """Print a table, and write index.html. With matplotlib, also write the pictures and slides.html.

    Return the path of index.html.
    """
    terminal = Terminal()
    schemes = all_schemes()
    terminal.say(f"posenc {posenc.__version__}: {posenc.isa()} kernels, {posenc.get_num_threads()} threads")
    used = f", of which the first {MAX_WORDS:,} are used" if text.total > MAX_WORDS else ""
    terminal.say(f"Text: {text.name}, {text.total:,} words{used}")
    if terminal.console is None:
        terminal.say("Colours and a progress bar need rich: pip install rich")
    terminal.say()
    with terminal.progress(len(schemes) + 2 + len(SLIDES)) as step:
        tables = operators_table(schemes, text, step), functions_table(text, step)
        terminal.show(short_table(tables[0]))
        pictures, missing = draw(Lecture(text, schemes), directory, step) if can_draw() else ([], "")
    index = write_index(directory, text, pictures, tables)
    if pictures:
        terminal.say(f"{len(pictures)} pictures: {index}")
        terminal.say(f"{len(SLIDES)} slides:   {directory / 'slides.html'}")
    else:
        terminal.say(f"The whole table: {index}. No pictures: matplotlib is not installed (pip install matplotlib).")
    if missing:
        terminal.say(
            f"The pictures show boxes for {missing[:8]}{'...' if missing[8:] else ''}: no installed font has them. "
            "Install one and run the tour again; Noto Sans CJK has Chinese, Japanese and Korean (Debian and "
            "Ubuntu: apt install fonts-noto-cjk)."
        )
    terminal.say(
        "To train small models with these schemes and test them on longer texts: "
        "pip install autograd matplotlib rich && python examples/study --quick"
    )
    return index
