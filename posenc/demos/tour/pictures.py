"""Pictures of the tour: every operator, and every kind of figure of `posenc.plot`. They need matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import posenc
from posenc import Bias, ContentBias, PositionBias

from ..arrays import Array
from .measure import attend, embeddings, encode, project, swapped
from .schemes import ADDED, BIAS, GROUPS, HEADS, LINE, MODEL, READS, RUN, WIDTH, WITHOUT_CURVE, Scheme, groups, operator
from .text import Swap, Text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = 128
"""Positions and channels of the encodings that are drawn."""
TRAINED = 512
ACROSS = 4
"""Most panels side by side."""
COMPARED = 5
"""Schemes beside attention without positions in a picture of attention."""
LABELS = 16
"""Words of the text at the axes of the matrices."""
LETTERS = 10
"""Letters of a word in a label."""
DPI = 120


class Picture(NamedTuple):
    file: str
    caption: str
    draw: Callable[[], Figure]


def can_draw() -> bool:
    return find_spec("matplotlib") is not None


def labels(words: Sequence[str]) -> list[str]:
    return [word if len(word) <= LETTERS else f"{word[: LETTERS - 1]}\u2026" for word in words]


def attention_weights(scheme: Scheme, words: Sequence[str]) -> Array:
    """Attention weights of the first head, (N, N): the output of attention whose values are unit vectors.

    The keys after a query are NaN if the scheme is causal.
    """
    n = len(words)
    positions = np.arange(n)
    q, k, _ = project(encode(scheme, embeddings(words), positions))
    units = np.broadcast_to(np.eye(n, dtype=np.float32), (HEADS, n, n))
    weights: Array = attend(scheme, q, k, units, positions, causal=scheme.is_causal)[0]
    return np.where(scheme.is_causal & ~np.tri(n, dtype=bool), np.nan, weights)


def swap_maps(schemes: Sequence[Scheme], swap: Swap) -> Figure:
    """Attention weights of a sentence before and after two words change places, and their difference word by word."""
    words, a, b = swap
    other = swapped(words, a, b)
    back = np.arange(len(words))
    back[[a, b]] = b, a
    maps = {}
    for scheme in schemes:
        first, second = attention_weights(scheme, words), attention_weights(scheme, other)
        change = second[np.ix_(back, back)] - first
        name = "no positions" if scheme.name == "none" else scheme.name
        maps[f"{name} (causal)" if scheme.is_causal else name] = (first, second, change)
    names = ("the words", f"{labels(words)[a]} and {labels(words)[b]} swapped", "second - first, word by word")
    figure = posenc.plot.attention_maps(maps, [labels(words), labels(other), labels(words)], names)
    figure.suptitle(
        "Attention weights of the first head (random embeddings, nothing is trained). White in the last line: no change"
    )
    return figure


def sinusoid() -> Figure:
    figure = posenc.plot.encoding(posenc.sinusoidal(SHOWN, SHOWN, layout="halves"), layout="halves")
    figure.axes[0].set(xlabel=f"channel: {SHOWN // 2} sines, then {SHOWN // 2} cosines, fast to slow")
    figure.axes[0].set_title(f'posenc.sinusoidal({SHOWN}, {SHOWN}, layout="halves")')
    return figure


def grid(title: str, schemes: Sequence[Scheme], draw: Callable[[Scheme, Axes], object]) -> Figure:
    """Draw small panels side by side, one for each scheme."""
    from matplotlib.figure import Figure

    down = -(-len(schemes) // ACROSS)
    across = -(-len(schemes) // down)
    figure = Figure(figsize=(3.6 * across, 3.0 * down), layout="constrained")
    places = figure.subplots(down, across, squeeze=False).reshape(-1)
    for axes, scheme in zip(places, schemes, strict=False):
        draw(scheme, axes)
        axes.set_title(f"posenc.{scheme.name}")
    for axes in places[len(schemes) :]:
        axes.remove()
    figure.suptitle(title)
    return figure


def encodings(schemes: Sequence[Scheme], repeated: str) -> Figure:
    """Draw what each encoding adds to an embedding; where it does something else, its result for one repeated word."""
    word = np.tile(embeddings([repeated]), (SHOWN, 1))

    def draw(scheme: Scheme, axes: Axes) -> None:
        x = 0 * word if scheme.enters == ADDED else word
        posenc.plot.encoding(encode(scheme, x, np.arange(SHOWN))[:, :SHOWN], ax=axes)

    title = f'Added to an embedding, or else the result for the repeated word "{labels([repeated])[0]}"'
    return grid(title, [scheme for scheme in schemes if scheme.encode], draw)


def rotations(schemes: Sequence[Scheme]) -> Figure:
    """Draw the products of a query of ones with keys of ones at all positions."""
    keys = 2 * SHOWN
    ones = np.ones((1, keys, WIDTH), np.float32)

    def draw(scheme: Scheme, axes: Axes) -> None:
        assert scheme.rotate is not None
        q, k = scheme.rotate(ones, ones, np.arange(keys))
        axes.plot(k[0] @ q[0, keys // 2] / WIDTH, linewidth=1, **posenc.plot.line_style(0))
        axes.set(xlabel=f"position of the key; the query is at {keys // 2}", ylabel="product / width")
        axes.grid(alpha=0.3)

    title = f"Products of a rotated query of ones with rotated keys of ones (lines of {LINE} words)"
    return grid(title, [scheme for scheme in schemes if scheme.rotate], draw)


def curves(schemes: Sequence[Scheme]) -> Figure:
    """Draw each bias that is a function of distance, a curve for each head."""
    names = [scheme.name for scheme in schemes if scheme.enters == BIAS and scheme.name not in WITHOUT_CURVE]
    figure = posenc.plot.biases({f"posenc.{name}": operator(name, 1) for name in names})
    figure.suptitle("Added to the logit by distance, each head a curve")
    return figure


def matrices(schemes: Sequence[Scheme], words: Sequence[str]) -> Figure:
    """Draw what each other operator on positions adds to the logits of the words in the first head."""
    n, names = len(words), labels(words)

    def draw(scheme: Scheme, axes: Axes) -> None:
        bias = operator(scheme.name, n)
        assert isinstance(bias, PositionBias)
        shown = np.where(scheme.is_causal & ~np.tri(n, dtype=bool), np.nan, bias.matrix(n)[0].astype(np.float64))
        greatest = np.nanmax(abs(shown))
        image = axes.imshow(shown, cmap="RdBu_r", vmin=-greatest, vmax=greatest)
        axes.figure.colorbar(image, ax=axes, label="added to the logit")
        axes.set_xticks(range(n), names, rotation=90, fontsize=5)
        axes.set_yticks(range(n), names, fontsize=5)
        axes.set(xlabel="key", ylabel="query")

    title = f"Added to the logits of the first words, in the first head (lines of {LINE} words)"
    return grid(title, [scheme for scheme in schemes if scheme.name in WITHOUT_CURVE], draw)


def content(schemes: Sequence[Scheme], words: Sequence[str]) -> Figure:
    """Draw what operators that read q and k add, if the words have content of three kinds and are otherwise alike."""
    kinds = [GROUPS[i // RUN % len(GROUPS)] for i in range(len(words))]
    x = np.broadcast_to(groups()[0][["ABC".index(kind) for kind in kinds]], (HEADS, len(words), WIDTH))
    names = [f"{word} {kind}" for word, kind in zip(labels(words), kinds, strict=True)]

    def draw(scheme: Scheme, axes: Axes) -> None:
        bias = operator(scheme.name, len(words), of_groups=True)
        assert isinstance(bias, ContentBias)
        posenc.plot.logits(bias, x, x, words=names, ax=axes)
        axes.tick_params(labelsize=6)

    return grid(
        "Added to the logits of words with content A, B or C. Queries A look for the key before them, B for near\n"
        "keys, C for far keys. Columns differ if keys are read, too. CoPE counts keys of the query's content alone.",
        [scheme for scheme in schemes if scheme.enters == READS],
        draw,
    )


def scalings() -> dict[str, posenc.RopeFrequencies]:
    """Frequencies of RoPE for texts of four times the training length, by the name of the scaling."""
    longer = partial(posenc.rope_frequencies, WIDTH, factor=4, original_max_position_embeddings=TRAINED)
    return {
        "PI": posenc.rope_frequencies(WIDTH, rope_type="linear", factor=4),
        "NTK": posenc.rope_frequencies(WIDTH, rope_type="ntk", factor=4),
        "YaRN": longer(rope_type="yarn"),
        "llama3": longer(rope_type="llama3", low_freq_factor=1, high_freq_factor=4),
    }


def order_pictures(schemes: Sequence[Scheme], swap: Swap) -> list[Picture]:
    """Return the pictures of two words that change places: for each kind of scheme, at most `COMPARED` in each."""
    families = {
        "absolute": [scheme for scheme in schemes if scheme.encode],
        "rotary": [scheme for scheme in schemes if scheme.rotate],
        "bias": [scheme for scheme in schemes if scheme.bias and scheme.enters != READS and not scheme.is_causal],
        "relative": [scheme for scheme in schemes if scheme.enters == READS and not scheme.is_causal],
        "causal": [scheme for scheme in schemes if scheme.is_causal],  # their changes are too large for one scale
    }
    found = []
    for name, family in families.items():
        parts = [family[first : first + COMPARED] for first in range(0, len(family), COMPARED)]
        for number, part in enumerate(parts, 1):
            suffix, which = (f"-{number}", f" {number} of {len(parts)}") if len(parts) > 1 else ("", "")
            caption = f"attention when two words of a sentence change places, {name}{which}"
            found.append(Picture(f"order-{name}{suffix}.png", caption, partial(swap_maps, [schemes[0], *part], swap)))
    return found


def all_pictures(schemes: Sequence[Scheme], text: Text) -> list[Picture]:
    """Return the pictures: first those of the text, then those of operators alone."""
    table = posenc.sinusoidal(TRAINED, SHOWN)
    frequencies = posenc.rope_frequencies(WIDTH)
    words = text.words[:LABELS] or text.drawn.words
    profiles: dict[str, Bias | posenc.RopeFrequencies] = {
        "ALiBi": operator("alibi", 1),
        "T5": operator("t5", 1),
        "RoPE": frequencies,
    }
    return [
        *order_pictures(schemes, text.drawn),
        Picture("matrices.png", "operators on the logits of the first words", lambda: matrices(schemes, words)),
        Picture("content.png", "operators on q and k, for three kinds of words", lambda: content(schemes, words)),
        Picture("encodings.png", "each absolute encoding, or the first word", lambda: encodings(schemes, words[0])),
        Picture("sinusoid.png", "the sinusoidal encoding, position by channel", sinusoid),
        Picture("rotations.png", "each rotation: products by position of the key", lambda: rotations(schemes)),
        Picture("bias.png", "each bias against distance, by head", lambda: curves(schemes)),
        Picture("products.png", "inner products of all positions", lambda: posenc.plot.similarity(table)),
        Picture("triangles.png", "distance and correlation of all positions", lambda: posenc.plot.triangles(table)),
        Picture("distances.png", "distances from five positions", lambda: posenc.plot.distance_curves(table)),
        Picture("decay.png", "inner products by distance, four schedules", lambda: posenc.plot.decay(dim=MODEL)),
        Picture(
            "profile.png",
            "attention weights by distance: ALiBi, T5 (last head) and RoPE",
            lambda: posenc.plot.profile(profiles, head=HEADS - 1),
        ),
        Picture(
            "rope-bands.png",
            "scalings of RoPE for longer texts, pair by pair",
            lambda: posenc.plot.rope_bands(scalings(), frequencies, train_length=TRAINED),
        ),
        Picture(
            "extrapolation.png",
            "angles of RoPE that are new beyond the training length",
            lambda: posenc.plot.extrapolation(frequencies, TRAINED, 2048),
        ),
        Picture("float32-error.png", "errors of float32 sinusoids as positions grow", posenc.plot.precision),
    ]
