"""Compare `rope_from_config` with every model of transformers that has rotary code, and make the manual's lists.

    python benchmarks/accuracy/checkpoints.py [--write | --check]

A directory of transformers has rotary code if a ``modeling_*.py`` in it mentions ``inv_freq``. It agrees if random
queries and keys, rotated by the model's own class, differ from those of posenc by no more than the rounding of float32.
All other directories must be refused for a reason that the message states. ``--write`` puts the result into
docs/guides/rotary-checkpoints.md, ``--check`` compares the page with it.
"""

from __future__ import annotations

import os
import sys
import textwrap
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # isort: skip

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import made_part
from rotations import Row, directories, of_directory, survey
from test_transformers_scaling import RELATIVE

from posenc.rotary.models import ELSEWHERE, MODELS, OTHERS, Model

PAGE, PROGRAM = tools.TREE / "docs" / "guides" / "rotary-checkpoints.md", "benchmarks/accuracy/checkpoints.py"
DEFAULTS = (
    "Each line has a layout; the rotated channels; the base; and its model types. The channels and the base are the "
    "defaults that apply if a config omits them. A fraction is a part of the head, and a number after a comma is the "
    "width of the head, or the number of rotated channels if the config names it. A head without a number has the "
    "width `hidden_size / num_attention_heads`. A base that is stated has no default, because most of these configs "
    "have one base for each type of layer."
)


def main() -> int:
    asked = made_part.parser(PROGRAM, "Compare rope_from_config with every model of transformers.").parse_args()
    rows, found = [], []
    for directory in directories():
        rows += (of_one := survey(directory, RELATIVE))
        found.append(of_directory(of_one))
        print(f"{directory:<28}{found[-1].outcome:<9}{found[-1].reason or f'{found[-1].share:.0%} of the bound'}")
    outcomes = Counter(row.outcome for row in found)
    count = f"{len(found)} directories with rotary code: {outcomes['agreed']} agreed, {outcomes['refused']} refused"
    print(f"{count} with a reason, missing: {outcomes['missing']}")
    return max(int(outcomes["missing"] > 0), made_part.finish(PAGE, PROGRAM, page(rows, count), asked))


def page(rows: list[Row], count: str) -> str:
    """Return the settings of known model types, and the lists of those that are refused."""
    swapped = {row.model_type for row in rows if row.out_layout == "half" and MODELS[row.model_type].layout != "half"}
    lines = [
        *textwrap.wrap(DEFAULTS, 120),
        "",
        *textwrap.wrap(
            "`python benchmarks/accuracy/checkpoints.py --write` makes this section from transformers 5.24. It rotates "
            f"random queries and keys by each model's own class and compares. Result: {count} for the reasons below. "
            f"transformers has no class for {', '.join(sorted(ELSEWHERE))}: their lines follow the public code that "
            "models.json names.",
            120,
        ),
        "",
    ]
    settings: dict[str, list[str]] = {}
    for name, model in sorted(MODELS.items()):
        layout = "interleaved to half" if name in swapped else str(model.layout)
        layout += ", backwards" if model.is_backwards else ""
        settings.setdefault(f"{layout}; {width(model)}; {base(model)}", []).append(name)
    for setting, names in sorted(settings.items()):
        text = f"- {setting}: {', '.join(names)}"
        lines += textwrap.wrap(text, 120, subsequent_indent="  ", break_on_hyphens=False)
    lines.append("\n`rope_from_config` refuses the configs of other models by the model_type. Such a model:\n")
    for what in dict.fromkeys(OTHERS.values()):
        refused = ", ".join(name for name, one in OTHERS.items() if one == what)
        lines += textwrap.wrap(f"- {what}: {refused}", 120, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(lines)


def width(model: Model) -> str:
    for key in ("rotary_dim", "qk_rope_head_dim"):
        if getattr(model, key):
            return f"{key}, {getattr(model, key)}"
    part = "the head" if model.partial_rotary_factor == 1 else f"{model.partial_rotary_factor} of the head"
    return part if model.head_dim is None else f"{part}, {model.head_dim}"


def base(model: Model) -> str:
    if model.base is None:
        return "stated"
    return f"{model.base:.0f}" + (f", sliding {model.sliding_base:.0f}" if model.sliding_base else "")


if __name__ == "__main__":
    raise SystemExit(main())
