"""Progress bars of the study: shown on a terminal, silent elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Bars:
    """One bar for all trainings and one for the current training; both count steps."""

    def __init__(self, stream: TextIO, steps: int) -> None:
        columns = (
            TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.percentage:3.0f} %"),
            TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[loss]}"),
        )  # fmt: skip
        console = Console(file=stream)
        self.progress = Progress(
            *columns, console=console, transient=True, disable=not stream.isatty(), refresh_per_second=2
        )
        self.all = self.progress.add_task("all", total=steps, loss="")
        self.current: TaskID | None = None

    def training(self, title: str, done: int, steps: int) -> Callable[[int, float], None]:
        """Start the bar of a training, `done` of whose steps are done. Return the function to call after each step."""
        task = self.current = self.progress.add_task(title, total=steps, completed=done, loss="")
        self.progress.advance(self.all, done)
        self.progress.start()

        def report(step: int, loss: float) -> None:
            self.progress.update(task, completed=step, loss=f"loss {loss:.3f}")
            self.progress.advance(self.all)

        return report

    def clear(self) -> None:
        """Erase the bars from the terminal, so that a table can be printed there."""
        self.progress.stop()
        if self.current is not None:
            self.progress.remove_task(self.current)
            self.current = None
