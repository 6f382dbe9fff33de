"""The scripts that users copy type-check: README's example and the code of the notebooks, with mypy and pyright."""

import doctest
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def scripts():
    """Yield the name and the source of each script."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"^```pycon\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    assert block
    yield "readme", doctest.script_from_examples(block[1])
    for path in sorted((ROOT / "examples").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        lines = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code").splitlines()
        yield path.stem.replace("-", "_"), "\n".join(line for line in lines if not line.startswith("%"))


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_user_scripts_type_check(checker, tmp_path):
    pytest.importorskip(checker, reason=f"{checker} is not installed")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: the notebooks draw")
    names = []
    for name, source in scripts():
        (tmp_path / f"{name}.py").write_text(source + "\n", encoding="utf-8")
        names.append(f"{name}.py")
    options = {"mypy": [], "pyright": ["--pythonpath", sys.executable]}[checker]
    command = [sys.executable, "-m", checker, *options, *names]
    environment = {**os.environ, "MYPYPATH": str(ROOT), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
