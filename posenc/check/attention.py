"""The checks of the softmax, of attention from end to end, and of decoding with a cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from .. import Bias, PositionBias, reference
from .biases import MATRICES, matrix_of, of_operator, operator_of, places_of
from .frequencies import FREQUENCIES, angles
from .inputs import Precision, ToArray, draw, dtype_of, parts
from .judge import Case, Kind, angle_roundoff, coarser, guarded, hypotheses, judge, on_one_side, when, within
from .judge import Hypothesis as H
from .mask import MASKS, Segments, Window, mask_case, mask_options, visible
from .report import Array, Float64, Report
from .rope import OTHER, ROTATION, layouts, rotate, rotation_error, true_rotation


def attend(c: Case) -> Float64:
    """Attention, or its weights if there are no values, with the errors that the fields of the case name.

    `reference.attention` gets the products in place of queries, and unit vectors in place of keys and values.
    """
    q, k, v, scale, softcap = c["q"], c["k"], c["v"], c["scale"], c["softcap"]
    if c["w"] is not None:
        q = rotate(q, c["q_at"], {**c, **c["of_queries"]}) if "q" in c["rotated"] else q
        k = rotate(k, c["k_at"], {**c, **c["of_keys"]}) if "k" in c["rotated"] else k
        v = rotate(v, c["k_at"], c) if "v" in c["rotated"] else v
    heads, groups = q.shape[-3], k.shape[-3]
    read = np.arange(heads) // (heads // groups) if c["grouping"] == "blocks" else np.arange(heads) % groups
    k = k[..., read, :, :]
    products = (k @ q.swapaxes(-1, -2)) if c["exchanged"] else q @ k.swapaxes(-1, -2)
    seen, hide, added = visible(c), c["hide"], np.zeros(products.shape)
    if c["operator"] is not None:
        content = (q, k, seen, scale) if c["reads_content"] else None
        added += c["bias_times"] * matrix_of({**c, "content": content})
    if c["bias_scaled"] or c["bias_capped"]:
        products, added = products + added / (1 if c["bias_scaled"] else scale), 0 * added
    if hide is not None and np.isfinite(hide):
        products, added = np.where(seen, products, 0), np.where(seen, added, hide)

    def turned(x: Array) -> Array:
        return x.swapaxes(-1, -2) if c["over_queries"] else x

    of_queries = turned(products)
    unit = np.broadcast_to(np.eye(of_queries.shape[-1]), (heads, *2 * of_queries.shape[-1:]))
    weights, lse = reference.attention(
        of_queries, unit, unit, bias=reference.dense(turned(c["unit"] * added)), scale=c["unit"] * scale,
        keep=turned(seen) if hide == -np.inf else None, sink=c["sink"] if c["sink_shifted"] else None,
        softcap=None if softcap in (None, np.inf) else c["unit"] * softcap, return_lse=True,
    )  # fmt: skip
    if not c["sink_shifted"]:
        weights = weights / (1 + np.exp(c["sink"])[:, None, None] * weights.max(-1, keepdims=True))
    weights = turned(weights if c["normalised"] else weights * np.exp(lse)[..., None])
    weights = np.where(seen, weights, 0.0) if hide is None else weights
    out = weights if v is None else weights @ v[..., read, :, :]
    if c["reads_content"] and (to_values := operator_of(c["operator"]).added_to_values):
        out = out + (weights[..., None, :] @ to_values(*places_of(c)))[..., 0, :]
    return np.asarray(out)


def factor_of(power: float) -> Callable[[Case], object]:
    return when(lambda c: c["softmax_factor"] != 1)(lambda c: c["scale"] * c["softmax_factor"] ** power)


rotating, biased, capped, sinking = when("rotation"), when("bias"), when("cap"), when("sink")


SOFTMAX_FIELDS: Case = {
    "w": None, "v": None, "rotated": "qk", "grouping": "blocks", "exchanged": False, "operator": None,
    "bias_times": 1.0, "bias_scaled": False, "reads_content": False, "softcap": None, "bias_capped": False,
    "hide": -np.inf, "unit": 1.0, "over_queries": False, "sink": None, "sink_shifted": True, "normalised": True,
    "softmax_factor": 1.0,
}  # fmt: skip
SOFTMAXES = hypotheses("softmax", {
    "scale squared": {"scale": lambda c: c["scale"] ** 2},
    "softmax factor": {"scale": factor_of(-1)},
    "softmax factor squared": {"scale": factor_of(1)},
    "root of the softmax factor": {"scale": factor_of(-0.5)},
    "cap before the scale": {"softcap": capped(lambda c: c["softcap"] * c["scale"])},
    "cap without division": {"scale": capped(lambda c: c["scale"] * c["softcap"])},
    "cap without product": {"softcap": capped(1.0), "scale": capped(lambda c: c["scale"] / c["softcap"])},
    "cap after the mask": {"hide": capped(lambda c: -c["softcap"])},
    "sink scaled": {"sink": sinking(lambda c: np.multiply(c["sink"], c["scale"]))},
    "sink capped": {"sink": sinking(capped(lambda c: c["softcap"] * np.tanh(np.divide(c["sink"], c["softcap"]))))},
    "sign of the sink": {"sink": sinking(lambda c: np.negative(c["sink"]))},
    "sink of 0": {"sink": sinking(lambda c: np.zeros(np.shape(c["sink"])))},
    "no sink": {"sink": sinking(lambda c: np.full(np.shape(c["sink"]), -np.inf))},
})  # fmt: skip


def edited(change: Callable[[Float64], Float64], *names: str) -> Callable[[Case], object]:
    """An operator that reads queries and keys, with a change of some of its arrays."""

    def field(c: Case) -> object:
        arrays = c["operator"].arrays if c["reads_content"] else None
        found = {name: change(c["arrays"][name]) for name in names if getattr(arrays, name, None) is not None}
        return replace(c["operator"], arrays=arrays._replace(**found)) if arrays and found else None

    return field


def _inner(table: Float64) -> Float64:
    return table[..., np.clip(np.arange(table.shape[-2]), 1, table.shape[-2] - 2), :]


def _other_p2c(c: Case) -> object:
    options = c["operator"].options if c["reads_content"] else {}
    if "p2c" not in options.get("terms", ()):
        return None
    return replace(c["operator"], options={**options, "p2c_index": OTHER[options["p2c_index"]]})


CONTENTS = hypotheses("content", {
    **{f"no {name}": {"operator": edited(lambda x: 0 * x, name)} for name in ("rel_q", "rel_k", "rel_v", "u", "v")},
    "direction of p2c": {"operator": _other_p2c},
    "clipped one earlier": {"operator": edited(_inner, "rel_q", "rel_k", "rel_v", "table", "r")},
})  # fmt: skip
"""Known errors of operators that read queries and keys."""


def other_alignment(c: Case) -> object:
    return c["q_at"] + c["past"] * (1 if c["align"] == "start" else -1) if c["past"] else None


ROTATED = (
    *guarded((h for h in ROTATION if "positions" not in h.fields), rotating),
    *guarded(FREQUENCIES, rotating),
    *hypotheses("rotated attention", {
        "direction": {name: rotating(lambda c, name=name: -c[name]) for name in ("q_at", "k_at")},
        "values rotated": {"rotated": rotating(lambda c: "qkv" if c["v"].shape == c["k"].shape else None)},
        "queries one late": {"q_at": rotating(lambda c: c["q_at"] + 1)},
        "queries one early": {"q_at": rotating(lambda c: c["q_at"] - 1)},
    }),
)  # fmt: skip
ATTENTIONS = (
    *SOFTMAXES,
    *MASKS,
    *hypotheses("attention", {
        "bias divided by the scale": {"bias_times": biased(lambda c: None if c["reads_content"] else 1 / c["scale"])},
        "alignment in the rotation": {"q_at": rotating(other_alignment)},
        "alignment everywhere": {
            "q_at": when("positions")(other_alignment),
            **{name: lambda c, name=name: c["past"] - c[name] for name in ("mask_shift", "q_shift")},
        },
    }),
    *guarded((h for h in MATRICES if "future" not in h.fields and not h.name.startswith("bias by")), biased, " (bias)"),
    *CONTENTS,
    *ROTATED,
)  # fmt: skip
"""Known errors of attention: of the softmax, the mask, the bias and the rotation."""


def longest(x: Float64) -> float:
    return float(np.sqrt((np.nan_to_num(np.atleast_1d(x)) ** 2).sum(-1)).max(initial=0))


def logit_error(c: Case, u: float) -> float:
    """Error of a logit: of the products, of two roundings, and of the rotation."""
    q, k = (longest(c[name]) for name in "qk")
    if c["reads_content"]:  # products of queries, keys and rows of tables
        q += sum(map(longest, c["arrays"].values()))
        k += sum(map(longest, c["arrays"].values()))
    size = q * k * abs(c["scale"]) * max(c["cos_factor"], c["sin_factor"]) ** 2
    turns = 0.0 if c["w"] is None else rotation_error(c, np.append(c["q_at"], c["k_at"]), u)
    slack = 4 * u if u > 2.0**-24 else 8 * u  # numbers of 16 bits are multiplied and added in float32
    return float(size * (slack + c["dim"] * angle_roundoff(u) + turns))


def attention_bound(c: Case, wanted: Float64, u: float) -> float:
    """exp doubles the error of a logit, because it is in the numerator and in the denominator."""
    largest = 1.0 if c["v"] is None else float(abs(c["v"]).max(initial=0))
    return (2 * logit_error(c, u) + 4 * u) * largest


def true_attention(c: Case) -> Float64:
    q, k = c["q"], c["k"]
    if c["w"] is not None:
        q, k = true_rotation(q, c["q_at"], c), true_rotation(k, c["k_at"], c)
    options = {**mask_options(c), "bias": c["operator"], **{name: c[name] for name in ("scale", "softcap", "sink")}}
    if c["v"] is None:
        return np.asarray(reference.attention_weights(q, k, **options))
    return np.asarray(reference.attention(q, k, c["v"], **options))


def one_side(c: Case, numbers: Float64) -> Iterable[H]:
    return on_one_side(h for h in ROTATED if "rotated" not in h.fields) if c["w"] is not None else ()


SOFTMAX = Kind("softmax", true_attention, attend, (*SOFTMAXES, *MASKS), ("head", "query", "key"), attention_bound)
OF_OUTPUT = ("head", "query", "channel")
ATTENTION = Kind("attention", true_attention, attend, ATTENTIONS, OF_OUTPUT, attention_bound, more=one_side)


def attention_case(
    heads: int, kv_heads: int | None, n: int, m: int | None, dim: int, dtype: Precision, causal: bool,
    window: Window | None, align: str, segments: Segments | None, bias: Bias | None,
    frequencies: object, layout: str | None, scale: float | None, softcap: float | None, sink: object,
) -> Case:  # fmt: skip
    """Draw queries, keys and values, and return the fields of attention."""
    keys, groups = (n if m is None else m), (heads if kv_heads is None else kv_heads)
    case: Case = {**SOFTMAX_FIELDS, **mask_case(n, keys, causal, window, align, segments)}
    if bias is not None:
        if not isinstance(bias, Bias) or len(bias.parts) > 1:
            raise TypeError(f"check: bias has type {type(bias).__name__}; expected one bias, and no sum")
        case |= of_operator(bias, n, keys, align, causal)
        case["reads_content"] = case["bias_scaled"] = not isinstance(bias, PositionBias)
        made = operator_of(bias)
        scale = made.default_scale(dim) if scale is None and made.default_scale else scale
    turns: Case = {"cos_factor": 1.0, "sin_factor": 1.0, "factor": 1.0}
    if frequencies is not None or layout is not None:
        turns = angles(frequencies, dim)
        turns |= {**layouts(layout or turns["layout"], turns["rotary_dim"]), "width": dim,
                  "softmax_factor": float(getattr(frequencies, "softmax_factor", 1.0))}  # fmt: skip
    given = (draw(heads, n, dim, dtype=dtype, seed=1), *(draw(groups, keys, dim, dtype=dtype, seed=s) for s in (2, 3)))
    case |= turns
    case |= {
        "given": given, **{name: x.astype(np.float64) for name, x in zip("qkv", given, strict=True)},
        "heads": heads, "groups": groups, "share": heads // groups,
        "dim": dim, "softcap": softcap, "sink": sink, "q_at": np.arange(float(n)) + case["mask_shift"],
        "k_at": np.arange(float(keys)), "scale": dim**-0.5 * case["softmax_factor"] if scale is None else scale,
        "root_of_dim": dim**0.5, "scale_of_dim": dim**-0.5, "scale_of_model": (heads * dim) ** -0.5,
    }  # fmt: skip
    return case


def softmax(
    impl: Callable[..., object], *, heads: int = 3, n: int = 9, m: int | None = None, dim: int = 16,
    scale: float | None = None, softcap: float | None = None, sink: npt.ArrayLike | None = None, causal: bool = False,
    window: Window | None = None, align: str = "end", dtype: Precision = "float32", array: ToArray = np.asarray,
) -> Report:  # fmt: skip
    """Check the scale, the cap, the mask and the softmax of attention.

    Parameters
    ----------
    impl : callable
        ``impl(q, k)`` returns the weights (heads, n, m) of queries (heads, n, dim) and keys (heads, m, dim).
    heads, n, m, dim : int
        Sizes; m is n by default.
    scale : float, optional
        By default ``dim**-0.5``.
    softcap, sink, causal, window, align
        As in `posenc.attention`.
    dtype : {"float32", "float64", "bfloat16", "float16"}
        Precision of the inputs. Bounds of 16-bit numbers are so wide that they hide small errors.
    array : callable
        Converts the inputs, such as ``torch.as_tensor``.

    Returns
    -------
    Report

    Examples
    --------
    >>> import numpy as np, posenc.check
    >>> def mine(q, k):
    ...     weights = np.exp(q @ k.swapaxes(-1, -2) / q.shape[-1])
    ...     return weights / weights.sum(-1, keepdims=True)
    >>> print(posenc.check.softmax(mine).causes[0].sentence)
    The scale is the square of 0.25: it is applied twice, or its root is missing.
    """
    case = attention_case(heads, None, n, m, dim, dtype, causal, window, align, None, None, None, None, scale, softcap,
                          sink)  # fmt: skip
    found = impl(*map(array, case["given"][:2]))
    return judge(SOFTMAX, found, {**case, "v": None}, coarser(dtype, dtype_of(found)))


def attention(
    impl: Callable[..., object], *, causal: bool = False, align: str = "end", window: Window | None = None,
    bias: Bias | None = None, frequencies: object = None, layout: str | None = None, scale: float | None = None,
    softcap: float | None = None, sink: npt.ArrayLike | None = None, segments: Segments | None = None,
    heads: int = 6, kv_heads: int | None = None, n: int = 9, m: int | None = None, dim: int = 16, batch: bool = False,
    dtype: Precision = "float32", array: ToArray = np.asarray,
) -> Report:  # fmt: skip
    """Check attention from queries, keys and values to the output.

    Parameters
    ----------
    impl : callable
        ``impl(q, k, v)`` returns the output (heads, n, dim) of queries (heads, n, dim), keys and values
        (kv_heads, m, dim).
    causal, align, window, bias
        As in `posenc.attention`; `bias` is one operator, not a sum.
    frequencies, layout : optional
        As in `rope`, if `impl` rotates queries and keys. The softmax factor of the frequencies multiplies the scale.
    scale, softcap, sink
        As in `posenc.attention`.
    segments : (array (n,), array (m,)), optional
        The segments of queries and keys.
    heads, kv_heads, n, m, dim : int
        Sizes. An error of alignment shows if m is not n, an error of grouped heads if kv_heads is not `heads`.
    batch : bool
        True adds an axis of length one before the heads.
    dtype : {"float32", "float64", "bfloat16", "float16"}
        Precision of the inputs. Bounds of 16-bit numbers are so wide that they hide small errors.
    array : callable
        Converts the inputs, such as ``torch.as_tensor``.

    Returns
    -------
    Report

    Examples
    --------
    >>> import numpy as np, posenc.check
    >>> def mine(q, k, v):
    ...     logits = q @ k.swapaxes(-1, -2) / 4
    ...     weights = np.exp(np.where(np.tri(*logits.shape[-2:], dtype=bool), logits, -np.inf))
    ...     return weights / weights.sum(-1, keepdims=True) @ v
    >>> posenc.check.attention(mine, causal=True).right
    True
    >>> print(posenc.check.attention(mine, causal=True, n=3, m=9).causes[0].sentence)
    The mask puts query i at position i; expected i + 6.
    """
    case = attention_case(heads, kv_heads, n, m, dim, dtype, causal, window, align, segments, bias, frequencies, layout,
                          scale, softcap, sink)  # fmt: skip
    found = impl(*(array(x[None] if batch else x) for x in case["given"]))
    return judge(ATTENTION, found, case, coarser(dtype, dtype_of(found)))


# ---- decoding with a cache ----


def attend_in_chunks(c: Case) -> Float64:
    """Attention by chunks of queries, each with the keys up to its end."""
    outs, ends = [], np.cumsum(c["chunks"])
    for chunk, end in zip(c["chunks"], ends, strict=True):
        start = end - chunk
        first = {"all": 0, "none": start, "window": max(end - 1 - (c["reach"] or 0), 0) if start else 0}[c["cached"]]
        age = c["chunk_of"][start] - c["chunk_of"][first:end]
        turns = {"once": 1, "in every step": age + 1, "not cached": age == 0}[c["rotations"]]
        k_at = c["k_at"][end - 1 if c["keys_at_last"] and chunk == 1 else first : end] * turns
        outs.append(attend({
            **c, **(c["later"] if start else {}), "q": c["q"][:, start:end],
            "k": c["k"][:, first:end], "v": c["v"][:, first:end], "q_at": c["q_at"][start:end], "k_at": k_at,
            "n": chunk, "m": end - first,
            "q_shift": (start - first) * c["bias_past"] + c["q_shift"], "mask_shift": (start - first) * c["mask_past"],
        }))  # fmt: skip
    return np.concatenate(outs, -2)


CACHES = (
    *hypotheses("cache"),
    *(h for h in ATTENTIONS if "alignment" not in h.name and h.name not in ("queries and keys exchanged", "polarity",
      "transposed mask", "queries one late", "queries one early", "softmax over queries", "transposed (bias)")),
)  # fmt: skip
PLACES = {"q_at", "k_at", "q_shift", "mask_shift", "rotations", "cached", "keys_at_last", "bias_past", "mask_past"}
"""Fields that `attend_in_chunks` reads itself."""


def _in_parts(c: Case, numbers: Float64) -> Iterable[H]:
    """Errors of one side of the rotation, and of the code that computes the chunks after the first."""
    later = (h for h in CACHES if not PLACES & h.fields.keys())
    yield from one_side(c, numbers)
    yield from (H(f"{h.name} after the first chunk", f"After the first chunk: {h.sentence}", h.change,
                  {"later": within(h)}) for h in later)  # fmt: skip


CACHE = Kind("cache", true_attention, attend_in_chunks, CACHES, OF_OUTPUT, attention_bound, more=_in_parts)


def cache(
    impl: Callable[..., object], *, chunks: Sequence[int] = (4, 1, 1, 3), window: Window | None = None,
    bias: Bias | None = None, frequencies: object = None, layout: str | None = None, scale: float | None = None,
    softcap: float | None = None, sink: npt.ArrayLike | None = None, heads: int = 6, kv_heads: int | None = None,
    dim: int = 16, batch: bool = False, dtype: Precision = "float32", array: ToArray = np.asarray,
) -> Report:  # fmt: skip
    """Check causal attention that stores keys and values, chunk by chunk, against attention to the whole sequence.

    Parameters
    ----------
    impl : callable
        ``impl(q, k, v, start)`` returns the output of the queries of a chunk (heads, chunk, dim). It gets the queries,
        keys and values of the chunk alone, before their rotation, and the position of the first; it keeps the keys and
        values of earlier chunks. A chunk with start 0 begins a new sequence.
    chunks : sequence of int
        The lengths of the chunks.
    window, bias, frequencies, layout, scale, softcap, sink, heads, kv_heads, dim, batch, dtype, array
        As in `attention`.

    Returns
    -------
    Report

    Examples
    --------
    >>> import numpy as np, posenc, posenc.check
    >>> w, stored = posenc.rope_frequencies(16), {}
    >>> def mine(q, k, v, start):
    ...     q, k = (posenc.rope(x, x.shape[-2], w, layout="half") for x in (q, k))  # start is not used
    ...     for name, new in (("k", k), ("v", v)):
    ...         stored[name] = new if start == 0 else np.concatenate([stored[name], new], -2)
    ...     return posenc.attention(q, stored["k"], stored["v"], causal=True, align="end")
    >>> print(posenc.check.cache(mine, frequencies=w, layout="half").causes[0].sentence)
    Each chunk is rotated from position 0: the number of cached tokens is forgotten.
    """
    total = sum(chunks)
    case = attention_case(heads, kv_heads, total, total, dim, dtype, True, window, "end", None, bias, frequencies,
                          layout, scale, softcap, sink)  # fmt: skip
    starts = np.cumsum([0, *chunks[:-1]])
    outs = []
    for start, chunk in zip(starts, chunks, strict=True):
        given = (x[:, start : start + chunk] for x in case["given"])
        found = impl(*(array(one[None] if batch else one) for one in given), int(start))
        outs.append(parts(found)[0])
    at, start_of = case["k_at"], np.repeat(starts, chunks)
    case |= {
        "chunks": tuple(chunks), "in_chunk": at - start_of, "one_late": at + (start_of > 0),
        "one_early": at - (start_of > 0), "first_twice": at + chunks[0] * (start_of > 0),
        "chunk_of": np.repeat(np.arange(len(chunks)), chunks), "bias_past": 1, "mask_past": 1, "cached": "all",
        "rotations": "once", "keys_at_last": False, "later": {}, "reach": (window or (None,))[0],
    }  # fmt: skip
    return judge(CACHE, np.concatenate(outs, -2), case, coarser(dtype, dtype_of(found)))
