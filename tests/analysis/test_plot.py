"""posenc.plot: pictures show the given numbers on labelled axes, as users of pyplot expect; no file is written."""

import io
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from cases.layouts import same_bits

import posenc
from posenc import analysis
from posenc.bias.operator import count_positions

pytest.importorskip("matplotlib", reason="matplotlib is not installed: no pictures")
from matplotlib import image, pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from posenc import plot
from posenc.plot import _notebook as notebook

P = posenc.sinusoidal(512, 128)
W = posenc.rope_frequencies(128)
NTK = posenc.rope_frequencies(128, rope_type="ntk", factor=8)
ALIBI = posenc.alibi(posenc.alibi_slopes(8))
SHAW = posenc.shaw(np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]))
KINDS = np.eye(2)[[[0, 1, 1, 0]]]
DENSE = posenc.dense(np.ones((1, 2, 2)))
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
    "logits": lambda **o: plot.logits(SHAW, KINDS, KINDS, words=list("abba"), **o),
}
ALONE = {
    "bias": lambda: plot.profile(ALIBI),
    "no positions": lambda: plot.profile(None),
    "frequencies": lambda: plot.profile(W, distances=64),
    "array of frequencies": lambda: plot.profile(W.inv_freq),
    "scaling": lambda: plot.rope_bands(NTK, W),
    "scaling and length": lambda: plot.rope_bands(NTK.inv_freq, W.inv_freq, train_length=512),
    "int": lambda: plot.decay(128),
    "rows": lambda: plot.distance_curves(P, positions=3),
    "keys before the query": lambda: plot.bias(ALIBI, distances=64),
}


@pytest.fixture
def ax():
    return Figure().subplots()


def panels(figure):
    """The axes that show data, without colour bars."""
    return [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]


def png_of_pyplot():
    """The pixels that ``plt.savefig`` writes, and those of an empty figure of that size."""
    pixels = []
    for figure in (pyplot.gcf(), pyplot.figure(figsize=pyplot.gcf().get_size_inches())):
        pyplot.figure(figure)
        buffer = io.BytesIO()
        pyplot.savefig(buffer, format="png")
        buffer.seek(0)
        pixels.append(image.imread(buffer))
    return pixels


