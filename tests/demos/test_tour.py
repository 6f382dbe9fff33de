"""The tour shows every operator of docs/guides/operators.md and every kind of picture, and runs as a command."""

import re
from pathlib import Path

import numpy as np
import pytest

from posenc.demos import tour
from posenc.demos.tour import fonts, measure, pictures, schemes, tables
from posenc.demos.tour.functions import functions
from posenc.demos.tour.text import SWAPS, of_user, words_of

ROOT = Path(__file__).resolve().parent.parent.parent
OPERATORS = re.findall(r"^- `(\w+)`:", (ROOT / "docs/guides/operators.md").read_text(encoding="utf-8"), re.MULTILINE)
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
    naive = next(scheme.naive for scheme in plans if scheme.name == "sinusoidal")
    assert measure.change_by_shift(naive, WORDS, 10**6) > 1e-4


@pytest.mark.parametrize("name", functions(WORDS))
def test_functions(name):
    what, text = functions(WORDS)[name]
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
    dense = tables.shift_table([scheme for scheme in plans if scheme.name in ("rope", "dense")], TEXT, steps.append)
    assert len(dense.rows) == 2
    assert dense.note.endswith(" Not in the table, because they read no positions: dense.")


def test_a_shift_of_operators_without_positions_says_nothing(plans):
    """Their scores are the same at all positions, so the table leaves them out, and names them."""
    ignoring = [scheme for scheme in plans if scheme.ignores_positions]
    assert {scheme.name for scheme in ignoring} == {"dense", "toeplitz", "tupe"}
    for scheme in ignoring:
        assert measure.change_by_shift(scheme, WORDS, 10**6) == 0


def test_pictures(plans, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: no pictures")
    monkeypatch.chdir(tmp_path)
    found = pictures.all_pictures(plans, TEXT)
    assert len({name for name, _, _ in found}) == len(found)
    shown = set()
    for name, what, draw in found:
        figure = draw()
        assert what
        assert any(axes.has_data() for axes in figure.axes), name
        assert figure._suptitle is not None or any(axes.get_title() for axes in figure.axes), name
        width, height = figure.get_size_inches() * pictures.DPI
        assert height < width <= 2100, name  # a slide at most
        assert height <= 1200, name
        if name.startswith("order-"):
            shown |= {axes.get_title().removesuffix(" (causal)") for axes in figure.axes} - {""}
            words = {label.get_text() for axes in figure.axes for label in axes.get_xticklabels()}
            assert words >= set(TEXT.drawn.words), name
    assert shown == {"no positions", *(scheme.name for scheme in plans[1:])}
    assert list(tmp_path.iterdir()) == []


def test_keys_after_the_query_are_hidden_of_causal_schemes(plans):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: no pictures")
    causal = [scheme for scheme in plans if scheme.is_causal]
    assert {scheme.name for scheme in causal} == {"fox", "cope"}
    for scheme in causal:
        weights = pictures.attention_weights(scheme, WORDS)
        assert np.array_equal(np.isnan(weights), ~np.tri(len(WORDS), dtype=bool))
        assert np.allclose(np.nansum(weights, -1), 1, rtol=0, atol=1e-6)
    images = [
        axes.images[0].get_array()
        for figure in (pictures.matrices(causal, WORDS), pictures.content(causal, WORDS))
        for axes in figure.axes
        if axes.get_label() != "<colorbar>"
    ]
    assert len(images) == 2
    assert all(np.array_equal(np.ma.getmaskarray(one), ~np.tri(len(WORDS), dtype=bool)) for one in images)


def test_content_of_three_kinds(plans):
    """Queries of one kind prefer one distance, and those of the last run that of the first; gates are open or shut."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: no pictures")
    content, readers = schemes.groups()
    assert np.allclose(content @ readers.T, np.eye(3), rtol=0, atol=1e-12)
    gates = 1 / (1 + np.exp(-content @ content.T / np.sqrt(schemes.WIDTH)))
    assert (abs(gates - np.eye(3)) < 0.15).all()
    maps = pictures.content(plans, TEXT.words[:1] * 16)
    panels = {axes.get_title(): axes.images[0].get_array() for axes in maps.axes if axes.get_label() != "<colorbar>"}
    assert set(panels) == {f"posenc.{scheme.name}" for scheme in plans if scheme.enters == schemes.READS}
    shaw = panels["posenc.shaw"]
    assert (shaw[1:4, 0].argmax(), shaw[:, :].argmax(-1)[[1, 2, 3]].tolist()) == (0, [0, 1, 2])
    assert shaw.argmax(-1)[[12, 13]].tolist() == [11, 12]
    assert shaw.argmax(-1)[[4, 5]].tolist() == [4, 5]
    assert shaw.argmax(-1)[[10, 11]].tolist() == [0, 0]


def test_the_drawn_sentence():
    """The first sentence with enough words, cut; the words that change places differ."""
    cases = {
        "Oh! The cat sat on the mat. It slept.": ("The cat sat on the mat", 0, 5),
        "天亮了。天亮了。": ("天 亮 了", 0, 2),
        "one two three four five six seven eight nine ten": ("one two three four five six seven eight", 0, 7),
        "one. two. three.": ("one two three", 0, 2),
        "a. a. a. a. a. a. a. a. a. a. b. c": ("a a a a a a a b", 0, 7),
    }
    for content, (words, a, b) in cases.items():
        assert of_user("a file", content).drawn == (tuple(words.split()), a, b), content


def test_fonts(monkeypatch):
    """A family is added only if a character needs it; characters of no font are returned."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: no pictures")
    assert fonts.families_for("The ferryman é") == (["DejaVu Sans"], "")
    of_family = {"One": set("我爱"), "Two": set("爱中")}
    monkeypatch.setattr(fonts, "installed", lambda: {name: name for name in of_family})
    monkeypatch.setattr(fonts, "characters_of", lambda path: of_family.get(path, set("abc")))
    assert fonts.families_for("a 我 b") == (["DejaVu Sans", "One"], "")
    assert fonts.families_for("我爱中国") == (["DejaVu Sans", "One", "Two"], "国")


