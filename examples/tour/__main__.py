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
from posenc import __main__ as effects
from tour.pages import write_index, write_slides
from tour.pictures import draw
from tour.text import Text, embedded, labels, of_user

PROGRAM = "python examples/tour"
LINE = "{:24}{:24}{:>20}{:>8}{:>8}{:>8}"
LEGEND = f"""
Embeddings are random, nothing is trained, and a change is relative to the largest number.

A <-> B     these words of the sentence change places: the largest change of the output for
            the other words. 0: the order is not seen.
+1, +10^6   the first {effects.SCORED_WORDS} words move to later positions: the largest change of the scores.
            0: only distances count; -: the scheme ends before; empty: no positions are read.
MB          memory that attention over the words allocates besides its result
"""


def parser() -> effects.Parser:
    parser = effects.Parser(
        prog=PROGRAM,
        description="The tour: the effect of each operator of posenc on real text, as a page with pictures and as "
        "slides for a lecture.",
    )
    parser.add_argument(
        "text", nargs="?", metavar="FILE", help="UTF-8 text, or - for standard input (default: a sentence)"
    )
    parser.add_argument(
        "--swap",
        nargs=2,
        metavar=("A", "B"),
        help="words of one sentence that change places (default: its two longest words)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        default=Path("posenc-tour"),
        help="directory of index.html, slides.html and the pictures (default: posenc-tour)",
    )
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
    swapped = " <-> ".join(labels([words[a], words[b]], 8))
    lines = [LEGEND, LINE.format("", "positions are", swapped, *effects.SHIFTS, "MB")]
    print(*lines, sep="\n")
    for scheme in effects.all_schemes():
        swap = effects.amount(effects.change_by_swap(scheme, words, a, b))
        scored = text.words[: effects.SCORED_WORDS]
        shifts = [effects.shifted(scheme, scored, shift) for shift in effects.SHIFTS.values()]
        size = f"{effects.extra_bytes(scheme, text.words) / 1e6:.2f}"
        lines.append(LINE.format(scheme.name, scheme.enters, swap, *shifts, size))
        print(lines[-1], flush=True)
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        text = read_text(options.text, options.swap)
        make_directory(options.out)
    except ValueError as error:
        parser().error(str(error))
    used = f", of which the first {effects.MAX_WORDS:,} are used" if text.total > effects.MAX_WORDS else ""
    print(f"posenc {posenc.__version__}: {posenc.runtime.isa()} kernels, {posenc.get_num_threads()} threads")
    print(f"Text: {text.name}, {text.total:,} words{used}")
    printed, pictures = table(text), draw(text, options.out)
    index = write_index(options.out, text, pictures, printed)
    slides = write_slides(options.out, text, pictures)
    print(f"\n{len(pictures)} pictures: {index}\nSlides: {slides}")
    if options.open:
        webbrowser.open(index.resolve().as_uri())
    return 0


if __name__ == "__main__":
    effects.command(main, PROGRAM)
