"""Write what functions are into the pages, for readers of the sources: a code host does not run the directives.

The text is the body of a directive of api.py, which the built manual replaces. `{functions}` gets the signatures with
the first two paragraphs of the docstrings, `{members}` the names with their first lines, and `{numpy}` the code.

    python docs/function_text.py --write     put the text into the pages
    python docs/function_text.py --check     status 1 unless the pages have it
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import made_part

import posenc
from posenc import typing

DOCS = Path(__file__).resolve().parent
PROGRAM = "docs/function_text.py"
PAGES = ("functions/**/*.md", "guides/commands.md", "guides/plot.md", "guides/reference.md")
DIRECTIVE = re.compile(r"^```\{(functions|members|numpy)\} (.+)\n(?:(?!```).*\n)*```$", re.MULTILINE)
WIDTH = 100


def public_names(module: str) -> list[str]:
    """Return the ``__all__`` of a module; of a folder of operators, the names of posenc that its files define."""
    of_folder = [name for name in posenc.__all__ if f"{getattr(posenc, name).__module__}.".startswith(f"{module}.")]
    return of_folder or list(importlib.import_module(module).__all__)


def with_gradients(dotted: str) -> list[str]:
    """Return a dotted name, the name of its gradient, and the name of the gradient's NamedTuple, if they exist."""
    name = dotted.rpartition(".")[2]
    gradient = name.title().replace("_", "") + "Gradient"
    further = [f"posenc.{name}_vjp"] if f"{name}_vjp" in posenc.__all__ else []
    further += [f"posenc.typing.{gradient}"] if gradient in typing.__all__ else []
    return [dotted, *(further if dotted == f"posenc.{name}" else [])]


def members(module: str) -> tuple[str, list[str]]:
    """Return the module that users import these names from, and the names in the order of the page.

    A gradient or an assertion follows its function, and the NamedTuples of gradients come last.
    """
    names = public_names(module)
    plain = [name for name in names if name.removeprefix("assert_").removesuffix("_vjp") not in set(names) - {name}]
    plain.sort(key=lambda name: name.endswith("Gradient"))
    ordered = [one for name in plain for one in (name, f"{name}_vjp", f"assert_{name}") if one in names]
    return ("posenc" if set(names) <= set(posenc.__all__) else module), ordered


def summary(value: Any) -> str:
    """Return the first line of a docstring as Markdown."""
    return (inspect.getdoc(value) or "").split("\n", 1)[0].replace("``", "`")


def code_of(dotted: str) -> str:
    """Return the source of a function without its docstring."""
    module, _, name = dotted.rpartition(".")
    lines = inspect.getsource(getattr(importlib.import_module(module), name)).rstrip().split("\n")
    first = ast.parse("\n".join(lines)).body[0].body[0]  # type: ignore[attr-defined]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        del lines[first.lineno - 1 : first.end_lineno]
        if not lines[first.lineno - 1]:
            del lines[first.lineno - 1]
    return textwrap.dedent("\n".join(lines))


def signature(value: Any) -> str:
    """Return the arguments and their defaults, without types."""
    full = inspect.signature(value)
    plain = [one.replace(annotation=one.empty) for one in full.parameters.values() if one.name != "self"]
    return str(full.replace(parameters=plain, return_annotation=full.empty))


def function_text(dotted: str) -> str:
    """Return the signature, and the first two paragraphs of the docstring, which say what is computed."""
    value = attrgetter(dotted.removeprefix("posenc."))(posenc)
    called = dotted.rpartition(".")[2] + ("" if dotted.endswith("Gradient") else signature(value))
    lines = textwrap.wrap(called, WIDTH, subsequent_indent=8 * " ", break_on_hyphens=False)
    paragraphs = inspect.cleandoc(value.__doc__).split("\n\n")[:2]
    said = "\n\n".join(one for one in paragraphs if "\n---" not in one)
    return "\n".join([*lines, textwrap.indent(said, 4 * " ")])


def body(kind: str, names: list[str]) -> str:
    if kind == "numpy":
        return "\n\n\n".join(map(code_of, names))
    if kind == "functions":
        return "\n\n".join(function_text(one) for name in names for one in with_gradients(name))
    module, listed = members(names[0])
    return "\n".join(f"{name}: {summary(getattr(importlib.import_module(module), name))}" for name in listed)


def pages() -> Iterator[tuple[Path, str]]:
    """Yield each page and its text, with the bodies as they should be."""
    for page in sorted(page for places in PAGES for page in DOCS.glob(places)):
        text = page.read_text("utf-8")
        yield page, DIRECTIVE.sub(lambda m: f"```{{{m[1]}}} {m[2]}\n{body(m[1], m[2].split())}\n```", text)


def main() -> int:
    asked = made_part.parser(PROGRAM, "Write what functions are into the pages.").parse_args()
    return made_part.write_or_check(dict(pages()), PROGRAM, asked)


if __name__ == "__main__":
    sys.exit(main())
