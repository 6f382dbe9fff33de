"""The checks of angles: frequencies, rotations and sinusoids."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import reference
from ..rotary.config import rope_from_config
from ..rotary.scaling import RopeFrequencies
from .inputs import Precision, ToArray, draw, dtype_of, moved, parts, places
from .judge import Case, Hypothesis, Kind, angle_roundoff, as_numbers, coarser, judge
from .report import Float64, Report

H = Hypothesis
OTHER = {"half": "interleaved", "interleaved": "half", "halves": "interleaved", "sincos": "cossin", "cossin": "sincos"}
PAIRS = {"half": "(i, i + {0})", "interleaved": "(2 i, 2 i + 1)"}

# ---- frequencies ----


def angles(frequencies: Any, dim: int | None, seq_len: int | None = None) -> Case:
    """Return the fields of frequencies: w, factor, and what is known about the way to them."""
    keys: dict[str, Any] = {}
    if isinstance(frequencies, str | os.PathLike) and os.path.isfile(frequencies):
        frequencies = json.loads(Path(frequencies).read_bytes())
    if isinstance(frequencies, Mapping | str) or hasattr(frequencies, "to_dict"):
        config = frequencies.to_dict() if hasattr(frequencies, "to_dict") else frequencies
        frequencies = rope_from_config(config, seq_len=seq_len)
        keys = _keys(config, seq_len, frequencies) if isinstance(config, Mapping) else {}
    elif frequencies is None:
        if dim is None:
            raise ValueError("check: frequencies and dim are None; expected one of the two")
        frequencies = RopeFrequencies(reference.rope_frequencies(dim).inv_freq)
        keys = {"dim": dim, "base": 10000.0, "rope_type": "default"}
    w = np.asarray(frequencies, np.float64)
    factor = float(getattr(frequencies, "attention_factor", 1.0))
    r = 2 * len(w)
    base = float(keys.get("base") or (((w[0] / w[1]) ** (r / 2)) if len(w) > 1 and w[1] > 0 else 10000.0))
    plain = base ** (-2 * np.arange(len(w)) / r)
    return {
        "w": w, "plain": plain, "base": base, "factor": factor, "cos_factor": factor, "sin_factor": factor,
        "keys": keys, "rotary_dim": r, "width": dim or r, "rope_type": keys.get("rope_type", "default"),
        "layout": getattr(frequencies, "layout", None),
    }  # fmt: skip


def _keys(config: Mapping[str, Any], seq_len: int | None, found: RopeFrequencies) -> dict[str, Any]:
    """Return the arguments of `rope_frequencies` that the config means, or {} if they give other frequencies."""
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    lengths = {key: value for key, value in config.items() if key.endswith("max_position_embeddings")}
    lengths = {"original_max_position_embeddings": lengths.get("max_position_embeddings"), **lengths}
    keys = {**lengths, **rope, "base": rope.pop("rope_theta", config.get("rope_theta")), "dim": 2 * len(found)}
    keys["rope_type"] = rope.pop("rope_type", None) or rope.pop("type", "default")
    keys = {key: value for key, value in keys.items() if key not in ("type", "rope_theta") and value is not None}
    keys |= {} if seq_len is None else {"seq_len": seq_len}
    try:
        same = np.allclose(reference.rope_frequencies(**keys).inv_freq, found.inv_freq, rtol=1e-12)
    except (KeyError, TypeError):
        same = False
    return keys if same else {}


def again(field: str, **changes: Any) -> Callable[[Case], Any]:
    """A field of the case, w or factor, computed again with other arguments of `rope_frequencies`."""

    def compute(case: Case) -> Any:
        keys = dict(case["keys"])
        new = {key: value(keys) if callable(value) else value for key, value in changes.items()}
        if not keys or any(value is None for value in new.values()):
            return None
        try:
            found = reference.rope_frequencies(**{**keys, **new})
        except (KeyError, TypeError, ZeroDivisionError):
            return None
        return found.inv_freq if field == "w" else found.attention_factor

    return compute


def as_type(rope_type: str) -> Callable[[Case], Any]:
    """The frequencies that another rope_type has with the same factor."""
    return lambda c: again("w", rope_type=rope_type)(c) if c["keys"].get("factor") else None


def exponents(change: Callable[[Float64, Case], Float64]) -> Callable[[Case], Float64]:
    """The frequencies with another unscaled sequence; the scaling of each pair stays."""
    return lambda c: change(c["plain"], c) * (c["w"] / c["plain"])


def key(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda keys: keys.get(name)


def _blend_reversed(c: Case) -> Any:
    s = c["keys"].get("factor")
    if s is None or c["rope_type"] not in ("llama3", "yarn", "ntk_by_parts"):
        return None
    between = (c["w"] < c["plain"] * (1 - 1e-9)) & (c["w"] > c["plain"] / s * (1 + 1e-9))
    return np.where(between, c["plain"] + c["plain"] / s - c["w"], c["w"])


def _without_blend(c: Case) -> Any:
    """Llama 3's code with exchanged factors: no frequency is between the two."""
    if c["rope_type"] != "llama3":
        return None
    turns = c["keys"]["original_max_position_embeddings"] * c["plain"] / (2 * np.pi)
    return np.where(turns < c["keys"]["high_freq_factor"], c["plain"] / c["keys"]["factor"], c["plain"])


