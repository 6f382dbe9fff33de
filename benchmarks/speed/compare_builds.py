"""Compare the speed of two builds of posenc on every line of the benchmarks in this directory.

    python benchmarks/speed/compare_builds.py BUILD_A BUILD_B [--quick] [--only rope,bias]

{HELP} The scripts are those of this tree for both builds; no peer is timed.

Two processes run a script at the same time, one per build. At each line they take turns, one call at a time in the
order A B B A, so that whatever slows the machine slows both. A call is timed in processor seconds, and the caches are
filled with something else before it. The ratio B / A is estimated twice, from the smallest time of each build and as
the median over the turns; noise seldom moves both, so the estimate nearer to 1 counts. If it is off by more than the
tolerance, its script runs again in new processes, whose memory lies elsewhere, until the ratio is within it or the
rounds are used up; all rounds count.

Each line prints the time of A, the time of B, and their ratio B / A: 1.05 means that B takes 5 % longer. Figures in
other units (MiB, single calls) are printed if they differ by more than the tolerance. `--quick` leaves out the slowest
scripts and halves the time for each line. The exit status is 1 if B takes longer than A by more than the tolerance.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from math import log
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.builds import HELP, Build, introduce

HERE = Path(__file__).resolve().parent
SLOW = ("sweep", "memory", "attention_peers")
"""Scripts that --quick leaves out; attention_peers times nothing without peers."""
LEAST = 3
"""Turns A B B A of a line, at least; calls that take seconds get one."""
LONGEST = 6
"""Factor on the seconds of a line while its ratio is beyond the tolerance."""


@dataclass
class Line:
    """One contender of one line of a script, and its smallest times so far."""

    script: str
    work: str
    name: str
    times: list[float] = field(default_factory=lambda: [float("inf")] * 2)
    turns: list[float] = field(default_factory=list)
    """B / A in each turn A B B A."""

    @property
    def ratio(self) -> float:
        """Two estimates of B / A, of the smallest times and the median of the turns; the one nearer to 1."""
        return min(self.times[1] / self.times[0], median(self.turns), key=lambda ratio: abs(log(ratio)))


class Player:
    """A script that runs with one build."""

    def __init__(self, build: Build, script: str) -> None:
        read, answers = os.pipe()
        commands, write = os.pipe()
        self.process = build.start(
            str(HERE / f"{script}.py"),
            stdout=subprocess.DEVNULL,
            pass_fds=(commands, answers),
            env={"POSENC_BENCHMARK_PIPES": f"{commands},{answers}"},
        )
        os.close(commands)
        os.close(answers)
        self.answers, self.commands = os.fdopen(read), os.fdopen(write, "w", buffering=1)

    def read(self) -> dict[str, Any]:
        """The next message, {} at the end of the script."""
        line = self.answers.readline()
        return json.loads(line) if line else {}

    def tell(self, message: dict[str, Any]) -> None:
        self.commands.write(json.dumps(message) + "\n")

    def sample(self, name: str) -> float:
        self.tell({"sample": name})
        return float(self.read()["seconds"])

    def close(self) -> int:
        self.commands.close()
        self.answers.close()
        return self.process.wait()


def contest(players: list[Player], line: Line, seconds: float, tolerance: float) -> None:
    """Sample both builds in turns until the time is over, longer while the ratio is beyond the tolerance."""
    for which in (0, 1):
        players[which].sample(line.name)  # warm up
    start = time.monotonic()
    while True:
        a, b, again_b, again_a = (players[which].sample(line.name) for which in (0, 1, 1, 0))
        line.times = [min(line.times[0], a, again_a), min(line.times[1], b, again_b)]
        line.turns.append((b + again_b) / (a + again_a))
        passed, off = time.monotonic() - start, abs(line.ratio - 1) > tolerance / 2
        enough = len(line.turns) >= LEAST or passed > 2 * LONGEST * seconds
        if enough and passed > seconds * (LONGEST if off else 1):
            return


def run_script(
    builds: list[Build], script: str, lines: dict[tuple[str, str], Line], options: argparse.Namespace, first: bool
) -> None:
    """Run a script with both builds: all of its lines at first, then those whose ratio is beyond the tolerance."""
    players = [Player(build, script) for build in builds]
    try:
        while True:
            messages = [player.read() for player in players]
            works = [message.get("work") for message in messages]
            if works[0] != works[1]:
                print(f"    {script}: A stands at {works[0]!r} and B at {works[1]!r}; the rest is left out")
                return
            if not works[0]:
                return
            work = works[0]
            if "value" in messages[0]:
                if first:
                    figure(work, *messages, tolerance=options.tolerance)
                continue
            for name in messages[0]["names"]:
                line = lines.setdefault((work, name), Line(script, work, name))
                if first or abs(line.ratio - 1) > options.tolerance:
                    before = line.ratio if line.turns else None
                    contest(players, line, options.seconds, options.tolerance)
                    show(line, options.tolerance, before)
            for player in players:
                player.tell({"next": True})
    finally:
        for letter, player in zip("AB", players, strict=True):
            if status := player.close():
                print(f"    {script}: exit status {status} with build {letter}")


def figure(work: str, a: dict[str, Any], b: dict[str, Any], tolerance: float) -> None:
    """Print a figure that is no time if the builds differ."""
    if abs(b["value"] - a["value"]) > tolerance * max(abs(a["value"]), 1):
        print(f"    {'figure':>9}  {work}: {a['value']:.4g} and {b['value']:.4g} {a['unit']}")


def show(line: Line, tolerance: float, before: float | None) -> None:
    a, b = (f"{seconds * 1e6:11.1f} us" for seconds in line.times)
    word = "SLOWER" if line.ratio > 1 + tolerance else "faster" if line.ratio < 1 - tolerance else ""
    again = "" if before is None else f"  (was {before:.3f})"
    print(f"    {word:>9}  {a} {b}  B / A = {line.ratio:.3f}  {line.work}: {line.name}{again}", flush=True)


def main() -> int:
    text = (__doc__ or "").format(HELP=HELP)
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs=2, metavar="BUILD")
    parser.add_argument("--quick", action="store_true", help=f"without {', '.join(SLOW)}, in half the time per line")
    parser.add_argument("--only", default="", help="names of scripts, separated by commas")
    parser.add_argument("--seconds", type=float, help="time for each line (default 1, with --quick 0.5)")
    parser.add_argument("--tolerance", type=float, default=0.02, help="difference that counts (default 0.02)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of a script at most (default 5)")
    options = parser.parse_args()
    options.seconds = options.seconds or (0.5 if options.quick else 1.0)
    builds = [Build.parse(build) for build in options.builds]
    introduce(builds)
    scripts = sorted(path.stem for path in HERE.glob("*.py") if path.stem != Path(__file__).stem)
    wanted = options.only.split(",") if options.only else [s for s in scripts if not (options.quick and s in SLOW)]
    if unknown := set(wanted) - set(scripts):
        parser.error(f"--only has {', '.join(sorted(unknown))}; expected some of {', '.join(scripts)}")

    start, lines = time.monotonic(), dict[str, dict[tuple[str, str], Line]]()
    for turn in range(options.rounds):
        for script in wanted:
            of_script = lines.setdefault(script, {})
            if turn == 0 or any(abs(line.ratio - 1) > options.tolerance for line in of_script.values()):
                print(f"{script}{f', round {turn + 1}' if turn else ''}", flush=True)
                run_script(builds, script, of_script, options, turn == 0)
    every = [line for of_script in lines.values() for line in of_script.values()]
    slower = [line for line in every if line.ratio > 1 + options.tolerance]
    faster = [line for line in every if line.ratio < 1 - options.tolerance]
    print(f"\n{len(every)} lines in {time.monotonic() - start:.0f} s; B against A beyond {options.tolerance:.0%}:")
    for line in sorted([*slower, *faster], key=lambda line: -line.ratio):
        show(line, options.tolerance, None)
    print(f"{len(slower)} slower, {len(faster)} faster, {len(every) - len(slower) - len(faster)} within the tolerance")
    return bool(slower)


if __name__ == "__main__":
    sys.exit(main())
