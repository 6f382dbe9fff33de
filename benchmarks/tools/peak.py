"""The multiply-add peak of this core as a contender: the same number of multiply-adds, on independent registers."""

from __future__ import annotations

import ctypes
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tools.measure import vectors

PEAK_C = """
typedef REAL vec __attribute__((vector_size(BYTES)));
enum { WIDTH = BYTES / sizeof(REAL) };
REAL spin(long turns) {
    vec a[10], x, y;
    for (int i = 0; i < WIDTH; i++) { x[i] = (REAL)0.999; y[i] = (REAL)1e-3; }
    for (int r = 0; r < 10; r++) a[r] = x * (REAL)(r + 1);
    for (long t = 0; t < turns; t++)
        _Pragma("GCC unroll 10")
        for (int r = 0; r < 10; r++) a[r] = a[r] * x + y;
    REAL sum = 0;
    for (int r = 0; r < 10; r++) for (int i = 0; i < WIDTH; i++) sum += a[r][i];
    return sum;
}
"""
FLAGS = {"avx512": (64, "-march=x86-64-v4"), "avx2": (32, "-mavx2 -mfma"), "base": (16, "")}
NAME = "as many multiply-adds"


@cache
def _spin(isa: str, real: str) -> Callable[[int], float] | None:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    width, flags = FLAGS[isa]
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "peak.c"), Path(folder, "peak.so")
        source.write_text(PEAK_C)
        command = [compiler, "-O3", "-ffp-contract=fast", f"-DBYTES={width}", f"-DREAL={real}", *flags.split()]
        try:
            subprocess.run(
                [*command, "-shared", "-fPIC", str(source), "-o", str(library)], check=True, capture_output=True
            )
            spin: Any = ctypes.CDLL(str(library)).spin
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"    (no C compiler: {error}; the share of the peak is left out)")
            return None
    spin.argtypes, spin.restype = [ctypes.c_long], {"float": ctypes.c_float, "double": ctypes.c_double}[real]
    return spin


def peak(operations: float, dtype: str = "float32") -> dict[str, Callable[[], object]]:
    """A contender with so many operations (two per multiply-add) of the instruction set in use, or no contender."""
    real = "float" if dtype == "float32" else "double"
    spin = _spin(vectors(), real)
    if spin is None:
        return {}
    each = 10 * 2 * FLAGS[vectors()][0] // (4 if real == "float" else 8)
    return {NAME: lambda: spin(int(operations / each))}


def share(times: dict[str, float]) -> None:
    """Print the share of the peak, from the times that a report returned."""
    if NAME in times:
        ours = next(iter(times))
        print(f"    {100 * times[NAME] / times[ours]:.0f} % of the multiply-add peak, timed in turns")
