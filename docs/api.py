"""Directives that take a page's text from the package.

The body of a directive is for readers of the sources: function_text.py writes it, and the built manual leaves it out.

``{members} posenc.bias`` lists the public names of a module, or of the files of a folder, and documents those that have
no page of their own below ``docs/functions``. So a new operator needs no line in the manual.

``{functions} posenc.alibi posenc.alibi_slopes`` documents these names, with their gradients: it makes such a page.

``{numpy} posenc.reference.alibi`` shows functions without docstrings.

In running text a public name in backticks becomes a link.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from function_text import code_of, members, summary, with_gradients
from sphinx.addnodes import desc, desc_parameter, pending_xref
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective

import posenc
from posenc import analysis, reference

ROOT = Path(__file__).resolve().parent.parent
FUNCTIONS = re.compile(r"^```\{functions\} (.+)$", re.MULTILINE)


def names_with_page() -> set[str]:
    """Return the dotted names that pages below docs/functions document."""
    text = "".join(path.read_text("utf-8") for path in (ROOT / "docs" / "functions").glob("*/*.md"))
    return {one for name in " ".join(FUNCTIONS.findall(text)).split() for one in with_gradients(name)}


def documentation(dotted: str) -> list[str]:
    """Return the directives that document one name. Of a class, only the methods with examples are shown."""
    module, _, name = dotted.rpartition(".")
    value = getattr(importlib.import_module(module), name)
    if not inspect.isclass(value):
        return [f".. currentmodule:: {module}", "", f".. autofunction:: {name}", ""]
    shown = [one for one, method in vars(value).items() if "Examples\n" in (inspect.getdoc(method) or "")]
    members = [f"   :members: {', '.join(shown)}"] if shown else []
    return [f".. currentmodule:: {module}", "", f".. autoclass:: {name}", *members, ""]


def sources(dotted: list[str]) -> str:
    """Return one line with the files that implement these names."""
    files = []
    for name in dotted:
        module, _, last = name.rpartition(".")
        path = Path(inspect.getsourcefile(inspect.unwrap(getattr(importlib.import_module(module), last))) or "")
        kernel = ROOT / "csrc" / "kernels" / path.parent.name / f"{path.stem}.c"
        same = getattr(reference, last, None) if module == "posenc" else None
        equation = Path(inspect.getsourcefile(same) or "") if inspect.isfunction(same) else None
        files += [one for one in (path, equation, kernel) if one and one.is_relative_to(ROOT) and one.exists()]
    return "Source: " + ", ".join(f"`{one.relative_to(ROOT).as_posix()}`" for one in dict.fromkeys(files)) + "."


class Members(SphinxDirective):
    """A table of all public names of a module, followed by the documentation of those that have no page of their own.

    The functions of posenc.reference are shown on the pages of their namesakes, so the table links these.
    """

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        module, names = members(self.arguments[0])
        values = {name: getattr(importlib.import_module(module), name) for name in names}
        table = ["| | |", "|---|---|"]
        elsewhere = names_with_page()
        text = []
        for name in names:
            dotted = f"{module}.{name}"
            if module == "posenc.reference":  # shown on the page of its namesake, or with posenc.analysis
                namesakes = {f"posenc.{name}", f"posenc.analysis.{name}"} & elsewhere
                dotted = next(iter(namesakes), f"posenc.analysis.{name}" if name in analysis.__all__ else dotted)
            first = summary(values[name]).replace("|", "\\|")
            table.append(f"| {{py:obj}}`{name} <{dotted}>` | {first} |")
            text += [] if dotted in elsewhere or not dotted.startswith(module) else documentation(dotted)
        folder = f"functions/{self.arguments[0].rpartition('.')[2]}"
        has_pages = (ROOT / "docs" / folder).is_dir()
        pages = ["```{toctree}", ":hidden:", ":glob:", "", f"/{folder}/*", "```"] if has_pages else []
        return self.parse_text_to_nodes("\n".join([*table, "", "```{eval-rst}", *text, "```", "", *pages]))


class Functions(SphinxDirective):
    """The documentation of the named functions and classes, and of their gradients."""

    required_arguments = 1
    optional_arguments = 99
    has_content = True

    def run(self) -> list[nodes.Node]:
        dotted = [one for name in self.arguments for one in with_gradients(name)]
        text = [line for name in dotted for line in documentation(name)]
        return self.parse_text_to_nodes("\n".join(["```{eval-rst}", *text, "```", "", sources(dotted)]))


class NumPy(SphinxDirective):
    """The source of the named functions."""

    required_arguments = 1
    optional_arguments = 99
    has_content = True

    def run(self) -> list[nodes.Node]:
        code = "\n\n\n".join(map(code_of, self.arguments))
        return [nodes.literal_block(code, code, language="python")]


def is_argument(literal: nodes.literal) -> bool:
    """Return True for an argument that a docstring names and that is also a function, such as ``frequencies``."""
    parent = literal.parent
    while parent is not None and not isinstance(parent, desc):
        parent = parent.parent
    arguments = parent[0].findall(desc_parameter) if parent is not None else ()
    return any(re.match(r"\w*", one.astext())[0] == literal.astext() for one in arguments)  # type: ignore[index]


class Links(SphinxTransform):
    """Turn public names in backticks into links. The pages stay plain Markdown, which can be read as files."""

    default_priority = 700

    def apply(self, **options: Any) -> None:
        for literal in list(self.document.findall(nodes.literal)):
            name = literal.astext()
            public = name in posenc.__all__ or re.fullmatch(r"(Position|Content)Bias\.\w+", name)
            if public and not isinstance(literal.parent, pending_xref | nodes.reference) and not is_argument(literal):
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
    app.add_directive("functions", Functions)
    app.add_directive("numpy", NumPy)
    app.add_transform(Links)
    app.add_transform(BlankLines)
    return {"parallel_read_safe": True}
