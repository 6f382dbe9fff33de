"""Pictures of the tour: every operator, and every kind of figure of `posenc.plot`. They need matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import posenc
from posenc import Bias, ContentBias

from .measure import attend, embeddings, encode, project, swapped
from .schemes import ADDED, HEADS, MODEL, READS, WIDTH, WITHOUT_CURVE, Array, Scheme, operator
from .text import MAX_WORDS, SWAPS, words_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = 128
"""Positions and channels of the encodings that are drawn."""
TRAINED = 512
ACROSS = 4
"""Panels side by side."""


class Picture(NamedTuple):
    file: str
    caption: str
    draw: Callable[[], Figure]


def can_draw() -> bool:
    return find_spec("matplotlib") is not None


def attention_weights(scheme: Scheme, words: Sequence[str]) -> Array:
    """Attention weights of the first head, (N, N): the output of attention whose values are unit vectors."""
    positions = np.arange(len(words))
    q, k, _ = project(encode(scheme, embeddings(words), positions))
    units = np.broadcast_to(np.eye(len(words), dtype=np.float32), (HEADS, len(words), len(words)))
    weights: Array = attend(scheme, q, k, units, positions)[0]
    return weights


def swap_maps(schemes: Sequence[Scheme]) -> Figure:
    """Attention weights of a sentence before and after two words change places, and their difference word by word."""
    from posenc import plot

    sentence, a, b = SWAPS[0]
    words = words_of(sentence)
    other = swapped(words, a, b)
    back = np.arange(len(words))
    back[[a, b]] = b, a
    maps = {}
    for scheme in schemes:
        first, second = attention_weights(scheme, words), attention_weights(scheme, other)
        change = second[np.ix_(back, back)] - first
        maps["no positions" if scheme.name == "none" else scheme.name] = (first, second, change)
    names = (" ".join(words), " ".join(other), "second - first, word by word")
    figure = plot.attention_maps(maps, (words, other, words), names)
    figure.suptitle("Attention weights of the first head (random embeddings, nothing is trained)")
    return figure


def sinusoid() -> Figure:
    from posenc import plot

    figure = plot.encoding(posenc.sinusoidal(SHOWN, SHOWN, layout="halves"), layout="halves")
    figure.axes[0].set(xlabel=f"channel: {SHOWN // 2} sines, then {SHOWN // 2} cosines, fast to slow")
    figure.axes[0].set_title(f'posenc.sinusoidal({SHOWN}, {SHOWN}, layout="halves")')
    return figure


def grid(panels: dict[str, Callable[[Axes], object]]) -> Figure:
    """Draw small panels side by side, one for each function of posenc."""
    from matplotlib.figure import Figure

    across = min(len(panels), ACROSS)
    down = -(-len(panels) // across)
    figure = Figure(figsize=(3.6 * across, 3.0 * down), layout="constrained")
    places = figure.subplots(down, across, squeeze=False).reshape(-1)
    for axes, (name, draw) in zip(places, panels.items(), strict=False):
        draw(axes)
        axes.set_title(f"posenc.{name}")
    for axes in places[len(panels) :]:
        axes.remove()
    return figure


def encodings(schemes: Sequence[Scheme]) -> Figure:
    """Draw what each encoding adds to an embedding; where it does something else, its result for one repeated word."""
    from posenc import plot

    def panel(values: Array) -> Callable[[Axes], object]:
        return lambda axes: plot.encoding(values, ax=axes)

    positions, word = np.arange(SHOWN), np.tile(embeddings(["word"]), (SHOWN, 1))
    panels = {}
    for scheme in schemes:
        if scheme.encode is not None:
            x = 0 * word if scheme.enters == ADDED else word
            panels[scheme.name] = panel(scheme.encode(x, positions)[:, :SHOWN])
    return grid(panels)


def rotations(schemes: Sequence[Scheme]) -> Figure:
    """Draw the products of a query of ones with keys of ones at all positions."""
    from posenc import plot

    def draw(products: Array, axes: Axes) -> None:
        axes.plot(products, linewidth=1, **plot.line_style(0))
        axes.set(xlabel=f"position of the key; the query is at {MAX_WORDS // 2}", ylabel="product / width")
        axes.grid(alpha=0.3)

    ones = np.ones((1, MAX_WORDS, WIDTH), np.float32)
    panels: dict[str, Callable[[Axes], object]] = {}
    for scheme in schemes:
        if scheme.rotate is not None:
            q, k = scheme.rotate(ones, ones, np.arange(MAX_WORDS))
            panels[scheme.name] = partial(draw, k[0] @ q[0, MAX_WORDS // 2] / WIDTH)
    return grid(panels)


def has_curve(scheme: Scheme) -> bool:
    """Return whether a scheme is a bias to draw against distance; the other operators are drawn as matrices."""
    return scheme.bias is not None and scheme.enters != READS and scheme.name not in WITHOUT_CURVE


def curves(schemes: Sequence[Scheme]) -> Figure:
    """Draw each bias that is a function of distance, a curve for each head."""
    from posenc import plot

    return plot.biases({f"posenc.{scheme.name}": operator(scheme.name, 1) for scheme in schemes if has_curve(scheme)})


def matrices(schemes: Sequence[Scheme]) -> Figure:
    """Draw what each other operator adds to the logits of 32 random words in the first head."""

    def draw(logits: Array, axes: Axes) -> None:
        greatest = abs(logits).max()
        image = axes.imshow(logits.astype(np.float64), cmap="RdBu_r", vmin=-greatest, vmax=greatest)
        axes.figure.colorbar(image, ax=axes, label="added to the logit")
        axes.set(xlabel="key", ylabel="query")

    n = 32
    q, k, _ = project(embeddings([f"word {i}" for i in range(n)]))
    panels: dict[str, Callable[[Axes], object]] = {}
    for scheme in schemes:
        if scheme.bias is not None and not has_curve(scheme):
            bias = scheme.bias(n)
            logits = bias.logits(q, k) / np.sqrt(WIDTH) if isinstance(bias, ContentBias) else bias.matrix(n)
            panels[scheme.name] = partial(draw, logits[0])
    return grid(panels)


def scalings() -> dict[str, posenc.RopeFrequencies]:
    """Frequencies of RoPE for texts of four times the training length, by the name of the scaling."""
    lengths: dict[str, Any] = {"factor": 4, "original_max_position_embeddings": TRAINED}
    return {
        "PI": posenc.rope_frequencies(WIDTH, rope_type="linear", factor=4),
        "NTK": posenc.rope_frequencies(WIDTH, rope_type="ntk", factor=4),
        "YaRN": posenc.rope_frequencies(WIDTH, rope_type="yarn", **lengths),
        "llama3": posenc.rope_frequencies(WIDTH, rope_type="llama3", low_freq_factor=1, high_freq_factor=4, **lengths),
    }


def all_pictures(schemes: Sequence[Scheme]) -> list[Picture]:
    from posenc import plot

    table = posenc.sinusoidal(TRAINED, SHOWN)
    frequencies = posenc.rope_frequencies(WIDTH)
    profiles: dict[str, Bias | posenc.RopeFrequencies] = {
        "ALiBi": operator("alibi", 1),
        "T5": operator("t5", 1),
        "RoPE": frequencies,
    }
    families = {
        "absolute": [scheme for scheme in schemes if scheme.encode],
        "rotary": [scheme for scheme in schemes if scheme.rotate],
        "bias": [scheme for scheme in schemes if scheme.bias and scheme.enters != READS],
        "relative": [scheme for scheme in schemes if scheme.enters == READS],
    }
    return [
        Picture("sinusoid.png", "the sinusoidal encoding, position by channel", sinusoid),
        Picture("encodings.png", "each absolute encoding, position by channel", lambda: encodings(schemes)),
        Picture("rotations.png", "each rotation: products by position of the key", lambda: rotations(schemes)),
        Picture("bias.png", "each bias against distance, by head", lambda: curves(schemes)),
        Picture("matrices.png", "the other operators on the logits, as matrices", lambda: matrices(schemes)),
        *(
            Picture(
                f"order-{name}.png",
                f"attention weights when two words change places, {name}",
                partial(swap_maps, [schemes[0], *family]),
            )
            for name, family in families.items()
        ),
        Picture("products.png", "inner products of all positions", lambda: plot.similarity(table)),
        Picture("triangles.png", "distance and correlation of all positions", lambda: plot.triangles(table)),
        Picture("distances.png", "distances from five positions", lambda: plot.distance_curves(table)),
        Picture("decay.png", "inner products by distance, four schedules", lambda: plot.decay(dim=MODEL)),
        Picture(
            "profile.png",
            "attention weights by distance: ALiBi, T5 (last head) and RoPE",
            lambda: plot.profile(profiles, head=HEADS - 1),
        ),
        Picture(
            "rope-bands.png",
            "scalings of RoPE for longer texts, pair by pair",
            lambda: plot.rope_bands(scalings(), frequencies, train_length=TRAINED),
        ),
        Picture(
            "extrapolation.png",
            "angles of RoPE that are new beyond the training length",
            lambda: plot.extrapolation(frequencies, TRAINED, 2048),
        ),
        Picture("float32-error.png", "errors of float32 sinusoids as positions grow", plot.precision),
    ]
