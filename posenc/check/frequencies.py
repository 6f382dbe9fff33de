"""The check of frequencies: base**(-2 k / dim), scaled to longer contexts, and the attention factor."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from .. import RopeFrequencies, reference, rope_from_config
from .inputs import Precision, call, rounding
from .judge import Case, Kind, angle_roundoff, as_numbers, hypotheses, judge, when
from .judge import Hypothesis as H
from .report import Float64, Report, further

Keys: TypeAlias = Mapping[str, Any]
LENGTH = "original_max_position_embeddings"


def angles(subject: str, frequencies: object, dim: int | None, seq_len: int | None = None) -> Case:
    """Return the fields of frequencies: w, factor, and what is known about the way to them."""
    keys: Keys = {}
    width = None
    if isinstance(frequencies, str | os.PathLike) and os.path.isfile(frequencies):
        frequencies = json.loads(Path(frequencies).read_bytes())
    if isinstance(frequencies, Mapping | str) or hasattr(frequencies, "to_dict"):
        config = frequencies.to_dict() if hasattr(frequencies, "to_dict") else frequencies
        frequencies = rope_from_config(config, seq_len=seq_len)
        if isinstance(config, Mapping):
            keys = _keys(config, seq_len, frequencies)
            width = frequencies.rotary_dim and _head_width(config)  # None in latent attention, which rotates a part
    elif frequencies is None:
        if dim is None:
            raise ValueError(f"check.{subject}: dim is None; expected a number, or frequencies")
        frequencies = RopeFrequencies(reference.rope_frequencies(dim).inv_freq)
        keys = {"dim": dim, "base": 10000.0, "rope_type": "default"}
    w = np.array(frequencies, np.float64)
    if w.ndim != 1 or len(w) == 0:
        has = f"shape {w.shape}" if w.ndim else f"the value {frequencies}"
        raise ValueError(f"check.{subject}: frequencies has {has}; expected an array (pairs,) or a config")
    factor = float(getattr(frequencies, "attention_factor", 1.0))
    r = 2 * len(w)
    base = float(keys.get("base") or (((w[0] / w[1]) ** (r / 2)) if len(w) > 1 and w[1] > 0 else 10000.0))
    plain = base ** (-2 * np.arange(len(w)) / r)
    rope_type = keys.get("rope_type", "default")
    return {
        "w": w,
        "plain": plain,
        "base": base,
        "factor": factor,
        "cos_factor": factor,
        "sin_factor": factor,
        "softmax_factor": float(getattr(frequencies, "softmax_factor", 1.0)),
        "keys": keys,
        "rotary_dim": r,
        "width": width or dim or r,
        "rope_type": rope_type,
        "reversed": False,
        "layout": getattr(frequencies, "layout", None),
        "scales": not np.allclose(w, plain, rtol=1e-6, atol=0),
        "scaling": f"the scaling of the config, {rope_type}" if keys else "the scaling of the frequencies",
        "truncated": "not rounded" if keys.get("truncate", True) else "rounded",
        "factor_is_read": True,
    }


def _head_width(config: Keys) -> int | None:
    """Return the width of a head that a config has, or None."""
    part = config.get("text_config") or config
    hidden, heads = part.get("hidden_size", part.get("n_embd")), part.get("num_attention_heads", part.get("n_head"))
    return part.get("head_dim") or (hidden // heads if hidden and heads else None)


def _keys(config: Keys, seq_len: int | None, found: RopeFrequencies) -> Keys:
    """Return the arguments of `rope_frequencies` that the config means, or {} if they give other frequencies."""
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
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


def again(field: str, **changes: object) -> Callable[[Case], object]:
    """A field of the case, w or factor, computed again with other arguments of `rope_frequencies`."""

    def compute(case: Case) -> object:
        keys = dict(case["keys"])
        new = {key: value(keys) if callable(value) else value for key, value in changes.items()}
        if not keys or any(value is None for value in new.values()):
            return None
        try:
            found = reference.rope_frequencies(**{**keys, **new})
        except (KeyError, TypeError, ZeroDivisionError):
            return None
        return found.inv_freq if field == "w" else found.attention_factor

    return compute


def as_type(rope_type: str) -> Callable[[Case], object]:
    """The frequencies that another rope_type has with the same factor."""
    return of_key("factor", lambda c, s: again("w", rope_type=rope_type)(c))


def exponents(change: Callable[[Float64, Case], Float64]) -> Callable[[Case], Float64]:
    """The frequencies with another unscaled sequence; the scaling of each pair stays."""
    return lambda c: change(c["plain"], c) * (c["w"] / c["plain"])


def key(name: str, default: object = None) -> Callable[[Keys], object]:
    return lambda keys: keys.get(name, default)


def of_key(name: str, value: Callable[[Case, float], object]) -> Callable[[Case], object]:
    """A field computed from a number of the config, if it is there and not 0."""
    return when(lambda c: c["keys"].get(name))(lambda c: value(c, c["keys"][name]))


def factors(value: object) -> dict[str, object]:
    """The factors of cos and of sin."""
    return {"cos_factor": value, "sin_factor": value}


def _blend_reversed(c: Case, s: float) -> object:
    between = (c["w"] < c["plain"] * (1 - 1e-9)) & (c["w"] > c["plain"] / s * (1 + 1e-9))
    return np.where(between, c["plain"] + c["plain"] / s - c["w"], c["w"])


def _kept_between(c: Case, s: float) -> object:
    """Llama 3's frequencies with a step in place of the blend."""
    return np.where(c["w"] < c["plain"] / s * (1 + 1e-9), c["w"], c["plain"])


