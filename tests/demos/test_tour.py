"""The tour shows every operator of docs/operators.md and every kind of picture, and runs as a command."""

import re
from pathlib import Path

import numpy as np
import pytest

from posenc.demos import tour
from posenc.demos.tour import measure, pictures, schemes, tables
from posenc.demos.tour.functions import functions
from posenc.demos.tour.text import SWAPS, of_user, words_of

ROOT = Path(__file__).resolve().parent.parent.parent
OPERATORS = re.findall(r"^- `(\w+)`:", (ROOT / "docs/operators.md").read_text(encoding="utf-8"), re.MULTILINE)
WORDS = words_of(SWAPS[0][0])
TEXT = of_user("a text", "the cat sat on the mat and the dog lay on the other mat")


@pytest.fixture(scope="module")
def plans():
    return schemes.all_schemes()


def test_every_operator_is_shown(plans):
    shown = [scheme.name for scheme in plans[1:]] + list(functions(WORDS))
    assert sorted(shown) == sorted(OPERATORS)


def test_every_argument_is_asked_for():
    """ARGUMENTS has no value for an operator that does not exist."""
    assert {name.split(".")[0] for name in schemes.ARGUMENTS if "." in name} <= set(OPERATORS)


def test_positions_break_the_symmetry(plans):
    for scheme in plans:
        change = measure.change_by_swap(scheme, WORDS, 0, 5)
        assert (change > measure.ROUNDING) == (scheme.name != "none"), scheme.name


def test_scores_of_distance_do_not_move(plans):
    fixed = {"sinusoidal", "rope", "xpos", "alibi", "t5", "shaw", "deberta", "complex_order"}
    for scheme in plans:
        if scheme.name in fixed:
            assert measure.change_by_shift(scheme, WORDS, 10**6) < measure.ROUNDING, scheme.name
    naive = next(scheme for scheme in plans if scheme.name == "sinusoidal")
    assert measure.change_by_shift(naive, WORDS, 10**6, naive=True) > 1e-4


@pytest.mark.parametrize("name", functions(WORDS))
def test_functions(name):
    what, number = functions(WORDS)[name]
    text = number()
    assert what
    assert text
    if text.startswith("differs by"):
        assert float(text.split()[-1]) < measure.ROUNDING


def test_tables(plans):
    some = [scheme for scheme in plans if scheme.name in ("none", "learned", "rope", "alibi", "cope")]
    steps = []
    made = [make(some, TEXT, steps.append) for make in (tables.swap_table, tables.shift_table, tables.cost_table)]
    made.append(tables.functions_table(TEXT, steps.append))
    assert [len(table.rows) for table in made] == [5, 5, 6, len(OPERATORS) - len(plans) + 1]
    assert all(len(row) == len(table.header) for table in made for row in table.rows)
    assert steps[-1] == "the other functions"


def test_pictures(plans, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: no pictures")
    monkeypatch.chdir(tmp_path)
    found = pictures.all_pictures(plans)
    assert len({name for name, _, _ in found}) == len(found)
    for name, what, draw in found:
        figure = draw()
        assert what
        assert any(axes.has_data() for axes in figure.axes), name
    assert list(tmp_path.iterdir()) == []


def test_every_kind_of_picture_is_shown():
    plot = pytest.importorskip("posenc.plot", reason="matplotlib is not installed: no pictures", exc_type=ImportError)
    source = Path(pictures.__file__).read_text(encoding="utf-8")
    assert set(plot.__all__) - {"bias"} == set(re.findall(r"plot\.(\w+)\b", source)) & set(
        plot.__all__
    )  # biases has it


def test_texts_that_tell_nothing():
    for text, match in (("", "no words in it"), ("one two", "2 words, 2 different"), ("a a a a", "1 different")):
        with pytest.raises(ValueError, match=match):
            of_user("a file", text)
    assert len(of_user("a file", "我爱中国 and Molly's photo").words) == 7


@pytest.mark.slow
def test_command(run_python, tmp_path):
    """The whole tour, on a text of its own, without rich."""
    out = tmp_path / "pictures"
    (tmp_path / "text").write_text(" ".join(f"word{i % 7}" for i in range(40)), encoding="utf-8")
    code = "import sys; sys.modules['rich'] = None\nfrom posenc.__main__ import main\n"
    done = run_python(f"{code}sys.exit(main([{str(tmp_path / 'text')!r}, '--out', {str(out)!r}]))", timeout=600)
    assert done.returncode == 0, done.stderr
    assert "python -m posenc study --quick" in done.stdout
    assert len(list(out.glob("*.png"))) == len(pictures.all_pictures(schemes.all_schemes()))
    assert all(f"  {name} " in done.stdout for name in OPERATORS)


def test_what_the_command_needs_is_public():
    assert set(tour.__all__) == {"can_draw", "embedded", "of_user", "run"}
    assert np.all([callable(getattr(tour, name)) for name in tour.__all__])
