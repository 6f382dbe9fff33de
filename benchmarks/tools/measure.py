"""Time contenders fairly. A benchmark calls `main(description, run)`, and `run(report)` times its lines.

- A result is checked before it is timed (`check`).
- Contenders take turns in one process, in rotating order, with one output each, and their medians are compared.
- Before each timed call the caches are filled with something else. Calls of microseconds are timed warm and in batches,
  because there the overhead of the call is of interest.
- Data are random and nonzero, because pages of zeros are faster than memory.
- Figures are ratios to a peer and to a limit (a fill or a copy of the same bytes) that are timed in the same run. Goals
  are printed beside them, and no time makes a script fail.
- The name of a peer in a line begins with its library: "torch SDPA", "np.take(out=)". No other name begins so.
- Everything runs on one thread.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from statistics import median, quantiles
from types import ModuleType
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np

import posenc
from tools.results import PEERS, library, rounded

EVICTED_BYTES = 96 << 20  # larger than last-level caches of 32 MiB
SAMPLE_SECONDS = 2e-3  # a batch of warm calls lasts about this long

LEFT_OUT: dict[str, str] = {}
"""Peers that this process could not time, and why."""

Work = Callable[[], object]
_evictor: Any = None


def evict() -> None:
    """Fill the caches with something else."""
    global _evictor
    if _evictor is None:
        _evictor = np.ones(EVICTED_BYTES // 8)
    _evictor += 1.0


def random(shape: tuple[int, ...], dtype: Any = np.float32, seed: int = 0) -> Any:
    """Standard normal numbers, made without a float64 array of that size."""
    kind = np.float64 if np.dtype(dtype) == np.float64 else np.float32
    return np.random.default_rng(seed).standard_normal(shape, kind).astype(dtype, copy=False)


def check(what: str, has: Any, expected: Any, tolerance: float) -> None:
    """Stop the script unless two results agree."""
    worst = float(np.max(np.abs(np.asarray(has, np.float64) - np.asarray(expected, np.float64)), initial=0.0))
    if not worst <= tolerance:
        sys.exit(f"{what}: results differ by {worst:.3g}; expected at most {tolerance:.3g}. Nothing was timed.")


def alternate(
    contenders: Mapping[str, Work], seconds: float, cold: bool = True, least: int = 5
) -> dict[str, list[float]]:
    """Seconds of one call of each contender in each turn; the turns last about `seconds` in all."""
    names = list(contenders)
    samples: dict[str, list[float]] = {name: [] for name in names}
    batch = dict.fromkeys(names, 1)
    for name in names:  # warm up: lazy imports, first touch of the outputs, the batch that fills a sample
        contenders[name]()
        while not cold:
            if _time(contenders[name], batch[name]) * batch[name] >= SAMPLE_SECONDS / 2:
                break
            batch[name] *= 2
    start, turn = time.perf_counter(), 0
    while turn < least or time.perf_counter() - start < seconds:
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            if cold:
                evict()
            samples[name].append(_time(contenders[name], batch[name]))
        turn += 1
    return samples


def _time(work: Work, times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - start) / times


def peer(module: str) -> ModuleType | None:
    """Import an optional package to compare with, on one thread; if it is absent, print that and return None."""
    if "POSENC_BENCHMARK_PIPES" in os.environ and module != "ml_dtypes":  # compare_builds.py times no peer
        return None
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        leave_out(module, f"is not installed: {error}")
        return None
    if module.startswith(("torch", "transformers")):
        importlib.import_module("torch").set_num_threads(1)
    return found


def leave_out(who: str, why: str) -> None:
    """Print and record that a contender is not timed."""
    if who not in LEFT_OUT:
        print(f"  ({who} {why}; its lines are left out)")
    LEFT_OUT[who] = why


class Report:
    """The lines of a benchmark, printed when they are timed and kept for --json."""

    only = ""
    """Part of the names of the lines that are wanted."""
    peers_only = False
    """True leaves out lines without a peer."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.rows: list[dict[str, Any]] = []

    def time(
        self,
        work: str,
        contenders: Mapping[str, Work],
        *,
        most: Mapping[str, float] | None = None,
        least: Mapping[str, float] | None = None,
        cold: bool = True,
        note: Callable[[float], str] = lambda seconds: "",
        turns: int = 5,
    ) -> dict[str, float]:
        """Time the first contender against the others, in at least so many turns.

        Goals: it takes at most `most[other]` times the time of the other, or is at least `least[other]` times faster.
        """
        self._claim(work)
        if self.peers_only and not any(library(name) for name in contenders):
            return {}
        samples = alternate(contenders, self.seconds, cold, turns)
        times = {name: median(seconds) for name, seconds in samples.items()}
        ours, *others = times
        print(f"{work}\n    {ours:<34}{_duration(times[ours])}   {note(times[ours])}".rstrip())
        for other in others:
            slower, faster = times[ours] / times[other], times[other] / times[ours]
            takes, is_faster = f"takes {slower:.2f}x this time", f"is {faster:.2f}x faster"
            line = takes if slower >= 1 or (most and other in most) else is_faster
            goal = ""
            if most and other in most:
                goal = f"goal <= {most[other]:g}: {'reached' if slower <= most[other] else 'MISSED'}"
            if least and other in least:
                line = is_faster
                goal = f"goal >= {least[other]:g}: {'reached' if faster >= least[other] else 'MISSED'}"
            print(f"    {other:<34}{_duration(times[other])}   the first {line:<24} {goal}".rstrip())
        ratios = {
            other: quartiles([b / a for a, b in zip(samples[ours], samples[other], strict=True)]) for other in others
        }
        self.rows.append({"work": work, "ours": ours, "seconds": times, "ratios": ratios})
        return times

    def _claim(self, work: str) -> None:
        """Refuse a second line with the same name, which a later run could not be compared with."""
        if any(row["work"] == work for row in self.rows):
            raise ValueError(f"Report: work is {work!r} a second time; expected a name of its own")

    def wants(self, work: str) -> bool:
        """Return whether a line with this name is to be timed; asked by benchmarks whose lines take long."""
        return self.only in work

    def figure(self, work: str, value: float, unit: str, *, most: float | None = None) -> None:
        """Print a figure that is no ratio of times, such as an amount of memory or an error."""
        goal = "" if most is None else f"   goal <= {most:g}: {'reached' if value <= most else 'MISSED'}"
        self._claim(work)
        print(f"{work}\n    {value:.4g} {unit}{goal}")
        self.rows.append({"work": work, "value": value, "unit": unit})


