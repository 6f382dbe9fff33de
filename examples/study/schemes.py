"""Position-encoding schemes: an addition to the embeddings, a rotation of queries and keys, or a bias on the logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import posenc
from arrays import Array, Traced
from posenc_bridges import autograd as traced

from .autograd_typed import anp

Weights = dict[str, Traced]
Draw = np.random.Generator


class Setting(NamedTuple):
    """Sizes of the model, its training and its evaluation."""

    name: str
    width: int
    layers: int
    heads: int
    length: int
    """Bytes of a window in training."""
    batch: int
    """Windows of a step."""
    steps: int
    rate: float
    """The largest learning rate."""
    targets: int
    """Bytes to predict in the evaluation, at most."""
    tested: tuple[float, ...]
    """Lengths of the windows in the evaluation, as multiples of `length`."""

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths of the windows in the evaluation, in bytes."""
        return tuple(round(self.length * factor) for factor in self.tested)

    @property
    def head_width(self) -> int:
        return self.width // self.heads


class Scheme(NamedTuple):
    """A position-encoding scheme: functions of the setting and of the arrays that `weights` drew. All are optional."""

    weights: Callable[[Setting, Draw], Weights] = lambda setting, draw: {}
    """Draw the trainable arrays, by name."""
    encoding: Callable[[Setting, Weights, int], Traced] | None = None
    """(n, width), added to the embeddings of n bytes."""
    layer: Callable[[Setting, Weights, Traced], Traced] | None = None
    """(batch, n, width), a function of the embeddings in that shape, which it replaces."""
    rotation: Callable[[Setting, Traced], Traced] | None = None
    """Rotate queries or keys (..., n, head width)."""
    bias: Callable[[Setting, Weights], Traced] | None = None
    """The `bias` argument of `attention`, common to all layers."""
    layer_bias: Callable[[Setting, Weights, int, Traced], Traced] | None = None
    """The `bias` argument of `attention` in one layer, from its number and its normalised input (batch, n, width)."""
    attention: Callable[..., Traced] = traced.attention
    """Attention of (q, k, v, bias=, causal=). A replacement may compute it in another way, or record its inputs."""


Initializer = Callable[[Setting, Draw], Array]
"""Draws one trainable array."""


def learned(**arrays: Initializer) -> Callable[[Setting, Draw], Weights]:
    """One array of each name."""
    return lambda setting, draw: {name: make(setting, draw) for name, make in arrays.items()}


def learned_per_layer(**arrays: Initializer) -> Callable[[Setting, Draw], Weights]:
    """One array of each name for every layer, called "0.name", "1.name", ...."""
    return lambda setting, draw: {
        f"{layer}.{name}": make(setting, draw) for layer in range(setting.layers) for name, make in arrays.items()
    }


def normal(*shape: str | int) -> Initializer:
    """Normal numbers of standard deviation 0.02. Axes may be "h" (heads), "d" (head width), "n" and "width"."""

    def drawn(setting: Setting, draw: Draw) -> Array:
        named = {"h": setting.heads, "d": setting.head_width, "n": setting.length, "width": setting.width}
        sizes = [named[size] if isinstance(size, str) else size for size in shape]
        return (0.02 * draw.standard_normal(sizes)).astype(np.float32)

    return drawn


def projection(columns: str) -> Initializer:
    """A matrix (width, `columns`) of the same standard deviation as the model's own, 1 / sqrt(inputs)."""
    return lambda setting, draw: normal("width", columns)(setting, draw) * np.float32(50 * setting.width**-0.5)


def constant(value: float, *, per_head: bool = True) -> Initializer:
    return lambda setting, draw: np.full(setting.heads if per_head else (), value, np.float32)


def rope(setting: Setting, x: Traced) -> Traced:
    frequencies = posenc.rope_frequencies(setting.head_width).inv_freq
    return traced.rope(x, x.shape[-2], frequencies, layout="half")


def transformer_xl(setting: Setting, weights: Weights) -> Traced:
    rows = posenc.xl_table(setting.length, setting.width).astype(np.float32) @ weights["project"]
    r = rows.reshape(rows.shape[0], setting.heads, -1).transpose((1, 0, 2))
    return traced.transformer_xl(r, weights["u"], weights["v"])


def deberta(setting: Setting, weights: Weights, layer: int, x: Traced) -> Traced:
    """He et al. 2021, equation 4: all layers share the table of distances; each has its own projections of it."""
    shape = (-1, setting.heads, setting.head_width)
    rel_q, rel_k = (
        anp.transpose(anp.reshape(anp.dot(weights["table"], weights[f"{layer}.{name}"]), shape), (1, 0, 2))
        for name in ("query", "key")
    )
    return traced.deberta(rel_q, rel_k)


def fox(setting: Setting, weights: Weights, layer: int, x: Traced) -> Traced:
    """Lin et al. 2025: the forget gate of a head is the sigmoid of a linear function of the layer's input."""
    gates = anp.dot(x, weights[f"{layer}.gate"]) + weights[f"{layer}.offset"]
    return traced.fox(anp.transpose(-anp.logaddexp(np.float32(0), -gates), (0, 2, 1)))


