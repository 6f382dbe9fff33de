"""Builds of posenc to compare, each run in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HELP = """BUILD is a Python interpreter in whose environment posenc is installed, or INTERPRETER:TREE for a tree of the
sources with the extension built in place, e.g. `/envs/dev/bin/python:/src/posenc`."""
ABOUT = """
import tools, json, numpy, posenc, posenc.analysis, platform
names = [*posenc.__all__, *posenc.analysis.__all__]
versions = f"NumPy {numpy.__version__}, Python {platform.python_version()}"
print(json.dumps({"file": posenc.__file__, "isas": posenc.runtime.isas(), "versions": versions, "names": names}))
"""


@dataclass(frozen=True)
class Build:
    """A Python interpreter and, unless posenc is installed in its environment, a tree."""

    interpreter: str
    tree: str = ""

    @classmethod
    def parse(cls, text: str) -> Build:
        """A build from INTERPRETER or INTERPRETER:TREE."""
        interpreter, _, tree = text.partition(":")
        return cls(interpreter, str(Path(tree).resolve()) if tree else "")

    def start(self, *command: str, path: tuple[str, ...] = (), **options: Any) -> subprocess.Popen[Any]:
        """Start Python with this build's posenc, in a directory without sources; `path` extends sys.path."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "POSENC_"))}
        environment |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
        environment["POSENC_BENCHMARK_TREE"] = self.tree
        environment["PYTHONPATH"] = os.pathsep.join((*path, str(Path(__file__).resolve().parents[1])))
        environment |= options.pop("env", {})
        return subprocess.Popen([self.interpreter, *command], env=environment, cwd=tempfile.gettempdir(), **options)

    def ask(self, *command: str, path: tuple[str, ...] = ()) -> bytes:
        """Run Python to its end and return what it writes."""
        process = self.start(*command, path=path, stdout=subprocess.PIPE)
        output, _ = process.communicate()
        if process.returncode:
            sys.exit(f"{self.interpreter} {self.tree}: exit status {process.returncode}")
        return bytes(output)


def introduce(builds: list[Build]) -> tuple[list[str], list[str]]:
    """Print the two builds; return the instruction sets and the public names that both have."""
    a, b = about = [json.loads(build.ask("-c", ABOUT)) for build in builds]
    for letter, one in zip("AB", about, strict=True):
        print(f"{letter}: {one['file']}, {one['versions']}, {' '.join(one['isas'])}", flush=True)
    if missing := sorted(set(a["names"]) ^ set(b["names"])):
        print(f"only in one build, and left out: {', '.join(missing)}", flush=True)
    return [isa for isa in a["isas"] if isa in b["isas"]], [name for name in a["names"] if name in b["names"]]