FACTORS = {"cos_factor": 1.0, "sin_factor": 1.0}
SCALED = "The frequencies are those of the config's rope_type, {rope_type}."
FREQUENCIES = (
    H("base", "The frequencies have the base 10000; expected {base}.", "Read the base (rope_theta) from the config.",
      {"w": exponents(lambda plain, c: plain ** (np.log(10000.0) / np.log(c["base"])))}),
    H("scaling ignored", "The frequencies are base**(-2 k / dim) and the factor is 1: rope_scaling is not applied.",
      "Apply the scaling of the config, {rope_type}.", {"w": lambda c: c["plain"], **FACTORS}),
    H("frequencies not scaled", "The frequencies are base**(-2 k / dim), without their scaling.",
      "Scale the frequencies as {rope_type} does.", {"w": lambda c: c["plain"]}),
    H("scaling inverted", "The frequencies are multiplied where they must be divided, or the reverse.",
      "Divide the frequencies (or the positions) by the factor.", {"w": lambda c: c["plain"] ** 2 / c["w"]}),
    H("scaling twice", "The frequencies are scaled twice.", "Scale either the frequencies or the positions, not both.",
      {"w": lambda c: c["w"] ** 2 / c["plain"]}),
    H("exponent halved", "The exponents are k / dim; expected 2 k / dim.", "Use arange(0, dim, 2) / dim as exponents.",
      {"w": exponents(lambda plain, c: plain**0.5)}),
    H("exponent doubled", "The exponents are 4 k / dim; expected 2 k / dim.",
      "Divide arange(0, dim, 2) by dim, not by dim / 2.", {"w": exponents(lambda plain, c: plain**2)}),
    H("exponent from one", "The exponents are 2 (k + 1) / dim; expected 2 k / dim.", "Let k begin at 0.",
      {"w": exponents(lambda plain, c: plain * plain[1 % len(plain)])}),
    H("exponent over pairs less one", "The exponents are k / (dim / 2 - 1), from 0 to 1; expected 2 k / dim.",
      "Divide k by dim / 2 instead of dim / 2 - 1.",
      {"w": exponents(lambda plain, c: plain ** (len(plain) / max(len(plain) - 1, 1)))}),
    H("exponent over the head", "The exponents are 2 k / {width}, over the whole head; expected 2 k / {rotary_dim}.",
      "Divide by rotary_dim, the number of rotated channels.",
      {"w": exponents(lambda plain, c: plain ** (c["rotary_dim"] / c["width"]))}),
    H("order of frequencies", "The frequencies are in reverse order.", "Let pair 0 have the frequency 1.",
      {"w": lambda c: c["w"][::-1]}),
    H("wavelengths", "The numbers are base**(2 k / dim), the reciprocals of the frequencies.",
      "Divide the positions by these numbers, or take 1 / them.", {"w": lambda c: 1 / c["w"]}),
    H("turns", "The frequencies are 2 pi times too large.", "Angles are p w, without 2 pi.",
      {"w": lambda c: 2 * np.pi * c["w"]}),
    H("linear", f"The frequencies are divided by the factor, as rope_type linear does. {SCALED}",
      "Implement {rope_type}.", {"w": as_type("linear")}),
    H("ntk", f"The base is multiplied by factor**(d / (d - 2)), as static NTK does. {SCALED}", "Implement {rope_type}.",
      {"w": as_type("ntk")}),
    H("ntk exponent", "The base is multiplied by the factor itself; expected factor**(d / (d - 2)).",
      "Raise the factor to d / (d - 2).",
      {"w": lambda c: again("w", rope_type="default", base=lambda keys: c["base"] * stretch(c))(c)
       if c["rope_type"] in ("ntk", "dynamic") else None}),
    H("length ignored", "The dynamic base is that of the trained length.", "Pass the length of the sequence.",
      {"w": again("w", seq_len=lambda keys: keys.get("max_position_embeddings"))}),
    H("ramp reversed", "Interpolated and original frequencies are exchanged in the blend.",
      "High frequencies keep their value; low ones are divided by the factor.",
      {"w": lambda c: c["plain"] + c["plain"] / c["keys"]["factor"] - c["w"] if c["keys"].get("factor") else None}),
    H("blend reversed", "Between the two bounds, the weights of interpolated and original frequencies are exchanged.",
      "The weight of the original frequency grows with it.", {"w": _blend_reversed}),
    H("beta_fast and beta_slow", "beta_fast and beta_slow are exchanged.", "The ramp begins at beta_fast turns.",
      {"w": again("w", beta_fast=lambda k: k.get("beta_slow", 1), beta_slow=lambda k: k.get("beta_fast", 32))}),
    H("truncate", "The ends of the ramp are {truncated}.", "Follow the key truncate of the config.",
      {"w": again("w", truncate=lambda k: not k.get("truncate", True))}),
    H("original length", "The trained length is max_position_embeddings; expected original_max_position_embeddings.",
      "Read original_max_position_embeddings.",
      {"w": again("w", original_max_position_embeddings=key("max_position_embeddings"))}),
    H("low and high factor", "low_freq_factor and high_freq_factor are exchanged, so nothing is blended.",
      "Exchange them.",
      {"w": _without_blend}),
    H("long and short factor", "long_factor and short_factor are exchanged.",
      "Take long_factor if the sequence is longer than the trained length.",
      {"w": again("w", long_factor=key("short_factor"), short_factor=key("long_factor"))}),
    H("attention factor", "cos and sin lack the attention factor {factor}.",
      "Multiply cos and sin by attention_factor, 0.1 ln(factor) + 1 by default.", FACTORS),
    H("attention factor squared", "The attention factor {factor} is applied twice.",
      "Multiply cos and sin by attention_factor once; attention_factor is the final number.",
      {"cos_factor": lambda c: c["factor"] ** 2, "sin_factor": lambda c: c["factor"] ** 2}),
    H("attention factor inverted", "cos and sin are divided by the attention factor {factor}.", "Multiply by it.",
      {"cos_factor": lambda c: 1 / c["factor"], "sin_factor": lambda c: 1 / c["factor"]}),
    H("mscale", "The attention factor is 0.1 ln(factor) + 1; the config sets {factor}.",
      "Read attention_factor, or mscale / mscale_all_dim, from the config.",
      {name: again("factor", attention_factor=lambda k: 0.1 * np.log(k["factor"]) + 1 if "factor" in k else None)
       for name in FACTORS}),
    H("mscale of mscale", "attention_factor is used as mscale: the factor is 0.1 a ln(factor) + 1.",
      "attention_factor is the final number.",
      {name: lambda c: 0.1 * c["factor"] * np.log(c["keys"]["factor"]) + 1 if c["keys"].get("factor") else None
       for name in FACTORS}),
    H("mscale without division", "The attention factor is mscale's; expected its ratio to mscale_all_dim's.",
      "Divide the factor of mscale by the factor of mscale_all_dim.",
      {name: lambda c: 0.1 * c["keys"]["mscale"] * np.log(c["keys"]["factor"]) + 1 if c["keys"].get("mscale") else None
       for name in FACTORS}),
)  # fmt: skip
"""Known errors of frequencies: w, base**(-2 k / rotary_dim) scaled to longer contexts, and of the attention factor."""


