"""The pictures that the tour leaves: each operator, and each kind of picture of `posenc.plot`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

import posenc

from ..._core_api.arguments import Array
from ...bias._distance import Distance
from ...bias.fire import Fire
from ...relative._content import Content
from .measure import attend, embeddings, encode, project, swapped
from .schemes import ADDED, HEADS, MODEL, READS, WIDTH, Scheme, operator
from .text import LONGEST, PAIRS, words_of

SHOWN = 128
"""Positions of the encodings that are drawn."""
TRAINED = 512
LONGER = {"factor": 4, "original_max_position_embeddings": TRAINED}


def can_draw() -> bool:
    return find_spec("matplotlib") is not None


def attention_weights(scheme: Scheme, words: Sequence[str]) -> Array:
    """(N, N) of the first head: the output of attention where the values are the unit vectors."""
    positions = np.arange(len(words))
    q, k, _ = project(encode(scheme, embeddings(words), positions))
    units = np.broadcast_to(np.eye(len(words), dtype=np.float32), (HEADS, len(words), len(words)))
    weights: Array = attend(scheme, q, k, units, positions)[0]
    return weights


def order(plans: Sequence[Scheme]) -> Any:
    """The attention maps of the two sentences, and what is between them word by word."""
    from ... import plot

    sentence, a, b = PAIRS[0]
    words = words_of(sentence)
    other = swapped(words, a, b)
    back = np.arange(len(words))
    back[[a, b]] = b, a
    maps = {}
    for scheme in plans:
        first, second = attention_weights(scheme, words), attention_weights(scheme, other)
        maps["no positions" if scheme.name == "none" else scheme.name] = (
            first, second, second[np.ix_(back, back)] - first,
        )  # fmt: skip
    names = (" ".join(words), " ".join(other), "second - first, word by word")
    figure = plot.attention_maps(maps, (words, other, words), names)
    figure.suptitle("Attention weights of the first head (random vectors, nothing is trained)")
    return figure


def sinusoid() -> Any:
    from ... import plot

    figure = plot.encoding(posenc.sinusoidal(SHOWN, SHOWN, layout="halves"), layout="halves")
    figure.axes[0].set(xlabel=f"channel: {SHOWN // 2} sines, then as many cosines, fast to slow")
    figure.axes[0].set_title(f'posenc.sinusoidal({SHOWN}, {SHOWN}, layout="halves")')
    return figure


def grid(drawn: dict[str, Callable[..., object]]) -> Any:
    """Small pictures, four to a line."""
    from matplotlib.figure import Figure

    across = min(len(drawn), 4)
    down = -(-len(drawn) // across)
    figure = Figure(figsize=(3.6 * across, 3.0 * down), layout="constrained")
    places = figure.subplots(down, across, squeeze=False).reshape(-1)
    for axes, (name, draw) in zip(places, drawn.items(), strict=False):
        draw(ax=axes)
        axes.set_title(f"posenc.{name}")
    for axes in places[len(drawn) :]:
        axes.remove()
    return figure


def encodings(plans: Sequence[Scheme]) -> Any:
    """What is added to a word at each position; what multiplies, turns or mixes words is shown on one and the same."""
    from ... import plot

    positions, word = np.arange(SHOWN), np.tile(embeddings(["word"]), (SHOWN, 1))
    drawn: dict[str, Callable[..., object]] = {}
    for scheme in plans:
        if scheme.encode is not None:
            x = 0 * word if scheme.enters == ADDED else word
            drawn[scheme.name] = partial(plot.encoding, scheme.encode(x, positions)[:, :SHOWN])
    return grid(drawn)


def rotations(plans: Sequence[Scheme]) -> Any:
    """Products of one and the same vector with itself, turned to all positions."""
    ones = np.ones((1, LONGEST, WIDTH), np.float32)
    drawn: dict[str, Callable[..., object]] = {}
    for scheme in plans:
        if scheme.turn is not None:
            q, k = scheme.turn(ones, ones, np.arange(LONGEST))
            drawn[scheme.name] = partial(row, (k[0] @ q[0, LONGEST // 2]) / WIDTH)
    return grid(drawn)


def row(values: Array, ax: Any) -> None:
    from ...plot.styles import COLORS

    ax.plot(values, linewidth=1, color=COLORS[0])
    ax.set(xlabel=f"key; the query is at {LONGEST // 2}", ylabel="product / width")
    ax.grid(alpha=0.3)


def curves(plans: Sequence[Scheme]) -> Any:
    """Each bias that is a curve against distance, a line for each head."""
    from ... import plot

    made = {scheme.name: scheme.bias(1) for scheme in plans if scheme.bias is not None}
    smooth = {name: bias for name, bias in made.items() if isinstance(bias, Distance | Fire) or name == "sandwich"}
    return plot.biases({f"posenc.{name}": bias for name, bias in smooth.items()})


def matrices(plans: Sequence[Scheme]) -> Any:
    """What the other operators add to the logits of 32 random words, first head."""
    n = 32
    q, k, _ = project(embeddings([f"word {i}" for i in range(n)]))
    drawn: dict[str, Callable[..., object]] = {}
    for scheme in plans:
        if scheme.bias is None:
            continue
        bias = scheme.bias(n)
        if isinstance(bias, Distance | Fire) or scheme.name == "sandwich":
            continue
        values = bias.logits(q, k) / np.sqrt(WIDTH) if isinstance(bias, Content) else bias.matrix(n)
        drawn[scheme.name] = partial(cells, values[0])
    return grid(drawn)


def cells(values: Array, ax: Any) -> None:
    from ...plot._canvas import draw_image as image

    image(ax, values.astype(np.float64), "added to the logit", "equal")
    ax.set(xlabel="key", ylabel="query")


def all_pictures(plans: Sequence[Scheme]) -> list[tuple[str, str, Callable[[], Any]]]:
    """(file, what it shows, the function that draws it)"""
    from ... import plot

    table = posenc.sinusoidal(TRAINED, SHOWN)
    w = posenc.rope_frequencies(WIDTH)
    scaled = {
        name: posenc.rope_frequencies(WIDTH, rope_type=kind, **keys)
        for name, kind, keys in (
            ("PI", "linear", {"factor": 4}),
            ("NTK", "ntk", {"factor": 4}),
            ("YaRN", "yarn", LONGER),
            ("llama3", "llama3", {**LONGER, "low_freq_factor": 1, "high_freq_factor": 4}),
        )
    }
    families = {
        "absolute": [scheme for scheme in plans if scheme.encode],
        "rotary": [scheme for scheme in plans if scheme.turn],
        "bias": [scheme for scheme in plans if scheme.bias and scheme.enters != READS],
        "relative": [scheme for scheme in plans if scheme.enters == READS],
    }
    return [
        ("sinusoid.png", "the sinusoidal encoding, position by channel", sinusoid),
        ("encodings.png", "each absolute encoding, position by channel", lambda: encodings(plans)),
        ("rotations.png", "each rotation: products by distance", lambda: rotations(plans)),
        ("bias.png", "each bias against distance, head by head", lambda: curves(plans)),
        ("matrices.png", "the other operators on the logits, as matrices", lambda: matrices(plans)),
        *(
            (f"order-{name}.png", f"who looks at whom: {name}, beside no positions", partial(order, [plans[0], *some]))
            for name, some in families.items()
        ),
        ("products.png", "inner products of all positions", lambda: plot.similarity(table)),
        ("triangles.png", "distance and correlation of all positions", lambda: plot.triangles(table)),
        ("distances.png", "distances from five positions", lambda: plot.distance_curves(table)),
        ("decay.png", "how products fall, for four schedules", lambda: plot.decay(dim=MODEL)),
        (
            "profile.png",
            "attention by distance: last heads of ALiBi and T5, RoPE",
            lambda: plot.profile({"ALiBi": operator("alibi", 1), "T5": operator("t5", 1), "RoPE": w}, head=HEADS - 1),
        ),
        (
            "rope-bands.png",
            "RoPE for longer texts, pair by pair",
            lambda: plot.rope_bands(scaled, w, train_length=TRAINED),
        ),
        ("extrapolation.png", "angles of RoPE never seen in training", lambda: plot.extrapolation(w, TRAINED, 2048)),
        ("float32-error.png", "what the usual float32 formula loses as positions grow", plot.precision),
    ]
