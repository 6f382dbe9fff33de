"""What attention does at lengths that were never trained, from trained weights.

The model is run on the test text with an attention that keeps its queries and keys; their weights are then computed in
float64, matrix and all, which posenc's attention never makes. One more run has every key hidden that is farther away
than any was in training: where that helps, distances were the trouble, where it does not, positions were.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

import posenc
from posenc import analysis
from posenc import autograd as traced

from ..._core_api.arguments import Array, Float64
from ...relative._content import Content
from . import text
from .measures import reading
from .model import losses
from .schemes import SCHEMES, Scheme, Setting, Weights
from .tables import Row
from .training import perplexity

READ = 8192
"""Bytes whose attention is looked at, at every length."""


class Look(NamedTuple):
    """Means over windows, layers and heads, float64; n is the length of the windows."""

    nats: Float64
    """(n,): of the byte that follows each place."""
    entropy: Float64
    """(n,): of the weights of the query at each place, in nats; even ones have log(place + 1)."""
    size: Float64
    """(n,): root of the mean square of what attention returns to each place."""
    by_distance: Float64
    """(n,): weight of a key so far back, over the queries of `last` that have one."""
    far: float
    """What share of their weight the queries of `last` give to keys at distances that training had not."""
    even: float
    """The same, if all weights were even."""


def weights_of(q: Array, k: Array, bias: Any) -> Float64:
    """``softmax(q k' / sqrt(D) + bias)`` over the keys up to the query's own, (..., H, n, n) in float64."""
    q, k = q.astype(np.float64), k.astype(np.float64)
    n, width = q.shape[-2:]
    several = [
        given.bias if isinstance(given, traced.Operator) else given
        for given in (bias if isinstance(bias, tuple) else (bias,))
    ]
    own = [scale for one in several if (scale := one.default_scale(width)) is not None]  # DeBERTa has another
    scale = own[0] if own else width**-0.5
    logits = scale * (q @ k.swapaxes(-1, -2))
    for one in several:
        logits += scale * one.logits(q, k) if isinstance(one, Content) else one.matrix(n, dtype=np.float64)
    logits[..., ~np.tri(n, dtype=bool)] = -np.inf
    weights: Float64 = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return weights


def entropy(weights: Float64) -> Float64:
    """``-sum w log w`` over the last axis, in nats."""
    logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    summed: Float64 = np.einsum("...m,...m->...", weights, -logs)
    return summed


def last(setting: Setting, length: int) -> Array:
    """Places of the queries that are compared between lengths: few enough that in training, too, they see many keys."""
    return np.arange(length - max(1, setting.length // 4), length)


def look(setting: Setting, scheme: Scheme, weights: Weights, data: text.Bytes, count: int, length: int) -> Look:
    """Attention of a trained model on the first `count` bytes, in windows of one length, one window at a time."""
    kept: list[tuple[Any, ...]] = []

    def keeping(q: Any, k: Any, v: Any, *, bias: Any, causal: bool) -> Any:
        out = traced.attention(q, k, v, bias=bias, causal=causal)
        kept.append((q, k, bias, out))
        return out

    watched = scheme._replace(attention=keeping)
    inputs, targets = text.windows(data, count, length)
    tail = last(setting, length)
    distance = tail[:, None] - np.arange(length)
    visible = distance >= 0
    nats, spread, square, near_to_far = np.zeros((4, length))
    for row in range(len(inputs)):
        kept.clear()
        nats += losses(setting, watched, weights, inputs[row : row + 1], targets[row : row + 1])
        for q, k, bias, out in kept:
            found = weights_of(q, k, bias)
            spread += entropy(found).mean((0, 1))
            square += (out.astype(np.float64) ** 2).mean((0, 1, 3))
            of_tail = found[..., tail, :].mean((0, 1))
            near_to_far += np.bincount(distance[visible], of_tail[visible], minlength=length)
    several = len(inputs) * setting.layers
    far = near_to_far[setting.length :].sum() / (several * len(tail))
    even = np.maximum(tail + 1 - setting.length, 0) / (tail + 1)
    return Look(
        nats / len(inputs),
        spread / several,
        np.sqrt(square / several),
        near_to_far / several / np.bincount(distance[visible], minlength=length),
        float(far),
        float(even.mean()),
    )


def frequencies(setting: Setting, method: str) -> Float64 | None:
    """Of the angles that a scheme is made of: RoPE's of distances, the sinusoids' of positions."""
    if method == "rope":
        return posenc.rope_frequencies(setting.width // setting.heads).inv_freq
    return posenc.frequencies(setting.width) if method == "sinusoidal" else None


def unseen(setting: Setting, method: str, length: int) -> Float64 | None:
    """For each pair, the share of the new distances or positions whose angle lies where training never was."""
    w = frequencies(setting, method)
    return None if w is None else analysis.rope_coverage(w, setting.length, test_length=length).unseen


def rows_of(setting: Setting, method: str, weights: Weights, corpus: text.Corpus) -> tuple[list[Row], dict[int, Look]]:
    """A row of the table for every length that the scheme reaches, and what was seen there."""
    scheme, rows, looks = SCHEMES[method], [], {}
    count = reading(setting, corpus.test, None).targets
    hidden = scheme._replace(attention=partial(traced.attention, window=(setting.length - 1, 0)))
    for length in setting.lengths:
        whole = perplexity(setting, scheme, weights, corpus.test, count, length)
        if whole is None:
            break
        several = max(1, READ // length) * length
        seen = looks[length] = look(setting, scheme, weights, corpus.test, several, length)
        tail = last(setting, length)
        new = unseen(setting, method, length)
        rows.append(
            {
                "method": method,
                "length": length,
                "perplexity": whole,
                "perplexity_near": perplexity(setting, hidden, weights, corpus.test, count, length),
                "entropy": float(seen.entropy[tail].mean()),
                "entropy_even": float(np.log(tail + 1).mean()),
                "far": seen.far,
                "far_even": seen.even,
                "size": float(seen.size[tail].mean()),
                "unseen": None if new is None else float(new.mean()),
            }
        )
    return rows, looks
