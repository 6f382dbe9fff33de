"""posenc.plot: pictures show the given numbers on labelled axes; no file is written and no figure is kept."""

import numpy as np
import pytest
from cases.layouts import same_bits

import posenc
from posenc import analysis

pytest.importorskip("matplotlib", reason="matplotlib is not installed: no pictures")
from matplotlib.figure import Figure

from posenc import plot

P = posenc.sinusoidal(512, 128)
W = posenc.rope_frequencies(128)
NTK = posenc.rope_frequencies(128, rope_type="ntk", factor=8)
ALIBI = posenc.alibi(posenc.alibi_slopes(8))
MAPS = {f"scheme {i}": [np.eye(3), np.eye(3) - 1] for i in range(7)}
CALLS = {
    "encoding": lambda **o: plot.encoding(P, **o),
    "similarity": lambda **o: plot.similarity(P, **o),
    "correlation": lambda **o: plot.similarity(P, kind="correlation", **o),
    "decay": lambda **o: plot.decay(dim=128, **o),
    "distance_curves": lambda **o: plot.distance_curves(P, **o),
    "bias": lambda **o: plot.bias(ALIBI, **o),
    "profile": lambda **o: plot.profile({"ALiBi": ALIBI, "RoPE": W}, **o),
    "rope_bands": lambda **o: plot.rope_bands({"NTK": NTK}, W, train_length=512, **o),
    "extrapolation": lambda **o: plot.extrapolation(W, 128, 512, **o),
    "precision": lambda **o: plot.precision(pairs=4, **o),
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
    if name in CALLS:
        assert drawn(figure)[0].get_xlabel()
        assert drawn(figure)[0].get_ylabel()
    else:
        assert all(any(getattr(axes, f"get_{which}label")() for axes in drawn(figure)) for which in "xy")
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


def test_axes_of_a_subfigure():
    figure = Figure()
    assert plot.encoding(P, ax=figure.subfigures(1, 2)[0].subplots()) is figure


@pytest.mark.parametrize(("kind", "function"), [
    ("product", analysis.gram_matrix), ("distance", analysis.distance_matrix),
    ("correlation", analysis.correlation_matrix),
])  # fmt: skip
def test_cells_are_the_matrix(kind, function, ax):
    plot.similarity(P, kind=kind, ax=ax)
    assert same_bits(np.asarray(ax.images[0].get_array()), function(P.astype(np.float64)))


def test_cells_are_the_encoding(ax):
    plot.encoding(P, ax=ax)
    assert same_bits(np.asarray(ax.images[0].get_array()), P.astype(np.float64))


def test_colours_follow_the_sign(ax):
    signed = plot.encoding(P).axes[0].images[0]
    assert signed.get_cmap().name == "RdBu_r"
    assert signed.norm(0.0) == 0.5
    positive = plot.similarity(P, kind="distance").axes[0].images[0]
    assert positive.get_cmap().name == "viridis"
    assert positive.norm(0.0) == 0


def test_curves_are_the_numbers(ax):
    plot.decay([0, 5, 9], schedules={"a": {"base": 10.0}}, dim=64, ax=ax)
    assert same_bits(ax.get_lines()[1].get_ydata(), analysis.decay([0, 5, 9], base=10.0, dim=64).real)
    figure = plot.distance_curves(P, positions=[7])
    assert same_bits(figure.axes[0].get_lines()[0].get_ydata(), analysis.distance_matrix(P.astype(np.float64))[7])
    lines = plot.bias(ALIBI, distances=[-2, 0, 2]).axes[0].get_lines()
    assert [line.get_ydata().tolist() for line in lines[:2]] == [[-1, 0, -1], [-0.5, 0, -0.5]]
    lines = plot.profile({"ALiBi": ALIBI}, distances=np.arange(-5, 1), head=2).axes[0].get_lines()
    assert same_bits(lines[0].get_ydata(), analysis.attention_profile(ALIBI, np.arange(-5, 1)).weights[2])


def test_the_default_decay_is_the_integral():
    pytest.importorskip("scipy")
    lines = plot.decay().axes[0].get_lines()
    assert len(lines) == 5
    assert same_bits(lines[1].get_ydata(), analysis.decay(np.arange(-128, 129)).real)


def test_triangles_are_the_points():
    small = P[:40].astype(np.float64)
    figure = plot.triangles(small)
    points = analysis.triangle_points(analysis.distance_matrix(small), analysis.correlation_matrix(small))
    for axes, cloud in zip(figure.axes, points, strict=False):
        dots = np.concatenate([line.get_xydata() for line in axes.get_lines()])
        assert same_bits(dots[np.lexsort(dots.T)], cloud[np.lexsort(cloud.T)])
    pair = Figure().subplots(1, 2)
    assert plot.triangles(small, ax=pair) is pair[0].figure
    with pytest.raises(TypeError, match="triangles: ax has 1 entries; expected two matplotlib axes"):
        plot.triangles(small, ax=[pair[0]])


def test_bands_and_cells_are_the_numbers(ax):
    plot.rope_bands({"NTK": NTK}, W, train_length=512, ax=ax)
    assert same_bits(ax.get_lines()[0].get_ydata(), NTK.inv_freq / W.inv_freq)
    cells = np.asarray(plot.extrapolation(W, 128, 512).axes[0].images[0].get_array())
    assert not cells[:, :128].any()
    unseen = analysis.rope_coverage(W, 128, test_length=512).unseen
    np.testing.assert_allclose((cells[:, 128:] == 2).mean(1), unseen, rtol=0, atol=1e-15)


def test_attention_maps():
    figure = WHOLE["attention_maps"]()
    images = [axes.images[0] for axes in drawn(figure)]
    assert len(images) == 14
    assert sum(np.array_equal(image.get_array(), np.eye(3)) for image in images) == 7
    with pytest.raises(ValueError, match="attention_maps: maps has shapes"):
        plot.attention_maps(MAPS, [["a", "b"]] * 2, ["first", "second"])


def test_refusals():
    for call, kind in (
        (lambda: plot.encoding(np.zeros(3)), ValueError),
        (lambda: plot.encoding(np.zeros((0, 3))), ValueError),
        (lambda: plot.encoding("words"), TypeError),
        (lambda: plot.similarity(P, kind="angle"), ValueError),
        (lambda: plot.bias("alibi"), TypeError),
        (lambda: plot.bias(posenc.shaw(np.zeros((3, 4)))), TypeError),
        (lambda: plot.biases({}), ValueError),
        (lambda: plot.triangles(P[:1]), ValueError),
        (lambda: plot.distance_curves(P, positions=[512]), IndexError),
    ):
        with pytest.raises(kind):
            call()


OF_POSITIONS = {
    "swin": (posenc.swin(np.ones((9, 1)), 2, 2), 3), "beit": (posenc.beit(np.ones((12, 1)), 2, 2), 4),
    "fox": (posenc.fox(np.full((1, 3), -0.5)), 2),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_POSITIONS)
def test_operators_with_a_table_of_positions(name):
    """The query is at 0, so the default distances leave the table. The message says where the keys may be."""
    operator, last = OF_POSITIONS[name]
    message = f"distances has a key outside the table; expected keys at 0 to {last}, because {name} has a table"
    with pytest.raises(IndexError, match=f"^bias: {message}"):
        plot.bias(operator)
    with pytest.raises(IndexError, match=f"^profile: {message}"):
        plot.profile({name: operator})
    with pytest.raises(IndexError, match=f"^attention_profile: {message}"):
        posenc.analysis.attention_profile(operator, [-1])
    assert len(plot.bias(operator, distances=range(last + 1)).axes[0].get_lines()) == 1


@pytest.mark.parametrize("operator", [posenc.dense(np.ones((1, 2, 2))), posenc.toeplitz(np.ones((1, 3)))], ids=repr)
def test_operators_that_read_no_positions(operator):
    with pytest.raises(TypeError, match=f"^bias: operator has {operator.name}, which reads no positions; "):
        plot.bias(operator)


def test_line_styles_differ():
    styles = [plot.line_style(number) for number in range(29)]
    assert all(a != b for i, a in enumerate(styles[:28]) for b in styles[:i])
    assert styles[28] == styles[0]
    with pytest.raises(ValueError, match="line_style: number is -1"):
        plot.line_style(-1)


def test_every_function_has_axes_or_is_whole():
    assert set(plot.__all__) - {"line_style"} <= {*CALLS, *WHOLE}
    for name in {*CALLS} & {*plot.__all__}:
        assert getattr(plot, name).__annotations__["ax"] == "Axes | None"


@pytest.mark.slow
def test_every_picture_can_be_saved(tmp_path):
    for name, call in {**CALLS, **WHOLE}.items():
        call().savefig(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 1000
