"""Implementations as they are usually written, with a keyword for each error that a test plants.

Nothing here uses posenc. The defaults are right.
"""

import math

import numpy as np


def frequencies(dim, base=10000.0, step=2, over=None, first=0):
    """``base**-(step k / over)``"""
    return base ** -((step * (np.arange(dim // 2) + first)) / (over or dim))


def rotate_half(x, pairs, sign=(-1, 1)):
    if pairs == "half":
        x1, x2 = np.split(x, 2, -1)
        return np.concatenate([sign[0] * x2, sign[1] * x1], -1)
    return np.stack([sign[0] * x[..., 1::2], sign[1] * x[..., 0::2]], -1).reshape(x.shape)


def tables(positions, w, pairs, factor=1.0, sin_factor=None):
    angle = np.asarray(positions, np.float64)[..., None] * w
    cos, sin = factor * np.cos(angle), (factor if sin_factor is None else sin_factor) * np.sin(angle)
    return [np.concatenate([t, t], -1) if pairs == "half" else np.repeat(t, 2, -1) for t in (cos, sin)]


def rope(
    x,
    positions,
    w,
    pairs="half",
    table_pairs=None,
    sign=(-1, 1),
    factor=1.0,
    sin_factor=None,
    offset=0,
    first=0,
    exchanged=False,
):
    """x cos + rotate_half(x) sin on the channels first .. first + 2 len(w)."""
    cos, sin = tables(positions + offset, w, table_pairs or pairs, factor, sin_factor)
    cos, sin = (sin, cos) if exchanged else (cos, sin)
    part = x[..., first : first + 2 * len(w)]
    return np.concatenate(
        [x[..., :first], part * cos + rotate_half(part, pairs, sign) * sin, x[..., first + 2 * len(w) :]], -1
    )


def yarn(dim, base, factor, length, fast=32, slow=1):
    w = frequencies(dim, base)
    low, high = (dim * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in (fast, slow))
    low, high = max(math.floor(low), 0), min(math.ceil(high), dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / (high - low or 0.001), 0, 1)
    return w / factor * ramp + w * (1 - ramp)


def get_slopes(n, extra=slice(0, None, 2)):
    """The authors' function."""

    def of_power(n):
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start ** (i + 1) for i in range(n)]

    if math.log2(n).is_integer():
        return of_power(n)
    closest = 2 ** math.floor(math.log2(n))
    return of_power(closest) + of_power(2 * closest)[extra][: n - closest]


def bucket(
    rel,
    bidirectional=True,
    buckets=32,
    max_distance=128,
    direction=1,
    less=0,
    log_of=None,
    ceil=False,
    limit=True,
    strict=True,
    early=False,
):
    rel, found, all_buckets = direction * np.asarray(rel), 0, buckets
    if bidirectional:
        buckets //= 2
        found = (rel > 0 if strict else rel >= 0) * buckets
        n = abs(rel)
    else:
        n = -np.minimum(rel, 0)
    exact = (all_buckets if early else buckets) // 2 - less
    with np.errstate(divide="ignore", invalid="ignore"):
        large = exact + np.log(n / exact) / math.log(log_of or max_distance / exact) * (buckets - exact)
    large = np.where(n > 0, large, 0)
    large = (np.ceil(large) if ceil else np.floor(large + 1e-6)).astype(int)
    large = np.minimum(large, buckets - 1) if limit else large
    return found + np.where(n < exact, n, large)


def softmax(x, axis=-1):
    x = np.exp(x - np.max(x, axis, keepdims=True, where=np.isfinite(x), initial=-1e9))
    return x / np.maximum(x.sum(axis, keepdims=True), 1e-30)


def attention(
    q,
    k,
    v,
    scale=None,
    mask=None,
    bias=0.0,
    bias_inside=False,
    cap=None,
    cap_divides=True,
    repeat="interleave",
    after=False,
    sink=None,
    cap_last=False,
):
    share = q.shape[-3] // k.shape[-3]
    if repeat == "interleave":
        k, v = (np.repeat(x, share, -3) for x in (k, v))
    else:
        k, v = (np.tile(x, (share, 1, 1)) for x in (k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    logits = q @ k.swapaxes(-1, -2)
    logits = (logits + bias) * scale if bias_inside else logits * scale
    if cap is not None and not cap_last:
        logits = cap * np.tanh(logits / cap if cap_divides else logits)
    logits = logits if bias_inside else logits + bias
    if mask is not None and not after:
        logits = np.where(mask, logits, -np.inf)
    logits = cap * np.tanh(logits / cap) if cap_last else logits
    if sink is not None:
        logits = np.concatenate([logits, np.broadcast_to(sink[:, None, None], (*logits.shape[:-1], 1))], -1)
    weights = softmax(logits)[..., : v.shape[-2]]
    return (weights * mask if after else weights) @ v


def shaw(q, k, v, rel_k, rel_v, sign=1, clip=None, outside=False):
    """Attention with vectors of clip(j - i) added to keys and to values."""
    reach = len(rel_k) // 2
    rel = sign * (np.arange(k.shape[-2]) - np.arange(q.shape[-2])[:, None])
    row = np.clip(rel, -(clip or reach), clip or reach) + reach
    content, added = q @ k.swapaxes(-1, -2), np.einsum("hid,ijd->hij", q, rel_k[row])
    logits = content / 4 + added if outside else (content + added) / 4
    weights = softmax(logits)
    return weights @ v + np.einsum("hij,ijd->hid", weights, rel_v[row])


def causal(n, m, shift=None, diagonal=0, left=None):
    rel = np.arange(m) - np.arange(n)[:, None] - (m - n if shift is None else shift)
    return (rel <= diagonal) & (rel >= -(m + n if left is None else left))


def decoder(
    w,
    offset=lambda start: start,
    key_offset=None,
    cached=lambda old, new: np.concatenate([old, new], -2),
    shift=None,
    again=False,
    late=False,
    left=None,
    raw=False,
    first=True,
    **later,
):
    """A step function of causal attention with a cache. `later` are arguments of attention after the first chunk."""
    stored = {}

    def turn(x, first):
        return rope(x, np.arange(x.shape[-2]) + first, w)

    def step(q, k, v, start):
        q = turn(q, offset(start))
        k = k if again or late or raw else turn(k, (key_offset or offset)(start))
        for name, new in (("k", k), ("v", v)):
            stored[name] = new if name not in stored or (first and start == 0) else cached(stored[name], new)
        keys = stored["k"]
        if again:  # rotates the whole cache in every step
            keys = stored["k"] = turn(keys, 0)
        if late:  # by the table of the new tokens, whose only row broadcasts
            keys = rope(keys, np.arange(q.shape[-2]) + start, w)
        if raw:  # rotates the new keys, but not those in the cache
            past = keys.shape[-2] - k.shape[-2]
            keys = np.concatenate([keys[..., :past, :], turn(k, start)], -2)
        mask = causal(q.shape[-2], keys.shape[-2], shift, left=left)
        return attention(q, keys, stored["v"], **({"mask": mask} | later if start else {"mask": mask}))

    return step


def sinusoid(positions, dim, base=10000.0, layout="interleaved", step=2, by_channel=None, over=None):
    angle = np.asarray(positions)[:, None] * frequencies(dim, base, step, over)
    if by_channel:
        all_angles = np.asarray(positions)[:, None] / base ** (by_channel * np.arange(dim) / dim)
        return np.where(np.arange(dim) % 2 == 0, np.sin(all_angles), np.cos(all_angles))
    if layout == "half":
        return np.concatenate([np.sin(angle), np.cos(angle)], -1)
    return np.stack([np.sin(angle), np.cos(angle)], -1).reshape(len(angle), dim)


def swin_index(height, width, stride=None, sign=1):
    y, x = np.divmod(np.arange(height * width), width)
    dy, dx = (sign * (p[:, None] - p) for p in (y, x))
    return (dy + height - 1) * (stride or 2 * width - 1) + dx + width - 1


def mrope(parts, scale=None, *, largest=max, order=(0, 1, 2), whole_seconds=False, stills=False, extra=0):
    """The positions of text and of grids (t, h, w, seconds) of patches that are merged by twos, and the next one."""
    found, begin = [], 0
    for part in parts:
        if isinstance(part, int):
            found += [(begin + i,) * 3 for i in range(part)]
            begin += part
            continue
        t, h, w, seconds = (*part, 0)[:4]
        step = (int(seconds) if whole_seconds else seconds) * scale if scale and seconds else 1
        time = [int(i * step) for i in range(t)]
        shift = begin * (scale if stills else 1)
        found += [(shift + i, begin + j, begin + k) for i in time for j in range(h // 2) for k in range(w // 2)]
        begin += largest(time[-1] + 1, h // 2, w // 2) + extra
    return np.array(found).T[list(order)], begin


def mrope_model(parts, scale=None, *, cut=True, offset=True, **errors):
    """The positions of the tokens first .. end - 1, as an engine asks for them."""
    prompt, begin = mrope(parts, scale, **errors)
    n = prompt.shape[1]

    def positions(first, end):
        if first >= n:
            return np.tile(np.arange(first, end) + (begin - n if offset else 0), (3, 1))
        return prompt[:, first:end] if cut else prompt

    return positions
