"""FIRE: functional interpolation for relative positions."""

from __future__ import annotations

import numpy.typing as npt

from .._core_api.arguments import (
    fail,
)
from ._pair import Pair
from .operator import Bias, keep_arrays

__all__ = ["fire"]


class Fire(Pair):
    """A small network of the normalised distance."""

    __slots__ = ()

    @property
    def heads(self) -> int:
        return int(self.arrays.w2.shape[0])


def fire(
    w1: npt.ArrayLike,
    b1: npt.ArrayLike,
    w2: npt.ArrayLike,
    b2: npt.ArrayLike,
    c: npt.ArrayLike,
    threshold: npt.ArrayLike,
) -> Bias:
    """FIRE: ``f[h](log(1 + |c rel|) / (log(1 + |c| max(i, |threshold|)) + 1e-6))``, ``f = w2 relu(w1 z + b1) + b2``.

    Parameters
    ----------
    w1 : array (W, 1)
    b1 : array (W,)
    w2 : array (H, W)
    b2 : array (H,)
        The network f, one input and H outputs, as PyTorch keeps its layers. Finite; all six are differentiable.
    c : float
        How soon the logarithm bends; 0.1 at the start in the authors' code.
    threshold : float
        Position of the query below which distances are measured by a fixed length; L times its factor, 512 at first.

    Returns
    -------
    Bias
        Depends on the position i of the query too: `matrix` is dense.

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
    >>> import numpy as np, posenc
    >>> bias = posenc.fire([[1.0]], [0.0], [[-1.0]], [0.0], 1.0, 1.0)
    >>> bias.matrix(3).round(3)
    array([[[ 0.   , -1.   , -1.585],
            [-1.   ,  0.   , -1.   ],
            [-1.   , -0.631,  0.   ]]], dtype=float32)
    """
    kept, dtypes = keep_arrays("fire", w1, b1, w2, b2, c, threshold)
    if kept[0].shape[1] != 1:
        fail(ValueError, "fire", "w1", f"shape {kept[0].shape}", f"({kept[0].shape[0]}, 1)")
    return Fire("fire", kept, dtypes)
