"""The checks of the softmax, of attention from end to end, and of decoding with a cache."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from .. import Bias, PositionBias, reference
from .biases import MATRICES, PLACED, matrix_of, of_operator, operator_of, other_sizes
from .frequencies import FREQUENCIES, angles
from .inputs import Precision, ToArray, call, draw, parts
from .judge import Case, Kind, angle_roundoff, coarser, guarded, hypotheses, judge, on_one_side, when, within
from .judge import Hypothesis as H
from .mask import MASKS, MORE_KEYS, Segments, Window, mask_case, mask_options, some_rows, visible
from .read_attention import Probe, read_attention
from .report import Array, Cause, Float64, Report, further, measured
from .rope import OTHER, ROTATION, layouts, rotate, rotation_error, true_rotation


def _turned(x: Float64, at: Float64, c: Case) -> Float64:
    """Rotated keys, (heads, m, dim); or (heads, n, m, dim) if their positions depend on the query."""
    return rotate(x if at.ndim == 1 else np.broadcast_to(x[:, None], (len(x), *at.shape, x.shape[-1])), at, c)


def attend(c: Case) -> Float64:
    """Attention, or its weights if there are no values, with the errors that the fields of the case name."""
    q, k, v, scale, cap, unit = (c[name] for name in ("q", "k", "v", "scale", "softcap", "unit"))
    if c["w"] is not None:
        q = rotate(q, c["q_at"], {**c, **c["of_queries"]}) if "q" in c["rotated"] else q
        k = _turned(k, c["k_at"], {**c, **c["of_keys"]}) if "k" in c["rotated"] else k
        v = rotate(v, c["v_at"], c) if "v" in c["rotated"] else v
    blocks = np.arange(c["heads"]) // c["share"]
    modulo = np.arange(c["heads"]) % c["groups"]
    k = k[modulo if c["k_grouping"] == "modulo" else blocks]
    if k.ndim == 4:
        logits = (k @ q[..., None])[..., 0]
    else:
        logits = k @ q.swapaxes(-1, -2) if c["exchanged"] else q @ k.swapaxes(-1, -2)
    seen, hide, present = visible(c), c["hide"], c["present"]
    added: Float64 | float = 0.0
    if c["operator"] is not None:
        content = (q, k, seen & present, scale) if c["reads_content"] else None
        added = c["bias_times"] * matrix_of({**c, "content": content})
    if c["bias_scaled"]:
        logits, added = logits + added, 0.0
    logits = scale * logits
    if c["bias_capped"]:
        logits, added = logits + added, 0.0
    if cap not in (None, np.inf):
        logits = cap * np.tanh(logits / cap)
    logits = unit * (logits + added)
    logits = np.where(seen, logits, logits if hide is None else unit * hide)
    logits = np.where(present, logits, -np.inf)
    axis = -2 if c["over_queries"] else -1
    top = logits.max(axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    extra: Float64 | float = 0.0
    if c["sink"] is not None:
        extra = np.exp(np.reshape(c["sink"], (-1, 1, 1)) - (top if c["sink_shifted"] else 0.0))
    if c["zero_rows"] is not None:  # logits of 0
        extra = extra + c["zero_rows"][:, None] * np.exp(-top)
    weights = np.exp(logits - top)
    if c["normalised"]:
        total = weights.sum(axis, keepdims=True) + extra
        weights = weights / np.where(total == 0, 1.0, total)
    else:
        weights = weights * np.exp(top)
    weights = np.where(seen, weights, 0.0) if hide is None else weights
    out = weights if v is None else weights @ v[modulo if c["v_grouping"] == "modulo" else blocks]
    if c["reads_content"] and (to_values := operator_of(c).added_to_values):
        added = to_values(*(c["matrix_rel"] * c[name] for name in ("bias_q", "bias_k")))
        out = out + (weights[..., None, :] @ added)[..., 0, :]
    if c["heads_exchanged"]:
        out = np.swapaxes(out.reshape(-1, c["share"], *out.shape[1:]), 0, 1).reshape(out.shape)
    return np.swapaxes(out, 0, 1).reshape(out.shape) if c["reshaped"] else np.asarray(out)


def factor_of(power: float) -> Callable[[Case], object]:
    return when(lambda c: c["softmax_factor"] != 1)(lambda c: c["scale"] * c["softmax_factor"] ** power)


rotating, biased, capped, sinking = when("rotation"), when("bias"), when("cap"), when("sink")


SOFTMAX_FIELDS: Case = {
    "w": None, "v": None, "rotated": "qk", "k_grouping": "blocks", "v_grouping": "blocks", "exchanged": False,
    "operator": None, "bias_times": 1.0, "bias_scaled": False, "reads_content": False, "softcap": None,
    "bias_capped": False, "hide": -np.inf, "unit": 1.0, "over_queries": False, "sink": None, "sink_shifted": True,
    "normalised": True, "softmax_factor": 1.0, "zero_rows": None, "heads_exchanged": False,
    "reshaped": False, "present": np.True_, "cos_factor": 1.0,
    "sin_factor": 1.0, "factor": 1.0, "axis": None, "decay": None,
}  # fmt: skip
SOFTMAXES = hypotheses(
    "softmax",
    {
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
    },
)


CLIPPED = ("shaw", "relative_key_query")
"""Operators whose tables end at the distance at which they clip."""


def edited(change: Callable[[Float64, Case], object], *names: str) -> Callable[[Case], object]:
    """The arrays of an operator that reads queries and keys, with a change of some of them."""

    def field(c: Case) -> object:
        given = {name: c["arrays"][name] for name in names if c["reads_content"] and c["arrays"].get(name) is not None}
        found = {name: change(table, c) for name, table in given.items()}
        return {**c["arrays"], **found} if found and all(one is not None for one in found.values()) else None

    return field


def _rows(change: Callable[[Array, int, Case], object]) -> Callable[[Case], object]:
    """Tables of distances whose rows are read elsewhere: a function of the row and of the row of distance 0."""

    def of_table(table: Float64, c: Case) -> object:
        count = table.shape[-2]
        row = change(np.arange(count), count // 2, c)
        return None if row is None else table[..., np.clip(np.asarray(row), 0, count - 1), :]

    return edited(of_table, "rel_q", "rel_k", "rel_v", "table", "r")


def _cut(end: int) -> Callable[[Array, int, Case], object]:
    """The rows of a longer table, if it is cut at one end: as many as there are distances."""

    def change(row: Array, zero: int, c: Case) -> object:
        left = zero - (max(c["past"] + c["n_of_call"], c["m"]) - 1)
        return row + end * left if left > 0 else None

    return change


def _wrapped(row: Array, zero: int, c: Case) -> object:
    """The rows of all distances, of which those before the first row are counted from the last."""
    reach = c["m"] + c["n_of_call"]
    at = zero + np.arange(-reach, reach + 1)
    return np.where(at < 0, at % len(row), np.minimum(at, len(row) - 1))


def _other_p2c(c: Case) -> object:
    options = c["options"] if c["reads_content"] else {}
    return {**options, "p2c_index": OTHER[options["p2c_index"]]} if "p2c" in options.get("terms", ()) else None


CONTENTS = hypotheses(
    "content",
    {
        **{
            f"no {name}": {"arrays": edited(lambda x, c: 0 * x, name)} for name in ("rel_q", "rel_k", "rel_v", "u", "v")
        },
        "direction of p2c": {"options": _other_p2c},
        "clipped one earlier": {"arrays": _rows(lambda row, zero, c: np.clip(row, 1, len(row) - 2))},
        "distance without its sign": {"arrays": _rows(lambda row, zero, c: zero + abs(row - zero))},
        "distance without its sign, downwards": {"arrays": _rows(lambda row, zero, c: zero - abs(row - zero))},
        "last row of the table not used": {"arrays": _rows(lambda row, zero, c: np.minimum(row, len(row) - 2))},
        "first row of the table not used": {"arrays": _rows(lambda row, zero, c: np.maximum(row, 1))},
        "negative rows": {
            "arrays": when(lambda c: c["reads_content"] and c["operator"].name in CLIPPED)(_rows(_wrapped))
        },
        "shift of the other row": {
            "shifted": when(lambda c: c["reads_content"] and c["operator"].name == "transformer_xl")(True)
        },
        "first rows of the table": {"arrays": _rows(_cut(-1))},
        "last rows of the table": {"arrays": _rows(_cut(1))},
    },
)
"""Known errors of operators that read queries and keys."""


ROTATED = (
    *guarded((h for h in ROTATION if "positions" not in h.fields), rotating),
    *guarded(FREQUENCIES, rotating),
    *hypotheses(
        "rotated attention",
        {
            "values rotated": {"rotated": rotating(lambda c: "qkv" if c["v"].shape[-1] == c["k"].shape[-1] else None)},
            "queries one late": {"q_at": rotating(lambda c: c["q_at"] + 1)},
            "queries one early": {"q_at": rotating(lambda c: c["q_at"] - 1)},
        },
    ),
)
unequal = when("unequal")
ATTENTIONS = (
    *SOFTMAXES,
    *MASKS,
    *hypotheses(
        "attention",
        {
            "bias divided by the scale": {
                "bias_times": biased(lambda c: None if c["reads_content"] else 1 / c["scale"])
            },
            "alignment in the rotation": {"q_at": rotating(unequal(lambda c: c["other_q"]))},
            "alignment everywhere": {
                name: when("positions")(unequal(lambda c: c["other_q"])) for name in ("q_at", "mask_q", "bias_q")
            },
        },
    ),
    *guarded((h for h in MATRICES if "future" not in h.fields and not h.name.startswith("bias by")), biased, " (bias)"),
    *CONTENTS,
    *ROTATED,
)
"""Known errors of attention: of the softmax, the mask, the bias and the rotation."""


def longest(x: Float64) -> float:
    return float(np.sqrt((np.nan_to_num(np.atleast_1d(x)) ** 2).sum(-1)).max(initial=0))


def logit_error(c: Case, u: float) -> float:
    """Error of a logit: of the products, of two roundings, and of the rotation."""
    q, k = (longest(c[name]) for name in "qk")
    if c["reads_content"]:  # products of queries, keys and rows of tables
        tables = sum(longest(x) for x in c["arrays"].values() if x is not None)
        q, k = q + tables, k + tables
    size = q * k * abs(c["scale"]) * max(c["cos_factor"], c["sin_factor"]) ** 2
    at = np.append(c["q_at"], c["k_at"])
    turns = 0.0 if c["w"] is None else float(rotation_error(c, at, u).max(initial=0))
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


def one_side(c: Case) -> Iterable[H]:
    """The same errors of queries or of keys alone, and the sizes of T5's table."""
    rotated = on_one_side(h for h in ROTATED if "rotated" not in h.fields) if c["w"] is not None else ()
    of_t5 = c["operator"] is not None and c["operator"].name == "t5"
    return itertools.chain(rotated, other_sizes(c, np.zeros(0)) if of_t5 else ())


