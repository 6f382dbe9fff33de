"""Readers of rotations and sinusoids: rows, channels, formula, lengths, positions, coordinates and frequencies.

A reader calls the implementation with chosen inputs, and the right rotation with the same inputs. It is used only if
the implementation is wrong. Parts are read from the outside inwards, and a part that hides the inner ones ends the
reading.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ._frequencies import read_factor, read_frequencies
from ._judge import ROUNDOFF, Case, hypotheses, known, rounded
from ._laws import SHOWN, geometric, law, listed, named, near, number, runs, same_angles, solved, versus
from ._report import Array, Cause, Float64, Reading

Rotation: TypeAlias = Callable[[Float64, Array], Float64]
"""A rotation of x (batch, heads, N, width) by positions (N,), or by coordinates (C, N)."""
Pairs: TypeAlias = list[tuple[int, int]]
TERMS = ("", "cos", "sin", "cos sin", "sin sin")
"""The terms of the formula; the first is a constant."""
PLAIN = np.array([[0, 1, 0, 0, 0], [0, 0, -1, 0, 0], [0, 0, 1, 0, 0], [0, 1, 0, 0, 0]], float)
"""The factors of the terms of (x, y) in both channels of a pair: x cos - y sin, x sin + y cos."""
SLOWEST = 1e-9
"""A pair whose sine is below this at the last position stands still."""
CHANNELS = hypotheses("channels")
"""Known errors of the layouts: `turn` of the pairs that are read, `turn_out` of their results, `tables` of angles."""
FORMULAS = hypotheses("formula")
"""Known errors of the formula, whose factors are `terms` times `sizes`."""
ANGLES = hypotheses("angles")
"""Known errors of the precision of angles."""


class Probe(NamedTuple):
    """An implementation, the right rotation, and inputs with which they differ."""

    impl: Rotation
    right: Rotation
    case: Case
    x: Float64
    """Random numbers (batch, heads, N, width)."""
    places: Sequence[Array]
    """Positions, in the order of calls."""
    precision: str

    @property
    def tolerance(self) -> float:
        """The largest error of a number that counts as equal: a float32 angle at position 4096 is off by 1e-3."""
        return max(2e-3, 16 * ROUNDOFF[self.precision])


def read_rope(probe: Probe) -> Iterator[Reading]:
    """Read the parts of a rotation that are wrong."""
    if not near(probe.impl(probe.x, probe.places[0]), probe.impl(probe.x, probe.places[0]), 1e-6):
        text = "The same call gives other numbers the second time: something is kept between calls."
        yield Reading("repetition", text, True)
        return
    lost = np.flatnonzero(np.isnan(probe.impl(probe.x, probe.places[0])).any((0, 1, 3)))
    if len(lost):
        yield Reading("numbers", f"The result is NaN for the tokens {runs(lost)}.")
        return
    rows = list(_state(probe) or _rows(probe))
    yield from rows
    if not rows:
        for dtype, text in _roundings(probe):
            yield Reading("rounding", text, True)
            probe = probe._replace(precision=dtype)
        yield from _inner(probe)


def _state(probe: Probe) -> list[Reading]:
    """Read whether a call uses what an earlier one with as many tokens has left: the first with fewer does not."""
    place, x = np.asarray(probe.places[-1])[..., 1:], probe.x[..., 1:, :]
    with contextlib.suppress(Exception):  # it may not take the last positions
        fresh, again = (probe.impl(x, place + step) for step in (0, 1))
        right, other = (probe.right(x, place + step) for step in (0, 1))
        tolerance = 10 * probe.tolerance
        if near(fresh, right, tolerance) and near(again, fresh, tolerance) and not near(again, other, tolerance):
            text = f"The first call with {place.shape[-1]} tokens is right; the next, with other positions, gives its"
            text = f"{text} numbers again: a table is kept by its length."
            return [Reading("state between calls", text, True)]
    return []


def _roundings(probe: Probe) -> list[tuple[str, str]]:
    """Read whether the numbers are numbers of 16 bits: all results, or those of x = 1 only, which show the tables."""
    result, tables = probe.impl(probe.x, probe.places[0]), matrix_of(probe.impl, probe.x, probe.places[0])
    for dtype in ("bfloat16", "float16"):
        if ROUNDOFF[probe.precision] < ROUNDOFF[dtype]:
            if near(result, rounded(result, dtype), 1e-7) and result.any():
                return [(dtype, f"All numbers of the result are numbers of {dtype}; expected {probe.precision}.")]
            if near(tables, rounded(tables, dtype), 1e-7) and len(np.unique(tables)) > 8:
                return [(dtype, f"The tables of cos and sin are rounded to {dtype}; the result is not.")]
    return []


def _rows(probe: Probe) -> Iterator[Reading]:
    """Read which token each row of the result holds: scaled rows stay scaled under any rotation."""
    shape = probe.x.shape[:-1]
    if probe.tolerance > 0.01:  # 16 bits cannot tell the rows apart
        return
    vector = np.broadcast_to(probe.x[:1, :1, :1], probe.x.shape)
    every = np.arange(np.prod(shape))
    size = 1 + every.reshape(*shape, 1) / 8.0
    base, scaled, found = (
        np.linalg.norm(probe.impl(one, probe.places[0]), axis=-1).ravel() for one in (vector, vector * size, probe.x)
    )
    source = 8 * (scaled / np.maximum(base, 1e-30) - 1)
    at = np.rint(source).astype(int)
    if not near(source, at, 0.1) or (at < 0).any() or (at >= len(every)).any() or (at == every).all():
        return
    lengths = np.linalg.norm(probe.x, axis=-1).ravel()[at]
    if np.ptp(found / lengths) <= probe.tolerance:
        i = int(np.flatnonzero(at != every)[0])
        places = (np.unravel_index(one, shape) for one in (i, at[i]))
        here, there = ("batch row {}, head {}, token {}".format(*one) for one in places)
        share = f"{100 * (at != every).mean():.0f} % of the rows are from another place."
        yield Reading("rows", f"The result at {here} is the rotated {there} of x; {share}", True)


def matrix_of(rotation: Rotation, x: Float64, place: Array) -> Float64:
    """Return the matrices (batch, heads, N, width of the result, width of x) that a rotation multiplies with."""
    columns = []
    for channel in range(x.shape[-1]):
        one = np.zeros(x.shape)
        one[..., channel] = 1.0
        columns.append(rotation(one, place))
    return np.stack(columns, -1)


def sources_of(matrices: Sequence[Float64], tolerance: float) -> list[tuple[int, ...]]:
    """Return the channels of x that each channel of the result reads. Pairs that turn slowly read small parts."""
    largest = np.max([abs(one).max((0, 1, 2)) for one in matrices], 0)
    used = largest > (SLOWEST if (largest > SLOWEST).sum(-1).max() <= 2 else tolerance)
    return [tuple(int(i) for i in np.flatnonzero(row)) for row in used]


def _turned(matrices: Sequence[Float64], sources: Sequence[tuple[int, ...]], tolerance: float) -> set[int]:
    """Return the channels that do not pass unchanged."""
    off = np.max([abs(one - np.eye(one.shape[-1])).max((0, 1, 2, 4)) for one in matrices], 0)
    return {i for i, one in enumerate(sources) if off[i] > tolerance or one != (i,)}


def pairs_in(sources: Sequence[tuple[int, ...]]) -> Pairs:
    return sorted({(one[0], one[1]) for one in sources if len(one) == 2})


def _layout(pairs: Pairs) -> str:
    """Describe pairs of channels by a formula, if there is one."""
    (first, second), steps = pairs[0], {b - a for a, b in pairs}
    if len(pairs) > 1 and steps == {1} and all(a % 2 == first % 2 for a, _ in pairs):
        return "(2 i, 2 i + 1)" if first % 2 == 0 else "(2 i + 1, 2 i + 2)"
    if len(steps) == 1:
        return f"(i, i + {second - first}) for i in {runs(a for a, _ in pairs)}"
    if len({a + b for a, b in pairs}) == 1:
        return f"(i, {first + second} - i)"
    return ", ".join(map(str, pairs[:4])) + (", ..." if len(pairs) > 4 else "")


def _pairs_of(layout: str, c: Case) -> Array:
    """The pairs of channels of a layout, (pairs, 2)."""
    half = c["rotary_dim"] // 2
    i = np.arange(half)
    pairs = np.stack([2 * i, 2 * i + 1] if layout == "interleaved" else [i, i + half], 1)
    return np.asarray(c["rotary_offset"] + pairs)


def channels_of(c: Case) -> Float64:
    """The other channel that each channel reads, and the one that has the same angle, (2, width)."""
    found = np.tile(np.arange(float(c["width"])), (2, 1))
    turn, out, tables = (_pairs_of(c[name] if name in c else c["layout"], c) for name in ("turn", "turn_out", "tables"))
    moves = c["w"] != 0
    found[0, out[moves]], found[1, tables[moves]] = turn[moves, ::-1], tables[moves, ::-1]
    return found


def _read_channels(sources: Sequence[tuple[int, ...]], matrix: Float64) -> Float64:
    """Read the numbers of `channels_of`; -1 where a channel of the result reads several others."""
    width = len(sources)
    others = [[i for i in one if i != at] or [at] for at, one in enumerate(sources)]
    partner = [one[0] if len(one) == 1 else -1 for one in others]
    rows = np.arange(width)
    own, other = (matrix[0, 0][:, rows, at] for at in (rows, partner))
    angle = np.arctan2(abs(other), own)  # (N, width)
    apart = abs(angle[:, :, None] - angle[:, None]).max(0) + np.where(np.eye(width) > 0, np.inf, 0.0)
    moves = np.array([len(one) > 1 for one in sources])
    return np.array([partner, np.where(moves, np.where(moves, apart, np.inf).argmin(1), rows)], float)


def _inner(probe: Probe) -> Iterator[Reading]:
    """Read channels and pairs, then the formula; then, of a rotation, lengths and angles."""
    tolerance, place, width = probe.tolerance, probe.places[0], probe.x.shape[-1]
    got = matrix_of(probe.impl, probe.x, place)
    if not near(probe.impl(probe.x, place), (got @ probe.x[..., None])[..., 0], 10 * tolerance):
        zero = float(abs(probe.impl(0 * probe.x, place)).max())
        more = f" Of x = 0 it makes numbers up to {number(zero)}." if zero > tolerance else ""
        yield Reading("linearity", f"The result is not linear in x; expected a rotation of x.{more}")
        return
    seen = [got]
    with contextlib.suppress(Exception):  # it may not take the last positions
        seen.append(matrix_of(probe.impl, probe.x, probe.places[-1]))
    far = np.broadcast_to(977 * np.arange(place.shape[-1]), place.shape)  # slow pairs turn, too
    wanted, of_far = (matrix_of(probe.right, probe.x, one) for one in (place, far))
    sources, right_sources = sources_of(seen, tolerance), sources_of([wanted, of_far], tolerance)
    pairs, right_pairs = pairs_in(sources), pairs_in(right_sources)
    turned, right_turned = _turned(seen, sources, tolerance), _turned([wanted, of_far], right_sources, tolerance)
    if not turned:
        yield Reading("channels", "No channel is rotated: the result is x.", True)
        return
    if not any(sources):
        yield Reading("channels", "The result does not depend on x.", True)
        return
    fewer = set(pairs) < set(right_pairs) and turned < right_turned
    if fewer:  # the others stand still
        pairs, sources = right_pairs, right_sources
    table, numbers = CHANNELS if probe.case["axis"] is None else (), _read_channels(sources, seen[-1])
    causes = known(table, probe.case, channels_of, numbers, 0.5, "pairs")
    if not turned <= right_turned and not causes and pairs != right_pairs:
        yield Reading("channels", f"Channels {runs(turned)} are rotated; expected {runs(right_turned)}.", True)
    i = next((i for i in range(width) if sources[i] != right_sources[i]), 0)
    reads = f"Channel {i} of the result reads channels {runs(sources[i])} of x; expected"
    if pairs != right_pairs:
        if not pairs or max(map(len, sources)) > 2 or 2 * len(pairs) != len({i for pair in pairs for i in pair}):
            yield Reading("pairs", f"{reads} {runs(right_sources[i])}.", bool(causes), causes)
            return
        text = f"Pairs of channels are {_layout(pairs)}; expected {_layout(right_pairs)}."
        yield Reading("pairs", text, True, causes)
    elif sources != right_sources:
        text = f"{reads} {runs(right_sources[i])}. The pairs are right, and their results are stored in another order."
        yield Reading("order of results", f"{text} Products q.k do not notice it; a cache of keys does.", True)
    if not pairs or not right_pairs:
        return
    rows, right_rows = rows_of(sources, pairs), rows_of(right_sources, right_pairs)
    entries = _entries(got, pairs, rows)
    right_entries = _entries(wanted, right_pairs, right_rows)
    inner = list(_formula(entries, right_entries, probe))
    inner = inner or list(_cos_and_sin(entries, right_entries, probe))
    a, b, c, d = entries
    apart = [i for i in range(len(pairs)) if not (near(a[i], d[i], 5 * tolerance) and near(b[i], -c[i], 5 * tolerance))]
    index = [right_pairs.index(one) if one in right_pairs else i for i, one in enumerate(pairs)]
    if not inner and apart:
        inner = [_by_channel(probe, pairs[apart[0]], causes)]
        inner += read_factor(float(np.sqrt(np.median(a**2 + b**2))), probe.case)
    elif not inner and max(index) < len(probe.case["w"]):
        inner = list(_angles(probe, pairs, rows, index))
    if fewer and not any(one.part in ("positions", "factor of the frequencies") for one in inner):
        yield Reading("channels", f"Channels {runs(turned)} are rotated; expected {runs(right_turned)}.", True)
    yield from inner


def _by_channel(probe: Probe, pair: tuple[int, int], causes: tuple[Cause, ...]) -> Reading:
    """Read which coordinates turn each channel, if the channels of a pair differ."""
    text = f"The channels {pair[0]} and {pair[1]} of a pair are turned by different angles."
    place, found = probe.places[0], []
    if probe.case["axis"] is None:
        return Reading("pairs" if causes else "formula", text, bool(causes), causes)
    for rotation in (probe.impl, probe.right):
        words = []
        for one in range(len(place)):
            moved = 977 * np.arange(place.shape[1]) * (np.arange(len(place)) == one)[:, None]
            own = np.ptp(np.einsum("...cc->...c", matrix_of(rotation, probe.x, moved))[0, 0], 0)
            words.append(f"coordinate {one} turns {runs(own > probe.tolerance)}")
        found.append(", ".join(words))
    text = f"{text} Of the channels, {found[0]}; expected: {found[1]}."
    return Reading("coordinates", text, found[0] != found[1])


def rows_of(sources: Sequence[tuple[int, ...]], pairs: Pairs) -> Pairs:
    """Return the channels of the result that hold each pair."""
    found = [[i for i, one in enumerate(sources) if one == pair] for pair in pairs]
    return [(one[0], one[1]) if len(one) == 2 else pair for one, pair in zip(found, pairs, strict=True)]


def _entries(matrix: Float64, pairs: Pairs, rows: Pairs) -> Float64:
    """Return the four numbers of each pair's matrix, (4, pairs, batch, heads, N)."""
    of_pair = [
        [matrix[..., row, column] for row in of_rows for column in pair]
        for pair, of_rows in zip(pairs, rows, strict=True)
    ]
    return np.moveaxis(np.array(of_pair), 1, 0)