def stretch(case: Case) -> Any:
    """The factor of the base in static and dynamic NTK, before the exponent d / (d - 2)."""
    keys = case["keys"]
    s, trained = keys.get("factor", 1.0), keys.get("max_position_embeddings", 1)
    return s if case["rope_type"] == "ntk" else s * max(keys.get("seq_len") or 0, trained) / trained - (s - 1)


def frequency_error(case: Case, u: float) -> float:
    """Relative error of base**-t: t and the power have a few roundings, and the logarithm of the base amplifies t's."""
    spread = case["plain"].max() / case["plain"].min()
    return float(2 * u * (8 + np.log(spread)))


def _listed(case: Case) -> Float64:
    return np.append(case["w"], case["cos_factor"]) if case["with_factor"] else case["w"]


FREQUENCY = Kind(
    "frequencies", _listed, _listed, FREQUENCIES, ("pair",),
    lambda case, wanted, u: frequency_error(case, angle_roundoff(u)) + u,
    lambda case, wanted: np.maximum(abs(wanted), np.append(case["plain"], 1e-9)[: len(wanted)]),
)  # fmt: skip


def frequencies(
    impl: Any, frequencies: Any = None, *, dim: int | None = None, seq_len: int | None = None,
    dtype: Precision = "float32",
) -> Report:  # fmt: skip
    """Check the frequencies of a rotary embedding, and its attention factor if the implementation returns it.

    Parameters
    ----------
    impl : callable or array
        A function without arguments, or its result: an array (pairs,), a tuple (array, attention factor), or an object
        with the fields ``inv_freq`` and ``attention_factor``.
    frequencies : RopeFrequencies, array, dict or path, optional
        The right ones; a dict or a path is a config.json. By default those of base 10000.
    dim : int, optional
        Width of the head; needed without `frequencies`.
    seq_len : int, optional
        Length of the sequence, for the types dynamic and longrope.
    dtype : {"float32", "float64"}
        Precision of the computation.

    Returns
    -------
    Report

    Examples
    --------
    >>> import numpy as np, posenc.check
    >>> config = {"head_dim": 64, "rope_theta": 500000.0}
    >>> report = posenc.check.frequencies(10000.0 ** (-np.arange(0, 64, 2) / 64), config)
    >>> print(report.causes[0].sentence)
    The frequencies have the base 10000; expected 500000.
    """
    got = impl() if callable(impl) and not hasattr(impl, "inv_freq") else impl
    if hasattr(got, "inv_freq"):
        got = (got.inv_freq, getattr(got, "attention_factor", 1.0))
    with_factor = isinstance(got, tuple | list) and len(got) == 2 and np.ndim(got[0]) == 1
    case = {**angles(frequencies, dim, seq_len), "with_factor": with_factor}
    case["truncated"] = "not rounded" if case["keys"].get("truncate", True) else "rounded"
    numbers = np.append(as_numbers(got[0])[0], float(got[1])) if with_factor else got
    return judge(FREQUENCY, numbers, case, dtype)


