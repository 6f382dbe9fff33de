"""The checks of the softmax, of attention from end to end, and of decoding with a cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import Bias, PositionBias, reference
from ._biases import MATRICES, PLACED, of_operator, operator_of
from ._frequencies import angles
from ._inputs import Precision, ToArray, call, draw, parts, without_weights
from ._judge import Case, Kind, angle_roundoff, coarser, hypotheses, judge
from ._mask import BY_TOKEN, MORE_KEYS, Segments, Window, mask_case, mask_options, with_unseen_window
from ._read_attention import Probe, read_attention
from ._report import Array, Cause, Float64, Report, further, with_readings
from ._rope import layouts, rotation_error, true_rotation

__tracebackhide__ = True  # pytest shows the line of the implementation


def rows(c: Case, change: Callable[[Array, int], Array]) -> Case:
    """Tables of distances whose rows are read elsewhere: a function of the row and of the row of distance 0."""
    found = dict(c["arrays"])
    for name in ("rel_q", "rel_k", "rel_v", "table", "r") if c["reads_content"] else ():
        if found.get(name) is not None:
            count = found[name].shape[-2]
            row = np.clip(change(np.arange(count), count // 2), 0, count - 1)
            found[name] = found[name][..., row, :]
    return found


SOFTMAXES = hypotheses("softmax")
ATTENTIONS = (
    *SOFTMAXES,
    *hypotheses("attention"),
    *(h._replace(name=f"{h.name} (bias)") for h in MATRICES),
    *hypotheses("content", rows=rows),
)
"""Known errors of attention that are other arguments: of the softmax, of the bias and of the layout."""


def answer(c: Case, *given: Array, queries: slice = slice(None)) -> Callable[[], Float64]:
    """Return a function that computes the right output of some queries, for other queries, keys and values."""
    other = dict(zip("qkv", (x.astype(np.float64) for x in given), strict=True))
    return lambda: true_attention({**c, **other})[:, queries]


def longest(x: Float64) -> float:
    return float(np.sqrt((np.nan_to_num(np.atleast_1d(x)) ** 2).sum(-1)).max(initial=0))


def logit_error(c: Case, u: float) -> float:
    """Error of a logit: of the products, of two roundings, and of the rotation."""
    q, k = (longest(c[name]) for name in "qk")
    if c["reads_content"]:  # products of queries, keys and rows of tables
        tables = sum(longest(x) for x in c["arrays"].values() if x is not None)
        q, k = q + tables, k + tables
    size = q * k * np.max(abs(c["scale"])) * c["factor"] ** 2
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
    bias = None if c["operator"] is None else operator_of(c)
    options = {**mask_options(c), "bias": bias, **{name: c[name] for name in ("scale", "softcap", "sink")}}
    if c["v"] is None:
        return np.asarray(reference.attention_weights(q, k, **options))
    return np.asarray(reference.attention(q, k, c["v"], **options))


SOFTMAX = Kind("softmax", true_attention, ("head", "query", "key"), attention_bound, SOFTMAXES)
ATTENTION = Kind("attention", true_attention, ("head", "query", "channel"), attention_bound, ATTENTIONS)
CACHE = ATTENTION._replace(name="cache")


def attention_case(
    subject: str,
    heads: int,
    kv_heads: int,
    n: int,
    m: int,
    dim: int | None,
    dtype: Precision,
    options: Case,
    seed: int = 1,
) -> Case:
    """Draw queries, keys and values, and return the fields of attention. `options` are arguments of the check.

    If dim is None, it is the width of the frequencies, or 16.
    """
    names = ("causal", "window", "align", "segments", "bias", "frequencies", "layout", "scale", "softcap", "sink")
    found: list[Any] = [options.get(name) for name in names]
    causal, window, align, segments, bias, frequencies, layout, scale, softcap, sink = found
    case: Case = {"w": None, "operator": None, "reads_content": False, "softmax_factor": 1.0, "factor": 1.0}
    case |= {"axis": None, "decay": None, **mask_case(subject, n, m, causal, window, align, segments, options)}
    if frequencies is not None or layout is not None:
        turns = angles(subject, frequencies, dim if frequencies is not None else dim or 16)
        dim = dim or turns["width"]
        case |= {**turns, **layouts(subject, layout or turns["layout"], turns), "width": dim}
    dim = dim or 16
    if bias is not None:
        if not isinstance(bias, Bias) or len(bias.parts) > 1:
            has = f"is {bias.name}" if isinstance(bias, Bias) else f"has type {type(bias).__name__}"
            raise TypeError(f"check.{subject}: bias {has}; expected one operator, and no sum")
        case |= {**of_operator(bias), "bias_q": case["mask_q"], "bias_k": case["mask_k"]}
        case["reads_content"] = not isinstance(bias, PositionBias)
        default_scale = operator_of(case).default_scale
        scale = default_scale(dim) if scale is None and default_scale else scale
    shapes = ((heads, n, dim), (kv_heads, m, dim), (kv_heads, m, dim))
    given = [draw(*shape, dtype=dtype, seed=seed + i) for i, shape in enumerate(shapes)]
    q, k, v = (x.astype(np.float64) for x in given)
    scale = dim**-0.5 * case["softmax_factor"] if scale is None else scale
    if np.ndim(scale):
        scale = np.array(scale, np.float64)
        if scale.shape != (heads,) or case["reads_content"]:
            more = ", because the bias reads queries and keys"
            more = more if case["reads_content"] else f", or ({heads},), one for each head"
            raise ValueError(f"check.{subject}: scale has shape {scale.shape}; expected a number{more}")
    sink = None if sink is None else np.array(sink, np.float64)
    case |= {"given": given, "q": q, "k": k, "v": v, "heads": heads, "dim": dim, "scale": scale, "softcap": softcap}
    return {**case, "sink": sink, "q_at": case["mask_q"], "k_at": case["mask_k"]}


READ_SIZE = 2**15
"""Most weights of an implementation whose parts are read: a second of calls."""


def with_parts(report: Report, case: Case, applied: Callable[..., tuple[Float64, str]]) -> Report:
    """Read the parts of a wrong implementation, unless it is so large that this takes long."""
    shape = case["q"].shape[:-1] + case["v"].shape[-1:]

    def mine(q: Float64, k: Float64, v: Float64) -> Float64:
        if "start_of" in case:  # rows of a cache that another call has written may be seen
            applied(q, 0 * k, 0 * v)
        return applied(q, k, v)[0].reshape(shape)

    def right(q: Float64, k: Float64, v: Float64) -> Float64:
        return true_attention({**case, "q": q, "k": k, "v": v})

    if case["heads"] * case["n"] * case["m"] > READ_SIZE:
        more = () if report else ("reading the parts; pass smaller sizes.",)
        return replace(report, untried=(*report.untried, *more))
    probe = Probe(mine, right, case, case["q"], case["k"], case["v"], report.precision)
    return with_readings(report, lambda: read_attention(probe))


GROUPED = "grouped heads (kv_heads=2)"
SECOND_ROW = "a second batch row"
LONGEST = 512
"""The largest window of a cache for which longer chunks are tried."""


def batched(x: Array, row: int | None, seed: int) -> Array:
    """Give x an axis for the batch: x alone, or as a row of two, the other of which is drawn."""
    if row is None:
        return x[None]
    rows = [draw(*x.shape, dtype="float64", seed=90 + seed).astype(x.dtype)] * 2
    rows[row] = x
    return np.stack(rows)


def grouped(heads: int) -> int | None:
    """Return fewer heads of keys, if their grouping can show."""
    return next((groups for groups in (2, 3, 5) if heads % groups == 0 and groups < heads), None)


def softmax(
    impl: Callable[..., object],
    *,
    heads: int = 3,
    n: int = 9,
    m: int | None = None,
    dim: int | None = None,
    scale: npt.ArrayLike | None = None,
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
        Sizes. By default m is n, and then, with `causal`, n + 5; dim is 16.
    scale : float or array (heads,), optional
        By default ``dim**-0.5``. An array has one number for each head.
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

    options = {"scale": scale, "softcap": softcap, "sink": sink, "causal": causal, "window": window, "align": align}

    def run(keys: int) -> Report:
        case = attention_case("softmax", heads, heads, n, keys, dim, dtype, options)
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

    keys = n if m is None else m
    report = run(keys)
    if m is None and causal:
        report, keys = further(report, lambda: run(n + 5), MORE_KEYS), n + 5
    return with_unseen_window(report, "softmax", n, keys, options)


def attention(
    impl: Callable[..., object],
    *,
    causal: bool = False,
    align: str = "end",
    window: Window | None = None,
    bias: Bias | None = None,
    frequencies: object = None,
    layout: str | None = None,
    scale: npt.ArrayLike | None = None,
    softcap: float | None = None,
    sink: npt.ArrayLike | None = None,
    segments: Segments | None = None,
    keep: npt.ArrayLike | None = None,
    q_positions: npt.ArrayLike | None = None,
    k_positions: npt.ArrayLike | None = None,
    heads: int = 6,
    kv_heads: int | None = None,
    n: int = 9,
    m: int | None = None,
    dim: int | None = None,
    batch: bool = False,
    dtype: Precision = "float32",
    array: ToArray = np.asarray,
) -> Report:
    """Check attention from queries, keys and values to the output.

    Parameters
    ----------
    impl : callable
        ``impl(q, k, v)`` returns the output (heads, n, dim) of queries (heads, n, dim), keys and values
        (kv_heads, m, dim). Of a tuple (output, weights) or (output, None) the output is checked.
    causal, align, window, bias
        As in `posenc.attention`; `bias` is one operator, not a sum.
    frequencies, layout : optional
        As in `rope`, if `impl` rotates queries and keys. The softmax factor of the frequencies multiplies the scale.
    scale, softcap, sink
        As in `posenc.attention`.
    segments : (array (n,), array (m,)), optional
        The segments of queries and keys.
    keep, q_positions, k_positions : array, optional
        As in `mask`. The positions are also those of the bias and of the rotation.
    heads, kv_heads, n, m, dim : int
        Sizes. By default kv_heads is `heads`, m is n, and dim is the width of the frequencies, or 16. If `impl` is
        right, it then gets fewer heads of keys, which show an error of grouped heads, and, with `causal`, n + 5 keys,
        which show an error of alignment.
    batch : bool
        True adds an axis before the heads: of length one, and then, if `impl` is right, of two.
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

    options = {"causal": causal, "align": align, "window": window, "bias": bias, "frequencies": frequencies}
    options |= {"layout": layout, "scale": scale, "softcap": softcap, "sink": sink, "segments": segments}
    options |= {"keep": keep, "q_positions": q_positions, "k_positions": k_positions}

    def run(groups: int, keys: int, row: int | None = None) -> Report:
        case = attention_case("attention", heads, groups, n, keys, dim, dtype, options)
        stored = case["given"][0].dtype

        def applied(*given: Array, changed: int = -1) -> tuple[Float64, str]:
            passed = [batched(x, row, i + 3 * (i == changed)) for i, x in enumerate(given)] if batch else given

            def right() -> Float64:
                return np.array([answer(case, *one)() for one in (zip(*passed, strict=True) if batch else [passed])])

            called = call("attention", impl, *(array(x.astype(stored)) for x in passed), right=right)
            (out,), precision = parts("attention", without_weights(called, n, keys), 1)
            return out if row is None else out[row], coarser(dtype, precision)

        out, precision = applied(*case["given"])
        report = judge(ATTENTION, out, case, precision)
        if row is not None and not report:
            after = [applied(*case["given"], changed=i)[0] for i in range(3)]
            names = [name for name, one in zip("qkv", after, strict=True) if not np.allclose(one, out, atol=1e-3)]
            if names:
                sentence = f"Batch row {row} depends on the {' and '.join(names)} of another batch row."
                evidence = "measured: another batch row was changed."
                return replace(report, causes=(Cause("batch rows", sentence, evidence, ""),))
        return with_parts(report, case, applied)

    groups, keys, fewer = kv_heads or heads, n if m is None else m, grouped(heads)
    report = run(groups, keys)
    if batch:
        report = further(report, lambda: run(groups, keys, 1), SECOND_ROW)
    if kv_heads is None and fewer:
        report = further(report, lambda: run(fewer, keys), GROUPED)
    is_placed = (bias is not None and bias.name in PLACED) or any(options[name] is not None for name in BY_TOKEN)
    fits = m is None and segments is None and not is_placed
    if fits and (causal or window or bias or layout or frequencies):
        report = further(report, (lambda: run(groups, n + 5)) if causal else None, MORE_KEYS)
    return with_unseen_window(report, "attention", n, n + 5 if fits and causal else keys, options)


