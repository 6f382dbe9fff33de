"""RoPE pair by pair: the effect of a scaling on each frequency, and the angles that occur in training."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .. import reference
from .._core_api import read
from .._core_api.arrays import Float64
from .._core_api.door import door, fail
from .arguments import PairFrequencies, read_pairs


class RopeBands(NamedTuple):
    """Effect of a scaling on each pair, arrays (e,).

    Attributes
    ----------
    wavelength : float64 array (e,)
        Positions per turn before the scaling.
    turns : float64 array (e,)
        Turns within the training length before the scaling.
    ratio : float64 array (e,)
        Frequency after the scaling divided by that before: 1 is kept, 1 / factor is interpolated.
    kind : array (e,) of str
        "kept" where the ratio is 1, "interpolated" where it is the smallest of all pairs, else "blended".
    """

    wavelength: Float64
    turns: Float64
    ratio: Float64
    kind: npt.NDArray[np.str_]


class RopeCoverage(NamedTuple):
    """Angles of each pair that occur in training, arrays (e,).

    Attributes
    ----------
    turns : float64 array (e,)
        Turns within the training length.
    covered : float64 array (e,)
        Fraction of the circle between the angles of the shortest and the longest trained distance, at most 1.
    gap : float64 array (e,)
        Width of the widest arc without an angle of any trained distance, in radians.
    first_unseen : float64 array (e,)
        First distance whose angle lies beyond the covered arc; infinity for pairs that make a full turn.
    unseen : float64 array (e,)
        Fraction of the new distances, train_length .. test_length - 1, with such an angle. 0 if there are none.
    """

    turns: Float64
    covered: Float64
    gap: Float64
    first_unseen: Float64
    unseen: Float64


@door
def rope_bands(scaled: PairFrequencies, original: PairFrequencies, *, train_length: int) -> RopeBands:
    """Effect of a RoPE scaling on the frequency of each pair.

    ``ratio[k] = scaled[k] / original[k]``.

    Parameters
    ----------
    scaled, original : array (e,) or RopeFrequencies
        Frequencies with and without the scaling, from `rope_frequencies`; `original` must be positive. Only the array
        of a RopeFrequencies is read.
    train_length : int
        Number of positions in which turns are counted.

    Returns
    -------
    RopeBands
        ``wavelength`` (positions), ``turns``, ``ratio`` and ``kind`` of each pair.

    Raises
    ------
    TypeError, ValueError
        The two do not have one number per pair, an original frequency is not positive, or the length is below 1.

    Notes
    -----
    Peng et al. 2023 (YaRN), section 3: PI interpolates every pair. NTK keeps the first pair, interpolates the last and
    blends those between. YaRN and llama3 keep pairs with many turns and interpolate those with few.

    Examples
    --------
    >>> import posenc, posenc.analysis
    >>> plain = posenc.rope_frequencies(8)
    >>> parts = posenc.rope_frequencies(8, rope_type="ntk_by_parts", factor=4, original_max_position_embeddings=1024)
    >>> posenc.analysis.rope_bands(parts, plain, train_length=1024).kind.tolist()
    ['kept', 'blended', 'blended', 'interpolated']
    """
    before = read_pairs("original", original)
    after = read_pairs("scaled", scaled, len(before))
    length = read.index("train_length", train_length, 1)
    if not (before > 0).all():
        fail(ValueError, "original", "a frequency that is not positive", "positive numbers")
    return RopeBands(*reference.rope_bands(after, before, train_length=length))


@door
def rope_coverage(
    frequencies: PairFrequencies,
    train_length: int,
    *,
    test_length: int | None = None,
    test_frequencies: PairFrequencies | None = None,
) -> RopeCoverage:
    """Angles of each RoPE pair that occur in training, and new distances whose angles do not.

    The angles of pair k are ``{r w[k] mod 2 pi : r = 0 .. L - 1}``.

    Parameters
    ----------
    frequencies : array (e,) or RopeFrequencies
        w in training, in radians per position, at least 0.
    train_length : int
        L: distances 0 .. L - 1 occur in training.
    test_length : int, optional
        Distances up to test_length - 1 occur in the test; by default `train_length`.
    test_frequencies : array (e,) or RopeFrequencies, optional
        Frequencies of the test, if they are scaled; by default `frequencies`.

    Returns
    -------
    RopeCoverage
        ``turns``, ``covered``, ``gap`` (radians), ``first_unseen`` (a distance) and ``unseen`` of each pair. A pair
        that makes no full turn covers the arc ``[0, (L - 1) w]``; angles beyond it are new to the model, and there
        extrapolation fails.

    Raises
    ------
    TypeError, ValueError
        There is not one number per pair, a frequency is negative, `train_length` is below 1, or `test_length` is below
        `train_length`.

    Notes
    -----
    Su 2023 (kexue.fm/archives/9675): slow pairs are like leading digits, which take new values beyond the training
    length. Interpolation by s, ``test_frequencies = frequencies / s``, has no new angle up to distance ``s (L - 1)``.

    Examples
    --------
    In 64 positions the frequency 0.01 covers 0.63 of 6.28 radians. All angles of distances 64 .. 127 are new, until the
    frequencies are halved:

    >>> import posenc.analysis
    >>> seen = posenc.analysis.rope_coverage([1.0, 0.01], 64, test_length=128)
    >>> seen.covered.round(4), seen.first_unseen, seen.unseen
    (array([1.    , 0.1003]), array([inf, 64.]), array([0., 1.]))
    >>> halved = posenc.analysis.rope_coverage([1.0, 0.01], 64, test_length=127, test_frequencies=[0.5, 0.005])
    >>> halved.unseen
    array([0., 0.])
    """
    trained = tested = read_pairs("frequencies", frequencies)
    if test_frequencies is not None:
        tested = read_pairs("test_frequencies", test_frequencies, len(trained))
    for name, numbers in (("frequencies", trained), ("test_frequencies", tested)):
        if (numbers < 0).any():
            fail(ValueError, name, "a negative frequency", "frequencies of at least 0")
    length = read.index("train_length", train_length, 1)
    end = length if test_length is None else read.index("test_length", test_length, length)
    pairs = zip(trained, tested, strict=True)  # one at a time, because the reference keeps all angles
    found = [reference.rope_coverage([w], length, test_length=end, test_frequencies=[v]) for w, v in pairs]
    return RopeCoverage(*map(np.concatenate, zip(*found, strict=True)))