NEED_ALL = frozenset(
    ["over_queries", "exchanged", "mask_transposed", "transposed", "matrix_reshaped", "shifted", "reshaped"]
)
"""Fields whose numbers depend on all queries."""
SOFTMAX = Kind(
    "softmax",
    true_attention,
    attend,
    (*SOFTMAXES, *MASKS),
    ("head", "query", "key"),
    attention_bound,
    part=some_rows,
    whole=NEED_ALL,
)
OF_OUTPUT = ("head", "query", "channel")
ATTENTION = Kind(
    "attention",
    true_attention,
    attend,
    ATTENTIONS,
    OF_OUTPUT,
    attention_bound,
    part=some_rows,
    whole=NEED_ALL,
    rare=one_side,
)


def attention_case(
    subject: str,
    heads: int,
    kv_heads: int,
    n: int,
    m: int,
    dim: int,
    dtype: Precision,
    causal: bool,
    window: Window | None,
    align: str,
    segments: Segments | None,
    bias: Bias | None,
    frequencies: object,
    layout: str | None,
    scale: float | None,
    softcap: float | None,
    sink: object,
    seed: int = 1,
) -> Case:
    """Draw queries, keys and values, and return the fields of attention."""
    case: Case = {**SOFTMAX_FIELDS, **mask_case(subject, n, m, causal, window, align, segments)}
    if bias is not None:
        if not isinstance(bias, Bias) or len(bias.parts) > 1:
            has = f"is {bias.name}" if isinstance(bias, Bias) else f"has type {type(bias).__name__}"
            raise TypeError(f"check.{subject}: bias {has}; expected one operator, and no sum")
        case |= of_operator(bias)
        case["reads_content"] = case["bias_scaled"] = not isinstance(bias, PositionBias)
        made = operator_of(case)
        scale = made.default_scale(dim) if scale is None and made.default_scale else scale
    if frequencies is not None or layout is not None:
        turns = angles(subject, frequencies, dim)
        case |= {**turns, **layouts(subject, layout or turns["layout"], turns), "width": dim}
    given = (
        draw(heads, n, dim, dtype=dtype, seed=seed),
        *(draw(kv_heads, m, dim, dtype=dtype, seed=seed + i) for i in (1, 2)),
    )
    case |= {
        "given": given,
        **{name: x.astype(np.float64) for name, x in zip("qkv", given, strict=True)},
        "heads": heads,
        "groups": kv_heads,
        "share": heads // max(kv_heads, 1),
        "n_of_call": n,
        "dim": dim,
        "softcap": softcap,
        "sink": None if sink is None else np.array(sink, np.float64),
        **dict.fromkeys(("q_at", "bias_q"), case["mask_q"]),
        **dict.fromkeys(("k_at", "v_at", "bias_k"), case["mask_k"]),
        "scale": dim**-0.5 * case["softmax_factor"] if scale is None else scale,
        "root_of_dim": dim**0.5,
        "scale_of_dim": dim**-0.5,
        "scale_of_model": (heads * dim) ** -0.5,
    }
    return case


