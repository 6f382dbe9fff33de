"""What is measured: how far outputs and scores move, what a layer costs."""

from __future__ import annotations

import hashlib
import math
import time
import tracemalloc
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

import posenc

from ..._core_api.arguments import Array
from ...relative._content import Content
from .schemes import HEADS, MODEL, WIDTH, Scheme

ROUNDING = 1e-5
"""Relative differences of float32 results below this are rounding."""
TIMED = 0.25
"""Seconds for each layer whose time is taken."""


def embeddings(words: Sequence[str]) -> Array:
    """(N, MODEL): random numbers that depend on the word alone."""
    vectors = {}
    for word in set(words):
        seed = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
        vectors[word] = np.random.default_rng(seed).standard_normal(MODEL, np.float32)
    return np.stack([vectors[word] for word in words])


@cache
def weights() -> Array:
    """Projections to queries, keys and values."""
    numbers: Array = np.random.default_rng(0).standard_normal((3, MODEL, MODEL), np.float32)
    return numbers / np.float32(math.sqrt(MODEL))


def project(x: Array) -> Array:
    """(N, MODEL) -> q, k, v, each (HEADS, N, WIDTH)."""
    return np.ascontiguousarray(np.matmul(x, weights()).reshape(3, len(x), HEADS, WIDTH).swapaxes(1, 2))


def encode(scheme: Scheme, x: Array, positions: Array) -> Array:
    return x if scheme.encode is None else scheme.encode(x, positions)


def attend(scheme: Scheme, q: Array, k: Array, v: Array, positions: Array) -> Array:
    if scheme.turn is not None:
        q, k = scheme.turn(q, k, positions)
    bias = () if scheme.bias is None else scheme.bias(len(positions))
    out: Any = posenc.attention(q, k, v, bias=bias, q_positions=positions, k_positions=positions)
    return np.asarray(out)


def output(scheme: Scheme, words: Sequence[str]) -> Array:
    positions = np.arange(len(words))
    q, k, v = project(encode(scheme, embeddings(words), positions))
    return attend(scheme, q, k, v, positions)


def swapped(words: Sequence[str], a: int, b: int) -> list[str]:
    other = list(words)
    other[a], other[b] = other[b], other[a]
    return other


def change_by_swap(scheme: Scheme, words: Sequence[str], a: int, b: int) -> float:
    """How far the outputs of the other words move when two change places, as a part of the largest output."""
    before, after = output(scheme, words), output(scheme, swapped(words, a, b))
    others = np.delete(np.arange(len(words)), [a, b])
    return float(abs(after - before)[:, others].max() / abs(before).max())


def scores(scheme: Scheme, words: Sequence[str], positions: Array, usual: bool = False) -> Array:
    """The part of the logits that positions decide; products in float64, so that only the operator rounds."""
    x = embeddings(words)
    q, k, _ = project(x)
    if scheme.bias is not None:
        bias = scheme.bias(len(words))
        if isinstance(bias, Content):
            return bias.logits(q, k, q_positions=positions, k_positions=positions)
        return bias.matrix(len(words), q_positions=positions, k_positions=positions)
    if scheme.turn is not None:
        turn: Any = scheme.usual if usual else scheme.turn
        left, right = turn(q, k, positions)
    else:
        encode: Any = scheme.usual if usual else scheme.encode
        left = right = encode(x if scheme.score.startswith("x") else 0 * x, positions)  # p alone, where it is added
    product: Array = left.astype(np.float64) @ right.astype(np.float64).swapaxes(-1, -2)
    return product


def change_by_shift(scheme: Scheme, words: Sequence[str], shift: int, usual: bool = False) -> float:
    """How far the scores move when the whole text begins `shift` later, as a part of the largest score."""
    positions = np.arange(len(words))
    here, there = (scores(scheme, words, positions + by, usual) for by in (0, shift))
    return float(abs(there - here).max() / abs(here).max())


def fastest(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Seconds that each takes at best. They take turns, so that what else the machine does meets all of them."""
    times: list[list[float]] = [[] for _ in calls]
    while len(times[0]) < 3 or sum(map(sum, times)) < TIMED * len(calls):
        for call, taken in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            taken.append(time.perf_counter() - start)
    return [min(taken) for taken in times]


def extra_bytes(call: Callable[[], Array]) -> int:
    """The most that arrays of a call take at one time, besides its result."""
    tracemalloc.start()
    try:
        size = call().nbytes
        return tracemalloc.get_traced_memory()[1] - size
    finally:
        tracemalloc.stop()


def layer(scheme: Scheme, words: Sequence[str]) -> Callable[[], Array]:
    """A layer of attention with the operator; the projections, which are NumPy's, are done before."""
    x, positions = embeddings(words), np.arange(len(words))
    q, k, v = project(x)

    def call() -> Array:
        encoded = encode(scheme, x, positions)  # kept until the end, as a model would
        out = attend(scheme, q, k, v, positions)
        del encoded
        return out

    return call


def dense_layer(scheme: Scheme, words: Sequence[str]) -> Callable[[], Array]:
    """The same with the bias as an array that has a number for each head, query and key."""
    n = len(words)
    q, k, v = project(embeddings(words))

    def call() -> Array:
        bias: Any = scheme.bias
        array = bias(n).matrix(n, out=np.empty((HEADS, n, n), np.float32))
        return attend(Scheme("", "", bias=lambda _: posenc.dense(array)), q, k, v, np.arange(n))

    return call
