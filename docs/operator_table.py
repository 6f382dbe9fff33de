"""Write the list of operators in docs/guides/operators.md, from the public names and the first lines of docstrings.

Without an option the list is printed; --write puts it into the page; --check fails unless the page has it.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import made_part

import posenc

PAGE, PROGRAM = Path(__file__).resolve().parent / "guides" / "operators.md", "docs/operator_table.py"
HEADINGS = {
    "absolute": "[Absolute encodings](../functions/absolute.md)",
    "rotary": "[Rotary embeddings](../functions/rotary.md)",
    "bias": "[Attention biases](../functions/bias.md)",
    "relative": "[Operators that read queries and keys](../functions/relative.md)",
    "attention": "[Attention](../functions/attention.md)",
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
    return "`ContentBias.logits_vjp`" if returned.startswith("ContentBias") else "`PositionBias.matrix_vjp`"


def table() -> str:
    """Return the list: one heading per module, one item per operator."""
    lines = []
    heading = ""
    for module, name, function in functions():
        if module != heading:
            heading = module
            lines += ["", f"## {HEADINGS[module]}", ""]
        pulled_back = gradient(name, function)
        item = f"- `{name}`: {summary(function)}" + (f" Gradient: {pulled_back}." if pulled_back else "")
        lines += textwrap.wrap(item, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join([*lines[1:], ""])


def main() -> int:
    asked = made_part.parser(PROGRAM, __doc__.split("\n", 1)[0]).parse_args()
    if not (asked.write or asked.check):
        print(table())
    return made_part.finish(PAGE, PROGRAM, table(), asked)


if __name__ == "__main__":
    sys.exit(main())
