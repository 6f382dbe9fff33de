"""The check of merged attention: results over parts of the keys, joined by their log-sum-exps."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from .. import reference
from ._inputs import SEED, Precision, ToArray, call, draw
from ._judge import Case, Kind, angle_roundoff, as_numbers, coarser, hypotheses, judge, known
from ._laws import listed, near, runs, versus
from ._report import Float64, Reading, Report, further, with_readings

__tracebackhide__ = True  # pytest shows the line of the implementation

Merge = Callable[[Float64, Float64], list[Float64]]
"""A function of outputs (parts, heads, n, dim) and log-sum-exps (parts, heads, n), which returns out, or out and lse"""


def softmax(x: Float64) -> Float64:
    """The softmax over the parts."""
    return np.asarray(np.exp(x - np.logaddexp.reduce(x)))


def third(lses: Float64, joint: Float64) -> Float64:
    """The weights if parts 0 and 1 are merged, and then part 2, with a joint log-sum-exp of the first two."""
    outer = softmax(np.stack([joint, lses[2]]))
    return np.stack([*(softmax(lses[:2]) * outer[0]), outer[1]])


WEIGHTS, LSES = hypotheses("weights", softmax=softmax, third=third), hypotheses("lse")
"""Known errors of the weights of parts, and of the log-sum-exp of the result."""
HUGE, EMPTY = "log-sum-exps of 800 and -800", "parts without a key (lse = -inf)"
WHY = {
    HUGE: "exp(lse) overflows, or its sum is 0: subtract the maximum over the parts before exp.",
    EMPTY: "A part without a key has lse = -inf and weight 0; -inf - (-inf) and 0 times inf are NaN.",
}


def _out_bound(c: Case, wanted: Float64, u: float) -> float:
    """The exponent of a weight has the rounding errors of log-sum-exps, and each part that is merged adds one."""
    steps, size = 4 + len(c["lses"]), abs(c["lses"][np.isfinite(c["lses"])]).max(initial=0)
    return float((angle_roundoff(u) * (size + 2) + 2 * u) * steps * abs(c["outs"]).max(initial=0))


def _lse_bound(c: Case, wanted: Float64, u: float) -> Float64:
    return u * (4 + len(c["lses"])) * (np.where(np.isfinite(wanted), abs(wanted), 0) + 2)


OUT = Kind("merge", lambda c: c["out"], ("head", "query", "channel"), _out_bound)
LSE = Kind("merge", lambda c: c["lse"], ("head", "query"), _lse_bound)


def read_merge(c: Case, merge: Merge) -> Iterator[Reading]:
    """Read the weight of each part by outputs that are 1 in it and 0 in the others, then the log-sum-exp."""
    lses, right = c["lses"], c["w"]
    ones = np.eye(len(lses))[:, :, None, None, None] + 0 * c["outs"]
    w = np.array([merge(one, lses)[0][..., 0] for one in ones])
    out, *more = merge(c["outs"], lses)
    is_finite = all(np.isfinite(one).all() for one in more)
    is_cause = {
        HUGE: not (is_finite and near(w.sum(0), np.ones(w.shape[1:]), 1e-2)),
        EMPTY: not is_finite or (w[np.isinf(lses)] != 0).any(),
    }
    why = WHY[c["inputs"]] if is_cause.get(c["inputs"]) else ""
    wrong = ~np.isclose(w, right, 0, 1e-4).all(0)
    if wrong.any():
        head, query = (int(i) for i in np.argwhere(wrong)[0])
        given, text = (listed(lses[:, head, query]), versus(w[:, head, query], right[:, head, query]))
        text = f"{why} For head {head} and query {query}, the weights of parts with lse {given} are {text}.".strip()
        order = abs(w[:, None] - right).max((2, 3)).argmin(1)
        is_exchange = near(w, right[order])
        text += f" They are exchanged: those of the parts {listed(order)}." * is_exchange
        unused = np.flatnonzero(abs(w).max((1, 2)) < 1e-6)
        text += f" The parts {runs(unused)} are not used." * bool(len(unused))
        causes = known(WEIGHTS, c, lambda c: c["w"], w, 1e-4, "weights")
        yield Reading("weights", text, bool(why or is_exchange or causes or len(unused)), causes)
    elif not near(out, c["out"]):
        yield Reading("outputs", "The weights are right, but the result is not the weighted sum of the outputs.")
    if more and not near(more[0], c["lse"], 1e-5):
        text = f"{why} The log-sum-exps of head 0 are {versus(more[0][0], c['lse'][0])}.".strip()
        causes = known(LSES, c, lambda c: c["lse"], more[0], lambda c, x: 1e-4 * (1 + abs(x)), "lse")
        yield Reading("log-sum-exp", text, bool(why or causes), causes)


def merge(
    impl: Callable[..., object],
    *,
    parts: int = 3,
    heads: int = 2,
    n: int = 6,
    dim: int = 8,
    dtype: Precision = "float32",
    array: ToArray = np.asarray,
) -> Report:
    """Check the merge of attention over disjoint parts of the keys into attention over all keys.

    Parameters
    ----------
    impl : callable
        ``impl(outs, lses)`` returns out (heads, n, dim), or (out, lse), of the outputs of the parts (parts, heads, n,
        dim) and their log-sum-exps (parts, heads, n), natural logarithms. lse has shape (heads, n).
    parts, heads, n, dim : int
        Sizes. If `impl` is right, it then gets log-sum-exps of 800 and -800, and parts without a key, whose output is
        0 and whose log-sum-exp is -inf.
    dtype : {"float32", "float64", "bfloat16", "float16"}
        Precision of the outputs. Log-sum-exps are float32, or float64 if the outputs are.
    array : callable
        Converts the inputs, such as ``torch.as_tensor``.

    Returns
    -------
    Report

    Examples
    --------
    >>> import numpy as np, posenc, posenc.check
    >>> posenc.check.merge(posenc.merge_attention).right
    True
    >>> def mine(outs, lses):
    ...     weights = np.exp2(lses - lses.max(0))
    ...     return (weights[..., None] * outs).sum(0) / weights.sum(0)[..., None]
    >>> print(posenc.check.merge(mine).causes[0].sentence)
    The weights of the parts are powers of 2, but lse is a natural logarithm.
    """

    def run(inputs: str) -> Report:
        outs = draw(parts, heads, n, dim, dtype=dtype)
        lses = 2 * draw(parts, heads, n, dtype="float64" if dtype == "float64" else "float32", seed=SEED + 1)
        if inputs == HUGE:
            lses += np.where(np.arange(n) % 2, -800, 800).astype(lses.dtype)
        elif inputs == EMPTY:  # part 0, part 1, ..., then all parts but one
            empty = np.arange(parts)[:, None] == np.arange(n) % (parts + 1)
            empty |= (np.arange(n) % (parts + 1) == parts) & (np.arange(parts)[:, None] < parts - 1)
            lses[np.broadcast_to(empty[:, None], lses.shape)] = -np.inf
            outs[np.isinf(lses)] = 0
        case: Case = {"outs": outs.astype(np.float64), "lses": lses.astype(np.float64), "inputs": inputs}
        case["out"], case["lse"] = reference.merge_attention(case["outs"], case["lses"])
        case["w"] = np.exp(case["lses"] - case["lse"])
        dtypes: list[str] = [dtype]

        def applied(*given: Float64) -> list[Float64]:
            found = call("merge", impl, *(array(x.astype(y.dtype)) for x, y in zip(given, (outs, lses), strict=True)))
            out, *more = found if isinstance(found, tuple | list) and len(found) == 2 else [found]
            numbers = [as_numbers(one, "merge") for one in (out, *more) if one is out or one is not None]
            dtypes.extend(name for _, name in numbers)
            return [x for x, _ in numbers]

        results = applied(case["outs"], case["lses"])
        report = judge(OUT, results[0], case, coarser(*dtypes))
        if report and len(results) == 2:
            report = judge(LSE, results[1], case, coarser(*dtypes))
        return with_readings(report, lambda: read_merge(case, applied))

    report = further(run(""), lambda: run(HUGE), HUGE)
    return further(report, lambda: run(EMPTY), EMPTY) if parts > 1 else report
