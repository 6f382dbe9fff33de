"""README and every page of docs/: examples print the shown results, cells run, and every public name is documented."""

import ast
import doctest
import re
from pathlib import Path

import pytest

import posenc

ROOT = Path(posenc.__file__).parent.parent
PAGES = {
    str(path.relative_to(ROOT)): path.read_text("utf-8") for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
}
CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NEEDS = {"plot": "matplotlib", "decay(": "scipy", "ml_dtypes": "ml_dtypes", "autograd": "autograd", "jax": "jax",
         "torch": "torch", "posenc.dask": "dask"}  # fmt: skip
"""The package that a page with this text imports."""


def require(text):
    for said, package in NEEDS.items():
        if said in text:
            pytest.importorskip(package, reason=f"{package} is not installed")


@pytest.mark.parametrize("page", [page for page, text in PAGES.items() if "\n>>> " in text])
def test_examples(page):
    require("".join(line for line in PAGES[page].splitlines() if line.startswith((">>>", "..."))))
    failed, tried = doctest.testfile(
        str(ROOT / page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE, encoding="utf-8"
    )
    assert tried > 0
    assert failed == 0


@pytest.mark.parametrize("page", [page for page, text in PAGES.items() if CELL.search(text)])
def test_cells(page):
    """Cells share one namespace, as in a kernel when the manual is built, and the value of the last expression is
    shown: a figure with a title, and below it a caption in italics that says what to see."""
    cells = CELL.findall(PAGES[page])
    require("".join(cells))
    from matplotlib.figure import Figure

    names, figures = {}, 0
    for cell in cells:
        lines = [line for line in cell.splitlines() if not line.startswith((":tags:", "%"))]
        *before, last = ast.parse("\n".join(lines)).body
        exec(compile(ast.Module(before, []), page, "exec"), names)
        if isinstance(last, ast.Expr):
            shown = eval(compile(ast.Expression(last.value), page, "eval"), names)
            assert isinstance(shown, Figure), cell
            assert all(ax.has_data() for ax in shown.axes), cell
            titles = [ax.get_title() for ax in shown.axes if ax.get_label() != "<colorbar>"]
            assert all(titles) or shown._suptitle, f"no title: {cell}"
            assert PAGES[page].split(f"{cell}```\n", 1)[1].startswith("\n*"), f"no caption: {cell}"
            figures += 1
        else:
            exec(compile(ast.Module([last], []), page, "exec"), names)
    assert figures > 0


def test_every_public_name_is_in_the_reference():
    """Pages document all public names of a room or a module, so it is enough that each of them has a page."""
    said = set(re.findall(r"\{members\} posenc\.(\w+)", "".join(PAGES.values())))
    rooms = {getattr(posenc, name).__module__.split(".")[1] for name in posenc.__all__}
    without_page = {"torch", "transformers", "reference"}  # the manual is built where there is no torch
    assert said - without_page == {*rooms, *posenc._MODULES} - without_page
    assert "`register(name)`" in PAGES["docs/guides/transformers.md"]  # the manual is built where there is no torch
