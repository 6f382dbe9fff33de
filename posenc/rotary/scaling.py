"""Frequencies of rotary position embeddings, and the scalings that extend them to longer contexts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api import read
from .._core_api.arrays import Array, Float64
from .._core_api.door import door, fail, fail_value
from .._core_api.notebook import picture
from ..absolute.frequency import exact_frequencies
from ..absolute.rotated_pairs import Layout

RopeType = Literal[
    "default", "linear", "ntk", "dynamic", "ntk_by_parts", "yarn", "longrope", "llama3", "proportional", "ntk_mixed"
]
LENGTHS = EXTENDED, TRAINED = "max_position_embeddings", "original_max_position_embeddings"


@dataclass(frozen=True, eq=False, repr=False)
class RopeFrequencies:
    """Rotary frequencies, two factors, and the options of `rope` that a checkpoint fixes.

    `rope_frequencies` and `rope_from_config` make it. The functions of posenc that take rotary frequencies take it as
    well as an array; those that rotate nothing refuse it if it has a factor or an option of `rope`.
    ``dataclasses.replace`` returns a copy with other fields.

    Parameters
    ----------
    inv_freq : array (e,), or (A, e) for `rope_nd`
        Radians per position of each pair of channels.
    attention_factor : float
        Multiplies cos and sin, so rotated logits contain its square.
    softmax_factor : float
        Multiplies the scale of the logits. `rope` never applies it.
    layout : {"half", "interleaved"}, optional
        The layout that the checkpoint needs, and the default of `rope`. Only `rope_from_config` sets it.
    rotary_dim : int, optional
        Number of rotated channels, 2e, and the default of `rope`. Only `rope_from_config` sets it.
    description : str
        The origin of the frequencies, for the representation.

    Attributes
    ----------
    inv_freq, attention_factor, softmax_factor, layout, rotary_dim, description
        The parameters; the array is not copied.

    Notes
    -----
    ``np.asarray(w)`` is ``w.inv_freq``: the factors are dropped, so pass the object itself to functions that rotate.
    ``len(w)`` is the number of pairs. Arithmetic with arrays is a TypeError; multiply ``w.inv_freq``.

    Examples
    --------
    >>> import posenc
    >>> posenc.rope_frequencies(128, rope_type="yarn", factor=4, original_max_position_embeddings=4096)
    <RopeFrequencies: 64 pairs, base 10000, yarn, factor 4, attention_factor 1.139>
    """

    inv_freq: Float64
    attention_factor: float = 1.0
    softmax_factor: float = 1.0
    layout: Layout | None = None
    rotary_dim: int | None = None
    description: str = ""

    __array_ufunc__ = None

    def __len__(self) -> int:
        pairs: int = np.shape(self.inv_freq)[-1]
        return pairs

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        if copy is None:  # NumPy 1 has no such value
            return np.asarray(self.inv_freq, dtype)
        return np.array(self.inv_freq, dtype, copy=copy)

    def __iter__(self) -> NoReturn:
        """Refuse unpacking, which would be silently wrong for the array that this class looks like."""
        fields = "w.inv_freq, w.attention_factor, w.softmax_factor, w.layout or w.rotary_dim"
        raise TypeError(f"RopeFrequencies: w is unpacked; expected {fields}, because w is no tuple")

    def __repr__(self) -> str:
        factors = ("attention_factor", "softmax_factor")
        stated = [f"{name} {getattr(self, name):.4g}" for name in factors if getattr(self, name) != 1.0]
        axes = f"{len(self.inv_freq)} coordinates" if np.ndim(self.inv_freq) > 1 else ""
        known = [part for part in (axes, self.description, *stated, self.layout) if part]
        return f"<RopeFrequencies: {', '.join([f'{len(self)} pairs', *known])}>"

    def _repr_png_(self) -> bytes | None:
        """Return a picture for a notebook; None without matplotlib, where the text is shown."""
        return picture(self)


Keys: TypeAlias = Mapping[str, Any]


LEAST = {"factor": 1.0, "mscale": 0.0, "mscale_all_dim": 0.0, "partial_rotary_factor": 0.0, "b": 0.0}
"""The least values of keys. All other numbers are above 0."""
DEFAULTS = {
    "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 0.0, "mscale_all_dim": 0.0, "partial_rotary_factor": 1.0, "b": 0.625,
}  # fmt: skip


class _Request(NamedTuple):
    """One call of `rope_frequencies`. Its methods read and check the keys."""

    rope_type: str
    dim: int
    base: float
    inv_freq: Float64
    """The unscaled frequencies, base**(-2k / dim)."""
    seq_len: int
    """0 without a length."""
    keys: Keys

    def number(self, key: str, default: float | None = None) -> float:
        """Return a number; `default` replaces the default of the key."""
        default = DEFAULTS.get(key) if default is None else default
        expected = f"a number of at least {LEAST[key]:g}" if key in LEAST else "a number above 0"
        if key not in self.keys:
            return self.fail_missing(key, expected) if default is None else default
        value = read.number(key, self.keys[key])
        if value < LEAST.get(key, 0.0) or (value == 0 and key not in LEAST):
            fail_value(ValueError, key, self.keys[key], expected)
        return value

    def fail_missing(self, key: str, expected: str) -> NoReturn:
        fail(ValueError, key, "no value", f"{expected}: rope_type {self.rope_type!r} needs it")

    def factor_or_ratio(self) -> float:
        """Return the factor, which defaults to the ratio of the two lengths."""
        if "factor" in self.keys or not all(length in self.keys for length in LENGTHS):
            return self.number("factor")
        extended, trained = (self.keys[length] for length in LENGTHS)
        if extended < trained:
            expected = f"at least {TRAINED}, {trained}: their ratio is the missing factor"
            fail_value(ValueError, EXTENDED, extended, expected)
        return float(extended / trained)

    def train_length(self, preferred: str = TRAINED) -> int:
        """Return the length of training. If only one of the two lengths is there, it is the length of training."""
        for key in (preferred, *LENGTHS):
            if key in self.keys:
                return int(self.keys[key])
        self.fail_missing(preferred, "an integer")

    def factors(self, key: str) -> Float64:
        """Return one positive number for each pair."""
        pairs = self.dim // 2
        if key not in self.keys:
            self.fail_missing(key, f"{pairs} numbers")
        array: Float64 = _core.read(f"f64 {key}()", **{key: self.keys[key]})
        if array.shape != (pairs,):
            has = f"{len(array)} entries" if array.ndim == 1 else f"{array.ndim} axes"
            fail(ValueError, key, has, f"one number for each of the {pairs} pairs")
        if not (np.isfinite(array) & (array > 0)).all():
            fail(ValueError, key, "entries that are not finite and positive", "positive numbers")
        return array

    def rotations(self, low: str, high: str, may_be_equal: bool = False) -> tuple[float, float]:
        """Return two numbers of full rotations of a pair within the length of training.

        Pairs with more than the second keep their frequency. Pairs with fewer than the first are divided by the factor.
        """
        first, second = self.number(low), self.number(high)
        if second < first or (second == first and not may_be_equal):
            fail_value(ValueError, high, second, f"{'at least' if may_be_equal else 'more than'} {low}, {first}")
        return first, second


def _default(r: _Request) -> RopeFrequencies:
    return RopeFrequencies(r.inv_freq.copy())


def _linear(r: _Request) -> RopeFrequencies:
    return RopeFrequencies(r.inv_freq / r.number("factor"))


def _with_larger_base(r: _Request, factor: float) -> RopeFrequencies:
    """Return (base factor**(d / (d - 2)))**(-2k / d): pair 0 is unchanged and the last is divided by the factor."""
    if r.dim < 4:
        fail_value(ValueError, "dim", r.dim, "at least 4: the first pair is kept and the last is divided")
    return RopeFrequencies(r.inv_freq * factor ** (-2.0 * np.arange(r.dim // 2) / (r.dim - 2)))


def _ntk(r: _Request) -> RopeFrequencies:
    return _with_larger_base(r, r.number("factor"))


def _dynamic(r: _Request) -> RopeFrequencies:
    factor, trained = r.number("factor"), r.train_length(EXTENDED)
    beyond = max(r.seq_len - trained, 0)
    return _with_larger_base(r, 1 + factor * beyond / trained)  # = factor n / trained - (factor - 1)


def _blend(r: _Request, keep: Float64, factor: float) -> Float64:
    """Return frequencies of which the fraction `keep` is unscaled and the rest is divided by the factor."""
    return r.inv_freq * (1 - keep) / factor + r.inv_freq * keep


def _by_rotations(r: _Request, low_key: str = "beta_slow", high_key: str = "beta_fast") -> RopeFrequencies:
    """Return a blend that is linear in the full rotations of a pair within the length of training."""
    factor, (low, high) = r.number("factor"), r.rotations(low_key, high_key)
    rotations = r.train_length() * r.inv_freq / (2 * np.pi)
    return RopeFrequencies(_blend(r, np.clip((rotations - low) / (high - low), 0.0, 1.0), factor))


def _llama3(r: _Request) -> RopeFrequencies:
    return _by_rotations(r, "low_freq_factor", "high_freq_factor")


def _yarn(r: _Request) -> RopeFrequencies:
    factor, keep = r.factor_or_ratio(), _keep_by_pair(r)
    mscale, all_dim = r.number("mscale"), r.number("mscale_all_dim")
    attention = _mscale(factor, mscale) / _mscale(factor, all_dim) if mscale and all_dim else _mscale(factor, 1.0)
    softmax = _mscale(factor, all_dim) * _mscale(factor, all_dim)
    if not math.isfinite(softmax):
        fail_value(ValueError, "mscale_all_dim", all_dim, "a number whose square is finite")
    return RopeFrequencies(_blend(r, keep, factor), r.number("attention_factor", attention), softmax)


def _keep_by_pair(r: _Request) -> Float64:
    """Return YaRN's ramp from 1 to 0, linear in k between the pairs with beta_fast and beta_slow rotations.

    If the two numbers are equal, as in Kimi K2, the ramp is a step.
    """
    trained, (slow, fast) = r.train_length(), r.rotations("beta_slow", "beta_fast", may_be_equal=True)
    if r.base <= 1:
        fail_value(ValueError, "base", r.base, "more than 1: rope_type 'yarn' divides by its logarithm")

    def pair(rotations: float) -> float:
        return r.dim * (math.log(trained / (2 * math.pi)) - math.log(rotations)) / (2 * math.log(r.base))

    first, last = pair(fast), pair(slow)
    if read.flag("truncate", r.keys.get("truncate", True)):
        first, last = math.floor(first), math.ceil(last)
    # The limit is dim, although pairs end at dim / 2, because checkpoints were trained with it.
    first, last = max(first, 0), min(last, r.dim - 1)
    if last < first:  # the ramp would be inverted
        expected = f"a length in which pairs make between {slow:g} and {fast:g} rotations"
        fail_value(ValueError, TRAINED, trained, expected)
    if first == last:
        last += 0.001
    divided: Float64 = np.clip((np.arange(r.dim // 2) - first) / (last - first), 0.0, 1.0)
    return 1 - divided


def _mscale(factor: float, mscale: float) -> float:
    return 0.1 * mscale * math.log(factor) + 1.0


def _longrope(r: _Request) -> RopeFrequencies:
    trained, short, long = r.train_length(), r.factors("short_factor"), r.factors("long_factor")
    if "attention_factor" in r.keys:
        attention = r.number("attention_factor")
        r.number("factor", 1.0)
    else:
        factor = r.factor_or_ratio()
        if trained < 2:
            fail_value(ValueError, TRAINED, trained, "at least 2, because its logarithm is a divisor")
        attention = math.sqrt(1 + math.log(factor) / math.log(trained))
    with np.errstate(over="ignore"):
        return RopeFrequencies(r.inv_freq / (long if r.seq_len > trained else short), attention)


def _proportional(r: _Request) -> RopeFrequencies:
    part = r.number("partial_rotary_factor")
    if part > 1:
        fail_value(ValueError, "partial_rotary_factor", part, "a number from 0 to 1")
    rotated = np.arange(r.dim // 2) < int(part * r.dim // 2)
    return RopeFrequencies(np.where(rotated, r.inv_freq, 0.0) / r.number("factor", 1.0))


def _ntk_mixed(r: _Request) -> RopeFrequencies:
    factor, b, pairs = r.number("factor"), r.number("b"), r.dim // 2
    return RopeFrequencies(r.inv_freq * factor ** -(((np.arange(pairs) + 1.0) / pairs) ** b))


ROPE_TYPES: dict[str, tuple[Callable[[_Request], RopeFrequencies], tuple[str, ...]]] = {
    "default": (_default, ()),
    "linear": (_linear, ("factor",)),
    "ntk": (_ntk, ("factor",)),
    "dynamic": (_dynamic, ("factor",)),
    "ntk_by_parts": (_by_rotations, ("factor", "beta_fast", "beta_slow")),
    "yarn": (
        _yarn, ("factor", "beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate"),
    ),
    "longrope": (_longrope, ("short_factor", "long_factor", "factor", "attention_factor")),
    "llama3": (_llama3, ("factor", "low_freq_factor", "high_freq_factor")),
    "proportional": (_proportional, ("partial_rotary_factor", "factor")),
    "ntk_mixed": (_ntk_mixed, ("factor", "b")),
}  # fmt: skip
"""The function and the keys of each scaling; all of them also accept the two lengths."""


def scaled_frequencies(
    dim: int, base: float, rope_type: str, seq_len: int | None, keys: Keys, argument: str = "keys"
) -> RopeFrequencies:
    """Return `rope_frequencies`; `argument` is the name of the keys in the public function."""
    if read.index("dim", dim, 2, read.MOST_CHANNELS) % 2:
        fail_value(ValueError, "dim", dim, "an even number of channels")
    read.choice("rope_type", rope_type, ROPE_TYPES)
    length = 0 if seq_len is None else read.index("seq_len", seq_len, 0)
    scale, names = ROPE_TYPES[rope_type]
    known = names + LENGTHS
    for key in keys:
        if key not in known:
            expected = f"only the keys of rope_type {rope_type!r}: " + ", ".join(known)
            if key in ("rope_theta", "theta") and argument == "keys":
                expected = f"base, which is the name of {key} here"
            if key in ("rope_scaling", "rope_parameters") and argument == "keys":
                expected = f"the keys of it, as in rope_frequencies(dim, **{key})"
            if key == "attn_factor" and rope_type == "yarn":
                expected = (
                    "attention_factor, the factor of cos and sin: attn_factor if it replaces 0.1 ln(factor) + 1, or "
                    "the product of both if it multiplies it, as in vLLM"
                )
            fail(TypeError, argument, repr(key), expected)
    present = {key: value for key, value in keys.items() if value is not None}
    present |= {key: read.index(key, present[key], 1) for key in LENGTHS if key in present}
    inv_freq, _ = exact_frequencies(dim, base, "dim")
    if not math.isfinite(inv_freq[-1]):  # the largest one, if the base is below 1
        fail_value(ValueError, "base", base, "a number whose powers, the frequencies, are finite")
    w = scale(_Request(rope_type, dim, float(base), inv_freq, length, present))
    if rope_type != "default" and not (math.isfinite(w.inv_freq.max()) and math.isfinite(w.attention_factor)):
        fail_value(ValueError, argument, dict(present), "numbers that give finite frequencies and factors")
    description = f"base {float(base):g}"
    if rope_type != "default":
        description += f", {rope_type}" + (f", factor {float(present['factor']):g}" if "factor" in present else "")
    return replace(w, description=description)


@door
def rope_frequencies(
    dim: int, *, base: float = 10000.0, rope_type: RopeType = "default", seq_len: int | None = None, **keys: object
) -> RopeFrequencies:
    """Return rotary frequencies, scaled for longer contexts if `rope_type` says so.

    ``inv_freq[k] = base**(-2k / dim)`` for the default type.

    Parameters
    ----------
    dim : int
        Even number d of rotated channels. Below, w is ``base**(-2k / d)``, k = 0 .. d/2 - 1.
    base : float
        Positive; ``rope_theta`` in a checkpoint's config.
    rope_type : str
        The scaling. Below, s is ``factor``, L is the length of training, and a pair makes ``L w / (2 pi)`` rotations
        within it.

        - ``"default"``: w.
        - ``"linear"``: w / s, position interpolation (PI).
        - ``"ntk"``: the base times ``s**(d / (d - 2))``; the first pair is unchanged, the last is divided by s.
        - ``"dynamic"``: ntk with ``s n / L - (s - 1)`` for s, if `seq_len` n is beyond L.
        - ``"ntk_by_parts"``: w for pairs of at least ``beta_fast`` rotations, w / s for pairs of at most ``beta_slow``,
          and linear in the number of rotations between them.
        - ``"yarn"``: the same with a ramp that is linear in k, and an attention factor.
        - ``"longrope"``: w / ``short_factor``, or w / ``long_factor`` if `seq_len` is beyond L.
        - ``"llama3"``: ntk_by_parts from ``low_freq_factor`` to ``high_freq_factor`` rotations.
        - ``"proportional"``: w for the first ``partial_rotary_factor`` of the pairs, 0 for the others.
        - ``"ntk_mixed"``: ``w s**-((2 (k + 1) / d)**b)``.
    seq_len : int, optional
        Length of the sequence, which only dynamic and longrope read. None means a length of at most L.
    **keys
        Named as in Hugging Face configs. ``factor`` is at least 1. It is optional for proportional, and defaults to the
        ratio of the two lengths for yarn and longrope. ``original_max_position_embeddings`` is L; if it is missing, and
        always for dynamic, L is ``max_position_embeddings``. yarn has ``beta_fast=32``, ``beta_slow=1``,
        ``truncate=True``, ``mscale``, ``mscale_all_dim`` and ``attention_factor``; its ``beta_fast`` may equal
        ``beta_slow``, and the ramp is then a step. ntk_mixed has ``b=0.625``. None means that the key is missing.

    Returns
    -------
    RopeFrequencies
        With ``inv_freq``, ``attention_factor`` and ``softmax_factor``. The attention factor multiplies cos and sin. It
        is the key of that name, or for yarn ``m(mscale) / m(mscale_all_dim)`` with ``m(u) = 0.1 u ln s + 1``, or
        ``m(1)`` unless both keys are there, or for longrope ``sqrt(1 + ln s / ln L)``, or else 1. The softmax factor
        multiplies the scale of the logits. It is ``m(mscale_all_dim)**2`` for yarn (DeepSeek), or else 1.

    Raises
    ------
    TypeError
        A key that the type does not have, or a value of the wrong kind. The two lengths are always allowed.
    ValueError
        An odd `dim`, a base that is not positive, an unknown type, a missing key, a factor below 1, factor lists
        that do not have one entry for each pair.

    Notes
    -----
    Su et al. 2021 (RoFormer), equation 15. linear: Chen et al. 2023. ntk, ntk_by_parts, yarn: Peng et al. 2023,
    section 3, definitions 1 and 2. longrope: Ding et al. 2024, as Phi-3 computes it. llama3: the code of Llama 3.1.
    proportional: Barbero et al. 2024 (p-RoPE). ntk_mixed: Su 2023, kexue.fm/archives/9706. dynamic follows
    transformers; the paper has ``n / L`` for s.

    No state is kept between calls: dynamic and longrope are functions of `seq_len`, and keys rotated for one length
    must not be used with queries rotated for another. ntk_by_parts has the ramp of the YaRN paper. The paper's code,
    and so YaRN checkpoints, have the ramp over k between integer pairs (`truncate`). transformers ignores ``truncate``
    inside per-layer parameters, and vLLM's dynamic does not depend on the length; neither is copied here.

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
    return scaled_frequencies(dim, base, rope_type, seq_len, keys)
