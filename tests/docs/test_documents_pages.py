"""README and every page of docs/: examples print the shown results, and every public name is documented."""

import doctest
import re
from pathlib import Path

import pytest

import posenc

ROOT = Path(posenc.__file__).parent.parent
PAGES = {
    str(path.relative_to(ROOT)): path.read_text("utf-8") for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
}
NEEDS = {"plot": "matplotlib", "ml_dtypes": "ml_dtypes"}
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


def test_the_example_of_decoding_runs(run_python):
    done = run_python((ROOT / "examples" / "decode.py").read_text("utf-8"))
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_every_public_name_is_in_the_reference():
    """Pages document all public names of a room or a module, so it is enough that each of them has a page."""
    said = set(re.findall(r"\{members\} posenc\.(\w+)", "".join(PAGES.values())))
    rooms = {getattr(posenc, name).__module__.split(".")[1] for name in posenc.__all__}
    assert said == {*rooms, *posenc._MODULES} - {"interop"}
    from posenc import interop

    assert [name for name in interop.__all__ if f"interop.{name}" not in PAGES["docs/design.md"]] == []


def test_functions_have_one_page():
    """A name is documented on one page below docs/functions, and each page names functions that exist."""
    named = [
        name
        for page, text in PAGES.items()
        if page.count("/") == 3
        for line in re.findall(r"^```\{functions\} (.+)$", text, re.MULTILINE)
        for name in line.split()
    ]
    assert len(named) == len(set(named)) > 50
    for name in named:
        module = posenc.analysis if name.startswith("posenc.analysis.") else posenc
        assert hasattr(module, name.rpartition(".")[2]), name
