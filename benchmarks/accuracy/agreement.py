"""Print the largest deviation of every result from its oracle, and from the peers that are installed.

The first table has a line for every row of tests/cases: the largest error against the float64 oracle over sizes from 0
to 97 and over memory layouts (reversed, strided, transposed, unaligned, byte-swapped), for each storage dtype. The unit
is the last place of that dtype at the largest entry of the result. A second column gives the share of the tests' bound.

The second table has a line for every test in bridges/tests that compares: the largest |ours - theirs| over its
parameters, and the share of that test's bound. Peers that compute in float32 deviate from posenc as much as from the
truth.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # noqa: F401  # isort: skip

import numpy as np
from agreed import MADE
from cases import CASES, DTYPES, SIZES, Case, map_arrays
from cases.deviation import forward_error
from cases.layouts import LAYOUTS
from tools.measure import Report, main

PEERS = Path(__file__).resolve().parents[2] / "tests" / "peers"
ODD_SIZES = (3, 17, 33)


def run(report: Report) -> None:
    wanted = os.environ.get("SWEEP", "")  # SWEEP=rope selects the rows whose name contains rope
    oracles(report, wanted)
    peers(report, wanted)


def oracles(report: Report, wanted: str) -> None:
    print("\nagainst the float64 oracle: ulps at the largest entry, share of the bound")
    print(f"{'':<28}" + "".join(f"{dtype.name:>18}" for dtype in DTYPES))
    highest = 0.0
    for case in CASES:
        if wanted not in case.name:
            continue
        line = f"{case.name:<28}"
        for dtype in DTYPES:
            if dtype not in case.dtypes:
                line += f"{'':>18}"
                continue
            ulps, share = of_dtype(case, dtype)
            line += f"{ulps:10.2f}{share:8.0%}"
            highest = max(highest, share)
            report.rows.append({"work": f"{case.name} {dtype.name}", "value": ulps, "unit": "ulp at the largest entry"})
            report.rows.append({"work": f"{case.name} {dtype.name}, bound", "value": share, "unit": "of the bound"})
        print(line)
    print(f"largest share of a bound {highest:.0%}{'' if highest <= 1 else '   MISSED'}")


def of_dtype(case: Case, dtype: np.dtype) -> tuple[float, float]:
    """The largest ulps and the largest share of the bound over sizes and layouts."""
    found = [forward_error(case, case.arguments(n, dtype), dtype) for n in SIZES if n >= case.least]
    for n in (n for n in ODD_SIZES if n >= case.least):
        for layout in LAYOUTS:
            found.append(forward_error(case, map_arrays(layout, case.arguments(n, dtype)), dtype))
    return max(ulps for ulps, _ in found), max(share for _, share in found)


class Skips:
    """A pytest plugin that collects the reasons of skips and the names of failures."""

    def __init__(self) -> None:
        self.reasons: dict[str, set[str]] = {}
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._note(report)

    def pytest_collectreport(self, report: Any) -> None:
        self._note(report)

    def _note(self, report: Any) -> None:
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.reasons.setdefault(reason, set()).add(report.nodeid)
        if report.failed:
            self.failed.append(report.nodeid)


def peers(report: Report, wanted: str) -> None:
    print("\nagainst peers: largest |ours - theirs|, share of the bound, number of configurations, the worst of them")
    try:
        import pytest
    except ImportError as error:
        print(f"  (pytest is not installed: {error}; this table runs the tests in bridges/tests)")
        return
    skips, heard = Skips(), io.StringIO()
    with contextlib.redirect_stdout(heard), contextlib.redirect_stderr(heard):
        pytest.main([str(PEERS), "-q", "-p", "no:cacheprovider", "--tb=short"], plugins=[skips])
    rows: dict[tuple[str, str], list[Any]] = {}
    for made in MADE:
        if wanted in made.operator:
            rows.setdefault((made.operator, made.reference), []).append(made)
    for (operator, reference), all_made in sorted(rows.items()):
        worst = max(all_made, key=lambda made: made.share)
        largest = max(made.worst for made in all_made)
        print(
            f"{operator:<18}{reference:<58}{largest:9.1e}{worst.share:7.0%}{len(all_made):5}  {worst.configuration}"
            + ("" if worst.share <= 1 else "   MISSED")
        )
        report.rows.append({"work": f"{operator}, {reference}", "value": largest, "unit": "absolute"})
    for reason, where in skips.reasons.items():
        print(f"  ({len(where)} left out: {reason.removeprefix('Skipped: ')})")
    for failed in skips.failed:
        print(f"  FAILED {failed}")
    if not MADE and not skips.reasons:
        print(heard.getvalue())


if __name__ == "__main__":
    main(__doc__, run)
