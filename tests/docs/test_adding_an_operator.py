"""The page "Adding an operator" is followed to the letter, in a copy of the tree."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import posenc

ROOT = Path(posenc.__file__).parent.parent
PAGE = ROOT / "docs" / "guides" / "adding-an-operator.md"


def steps():
    """(file, text) of each block of the section on distances that names a file in the paragraph before it."""
    page = PAGE.read_text()
    section = page[page.index("## A function of distance") : page.index("## A function of both positions")]
    blocks = re.finditer(r"^([^\n]*(?:\n[^\n]+)*)\n\n```\w+\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    found = [(re.findall(r"`((?:csrc|posenc|tests)/[\w/.]+)`", block[1]), block[2]) for block in blocks]
    return [(files[-1], text) for files, text in found if files]


def apply(tree, file, text):
    """Write a new file, or put the lines at the end, or before those of their kind, of a file that exists."""
    path = tree / file
    if not path.exists():
        path.write_text(text)
        return
    if text.startswith("def "):
        path.write_text(f"{path.read_text()}\n\n{text}")
        return
    kind = next(kind for kind in ("DISTANCE", "from ", '    "') if text.startswith(kind))
    lines = path.read_text().splitlines(keepends=True)
    first = min(i for i, line in enumerate(lines) if line.startswith(kind))
    path.write_text("".join([*lines[:first], text, *lines[first:]]))


def run(tree, *command):
    environment = {**os.environ, "PYTHONPATH": str(tree), "POSENC_BUILD_MACHINE": "one variant"}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.skipif(not (ROOT / "csrc").exists(), reason="needs the sources, not an installed package")
@pytest.mark.slow
def test_a_distance_bias_is_added_as_the_page_says(tmp_path):
    found = steps()
    assert [file for file, _ in found] == [
        "csrc/kernels/bias/gaussian.c",
        "csrc/ops.def",
        "posenc/bias/gaussian.py",
        "posenc/__init__.py",
        "posenc/__init__.py",
        "posenc/reference/bias.py",
        "posenc/reference/bias.py",
        "posenc/reference/__init__.py",
        "tests/cases/gaussian.py",
    ]
    for name in ("csrc", "posenc", "tests", "docs", "benchmarks", "examples", "bridges"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    for file, text in found:
        apply(tmp_path, file, text)
    run(tmp_path, sys.executable, "setup.py", "-q", "build_ext", "--inplace")
    tests = ("tests/contract", "tests/attention", "posenc/bias")
    report = run(tmp_path, sys.executable, "-m", "pytest", "-k", "gaussian", "-p", "no:cacheprovider", *tests)
    assert int(re.search(r"(\d+) passed", report)[1]) > 20
