"""The check of frequencies: base**(-2 k / dim), scaled to longer contexts, and the attention factor."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from .. import RopeFrequencies, reference, rope_from_config
from ._inputs import Precision, call
from ._judge import Case, Kind, angle_roundoff, as_numbers, hypotheses, in_bounds, judge, known, rounded
from ._laws import law, listed, named, near, number, runs, same_angles, solved, versus
from ._report import Array, Float64, Reading, Report, further

__tracebackhide__ = True  # pytest shows the line of the implementation

Keys: TypeAlias = Mapping[str, Any]
LENGTH = "original_max_position_embeddings"


def angles(
    subject: str, frequencies: object, dim: int | None, seq_len: int | None = None, layer_type: str | None = None
) -> Case:
    """Return the fields of frequencies: w, factor, and what is known about the way to them.

    Frequencies of several coordinates (A, pairs) are `of_axes`, and w has those of each pair.
    """
    keys: Keys = {}
    width = None
    if isinstance(frequencies, str | os.PathLike) and os.path.isfile(frequencies):
        frequencies = json.loads(Path(frequencies).read_bytes())
    if isinstance(frequencies, Mapping | str) or hasattr(frequencies, "to_dict"):
        config = frequencies.to_dict() if hasattr(frequencies, "to_dict") else frequencies
        frequencies = rope_from_config(config, seq_len=seq_len, layer_type=layer_type)
        if isinstance(config, Mapping):
            keys = _keys(config, seq_len, frequencies, layer_type)
            width = frequencies.rotary_dim and _head_width(config)  # None in latent attention, which rotates a part
    elif frequencies is None:
        if dim is None:
            raise ValueError(f"check.{subject}: dim is None; expected a number, or frequencies")
        frequencies = RopeFrequencies(reference.rope_frequencies(dim).inv_freq)
        keys = {"dim": dim, "base": 10000.0, "rope_type": "default"}
    w, of_axes = np.array(frequencies, np.float64), None
    if w.ndim == 2 and subject == "rope":
        of_axes, w = w, w.sum(0)
        if ((of_axes != 0).sum(0) > 1).any():
            raise ValueError("check.rope: a pair of frequencies turns with two coordinates; expected with one each")
    if w.ndim != 1 or len(w) == 0:
        has = f"shape {w.shape}" if w.ndim else f"the value {frequencies}"
        raise ValueError(f"check.{subject}: frequencies has {has}; expected an array (pairs,) or a config")
    factor = float(getattr(frequencies, "attention_factor", 1.0))
    r = 2 * len(w)
    base = float(keys.get("base") or (((w[0] / w[1]) ** (r / 2)) if len(w) > 1 and w[1] > 0 else 10000.0))
    plain = base ** (-2 * np.arange(len(w)) / r) if of_axes is None else w
    rope_type = keys.get("rope_type", "default")
    return {
        "w": w, "of_axes": of_axes, "plain": plain, "base": base, "factor": factor, "keys": keys, "rotary_dim": r,
        "width": width or dim or r,
        "softmax_factor": float(getattr(frequencies, "softmax_factor", 1.0)), "rope_type": rope_type,
        "layout": getattr(frequencies, "layout", None), "scales": not np.allclose(w, plain, rtol=1e-6, atol=0),
        "scaling": f"the scaling of the config, {rope_type}" if keys else "the scaling of the frequencies",
        "truncated": "not rounded" if keys.get("truncate", True) else "rounded",
    }  # fmt: skip


def _head_width(config: Keys) -> int | None:
    """Return the width of a head that a config has, or None."""
    part = config.get("text_config") or config
    hidden, heads = part.get("hidden_size", part.get("n_embd")), part.get("num_attention_heads", part.get("n_head"))
    return part.get("head_dim") or (hidden // heads if hidden and heads else None)


def _keys(config: Keys, seq_len: int | None, found: RopeFrequencies, layer_type: str | None) -> Keys:
    """Return the arguments of `rope_frequencies` that the config means, or {} if they give other frequencies."""
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    rope = dict(rope.get(layer_type, rope)) if layer_type else rope
    lengths = {key: value for key, value in config.items() if key.endswith("max_position_embeddings")}
    lengths = {LENGTH: lengths.get("max_position_embeddings"), **lengths}
    keys = {**lengths, **rope, "base": rope.pop("rope_theta", config.get("rope_theta")), "dim": 2 * len(found)}
    keys["rope_type"] = rope.pop("rope_type", None) or rope.pop("type", "default")
    keys = {key: value for key, value in keys.items() if key not in ("type", "rope_theta") and value is not None}
    keys |= {} if seq_len is None else {"seq_len": seq_len}
    try:
        same = np.allclose(reference.rope_frequencies(**keys).inv_freq, found.inv_freq, rtol=1e-12)
    except (KeyError, TypeError, ValueError):  # the last for a list of bases
        same = False
    return keys if same else {}


def again(c: Case, **changes: object) -> Float64:
    """The frequencies with other arguments of `rope_frequencies`."""
    return np.asarray(reference.rope_frequencies(**{**c["keys"], **changes}).inv_freq)


def at_the_edge(c: Case) -> bool:
    """Return whether a sequence of LongRoPE has the trained length or one token more.

    There a length that is counted or compared wrongly chooses the other list, as exchanged lists do.
    """
    trained, length = (c["keys"].get(name) for name in (LENGTH, "seq_len"))
    return c["rope_type"] == "longrope" and length is not None and trained is not None and 0 <= length - trained <= 1


def stretch(case: Case) -> float:
    """The factor of the base in static and dynamic NTK, before the exponent d / (d - 2)."""
    keys = case["keys"]
    s, trained = keys.get("factor", 1.0), keys.get("max_position_embeddings", 1)
    longer = s * max(keys.get("seq_len") or 0, trained) / trained - (s - 1)
    return float(s if case["rope_type"] == "ntk" else longer)


FREQUENCIES = (
    *hypotheses("series", rounded=rounded),
    *hypotheses("frequencies", again=again, at_the_edge=at_the_edge, stretch=stretch),
)
"""Known errors of frequencies: w, base**(-2 k / rotary_dim) scaled to longer contexts."""
FACTORS = hypotheses("factor")
"""Known errors of the attention factor."""


def frequency_error(case: Case, u: float) -> float:
    """Relative error of base**-t: t and the power have a few roundings, and the logarithm of the base amplifies t's."""
    spread = case["plain"].max() / case["plain"].min()
    return float(2 * u * (8 + np.log(spread)))


