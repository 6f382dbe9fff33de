"""How far a study is, and what is left of it: bars where there is a terminal, nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Bars:
    """One bar for all trainings, one for that which runs; both count steps."""

    def __init__(self, stream: TextIO, steps: int) -> None:
        console = Console(file=stream)
        columns = (
            TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.percentage:3.0f} %"),
            TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[loss]}"),
        )  # fmt: skip
        self.shown = Progress(
            *columns, console=console, transient=True, disable=not stream.isatty(), refresh_per_second=2
        )
        self.whole = self.shown.add_task("all", total=steps, loss="")
        self.one: TaskID | None = None

    def training(self, title: str, done: int, steps: int) -> Callable[[int, float], None]:
        """Begin a training of which some steps are done; returns what its steps report to."""
        task = self.one = self.shown.add_task(title, total=steps, completed=done, loss="")
        self.shown.advance(self.whole, done)
        self.shown.start()

        def report(step: int, loss: float) -> None:
            self.shown.update(task, completed=step, loss=f"loss {loss:.3f}")
            self.shown.advance(self.whole)

        return report

    def clear(self) -> None:
        """Nothing is left on the terminal: something will be printed there."""
        self.shown.stop()
        if self.one is not None:
            self.shown.remove_task(self.one)
            self.one = None
