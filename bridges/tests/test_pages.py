"""The pages of the bridges: examples print the shown results, and links of pages outside the manual lead to files."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "bridges" / "README.md", *sorted((ROOT / "bridges" / "docs").glob("*.md"))]
LIBRARIES = ("torch", "jax", "dask", "autograd")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples(page: Path) -> None:
    text = page.read_text("utf-8")
    for library in LIBRARIES:
        if re.search(rf"^>>> .*\b{library}\b", text, re.MULTILINE):
            pytest.importorskip(library, reason=f"{library} is not installed")
    options = {"module_relative": False, "optionflags": doctest.NORMALIZE_WHITESPACE, "encoding": "utf-8"}
    failed, tried = doctest.testfile(str(page), **options)
    assert failed == 0
    assert (tried > 0) == ("\n>>> " in text)


@pytest.mark.parametrize("page", [*PAGES, *sorted(ROOT.glob("*.md"))], ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    assert [one for one in targets if "://" not in one and not (page.parent / one).exists()] == []


def test_a_scheme_of_ones_own_is_trained() -> None:
    for library in ("autograd", "matplotlib"):
        pytest.importorskip(library, reason=f"{library} is not installed")
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / "own_scheme.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_picture_of_the_study_has_its_description(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("autograd", "matplotlib"):
        pytest.importorskip(library, reason=f"{library} is not installed")
    from posenc import plot

    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import pictures

    (picture,), (figure,) = pictures.pictures(pictures.STUDY), pictures.figures(pictures.STUDY)
    assert " ".join(picture.alt.split()) == plot.description(figure)
