"""The pages of the tour: index.html with pictures and a table, and slides.html, which needs no other file."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

import posenc

from .pictures import Picture
from .text import Text


def image(picture: Picture, source: str) -> str:
    alt = f"{picture.title}. {posenc.plot.description(picture.figure)}"
    return f'<div class="scroll"><img src="{source}" alt="{escape(alt)}"></div>'


def write(file: Path, title: str, kind: str, parts: Sequence[str]) -> Path:
    template = Template(files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
    file.write_text(template.substitute(title=escape(title), kind=kind, body="\n".join(parts)), encoding="utf-8")
    return file


def write_index(directory: Path, text: Text, pictures: Sequence[Picture], table: str) -> Path:
    """Write index.html: the pictures in reading order, which are files beside it, and the table of effects."""
    slides = '<a href="slides.html">The slides</a> have these pictures for a lecture.'
    figures = [
        f"<figure>\n<h2>{escape(one.title)}</h2>\n{image(one, one.file)}\n"
        f"<figcaption>{escape(one.caption)}</figcaption>\n</figure>"
        for one in pictures
    ]
    made = f"posenc {posenc.__version__} on {escape(text.name)}."
    head = f"<h1>Positions in attention</h1>\n<p>{made} {slides}</p>"
    parts = [head, *figures, f'<h2>The numbers</h2>\n<div class="scroll"><pre>{escape(table)}</pre></div>']
    return write(directory / "index.html", "posenc: the tour", "index", parts)


def write_slides(directory: Path, text: Text, pictures: Sequence[Picture]) -> Path:
    """Write slides.html: each picture, read from its file, with its caption and the notes of the speaker."""
    head = (
        f"<section>\n<h1>Positions in attention</h1>\n<p>{len(pictures)} pictures, made by posenc "
        f"{posenc.__version__} from {escape(text.name)}.</p>\n<p>Arrow keys turn the page. The key n shows the "
        "speaker's notes; they are printed if they are shown.</p>\n</section>"
    )
    slides = [
        f"<section>\n<h2>{escape(one.title)}</h2>\n"
        f"{image(one, 'data:image/png;base64,' + base64.b64encode((directory / one.file).read_bytes()).decode())}\n"
        f"<p>{escape(one.caption)}</p>\n<aside>{escape(one.notes)}</aside>\n</section>"
        for one in pictures
    ]
    return write(directory / "slides.html", "Positions in attention", "slides", [head, *slides])
