"""Compare every gradient of every row of tests/cases with central differences of its oracle, in float64.

A line gives the largest deviation over small sizes, relative to the largest entry of the gradient. The error of central
differences themselves is about 1e-10, and the bound is 1e-6.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # noqa: F401  # isort: skip

from cases import CASES
from cases.deviation import ALLOWED, gradient_deviations
from tools.measure import Report, main

SIZES = (1, 2, 3, 5, 9)


def run(report: Report) -> None:
    wanted = os.environ.get("SWEEP", "")  # SWEEP=rope selects the rows whose name contains rope
    count, worst = 0, (0.0, "")
    for case in CASES:
        if not case.gradients or wanted not in case.name:
            continue
        found: dict[str, float] = {}
        for n in (n for n in SIZES if n >= case.least):
            for name, deviation in gradient_deviations(case, n).items():
                found[name] = max(found.get(name, 0.0), deviation)
        for name, deviation in found.items():
            where = f"{case.name}: {name}"
            print(f"{where:<48}{deviation:10.1e}{'' if deviation <= ALLOWED else '   MISSED'}")
            report.rows.append({"work": where, "value": deviation, "unit": "of the largest entry"})
            count, worst = count + 1, max(worst, (deviation, where))
    print(f"{count} gradients, worst {worst[0]:.1e} ({worst[1]}); goal <= {ALLOWED:g} each")


if __name__ == "__main__":
    main(__doc__, run)
