"""The checks of biases: slopes, buckets and matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import Bias, PositionBias, reference
from .inputs import Precision, ToArray, call, converted
from .judge import Case, Guard, Hypothesis, Kind, angle_roundoff, guarded, hypotheses, judge, when
from .mask import MORE_KEYS, mask_case, some_rows
from .report import Array, Float64, Report, further

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
    "bias_max": 8.0,
    "first": 1,
    "rule": "even",
    "extra_first": False,
    "sorting": "given",
    "sign": 1.0,
}
SLOPES = hypotheses("slopes")

SLOPE = Kind(
    "slopes",
    lambda c: np.asarray(reference.alibi_slopes(c["heads"])),
    slopes_of,
    SLOPES,
    ("head",),
    lambda c, wanted, u: 16 * u * abs(wanted),  # 2**-x: x <= 8 has a relative error of 2 u, which is 11 u of the power
)


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
    slopes: right. The largest error is 0; the bound is 4.8e-07 (float32).
    """
    report = judge(SLOPE, call("slopes", impl, heads), {**SLOPE_FIELDS, "heads": heads}, dtype)
    is_power = heads & (heads - 1) == 0
    return further(report, None, "numbers of heads that are no power of two (heads=12)") if is_power else report


# ---- buckets of T5 ----


def logarithmic(n: Float64, exact: float, c: Case, side: int) -> Float64:
    """The number of the bucket before it is cut to an integer."""
    span = np.log(c["max_distance"] / (exact if c["ratio"] else 1))
    with np.errstate(all="ignore"):
        large = np.log((n + c["log_offset"]) / exact) * c["log_times"]
    if c["cut"] == "before the division":
        large = np.floor(large + 1e-9)
    large = large / span
    if c["cut"] == "before the product":
        large = np.floor(large + 1e-9)
    return np.asarray(exact + large * (side - exact))