def test_installed_fonts_are_found():
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: no pictures")
    found = fonts.installed()
    assert "DejaVu Sans" in found
    assert {"a", "é"} <= fonts.characters_of(found["DejaVu Sans"])
    assert not any(name.startswith("Last Resort") for name in found)


def test_missing_glyphs_are_reported_once(plans, tmp_path, capsys, monkeypatch):
    """Nothing warns of a box; the tour says which characters have none, and the remedy."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: no pictures")
    monkeypatch.setattr(fonts, "installed", dict)
    monkeypatch.setattr(tour, "all_schemes", lambda: plans[:1])
    monkeypatch.setattr(tour, "all_pictures", lambda schemes, text: pictures.order_pictures(plans[:3], text.drawn))
    for table in ("swap_table", "shift_table", "cost_table", "functions_table"):
        monkeypatch.setattr(tour, table, lambda *given: tables.Table("", ("",), [], ""))
    tour.run(of_user("a file", "我爱中国"), tmp_path)
    said = " ".join(capsys.readouterr().out.split())
    assert "The pictures show boxes for 中国我爱: no installed font has them." in said
    assert "apt install fonts-noto-cjk" in said
    assert len(list(tmp_path.glob("order-*.png"))) == 1


def test_every_kind_of_picture_is_shown():
    plot = pytest.importorskip("posenc.plot", reason="matplotlib is not installed: no pictures", exc_type=ImportError)
    source = Path(pictures.__file__).read_text(encoding="utf-8")
    assert set(plot.__all__) - {"bias", "description"} == set(re.findall(r"plot\.(\w+)\b", source)) & set(
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
    done = run_python(f"{code}sys.exit(main(['tour', {str(tmp_path / 'text')!r}, '--out', {str(out)!r}]))", timeout=600)
    assert done.returncode == 0, done.stderr
    assert "python -m posenc study --quick" in done.stdout
    assert len(list(out.glob("*.png"))) == len(pictures.all_pictures(schemes.all_schemes(), TEXT))
    assert all(f"  {name} " in done.stdout for name in OPERATORS)


def test_what_the_command_needs_is_public():
    assert set(tour.__all__) == {"can_draw", "embedded", "of_user", "run"}
    assert np.all([callable(getattr(tour, name)) for name in tour.__all__])
