"""``python examples/tour [FILE]``: print a table of effects, and write pictures, slides and a page that shows them."""

from __future__ import annotations

import os
import select
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

if not __package__:  # the folder is run as a script; its parent has the package `tour`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import tour
from files import make_directory, refusing
from posenc.__main__ import Parser, command

PROGRAM = "python examples/tour"
INPUT_SECONDS = 1.0
"""Time to wait for standard input that was not asked for; a pipe without a writer must not block the tour."""


def parser() -> Parser:
    parser = Parser(
        prog=PROGRAM,
        description="The tour: the effect of each operator of posenc on real text, as a page with pictures and as "
        "slides for a lecture.",
    )
    parser.add_argument(
        "text", nargs="?", metavar="FILE", help="UTF-8 text, or - for standard input. By default the text on standard "
        "input if there is any, otherwise the reference texts that ship inside Python",
    )  # fmt: skip
    parser.add_argument(
        "--swap", nargs=2, metavar=("A", "B"), help="words of one sentence that change places (default: its two "
        "longest words, see docs/guides/commands.md)",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, metavar="DIR", default=Path("posenc-tour"), help="directory of index.html, slides.html and "
        "the pictures (default: posenc-tour)",
    )  # fmt: skip
    parser.add_argument("--open", action="store_true", help="open index.html in the browser")
    return parser


def piped_input() -> bytes:
    """Read standard input unless it is a terminal; nothing if it stays silent."""
    if sys.stdin is None or sys.stdin.isatty():
        return b""
    if os.name == "posix" and not select.select([sys.stdin], [], [], INPUT_SECONDS)[0]:
        print(f"{PROGRAM}: no text on standard input, continuing without (- waits for it)", file=sys.stderr)
        return b""
    return sys.stdin.buffer.read()


def read_text(file: str | None) -> tuple[str, str] | None:
    """Read the user's text as (name, text); None selects the embedded text. ValueError says what is wrong."""
    name = "standard input" if file is None or file == "-" else file
    with refusing(name):
        if file is None:
            content = piped_input()
        elif file == "-":
            content = sys.stdin.buffer.read()
        else:
            content = Path(file).read_bytes()
        return (name, content.decode("utf-8-sig")) if content or file is not None else None


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        named_text = read_text(options.text)
        text = tour.embedded(options.swap) if named_text is None else tour.of_user(*named_text, options.swap)
        make_directory(options.out, options.out)
    except ValueError as error:
        parser().error(str(error))
    index = tour.run(text, options.out)
    if options.open:
        webbrowser.open(index.resolve().as_uri())
    return 0


if __name__ == "__main__":
    command(main, PROGRAM)
