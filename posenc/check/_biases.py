"""The checks of biases: slopes, buckets and matrices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import Bias, PositionBias, alibi, reference
from ._inputs import Precision, ToArray, call, converted
from ._judge import Case, Kind, angle_roundoff, hypotheses, judge, known
from ._laws import law, listed, named, near, number, runs, versus
from ._mask import MORE_KEYS, mask_case
from ._report import Float64, Reading, Report, further

__tracebackhide__ = True  # pytest shows the line of the implementation

# ---- slopes of ALiBi ----


def powers(count: int, bias_max: float, first: int = 1) -> Float64:
    """``2**(-bias_max h / count)``, h = first, first + 1, ..."""
    return np.asarray(2.0 ** (-bias_max * np.arange(first, first + count) / count))


def pieces(slopes: Float64) -> Case:
    """The right slopes, those of the power of two below, and of the next power."""
    power = 2 ** (len(slopes).bit_length() - 1)
    recipe = {"below": powers(power, 8.0), "above": powers(2 * power, 8.0)}
    return {"slopes": slopes, "known_slopes": True, "heads": len(slopes), **recipe}


SLOPES = hypotheses("slopes", powers=powers)


def read_slopes(c: Case, numbers: Float64, wanted: Float64) -> Iterator[Reading]:
    """Read the sign, then a known recipe, a factor, an order, or slopes of fewer heads."""
    if (numbers < 0).all():
        yield Reading("sign of slopes", "The slopes are negative; the bias is -slope |j - i|.", True)
        numbers = -numbers
    causes = known(SLOPES, c, lambda c: c["slopes"], numbers, lambda c, x: 1e-6 * abs(x), "slopes")
    heads, text = len(wanted), f"The slopes are {versus(numbers, wanted)}."
    fewer = next((n for n in range(1, heads) if near(numbers, np.resize(numbers[:n], heads), 1e-6)), heads)
    if causes:
        yield Reading("slopes", text, True, causes)
    elif not near(numbers, wanted, 1e-6):
        words = multiplied(numbers, wanted) or moved(numbers[:, None], wanted[:, None], "slope")
        if near(numbers[:fewer], reference.alibi_slopes(fewer), 1e-6):
            words = f"Head h has the slope of head h mod {fewer}, and these are the right slopes of {fewer} heads."
        yield Reading("slopes", f"{text} {words}".strip(), bool(words))


def _slope_bound(c: Case, wanted: Float64, u: float) -> Float64:
    """2**-x: x <= 8 has a relative error of 2 u, which is 11 u of the power."""
    return 16 * u * abs(wanted)


SLOPE = Kind("slopes", lambda c: c["slopes"], ("head",), _slope_bound, read=read_slopes)


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
    right = pieces(np.asarray(reference.alibi_slopes(heads)))
    report = judge(SLOPE, call("slopes", impl, heads), right, dtype)
    is_power = heads & (heads - 1) == 0
    return further(report, None, "numbers of heads that are no power of two (heads=12)") if is_power else report


# ---- buckets of T5 ----


def logarithmic(n: Float64, c: Case) -> Float64:
    """The number of the bucket of a side before it is cut to an integer."""
    exact, inside = c["exact"], c.get("inside", c["exact"])
    with np.errstate(all="ignore"):
        span = np.log(c["max_distance"] / (1 if c.get("no_ratio") else inside))
        large = np.log((n + c.get("log_offset", 0)) / inside) * c.get("log_times", 1.0)
        large = np.floor(large + 1e-9) if c.get("cut") == "before the division" else large
        ratio = np.floor(large / span + 1e-9) if c.get("cut") == "before the product" else large / span
        return np.asarray(exact + ratio * (c["side"] - exact))


def side_of(c: Case) -> Float64:
    """The buckets of the distances of one side."""
    n, large = c["n"], logarithmic(c["n"], c)
    cut = {"up": np.ceil(large - 1e-9), "round": np.rint(large)}.get(c.get("cut", ""), np.floor(large + 1e-9))
    return np.asarray(np.where(n < c["exact"], n, np.minimum(cut, c["last"])))


BUCKETS = hypotheses("buckets")
SIDES = hypotheses("side of buckets")
DISTANCES = (128, 64, 256, 512, 32, 1024, 96, 192, 384, 16, 48, 24, 768, 2048, 4096, 8192, *range(10, 1001, 10))
"""Maximal distances that are tried."""


def true_buckets(c: Case) -> Float64:
    options = {"num_buckets": c["buckets"], "max_distance": c["max_distance"], "bidirectional": c["bidirectional"]}
    return np.asarray(reference.t5_bucket(c["rel"], **options), np.float64)


def _undecided(c: Case, limit: float) -> Float64:
    """Infinite where a logarithm in float32 decides between two buckets, otherwise less than one bucket."""
    side = c["buckets"] // 2 if c["bidirectional"] else c["buckets"]
    of_side = {"exact": side // 2, "side": side, "max_distance": c["max_distance"]}
    value = logarithmic(abs(c["rel"]).astype(np.float64), of_side)
    value = np.where(np.isfinite(value), value, 0)
    near_edge = (abs(value - np.rint(value)) < 1e-5) & (value > side // 2 + 0.5)
    return np.where(near_edge & (abs(c["rel"]) < limit), np.inf, 0.5)


def read_buckets(c: Case, numbers: Float64, wanted: Float64) -> Iterator[Reading]:
    """Read what is added to all buckets, then each side: exact buckets, the last one, and where the others begin."""
    rel, got, right = (np.ravel(x).astype(float) for x in (c["rel"], numbers, wanted))
    more, at_0 = float(got.min()), got[rel == 0]
    if more and (at_0 == more).all():
        text = f"All buckets are {number(abs(more))} too {'large' if more > 0 else 'small'}."
        yield Reading("offset of buckets", text, True)
        got = got - more
        if (got == right).all():
            return
    compute, bound = (lambda c: true_buckets(c).ravel()), (lambda c, x: np.ravel(_undecided(c, c["max_distance"])))
    causes = known(BUCKETS, c, compute, got, bound, "buckets")
    if causes:
        yield Reading("buckets", f"The buckets of j - i = {listed(rel)} are {listed(got)}.", True, causes)
        return
    if len(at_0) and got[rel == 0][0]:
        text = f"Distance 0 has the bucket {number(got[rel == 0][0])}; expected 0: half of all is added"
        yield Reading("zero distance", f"{text} for j - i > 0, not >= 0.", True)
    found = []
    for sign, words in ((-1, "Of keys before the query: "), (1, "Of keys after the query: ")):
        order = np.argsort(sign * rel, kind="stable")
        order = order[sign * rel[order] > 0]
        one = _read_side(sign * rel[order], got[order], right[order], c, sign)
        found += [(words, one)] if one else []
    if len(found) == 2 and found[0][1].sentence == found[1][1].sentence:
        yield found[0][1]
    else:
        yield from (one._replace(sentence=words + one.sentence) for words, one in found)


def _read_side(n: Float64, got: Float64, right: Float64, c: Case, sign: int) -> Reading | None:
    """Read the buckets of the keys after the query, or of those before it."""
    side = c["buckets"] // 2 if c["bidirectional"] else c["buckets"]
    decided = np.ravel(_undecided({**c, "rel": sign * n}, np.inf)) < np.inf
    if not len(n) or (got == right)[decided].all():
        return None
    if sign > 0 and not c["bidirectional"]:
        return Reading("later keys", f"The buckets are {listed(got)}; expected 0.", True)
    half, expected = (float(one[0]) - 1 if sign > 0 else 0.0 for one in (got, right))
    if sign > 0 and not half:
        return Reading("sides", "They have the buckets of keys before it: half of all is not added.", True)
    got, exact = got - half, int(np.argmax(np.append(got - half != n, True)) + 1)
    last, more = float(got.max()), []
    if half != expected and (got == right - expected)[decided].all():
        return Reading("sides", f"{number(half)} is added to the buckets; expected {number(expected)}.", True)
    if last != right.max() - expected:
        more = [f"The last bucket of a side is {number(last)}; expected {side - 1}."]
    of = {**c, "n": n, "last": last, "exact": side // 2, "side": side}

    def said(distance: float) -> Reading | None:
        """The first numbers of exact and of all buckets with which the formula gives the buckets."""
        for size in dict.fromkeys((side, int(last + 1), 2 ** math.ceil(math.log2(last + 1)))):
            for start in (size // 2, *range(min(exact, size), 0, -1)):
                made = side_of({**of, "exact": start, "side": size, "max_distance": distance})
                if distance > start and (made == got)[decided].all():
                    far, exactly = c["max_distance"], f"The distances below {start} have a bucket each; expected below"
                    texts = [f"The number of buckets of a side is {size}; expected {side}."] * (size != side)
                    texts += [f"{exactly} {size // 2}."] * (start != size // 2)
                    texts += [f"max_distance is {distance:g}; expected {far}."] * (distance != far)
                    return Reading("buckets", " ".join(texts or more), True)
        return None

    if found := said(c["max_distance"]):
        return found
    starts = [[int(n[np.argmax(x == b)]) for b in np.unique(x) if b >= side // 2] for x in (got, right - expected)]
    text = f"The further buckets begin at the distances {versus(starts[0], starts[1])}."
    bound = np.where(decided, 0.5, np.inf)
    for start in dict.fromkeys((side // 2, max(exact - 1, 1), exact)):
        causes = known(SIDES, {**of, "exact": start}, side_of, got, bound, "buckets")
        if causes:
            return Reading("buckets", " ".join([*more, text]), True, causes)
    return next(filter(None, map(said, DISTANCES)), None) or Reading("buckets", " ".join([*more, text]))


def _distances(c: Case) -> dict[str, list[str]]:
    return {"distance": [f"j - i = {r}" for r in c["rel"].ravel()]}


def _bucket_bound(c: Case, wanted: Float64, u: float) -> Float64:
    return _undecided(c, c["max_distance"])


BUCKET = Kind("buckets", true_buckets, ("distance",), _bucket_bound, labels=_distances, read=read_buckets)


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
    case = {"rel": distances, "buckets": buckets, "max_distance": max_distance, "bidirectional": bidirectional}
    return judge(BUCKET, call("buckets", impl, converted(array, distances)), case, "float64")


# ---- matrices ----


def operator_of(c: Case) -> Any:
    """The operator of `posenc.reference` with the name, arrays, options and positions of one of posenc."""
    q, k = c["operator"].own_positions
    places = (c["bias_q"] if q is None else q, c["bias_k"] if k is None else k)
    arrays = {**c["arrays"], "slopes": c["slopes"]} if c["operator"].name == "alibi" else c["arrays"]
    made = getattr(reference, c["operator"].name)(**arrays, **c["options"])
    return made.at(q_positions=places[0], k_positions=places[1])


GRIDS = ("swin", "beit")
INDEXED = ("fox", "toeplitz", "dense", "tupe")
"""Operators whose arrays have a row for each query, whatever its position."""
PLACED = (*GRIDS, *INDEXED, "distance_function")
"""Operators whose arrays have a fixed number of positions, or that are unknown functions."""
OF_LOGARITHMS = ("alibi", "kerple_log", "kerple_power", "t5", "toeplitz", "dense", *GRIDS)
"""Operators whose numbers are read from an array, or have no argument but the distance and its logarithm."""
RELATIVE = ("shaw", "relative_key_query", "transformer_xl", "deberta")
"""Operators that read queries and keys, and the distance."""
SWAPPED = ("t5", "tisa", *RELATIVE, "fire")
"""Functions of the distance without symmetry: queries and keys exchanged are the other direction."""


MATRICES = (*hypotheses("bias", SWAPPED=SWAPPED, PLACED=PLACED, alibi=alibi), *SLOPES)
"""Known errors of the arguments of a bias."""


def of_operator(operator: Bias) -> Case:
    """Return the fields of the matrix of an operator."""
    given = operator.arrays._asdict()
    arrays = {name: np.array(x, np.float64) if isinstance(x, np.ndarray) else x for name, x in given.items()}
    slopes: Any = arrays.get("slopes")
    is_known = slopes is not None and np.allclose(slopes, reference.alibi_slopes(len(slopes)), rtol=1e-6)
    options, table = {**operator.options}, arrays.get("table", ())
    case = pieces(slopes) if is_known else {"slopes": slopes, "known_slopes": False}
    case |= {"operator": operator, "arrays": arrays, "options": options, "buckets": len(table)}
    defaults = {"bidirectional": True, "max_distance": 128}
    given = {name: value for name, value in options.items() if name in defaults and value is not None}
    return {**case, **defaults, **given}


def true_matrix(c: Case) -> Float64:
    made = operator_of(c)
    return np.asarray(made.equation(*made.reads(c["bias_q"], c["bias_k"])))


def _bias_bound(c: Case, wanted: Float64, u: float) -> Float64:
    """Four roundings of the result, and 16 of the argument. An error of a logarithm or an exponent of the distance
    grows with log m; an error of an angle, of a sum over keys and of a network with m. It is infinite where a causal
    mask hides the number anyway."""
    steps = np.log2(c["m"] + 1) if c["operator"].name in OF_LOGARITHMS else c["m"]
    size = abs(wanted[np.isfinite(wanted)]).max(initial=0) * (4 * u + 16 * steps * angle_roundoff(u))
    return np.where(c["causal"] & (c["mask_k"] > c["mask_q"][:, None]), np.inf, size)


# ---- readers of matrices ----


def multiplied(
    x: Float64,
    y: Float64,
    subject: str = "All numbers",
    known_numbers: Mapping[str, float] | None = None,
    tolerance: float = 1e-4,
) -> str:
    """Say by what numbers are multiplied, or nothing: by one factor, or by one for each head or each row."""
    for axes in (None,) if x.ndim == 1 else (None, (1, 2), (0, 2)):
        with np.errstate(all="ignore"):
            times = np.sum(x * y, axes, keepdims=True) / np.sum(y * y, axes, keepdims=True)
        if np.isfinite(times).any() and near(x, np.where(np.isfinite(times), times, 0) * y, tolerance):
            ratios = np.ravel(times)
            if near(ratios, 0 * ratios + 1):
                return ""  # the difference is smaller than what is read
            break
    else:
        return ""
    if axes == (1, 2):
        return f"{subject} are {listed(ratios)} times the right ones by head.{equal_heads(ratios, y)}"
    groups = {number(t): np.flatnonzero(abs(ratios - t) < 1e-3) for t in ratios[np.isfinite(ratios)]}
    if axes and len(groups) > 4:
        return f"{subject} of the queries are {listed(ratios)} times the right ones."
    words = [f"{t}{named(float(t), known_numbers)} times the right ones" for t in groups]
    if axes:
        words = [f"{text} for queries {runs(at)}" for text, at in zip(words, groups.values(), strict=True)]
    return f"{subject} are {', '.join(words)}."


def equal_heads(times: Float64, y: Float64) -> str:
    """Say which heads have the same bias, if they are in groups."""
    slopes = times * abs(y).max((1, 2))
    groups: list[list[int]] = []
    for head, slope in enumerate(slopes):
        if groups and abs(slope / slopes[groups[-1][0]] - 1) < 1e-3:
            groups[-1].append(head)
        else:
            groups.append([head])
    is_group = len(groups) < len(slopes) and len({len(group) for group in groups}) == 1
    return f" The heads {' and '.join(map(runs, groups))} have the same bias." if is_group else ""


def moved(x: Float64, y: Float64, what: str) -> str:
    """Say which heads are those of other heads, or nothing."""
    source = abs(x[:, None] - y[None]).reshape(len(x), len(y), -1).max(-1).argmin(1)
    if not near(x, y[source]) or (source == np.arange(len(x))).all():
        return ""
    words = law(np.arange(len(x)), source, "h") or listed(source)
    return f"Head h has the {what} of head {words}; expected of head h."


def read_matrix(c: Case, x: Float64, y: Float64) -> Iterator[Reading]:
    """Read a matrix of a bias, (H, n, m), where it is compared: factors, heads, axes, sides, and rows of a table."""
    rel, compared = c["bias_k"] - c["bias_q"][:, None], _bias_bound(c, y[0], 0.0) < np.inf

    def same(a: Float64, b: Float64, where: npt.NDArray[np.bool_] = compared) -> bool:
        return near(a[..., where], b[..., where])

    a, b = (np.where(compared, z, 0.0) for z in (x, y))
    words = moved(a, b, "bias") or multiplied(a, b)
    if words:
        yield Reading("bias", words, True)
    elif x.shape[-1] == x.shape[-2] and same(x, np.swapaxes(y, -1, -2)):
        yield Reading("axes", "The matrix is transposed: queries and keys are exchanged.", True)
    elif compared.all() and same(x, np.moveaxis(y, 0, -1).reshape(y.shape)):
        text = "The matrix (queries, keys, heads) is reshaped to (heads, queries, keys); expected transpose(2, 0, 1)."
        yield Reading("axes", text, True)
    elif rows := list(_read_rows(c, x, y, compared)):
        yield from rows
    elif same(x, y, compared & (rel <= 0)) or same(x, y, compared & (rel >= 0)):
        yield _one_sided(c, x, y, compared, rel)
    elif c["operator"].name == "alibi" and same(x, x[:, :1] + 0 * x):
        first = float(np.median(x[:, 0, 0] / c["arrays"]["slopes"]))
        text = f"slope * (j {'-' if first < 0 else '+'} {number(abs(first))})" if abs(first) > 1e-6 else "slope * j"
        text = f"The bias is {text}, by the key alone. A causal softmax does not notice it (check.attention)."
        is_ramp = same(x, c["arrays"]["slopes"][:, None, None] * (c["bias_k"] + first) + 0 * x)
        yield Reading("bias by key", text, is_ramp)
    else:
        head, query = (int(i) for i in np.argwhere(abs(a - b) > 1e-4 * (1 + abs(b)))[0][:2])
        text = f"For head {head} and query {query} the bias is {versus(a[head, query], b[head, query])}."
        words = _by_one_axis(c, x - y, compared) or _by_distance(x[head], y[head], rel, compared, head)
        yield Reading("bias", f"{text} {words}".strip(), bool(words))


def _by_one_axis(c: Case, off: Float64, compared: npt.NDArray[np.bool_]) -> str:
    """Say what is added, if it depends on the key or on the query alone."""
    seen = np.where(compared, off, np.nan)
    for axis, name in ((-2, "key"), (-1, "query")):
        of_place = np.nanmean(seen, axis)
        if near(np.where(compared, off - np.expand_dims(of_place, axis), 0), 0 * off):
            same = [key for key, one in c["arrays"].items() if np.shape(one) == of_place.shape and near(of_place, one)]
            more = f" It is {same[0]}." if same else ""
            softmax = " A softmax does not notice it (check.attention)." if name == "query" else ""
            return f"What is added depends on the {name} alone: {listed(of_place[0])} for head 0.{more}{softmax}"
    return ""


def _by_distance(x: Float64, y: Float64, rel: Float64, compared: npt.NDArray[np.bool_], head: int) -> str:
    """Say which function of the distance the bias of a head is, or of which other distance, if a law fits."""
    distance, values = abs(rel)[compared], x[compared]
    words = law(distance, values, "d")
    if words:
        return f"The bias of head {head} is {words} for the distance d."
    every, first = np.unique(distance, return_index=True)
    got, right = values[first], y[compared][first]
    source = every[abs(got[:, None] - right).argmin(1)]
    off = source != every
    words = law(every[off], source[off], "d") if near(got, right[np.searchsorted(every, source)]) else None
    return f"From {number(every[off][0])} on, distance d has the bias of distance {words}." if words else ""


def _one_sided(c: Case, x: Float64, y: Float64, compared: npt.NDArray[np.bool_], rel: Float64) -> Reading:
    """Say what a matrix has after the query, or before it, if it is right on the other side."""
    later = near(x[:, compared & (rel < 0)], y[:, compared & (rel < 0)])
    names = ("after", "before")[:: 1 if later else -1]
    where = compared & ((rel > 0) if later else (rel < 0))
    found, expected = x[:, where], y[:, where]
    if len(set(found.ravel())) == 1:
        has = number(float(found.flat[0]))
        text = f"Keys {names[0]} the query have {has}; expected a bias on both sides."
        return Reading("one side", f"{text} This is right for causal attention: pass causal=True.", True)
    if x.shape[-1] == x.shape[-2] and near(found, np.swapaxes(y, -1, -2)[:, where]):
        text = f"Keys {names[0]} the query have the numbers of keys {names[1]} it: the sign of the distance is lost."
        return Reading("one side", text, True)
    return Reading("one side", f"Keys {names[0]} the query have {versus(found[0], expected[0])}.")


def _read_rows(c: Case, x: Float64, y: Float64, compared: npt.NDArray[np.bool_]) -> Iterator[Reading]:
    """Read which row of a table each pair has."""
    name, table = c["operator"].name, c["arrays"].get("table")
    if name not in ("t5", *GRIDS) or x.size * len(table) > 2**24:
        return
    apart = [abs(np.moveaxis(one, 0, -1)[:, :, None] - table).max(-1) for one in (x, y)]
    row, right = (one.argmin(-1) for one in apart)
    if apart[0].min(-1)[compared].max() > 1e-4:
        return
    if name != "t5":
        yield from _read_grid(c, row, right)
        return
    rel = (c["bias_k"] - c["bias_q"][:, None])[compared].astype(int)
    places, first = np.unique(rel, return_index=True)
    rows, reach = row[compared][first], int(abs(places).max()) + 1
    if not near(row[compared], rows[np.searchsorted(places, rel)]):
        return
    for sign, shift in itertools.product((1, -1), range(-reach, reach)):
        if (true_buckets({**c, "rel": sign * places + shift}) == rows).all():
            text = f"j - i is taken for {'-' * (sign < 0)}(j - i) {'-' if shift < 0 else '+'} {abs(shift)}."
            yield Reading("distance", text, True)
            return
    yield from read_buckets({**c, "rel": places}, rows, right[compared][first])


def _read_grid(c: Case, row: npt.NDArray[np.intp], right: npt.NDArray[np.intp]) -> Iterator[Reading]:
    """Read the rows of the class token, and the row of two patches as a linear function of the step between them."""
    start, (height, width) = int(c["operator"].name == "beit"), (c["options"][side] for side in ("height", "width"))
    tokens, classes = slice(1, None), (("Class to patch", 0, slice(1, None)), ("Patch to class", slice(1, None), 0))
    for text, i, j in (*classes, ("Class to class", 0, 0)) if start else ():
        if (row[i, j] != right[i, j]).any():
            now, then = (listed(np.unique(one[i, j])) for one in (row, right))
            yield Reading("rows of the class token", f"{text} reads the rows {now}; expected {then}.", True)
    row, right = (one[tokens, tokens] if start else one for one in (row, right))
    token, last = np.arange(height * width), len(c["arrays"]["table"]) - 1
    for by_columns in (False, True) if (row != right).any() else ():
        place = np.stack(np.divmod(token, height)[::-1] if by_columns else np.divmod(token, width), -1)
        step = np.append(place[:, None] - place, np.ones((len(token), len(token), 1)), -1).reshape(-1, 3)
        inside = (abs(step) <= 1).all(1)
        laws = [np.rint(np.linalg.lstsq(step[inside], one.ravel()[inside], rcond=None)[0]) for one in (row, right)]
        if any((one == row.ravel()).all() for one in (np.clip(step @ laws[0], 0, last), step @ laws[0] % (last + 1))):
            now, then = (f"{a:g} dy + {b:g} dx + {first:g}" for a, b, first in laws)
            then = "rows and columns of tokens that are numbered along the rows" if by_columns else then
            text = f"The row of the table is {now} for the steps dy and dx of rows and columns"
            more = ", with tokens numbered down the columns" if by_columns else ""
            yield Reading("rows of the table", f"{text}{more}; expected {then}.", True)
            return


BIAS = Kind("bias", true_matrix, ("head", "query", "key"), _bias_bound, MATRICES, read=read_matrix)


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
    >>> print(report.causes[0].sentence)
    The row of the table is 7 dy + 1 dx + 26 for the steps dy and dx of rows and columns; expected 11 dy + 1 dx + 38.
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
        return judge(BIAS, call("bias", impl, n, keys, right=lambda: true_matrix(case)), case, dtype)

    report = run(n if m is None else m)
    far = int(dict(bias.options).get("max_distance") or 0)
    if (m or n) <= far:
        report = further(report, None, f"distances from {m or n} on, up to max_distance and beyond (n={far + 20})")
    takes_more = m is None and bias.name not in PLACED
    return further(report, (lambda: run(n + 5)) if causal else None, MORE_KEYS) if takes_more else report