def is_known(cause: Cause) -> bool:
    """Sizes that an implementation need not take show known errors only, not what was read."""
    return bool(cause.change)


READ_SIZE = 2**15
"""Most weights of an implementation whose parts are read: a second of calls."""


def with_parts(report: Report, case: Case, applied: Callable[..., tuple[Float64, str]]) -> Report:
    """Read the parts of a wrong implementation, unless it is so large that this takes long."""
    shape = case["q"].shape[:-1] + case["v"].shape[-1:]

    def mine(q: Float64, k: Float64, v: Float64) -> Float64:
        return applied(q, k, v)[0].reshape(shape)

    def right(q: Float64, k: Float64, v: Float64) -> Float64:
        return true_attention({**case, "q": q, "k": k, "v": v})

    if case["heads"] * case["n_of_call"] * case["m"] > READ_SIZE:
        return (
            report if report else replace(report, untried=(*report.untried, "reading the parts; pass smaller sizes."))
        )
    probe = Probe(mine, right, case, case["q"], case["k"], case["v"], report.precision)
    return measured(report, lambda: read_attention(probe))


GROUPED = "grouped heads (kv_heads=2)"


def grouped(heads: int) -> int | None:
    """Return fewer heads of keys, if their grouping can show."""
    return next((groups for groups in (2, 3, 5) if heads % groups == 0 and groups < heads), None)


