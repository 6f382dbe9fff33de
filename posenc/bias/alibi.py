"""ALiBi: attention with linear biases."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .._core_api import read
from .._core_api.arrays import Array, Float64
from .._core_api.door import door, fail_value
from .kinds import DISTANCE
from .operator import PositionBias, Scheme


class AlibiArrays(NamedTuple):
    """Arrays of `alibi`, or their gradients.

    Attributes
    ----------
    slopes : array (H,)
    """

    slopes: Array


ALIBI = Scheme("alibi", DISTANCE, AlibiArrays)


@door
def alibi_slopes(heads: int, *, bias_max: float = 8.0) -> Float64:
    """Return the slopes of ALiBi.

    ``m[h] = 2**(-bias_max (h + 1) / H)``, h = 0..H-1, for H a power of two.

    Parameters
    ----------
    heads : int
        H, at least 1.
    bias_max : float
        8 in the paper; ``alibi_bias_max`` of MPT.

    Returns
    -------
    ndarray of float64, shape (heads,)
        For other H, the slopes of the next lower power of two, followed by every second slope of the next higher one,
        in the order of the authors' code, BLOOM, Falcon and MPT. They are not sorted.

    Raises
    ------
    TypeError, ValueError
        `heads` is no positive integer, or `bias_max` is no finite number.

    Notes
    -----
    Press et al. 2022 (Train Short, Test Long), section 3. A formula with ``2**(1 / (log2 H + 3))`` in the exponent
    circulates and is wrong: at H = 8 it gives 0.459, 0.211, ..., while the paper has 1/2, 1/4, ....

    Examples
    --------
    >>> import posenc
    >>> posenc.alibi_slopes(8)[:3]
    array([0.5  , 0.25 , 0.125])
    >>> posenc.alibi_slopes(3)
    array([0.0625    , 0.00390625, 0.25      ])
    """
    heads = read.index("heads", heads, 1, read.MOST_CHANNELS)
    largest = read.number("bias_max", bias_max)
    power = 1 << (heads.bit_length() - 1)
    slopes = 2.0 ** (-largest * np.arange(1, power + 1) / power)
    between = 2.0 ** (-largest * np.arange(1, 2 * power + 1, 2) / (2 * power))
    return np.concatenate([slopes, between[: heads - power]])


@door
def alibi(slopes: npt.ArrayLike | int) -> PositionBias[AlibiArrays]:
    """Return the ALiBi bias.

    ``b[h](rel) = -slopes[h] |rel|``

    Parameters
    ----------
    slopes : array (H,) or int
        Finite. An int is a number of heads, whose slopes are those of `alibi_slopes`. Differentiable.

    Returns
    -------
    PositionBias
        For ``attention(bias=...)``.

    Raises
    ------
    TypeError, ValueError
        Slopes that are not one finite number per head.

    Notes
    -----
    Press et al. 2022 (Train Short, Test Long), section 3. The bias is added after the scale. Code that adds ``m j`` or
    ``m (j - M + 1)`` instead differs by a constant in each row, which leaves the softmax of causal attention unchanged;
    without a causal mask only the form here is right. Falcon also divides the bias by ``sqrt(D)``.

    Examples
    --------
    A causal prompt of 512 tokens with 8 heads:

    >>> import numpy as np, posenc
    >>> bias = posenc.alibi(8)
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 8, 512, 64), np.float32)
    >>> posenc.attention(q, k, v, bias=bias, causal=True).shape
    (8, 512, 64)

    The bias of its first head and first three tokens:

    >>> bias.matrix(3)[0]
    array([[ 0. , -0.5, -1. ],
           [-0.5,  0. , -0.5],
           [-1. , -0.5,  0. ]], dtype=float32)
    """
    if isinstance(slopes, float | bool):
        fail_value(ValueError, "slopes", slopes, "an array (H,), or a number of heads")
    return ALIBI.from_parameters(alibi_slopes(slopes) if type(slopes) is int else slopes)