@pytest.mark.parametrize("name", [*CALLS, *ALONE])
def test_a_labelled_figure_of_pyplot_and_no_file(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    axes = {**CALLS, **ALONE}[name]()
    assert isinstance(axes, Axes)
    assert axes is pyplot.gca()
    assert axes.get_xlabel()
    assert axes.get_ylabel()
    assert axes.get_title()
    assert axes.get_legend() is None or axes.get_legend()._loc_real != 0  # the best place is slow
    for bar in axes.figure.axes:
        assert bar.get_label() != "<colorbar>" or bar.get_ylabel()
    saved, blank = png_of_pyplot()
    assert (saved != blank).any(-1).mean() > 0.01
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("name", CALLS)
def test_given_axes_are_used(name, ax):
    assert CALLS[name](ax=ax) is ax
    assert ax.has_data()
    assert pyplot.get_fignums() == []
    with pytest.raises(TypeError, match=r"\w+: ax has type str; expected matplotlib axes"):
        CALLS[name](ax="here")


def test_axes_of_subplots_and_of_subfigures():
    figure = pyplot.figure(layout="constrained")
    left, right = figure.subfigures(1, 2)
    plot.similarity(P, ax=left.subplots())
    plot.bias(ALIBI, ax=right.subplots())
    pyplot.suptitle("both")
    assert [axes.get_title() for axes in panels(figure)] == ["Inner products of all pairs of positions", "posenc.alibi"]
    assert figure.get_suptitle() == "both"
    figure.canvas.draw()


def test_biases_are_a_figure_of_pyplot():
    two = {"alibi": ALIBI, "kerple": posenc.kerple_log([1.0], [1.0])}
    figure = plot.biases(two, distances=64)
    assert isinstance(figure, Figure)
    assert figure is pyplot.gcf()
    assert [axes.get_title() for axes in figure.axes] == list(two)
    assert all(axes.has_data() and axes.get_xlabel() for axes in figure.axes)
    saved, blank = png_of_pyplot()
    assert (saved != blank).any(-1).mean() > 0.01
    (axes,) = plot.biases(ALIBI).axes
    assert axes.get_title() == "posenc.alibi"
    seven = plot.biases({str(number): ALIBI for number in range(7)})
    assert len(seven.axes) == 7


def test_ints_are_distances_and_rows():
    assert same_bits(plot.decay(5).get_lines()[0].get_xdata(), np.arange(5))
    assert same_bits(plot.bias(ALIBI, distances=5).get_lines()[0].get_xdata(), np.arange(-4, 1))
    assert same_bits(plot.profile(ALIBI, distances=5).get_lines()[0].get_xdata(), np.arange(-4, 1))
    lines = plot.distance_curves(P, positions=3).get_lines()
    assert [line.get_label() for line in lines] == ["from position 0", "from position 1", "from position 2"]


def test_one_value_is_named_by_its_kind():
    def name_of(axes):
        return axes.get_lines()[0].get_label()

    assert name_of(plot.profile(ALIBI + ALIBI)) == "posenc.alibi + posenc.alibi,\nhead 0 of 8"
    assert name_of(plot.profile(None)) == "no positions"
    assert name_of(plot.rope_bands(NTK, W)) == "rotary frequencies"
    with_line, without = plot.rope_bands(NTK, W, train_length=512), plot.rope_bands(NTK, W)
    assert len(with_line.get_lines()) == len(without.get_lines()) + 1
    assert without.get_legend() is not None


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
        axes = plot.encoding(values, layout=layout)
        assert same_bits(np.asarray(axes.images[0].get_array()), values)
        assert len(axes.get_lines()) == (layout is not None)
    odd = plot.encoding(P[:, :5])
    assert [label.get_text() for label in odd.get_xticklabels()] == ["0", "2", "4", "1", "3"]
    assert odd.get_lines()[0].get_xdata()[0] == 2.5


def test_colours_follow_the_sign(ax):
    signed = plot.encoding(P).images[0]
    assert signed.get_cmap().name == "RdBu_r"
    assert signed.norm(0.0) == 0.5
    negative = plot.encoding(-np.eye(3)).images[0]
    assert negative.get_cmap()(negative.norm(0.0))[:3] == pytest.approx((1, 1, 1), abs=0.05)
    assert negative.norm(-1.0) == 0
    positive = plot.similarity(P, kind="distance").images[0]
    assert positive.get_cmap().name == "viridis"
    assert positive.norm(0.0) == 0


def test_curves_are_the_numbers(ax):
    plot.decay([0, 5, 9], schedules={"a": {"base": 10.0}}, dim=64, ax=ax)
    assert same_bits(ax.get_lines()[0].get_ydata(), analysis.decay([0, 5, 9], base=10.0, dim=64).real)
    axes = plot.distance_curves(P, positions=[7])
    assert same_bits(axes.get_lines()[0].get_ydata(), analysis.distance_matrix(P.astype(np.float64))[7])
    lines = plot.bias(ALIBI, distances=[-2, 0, 2]).get_lines()
    assert [line.get_ydata().tolist() for line in lines[:2]] == [[-1, 0, -1], [-0.5, 0, -0.5]]
    lines = plot.profile({"ALiBi": ALIBI}, distances=np.arange(-5, 1), head=2).get_lines()
    assert same_bits(lines[0].get_ydata(), analysis.attention_profile(ALIBI, np.arange(-5, 1)).weights[2])
    steep = plot.profile({"steep": posenc.alibi([1.0]), "flat": None})  # weights from e**-127, and of 1/128
    assert 1e-7 < steep.get_ylim()[0] < 1e-6
    decoder = plot.bias(posenc.t5(np.ones((32, 1)), bidirectional=False))
    assert decoder.get_lines()[0].get_xdata().max() == 0


def test_a_profile_names_its_head():
    schemes = {"ALiBi": ALIBI, "one slope": posenc.alibi([0.5]), "RoPE": W}
    lines = plot.profile(schemes, head=1).get_lines()
    assert [line.get_label() for line in lines] == ["ALiBi,\nhead 1 of 8", "one slope", "RoPE"]


def test_descriptions():
    """Kinds of figures that no page and no notebook has; tests/docs compares the descriptions of those."""
    text = plot.description(plot.bias(posenc.alibi(posenc.alibi_slopes(16))).figure)
    assert text.endswith(
        "16 curves of added to the logit by position of key - position of query (-64 to 64): head 0, "
        "-45 to 0; head 15, -0.25 to 0."
    )
    many = plot.biases({f"bias {number}": ALIBI for number in range(9)})
    assert plot.description(many).startswith("9 panels: bias 0, bias 1, ")
    assert plot.description(many.axes[8]).startswith("bias 8. 8 curves by key - query")
    figure, (bars, points) = pyplot.subplots(1, 2)
    bars.bar([1, 2], [3, 4])
    points.scatter([1, 2, 3], [4, 5, 7])
    points.set(xlabel="a", ylabel="b")
    assert plot.description(figure) == "Panel 1: Chart of y by x. Panel 2: 3 points: b (4 to 7) against a (1 to 3)."
    empty = Figure()
    empty.subplots().imshow(np.full((2, 2), np.nan))
    assert plot.description(empty) == "Image of 2 rows and 2 columns: no numbers."


def test_bands_and_cells_are_the_numbers(ax):
    plot.rope_bands({"NTK": NTK}, W, train_length=512, ax=ax)
    assert same_bits(ax.get_lines()[0].get_ydata(), NTK.inv_freq / W.inv_freq)
    cells = np.asarray(plot.extrapolation(W, 128, 512).images[0].get_array())
    assert not cells[:, :128].any()
    unseen = analysis.rope_coverage(W, 128, test_length=512).unseen
    np.testing.assert_allclose((cells[:, 128:] == 2).mean(1), unseen, rtol=0, atol=1e-15)
    image = plot.extrapolation(W, 128, 10000).images[0]  # more distances than columns: each second one
    assert image.get_extent() == [-0.5, 9999.5, len(W.inv_freq) - 0.5, -0.5]
    assert same_bits(np.asarray(image.get_array()).min(0) == 0, np.arange(0, 10000, 2) < 128)


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
    axes = plot.logits(cope, np.repeat(KINDS, 2, 0), np.repeat(KINDS, 2, 0), head=1)
    shown = axes.images[0].get_array()
    assert np.array_equal(np.ma.getmaskarray(shown), ~np.tri(4, dtype=bool))
    assert axes.get_title() == "posenc.cope, head 1 of 2"


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda: plot.logits(ALIBI, KINDS, KINDS),
            TypeError,
            "bias has type PositionBias; .*plot.bias draws it",
        ),
        (lambda: plot.logits(SHAW, KINDS[0], KINDS[0]), ValueError, r"q has shape \(4, 2\); expected three axes"),
        (lambda: plot.logits(SHAW, KINDS, KINDS[:, :2]), ValueError, r"k has shape \(1, 2, 2\); expected \(1, 4, 2\)"),
        (lambda: plot.logits(SHAW, KINDS, KINDS, head=-1), ValueError, "head is -1; expected at least 0"),
        (lambda: plot.logits(SHAW, KINDS, KINDS, head=1), IndexError, "head is 1; expected 0 to 0"),
        (lambda: plot.logits(SHAW, KINDS, KINDS, words=["a"]), ValueError, "words has 1 entries; expected 4"),
        (lambda: plot.encoding(W), TypeError, "encoding has type RopeFrequencies; .*rope_bands and extrapolation draw"),
        (
            lambda: plot.encoding(W.inv_freq),
            ValueError,
            r"encoding has shape \(64,\); .* extrapolation draw",
        ),
        (lambda: plot.encoding(128), ValueError, r"encoding has shape \(\); expected .* such as sinusoidal\(128, 64\)"),
        (lambda: plot.encoding(np.zeros((0, 3))), ValueError, "encoding has shape"),
        (lambda: plot.encoding("words"), TypeError, "encoding has dtype"),
        (lambda: plot.encoding(analysis.gram_matrix(P)), ValueError, "encoding has a symmetric matrix"),
        (lambda: plot.similarity(P, kind="angle"), ValueError, "kind"),
        (lambda: plot.similarity(ALIBI), TypeError, "encoding has type PositionBias; .*posenc.plot.bias draws it"),
        (lambda: plot.similarity(SHAW), TypeError, "encoding has type ContentBias; .*posenc.plot.logits draws it"),
        (lambda: plot.similarity({"a": P}), TypeError, "encoding has type dict"),
        (lambda: plot.similarity(analysis.correlation_matrix(P)), ValueError, "encoding has a symmetric matrix of all"),
        (
            lambda: plot.similarity(analysis.correlation_matrix(np.ones((3, 2)))),
            ValueError,
            "encoding has a symmetric",
        ),
        (lambda: plot.distance_curves(analysis.distance_matrix(P)), ValueError, ".*; plt.imshow draws it"),
        (lambda: plot.distance_curves(P, positions=[512]), IndexError, "positions is 512; expected 0 to 511"),
        (lambda: plot.distance_curves(P, positions=0), ValueError, "positions is 0; expected at least 1"),
        (lambda: plot.decay(W), TypeError, "distances has type RopeFrequencies; .*posenc.plot.profile"),
        (
            lambda: plot.decay(W.inv_freq),
            ValueError,
            "distances has numbers that fall from 1 towards 0; ",
        ),
        (lambda: plot.decay(ALIBI), TypeError, "distances has type PositionBias; .*posenc.plot.bias draws it"),
        (lambda: plot.decay(P), ValueError, r"distances has shape \(512, 128\)"),
        (lambda: plot.decay([]), ValueError, r"distances has shape \(0,\)"),
        (lambda: plot.decay(-3), ValueError, "distances is -3; expected at least 1"),
        (lambda: plot.decay("far"), TypeError, "distances"),
        (lambda: plot.decay(schedules={"base": 10.0}), TypeError, "schedules has type float; expected a mapping of"),
        (lambda: plot.decay(schedules="power"), TypeError, "schedules has type str; expected a mapping of"),
        (lambda: plot.bias("alibi"), TypeError, "bias has type str; expected one bias that reads positions"),
        (
            lambda: plot.bias(W),
            TypeError,
            "bias has type RopeFrequencies; .*plot.profile, rope_bands",
        ),
        (lambda: plot.bias({"a": ALIBI}), TypeError, "bias has type dict; .*posenc.plot.biases and profile draw"),
        (lambda: plot.bias(SHAW), TypeError, "bias has type ContentBias; .*posenc.plot.logits draws it"),
        (lambda: plot.bias(ALIBI, distances=W), TypeError, "distances has type RopeFrequencies"),
        (lambda: plot.bias(DENSE), TypeError, "bias has dense, which reads no positions; "),
        (lambda: plot.biases({}), ValueError, "biases has no entries"),
        (lambda: plot.biases([ALIBI, ALIBI]), TypeError, "biases has type list; .* or a mapping of names to several"),
        (lambda: plot.biases({"w": W}), TypeError, "biases has type RopeFrequencies; expected biases that read"),
        (lambda: plot.biases(SHAW), TypeError, "biases has type ContentBias; .*posenc.plot.logits draws it"),
        (lambda: plot.profile(SHAW), TypeError, "schemes has type ContentBias; .*posenc.plot.logits draws it"),
        (lambda: plot.profile(P), ValueError, r"schemes has shape \(512, 128\)"),
        (lambda: plot.profile("alibi"), TypeError, "schemes has type str"),
        (lambda: plot.profile([ALIBI, ALIBI]), TypeError, "schemes has type list; .* or a mapping of names to several"),
        (lambda: plot.profile(DENSE), TypeError, "schemes has dense, which reads no positions"),
        (lambda: plot.rope_bands([NTK, W], W), TypeError, "scaled has type list; expected frequencies, or a mapping"),
        (lambda: plot.rope_bands(ALIBI, W), TypeError, "scaled has type PositionBias; .*posenc.plot.bias draws it"),
        (lambda: plot.rope_bands(W, {"a": W}), TypeError, "original has type dict; expected frequencies"),
        (lambda: plot.rope_bands(W, W.inv_freq[:3]), ValueError, "scaled has 64 entries; expected 3"),
        (lambda: plot.extrapolation({"a": W}, 64, 128), TypeError, "frequencies has type dict; expected frequencies"),
        (lambda: plot.extrapolation(W, 64, 32), ValueError, "test_length is 32; expected"),
        (lambda: plot.description("figure"), TypeError, "figure has type str; expected a matplotlib Figure or Axes"),
    ],
)
def test_refusals(call, kind, message):
    """A message begins with the function that was called, and no empty figure stays behind."""
    function = call.__code__.co_names[1]
    with pytest.raises(kind, match=f"^{function}: {message}"):
        call()
    assert pyplot.get_fignums() == []


