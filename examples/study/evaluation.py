"""Perplexity of a trained model on test text, by the length of the windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from arrays import Array, Float64

from .model import losses
from .rope_extensions import EXTENSIONS
from .schemes import Scheme, Setting, Weights
from .text import Bytes, target_count

ByLength = dict[int, float | None]
"""A number for each length of the windows; None if the scheme has no positions that far, or the number
has no meaning."""
BATCH_BYTES = 4096
"""Bytes that the model reads at a time."""


class Protocol(NamedTuple):
    """Numbers of bytes that an evaluation predicts. They do not depend on the length of the windows."""

    targets: int
    """Bytes that consecutive windows predict."""
    sliding_targets: int
    """Bytes that sliding windows predict; they are the first of `targets`."""


class Row(NamedTuple):
    """Result of one training: perplexities by the length of the windows."""

    method: str
    seed: int
    parameters: int
    """Number of trained numbers."""
    seconds: float
    """Time of the training."""
    perplexity: ByLength
    """With consecutive windows."""
    sliding: ByLength
    """With sliding windows."""
    last: ByLength
    """Of the last bytes of each window: as many bytes as a training window has."""
    last_ratio: ByLength
    """`last` divided by the perplexity of the same bytes in windows of the training length."""
    embeddings: dict[str, float] | None
    """Norms and covariances of words and positions; None except for "learned"."""
    rope_extensions: dict[str, ByLength] | None
    """Perplexity with each method that extends RoPE; None for the other schemes."""


def protocol(setting: Setting, data: Bytes) -> Protocol:
    """Choose the bytes to predict.

    Sliding windows predict a quarter of them, because each reads a whole window to predict a training window.
    """
    least = int(np.lcm.reduce(setting.lengths))
    whole, quarter = (
        target_count(data, max(n, least), setting.lengths) for n in (setting.targets, setting.targets // 4)
    )
    return Protocol(whole, quarter)


def nats_per_byte(
    setting: Setting, scheme: Scheme, weights: Weights, data: Bytes, count: int, length: int, stride: int | None = None
) -> Float64:
    """Losses of the bytes 1 .. count of `data` in nats, (count,), read in windows of `length` bytes.

    Windows are consecutive without a `stride`. With one, they start `stride` bytes apart, and each predicts only the
    bytes that no earlier window predicted. IndexError if the scheme has no positions for so long a window.
    """
    ids = data[: count + 1].astype(np.int64)
    ends = np.append(np.arange(length, count, stride or length), count)
    nats = np.empty(count)
    predicted = 0
    for batch_ends in np.array_split(ends, min(len(ends), max(1, len(ends) * length // BATCH_BYTES))):
        positions = batch_ends[:, None] + np.arange(-length, 0)
        batch_nats = losses(setting, scheme, weights, ids[positions], ids[positions + 1]).reshape(positions.shape)
        for end, window_nats in zip(batch_ends, batch_nats, strict=True):
            nats[predicted:end] = window_nats[length - (end - predicted) :]
            predicted = end
    return nats


def perplexity(setting: Setting, scheme: Scheme, weights: Weights, data: Bytes, count: int, length: int) -> float:
    """``exp(mean nats)`` of the bytes 1 .. count of `data`, read in windows of `length` bytes.

    IndexError if the scheme has no positions for so long a window, as a learned table beyond the training length.
    """
    return _perplexity(nats_per_byte(setting, scheme, weights, data, count, length))


def last_of_windows(nats: Float64, length: int, last: int) -> Float64:
    """Losses of the last bytes of each window of `length`."""
    return nats.reshape(-1, length)[:, -last:].ravel()


def evaluate(
    setting: Setting, scheme: Scheme, weights: Weights, data: Bytes, chosen: Protocol
) -> tuple[ByLength, ByLength, ByLength, ByLength]:
    """Compute every perplexity of a model at every length, in the order of the fields of `Row`."""
    model, trained = (setting, scheme, weights, data), setting.length
    perplexity, sliding, last, last_ratio = (dict.fromkeys(setting.lengths) for _ in range(4))
    trained_nats = nats_per_byte(*model, chosen.targets, trained)
    for length in setting.lengths:
        try:
            nats = trained_nats if length == trained else nats_per_byte(*model, chosen.targets, length)
            sliding[length] = _perplexity(nats_per_byte(*model, chosen.sliding_targets, length, trained))
        except IndexError:  # the table of positions ends before this length
            break
        perplexity[length] = _perplexity(nats)
        if length % trained == 0:
            of_last, trained_last = (last_of_windows(some, length, trained) for some in (nats, trained_nats))
            last[length], last_ratio[length] = _perplexity(of_last), _perplexity(of_last - trained_last)
    return perplexity, sliding, last, last_ratio


def evaluate_rope_extensions(setting: Setting, weights: Weights, data: Bytes, chosen: Protocol) -> dict[str, ByLength]:
    """Perplexity of a model trained with plain RoPE, for each method that extends RoPE to longer windows."""
    count = chosen.sliding_targets
    return {
        name: {length: perplexity(setting, extend(setting), weights, data, count, length) for length in setting.lengths}
        for name, extend in EXTENSIONS.items()
    }


def ratios(column: ByLength, trained: int) -> ByLength:
    """Each perplexity divided by that at the training length."""
    own = column[trained]
    return {length: None if p is None or own is None else p / own for length, p in column.items()}


def rope_extensions(rows: Sequence[Row]) -> dict[str, list[ByLength]]:
    """Perplexity of each method that extends RoPE, by seed; empty if no model with RoPE was trained."""
    of_seeds = [row.rope_extensions for row in rows if row.rope_extensions is not None]
    return {name: [extended[name] for extended in of_seeds] for name in EXTENSIONS} if of_seeds else {}


def embedding_statistics(weights: Weights, data: Bytes) -> dict[str, float]:
    """Compare the tables of words and positions of a trained model; bytes that the text does not contain are left out.

    The vectors are compared as they are added: those of words are multiplied by sqrt(width). A norm is the mean over
    the words or positions.
    """
    words: Array = weights["embedding"][np.unique(data)].astype(np.float64) * weights["embedding"].shape[1] ** 0.5
    positions: Array = weights["scheme.table"].astype(np.float64)
    return {
        "word_norm": float(np.linalg.norm(words, axis=1).mean()),
        "position_norm": float(np.linalg.norm(positions, axis=1).mean()),
        "word_diagonal": diagonal_dominance(words),
        "position_diagonal": diagonal_dominance(positions),
    }


def diagonal_dominance(rows: Array) -> float:
    """Mean size of a diagonal entry of the covariance of the channels, divided by the mean size of the others."""
    covariance = np.abs(np.cov(rows, rowvar=False))
    diagonal = np.eye(len(covariance), dtype=bool)
    return float(covariance[diagonal].mean() / covariance[~diagonal].mean())


def _perplexity(nats: Float64) -> float:
    return float(np.exp(nats.mean()))
