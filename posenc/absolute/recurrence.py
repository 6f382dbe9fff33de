"""Recurrent encodings: each position is a function of the one before."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import (
    Array,
    Float64,
    as_bool,
    as_data,
    as_index,
    cast_operand,
    check_choice,
    compute_dtype,
    fail,
    fail_value,
    finish_out,
    unbroadcast,
)
from .._core_api.variant import in_one_isa
from ._scan import merge_batch_axes, prepare_rows, read_grad_of_rows, read_states, read_weight

Cell = Literal["tanh", "gru"]
CELLS: tuple[Cell, ...] = get_args(Cell)


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

    @property
    def arrays(self) -> tuple[Array, ...]:
        return tuple(array for array in self[:5] if array is not None)

    def operands(self, function: str) -> dict[str, Array]:
        """Return the arrays in the shapes and dtypes that the kernels take, by name."""
        dtype = compute_dtype(self.p0)
        two_sides = self.bias if self.bias.ndim == 2 else self.bias[None]
        found = {
            "p0": merge_batch_axes(self.start, 1),
            "weight": cast_operand(function, "weight", self.weight, dtype),
            "bias": cast_operand(function, "bias", two_sides, dtype),
        }
        if self.inputs is not None and self.input_weight is not None:
            inputs = np.broadcast_to(self.inputs, (*self.start.shape[:-1], *self.inputs.shape[-2:]))
            found["inputs"] = cast_operand(function, "inputs", merge_batch_axes(inputs, 2), dtype)
            found["input_weight"] = cast_operand(function, "input_weight", self.input_weight, dtype)
        return found

    def gradient(self, gradients: dict[str, Float64]) -> RecurrentGradient:
        """Return the gradients of the operands in the shapes and dtypes of the arguments."""

        def of(name: str, argument: Array, core: int, batch: tuple[int, ...] = ()) -> Array:
            shape = (*batch, *argument.shape[max(argument.ndim - core, 0) :])
            return unbroadcast(gradients[f"d{name}"].reshape(shape), argument.shape, argument.dtype)

        batch = self.start.shape[:-1]
        return RecurrentGradient(
            of("p0", self.p0, 1, batch),
            of("weight", self.weight, 2),
            of("bias", self.bias, 2),
            None if self.inputs is None else of("inputs", self.inputs, 2, batch),
            None if self.input_weight is None else of("input_weight", self.input_weight, 2),
        )


def _read_arguments(
    function: str,
    p0: npt.ArrayLike,
    weight: npt.ArrayLike,
    bias: npt.ArrayLike,
    n: int,
    inputs: npt.ArrayLike | None,
    input_weight: npt.ArrayLike | None,
    cell: Cell,
) -> _Arguments:
    states = read_states(function, p0)
    check_choice(function, "cell", cell, CELLS)
    c = states.shape[-1]
    rows, bias_shape = (3 * c, (2, 3 * c)) if cell == "gru" else (c, (c,))
    weights = read_weight(function, "weight", weight, (rows, c)), read_weight(function, "bias", bias, bias_shape)
    if inputs is None:
        if input_weight is not None:
            fail(ValueError, function, "input_weight", "an array", "None, because inputs is None")
        return _Arguments(states, *weights, None, None, states)
    if input_weight is None:
        fail_value(ValueError, function, "input_weight", None, "an array, because inputs are given")
    array = as_data(function, "inputs", inputs)
    if array.ndim < 2 or array.shape[-2] != n:
        fail(ValueError, function, "inputs", f"shape {array.shape}", f"(..., n = {n}, E)")
    own = read_weight(function, "input_weight", input_weight, (rows, array.shape[-1]))
    try:
        batch = np.broadcast_shapes(states.shape[:-1], array.shape[:-2])
    except ValueError:
        expected = f"leading axes that broadcast with {states.shape[:-1]}, the leading axes of p0"
        fail(ValueError, function, "inputs", f"shape {array.shape}", expected)
    return _Arguments(states, *weights, array, own, np.broadcast_to(states, (*batch, c)))


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
    function = "recurrent"
    n, include_p0 = as_index(function, "n", n, 0), as_bool(function, "include_p0", include_p0)
    given = _read_arguments(function, p0, weight, bias, n, inputs, input_weight, cell)
    out, buffer = prepare_rows(function, out, given.start, n, given.arrays)
    rows = merge_batch_axes(buffer, 2)
    _core.recurrent(function, **given.operands(function), out=rows, gru=cell == "gru", skip=not include_p0)
    return finish_out(out, buffer)


@in_one_isa
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
    function = "recurrent_vjp"
    n, include_p0 = as_index(function, "n", n, 0), as_bool(function, "include_p0", include_p0)
    given = _read_arguments(function, p0, weight, bias, n, inputs, input_weight, cell)
    grad = read_grad_of_rows(function, grad, given.start, n)
    operands = given.operands(function)
    states = np.empty((len(grad), n + (not include_p0), given.start.shape[-1]), grad.dtype)
    gru = cell == "gru"
    _core.recurrent(function, **operands, out=states, gru=gru, skip=False)
    gradients = {f"d{name}": np.zeros(operand.shape) for name, operand in operands.items()}
    del operands["p0"]
    _core.recurrent_vjp(function, grad=grad, path=states, **operands, **gradients, gru=gru, skip=not include_p0)
    return given.gradient(gradients)
