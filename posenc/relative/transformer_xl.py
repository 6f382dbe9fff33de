"""Transformer-XL and XLNet: relative attention with two biases of the queries."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .._core_api import read
from .._core_api.arrays import Array, Float64
from .._core_api.constants import MOST_WIDTH
from .._core_api.door import door, fail_value
from ..absolute.sinusoid import sinusoidal
from . import content
from .content import TABLE, ContentBias, ContentScheme


class TransformerXLArrays(NamedTuple):
    """Arrays of `transformer_xl`, or their gradients.

    Attributes
    ----------
    r : array (H, 2 K + 1, D) or (2 K + 1, D)
    u, v : array (H, D) or (D,)
    """

    r: Array
    u: Array
    v: Array


TRANSFORMER_XL = ContentScheme("transformer_xl", TABLE, TransformerXLArrays, content.rows_in_order)


@door
def transformer_xl(r: npt.ArrayLike, u: npt.ArrayLike, v: npt.ArrayLike) -> ContentBias[TransformerXLArrays]:
    """Return the relative terms of Transformer-XL's attention.

    Logits get ``u . k[j] + (q[i] + v) . r[t]``, ``t = clip(rel, -K, K) + K``.

    Parameters
    ----------
    r : array (H, 2 K + 1, D) or (2 K + 1, D)
        Row t is rel = t - K: the projected sinusoids, ``xl_table(K, d) @ W`` split into heads. Differentiable.
    u, v : array (H, D) or (D,)
        The two biases of the queries. Differentiable. Heads share an array without an axis H; one head needs none.

    Returns
    -------
    ContentBias
        For ``attention(bias=...)``, where ``q . k`` is the first of the paper's four terms.

    Raises
    ------
    TypeError, ValueError
        Arrays whose heads or widths differ, an even number of rows, NaN.

    Notes
    -----
    Dai et al. 2019 (Transformer-XL), section 3.3; `attention` scales all four terms by ``D**-0.5``. The authors'
    distance is i - j, here rel = j - i: their row of distance d is row K - d. Their shift leaves unrelated numbers in
    cells of the future; here every cell has its own row. XLNet also adds a segment term: a `dense` bias.

    Examples
    --------
    With memory: 2 new words after 3 cached ones see all 5, and the last query is at the position of the last key.

    >>> import numpy as np, posenc
    >>> rng = np.random.default_rng(0)
    >>> W = rng.standard_normal((8, 2, 4))  # from 8 channels to 2 heads of 4
    >>> r = np.einsum("td,dhc->htc", posenc.xl_table(4, 8), W)
    >>> bias = posenc.transformer_xl(r, np.zeros((2, 4)), np.zeros((2, 4)))
    >>> q, k = rng.standard_normal((2, 2, 4)), rng.standard_normal((2, 5, 4))
    >>> out = posenc.attention(q, k, k, bias=bias, causal=True, align="end")
    >>> out.shape
    (2, 2, 4)

    XLNet's two streams look both ways: the same table without `causal`; its rows reach from -K to K.

    >>> bool(np.isclose(bias.logits(q, k)[0, 1, 4], q[0, 1] @ r[0, 4]))  # the last query and key: rel = 0, row K
    True
    """
    table = content.as_table("r", r, "(2 K + 1, D)", "(H, 2 K + 1, D)")
    content.check_odd_rows("r", table)
    of_keys, of_rows = (content.as_table(name, vector, "(D,)", "(H, D)") for name, vector in (("u", u), ("v", v)))
    content.check_axes("transformer_xl", r=table, u=of_keys, v=of_rows)
    return TRANSFORMER_XL.from_arrays(table, of_keys, of_rows)


@door
def xl_table(K: int, dim: int) -> Float64:
    """Return Transformer-XL's sinusoids of distance.

    Row t is ``[sin(-rel w) | cos(-rel w)]``, rel = t - K.

    Parameters
    ----------
    K : int
        The largest distance, at least 1.
    dim : int
        Width of the model, even.

    Returns
    -------
    ndarray of float64, shape (2 K + 1, dim)
        Before the projection to heads.

    Raises
    ------
    TypeError, ValueError
        A K or a width that is no positive integer; an odd width.

    Notes
    -----
    Dai et al. 2019 (Transformer-XL), section 3.3: R[d] for the distance d = i - j = -rel, sines first, then cosines.

    Examples
    --------
    >>> import posenc
    >>> posenc.xl_table(1, 2).round(3)
    array([[ 0.841,  0.54 ],
           [ 0.   ,  1.   ],
           [-0.841,  0.54 ]])
    """
    last, width = read.index("K", K, 1), read.index("dim", dim, 2, MOST_WIDTH)
    if width % 2:
        fail_value(ValueError, "dim", width, "an even number")
    read.check_table_size((2 * last + 1) * width, K=last, dim=width)
    return sinusoidal(last - np.arange(2 * last + 1), width, layout="half", dtype=np.float64)
