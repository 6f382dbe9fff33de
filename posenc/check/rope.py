"""The checks of rotations and of sinusoidal encodings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from .. import reference
from .frequencies import FACTORS, FREQUENCIES, angles, base_off_phases, factors, off_phases, other_factor
from .inputs import Precision, ToArray, choice, converted, draw, dtype_of, parts, places, rounded, rounding
from .judge import Case, Kind, angle_roundoff, as_numbers, coarser, hypotheses, judge, on_one_side, when
from .judge import Hypothesis as H
from .report import Float64, Report

OTHER = {"half": "interleaved", "interleaved": "half", "sincos": "cossin", "cossin": "sincos",
         "code": "paper", "paper": "code"}  # fmt: skip
NARROW = ("bfloat16", "float16")
PAIRS = {"half": "(i, i + {0})", "interleaved": "(2 i, 2 i + 1)"}


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
    angle = rounded(angle, c["angle_dtype"])
    cos, sin = (
        rounded(t, c["table_dtype"]) for t in (c["cos_factor"] * np.cos(angle), c["sin_factor"] * np.sin(angle))
    )
    cos, sin = (sin, cos) if c["swapped"] else (cos, sin)
    cos, sin = (np.repeat(t, 2, -1) if c["tables"] == "interleaved" else np.concatenate([t, t], -1) for t in (cos, sin))
    part = x[..., start : start + r]
    y = part * cos + turned(part, c["turn"], c["turn_out"], c["turn_sign"]) * sin
    if c["in_place"]:
        y = y + turned(y - part, c["turn"], c["turn_out"], 0.0) * sin
    if c["out_layout"] != c["turn"]:
        y = reference.convert_layout(y, source=c["turn"], target=c["out_layout"])
    return np.concatenate([x[..., :start], y, x[..., start + r :]], -1)


def true_rotation(x: Float64, positions: Float64, c: Case) -> Float64:
    w = replace(reference.RopeFrequencies(c["w"]), attention_factor=c["factor"])
    options = {name: c[name] for name in ("layout", "rotary_dim", "out_layout")}
    return np.asarray(reference.rope(x, positions, w, **options))


def layouts(layout: str | None, r: int, out_layout: str | None = None) -> Case:
    """The fields of a layout, and of the other one for sentences."""
    layout = choice("layout", layout, *PAIRS)
    other, out_layout = OTHER[layout], out_layout or layout
    return {
        "layout": layout, "other": other, "pairs": PAIRS[layout].format(r // 2),
        "other_pairs": PAIRS[other].format(r // 2), "tables": layout, "turn": layout, "turn_out": layout,
        "out_layout": out_layout, "turn_sign": -1.0, "swapped": False, "rotary_offset": 0,
        "angle_dtype": "float64", "table_dtype": "float64", "in_place": False, "of_queries": {}, "of_keys": {},
    }  # fmt: skip


def only(keys: bool) -> Callable[[Case], object]:
    """Positions with which only the queries, or only the keys, are rotated."""

    def change(c: Case) -> object:
        if not c["is_key"].any():
            return None
        return np.where(c["is_key"] == keys, c["positions"], 0.0)

    return change


partial_head = when("part of the head")
_whole_head = partial_head(lambda c: c["base"] ** (-2 * np.arange(c["width"] // 2) / c["width"]))


ROTATION = hypotheses("rotation", {
    "order of results": {"out_layout": lambda c: OTHER[c["out_layout"]]},
    "direction": {"positions": lambda c: -c["positions"]},
    "offset +1": {"positions": lambda c: c["positions"] + 1},
    "offset -1": {"positions": lambda c: c["positions"] - 1},
    "no rotation": {"positions": lambda c: 0 * c["positions"], **FACTORS},
    "rotated twice": {"positions": lambda c: 2 * c["positions"], **factors(lambda c: c["factor"] ** 2)},
    "positions over heads": {"positions": when(lambda c: c["heads"] > 1)(
        lambda c: np.arange(float(c["heads"]))[:, None] + 0 * c["positions"])},
    "first positions": {"positions": lambda c: np.arange(float(c["positions"].shape[-1])) + 0 * c["positions"]},
    "queries only": {"positions": only(False)},
    "keys only": {"positions": only(True)},
    "whole head": {"w": _whole_head, "plain": _whole_head, "rotary_dim": lambda c: c["width"]},
    "last channels": {"rotary_offset": partial_head(lambda c: c["width"] - c["rotary_dim"])},
    **{f"positions in {dtype}": {"positions": rounding("positions", dtype)} for dtype in NARROW},
    **{f"positions, frequencies and angles in {dtype}": {
        "positions": rounding("positions", dtype), "w": rounding("w", dtype), "angle_dtype": dtype}
       for dtype in NARROW},
})  # fmt: skip
"""Known errors of a rotation."""


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


def _rotated(c: Case) -> Float64:
    if not (c["of_queries"] or c["of_keys"]):
        return rotate(c["x"], c["positions"], c)
    q, k = (rotate(c["x"], one["positions"], one) for one in ({**c, **c["of_queries"]}, {**c, **c["of_keys"]}))
    return np.where(c["is_key"][..., None], k, q)


def _phases(c: Case, numbers: Float64) -> Float64:
    """The angle of each position and pair, (N, pairs)."""
    r = c["rotary_dim"]
    before, after = (reference.convert_layout(x[..., :r], source=layout, target="half")
                     for x, layout in ((c["x"], c["layout"]), (numbers, c["out_layout"])))  # fmt: skip
    before, after = (x[..., : r // 2] + 1j * x[..., r // 2 :] for x in (before, after))
    return np.asarray(np.angle((before.conj() * after).sum(tuple(range(before.ndim - 2)))))


def _factor(c: Case, numbers: Float64) -> list[H]:
    """Read the attention factor off the lengths of the rotated vectors."""
    before, after = (np.square(x[..., : c["rotary_dim"]]).sum() for x in (c["x"], numbers))
    return other_factor(c, float(np.sqrt(after / before)))


ROPE = Kind(
    "rope", lambda c: true_rotation(c["x"], c["positions"], c), _rotated, (*ROTATION, *FREQUENCIES),
    ("batch", "head", "position", "channel"),
    lambda c, wanted, u: rotation_error(c, c["positions"], u) * float(abs(c["x"]).max(initial=0)),
    labels=lambda c: {"channel": [f"channel {i}{_pair(i, c)}" for i in range(c["width"])]},
    more=lambda c, numbers: (
        *base_off_phases(c, _phases(c, numbers)), *_factor(c, numbers),
        *(on_one_side((*ROTATION, *FREQUENCIES)) if c["is_key"].any() else ())
    ),
    last=lambda c, numbers: off_phases(c, _phases(c, numbers)),
)  # fmt: skip


def rope(
    impl: Callable[..., object] | None = None, frequencies: object = None, *, dim: int | None = None,
    layout: str | None = None, out_layout: str | None = None, rotary_dim: int | None = None,
    inputs: Sequence[str] = ("x",), positions: npt.ArrayLike = 24, seq_axis: int = -2, dtype: Precision = "float32",
    array: ToArray = np.asarray, seq_len: int | None = None, got: object = None, x: npt.ArrayLike | None = None,
) -> Report:  # fmt: skip
    """Check a rotary embedding.

    Parameters
    ----------
    impl : callable
        ``impl(x, positions)`` returns the rotated x of shape (batch, heads, N, dim). With ``inputs=("q", "k")`` it is
        ``impl(q, k, positions)``, which returns both; k has fewer heads than q.
    frequencies : RopeFrequencies, array, dict or path, optional
        The right frequencies; a dict or a path is a config.json, whose keys let the check try errors of the scaling. By
        default the frequencies of base 10000.
    dim : int, optional
        Width of x; by default the head's in a config, or the number of rotated channels. If `impl` gets the rotated
        channels of a head without the others, pass their number.
    layout : {"half", "interleaved"}, optional
        The pairs of channels; needed if `frequencies` has none.
    out_layout : {"half", "interleaved"}, optional
        The pairs of the result; by default `layout`.
    rotary_dim : int, optional
        Number of rotated channels, if `frequencies` is None; by default `dim`.
    inputs : ("x",) or ("q", "k")
        The arguments of `impl`.
    positions : int or array (N,)
        An int n means 0 .. n-1. In 16 bits, angles that are rounded too early show at far positions; pass 4096.
    seq_axis : int
        The axis of positions in the arrays that `impl` takes: -2 is (batch, heads, N, dim), -3 is
        (batch, N, heads, dim).
    dtype : {"float32", "float64", "bfloat16", "float16"}
        Precision of x. "float64" demands angles in float64. Numbers of bfloat16 are passed in an array of float32, for
        `array` to convert.
    array : callable
        Converts the inputs, such as ``torch.as_tensor``. Positions are not rounded to 16 bits.
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
    case |= layouts(layout, case["rotary_dim"], out_layout)
    case["width"] = dim or (np.shape(x)[-1] if x is not None else case["width"])
    where = places(positions)
    if impl is not None:
        q = draw(2, 3, len(where), case["width"], dtype=dtype)
        k = draw(2, 2, len(where), case["width"], dtype=dtype, seed=31)
        given = [q, k] if len(inputs) == 2 else [q]
        found = impl(*(array(np.moveaxis(one, -2, seq_axis)) for one in given), converted(array, where))
        precision = dtype_of(found)
        results = [np.moveaxis(one, seq_axis, -2) if one.ndim == 4 else one for one in parts(found)]
        x, got = np.concatenate(given, -3), np.concatenate(results, -3)
    else:
        x, precision = as_numbers(x)
        got, other_precision = as_numbers(got)
        precision, dtype = coarser(precision, other_precision), "float64"
    x = np.asarray(x, np.float64)
    heads = x.shape[-3] if x.ndim > 2 else 1
    case |= {"x": x, "heads": heads,
             "is_key": (np.arange(heads) >= 3)[:, None] & (len(inputs) == 2)}  # fmt: skip
    case["positions"] = np.broadcast_to(where.astype(np.float64), x.shape[:-1])
    return judge(ROPE, got, case, coarser(dtype, precision))


