"""The operator table of README.md, from the public names and the first lines of their docstrings.

Without an option it is printed; --write puts it into README.md; --check fails unless README.md has it.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import posenc

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- operators: docs/operator_table.py --write -->", "<!-- end of operators -->"


def functions() -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """(module, name, function) of every public operator; gradients stand beside their operators."""
    for name in posenc.__all__:
        function = getattr(posenc, name)
        module = getattr(function, "__module__", "").removeprefix("posenc.").split(".")[0]
        if inspect.isfunction(function) and not name.endswith("_vjp") and module != "runtime":
            yield module, name, function


def summary(function: Callable[..., Any]) -> str:
    """The first line of the docstring as a cell of a table."""
    first = (inspect.getdoc(function) or "").split("\n", 1)[0]
    return first.replace("``", "`").replace("|", "\\|")


def gradient(name: str, function: Callable[..., Any]) -> str:
    if f"{name}_vjp" in posenc.__all__:
        return f"`{name}_vjp`"
    if function.__annotations__.get("return") != "Bias":
        return ""
    return "`Bias.logits_vjp`" if "It reads q and k" in (inspect.getdoc(function) or "") else "`Bias.vjp`"


def table() -> str:
    lines = ["| function | what it is | gradient |", "|---|---|---|"]
    heading = ""
    for module, name, function in functions():
        if module != heading:
            heading = module
            lines.append(f"| **{module}** | | |")
        lines.append(f"| `{name}` | {summary(function)} | {gradient(name, function)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="docs/operator_table.py", description=__doc__.split("\n", 1)[0])
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--write", action="store_true", help="put the table into README.md")
    action.add_argument("--check", action="store_true", help="status 1 unless README.md has the table")
    asked = parser.parse_args()
    made = f"{BEGIN}\n{table()}\n{END}"
    if not (asked.write or asked.check):
        print(table())
        return 0
    text = README.read_text(encoding="utf-8")
    before, begins, rest = text.partition(BEGIN)
    _, ends, after = rest.partition(END)
    if not (begins and ends):
        print(f"README.md: no lines {BEGIN} and {END}", file=sys.stderr)
        return 1
    wanted = before + made + after
    if asked.write:
        README.write_text(wanted, encoding="utf-8")
    elif wanted != text:
        print("README.md: the operator table is old; run python docs/operator_table.py --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
