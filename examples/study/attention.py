"""``python examples/study --why``: attention on windows longer than those of training.

A trained model reads the test text with an attention that records its queries and keys. The attention weights are then
computed again in float64. The perplexity is also computed with every key hidden that is farther away than any was in
training. If hiding these keys restores the perplexity, the model fails by distance; otherwise it fails by position.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

import posenc
from arrays import Array, Float64, Traced
from posenc import analysis
from posenc_bridges import autograd as traced

from . import text
from .command import prepare, trained, write
from .evaluation import perplexity
from .model import losses
from .schemes import SCHEMES, Scheme, Setting, Weights

STATISTICS_BYTES = 8192
"""Bytes whose attention is recorded, at every length."""


class Statistics(NamedTuple):
    """Means over windows of n bytes, layers and heads. The tail of a window is the queries that `tail` returns."""

    nats: Float64
    """(n,): loss of the byte after each position."""
    entropy: Float64
    """(n,): entropy of the weights of the query at each position, in nats; equal weights have log(position + 1)."""
    size: Float64
    """(n,): root mean square of the output of attention at each position."""
    by_distance: Float64
    """(n,): weight of the key at each distance back, over the queries of the tail that have one."""
    far: float
    """Fraction of their weight that the queries of the tail give to keys farther back than any in training."""


class Row(NamedTuple):
    """A line of the table; `table` explains the columns. Means are over the tail, layers and heads."""

    method: str
    length: int
    perplexity: float
    near: float
    entropy: float
    entropy_equal: float
    far: float
    far_equal: float
    size: float
    unseen: float | None


def attention_weights(q: Array, k: Array, bias: Traced) -> Float64:
    """Causal attention weights, (..., H, n, n) in float64: the output of attention whose values are unit vectors."""
    operators = bias if isinstance(bias, tuple) else (bias,)
    units = np.broadcast_to(np.eye(k.shape[-2]), (*k.shape[:-1], k.shape[-2]))
    q, k = q.astype(np.float64), k.astype(np.float64)
    plain = [one.bias if isinstance(one, traced.Operator) else one for one in operators]
    return np.asarray(posenc.attention(q, k, units, bias=plain, causal=True))


def entropy(weights: Float64) -> Float64:
    """``-sum w log w`` over the last axis, in nats."""
    logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    total: Float64 = np.einsum("...m,...m->...", weights, -logs)
    return total


def tail(setting: Setting, length: int) -> Array:
    """Positions of the last queries of a window, which are compared between lengths.

    They are a quarter of the training length, so that each sees many keys in windows of the training length too.
    """
    return np.arange(length - max(1, setting.length // 4), length)


def statistics(
    setting: Setting, scheme: Scheme, weights: Weights, data: text.Bytes, count: int, length: int
) -> Statistics:
    """Compute the statistics of a trained model on the first `count` bytes, one window of `length` at a time."""
    recorded: list[tuple[Traced, ...]] = []

    def recording_attention(q: Traced, k: Traced, v: Traced, *, bias: Traced, causal: bool) -> Traced:
        out = traced.attention(q, k, v, bias=bias, causal=causal)
        recorded.append((q, k, bias, out))
        return out

    recording_scheme = scheme._replace(attention=recording_attention)
    inputs, targets = text.windows(data, count, length)
    queries = tail(setting, length)
    distance = queries[:, None] - np.arange(length)
    visible = distance >= 0
    nats, total_entropy, square, by_distance = np.zeros((4, length))
    for window in range(len(inputs)):
        recorded.clear()
        rows = slice(window, window + 1)
        nats += losses(setting, recording_scheme, weights, inputs[rows], targets[rows])
        for q, k, bias, out in recorded:
            weights_of_pairs = attention_weights(q, k, bias)
            total_entropy += entropy(weights_of_pairs).mean((0, 1))
            square += (out.astype(np.float64) ** 2).mean((0, 1, 3))
            tail_weights = weights_of_pairs[..., queries, :].mean((0, 1))
            by_distance += np.bincount(distance[visible], tail_weights[visible], minlength=length)
    layers = len(inputs) * setting.layers
    return Statistics(
        nats / len(inputs),
        total_entropy / layers,
        np.sqrt(square / layers),
        by_distance / layers / np.bincount(distance[visible], minlength=length),
        float(by_distance[setting.length :].sum() / (layers * len(queries))),
    )


def unseen_angles(setting: Setting, method: str, length: int) -> float | None:
    """Fraction of the new distances (RoPE) or positions (sinusoids) whose angle training never reached, over the pairs.

    None for the other schemes.
    """
    if method not in ("rope", "sinusoidal"):
        return None
    rope, sinusoids = posenc.rope_frequencies(setting.head_width).inv_freq, posenc.sinusoidal_frequencies(setting.width)
    frequencies = rope if method == "rope" else sinusoids
    return float(analysis.rope_coverage(frequencies, setting.length, test_length=length).unseen.mean())


def statistics_by_length(
    setting: Setting, method: str, weights: Weights, corpus: text.Corpus, count: int
) -> tuple[list[Row], Statistics]:
    """Rows of the table for every length that the scheme has positions for, and the statistics of the longest.

    Perplexities are of the first `count` bytes.
    """
    scheme, rows = SCHEMES[method], []
    near_scheme = scheme._replace(attention=partial(traced.attention, window=(setting.length - 1, 0)))
    for length in setting.lengths:
        try:
            whole, near = (perplexity(setting, s, weights, corpus.test, count, length) for s in (scheme, near_scheme))
        except IndexError:  # the table of positions ends before this length
            break
        found = statistics(setting, scheme, weights, corpus.test, max(1, STATISTICS_BYTES // length) * length, length)
        queries = tail(setting, length)
        far_equal = np.maximum(queries + 1 - setting.length, 0) / (queries + 1)
        rows.append(
            Row(
                method,
                length,
                whole,
                near,
                float(found.entropy[queries].mean()),
                float(np.log(queries + 1).mean()),
                found.far,
                float(far_equal.mean()),
                float(found.size[queries].mean()),
                unseen_angles(setting, method, length),
            )
        )
    return rows, found


def table(setting: Setting, rows: Sequence[Row]) -> None:
    """Print a line for each method and length, below an explanation of the columns."""
    reach, queries = setting.length - 1, len(tail(setting, setting.length))
    print(
        f"""