def _formula(got: Float64, wanted: Float64, probe: Probe) -> Iterator[Reading]:
    """Read the four numbers as sums of products of cos and sin of the right angles."""
    cos, sin, tolerance = wanted[0], wanted[2], probe.tolerance
    size = float(np.sqrt((cos**2 + sin**2).mean()))
    is_known = probe.case["decay"] is not None or got.shape != wanted.shape or near(got, wanted, tolerance)
    if is_known or near(np.ptp(cos), 0.0, tolerance):
        return
    cos, sin = cos / size, sin / size
    basis = np.stack([np.ones_like(cos), cos, sin, cos * sin, sin * sin]).reshape(len(TERMS), -1).T
    factors = [np.linalg.lstsq(basis, one.ravel(), rcond=None)[0] for one in got]
    left = [abs(basis @ f - one.ravel()).max() for f, one in zip(factors, got, strict=True)]
    if max(left) > 10 * tolerance or near(factors, size * PLAIN, tolerance):
        return
    times, lengths = float(factors[0][1]), np.sqrt(got[0] ** 2 + got[2] ** 2)
    if near(factors, size * PLAIN, 0.05) and np.ptp(lengths) < 10 * tolerance:
        return  # the angles are slightly wrong
    if times > 0 and near(factors, times * PLAIN, 2 * tolerance):
        yield from read_factor(times, probe.case)
        return

    causes = known(FORMULAS, probe.case, formula_of, np.array(factors) / size, 5 * tolerance, "formula")
    a, b, c, d = (_sum(f, 10 * tolerance) for f in factors)
    e, f, g, h = (_sum(one, 1e-6) for one in size * PLAIN)
    text = f"With cos and sin of the right angles, the pair (x, y) becomes x ({a}) + y ({b}), x ({c}) + y ({d})"
    yield Reading("formula", f"{text}; expected x ({e}) + y ({f}), x ({g}) + y ({h}).", True, causes)


