"""guides/validating.md and guides/check.md: the table of symptoms is measured, and the example runs."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_of_symptoms_is_measured_now(monkeypatch):
    """Each row plants its error, and the page has the symptom and the cause that come out."""
    spec = importlib.util.spec_from_file_location("symptom_table", ROOT / "docs" / "symptom_table.py")
    program = importlib.util.module_from_spec(spec)
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    spec.loader.exec_module(program)
    assert program.main(["--check"]) == 0
    assert len(program.ROWS) >= 20


def test_the_example_of_the_judge_runs():
    page = (ROOT / "docs" / "guides" / "check.md").read_text("utf-8")
    exec(re.search(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[1], {})