# ---- rotations ----


def turned(x: Float64, source: str, target: str, sign: float) -> Float64:
    """(-x2, x1) of each pair; pairs are read in one layout and written in another. sign=1 forgets the minus."""
    partner, half = np.arange(x.shape[-1]), x.shape[-1] // 2
    partner = (partner + half) % x.shape[-1] if source == "half" else partner ^ 1
    first = (np.arange(x.shape[-1]) < half) if source == "half" else np.arange(x.shape[-1]) % 2 == 0
    found = np.where(first, sign, 1.0) * x[..., partner]
    return np.asarray(reference.convert_layout(found, source=source, target=target))


def rotate(x: Float64, positions: Float64, c: Case) -> Float64:
    """Rotate as the fields of the case say; `reference.rope` in the case of the right answer."""
    start, r = c["rotary_offset"], c["rotary_dim"]
    angle = positions[..., None] * c["w"]
    cos, sin = c["cos_factor"] * np.cos(angle), c["sin_factor"] * np.sin(angle)
    cos, sin = (sin, cos) if c["swapped"] else (cos, sin)
    cos, sin = (np.repeat(t, 2, -1) if c["tables"] == "interleaved" else np.concatenate([t, t], -1) for t in (cos, sin))
    part = x[..., start : start + r]
    y = part * cos + turned(part, c["turn"], c["turn_out"], c["turn_sign"]) * sin
    if c["out_layout"] != c["turn"]:
        y = reference.convert_layout(y, source=c["turn"], target=c["out_layout"])
    return np.concatenate([x[..., :start], y, x[..., start + r :]], -1)


