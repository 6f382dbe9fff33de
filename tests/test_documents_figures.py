"""docs/figures.md: its examples run with the numbers that it prints, and each line of its table draws."""

import doctest
import re
from pathlib import Path

import numpy as np
import pytest

import posenc
from posenc import analysis

FIGURES = Path(posenc.__file__).parent.parent / "docs" / "figures.md"


def test_examples():
    pytest.importorskip("scipy", reason="scipy is not installed: no integrals")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: no pictures")
    failed, tried = doctest.testfile(
        str(FIGURES), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE, encoding="utf-8"
    )
    assert tried > 40
    assert failed == 0


def test_lines_draw():
    pytest.importorskip("scipy", reason="scipy is not installed: no integrals")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: no pictures")
    from posenc import plot

    names = {"plot": plot, "posenc": posenc, "analysis": analysis, "p": posenc.sinusoidal(512, 128),
             "ten": posenc.sinusoidal(512, 128, base=10.0)}  # fmt: skip
    lines = re.findall(r"`(plot\.[^`]*)`", FIGURES.read_text(encoding="utf-8"))
    assert len(lines) == 11
    for line in lines:
        figure = eval(line, dict(names))
        assert figure.axes[0].has_data()


def test_printed_numbers_of_the_sentences():
    """Those that no example of the page prints."""
    pytest.importorskip("scipy", reason="scipy is not installed: no integrals")
    x = analysis.decay([128, 1000], schedule="power", alpha=2.0).real
    y = analysis.decay([128, 1000]).real
    assert [f"{v:.2f}" for v in (y[0] - y[1], x[0] - x[1], y[1] / y[0], x[1] / x[0])] == [
        "0.22",
        "0.04",
        "0.46",
        "0.35",
    ]
    assert np.all(abs(x) < abs(y))
