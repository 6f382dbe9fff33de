"""Pictures of the tour and its slides, in reading order, with titles, captions and notes. They need matplotlib.

The numbers in captions are computed together with the pictures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib import font_manager, rc_context, rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import posenc
from arrays import Array
from posenc import PositionBias
from posenc import __main__ as effects

from .text import Swap, Text, labels

SHOWN = 128
"""Positions of an encoding that is drawn, its channels, and the distance that captions name."""
TRAINED, TESTED = 512, 2048
"""Positions in training and in the test that the pictures of RoPE assume."""
LABELS = 16
"""Words of the text in the picture `matrices`."""
HIDDEN = "0.8"
"""Grey of the cells that a mask hides."""
FONT = 13.0
"""Points of a label, which has 9 where a page shrinks the picture."""
DPI = 150
CHINESE = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "PingFang SC", "Hiragino Sans GB", "Microsoft YaHei",
    "SimHei", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Arial Unicode MS",
)  # fmt: skip
"""Fonts with Chinese and Japanese characters."""


class Picture(NamedTuple):
    """A picture with its title, its caption and the speaker's notes."""

    file: str
    title: str
    caption: str
    notes: str
    """The speaker's notes: the details to point at."""
    figure: Figure


@cache
def schemes() -> dict[str, effects.Scheme]:
    return {scheme.name: scheme for scheme in effects.all_schemes()}


def operator(name: str, n: int) -> PositionBias:
    """The operator on the logits by this name, for n words. It reads positions alone."""
    bias = schemes()[name].bias(n)
    assert isinstance(bias, PositionBias)
    return bias


def changes(text: Text, names: Sequence[str]) -> list[str]:
    """The largest change of the other words' outputs by the swap with each scheme, formatted."""
    return [effects.amount(effects.change_by_swap(schemes()[name], *text.drawn)) for name in names]


def labels_below(words: Sequence[str]) -> list[str]:
    """Labels of columns for horizontal text. If words are long, neighbouring labels are on different lines."""
    shown = labels(words)
    lines = -(-max(map(len, shown)) // 3)
    return ["\n" * (i % min(lines, 3)) + word for i, word in enumerate(shown)]


def curves(figure: Figure) -> dict[str, Array]:
    """The points (2, N) of each line of the first panel, by its label in the legend."""
    lines = {str(line.get_label()): np.array(line.get_data(), float) for line in figure.axes[0].get_lines()}
    return {label: points for label, points in lines.items() if not label.startswith("_")}


def panels(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]


def attention_weights(scheme: effects.Scheme, words: Sequence[str]) -> Array:
    """Attention weights of the first head, (N, N): the output of attention whose values are unit vectors.

    If the scheme is causal, the weights of keys after the query are NaN.
    """
    n = len(words)
    positions = np.arange(n)
    q, k, _ = effects.project(scheme.encode(effects.embeddings(words), positions))
    units = np.broadcast_to(np.eye(n, dtype=np.float32), (effects.HEADS, n, n))
    weights: Array = effects.attend(scheme, (q, k, units), positions)[0]
    return np.where(scheme.is_causal & ~np.tri(n, dtype=bool), np.nan, weights)


def swap_maps(names: Sequence[str], swap: Swap) -> Figure:
    """Attention weights of a sentence, and the change of each weight when two words change places.

    A column for each scheme; the images of a row share one colour scale. A change compares the weights of the same two
    words, before and after the swap. A weight that a mask hides counts as 0. Cells are grey if the mask hides the
    weight both before and after.
    """
    words, a, b = swap
    back = np.arange(len(words))
    back[[a, b]] = b, a
    other = [words[i] for i in back]
    figure = Figure(figsize=(13, 5), layout="constrained")
    grid = figure.subplots(2, len(names))
    for (above, below), name in zip(grid.T, names, strict=True):
        scheme = schemes()[name]
        before, after = attention_weights(scheme, words), attention_weights(scheme, other)[np.ix_(back, back)]
        change = np.where(np.isnan(before) & np.isnan(after), np.nan, np.nan_to_num(after) - np.nan_to_num(before))
        above.imshow(before, cmap="Blues", aspect="auto")  # cells as wide as words
        below.imshow(change, cmap="RdBu_r", aspect="auto")
        above.set_title(name + " (causal)" * (scheme.is_causal and name != effects.CAUSAL_MASK), fontsize=FONT)
        below.set_xlabel("key", fontsize=FONT)
    rows = {"attention weight": "weight", "change by the swap": "change of weight"}
    for row, (row_name, label) in zip(grid, rows.items(), strict=True):
        images = [axes.images[0] for axes in row]
        greatest = max(float(np.nanmax(abs(np.asarray(image.get_array())))) for image in images)
        for axes, image in zip(row, images, strict=True):
            image.set_clim(0 if label == "weight" else -greatest, greatest)
            axes.set_facecolor(HIDDEN)
            axes.set_xticks(range(len(words)), labels_below(words), fontsize=9)
            axes.set_yticks(range(len(words)), labels(words) if axes is row[0] else [], fontsize=FONT)
        row[0].set_ylabel(f"{row_name}\n\nquery", fontsize=FONT)
        bar = figure.colorbar(images[0], ax=list(row), shrink=0.8)
        bar.set_label(label, fontsize=FONT)
        bar.ax.tick_params(labelsize=FONT)
    return figure


def side_by_side(count: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width, height), layout="compressed")
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


