"""Tables by clipped distance: Shaw and NEZHA, Transformer-XL and XLNet."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import I64, Float64, as_index, fail, fail_value
from ..absolute.sinusoid import sinusoidal
from ..bias.operator import Bias
from ._content import Content, as_table, clipped, dtypes, same_heads

__all__ = ["nezha", "shaw", "transformer_xl", "xl_table"]


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


def transformer_xl(r: npt.ArrayLike, u: npt.ArrayLike, v: npt.ArrayLike) -> Bias:
    """Transformer-XL: logits get ``u . k[j] + (q[i] + v) . r[t]``, ``t = clip(rel) + K``.

    Parameters
    ----------
    r : array (H, 2 K + 1, D)
        Row t is rel = t - K: the projected sinusoids, ``xl_table(K, d) @ W`` cut into heads. Differentiable.
    u, v : array (H, D)
        The two biases of the queries. Differentiable.

    Returns
    -------
    Bias
        For `attention`, where ``q . k`` is the first of the paper's four terms. It reads q and k.

    Raises
    ------
    TypeError, ValueError
        Arrays whose heads or widths differ, an even number of rows, NaN.

    Notes
    -----
    Dai et al. 2019, section 3.3; `attention` scales all four terms by ``D**-0.5``. The authors' distance is i - j, here
    rel = j - i: their row of distance d is row K - d. What their shift leaves in cells of the future is not copied,
    every cell has its own row. XLNet adds a segment term besides: a `dense` bias.

    Examples
    --------
    The memory form: 2 new words after 3 cached ones see all 5, and the last query stands at the last key.

    >>> import numpy as np, posenc
    >>> rng = np.random.default_rng(0)
    >>> W = rng.standard_normal((8, 2, 4))  # of 8 channels to 2 heads of 4
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
    function = "transformer_xl"
    table = as_table(function, "r", r, "htd")
    last = clipped(function, "r", table)
    pair = []
    for argument, given in (("u", u), ("v", v)):
        vector = as_table(function, argument, given, "hd")
        same_heads(function, argument, vector, table.shape[0])
        if vector.shape[1] != table.shape[2]:
            fail(ValueError, function, argument, f"width {vector.shape[1]}", f"{table.shape[2]}, that of r")
        pair.append(vector)
    arrays = (table, *pair)
    return Content(function, arrays, dtypes(*arrays), (np.arange(2 * last + 1, dtype=I64),))


def xl_table(K: int, dim: int) -> Float64:
    """Transformer-XL's sinusoids of distance: row t is ``[sin(-rel w) | cos(-rel w)]``, rel = t - K.

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
        A K or an even width that is no positive integer.

    Notes
    -----
    Dai et al. 2019, section 3.3: R[d] for the distance d = i - j = -rel, sines first, then cosines.

    Examples
    --------
    >>> import posenc
    >>> posenc.xl_table(1, 2).round(3)
    array([[ 0.841,  0.54 ],
           [ 0.   ,  1.   ],
           [-0.841,  0.54 ]])
    """
    last, width = as_index("xl_table", "K", K, 1), as_index("xl_table", "dim", dim, 2)
    if width % 2:
        fail_value(ValueError, "xl_table", "dim", width, "an even number")
    return sinusoidal(last - np.arange(2 * last + 1), width, layout="halves", dtype=np.float64)
