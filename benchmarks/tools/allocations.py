"""Let each allocation of a call fail in turn, and look for memory that is not freed.

    python benchmarks/tools/allocations.py

The calls are the rows of tests/cases and their gradients. The n-th allocation of the extension fails, for n = 1, 2, ...
until a call has fewer allocations. Each call must raise MemoryError, or return the bits that it returns otherwise. All
of it is done several times, and the memory in use must not grow between the last two. It needs glibc and a C compiler.
Allocations of NumPy and Python do not fail: NumPy 2.4 ends with SystemError or SIGSEGV in some.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

import tools  # noqa: F401  first: it makes posenc and tests/cases importable

import numpy as np  # isort: skip
from cases import CASES, Case

import posenc

PRELOADED = "POSENC_FAIL_MALLOC"
MOST_ROUNDS = 30
"""Caches of the interpreter stop growing after some rounds; a leak grows in all."""


class Mallinfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t) for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


def in_use() -> int:
    """Bytes that malloc has handed out."""
    gc.collect()
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = Mallinfo
    info = mallinfo()
    return int(info.uordblks + info.hblkhd)


def code_of(path: str) -> tuple[int, int]:
    """The addresses between which a library is mapped."""
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(path)]
    spans = [[int(address, 16) for address in line[0].split("-")] for line in lines]
    return min(begin for begin, _ in spans), max(end for _, end in spans)


def restart_preloaded() -> int:
    """Run this program again with fail_malloc.c in place of malloc."""
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/fail_malloc.so"
        source = str(Path(__file__).with_name("fail_malloc.c"))
        compiler = os.environ.get("CC", "cc").split()
        subprocess.run([*compiler, "-O1", "-shared", "-fPIC", source, "-o", library], check=True)
        preload = f"{os.environ.get('LD_PRELOAD', '')} {library}".strip()
        environment = {**os.environ, "LD_PRELOAD": preload, PRELOADED: "1"}
        return subprocess.run([sys.executable, *sys.argv], env=environment, check=False).returncode


def calls_of(case: Case, n: int) -> list[tuple[str, Callable[[], Any]]]:
    """The call of a case and its gradient."""
    arguments = case.arguments(n, np.float32)
    found: list[tuple[str, Callable[[], Any]]] = [(f"{case.name} n={n}", lambda: case.call(arguments))]
    if case.gradients:
        grads = tuple(np.ones(np.shape(r)) for r in case.call(arguments))
        found.append((f"gradient of {case.name} n={n}", lambda: tuple(case.vjp(grads, arguments).values())))
    return found


def bits(results: Any) -> list[bytes]:
    return [np.asarray(r).tobytes() for r in results if r is not None]


def sweep(
    library: Any, name: str, call: Callable[[], Any], wanted: list[bytes], most: int, span: Any
) -> tuple[int, list[str]]:
    """Fail each allocation of a call; return their number and the findings."""
    findings = []
    for n in range(most):
        outcome, results = "", None
        library.fail_after(n, *span)
        try:
            results = call()
        except MemoryError:
            pass
        except BaseException as error:
            outcome = f"{type(error).__name__}: {error}"
        if not library.fail_never():
            return n, findings
        if results is not None and bits(results) != wanted:
            outcome = "another result"
        if outcome:
            findings.append(f"{name}, allocation {n + 1}: {outcome}")
    return most, findings


def fail_each(options: argparse.Namespace) -> int:
    library = ctypes.CDLL(None)
    library.fail_after.argtypes = [ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    span = code_of(posenc._core.__file__)
    posenc.set_num_threads(options.threads)
    calls = [call for case in CASES for n in options.sizes for call in calls_of(case, max(n, case.least))]
    findings: set[str] = set()
    counted = 0
    used = [in_use()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = [bits(call()) for _, call in calls]
        used.append(in_use())
        while used[-1] > used[-2] and len(used) < MOST_ROUNDS:
            for (name, call), expected in zip(calls, wanted, strict=True):
                count, found = sweep(library, name, call, expected, options.most, span)
                counted += count
                findings.update(found)
            used.append(in_use())
    grown = max(0, used[-1] - used[-2])
    for finding in sorted(findings):
        print(finding)
    print(
        f"{len(calls)} calls, {counted} failed allocations, {len(findings)} findings; memory in use grew by "
        f"{grown} bytes in the last of {len(used) - 2} rounds"
    )
    return bool(findings) or grown > 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[9, 129], help="sizes of the cases")
    parser.add_argument("--threads", type=int, default=3)
    parser.add_argument("--most", type=int, default=2000, help="allocations of a call that fail at most")
    options = parser.parse_args()
    return fail_each(options) if os.environ.get(PRELOADED) else restart_preloaded()


if __name__ == "__main__":
    sys.exit(main())
