"""Rotary embeddings: rotations of pairs of channels."""

from dataclasses import dataclass, replace

import numpy as np

from ._numbers import PI, ceil, cos, exp, floor, log, places, precise, sin, sqrt, wide

__all__ = [
    "RopeFrequencies", "axial_frequencies", "convert_layout", "floor_log_scale", "grid_positions", "logn_scale",
    "mrope_frequencies", "mrope_positions", "rerope_positions", "rerotate", "rope", "rope_by_table",
    "rope_frequencies", "rope_from_config", "rope_matrix", "rope_nd", "rope_table", "self_extend_positions", "xpos",
]  # fmt: skip


# ---- rotations ----


def _read(frequencies):
    """Radians per position of each pair, and the factor of rotated vectors."""
    return wide(getattr(frequencies, "inv_freq", frequencies)), getattr(frequencies, "attention_factor", 1.0)


def _split(x, layout):
    """The first and the second channel of each pair."""
    half = x.shape[-1] // 2
    return (x[..., :half], x[..., half:]) if layout == "half" else (x[..., 0::2], x[..., 1::2])


def _join(x1, x2, layout):
    """The inverse of `_split`."""
    if layout == "half":
        return np.concatenate([x1, x2], -1)
    return np.stack([x1, x2], -1).reshape(*x1.shape[:-1], 2 * x1.shape[-1])


def _heads(array, axes, after=0):
    """Positions (batch, N) get an axis for the heads of x (batch, H, N, D), which has `axes` axes.

    `after` axes follow those of the positions.
    """
    return np.expand_dims(array, -2 - after) if array.ndim - after == axes - 2 > 1 else array


def _rotate(x, cos, sin, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis):
    """``(x1 cos - x2 sin, x1 sin + x2 cos)`` for each pair of channels. The tables are (..., N, pairs)."""
    x = np.moveaxis(wide(x), seq_axis, -2)
    end = rotary_offset + (rotary_dim or 2 * cos.shape[-1])
    before, rotated, after = np.split(x, [rotary_offset, end], -1)
    x1, x2 = _split(rotated, layout)
    if inverse:
        size = cos**2 + sin**2
        cos, sin = cos / size, -sin / size
    rotated = _join(x1 * cos - x2 * sin, x1 * sin + x2 * cos, out_layout or layout)
    return np.moveaxis(np.concatenate([before, rotated, after], -1), -2, seq_axis)


def rope_table(positions, frequencies, *, start=0):
    """Compute the cosines and sines of a rotary embedding.

    ``a cos(p w_k)``, ``a sin(p w_k)``, where a is the attention factor.
    """
    w, a = _read(frequencies)
    angle = places(positions, start)[..., None] * w
    return a * cos(angle), a * sin(angle)


def rope(
    x,
    positions,
    frequencies,
    *,
    layout=None,
    rotary_dim=None,
    rotary_offset=0,
    inverse=False,
    out_layout=None,
    seq_axis=-2,
    start=0,
):
    """Rotate queries or keys by their positions.

    ``(x1 + i x2) a exp(i p w_k)`` for pair k of the channels.

    Su et al. 2021 (RoFormer), equation 34.

    Examples
    --------
    >>> import numpy as np
    >>> from posenc import reference
    >>> reference.rope([[1.0, 0.0], [1.0, 0.0]], 2, [np.pi / 2], layout="half").round(3)
    array([[1., 0.],
           [0., 1.]])
    """
    cosine, sine = rope_table(_heads(places(positions, start), np.ndim(x)), frequencies)
    layout = layout or frequencies.layout
    return _rotate(x, cosine, sine, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis)


def rope_by_table(
    x, cos, sin, *, layout, rotary_dim=None, rotary_offset=0, inverse=False, out_layout=None, seq_axis=-2
):
    """Rotate queries or keys by the cosines and sines of a table.

    ``(x1 + i x2) (cos + i sin)`` for each pair of the channels. Su et al. 2021 (RoFormer), equation 34.
    """
    cos, sin = (_heads(wide(table), np.ndim(x), 1) for table in (cos, sin))
    return _rotate(x, cos, sin, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis)


