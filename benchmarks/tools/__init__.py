"""Shared tools of the benchmarks. A benchmark imports this package before NumPy.

The import gives NumPy's BLAS one thread, like everything else that is timed, and makes importable: the posenc of this
tree, even if another one is installed, the packages and modules of tests/, and docs/made_part.py. With
POSENC_BENCHMARK_TREE in the environment, posenc is imported from that directory, or, if the variable is empty, from the
installed packages: `benchmarks/speed/compare_builds.py` runs the scripts of this tree with other builds in this way.
"""

import os
import sys
from pathlib import Path

for library in ("OPENBLAS", "MKL", "OMP", "VECLIB_MAXIMUM"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

TREE = Path(__file__).resolve().parents[2]
POSENC = os.environ.get("POSENC_BENCHMARK_TREE", str(TREE))
sys.path[1:1] = [POSENC] if POSENC else []
sys.path += [str(TREE / folder) for folder in ("tests", "bridges/tests", "bridges", "docs")]
