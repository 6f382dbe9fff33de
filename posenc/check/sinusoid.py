"""The check of sinusoidal encodings."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .. import reference
from .frequencies import FREQUENCIES, base_off_phases, off_phases
from .inputs import Precision, ToArray, choice, converted, places, rounded
from .judge import Case, Kind, judge
from .judge import Hypothesis as H
from .report import Float64, Report
from .rope import OTHER, ROTATION, angle_error


def _encode(c: Case) -> Float64:
    channel = np.arange(c["dim"])
    w = c["by_channel"](c) if c["by_channel"] else np.repeat(c["w"], 2)[: c["dim"]]
    angle = rounded(c["positions"][:, None] * w, c["angle_dtype"])
    sine = (channel % 2 == 0) == (c["order"] == "sincos")
    table = c["sign"] * np.where(sine | c["all_sine"], np.sin(angle), np.cos(angle)) * c["scaled"]
    if c["sine_layout"] == "halves":
        table = np.concatenate([table[:, 0::2], table[:, 1::2]], -1)
    return rounded(table, c["table_dtype"])


SINUSOIDS = (
    *(h for h in FREQUENCIES if h.name == "base" or h.name.startswith("exponent") or h.name in ("wavelengths", "turns",
      "order of frequencies") or h.name.endswith("float16") if h.name != "exponent over the head"),
    H("exponent over dim", "The exponents are 2 k / dim; expected k / (dim / 2 - 1).",
      "Divide k by dim / 2 - 1, as tensor2tensor does.",
      {"w": lambda c: c["plain"] ** (1 - 1 / len(c["plain"])) if c["denominator"] == "half-1" else None}),
    H("layout", "The sines and cosines have the layout {other}; expected {sine_layout}.",
      '"interleaved" has sines and cosines side by side, "halves" all sines before all cosines.',
      {"sine_layout": lambda c: c["other"]}),
    H("order", "Sines and cosines are exchanged.", "The order is {order}.", {"order": lambda c: OTHER[c["order"]]}),
    H("a frequency for each channel", "Channel c has the frequency base**(-2 c / dim), with a sine or a cosine alone; "
      "expected one frequency for a sine and a cosine.", "Use the exponent 2 (c // 2) / dim for channel c.",
      {"by_channel": lambda c: lambda c: c["base"] ** (-2 * np.arange(c["dim"]) / c["dim"])}),
    H("exponent of the channel", "Channel c has the frequency base**(-c / dim); expected one frequency for a sine and "
      "a cosine.", "Use the exponent 2 (c // 2) / dim for channel c.",
      {"by_channel": lambda c: lambda c: c["base"] ** (-np.arange(c["dim"]) / c["dim"])}),
    *(h for h in ROTATION if h.name.startswith("offset") or h.name.endswith("float16")),
    H("offset +2", "The positions are two too large; fairseq's are, because its padding has row 1.",
      "Drop the first two rows of the table, or count no padding before a token.",
      {"positions": lambda c: c["positions"] + 2}),
    H("sign", "All signs are exchanged.", "Drop the minus.", {"sign": -1.0}),
    H("direction", "The positions are negative: the sines have the other sign.", "Use positions, not their negatives.",
      {"positions": lambda c: -c["positions"]}),
    H("sines only", "All channels are sines.", "Take the cosine in every second channel.", {"all_sine": True}),
    H("root of dim", "The encoding is multiplied by sqrt(dim).", "Scale the embeddings of words, not positions.",
      {"scaled": lambda c: c["dim"] ** 0.5}),
)  # fmt: skip


def _phases(c: Case, numbers: Float64) -> Float64:
    """The angle of each position and pair, (N, pairs)."""
    halves = c["sine_layout"] == "halves"
    sine, cosine = np.split(numbers, 2, -1) if halves else (numbers[:, 0::2], numbers[:, 1::2])
    return np.asarray(np.arctan2(*((sine, cosine) if c["order"] == "sincos" else (cosine, sine))))


SINUSOID = Kind(
    "sinusoid", lambda c: np.asarray(reference.sinusoidal(
        c["positions"], c["dim"], base=c["base"], layout=c["sine_layout"], order=c["order"],
        denominator=c["denominator"])),
    _encode, SINUSOIDS, ("position", "channel"), lambda c, wanted, u: angle_error(c, c["positions"], u) + 2 * u,
    more=lambda c, numbers: base_off_phases(c, _phases(c, numbers)),
    last=lambda c, numbers: off_phases(c, _phases(c, numbers)),
)  # fmt: skip


def sinusoid(
    impl: object, dim: int, *, base: float = 10000.0, layout: str = "interleaved", order: str = "sincos",
    denominator: str = "dim", positions: npt.ArrayLike = 24, dtype: Precision = "float32", array: ToArray = np.asarray,
) -> Report:  # fmt: skip
    """Check a sinusoidal encoding.

    Parameters
    ----------
    impl : callable or array
        ``impl(positions)`` returns the encoding, (N, dim); or the encoding itself.
    dim : int
        Width of the encoding, even.
    base, layout, order, denominator
        As in `posenc.sinusoidal`.
    positions : int or array (N,)
        An int n means 0 .. n-1.
    dtype : {"float32", "float64", "bfloat16", "float16"}
        Precision of the computation. "float64" demands angles in float64.
    array : callable
        Converts the positions, such as ``torch.as_tensor``.

    Returns
    -------
    Report

    Examples
    --------
    >>> import posenc, posenc.check
    >>> report = posenc.check.sinusoid(posenc.sinusoidal(24, 64, layout="halves"), 64)
    >>> print(report.causes[0].sentence)
    The sines and cosines have the layout halves; expected interleaved.
    """
    where, order = places(positions), choice("order", order, "sincos", "cossin")
    other_layout = "halves" if choice("layout", layout, "interleaved", "halves") == "interleaved" else "interleaved"
    w = np.asarray(reference.frequencies(dim, base=base, denominator=denominator))
    case: Case = {
        "w": w, "plain": w, "base": base, "rotary_dim": dim, "dim": dim, "positions": where.astype(np.float64),
        "sine_layout": layout, "other": other_layout, "order": order, "denominator": denominator,
        "by_channel": None, "sign": 1.0, "all_sine": False, "scaled": 1.0, "angle_dtype": "float64",
        "table_dtype": "float64",
    }  # fmt: skip
    got = impl(converted(array, where)) if callable(impl) else impl
    return judge(SINUSOID, got, case, dtype)