def softmax(
    impl: Callable[..., object],
    *,
    heads: int = 3,
    n: int = 9,
    m: int | None = None,
    dim: int = 16,
    scale: float | None = None,
    softcap: float | None = None,
    sink: npt.ArrayLike | None = None,
    causal: bool = False,
    window: Window | None = None,
    align: str = "end",
    dtype: Precision = "float32",
    array: ToArray = np.asarray,
) -> Report:
    """Check the scale, the cap, the mask and the softmax of attention.

    Parameters
    ----------
    impl : callable
        ``impl(q, k)`` returns the weights (heads, n, m) of queries (heads, n, dim) and keys (heads, m, dim).
    heads, n, m, dim : int
        Sizes. By default m is n, and then, with `causal`, n + 5.
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

    def run(keys: int) -> Report:
        case = attention_case(
            "softmax",
            heads,
            heads,
            n,
            keys,
            dim,
            dtype,
            causal,
            window,
            align,
            None,
            None,
            None,
            None,
            scale,
            softcap,
            sink,
        )
        stored = case["given"][0].dtype

        def applied(q: Array, k: Array) -> tuple[Float64, str]:
            called = call("softmax", impl, *(array(x.astype(stored)) for x in (q, k)))
            (found,), precision = parts("softmax", called, 1)
            return found, coarser(dtype, precision)

        def with_values(q: Float64, k: Float64, v: Float64) -> tuple[Float64, str]:
            found, precision = applied(q, k)
            return found.reshape(heads, n, keys) @ v, precision

        found, precision = applied(*case["given"][:2])
        report = judge(SOFTMAX, found, {**case, "v": None}, precision)
        return with_parts(report, case, with_values)

    report = run(n if m is None else m)
    return further(report, lambda: run(n + 5), MORE_KEYS, is_known) if m is None and causal else report


def attention(
    impl: Callable[..., object],
    *,
    causal: bool = False,
    align: str = "end",
    window: Window | None = None,
    bias: Bias | None = None,
    frequencies: object = None,
    layout: str | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink: npt.ArrayLike | None = None,
    segments: Segments | None = None,
    heads: int = 6,
    kv_heads: int | None = None,
    n: int = 9,
    m: int | None = None,
    dim: int = 16,
    batch: bool = False,
    dtype: Precision = "float32",
    array: ToArray = np.asarray,
) -> Report:
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
        Sizes. By default kv_heads is `heads` and m is n. If `impl` is right, it then gets fewer heads of keys, which
        show an error of grouped heads, and, with `causal`, n + 5 keys, which show an error of alignment.
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
    >>> posenc.check.attention(mine, causal=True, m=9).right
    True
    >>> print(posenc.check.attention(mine, causal=True).causes[0].sentence)
    The mask puts query i at position i; expected i + 5.
    """

    def run(groups: int, keys: int) -> Report:
        case = attention_case(
            "attention",
            heads,
            groups,
            n,
            keys,
            dim,
            dtype,
            causal,
            window,
            align,
            segments,
            bias,
            frequencies,
            layout,
            scale,
            softcap,
            sink,
        )
        stored = case["given"][0].dtype

        def applied(*given: Array) -> tuple[Float64, str]:
            called = call("attention", impl, *(array((x[None] if batch else x).astype(stored)) for x in given))
            (out,), precision = parts("attention", called, 1)
            return out, coarser(dtype, precision)

        out, precision = applied(*case["given"])
        report = judge(ATTENTION, out, case, precision)
        return with_parts(report, case, applied)

    groups, keys, fewer = kv_heads or heads, n if m is None else m, grouped(heads)
    report = run(groups, keys)
    if kv_heads is None and fewer:
        report = further(report, lambda: run(fewer, keys), GROUPED, is_known)
    is_placed = bias is not None and bias.name in PLACED
    if m is not None or segments is not None or is_placed or not (causal or window or bias or layout or frequencies):
        return report
    return further(report, (lambda: run(groups, n + 5)) if causal else None, MORE_KEYS, is_known)


