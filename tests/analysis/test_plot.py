"""posenc.plot: pictures show the given numbers on labelled axes; no file is written and no figure is kept."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from cases.layouts import same_bits

import posenc
from posenc import analysis

pytest.importorskip("matplotlib", reason="matplotlib is not installed: no pictures")
from matplotlib.figure import Figure

from posenc import plot
from posenc.plot import notebook

P = posenc.sinusoidal(512, 128)
W = posenc.rope_frequencies(128)
NTK = posenc.rope_frequencies(128, rope_type="ntk", factor=8)
ALIBI = posenc.alibi(posenc.alibi_slopes(8))
MAPS = {f"scheme {i}": [np.eye(3), np.eye(3) - 1] for i in range(7)}
SHAW = posenc.shaw(np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]))
KINDS = np.eye(2)[[[0, 1, 1, 0]]]
CALLS = {
    "encoding": lambda **o: plot.encoding(P, **o),
    "similarity": lambda **o: plot.similarity(P, **o),
    "correlation": lambda **o: plot.similarity(P, kind="correlation", **o),
    "decay": lambda **o: plot.decay(dim=128, **o),
    "distance_curves": lambda **o: plot.distance_curves(P, **o),
    "bias": lambda **o: plot.bias(ALIBI, **o),
    "profile": lambda **o: plot.profile({"none": None, "ALiBi": ALIBI, "RoPE": W}, **o),
    "rope_bands": lambda **o: plot.rope_bands({"NTK": NTK}, W, train_length=512, **o),
    "extrapolation": lambda **o: plot.extrapolation(W, 128, 512, **o),
    "precision": lambda **o: plot.precision(pairs=4, **o),
    "logits": lambda **o: plot.logits(SHAW, KINDS, KINDS, words=list("abba"), **o),
}
WHOLE = {
    "triangles": lambda: plot.triangles(P),
    "biases": lambda: plot.biases({"alibi": ALIBI, "kerple": posenc.kerple_log([1.0], [1.0])}),
    "attention_maps": lambda: plot.attention_maps(MAPS, [["a", "b", "c"]] * 2, ["first", "second"]),
}


@pytest.fixture
def ax():
    return Figure().subplots()


def drawn(figure):
    """The axes that show data, without colour bars."""
    return [axes for axes in figure.axes if axes.axison and axes.get_label() != "<colorbar>"]


@pytest.mark.parametrize("name", [*CALLS, *WHOLE])
def test_a_labelled_figure_and_no_file(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    figure = {**CALLS, **WHOLE}[name]()
    assert isinstance(figure, Figure)
    assert any(axes.get_xlabel() for axes in drawn(figure))
    assert any(axes.get_ylabel() for axes in drawn(figure))
    assert figure.get_suptitle() or any(axes.get_title() for axes in figure.axes)
    for axes in drawn(figure):  # the best place is a warning where drawing takes more than a second
        assert axes.get_legend() is None or axes.get_legend()._loc_real != 0
    for bar in figure.axes:
        assert bar.get_label() != "<colorbar>" or bar.get_ylabel()
    figure.canvas.draw()
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr() == ("", "")


def test_pyplot_is_left_alone(run_python):
    done = run_python(
        "import sys, posenc, posenc.plot\nposenc.plot.encoding(posenc.sinusoidal(8, 8))\n"
        "print('matplotlib.pyplot' in sys.modules, 'scipy' in sys.modules)"
    )
    assert done.stdout.split() == ["False", "False"], done.stderr


@pytest.mark.parametrize("name", CALLS)
def test_given_axes_are_used(name, ax):
    assert CALLS[name](ax=ax) is ax.figure
    assert ax.has_data()
    with pytest.raises(TypeError, match=r"\w+: ax has type str; expected matplotlib axes"):
        CALLS[name](ax="here")


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        ("product", analysis.gram_matrix),
        ("distance", analysis.distance_matrix),
        ("correlation", analysis.correlation_matrix),
    ],
)
def test_cells_are_the_matrix(kind, function, ax):
    plot.similarity(P, kind=kind, ax=ax)
    assert same_bits(np.asarray(ax.images[0].get_array()), function(P.astype(np.float64)))


def test_cells_are_the_encoding(ax):
    """First channels of all pairs on the left, second ones on the right, under their own numbers."""
    halves = np.concatenate([P[:, 0::2], P[:, 1::2]], -1).astype(np.float64)
    plot.encoding(P, ax=ax)
    assert same_bits(np.asarray(ax.images[0].get_array()), halves)
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert labels == ["0", "32", "64", "96", "1", "33", "65", "97"]
    for layout, values in (("half", halves), (None, P.astype(np.float64))):
        axes = plot.encoding(values, layout=layout).axes[0]
        assert same_bits(np.asarray(axes.images[0].get_array()), values)
        assert len(axes.get_lines()) == (layout is not None)
    odd = plot.encoding(P[:, :5]).axes[0]
    assert [label.get_text() for label in odd.get_xticklabels()] == ["0", "2", "4", "1", "3"]
    assert odd.get_lines()[0].get_xdata()[0] == 2.5


def test_colours_follow_the_sign(ax):
    signed = plot.encoding(P).axes[0].images[0]
    assert signed.get_cmap().name == "RdBu_r"
    assert signed.norm(0.0) == 0.5
    negative = plot.encoding(-np.eye(3)).axes[0].images[0]
    assert negative.get_cmap()(negative.norm(0.0))[:3] == pytest.approx((1, 1, 1), abs=0.05)
    assert negative.norm(-1.0) == 0
    positive = plot.similarity(P, kind="distance").axes[0].images[0]
    assert positive.get_cmap().name == "viridis"
    assert positive.norm(0.0) == 0


def test_curves_are_the_numbers(ax):
    plot.decay([0, 5, 9], schedules={"a": {"base": 10.0}}, dim=64, ax=ax)
    assert same_bits(ax.get_lines()[0].get_ydata(), analysis.decay([0, 5, 9], base=10.0, dim=64).real)
    figure = plot.distance_curves(P, positions=[7])
    assert same_bits(figure.axes[0].get_lines()[0].get_ydata(), analysis.distance_matrix(P.astype(np.float64))[7])
    lines = plot.bias(ALIBI, distances=[-2, 0, 2]).axes[0].get_lines()
    assert [line.get_ydata().tolist() for line in lines[:2]] == [[-1, 0, -1], [-0.5, 0, -0.5]]
    lines = plot.profile({"ALiBi": ALIBI}, distances=np.arange(-5, 1), head=2).axes[0].get_lines()
    assert same_bits(lines[0].get_ydata(), analysis.attention_profile(ALIBI, np.arange(-5, 1)).weights[2])


def test_a_profile_names_its_head():
    schemes = {"ALiBi": ALIBI, "one slope": posenc.alibi([0.5]), "RoPE": W}
    lines = plot.profile(schemes, head=1).axes[0].get_lines()
    assert [line.get_label() for line in lines] == ["ALiBi,\nhead 1 of 8", "one slope", "RoPE"]


def test_descriptions():
    """Kinds of figures that no page and no notebook has; tests/docs compares the descriptions of those."""
    text = plot.description(plot.bias(posenc.alibi(posenc.alibi_slopes(16))))
    assert text.endswith(
        "16 curves of added to the logit by position of key - position of query (-64 to 64): head 0, "
        "-45 to 0; head 15, -0.25 to 0."
    )
    assert plot.description(WHOLE["attention_maps"]()).startswith("14 panels: scheme 0, scheme 1, ")
    empty = Figure()
    empty.subplots().imshow(np.full((2, 2), np.nan))
    assert plot.description(empty) == "Image of 2 rows and 2 columns: no numbers."


def test_bands_and_cells_are_the_numbers(ax):
    plot.rope_bands({"NTK": NTK}, W, train_length=512, ax=ax)
    assert same_bits(ax.get_lines()[0].get_ydata(), NTK.inv_freq / W.inv_freq)
    cells = np.asarray(plot.extrapolation(W, 128, 512).axes[0].images[0].get_array())
    assert not cells[:, :128].any()
    unseen = analysis.rope_coverage(W, 128, test_length=512).unseen
    np.testing.assert_allclose((cells[:, 128:] == 2).mean(1), unseen, rtol=0, atol=1e-15)
    image = plot.extrapolation(W, 128, 10000).axes[0].images[0]  # more distances than columns: each second one
    assert image.get_extent() == [-0.5, 9999.5, len(W.inv_freq) - 0.5, -0.5]
    assert same_bits(np.asarray(image.get_array()).min(0) == 0, np.arange(0, 10000, 2) < 128)


def test_attention_maps():
    figure = WHOLE["attention_maps"]()
    images = [axes.images[0] for axes in drawn(figure)]
    assert len(images) == 14
    assert sum(np.array_equal(image.get_array(), np.eye(3)) for image in images) == 7


def test_logits_of_operators_on_q_and_k(ax):
    """Words a look for the key before them, words b for the key after; distances beyond 1 count as 1."""
    plot.logits(SHAW, KINDS, KINDS, words=list("abba"), ax=ax)
    image = ax.images[0]
    assert same_bits(np.asarray(image.get_array()), SHAW.logits(KINDS, KINDS)[0] / np.sqrt(2))
    assert (image.get_array()[0] == 0).all()
    assert (image.get_array()[3, :3] > 0.7).all()
    assert image.norm.vmin == -image.norm.vmax == -image.get_array().max()
    assert [label.get_text() for label in ax.get_xticklabels()] == list("abba")
    assert ax.get_title() == "posenc.shaw"


def test_logits_hide_keys_that_are_not_counted():
    cope = posenc.cope(np.ones((3, 2)))
    figure = plot.logits(cope, np.repeat(KINDS, 2, 0), np.repeat(KINDS, 2, 0), head=1)
    shown = figure.axes[0].images[0].get_array()
    assert np.array_equal(np.ma.getmaskarray(shown), ~np.tri(4, dtype=bool))
    assert figure.axes[0].get_title() == "posenc.cope, head 1 of 2"


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: plot.logits(ALIBI, KINDS, KINDS), TypeError, "logits: operator has type .*; posenc.plot.bias draws"),
        (lambda: plot.logits(SHAW, KINDS[0], KINDS[0]), ValueError, r"q has shape \(4, 2\); expected three axes"),
        (lambda: plot.logits(SHAW, KINDS, KINDS[:, :2]), ValueError, r"k has shape \(1, 2, 2\); expected \(1, 4, 2\)"),
        (lambda: plot.logits(SHAW, KINDS, KINDS, head=-1), ValueError, "head is -1; expected at least 0"),
        (lambda: plot.logits(SHAW, KINDS, KINDS, head=1), IndexError, "index 1 is out of bounds"),
        (lambda: plot.encoding(W), ValueError, "values has shape .*rope_bands and extrapolation draw frequencies"),
        (lambda: plot.encoding(np.zeros((0, 3))), ValueError, "values"),
        (lambda: plot.encoding("words"), TypeError, "values"),
        (lambda: plot.similarity(P, kind="angle"), ValueError, "kind"),
        (lambda: plot.bias("alibi"), TypeError, "operator"),
        (
            lambda: plot.bias(posenc.dense(np.ones((1, 2, 2)))),
            TypeError,
            "operator has dense, which reads no positions; ",
        ),
        (lambda: plot.bias(posenc.shaw(np.zeros((3, 4)))), TypeError, "q is None; expected a query and a key"),
        (lambda: plot.biases({}), ValueError, "operators"),
        (lambda: plot.profile(SHAW), TypeError, "profile"),
        (lambda: plot.triangles(P[:1]), ValueError, "triangles"),
        (lambda: plot.distance_curves(P, positions=[512]), IndexError, "index 512 is out of bounds"),
        (lambda: plot.attention_maps(MAPS, [["a", "b"]] * 2, ["first", "second"]), ValueError, "maps has shapes"),
        (lambda: plot.description("figure"), TypeError, "figure has type str; expected a matplotlib Figure"),
    ],
)
def test_refusals(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.parametrize(
    ("operator", "last"), [(posenc.beit(np.ones((12, 1)), 2, 2), 4), (posenc.fox(np.full((1, 3), -0.5)), 2)], ids=repr
)
def test_operators_with_a_table_of_positions(operator, last):
    """The query is at 0, so the default distances leave the table. The message says where the keys may be."""
    message = f"distances has a key outside the table; expected keys at 0 to {last}, because {operator.name} has"
    with pytest.raises(IndexError, match=f"^bias: {message}"):
        plot.bias(operator)
    with pytest.raises(IndexError, match=f"^profile: {message}"):
        plot.profile({"name": operator})
    with pytest.raises(IndexError, match=f"^attention_profile: {message}"):
        analysis.attention_profile(operator, [-1])
    assert len(plot.bias(operator, distances=range(last + 1)).axes[0].get_lines()) == 1


# ---- notebooks ----

PNG = b"\x89PNG\r\n\x1a\n"
TREE = np.where(np.tri(5, dtype=bool), 1.0, -np.inf)
SHOWN = {
    "alibi": (ALIBI, "posenc.alibi", 8), "sum": (ALIBI + ALIBI, "posenc.alibi + posenc.alibi", 8),
    "at": (posenc.alibi([1.0]).at(q_positions=[0, 4, 5]), "posenc.alibi", (3, 64)),
    "dense without heads": (posenc.dense(TREE), "posenc.dense", (5, 5)),
    "toeplitz": (posenc.toeplitz(np.ones((2, 6))), "posenc.toeplitz, head 0 of 2", (3, 4)),
    "beit": (posenc.beit(np.ones((12, 1)), 2, 2), "posenc.beit", (5, 5)),
    "fox": (posenc.fox(np.full((1, 3), -0.5)), "posenc.fox", (3, 3)),
    "sum of matrices": (ALIBI + posenc.dense(TREE[None]), "posenc.alibi + posenc.dense, head 0 of 8", (5, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_a_notebook_draws_operators(name):
    """As curves if they are functions of distance, otherwise as a matrix without hidden pairs."""
    operator, title, size = SHOWN[name]
    assert operator._repr_png_().startswith(PNG)
    axes = notebook.bias_figure(operator).axes[0]
    assert axes.get_title() == title
    if isinstance(size, int):
        assert len(axes.get_lines()) == size
    else:
        shown = np.ma.filled(axes.images[0].get_array(), np.nan)
        assert shown.shape == size
        assert np.isnan(shown[0, -1]) == (name in ("dense without heads", "fox", "sum of matrices"))


def test_a_notebook_draws_frequencies():
    frequencies = posenc.rope_frequencies(8, rope_type="proportional", partial_rotary_factor=0.5)
    assert frequencies._repr_png_().startswith(PNG)
    axes = notebook.frequencies_figure(frequencies).axes[0]
    turns = axes.get_lines()[0].get_ydata()
    assert same_bits(turns[:2], 2 * np.pi / frequencies.inv_freq[:2])
    assert np.isnan(turns[2:]).all()
    assert "4 pairs" in axes.get_title()


def test_nothing_to_draw():
    assert posenc.dense(np.zeros((1, 0, 0)))._repr_png_() is None
    assert not hasattr(posenc.shaw(np.zeros((3, 4))), "_repr_png_")  # it reads queries and keys


def test_a_picture_of_frequencies_of_coordinates_has_one_line():
    w = posenc.rope_frequencies(32)
    drawn = [notebook.frequencies_figure(one).axes[0] for one in (w, posenc.mrope_frequencies(w, (6, 5, 5)))]
    lines = [axes.lines[0].get_ydata() for axes in drawn]
    assert len(drawn[1].lines) == 1
    assert (lines[0] == lines[1]).all()


def test_without_matplotlib_a_notebook_shows_text(run_python):
    done = run_python(
        "import sys; sys.modules['matplotlib'] = None; import posenc\n"
        "print(posenc.alibi([1.0])._repr_png_(), posenc.rope_frequencies(8)._repr_png_(), 'posenc.plot' in sys.modules)"
    )
    assert done.stdout.split() == ["None", "None", "False"], done.stderr


def test_ipython_shows_a_figure_at_the_end_of_a_cell(monkeypatch):
    """The formatter of ``%matplotlib inline`` stays, if there is one."""

    class Formatter:
        def __init__(self):
            self.type_printers = {}

        def for_type(self, kind, function):
            self.type_printers[kind] = function

    formatter, texts = Formatter(), Formatter()
    formatters = {"image/png": formatter, "text/plain": texts}
    shell = SimpleNamespace(display_formatter=SimpleNamespace(formatters=formatters))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    notebook.show_figures()
    assert formatter.type_printers[Figure](plot.bias(ALIBI)).startswith(PNG)
    printed = []
    texts.type_printers[Figure](plot.bias(ALIBI), SimpleNamespace(text=printed.append), False)
    assert printed == [plot.description(plot.bias(ALIBI))]
    formatter.type_printers[Figure] = "inline"
    notebook.show_figures()
    assert formatter.type_printers == {Figure: "inline"}
