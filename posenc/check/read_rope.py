"""Readers of a rotation: its rows, channels, formula, lengths, positions, coordinates and frequencies.

A reader calls the implementation with chosen inputs, and the right rotation with the same inputs. It is used only if
the implementation is wrong. Parts are read from the outside inwards, and a part that hides the inner ones ends the
reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from .inputs import rounded
from .judge import ROUNDOFF, Case
from .laws import geometric, law, listed, named, near, number, runs, same_angles, solved
from .report import Array, Float64, Reading

Rotation: TypeAlias = Callable[[Float64, Array], Float64]
"""A rotation of x (batch, heads, N, width) by positions (N,), or by coordinates (C, N)."""
Pairs: TypeAlias = list[tuple[int, int]]
TERMS = ("", "cos", "sin", "cos sin", "sin sin")
"""The terms of the formula; the first is a constant."""


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
        yield Reading("repetition", "The same call gives other numbers the second time.")
        return
    for part in (_rows, _inner, _rounding):
        is_wrong = False
        for reading in part(probe):
            is_wrong = True
            yield reading
        if is_wrong:
            return


def _rounding(probe: Probe) -> Iterator[Reading]:
    """Read whether the numbers are numbers of 16 bits: all results, or those of x = 1 only, which show the tables."""
    place = probe.places[0]
    result, tables = probe.impl(probe.x, place), _matrix(probe.impl, probe.x, place)
    for dtype in ("bfloat16", "float16"):
        if ROUNDOFF[probe.precision] >= ROUNDOFF[dtype]:
            continue
        if near(result, rounded(result, dtype), 1e-7):
            yield Reading(
                "rounding", f"All numbers of the result are numbers of {dtype}; expected {probe.precision}.", True
            )
            return
        if near(tables, rounded(tables, dtype), 1e-7):
            yield Reading("rounding", f"The tables of cos and sin are rounded to {dtype}; the result is not.", True)
            return


def _rows(probe: Probe) -> Iterator[Reading]:
    """Read which token each row of the result holds: scaled rows stay scaled under any rotation."""
    shape = probe.x.shape[:-1]
    if probe.tolerance > 0.01:  # 16 bits cannot tell the rows apart
        return
    vector = np.broadcast_to(probe.x[:1, :1, :1], probe.x.shape)
    size = 1 + np.arange(np.prod(shape)).reshape(shape) / 8.0
    base, scaled = (
        np.linalg.norm(probe.impl(one, probe.places[0]), axis=-1) for one in (vector, vector * size[..., None])
    )
    source = 8 * (scaled / np.maximum(base, 1e-30) - 1)
    at = np.rint(source)
    if not near(source, at, 0.1) or (at < 0).any() or (at >= size.size).any():
        return
    lengths = np.linalg.norm(probe.x, axis=-1).ravel()[at.ravel().astype(int)].reshape(shape)
    found_lengths = np.linalg.norm(probe.impl(probe.x, probe.places[0]), axis=-1)
    if (at.ravel() == np.arange(size.size)).all() or np.ptp(found_lengths / lengths) > probe.tolerance:
        return
    index = np.unravel_index(int(np.flatnonzero(at.ravel() != np.arange(size.size))[0]), shape)
    found = np.unravel_index(int(at[index]), shape)
    here, there = ("batch row {}, head {}, token {}".format(*one) for one in (index, found))
    share = float((at.ravel() != np.arange(size.size)).mean())
    text = f"The result at {here} is the rotated {there} of x; {100 * share:.0f} % of the rows are from another place."
    yield Reading("rows", text, True)


def _matrix(rotation: Rotation, x: Float64, place: Array) -> Float64:
    """Return the matrices (batch, heads, N, width of the result, width of x) that a rotation multiplies with."""
    columns = []
    for channel in range(x.shape[-1]):
        one = np.zeros(x.shape)
        one[..., channel] = 1.0
        columns.append(rotation(one, place))
    return np.stack(columns, -1)


def _sources(matrices: Sequence[Float64], tolerance: float) -> list[tuple[int, ...]]:
    """Return the channels of x that each channel of the result reads."""
    used = np.any([abs(one).max((0, 1, 2)) > tolerance for one in matrices], 0)
    return [tuple(int(i) for i in np.flatnonzero(row)) for row in used]


def _turned(matrices: Sequence[Float64], tolerance: float) -> set[int]:
    """Return the channels that do not pass unchanged."""
    off = np.max([abs(one - np.eye(one.shape[-1])).max((0, 1, 2, 4)) for one in matrices], 0)
    return {int(i) for i in np.flatnonzero(off > tolerance)}


def _pairs(sources: Sequence[tuple[int, ...]]) -> Pairs:
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


def _inner(probe: Probe) -> Iterator[Reading]:
    """Read channels and pairs, then the formula; then, of a rotation, lengths and angles."""
    tolerance, place, width = probe.tolerance, probe.places[0], probe.x.shape[-1]
    got = _matrix(probe.impl, probe.x, place)
    if not near(probe.impl(probe.x, place), (got @ probe.x[..., None])[..., 0], 10 * tolerance):
        zero = float(abs(probe.impl(0 * probe.x, place)).max())
        more = f" Of x = 0 it makes numbers up to {number(zero)}." if zero > tolerance else ""
        yield Reading("linearity", f"The result is not linear in x; expected a rotation of x.{more}")
        return
    seen = [got, *_further_matrices(probe)]
    far = np.broadcast_to(977 * np.arange(place.shape[-1]), place.shape)  # slow pairs turn, too
    wanted, of_far = (_matrix(probe.right, probe.x, one) for one in (place, far))
    sources, right_sources = _sources(seen, tolerance), _sources([wanted, of_far], tolerance)
    pairs, right_pairs = _pairs(sources), _pairs(right_sources)
    turned, right_turned = _turned(seen, tolerance), _turned([wanted, of_far], tolerance)
    if not turned:
        yield Reading("channels", "No channel is rotated: the result is x.", True)
        return
    if not turned <= right_turned:
        yield Reading("channels", f"Channels {runs(turned)} are rotated; expected {runs(right_turned)}.", True)
    fewer = set(pairs) < set(right_pairs) and turned < right_turned
    if fewer:  # the others may turn so slowly that they seem to stand
        pairs, sources = right_pairs, right_sources
    elif pairs != right_pairs:
        if not pairs or max(map(len, sources)) > 2:
            i = next(i for i in range(width) if sources[i] != right_sources[i])
            text = f"Channel {i} of the result reads channels {runs(sources[i]) or 'none'} of x; expected"
            yield Reading("pairs", f"{text} {runs(right_sources[i])}.")
            return
        yield Reading("pairs", f"Pairs of channels are {_layout(pairs)}; expected {_layout(right_pairs)}.", True)
    elif sources != right_sources:
        i = next(i for i in range(width) if sources[i] != right_sources[i])
        yield Reading(
            "order of channels",
            f"Channel {i} of the result reads channels {runs(sources[i])} of x; expected {runs(right_sources[i])}. The "
            "pairs are right, and their results are stored in another order.",
            True,
        )
    if not pairs or not right_pairs:
        return
    inner = list(_of_pairs(probe, got, wanted, pairs, right_pairs, sources, right_sources))
    if fewer and not any(one.part == "positions" for one in inner):
        yield Reading("channels", f"Channels {runs(turned)} are rotated; expected {runs(right_turned)}.", True)
    yield from inner


def _further_matrices(probe: Probe) -> list[Float64]:
    """Return the matrices at the last positions, if the implementation takes them."""
    if len(probe.places) == 1:
        return []
    try:
        return [_matrix(probe.impl, probe.x, probe.places[-1])]
    except Exception:
        return []


def _of_pairs(
    probe: Probe,
    got: Float64,
    wanted: Float64,
    pairs: Pairs,
    right_pairs: Pairs,
    sources: Sequence[tuple[int, ...]],
    right_sources: Sequence[tuple[int, ...]],
) -> Iterator[Reading]:
    """Read the formula of known pairs, and the angles if it is the one of a rotation."""
    rows, tolerance = _rows_of(sources, pairs), probe.tolerance
    entries = _entries(got, pairs, rows)
    if len(pairs) == len(right_pairs):
        formula = list(_formula(entries, _entries(wanted, right_pairs, _rows_of(right_sources, right_pairs)), probe))
        yield from formula
        if formula:
            return
    a, b, c, d = entries
    apart = [i for i in range(len(pairs)) if not (near(a[i], d[i], 5 * tolerance) and near(b[i], -c[i], 5 * tolerance))]
    if apart:
        yield from _by_channel(probe, got, wanted, pairs[apart[0]])
        return
    known = set(pairs) <= set(right_pairs)
    index = [right_pairs.index(one) for one in pairs] if known else list(range(len(pairs)))
    if max(index) < len(probe.case["w"]):
        yield from _angles(probe, pairs, rows, index)


def _by_channel(probe: Probe, got: Float64, wanted: Float64, pair: tuple[int, int]) -> Iterator[Reading]:
    """Read which coordinate or which frequency turns each channel, if the channels of a pair differ."""
    text = f"The channels {pair[0]} and {pair[1]} of a pair are turned by different angles."
    place, width = probe.places[0], probe.x.shape[-1]
    axis, w = probe.case["axis"], probe.case["w"]
    if axis is not None:
        found = []
        for rotation in (probe.impl, probe.right):
            words = []
            for one in range(len(place)):
                moved = np.zeros(place.shape, int)
                moved[one] = 977 * np.arange(place.shape[1])
                own = np.einsum("...cc->...c", _matrix(rotation, probe.x, moved))[0, 0]
                words.append(
                    f"coordinate {one} turns {runs(np.flatnonzero(np.ptp(own, 0) > probe.tolerance)) or 'none'}"
                )
            found.append(", ".join(words))
        yield Reading("coordinates", f"{text} Of the channels, {found[0]}; expected: {found[1]}.", found[0] != found[1])
        return
    at = np.flatnonzero(place == 1)
    if len(at):
        cosines = (np.einsum("...cc->...c", one)[0, 0, at[0]] for one in (got, wanted))
        pairs_of = [abs(np.arccos(np.clip(one, -1, 1))[:, None] - w).argmin(1) for one in cosines]
        shown = [i for i in range(width) if wanted[0, 0, at[0], i, i] < 1 - probe.tolerance][: width // 2]
        of = [listed(one[shown]) for one in pairs_of]
        yield Reading(
            "formula", f"{text} Channels {runs(shown)} have the frequencies of pairs {of[0]}; expected {of[1]}.", True
        )


def _rows_of(sources: Sequence[tuple[int, ...]], pairs: Pairs) -> Pairs:
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
    if probe.case["decay"] is not None or near(got, wanted, tolerance) or near(np.ptp(cos), 0.0, tolerance):
        return
    cos, sin = cos / size, sin / size
    basis = np.stack([np.ones_like(cos), cos, sin, cos * sin, sin * sin]).reshape(len(TERMS), -1).T
    factors = [np.linalg.lstsq(basis, one.ravel(), rcond=None)[0] for one in got]
    left = [abs(basis @ f - one.ravel()).max() for f, one in zip(factors, got, strict=True)]
    plain = [[0, size, 0, 0, 0], [0, 0, -size, 0, 0], [0, 0, size, 0, 0], [0, size, 0, 0, 0]]
    if max(left) > 10 * tolerance or near(factors, plain, tolerance):
        return
    times = float(factors[0][1] / size)
    if times > 0 and near(factors, times * np.array(plain), 2 * tolerance):
        words = named(times, {"the right factor": size})
        yield Reading("lengths", f"Rotated vectors are {number(times)} times as long as they should be{words}.", True)
        return
    a, b, c, d = (_sum(f, 10 * tolerance) for f in factors)
    e, f, g, h = (_sum(np.array(one), 1e-6) for one in plain)
    yield Reading(
        "formula",
        f"With cos and sin of the right angles, the pair (x, y) becomes x ({a}) + y ({b}), x ({c}) + y ({d}); expected "
        f"x ({e}) + y ({f}), x ({g}) + y ({h}).",
        True,
    )


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
    w = probe.case["w"][::-1] if probe.case["reversed"] else probe.case["w"]
    w = w[list(index)]

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
    z, at = np.concatenate(found, -2), np.concatenate(probe.places[: len(found)]).astype(np.float64)
    if probe.case["decay"] is not None:
        expected = np.concatenate([turns(place, probe.right) for place in probe.places[: len(found)]], -2)
        slopes = [float(np.polyfit(at, np.log(np.maximum(abs(one[0, 0, :, 0]), 1e-30)), 1)[0]) for one in (z, expected)]
        if abs(slopes[0] - slopes[1]) > 1e-5 and abs(slopes[0] - slopes[1]) > 1e-3 * abs(slopes[1]):
            text = f"The logarithm of the length of pair 0 grows by {number(slopes[0])} for each position"
            yield Reading("lengths", f"{text}; expected {number(slopes[1])}.", True)
    elif np.ptp(abs(z)) > 10 * probe.tolerance:
        lengths = abs(z).mean((0, 1, 2))
        yield Reading("lengths", f"The lengths of pairs become {listed(lengths)} times as long; expected one factor.")
    positions = list(_positions(np.angle(z), at, w, probe, len(at) // len(found)))
    yield from positions
    if not positions:
        yield from _frequencies(np.angle(z), at, w, probe)


def _positions(theta: Float64, at: Float64, w: Float64, probe: Probe, tokens: int) -> Iterator[Reading]:
    """Read the position that each token is rotated by, (batch, heads, N)."""
    expected = at[:, None] * w

    def error(p: Float64) -> Float64:
        return np.asarray(abs(np.exp(1j * p[..., None] * w) - np.exp(1j * theta)).max(-1))

    near_zero, near_right = solved(theta, w), at + solved(theta - expected, w)
    p = np.where(error(near_right) <= error(near_zero), near_right, near_zero)
    p = np.where(error(np.rint(p)) <= 5 * probe.tolerance, np.rint(p), p)
    fits = error(p) <= 5 * probe.tolerance
    if not fits.all():
        return
    slack = np.maximum(5 * probe.tolerance / max(w.max(), 1e-30), 1e-6 * abs(at))
    wrong = abs(p - at) > slack
    if not wrong.any():
        return
    batch, heads = p.shape[:2]
    rows = [(b, h) for b in range(batch) for h in range(heads) if wrong[b, h].any()]
    alike = all(near(p[one], p[rows[0]], probe.tolerance) for one in rows)
    if alike:
        which = [f"batch rows {runs(b for b, _ in rows)}"] if len({b for b, _ in rows}) < batch else []
        which += [f"heads {runs(h for _, h in rows)}"] if len({h for _, h in rows}) < heads else []
        only = f" Only in {' and '.join(which)}." if which else ""
        yield _one_position(p[rows[0]], at, wrong[rows[0]], tokens, probe.tolerance, only)
        return
    same_head = near(np.ptp(p[..., :tokens], -1), np.zeros((batch, heads)), probe.tolerance)
    if same_head:
        text = ", ".join(f"batch {b}, head {h} by {number(p[b, h, 0])}" for b, h in rows[:4])
        yield Reading(
            "positions", f"All tokens of a head are rotated by one position: {text}; expected their own.", True
        )
        return
    heads_shown = "; ".join(f"batch {b}, head {h} by positions {listed(p[b, h])}" for b, h in rows[:3])
    yield Reading(
        "positions",
        f"The position depends on the head or the batch row: {heads_shown}; expected {listed(at)} in all.",
        True,
    )


def _one_position(p: Float64, at: Float64, wrong: Array, tokens: int, tolerance: float, only: str) -> Reading:
    """Say which positions tokens are rotated by, if this is the same in all heads that are wrong."""
    count = np.arange(len(at)) % tokens
    words = law(at, p, "p", tolerance)
    first = int(np.flatnonzero(wrong)[0])
    text = f"Position {number(at[first])} is taken for {number(p[first])}"
    if words:
        scales = near(p[at != 0] / at[at != 0], np.median(p[at != 0] / at[at != 0]) + 0 * p[at != 0], tolerance)
        also = f"{named(abs(float(p[-1] / at[-1])))} (or the frequencies have this factor)" if scales else ""
        return Reading("positions", f"{text}: position p is taken for {words}{also}; expected p.{only}", True)
    of_token = law(count, p, "n", tolerance)
    if of_token:
        return Reading("positions", f"{text}: token n is rotated by {of_token}, not by its position.{only}", True)
    right = f" Right are the positions {runs(at[~wrong].astype(int))}." if not wrong.all() else ""
    return Reading("positions", f"{text}; the positions {listed(at[wrong])} for {listed(p[wrong])}.{right}{only}")


def _frequencies(theta: Float64, at: Float64, w: Float64, probe: Probe) -> Iterator[Reading]:
    """Read the frequency of each pair, and the position at which its angle is 0."""
    if not same_angles(theta, theta[:1, :1], 5 * probe.tolerance):
        yield Reading(
            "angles", f"Angles differ between heads or batch rows: pair 0 of token 1 has {listed(theta[:, :, 1, 0])}."
        )
        return
    angle = theta[0, 0]
    found = solved((angle - angle[0]).T, at - at[0])
    left = np.angle(np.exp(1j * (angle - at[:, None] * found)))
    start = np.angle(np.exp(1j * left).mean(0))
    if abs(np.angle(np.exp(1j * (left - start)))).max() > 10 * probe.tolerance:
        worst = int(abs(np.angle(np.exp(1j * (left - start)))).max(0).argmax())
        yield Reading(
            "angles",
            f"The angle of pair {worst} is {listed(angle[:, worst])} for positions {listed(at)}; expected "
            f"{listed(np.angle(np.exp(1j * at * w[worst])))}. It is no multiple of the position.",
        )
        return
    if abs(start).max() > 10 * probe.tolerance:
        shift = float(solved(start[None], found)[0])
        text = f"At position 0 the angles are {listed(start)}; expected 0."
        is_shift = same_angles(start, shift * found, 10 * probe.tolerance)
        yield Reading(
            "positions", f"{text} Position p is taken for p + {number(shift)}." if is_shift else text, is_shift
        )
    yield from say_frequencies(found, w, probe.case)


def say_frequencies(got: Float64, wanted: Float64, case: Case) -> Iterator[Reading]:
    """Say what frequencies are, compared with the right ones."""
    count, base = len(wanted), case["base"]
    off = np.flatnonzero(abs(got - wanted) > 2e-5 + 1e-4 * abs(wanted))
    if not len(off):
        return
    k = int(off[0])
    first = f"The frequency of pair {k} is {number(got[k])}; expected {number(wanted[k])}."
    for dtype in ("bfloat16", "float16"):
        if abs(got - rounded(wanted, dtype)).max() < 1e-5 and off.any():
            yield Reading("frequencies", f"{first} Frequencies are rounded to {dtype}.", True)
            return
    if same_angles(1 / np.where(wanted == 0, np.inf, wanted), got, 1e-2):
        yield Reading("frequencies", f"{first} Frequencies are the reciprocals of the right ones: wavelengths.", True)
        return
    distance = abs(got[:, None] - wanted)
    source = distance.argmin(1)
    if distance.min(1).max() < 1e-6 + 1e-5 * abs(got).max() and len(set(wanted)) == count and count > 4:
        words = law(np.arange(count), source, "k")
        text = f"Pair k has the frequency of pair {words or listed(source)}; expected of pair k."
        yield Reading("frequencies", f"{first} {text}", True)
        return
    series, expected = geometric(got), geometric(wanted)
    if series and expected:
        (start, ratio), (right_start, right_ratio) = series, expected
        power = float(np.log(ratio) / np.log(right_ratio))
        text = f"Frequencies are {number(start)} * {number(ratio**-count)}**(-k / {count}); expected "
        text += f"{number(right_start)} * {number(right_ratio**-count)}**(-k / {count})."
        more = f" The base is {number(ratio**-count)}, or exponents are {number(power)} times the right ones"
        same_base = abs(power - 1) < 1e-4
        known = {"the number of pairs / (it - 1)": count / (count - 1)}
        known["the rotated share of the head"] = case["rotary_dim"] / case["width"]
        yield Reading("frequencies", text if same_base else f"{text}{more}{named(power, known)}.", True)
        return
    plain = case["plain"][:count]
    if case["scales"] and len(plain) == count and (got > 0).all():
        by, right_by = plain / got, plain / wanted
        yield Reading(
            "frequencies",
            f"{first} Of the frequencies {number(base)}**(-k / {count}), those of pairs {runs(off)} are divided by "
            f"{listed(by[off])}; expected {listed(right_by[off])}.",
            near(by, 1.0 + 0 * by, 1e-4),
        )
        return
    zero = [int(i) for i in off if abs(got[i]) < 1e-6]
    text = f" Pairs {runs(zero)} do not turn." if zero else ""
    yield Reading(
        "frequencies", f"{first} Wrong are pairs {runs(off)}.{text}", 4 * len(off) <= count or len(zero) == len(off)
    )


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
    found = []
    for one in range(shape[0]):
        place = np.zeros(shape, int)
        place[one] = np.arange(shape[1])
        found.append(solved(np.angle(turns(place)[0, 0]).T, np.arange(float(shape[1]))))
    got = np.array(found)
    reads = abs(got) > 1e-6
    if (reads.sum(0) > 1).any():
        k = int(np.flatnonzero(reads.sum(0) > 1)[0])
        yield Reading(
            "coordinates",
            f"Pair {k} turns with the coordinates {runs(np.flatnonzero(reads[:, k]))}; expected with {axis[k]} alone.",
            True,
        )
        return
    own = abs(got).argmax(0)
    if ((own != axis) & reads.any(0)).any():
        now, then = (
            "; ".join(f"coordinate {one}: pairs {runs(np.flatnonzero(of == one))}" for one in range(shape[0]))
            for of in (own, axis)
        )
        yield Reading("coordinates", f"Pairs read {now}; expected {then}.", True)
    by_pair = got[own, np.arange(len(own))]
    yield from _by_coordinate(by_pair, w, own, axis, probe.case)


def _by_coordinate(got: Float64, w: Float64, own: Array, axis: Array, case: Case) -> Iterator[Reading]:
    """Say which frequencies the pairs of each coordinate have."""
    off = np.flatnonzero(abs(got - w) > 2e-5 + 1e-3 * abs(w))
    if not len(off):
        return
    every = np.unique(case["w"])[::-1]
    texts = []
    for one in np.unique(own):
        pairs = np.flatnonzero(own == one)
        if not set(pairs) & set(off):
            continue
        near_ones = abs(got[pairs][:, None] - every)
        source = near_ones.argmin(1)
        if near_ones.min(1).max() > 1e-5 + 1e-3 * abs(got[pairs]).max():
            series = geometric(got[pairs])
            has = f"a base of {number(series[1] ** -len(pairs))}" if series else f"the frequencies {listed(got[pairs])}"
        else:
            has = f"frequencies {runs(source)}"
        right = [int(abs(every - w[k]).argmin()) for k in pairs]
        texts.append(f"The pairs {runs(pairs)} of coordinate {one} have {has}; expected {runs(right)}.")
    yield Reading("frequencies", " ".join(texts), True)