# ---- decoding with a cache ----


def attend_in_chunks(c: Case) -> Float64:
    """Attention by chunks of queries; `later` are the fields of chunks after the first."""
    if not c["later"]:
        return attend(c)
    return np.where(c["start_of"][:, None] > 0, attend({**c, **c["later"]}), attend(c))


def _age(c: Case) -> Float64:
    """The number of chunks between each query and each key."""
    return np.asarray(c["chunk_of"][:, None] - c["k_chunk_of"])


def _first(c: Case) -> npt.NDArray[np.bool_]:
    """Whether each query is in the first chunk, (n, 1)."""
    return np.asarray(c["start_of"] == 0)[:, None]


def _from_the_window(more: int) -> dict[str, object]:
    """Positions that count the keys in the window only."""

    def of(k: str) -> object:
        at = when("reach")(lambda c: c[f"{k}in_chunk"] + np.minimum(c[f"{k}start_of"], c["reach"] + more))
        return rotating(at)

    return {"q_at": of(""), "k_at": of("k_")}


CACHES = (
    *hypotheses(
        "cache",
        {
            "cached keys rotated again": {"k_at": rotating(lambda c: c["k_at"] * (np.maximum(_age(c), 0) + 1))},
            "cached before the rotation": {"k_at": rotating(lambda c: c["k_at"] * (_age(c) == 0))},
            "cached keys at the new position": {
                "k_at": rotating(
                    lambda c: np.where((c["end_of"] - c["start_of"] == 1)[:, None], c["q_at"][:, None], c["k_at"])
                )
            },
            "cached keys lost": {"present": lambda c: c["present"] & (c["mask_k"] >= c["start_of"][:, None])},
            "cache read before the update": {
                "present": lambda c: c["present"] & ((c["mask_k"] < c["start_of"][:, None]) | _first(c))
            },
            "last key of a chunk overwritten": {
                "present": lambda c: (
                    c["present"] & ((c["mask_k"] != c["k_end_of"] - 1) | (c["mask_k"] >= c["start_of"][:, None]))
                )
            },
            "hole": {"zero_rows": lambda c: 1.0 * (c["start_of"] > 0)},
            "window of the last query": {
                "present": when("reach")(
                    lambda c: c["present"] & ((c["mask_k"] >= c["end_of"][:, None] - 1 - c["reach"]) | _first(c))
                )
            },
            "offset from the window": _from_the_window(0),
            "offset from the window and the query": _from_the_window(1),
        },
    ),
    *(
        h
        for h in ATTENTIONS
        if "alignment" not in h.name
        and h.name
        not in (
            "queries and keys exchanged",
            "polarity",
            "transposed mask",
            "queries one late",
            "queries one early",
            "softmax over queries",
            "transposed (bias)",
        )
    ),
)
WHERE = {"q_at", "k_at", "bias_q", "mask_q", "present", "zero_rows", "window_q"}
"""Fields that say which keys a chunk has, and where."""