def layouts(layout: str, r: int, out_layout: str | None = None) -> Case:
    """The fields of a layout, and of the other one for sentences."""
    other, out_layout = OTHER[layout], out_layout or layout
    return {
        "layout": layout, "other": other, "pairs": PAIRS[layout].format(r // 2),
        "other_pairs": PAIRS[other].format(r // 2), "tables": layout, "turn": layout, "turn_out": layout,
        "out_layout": out_layout, "written": out_layout, "turn_sign": -1.0, "swapped": False, "rotary_offset": 0,
    }  # fmt: skip


def other(*fields: str) -> dict[str, object]:
    return {field: lambda c: c["other"] for field in fields}


def only(keys: bool) -> Callable[[Case], Any]:
    """Positions with which only the queries, or only the keys, are rotated."""

    def change(c: Case) -> Any:
        if not c["is_key"].any():
            return None
        return np.where(c["is_key"] == keys, c["positions"], 0.0)

    return change


def _whole_head(c: Case) -> Any:
    if c["rotary_dim"] == c["width"]:
        return None
    return c["base"] ** (-2 * np.arange(c["width"] // 2) / c["width"])


def _last(c: Case) -> Any:
    return c["width"] - c["rotary_dim"] if c["width"] > c["rotary_dim"] else None


ROTATION = (
    H("layout", 'Your pairs are {other_pairs}; expected {pairs}, layout="{layout}".',
      'Rotate pairs {pairs}, or permute the weights with convert_layout(source="{layout}", target="{other}").',
      other("tables", "turn", "turn_out", "out_layout")),
    H("tables", "The tables of cos and sin have the order of pairs {other_pairs}, but the rotation has pairs {pairs}.",
      'Expand the tables for layout="{layout}": cat((t, t)) for "half", repeat_interleave(t, 2) for "interleaved".',
      other("tables")),
    H("rotation", "The rotation has pairs {other_pairs}, but the tables of cos and sin are in the order of {pairs}.",
      'Pair the channels {pairs} in rotate_half, as layout="{layout}" says.', other("turn", "turn_out", "out_layout")),
    H("order of rotate_half", "rotate_half reads pairs {pairs} and writes them in the order of {other_pairs}.",
      "Let rotate_half return its channels in the order in which it read them.", other("turn_out")),
    H("order of results", "The rotation is right, but the result has the order of pairs {other_pairs}.",
      "Write the two channels of a pair where they were read. Products q.k do not notice it; a cache of keys does.",
      {"out_layout": lambda c: OTHER[c["out_layout"]]}),
    H("direction", "The rotation is clockwise: the sign of the sine is wrong.",
      "Pair (x1, x2) becomes (x1 cos - x2 sin, x1 sin + x2 cos).", {"positions": lambda c: -c["positions"]}),
    H("minus", "rotate_half lacks its minus: it returns (x2, x1).", "Return (-x2, x1).", {"turn_sign": 1.0}),
    H("cos and sin exchanged", "cos and sin are exchanged.", "Exchange them.", {"swapped": True}),
    H("offset +1", "The positions are one too large.", "Count positions from 0.",
      {"positions": lambda c: c["positions"] + 1}),
    H("offset -1", "The positions are one too small.", "Count positions from 0.",
      {"positions": lambda c: c["positions"] - 1}),
    H("no rotation", "Nothing is rotated.", "Apply the rotation.",
      {"positions": lambda c: 0 * c["positions"], **FACTORS}),
    H("rotated twice", "The vectors are rotated twice.", "Rotate once.",
      {"positions": lambda c: 2 * c["positions"], "cos_factor": lambda c: c["factor"] ** 2,
       "sin_factor": lambda c: c["factor"] ** 2}),
    H("positions over heads", "The position is the number of the head.", "Let the positions run along the sequence.",
      {"positions": lambda c: np.arange(float(c["heads"]))[:, None] + 0 * c["positions"] if c["heads"] > 1 else None}),
    H("first positions", "The positions are 0, 1, 2, ..., whatever is passed.", "Use the positions that are passed.",
      {"positions": lambda c: np.arange(float(c["positions"].shape[-1])) + 0 * c["positions"]}),
    H("queries only", "The keys are not rotated.", "Rotate the keys, too.", {"positions": only(False)}),
    H("keys only", "The queries are not rotated.", "Rotate the queries, too.", {"positions": only(True)}),
    H("cos only", "The attention factor {factor} multiplies cos alone.", "Multiply sin by it, too.",
      {"sin_factor": 1.0}),
    H("sin only", "The attention factor {factor} multiplies sin alone.", "Multiply cos by it, too.",
      {"cos_factor": 1.0}),
    H("whole head", "All {width} channels are rotated; expected the first {rotary_dim}.",
      "Rotate the first rotary_dim channels and copy the rest.",
      {"w": _whole_head, "plain": _whole_head, "rotary_dim": lambda c: c["width"]}),
    H("last channels", "The last {rotary_dim} channels are rotated; expected the first.",
      "Rotate the first rotary_dim channels and copy the rest.", {"rotary_offset": _last}),
    H("positions in bfloat16", "The positions are rounded to bfloat16.", "Keep positions in integers or float64.",
      {"positions": lambda c: _to_bfloat16(c["positions"])}),
)  # fmt: skip
"""Known errors of a rotation."""


def _to_bfloat16(x: Float64) -> Float64:
    fraction, exponent = np.frexp(x)
    return np.asarray(np.ldexp(np.rint(fraction * 2**8) / 2**8, exponent))


def angle_error(case: Case, positions: Float64, u: float) -> float:
    """The largest error of an angle p w: the relative error of w, and one rounding of the product.

    The error of w is 2 u (8 - log w), see `frequency_error`, and -w log w is at most 1 / e.
    """
    fastest = float(case["w"].max(initial=0))
    return float(2 * angle_roundoff(u) * (9 * fastest + 1 / np.e) * abs(positions).max(initial=0))


def rotation_error(case: Case, positions: Float64, u: float) -> float:
    """Error of a rotated number, as a share of the largest: of the angle, of the tables and of the products."""
    return float(np.sqrt(2) * max(case["cos_factor"], case["sin_factor"]) * (angle_error(case, positions, u) + 4 * u))


def _pair(channel: int, c: Case) -> str:
    r = c["rotary_dim"]
    pair = channel % (r // 2) if c["layout"] == "half" else channel // 2
    return f" (pair {pair})" if channel < r else ""


ROPE = Kind(
    "rope",
    lambda c: np.asarray(reference.rope(
        c["x"], c["positions"], replace(reference.RopeFrequencies(c["w"]), attention_factor=c["factor"]),
        layout=c["layout"], rotary_dim=c["rotary_dim"], out_layout=c["written"],
    )),
    lambda c: rotate(c["x"], c["positions"], c),
    (*ROTATION, *FREQUENCIES), ("batch", "head", "position", "channel"),
    lambda c, wanted, u: rotation_error(c, c["positions"], u) * float(abs(c["x"]).max(initial=0)),
    labels=lambda c: {"channel": [f"channel {i}{_pair(i, c)}" for i in range(c["width"])]},
)  # fmt: skip


def rope(
    impl: Any = None, frequencies: Any = None, *, dim: int | None = None, layout: str | None = None,
    out_layout: str | None = None, rotary_dim: int | None = None, inputs: Sequence[str] = ("x",),
    positions: npt.ArrayLike = 24, seq_axis: int = -2, dtype: Precision = "float32", array: ToArray = np.asarray,
    seq_len: int | None = None, got: Any = None, x: Any = None,
) -> Report:  # fmt: skip
    """Check a rotary embedding.

    Parameters
    ----------
    impl : callable
        ``impl(x, positions)`` returns the rotated x of shape (batch, heads, N, dim). With ``inputs=("q", "k")`` it is
        ``impl(q, k, positions)``, which returns both; k has fewer heads than q.
    frequencies : RopeFrequencies, array, dict or path, optional
        The right frequencies; a dict or a path is a config.json. By default those of base 10000.
    dim : int, optional
        Width of the head; by default the number of rotated channels.
    layout : {"half", "interleaved"}, optional
        The pairs of channels; needed if `frequencies` do not know.
    out_layout : {"half", "interleaved"}, optional
        The pairs of the result; by default `layout`.
    rotary_dim : int, optional
        Number of rotated channels, if `frequencies` is None; by default `dim`.
    inputs : ("x",) or ("q", "k")
        The arguments of `impl`.
    positions : int or array (N,)
        An int n means 0 .. n-1.
    seq_axis : int
        The axis of positions in the arrays that `impl` takes: -2 is (batch, heads, N, dim), -3 is
        (batch, N, heads, dim).
    dtype : {"float32", "float64", "bfloat16", "float16"}
        Precision of x. "float64" demands angles in float64. Numbers of bfloat16 are passed in an array of float32, for
        `array` to convert.
    array : callable
        Converts the inputs, such as ``torch.as_tensor``.
    seq_len : int, optional
        Length of the sequence, for the types dynamic and longrope of a config.
    got, x : array, optional
        The result and its input, instead of `impl`.

    Returns
    -------
    Report

    Examples
    --------
    >>> import numpy as np, posenc.check
    >>> def mine(x, positions):
    ...     angle = positions[:, None] * 10000.0 ** (-np.arange(0, 64, 2) / 64)
    ...     cos, sin = (np.tile(table, 2) for table in (np.cos(angle), np.sin(angle)))
    ...     return x * cos + np.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape) * sin
    >>> report = posenc.check.rope(mine, dim=64, layout="interleaved")
    >>> print(report.causes[0].sentence)
    The tables of cos and sin have the order of pairs (i, i + 32), but the rotation has pairs (2 i, 2 i + 1).
    """
    case = angles(frequencies, rotary_dim or dim, seq_len)
    layout = layout or case["layout"]
    if layout not in ("half", "interleaved"):
        raise ValueError(f'check.rope: layout is {layout}; expected "half" or "interleaved"')
    case["width"] = dim or (np.shape(x)[-1] if x is not None else case["rotary_dim"])
    where = places(positions)
    if impl is not None:
        q = draw(2, 3, len(where), case["width"], dtype=dtype)
        k = draw(2, 2, len(where), case["width"], dtype=dtype, seed=31)
        given = [q, k] if len(inputs) == 2 else [q]
        found = impl(*(array(moved(one, seq_axis)) for one in given), array(where))
        precision = dtype_of(found)
        results = [moved(one, seq_axis) if one.ndim == 4 else one for one in parts(found)]
        x, got = np.concatenate(given, -3), np.concatenate(results, -3)
    else:
        x, precision = as_numbers(x)
        got, other_precision = as_numbers(got)
        precision = max(precision, other_precision, key=lambda name: name in ("float16", "bfloat16"))
        dtype = "float64"
    x = np.asarray(x, np.float64)
    heads = x.shape[-3] if x.ndim > 2 else 1
    case |= {**layouts(layout, case["rotary_dim"], out_layout), "x": x, "heads": heads,
             "is_key": (np.arange(heads) >= 3)[:, None] & (len(inputs) == 2)}  # fmt: skip
    case["positions"] = np.broadcast_to(where.astype(np.float64), x.shape[:-1])
    case["truncated"] = "not rounded" if case["keys"].get("truncate", True) else "rounded"
    return judge(ROPE, got, case, coarser(dtype, precision))


# ---- sinusoids ----


def _encode(c: Case) -> Float64:
    channel = np.arange(c["dim"])
    w = c["by_channel"](c) if c["by_channel"] else np.repeat(c["w"], 2)[: c["dim"]]
    angle = c["positions"][:, None] * w
    sine = (channel % 2 == 0) == (c["order"] == "sincos")
    table = c["sign"] * np.where(sine | c["all_sine"], np.sin(angle), np.cos(angle)) * c["scaled"]
    if c["sine_layout"] == "halves":
        table = np.concatenate([table[:, 0::2], table[:, 1::2]], -1)
    return np.asarray(table)


SINUSOIDS = (
    *(h for h in FREQUENCIES if h.name == "base" or h.name.startswith("exponent") or h.name in ("wavelengths", "turns",
      "order of frequencies") if h.name != "exponent over the head"),
    H("exponent over dim", "The exponents are 2 k / dim; expected k / (dim / 2 - 1).",
      "Divide k by dim / 2 - 1, as tensor2tensor does.",
      {"w": lambda c: c["plain"] ** (1 - 1 / len(c["plain"])) if c["denominator"] == "half-1" else None}),
    H("layout", "The sines and cosines have the layout {other}; expected {layout_name}.",
      "{change_layout}", {"sine_layout": lambda c: c["other"]}),
    H("order", "Sines and cosines are exchanged.", "The order is {order}.", {"order": lambda c: OTHER[c["order"]]}),
    H("a frequency for each channel", "Channel c has the frequency base**(-2 c / dim), with a sine or a cosine alone; "
      "expected one frequency for a sine and a cosine.", "Use the exponent 2 (c // 2) / dim for channel c.",
      {"by_channel": lambda c: lambda c: c["base"] ** (-2 * np.arange(c["dim"]) / c["dim"])}),
    H("exponent of the channel", "Channel c has the frequency base**(-c / dim); expected one frequency for a sine and "
      "a cosine.", "Use the exponent 2 (c // 2) / dim for channel c.",
      {"by_channel": lambda c: lambda c: c["base"] ** (-np.arange(c["dim"]) / c["dim"])}),
    H("offset +1", "The positions are one too large.", "Count positions from 0.",
      {"positions": lambda c: c["positions"] + 1}),
    H("offset -1", "The positions are one too small.", "Count positions from 0.",
      {"positions": lambda c: c["positions"] - 1}),
    H("offset +2", "The positions are two too large, as in fairseq, whose padding has row 1.",
      "Drop the first two rows of the table.", {"positions": lambda c: c["positions"] + 2}),
    H("sign", "All signs are exchanged.", "Drop the minus.", {"sign": -1.0}),
    H("direction", "The positions are negative: the sines have the other sign.", "Use positions, not their negatives.",
      {"positions": lambda c: -c["positions"]}),
    H("sines only", "All channels are sines.", "Take the cosine in every second channel.", {"all_sine": True}),
    H("root of dim", "The encoding is multiplied by sqrt(dim).", "Scale the embeddings of words, not positions.",
      {"scaled": lambda c: c["dim"] ** 0.5}),
)  # fmt: skip

SINUSOID = Kind(
    "sinusoid",
    lambda c: np.asarray(reference.sinusoidal(
        c["positions"], c["dim"], base=c["base"], layout=c["sine_layout"], order=c["order"],
        denominator=c["denominator"])),
    _encode, SINUSOIDS, ("position", "channel"),
    lambda c, wanted, u: angle_error(c, c["positions"], u) + 2 * u,
)  # fmt: skip


def sinusoid(
    impl: Any, dim: int, *, base: float = 10000.0, layout: str = "interleaved", order: str = "sincos",
    denominator: str = "dim", positions: npt.ArrayLike = 24, dtype: Precision = "float32", array: ToArray = np.asarray,
) -> Report:  # fmt: skip
    """Check a sinusoidal encoding.

    Parameters
    ----------
    impl : callable or array
        ``impl(positions)`` returns the encoding, (N, dim); or the encoding itself.
    dim : int
        Width of the encoding, even.
    base, layout, order, denominator
        As in `posenc.sinusoidal`.
    positions : int or array (N,)
        An int n means 0 .. n-1.
    dtype : {"float32", "float64", "bfloat16", "float16"}
        Precision of the computation. "float64" demands angles in float64.
    array : callable
        Converts the positions, such as ``torch.as_tensor``.

    Returns
    -------
    Report

    Examples
    --------
    >>> import posenc, posenc.check
    >>> report = posenc.check.sinusoid(posenc.sinusoidal(24, 64, layout="halves"), 64)
    >>> print(report.causes[0].sentence)
    The sines and cosines have the layout halves; expected interleaved.
    """
    where = places(positions)
    w = np.asarray(reference.frequencies(dim, base=base, denominator=denominator))
    other_layout = {"interleaved": "halves", "halves": "interleaved"}[layout]
    case: Case = {
        "w": w, "plain": w, "base": base, "rotary_dim": dim, "dim": dim, "positions": where.astype(np.float64),
        "sine_layout": layout, "layout_name": layout, "other": other_layout, "order": order, "denominator": denominator,
        "by_channel": None, "sign": 1.0, "all_sine": False, "scaled": 1.0,
        "change_layout": "Put sines and cosines side by side." if layout == "interleaved" else
        "Put all sines before all cosines.",
    }  # fmt: skip
    got = impl(array(where)) if callable(impl) else impl
    return judge(SINUSOID, got, case, dtype)
