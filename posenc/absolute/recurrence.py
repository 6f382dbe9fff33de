"""Recurrent encodings: each position is a function of the one before."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import (
    Array,
    as_bool,
    as_index,
    cast_result,
    check_choice,
    compute_dtype,
    door,
    fail,
    fail_value,
    unbroadcast,
)
from ._scan import like_arguments, merge_batch_axes, read_grad_of_rows, split_batch_axis

Cell = Literal["tanh", "gru"]
CELLS: tuple[Cell, ...] = get_args(Cell)
_ROWS = {
    "tanh": "real p0(c), real weight:(c,c), real bias:(c), real inputs?(n,e), real input_weight?:(c,e)",
    "gru": "real p0(c), real weight:(g,c), real bias:(s,g), real inputs?(n,e), real input_weight?:(g,e)",
}
"""The arguments of each cell."""


class RecurrentGradient(NamedTuple):
    """Gradients of `recurrent`, each in its argument's dtype.

    Attributes
    ----------
    p0 : array (..., C)
    weight : array (C, C), or (3 C, C) with "gru"
    bias : array (C,), or (2, 3 C) with "gru"
    inputs : array (..., n, E) or None
        None without inputs.
    input_weight : array (C, E), (3 C, E) with "gru", or None
        None without inputs.
    """

    p0: Array
    weight: Array
    bias: Array
    inputs: Array | None
    input_weight: Array | None


class _Arguments(NamedTuple):
    """The arrays of a call, as the caller has them, and the initial states of the whole batch."""

    p0: Array
    weight: Array
    bias: Array
    inputs: Array | None
    input_weight: Array | None
    start: Array
    """p0 with the leading axes of the result."""

    def operands(self) -> dict[str, Any]:
        """Return the arrays in the shapes that the kernels take, by name."""
        inputs = self.inputs
        if inputs is not None:
            inputs = merge_batch_axes(np.broadcast_to(inputs, (*self.start.shape[:-1], *inputs.shape[-2:])), 2)
        return {
            "p0": merge_batch_axes(self.start, 1),
            "weight": self.weight,
            "bias": self.bias if self.bias.ndim == 2 else self.bias[None],
            "inputs": inputs,
            "input_weight": self.input_weight,
        }


def _read_arguments(
    p0: npt.ArrayLike,
    weight: npt.ArrayLike,
    bias: npt.ArrayLike,
    n: int,
    inputs: npt.ArrayLike | None,
    input_weight: npt.ArrayLike | None,
    cell: Cell,
) -> _Arguments:
    check_choice("cell", cell, CELLS)
    if inputs is None and input_weight is not None:
        fail(ValueError, "input_weight", "an array", "None, because inputs is None")
    if inputs is not None and input_weight is None:
        fail_value(ValueError, "input_weight", None, "an array, because inputs are given")
    c = _core.read("real p0(c)", p0=p0).shape[-1]
    p0, weight, bias, inputs, input_weight = _core.read(
        _ROWS[cell], p0=p0, weight=weight, bias=bias, inputs=inputs, input_weight=input_weight,
        n=n, s=2, g=3 * c,
    )  # fmt: skip
    start = p0
    if inputs is not None:
        start = np.broadcast_to(p0, (*np.broadcast_shapes(p0.shape[:-1], inputs.shape[:-2]), c))
    return _Arguments(p0, weight, bias, inputs, input_weight, start)


@door
def recurrent(
    p0: npt.ArrayLike,
    weight: npt.ArrayLike,
    bias: npt.ArrayLike,
    n: int,
    *,
    inputs: npt.ArrayLike | None = None,
    input_weight: npt.ArrayLike | None = None,
    cell: Cell = "tanh",
    include_p0: bool = True,
    out: Array | None = None,
) -> Array:
    """Return recurrent position encodings, or the states of a recurrent layer over inputs.

    ``p[k + 1] = f(p[k])``, where ``f(p) = tanh(W p + b)`` or a GRU; with inputs, ``tanh(W p + V x[k] + b)``.

    Parameters
    ----------
    p0 : array (..., C)
        Initial states. The leading axes are a batch that shares f.
    weight : array (C, C), or (3 C, C) with "gru"
        W. For a GRU the three matrices of the state in the order r, z, n: torch's ``weight_hh_l0``.
    bias : array (C,), or (2, 3 C) with "gru"
        b. For a GRU torch's ``bias_ih_l0`` (row 0, added to the input's part) and ``bias_hh_l0`` (row 1).
    n : int
        Number of positions, at least 0.
    inputs : array (..., n, E), optional
        x. Row k + 1 reads ``inputs[k]``; with `include_p0` the last input is not read. The leading axes broadcast
        against the leading axes of `p0`.
    input_weight : array (C, E), or (3 C, E) with "gru"
        V, in the order r, z, n for a GRU: torch's ``weight_ih_l0``. Required with `inputs`.
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
        is not a bool; inputs that are not (..., n, E), or without their weight.

    Notes
    -----
    The GRU (Cho et al. 2014, "Learning Phrase Representations using RNN Encoder-Decoder", eqs. 5-8, in the order of
    cuDNN and torch) is::

        r = s(V_r x + a_r + U_r p + b_r),   z = s(V_z x + a_z + U_z p + b_z)
        m = tanh(V_n x + a_n + r (U_n p + b_n)),   p' = (1 - z) m + z p

    In the paper r multiplies p before the product; z weighs the old state, as here. The recurrent baseline in the code
    of FLOATER (Liu et al. 2020) begins with ``f(h0)`` and has the input 0.01 k: ``include_p0=False`` and
    ``inputs=0.01 * np.arange(n)[:, None]``.

    With the embeddings of words as inputs and ``include_p0=False`` this is a recurrent layer (Elman 1990 with "tanh",
    ``h_t = tanh(U h_{t-1} + W x_t + b)``). Such a layer before a Transformer makes other positions unnecessary, because
    a state depends on the order of the words before it.

    If f contracts, the states of distant positions approach a fixed point, and each other.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.recurrent([1.0, 0.0], [[0.0, -1.0], [1.0, 0.0]], [0.0, 0.0], 3).round(3)
    array([[ 1.   ,  0.   ],
           [ 0.   ,  0.762],
           [-0.642,  0.   ]])

    A recurrent layer over three words of width 1, whose state is their decaying sum:

    >>> words = np.array([[0.1], [0.2], [0.0]])
    >>> posenc.recurrent([0.0], [[0.5]], [0.0], 3, inputs=words, input_weight=[[1.0]], include_p0=False).round(3)
    array([[0.1  ],
           [0.245],
           [0.122]])
    """
    n, include_p0 = as_index("n", n, 0), as_bool("include_p0", include_p0)
    given = _read_arguments(p0, weight, bias, n, inputs, input_weight, cell)
    rows = _core.recurrent(**given.operands(), n=n, gru=cell == "gru", skip=not include_p0)
    return split_batch_axis(rows, given.start, out)


@door
def recurrent_vjp(
    grad: npt.ArrayLike,
    p0: npt.ArrayLike,
    weight: npt.ArrayLike,
    bias: npt.ArrayLike,
    n: int,
    *,
    inputs: npt.ArrayLike | None = None,
    input_weight: npt.ArrayLike | None = None,
    cell: Cell = "tanh",
    include_p0: bool = True,
) -> RecurrentGradient:
    """Return the gradients of `recurrent`.

    ``dp[k] = grad[k] + (df/dp)^T dp[k + 1]``, from the last position to the first.

    Parameters
    ----------
    grad : array (..., n, C)
        Cotangent of the encoding. See `recurrent` for the other arguments.

    Returns
    -------
    RecurrentGradient
        ``p0``, ``weight``, ``bias``, ``inputs`` and ``input_weight``, each in the shape and dtype of its argument; the
        last two are None without inputs. Those of weights and bias are sums over positions and batch, in float64 over
        runs of 192 states.

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
    RecurrentGradient(p0=array([1.5]), weight=array([[0.]]), bias=array([1.]), inputs=None, input_weight=None)
    """
    n, include_p0 = as_index("n", n, 0), as_bool("include_p0", include_p0)
    given = _read_arguments(p0, weight, bias, n, inputs, input_weight, cell)
    grad = read_grad_of_rows(grad, given.start, n)
    operands, gru = given.operands(), cell == "gru"
    path = _core.recurrent(**operands, gru=gru, skip=False, dtype=compute_dtype(given.p0), n=n + (not include_p0))
    del operands["p0"]
    has_inputs = True if given.inputs is not None else None
    d_p0, d_weight, d_bias, *of_inputs = _core.recurrent_vjp(
        grad=grad, path=path, **operands, dinputs=has_inputs, dinput_weight=has_inputs,
        gru=gru, skip=not include_p0,
    )  # fmt: skip
    d_inputs = d_input_weight = None
    if given.inputs is not None and given.input_weight is not None:
        shape = (*given.start.shape[:-1], *given.inputs.shape[-2:])
        d_inputs = unbroadcast(of_inputs[0].reshape(shape), given.inputs.shape, given.inputs.dtype)
        d_input_weight = cast_result(of_inputs[1], given.input_weight.dtype)
    d_p0 = unbroadcast(d_p0.reshape(given.start.shape), given.p0.shape, given.p0.dtype)
    d_weight, d_bias = like_arguments((d_weight, d_bias), (given.weight, given.bias))
    return RecurrentGradient(d_p0, d_weight, d_bias, d_inputs, d_input_weight)
