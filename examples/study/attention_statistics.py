"""Statistics of attention on windows longer than those of training.

A trained model reads the test text with an attention that records its queries and keys. The attention weights are then
computed again in float64. The perplexity is also computed with every key hidden that is farther away than any was in
training. If hiding these keys restores the perplexity, the model fails by distance; otherwise it fails by position.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

import posenc
from arrays import Array, Float64, Traced
from posenc import analysis
from posenc_bridges import autograd as traced

from . import text
from .evaluation import perplexity, protocol
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
    far_equal: float
    """The same fraction for equal weights."""


StatisticsRow = dict[str, str | float | None]
"""A line of the table, by the names of its columns; `attention_report.table` explains them. Means are over the tail,
layers and heads."""


def attention_weights(q: Array, k: Array, bias: Traced) -> Float64:
    """Causal attention weights, (..., H, n, n) in float64: the output of attention whose values are unit vectors."""
    operators = bias if isinstance(bias, tuple) else (bias,)
    n = k.shape[-2]
    weights: Traced = posenc.attention(
        q.astype(np.float64),
        k.astype(np.float64),
        np.broadcast_to(np.eye(n), (*k.shape[:-1], n)),
        bias=[one.bias if isinstance(one, traced.Operator) else one for one in operators],
        causal=True,
    )
    return np.asarray(weights)


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
    far = by_distance[setting.length :].sum() / (layers * len(queries))
    far_equal = np.maximum(queries + 1 - setting.length, 0) / (queries + 1)
    return Statistics(
        nats / len(inputs),
        total_entropy / layers,
        np.sqrt(square / layers),
        by_distance / layers / np.bincount(distance[visible], minlength=length),
        float(far),
        float(far_equal.mean()),
    )


def unseen_angles(setting: Setting, method: str, length: int) -> Float64 | None:
    """Fraction of the new distances (RoPE) or positions (sinusoids), for each pair, whose angle training never reached.

    None for the other schemes.
    """
    if method not in ("rope", "sinusoidal"):
        return None
    rope, sinusoids = posenc.rope_frequencies(setting.head_width).inv_freq, posenc.frequencies(setting.width)
    frequencies = rope if method == "rope" else sinusoids
    return analysis.rope_coverage(frequencies, setting.length, test_length=length).unseen


def statistics_by_length(
    setting: Setting, method: str, weights: Weights, corpus: text.Corpus
) -> tuple[list[StatisticsRow], dict[int, Statistics]]:
    """Rows of the table, and the statistics, for every length that the scheme has positions for."""
    scheme, rows, found = SCHEMES[method], [], {}
    count = protocol(setting, corpus.test, None).targets
    near_scheme = scheme._replace(attention=partial(traced.attention, window=(setting.length - 1, 0)))
    for length in setting.lengths:
        try:
            all_keys = perplexity(setting, scheme, weights, corpus.test, count, length)
        except IndexError:  # the table of positions ends before this length
            break
        recorded_count = max(1, STATISTICS_BYTES // length) * length
        at = found[length] = statistics(setting, scheme, weights, corpus.test, recorded_count, length)
        queries = tail(setting, length)
        unseen = unseen_angles(setting, method, length)
        row: StatisticsRow = {
            "method": method,
            "length": length,
            "perplexity": all_keys,
            "perplexity_near": perplexity(setting, near_scheme, weights, corpus.test, count, length),
            "entropy": float(at.entropy[queries].mean()),
            "entropy_equal": float(np.log(queries + 1).mean()),
            "far": at.far,
            "far_equal": at.far_equal,
            "size": float(at.size[queries].mean()),
            "unseen": None if unseen is None else float(unseen.mean()),
        }
        rows.append(row)
    return rows, found