def read_factor(got: float, case: Case) -> Iterator[Reading]:
    """Say what the attention factor is, and which known errors give it."""
    if abs(got - case["factor"]) > 1e-4 * case["factor"]:
        numbers = np.array([got])
        causes = known(FACTORS, case, lambda c: np.array([c["factor"]]), numbers, 1e-5 * abs(got), "other factor")
        text = f"The attention factor is {versus(got, case['factor'])}."
        yield Reading("other factor", text, True, causes)


def read_frequencies(got: Float64, case: Case, error: Float64, whole: bool = False) -> Iterator[Reading]:
    """Say what frequencies are, and which known errors give them.

    `error` is that of each number. `whole` says that they were read at whole positions, which do not show whole turns.
    """
    wanted, count = case["w"][: len(got)], len(got)
    if (got < 0).all() and (wanted > 0).all():
        yield Reading("direction", "The angles are negated: positions (or frequencies) have the wrong sign.", True)
        got = -got

    def seen(w: Float64) -> Float64:
        return np.concatenate([np.cos(w), np.sin(w)]) if whole else w

    def bound(c: Case, answer: Float64) -> Float64:
        return np.resize(error + 1e-4 * abs(c["w"][:count]) * whole, answer.shape)

    off = np.flatnonzero(in_bounds(seen(got), seen(wanted), bound(case, seen(got))).reshape(-1, count).max(0) > 1)
    if not len(off):
        return
    first = f"The frequency of pair {off[0]} is {versus(got[off[0]], wanted[off[0]])}."
    causes = known(FREQUENCIES, case, lambda c: seen(c["w"][:count]), seen(got), bound, "frequencies")
    if causes:
        yield Reading("frequencies", first, True, causes)
        return
    if (abs(got - wanted) <= 1e-4 * abs(wanted)).all():  # laws are not read as finely
        (base, is_series), (right, has_base) = base_of(got, error), base_of(wanted, 1e-9 * abs(wanted))
        if (
            is_series
            and has_base
            and abs(base / right - 1) > 1e-5
            and near(got, base ** (-np.arange(count) / count), 1e-5)
        ):
            yield Reading("base", f"The base is {versus(base, right)}.", True)
        else:
            yield _divided(got, wanted, case, off, first)
        return
    times = float(solved(got, wanted))  # angles at whole positions show a large factor modulo 2 pi
    if (
        whole
        and count > 2
        and abs(times) > 2
        and same_angles(got, times * wanted, float((error + 1e-4 * abs(got)).max()))
    ):
        got = times * wanted
    source = abs(got[:, None] - wanted).argmin(1)
    is_order = len(set(wanted)) == count > 4 and (source != np.arange(count)).any()
    if is_order and in_bounds(got, wanted[source], error + 1e-4 * wanted[source]).max() <= 1:
        words = law(np.arange(count), source, "k") or listed(source)
        text = f"{first} Pair k has the frequency of pair {words}; expected of pair k."
        yield Reading("order of frequencies", text, True)
        return
    rises = count > 4 and (np.diff(got) > 0).all() and (np.diff(wanted) <= 0).all()
    if rises and got[-1] >= 0.1 * wanted[0] and (got[0] > 0 or wanted[-1] == 0):
        yield Reading("order of frequencies", "The frequencies are in reverse order.", True)
        got, error = got[::-1], error[::-1]
    yield next(_laws(got, wanted, case, error), None) or _divided(got, wanted, case, off, first)


