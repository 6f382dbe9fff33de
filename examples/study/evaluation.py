"""Perplexity of a trained model on test text, by the length of the windows."""

from __future__ import annotations

from typing import NamedTuple, TypedDict

import numpy as np

from arrays import Float64

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
    """The bytes that an evaluation predicts. Their number does not depend on the length of the windows."""

    targets: int
    """Bytes that consecutive windows predict."""
    sliding_targets: int
    """Bytes that sliding windows predict; they are the first of `targets`."""
    stride: int
    """Bytes from the start of one sliding window to the next."""


class Evaluation(TypedDict):
    """Perplexity of a model by the length of the windows."""

    perplexity: ByLength
    """With consecutive windows."""
    last: ByLength
    """Of the last bytes of each window: as many bytes as a training window has."""
    last_ratio: ByLength
    """`last` divided by the perplexity of the same bytes in windows of the training length."""
    sliding: ByLength
    """With sliding windows."""


def protocol(setting: Setting, data: Bytes, stride: int | None) -> Protocol:
    """Choose the bytes to predict.

    Sliding windows predict a quarter of them, because each reads a whole window to predict `stride` bytes.
    """
    least = int(np.lcm.reduce(setting.lengths))
    count = target_count(data, max(setting.targets, least), setting.lengths)
    sliding = target_count(data, max(setting.targets // 4, least), setting.lengths)
    return Protocol(count, sliding, stride or setting.length)


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


def evaluate(setting: Setting, scheme: Scheme, weights: Weights, data: Bytes, chosen: Protocol) -> Evaluation:
    """Compute every perplexity of a model at every length."""
    trained = setting.length
    none: ByLength = dict.fromkeys(setting.lengths)
    found: Evaluation = {"perplexity": {**none}, "last": {**none}, "last_ratio": {**none}, "sliding": {**none}}
    model = setting, scheme, weights, data
    trained_nats = nats_per_byte(*model, chosen.targets, trained)
    for length in setting.lengths:
        try:
            nats = trained_nats if length == trained else nats_per_byte(*model, chosen.targets, length)
            sliding_nats = nats_per_byte(*model, chosen.sliding_targets, length, chosen.stride)
        except IndexError:  # the table of positions ends before this length
            break
        found["perplexity"][length] = _perplexity(nats)
        found["sliding"][length] = _perplexity(sliding_nats)
        if length % trained == 0:
            last, trained_last = (last_of_windows(some, length, trained) for some in (nats, trained_nats))
            found["last"][length] = _perplexity(last)
            found["last_ratio"][length] = _perplexity(last - trained_last)
    return found


def evaluate_rope_extensions(setting: Setting, weights: Weights, data: Bytes, chosen: Protocol) -> dict[str, ByLength]:
    """Perplexity of a model trained with plain RoPE, for each method that extends RoPE to longer windows."""
    count = chosen.sliding_targets
    return {
        name: {length: perplexity(setting, extend(setting), weights, data, count, length) for length in setting.lengths}
        for name, extend in EXTENSIONS.items()
    }


def _perplexity(nats: Float64) -> float:
    return float(np.exp(nats.mean()))