# ---- sinusoidal encodings ----


def _encode(c: Case) -> Float64:
    channel = np.arange(c["dim"])
    w = np.repeat(c["w"], 2)[: c["dim"]] if c["by_channel"] is None else c["by_channel"]
    angle = rounded(c["positions"][:, None] * w, c["angle_dtype"])
    sine = (channel % 2 == 0) == (c["order"] == "sincos")
    table = c["sign"] * np.where(sine | c["all_sine"], np.sin(angle), np.cos(angle)) * c["scaled"]
    if c["sine_layout"] == "half":
        table = np.concatenate([table[:, 0::2], table[:, 1::2]], -1)
    return rounded(table, c["table_dtype"])


SINUSOIDS = (
    *(h for h in FREQUENCIES if h.name == "base" or h.name.startswith("exponent") or h.name in ("wavelengths", "turns",
      "order of frequencies") or h.name.endswith("float16") if h.name != "exponent over the head"),
    *hypotheses("sinusoid", {
        "exponent over dim": {
            "w": when(lambda c: c["denominator"] == "half-1")(lambda c: c["plain"] ** (1 - 1 / len(c["plain"])))},
        "order": {"order": lambda c: OTHER[c["order"]]},
        "a frequency for each channel": {"by_channel": lambda c: c["base"] ** (-2 * np.arange(c["dim"]) / c["dim"])},
        "exponent of the channel": {"by_channel": lambda c: c["base"] ** (-np.arange(c["dim"]) / c["dim"])},
        "offset +2": {"positions": lambda c: c["positions"] + 2},
        "direction": {"positions": lambda c: -c["positions"]},
        "root of dim": {"scaled": lambda c: c["dim"] ** 0.5},
    }),
    *(h for h in ROTATION if h.name.startswith("offset") or h.name.endswith("float16")),
)  # fmt: skip