def base_of(w: Float64, error: Float64) -> tuple[float, bool]:
    """Return the base of a geometric series, and whether w is one."""
    pair = np.arange(len(w))
    with np.errstate(all="ignore"):
        weights, steps = (1e-6 + error / abs(w)) ** -2.0, np.log(w / w[0])
        slope = float((weights * pair * steps).sum() / (weights * pair**2).sum())
    fits = len(w) > 2 and in_bounds(w, w[0] * np.exp(slope * pair), error + 1e-4 * abs(w)).max() <= 1
    return float(np.exp(-slope * len(w))), bool(fits and abs(slope) > 1e-9)


def _laws(got: Float64, wanted: Float64, case: Case, error: Float64) -> Iterator[Reading]:
    """Yield the laws of which frequencies follow."""
    times = float((got * wanted).sum() / (wanted**2).sum())
    if times > 1e-6 and in_bounds(got, times * wanted, error + 1e-4 * abs(got)).max() <= 1:
        text = f"The frequencies (or the positions) are {number(times)} times the right ones{named(times)}."
        yield Reading("factor of the frequencies", text, True)
    (base, is_series), (right, has_base) = base_of(got, error), base_of(wanted, 1e-9 * abs(wanted))
    r, keys = case["rotary_dim"], case["keys"]
    if is_series and case["rope_type"] in ("ntk", "dynamic") and r > 2 and case["base"] > 0:
        factor = (base / case["base"]) ** ((r - 2) / r)  # the base is multiplied by this power of the factor
        if case["rope_type"] == "dynamic":
            longer = (keys.get("seq_len") or 0) / keys.get("max_position_embeddings", 1) - 1
            factor = (factor - 1) / longer if longer > 0 else 0.0
        if abs(factor - round(factor, 2)) < 1e-3 and factor >= 1:
            text = f"The factor of the scaling is {versus(round(factor, 2), keys.get('factor', 1.0))}."
            yield Reading("factor of the scaling", text, True)
    if is_series:
        power = float(np.log(base) / np.log(right if has_base else case["base"]))
        start = "" if abs(got[0] - wanted[0]) < 1e-4 * wanted[0] else f" The first is {number(got[0])}."
        start += "" if has_base else " The frequencies are not scaled."
        more = named(power, {"the rotated share of the head": case["rotary_dim"] / case["width"]})
        text = f"The base is {versus(base, right if has_base else case['base'])}."
        yield Reading("base", f"{text} (Or the exponents are {number(power)} times the right ones{more}.){start}", True)
    ratio = got / wanted
    factor = float(case["plain"][-1] / got[-1]) if got[-1] > 0 and len(got) == len(case["plain"]) else 0.0
    other = again(case, factor=factor) if keys.get("factor") and 1 <= factor < np.inf else None
    if other is not None and in_bounds(got, other, error + 1e-4 * other).max() <= 1:
        text = f"The factor of the scaling is {versus(factor, keys['factor'])}."
        yield Reading("factor of the scaling", text, True)
    if case["rope_type"] == "yarn" and len(got) == len(case["plain"]):
        yield from _ramp(got, wanted, case)
    falls = not case["scales"] and len(got) > 3 and (np.diff(ratio) <= 1e-3).all() and abs(ratio[0] - 1) < 1e-3
    if falls and ratio[-1] < 0.99 and abs(ratio[-2] - ratio[-1]) < 0.02 * ratio[-1]:
        text = f"Slow pairs are divided by {1 / ratio[-1]:.3g} and fast ones are not, as YaRN and Llama 3 do"
        yield Reading("scaling where none belongs", f"{text}; expected no scaling.", True)


def _ramp(got: Float64, wanted: Float64, case: Case) -> Iterator[Reading]:
    """Read between which pairs the ramp of YaRN rises, if it is a line from 0 to 1."""
    plain, pair, found = case["plain"], np.arange(len(got)), []
    for w in (got, wanted):
        share = (plain - w) / (plain * (1 - 1 / case["keys"].get("factor", 1.0)))
        inside = (share > 0.01) & (share < 0.99)
        if inside.sum() < 2:
            return
        slope, start = np.polyfit(pair[inside], share[inside], 1)
        if not near(share, np.clip(start + slope * pair, 0, 1), 1e-3):
            return
        found.append((-start / slope, (1 - start) / slope))
    if abs(np.subtract(found[0], found[1])).max() > 1e-2:
        ends = [f"from pair {number(round(one[0], 2))} to {number(round(one[1], 2))}" for one in found]
        yield Reading("ramp", f"The ramp of YaRN goes {'; expected '.join(ends)}.", True)


