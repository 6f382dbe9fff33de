"""The pages of the tour: index.html with pictures and tables, and slides.html, which needs no other file."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

import posenc

from .pictures import Picture
from .terminal import Table
from .text import Text


def image(picture: Picture, source: str) -> str:
    return f'<div class="scroll"><img src="{source}" alt="{escape(picture.alt)}"></div>'


def table_html(table: Table) -> str:
    """A table that opens at a click."""

    def cell(tag: str, i: int, text: str, style: str = "") -> str:
        return f'<{tag} class="{"text " if i < table.text_columns else ""}{style}">{escape(text)}</{tag}>'

    lines = ["".join(cell("th", i, name) for i, name in enumerate(table.header))]
    lines += ["".join(cell("td", i, one.text, one.style) for i, one in enumerate(row)) for row in table.rows]
    rows = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return (
        f"<details><summary>{escape(table.title)}</summary>\n<p>{escape(table.note)}</p>\n"
        f'<div class="scroll"><table>\n{rows}\n</table></div></details>'
    )


def write(file: Path, title: str, kind: str, parts: Sequence[str]) -> Path:
    template = Template(files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
    file.write_text(template.substitute(title=escape(title), kind=kind, body="\n".join(parts)), encoding="utf-8")
    return file


def write_index(directory: Path, text: Text, pictures: Sequence[Picture], tables: Sequence[Table]) -> Path:
    """Write index.html: the pictures in reading order, which are files beside it, and the tables."""
    slides = '<a href="slides.html">The slides</a> have these pictures, and more, for a lecture.' if pictures else ""
    figures = [
        f"<figure>\n<h2>{escape(one.title)}</h2>\n{image(one, one.file)}\n"
        f"<figcaption>{escape(one.caption)}</figcaption>\n</figure>"
        for one in pictures
    ]
    made = f"posenc {posenc.__version__} on {escape(text.name)}."
    head = f"<h1>Positions in attention</h1>\n<p>{made} {slides}</p>"
    parts = [head, *figures, "<h2>The numbers</h2>", *map(table_html, tables)]
    return write(directory / "index.html", "posenc: the tour", "index", parts)


def write_slides(directory: Path, text: Text, pictures: Sequence[tuple[Picture, bytes]]) -> Path:
    """Write slides.html: each picture, given as PNG, with its caption and the notes of the speaker."""
    head = (
        f"<section>\n<h1>Positions in attention</h1>\n<p>{len(pictures)} pictures, made by posenc "
        f"{posenc.__version__} from {escape(text.name)}.</p>\n<p>Arrow keys turn the page. The key n shows the "
        "speaker's notes; they are printed if they are shown.</p>\n</section>"
    )
    slides = [
        f"<section>\n<h2>{escape(one.title)}</h2>\n"
        f"{image(one, 'data:image/png;base64,' + base64.b64encode(png).decode())}\n"
        f"<p>{escape(one.caption)}</p>\n<aside>{escape(one.notes)}</aside>\n</section>"
        for one, png in pictures
    ]
    return write(directory / "slides.html", "Positions in attention", "slides", [head, *slides])