def _without_blend(c: Case) -> object:
    """Llama 3's code with exchanged factors: no frequency is between the two."""
    turns = c["keys"][LENGTH] * c["plain"] / (2 * np.pi)
    return np.where(turns < c["keys"]["high_freq_factor"], c["plain"] / c["keys"]["factor"], c["plain"])


_exchanged = again("w", long_factor=key("short_factor"), short_factor=key("long_factor"))
_other_length = again("w", **{LENGTH: key("max_position_embeddings")})
_turns = again("w", **{LENGTH: lambda keys: 2 * np.pi * keys[LENGTH]})


def _base_times_factor(c: Case) -> object:
    return again("w", rope_type="default", base=c["base"] * stretch(c))(c)


def _at_the_edge(c: Case) -> bool:
    """Return whether a sequence of LongRoPE has the trained length or one token more.

    There a length that is counted or compared wrongly chooses the other list, as exchanged lists do.
    """
    trained, length = (c["keys"].get(name) for name in (LENGTH, "seq_len"))
    return c["rope_type"] == "longrope" and length is not None and trained is not None and 0 <= length - trained <= 1


def _inside(c: Case) -> bool:
    return not _at_the_edge(c)


def _of_rotated(c: Case) -> Float64:
    """The exponents of proportional frequencies over the rotated pairs alone."""
    rotated = max(int((c["w"] != 0).sum()), 1)
    return np.where(c["w"] != 0, c["base"] ** (-np.arange(len(c["w"])) / rotated), 0.0)


