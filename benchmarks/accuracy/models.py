"""Print a table of the encodings of other models: class, functions of posenc and largest difference.

    python benchmarks/accuracy/models.py [--write]

tests/peers/test_vision_models.py has the schemes, which need torch, transformers, diffusers and timm. ``--write`` puts
the table into the manual, docs/models.md.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # isort: skip

import numpy as np
from test_vision_models import SCHEMES

PAGE = tools.TREE / "docs" / "models.md"
TABLE = "| class | functions of posenc | largest difference | allowed |\n|---|---|---|---|\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare encodings with the classes of other models.")
    parser.add_argument("--write", action="store_true", help="write the table of docs/models.md")
    options = parser.parse_args()
    lines = []
    for name, scheme in SCHEMES.items():
        ours, peer, bound = scheme.pair()
        worst = float(np.abs(ours - peer.numpy()).max())
        lines.append(f"| {name} | {scheme.functions} | {number(worst)} | {number(bound)} |\n")
        print(lines[-1], end="")
    if options.write:
        before, _, rest = PAGE.read_text("utf-8").partition(TABLE)
        PAGE.write_text(before + TABLE + "".join(lines) + "\n" + rest.partition("\n\n")[2], "utf-8")


def number(x: float) -> str:
    return f"{x:.0e}" if x else "0"


if __name__ == "__main__":
    main()
