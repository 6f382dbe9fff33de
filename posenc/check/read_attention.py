"""Readers of attention: its values, heads, queries, keys, the sums of its weights and their proportions.

A reader calls the implementation with chosen inputs, and the right attention with the same inputs. It is used only if
the implementation is wrong. A part that hides the inner ones ends the reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from .inputs import rounded
from .judge import ROUNDOFF, Case
from .laws import law, listed, named, near, number, runs
from .report import Float64, Reading

Attention: TypeAlias = Callable[[Float64, Float64, Float64], Float64]
"""Attention of q (heads, n, dim), k and v (kv heads, m, dim)."""
Bool: TypeAlias = npt.NDArray[np.bool_]
SMALLEST = 1e-12
"""A weight below is 0."""


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
    first, again = (probe.impl(probe.q, probe.k, probe.v) for _ in range(2))
    if not near(first, again, 1e-6):
        yield Reading("repetition", "The same call gives other numbers the second time.")
        return
    for part in (_values, _rounding, _queries, _heads, _keys, _order, _sums, _proportions, _added):
        is_wrong = False
        for reading in part(probe):
            is_wrong = True
            yield reading
        if is_wrong:
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
        text = (
            f"Channel 0 of the values reaches the channels {runs(reached) or 'none'} of the output; expected 0 alone."
        )
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


def _queries(probe: Probe) -> Iterator[Reading]:
    """Read which query each row of the output depends on."""
    for axis, name in ((1, "query"), (0, "head")):
        got = _changed(probe.impl, probe, "q", axis)
        reads = _any(got, 1) if axis == 1 else _any(got, 2)  # (count of the input, count of the output)
        alone = np.eye(len(reads), dtype=bool)
        wrong = reads & ~alone
        if wrong.any():
            row = int(np.flatnonzero(_any(wrong, 0))[0])
            sources = [np.flatnonzero(column) for column in reads.T]
            words = None
            if all(len(one) == 1 for one in sources):
                words = law(np.arange(len(sources)), [one[0] for one in sources], "i")
            text = f"Row {row} of the output depends on the {name} {runs(sources[row])}; expected {row} alone."
            yield Reading("queries", f"{text} Row i reads {name} {words}." if words else text, words is not None)
            return


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
            yield Reading("heads", f"Query head h reads the {name} of head {words}; expected {right}.", True)
        elif (reads.sum(1) > 1).any():
            head = int(reads.sum(1).argmax())
            yield Reading(
                "heads",
                f"Query head {head} reads the {name} of the heads {runs(np.flatnonzero(reads[head]))}; expected "
                f"{expected[head]} alone.",
                True,
            )


def _ends(reads: Bool) -> str:
    """Describe the keys of each query by the first and the last, if they are in a row."""
    if not _any(reads, 1).all():
        return ""
    first, last = reads.argmax(1), reads.shape[1] - 1 - reads[:, ::-1].argmax(1)
    in_a_row = (reads.sum(1) == last - first + 1).all()
    words = [law(np.arange(len(reads)), one, "i") for one in (first, last)]
    return f"Query i reads the keys from {words[0]} to {words[1]}" if in_a_row and all(words) else ""


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
        row = int(np.flatnonzero(apart)[0])
        text = f"Query {row} reads the keys {runs(np.flatnonzero(got[0][row])) or 'none'}, but the values"
        never = np.flatnonzero(~_any(got[1], 0) & _any(got[0], 0))
        more = f" The values of the keys {runs(never)} are never read." if len(never) else ""
        right = runs(np.flatnonzero(expected[0][row]))
        yield Reading("keys", f"{text} {runs(np.flatnonzero(got[1][row]))}; expected {right}.{more}", True)
        return
    if (got[1] == expected[1]).all():
        return
    row = int(np.flatnonzero((got[1] != expected[1]).any(1))[0])
    now, then = (runs(np.flatnonzero(one[1][row])) or "none" for one in (got, expected))
    words = [_ends(one[1]) for one in (got, expected)]
    more = f" {words[0]}; expected from {words[1].split('from ', 1)[1]}." if all(words) else ""
    yield Reading("keys", f"Query {row} reads the keys {now}; expected {then}.{more}", bool(more))


def _order(probe: Probe) -> Iterator[Reading]:
    """Read which value the logit of each key weighs: a change of one key changes the proportion of one value."""
    q = 0.1 * probe.q
    if probe.case["reads_content"] or probe.case["w"] is not None or probe.case["window"] or probe.case["causal"]:
        return  # some keys are hidden from some queries, or logits depend on other keys
    before = probe.weights(probe.impl, q, probe.k)
    if (before <= SMALLEST).any():
        return
    found = []
    for j in range(before.shape[-1]):
        other = probe.k.copy()
        other[:, j] = 1 - 1.5 * other[:, j]
        ratio = probe.weights(probe.impl, q, other) / before
        change = abs(ratio / np.median(ratio, -1, keepdims=True) - 1).mean((0, 1))
        found.append(int(np.argmax(change)))
    keys = np.arange(len(found))
    if len(keys) > 2 and found != list(keys) and sorted(found) == list(keys):
        words = law(keys, found, "j") or listed(found)
        text = f"The weight of key j multiplies the value {words}; expected j. Keys and values are in another order."
        yield Reading("values", text, True)


def _sums(probe: Probe) -> Iterator[Reading]:
    """Read the sums of the weights: if keys are 0, the denominator counts them."""
    got, expected = (probe.weights(attention, probe.q, 0 * probe.k) for attention in (probe.impl, probe.right))
    total, right = got.sum(-1), expected.sum(-1)
    if (got < 0).any() and near(np.exp(got), expected, 10 * probe.tolerance):
        yield Reading("sum of weights", "The weights are the logarithms of the right ones.", True)
        return
    if near(total, right, 5e-3):
        now, then = (probe.weights(attention, probe.q, probe.k).sum(-1) for attention in (probe.impl, probe.right))
        if not near(now, then, 10 * probe.tolerance) and near(then, 1 + 0 * right, probe.tolerance):
            yield from _joined(probe, probe.q, probe.k)
            where = f"they sum to {listed(now[0])} for the queries of head 0"
            text = f"If all keys are 0 the weights of a query sum to 1, but with random keys {where}; expected 1."
            yield Reading("sum of weights", text, True)
        return
    text = (
        f"If all keys are 0, the weights of query {len(total[0]) - 1} sum to {listed(total[:, -1])} by head; expected"
    )
    text = f"{text} {listed(right[:, -1])}."
    used = (expected > SMALLEST).sum(-1)
    ratio = total / np.where(right > 0, right, np.nan)
    per_key = ratio * used
    if near(np.nan_to_num(per_key), 1.0 * (right > 0), 10 * probe.tolerance):
        yield Reading("sum of weights", f"{text} They are divided by the number of keys.", True)
    elif probe.case["operator"] is None and probe.case["sink"] is None and (right > 0).all():
        more = used / total - used
        same = near(more, np.median(more) + 0 * more, 1e-2)
        words = f" The denominator holds {number(round(float(np.median(more)), 3))} more than the sum over the keys, as"
        rows = " rows of zeros that are not masked have." if same else ""
        factor = near(ratio, ratio[0, 0] + 0 * ratio, probe.tolerance) and np.ptp(used) == 0 and more[0, 0] < 0
        yield Reading("sum of weights", text + words + rows if rows and not factor else text, same)
    else:
        yield Reading("sum of weights", text)


def _logarithms(probe: Probe, q: Float64, k: Float64) -> list[Float64]:
    """Return the logarithms of weights, NaN where the right weights or those of the implementation are 0."""
    got, expected = (probe.weights(attention, q, k) for attention in (probe.impl, probe.right))
    seen = (got > SMALLEST) & (expected > SMALLEST)
    return [np.log(np.where(seen, one, np.nan)) for one in (got, expected)]


def _centred(logarithms: Float64) -> Float64:
    """Subtract the mean of each query; a NaN becomes 0."""
    seen = ~np.isnan(logarithms)
    mean = np.nansum(logarithms, -1, keepdims=True) / np.maximum(seen.sum(-1, keepdims=True), 1)
    return np.where(seen, logarithms - mean, 0.0)


def _joined(probe: Probe, q: Float64, k: Float64) -> Iterator[Reading]:
    """Read whether keys fall into a few parts, within which the proportions of weights are right."""
    got, expected = _logarithms(probe, q, k)
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
        logs = [
            np.log(np.exp(one[..., parts[0]]).sum(-1) / np.exp(one[..., parts[1]]).sum(-1)).ravel()
            for one in (got, expected)
        ]
        times = float((logs[0] * logs[1]).sum() / (logs[1] ** 2).sum())
        if near(logs[0], times * logs[1], 2e-2):
            words = "Their proportion is the same for all queries: parts are averaged."
            words = (
                words
                if abs(times) < 1e-3
                else f"The logarithm of their proportion is {number(times)} times the right one{named(times)}."
            )
            yield Reading("parts of keys", f"{text}. {words}", True)
            return
    yield Reading("parts of keys", f"{text}: parts are joined wrongly.", True)


def _proportions(probe: Probe) -> Iterator[Reading]:
    """Read the proportions of the weights of a query: parts of keys, the bias with keys of 0, then the products."""
    joined = list(_joined(probe, probe.q, probe.k)) if probe.case["operator"] is None else []
    if joined:
        yield from joined
        return
    bias, right_bias = (_centred(one) for one in _logarithms(probe, probe.q, 0 * probe.k))
    if not near(bias, right_bias, 10 * probe.tolerance):
        yield from _bias(bias, right_bias, probe)
        return
    x, y = (_centred(one) for one in _logarithms(probe, probe.q, probe.k))
    times = float((x * y).sum() / (y * y).sum())
    if near(x, times * y, 20 * probe.tolerance) and abs(times - 1) > 1e-3:
        known = {"the scale": float(probe.case["scale"]), "the width of heads": float(probe.case["dim"])}
        known["the number of heads"] = float(probe.case["heads"])
        text = f"Logits are {number(times)} times the right ones{named(times, known)}."
        yield Reading("scale", text, True)
        return
    wrong = abs(x - y) > 20 * probe.tolerance
    if wrong.any():
        axes = zip(("heads", "queries", "keys"), ((1, 2), (0, 2), (0, 1)), strict=True)
        where = ", ".join(f"{name} {runs(np.flatnonzero(_any(wrong, others)))}" for name, others in axes)
        text = f"With keys of 0 the weights are right. With random keys their proportions are wrong at {where}"
        yield Reading("products", f"{text}: the products of queries and keys are, or what is done to them.")


def _bias(x: Float64, y: Float64, probe: Probe) -> Iterator[Reading]:
    """Read the bias: its factor by head, or where it is wrong."""
    text = "With keys of 0 the logits are the bias, up to a number for each query."
    size = (y * y).sum((1, 2))
    if near(y, 0 * y, probe.tolerance):
        yield Reading("bias", f"With keys of 0 the logits of a query differ by up to {number(np.ptp(x))}; expected 0.")
        return
    if (size > 0).all():
        scale = {"the scale": float(probe.case["scale"])}
        times = (x * y).sum((1, 2)) / size
        if near(x, times[:, None, None] * y, 20 * probe.tolerance):
            alike = np.ptp(times) < 1e-3
            shown = f"{number(times[0])}{named(float(times[0]), scale)}" if alike else f"{listed(times)} by head"
            more = "" if alike else _equal_heads(times, y)
            yield Reading("bias", f"{text} It is {shown} times the right one.{more}", True)
            return
    head, query, key = (int(i) for i in np.argwhere(abs(x - y) > 20 * probe.tolerance)[0])
    wrong = abs(x - y) > 20 * probe.tolerance
    heads = runs(np.flatnonzero(_any(wrong, (1, 2))))
    yield Reading(
        "bias",
        f"{text} For head {head} and query {query} it is {listed(x[head, query])}; expected {listed(y[head, query])}. "
        f"Wrong are heads {heads}, first at key {key}.",
    )


def _equal_heads(times: Float64, bias: Float64) -> str:
    """Say which heads have the same bias, if they are in groups."""
    slopes = times * abs(bias).max((1, 2))
    groups: list[list[int]] = []
    for head, slope in enumerate(slopes):
        if groups and abs(slope / slopes[groups[-1][0]] - 1) < 1e-3:
            groups[-1].append(head)
        else:
            groups.append([head])
    is_group = len(groups) < len(slopes) and len({len(group) for group in groups}) == 1
    return f" The heads {' and '.join(map(runs, groups))} have the same bias." if is_group else ""