Attention in windows of `length` bytes, by models trained at {setting.length}. Entropy, far and size are means over
layers, heads and the last {queries} queries of each window; equal weights would have the numbers in brackets.

ppl      perplexity per byte
near     perplexity with the keys hidden that are more than {reach} bytes back, farther than any in training
entropy  entropy of the attention weights, in nats
far      weight of the keys that are more than {reach} bytes back
size     root mean square of the output of attention
unseen   angles that training never produced, as a fraction of the new ones, mean over the pairs

{"method":15}length     ppl    near        entropy              far    size unseen"""
    )
    for row in rows:
        unseen = "-" if row.unseen is None else f"{row.unseen:.0%}"
        print(
            f"{row.method:15}{row.length:6}{row.perplexity:8.2f}{row.near:8.2f}{row.entropy:8.2f} "
            f"({row.entropy_equal:.2f}){row.far:9.1%} ({row.far_equal:5.1%}){row.size:8.3f}{unseen:>7}"
        )


def study(setting: Setting, corpus: text.Corpus, directory: Path, methods: Sequence[str]) -> None:
    """Run the command for the first seed of each method. It writes why.json, the table and the curves."""
    file = directory / "why.json"
    chosen = prepare(setting, corpus, file, methods)
    rows: list[Row] = []
    longest = {}
    for method in methods:
        print(f"{corpus.name}: {method}, {setting.steps} steps on windows of {setting.length} bytes", flush=True)
        weights = trained(setting, corpus, method, 0)
        of_method, longest[method] = statistics_by_length(setting, method, weights, corpus, chosen.targets)
        rows += of_method
    table(setting, rows)
    curves = {
        method: {name: np.asarray(values).tolist() for name, values in found._asdict().items()}
        for method, found in longest.items()
    }
    write(file, setting, corpus, rows=[row._asdict() for row in rows], longest=curves)
    print(f"\nFile: {file}")