def _in_parts(c: Case) -> Iterator[H]:
    """Errors of one side of the rotation, of the code of later chunks, and of rows that are not written yet."""
    yield from one_side(c)
    for h in CACHES:
        if not WHERE & h.fields.keys() and (c.get("bidirectional", True) or h.name != "direction (bias)"):
            sentence = f"After the first chunk: {h.sentence}"
            yield H(f"{h.name} after the first chunk", sentence, h.change, {"later": within(h)})
    zeros = ZEROS[0]
    for size in (c["m"], 2 * c["m"], *(2**power for power in range(4, 14))):
        for first, most in ((0, np.inf), (1, np.inf), (1, 1)):  # a prompt may be masked, and single tokens not

            def rows(c: Case, size: int = size, first: int = first, most: float = most) -> Float64:
                seen = (c["start_of"] >= first) & (c["end_of"] - c["start_of"] <= most)
                return np.asarray(np.maximum(size - c["end_of"], 0.0) * seen)

            yield zeros._replace(sentence=zeros.sentence.replace("{size}", str(size)), fields={"zero_rows": rows})


ZEROS, NOT_RESET = hypotheses("rows of zeros"), hypotheses("second sequence")
CACHE = Kind(
    "cache",
    true_attention,
    attend_in_chunks,
    CACHES,
    OF_OUTPUT,
    attention_bound,
    part=some_rows,
    whole=NEED_ALL,
    rare=_in_parts,
)


