"""The committed notebooks have no outputs, a text before each step, and the operators of the table. The build of the
manual executes them."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
OPERATORS = re.findall(r"^- `(\w+)`:", (ROOT / "docs/operators.md").read_text(encoding="utf-8"), re.MULTILINE)


def cells_of(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def test_there_are_notebooks():
    assert {path.stem for path in NOTEBOOKS} >= {"sinusoid", "distances", "field-guide", "lengths"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_nothing_but_what_was_written(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert set(notebook["metadata"]) <= {"kernelspec", "language_info"}
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    for cell in notebook["cells"]:
        assert cell["cell_type"] in ("code", "markdown")
        assert "".join(cell["source"]).strip()
        assert cell["metadata"] == {}
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[\w-]{1,64}", one) for one in ids)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_text_before_each_step(path):
    kinds = [cell["cell_type"] for cell in cells_of(path)]
    assert kinds[0] == "markdown"
    assert kinds.count("markdown") >= len(kinds) / 3


def test_the_field_guide_follows_the_table():
    """Each operator of the guide is one of docs/operators.md and has a cell that calls it. Nine tenths of the table
    must be there, so that a new operator may lack a picture."""
    cells = cells_of(ROOT / "examples" / "field-guide.ipynb")
    named = {}
    for cell, after in zip(cells, [*cells[1:], None], strict=True):
        heading = re.search(r"^### (\w+)$", "".join(cell["source"]), re.MULTILINE)
        if cell["cell_type"] == "markdown" and heading:
            assert after["cell_type"] == "code"
            named[heading[1]] = "".join(after["source"])
    assert set(named) <= set(OPERATORS)
    assert len(named) >= 0.9 * len(OPERATORS) >= 45
    for name, source in named.items():
        assert f"posenc.{name}(" in source, name
        assert re.search(r"^(cells\(|curves\(|plot\.\w+\(|figure$)", source, re.MULTILINE), f"{name}: no picture"
