"""RoPE pair by pair: what a scaling does to each, and which angles training never showed it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import Float64, as_index, fail
from .curves import as_pairs

__all__ = ["RopeBands", "RopeCoverage", "rope_bands", "rope_coverage"]

TURN = 2 * np.pi
SAME = 1e-9
"""Ratios that differ by less are one."""


class RopeBands(NamedTuple):
    """What a scaling does to each pair, arrays (e,)."""

    wavelength: Float64
    """Positions of one turn before the scaling."""
    turns: Float64
    """Turns within the trained length, before the scaling."""
    ratio: Float64
    """Frequency after over frequency before: 1 is kept, 1 / factor is interpolated."""
    kind: npt.NDArray[np.str_]
    """"kept" where the ratio is 1, "interpolated" where it is the smallest of all, else "blended"."""


class RopeCoverage(NamedTuple):
    """Which angles each pair has seen in training, arrays (e,)."""

    turns: Float64
    """Turns within the trained length."""
    covered: Float64
    """The part of the circle that was walked over, at most 1."""
    gap: Float64
    """The widest arc, in radians, without an angle of any trained distance."""
    first_unseen: Float64
    """The first distance whose angle lies past the arc that was walked over; infinity for pairs that went around."""
    unseen: Float64
    """The part of the new distances, train_length .. test_length - 1, whose angles lie there. 0 if there are none."""


def rope_bands(scaled: Any, original: Any, *, train_length: int) -> RopeBands:
    """What a scaling of RoPE does to each pair: ``ratio[k] = scaled[k] / original[k]``.

    Parameters
    ----------
    scaled, original : array (e,) or RopeFrequencies
        Frequencies with and without the scaling, from `rope_frequencies`; the original ones positive.
    train_length : int
        L, in which the turns are counted.

    Returns
    -------
    RopeBands
        ``wavelength``, ``turns``, ``ratio`` and ``kind`` of each pair.

    Raises
    ------
    TypeError, ValueError
        Not one number per pair, an original frequency that is not positive, a length below 1.

    Notes
    -----
    Peng et al. 2023 (YaRN), section 3: PI interpolates every pair, NTK shares the change out between the first (kept)
    and the last, YaRN and llama3 keep pairs with many turns and interpolate those with few.

    Examples
    --------
    >>> import posenc, posenc.analysis
    >>> plain = posenc.rope_frequencies(8)
    >>> parts = posenc.rope_frequencies(8, rope_type="ntk_by_parts", factor=4, original_max_position_embeddings=1024)
    >>> posenc.analysis.rope_bands(parts, plain, train_length=1024).kind.tolist()
    ['kept', 'blended', 'blended', 'interpolated']
    """
    function = "rope_bands"
    before = as_pairs(function, "original", original)
    after = as_pairs(function, "scaled", scaled, len(before))
    length = as_index(function, "train_length", train_length, 1)
    if not (before > 0).all():
        fail(ValueError, function, "original", "a frequency that is not positive", "positive numbers")
    ratio = after / before
    kept = abs(ratio - 1) <= SAME
    least = ~kept & (ratio <= ratio.min() * (1 + SAME))
    kind = np.where(kept, "kept", np.where(least, "interpolated", "blended"))
    return RopeBands(TURN / before, length * before / TURN, ratio, kind)


def rope_coverage(
    frequencies: Any, train_length: int, *, test_length: int | None = None, test_frequencies: Any = None
) -> RopeCoverage:
    """Which angles of each pair training has seen: ``{r w[k] mod 2 pi : r = 0 .. L - 1}``.

    Parameters
    ----------
    frequencies : array (e,) or RopeFrequencies
        Those of training, at least 0.
    train_length : int
        L: distances 0 .. L - 1 occurred.
    test_length : int, optional
        Distances up to test_length - 1 will occur; None is `train_length`.
    test_frequencies : array (e,) or RopeFrequencies, optional
        Those of the test, where they were scaled; None is `frequencies`.

    Returns
    -------
    RopeCoverage
        ``turns``, ``covered``, ``gap``, ``first_unseen`` and ``unseen`` of each pair. A pair that has not gone around
        saw the arc ``[0, (L - 1) w]``; angles past it are new to the model, and that is where extrapolation breaks.

    Raises
    ------
    TypeError, ValueError
        Not one number per pair, negative frequencies, a length below 1, a `test_length` below `train_length`.

    Notes
    -----
    Su 2023 (kexue.fm/archives/9675): slow pairs are leading digits, which take new values past the trained length.
    Interpolation by s has ``test_frequencies = frequencies / s`` and sees nothing new up to ``s (L - 1)``.

    Examples
    --------
    Frequency 0.01 at length 64 sees 0.63 of 6.28 radians, and nothing of what distances 64 .. 127 need:

    >>> import posenc.analysis
    >>> seen = posenc.analysis.rope_coverage([1.0, 0.01], 64, test_length=128)
    >>> seen.covered.round(4), seen.first_unseen, seen.unseen
    (array([1.    , 0.1003]), array([inf, 64.]), array([0., 1.]))
    >>> halved = posenc.analysis.rope_coverage([1.0, 0.01], 64, test_length=127, test_frequencies=[0.5, 0.005])
    >>> halved.unseen
    array([0., 0.])
    """
    function = "rope_coverage"
    w = as_pairs(function, "frequencies", frequencies)
    new = w if test_frequencies is None else as_pairs(function, "test_frequencies", test_frequencies, len(w))
    for name, numbers in (("frequencies", w), ("test_frequencies", new)):
        if (numbers < 0).any():
            fail(ValueError, function, name, "a negative frequency", "frequencies of at least 0")
    length = as_index(function, "train_length", train_length, 1)
    reach = length if test_length is None else as_index(function, "test_length", test_length, length)
    seen = np.sort(np.arange(length)[:, None] * w % TURN, axis=0)
    gaps = np.diff(np.concatenate([seen, seen[:1] + TURN]), axis=0)
    arc = (length - 1) * w
    rounding = 1 + 4 * np.finfo(np.float64).eps
    around = arc >= TURN
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.where(around | (new == 0), np.inf, np.floor(arc * rounding / new) + 1)
    far = np.arange(length, reach)[:, None] * new % TURN > arc * rounding
    unseen = np.where(around | (reach == length), 0.0, far.mean(axis=0) if reach > length else 0.0)
    return RopeCoverage(length * w / TURN, np.minimum(arc / TURN, 1.0), gaps.max(axis=0), first, unseen)
