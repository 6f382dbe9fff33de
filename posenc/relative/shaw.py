"""Shaw's relative representations, and NEZHA's fixed table for them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import I64, Float64, as_index, fail
from ..absolute.sinusoid import sinusoidal
from ..bias.operator import Bias
from ._content import Content, as_table, clipped, dtypes, same_heads

__all__ = ["nezha", "shaw"]


def shaw(rel_k: npt.ArrayLike, rel_v: npt.ArrayLike | None = None) -> Bias:
    """Shaw's relative representations: logits get ``q[i] . rel_k[t]``, values get ``rel_v[t]``, ``t = clip(rel) + K``.

    Parameters
    ----------
    rel_k : array (2 K + 1, D) or (H, 2 K + 1, D)
        Row t is rel = t - K; distances beyond K take the first or the last row. Differentiable.
    rel_v : array (2 K + 1, Dv) or (H, 2 K + 1, Dv), optional
        Added to the values: ``out[i] = sum_j p[i, j] (v[j] + rel_v[t])``. Differentiable.

    Returns
    -------
    Bias
        For `attention`. It reads q and k; its `logits` are those of `rel_k`.

    Raises
    ------
    TypeError, ValueError
        Tables with an even number of rows, of different lengths or heads, NaN.

    Notes
    -----
    Shaw et al. 2018, equations 3 to 5. `attention` scales both terms by ``D**-0.5`` and caps their sum; `logits` has
    the second one unscaled. The index is j - i, as in the paper and in tensor2tensor; code that indexes by i - j needs
    the rows in reverse. Fractional distances are cut towards zero. NEZHA is this with two fixed tables:
    ``shaw(nezha(D), nezha(D))``.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> rel_k = np.array([[-1.0], [0.0], [2.0]])  # K = 1
    >>> posenc.shaw(rel_k).logits(np.ones((1, 3, 1)), np.ones((1, 3, 1)))
    array([[[ 0.,  2.,  2.],
            [-1.,  0.,  2.],
            [-1., -1.,  0.]]])
    """
    function = "shaw"
    keys = as_table(function, "rel_k", rel_k, "td htd")
    last = clipped(function, "rel_k", keys)
    values = None
    if rel_v is not None:
        values = as_table(function, "rel_v", rel_v, "td htd")
        if values.shape[-2] != keys.shape[-2]:
            fail(ValueError, function, "rel_v", f"{values.shape[-2]} rows", f"{keys.shape[-2]}, as rel_k")
        if values.ndim == keys.ndim == 3:
            same_heads(function, "rel_v", values, keys.shape[0])
    return Content("shaw", (keys, values), dtypes(keys, values), (np.arange(2 * last + 1, dtype=I64),))


def nezha(dim: int, K: int = 64) -> Float64:
    """NEZHA's fixed relative table: row t is ``sin(t w[i])``, ``cos(t w[i])`` interleaved, t = rel + K.

    Parameters
    ----------
    dim : int
        Width of a head.
    K : int
        Distances beyond K are clipped; 64 in the paper's models.

    Returns
    -------
    ndarray of float64, shape (2 K + 1, dim)
        For both tables of `shaw`. Rows are numbered from 0: the angle is that of t, not of rel.

    Raises
    ------
    TypeError, ValueError
        A width or K that is no positive integer.

    Notes
    -----
    Wei et al. 2019 (NEZHA), equation 8. The row number, not rel, is what the authors' code gives to the sinusoid.

    Examples
    --------
    >>> import posenc
    >>> posenc.nezha(2, K=1).round(3)
    array([[ 0.   ,  1.   ],
           [ 0.841,  0.54 ],
           [ 0.909, -0.416]])
    """
    width, last = as_index("nezha", "dim", dim, 1), as_index("nezha", "K", K, 1)
    return sinusoidal(2 * last + 1, width, dtype=np.float64)
