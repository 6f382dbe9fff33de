"""Run the benchmarks and write their figures, with the machine, the versions and the date, into one JSON file.

    python benchmarks/run.py [--machine "AMD EPYC, Zen 4"] [--quick] [SCRIPT ...]
    python docs/benchmark_page.py --write

The file is benchmarks/results/MACHINE-DATE.json; the second command makes the manual's page of all files there. Each
script runs in a process of its own. With names of scripts, such as `speed/rope`, only these run, and a file of the same
environment keeps the figures of the others. `--quick` runs the scripts that compare with peers, of these only the lines
that do, and each line for a shorter time. At the end the figures that became worse since the machine's earlier file are
printed.

Peers that are not installed are recorded as absent. `nox -s benchmarks` installs all of them.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from tools.compare import changes
from tools.results import DIRECTORY, Run, file_name, load

HERE = Path(__file__).resolve().parent
SCRIPTS = (
    "speed/attention", "speed/attention_vjp", "speed/attention_peers", "speed/decode", "speed/bias",
    "speed/transformers_models", "speed/rope", "speed/sinusoid", "speed/convolution", "speed/lookup",
    "speed/recurrence", "speed/floater", "speed/call", "speed/memory", "speed/sweep",
    "accuracy/accuracy", "accuracy/quantized",
)  # fmt: skip
"""The scripts that print figures, in the order of the page."""
LONG = ("speed/transformers_models", "speed/floater", "speed/memory", "speed/sweep")
"""Scripts that --quick leaves out, beside those of accuracy."""
QUICK_SECONDS = 0.2


def run_script(name: str, options: list[str]) -> Run:
    """Run one script and return its figures; a script that fails has none, and the reason is recorded."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "figures.json")
        command = [sys.executable, str(HERE / f"{name}.py"), "--json", str(file), *options]
        status = subprocess.run(command, check=False).returncode
        if status == 0:
            found: Run = json.loads(file.read_text("utf-8"))
            return found
    return {"rows": [], "left_out": {name: f"has exit status {status}"}}


def add(file: Path, machine: str, name: str, found: Run) -> None:
    """Put the figures of one script into the file, which has the figures of others in the same environment."""
    run: Run = {"machine": machine, "date": "", "environment": {}, "peers": {}, "scripts": {}}
    if file.exists():
        run = json.loads(file.read_text("utf-8"))
    for part in ("environment", "peers"):
        differing = [key for key in found.get(part, {}) if run[part] and run[part].get(key) != found[part][key]]
        if differing:
            sys.exit(f"{file}: {part} has another {', '.join(differing)}; expected the same, or another --out")
        run[part] = found.get(part) or run[part]
    run["date"] = datetime.date.today().isoformat()
    run["scripts"][name] = {"rows": found["rows"], "left_out": found["left_out"]}
    run["scripts"] = {one: run["scripts"][one] for one in SCRIPTS if one in run["scripts"]}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")


def earlier(run: Run, runs: dict[str, list[Run]]) -> Run | None:
    """The last run of the same machine before this one."""
    before = [one for one in runs.get(run["machine"], []) if one["date"] < run["date"]]
    return before[-1] if before else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help=f"some of {', '.join(SCRIPTS)}")
    parser.add_argument("--machine", help="name of this machine on the page (default: the processor's)")
    parser.add_argument("--out", type=Path, help="file to write (default: benchmarks/results/MACHINE-DATE.json)")
    parser.add_argument("--quick", action="store_true", help="lines with a peer only, each for a shorter time")
    parser.add_argument("--seconds", type=float, help=f"time for each line (default 4, with --quick {QUICK_SECONDS})")
    options = parser.parse_args()
    if unknown := set(options.scripts) - set(SCRIPTS):
        parser.error(f"no script {', '.join(sorted(unknown))}; expected some of {', '.join(SCRIPTS)}")
    quick = [name for name in SCRIPTS if name.startswith("speed/") and name not in LONG]
    shared = ["--peers-only"] if options.quick else []
    if seconds := options.seconds or (QUICK_SECONDS if options.quick else None):
        shared += ["--seconds", str(seconds)]
    failed = []
    for name in options.scripts or (quick if options.quick else SCRIPTS):
        print(f"== {name}", flush=True)
        found = run_script(name, shared)
        if "environment" not in found:
            failed.append(name)
        else:
            machine = options.machine or found["environment"]["cpu"]
            options.out = options.out or DIRECTORY / file_name(machine, datetime.date.today().isoformat())
            add(options.out, machine, name, found)
    if failed:
        print(f"no figures: {', '.join(failed)}")
    if options.out:
        report(json.loads(options.out.read_text("utf-8")), options.out)
    return int(bool(failed))


def report(run: Run, file: Path) -> None:
    """Print the name of the file, and the figures that are worse than those of the machine's earlier file."""
    absent = [name for name, version in run["peers"].items() if version is None]
    print(f"wrote {file}" + (f"; absent: {', '.join(absent)}" if absent else ""))
    before: Any = earlier(run, load())
    worse = [change for change in changes(before, run) if change.is_worse] if before else []
    for change in worse:
        print(f"WORSE  {change}")
    print(f"figures worse than on {before['date']}: {len(worse)}" if before else "no earlier file of this machine")


if __name__ == "__main__":
    sys.exit(main())
