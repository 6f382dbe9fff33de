"""ALiBi: attention with linear biases."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import (
    Float64,
    as_index,
    as_number,
    fail_value,
)
from ._distance import Distance
from .operator import Bias, keep_arrays

__all__ = ["alibi", "alibi_slopes"]


def alibi_slopes(heads: int, *, bias_max: float = 8.0) -> Float64:
    """ALiBi's slopes: ``m[h] = 2**(-bias_max (h + 1) / H)`` for H a power of two.

    Parameters
    ----------
    heads : int
        H, at least 1.
    bias_max : float
        8 in the paper; ``alibi_bias_max`` of MPT.

    Returns
    -------
    ndarray of float64, shape (heads,)
        For other H, the slopes of the power of two below, then every second slope of the power of two above, as the
        authors' code, BLOOM, Falcon and MPT order them. They are not sorted.

    Raises
    ------
    TypeError, ValueError
        `heads` is no positive integer, `bias_max` no number.

    Notes
    -----
    Press et al. 2022 (Train Short, Test Long), section 3. A formula with ``2**(1 / (log2 H + 3))`` in the exponent is
    in circulation; it is garbled: at H = 8 it gives 0.459, 0.211, ... where the paper has 1/2, 1/4, ....

    Examples
    --------
    >>> import posenc
    >>> posenc.alibi_slopes(8)[:3]
    array([0.5  , 0.25 , 0.125])
    >>> posenc.alibi_slopes(3)
    array([0.0625    , 0.00390625, 0.25      ])
    """
    function = "alibi_slopes"
    heads = as_index(function, "heads", heads, 1)
    top = as_number(function, "bias_max", bias_max)
    power = 1 << (heads.bit_length() - 1)
    slopes = 2.0 ** (-top * np.arange(1, power + 1) / power)
    between = 2.0 ** (-top * np.arange(1, 2 * power + 1, 2) / (2 * power))
    return np.concatenate([slopes, between[: heads - power]])


def alibi(slopes: npt.ArrayLike) -> Bias:
    """ALiBi: ``b[h](rel) = -slopes[h] |rel|``.

    Parameters
    ----------
    slopes : array (H,)
        Finite; see `alibi_slopes`. Differentiable, see `Bias.vjp`.

    Returns
    -------
    Bias
        For ``attention(bias=...)``; its `matrix` shows it.

    Raises
    ------
    TypeError, ValueError
        Slopes that are not one finite number per head.

    Notes
    -----
    Press et al. 2022, section 3. Added after the scaling of the logits. Code that adds ``m j`` or ``m (j - M + 1)``
    instead differs by a constant in each row, which the softmax of a causal attention does not see; only this form is
    right without a causal mask. Falcon also divides the bias by sqrt(D).

    Examples
    --------
    >>> import posenc
    >>> posenc.alibi(posenc.alibi_slopes(8)).matrix(3)[0]
    array([[ 0. , -0.5, -1. ],
           [-0.5,  0. , -0.5],
           [-1. , -0.5,  0. ]], dtype=float32)
    """
    if isinstance(slopes, int | float):
        fail_value(ValueError, "alibi", "slopes", slopes, "an array (H,), as alibi_slopes(H) makes it")
    return Distance("alibi", *keep_arrays("alibi", slopes))
