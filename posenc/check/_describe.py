"""What is this? The call of posenc that equals an implementation which nobody documented.

Its parts are read as those of a wrong implementation are, but without a right one. They make candidates, which are
arguments of the checks; the first one that a check calls right is the answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import posenc

from ._attention import attention, attention_case
from ._biases import bias
from ._frequencies import LENGTH, base_of
from ._inputs import FAR, ToArray, call, choice, draw, parts, without_weights
from ._laws import listed, near, solved
from ._mask import HIDES, mask
from ._read_rope import matrix_of, pairs_in, rows_of, sources_of
from ._report import Array, Float64, Report
from ._rope import rope, sinusoid

__tracebackhide__ = True  # pytest shows the line of the implementation

LENGTHS = (8192, 4096, 2048, 32768, 16384, 131072, 65536, 262144, 1024, 512)
"""Trained lengths of scaled frequencies that are tried."""
SCALINGS: tuple[dict[str, Any], ...] = (
    {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    {"rope_type": "yarn"},
    {"rope_type": "yarn", "truncate": False},
)
BUCKETS = [(n, far) for n in (32, 64, 320, 128, 16) for far in (128, 64, 256, 512, 800, 1024) if far > n]
"""Numbers of buckets and maximal distances of T5 that are tried."""
LARGE = 160
"""Queries and keys of a bias, so that the buckets of T5 show."""
CAPS = np.geomspace(1.0, 1e3, 4000)
LEAST = 1e-300
LOUD = 6.0
"""A factor of queries by which caps show."""
NOISE = 1e-3
"""Error of frequencies that are read off tables of 16 bits."""
MOST = 40
"""Most calls that are compared with an implementation."""


class Description(NamedTuple):
    """What an implementation computes, as a call of posenc."""

    call: str
    """The call, whose numbers are those of the implementation; empty if none was found."""
    arrays: Mapping[str, Array] = {}
    """The arrays of the call by name, such as a table that was read."""
    unread: str = ""
    """What was not read, or has no formula."""

    def __str__(self) -> str:
        lines = [self.call or "No call of posenc was found that gives these numbers."]
        lines += [f"{name}: shape {x.shape}, {listed(x)}" for name, x in self.arrays.items()]
        return "\n".join([*lines, *[f"Not read: {self.unread}"] * bool(self.unread)])


class Candidate(NamedTuple):
    """A call that may give the numbers of an implementation."""

    call: str
    given: Mapping[str, Any]
    """Arguments of the check."""
    arrays: Mapping[str, Array] = {}
    unread: str = ""


Candidates = Iterator[Candidate]


def words(**options: object) -> str:
    return "".join(f", {name}={value!r}" for name, value in options.items() if value is not None)


def constants(x: float) -> list[float]:
    """Return x with more and more digits: constants of programs have few."""
    return list(dict.fromkeys(float(f"{x:.{digits}g}") for digits in (1, 2, 3, 4, 6, 9)))


# ---- rotations and sinusoids ----


def base_near(w: Float64) -> float:
    """Return the base of a geometric series that is near w; 1 if there is none."""
    return base_of(w, np.full(len(w), NOISE))[0] if len(w) > 1 and (w > 0).all() else 1.0


def frequencies_of(w: Float64, size: float) -> Iterator[tuple[str, Any]]:
    """Yield calls that give frequencies and their attention factor, the simplest ones first."""
    r = 2 * len(w)
    tried: list[dict[str, Any]] = [{"base": base} for base in constants(base_near(w))]
    if 0 < w[0] < 0.9:
        factor = float(f"{1 / w[0]:.4g}")
        tried += [{**keys, "rope_type": "linear", "factor": factor} for keys in tried]
    if len(w) > 3 and (w > 0).all():  # fast pairs are not scaled, and the slowest is divided by the factor
        for base, more, length in itertools.product(constants((w[0] / w[1]) ** (r / 2)), SCALINGS, LENGTHS):
            factor = float(f"{base ** (2 / r - 1) / w[-1]:.4g}")
            tried += [{"base": base, "factor": factor, LENGTH: length, **more}] * (factor > 1)
    for keys in tried:
        found = posenc.rope_frequencies(r, **keys)
        if keys.get("rope_type") == "yarn" and abs(found.attention_factor - size) > 1e-4:
            found = posenc.rope_frequencies(r, **keys, attention_factor=size)
            keys = {**keys, "attention_factor": size}
        if near(found.inv_freq, w, 1e-2) and (len(keys) == 1 or near(found.inv_freq / w, 0 * w + 1, 1e-3)):
            yield f"posenc.rope_frequencies({r}{words(**keys)})", found
    more = words(attention_factor=size if abs(size - 1) > 1e-5 else None)
    yield f"posenc.RopeFrequencies(w{more})", posenc.RopeFrequencies(w, attention_factor=size)


def rotations(run: Callable[[Float64, Array], Float64], x: Float64, seq_axis: int) -> Candidates:
    """Yield calls of a rotation by its channels, pairs, results and angles."""
    places = [np.arange(24), np.sort(FAR)]
    seen = [matrix_of(run, x, place) for place in places]
    sources = sources_of(seen, 2e-3)
    pairs = pairs_in(sources)
    if len({b - a for a, b in pairs}) != 1:
        return
    first, step, rows = pairs[0][0], pairs[0][1] - pairs[0][0], rows_of(sources, pairs)
    is_half = step > 1 or len(pairs) == 1
    r, z = 2 * step if is_half else 2 * len(pairs), np.concatenate([one[0, 0] for one in seen])
    real, imaginary = (z[:, [row[side] for row in rows], [a for a, _ in pairs]] for side in (0, 1))
    w, size = np.zeros(r // 2), float(f"{abs(real + 1j * imaginary).mean():.6g}")
    found = solved(np.arctan2(imaginary, real).T, np.concatenate(places).astype(np.float64))
    w[[(a - first) // (1 if is_half else 2) for a, _ in pairs]] = found
    layout, other = ("half", "interleaved")[:: 1 if is_half else -1]
    turned = {b - a for a, b in rows} != {step}
    given = {"layout": layout, "out_layout": other if turned else None, "rotary_offset": first or None}
    part = {"rotary_dim": r if r < x.shape[-1] else None, "inverse": bool((w <= 0).all()) or None}
    sign = -1 if part["inverse"] else 1
    given = {name: value for name, value in given.items() if value is not None}
    part |= {"seq_axis": seq_axis if seq_axis != -2 else None}
    for text, frequencies in frequencies_of(sign * w, size):
        found = replace(frequencies, inv_freq=sign * frequencies.inv_freq)
        unread = "a formula of the frequencies w." * ("(w" in text)
        call = f"posenc.rope(x, positions, {text}{words(**given, **part)})"
        yield Candidate(call, {"frequencies": found, **given}, {"w": sign * w} if unread else {}, unread)


def sinusoids(table: Float64) -> Candidates:
    """Yield calls of a table of sines and cosines at the positions 0, 1, 2, ..."""
    dim, pairs = table.shape[-1], table.shape[-1] // 2  # the last sine of an odd width has no cosine
    halves, channels = (table[:, :pairs], table[:, dim - pairs :]), (table[:, : 2 * pairs : 2], table[:, 1::2])
    layouts = (("interleaved", channels), ("half", halves))
    for (layout, sides), order in itertools.product(layouts, ("sincos", "cossin")):
        sine, cosine = sides[:: 1 if order == "sincos" else -1]
        w = solved(np.arctan2(sine, cosine).T, np.arange(float(len(table))))
        lengths = {"dim": dim / 2, "half-1": pairs - 1}
        bases = [(base, name) for name in lengths for base in constants(base_near(w) ** (lengths[name] / pairs))]
        for base, denominator in sorted(bases, key=lambda one: len(f"{one[0]:g}".strip("0."))):
            given = {"dim": dim, "layout": layout, "order": order, "base": base, "denominator": denominator}
            yield Candidate(f"posenc.sinusoidal(positions{words(**given)})", given)


# ---- masks, biases and attention ----


def masks(seen: npt.NDArray[np.bool_]) -> Candidates:
    """Yield arguments of attention that let queries see these keys, (n, m)."""
    n, m = seen.shape
    if seen.all():
        yield Candidate("posenc.attention(q, k, v)", {})
    for has_window, (align, shift) in itertools.product((False, True), (("end", m - n), ("start", 0))):
        rel = np.arange(m) - (np.arange(n)[:, None] + shift)
        back, ahead = (int((side * rel)[seen].max(initial=0)) for side in (-1, 1))
        left, right = (back, ahead) if has_window else (n + m, 0 if not ahead else n + m)
        if (seen == ((rel >= -left) & (rel <= right))).all():
            given = {"causal": not ahead or None, "align": align, "window": (back, ahead) if has_window else None}
            yield Candidate(f"posenc.attention(q, k, v{words(**given)})", given)


def biases(matrix: Float64, is_causal: bool) -> Candidates:
    """Yield operators with this matrix (H, N, N), if it is a function of the distance. N is at least 2."""
    heads, n, _ = matrix.shape
    far = np.arange(n) if is_causal else np.arange(1 - n, n)  # query minus key
    values = np.array([matrix[:, max(d, 0), max(-d, 0)] for d in far])
    slopes = -values[far == 1][0]
    yield Candidate(f"posenc.alibi({heads})", {"bias": posenc.alibi(heads)})
    text = "a formula of the slopes."
    if (slopes >= 0).all():
        yield Candidate("posenc.alibi(slopes)", {"bias": posenc.alibi(slopes)}, {"slopes": slopes}, text)
    for both, (count, most) in itertools.product((False, True), BUCKETS):
        row = np.asarray(posenc.t5_bucket(-far, bidirectional=both, num_buckets=count, max_distance=most))
        table = np.zeros((count, heads))
        table[row] = values
        if near(table[row], values, 1e-5):
            made = posenc.t5(table, bidirectional=both, max_distance=most)
            options = words(bidirectional=both, max_distance=most)
            yield Candidate(f"posenc.t5(table{options})", {"bias": made}, {"table": table})


def attentions(run: Callable[..., Float64], q: Float64, k: Float64) -> Candidates:
    """Yield calls of attention by its mask, its sink, its bias, its scale and its cap, which are read in this order."""
    n, m = q.shape[-2], k.shape[-2]
    values = np.broadcast_to(np.eye(m, max(m, k.shape[-1])), (len(k), m, max(m, k.shape[-1])))
    products = q @ np.repeat(k, len(q) // len(k), 0).swapaxes(-1, -2)
    still, small, large = (run(one, k, values)[..., :m] for one in (0 * q, 1e-2 * q, LOUD * q))
    seen = np.asarray((still > 0).all(0))

    def logits(weights: Float64) -> Float64:
        return np.where(seen, np.log(np.maximum(weights, LEAST)), 0.0)

    def centred(x: Float64) -> Float64:
        mean = np.where(seen, x, 0).sum(-1, keepdims=True) / np.maximum(seen.sum(-1), 1)[:, None]
        return np.where(seen, x - mean, 0.0)

    square = logits(still)[..., -m:, -n:]  # of positions with a query and a key
    square = np.where(seen[-m:, -n:], square - np.diagonal(square, 0, -2, -1)[..., None], 0.0)
    is_zero, rows = near(centred(logits(still)), 0 * still, 1e-3), seen.any(-1)
    found = [Candidate("", {})] if is_zero else list(biases(square, not seen.all()))
    count, total = seen.sum(-1)[rows], still.sum(-1)[:, rows]
    sink = np.log((count * (1 / total - 1)).mean(-1)) if (total < 0.999).all() and is_zero else None
    steps = centred(products)
    scale = float(100 * (centred(logits(small) - logits(still)) * steps).sum() / (steps**2).sum())
    capped, products = centred(logits(large) - logits(still)), LOUD * products
    errors = [abs(capped - centred(cap * np.tanh(scale * products / cap))).max() for cap in CAPS]
    cap = constants(float(CAPS[int(np.argmin(errors))]))
    caps: list[float | None] = [None] if near(capped, scale * centred(products), 1e-4) else [*cap]
    scales: list[float | None] = [None, *constants(scale)]
    for (seeing, of_mask, _, _), (operator, of_bias, arrays, unread), s, cap in itertools.product(
        masks(seen), found, scales, caps
    ):
        given = {"scale": s, "softcap": cap}
        of_sink = {} if sink is None else {"sink": sink}
        more = f", bias={operator}" * bool(operator) + ", sink=sink" * bool(of_sink) + words(**given)
        text = f"{seeing[:-1]}{more})"
        yield Candidate(text, {**of_mask, **of_bias, **given, **of_sink}, {**arrays, **of_sink}, unread)


# ---- the answer ----


def describe(
    impl: Callable[..., object],
    kind: str,
    *,
    dim: int | None = None,
    heads: int = 6,
    kv_heads: int | None = None,
    n: int | None = None,
    m: int | None = None,
    seq_axis: int = -2,
    batch: bool = False,
    array: ToArray = np.asarray,
) -> Description:
    """Return the call of posenc that equals an implementation.

    Its parts are read without knowing the right ones. A call is returned only if the check of its kind calls the
    implementation right. What it does not know are coordinates, xPos and positions with an offset; biases but ALiBi and
    T5; segments and kept keys; and in attention a rotation, a scale by head, a sink beside a bias, and operators that
    read q and k.

    Parameters
    ----------
    impl : callable
        The implementation, which takes and returns what the check of its kind says.
    kind : {"rope", "sinusoid", "bias", "mask", "attention"}
        The check. A rotation by several coordinates is not described.
    dim, heads, kv_heads, n, m : int
        Sizes, as in the checks; at least 2 tokens. By default dim is 64, or 16 in attention, and n is 160, or 16 in
        attention: a longer window does not show. A bias has as many keys as queries.
    seq_axis, batch, array
        As in the checks.

    Returns
    -------
    Description
        The call, its arrays, and what was not read.

    Raises
    ------
    ValueError
        An unknown kind, or fewer than 2 tokens.

    Examples
    --------
    >>> import numpy as np, posenc.check
    >>> def mine(x, positions):
    ...     angle = positions[:, None] * 500000.0 ** (-np.arange(0, 32, 2) / 32)
    ...     cos, sin = (np.repeat(table, 2, -1) for table in (np.cos(angle), np.sin(angle)))
    ...     return x * cos + np.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape) * sin
    >>> print(posenc.check.describe(mine, "rope", dim=32))
    posenc.rope(x, positions, posenc.rope_frequencies(32, base=500000.0), layout='interleaved')
    """
    choice("describe", "kind", kind, "rope", "sinusoid", "bias", "mask", "attention")
    n, dim = n or (16 if kind == "attention" else LARGE), dim or (16 if kind == "attention" else 64)
    count = n if m is None else m
    if min(n, count) < 2:
        raise ValueError(f"check.describe: n or m is {min(n, count)}; expected at least 2")

    def result(*given: Any, ndim: int) -> Float64:
        """The result with this number of axes: leading axes of length 1 may be more or fewer."""
        called = call(kind, impl, *given)
        (found,), _ = parts(kind, without_weights(called, n, count) if kind == "attention" else called, 1)
        is_more = found.ndim > ndim and set(found.shape[:-ndim]) == {1}
        return found.reshape(found.shape[-ndim:]) if is_more else found[(None,) * (ndim - found.ndim)]

    def rotated(x: Float64, positions: Array) -> Float64:
        given = array(np.ascontiguousarray(np.moveaxis(x, -2, seq_axis), np.float32))
        return np.moveaxis(result(given, array(positions.copy()), ndim=4), seq_axis, -2)

    def attended(*given: Float64) -> Float64:
        return result(*(array((x[None] if batch else x).astype(np.float32)) for x in given), ndim=3)

    of_call: dict[str, Any] = {"array": array}
    if kind == "rope":
        check: Callable[..., Report] = rope
        candidates = rotations(rotated, draw(2, 3, 24, dim, dtype="float64"), seq_axis)
        of_call |= {"dim": dim, "seq_axis": seq_axis}
    elif kind == "sinusoid":
        check, candidates = sinusoid, sinusoids(result(array(np.arange(256)), ndim=2))
    elif kind == "bias":
        check, of_call = bias, {"n": n, "m": n}
        candidates = biases(result(n, n, ndim=3), False)
    elif kind == "mask":
        seen = result(n, count, ndim=2)
        check, of_call = mask, {"n": n, "m": count}
        candidates = masks(seen > (HIDES if seen.min() < 0 else 0))
    else:
        check, sizes = attention, {"heads": heads, "kv_heads": kv_heads, "n": n, "m": count, "batch": batch}
        of_call |= sizes | {"dim": dim}
        case = attention_case("attention", heads, kv_heads or heads, n, count, dim, "float32", {"align": "end"})
        candidates = attentions(attended, case["q"], case["k"])
    for one in itertools.islice(candidates, MOST):
        if check(impl, **one.given, **of_call):
            hidden = one.given.get("causal") and one.given.get("window") is None
            window = f"a window of {count} keys or more; a larger n shows it." if hidden else ""
            return Description(one.call, one.arrays, one.unread or window)
    return Description("", {}, "its parts, as a call that describe knows; check it against a right one to read them")
