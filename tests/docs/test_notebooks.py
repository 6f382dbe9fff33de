"""The committed notebooks have a text before each step, the operators of the table, and small outputs that are those of
their cells: `python benchmarks/tools/notebooks.py` executes them. The build of the manual executes them too."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
NOTEBOOKS = [*sorted((ROOT / "examples").rglob("*.ipynb")), *sorted((ROOT / "bridges").glob("*.ipynb"))]
OPERATORS = re.findall(r"^- `(\w+)`:", (ROOT / "docs/guides/operators.md").read_text(encoding="utf-8"), re.MULTILINE)


BYTES = 3 << 20
"""Limit of all notebooks with their outputs."""
_spec = importlib.util.spec_from_file_location("notebooks", ROOT / "benchmarks" / "tools" / "notebooks.py")
notebooks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(notebooks)


def cells_of(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_nothing_but_what_was_written(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert set(notebook["metadata"]) == {"kernelspec", "language_info", "posenc"}
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    for cell in notebook["cells"]:
        assert cell["cell_type"] in ("code", "markdown")
        assert "".join(cell["source"]).strip()
        assert set(cell["metadata"]) <= {"mystnb"}
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[\w-]{1,64}", one) for one in ids)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_outputs_are_those_of_the_cells(path):
    """The hash of the sources is compared, not the pictures, whose pixels depend on fonts and versions."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebooks.is_current(notebook), f"run python benchmarks/tools/notebooks.py {path}"
    next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")["source"][-1] += " "
    assert not notebooks.is_current(notebook)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_outputs_are_text_and_pictures(path):
    """Every code cell was executed, in order. No output has a path of the machine, an error or a warning."""
    codes = [cell for cell in cells_of(path) if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in codes] == list(range(1, len(codes) + 1))
    outputs = [output for cell in codes for output in cell["outputs"]]
    assert outputs
    for output in outputs:
        assert output["output_type"] in ("stream", "execute_result", "display_data")
        assert output.get("name", "stdout") == "stdout"
        assert set(output.get("data", {})) <= {"image/png", "text/plain"}
        text = "".join(output.get("text", output.get("data", {}).get("text/plain", "")))
        assert not notebooks.LOCAL.search(text)
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert pictures or path.stem == "transformers"


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


def test_notebooks_are_small():
    assert sum(path.stat().st_size for path in NOTEBOOKS) < BYTES


def test_the_script_checks_and_keeps(tmp_path, monkeypatch, capsys):
    """It names stale notebooks; warnings are dropped, and printed text that came in pieces is joined."""
    stale = tmp_path / "stale.ipynb"
    stale.write_text(json.dumps({"cells": [], "metadata": {"posenc": {"sources": ""}}}), encoding="utf-8")
    for path, status in ((stale, 1), (NOTEBOOKS[0], 0)):
        monkeypatch.setattr("sys.argv", ["notebooks.py", "--check", str(path)])
        assert notebooks.main() == status
    assert f"python benchmarks/tools/notebooks.py {stale}" in capsys.readouterr().out
    stream = {"output_type": "stream", "name": "stdout"}
    assert notebooks.kept({**stream, "name": "stderr", "text": "warning"}) is None
    pieces = [notebooks.kept({**stream, "text": text}) for text in ("a\nb", "c\n")]
    assert notebooks.joined(pieces) == [{**stream, "text": ["a\n", "bc\n"]}]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_text_before_each_step(path):
    kinds = [cell["cell_type"] for cell in cells_of(path)]
    assert kinds[0] == "markdown"
    assert kinds.count("markdown") >= len(kinds) / 3


def test_the_field_guide_follows_the_table():
    """Each operator of the guide's notebooks is one of docs/guides/operators.md and has a cell that calls it.

    Nine tenths of the table must be there, so that a new operator may lack a picture.
    """
    cells = [cell for path in sorted((ROOT / "examples").glob("field-guide*.ipynb")) for cell in cells_of(path)]
    named = {}
    for cell, after in zip(cells, [*cells[1:], None], strict=True):
        heading = re.search(r"^## (\w+)$", "".join(cell["source"]), re.MULTILINE)
        if cell["cell_type"] == "markdown" and heading:
            assert after["cell_type"] == "code"
            named[heading[1]] = "".join(after["source"])
    assert set(named) <= set(OPERATORS)
    assert len(named) >= 0.9 * len(OPERATORS) >= 45
    for name, source in named.items():
        assert f"posenc.{name}(" in source, name
        assert re.search(r"^(cells\(|curves\(|plot\.\w+\(|figure$)", source, re.MULTILINE), f"{name}: no picture"
