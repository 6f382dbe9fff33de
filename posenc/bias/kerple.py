"""KERPLE: kernelized relative positional embedding."""

from __future__ import annotations

from typing import NamedTuple

import numpy.typing as npt

from .._core_api.arrays import Array
from .._core_api.door import door, fail
from .kinds import DISTANCE
from .operator import PositionBias, Scheme


class KerpleArrays(NamedTuple):
    """Arrays of `kerple_log` and `kerple_power`, or their gradients.

    Attributes
    ----------
    r1, r2 : array (H,)
    """

    r1: Array
    r2: Array


LOG = Scheme("kerple_log", DISTANCE, KerpleArrays)
POWER = Scheme("kerple_power", DISTANCE, KerpleArrays)


@door
def kerple_log(r1: npt.ArrayLike, r2: npt.ArrayLike) -> PositionBias[KerpleArrays]:
    """Return the logarithmic bias of KERPLE.

    ``b[h](rel) = -r1[h] log(1 + r2[h] |rel|)``

    Parameters
    ----------
    r1, r2 : array (H,)
        Finite; r2 at least 0 (both are positive in the paper). Differentiable.

    Returns
    -------
    PositionBias
        For ``attention(bias=...)``.

    Raises
    ------
    TypeError, ValueError
        Parameters that are not one finite number per head, or a negative r2.

    Notes
    -----
    Chi et al. 2022 (KERPLE), equation 6, there for a causal model. The authors' code clamps both parameters to at least
    0.01 in each forward pass; this function does not clamp.

    Examples
    --------
    The bias of a trained model decays with the logarithm of the distance:

    >>> import posenc
    >>> bias = posenc.kerple_log([1.0, 0.5], [1.0, 2.0])  # one r1 and one r2 per head
    >>> bias.matrix(3)[0].round(3)
    array([[ 0.   , -0.693, -1.099],
           [-0.693,  0.   , -0.693],
           [-1.099, -0.693,  0.   ]], dtype=float32)
    """
    bias = LOG.from_parameters(r1, r2)
    if (bias.arrays.r2 < 0).any():
        fail(ValueError, "r2", "a negative number", "at least 0")
    return bias


@door
def kerple_power(r1: npt.ArrayLike, r2: npt.ArrayLike) -> PositionBias[KerpleArrays]:
    """Return the power bias of KERPLE.

    ``b[h](rel) = -r1[h] |rel|**r2[h]``

    Parameters
    ----------
    r1, r2 : array (H,)
        Finite; r2 positive (in the paper r1 is positive too, and r2 at most 2). Differentiable.

    Returns
    -------
    PositionBias
        For ``attention(bias=...)``.

    Raises
    ------
    TypeError, ValueError
        Parameters that are not one finite number per head, or an r2 that is not positive.

    Notes
    -----
    Chi et al. 2022 (KERPLE), equation 5, there for a causal model: conditionally positive definite for r1 > 0 and
    0 < r2 <= 2. The authors' code clamps r1 to at least 0.01 and r2 to 0.01..2 in each forward pass; this function does
    not clamp. With r2 = 1 the bias is ALiBi with slopes r1. The gradient with respect to r2 is 0 at distance 0.

    Examples
    --------
    A square root of the distance:

    >>> import posenc
    >>> posenc.kerple_power([1.0], [0.5]).matrix(3).round(3)
    array([[[ 0.   , -1.   , -1.414],
            [-1.   ,  0.   , -1.   ],
            [-1.414, -1.   ,  0.   ]]], dtype=float32)
    """
    bias = POWER.from_parameters(r1, r2)
    if (bias.arrays.r2 <= 0).any():
        fail(ValueError, "r2", "a number that is not positive", "more than 0")
    return bias