def cache(
    impl: Callable[..., object],
    *,
    chunks: Sequence[int] = (4, 1, 1, 3),
    window: Window | None = None,
    bias: Bias | None = None,
    frequencies: object = None,
    layout: str | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink: npt.ArrayLike | None = None,
    heads: int = 6,
    kv_heads: int | None = None,
    dim: int = 16,
    batch: bool = False,
    dtype: Precision = "float32",
    array: ToArray = np.asarray,
) -> Report:
    """Check causal attention that stores keys and values, chunk by chunk, against attention to the whole sequence.

    Parameters
    ----------
    impl : callable
        ``impl(q, k, v, start)`` returns the output of the queries of a chunk (heads, chunk, dim). It gets the queries,
        keys and values of the chunk alone, before their rotation, and the position of the first; it keeps the keys and
        values of earlier chunks. A chunk with start 0 begins a new sequence; two are tried.
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
    total, starts = sum(chunks), np.cumsum([0, *chunks[:-1]])

    def run(groups: int, seed: int = 1, kind: Kind = CACHE) -> Report:
        case = attention_case(
            "cache",
            heads,
            groups,
            total,
            total,
            dim,
            dtype,
            True,
            window,
            "end",
            None,
            bias,
            frequencies,
            layout,
            scale,
            softcap,
            sink,
            seed,
        )
        stored = case["given"][0].dtype

        def applied(*sequence: Array) -> tuple[Float64, str]:
            """Pass a sequence chunk by chunk."""
            outs, dtypes = [], []
            for start, chunk in zip(starts, chunks, strict=True):
                given = [x[:, start : start + chunk].astype(stored) for x in sequence]
                called = call("cache", impl, *(array(one[None] if batch else one) for one in given), int(start))
                (out,), precision = parts("cache", called, 1)
                outs.append(out)
                dtypes.append(precision)
            return np.concatenate(outs, -2), coarser(dtype, *dtypes)

        out, precision = applied(*case["given"])
        at, start_of, end_of = case["k_at"], np.repeat(starts, chunks), np.repeat(np.cumsum(chunks), chunks)
        of_tokens = {
            "start_of": start_of, "end_of": end_of, "chunk_of": np.repeat(np.arange(len(chunks)), chunks),
            "in_chunk": at - start_of, "one_late": at + (start_of > 0), "one_early": at - (start_of > 0),
            "first_twice": at + chunks[0] * (start_of > 0), "start_twice": at + start_of,
            "after_update": at - start_of + end_of,
        }  # fmt: skip
        case |= {**of_tokens, **{f"k_{name}": x for name, x in of_tokens.items()}, "window_start": 1.0 * start_of}
        case |= {"present": np.arange(total) < end_of[:, None], "later": {}, "reach": (window or (None,))[0]}
        report = judge(kind, out, case, precision)
        return with_parts(report, case, applied) if kind is CACHE else report

    def second() -> Report:
        again = run(kv_heads or heads, 5, CACHE._replace(hypotheses=(), rare=lambda c: ()))
        h = NOT_RESET[0]
        cause = Cause(h.name, h.sentence, "the first sequence is right, and the second is not.", h.change)
        return again if again else replace(again, causes=(cause,), excluded=())

    report = further(run(kv_heads or heads), second, "a second sequence")
    fewer = grouped(heads)
    return further(report, lambda: run(fewer), GROUPED, is_known) if kv_heads is None and fewer else report
