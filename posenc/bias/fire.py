"""FIRE: functional interpolation for relative positions."""

from __future__ import annotations

from typing import NamedTuple

import numpy.typing as npt

from .._core_api.arrays import Array
from .._core_api.door import door, fail
from .kinds import PAIR
from .operator import PositionBias, Scheme


class FireArrays(NamedTuple):
    """Arrays of `fire`, or their gradients.

    Attributes
    ----------
    w1, b1 : array (W, 1), (W,)
    w2, b2 : array (H, W), (H,)
    c, threshold : array ()
    """

    w1: Array
    b1: Array
    w2: Array
    b2: Array
    c: Array
    threshold: Array


FIRE = Scheme("fire", PAIR, FireArrays)


@door
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
        Weights of the first layer of the network f, as torch.nn.Linear stores them. The network has one input and H
        outputs. All six arguments must be finite, and all six have a gradient.
    b1 : array (W,)
        Bias of the first layer.
    w2 : array (H, W)
        Weights of the second layer.
    b2 : array (H,)
        Bias of the second layer.
    c : float
        Factor of the distance inside the logarithm. The authors' code initialises it to 0.1.
    threshold : float
        Distances of queries at positions i below \\|threshold\\| are normalised by the threshold instead of i. The
        authors' code learns a factor and multiplies it by 512.

    Returns
    -------
    PositionBias
        For ``attention(bias=...)``. The bias depends on the position i of the query and on the distance, so `matrix`
        stores a number for each pair.

    Raises
    ------
    TypeError, ValueError
        Arrays with shapes that do not fit each other, or with values that are not finite.

    Notes
    -----
    Li et al. 2024 (Functional Interpolation for Relative positions), equations 2 and 3, with psi(x) = log(1 + c x) and
    the threshold of section 3.3. The paper defines FIRE for causal models, where rel <= 0 and i >= 0. Some
    implementations compute log(c x + eps), or add 1e-6 to another term of the quotient. At ``|threshold| = i``, the
    gradient of the threshold is the mean of its limits from both sides.

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
    bias = FIRE.from_parameters(w1, b1, w2, b2, c, threshold)
    hidden, inputs = bias.arrays.w1.shape
    if inputs != 1:
        fail(ValueError, "w1", f"shape {(hidden, inputs)}", str((hidden, 1)))
    return bias
