"""Time every row of tests/cases at its realistic size, so that a new operator is timed without an edit here.

Each row is first checked against its oracle at a small size. It is timed against a copy that moves as many bytes as the
call reads and writes. Gradients are timed for rows that have them.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # noqa: F401  # isort: skip

import numpy as np
from cases import CASES, DTYPES, Case, map_arrays
from cases.deviation import share_of_bound
from tools.measure import Report, main

SMALL = 65
WARM_BYTES = 1 << 20  # calls that move less fit the caches and are timed in batches, warm


def run(report: Report) -> None:
    wanted = os.environ.get("SWEEP", "")  # SWEEP=rope selects the rows whose name contains rope
    dtypes = [d for d in DTYPES if d.name in os.environ.get("SWEEP_DTYPES", "float32").split(",")]
    for case in CASES:
        if wanted in case.name:
            for dtype in dtypes:
                if dtype in case.dtypes:
                    one(report, case, dtype)
                elif dtype == dtypes[0]:
                    one(report, case, case.dtypes[0])


def one(report: Report, case: Case, dtype: np.dtype) -> None:
    verify(case, dtype)
    arguments, options = case.real_arguments(dtype), case.options(dtype)
    results = case.call(arguments, **options)
    if case.takes_out:
        # with `out`, a matrix that would be a view is dense
        options["out"] = np.ones(results[0].shape, results[0].dtype)
        results = case.call(arguments, **options)
    compare(report, f"{case.name} {dtype.name}", lambda: case.call(arguments, **options), (arguments, results))
    if case.gradients:
        grads = tuple(random_like(result) for result in results)
        gradients = tuple(case.vjp(grads, arguments).values())
        work = f"{case.name} vjp {dtype.name}"
        compare(report, work, lambda: case.vjp(grads, arguments), (arguments, grads, gradients))


def verify(case: Case, dtype: np.dtype) -> None:
    arguments = case.arguments(SMALL, dtype)
    if not share_of_bound(case, case.call(arguments, **case.options(dtype)), arguments, dtype) <= 1:
        sys.exit(f"{case.name} {dtype.name}: differs from its oracle; nothing more was timed.")


def compare(report: Report, work: str, call: Callable[[], Any], touched: Any) -> None:
    nbytes = 0

    def add(array: np.ndarray) -> np.ndarray:
        nonlocal nbytes
        distinct = [length for length, stride in zip(array.shape, array.strides, strict=True) if stride]
        nbytes += min(array.nbytes, math.prod(distinct) * array.itemsize)
        return array

    map_arrays(add, touched)
    source = np.full(max(nbytes // 2, 1), 3, np.uint8)
    target = np.full_like(source, 5)
    limit = f"copy of {nbytes / 2**20:.2f} MiB moved"
    report.time(work, {"posenc": call, limit: lambda: np.copyto(target, source)}, cold=nbytes > WARM_BYTES)


def random_like(array: Any) -> np.ndarray:
    array = np.asarray(array)
    values = np.random.default_rng(1).standard_normal(array.shape, np.float32)
    return values.astype(array.dtype)


if __name__ == "__main__":
    main(__doc__, run)