def rope_matrix(position, frequencies, *, layout=None, dim=None):
    """Compute the matrix of the rotation at one position.

    ``rope(x)[p] = matrix @ x[p]``; its columns are the rotated unit vectors. Su et al. 2021, equation 15.
    """
    pairs = len(_read(frequencies)[0])
    width = dim or 2 * pairs
    return rope(np.eye(width), np.full(width, position), frequencies, layout=layout, rotary_dim=2 * pairs).T


def rope_nd(
    x,
    positions,
    frequencies,
    *,
    layout=None,
    rotary_dim=None,
    rotary_offset=0,
    inverse=False,
    out_layout=None,
    seq_axis=-2,
):
    """Rotate queries or keys by several coordinates.

    ``angle_k = sum_a positions[a] frequencies[a, k]``. Heo et al. 2024, equation 9.
    """
    (of_axes, a), layout = _read(frequencies), layout or frequencies.layout
    cosine, sine = a, 0
    for p, w in zip(places(positions), of_axes, strict=True):
        angle = _heads(p, np.ndim(x))[..., None] * (w[:, None] if w.ndim == 2 else w)
        c, s = cos(angle), sin(angle)
        cosine, sine = cosine * c - sine * s, sine * c + cosine * s  # more exact than a sum of large angles
    return _rotate(x, cosine, sine, layout, rotary_dim, rotary_offset, inverse, out_layout, seq_axis)


