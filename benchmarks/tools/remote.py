"""A benchmark that another process conducts: it announces each line and times a contender when it is told to.

`speed/compare_builds.py` starts a script once per build, with two file descriptors in POSENC_BENCHMARK_PIPES. Messages
are lines of JSON. The script sends {"work", "names"} for a line or {"work", "value", "unit"} for a figure, and answers
{"sample": name} with the seconds of one call until it receives {"next": true}.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from tools.measure import SAMPLE_SECONDS, Report, evict

PIPES = "POSENC_BENCHMARK_PIPES"


def calls_posenc(function: Any, depth: int = 3) -> bool:
    """Return True if the code of a contender, or of a function that it names, refers to posenc."""
    if isinstance(function, ModuleType):
        return function.__name__.split(".")[0] == "posenc"
    if isinstance(function, MethodType):
        return calls_posenc(function.__self__, depth)
    if not isinstance(function, FunctionType):
        return type(function).__module__.split(".")[0] == "posenc"
    if function.__module__.split(".")[0] == "posenc":
        return True
    code: CodeType = function.__code__
    named = [function.__globals__[name] for name in code.co_names if name in function.__globals__]
    bound = [cell.cell_contents for cell in function.__closure__ or ()]
    return depth > 0 and any(calls_posenc(one, depth - 1) for one in (*named, *bound, *(function.__defaults__ or ())))


class RemoteReport(Report):
    """Times one call at a time, when the conductor asks."""

    def __init__(self, pipes: str) -> None:
        super().__init__(0.0)
        read, write = map(int, pipes.split(","))
        self._commands, self._answers = os.fdopen(read), os.fdopen(write, "w", buffering=1)

    def _send(self, message: dict[str, Any]) -> None:
        self._answers.write(json.dumps(message) + "\n")

    def time(
        self,
        work: str,
        contenders: Mapping[str, Callable[[], object]],
        *,
        cold: bool = True,
        **goals: Any,
    ) -> dict[str, float]:
        first = next(iter(contenders))
        ours = [name for name, call in contenders.items() if name == first or calls_posenc(call)]
        self._send({"work": work, "names": ours})
        batch: dict[str, int] = {}
        for line in self._commands:
            name = json.loads(line).get("sample")
            if name is None:
                break
            call = contenders[name]
            if name not in batch:
                call()
                batch[name] = 1 if cold else batch_of(call)
            if cold:
                evict()
            self._send({"seconds": sample(call, batch[name])})
        return dict.fromkeys(contenders, 1.0)

    def figure(self, work: str, value: float, unit: str, *, most: float | None = None) -> None:
        self._send({"work": work, "value": value, "unit": unit})


def sample(call: Callable[[], object], times: int) -> float:
    """Processor seconds of one call, which do not count other processes on the same core."""
    start = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - start) / times


def batch_of(call: Callable[[], object]) -> int:
    """The number of calls that fill a sample."""
    times = 1
    while sample(call, times) * times < SAMPLE_SECONDS / 2:
        times *= 2
    return times
