"""Sandwich: inner products of the sinusoids of two positions. They depend on the distance alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._core_api import read
from .._core_api.constants import MOST_WIDTH
from .._core_api.door import door, fail_value
from ..absolute.frequency import exact_frequencies
from .kinds import DISTANCE
from .operator import Bias, Operands, PositionBias, Scheme


class SandwichArrays(NamedTuple):
    """Arrays of `sandwich`: none, so there is no gradient."""


def _operands(bias: Bias) -> Operands:
    dim, heads = bias.options["dim"], bias.options["heads"]
    # With "half-1", width dim + 2 has the frequencies 10000**(-2 t / dim), t = 0 .. dim / 2. Leave out t = 0.
    high, low = (part[1:] for part in exact_frequencies(dim + 2, 10000, "half-1"))
    return {"frequencies": high, "lo": low, "divisor": 8.0 * np.arange(1, heads + 1) / heads}


SANDWICH = Scheme("sandwich", DISTANCE, SandwichArrays, _operands)


@door
def sandwich(heads: int, dim: int) -> PositionBias[SandwichArrays]:
    """Return the bias of Sandwich, a sum of cosines of the distance.

    ``b[h](rel) = (sum_t cos(rel 10000**(-2 t / dim)) - dim / 2) / (8 h / H)``, t = 1..dim/2, h = 1..H

    Parameters
    ----------
    heads : int
        H, at least 1.
    dim : int
        Width of the sinusoids; even, at least 2. In the authors' code it is the width of a head.

    Returns
    -------
    PositionBias
        For ``attention(bias=...)``. It has no learned parameters.

    Raises
    ------
    TypeError, ValueError
        Numbers that are not integers, or are below 1; an odd `dim`.

    Notes
    -----
    Chi et al. 2023 (Dissecting Transformer Length Extrapolation via the Lens of Receptive Field Analysis), section 4:
    the inner product of the sinusoids of two positions, with one slope per head. The sum counts t from 1, but the first
    frequency of `sinusoidal` is the one of t = 0. The paper's listing counts t from 0 and omits ``- dim / 2``, which
    changes no weight of the softmax. NeMo counts t from 1 and subtracts ``dim / 2``, as here.

    Examples
    --------
    The bias of the last query falls with the distance of the key, and faster in the first head than in the second:

    >>> import posenc
    >>> posenc.sandwich(4, 64).matrix(4)[:2, -1].round(3)
    array([[-2.211, -1.14 , -0.312,  0.   ],
           [-1.106, -0.57 , -0.156,  0.   ]], dtype=float32)
    """
    heads = read.index("heads", heads, 1, read.MOST_CHANNELS)
    dim = read.index("dim", dim, 2, MOST_WIDTH)
    if dim % 2:
        fail_value(ValueError, "dim", dim, "an even number")
    return SANDWICH.from_arrays(options={"heads": heads, "dim": dim})
