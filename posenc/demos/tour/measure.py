"""Measurements of the tour: changes of outputs and scores, and the cost of a layer."""

from __future__ import annotations

import hashlib
import math
import time
import tracemalloc
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

import posenc
from posenc import ContentBias

from ..arrays import Array
from .schemes import HEADS, MODEL, WIDTH, Scheme

ROUNDING = 1e-5
"""Relative changes of float32 results below this are rounding errors."""
TIMED_SECONDS = 0.25
"""Time that is spent on the measurement of each layer."""


def embeddings(words: Sequence[str]) -> Array:
    """Random embeddings (N, MODEL), each seeded by its word."""
    vectors = {}
    for word in set(words):
        seed = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
        vectors[word] = np.random.default_rng(seed).standard_normal(MODEL, np.float32)
    return np.stack([vectors[word] for word in words])


@cache
def projections() -> Array:
    """Random projections to queries, keys and values, (3, MODEL, MODEL)."""
    weights: Array = np.random.default_rng(0).standard_normal((3, MODEL, MODEL), np.float32)
    return weights / np.float32(math.sqrt(MODEL))


def project(x: Array) -> Array:
    """(N, MODEL) -> q, k and v, (3, HEADS, N, WIDTH)."""
    return np.ascontiguousarray(np.matmul(x, projections()).reshape(3, len(x), HEADS, WIDTH).swapaxes(1, 2))


def encode(scheme: Scheme, x: Array, positions: Array) -> Array:
    return x if scheme.encode is None else scheme.encode(x, positions)


def attend(scheme: Scheme, q: Array, k: Array, v: Array, positions: Array) -> Array:
    """Attention with the rotation, the bias and the mask of a scheme."""
    if scheme.rotate is not None:
        q, k = scheme.rotate(q, k, positions)
    bias = () if scheme.bias is None else scheme.bias(len(positions))
    causal = scheme.is_causal
    out: Array = posenc.attention(q, k, v, bias=bias, causal=causal, q_positions=positions, k_positions=positions)
    return out


def output(scheme: Scheme, words: Sequence[str]) -> Array:
    """Output of attention for the words at positions 0 .. N - 1, (HEADS, N, WIDTH)."""
    positions = np.arange(len(words))
    q, k, v = project(encode(scheme, embeddings(words), positions))
    return attend(scheme, q, k, v, positions)


def swapped(words: Sequence[str], a: int, b: int) -> list[str]:
    other = list(words)
    other[a], other[b] = other[b], other[a]
    return other


def change_by_swap(scheme: Scheme, words: Sequence[str], a: int, b: int) -> float:
    """Largest change of the other words' outputs when words a and b are swapped, relative to the largest output."""
    before, after = output(scheme, words), output(scheme, swapped(words, a, b))
    others = np.delete(np.arange(len(words)), [a, b])
    return float(abs(after - before)[:, others].max() / abs(before).max())


def scores(scheme: Scheme, words: Sequence[str], positions: Array) -> Array:
    """The part of the logits that depends on positions.

    Products are computed in float64, so that only the operator rounds to float32.
    """
    x = embeddings(words)
    q, k, _ = project(x)
    if scheme.bias is not None:
        bias = scheme.bias(len(words))
        if isinstance(bias, ContentBias):
            return bias.logits(q, k, q_positions=positions, k_positions=positions)
        return bias.matrix(len(words), q_positions=positions, k_positions=positions)
    if scheme.rotate is not None:
        left, right = scheme.rotate(q, k, positions)
    else:
        is_added = scheme.score.startswith("p")  # then an embedding of 0 gives the encoding itself
        left = right = encode(scheme, 0 * x if is_added else x, positions)
    product: Array = left.astype(np.float64) @ right.astype(np.float64).swapaxes(-1, -2)
    return product


def change_by_shift(scheme: Scheme, words: Sequence[str], shift: int) -> float:
    """Largest change of the scores when all positions increase by `shift`, relative to the largest score."""
    positions = np.arange(len(words))
    before, after = (scores(scheme, words, positions + offset) for offset in (0, shift))
    return float(abs(after - before).max() / abs(before).max())


def least_seconds(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Least time of each call. The calls take turns, so that other load on the machine slows all of them."""
    times: list[list[float]] = [[] for _ in calls]
    while len(times[0]) < 3 or sum(map(sum, times)) < TIMED_SECONDS * len(calls):
        for call, of_call in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            of_call.append(time.perf_counter() - start)
    return [min(of_call) for of_call in times]


def extra_bytes(call: Callable[[], Array]) -> int:
    """Peak of the memory that a call allocates, its result excepted."""
    tracemalloc.start()
    try:
        size = call().nbytes
        return tracemalloc.get_traced_memory()[1] - size
    finally:
        tracemalloc.stop()


def layer(scheme: Scheme, words: Sequence[str]) -> Callable[[], Array]:
    """A layer of attention with the operator. NumPy's projections are computed before, once."""
    x, positions = embeddings(words), np.arange(len(words))
    q, k, v = project(x)

    def call() -> Array:
        encoded = encode(scheme, x, positions)  # kept until the end, as a model keeps it
        out = attend(scheme, q, k, v, positions)
        del encoded
        return out

    return call
