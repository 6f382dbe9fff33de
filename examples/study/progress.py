"""Progress bars of the study: shown on a terminal, silent elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from .training import Report


class Bars:
    """One bar for all trainings and one for the current training; both count steps."""

    def __init__(self, steps: int) -> None:
        columns = (*Progress.get_default_columns(), TimeElapsedColumn(), TextColumn("{task.fields[loss]}"))
        is_hidden = not sys.stderr.isatty()
        self.progress = Progress(*columns, console=Console(stderr=True), transient=True, disable=is_hidden)
        self.all = self.progress.add_task("all", total=steps, loss="")

    @contextmanager
    def training(self, title: str, done: int, steps: int) -> Iterator[Report]:
        """Show the bar of a training, `done` of whose steps are done. Yields the function to call after each step.

        At the end the bars are erased, so that a table can be printed there.
        """
        task = self.progress.add_task(title, total=steps, completed=done, loss="")
        self.progress.advance(self.all, done)

        def report(step: int, loss: float) -> None:
            self.progress.update(task, completed=step, loss=f"loss {loss:.3f}")
            self.progress.advance(self.all)

        with self.progress:
            yield report
        self.progress.remove_task(task)
