"""The checks of the softmax, and of attention from end to end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import Bias, PositionBias, reference
from .biases import MATRICES, matrix_of, of_operator, operator_of, places_of
from .frequencies import FREQUENCIES, angles
from .inputs import Precision, ToArray, draw, dtype_of
from .judge import Case, Kind, angle_roundoff, coarser, judge, on_one_side
from .judge import Hypothesis as H
from .mask import MASKS, Segments, Window, mask_case, visible
from .report import Float64, Report
from .rope import OTHER, ROTATION, layouts, rotate, rotation_error


def attend(c: Case) -> Float64:
    """Attention, or its weights if there are no values, with the errors that the fields of the case name."""
    q, k, v = c["q"], c["k"], c["v"]
    if c["w"] is not None:
        q = rotate(q, c["q_at"], {**c, **c["of_queries"]}) if "q" in c["rotated"] else q
        k = rotate(k, c["k_at"], {**c, **c["of_keys"]}) if "k" in c["rotated"] else k
        v = rotate(v, c["k_at"], c) if "v" in c["rotated"] and v is not None else v
    heads, groups = q.shape[-3], k.shape[-3]
    read = np.arange(heads) // (heads // groups) if c["grouping"] == "blocks" else np.arange(heads) % groups
    k, v = k[..., read, :, :], None if v is None else v[..., read, :, :]
    logits = q @ k.swapaxes(-1, -2)
    logits = logits.swapaxes(-1, -2) if c["exchanged"] else logits
    seen, added = visible(c), 0.0
    if c["operator"] is not None:
        content = (q, k, seen, c["scale"]) if c["reads_content"] else None
        added = c["bias_times"] * matrix_of({**c, "content": content})
    logits = c["scale"] * (logits + added) if c["bias_scaled"] else c["scale"] * logits
    late = 0.0 if c["bias_scaled"] else added
    cap, early = c["softcap"], c["cap"] == "after the bias"
    logits = logits + late if early else logits
    if cap is not None:
        others = {
            "none": logits, "no division": cap * np.tanh(logits), "no product": np.tanh(logits / cap),
            "before the scale": cap * c["scale"] * np.tanh(logits / c["scale"] / cap),
        }  # fmt: skip
        logits = others.get(c["cap"], cap * np.tanh(logits / cap))
    logits = logits if early else logits + late
    logits = logits if c["hide"] is None else np.where(seen, logits, c["hide"])
    logits = logits * (np.log(2) if c["two"] else 1.0)
    sink = -np.inf if c["sink"] is None else np.asarray(c["sink"], np.float64)[:, None, None]
    sink = sink if c["sink_shifted"] else sink + np.max(logits, c["over"], keepdims=True)
    top = np.maximum(np.max(logits, c["over"], keepdims=True), sink)
    weights = np.exp(logits - np.where(np.isfinite(top), top, 0))
    total = weights.sum(c["over"], keepdims=True) + np.exp(sink - np.where(np.isfinite(top), top, 0))
    weights = weights / np.where(total > 0, total, 1) if c["normalised"] else np.exp(logits)
    weights = np.where(seen, weights, 0.0) if c["hide"] is None else weights
    out = weights if v is None else weights @ v
    if c["reads_content"] and (to_values := operator_of(c["operator"]).added_to_values):
        out = out + (weights[..., None, :] @ to_values(*places_of(c)))[..., 0, :]
    return np.asarray(out)


def factor_of(power: float) -> Callable[[Case], object]:
    return lambda c: c["scale"] * c["softmax_factor"] ** power if c["softmax_factor"] != 1 else None


def when(field: str) -> Callable[[Any], Callable[[Case], object]]:
    """Values of fields that occur only if a field of the case is set."""

    def guard(value: object) -> Callable[[Case], object]:
        return lambda c: None if c[field] is None else value(c) if callable(value) else value

    return guard


rotating, biased, capped, sinking = map(when, ("w", "operator", "softcap", "sink"))


SOFTMAX_FIELDS: Case = {
    "w": None, "v": None, "rotated": "qk", "grouping": "blocks", "exchanged": False, "operator": None,
    "bias_times": 1.0, "bias_scaled": False, "reads_content": False, "softcap": None, "cap": "right", "hide": -np.inf,
    "two": False, "over": -1, "sink": None, "sink_shifted": True, "normalised": True, "softmax_factor": 1.0,
}  # fmt: skip
SOFTMAXES = (
    H("no scale", "The logits are not scaled; expected {scale}.", "Multiply q.k by {scale}.", {"scale": 1.0}),
    H("scale squared", "The scale is the square of {scale}: it is applied twice, or its root is missing.",
      "Scale once, by {scale}.", {"scale": lambda c: c["scale"] ** 2}),
    H("scale inverted", "The logits are multiplied by sqrt({dim}); expected {scale}.", "Divide by sqrt({dim}).",
      {"scale": lambda c: c["dim"] ** 0.5}),
    H("scale of the model", "The scale is 1 / sqrt({heads} * {dim}), of the width of all heads; expected {scale}.",
      "Divide by the square root of the width of one head.", {"scale": lambda c: (c["heads"] * c["dim"]) ** -0.5}),
    H("scale instead of none", "The scale is 1 / sqrt({dim}); expected {scale}.", "Multiply q.k by {scale}.",
      {"scale": lambda c: c["dim"] ** -0.5}),
    H("softmax factor", "The scale lacks the factor {softmax_factor} of mscale_all_dim.",
      "Multiply the scale by softmax_factor.", {"scale": factor_of(-1)}),
    H("softmax factor squared", "The scale has the factor {softmax_factor} twice.", "Multiply the scale by it once.",
      {"scale": factor_of(1)}),
    H("root of the softmax factor", "The scale has the factor mscale; expected mscale squared, {softmax_factor}.",
      "Square mscale in the scale.", {"scale": factor_of(-0.5)}),
    H("softmax over queries", "The weights of a key add up to 1; expected the weights of a query.",
      "Apply the softmax to the last axis.", {"over": -2}),
    H("not normalised", "The weights are exp(logits), without the division.", "Divide by the sum.",
      {"normalised": False}),
    H("powers of two", "The weights are powers of two: exp2 without log2(e).", "Multiply the logits by log2(e).",
      {"two": True}),
    H("mask after the softmax", "The mask multiplies the weights after the softmax.",
      "Set hidden logits to -inf before the softmax.", {"hide": None}),
    H("hidden logits are 0", "Hidden logits are 0.", "Set hidden logits to -inf.", {"hide": 0.0}),
    H("no cap", "The softcap is not applied.", "Apply c tanh(s / c).", {"cap": capped("none")}),
    H("cap before the scale", "The cap is applied before the scale {scale}.", "Cap the scaled logits.",
      {"cap": capped("before the scale")}),
    H("cap without division", "The cap is c tanh(s).", "Apply c tanh(s / c).", {"cap": capped("no division")}),
    H("cap without product", "The cap is tanh(s / c).", "Apply c tanh(s / c).", {"cap": capped("no product")}),
    H("cap after the mask", "The cap is applied after the mask, so a hidden logit is -{softcap}.",
      "Set hidden logits to -inf after the cap.", {"hide": capped(lambda c: -c["softcap"])}),
    H("sink scaled", "The sink is multiplied by the scale {scale}.", "Add the sink beside the scaled logits.",
      {"sink": sinking(lambda c: np.multiply(c["sink"], c["scale"]))}),
    H("sink capped", "The sink is capped, too.", "Cap q.k alone.",
      {"sink": lambda c: None if c["sink"] is None or c["softcap"] is None else
       c["softcap"] * np.tanh(np.divide(c["sink"], c["softcap"]))}),
    H("sign of the sink", "The sink has the other sign.", "Add exp(sink) to the sum of the softmax.",
      {"sink": sinking(lambda c: np.negative(c["sink"]))}),
    H("sink of 0", "The sink is 0: it is not loaded, or the softmax has a 1 in its sum.", "Load the sink.",
      {"sink": sinking(lambda c: np.zeros(np.shape(c["sink"])))}),
    H("sink without the maximum", "exp(sink) is added to a sum of exp(logit - maximum).", "Add exp(sink - maximum).",
      {"sink_shifted": sinking(False)}),
    H("no sink", "The sink is missing.", "Add exp(sink) to the sum of the softmax.",
      {"sink": sinking(lambda c: np.full(np.shape(c["sink"]), -np.inf))}),
)  # fmt: skip


def shared(hypotheses: Sequence[H], guard: Callable[[object], Callable[[Case], object]], suffix: str = "") -> list[H]:
    """Hypotheses of another check, for the cases of attention in which they can occur."""
    return [H(h.name + suffix, h.sentence, h.change, {name: guard(value) for name, value in h.fields.items()})
            for h in hypotheses]  # fmt: skip


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


CONTENTS = (
    *(H(f"no {name}", f"The term of {name} is missing.", "Add it.", {"operator": edited(lambda x: 0 * x, name)})
      for name in ("rel_q", "rel_k", "rel_v", "u", "v")),
    H("direction of p2c", "The term of rel_q has the row of the other sign of the distance.",
      "Take the row of the query's position minus the key's in both terms.", {"operator": _other_p2c}),
    H("clipped one earlier", "The distance is clipped one earlier: the first and the last row are not used.",
      "Clip the distance where the table ends.", {"operator": edited(_inner, "rel_q", "rel_k", "rel_v", "table", "r")}),
    H("bias after the scale", "The terms of the bias are not multiplied by the scale {scale}.",
      "Add them to q.k before the scale.", {"bias_scaled": lambda c: False if c["reads_content"] else None}),
)  # fmt: skip
"""Known errors of operators that read queries and keys."""


def other_alignment(c: Case) -> object:
    return c["q_at"] + c["past"] * (1 if c["align"] == "start" else -1) if c["past"] else None


ROTATED = (
    *shared([h for h in ROTATION if "positions" not in h.fields], rotating),
    *shared(FREQUENCIES, rotating),
    H("direction", "The rotation is clockwise: the sign of the sine is wrong.",
      "Pair (x1, x2) becomes (x1 cos - x2 sin, x1 sin + x2 cos).",
      {name: rotating(lambda c, name=name: -c[name]) for name in ("q_at", "k_at")}),
    H("no rotation", "Queries and keys are not rotated.", "Rotate both.", {"rotated": rotating("")}),
    H("queries only", "The keys are not rotated.", "Rotate the keys, too.", {"rotated": rotating("q")}),
    H("keys only", "The queries are not rotated.", "Rotate the queries, too.", {"rotated": rotating("k")}),
    H("values rotated", "The values are rotated, too.", "Rotate queries and keys only.",
      {"rotated": lambda c: "qkv" if c["w"] is not None and c["v"].shape[-1] == c["q"].shape[-1] else None}),
    H("queries one late", "The positions of the queries in the rotation are one too large.", "Check their offset.",
      {"q_at": rotating(lambda c: c["q_at"] + 1)}),
    H("queries one early", "The positions of the queries in the rotation are one too small.", "Check their offset.",
      {"q_at": rotating(lambda c: c["q_at"] - 1)}),
)  # fmt: skip
ATTENTIONS = (
    *SOFTMAXES, *MASKS,
    H("groups of heads", "Query head h reads key head h mod {groups}; expected h // {share}.",
      "Repeat each head of keys and values {share} times in a row (repeat_interleave).",
      {"grouping": lambda c: "modulo" if 1 < c["groups"] < c["heads"] else None}),
    H("queries and keys exchanged", "The logits are transposed: queries and keys are exchanged.", "Exchange them.",
      {"exchanged": lambda c: True if c["n"] == c["m"] else None}),
    H("no bias", "The bias is missing.", "Add the bias to the scaled logits.", {"bias_times": biased(0.0)}),
    H("bias before the scale", "The bias is multiplied by the scale {scale}.", "Add the bias after the scale.",
      {"bias_scaled": biased(True)}),
    H("bias divided by the scale", "The bias is divided by the scale {scale}.",
      "Add the bias to the scaled logits as it is.",
      {"bias_times": biased(lambda c: None if c["reads_content"] else 1 / c["scale"])}),
    H("bias twice", "The bias is added twice.", "Add it once.", {"bias_times": biased(2.0)}),
    H("cap after the bias", "The cap is applied to the sum with the bias.", "Add the bias to the capped logits.",
      {"cap": lambda c: None if c["softcap"] is None or c["operator"] is None else "after the bias"}),
    H("alignment in the rotation", "The rotation puts query i at position {other_place}; expected {place}.",
      "Rotate the queries by the positions after the cached keys.", {"q_at": rotating(other_alignment)}),
    H("alignment everywhere", "Mask, bias and rotation put query i at position {other_place}; expected {place}.",
      'Put query i at position {place}, as align="{align}" says.',
      {"q_at": lambda c: None if c["w"] is None and c["operator"] is None else other_alignment(c),
       "mask_shift": lambda c: c["past"] - c["mask_shift"], "q_shift": lambda c: c["past"] - c["q_shift"]}),
    *shared([h for h in MATRICES if "future" not in h.fields and not h.name.startswith("bias by")], biased, " (bias)"),
    *CONTENTS, *ROTATED,
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


def _rotated_by_reference(x: Float64, positions: Float64, c: Case) -> Float64:
    w = replace(reference.RopeFrequencies(c["w"]), attention_factor=c["factor"])
    return np.asarray(reference.rope(x, positions, w, layout=c["layout"], rotary_dim=c["rotary_dim"]))


def true_attention(c: Case) -> Float64:
    q, k = c["q"], c["k"]
    if c["w"] is not None:
        q, k = _rotated_by_reference(q, c["q_at"], c), _rotated_by_reference(k, c["k_at"], c)
    q_segments, k_segments = c["segments"] or (None, None)
    options = {
        "bias": () if c["operator"] is None else c["operator"], "causal": c["causal"], "window": c["window"],
        "q_segments": q_segments, "k_segments": k_segments, "scale": c["scale"], "softcap": c["softcap"],
        "sink": c["sink"], "q_positions": np.arange(float(c["n"])) + c["mask_shift"],
        "k_positions": np.arange(float(c["m"])),
    }  # fmt: skip
    if c["v"] is None:
        return np.asarray(reference.attention_weights(q, k, **options))
    return np.asarray(reference.attention(q, k, c["v"], **options))


def one_side(c: Case, numbers: Float64) -> Iterable[H]:
    return on_one_side(h for h in ROTATED if "rotated" not in h.fields) if c["w"] is not None else ()


SOFTMAX = Kind("softmax", true_attention, attend, (*SOFTMAXES, *MASKS), ("head", "query", "key"), attention_bound)
ATTENTION = Kind(
    "attention", true_attention, attend, ATTENTIONS, ("head", "query", "channel"), attention_bound, more=one_side
)


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