# ---- order ----


def order(text: Text) -> Picture:
    shown = effects.NO_POSITIONS, "sinusoidal", "rope", "alibi"
    words, a, b = text.drawn
    none, *others = changes(text, shown)
    return Picture(
        "order.png",
        "Attention alone has no order",
        f"When {words[a]} and {words[b]} change places, the outputs of the other words change by {none} without "
        f"positions, {others[0]} with sinusoids, {others[1]} with RoPE and {others[2]} with ALiBi.",
        f"Point at the first column, lower row: no weight between two words changes when {words[a]} and {words[b]} "
        "change places. Then point at the three columns beside it: there the rows of words that did not move change, "
        "too. The numbers are relative to the largest output; embeddings are random, nothing is trained.",
        swap_maps(shown, text.drawn),
    )


def order_causal(text: Text) -> Picture:
    shown = effects.NO_POSITIONS, effects.CAUSAL_MASK, "fox", "cope"
    words, a, b = text.drawn
    none, mask, fox, cope = changes(text, shown)
    return Picture(
        "order-causal.png",
        "A causal mask tells order by itself",
        f"The same swap changes the other words' outputs by {none} without positions, by {mask} with a causal mask "
        f"alone, and by {fox} with FoX and {cope} with CoPE, which need the mask.",
        f"Point at the second column: there is no encoding, and yet the weights of {words[a]} and {words[b]} change, "
        "because words that saw one of them now see the other. Compare FoX and CoPE with this column, not with the "
        "first.",
        swap_maps(shown, text.drawn),
    )


# ---- waves ----


def sinusoid(text: Text) -> Picture:
    pairs = SHOWN // 2
    figure, (axes,) = side_by_side(1, 8, 4.6)
    posenc.plot.encoding(posenc.sinusoidal(SHOWN, SHOWN, layout="half"), layout="half", ax=axes)
    axes.set(xlabel=f"channel: {pairs} sines, then {pairs} cosines, fast to slow")
    axes.set_title(f'posenc.sinusoidal({SHOWN}, {SHOWN}, layout="half")')
    periods = 2 * math.pi / posenc.sinusoidal_frequencies(SHOWN)
    return Picture(
        "sinusoid.png",
        "Fast waves and slow waves",
        f"The fastest pair makes a turn in {periods[0]:.1f} positions, the slowest one in {periods[-1]:,.0f}; "
        f"{(periods > SHOWN - 1).sum()} of the {pairs} pairs make less than a turn in the {SHOWN} positions shown.",
        "Follow one column downwards: it is one wave. Follow one row across: it is one position. Then point at the "
        "right end of each half: these channels hardly change within the picture.",
        figure,
    )


def decay(text: Text) -> Picture:
    figure, (axes,) = side_by_side(1, 8, 4.6)
    posenc.plot.decay(
        np.arange(-SHOWN, SHOWN + 1),
        dim=effects.MODEL,
        schedules={"10000^(-t)": {"base": 10000.0}, "1000^(-t)": {"base": 1000.0}, "t": {"schedule": "power"}},
        ax=axes,
    )
    found = [f"{y[-1]:.2f} with {name}" for name, (_, y) in curves(figure).items()]
    return Picture(
        "decay.png",
        "Products fall with the distance",
        f"The inner product of two encodings at distance {SHOWN}, divided by the product of equal encodings, is "
        f"{', '.join(found)}.",
        "Point at the peak, then at the two geometric curves: near keys have large products, far keys keep a part. The "
        "curves are symmetric, so this product cannot tell before from after.",
        figure,
    )


