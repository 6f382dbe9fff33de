"""What tells a model where a byte stands: an addition to the embeddings, a turn of queries and keys, or a bias."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import autograd.numpy as anp  # type: ignore[import-not-found, import-untyped, unused-ignore]
import numpy as np

import posenc
from posenc import autograd as traced

from ..._core_api.arguments import Array

Weights = dict[str, Any]
Draw = np.random.Generator


class Setting(NamedTuple):
    """Sizes of the model, and how it is trained and tested."""

    name: str
    width: int
    layers: int
    heads: int
    length: int
    batch: int
    steps: int
    rate: float
    targets: int
    tested: tuple[float, ...]
    """Multiples of `length`."""

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(round(self.length * times) for times in self.tested)


class Scheme(NamedTuple):
    """Functions of the setting and of what `weights` made; each may be left out."""

    weights: Callable[[Setting, Draw], Weights] = lambda setting, draw: {}
    """Arrays to be learned."""
    added: Callable[[Setting, Weights, int], Any] | None = None
    """(n, width), added to the embeddings of n bytes."""
    turned: Callable[[Setting, Any], Any] | None = None
    """Queries or keys (..., n, width of a head), turned."""
    bias: Callable[[Setting, Weights], Any] | None = None
    """For `attention`, the same in all layers."""
    layer_bias: Callable[[Setting, Weights, int, Any], Any] | None = None
    """For `attention` in the layer of this number, from what it reads: (batch, n, width), normalised."""
    attention: Callable[..., Any] = traced.attention
    """(q, k, v, bias=, causal=), for who wants another one, or to look at what goes in."""


def small(*shape: str | int) -> Callable[[Setting, Draw], Array]:
    """Normal numbers of a fiftieth; "h" and "d" are the heads and their width."""

    def drawn(setting: Setting, draw: Draw) -> Array:
        named = {"h": setting.heads, "d": setting.width // setting.heads, "width": setting.width}
        sizes = [named[size] if isinstance(size, str) else size for size in shape]
        return (0.02 * draw.standard_normal(sizes)).astype(np.float32)

    return drawn


def learned(**arrays: Callable[[Setting, Draw], Array]) -> Callable[[Setting, Draw], Weights]:
    return lambda setting, draw: {name: make(setting, draw) for name, make in arrays.items()}


def constant(value: float, *, of_heads: bool = True) -> Callable[[Setting, Draw], Array]:
    return lambda setting, draw: np.full(setting.heads if of_heads else (), value, np.float32)


def by_position(setting: Setting, weights: Weights, n: int) -> Any:
    return traced.learned(weights["table"], n)


def xl(setting: Setting, weights: Weights) -> Any:
    rows = posenc.xl_table(setting.length, setting.width).astype(np.float32) @ weights["project"]
    r = rows.reshape(rows.shape[0], setting.heads, -1).transpose((1, 0, 2))
    return traced.transformer_xl(r, weights["u"], weights["v"])


def of_layers(**arrays: Callable[[Setting, Draw], Array]) -> Callable[[Setting, Draw], Weights]:
    """One of each for every layer, `"0.name"`."""
    return lambda setting, draw: {
        f"{layer}.{name}": make(setting, draw) for layer in range(setting.layers) for name, make in arrays.items()
    }


def projection(rows: str, columns: str) -> Callable[[Setting, Draw], Array]:
    """As the model's own: standard deviation 1 / sqrt(inputs)."""
    return lambda setting, draw: small(rows, columns)(setting, draw) * np.float32(50 * setting.width**-0.5)


def deberta(setting: Setting, weights: Weights, layer: int, x: Any) -> Any:
    """Equation 4 of He et al. 2021: the rows of distances are shared, what projects them is not."""
    heads = (-1, setting.heads, setting.width // setting.heads)
    rel_q, rel_k = (
        anp.transpose(anp.reshape(anp.dot(weights["table"], weights[f"{layer}.{name}"]), heads), (1, 0, 2))
        for name in ("query", "key")
    )
    return traced.deberta(rel_q, rel_k)


def fox(setting: Setting, weights: Weights, layer: int, x: Any) -> Any:
    """Lin et al. 2025: the gate of a head is the sigmoid of a product with what the layer reads."""
    gates = anp.dot(x, weights[f"{layer}.gate"]) + weights[f"{layer}.offset"]
    return traced.fox(anp.transpose(-anp.logaddexp(np.float32(0), -gates), (0, 2, 1)))


SCHEMES: dict[str, Scheme] = {
    "none": Scheme(),
    "learned": Scheme(
        learned(table=lambda s, draw: (0.02 * draw.standard_normal((s.length, s.width))).astype(np.float32)),
        added=by_position,
    ),
    "sinusoidal": Scheme(added=lambda s, weights, n: posenc.sinusoidal(n, s.width)),
    "rope": Scheme(
        turned=lambda s, x: traced.rope(
            x, x.shape[-2], posenc.rope_frequencies(s.width // s.heads).inv_freq, layout="half"
        )
    ),
    # a distance past which all share a bucket that training does not reach leaves buckets untrained
    "t5": Scheme(
        learned(table=small(16, "h")),
        bias=lambda s, weights: traced.t5(weights["table"], bidirectional=False, max_distance=s.length // 2),
    ),
    "alibi": Scheme(bias=lambda s, weights: posenc.alibi(posenc.alibi_slopes(s.heads))),
    "kerple": Scheme(
        learned(r1=constant(1.0), r2=constant(1.0)),
        # |r|: both are positive in the paper
        bias=lambda s, weights: traced.kerple_log(abs(weights["r1"]), abs(weights["r2"])),
    ),
    "sandwich": Scheme(bias=lambda s, weights: posenc.sandwich(s.heads, 128)),
    "fire": Scheme(
        learned(
            w1=lambda s, draw: draw.standard_normal((32, 1)).astype(np.float32),
            b1=lambda s, draw: draw.standard_normal(32).astype(np.float32),
            w2=small("h", 32),
            b2=constant(0.0),
            c=constant(0.1, of_heads=False),
            threshold=lambda s, draw: np.full((), s.length / 2, np.float32),
        ),
        bias=lambda s, weights: traced.fire(*(weights[name] for name in ("w1", "b1", "w2", "b2", "c", "threshold"))),
    ),
    "shaw": Scheme(learned(table=small(33, "d")), bias=lambda s, weights: traced.shaw(weights["table"])),
    "transformer_xl": Scheme(
        learned(project=small("width", "width"), u=small("h", "d"), v=small("h", "d")),
        bias=xl,
    ),
    "deberta": Scheme(
        lambda s, draw: {
            **learned(table=small(32, "width"))(s, draw),
            **of_layers(query=projection("width", "width"), key=projection("width", "width"))(s, draw),
        },
        layer_bias=deberta,
    ),
    "fox": Scheme(of_layers(gate=projection("width", "h"), offset=constant(0.0)), layer_bias=fox),
}