def _cos_and_sin(got: Float64, wanted: Float64, probe: Probe) -> Iterator[Reading]:
    """Read cosines and sines apart: those of other pairs, or of other tokens, if one of the two is right."""
    tolerance, words = 5 * probe.tolerance, []
    if got.shape != wanted.shape or probe.case["decay"] is not None:
        return
    for name, at in (("cos", 0), ("sin", 2)):
        of, right = got[at, :, 0, 0], wanted[at, :, 0, 0]  # (pairs, N)
        if near(of, right, tolerance):
            words.append(f"{name} is right")
            continue
        source = abs(of[:, None] - right).max(-1).argmin(1)
        of_pair = law(np.arange(len(of)), source, "k") or listed(source)
        if near(of, right[source], tolerance):
            words.append(f"{name} of pair k is that of pair {of_pair}")
        for step in (-1, 1):
            if near(of[:, 2:-2], np.roll(right, -step, 1)[:, 2:-2], tolerance):
                words.append(f"{name} is that of the {'next' if step > 0 else 'previous'} token")
    if len(words) == 2 and sum(word.endswith("right") for word in words) == 1:
        yield Reading("cos and sin", f"{words[0][0].upper()}{words[0][1:]}; {words[1]}.", True)


def formula_of(c: Case) -> Float64:
    """The factors of TERMS in the four numbers of a pair's matrix."""
    return np.asarray(np.array(c.get("terms", PLAIN), float) * c.get("sizes", np.ones(5)))


