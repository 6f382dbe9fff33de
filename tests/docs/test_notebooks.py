"""Outputs of committed notebooks are those of their cells, and pictures have alternative texts.

The build of the manual executes the notebooks.
"""

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
NOTEBOOKS = [*sorted((ROOT / "examples").rglob("*.ipynb")), *sorted((ROOT / "bridges").glob("*.ipynb"))]

_spec = importlib.util.spec_from_file_location("notebooks", ROOT / "benchmarks" / "tools" / "notebooks.py")
notebooks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(notebooks)


def cells_of(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_outputs_are_those_of_the_cells(path):
    """The hash of the sources is compared, not the pictures, whose pixels depend on fonts and versions."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebooks.is_current(notebook), f"run python benchmarks/tools/notebooks.py {path}"
    next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")["source"][-1] += " "
    assert not notebooks.is_current(notebook)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_pictures_have_alternative_texts(path):
    """The text of a figure describes its axes. Jupyter reads it in the output, the manual in the cell."""
    for cell in cells_of(path):
        alts = []
        for output in cell.get("outputs", ()):
            text = "".join(output.get("data", {}).get("text/plain", ""))
            if "image/png" in output.get("data", {}):
                assert re.search(r"(Image|[Cc]urves?|points?|panels)\b", text), text
                assert not text.startswith("<")
                alts.append(text)
                assert output["metadata"] == {"image/png": {"alt": text}}
            else:
                assert not output.get("metadata")
        assert cell["metadata"] == ({"mystnb": {"image": {"alt": " ".join(alts)}}} if alts else {})