def rnn(setting: Setting, weights: Weights, x: Traced) -> Traced:
    """A GRU over the embeddings, whose states the Transformer reads in place of them."""
    start = np.zeros(setting.width, np.float32)
    return traced.recurrent(
        start,
        weights["state"],
        weights["bias"],
        x.shape[-2],
        inputs=x,
        input_weight=weights["input"],
        cell="gru",
        include_p0=False,
    )


def complex_order(setting: Setting, weights: Weights, x: Traced) -> Traced:
    """Wang et al. 2020: complex embeddings ``r exp(i (w k + theta))`` with frequencies that all words share.

    The halves of an embedding are the real and the imaginary part of ``r exp(i theta)``, so the position rotates them.
    """
    return traced.rope(x, x.shape[-2], weights["frequency"], layout="half")


def matrix(rows: int) -> Initializer:
    """A matrix (rows * width, width) of the same standard deviation as the model's own."""
    return lambda setting, draw: (
        draw.standard_normal((rows * setting.width, setting.width)) * setting.width**-0.5
    ).astype(np.float32)


def zeros(*shape: int) -> Initializer:
    """Zeros of the shape (..., last * width)."""
    return lambda setting, draw: np.zeros((*shape[:-1], shape[-1] * setting.width), np.float32)


FLOATER_WEIGHTS = learned(  # by the names of the arguments of `posenc.floater`
    p0=normal("width"),
    w1=lambda setting, draw: normal(setting.width, setting.width + 1)(setting, draw) * np.float32(5),
    b1=zeros(1),
    w2=lambda setting, draw: normal(setting.width, setting.width + 1)(setting, draw) * np.float32(5),
    b2=zeros(1),
)
FIRE_WEIGHTS = learned(  # by the names of the arguments of `posenc.fire`
    w1=lambda setting, draw: draw.standard_normal((32, 1)).astype(np.float32),
    b1=lambda setting, draw: draw.standard_normal(32).astype(np.float32),
    w2=normal("h", 32),
    b2=constant(0.0),
    c=constant(0.1, per_head=False),
    threshold=lambda setting, draw: np.full((), setting.length / 2, np.float32),
)


def deberta_weights(setting: Setting, draw: Draw) -> Weights:
    shared, own = learned(table=normal(32, "width")), {"query": projection("width"), "key": projection("width")}
    return {**shared(setting, draw), **learned_per_layer(**own)(setting, draw)}


SCHEMES: dict[str, Scheme] = {
    "none": Scheme(),
    "learned": Scheme(
        learned(table=normal("n", "width")),
        encoding=lambda setting, weights, n: traced.learned(weights["table"], n),
    ),
    "sinusoidal": Scheme(encoding=lambda setting, weights, n: posenc.sinusoidal(n, setting.width)),
    "rope": Scheme(rotation=rope),
    # The largest distance of T5, 128, would leave the last buckets of short windows untrained.
    "t5": Scheme(
        learned(table=normal(16, "h")),
        bias=lambda setting, weights: traced.t5(
            weights["table"], bidirectional=False, max_distance=max(setting.length // 2, 9)
        ),
    ),
    "alibi": Scheme(bias=lambda setting, weights: posenc.alibi(posenc.alibi_slopes(setting.heads))),
    "alibi_learned": Scheme(
        learned(slopes=lambda setting, draw: posenc.alibi_slopes(setting.heads).astype(np.float32)),
        bias=lambda setting, weights: traced.alibi(abs(weights["slopes"])),
    ),
    # The paper constrains r1 and r2 to be positive; here their absolute values are used.
    "kerple": Scheme(
        learned(r1=constant(1.0), r2=constant(1.0)),
        bias=lambda setting, weights: traced.kerple_log(abs(weights["r1"]), abs(weights["r2"])),
    ),
    "sandwich": Scheme(bias=lambda setting, weights: posenc.sandwich(setting.heads, 128)),
    "fire": Scheme(FIRE_WEIGHTS, bias=lambda setting, weights: traced.fire(**weights)),
    "shaw": Scheme(learned(table=normal(33, "d")), bias=lambda setting, weights: traced.shaw(weights["table"])),
    "transformer_xl": Scheme(
        learned(project=normal("width", "width"), u=normal("h", "d"), v=normal("h", "d")), bias=transformer_xl
    ),
    "deberta": Scheme(deberta_weights, layer_bias=deberta),
    "product": Scheme(
        learned(table=normal("n", "width")),
        layer=lambda setting, weights, x: traced.combine(
            x, traced.learned(weights["table"], x.shape[-2]), mode="mul1p"
        ),
    ),
    "recurrent": Scheme(
        learned(p0=normal("width"), weight=matrix(1), bias=zeros(1)),
        encoding=lambda setting, weights, n: traced.recurrent(weights["p0"], weights["weight"], weights["bias"], n),
    ),
    "floater": Scheme(FLOATER_WEIGHTS, encoding=lambda setting, weights, n: traced.floater(**weights, n=n)),
    "rnn": Scheme(learned(state=matrix(3), input=matrix(3), bias=zeros(2, 3)), layer=rnn),
    "complex_order": Scheme(
        learned(frequency=lambda setting, draw: posenc.sinusoidal_frequencies(setting.width).astype(np.float32)),
        layer=complex_order,
    ),
    "fox": Scheme(learned_per_layer(gate=projection("h"), offset=constant(0.0)), layer_bias=fox),
}
"""The schemes of the study, by the names that ``--methods`` takes."""
