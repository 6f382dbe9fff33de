"""Print the tables: with rich if it is installed, otherwise as plain text."""

from __future__ import annotations

import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 100
"""Columns of the text where there is no terminal."""


class Cell(NamedTuple):
    text: str
    style: Literal["", "good", "bad", "dim"] = ""


class Table(NamedTuple):
    """A table with its title, and a note that says what the numbers mean."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    note: str
    text_columns: int = 1
    """Columns from the left that hold words; the others hold numbers and are aligned to the right."""


def display_width(text: str) -> int:
    """Columns that a text takes on a terminal; Chinese characters take two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def plain(table: Table) -> str:
    lines = [table.header, *(tuple(cell.text for cell in row) for row in table.rows)]
    widths = [max(display_width(line[i]) for line in lines) for i in range(len(table.header))]

    def padded(i: int, cell: str) -> str:
        pad = " " * (widths[i] - display_width(cell))
        return cell + pad if i < table.text_columns else pad + cell

    rows = [("  " + "  ".join(padded(i, cell) for i, cell in enumerate(line))).rstrip() for line in lines]
    return "\n".join([table.title, "", *rows, "", textwrap.fill(table.note, WIDTH)])


STYLES = {"good": "green", "bad": "red", "dim": "dim", "": ""}


class Terminal:
    """Prints text and tables, and shows the progress."""

    def __init__(self) -> None:
        self.console: Console | None = None
        """rich's Console; None if rich is not installed."""
        if find_spec("rich"):
            from rich.console import Console

            self.console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)

    def say(self, text: str = "") -> None:
        if self.console is None:
            print(text, flush=True)
        else:
            self.console.print(text, markup=False, soft_wrap=True)

    def show(self, table: Table) -> None:
        if self.console is None:
            print(plain(table), end="\n\n", flush=True)
            return
        from rich import box
        from rich.table import Table as Grid
        from rich.text import Text as Styled

        grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False)
        for i, name in enumerate(table.header):
            grid.add_column(Styled(name), justify="left" if i < table.text_columns else "right", no_wrap=True)
        for row in table.rows:
            grid.add_row(*(Styled(cell.text, STYLES[cell.style]) for cell in row))
        self.console.print(table.title, style="bold")
        self.console.print(grid)
        self.console.print(table.note, style="italic", markup=False)
        self.console.print()

    @contextmanager
    def progress(self, steps: int) -> Iterator[Callable[[str], None]]:
        """Show the progress on a terminal, with rich. Yields the function to call at the start of each step."""
        if self.console is None or not sys.stderr.isatty():
            yield lambda description: None
        else:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            console = self.console if sys.stdout.isatty() else Console(stderr=True)
            with Progress(BarColumn(20), TextColumn("{task.description}"), console=console, transient=True) as bar:
                task = bar.add_task("", total=steps)
                yield lambda description: bar.update(task, advance=1, description=description)