# ---- decoding with a cache ----


def cache(
    impl: Callable[..., object],
    *,
    chunks: Sequence[int] = (4, 1, 1, 3),
    window: Window | None = None,
    bias: Bias | None = None,
    frequencies: object = None,
    layout: str | None = None,
    scale: npt.ArrayLike | None = None,
    softcap: float | None = None,
    sink: npt.ArrayLike | None = None,
    heads: int = 6,
    kv_heads: int | None = None,
    dim: int | None = None,
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
        values of earlier chunks. A chunk with start 0 begins a new sequence; two are tried. Of a tuple (output,
        weights) or (output, None) the output is checked.
    chunks : sequence of int
        The lengths of the chunks. If none is longer than the window, (left + 3, 1, 1, 3, 3, ...) are tried, too, for
        two rounds of a ring buffer.
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
    options = {"causal": True, "window": window, "align": "end", "bias": bias, "frequencies": frequencies}
    options |= {"layout": layout, "scale": scale, "softcap": softcap, "sink": sink}

    def run(groups: int, seed: int = 1, chunks: Sequence[int] = chunks, row: int | None = None) -> Report:
        total, starts = sum(chunks), np.cumsum([0, *chunks[:-1]])
        case = attention_case("cache", heads, groups, total, total, dim, dtype, options, seed)
        stored = case["given"][0].dtype

        def applied(*sequence: Array) -> tuple[Float64, str]:
            """Pass a sequence chunk by chunk."""
            outs, dtypes = [], []
            for start, chunk in zip(starts, chunks, strict=True):
                given = [x[:, start : start + chunk].astype(stored) for x in sequence]
                rows = [batched(one, row, start + i) for i, one in enumerate(given)] if batch else given
                arrays = (array(one) for one in rows)
                right = answer(case, *sequence, queries=slice(start, start + chunk))
                called = call("cache", impl, *arrays, int(start), right=right)
                (out,), precision = parts("cache", without_weights(called, chunk), 1)
                outs.append(out if row is None else out[row])
                dtypes.append(precision)
            return np.concatenate(outs, -2), coarser(dtype, *dtypes)

        out, precision = applied(*case["given"])
        start_of, chunk = np.repeat(starts, chunks), np.repeat(np.arange(len(chunks)), chunks)
        case |= {"start_of": start_of, "end_of": np.repeat(np.cumsum(chunks), chunks), "age": chunk[:, None] - chunk}
        case |= {"in_chunk": case["k_at"] - start_of}
        return with_parts(judge(CACHE, out, case, precision), case, applied)

    def second() -> Report:
        again = run(kv_heads or heads, 5)
        sentence = "The first sequence is right, but not the next one: start 0 does not empty the cache."
        change = "Empty the cache, and set its count to 0, if start is 0."
        cause = Cause("not reset", sentence, "the first sequence is right, and the second is not.", change)
        return again if again else replace(again, causes=(cause,), readings=())

    report = further(run(kv_heads or heads), second, "a second sequence")
    if batch:
        report = further(report, lambda: run(kv_heads or heads, row=1), SECOND_ROW)
    if window is not None and window[0] is not None and window[0] + 1 >= max(chunks):
        longer = (int(window[0]) + 3, 1, 1, *[3] * (int(window[0]) // 3 + 1))
        fits = window[0] <= LONGEST  # the weights of a longer sequence take gigabytes
        what = f"a chunk longer than the window, {window[0] + 3}, and two rounds of a ring buffer"
        report = further(report, (lambda: run(kv_heads or heads, chunks=longer)) if fits else None, what)
    fewer = grouped(heads)
    return further(report, lambda: run(fewer), GROUPED) if kv_heads is None and fewer else report
