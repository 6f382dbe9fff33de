"""Recurrent encodings: each position is a function of the one before."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import Array, as_bool, as_index, cast_operand, check_choice, compute_dtype, finish_out
from .._core_api.variant import in_one_isa
from ._scan import (
    like_arguments,
    merge_batch_axes,
    prepare_rows,
    read_grad_of_rows,
    read_states,
    read_weight,
)

__all__ = ["RecurrentGradient", "recurrent", "recurrent_vjp"]

Cell = Literal["tanh", "gru"]
CELLS: tuple[Cell, ...] = get_args(Cell)


class RecurrentGradient(NamedTuple):
    """Gradients of `recurrent`, each in the shape and dtype of its argument."""

    p0: Array
    weight: Array
    bias: Array


def _read_weights(
    function: str, p0: Array, weight: npt.ArrayLike, bias: npt.ArrayLike, cell: Cell
) -> tuple[Array, Array]:
    check_choice(function, "cell", cell, CELLS)
    c = p0.shape[-1]
    rows, bias_shape = (3 * c, (2, 3 * c)) if cell == "gru" else (c, (c,))
    return read_weight(function, "weight", weight, (rows, c)), read_weight(function, "bias", bias, bias_shape)


def _operands(function: str, p0: Array, weight: Array, bias: Array) -> tuple[Array, Array, Array]:
    """Return the arguments in the shapes and dtypes that the kernels take."""
    dtype, two_sides = compute_dtype(p0), bias if bias.ndim == 2 else bias[None]
    return (
        merge_batch_axes(p0, 1),
        cast_operand(function, "weight", weight, dtype),
        cast_operand(function, "bias", two_sides, dtype),
    )


def recurrent(
    p0: npt.ArrayLike,
    weight: npt.ArrayLike,
    bias: npt.ArrayLike,
    n: int,
    *,
    cell: Cell = "tanh",
    include_p0: bool = True,
    out: Array | None = None,
) -> Array:
    """Return recurrent position encodings.

    ``p[k + 1] = f(p[k])``, where ``f(p) = tanh(W p + b)`` or a GRU without input.

    Parameters
    ----------
    p0 : array (..., C)
        Initial states. The leading axes are a batch that shares f.
    weight : array (C, C), or (3 C, C) with "gru"
        W. For a GRU the three matrices of the state in the order r, z, n: torch's ``weight_hh_l0``.
    bias : array (C,), or (2, 3 C) with "gru"
        b. For a GRU torch's ``bias_ih_l0`` (row 0, added to the input, which is 0) and ``bias_hh_l0`` (row 1).
    n : int
        Number of positions, at least 0.
    cell : {"tanh", "gru"}
        The function f.
    include_p0 : bool
        If True, row 0 is `p0` itself. If False, it is ``f(p0)``, as in the output of a recurrent layer.
    out : array (..., n, C), optional
        Filled and returned.

    Returns
    -------
    ndarray (..., n, C)
        In the dtype of `p0`. States are computed in float32, or float64 for float64 data, and rounded to half precision
        only in the result.

    Raises
    ------
    TypeError, ValueError
        A weight or bias whose shape does not fit `p0` and `cell`, a negative `n`, an unknown cell, an `include_p0` that
        is not a bool.

    Notes
    -----
    The GRU (Cho et al. 2014, "Learning Phrase Representations using RNN Encoder-Decoder", eqs. 5-8, in the order of
    cuDNN and torch) is::

        r = s(a_r + U_r p + b_r),   z = s(a_z + U_z p + b_z)
        m = tanh(a_n + r (U_n p + b_n)),   p' = (1 - z) m + z p

    In the paper r multiplies p before the product; z weighs the old state, as here. The recurrent baseline in the code
    of FLOATER (Liu et al. 2020) begins with ``f(h0)``: ``include_p0=False``. It also has the input 0.01 k, which is
    missing here. An RNN over the words is a layer, not a function of position.

    If f contracts, the states of distant positions approach a fixed point, and each other.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.recurrent([1.0, 0.0], [[0.0, -1.0], [1.0, 0.0]], [0.0, 0.0], 3).round(3)
    array([[ 1.   ,  0.   ],
           [ 0.   ,  0.762],
           [-0.642,  0.   ]])
    """
    function = "recurrent"
    p0 = read_states(function, p0)
    weight, bias = _read_weights(function, p0, weight, bias, cell)
    n, include_p0 = as_index(function, "n", n, 0), as_bool(function, "include_p0", include_p0)
    out, buffer = prepare_rows(function, out, p0, n, (p0, weight, bias))
    rows = merge_batch_axes(buffer, 2)
    _core.recurrent(function, *_operands(function, p0, weight, bias), rows, cell == "gru", not include_p0)
    return finish_out(out, buffer)


@in_one_isa
def recurrent_vjp(
    grad: npt.ArrayLike,
    p0: npt.ArrayLike,
    weight: npt.ArrayLike,
    bias: npt.ArrayLike,
    n: int,
    *,
    cell: Cell = "tanh",
    include_p0: bool = True,
) -> RecurrentGradient:
    """Return the gradients of `recurrent`.

    ``dp[k] = grad[k] + (df/dp)^T dp[k + 1]``, from the last position to the first.

    Parameters
    ----------
    grad : array (..., n, C)
        Cotangent of the encoding. The other arguments are those of `recurrent`.

    Returns
    -------
    RecurrentGradient
        ``p0``, ``weight`` and ``bias``, each in the shape and dtype of its argument. The last two are sums over
        positions and batch, in float64 over runs of 192 states.

    Raises
    ------
    TypeError, ValueError
        As `recurrent`. Also if `grad` does not have the shape of the encoding.

    Notes
    -----
    The states are recomputed and stored: ``n C`` numbers for each element of the batch. The batch is split into at most
    16 shares, and each share needs a small number of copies of the weights.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.recurrent_vjp(np.ones((2, 1)), [0.0], [[0.5]], [0.0], 2)
    RecurrentGradient(p0=array([1.5]), weight=array([[0.]]), bias=array([1.]))
    """
    function, gru = "recurrent_vjp", cell == "gru"
    p0 = read_states(function, p0)
    weight, bias = _read_weights(function, p0, weight, bias, cell)
    n, include_p0 = as_index(function, "n", n, 0), as_bool(function, "include_p0", include_p0)
    grad = read_grad_of_rows(function, grad, p0, n)
    operands = _operands(function, p0, weight, bias)
    states = np.empty((len(grad), n + (not include_p0), p0.shape[-1]), grad.dtype)
    _core.recurrent(function, *operands, states, gru, False)
    gradients = [np.empty(operand.shape) for operand in operands]
    _core.recurrent_vjp(function, grad, states, *operands[1:], *gradients, gru, not include_p0)
    return RecurrentGradient(*like_arguments(gradients, (p0, weight, bias)))