# ---- rotations and biases ----


def rotations(text: Text) -> Picture:
    side = 33
    ones = np.ones((1, side * side, effects.WIDTH), np.float32)
    distances = np.arange(TRAINED)
    query = posenc.rope(ones[:, :1], [0], posenc.rope_frequencies(effects.WIDTH), layout="half")
    keys = posenc.rope(ones[:, :TRAINED], distances, posenc.rope_frequencies(effects.WIDTH), layout="half")
    curve = keys[0] @ query[0, 0] / effects.WIDTH
    frequencies = posenc.axial_frequencies((effects.WIDTH // 2, effects.WIDTH // 2))
    page = posenc.rope_nd(ones, np.indices((side, side)).reshape(2, -1), frequencies, layout="half")[0]
    figure, (left, right) = side_by_side(2, 11, 4.2)
    left.plot(distances, curve, linewidth=1.2)
    left.grid(alpha=0.3)
    left.set(title="rope", xlabel="distance of key and query", ylabel="product / product at distance 0")
    shown = right.imshow((page @ page[side * side // 2] / effects.WIDTH).reshape(side, side), cmap="Blues")
    right.set(title="rope_nd, query in the middle", xlabel="column of the key", ylabel="line of the key")
    figure.colorbar(shown, ax=right)
    shift = effects.change_by_shift(schemes()["rope"], text.words[:SHOWN], 10**6)
    return Picture(
        "rotations.png",
        "Rotated products depend on the distance",
        f"For a query and a key of ones, the product at distance {SHOWN} is {curve[SHOWN]:.2f} of the product at equal "
        f"positions, and a move of the text by {10**6:,} positions changes the products of its words by "
        f"{effects.amount(shift)}.",
        "Left: the product falls in waves, because fast pairs make many turns. Right: the line rotates half of the "
        "pairs and the column the other half, so the product falls less along the line and the column of the query.",
        figure,
    )


def biases(text: Text) -> Picture:
    learned = {"t5": "random table", "fire": "random network", "tisa": "random bumps"}
    names = {name: name for name in ("alibi", "kerple_log", "sandwich")}
    names |= {name: f"{name}, {what}" for name, what in learned.items()}
    figure = posenc.plot.biases({title: operator(name, 1) for name, title in names.items()})
    figure.set_size_inches(12.5, 5.8)
    alibi, distance = posenc.alibi_slopes(effects.HEADS), 64
    return Picture(
        "bias.png",
        "A bias is added to the logit",
        f"For a key {distance} positions away, the first of {len(alibi)} heads of ALiBi subtracts "
        f"{alibi[0] * distance:g} from the logit and the last one {alibi[-1] * distance:g}; the parameters of the "
        "lower row are random.",
        "Upper row: the same idea with three shapes, a straight line, a logarithm and a sum of waves. Point at the "
        "steepest head, which sees its neighbours, and at the flattest, which sees far. Lower row: a model learns the "
        "shape, which is random here; t5 has steps, because distant positions share a number.",
        figure,
    )


def matrices(text: Text) -> Picture:
    words = text.words[:LABELS]
    n = len(words)
    titles = {"alibi": "alibi", "swin": f"swin, lines of {effects.LINE} words", "fox": "fox, random gates (causal)"}
    figure, grid = side_by_side(3, 12.5, 4)
    found = {}
    for axes, (name, title) in zip(grid, titles.items(), strict=True):
        bias = operator(name, n)
        found[name] = shown = bias.matrix(n)[0].astype(np.float64)
        image = axes.imshow(np.where((name == "fox") & ~np.tri(n, dtype=bool), np.nan, shown), cmap="Blues_r", vmax=0)
        axes.set_facecolor(HIDDEN)
        axes.set(title=title, xlabel="position of the key")
        axes.set_xticks(range(0, n, 5))
        axes.set_yticks(range(n), labels(words) if axes is grid[0] else [], fontsize=9)
        figure.colorbar(image, ax=axes)
    return Picture(
        "matrices.png",
        "Diagonals, lines of a page, gates",
        f"If the last of {n} words is the query and the first is the key, ALiBi subtracts "
        f"{-found['alibi'][-1, 0]:.1f}, Swin's table for lines of {effects.LINE} words {-found['swin'][-1, 0]:.1f}, "
        f"and FoX with random gates {-found['fox'][-1, 0]:.1f}.",
        "ALiBi: go along a diagonal, nothing changes. Swin: the first word of the second line is near the first word "
        "of the first line on the page, though far in the text. FoX: at each step a word's gate forgets the words "
        "before it.",
        figure,
    )


# ---- longer texts ----


def extrapolation(text: Text) -> Picture:
    frequencies = posenc.rope_frequencies(effects.WIDTH)
    figure, (axes,) = side_by_side(1, 8, 4.6)
    posenc.plot.extrapolation(frequencies, TRAINED, TESTED, ax=axes)
    new = np.asarray(axes.images[0].get_array())[:, TRAINED:] == 2
    slow = int((frequencies.inv_freq * (TRAINED - 1) < 2 * math.pi).sum())
    return Picture(
        "extrapolation.png",
        "Angles that training has never shown",
        f"In {TRAINED} positions, {slow} of the {len(new)} pairs do not make a whole turn, and at distances from "
        f"{TRAINED} to {TESTED - 1}, {new.mean():.0%} of the angles are new.",
        "Point at the border of the grey part: training ends here. Then at the two colours: fast pairs have seen the "
        "whole circle, slow ones an arc. This is one reason why RoPE fails on longer texts, and why scalings differ "
        "from pair to pair.",
        figure,
    )


def scalings() -> dict[str, posenc.RopeFrequencies]:
    """Frequencies of RoPE for texts of TESTED words, by the name of the scaling."""
    factor = TESTED // TRAINED
    longer = partial(posenc.rope_frequencies, effects.WIDTH, factor=factor, original_max_position_embeddings=TRAINED)
    return {
        "PI": posenc.rope_frequencies(effects.WIDTH, rope_type="linear", factor=factor),
        "NTK": posenc.rope_frequencies(effects.WIDTH, rope_type="ntk", factor=factor),
        "YaRN": longer(rope_type="yarn"),
        "llama3": longer(rope_type="llama3", low_freq_factor=1, high_freq_factor=4),
    }


def rope_bands(text: Text) -> Picture:
    factor, found = TESTED // TRAINED, scalings()
    figure, (axes,) = side_by_side(1, 8, 4.6)
    posenc.plot.rope_bands(found, posenc.rope_frequencies(effects.WIDTH), train_length=TRAINED, ax=axes)
    yarn = curves(figure)["YaRN"][1]
    return Picture(
        "rope-bands.png",
        "Scalings slow down the slow pairs",
        f"For texts {factor} times as long, PI divides each frequency by {factor}, and YaRN does so for "
        f"{np.isclose(yarn, 1 / factor).sum()} of {len(yarn)} pairs, but leaves {(yarn == 1).sum()} as they are.",
        "Point at the dotted line and recall the picture before: the pairs at its right are those with new angles. "
        "PI slows down the fast pairs, too, so neighbouring positions get harder to tell apart; the other scalings "
        "change the fast pairs less.",
        figure,
    )


PICTURES = (order, order_causal, sinusoid, decay, rotations, biases, matrices, extrapolation, rope_bands)
"""The pictures in reading order."""


def fonts() -> list[str]:
    """The fonts of matplotlib's settings, and those with Chinese characters that are installed."""
    manager = font_manager.fontManager
    for path in set(font_manager.findSystemFonts()) - {entry.fname for entry in manager.ttflist}:
        with suppress(RuntimeError):  # a format that matplotlib cannot read
            manager.addfont(path)  # it was installed after matplotlib made its list
    return [*rcParams["font.family"], *(name for name in CHINESE if name in manager.get_font_names())]


def draw(text: Text, directory: Path) -> list[Picture]:
    """Write the pictures. Matplotlib warns of a character that no font has."""
    with rc_context({"font.family": fonts()}):
        pictures = [make(text) for make in PICTURES]
        for picture in pictures:
            picture.figure.savefig(directory / picture.file, dpi=DPI)
    return pictures