def _sine_phases(c: Case, numbers: Float64) -> Float64:
    """The angle of each position and pair, (N, pairs)."""
    halves = c["sine_layout"] == "half"
    sine, cosine = np.split(numbers, 2, -1) if halves else (numbers[:, 0::2], numbers[:, 1::2])
    return np.asarray(np.arctan2(*((sine, cosine) if c["order"] == "sincos" else (cosine, sine))))


SINUSOID = Kind(
    "sinusoid", lambda c: np.asarray(reference.sinusoidal(
        c["positions"], c["dim"], base=c["base"], layout=c["sine_layout"], order=c["order"],
        denominator=c["denominator"])),
    _encode, SINUSOIDS, ("position", "channel"), lambda c, wanted, u: angle_error(c, c["positions"], u) + 2 * u,
    more=lambda c, numbers: base_off_phases(c, _sine_phases(c, numbers)),
    last=lambda c, numbers: off_phases(c, _sine_phases(c, numbers)),
)  # fmt: skip


def sinusoid(
    impl: object, dim: int, *, base: float = 10000.0, layout: str = "interleaved", order: str = "sincos",
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
    >>> report = posenc.check.sinusoid(posenc.sinusoidal(24, 64, layout="half"), 64)
    >>> print(report.causes[0].sentence)
    The sines and cosines have the layout half; expected interleaved.
    """
    where, order = places(positions), choice("order", order, "sincos", "cossin")
    other_layout = "half" if choice("layout", layout, "interleaved", "half") == "interleaved" else "interleaved"
    w = np.asarray(reference.frequencies(dim, base=base, denominator=denominator))
    case: Case = {
        "w": w, "plain": w, "base": base, "rotary_dim": dim, "dim": dim, "positions": where.astype(np.float64),
        "sine_layout": layout, "other": other_layout, "order": order, "denominator": denominator,
        "by_channel": None, "sign": 1.0, "all_sine": False, "scaled": 1.0, "angle_dtype": "float64",
        "table_dtype": "float64",
    }  # fmt: skip
    got = impl(converted(array, where)) if callable(impl) else impl
    return judge(SINUSOID, got, case, dtype)