FACTORS = factors(1.0)
SERIES = hypotheses(
    "series",
    {
        "base": {"w": exponents(lambda plain, c: plain ** (np.log(10000.0) / np.log(c["base"])))},
        "exponent halved": {"w": exponents(lambda plain, c: plain**0.5)},
        "exponent doubled": {"w": exponents(lambda plain, c: plain**2)},
        "exponent from one": {"w": exponents(lambda plain, c: plain * plain[1 % len(plain)])},
        "exponent over pairs less one": {
            "w": exponents(lambda plain, c: plain ** (len(plain) / max(len(plain) - 1, 1)))
        },
        "exponent over the head": {"w": exponents(lambda plain, c: plain ** (c["rotary_dim"] / c["width"]))},
        "wavelengths": {"w": when(lambda c: c["w"].all())(lambda c: 1 / c["w"])},
        "exponent of integers": {"w": exponents(lambda plain, c: plain**0)},
        "turns": {"w": lambda c: 2 * np.pi * c["w"]},
        "no pi": {"w": lambda c: c["w"] / np.pi},
        "frequencies in bfloat16": {"w": rounding("w", "bfloat16")},
        "frequencies in float16": {"w": rounding("w", "float16")},
    },
)
"""Known errors of base**(-2 k / dim)."""
FREQUENCIES = (
    *SERIES,
    *hypotheses(
        "frequencies",
        {
            "scaling inverted": {"w": lambda c: c["plain"] ** 2 / c["w"]},
            "scaling twice": {"w": lambda c: c["w"] ** 2 / c["plain"]},
            "linear": {"w": as_type("linear")},
            "ntk": {"w": as_type("ntk")},
            "ntk exponent": {"w": when(lambda c: c["rope_type"] in ("ntk", "dynamic"))(_base_times_factor)},
            "length ignored": {"w": again("w", seq_len=key("max_position_embeddings"))},
            "trained length times the factor": {
                "w": again("w", seq_len=lambda keys: keys["max_position_embeddings"] * keys["factor"])
            },
            "length times the factor": {"w": again("w", seq_len=lambda keys: keys["seq_len"] * keys["factor"])},
            "length of longrope ignored": {"w": when(_inside)(again("w", seq_len=1))},
            "ramp reversed": {"w": of_key("factor", lambda c, s: c["plain"] + c["plain"] / s - c["w"])},
            "blend reversed": {"w": of_key("factor", _blend_reversed)},
            "beta_fast and beta_slow": {"w": again("w", beta_fast=key("beta_slow", 1), beta_slow=key("beta_fast", 32))},
            "truncate": {"w": again("w", truncate=lambda k: not k.get("truncate", True))},
            "original length": {"w": when(_inside)(_other_length)},
            "turns without 2 pi": {"w": _turns},
            "low and high factor": {"w": _without_blend},
            "no blend": {"w": of_key("factor", _kept_between)},
            "long and short factor": {"w": when(_inside)(_exchanged)},
            "list at the trained length": {"w": when(_at_the_edge)(_exchanged)},
            "exponent over the rotated pairs": {"w": _of_rotated},
            "still pairs first": {"w": lambda c: np.roll(c["w"], (c["w"] == 0).sum())},
            "attention factor squared": factors(lambda c: c["factor"] ** 2),
            "attention factor without its root": factors(lambda c: c["factor"] ** 2),
            "attention factor inverted": factors(lambda c: 1 / c["factor"]),
            "mscale": factors(of_key("factor", lambda c, s: again("factor", attention_factor=0.1 * np.log(s) + 1)(c))),
            "mscale of mscale": factors(of_key("factor", lambda c, s: 0.1 * c["factor"] * np.log(s) + 1)),
            "mscale without division": factors(
                of_key("mscale", lambda c, m: 0.1 * m * np.log(c["keys"]["factor"]) + 1)
            ),
        },
    ),
)
"""Known errors of frequencies: w, base**(-2 k / rotary_dim) scaled to longer contexts, and of the attention factor."""


def stretch(case: Case) -> float:
    """The factor of the base in static and dynamic NTK, before the exponent d / (d - 2)."""
    keys = case["keys"]
    s, trained = keys.get("factor", 1.0), keys.get("max_position_embeddings", 1)
    longer = s * max(keys.get("seq_len") or 0, trained) / trained - (s - 1)
    return float(s if case["rope_type"] == "ntk" else longer)


def frequency_error(case: Case, u: float) -> float:
    """Relative error of base**-t: t and the power have a few roundings, and the logarithm of the base amplifies t's."""
    spread = case["plain"].max() / case["plain"].min()
    return float(2 * u * (8 + np.log(spread)))


def _listed(case: Case) -> Float64:
    w = case["w"][::-1] if case["reversed"] else case["w"]
    return np.append(w, case["cos_factor"]) if case["with_factor"] else w


def _of_numbers(c: Case, numbers: Float64) -> list[H]:
    """Read the frequencies off a list of them, with the attention factor."""
    w = numbers[: len(c["w"])]
    factor = float(numbers[-1]) if c["with_factor"] else 1.0
    return [*other_frequencies(c, w, factor), *(other_factor(c, factor) if c["with_factor"] else ())]