def _duration(seconds: float) -> str:
    for unit, size in (("s ", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:9.3f} {unit}"
    return f"{seconds / 1e-9:9.1f} ns"


def quartiles(values: list[float]) -> list[float]:
    """The lower quartile, the median and the upper quartile."""
    return quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3


def commit() -> str:
    """The last commit that changed posenc, or an empty string where there is no git or no repository."""
    package = Path(posenc.__path__[0])
    sources = [str(path) for path in (package, package.parent / "csrc") if path.exists()]
    try:
        last = subprocess.run(
            ["git", "log", "-1", "--format=%h", "--", *sources], cwd=package, text=True, capture_output=True, check=True
        ).stdout.strip()
        changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *sources], cwd=package, check=False)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"{last} with changes" if last and changed.returncode else last


def versions() -> dict[str, str | None]:
    """The version of each peer; None if it is not installed."""
    installed: dict[str, str | None] = dict.fromkeys(PEERS)
    for name in PEERS:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return installed


def vectors() -> str:
    """Return the instruction set of float32 in use: the 16-bit products of AVX512_BF16 and AMX come with AVX-512."""
    return posenc.runtime.isa() if posenc.runtime.isa() in ("base", "avx2") else "avx512"


def environment() -> dict[str, str]:
    """The processor and the versions that figures depend on."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        name = models[0].split(":")[1].strip() if models else name
    return {
        "cpu": name,
        "cores": str(os.cpu_count()),
        "isa": posenc.runtime.isa(),
        "posenc": posenc.__version__,
        "commit": commit(),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def main(description: str, run: Callable[[Report], None]) -> None:
    """Parse the options that all benchmarks share, and run one."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="time for each group of contenders (default 4)")
    parser.add_argument(
        "--isa", choices=posenc.runtime.isas(), default=posenc.runtime.isa(), help="kernel variant (default: the best)"
    )
    parser.add_argument("--only", default="", help="time lines whose name contains this, where a benchmark asks")
    parser.add_argument("--peers-only", action="store_true", help="leave out lines without a peer")
    parser.add_argument("--json", type=Path, help="also write the figures here, for compare.py")
    options = parser.parse_args()
    report = Report(options.seconds)
    if pipes := os.environ.get("POSENC_BENCHMARK_PIPES"):
        from tools.remote import RemoteReport

        report = RemoteReport(pipes)
    report.only, report.peers_only = options.only, options.peers_only
    with posenc.threads(1), posenc.runtime.use_isa(options.isa):
        about = environment()
        print(", ".join(f"{key} {value}" for key, value in about.items()) + ", one thread")
        run(report)
    if options.json:
        found = {"environment": about, "peers": versions(), "left_out": LEFT_OUT, "rows": rounded(report.rows)}
        options.json.write_text(json.dumps(found, indent=1) + "\n")
