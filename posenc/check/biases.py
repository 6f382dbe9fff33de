"""The checks of biases: slopes, buckets and matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .. import Bias, PositionBias, reference
from .inputs import Precision, ToArray, converted
from .judge import Case, Guard, Kind, angle_roundoff, guarded, hypotheses, judge, when
from .mask import alignment
from .report import Array, Float64, Report

# ---- slopes of ALiBi ----


def powers(count: int, bias_max: float, first: int = 1) -> Float64:
    """``2**(-bias_max h / count)``, h = first, first + 1, ..."""
    return np.asarray(2.0 ** (-bias_max * np.arange(first, first + count) / count))


def slopes_of(c: Case) -> Float64:
    heads, bias_max, first = c["heads"], c["bias_max"], c["first"]
    power = 2 ** (heads.bit_length() - 1)
    rest, above = heads - power, powers(2 * power, bias_max, first)
    below, rule = powers(power, bias_max, first), c["rule"]
    further = {"even": above[0::2], "odd": above[1::2], "dense": above}
    if not rest or rule == "geometric":
        found = powers(heads, bias_max, first)
    elif rule in further:
        found = np.concatenate([further[rule][:rest], below] if c["extra_first"] else [below, further[rule][:rest]])
    else:
        found = (above if rule == "above" else np.concatenate([above[0::2], above[1::2]]))[:heads]
    found = {"sorted": np.sort(found)[::-1], "reversed": found[::-1], "given": found}[c["sorting"]]
    return np.asarray(c["sign"] * found)


SLOPE_FIELDS: Case = {
    "bias_max": 8.0, "first": 1, "rule": "even", "extra_first": False, "sorting": "given", "sign": 1.0,
}  # fmt: skip
SLOPES = hypotheses("slopes")

SLOPE = Kind(
    "slopes", lambda c: np.asarray(reference.alibi_slopes(c["heads"])), slopes_of, SLOPES, ("head",),
    lambda c, wanted, u: 16 * u,  # 2**-x: x <= 8 has a relative error of 2 u, which is 11 u of the power
    lambda c, wanted: abs(wanted),
)  # fmt: skip


def slopes(impl: object, heads: int = 12, *, dtype: Precision = "float32") -> Report:
    """Check the slopes of ALiBi.

    Parameters
    ----------
    impl : callable or array
        ``impl(heads)`` returns the slopes, (heads,); or the slopes themselves.
    heads : int
        Number of heads. Most errors are invisible for a power of two.
    dtype : {"float32", "float64", "bfloat16", "float16"}
        Precision of the computation.

    Returns
    -------
    Report

    Examples
    --------
    >>> import posenc, posenc.check
    >>> print(posenc.check.slopes(posenc.alibi_slopes))
    slopes: right. The largest error is 0; the bound is 9.5e-07 (float32).
    """
    got = impl(heads) if callable(impl) else impl
    return judge(SLOPE, got, {**SLOPE_FIELDS, "heads": heads}, dtype)


# ---- buckets of T5 ----


def logarithmic(n: Float64, exact: float, c: Case, side: int) -> Float64:
    """The number of the bucket before it is cut to an integer."""
    span = np.log(c["max_distance"] / (exact if c["ratio"] else 1))
    with np.errstate(all="ignore"):
        return np.asarray(exact + np.log((n + c["log_offset"]) / exact) / span * (side - exact))


def bucket_of(c: Case, rel: Array | None = None) -> Float64:
    rel = c["rel_sign"] * (c["rel"] if rel is None else rel).astype(np.float64)
    both, buckets = c["bidirectional"], c["buckets"]
    side = buckets // 2 if both and c["halved"] else buckets
    exact = (side if c["all_exact"] else side // 2) + c["exact_offset"]
    n = abs(rel) if both or c["folded"] else np.maximum(-rel, 0)
    large = logarithmic(n, max(exact, 1), c, side)
    large = {"floor": np.floor(large + 1e-9), "ceil": np.ceil(large - 1e-9), "round": np.rint(large)}[c["cut"]]
    found: Float64 = np.where(n < exact, n, np.minimum(large, side - 1) if c["clamped"] else large)
    if both:
        upper = rel >= 0 if c["zero_above"] else rel > 0
        found = found + np.where(upper, buckets // 2, 0) * (1 if c["separate"] else 0)
    return np.asarray(found + c["bucket_offset"])


BUCKET_FIELDS: Case = {
    "rel_sign": 1, "halved": True, "all_exact": False, "exact_offset": 0, "ratio": True, "log_offset": 0,
    "cut": "floor", "clamped": True, "zero_above": False, "separate": True, "bucket_offset": 0, "folded": False,
}  # fmt: skip
BUCKETS = hypotheses("buckets")


def _undecided(c: Case, wanted: Float64) -> Float64:
    """Infinite where a logarithm in float32 decides between two buckets, otherwise 1."""
    side = c["buckets"] // 2 if c["bidirectional"] else c["buckets"]
    value = logarithmic(abs(c["rel"]).astype(np.float64), side // 2, {**c, **BUCKET_FIELDS}, side)
    value = np.where(np.isfinite(value), value, 0)
    near = abs(value - np.rint(value)) < 1e-5
    return np.where(near & (abs(c["rel"]) < c["max_distance"]) & (value > side // 2 + 0.5), np.inf, 1.0)


BUCKET = Kind(
    "buckets",
    lambda c: reference.t5_bucket(
        c["rel"], buckets=c["buckets"], max_distance=c["max_distance"], bidirectional=c["bidirectional"]
    ).astype(np.float64), bucket_of, BUCKETS, ("distance",), lambda c, wanted, u: 0.0, _undecided,
    lambda c: {"distance": [f"j - i = {r}" for r in c["rel"].ravel()]},
)  # fmt: skip


def buckets(
    impl: object, *, buckets: int = 32, max_distance: int = 128, bidirectional: bool = True,
    rel: npt.ArrayLike | None = None, array: ToArray = np.asarray,
) -> Report:  # fmt: skip
    """Check the buckets of T5.

    Distances at which a logarithm in float32 may fall to either side of a bound are not compared.

    Parameters
    ----------
    impl : callable or array
        ``impl(rel)`` returns the bucket of each relative position, key minus query; or the buckets themselves.
    buckets, max_distance, bidirectional
        As in `posenc.t5_bucket`.
    rel : array of int, optional
        The relative positions, by default -2 max_distance .. 2 max_distance.
    array : callable
        Converts `rel`, such as ``torch.as_tensor``.

    Returns
    -------
    Report

    Examples
    --------
    >>> import posenc, posenc.check
    >>> report = posenc.check.buckets(lambda rel: posenc.t5_bucket(rel), bidirectional=False)
    >>> print(report.causes[0].sentence)
    The buckets are those of a bidirectional table; expected causal.
    """
    distances = np.arange(-2 * max_distance, 2 * max_distance + 1) if rel is None else np.asarray(rel)
    case = {**BUCKET_FIELDS, "rel": distances, "buckets": buckets, "max_distance": max_distance,
            "bidirectional": bidirectional}  # fmt: skip
    return judge(BUCKET, impl(converted(array, distances)) if callable(impl) else impl, case, "float64")


# ---- matrices ----


def operator_of(operator: Bias) -> Any:
    """The operator of `posenc.reference` with the name, arrays, options and positions of one of posenc."""
    q, k = operator.own_positions
    made = getattr(reference, operator.name)(**operator.arrays._asdict(), **operator.options)
    return made.at(q_positions=q, k_positions=k)


def places_of(c: Case) -> tuple[Float64, Float64]:
    """The positions of queries and keys that a matrix reads."""
    return c["matrix_rel"] * (np.arange(float(c["n"])) + c["q_shift"]), c["matrix_rel"] * np.arange(float(c["m"]))


def matrix_of(c: Case) -> Float64:
    """The matrix of the operator, (H, n, m), with the errors that the fields of the case name."""
    sign = c["matrix_rel"]
    i, j = (sign * p for p in places_of(c))
    rel, name, arrays = j - i[:, None], c["operator"].name, c["arrays"]
    if name == "alibi":
        ramp = {"distance": -abs(rel), "key": j + 0 * rel, "last key": j - j[-1] + 0 * rel, "signed": rel}[c["ramp"]]
        found = (slopes_of(c) if c["known_slopes"] else arrays["slopes"])[:, None, None] * ramp
    elif name == "t5":
        row = bucket_of(c, sign * rel).astype(int)
        table = arrays["table"]
        found = np.moveaxis(table[np.clip(row, 0, len(table) - 1)], -1, 0)
    elif name in GRIDS:
        found = np.moveaxis(arrays["table"][_grid_row(c, i, j)], -1, 0)
    else:
        made = operator_of(c["operator"])
        at = made.reads(*places_of(c))
        found = made.equation(*at) if c["content"] is None else made.equation(*c["content"][:2], *at, *c["content"][2:])
    if c["transposed"]:
        found = np.swapaxes(found, -1, -2)
    found = c["matrix_scale"] * found
    found = found[..., ::-1, :, :] if c["heads_reversed"] else found
    if c["future"] is not None:
        found = np.where(rel > 0, c["future"], found)
    return np.asarray(found)


def _grid_row(c: Case, i: Float64, j: Float64) -> npt.NDArray[np.int64]:
    i, first = i[:, None], float(c["operator"].name == "beit")  # position of the first patch
    height, width = c["operator"].options["height"], c["operator"].options["width"]
    rows, columns = (width, height) if c["swin_window"] else (height, width)
    places = ((p - first).astype(np.int64) for p in (i, j))
    (yq, xq), (yk, xk) = (np.divmod(p, rows)[::-1] if c["by_columns"] else np.divmod(p, columns) for p in places)
    y, x = c["matrix_rel"] * (yq - yk), c["matrix_rel"] * (xq - xk)
    y, x = (x, y) if c["swin_axes"] else (y, x)
    stride = {"width": 2 * columns - 1, "height": 2 * rows - 1, "window": columns}[c["swin_stride"]]
    row = ((y + rows - 1) * stride + x + columns - 1) % len(c["arrays"]["table"])
    return np.select([(i < first) & (j < first), i < first, j < first], [-1, *c["class_rows"]], row)


def moved(c: Case, step: int) -> object:
    """The offset of the queries moved by a step, for operators that read distances."""
    return None if c["operator"].name in (*GRIDS, "fox", "toeplitz", "dense") else c["q_shift"] + step


def of(*names: str) -> Guard:
    """Fields that only some operators have."""
    return when(lambda c: c["operator"].name in names)


MATRIX_FIELDS: Case = {
    "matrix_rel": 1, "q_shift": 0, "transposed": False, "matrix_scale": 1.0,
    "heads_reversed": False, "future": None, "ramp": "distance", "swin_stride": "width", "swin_axes": False,
    "swin_window": False, "by_columns": False, "content": None, "class_rows": (-3, -2),
}  # fmt: skip


def _reshaped(c: Case) -> object:
    table = c["arrays"]["table"]
    return {**c["arrays"], "table": table.reshape(table.shape[::-1]).T}


GRIDS = ("swin", "beit")
OF_LOGARITHMS = ("alibi", "kerple_log", "kerple_power", "t5", "toeplitz", "dense", *GRIDS)
"""Operators whose numbers are read from an array, or have no argument but the distance and its logarithm."""
RELATIVE = ("shaw", "relative_key_query", "transformer_xl", "deberta")
"""Operators that read queries and keys, and the distance."""
SWAPPED = ("t5", "swin", "tisa")
"""Functions of the distance without symmetry: queries and keys exchanged are the other direction."""
known = when(lambda c: c["known_slopes"])
MATRICES = (
    *hypotheses("bias", {
        "direction": {"matrix_rel": of(*SWAPPED, *RELATIVE, "fire", "beit")(-1)},
        "transposed": {"transposed": when("square")(when(lambda c: c["operator"].name not in SWAPPED)(True))},
        "alignment": {"q_shift": lambda c: 0 if c["align"] == "end" else c["m"] - c["n"]},
        "offset +1": {"q_shift": lambda c: moved(c, 1)},
        "offset -1": {"q_shift": lambda c: moved(c, -1)},
        "reshaped table": {"arrays": of("t5", *GRIDS)(_reshaped)},
    }),
    *guarded((h for h in BUCKETS if h.name not in ("direction", "bucket -1", "not limited")), of("t5")),
    *guarded((h for h in SLOPES if h.name not in ("sign of slopes", "reversed slopes")), known),
)  # fmt: skip
"""Known errors of the matrix of a bias."""


def of_operator(operator: Bias, n: int, m: int, align: str, causal: bool) -> Case:
    """Return the fields of the matrix of an operator."""
    given = operator.arrays._asdict().items()
    arrays = {name: np.asarray(x, np.float64) for name, x in given if not hasattr(x, "parts")}
    heads = len(arrays["slopes"]) if operator.name == "alibi" else 0
    known = heads > 0 and np.allclose(arrays["slopes"], reference.alibi_slopes(heads), rtol=1e-6)
    options = {**{"bidirectional": True, "max_distance": 128}, **operator.options}
    shift = m - n if align == "end" else 0
    return {
        **MATRIX_FIELDS, **BUCKET_FIELDS, **SLOPE_FIELDS, "operator": operator, "arrays": arrays, "n": n, "m": m,
        **alignment(n, m, align), "q_shift": shift, "causal": causal, "heads": heads, "known_slopes": known,
        "buckets": len(arrays.get("table", ())), "bidirectional": options["bidirectional"],
        "max_distance": options["max_distance"],
    }  # fmt: skip


def _true_matrix(c: Case) -> Float64:
    made = operator_of(c["operator"])
    return np.asarray(made.equation(*made.reads(*places_of(c))))


def _seen(c: Case, wanted: Float64) -> Float64 | float:
    """Infinite where a causal mask hides the number anyway, otherwise 1."""
    rel = np.arange(c["m"]) - np.arange(c["n"])[:, None] - (c["m"] - c["n"] if c["align"] == "end" else 0)
    return np.where(rel > 0, np.inf, 1.0) if c["causal"] else 1.0


def _bias_bound(c: Case, wanted: Float64, u: float) -> float:
    """Four roundings of the result, and 16 of the argument. An error of a logarithm or an exponent of the distance
    grows with log m; an error of an angle, of a sum over keys and of a network with m."""
    steps = np.log2(c["m"] + 1) if c["operator"].name in OF_LOGARITHMS else c["m"]
    return float(abs(wanted[np.isfinite(wanted)]).max(initial=0) * (4 * u + 16 * steps * angle_roundoff(u)))


BIAS = Kind("bias", _true_matrix, matrix_of, MATRICES, ("head", "query", "key"), _bias_bound, _seen)


def bias(
    impl: object, operator: PositionBias, n: int, m: int | None = None, *, causal: bool = False, align: str = "end",
    dtype: Precision = "float32",
) -> Report:  # fmt: skip
    """Check the matrix of a bias that reads positions.

    Parameters
    ----------
    impl : callable or array
        ``impl(n, m)`` returns the matrix, (heads, n, m); or the matrix itself.
    operator : PositionBias
        The right bias, such as ``posenc.t5(table)``.
    n, m : int
        Numbers of queries and keys; m is n by default. The queries are the last n of the m keys.
    causal : bool
        True compares only keys that are not after the query.
    align : {"end", "start"}
        "start" puts query i at position i.
    dtype : {"float32", "float64", "bfloat16", "float16"}
        Precision of the computation.

    Returns
    -------
    Report

    Examples
    --------
    An index of Swin with 2 h - 1 in place of 2 w - 1 is right in square windows:

    >>> import numpy as np, posenc, posenc.check
    >>> table = np.random.default_rng(0).standard_normal((77, 2))
    >>> y, x = np.divmod(np.arange(24), 6)
    >>> rows = (y[:, None] - y + 3) * 7 + x[:, None] - x + 5
    >>> report = posenc.check.bias(table[rows].transpose(2, 0, 1), posenc.swin(table, 4, 6), 24)
    >>> print(report.causes[0].change)
    Multiply by 2 * width - 1.
    """
    keys = n if m is None else m
    if not isinstance(operator, PositionBias) or len(operator.parts) > 1:
        has = type(operator).__name__
        raise TypeError(f"check.bias: operator has type {has}; expected one bias that reads positions")
    got = impl(n, keys) if callable(impl) else impl
    return judge(BIAS, got, of_operator(operator, n, keys, align, causal), dtype)