def other_frequencies(c: Case, w: Float64, factor: float, weights: Float64 | float = 1.0) -> list[H]:
    """What frequencies, and the factor beside them, may mean."""
    w = w[::-1] if c["reversed"] else w
    return [*other_base(c, w, weights), *other_scaling(c, w), *_times(c, w), *_scaling_where_none_belongs(c, w, factor)]


def other_base(c: Case, w: Float64, weights: Float64 | float = 1.0) -> list[H]:
    """The hypothesis of another base, if w is a geometric series as the right frequencies, scaled or not, are."""
    pair, every, right = np.arange(len(w)), np.arange(len(c["w"])), c["w"][: len(w)]
    slope, expected = ((weights * pair * np.log(of / of[0])).sum() / (weights * pair**2).sum() for of in (w, right))
    start, text, name = c["w"][0], "The base is {0:.6g}; expected {1:.6g}.", "base"
    if c["scales"] and not np.allclose(start * np.exp(expected * pair), right, rtol=1e-9):
        name = "scaling ignored + base"
        text = "The frequencies are not scaled, and their base is {0:.6g}; expected {1:.6g}."
        start, expected = 1.0, -2 * np.log(c["base"]) / c["rotary_dim"]
    found = np.asarray(start * np.exp(slope * every))
    if not np.allclose(found[pair], w, rtol=1e-4, atol=1e-6):
        return []
    change = (
        "Take the base (rope_theta) of the config, and check dim in the exponents; the types ntk and dynamic "
        "enlarge the base."
    )
    bases = (np.exp(-one * c["rotary_dim"] / 2) for one in (slope, expected))
    return [H(name, text.format(*bases), change, {"w": found})]


def _times(c: Case, w: Float64) -> list[H]:
    """The hypothesis of frequencies that are all multiplied by a number."""
    right = c["w"][: len(w)]
    times = float((w * right).sum() / (right**2).sum())
    if times < 1e-6 or not np.allclose(w, times * right, rtol=1e-4, atol=1e-6):
        return []
    none = "" if c["scales"] else ", and there is no linear scaling"
    text = f"The frequencies (or the positions) are {times:.6g} times the right ones."
    change = f"Look for a factor of positions or frequencies: angles are p w{none}."
    return [H("factor of the frequencies", text, change, {"w": times * c["w"]})]


def _scaling_where_none_belongs(c: Case, w: Float64, factor: float) -> list[H]:
    """The hypothesis of a blend as YaRN's, in which fast pairs keep their frequency and slow ones are divided."""
    if c["scales"] or len(w) < 4 or len(w) != len(c["w"]):
        return []
    ratio = w / c["w"]
    falls = (np.diff(ratio) <= 1e-3).all() and abs(ratio[0] - 1) < 1e-4
    if not falls or ratio[-1] > 0.99 or not abs(ratio[-2] - ratio[-1]) < 0.02 * ratio[-1]:
        return []
    text = (
        f"Slow pairs are divided by {1 / ratio[-1]:.3g} and fast ones are not, as YaRN and Llama 3 do; expected no "
        "scaling."
    )
    return [
        H(
            "scaling where none belongs",
            text,
            "Apply the scaling only to layers whose config has one.",
            {"w": w, **factors(factor)},
        )
    ]


def other_scaling(c: Case, w: Float64) -> list[H]:
    """The hypothesis of another factor of the scaling, by which the slowest pair is divided."""
    factor = float(c["plain"][-1] / w[-1]) if w[-1] > 0 else 0.0
    found: Any = again("w", factor=factor)(c) if c["keys"].get("factor") and 1 <= factor < np.inf else None
    if found is None or not np.allclose(found, w, rtol=1e-4):
        return []
    text = f"The factor of the scaling is {factor:.6g}; expected {c['keys']['factor']:.6g}."
    fields = {"w": found, **factors(again("factor", factor=factor)(c))}
    return [H("factor of the scaling", text, "Read the factor of the config.", fields)]