def axial_frequencies(dims, *, base=10000.0):
    """Compute frequencies with which each coordinate rotates channels of its own.

    ``w[a, first + i] = base**(-2 i / dims[a])`` for the ``dims[a] / 2`` pairs of coordinate a, 0 for all others.
    """
    base, first = wide(base) + np.zeros(len(dims)), 0
    table = np.zeros((len(dims), sum(dims) // 2), base.dtype)
    for axis, width in enumerate(dims):
        i = np.arange(width // 2)
        table[axis, first + i] = base[axis] ** (-2 * i / (width + 0 * base[axis]))
        first += width // 2
    return table


def mrope_frequencies(frequencies, sections, *, interleaved=False, overflow=0):
    """Compute frequencies with which each coordinate rotates a section of the pairs.

    ``w[axis[k], k] = frequencies[k]``, 0 for all others: the first section of pairs reads time, the next height, the
    last width.

    Qwen2-VL, section 2.1. Interleaved, as in Qwen3-VL, pair k reads k mod 3 until its section is used up.
    """
    w, k, axes = _read(frequencies)[0], np.arange(sum(sections)), len(sections)
    axis = np.repeat(np.arange(axes), sections)
    if interleaved:
        axis = np.where(k < axes * np.take(sections, k % axes), k % axes, overflow)
    table = np.zeros((axes, len(w)), w.dtype)
    table[axis, k] = w
    return replace(frequencies, inv_freq=table) if hasattr(frequencies, "inv_freq") else table


def xpos(
    x,
    positions,
    frequencies,
    *,
    layout=None,
    rotary_dim=None,
    rotary_offset=0,
    scale_base=512,
    gamma=0.4,
    center=0,
    downscale=False,
    seq_axis=-2,
    start=0,
):
    """Rotate queries or keys, and let their products decay with the distance.

    ``(x1 + i x2) zeta_k**t exp(i p w_k)``, ``zeta_k = (2k/d + gamma) / (1 + gamma)``,
    ``t = (p - center) / scale_base``.

    Sun et al. 2022, algorithm 1; keys have -t, `downscale`.
    """
    p = _heads(places(positions, start), np.ndim(x))
    cosine, sine = rope_table(p, frequencies)
    t = (p[..., None] - center) / scale_base
    i = np.arange(cosine.shape[-1]) + 0 * wide(gamma)
    scale = ((i / cosine.shape[-1] + gamma) / (1 + gamma)) ** (-t if downscale else t)
    layout = layout or frequencies.layout
    return _rotate(x, scale * cosine, scale * sine, layout, rotary_dim, rotary_offset, False, None, seq_axis)


def convert_layout(x, *, source, target, rotary_dim=None, heads=None, axis=None):
    """Reorder channels from one layout of pairs to another.

    The first channel of pair k is ``2 k`` (interleaved) or k (half); the second ``2 k + 1`` or ``k + rotary_dim / 2``.

    With `heads` the first axis of a weight, (heads * D, ...), is reordered, otherwise the last axis.
    """
    x = wide(x)
    if heads is not None:
        by_head = np.moveaxis(x.reshape(heads, len(x) // heads, *x.shape[1:]), 1, -1)
        moved = convert_layout(by_head, source=source, target=target, rotary_dim=rotary_dim)
        return np.moveaxis(moved, -1, 1).reshape(x.shape)
    rotated, rest = np.split(x, [x.shape[-1] if rotary_dim is None else rotary_dim], -1)
    return np.concatenate([_join(*_split(rotated, source), target), rest], -1)


# ---- frequencies ----


@dataclass(frozen=True)
class RopeFrequencies:
    """Frequencies and factors of a rotary embedding, with the fields of `posenc.RopeFrequencies`."""

    inv_freq: np.ndarray
    """Radians per position of each pair, (pairs,)."""
    attention_factor: float = 1.0
    """Factor of rotated queries and keys."""
    softmax_factor: float = 1.0
    """Factor of the scale of the logits."""
    layout: str | None = None
    rotary_dim: int | None = None


def _default(dim, base, **_):
    """``base**(-2k / dim)``. Su et al. 2021, equation 15."""
    return wide(base) ** (-2 * np.arange(dim // 2) / (dim + 0 * wide(base)))


def _linear(dim, base, *, factor, **_):
    """``w / factor``. Chen et al. 2023."""
    return _default(dim, base) / factor


def _ntk(dim, base, *, factor, **_):
    """``base factor**(dim / (dim - 2))`` in place of the base. Peng et al. 2023, definition 1."""
    return _default(dim, base * factor ** (dim / (dim - 2 + 0 * wide(base))))


def _dynamic(dim, base, *, factor, max_position_embeddings, seq_len=None, **_):
    """NTK with the factor ``s l / L - (s - 1)`` of a sequence of length l. As transformers has it."""
    stretch = max(seq_len or 0, max_position_embeddings) / (max_position_embeddings + 0 * wide(base))
    return _ntk(dim, base, factor=factor * stretch - (factor - 1))


def _ntk_by_parts(dim, base, *, factor, original_max_position_embeddings, beta_fast=32.0, beta_slow=1.0, **_):
    """``(1 - g) w / s + g w``, g a ramp in the turns of the pair in training. Peng et al. 2023, definition 2."""
    w = _default(dim, base)
    turns = original_max_position_embeddings * w / (2 * precise(PI, w))
    g = np.clip((turns - beta_slow) / (beta_fast - beta_slow), 0, 1)
    return (1 - g) * w / factor + g * w


def _llama3(dim, base, *, factor, low_freq_factor, high_freq_factor, original_max_position_embeddings, **_):
    """NTK by parts with other names. Llama 3.1."""
    return _ntk_by_parts(
        dim,
        base,
        factor=factor,
        original_max_position_embeddings=original_max_position_embeddings,
        beta_fast=high_freq_factor,
        beta_slow=low_freq_factor,
    )


def _stretch(factor, max_position_embeddings, original_max_position_embeddings, w):
    """The factor, or the ratio of the two lengths, in the precision of w."""
    return precise(max_position_embeddings, w) / original_max_position_embeddings if factor is None else wide(factor)


def _yarn(
    dim,
    base,
    *,
    original_max_position_embeddings,
    factor=None,
    max_position_embeddings=None,
    beta_fast=32,
    beta_slow=1,
    truncate=True,
    mscale=0.0,
    mscale_all_dim=0.0,
    attention_factor=None,
    **_,
):
    """``w (1 - ramp + ramp / s)``, the ramp between the pairs of beta_fast and of beta_slow turns.

    Peng et al. 2023, section 3.4, and their code."""
    w = _default(dim, base)
    s = _stretch(factor, max_position_embeddings, original_max_position_embeddings, w)
    turns = np.array([beta_fast, beta_slow]) + 0 * wide(base)
    low, high = dim * log(original_max_position_embeddings / (2 * precise(PI, w) * turns)) / (2 * log(base))
    if truncate:
        low, high = floor(low), ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / (high - low or 0.001), 0, 1)
    if attention_factor is None:
        both = mscale and mscale_all_dim
        attention_factor = _temperature(s, mscale) / _temperature(s, mscale_all_dim) if both else _temperature(s, 1)
    return w / s * ramp + w * (1 - ramp), attention_factor, _temperature(s, mscale_all_dim) ** 2


def _temperature(s, mscale):
    """``0.1 mscale ln s + 1``. Peng et al. 2023, equation 22."""
    return 0.1 * mscale * log(s) + 1


def _longrope(
    dim,
    base,
    *,
    short_factor,
    long_factor,
    original_max_position_embeddings,
    factor=None,
    max_position_embeddings=None,
    attention_factor=None,
    seq_len=None,
    **_,
):
    """``w_k / factor_k``, with ``sqrt(1 + ln s / ln L)`` of Phi-3. Ding et al. 2024."""
    length, w = original_max_position_embeddings, _default(dim, base)
    if attention_factor is None:
        s = _stretch(factor, max_position_embeddings, length, w)
        attention_factor = sqrt(1 + log(s) / log(precise(length, w)))
    factors = long_factor if seq_len is not None and seq_len > length else short_factor
    return w / wide(factors), attention_factor, 1.0


def _proportional(dim, base, *, partial_rotary_factor=1.0, factor=1.0, **_):
    """Only the highest frequencies are kept, those of the whole head. Barbero et al. 2024, p-RoPE."""
    kept = np.arange(dim // 2) < int(partial_rotary_factor * dim / 2)
    return np.where(kept, _default(dim, base) / factor, 0)


def _ntk_mixed(dim, base, *, factor, b=0.625, **_):
    """``w_m / exp(a m**b)``, m = 1 .. dim / 2, a such that the last is divided by s.

    Su 2023 (kexue.fm/archives/9706)."""
    m = np.arange(1, dim // 2 + 1) + 0 * wide(base)
    a = log(factor) / m[-1] ** b
    return _default(dim, base) / exp(a * m**b)


ROPE_TYPES = {
    "default": _default, "linear": _linear, "ntk": _ntk, "dynamic": _dynamic, "ntk_by_parts": _ntk_by_parts,
    "yarn": _yarn, "longrope": _longrope, "llama3": _llama3, "proportional": _proportional, "ntk_mixed": _ntk_mixed,
}  # fmt: skip


def rope_frequencies(dim, *, base=10000.0, rope_type="default", seq_len=None, **keys):
    """Compute the frequencies of a rotary embedding, scaled to longer contexts.

    ``w_k = base**(-2k / dim)``, changed by one of `ROPE_TYPES`, each with its equation.

    Examples
    --------
    >>> from posenc import reference
    >>> reference.rope_frequencies(8, rope_type="linear", factor=2.0).inv_freq
    array([0.5   , 0.05  , 0.005 , 0.0005])
    """
    given = {key: value for key, value in keys.items() if value is not None}
    found = ROPE_TYPES[rope_type](dim, base, seq_len=seq_len, **given)
    return RopeFrequencies(*found) if isinstance(found, tuple) else RopeFrequencies(found)


def rope_from_config(config, *, seq_len=None, layer_type=None):
    """Compute the frequencies that a config.json describes.

    ``rope_frequencies(head_dim * partial_rotary_factor, base=rope_theta, **rope_scaling)``.

    `config` is a dict in the format of transformers 4 or 5 that names its base. `posenc.rope_from_config` reads more
    formats, and has the defaults of each model.
    """
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    rope = dict(rope.get(layer_type, rope))
    base = rope.pop("rope_theta", config.get("rope_theta"))
    if layer_type == "sliding_attention" and "rope_local_base_freq" in config:  # Gemma 3
        rope, base = {}, config["rope_local_base_freq"]
    rope_type = rope.pop("rope_type", None) or rope.pop("type", "default")
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    part = rope.get("partial_rotary_factor") or config.get("partial_rotary_factor", 1.0)
    dim = head_dim if rope_type == "proportional" else int(head_dim * part)
    lengths = {key: value for key, value in config.items() if key.endswith("max_position_embeddings")}
    lengths = {"original_max_position_embeddings": lengths.get("max_position_embeddings"), **lengths}
    return rope_frequencies(dim, base=base, rope_type=rope_type, seq_len=seq_len, **{**lengths, **rope})


# ---- longer contexts ----


def rerotate(
    k, old_positions, new_positions, frequencies, *, layout=None, rotary_dim=None, rotary_offset=0, seq_axis=-2
):
    """Move keys that are rotated already to new positions.

    ``k exp(i (new - old) w)``: the keys have the attention factor already. Su et al. 2021, equation 15.
    """
    moves = places(new_positions) - places(old_positions)
    return rope(
        k,
        moves,
        _read(frequencies)[0],
        layout=layout or frequencies.layout,
        rotary_dim=rotary_dim,
        rotary_offset=rotary_offset,
        seq_axis=seq_axis,
    )


def logn_scale(positions, train_length, *, base_clip=1.0, start=0):
    """Compute the factors of queries that keep the entropy of attention beyond the trained length.

    ``max(log(p + 1) / log(train_length), base_clip)``. Su 2021 (kexue.fm/archives/8823); Chiang and Cholak 2022.
    """
    return np.maximum(log(places(positions, start) + 1) / log(train_length), base_clip)


round_down = floor
"""The function, where an argument has its name."""


def floor_log_scale(positions, *, floor, scale, offset=0.0, start=0):
    """Compute the factors of queries of Llama 4, which grow with the logarithm of the position.

    ``1 + scale log(1 + floor((p + offset) / floor))``.
    """
    return 1 + scale * log(1 + round_down((places(positions, start) + offset) / floor))


def rerope_positions(positions, *, window, leak=None, start=0):
    """Compute positions of queries and keys for pairs beyond the window of ReRoPE.

    Their distance is ``window``, or ``window + (i - j - window) / leak``. Su 2023 (kexue.fm/archives/9708).
    """
    i = places(positions, start)
    return (0 * i + window, 0 * i) if leak is None else ((i + window * (leak - 1)) / leak, i / leak)


def self_extend_positions(positions, *, group, window, start=0):
    """Compute positions of queries and keys for pairs beyond the window of Self-Extend.

    ``i // g + window - window / g`` and ``j // g``. Jin et al. 2024, section 3.2.
    """
    i = places(positions, start) // group
    return i + window - window / group, i


# ---- positions of images and videos ----


def mrope_positions(parts, *, style, merge=2, tokens_per_second=None, start=0):
    """Compute the positions of text, images and videos, the offset of later tokens, and the next position.

    Text has b, b + 1, ... on all axes, and token (i, j, k) of a grid ``(b + time(i), b + j, b + k)``. Wang et al. 2024
    (Qwen2-VL), section 2.1.
    """
    found, end = [], start
    for part in parts:
        if np.ndim(part) == 0:
            block = np.tile(np.arange(part), (3, 1))
        else:
            t, h, w, *seconds = part
            block = np.indices((int(t), int(h) // merge, int(w) // merge)).reshape(3, -1)
            if t > 1 and style in ("qwen2_5_vl", "qwen2_5_omni", "qwen3_omni"):
                time = block[0].astype(np.float32) * np.float32(seconds[0]) * np.float32(tokens_per_second)
                block = np.stack([time if style == "qwen3_omni" else time.astype(np.int64), *block[1:]])
        found.append(end + block)
        end = np.max(found[-1], initial=end - 1) + 1
    positions = np.concatenate(found, axis=1)
    return positions, end - positions.shape[1], end


def grid_positions(shape, *, fps=None, compression=(1, 1, 1), centre=False, unit=(1.0, 1.0, 1.0), causal=False):
    """Compute the positions of the patches of a video: the begin ``i c`` of each patch, or its centre, over the unit.

    The time of causal VAEs is ``max(i c + 1 - c, 0)``. HaCohen et al. 2024 (LTX-Video).
    """
    edges = [np.arange(n + 1.0) * c for n, c in zip(shape, compression, strict=True)]
    edges[0] = np.maximum(edges[0] + (1 - compression[0] if causal else 0), 0) / (fps or 1.0)
    axes = [(a[:-1] + a[1:]) / 2 if centre else a[:-1] for a in edges]
    return np.stack(np.meshgrid(*(a / u for a, u in zip(axes, unit, strict=True)), indexing="ij")).reshape(3, -1)
