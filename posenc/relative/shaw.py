"""Shaw's relative representations, and NEZHA's fixed tables for them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .._core_api import read
from .._core_api.arrays import I64, Array, Float64
from .._core_api.constants import MOST_WIDTH
from .._core_api.door import door, fail
from ..absolute.sinusoid import sinusoidal
from ..bias.operator import Bias, Operands
from . import content
from .content import TABLE, ContentBias, ContentScheme


class ShawArrays(NamedTuple):
    """Arrays of `shaw`, or their gradients.

    Attributes
    ----------
    rel_k : array (2 K + 1, D) or (H, 2 K + 1, D)
    rel_v : array (2 K + 1, Dv) or (H, 2 K + 1, Dv), or None
    """

    rel_k: Array
    rel_v: Array | None


def _operands(bias: Bias) -> Operands:
    """Return the tables, and their row for each distance -reach .. reach, which the kernel clips farther ones to."""
    rows = bias.arrays.rel_k.shape[-2]
    k_min = bias.options["k_min"]
    before = rows // 2 if k_min is None else k_min
    reach = max(before, rows - 1 - before, 1)
    row_of_distance = np.clip(np.arange(-reach, reach + 1, dtype=I64) + before, 0, rows - 1)
    return {**bias.arrays._asdict(), "rows": row_of_distance}


SHAW = ContentScheme("shaw", TABLE, ShawArrays, _operands)


@door
def shaw(
    rel_k: npt.ArrayLike, rel_v: npt.ArrayLike | None = None, *, k_min: int | None = None
) -> ContentBias[ShawArrays]:
    """Return Shaw's relative representations by j - i, added to keys and values.

    Logits get ``q[i] . rel_k[t]``, values get ``rel_v[t]``, ``t = clip(rel, -K, K) + K``.

    Parameters
    ----------
    rel_k : array (2 K + 1, D) or (H, 2 K + 1, D)
        Row t is rel = t - K, position of the key minus position of the query; a table by query minus key is reversed
        first, ``rel_k[::-1]``. Longer distances take the first or the last row. Differentiable.
    rel_v : array (2 K + 1, Dv) or (H, 2 K + 1, Dv), optional
        Added to the values: ``out[i] = sum_j p[i, j] (v[j] + rel_v[t])``. Differentiable.
    k_min : int, optional
        Number of rows before the row of rel = 0: row t is rel = t - k_min, so the two ends may clip at different
        distances. By default K, and the number of rows is odd.

    Returns
    -------
    ContentBias
        For ``attention(bias=...)``; its `logits` include `rel_k` alone.

    Raises
    ------
    TypeError, ValueError
        Tables with an even number of rows, of different lengths or heads, or with NaN.

    Notes
    -----
    Shaw et al. 2018 (Self-Attention with Relative Position Representations), equations 3 to 5. `attention` scales the
    sum of q . k and this term by ``D**-0.5``, then caps it; `logits` returns the term unscaled. The index is j - i, as
    in the paper and in tensor2tensor; code that indexes by i - j needs the rows in reverse. Fractional distances are
    truncated towards zero. NEZHA has two fixed tables: ``shaw(nezha_table(64, D), nezha_table(64, D))``.

    Examples
    --------
    Learned tables for distances up to 16, shared by 8 heads:

    >>> import numpy as np, posenc
    >>> rng = np.random.default_rng(0)
    >>> rel_k, rel_v = rng.standard_normal((2, 33, 64), np.float32)
    >>> q, k, v = rng.standard_normal((3, 8, 100, 64), np.float32)
    >>> posenc.attention(q, k, v, bias=posenc.shaw(rel_k, rel_v)).shape
    (8, 100, 64)

    With K = 1 and all queries 1, the logits are the rows of the table:

    >>> rel_k = np.array([[-1.0], [0.0], [2.0]])
    >>> posenc.shaw(rel_k).logits(np.ones((1, 3, 1)), np.ones((1, 3, 1)))
    array([[[ 0.,  2.,  2.],
            [-1.,  0.,  2.],
            [-1., -1.,  0.]]])
    """
    keys = content.as_table("rel_k", rel_k, "(2 K + 1, D)", "(H, 2 K + 1, D)")
    if k_min is None:
        content.check_odd_rows("rel_k", keys)
    else:
        if not keys.shape[-2]:
            fail(ValueError, "rel_k", "no rows", "at least one")
        k_min = read.index("k_min", k_min, 0, keys.shape[-2] - 1)
    values = None if rel_v is None else content.as_table("rel_v", rel_v, "(2 K + 1, Dv)", "(H, 2 K + 1, Dv)")
    content.check_axes("shaw", rel_k=keys, rel_v=values)
    return SHAW.from_arrays(keys, values, options={"k_min": k_min})


@door
def nezha_table(K: int, dim: int) -> Float64:
    """Return NEZHA's fixed relative table, sinusoids of the row number.

    Row t is ``sin(t w[i])``, ``cos(t w[i])`` interleaved, t = rel + K.

    Parameters
    ----------
    K : int
        Longer distances are clipped; 64 in the paper's models.
    dim : int
        Width of a head.

    Returns
    -------
    ndarray of float64, shape (2 K + 1, dim)
        For both tables of `shaw`. Rows are numbered from 0: the angle is a multiple of t, not of rel.

    Raises
    ------
    TypeError, ValueError
        A width or K that is no positive integer.

    Notes
    -----
    Wei et al. 2019 (NEZHA), equation 8. The authors' code passes the row number, not rel, to the sinusoid.

    Examples
    --------
    >>> import posenc
    >>> table = posenc.nezha_table(64, 64)
    >>> bias = posenc.shaw(table, table)
    >>> posenc.nezha_table(1, 2).round(3)
    array([[ 0.   ,  1.   ],
           [ 0.841,  0.54 ],
           [ 0.909, -0.416]])
    """
    width, last = read.index("dim", dim, 1, MOST_WIDTH), read.index("K", K, 1)
    read.check_table_size((2 * last + 1) * width, dim=width, K=last)
    return sinusoidal(2 * last + 1, width, dtype=np.float64)
