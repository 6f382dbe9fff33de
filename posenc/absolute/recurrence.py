"""Recurrent encodings: each position is a function of the one before."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import Array, as_bool, as_data, as_index, check_choice, compute_dtype, finish_out
from ._walk import cotangent, parameter, states, streams, walk_output

__all__ = ["RecurrentGradient", "recurrent", "recurrent_vjp"]

CELLS = ("tanh", "gru")


class RecurrentGradient(NamedTuple):
    """Gradients of `recurrent`, each in the shape and dtype of its argument."""

    p0: Array
    weight: Array
    bias: Array


def _parameters(function: str, p0: Array, weight: Any, bias: Any, cell: str) -> tuple[Array, Array]:
    check_choice(function, "cell", cell, CELLS)
    c, dtype = p0.shape[-1], compute_dtype(p0)
    rows = 3 * c if cell == "gru" else c
    shape = (2, rows) if cell == "gru" else (rows,)
    w = parameter(function, "weight", weight, (rows, c), dtype)
    return w, parameter(function, "bias", bias, shape, dtype).reshape(2 if cell == "gru" else 1, rows)


def recurrent(
    p0: npt.ArrayLike,
    weight: npt.ArrayLike,
    bias: npt.ArrayLike,
    n: int,
    *,
    cell: str = "tanh",
    include_p0: bool = True,
    out: Array | None = None,
) -> Array:
    """Recurrent encoding: ``p[k + 1] = f(p[k])``, ``f(p) = tanh(W p + b)`` or a GRU without input.

    Parameters
    ----------
    p0 : array (..., C)
        Initial states; leading axes are a batch that shares the map.
    weight : array (C, C), or (3 C, C) with "gru"
        W; for a GRU the three matrices of the state in the order r, z, n: torch's ``weight_hh_l0``.
    bias : array (C,), or (2, 3 C) with "gru"
        b; for a GRU torch's ``bias_ih_l0`` (row 0, beside the input, which is 0) and ``bias_hh_l0`` (row 1).
    n : int
        Number of positions, at least 0.
    cell : {"tanh", "gru"}
        Which map.
    include_p0 : bool
        Row 0 is `p0` itself; with False it is ``f(p0)``, as the output of a recurrent layer is.
    out : array (..., n, C), optional
        Filled and returned.

    Returns
    -------
    ndarray (..., n, C)
        In the dtype of `p0`. States are carried in float32, or float64 for float64 data, and rounded to half
        precision only where they are stored.

    Raises
    ------
    TypeError, ValueError
        A weight or bias whose shape does not fit `p0` and `cell`, a negative `n`, an unknown cell, an `include_p0` that
        is no bool.

    Notes
    -----
    GRU (Cho et al. 2014, "Learning Phrase Representations using RNN Encoder-Decoder", eqs. 5-8, as cuDNN and torch
    order it)::

        r = s(a_r + U_r p + b_r),   z = s(a_z + U_z p + b_z)
        m = tanh(a_n + r (U_n p + b_n)),   p' = (1 - z) m + z p

    In the paper r multiplies p before the product, and z weighs the old state as here. The recurrent baseline in the
    code of FLOATER (Liu et al. 2020) begins with ``f(h0)``: ``include_p0=False``; it also feeds 0.01 k as an input.
    Encodings made by running an RNN over the words are another thing: a layer, not a function of position.

    A map that contracts forgets where it began: states of far positions come close to a fixed point and to each other.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.recurrent([1.0, 0.0], [[0.0, -1.0], [1.0, 0.0]], [0.0, 0.0], 3).round(3)
    array([[ 1.   ,  0.   ],
           [ 0.   ,  0.762],
           [-0.642,  0.   ]])
    """
    function = "recurrent"
    start = states(function, "p0", p0)
    w, b = _parameters(function, start, weight, bias, cell)
    count, begins = as_index(function, "n", n, 0), as_bool(function, "include_p0", include_p0)
    out, buffer = walk_output(function, out, start, count, (start, w, b))
    _core.recurrent(function, streams(start, 1), w, b, streams(buffer, 2), cell == "gru", not begins)
    return finish_out(out, buffer)


def recurrent_vjp(
    grad: npt.ArrayLike,
    p0: npt.ArrayLike,
    weight: npt.ArrayLike,
    bias: npt.ArrayLike,
    n: int,
    *,
    cell: str = "tanh",
    include_p0: bool = True,
) -> RecurrentGradient:
    """Gradient of `recurrent`, backwards through the positions: ``dp[k] = grad[k] + (df/dp)^T dp[k + 1]``.

    Parameters
    ----------
    grad : array (..., n, C)
        Cotangent of the encoding; the other arguments are those of `recurrent`.

    Returns
    -------
    RecurrentGradient
        ``p0``, ``weight`` and ``bias``, each in the shape and dtype of its argument; the last two are summed over
        positions and batch, in float64 over runs of 192 states.

    Raises
    ------
    TypeError, ValueError
        As `recurrent`; also where `grad` does not have the shape of the encoding.

    Notes
    -----
    The path is computed again and held: ``n C`` numbers for each state of the batch, besides a few copies of the
    weights for each of at most 16 shares of it.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.recurrent_vjp(np.ones((2, 1)), [0.0], [[0.5]], [0.0], 2)
    RecurrentGradient(p0=array([1.5]), weight=array([[0.]]), bias=array([1.]))
    """
    function = "recurrent_vjp"
    start = states(function, "p0", p0)
    w, b = _parameters(function, start, weight, bias, cell)
    count, begins = as_index(function, "n", n, 0), as_bool(function, "include_p0", include_p0)
    g, kind, gru = cotangent(function, grad, start, count), compute_dtype(start), cell == "gru"
    begin = streams(start, 1)
    path = np.empty((len(begin), count + (not begins), start.shape[-1]), kind)
    _core.recurrent(function, begin, w, b, path, gru, False)
    d_p0, d_weight, d_bias = np.empty(begin.shape), np.empty(w.shape), np.empty(b.shape)
    _core.recurrent_vjp(function, g, path, w, b, d_p0, d_weight, d_bias, gru, not begins)
    given = as_data(function, "weight", weight), as_data(function, "bias", bias)
    return RecurrentGradient(
        d_p0.reshape(start.shape).astype(start.dtype, copy=False),
        d_weight.astype(given[0].dtype, copy=False),
        d_bias.reshape(given[1].shape).astype(given[1].dtype, copy=False),
    )
