"""A directive that documents a module from the package, so that a new operator needs no line in the manual.

``{members} posenc.bias`` documents every public name of the module, or of the files of a folder. In running text a
public name in backticks becomes a link.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from typing import Any

import operator_table
from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective

import posenc
from posenc import reference


def public_names(module: str) -> list[str]:
    """Return the ``__all__`` of a module; of a folder of operators, the names of posenc that its files define."""
    of_rooms = [name for name in posenc.__all__ if f"{getattr(posenc, name).__module__}.".startswith(f"{module}.")]
    return of_rooms or list(importlib.import_module(module).__all__)


def members(module: str) -> tuple[str, list[str]]:
    """Return the module that users import these names from, and the names in the order of the page.

    A gradient follows its function, and the NamedTuples of gradients come last.
    """
    names = public_names(module)
    plain = [name for name in names if name.removesuffix("_vjp") not in set(names) - {name}]
    plain.sort(key=lambda name: name.endswith("Gradient"))
    ordered = [one for name in plain for one in (name, f"{name}_vjp") if one in names]
    return ("posenc" if set(names) <= set(posenc.__all__) else module), ordered


def documentation(name: str, value: Any) -> list[str]:
    """Return the directives that document one name. Of a class, only the methods with examples are shown."""
    if not inspect.isclass(value):
        return [f".. autofunction:: {name}", "", *equation_as_code(name, value)]
    shown = [one for one, method in vars(value).items() if "Examples\n" in (inspect.getdoc(method) or "")]
    return [f".. autoclass:: {name}", *([f"   :members: {', '.join(shown)}"] if shown else []), ""]


def equation_as_code(name: str, value: Any) -> list[str]:
    """Return the source of the function in `posenc.reference`, without its docstring, as a block below the function."""
    twin = getattr(reference, name, None)
    if not inspect.isfunction(twin) or value.__module__.split(".")[1] in ("torch", "jax", "autograd", "dask", "check"):
        return []
    lines = inspect.getsource(twin).rstrip().split("\n")
    docstring = ast.parse("\n".join(lines)).body[0].body[0]  # type: ignore[attr-defined]
    code = lines[: docstring.lineno - 1] + lines[docstring.end_lineno :]
    return [
        "   .. code-block:: python",
        "      :caption: The equation as code",
        "",
        *("      " + line for line in code),
        "",
    ]


NAMESAKE = r"`posenc\.(\w+)` for [^;.]*(; returns an `Operator`)?\.\n"
"""The first line of the docstring of a function of posenc for another library."""


def namesakes(values: dict[str, Any]) -> dict[str, bool]:
    """Return the functions that only repeat those of posenc, by name, and whether they return an `Operator`."""
    found = {name: re.match(NAMESAKE, inspect.getdoc(value) or "") for name, value in values.items()}
    return {name: bool(match[2]) for name, match in found.items() if match and match[1] == name}


def rule(same: dict[str, bool]) -> list[str]:
    """Return one sentence for such functions and one for such operators, with links to their namesakes."""
    text = []
    for is_operator, sentence in (
        (False, "Each of these functions has the arguments of its namesake, except `out`"),
        (True, "Each of these functions returns an `Operator`, and has the arguments of its namesake"),
    ):
        links = [f"{{py:obj}}`~posenc.{name}`" for name in same if same[name] == is_operator]
        text += [f"{sentence}: {', '.join(links)}.", ""] if links else []
    return text


class Members(SphinxDirective):
    """A table of all public names of a module, followed by their documentation.

    Functions that only repeat those of posenc are one sentence instead.
    """

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        module, names = members(self.arguments[0])
        values = {name: getattr(importlib.import_module(module), name) for name in names}
        same = namesakes(values)
        names = [name for name in names if name not in same]
        table = rule(same) + (["| | |", "|---|---|"] if names else [])
        for name in names:
            summary = operator_table.summary(values[name]).replace("|", "\\|")
            table.append(f"| {{py:obj}}`{name} <{module}.{name}>` | {summary} |")
        text = [f".. currentmodule:: {module}", ""]
        for name in names:
            text += documentation(name, values[name])
        return self.parse_text_to_nodes("\n".join([*table, "", "```{eval-rst}", *text, "```"]))


class Links(SphinxTransform):
    """Turn public names in backticks into links. The pages stay plain Markdown, which can be read as files."""

    default_priority = 700

    def apply(self, **options: Any) -> None:
        for literal in list(self.document.findall(nodes.literal)):
            name = literal.astext()
            public = name in posenc.__all__ or re.fullmatch(r"(Position|Content)Bias\.\w+", name)
            if public and not isinstance(literal.parent, pending_xref | nodes.reference):
                target = {"refdomain": "py", "reftype": "obj", "reftarget": f"posenc.{name}"}
                link = pending_xref("", refdoc=self.env.docname, **target)
                literal.replace_self(link)
                link += literal


class BlankLines(SphinxTransform):
    """Remove the blank line that ends an example: only doctest needs it."""

    default_priority = 700

    def apply(self, **options: Any) -> None:
        for block in self.document.findall(nodes.literal_block):
            if block.rawsource == block.astext():
                block.rawsource = block.rawsource.rstrip()
                block.children = [nodes.Text(block.rawsource)]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("members", Members)
    app.add_transform(Links)
    app.add_transform(BlankLines)
    return {"parallel_read_safe": True}
