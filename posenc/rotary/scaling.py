"""Frequencies of rotary embeddings, with every scaling by which a context is made longer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from .._core_api.arguments import F64, Float64, as_data, as_index, as_number, check_choice, fail, fail_value
from ..absolute.frequency import exact_frequencies

__all__ = ["RopeFrequencies", "rope_frequencies"]

LENGTHS = ("max_position_embeddings", "original_max_position_embeddings")


class RopeFrequencies(NamedTuple):
    """What `rope_frequencies` returns: radians per position and two separate factors."""

    inv_freq: Float64
    """(dim // 2,) radians per position."""
    attention_factor: float
    """Multiplies cos and sin, so that rotated logits carry its square."""
    softmax_factor: float
    """Multiplies the scale of the logits; `rope` never applies it."""


class _Request(NamedTuple):
    """One call; its methods read a key and check it."""

    function: str
    rope_type: str
    dim: int
    base: float
    w: Float64
    """What is scaled: base**(-2k / dim)."""
    seq_len: int | None
    keys: Mapping[str, Any]

    def number(self, key: str, default: float | None = None, *, least: float = 0.0, above: bool = True) -> float:
        """A number above `least`, or at least that; without a default the type needs the key."""
        expected = f"a number above {least:g}" if above else f"a number of at least {least:g}"
        if key not in self.keys:
            if default is None:
                fail(ValueError, self.function, key, "no value", f"{expected}: rope_type {self.rope_type!r} needs it")
            return default
        value = as_number(self.function, key, self.keys[key])
        if value < least or (above and value == least):
            fail(ValueError, self.function, key, self.keys[key], expected)
        return value

    def factor(self, default: float | None = None) -> float:
        """How many times longer the context becomes."""
        return self.number("factor", default, least=1.0, above=False)

    def factor_or_ratio(self) -> float:
        """The factor, which a config may leave to its two lengths."""
        if "factor" in self.keys or not all(length in self.keys for length in LENGTHS):
            return self.factor()
        ratio = self.keys[LENGTHS[0]] / self.keys[LENGTHS[1]]
        if ratio < 1:
            expected = f"at least {LENGTHS[1]}, {self.keys[LENGTHS[1]]}: their ratio is the missing factor"
            fail(ValueError, self.function, LENGTHS[0], self.keys[LENGTHS[0]], expected)
        return float(ratio)

    def length(self, preferred: str = LENGTHS[1]) -> int:
        """The length of training; a config that has one length only means that one."""
        for key in (preferred, *LENGTHS):
            if key in self.keys:
                return int(self.keys[key])
        fail(ValueError, self.function, preferred, "no value", f"an integer: rope_type {self.rope_type!r} needs it")

    def flag(self, key: str, default: bool) -> bool:
        value = self.keys.get(key, default)
        if not isinstance(value, bool | np.bool_):
            fail(TypeError, self.function, key, f"type {type(value).__name__}", "True or False")
        return bool(value)

    def factors(self, key: str) -> Float64:
        """One positive number for each pair."""
        pairs = self.dim // 2
        if key not in self.keys:
            fail(ValueError, self.function, key, "no value", f"{pairs} numbers: rope_type {self.rope_type!r} needs it")
        array = as_data(self.function, key, self.keys[key]).astype(F64)
        if array.shape != (pairs,):
            has = f"{len(array)} entries" if array.ndim == 1 else f"{array.ndim} axes"
            fail(ValueError, self.function, key, has, f"one number for each of the {pairs} pairs")
        if not (np.isfinite(array) & (array > 0)).all():
            fail(ValueError, self.function, key, "entries that are not finite and positive", "positive numbers")
        return array

    def beta(self) -> tuple[float, float]:
        """Turns within the training length: pairs with more keep their frequency, pairs with fewer are divided."""
        return self.ordered("beta_slow", 1.0, "beta_fast", 32.0)

    def ordered(
        self, low: str, low_default: float | None, high: str, high_default: float | None
    ) -> tuple[float, float]:
        slow, fast = self.number(low, low_default), self.number(high, high_default)
        if fast <= slow:
            fail(ValueError, self.function, high, fast, f"more than {low}, {slow}")
        return slow, fast


_Scaled = tuple[Float64, float, float]


def _default(r: _Request) -> _Scaled:
    return r.w.copy(), 1.0, 1.0


def _linear(r: _Request) -> _Scaled:
    return r.w / r.factor(), 1.0, 1.0


def _with_base(r: _Request, factor: float) -> Float64:
    """(base factor**(d / (d - 2)))**(-2k / d): pair 0 stays and the last is divided by the factor."""
    if r.dim < 4:
        fail(ValueError, r.function, "dim", r.dim, "at least 4: the first pair stays and the last is divided")
    return r.w * factor ** (-2.0 * np.arange(r.dim // 2) / (r.dim - 2))


def _ntk(r: _Request) -> _Scaled:
    return _with_base(r, r.factor()), 1.0, 1.0


def _dynamic(r: _Request) -> _Scaled:
    factor, trained = r.factor(), r.length(LENGTHS[0])
    beyond = max((r.seq_len or 0) - trained, 0)
    return _with_base(r, 1 + factor * beyond / trained), 1.0, 1.0  # = factor n / trained - (factor - 1)


def _blend(r: _Request, keep: Float64, factor: float) -> Float64:
    return r.w * (1 - keep) / factor + r.w * keep


def _by_turns(r: _Request, few: float, many: float) -> Float64:
    """How much of the frequency stays, by the turns a pair makes in the training length: linear from few to many."""
    turns = r.length() * r.w / (2 * np.pi)
    return np.clip((turns - few) / (many - few), 0.0, 1.0)


def _ntk_by_parts(r: _Request) -> _Scaled:
    return _blend(r, _by_turns(r, *r.beta()), r.factor()), 1.0, 1.0


def _llama3(r: _Request) -> _Scaled:
    factor = r.factor()
    low, high = r.ordered("low_freq_factor", None, "high_freq_factor", None)
    return _blend(r, _by_turns(r, low, high), factor), 1.0, 1.0


def _mscale(factor: float, mscale: float) -> float:
    return 0.1 * mscale * math.log(factor) + 1.0


def _yarn(r: _Request) -> _Scaled:
    factor, trained, (slow, fast) = r.factor_or_ratio(), r.length(), r.beta()
    if r.base <= 1:
        fail(ValueError, r.function, "base", r.base, "more than 1: rope_type 'yarn' divides by its logarithm")

    def pair(turns: float) -> float:
        """The pair that makes so many turns in the training length."""
        return r.dim * (math.log(trained / (2 * math.pi)) - math.log(turns)) / (2 * math.log(r.base))

    first, last = pair(fast), pair(slow)
    if r.flag("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, r.dim - 1)  # dim, though pairs end at dim / 2: checkpoints were trained so
    if last < first:  # the ramp would run backwards
        expected = f"a length in which pairs make between {slow:g} and {fast:g} turns"
        fail(ValueError, r.function, LENGTHS[1], trained, expected)
    if first == last:
        last += 0.001
    keep = 1 - np.clip((np.arange(r.dim // 2) - first) / (last - first), 0.0, 1.0)
    mscale, all_dim = (r.number(key, 0.0, above=False) for key in ("mscale", "mscale_all_dim"))
    attention = _mscale(factor, mscale) / _mscale(factor, all_dim) if mscale and all_dim else _mscale(factor, 1.0)
    softmax = _mscale(factor, all_dim) * _mscale(factor, all_dim)
    if not math.isfinite(softmax):
        fail(ValueError, r.function, "mscale_all_dim", all_dim, "a number whose square is finite")
    return _blend(r, keep, factor), r.number("attention_factor", attention), softmax


def _longrope(r: _Request) -> _Scaled:
    trained, short, long = r.length(), r.factors("short_factor"), r.factors("long_factor")
    if "attention_factor" in r.keys:
        attention = r.number("attention_factor")
        r.factor(1.0)
    else:
        factor = r.factor_or_ratio()
        if trained < 2:
            fail(ValueError, r.function, LENGTHS[1], trained, "at least 2: its logarithm divides")
        attention = math.sqrt(1 + math.log(factor) / math.log(trained))
    return r.w / (long if (r.seq_len or 0) > trained else short), attention, 1.0


def _proportional(r: _Request) -> _Scaled:
    part = r.number("partial_rotary_factor", 1.0, above=False)
    if part > 1:
        fail(ValueError, r.function, "partial_rotary_factor", part, "a number from 0 to 1")
    kept = np.arange(r.dim // 2) < int(part * r.dim // 2)
    return np.where(kept, r.w, 0.0) / r.factor(1.0), 1.0, 1.0


def _ntk_mixed(r: _Request) -> _Scaled:
    factor, b, half = r.factor(), r.number("b", 0.625, above=False), r.dim // 2
    return r.w * factor ** -(((np.arange(half) + 1.0) / half) ** b), 1.0, 1.0


ROPE_TYPES: dict[str, tuple[Callable[[_Request], _Scaled], tuple[str, ...]]] = {
    "default": (_default, ()),
    "linear": (_linear, ("factor",)),
    "ntk": (_ntk, ("factor",)),
    "dynamic": (_dynamic, ("factor",)),
    "ntk_by_parts": (_ntk_by_parts, ("factor", "beta_fast", "beta_slow")),
    "yarn": (
        _yarn, ("factor", "beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate"),
    ),
    "longrope": (_longrope, ("short_factor", "long_factor", "factor", "attention_factor")),
    "llama3": (_llama3, ("factor", "low_freq_factor", "high_freq_factor")),
    "proportional": (_proportional, ("partial_rotary_factor", "factor")),
    "ntk_mixed": (_ntk_mixed, ("factor", "b")),
}  # fmt: skip
"""Each scaling and the keys it knows beside the two lengths."""


def scaled_frequencies(
    function: str,
    dim: int,
    base: float,
    rope_type: str,
    seq_len: int | None,
    keys: Mapping[str, Any],
    argument: str = "keys",
) -> RopeFrequencies:
    """`rope_frequencies` under the name of whoever calls, and of the argument that held the keys."""
    if as_index(function, "dim", dim, 2) % 2:
        fail_value(ValueError, function, "dim", dim, "an even number of channels")
    check_choice(function, "rope_type", rope_type, ROPE_TYPES)
    if seq_len is not None:
        seq_len = as_index(function, "seq_len", seq_len, 0)
    scale, known = ROPE_TYPES[rope_type]
    for key in keys:
        if key not in known + LENGTHS:
            expected = f"only what rope_type {rope_type!r} knows: " + ", ".join(known + LENGTHS)
            fail(TypeError, function, argument, repr(key), expected)
    given = {key: value for key, value in keys.items() if value is not None}
    given.update({key: as_index(function, key, given[key], 1) for key in LENGTHS if key in given})
    w = exact_frequencies(function, dim, base, "dim")[0]
    return RopeFrequencies(*scale(_Request(function, rope_type, dim, float(base), w, seq_len, given)))


def rope_frequencies(
    dim: int, *, base: float = 10000.0, rope_type: str = "default", seq_len: int | None = None, **keys: Any
) -> RopeFrequencies:
    """Rotary frequencies: ``inv_freq[k] = base**(-2k / dim)``, scaled for longer contexts as `rope_type` says.

    Parameters
    ----------
    dim : int
        Even number d of rotated channels; w below is ``base**(-2k / d)``, k = 0 .. d/2 - 1.
    base : float
        Positive; ``rope_theta`` in a checkpoint's config.
    rope_type : str
        The scaling. s is ``factor``, L the length of training, ``turns = L w / (2 pi)``.

        - ``"default"``: w.
        - ``"linear"``: w / s, position interpolation (PI).
        - ``"ntk"``: the base times ``s**(d / (d - 2))``; the first pair stays, the last is divided by s.
        - ``"dynamic"``: ntk with ``s n / L - (s - 1)`` for s, where `seq_len` n is beyond L.
        - ``"ntk_by_parts"``: w from ``beta_fast`` turns on, w / s up to ``beta_slow``, linear in turns between them.
        - ``"yarn"``: the same with a ramp that is linear in k, and an attention factor.
        - ``"longrope"``: w / ``short_factor``, or / ``long_factor`` where `seq_len` is beyond L.
        - ``"llama3"``: ntk_by_parts from ``low_freq_factor`` to ``high_freq_factor`` turns.
        - ``"proportional"``: w for the first ``partial_rotary_factor`` of the pairs, 0 for the others.
        - ``"ntk_mixed"``: ``w s**-((2 (k + 1) / d)**b)``.
    seq_len : int, optional
        Length of the sequence, which only dynamic and longrope read. None is a length within L.
    **keys
        As in Hugging Face configs. ``factor`` is at least 1 (optional for proportional; for yarn and longrope it may
        be left to the two lengths). ``original_max_position_embeddings`` is L; where it is missing, and always for
        dynamic, ``max_position_embeddings`` is. For yarn ``beta_fast=32``, ``beta_slow=1``, ``truncate=True``,
        ``mscale``, ``mscale_all_dim``, ``attention_factor``; for ntk_mixed ``b=0.625``. None is a key not given.

    Returns
    -------
    RopeFrequencies
        ``(inv_freq, attention_factor, softmax_factor)``. The attention factor, on cos and sin, is what the key of that
        name says; else for yarn ``m(mscale) / m(mscale_all_dim)`` with ``m(u) = 0.1 u ln s + 1``, or ``m(1)`` unless
        both are given; for longrope ``sqrt(1 + ln s / ln L)``; else 1. The softmax factor, on the scale of the logits,
        is yarn's ``m(mscale_all_dim)**2`` (DeepSeek), else 1.

    Raises
    ------
    TypeError
        A key that the type does not know, or of the wrong kind. The two lengths are always allowed.
    ValueError
        An odd `dim`, a base that is not positive, an unknown type, a missing key, a factor below 1, factor lists
        that do not have one entry for each pair.

    Notes
    -----
    Su et al. 2021 (RoFormer), equation 15. linear: Chen et al. 2023. ntk, ntk_by_parts, yarn: Peng et al. 2023,
    section 3, definitions 1 and 2. longrope: Ding et al. 2024 as Phi-3 runs it. llama3: the code of Llama 3.1.
    proportional: Barbero et al. 2024 (p-RoPE). ntk_mixed: Su 2023, kexue.fm/archives/9706. dynamic is what transformers
    computes; the paper has ``n / L`` for s.

    Nothing is remembered between calls: dynamic and longrope are functions of `seq_len`, and keys rotated for one
    length do not fit queries of another. The paper's ramp is ntk_by_parts; its code, and so every YaRN checkpoint,
    has the ramp over k between whole pairs (`truncate`). transformers ignores ``truncate`` inside per-layer
    parameters, and vLLM's dynamic does not depend on the length; neither is copied.

    Examples
    --------
    >>> import posenc
    >>> posenc.rope_frequencies(8).inv_freq
    array([1.   , 0.1  , 0.01 , 0.001])
    >>> posenc.rope_frequencies(8, rope_type="ntk", factor=8).inv_freq.tolist()
    [1.0, 0.05, 0.0025, 0.000125]
    >>> yarn = posenc.rope_frequencies(8, rope_type="yarn", factor=4, original_max_position_embeddings=4096)
    >>> yarn.inv_freq.round(7).tolist(), round(yarn.attention_factor, 4)
    ([1.0, 0.1, 0.00625, 0.00025], 1.1386)
    """
    return scaled_frequencies("rope_frequencies", dim, base, rope_type, seq_len, keys)
