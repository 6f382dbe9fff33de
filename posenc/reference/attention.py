"""Attention from whole matrices: the logits of all pairs, the mask, the softmax, the values."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from . import bias as biases
from . import relative
from ._numbers import exp, log, precise, tanh, wide
from .bias import Bias, PositionBias, Sum, pairs, positions, rel
from .dropout import dropout_factors

__all__ = ["Quantized", "attention", "attention_weights", "merge_attention", "quantize"]


@np.errstate(divide="ignore")  # a query that sees no key: lse = log 0 = -inf
def attention(
    q,
    k,
    v,
    *,
    bias=(),
    keep=None,
    causal=False,
    align=None,
    window=None,
    q_positions=None,
    k_positions=None,
    q_segments=None,
    k_segments=None,
    scale=None,
    softcap=None,
    sink=None,
    dropout=0.0,
    seed=None,
    invariant=False,
    precision="high",
    return_lse=False,
):
    """Compute attention.

    ``softmax(softcap(scale (q.k + content operators)) + position operators, over visible keys) . v``

    Vaswani et al. 2017, equation 1. q (..., H, N, D), k (..., G, M, D), v (..., G, M, Dv); without heads all have two
    axes. `sink` is one more logit of each head, whose value is 0. lse is the logarithm of the softmax's denominator.
    Masked keys and values must be finite here, because 0 times NaN is NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from posenc import reference
    >>> q = k = v = np.eye(2)
    >>> reference.attention(q, k, v, bias=reference.alibi([0.5]), causal=True).round(3)
    array([[1.  , 0.  ],
           [0.23, 0.77]])
    """
    # Heads
    q, k, v = (dequantize(x) for x in (q, k, v))
    one_head = q.ndim == 2
    if one_head:
        q, k, v = q[None], k[None], v[None]
    share = q.shape[-3] // max(k.shape[-3], 1)
    k, v = np.repeat(k, share, -3), np.repeat(v, share, -3)  # query head h reads kv head h // share

    # The pairs that see each other
    i, j = positions(q.shape[-2], k.shape[-2], q_positions, k_positions, align)
    seen = visible(i, j, keep=keep, causal=causal, window=window, q_segments=q_segments, k_segments=k_segments)
    operators = parts_of(bias)
    added = sum(b.equation(*b.reads(i, j)) for b in operators if isinstance(b, PositionBias))
    seen = seen & (added != -np.inf)

    # Logits: scale, cap, biases
    width = precise(q.shape[-1] or 1, q)
    if scale is None:
        scale = next((b.default_scale(width) for b in operators if b.default_scale), width**-0.5)
    elif np.ndim(scale) == 1:
        scale = wide(scale)[:, None, None]  # one for each head
    logits = q @ k.swapaxes(-1, -2)
    for b in operators:
        if not isinstance(b, PositionBias):
            logits = logits + b.equation(q, k, *b.reads(i, j), seen, scale)
    logits = scale * logits
    if softcap is not None:
        logits = softcap * tanh(logits / softcap)
    logits = np.where(seen, logits + added, -np.inf)

    # Softmax, and the weighted sum of the values
    sink = -np.inf if sink is None else wide(sink)[..., None, None]
    top = np.maximum(logits.max(-1, keepdims=True, initial=-np.inf), sink)
    top = np.where(abs(top) == np.inf, 0, top)  # exp(logits - top) does not overflow
    weights = exp(logits - top)
    total = weights.sum(-1, keepdims=True) + exp(sink - top)
    weights = weights / np.where(total == 0, 1, total)
    if dropout:
        batch = np.broadcast_shapes(weights.shape[:-2], v.shape[:-2])
        weights = weights * dropout_factors((*batch, *weights.shape[-2:]), dropout, seed)
    out = weights @ v
    for b in operators:
        if b.added_to_values:
            out = out + (weights[..., None, :] @ b.added_to_values(*b.reads(i, j)))[..., 0, :]
    lse = np.broadcast_to((top + log(total))[..., 0], out.shape[:-1])
    out, lse = (out[0], lse[0]) if one_head else (out, lse)
    return (out, lse) if return_lse else out


def visible(i, j, *, keep=None, causal=False, window=None, q_segments=None, k_segments=None):
    """Mask of the pairs that see each other, (..., H, N, M), for positions i of queries and j of keys."""
    distance, (left, right) = rel(i, j), window or (None, None)
    seen = np.ones(distance.shape, bool)
    if keep is not None:
        seen = seen & keep
    if causal:
        seen = seen & (distance <= 0)
    if left is not None:
        seen = seen & (distance >= -left)
    if right is not None:
        seen = seen & (distance <= right)
    if q_segments is not None:
        query, key = pairs(np.asarray(q_segments), np.asarray(k_segments))
        seen = seen & (query == key)
    return seen


def attention_weights(
    q,
    k,
    *,
    bias=(),
    keep=None,
    causal=False,
    align=None,
    window=None,
    q_positions=None,
    k_positions=None,
    q_segments=None,
    k_segments=None,
    scale=None,
    softcap=None,
    sink=None,
    dropout=0.0,
    seed=None,
    invariant=False,
    precision="high",
):
    """Return the weights of attention, the softmax itself.

    ``softmax(softcap(scale (q.k + content operators)) + position operators, over visible keys)``: attention to values
    that are unit vectors. Operators add nothing to these values.
    """
    k = dequantize(k)
    unit_vectors = np.broadcast_to(np.eye(k.shape[-2]), (*k.shape[:-1], k.shape[-2]))
    return attention(
        q,
        k,
        unit_vectors,
        bias=[replace(b, added_to_values=None) for b in parts_of(bias)],
        keep=keep,
        causal=causal,
        align=align,
        window=window,
        q_positions=q_positions,
        k_positions=k_positions,
        q_segments=q_segments,
        k_segments=k_segments,
        scale=scale,
        softcap=softcap,
        sink=sink,
        dropout=dropout,
        seed=seed,
    )


@np.errstate(divide="ignore")  # parts without a visible key: lse = log 0 = -inf
def merge_attention(outs, lses):
    """Merge attention over disjoint parts of the keys.

    ``out = sum_p exp(lse_p - lse) out_p``, ``lse = log(sum_p exp(lse_p))``

    Milakov and Gimelshein 2018 (Online normalizer calculation for softmax), section 3.1.
    """
    outs, lses = (np.stack([wide(part) for part in parts]) for parts in (outs, lses))
    top = lses.max(0, initial=-np.inf)
    top = np.where(abs(top) == np.inf, 0, top)
    total = exp(lses - top).sum(0)
    share = exp(lses - top) / np.where(total == 0, 1, total)
    return (share[..., None] * outs).sum(0), top + log(total)


# ---- operators ----


def parts_of(bias):
    """The operators of the argument ``bias``: None, one, or several, where a sum counts as its parts."""
    several = () if bias is None else (bias,) if hasattr(bias, "parts") else bias
    return [part for one in several for part in operator(one).parts]


def operator(bias):
    """Return the operator of this package for one of posenc: by its name, arrays and options."""
    if isinstance(bias, Bias):
        return bias
    if len(bias.parts) > 1:
        return Sum(tuple(map(operator, bias.parts)))
    made = {**vars(biases), **vars(relative)}[bias.name](**bias.arrays._asdict(), **bias.options)
    q, k = bias.own_positions
    return made if q is None and k is None else made.at(q_positions=q, k_positions=k)


# ---- keys and values as codes ----


@dataclass(frozen=True, eq=False)
class Quantized:
    """Numbers as int8 codes with a scale for each row along an axis."""

    codes: npt.NDArray[np.int8]
    scale: npt.NDArray[np.float32]
    axis: int = -1

    def dequantize(self):
        """``codes * scale``."""
        return wide(self.codes) * np.expand_dims(wide(self.scale), self.axis)


def quantize(x, *, axis=-1):
    """Round numbers to int8 codes with one scale for each row along an axis.

    ``scale = max |x| / 127`` in float32, ``codes = round(x / scale)``, ties to even

    llama.cpp's Q8_0 has a scale for every 32 numbers instead of one for each row.
    """
    x = wide(x)
    scale = (abs(x).max(axis, keepdims=True, initial=0) / 127).astype(np.float32)
    codes = np.clip(np.rint(x / np.where(scale == 0, 1, scale)), -127, 127)
    return Quantized(codes.astype(np.int8), scale.squeeze(axis), axis)


def dequantize(x):
    """Return an array of floating point, also of a `Quantized`."""
    return Quantized(x.codes, x.scale, x.axis).dequantize() if hasattr(x, "codes") else wide(x)