def other_factor(c: Case, factor: float) -> list[H]:
    """The hypothesis of another attention factor."""
    text = f"The attention factor is {factor:.6g}; expected {{factor}}."
    change = "Compare the lengths and the keys of the config that it is computed from with the paper's formula."
    return [H("other factor", text, change, {"cos_factor": factor, "sin_factor": factor})]


def solved(phases: Float64, steps: Float64) -> Float64:
    """Return x of phases = x steps, modulo 2 pi, along the last axis: from the small steps to the large ones."""
    x = np.zeros(phases.shape[:-1])
    for i in np.argsort(abs(steps)):
        x = x + np.angle(np.exp(1j * (phases[..., i] - x * steps[i]))) / steps[i] if steps[i] else x
    return x


def _once(c: Case, phases: Float64) -> Float64:
    """The positions of phases (N, pairs), in the first coordinate."""
    return np.asarray(c["angle_times"] * c["positions"].reshape(-1, len(phases))[0])


def off_phases(c: Case, phases: Float64, factor: float) -> list[H]:
    """Read other frequencies off the phases (N, pairs) of a rotation."""
    w = solved(phases.T, _once(c, phases))
    return other_frequencies(c, w, factor, w**2) if len(w) else []


def each_off_phases(c: Case, phases: Float64) -> list[H]:
    """Read other positions, and each frequency, off the phases (N, pairs) of a rotation."""
    p, w = _once(c, phases), c["w"][: phases.shape[1]]
    if not len(w):
        return []
    others, found = solved(phases, w), solved(phases.T, p)
    others = np.where(abs(others - np.rint(others)) < 1e-3, np.rint(others), others)
    at, pair = int(np.argmax(others != p)), int(np.argmax(abs(found - w) > 1e-3 * abs(w)))
    text = f"Position {p[at]:.6g} is taken for {others[at]:.6g}."
    if np.ptp(others - p) == 0:
        text = f"The positions are {abs(others[0] - p[0]):.6g} too {'large' if others[0] > p[0] else 'small'}."
    return [
        H(
            "positions",
            text,
            "Count tokens alone, from 0, without rounding and without a limit.",
            {"positions": others + 0 * c["positions"]},
        ),
        H(
            "other frequencies",
            f"Pair {pair} has the frequency {found[pair]:.6g}; expected {w[pair]:.6g}.",
            "Compare the frequencies alone (check.frequencies).",
            {"w": np.append(found, c["w"][len(found) :])},
        ),
    ]


FREQUENCY = Kind(
    "frequencies",
    _listed,
    _listed,
    FREQUENCIES,
    ("pair",),
    lambda case, wanted, u: (
        (frequency_error(case, angle_roundoff(u)) + u)
        * np.maximum(abs(wanted), np.append(case["plain"], 1e-9)[: len(wanted)])
    ),
    labels=lambda case: {"pair": [*(f"pair {k}" for k in range(len(case["w"]))), "the attention factor"]},
    more=_of_numbers,
)


def frequencies(
    impl: Any,
    frequencies: object = None,
    *,
    dim: int | None = None,
    seq_len: int | None = None,
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
    The frequencies have the base 10000; expected 500000.
    """
    got = impl if hasattr(impl, "inv_freq") else call("frequencies", impl)
    if hasattr(got, "inv_freq"):
        got = (got.inv_freq, getattr(got, "attention_factor", 1.0))
    with_factor = isinstance(got, tuple | list) and len(got) == 2 and np.ndim(got[0]) == 1
    case = {**angles("frequencies", frequencies, dim, seq_len), "with_factor": with_factor}
    numbers = as_numbers(got[0] if with_factor else got, "frequencies")[0].astype(np.float64)  # 16 bits are an error
    numbers = np.append(numbers, float(got[1])) if with_factor else numbers
    report = judge(FREQUENCY, numbers, case, dtype)
    needs_factor = case["factor"] != 1 and not with_factor
    return further(report, None, "the attention factor; return (frequencies, factor)") if needs_factor else report
