"""KERPLE: kernelized relative positional embeddings."""

from __future__ import annotations

import numpy.typing as npt

from .._core_api.arguments import (
    fail,
)
from ._distance import Distance
from .operator import Bias, keep_arrays

__all__ = ["kerple_log", "kerple_power"]


def kerple_log(r1: npt.ArrayLike, r2: npt.ArrayLike) -> Bias:
    """KERPLE, logarithmic: ``b[h](rel) = -r1[h] log(1 + r2[h] |rel|)``.

    Parameters
    ----------
    r1, r2 : array (H,)
        Finite; r2 at least 0 (both positive in the paper). Differentiable.

    Returns
    -------
    Bias

    Raises
    ------
    TypeError, ValueError
        Parameters that are not one finite number per head, or a negative r2.

    Notes
    -----
    Chi et al. 2022 (KERPLE), equation 6, there for a causal model. The authors' code clamps both parameters to at least
    0.01 in each forward pass; here they are taken as they are.

    Examples
    --------
    >>> import posenc
    >>> posenc.kerple_log([1.0], [1.0]).matrix(3).round(3)
    array([[[ 0.   , -0.693, -1.099],
            [-0.693,  0.   , -0.693],
            [-1.099, -0.693,  0.   ]]], dtype=float32)
    """
    bias = Distance("kerple_log", *keep_arrays("kerple_log", r1, r2))
    if (bias.arrays.r2 < 0).any():
        fail(ValueError, "kerple_log", "r2", "a negative number", "at least 0")
    return bias


def kerple_power(r1: npt.ArrayLike, r2: npt.ArrayLike) -> Bias:
    """KERPLE, power: ``b[h](rel) = -r1[h] |rel|**r2[h]``.

    Parameters
    ----------
    r1, r2 : array (H,)
        Finite; r2 positive (in the paper r1 too, and r2 at most 2). Differentiable.

    Returns
    -------
    Bias

    Raises
    ------
    TypeError, ValueError
        Parameters that are not one finite number per head, or an r2 that is not positive.

    Notes
    -----
    Chi et al. 2022 (KERPLE), equation 5, there for a causal model: conditionally positive definite for r1 > 0 and
    0 < r2 <= 2. The authors' code clamps r1 to at least 0.01 and r2 to 0.01..2 in each forward pass; here they are
    taken as they are. With r2 = 1 it is ALiBi with slopes r1. The gradient with respect to r2 is 0 at distance 0.

    Examples
    --------
    >>> import posenc
    >>> posenc.kerple_power([1.0], [0.5]).matrix(3).round(3)
    array([[[ 0.   , -1.   , -1.414],
            [-1.   ,  0.   , -1.   ],
            [-1.414, -1.   ,  0.   ]]], dtype=float32)
    """
    bias = Distance("kerple_power", *keep_arrays("kerple_power", r1, r2))
    if (bias.arrays.r2 <= 0).any():
        fail(ValueError, "kerple_power", "r2", "a number that is not positive", "more than 0")
    return bias