def _divided(got: Float64, wanted: Float64, case: Case, off: Array, first: str) -> Reading:
    """Say which pairs have another frequency, and by what the scaling divides them."""
    plain = case["plain"][: len(got)]
    text, zero = f"{first} Wrong are pairs {runs(off)}.", off[abs(got[off]) < 1e-9]
    if case["scales"] and len(plain) == len(got) and (got > 0).all():
        by, right = plain / got, plain / wanted
        text += f" Of {number(case['base'])}**(-k / {len(got)}) they are divided by {listed(by[off])}; expected"
        return Reading("frequencies", f"{text} {listed(right[off])}.")
    still = f" Pairs {runs(zero)} do not turn." if len(zero) else ""
    return Reading("frequencies", f"{text}{still}", 4 * len(off) <= len(got) or len(zero) == len(off))


def _listed(c: Case) -> Float64:
    return np.append(c["w"], c["factor"]) if c["with_factor"] else np.asarray(c["w"])


def _frequency_bound(c: Case, wanted: Float64, u: float) -> Float64:
    size = np.maximum(abs(wanted), np.append(c["plain"], 1e-9)[: len(wanted)])
    return np.asarray((frequency_error(c, angle_roundoff(u)) + u) * size)


def _read(c: Case, numbers: Float64, wanted: Float64) -> Iterator[Reading]:
    w = numbers[: len(c["w"])]
    yield from read_frequencies(w, c, _frequency_bound(c, c["w"], 2.0**-24))
    if c["with_factor"]:
        yield from read_factor(float(numbers[-1]), c)


def _pairs(c: Case) -> dict[str, list[str]]:
    return {"pair": [*(f"pair {k}" for k in range(len(c["w"]))), "the attention factor"]}


FREQUENCY = Kind("frequencies", _listed, ("pair",), _frequency_bound, labels=_pairs, read=_read)


def frequencies(
    impl: Any,
    frequencies: object = None,
    *,
    dim: int | None = None,
    seq_len: int | None = None,
    layer_type: str | None = None,
    dtype: Precision = "float32",
) -> Report:
    """Check the frequencies of a rotary embedding, and its attention factor if the implementation returns it.

    Parameters
    ----------
    impl : callable or array
        A function without arguments, or its result: an array (pairs,), a tuple (array, attention factor), or an object
        with the fields ``inv_freq`` and ``attention_factor``.
    frequencies : RopeFrequencies, array, dict or path, optional
        The right ones; a dict or a path is a config.json, whose keys let the check try errors of the scaling. By
        default the frequencies of base 10000.
    dim : int, optional
        Width of the head; needed without `frequencies`.
    seq_len : int, optional
        Length of the sequence, for the types dynamic and longrope.
    layer_type : str, optional
        The layers of a config with several kinds, as in `posenc.rope_from_config`.
    dtype : {"float32", "float64"}
        Precision of the computation.

    Returns
    -------
    Report

    Examples
    --------
    >>> import numpy as np, posenc.check
    >>> config = {"head_dim": 64, "rope_theta": 500000.0}
    >>> report = posenc.check.frequencies(10000.0 ** (-np.arange(0, 64, 2) / 64), config)
    >>> print(report.causes[0].sentence)
    The base is 10000; expected 500000. (Or the exponents are 0.70188 times the right ones.)
    """
    got = impl if hasattr(impl, "inv_freq") else call("frequencies", impl)
    if hasattr(got, "inv_freq"):
        got = (got.inv_freq, getattr(got, "attention_factor", 1.0))
    got = got[0] if isinstance(got, tuple) and got[1:] == (None,) else got
    with_factor = isinstance(got, tuple | list) and len(got) == 2 and np.ndim(got[0]) == 1
    case = {**angles("frequencies", frequencies, dim, seq_len, layer_type), "with_factor": with_factor}
    numbers = as_numbers(got[0] if with_factor else got, "frequencies")[0].astype(np.float64)  # 16 bits are an error
    numbers = np.append(numbers, float(got[1])) if with_factor else numbers
    report = judge(FREQUENCY, numbers, case, dtype)
    needs_factor = case["factor"] != 1 and not with_factor
    return further(report, None, "the attention factor; return (frequencies, factor)") if needs_factor else report
