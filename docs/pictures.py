#!/usr/bin/env python3
"""Draw the pictures of the pages, so that a forge shows them, which builds nothing.

    python docs/pictures.py            draw the pictures whose code has changed
    python docs/pictures.py PAGE...    draw all pictures of these pages
    python docs/pictures.py --check    draw nothing; fail if a picture comes from other code

A page shows the code of a picture, then the picture:

    ```python
    plot.encoding(p)
    ```

    ![](pictures/encoding.png)

The last line of the code is the Figure, or its Axes. The code may use names of the examples above it. The program
writes the file, which keeps a hash of the code, and the alternative text, which `posenc.plot.description` computes from
the figure. Drawing needs matplotlib and pillow; checking needs nothing but Python. The figure of study.md is drawn from
the tables of the page by examples/study, which needs the bridge to autograd.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import doctest
import hashlib
import io
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOCS = Path(__file__).resolve().parent
STUDY = DOCS / "explanations/study.md"
TABLES = ("## Perplexity beyond the length of training", "## Context extensions of RoPE")
"""The sections of study.md whose first tables are drawn."""
SHOWN = re.compile(r"^```python\n(?P<code>(?:(?!```).*\n)+)```\n\n!\[(?P<alt>[^\]]*)\]\((?P<file>[\w/-]+\.png)\)", re.M)
OF_STUDY = re.compile(r"!\[(?P<alt>[^\]]*)\]\((?P<file>study\.png)\)")
DPI = 96
COLORS = (256, 128, 64, 32, 16)
"""Colours of a picture: the most with which its file is below `BYTES`. A palette makes a file a third as large."""
BYTES = 80_000


class Picture(NamedTuple):
    """A picture of a page: its file, the code or the tables that it is drawn from, and its alternative text."""

    file: Path
    source: str
    alt: str

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.source.encode()).hexdigest()

    @property
    def is_current(self) -> bool:
        return self.file.exists() and self.hash.encode() in self.file.read_bytes()


def pages() -> list[Path]:
    return [page for page in sorted(DOCS.rglob("*.md")) if page == STUDY or SHOWN.search(page.read_text("utf-8"))]


def pictures(page: Path) -> list[Picture]:
    """List the pictures of a page. The source of a picture has the examples and the code above it, in order."""
    text = page.read_text(encoding="utf-8")
    if page == STUDY:
        found = OF_STUDY.search(text)
        return [Picture(page.parent / found["file"], "\n".join(map(table_of, TABLES)), found["alt"])] if found else []
    codes = [(example.lineno, example.source) for example in doctest.DocTestParser().get_examples(text)]
    shown = [(text.count("\n", 0, found.start()), found) for found in SHOWN.finditer(text)]
    codes += [(line, found["code"]) for line, found in shown]
    return [
        Picture(page.parent / found["file"], "".join(code for at, code in sorted(codes) if at <= line), found["alt"])
        for line, found in shown
    ]


def table_of(heading: str) -> str:
    """Return the rows of the first table below a heading of study.md."""
    section = STUDY.read_text(encoding="utf-8").split(f"{heading}\n", 1)[1]
    return section[section.index("\n|") + 1 :].split("\n\n", 1)[0]


def perplexities(heading: str) -> dict[str, list[dict[int, float | None]]]:
    """Read the table: for each scheme the least and the greatest perplexity of the seeds, by length."""
    head, _, *rows = ([cell.strip() for cell in row.strip("|").split("|")] for row in table_of(heading).splitlines())
    lengths = [int(length) for length in head[1:]]

    def by_length(cells: list[str], end: int) -> dict[int, float | None]:
        ends = [cell.split(" to ")[end] for cell in cells]
        return {length: None if cell == "-" else float(cell) for length, cell in zip(lengths, ends, strict=True)}

    return {name: [by_length(cells, end) for end in (0, -1)] for name, *cells in rows}


def study_figure() -> Figure:
    sys.path.append(str(DOCS.parent / "examples"))
    from study.figure import study_figure

    methods, extensions = map(perplexities, TABLES)
    main = ("sinusoidal", "rope", "t5", "alibi")
    lengths = list(methods["rope"][0])
    return study_figure(lengths[0], lengths, {name: methods[name] for name in main}, extensions)


def figures(page: Path) -> Iterator[Figure]:
    """Execute the code of a page and yield the figure of each picture."""
    if page == STUDY:
        yield study_figure()
        return
    from matplotlib import pyplot

    pyplot.switch_backend("agg")  # without windows
    names: dict[str, Any] = {}
    done = ""
    for picture in pictures(page):
        *before, last = ast.parse(picture.source.removeprefix(done)).body
        done = picture.source
        assert isinstance(last, ast.Expr), picture.source
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(ast.Module(before, []), str(page), "exec"), names)
            figure: Figure = eval(compile(ast.Expression(last.value), str(page), "eval"), names).figure
        pyplot.close(figure)
        yield figure


def draw(page: Path, stale_only: bool) -> None:
    """Write the pictures of a page, and their alternative texts into the page."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    from posenc import plot

    text = page.read_text(encoding="utf-8")
    for picture, figure in zip(pictures(page), figures(page), strict=True):
        link = f"]({picture.file.relative_to(page.parent).as_posix()})"
        alt = plot.description(figure)
        wrapped = textwrap.fill(f"![{alt}{link}", 120, break_long_words=False, break_on_hyphens=False)
        text = text.replace(f"![{picture.alt}{link}", wrapped)
        if stale_only and picture.is_current:
            continue
        buffer, comment = io.BytesIO(), PngInfo()
        figure.savefig(buffer, format="png", dpi=DPI)
        comment.add_text("posenc", picture.hash)
        picture.file.parent.mkdir(exist_ok=True)
        whole = Image.open(buffer).convert("RGB")
        for count in COLORS:
            # The first method keeps rare colours, such as a colour bar has; the second keeps the detail with few.
            method = Image.Quantize.MAXCOVERAGE if count > 64 else Image.Quantize.MEDIANCUT
            small = whole.quantize(count, method, dither=Image.Dither.NONE)
            small.save(picture.file, "png", optimize=True, pnginfo=comment)
            if picture.file.stat().st_size < BYTES:
                break
        print(f"{picture.file.relative_to(DOCS)}: {picture.file.stat().st_size / 1000:.0f} kB")
    page.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--check", action="store_true", help="only compare the hashes")
    options = parser.parse_args()
    if not options.check:
        for page in [page.resolve() for page in options.pages] or pages():
            draw(page, stale_only=not options.pages)
        return 0
    stale = [picture.file for page in pages() for picture in pictures(page) if not picture.is_current]
    for file in stale:
        print(f"{file.relative_to(DOCS)}: it was drawn by other code; run python docs/pictures.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
