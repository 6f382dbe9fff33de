"""``python examples/tour [FILE]``: print a table of effects, and write pictures, slides and a page that shows them."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

if not __package__:  # the folder is run as a script; its parent has the package `tour`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

try:
    import matplotlib  # noqa: F401
except ImportError as error:
    sys.exit(f"{error}; the pictures need: pip install matplotlib")

import posenc
from files import make_directory, refusing
from posenc.__main__ import (
    SCORED_WORDS,
    SHIFTS,
    Parser,
    all_schemes,
    amount,
    change_by_swap,
    command,
    extra_bytes,
    shifted,
)
from tour.pages import write_index, write_slides
from tour.pictures import draw
from tour.text import MAX_WORDS, Text, embedded, labels, of_user

PROGRAM = "python examples/tour"
LINE = "{:24}{:24}{:>20}{:>8}{:>8}{:>8}"
LEGEND = f"""
Embeddings are random, nothing is trained, and a change is relative to the largest number.

A <-> B     these words of the sentence change places: the largest change of the output for
            the other words. 0: the order is not seen.
+1, +10^6   the first {SCORED_WORDS} words move to later positions: the largest change of the scores.
            0: only distances count; -: the scheme ends before; empty: no positions are read.
MB          memory that attention over the words allocates besides its result
"""


def parser() -> Parser:
    parser = Parser(
        prog=PROGRAM,
        description="The tour: the effect of each operator of posenc on real text, as a page with pictures and as "
        "slides for a lecture.",
    )
    parser.add_argument(
        "text", nargs="?", metavar="FILE", help="UTF-8 text, or - for standard input (default: a sentence)"
    )
    parser.add_argument(
        "--swap", nargs=2, metavar=("A", "B"), help="words of one sentence that change places (default: its two "
        "longest words)",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, metavar="DIR", default=Path("posenc-tour"), help="directory of index.html, slides.html and "
        "the pictures (default: posenc-tour)",
    )  # fmt: skip
    parser.add_argument("--open", action="store_true", help="open index.html in the browser")
    return parser


def read_text(file: str | None, swap: tuple[str, str] | None) -> Text:
    """The words of the user's file, or of the sentence without one. ValueError says what is wrong."""
    if file is None:
        return embedded(swap)
    name = "standard input" if file == "-" else file
    with refusing(name):
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return of_user(name, content.decode("utf-8-sig"), swap)


def table(text: Text) -> str:
    """Print the table of effects, each row as soon as it is computed, and return it."""
    words, a, b = text.drawn
    lines = [LEGEND, LINE.format("", "positions are", " <-> ".join(labels([words[a], words[b]], 8)), *SHIFTS, "MB")]
    print(*lines, sep="\n")
    for scheme in all_schemes():
        swap = amount(change_by_swap(scheme, words, a, b))
        shifts = [shifted(scheme, text.words[:SCORED_WORDS], shift) for shift in SHIFTS.values()]
        size = f"{extra_bytes(scheme, text.words) / 1e6:.2f}"
        lines.append(LINE.format(scheme.name, scheme.enters, swap, *shifts, size))
        print(lines[-1], flush=True)
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        text = read_text(options.text, options.swap)
        make_directory(options.out, options.out)
    except ValueError as error:
        parser().error(str(error))
    used = f", of which the first {MAX_WORDS:,} are used" if text.total > MAX_WORDS else ""
    print(f"posenc {posenc.__version__}: {posenc.isa()} kernels, {posenc.get_num_threads()} threads")
    print(f"Text: {text.name}, {text.total:,} words{used}")
    effects = table(text)
    pictures = draw(text, options.out)
    index = write_index(options.out, text, pictures, effects)
    slides = write_slides(options.out, text, pictures)
    print(f"\n{len(pictures)} pictures: {index}\nSlides: {slides}")
    if options.open:
        webbrowser.open(index.resolve().as_uri())
    return 0


if __name__ == "__main__":
    command(main, PROGRAM)
