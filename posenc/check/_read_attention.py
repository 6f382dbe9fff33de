"""Readers of attention: its values, heads, queries, keys, the sums of its weights and their proportions.

A reader calls the implementation with chosen inputs, and the right attention with the same inputs. It is used only if
the implementation is wrong. A part that hides the inner ones ends the reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ._biases import moved, multiplied, true_matrix
from ._frequencies import read_frequencies
from ._judge import ROUNDOFF, Case, hypotheses, known, rounded
from ._laws import law, listed, named, near, number, runs, solved, versus
from ._mask import read_mask, visible
from ._report import Array, Float64, Reading

Attention: TypeAlias = Callable[[Float64, Float64, Float64], Float64]
"""Attention of q (heads, n, dim), k and v (kv heads, m, dim)."""
Bool: TypeAlias = npt.NDArray[np.bool_]
SMALLEST = 1e-12
"""A weight below is 0."""
CAPS = np.geomspace(0.1, 1e3, 400)
"""Caps of logits that are tried."""


TURNS = hypotheses("turns")
"""Known errors of the positions by which attention rotates, and histories of them in a cache."""


def _any(reads: Bool, axis: int | tuple[int, ...]) -> Bool:
    return np.asarray(reads.any(axis))


class Probe(NamedTuple):
    """An implementation, the right attention, and inputs with which they differ."""

    impl: Attention
    right: Attention
    case: Case
    q: Float64
    k: Float64
    v: Float64
    precision: str

    @property
    def tolerance(self) -> float:
        """The largest error of a number that counts as equal."""
        return max(1e-4, 16 * ROUNDOFF[self.precision])

    @property
    def numbers(self) -> dict[str, float]:
        """Numbers by which logits may be multiplied."""
        names = {"scale": "scale", "dim": "width of heads", "heads": "number of heads"}
        names |= {"softmax_factor": "softmax factor", "factor": "attention factor"}
        found = {
            f"the {words}": float(self.case[name]) for name, words in names.items() if np.ndim(self.case[name]) == 0
        }
        for name, words in (("n", "queries"), ("m", "keys")):
            found[f"the width of heads over the number of {words}"] = self.case["dim"] / self.case[name]
        return found

    def weights(self, attention: Attention, q: Float64, k: Float64) -> Float64:
        """Return the weights (heads, n, m): the output for values that are 1 at one key, less the output for 0."""
        without = attention(q, k, 0 * self.v)
        columns = []
        for start in range(0, self.v.shape[-2], self.v.shape[-1]):
            size = min(self.v.shape[-1], self.v.shape[-2] - start)
            one = np.zeros(self.v.shape)
            one[:, start + np.arange(size), np.arange(size)] = 1.0
            columns.append((attention(q, k, one) - without)[..., :size])
        return np.concatenate(columns, -1)


def read_attention(probe: Probe) -> Iterator[Reading]:
    """Read the parts of attention that are wrong."""
    out, again = (probe.impl(probe.q, probe.k, probe.v) for _ in range(2))
    if not near(np.nan_to_num(out), np.nan_to_num(again), 1e-6):
        text = (
            "The same call gives other numbers the second time: something is kept between calls, or random (dropout)."
        )
        yield Reading("repetition", text, True)
        return
    lost, blind = _any(np.isnan(out), (0, 2)), ~_any(visible(probe.case), 1)
    if lost.any() and not (lost & ~blind).any():
        text = f"The queries {runs(lost)} see no key, and their output is NaN; expected 0."
        yield Reading("empty rows", text, True)
        return
    if lost.any():
        yield Reading("numbers", f"The output is NaN for the queries {runs(lost)}.")
        return
    for part in (_values, _rounding, _axis, _queries, _heads, _keys, _order, _sums, _proportions, _added):
        readings = list(part(probe))
        yield from readings
        if part is _heads and readings and all(one.explained for one in readings):
            probe = probe._replace(right=_with_heads(probe.right, *(_sources(probe, which) for which in ("k", "v"))))
        elif readings and not (part is _keys and readings[0].part in ("keys", "window")):
            return


def _values(probe: Probe) -> Iterator[Reading]:
    """Read whether the output is the sum of the values, times the weights."""
    q, k, v = probe.q, probe.k, probe.v
    out, without = probe.impl(q, k, v), probe.impl(q, k, 0 * v)
    if near(out, without, probe.tolerance):
        of_keys = k.shape == v.shape and near(out, probe.right(q, k, k), probe.tolerance)
        more = " It is the weighted sum of the keys: keys are used as values." if of_keys else ""
        yield Reading("values", f"The output does not depend on the values.{more}", of_keys)
        return
    if not near(probe.impl(q, k, -v) - without, without - out, 10 * probe.tolerance):
        yield Reading("values", "The output is not linear in the values.")
        return
    one = np.zeros(v.shape)
    one[..., 0] = 1.0
    reached = np.flatnonzero(abs(probe.impl(q, k, one) - without).max((0, 1)) > 10 * probe.tolerance)
    if list(reached) != [0]:
        text = f"Channel 0 of the values reaches the channels {runs(reached)} of the output; expected 0 alone."
        turned = len(reached) == 2 and probe.case["w"] is not None
        yield Reading("values", f"{text} Values are rotated." if turned else text, turned)


def _added(probe: Probe) -> Iterator[Reading]:
    """Read what is added to the values: the output for values of 0."""
    got, expected = (attention(probe.q, probe.k, 0 * probe.v) for attention in (probe.impl, probe.right))
    if not near(got, expected, 10 * probe.tolerance):
        missing = near(got, 0 * got, probe.tolerance)
        more = ": the term that is added to the values is missing" if missing else ""
        text = f"With values of 0 the output is off by up to {number(float(abs(got - expected).max()))}{more}."
        yield Reading("values", text, missing)


def _rounding(probe: Probe) -> Iterator[Reading]:
    """Read whether the weights are numbers of 16 bits."""
    weights, right = (probe.weights(attention, probe.q, probe.k) for attention in (probe.impl, probe.right))
    for dtype in ("bfloat16", "float16"):
        on_grid = [bool((one == rounded(one, dtype)).all()) for one in (weights, right)]
        if ROUNDOFF[probe.precision] < ROUNDOFF[dtype] and on_grid == [True, False]:
            yield Reading("rounding", f"All weights are numbers of {dtype}; expected {probe.precision}.", True)
            return


def _changed(attention: Attention, probe: Probe, which: str, axis: int) -> Bool:
    """Return whether each head and query (heads, n) changes with a head or a token of q, k or v, (count, heads, n)."""
    given = {"q": probe.q, "k": probe.k, "v": probe.v}
    before = attention(*given.values())
    found = []
    for i in range(given[which].shape[axis]):
        other = given[which].copy()
        index = (i,) if axis == 0 else (slice(None), i)
        other[index] = 1 - 1.5 * other[index]
        after = attention(*{**given, which: other}.values())
        same = np.isclose(after, before, rtol=0, atol=probe.tolerance / 10, equal_nan=True)
        found.append(~np.asarray(same).all(-1))
    return np.array(found, bool)


def _axis(probe: Probe) -> Iterator[Reading]:
    """Read whether the softmax is over the queries or the heads."""
    got = probe.weights(probe.impl, probe.q, probe.k)
    for axis, name in ((-2, "queries"), (0, "heads")):
        if near(got.sum(axis), 1 + 0 * got.sum(axis), 1e-3) and not near(got.sum(-1), 1 + 0 * got.sum(-1), 1e-3):
            text = f"The weights of a key sum to 1 over the {name}; expected the weights of a query over the keys."
            yield Reading("axis of the softmax", text, True)


def _queries(probe: Probe) -> Iterator[Reading]:
    """Read which query each row of the output depends on."""
    changed = [_changed(probe.impl, probe, "q", axis) for axis in (1, 0)]  # (queries or heads, heads, rows)
    heads, n = changed[0].shape[1:]
    flat = np.arange(heads * n).reshape(heads, n)
    query, head = (one.argmax(0) for one in changed)
    right = [(query == flat % n), (head == flat // n)]
    for one, name, of in zip(changed, ("query", "head"), (flat % n, flat // n), strict=True):
        several = np.argwhere(one.sum(0) > 1)
        if len(several):
            h, row = (int(i) for i in several[0])
            reads = np.flatnonzero(one[:, h, row])
            text = f"Row {row} of the output of head {h} depends on the {name} {runs(reads)}; expected {of[h, row]}."
            is_shift = probe.case["reads_content"] and list(reads) == [row - 1, row]
            more = " The relative shift drops the last row of the padded matrix; expected the first, x[:, 1:]."
            yield Reading("queries", text + more * is_shift, is_shift)
            return
    if all(one.all() for one in right) or not all(_any(one, 0).all() for one in changed):
        return
    by_axes = (query == flat // heads).all() and (head == flat % heads).all()
    own_keys = heads > 1 and (_sources(probe, "k") == np.arange(heads) // (heads // len(probe.k))).all()
    if own_keys and not right[1].all():  # the keys of each row are those of its head: q is in another order
        h, row = (int(i) for i in np.argwhere(~(right[0] & right[1]))[0])
        text = f"Row {row} of head {h} has the query {query[h, row]} of head {head[h, row]}, and the keys of head {h}"
        more = "q (queries, heads, dim) is reshaped to (heads, queries, dim); expected transpose(0, 1)" * bool(by_axes)
        yield Reading("queries", f"{text}: {more or 'the heads of q are in another order'}.", True)
    elif by_axes:
        text = "The output (queries, heads, dim) is reshaped to (heads, queries, dim); expected transpose(0, 1)."
        yield Reading("axes of the output", text, True)
    elif right[0].all() and (head == head[:, :1]).all():
        words = law(np.arange(heads), head[:, 0], "h") or listed(head[:, 0])
        yield Reading("order of heads", f"Head h of the output is the result of head {words}; expected of h.", True)
    else:
        of_row = law(np.arange(n), query[0], "i") if right[1].all() and (query == query[0]).all() else None
        h, row = (int(i) for i in np.argwhere(~(right[0] & right[1]))[0])
        text = f"Row {row} of the output depends on the query {query[h, row]}; expected {row} alone."
        yield Reading("queries", f"{text} Row i reads query {of_row}." if of_row else text, of_row is not None)


def _with_heads(right: Attention, of_keys: Array, of_values: Array) -> Attention:
    """The right attention with the heads that were read."""
    return lambda q, k, v: right(q, k[of_keys], v[of_values])


def _sources(probe: Probe, which: str) -> Array:
    """Return the head of keys or values that each query head uses."""
    return np.asarray(_any(_changed(probe.impl, probe, which, 0), 2).T.argmax(1))


def _heads(probe: Probe) -> Iterator[Reading]:
    """Read which head of keys and of values each query head uses."""
    heads, groups = len(probe.q), len(probe.k)
    expected = np.arange(heads) // (heads // groups)
    for which, name in (("k", "keys"), ("v", "values")):
        reads = _any(_changed(probe.impl, probe, which, 0), 2).T
        if (reads.sum(1) == 1).all() and (reads.argmax(1) != expected).any():
            found = reads.argmax(1)
            words = law(np.arange(heads), found, "h") or listed(found)
            right = law(np.arange(heads), expected, "h") or listed(expected)
            text = f"Query head h reads the {name} of head {words}; expected {right}."
            yield Reading("heads", f"{text} Repeat each head in a row (repeat_interleave).", True)
        elif (reads.sum(1) > 1).any():
            head = int(reads.sum(1).argmax())
            text = f"Query head {head} reads the {name} of the heads {runs(reads[head])}; expected"
            yield Reading("heads", f"{text} {expected[head]} alone.")


def _keys(probe: Probe) -> Iterator[Reading]:
    """Read which keys and which values each query uses. Small logits leave no weight so small that it seems 0."""
    probe = probe._replace(q=0.1 * probe.q)
    got, expected = (
        [_any(_changed(attention, probe, which, 1), 1).T for which in ("k", "v")]
        for attention in (probe.impl, probe.right)
    )
    several = (got[1].sum(1) > 1) & (expected[1].sum(1) > 1)  # the weight of a single key is 1, whatever the key is
    apart = _any(got[0] != got[1], 1) & several
    if apart.any() and (expected[0] == expected[1])[several].all():
        yield next(_order(probe), None) or _apart(probe, got, expected[1], int(np.flatnonzero(apart)[0]))
    else:
        yield from read_mask(probe.case, got[1], expected[1])


def _apart(probe: Probe, got: list[Bool], expected: Bool, row: int) -> Reading:
    """Say how the keys and the values that a query uses differ: by hidden keys, or by values that are lost."""
    if (got[0] <= expected).all() and (expected <= got[1]).all() and (expected != got[1]).any():
        weights = probe.weights(probe.impl, probe.q, 0 * probe.k)
        hidden = np.log(weights / weights.max(-1, keepdims=True))[:, got[1] & ~expected]
        value = float(np.median(hidden))
        text = f"Hidden keys have a weight: their logit is {number(round(value, 3))}; expected -inf."
        return Reading("hidden logits", text, probe.case["operator"] is None and near(hidden, 0 * hidden + value, 1e-2))
    if (got[1] == expected).all() and (expected <= got[0]).all():
        text = f"Query {row} reads the values {runs(got[1][row])}, and its sum of weights the keys"
        text = f"{text} {runs(got[0][row])}: the mask multiplies the weights after the softmax."
        return Reading("hidden logits", text, True)
    names = (("keys", got[0]), ("values", got[1]))[
        :: -1 if (got[1] == expected)[row].all() else 1
    ]  # the wrong one last
    text = f"Query {row} reads the {names[0][0]} {runs(names[0][1][row])}, but the {names[1][0]}"
    never = np.flatnonzero(~_any(got[1], 0) & _any(got[0], 0))
    more = f" The values of the keys {runs(never)} are never read." if len(never) else ""
    return Reading("keys", f"{text} {runs(names[1][1][row])}; expected {runs(expected[row])}.{more}", True)


def _order(probe: Probe) -> Iterator[Reading]:
    """Read which value the logit of each key weighs: a change of one key changes the proportion of one value."""
    if probe.case["reads_content"]:  # logits depend on other keys
        return
    q, found = 0.1 * probe.q, []
    before = probe.weights(probe.impl, q, probe.k)
    before = np.where(before > SMALLEST, before, np.nan)
    for j in range(before.shape[-1]):
        other = probe.k.copy()
        other[:, j] = 1 - 1.5 * other[:, j]
        ratio = probe.weights(probe.impl, q, other) / before
        change = np.nan_to_num(abs(ratio / np.nanmedian(ratio, -1, keepdims=True) - 1)).mean(0)
        found.append(np.where(change.max(-1) > 10 * probe.tolerance, change.argmax(-1), -1))
    of_query, seen, count = np.array(found).T, (~np.isnan(before)).all(0).sum(-1), len(found)  # (queries, keys)
    keys, last = np.arange(count), of_query[-1]
    shift = int(np.median(last - keys))
    is_order = sorted(last) == list(keys) or (shift and (last == np.clip(keys + shift, 0, count - 1)).all())
    if seen[-1] > 2 and is_order and (last != keys).any():
        same = ((of_query == last) | (of_query < 0))[seen > 2].all()
        words = law(keys, last, "j") or law(keys[1:-1], last[1:-1], "j") or listed(last)
        text = f"weight of key j multiplies the value {words}; expected j. Keys and values are in another order."
        yield Reading("values", f"The {text}" if same else f"For query {len(of_query) - 1}, the {text}", True)


def _sums(probe: Probe) -> Iterator[Reading]:
    """Read the sums of the weights: if keys are 0, the denominator counts them."""
    got, expected = (probe.weights(attention, probe.q, 0 * probe.k) for attention in (probe.impl, probe.right))
    total, right, case = got.sum(-1), expected.sum(-1), probe.case
    if (got < 0).any() and near(np.exp(got), expected, 10 * probe.tolerance):
        yield Reading("sum of weights", "The weights are the logarithms of the right ones.", True)
        return
    if near(total, right, 5e-3):
        yield from _sums_of_random_keys(probe)
        return
    used = (expected > SMALLEST).sum(-1)
    row = int(abs(np.nan_to_num(total) - right).max(0).argmax())
    row = total.shape[1] - 1 if not near(total[:, -1], right[:, -1], 5e-3) else row
    text = f"If all keys are 0, the weights of query {row} sum by head to {listed(total[:, row])}; expected"
    text = f"{text} {listed(right[:, row])}."
    more = used / total - used
    if near(total * used, right, 10 * probe.tolerance):
        yield Reading("sum of weights", f"{text} They are divided by the number of keys.", True)
    elif near(got, 1.0 * (expected > 0), probe.tolerance):
        yield Reading("sum of weights", f"{text} The weights are exp(logits), not divided by their sum.", True)
    elif case["operator"] is None and (more > -1e-3).all() and case["sink"] is not None:
        sinks = np.log(np.maximum(more.mean(-1), SMALLEST))
        words = f"the sinks {listed(sinks)}" if (sinks > -10).all() else "no sink"
        times = np.exp(sinks - case["sink"])
        often = round(float(times.mean()))
        again = f" exp(sink) is added {often} times." * (often > 1 and near(times, often + 0 * times, 1e-2))
        yield Reading("sink", f"{text} The sum holds {words}; expected {listed(case['sink'])}.{again}", True)
    elif case["operator"] is None and (more > -1e-3).all() and (right > 0).all():
        rows = np.rint(more[0])
        words = f"{text} The denominator holds {runs(rows)} more than the sum over the keys, as rows of zeros"
        ends = case.get("end_of", 0) + rows
        is_cache = "end_of" in case and np.ptp(ends[rows > 0]) == 0
        size = f" of a cache of {number(float(ends[rows > 0][0]))} rows" if is_cache else ""
        same = near(more, rows + 0 * more, 1e-2)
        yield Reading("sum of weights", f"{words}{size} that are not masked have." if same else text, same)
    else:
        yield Reading("sum of weights", text)


def _sums_of_random_keys(probe: Probe) -> Iterator[Reading]:
    """Read sums of weights that are right if keys are 0."""
    got, expected = (probe.weights(attention, probe.q, probe.k) for attention in (probe.impl, probe.right))
    now, then = got.sum(-1), expected.sum(-1)
    if near(now, then, 10 * probe.tolerance):
        return
    if probe.case["sink"] is not None:  # exp(sink) = s, the sum of exp(logit) = s then / (1 - then)
        size = np.exp(probe.case["sink"])[:, None] / (1 - then)
        top = expected.max(-1) * size
        if near(np.log(size * then * (1 / now - 1) / (size - size * then)), np.log(top), 1e-2):
            text = "exp(sink) is added to a sum of exp(logit - maximum); expected exp(sink - maximum)."
            yield Reading("sink", text, True)
    elif near(then, 1 + 0 * then, probe.tolerance):
        yield from _joined(probe)
        text = "If all keys are 0 the weights of a query sum to 1, but with random keys they sum to"
        yield Reading("sum of weights", f"{text} {listed(now[0])} for the queries of head 0; expected 1.", True)


def _logarithms(probe: Probe, q: Float64, k: Float64, least: float = 1e-4) -> list[Float64]:
    """Return the logarithms of weights, NaN where one is below the least: its logarithm is inexact."""
    got, expected = (probe.weights(attention, q, k) for attention in (probe.impl, probe.right))
    seen = (got > least) & (expected > least)
    return [np.log(np.where(seen, one, np.nan)) for one in (got, expected)]


def _centred(logarithms: Float64) -> Float64:
    """Subtract the mean of each query; a NaN becomes 0."""
    seen = ~np.isnan(logarithms)
    mean = np.nansum(logarithms, -1, keepdims=True) / np.maximum(seen.sum(-1, keepdims=True), 1)
    return np.where(seen, logarithms - mean, 0.0)


def _joined(probe: Probe) -> Iterator[Reading]:
    """Read whether keys fall into a few parts, within which the proportions of weights are right."""
    got, expected = _logarithms(probe, probe.q, probe.k, SMALLEST)
    off = got - expected
    steps = np.nanmax(abs(np.diff(off, axis=-1)), (0, 1), initial=0)
    cuts = np.flatnonzero(steps > 1e-2) + 1
    m = off.shape[-1]
    if not len(cuts) or len(cuts) > max(m // 3, 1) or np.isnan(off).any() or np.delete(steps, cuts - 1).max() > 1e-2:
        return
    parts = np.split(np.arange(m), cuts)
    text = f"Within the keys {' and '.join(runs(part) for part in parts)} weights have the right proportions, but"
    text = f"{text} between these parts they have not"
    if len(parts) == 2:
        sums = [[np.exp(one[..., part]).sum(-1).ravel() for part in parts] for one in (got, expected)]
        logs = [np.log(first / second) for first, second in sums]
        times = float((logs[0] * logs[1]).sum() / (logs[1] ** 2).sum())
        if near(logs[0], times * logs[1], 2e-2):
            words = f"The logarithm of their proportion is {number(times)} times the right one{named(times)}."
            same = "Their proportion is the same for all queries: parts are averaged."
            words = same if abs(times) < 1e-3 else words
            yield Reading("parts of keys", f"{text}. {words}", True)
            return
    yield Reading("parts of keys", f"{text}: parts are joined wrongly.", True)


def _proportions(probe: Probe) -> Iterator[Reading]:
    """Read the proportions of the weights of a query: parts of keys, the bias with keys of 0, then the products."""
    joined = list(_joined(probe)) if probe.case["operator"] is None else []
    if joined:
        yield from joined
        return
    still, right_still = _logarithms(probe, probe.q, 0 * probe.k)
    bias, right_bias = _centred(still), _centred(right_still)
    is_bias = near(bias, right_bias, 10 * probe.tolerance)
    if not is_bias:
        yield from _bias(bias, right_bias, probe)
    turns = list(_turns(probe)) if probe.case["w"] is not None else []
    yield from turns
    got, expected = _logarithms(probe, probe.q, probe.k)
    x, y = _centred(got - still), _centred(expected - right_still)
    if turns or near(x, y, 20 * probe.tolerance) or (probe.case["softcap"] and not is_bias):
        return  # a cap mixes products and bias
    words = _scales(probe) or multiplied(x, y, "Logits", probe.numbers, 20 * probe.tolerance)
    if words:
        yield Reading("scale", words, True)
        return
    words = _products(x, y, probe)
    if words:
        yield Reading("products", words, True)
        return
    wrong = abs(x - y) > 20 * probe.tolerance
    axes = zip(("heads", "queries", "keys"), ((1, 2), (0, 2), (0, 1)), strict=True)
    where = ", ".join(f"{name} {runs(_any(wrong, others))}" for name, others in axes)
    text = f"{'With keys of 0 the weights are right. ' * is_bias}With random keys the proportions are wrong at {where}"
    yield Reading("products", f"{text}: the products of queries and keys are, or what is done to them.")


def _products(x: Float64, y: Float64, probe: Probe) -> str:
    """Say what is done to the products of queries and keys, if neither a rotation nor an operator is."""
    if probe.case["w"] is not None or probe.case["operator"] is not None:
        return ""
    k = np.repeat(probe.k, len(probe.q) // len(probe.k), 0)
    has_one_scale = np.ndim(probe.case["scale"]) == 0
    return (has_one_scale and (_rounded_products(x, k, probe) or _cap(x, y, k, probe))) or _rotated(probe)


def _rounded_products(x: Float64, k: Float64, probe: Probe) -> str:
    """Say which of queries, keys and their products are rounded to 16 bits. k has the heads of q."""
    q, scale = probe.q, probe.case["scale"]
    if probe.case["softcap"]:
        return ""
    for dtype in ("bfloat16", "float16"):
        q16, k16 = (rounded(one, dtype) for one in (q, k))
        forms = {
            "Queries and keys are": q16 @ k16.swapaxes(-1, -2) * scale,
            "Queries are": q16 @ k.swapaxes(-1, -2) * scale,
            "Keys are": q @ k16.swapaxes(-1, -2) * scale,
            "Products of queries and keys are": rounded(q @ k.swapaxes(-1, -2), dtype) * scale,
            "Scaled products are": rounded(q @ k.swapaxes(-1, -2) * scale, dtype),
        }
        for words, logits in forms.items():
            if near(x, _centred(np.where(x != 0, logits, np.nan)), probe.tolerance):
                return f"{words} rounded to {dtype}; expected {probe.precision}."
    return ""


def _cap(x: Float64, y: Float64, k: Float64, probe: Probe) -> str:
    """Say which cap centred logits have, if they are a tanh(s / b) or a s tanh(s / b) of the right products s."""
    products, cap = probe.case["scale"] * probe.q @ k.swapaxes(-1, -2), number(probe.case["softcap"] or 0)
    expected = f"{cap} tanh(s / {cap})" if probe.case["softcap"] else "s, without a cap"
    for times, more in ((np.ones(1), ""), (products, " s")):
        forms = [_centred(np.where(x != 0, times * np.tanh(products / b), np.nan)) for b in CAPS]
        sizes = [float((x * one).sum() / (one * one).sum()) for one in forms]
        errors = [abs(x - size * one).max() for size, one in zip(sizes, forms, strict=True)]
        best = int(np.argmin(errors))
        if errors[best] < min(1e-2 * abs(x).max(), 0.1 * abs(x - y).max()):
            form = f"{sizes[best]:.3g}{more} tanh(s / {CAPS[best]:.3g})"
            return f"Of the products s the logits are {form}; expected {expected}."
    return ""


def _rotated(probe: Probe) -> str:
    """Say that products of equal queries and equal keys depend on their distance."""
    q, k = (x[:, :1] + 0 * x for x in (probe.q, probe.k))
    got, expected = (_centred(one) for one in _logarithms(probe, q, k))
    if not near(expected, 0 * got, probe.tolerance) or near(got, 0 * got, 0.1):
        return ""
    text = "Products of equal queries with equal keys depend on their positions"
    return f"{text}: they are rotated; expected as they are."


def _scales(probe: Probe) -> str:
    """Say what the scales of the heads are, if each head has its own. A cap does not change small products."""
    right, q = probe.case["scale"], probe.q * (0.003 if probe.case["softcap"] else 1.0)
    if not np.ndim(right):
        return ""
    products, still = _logarithms(probe, q, probe.k), _logarithms(probe, q, 0 * probe.k)
    x, y = (_centred(one - without) for one, without in zip(products, still, strict=True))
    times = (x * y).sum((1, 2)) / (y * y).sum((1, 2))
    found, wrong = times * right, abs(times - 1) > 20 * probe.tolerance
    if not near(x / abs(y).max(), times[:, None, None] * y / abs(y).max(), 50 * probe.tolerance) or not wrong.any():
        return ""
    text = f"The scales of the heads are {versus(found, right)}. Wrong are heads {runs(wrong)}."
    source = abs(found[:, None] / right - 1).argmin(1)
    if np.ptp(found) < 1e-3 * abs(found).max():
        return f"{text} All heads have one scale."
    if sorted(source) == list(range(len(right))) and near(found / right[source], np.ones(len(right)), 1e-3):
        return f"{text} Head h has the scale of head {law(np.arange(len(right)), source, 'h') or listed(source)}."
    if near(found * right, np.ones(len(right)), 1e-3):
        return f"{text} They are the reciprocals of the right ones."
    is_factor = np.ptp(times[wrong]) < 1e-3 * abs(times[wrong]).max()
    return f"{text} They are {number(times[wrong][0])} times the right ones." if is_factor else text


def _bias(x: Float64, y: Float64, probe: Probe) -> Iterator[Reading]:
    """Read the bias: its factor, its heads, or where it is wrong."""
    text, tolerance, cap = "With keys of 0 the logits are the bias.", 20 * probe.tolerance, probe.case["softcap"]
    if near(y, 0 * y, probe.tolerance):
        yield Reading("bias", f"{text} Those of a query differ by up to {number(np.ptp(x))}; expected 0.")
        return
    words = multiplied(x, y, "Its numbers", probe.numbers, tolerance) or moved(x, y, "bias")
    if not words and cap and not probe.case["reads_content"]:
        seen = probe.weights(probe.right, probe.q, 0 * probe.k) > SMALLEST
        capped = _centred(np.where(seen, cap * np.tanh(true_matrix(probe.case) / cap), np.nan))
        words = "The cap is applied to the sum with the bias; expected before it is added." * near(x, capped, tolerance)
    wrong = abs(x - y) > tolerance
    head, query, key = (int(i) for i in np.argwhere(wrong)[0])
    if not words:
        text = f"{text} Less its mean, for head {head} and query {query} it is {versus(x[head, query], y[head, query])}"
        text = f"{text}. Wrong are heads {runs(np.flatnonzero(_any(wrong, (1, 2))))}, first at"
    yield Reading("bias", f"{text} {words or f'key {key}.'}", bool(words))


def distances_of(c: Case) -> Float64:
    """The distance by which each query and key are rotated, (n, m)."""
    return np.asarray(c["q_at"][:, None] - c["k_at"])


def _turns(probe: Probe) -> Iterator[Reading]:
    """Read the angle between each query and each key, pair by pair; then positions, or frequencies."""
    case, w = probe.case, probe.case["w"]
    i = np.arange(len(w))
    pairs = np.stack([2 * i, 2 * i + 1] if case["layout"] == "interleaved" else [i, i + len(w)], 1)
    scale = np.reshape(case["scale"], (-1, 1, 1))  # one, or one of each head
    size = (0.1 if case["softcap"] else 1.0) / float(abs(scale).max())
    q, zero = np.zeros(probe.q.shape), 0 * probe.k
    still = np.log(np.maximum(probe.weights(probe.impl, probe.q, zero), SMALLEST))

    def product(a: int, b: int) -> Float64:
        """The products of queries that are 1 in channel a and keys in channel b, from each second key."""
        q[:], found = 0.0, np.full(still.shape, np.nan)
        q[..., a] = size
        for parity in (0, 1):
            k = zero.copy()
            k[:, parity::2, b] = 1.0
            logits = np.log(np.maximum(probe.weights(probe.impl, q, k), SMALLEST)) - still
            logits = np.where(still > np.log(SMALLEST) / 2, logits, np.nan)
            found[..., parity::2] = logits[..., parity::2] - np.nanmean(logits[..., 1 - parity :: 2], -1, keepdims=True)
        return np.asarray(found / (size * scale))

    z = np.array([product(a, a) + 1j * product(a, b) for a, b in pairs])  # (pairs, heads, n, m)
    lengths, seen = abs(z), ~np.isnan(z).any(0)[0]
    times = float(np.nanmedian(lengths)) / case["factor"] ** 2
    angle = np.angle(np.nanmean(z, 1))[:, seen].T  # (places, pairs)
    alike = np.nanmax(abs(z - np.nanmean(z, 1, keepdims=True))) < 0.01 * times
    if not alike or np.nanmax(lengths) - np.nanmin(lengths) > 0.01 * times or not len(angle):
        return
    if abs(times - 1) > 1e-3:
        text = f"Logits are {number(times)}{named(times, probe.numbers)} times the right ones."
        yield Reading("scale", text, True)

    def error(p: Float64) -> Float64:
        return np.asarray(abs(np.exp(1j * p[:, None] * w) - np.exp(1j * angle)).max(-1))

    def apart(c: Case) -> Float64:
        return np.asarray(np.broadcast_to(distances_of(c), seen.shape)[seen])

    right = apart(case)
    if error(right).max() < 5e-3:
        return
    found = [solved(angle, w), right + solved(angle - right[:, None] * w, w)]
    distance = np.rint(np.where(error(found[0]) < error(found[1]), *found))
    if error(distance).max() < 2e-2:
        causes = known(TURNS, case, apart, distance, 0.5, "turns")
        first = int(np.flatnonzero(distance != right)[0])
        n, m = (one[first] for one in np.nonzero(seen))
        text = f"Query {n} and key {m} are rotated as {number(distance[first])} positions apart; expected"
        words = law(right, distance, "d")
        more = f" The distance d is taken for {words}." if words else ""
        yield Reading("turns", f"{text} {number(right[first])}.{more}", bool(causes or words), causes)
        return
    w_read = solved(angle.T, right)
    if abs(np.exp(1j * right[:, None] * w_read) - np.exp(1j * angle)).max() < 2e-2:
        yield from read_frequencies(w_read, case, np.full(len(w), 2e-5 / size), whole=True)
