"""Compare two installed builds of posenc bit for bit on random calls.

    python benchmarks/accuracy/compare_builds.py BUILD_A BUILD_B --calls 20000

{HELP}

Each build runs in a process of its own, both see the same calls, and each call covers a result: values, gradients, lse,
`out` and the bytes around it, the type of an exception, the categories of warnings, and whether an input was changed.
Bits are compared, except that all NaNs are equal: IEEE 754 leaves their payload to the compiler. Gradients are compared
by field, whatever the class of the tuple. tests/draws.py draws the calls: every public function in all dtypes, memory
layouts, options, instruction sets that both builds can run, and with one to three threads.

A difference is printed with the arguments of the call and the largest deviation. To see one call again:

    python benchmarks/accuracy/compare_builds.py BUILD_A BUILD_B --seed 0 --only 1234

`--cases DIRECTORY` is the folder that contains the package `cases` (default: tests/ of this tree). Each environment
needs NumPy, SciPy and ml_dtypes, in the same versions. The exit status is 1 if a call differs.
"""

from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools import TREE
from tools.builds import HELP, Build, introduce

CHUNK_SECONDS = 900
"""A chunk that takes longer is stopped, and the call that it stands at is reported."""


# One build, in its own process


def child(options: argparse.Namespace) -> None:
    """Run the calls that the parent asks for; one line of JSON per call, or one pickle for --only."""
    from runner import Runner, canonical, digest  # of the other build too: they import its posenc

    runner = Runner(options.isas.split(","), options.names.split(","))
    if options.only is not None:
        from draws import describe

        results, call = runner.run(options.seed, options.only)
        plain = {name: (canonical(v) if hasattr(v, "dtype") else v, digest(v)) for name, v in results.items()}
        sys.stdout.buffer.write(pickle.dumps((describe(call), plain)))
        return
    for index in range(options.start, options.stop):
        results, call = runner.run(options.seed, index)
        digests = {name: digest(value) for name, value in results.items() if not name.startswith("_")}
        name = f"{call.function}.{call.method}" if call.method else call.function
        print(json.dumps({"index": index, "call": name, "gradient": call.gradient, "results": digests}), flush=True)


# The parent


Row = dict[str, Any]
"""The results of a call by name."""
Command = tuple[str, ...]
"""This script as the process of one build, without the options that select the calls."""


def run_range(build: Build, command: Command, cases: str, start: int, stop: int) -> dict[int, Row]:
    """Results of a range of calls by index. A process that a signal ends is started again after its last call."""
    rows: dict[int, Row] = {}
    while start < stop:
        with tempfile.TemporaryFile() as file:
            process = build.start(*command, "--start", str(start), "--stop", str(stop), path=(cases,), stdout=file)
            try:
                process.wait(CHUNK_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.returncode > 0:
                sys.exit(f"{build.interpreter} {build.tree}: exit status {process.returncode}")
            file.seek(0)
            for row in map(json.loads, file):
                rows[row["index"]] = row
                start = row["index"] + 1
        if start < stop:
            rows[start] = {"call": "?", "gradient": False, "results": {"process": f"signal {-process.returncode}"}}
            start += 1
    return rows


def deviation(a: Any, b: Any) -> str:
    """Describe the difference of two results."""
    import numpy as np

    if not (hasattr(a, "dtype") and hasattr(b, "dtype")):
        return f"{a!r} and {b!r}"
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)}"
    if a.dtype.kind in "OUS":
        return f"{a!r} and {b!r}"
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        x, y = a.astype(wide), b.astype(wide)
        differs = ~((x == y) & (np.signbit(x.real) == np.signbit(y.real)) | (np.isnan(x) & np.isnan(y)))
        gap, largest = np.abs(x - y)[differs], np.nanmax(np.abs(x), initial=0)
    return (
        f"{differs.sum()} of {differs.size} entries differ, by at most {gap.max(initial=0):.3g}; largest {largest:.3g}"
    )


def show(builds: list[Build], command: Command, cases: str, index: int) -> None:
    """Print one call and where its results differ."""
    (text, a), (_, b) = (pickle.loads(build.ask(*command, "--only", str(index), path=(cases,))) for build in builds)
    print(f"\n{' '.join(command[2:4])} --only {index}: {text}")
    for name in dict.fromkeys([*a, *b]):
        if name not in a or name not in b:
            print(f"    {name}: only in {'A' if name in a else 'B'}")
        elif name.startswith("_"):
            print(f"    {name}: {a[name][0]!r}, {b[name][0]!r}")
        elif a[name][1] != b[name][1]:
            print(f"    {name}: {deviation(a[name][0], b[name][0])}")


def main() -> int:
    text = (__doc__ or "").format(HELP=HELP)
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="*", metavar="BUILD", help="two builds")
    parser.add_argument("--calls", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="index of one call to show")
    parser.add_argument("--chunk", type=int, default=1000, help="calls of one process (default 1000)")
    parser.add_argument("--show", type=int, default=20, help="differences to print in full (default 20)")
    parser.add_argument("--cases", type=Path, default=TREE / "tests", help="folder of the package `cases`")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    for hidden in ("--isas", "--names"):
        parser.add_argument(hidden, default="", help=argparse.SUPPRESS)
    for hidden in ("--start", "--stop"):
        parser.add_argument(hidden, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options)
        return 0
    if len(options.builds) != 2:
        parser.error("two builds are expected")
    builds, cases = [Build.parse(text) for text in options.builds], str(options.cases.resolve())
    isas, names = map(",".join, introduce(builds))
    script = str(Path(__file__).resolve())
    command = (script, "--child", "--seed", str(options.seed), "--isas", isas, "--names", names)
    if options.only is not None:
        show(builds, command, cases, options.only)
        return 0

    start, counted, raised = time.monotonic(), Counter[str](), Counter[str]()
    different: list[int] = []
    ended: dict[int, str] = {}
    for first in range(0, options.calls, options.chunk):
        last = min(first + options.chunk, options.calls)
        with ThreadPoolExecutor(2) as pool:
            ours, theirs = pool.map(partial(run_range, command=command, cases=cases, start=first, stop=last), builds)
        for index in range(first, last):
            a, b = ours[index], theirs[index]
            counted[a["call"]] += 1
            counted["gradients"] += a["gradient"]
            raised[a["results"].get("error", "").strip("'")] += 1
            if a["results"] != b["results"]:
                different.append(index)
            if which := "".join(
                letter for letter, row in zip("AB", (a, b), strict=True) if "process" in row["results"]
            ):
                ended[index] = which
        passed = time.monotonic() - start
        print(f"{last} calls, {last / passed:.0f} per second, {len(different)} differ", flush=True)
    for index in different[: options.show]:
        if index in ended:
            print(f"\n--seed {options.seed} --only {index}: build {ended[index]} ended, by this call or one before it")
        else:
            show(builds, command, cases, index)
    del raised[""]
    print(f"\nfunctions: {', '.join(f'{name} {count}' for name, count in sorted(counted.items()))}")
    print(f"raised in A: {', '.join(f'{name} {count}' for name, count in raised.most_common())}")
    print(f"{options.calls} calls with seed {options.seed}: {len(different)} differ {different or ''}".rstrip())
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