def _sum(factors: Float64, least: float) -> str:
    """Format a sum of terms."""
    words = ""
    for factor, term in zip(factors, TERMS, strict=True):
        if abs(factor) > least:
            size = number(round(abs(factor), 4))
            sign = "-" if factor < 0 else "+" if words else ""
            words += f" {sign} " if words else sign
            words += term if size == "1" and term else f"{size} {term}".strip()
    return words or "0"


# ---- angles ----


def _angles(probe: Probe, pairs: Pairs, rows: Pairs, index: Sequence[int]) -> Iterator[Reading]:
    """Read lengths, then positions if one position explains the angles of all pairs, else frequencies."""
    w = probe.case["w"][list(index)]

    def turns(place: Array, rotation: Rotation = probe.impl) -> npt.NDArray[np.complex128]:
        """Return the complex number that each pair is multiplied with, (batch, heads, N, pairs)."""
        y = rotation(probe.x, place)
        before, after = (
            one[..., [a for a, _ in of]] + 1j * one[..., [b for _, b in of]]
            for one, of in ((probe.x, pairs), (y, rows))
        )
        return np.asarray(after / before, np.complex128)

    if probe.case["axis"] is not None:
        yield from _coordinates(turns, probe, np.asarray(probe.case["axis"])[list(index)], w)
        return
    found = []
    for place in probe.places:
        try:
            found.append(turns(place))
        except Exception:
            if not found:
                raise
    z, at = np.concatenate(found, -2), np.concatenate(probe.places[: len(found)], -1).astype(np.float64)
    at = at[:, None] if at.ndim == 2 else at  # positions by batch row are those of all heads
    if probe.case["decay"] is not None:
        expected = np.concatenate([turns(place, probe.right) for place in probe.places[: len(found)]], -2)
        slopes = [float(np.polyfit(at, np.log(np.maximum(abs(one[0, 0, :, 0]), 1e-30)), 1)[0]) for one in (z, expected)]
        if abs(slopes[0] - slopes[1]) > 1e-5 and abs(slopes[0] - slopes[1]) > 1e-3 * abs(slopes[1]):
            text = f"The logarithm of the length of pair 0 grows by {number(slopes[0])} for each position"
            yield Reading("lengths", f"{text}; expected {number(slopes[1])}.", True)
    elif np.ptp(abs(z)) > 10 * probe.tolerance:
        lengths = abs(z).mean((0, 1, 2))
        yield Reading("lengths", f"The lengths of pairs become {listed(lengths)} times as long; expected one factor.")
    else:
        yield from read_factor(float(abs(z).mean()), probe.case)
    case = probe.case if len(w) == len(probe.case["w"]) else {**probe.case, "w": w, "plain": w}
    yield from read_angles(np.angle(z), at, case, probe.tolerance, at.shape[-1] // len(found), whole=True)


def waves_of(c: Case) -> Float64:
    """Cosines and sines of the angles of positions p."""
    p, w, angles = (c.get(f"{name}_dtype", "float64") for name in ("p", "w", "angle"))
    turns = rounded(rounded(c["p"], p)[:, None] * rounded(c["w"], w), angles)
    return np.concatenate([np.cos(turns), np.sin(turns)])


def read_angles(
    theta: Float64, at: Float64, case: Case, tolerance: float, tokens: int, whole: bool
) -> Iterator[Reading]:
    """Read positions if one position explains the angles of all pairs, (batch, heads, N, pairs), else frequencies."""
    w, first = case["w"][: theta.shape[-1]], np.broadcast_to(at, theta.shape[:-1])[0, 0]
    turns = np.concatenate([np.cos(theta[0, 0]), np.sin(theta[0, 0])])
    causes = known(ANGLES, {**case, "w": w, "p": first}, waves_of, turns, 5 * tolerance, "angles")
    if causes:
        text = f"The angles of pair 0 are {listed(theta[0, 0, :, 0])} for positions {listed(first)}."
        yield Reading("angles", text, True, causes)
        return
    p = _position(theta, at, w, tolerance)
    with np.errstate(all="ignore"):
        times = float(np.nanmedian(p / at)) if p is not None else 0.0
    if p is None or (near(p, times * at + 0 * p, tolerance) and abs(times - 1) > tolerance and times):
        yield from _frequencies(theta, first, w, case, tolerance, whole)
    else:
        yield from _positions(p, at, w, tolerance, tokens)


def _position(theta: Float64, at: Float64, w: Float64, tolerance: float) -> Float64 | None:
    """Return the position that each token is rotated by, (batch, heads, N), if it explains the angles of all pairs."""

    def error(p: Float64) -> Float64:
        return np.asarray(abs(np.exp(1j * p[..., None] * w) - np.exp(1j * theta)).max(-1))

    near_zero, near_right = solved(theta, w), at + solved(theta - at[..., None] * w, w)
    p = np.where(error(near_right) <= error(near_zero), near_right, near_zero)
    p = np.rint(p) if (error(np.rint(p)) <= 5 * tolerance).all() else p
    return p if (error(p) <= 5 * tolerance).all() else None


def _positions(p: Float64, at: Float64, w: Float64, tolerance: float, tokens: int) -> Iterator[Reading]:
    """Say which positions tokens are rotated by."""
    slack = np.maximum(5 * tolerance / max(w.max(), 1e-30), 1e-6 * abs(at))
    wrong = abs(p - at) > slack
    if not wrong.any():
        return
    batch, heads = p.shape[:2]
    rows = np.argwhere(wrong.any(-1))
    if at.ndim > 1:  # each batch row has positions of its own
        b, h = rows[0]
        more = " These are the positions of batch row 0." if near(p[b, h], at[0, 0], tolerance) else ""
        yield _one_position(p[b, h], at[b, 0], wrong[b, h], tokens, tolerance, f" In batch row {b}.{more}")
        return
    text = "; ".join(f"batch {b}, head {h} by {listed(p[b, h])}" for b, h in rows[:3])
    if near(p[wrong.any(-1)], np.broadcast_to(p[tuple(rows[0])], (len(rows), len(at))), tolerance):
        pairs = zip(("batch rows", "heads"), rows.T, (batch, heads), strict=True)
        only = " and ".join(f"{name} {runs(one)}" for name, one, count in pairs if len(set(one)) < count)
        only = f" Only in {only}." if only else ""
        yield _one_position(p[tuple(rows[0])], at, wrong[tuple(rows[0])], tokens, tolerance, only)
    elif near(np.ptp(p[..., :tokens], -1), np.zeros((batch, heads)), tolerance):
        text = ", ".join(f"batch {b}, head {h} by {number(p[b, h, 0])}" for b, h in rows[:4])
        text = f"All tokens of a head are rotated by one position: {text}; expected their own."
        yield Reading("positions", text, True)
    else:
        text = f"The position depends on the head or the batch row: {text}; expected {listed(at)} in all."
        yield Reading("positions", text, True)


def _one_position(p: Float64, at: Float64, wrong: Array, tokens: int, tolerance: float, only: str) -> Reading:
    """Say which positions tokens are rotated by, if this is the same in all heads that are wrong."""
    count = np.arange(len(at)) % tokens
    words = law(at, p, "p", tolerance if (p % 1).any() else 1e-6)
    first = int(np.flatnonzero(wrong)[0])
    text = f"Position {number(at[first])} is taken for {number(p[first])}"
    if words:
        return Reading("positions", f"{text}: position p is taken for {words}; expected p.{only}", True)
    of_token = "n" if near(p, count) else law(count, p, "n", tolerance)
    of_token = "the first position + n" if near(p, np.repeat(at[::tokens], tokens) + count) else of_token
    if of_token:
        return Reading("positions", f"{text}: token n is rotated by {of_token}, not by its position.{only}", True)
    right = f" Right are the positions {runs(at[~wrong].astype(int))}." if not wrong.all() else ""
    return Reading("positions", f"{text}; the positions {listed(at[wrong])} for {listed(p[wrong])}.{right}{only}")


def _frequencies(
    theta: Float64, at: Float64, w: Float64, case: Case, tolerance: float, whole: bool
) -> Iterator[Reading]:
    """Read the frequency of each pair, and the position at which its angle is 0."""
    if not same_angles(theta, theta[:1, :1], 5 * tolerance):
        text = f"Angles differ between heads or batch rows: pair 0 of token 1 has {listed(theta[:, :, 1, 0])}."
        yield Reading("angles", text)
        return
    angle = theta[0, 0]
    found = solved((angle - angle[0]).T, at - at[0])
    left = np.angle(np.exp(1j * (angle - at[:, None] * found)))
    start = np.angle(np.exp(1j * left).mean(0))
    off = abs(np.angle(np.exp(1j * (left - start)))).max(0)

    if off.max() > 5 * tolerance:
        worst = int(off.argmax())
        text = f"The angle of pair {worst} is {listed(angle[:, worst])} for positions {listed(at)}; expected"
        text = f"{text} {listed(np.angle(np.exp(1j * at * w[worst])))}. It is no multiple of the position."
        yield Reading("angles", text)
        return
    if abs(start).max() > 10 * tolerance:
        shift = float(solved(start[None], found)[0])
        text = f"At position 0 the angles are {listed(start)}; expected 0."
        is_shift = same_angles(start, shift * found, 10 * tolerance)
        text = f"{text} Position p is taken for p + {number(shift)}." if is_shift else text
        yield Reading("positions", text, is_shift)
    error = np.full(len(w), tolerance / 16 / max(float(abs(at - at[0]).max()), 1.0))
    yield from read_frequencies(found, case, error, whole)


def _coordinates(
    turns: Callable[[Array], npt.NDArray[np.complex128]], probe: Probe, axis: Array, w: Float64
) -> Iterator[Reading]:
    """Read the frequency that each pair has for each coordinate, while the other coordinates are 0."""
    shape = probe.places[0].shape
    still = turns(np.zeros(shape, int))[0, 0]
    if abs(still - 1).max() > 10 * probe.tolerance:
        k = int(abs(still - 1).max(0).argmax())
        shift = float(np.median(solved(np.angle(still), w)))
        text = f"With all coordinates 0, pair {k} is turned by {number(float(np.angle(still[0, k])))}; expected 0."
        yield Reading("coordinates", f"{text} Its coordinate has the offset {number(shift)}.", True)
        return
    steps = np.arange(shape[1])
    moved = [steps * (np.arange(shape[0]) == one)[:, None] for one in range(shape[0])]
    got = np.array([solved(np.angle(turns(place)[0, 0]).T, steps.astype(np.float64)) for place in moved])
    reads = abs(got) > 1e-6
    several = np.flatnonzero(reads.sum(0) > 1)
    if len(several):
        text = f"Pair {several[0]} turns with the coordinates {runs(reads[:, several[0]])}; expected with"
        yield Reading("coordinates", f"{text} {axis[several[0]]} alone.", True)
        return
    own = abs(got).argmax(0)
    off = (own != axis) & reads.any(0)
    if off.any() and off.sum() <= SHOWN:
        text = f"The pairs {runs(off)} read the coordinates {listed(own[off])}; expected {listed(axis[off])}."
        yield Reading("coordinates", text, True)
    elif off.any():
        now, then = (
            "; ".join(f"coordinate {one}: pairs {runs(of == one)}" for one in range(shape[0])) for of in (own, axis)
        )
        yield Reading("coordinates", f"Pairs read {now}; expected {then}.", True)
    by_pair = got[own, np.arange(len(own))]
    yield from _by_coordinate(by_pair, w, own, axis, probe.case)


def _series(w: Float64) -> str:
    """Describe frequencies by a formula, if there is one."""
    first, ratio = geometric(w) or (0.0, 1.0)
    times = f"{number(first)} * " if abs(first - 1) > 1e-4 else ""
    return f"{times}{number(ratio ** -len(w))}**(-k / {len(w)})" if first else listed(w)


def _by_coordinate(got: Float64, w: Float64, own: Array, axis: Array, case: Case) -> Iterator[Reading]:
    """Say which frequencies the pairs of each coordinate have."""
    off = np.flatnonzero(abs(got - w) > 2e-5 + 1e-3 * abs(w))
    if not len(off):
        return
    every, texts = np.unique(case["w"])[::-1], []
    for one in np.unique(own[off]):
        pairs = np.flatnonzero(own == one)
        found, expected = got[pairs], w[pairs]
        source, times = abs(found[:, None] - every).argmin(1), float((found * expected).sum() / (expected**2).sum())
        has = f"the frequencies {'; expected '.join(map(_series, (found, expected)))}"
        if (abs(found - every[source]) <= 1e-5 + 1e-3 * abs(found).max()).all():
            indices = (runs(abs(x[:, None] - every).argmin(1)) for x in (found, expected))
            has = f"the frequencies {'; expected '.join(indices)}"
        elif near(found, times * expected, 2e-5) and near(np.log(found / expected), 0 * found + np.log(times), 1e-3):
            has = f"{number(times)}{named(times)} times the right frequencies"
        texts.append(f"The pairs {runs(pairs)} of coordinate {one} have {has}.")
    yield Reading("frequencies", " ".join(texts), True)


# ---- numbers without a function ----


def read_numbers(probe: Probe) -> Iterator[Reading]:
    """Read the layout and the angles off one result: in the right layout, turns of a pair are alike in all heads."""
    case, place = probe.case, probe.places[0]
    x, y = probe.right(probe.x, place), probe.impl(probe.x, place)
    for layout in (case["layout"], case["other"]):
        a, b = _pairs_of(layout, case).T
        z = (y[..., a] + 1j * y[..., b]) / (x[..., a] + 1j * x[..., b])
        lengths = abs(z)
        if np.ptp(lengths) > 10 * probe.tolerance or case["axis"] is not None:
            continue
        if layout != case["layout"]:
            numbers = channels_of({**case, "turn": layout, "turn_out": layout, "tables": layout})
            causes = known(CHANNELS, case, channels_of, numbers, 0.5, "pairs")
            text = f"Pairs of channels are {case['other_pairs']}; expected {case['pairs']}."
            yield Reading("pairs", text, True, causes)
        yield from read_factor(float(lengths.mean()), case)
        at = place.astype(float)
        yield from read_angles(np.angle(z), at, case, probe.tolerance, len(at), whole=True)
        return


# ---- sinusoids ----


def read_sinusoid(c: Case, numbers: Float64, wanted: Float64) -> Iterator[Reading]:
    """Read a table of sines and cosines: layout, order and size, then angles as those of a rotation of (1, 0)."""
    pairs, at, tolerance = c["dim"] // 2, c["positions"], 1e-3
    is_half = c["sine_layout"] == "half"
    sides = {False: (numbers[:, : 2 * pairs : 2], numbers[:, 1::2]), True: (numbers[:, :pairs], numbers[:, -pairs:])}
    right, found = np.exp(1j * at[:, None] * c["w"][:pairs]), []
    for half, exchanged in ((is_half, False), (is_half, True), (not is_half, False), (not is_half, True)):
        sine, cosine = sides[half][:: 1 if (c["order"] == "sincos") != exchanged else -1]
        z, still = cosine + 1j * sine, abs(sine[at == 0]).max(initial=0) < 10 * tolerance
        size = float(abs(z).mean()) if pairs else 0.0
        if size and np.ptp(abs(z)) <= tolerance * size:
            found.append((abs(z / size - right).max() > 10 * tolerance, not still, half != is_half, exchanged, z, size))
    for _, _, other, exchanged, z, size in sorted(found, key=lambda one: one[:4])[:1]:
        if other:
            text = f"The sines and cosines have the layout {('half', 'interleaved')[is_half]}; expected"
            yield Reading("layout", f"{text} {c['sine_layout']}.", True)
        if exchanged:
            yield Reading("order", f"Sines and cosines are exchanged; expected the order {c['order']}.", True)
        if abs(size - 1) > tolerance:
            text = f"The numbers are {number(size)} times the right ones{named(size, {'dim': float(c['dim'])})}."
            yield Reading("size", text, True)
        whole = bool((at == np.rint(at)).all())
        yield from read_angles(np.angle(z)[None, None], at, c, tolerance, len(at), whole)
        return
    waves = list(_waves(c, numbers, wanted))
    off = np.asarray((abs(numbers - wanted) > 10 * tolerance).any(-1))
    if not waves and off.sum() <= len(off) // 3:
        row = int(off.argmax())
        text = f"The rows of the positions {listed(at[off])} are wrong, the others are right."
        text = f"{text} That of {number(at[row])} is {versus(numbers[row], wanted[row])}."
        yield Reading("rows", text, not numbers[off].any())
    yield from waves


def _waves(c: Case, numbers: Float64, wanted: Float64) -> Iterator[Reading]:
    """Read each channel as a wave: f(n + 1) + f(n - 1) = 2 cos(w) f(n) at whole positions in a row."""
    if len(numbers) < 8 or (np.diff(c["positions"]) != 1).any():
        return
    sums, middle = ([table[2:] + table[:-2] for table in (numbers, wanted)], [one[1:-1] for one in (numbers, wanted)])
    turns = ((a * b).sum(0) / (2 * (b**2).sum(0)) for a, b in zip(sums, middle, strict=True))
    found = [np.arccos(np.clip(one, -1, 1)) for one in turns]
    if not near(sums[0], 2 * np.cos(found[0]) * middle[0], 1e-3):
        return
    sines = [runs(abs(table[0]) < 0.5) for table in (numbers, wanted)]
    text = f"Channels have the frequencies {versus(found[0], found[1])}, one for a sine and a cosine"
    text += "." if sines[0] == sines[1] else f". Sines are the channels {sines[0]}; expected {sines[1]}."
    channel = np.arange(c["dim"])
    laws = {f"base**(-{step} c / dim)": c["base"] ** (-step * channel / c["dim"]) for step in (1, 2)}
    words = [name for name, w in laws.items() if near(found[0], w, 2e-3)]
    same = near(found[0], found[1], 2e-3)
    more = f" Channel c has the frequency {words[0]}: use 2 (c // 2) in place of c." if words else ""
    yield Reading("frequency of channels", text + more, bool(words) or same)
