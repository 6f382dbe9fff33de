"""Notebooks print and draw what their files store, which the manual shows. Pictures have alternative texts."""

import ast
import contextlib
import importlib.util
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.ipynb"))
NOTEBOOKS = [*EXAMPLES, *sorted((ROOT / "bridges").glob("*.ipynb"))]
ROUNDING_ERROR = re.compile(r"\b[\d.]+e-1[3-9]\b")

_spec = importlib.util.spec_from_file_location("notebooks", ROOT / "benchmarks" / "tools" / "notebooks.py")
notebooks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(notebooks)


def code_cells(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def without_rounding_errors(text):
    return ROUNDING_ERROR.sub("~0", text)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_outputs_are_of_these_cells_and_have_alternative_texts(path):
    """Jupyter reads the text of a picture in the metadata of the output, the manual in those of the cell."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebooks.is_current(notebook), f"run python benchmarks/tools/notebooks.py {path}"
    for cell in code_cells(path):
        pictures = [output for output in cell["outputs"] if "image/png" in output.get("data", {})]
        alts = ["".join(output["data"]["text/plain"]) for output in pictures]
        assert [output["metadata"]["image/png"]["alt"] for output in pictures] == alts
        assert cell["metadata"] == ({"mystnb": {"image": {"alt": " ".join(alts)}}} if alts else {})
    next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")["source"][-1] += " "
    assert not notebooks.is_current(notebook)


def run(source, names):
    """Execute a cell; return what it prints and its last value, which a semicolon hides."""
    lines = [line for line in source.splitlines() if line != "%matplotlib inline"]
    *before, last = ast.parse("\n".join(lines)).body
    value = None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        if isinstance(last, ast.Expr):
            exec(compile(ast.Module(before, []), "<cell>", "exec"), names)
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
        else:
            exec(compile(ast.Module([*before, last], []), "<cell>", "exec"), names)
    return printed.getvalue(), None if source.endswith(";") else value


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_cells_print_and_draw_what_is_stored(path):
    """A figure is compared by its description, because pixels depend on fonts and versions. After a cell, a notebook
    shows and closes the figures of pyplot."""
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed: the notebooks draw")
    from matplotlib import pyplot

    from posenc import plot

    names = {}
    with matplotlib.rc_context(), np.printoptions():
        for cell in code_cells(path):
            printed, value = run("".join(cell["source"]), names)
            texts = {
                output["output_type"]: output.get("text") or output["data"]["text/plain"] for output in cell["outputs"]
            }
            assert without_rounding_errors(printed) == without_rounding_errors("".join(texts.get("stream", "")))
            figures = [plot.description(pyplot.figure(number)) for number in pyplot.get_fignums()]
            pyplot.close("all")
            assert "".join(figures) == "".join(texts.get("display_data", ""))
            if value is not None:
                shown = plot.description(value) if hasattr(value, "savefig") else repr(value)
                assert shown == "".join(texts["execute_result"])
