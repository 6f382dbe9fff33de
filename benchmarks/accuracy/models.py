"""Print a table of the encodings of other models: class, functions of posenc and largest difference.

    python benchmarks/accuracy/models.py [--write | --check]

bridges/tests/test_vision_models.py has the schemes, which need torch, transformers, diffusers, timm. ``--write`` puts
the table into the manual, docs/guides/models.md, and ``--check`` compares the page with it.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # isort: skip

import made_part
import numpy as np
from test_vision_models import SCHEMES, torch

PAGE, PROGRAM = tools.TREE / "docs" / "guides" / "models.md", "benchmarks/accuracy/models.py"
TABLE = "| class | functions of posenc | largest difference | allowed |\n|---|---|---|---|\n"


def main() -> int:
    asked = made_part.parser(PROGRAM, "Compare encodings with the classes of other models.").parse_args()
    lines = []
    torch.manual_seed(0)  # some classes draw their frequencies
    for name, scheme in SCHEMES.items():
        ours, peer, bound = scheme.pair()
        worst = float(np.abs(ours - peer.numpy()).max())
        lines.append(f"| {name} | {scheme.functions} | {number(worst)} | {number(bound)} |\n")
        print(lines[-1], end="")
    return made_part.finish(PAGE, PROGRAM, TABLE + "".join(lines), asked)


def number(x: float) -> str:
    return f"{x:.0e}" if x else "0"


if __name__ == "__main__":
    sys.exit(main())