def test_encodings_that_are_square_or_symmetric():
    for encoding in (posenc.sinusoidal(16, 16), np.eye(4), [[1.0]]):
        assert plot.similarity(encoding).has_data()


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
    assert len(plot.bias(operator, distances=range(last + 1)).get_lines()) == 1


# ---- notebooks ----

PNG = b"\x89PNG\r\n\x1a\n"
TREE = np.where(np.tri(5, dtype=bool), 1.0, -np.inf)
SHOWN = {
    "alibi": (ALIBI, "posenc.alibi", 8), "sum": (ALIBI + ALIBI, "posenc.alibi + posenc.alibi", 8),
    "at": (posenc.alibi([1.0]).at(q_positions=[0, 4, 5]), "posenc.alibi", (3, 64)),
    "dense without heads": (posenc.dense(TREE), "posenc.dense", (5, 5)),
    "toeplitz": (posenc.toeplitz(np.ones((2, 6))), "posenc.toeplitz, head 0 of 2", (3, 4)),
    "beit": (posenc.beit(np.ones((12, 1)), 2, 2), "posenc.beit", (5, 5)),
    "swin and alibi": (posenc.swin(np.ones((9, 8)), 2, 2) + ALIBI, "posenc.swin + posenc.alibi, head 0 of 8", (4, 4)),
    "tupe": (posenc.tupe(np.ones((1, 3, 2)), np.ones((1, 5, 2))), "posenc.tupe", (3, 5)),
    "gates": (posenc.gated_distance(np.ones((1, 100, 1)), np.ones((3, 1))), "posenc.gated_distance", (100, 64)),
    "dense of many": (ALIBI + posenc.dense(np.ones((80, 90))), "posenc.alibi + posenc.dense, head 0 of 8", (80, 90)),
    "fox": (posenc.fox(np.full((1, 3), -0.5)), "posenc.fox", (3, 3)),
    "sum of matrices": (ALIBI + posenc.dense(TREE[None]), "posenc.alibi + posenc.dense, head 0 of 8", (5, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_a_notebook_draws_operators(name):
    """As curves if they are functions of distance, otherwise as a matrix without hidden pairs."""
    operator, title, size = SHOWN[name]
    assert operator._repr_png_().startswith(PNG)
    axes = notebook.bias_figure(operator, *count_positions(operator, 64)).axes[0]
    assert pyplot.get_fignums() == []
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

    figure = plot.bias(ALIBI).figure
    formatter, texts = Formatter(), Formatter()
    formatters = {"image/png": formatter, "text/plain": texts}
    shell = SimpleNamespace(display_formatter=SimpleNamespace(formatters=formatters))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(pyplot, "get_backend", lambda: "inline")
    monkeypatch.setattr(pyplot, "switch_backend", lambda name: formatter.type_printers.clear())
    formatter.type_printers[Figure] = "dropped by the backend when it is loaded"
    notebook.show_figures()
    assert formatter.type_printers[Figure](figure).startswith(PNG)
    printed = []
    texts.type_printers[Figure](figure, SimpleNamespace(text=printed.append), False)
    assert printed == [plot.description(figure)]
    monkeypatch.setattr(pyplot, "switch_backend", lambda name: None)
    formatter.type_printers[Figure] = "inline"
    notebook.show_figures()
    assert formatter.type_printers == {Figure: "inline"}
