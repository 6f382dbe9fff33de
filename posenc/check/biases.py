"""The checks of biases: slopes, buckets and matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import Bias, PositionBias, reference
from .inputs import Precision, ToArray, converted
from .judge import Case, Kind, judge
from .judge import Hypothesis as H
from .judge import angle_roundoff as narrow
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
SLOPES = (
    H("geometric for any number", "The slopes are 2**(-8 h / {heads}); this holds for powers of two only.",
      "For {heads} heads take those of the power of two below, then every second slope of the power above.",
      {"rule": "geometric"}),
    H("slopes of the next power", "The slopes are the first {heads} of the next power of two.",
      "Take the slopes of the power of two below, then every second slope of the power above.", {"rule": "above"}),
    H("halves of the next power", "The slopes are those of the next power of two with its even places first.",
      "Put the odd places first: concatenate slopes[1::2] and slopes[::2], and cut.", {"rule": "halves"}),
    H("odd places", "The further heads have the slopes [1::2] of the next power of two; expected [0::2].",
      "Take slopes[0::2] of the next power.", {"rule": "odd"}),
    H("consecutive places", "The further heads have the first slopes of the next power of two; expected every second.",
      "Take slopes[0::2] of the next power.", {"rule": "dense"}),
    H("further heads first", "The slopes of the next power of two come first.", "Append them.", {"extra_first": True}),
    H("exponent from zero", "The exponents are of h - 1: the first slope is 1.", "Let h begin at 1.", {"first": 0}),
    H("exponent from two", "The exponents are those of h + 1.", "Let h begin at 1.", {"first": 2}),
    H("bias_max 4", "The exponents are half as large: bias_max is 4.", "Use bias_max 8.", {"bias_max": 4.0}),
    H("bias_max 16", "The exponents are twice as large: bias_max is 16.", "Use bias_max 8.", {"bias_max": 16.0}),
    H("sorted slopes", "The slopes are sorted.", "Keep the order of the authors: the further heads come last.",
      {"sorting": "sorted"}),
    H("reversed slopes", "The slopes are in reverse order.", "Head 0 has the largest slope.", {"sorting": "reversed"}),
    H("sign of slopes", "The slopes are negative.", "Slopes are positive; the bias is -slope |j - i|.", {"sign": -1.0}),
)  # fmt: skip

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
BUCKETS = (
    H("direction", "Keys before the query have the buckets of keys after it: the sign of the distance is wrong.",
      "The relative position is key minus query, j - i.", {"rel_sign": -1}),
    H("causal", "The buckets are those of a causal table; expected bidirectional.",
      "Give each side half of the buckets: bidirectional=True in an encoder.",
      {"bidirectional": lambda c: False if c["bidirectional"] else None}),
    H("bidirectional", "The buckets are those of a bidirectional table; expected causal.",
      "Give all buckets to keys before the query: bidirectional=False in a decoder.",
      {"bidirectional": lambda c: None if c["bidirectional"] else True}),
    H("bucket +1", "All buckets are one too large.", "Count buckets from 0.", {"bucket_offset": 1}),
    H("bucket -1", "All buckets are one too small.", "Count buckets from 0.", {"bucket_offset": -1}),
    H("logarithm of n + 1", "The logarithm is that of n + 1: its buckets begin one position too early.",
      "Take log(n / max_exact).", {"log_offset": 1}),
    H("logarithm of n - 1", "The logarithm is that of n - 1: its buckets begin one position too late.",
      "Take log(n / max_exact).", {"log_offset": -1}),
    H("one exact bucket more", "The exact buckets are one too many.", "max_exact is half of the buckets of a side.",
      {"exact_offset": 1}),
    H("one exact bucket less", "The exact buckets are one too few.", "max_exact is half of the buckets of a side.",
      {"exact_offset": -1}),
    H("all buckets exact",
      "All buckets of a side are exact: max_exact is half of all buckets, or there is no logarithm.",
      "max_exact is half of the buckets of a side: compute it after the number of buckets is halved.",
      {"all_exact": True}),
    H("rounded up", "The logarithm is rounded up; expected down.", "Cut it to an integer.", {"cut": "ceil"}),
    H("rounded", "The logarithm is rounded to the nearest integer; expected down.", "Cut it to an integer.",
      {"cut": "round"}),
    H("divisor", "The logarithm is divided by log(max_distance); expected log(max_distance / max_exact).",
      "Divide by log(max_distance / max_exact).", {"ratio": False}),
    H("max_distance", "max_distance is 128; expected {max_distance}.", "Read relative_attention_max_distance.",
      {"max_distance": 128}),
    H("number of buckets", "The number of buckets is 32; expected {buckets}.", "Read relative_attention_num_buckets.",
      {"buckets": 32}),
    H("not halved", "Each side has all {buckets} buckets.", "Halve the number for a side.", {"halved": False}),
    H("not limited", "Far distances have buckets beyond the last.", "Take the minimum with the last bucket.",
      {"clamped": False}),
    H("zero among the later keys", "Distance 0 has the bucket of keys after the query.",
      "Add half of the buckets for j - i > 0, not >= 0.",
      {"zero_above": lambda c: True if c["bidirectional"] else None}),
    H("sides not separate", "Both sides have the lower buckets.", "Add half of the buckets for keys after the query.",
      {"separate": lambda c: False if c["bidirectional"] else None}),
    H("later keys folded", "Keys after the query have the bucket of their distance; expected 0 in a causal table.",
      "Take max(i - j, 0).", {"folded": lambda c: None if c["bidirectional"] else True}),
)  # fmt: skip


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


def of(names: tuple[str, ...], value: object) -> Callable[[Case], object]:
    """A field that only some operators have."""
    return lambda c: value if c["operator"].name in names else None


MATRIX_FIELDS: Case = {
    "matrix_rel": 1, "q_shift": 0, "transposed": False, "matrix_scale": 1.0,
    "heads_reversed": False, "future": None, "ramp": "distance", "swin_stride": "width", "swin_axes": False,
    "swin_window": False, "by_columns": False, "content": None, "class_rows": (-3, -2),
}  # fmt: skip


def _with(name: str, fields: Mapping[str, object]) -> dict[str, object]:
    """Fields of a hypothesis about one operator: the first decides whether it occurs."""
    (first, value), *rest = fields.items()
    known = "known_slopes" if name == "alibi" else None

    def guarded(c: Case) -> object:
        if c["operator"].name != name or (known and not c[known]):
            return None
        return value(c) if callable(value) else value

    return {first: guarded, **dict(rest)}


def _reshaped(c: Case) -> object:
    table = c["arrays"].get("table") if c["operator"].name in ("t5", *GRIDS) else None
    return None if table is None else {**c["arrays"], "table": table.reshape(table.shape[::-1]).T}


GRIDS = ("swin", "beit")
OF_LOGARITHMS = ("alibi", "kerple_log", "kerple_power", "t5", "toeplitz", "dense", *GRIDS)
"""Operators whose numbers are read from an array, or have no argument but the distance and its logarithm."""
RELATIVE = ("shaw", "relative_key_query", "transformer_xl", "deberta")
"""Operators that read queries and keys, and the distance."""
SWAPPED = ("t5", "swin", "tisa")
"""Functions of the distance without symmetry: queries and keys exchanged are the other direction."""
MATRICES = (
    H("direction", "The relative position is i - j; expected key minus query, j - i.", "Exchange queries and keys.",
      {"matrix_rel": of((*SWAPPED, *RELATIVE, "fire", "beit"), -1)}),
    H("transposed", "The matrix is transposed: keys are downwards.", "Put queries on the second last axis.",
      {"transposed": lambda c: True if c["n"] == c["m"] and c["operator"].name not in SWAPPED else None}),
    H("alignment", "The bias puts query i at position {other_place}; expected {place}.",
      'Put query i at position {place}, as align="{align}" says: "end" counts the cached keys.',
      {"q_shift": lambda c: 0 if c["align"] == "end" else c["m"] - c["n"]}),
    H("offset +1", "The queries are one position too late.", "Check the offset of the queries.",
      {"q_shift": lambda c: moved(c, 1)}),
    H("offset -1", "The queries are one position too early.", "Check the offset of the queries.",
      {"q_shift": lambda c: moved(c, -1)}),
    H("sign of the bias", "All signs are exchanged.", "Change the sign of the bias.", {"matrix_scale": -1.0}),
    H("bias in logarithms of 2", "The bias is multiplied by log2(e).", "Add it to natural logarithms.",
      {"matrix_scale": 1 / np.log(2)}),
    H("order of heads", "The heads are in reverse order.", "Reverse the heads.", {"heads_reversed": True}),
    H("zero after the query", "Keys after the query have no bias; expected a bias on both sides.",
      "This is right for causal attention: pass causal=True.", {"future": lambda c: None if c["causal"] else 0.0}),
    H("masked after the query", "Keys after the query have -inf; expected a bias on both sides.",
      "This is right for causal attention: pass causal=True.", {"future": lambda c: None if c["causal"] else -np.inf}),
    H("bias by key", "The bias is slope * j, by the key alone. A causal softmax does not notice it.",
      "Compare attention (check.attention), or subtract slope * i.", {"ramp": of(("alibi",), "key")}),
    H("bias by last key", "The bias is slope * (j - m + 1), by the key alone. A causal softmax does not notice it.",
      "Compare attention (check.attention), or add slope * (m - 1 - i).", {"ramp": of(("alibi",), "last key")}),
    H("signed distance", "The bias is slope * (j - i), which rewards keys after the query.",
      "Take the absolute value of the distance.", {"ramp": of(("alibi",), "signed")}),
    H("rows of 2 h - 1", "The index multiplies the difference of rows by 2 h - 1; expected 2 w - 1. A square window "
      "hides it.", "Multiply by 2 * width - 1.", {"swin_stride": of(GRIDS, "height")}),
    H("rows of w", "The index multiplies the difference of rows by w; expected 2 w - 1.", "Multiply by 2 * width - 1.",
      {"swin_stride": of(GRIDS, "window")}),
    H("tokens by columns", "Tokens are numbered down the columns, as np.meshgrid does by default.",
      'Number them along the rows: meshgrid(..., indexing="ij").', {"by_columns": of(GRIDS, True)}),
    H("reshaped table", "The table (rows, heads) is reshaped to (heads, rows); expected transposed.", "Transpose it.",
      {"arrays": _reshaped}),
    H("rows and columns", "The index exchanges rows and columns.", "The first coordinate is the row.",
      {"swin_axes": of(GRIDS, True)}),
    H("height and width", "Height and width of the window are exchanged.", "Exchange them.",
      {"swin_window": of(GRIDS, True)}),
    H("rows of the class token", "The rows of class to patch and of patch to class are exchanged.",
      "The last three rows are class to patch, patch to class, and class to class.",
      {"class_rows": of(("beit",), (-2, -3))}),
    *(h._replace(fields=_with("t5", h.fields)) for h in BUCKETS
      if h.name not in ("direction", "bucket -1", "not limited")),
    *(h._replace(fields=_with("alibi", h.fields)) for h in SLOPES
      if h.name not in ("sign of slopes", "reversed slopes")),
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
    return float(abs(wanted[np.isfinite(wanted)]).max(initial=0) * (4 * u + 16 * steps * narrow(u)))


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
