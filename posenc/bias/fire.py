"""FIRE: functional interpolation for relative positions."""

from __future__ import annotations

from typing import NamedTuple

import numpy.typing as npt

from .._core_api.arguments import Array, fail
from ._pair import PairBias
from .operator import PositionBias
from .parameters import copy_parameters

__all__ = ["fire"]


class FireArrays(NamedTuple):
    """Arrays of `fire`, or their gradients."""

    w1: Array
    b1: Array
    w2: Array
    b2: Array
    c: Array
    threshold: Array


def fire(
    w1: npt.ArrayLike,
    b1: npt.ArrayLike,
    w2: npt.ArrayLike,
    b2: npt.ArrayLike,
    c: npt.ArrayLike,
    threshold: npt.ArrayLike,
) -> PositionBias[FireArrays]:
    """Return the bias of FIRE, a small network of the normalised distance.

    ``b[h] = f[h](log(1 + |c rel|) / (log(1 + |c| max(i, |threshold|)) + 1e-6))``, ``f(z) = w2 relu(w1 z + b1) + b2``

    Parameters
    ----------
    w1 : array (W, 1)
        First layer of the network f, which has one input and H outputs; PyTorch stores layers so. All six arrays are
        finite and differentiable.
    b1 : array (W,)
        Its bias.
    w2 : array (H, W)
        Second layer.
    b2 : array (H,)
        Its bias.
    c : float
        Factor of the distance inside the logarithm; 0.1 at the start in the authors' code.
    threshold : float
        Distances of queries at positions i below \\|threshold\\| are normalised by the threshold instead of i. In the
        authors' code it is 512 times a learned factor.

    Returns
    -------
    PositionBias
        For ``attention(bias=...)``. It depends on the position i of the query too, so `matrix` is dense.

    Raises
    ------
    TypeError, ValueError
        Arrays whose shapes do not fit, or that are not finite.

    Notes
    -----
    Li et al. 2024 (Functional Interpolation for Relative positions), equations 2 and 3, with psi(x) = log(1 + c x) and
    the threshold of section 3.3; there for a causal model, where rel <= 0 and i >= 0. Some code has log(c x + eps) and
    adds the eps of the quotient elsewhere. Where ``|threshold| = i``, the gradient of the threshold is the mean of both
    sides.

    Examples
    --------
    One hidden unit and one head: the bias is the negative normalised distance.

    >>> import posenc
    >>> bias = posenc.fire([[1.0]], [0.0], [[-1.0]], [0.0], c=1.0, threshold=1.0)
    >>> bias.matrix(3).round(3)
    array([[[ 0.   , -1.   , -1.585],
            [-1.   ,  0.   , -1.   ],
            [-1.   , -0.631,  0.   ]]], dtype=float32)
    """
    arrays, dtypes = copy_parameters(FireArrays, "fire", w1, b1, w2, b2, c, threshold)
    hidden, inputs = arrays.w1.shape
    if inputs != 1:
        fail(ValueError, "fire", "w1", f"shape {(hidden, inputs)}", str((hidden, 1)))
    return PairBias("fire", arrays, dtypes=dtypes)
