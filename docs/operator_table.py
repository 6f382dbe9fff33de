"""Write the list of operators in docs/operators.md, from the public names and the first lines of their docstrings.

Without an option the list is printed; --write puts it into the page; --check fails unless the page has it.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import posenc

PAGE = Path(__file__).resolve().parent / "operators.md"
BEGIN, END = "<!-- made by: python docs/operator_table.py --write -->", "<!-- end of the list -->"
HEADINGS = {
    "absolute": "[Absolute encodings](absolute.md)",
    "rotary": "[Rotary embeddings](rotary-embeddings.md)",
    "bias": "[Attention biases](bias.md)",
    "relative": "[Operators that read queries and keys](relative.md)",
    "attention": "[Attention](attention.md)",
}


def functions() -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """Yield (module, name, function) of every public operator, in the order of HEADINGS.

    A gradient is listed with its operator.
    """
    for heading in HEADINGS:
        for name in posenc.__all__:
            function = getattr(posenc, name)
            module = getattr(function, "__module__", "").removeprefix("posenc.").split(".")[0]
            if inspect.isfunction(function) and not name.endswith("_vjp") and module == heading:
                yield module, name, function


def summary(function: Callable[..., Any]) -> str:
    """Return the first line of the docstring as Markdown."""
    first = (inspect.getdoc(function) or "").split("\n", 1)[0]
    return first.replace("``", "`")


def gradient(name: str, function: Callable[..., Any]) -> str:
    """Return the function or method that computes the gradient of an operator, or an empty string."""
    if f"{name}_vjp" in posenc.__all__:
        return f"`{name}_vjp`"
    returned = str(function.__annotations__.get("return"))
    if "Bias" not in returned:
        return ""
    return "`ContentBias.logits_vjp`" if returned.startswith("ContentBias") else "`PositionBias.vjp`"


def table() -> str:
    """Return the list: one heading per module, one item per operator."""
    lines = []
    heading = ""
    for module, name, function in functions():
        if module != heading:
            heading = module
            lines += ["", f"## {HEADINGS[module]}", ""]
        pulled_back = gradient(name, function)
        lines.append(f"- `{name}`: {summary(function)}" + (f" Gradient: {pulled_back}." if pulled_back else ""))
    return "\n".join([*lines[1:], ""])


def main() -> int:
    parser = argparse.ArgumentParser(prog="docs/operator_table.py", description=__doc__.split("\n", 1)[0])
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--write", action="store_true", help="put the list into docs/operators.md")
    action.add_argument("--check", action="store_true", help="status 1 unless docs/operators.md has the list")
    asked = parser.parse_args()
    if not (asked.write or asked.check):
        print(table())
        return 0
    text = PAGE.read_text(encoding="utf-8")
    before, begins, rest = text.partition(BEGIN)
    _, ends, after = rest.partition(END)
    if not (begins and ends):
        print(f"{PAGE.name}: no lines {BEGIN} and {END}", file=sys.stderr)
        return 1
    wanted = f"{before}{BEGIN}\n\n{table()}\n{END}{after}"
    if asked.write:
        PAGE.write_text(wanted, encoding="utf-8")
    elif wanted != text:
        print(f"{PAGE.name}: the list is old; run python docs/operator_table.py --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