def bucket_of(c: Case, rel: Array | None = None) -> Float64:
    rel = c["rel_sign"] * (c["rel"] if rel is None else rel).astype(np.float64)
    both, buckets = c["bidirectional"], c["buckets"]
    side = buckets // 2 if both and c["halved"] else buckets
    exact = (side if c["all_exact"] else side // 2) + c["exact_offset"]
    n = abs(rel) if both or c["folded"] else np.maximum(-rel, 0)
    large = logarithmic(n, max(exact, 1), c, side)
    cuts = {"ceil": np.ceil(large - 1e-9), "round": np.rint(large)}
    large = cuts.get(c["cut"], np.floor(large + 1e-9))
    found: Float64 = np.where(n < exact, n, np.minimum(large, side - 1 + c["last"]) if c["clamped"] else large)
    if both:
        upper = rel >= 0 if c["zero_above"] else rel > 0
        found = found + np.where(upper, buckets // 2, 0) * (1 if c["separate"] else 0)
    return np.asarray(found + c["bucket_offset"])


BUCKET_FIELDS: Case = {
    "rel_sign": 1, "halved": True, "all_exact": False, "exact_offset": 0, "ratio": True, "log_offset": 0,
    "log_times": 1.0, "cut": "floor", "clamped": True, "last": 0, "zero_above": False, "separate": True,
    "bucket_offset": 0, "folded": False,
}  # fmt: skip
BUCKETS = hypotheses("buckets")


def _undecided(c: Case, wanted: Float64, u: float) -> Float64:
    """Infinite where a logarithm in float32 decides between two buckets, otherwise less than one bucket."""
    side = c["buckets"] // 2 if c["bidirectional"] else c["buckets"]
    value = logarithmic(abs(c["rel"]).astype(np.float64), side // 2, {**c, **BUCKET_FIELDS}, side)
    value = np.where(np.isfinite(value), value, 0)
    near = abs(value - np.rint(value)) < 1e-5
    return np.where(near & (abs(c["rel"]) < c["max_distance"]) & (value > side // 2 + 0.5), np.inf, 0.5)


DISTANCES = (128, 64, 256, 512, 32, 1024, 96, 192, 384, 16, 48, 24, 768, 2048, 4096, 8192, *range(10, 1001, 10))
"""Maximal distances that are tried."""


def other_sizes(c: Case, numbers: Float64) -> Iterator[Hypothesis]:
    """Another number of buckets, and another max_distance, of T5."""
    (of_distance, of_number, of_both, of_exact), right = SIZES, (c["buckets"], c["max_distance"])
    is_list = "rel" in c
    counted = (int(np.nan_to_num(numbers).max()) + 1, 16, 64, 128, 2 * right[0]) if is_list else ()
    for buckets in dict.fromkeys((right[0], *counted)):
        side = buckets // 2 if c["bidirectional"] else buckets
        distances = dict.fromkeys((right[1], *DISTANCES[: None if is_list else 16]))
        for distance in (d for d in distances if 4 <= side < 2 * d):
            h = of_distance if buckets == right[0] else of_number if distance == right[1] else of_both
            sentence = h.sentence.replace("{other_buckets}", str(buckets)).replace("{other_distance}", f"{distance:g}")
            yield h._replace(sentence=sentence, fields={"buckets": buckets, "max_distance": distance})
    side = right[0] // 2 if c["bidirectional"] else right[0]
    for exact in range(1, side):
        sentence = of_exact.sentence.replace("{exact}", str(exact)).replace("{side}", str(side // 2))
        yield of_exact._replace(sentence=sentence, fields={"exact_offset": exact - side // 2})


SIZES = hypotheses("sizes of buckets")
BUCKET = Kind(
    "buckets",
    lambda c: reference.t5_bucket(
        c["rel"], num_buckets=c["buckets"], max_distance=c["max_distance"], bidirectional=c["bidirectional"]
    ).astype(np.float64),
    bucket_of,
    BUCKETS,
    ("distance",),
    _undecided,
    lambda c: {"distance": [f"j - i = {r}" for r in c["rel"].ravel()]},
    more=other_sizes,
)


def buckets(
    impl: object,
    *,
    buckets: int = 32,
    max_distance: int = 128,
    bidirectional: bool = True,
    rel: npt.ArrayLike | None = None,
    array: ToArray = np.asarray,
) -> Report:
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
    >>> report = posenc.check.buckets(lambda rel: posenc.t5_bucket(rel, bidirectional=True), bidirectional=False)
    >>> print(report.causes[0].sentence)
    The buckets are those of a bidirectional table; expected causal.
    """
    distances = np.arange(-2 * max_distance, 2 * max_distance + 1) if rel is None else np.array(rel)
    case = {
        **BUCKET_FIELDS,
        "rel": distances,
        "buckets": buckets,
        "max_distance": max_distance,
        "bidirectional": bidirectional,
    }
    return judge(BUCKET, call("buckets", impl, converted(array, distances)), case, "float64")


# ---- matrices ----


def operator_of(c: Case) -> Any:
    """The operator of `posenc.reference` with the name, arrays, options and positions of one of posenc."""
    q, k = c["operator"].own_positions
    return getattr(reference, c["operator"].name)(**c["arrays"], **c["options"]).at(q_positions=q, k_positions=k)


def matrix_of(c: Case) -> Float64:
    """The matrix of the operator, (H, n, m), with the errors that the fields of the case name."""
    sign, i, j = c["matrix_rel"], c["bias_q"], c["bias_k"]
    rel, name, arrays = j - i[:, None], c["operator"].name, c["arrays"]
    if name == "alibi":
        ramps = {"distance": -abs(rel), "key": j + 0 * rel, "last key": j - j[-1] + 0 * rel, "signed": rel}
        found = (slopes_of(c) if c["known_slopes"] else arrays["slopes"])[:, None, None] * ramps[c["ramp"]]
    elif name == "t5":
        row = bucket_of(c, sign * rel).astype(int)
        table = arrays["table"]
        found = np.moveaxis(table[np.clip(row, 0, len(table) - 1)], -1, 0)
    elif name in GRIDS:
        found = np.moveaxis(arrays["table"][_grid_row(c, i, j)], -1, 0)
    else:
        made = operator_of(c)
        at = made.reads(sign * i, sign * j)
        found = made.equation(*at) if c["content"] is None else made.equation(*c["content"][:2], *at, *c["content"][2:])
        if c["fold"]:
            found = np.where(c["fold"] * rel > 0, made.equation(*made.reads(-sign * i, -sign * j)), found)
        if c["shifted"]:
            found = found + _shift(c, made, i, j)
    if c["transposed"]:
        found = np.swapaxes(found, -1, -2)
    if c["matrix_reshaped"]:
        found = np.moveaxis(found, -3, -1).reshape(found.shape)
    found = c["matrix_scale"] * found
    found = found[..., ::-1, :, :] if c["heads_reversed"] else found
    if c["future"] is not None:
        found = np.where(rel > 0, c["future"], found)
    return np.asarray(found)


def _shift(c: Case, made: Any, i: Float64, j: Float64) -> Float64:
    """The error of Transformer-XL's shift that drops the last rows of the matrix, and not the first."""
    q, k, *rest = c["content"]
    n, m = len(i), len(j)
    wanted = made.equation(q, 0 * k, *made.reads(i, j), *rest)
    given = made.equation(q, 0 * k, *made.reads(np.full(n, m - 1.0), j), *rest)  # columns of the distances m - 1 .. 0
    padded = np.concatenate([0 * given[..., :1], given], -1)
    return np.asarray(padded.reshape(*padded.shape[:-2], -1)[..., : n * m].reshape(given.shape) - wanted)


def _folded(side: int) -> Callable[[Case], object]:
    """The diagonals of both sides read on one."""

    def diagonals(c: Case) -> object:
        given, zero = c["arrays"]["diagonals"], c["n"] - 1
        row = zero + side * abs(np.arange(given.shape[-1]) - zero)
        return {**c["arrays"], "diagonals": given[..., np.clip(row, 0, given.shape[-1] - 1)]}

    return diagonals


def _grid_row(c: Case, i: Float64, j: Float64) -> npt.NDArray[np.int64]:
    i, first = i[:, None], float(c["operator"].name == "beit")  # position of the first patch
    height, width = c["options"]["height"], c["options"]["width"]
    rows, columns = (width, height) if c["swin_window"] else (height, width)
    places = ((p - first).astype(np.int64) for p in (i, j))
    (yq, xq), (yk, xk) = (np.divmod(p, rows)[::-1] if c["by_columns"] else np.divmod(p, columns) for p in places)
    y, x = c["matrix_rel"] * (yq - yk), c["matrix_rel"] * (xq - xk)
    y, x = (x, y) if c["swin_axes"] else (y, x)
    stride = {"width": 2 * columns - 1, "height": 2 * rows - 1, "window": columns}[c["swin_stride"]]
    y, x = (y + columns - 1, x + rows - 1) if c["swin_offsets"] else (y + rows - 1, x + columns - 1)
    row = (y * stride + x) % len(c["arrays"]["table"])
    return np.select([(i < first) & (j < first), i < first, j < first], [-1, *c["class_rows"]], row)


def moved(c: Case, step: int) -> object:
    """The positions of the queries moved by a step, for operators that read distances."""
    return None if c["operator"].name in PLACED else c["bias_q"] + step


def of(*names: str) -> Guard:
    """Fields that only some operators have."""
    return when(lambda c: c["operator"].name in names)


MATRIX_FIELDS: Case = {
    "matrix_rel": 1, "transposed": False, "matrix_reshaped": False, "matrix_scale": 1.0, "heads_reversed": False,
    "future": None, "fold": 0, "shifted": False, "ramp": "distance", "swin_stride": "width", "swin_axes": False,
    "swin_window": False, "swin_offsets": False, "by_columns": False, "content": None, "class_rows": (-3, -2),
}  # fmt: skip


def _reshaped(c: Case) -> object:
    table = c["arrays"]["table"]
    return {**c["arrays"], "table": table.reshape(table.shape[::-1]).T}


def _threshold(change: Callable[[Any, Case], object]) -> Callable[[Case], object]:
    """FIRE with another threshold."""
    return lambda c: {**c["arrays"], "threshold": change(abs(c["arrays"]["threshold"]), c)}


GRIDS = ("swin", "beit")
INDEXED = ("fox", "toeplitz", "dense", "tupe")
"""Operators whose arrays have a row for each query, whatever its position."""
PLACED = (*GRIDS, *INDEXED, "distance_function")
"""Operators whose arrays have a fixed number of positions, or that are unknown functions."""
OF_LOGARITHMS = ("alibi", "kerple_log", "kerple_power", "t5", "toeplitz", "dense", *GRIDS)
"""Operators whose numbers are read from an array, or have no argument but the distance and its logarithm."""
RELATIVE = ("shaw", "relative_key_query", "transformer_xl", "deberta")
"""Operators that read queries and keys, and the distance."""
SWAPPED = ("t5", "swin", "tisa")
"""Functions of the distance without symmetry: queries and keys exchanged are the other direction."""
known = when(lambda c: c["known_slopes"])
MATRICES = (
    *hypotheses(
        "bias",
        {
            "direction": {"matrix_rel": of(*SWAPPED, *RELATIVE, "fire", "beit")(-1)},
            "transposed": {"transposed": when("square")(when(lambda c: c["operator"].name not in SWAPPED)(True))},
            "alignment": {"bias_q": when("unequal")(lambda c: c["other_q"])},
            "offset +1": {"bias_q": lambda c: moved(c, 1)},
            "offset -1": {"bias_q": lambda c: moved(c, -1)},
            "reshaped table": {"arrays": of("t5", *GRIDS)(_reshaped)},
            "normalised by the length": {"arrays": of("fire")(_threshold(lambda x, c: np.maximum(x, c["m"])))},
            "normalised by the last position": {
                "arrays": of("fire")(_threshold(lambda x, c: np.maximum(x, c["m"] - 1)))
            },
            "no threshold": {"arrays": of("fire")(_threshold(lambda x, c: 1e-6))},
            "parameters exchanged": {
                "arrays": of("kerple_log", "kerple_power")(lambda c: {"r1": c["arrays"]["r2"], "r2": c["arrays"]["r1"]})
            },
            "keys after the query as before": {"fold": of("tisa", "distance_function")(1)},
            "keys before the query as after": {"fold": of("tisa", "distance_function")(-1)},
            "diagonals after the query as before": {"arrays": of("toeplitz")(_folded(-1))},
            "diagonals before the query as after": {"arrays": of("toeplitz")(_folded(1))},
        },
    ),
    *guarded((h for h in BUCKETS if h.name not in ("direction", "bucket -1", "not limited")), of("t5")),
    *guarded((h for h in SLOPES if h.name not in ("sign of slopes", "reversed slopes")), known),
)
"""Known errors of the matrix of a bias."""


def of_operator(operator: Bias) -> Case:
    """Return the fields of the matrix of an operator."""
    given = operator.arrays._asdict()
    arrays = {name: np.array(x, np.float64) if isinstance(x, np.ndarray) else x for name, x in given.items()}
    heads = len(arrays["slopes"]) if operator.name == "alibi" else 0
    known = heads > 0 and np.allclose(arrays["slopes"], reference.alibi_slopes(heads), rtol=1e-6)
    table = arrays.get("table")
    return {
        **MATRIX_FIELDS,
        **BUCKET_FIELDS,
        **SLOPE_FIELDS,
        "operator": operator,
        "arrays": arrays,
        "options": {**operator.options},
        "indexed": operator.name in INDEXED,
        "heads": heads,
        "known_slopes": known,
        "buckets": 0 if table is None else len(table),
        "bidirectional": operator.options.get("bidirectional", True),
        "max_distance": operator.options.get("max_distance") or 128,
    }


def _true_matrix(c: Case) -> Float64:
    made = operator_of(c)
    return np.asarray(made.equation(*made.reads(c["bias_q"], c["bias_k"])))


def _bias_bound(c: Case, wanted: Float64, u: float) -> Float64:
    """Four roundings of the result, and 16 of the argument. An error of a logarithm or an exponent of the distance
    grows with log m; an error of an angle, of a sum over keys and of a network with m. It is infinite where a causal
    mask hides the number anyway."""
    steps = np.log2(c["m"] + 1) if c["operator"].name in OF_LOGARITHMS else c["m"]
    size = abs(wanted[np.isfinite(wanted)]).max(initial=0) * (4 * u + 16 * steps * angle_roundoff(u))
    return np.where(c["causal"] & (c["mask_k"] > c["mask_q"][:, None]), np.inf, size)


def _other_table(c: Case, numbers: Float64) -> Iterator[Hypothesis]:
    return other_sizes(c, numbers) if c["operator"].name == "t5" else iter(())


BIAS = Kind(
    "bias",
    _true_matrix,
    matrix_of,
    MATRICES,
    ("head", "query", "key"),
    _bias_bound,
    part=some_rows,
    whole=frozenset(["transposed", "matrix_reshaped"]),
    more=_other_table,
)


def bias(
    impl: object,
    bias: PositionBias,
    n: int,
    m: int | None = None,
    *,
    causal: bool = False,
    align: str = "end",
    dtype: Precision = "float32",
) -> Report:
    """Check the matrix of a bias that reads positions.

    Parameters
    ----------
    impl : callable or array
        ``impl(n, m)`` returns the matrix, (heads, n, m); or the matrix itself.
    bias : PositionBias
        The right bias, such as ``posenc.t5(table, bidirectional=True)``.
    n, m : int
        Numbers of queries and keys. By default m is n, and then, with `causal`, n + 5. The queries are the last n of
        the m keys.
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
    if not isinstance(bias, PositionBias) or len(bias.parts) > 1:
        has, expected = f"has type {type(bias).__name__}", "a bias that reads positions, such as alibi(slopes)"
        if isinstance(bias, Bias):
            has, expected = f"is {bias.name}", "check.attention(bias=...), because it reads q and k"
            if len(bias.parts) > 1:
                expected = "one operator: check each part, or posenc.attention with the sum"
        raise TypeError(f"check.bias: bias {has}; expected {expected}")

    def run(keys: int) -> Report:
        case = {**of_operator(bias), **mask_case("bias", n, keys, causal, None, align)}
        case |= {"bias_q": case["mask_q"], "bias_k": case["mask_k"]}
        return judge(BIAS, call("bias", impl, n, keys), case, dtype)

    report = run(n if m is None else m)
    takes_more = m is None and bias.name not in PLACED
    return further(report, (lambda: run(n + 5)) if causal else None, MORE_KEYS) if takes_more else report
