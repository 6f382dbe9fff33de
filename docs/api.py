"""Two directives that list public names from the package, so that a new operator needs no line of the manual.

``{members} posenc.bias`` documents what the module's ``__all__`` has; ``{operators}`` is README's table with links.
In running text a public name in code letters is a link.
"""

from __future__ import annotations

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


def members(module: str) -> tuple[str, list[str]]:
    """The module that users take a module's public names from, and the names in order: each gradient after
    its function, the tuples of gradients last."""
    names = list(dict.fromkeys(importlib.import_module(module).__all__))
    plain = [name for name in names if name.removesuffix("_vjp") not in set(names) - {name}]
    plain.sort(key=lambda name: name.endswith("Gradient"))
    ordered = [one for name in plain for one in (name, f"{name}_vjp") if one in names]
    return ("posenc" if set(names) <= set(posenc.__all__) else module), ordered


def documentation(name: str, value: Any) -> list[str]:
    """What says everything of one name. Of a class, the methods with examples: others are for the package itself."""
    if not inspect.isclass(value):
        return [f".. autofunction:: {name}", ""]
    shown = [one for one, method in vars(value).items() if "Examples\n" in (inspect.getdoc(method) or "")]
    return [f".. autoclass:: {name}", *([f"   :members: {', '.join(shown)}"] if shown else []), ""]


class Members(SphinxDirective):
    """A table of all public names of a module, then what each is."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        module, names = members(self.arguments[0])
        values = {name: getattr(importlib.import_module(module), name) for name in names}
        table = ["| | |", "|---|---|"]
        table += [
            f"| {{py:obj}}`{name} <{module}.{name}>` | {operator_table.summary(values[name])} |" for name in names
        ]
        text = [f".. currentmodule:: {module}", ""]
        for name in names:
            text += documentation(name, values[name])
        return self.parse_text_to_nodes("\n".join([*table, "", "```{eval-rst}", *text, "```"]))


class Operators(SphinxDirective):
    """The operator table, names as links."""

    def run(self) -> list[nodes.Node]:
        link = r"{py:obj}`\1 <posenc.\1>`"
        table = re.sub(r"`(\w+_vjp|Bias\.\w+)`(?= \|$)", link, operator_table.table(), flags=re.MULTILINE)
        return self.parse_text_to_nodes(re.sub(r"(?<=^\| )`(\w+)`", link, table, flags=re.MULTILINE))


class Links(SphinxTransform):
    """Pages are plain Markdown, to be read as files, too: names become links here."""

    default_priority = 700

    def apply(self, **options: Any) -> None:
        for literal in list(self.document.findall(nodes.literal)):
            name = literal.astext()
            if name in posenc.__all__ and not isinstance(literal.parent, pending_xref | nodes.reference):
                target = {"refdomain": "py", "reftype": "obj", "reftarget": f"posenc.{name}"}
                link = pending_xref("", refdoc=self.env.docname, **target)
                literal.replace_self(link)
                link += literal


class BlankLines(SphinxTransform):
    """The blank line that ends an example is for doctest."""

    default_priority = 700

    def apply(self, **options: Any) -> None:
        for block in self.document.findall(nodes.literal_block):
            if block.rawsource == block.astext():
                block.rawsource = block.rawsource.rstrip()
                block.children = [nodes.Text(block.rawsource)]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("members", Members)
    app.add_directive("operators", Operators)
    app.add_transform(Links)
    app.add_transform(BlankLines)
    return {"parallel_read_safe": True}
