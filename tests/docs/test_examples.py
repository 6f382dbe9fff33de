"""The examples run, and their assertions hold."""

from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parent.parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example(path, run_python):
    if "posenc.demos.study" in path.read_text(encoding="utf-8"):
        for module in ("autograd", "matplotlib", "rich"):
            pytest.importorskip(module, reason="needs pip install autograd matplotlib rich")
    done = run_python(path.read_text(encoding="utf-8"))
    assert done.returncode == 0, done.stderr
    assert done.stdout
