"""TISA: translation-invariant self-attention."""

from __future__ import annotations

from typing import NamedTuple

import numpy.typing as npt

from .._core_api.arrays import Array
from .._core_api.door import door
from .kinds import DISTANCE
from .operator import PositionBias, Scheme


class TisaArrays(NamedTuple):
    """Arrays of `tisa`, or their gradients.

    Attributes
    ----------
    a, b, c : array (H, R)
    """

    a: Array
    b: Array
    c: Array


TISA = Scheme("tisa", DISTANCE, TisaArrays)


@door
def tisa(a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike) -> PositionBias[TisaArrays]:
    """Bias attention by a sum of learned bells over the distance, as TISA does.

    ``b[h](rel) = sum_r a[h, r] exp(-|b[h, r]| (rel - c[h, r])**2)``

    Parameters
    ----------
    a, b, c : array (H, R)
        Height, sharpness and centre of each of the R bells of a head; finite. A centre is a distance in positions,
        position of key minus position of query. Differentiable; at b = 0 the gradient of b is 0.

    Returns
    -------
    PositionBias
        For ``attention(bias=...)``; its `matrix` shows it.

    Raises
    ------
    TypeError, ValueError
        Arrays that are not finite, or whose shapes differ.

    Notes
    -----
    Wennberg and Henter 2021 (The Case for Translation-Invariant Self-Attention), section 4.2, with five bells for each
    head. The bias is added after the scale. It replaces the position embeddings of their model.

    Examples
    --------
    A head that looks at its own token and, less, at the one before:

    >>> import posenc
    >>> posenc.tisa([[2.0, 1.0]], [[8.0, 8.0]], [[0.0, -1.0]]).matrix(3).round(2)
    array([[[2., 0., 0.],
            [1., 2., 0.],
            [0., 1., 2.]]], dtype=float32)
    """
    return TISA.from_parameters(a, b, c)
