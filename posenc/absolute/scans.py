"""Encodings that compute each position from the one before: recurrences, and solutions of differential equations.

The kernels take one batch axis, so all leading axes of states are merged into one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api import convert, read
from .._core_api.arrays import F64, Array, Float64
from .._core_api.constants import TABLEAUS
from .._core_api.door import door, fail, fail_value

Cell = Literal["tanh", "gru"]
Method = Literal["rk4_38", "rk4", "midpoint", "euler"]
Arguments = dict[str, Any]
"""Arguments of a kernel by name."""
STATES = (
    "real p0(c), real weight({0},c) alone, real bias({1}) alone, real inputs(n,e) optional, "
    "real input_weight({0},e) optional alone"
)
CELLS = {"tanh": STATES.format("c", "c"), "gru": STATES.format("g", "s,g")}
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


class FloaterGradient(NamedTuple):
    """Gradients of `floater`, each in its argument's dtype.

    Attributes
    ----------
    p0 : array (..., C)
    w1, b1 : array (E, C + 1), (E,)
    w2, b2 : array (C, E + 1), (C,)
    """

    p0: Array
    w1: Array
    b1: Array
    w2: Array
    b2: Array


def _merge_batch(array: Array, core: int = 1) -> Array:
    """Merge all axes but the last `core` into one."""
    batch, shape = array.shape[: array.ndim - core], array.shape[array.ndim - core :]
    return array.reshape(int(np.prod(batch, dtype=np.int64)), *shape)  # -1 would be ambiguous for an empty array


def _split_batch(rows: Array, p0: Array, out: Array | None) -> Array:
    """Return n states (B, n, C) with the batch axes of p0, in `out` if it is an array."""
    states = rows.reshape(*p0.shape[:-1], *rows.shape[1:])
    return states if out is None else convert.store(out, states, states.dtype)


def _read_grad(grad: npt.ArrayLike, p0: Array, n: int) -> Array:
    """Return the cotangent of n states, with one batch axis and in the dtype of the arithmetic."""
    _, array = _core.read("real p0(c) -> real out(n,c)", p0=p0, grad=grad, n=n)
    return _merge_batch(array, 2)


def _like_arguments(gradients: Iterable[Array], arguments: Iterable[Array]) -> Iterator[Array]:
    """Yield gradients in the shapes and dtypes of their arguments."""
    for gradient, argument in zip(gradients, arguments, strict=True):
        yield convert.result(gradient.reshape(argument.shape), argument.dtype)


class _States(NamedTuple):
    """The checked arguments of `recurrent`."""

    arrays: Any
    """p0, weight, bias, inputs and input_weight, of which the last two may be None."""
    start: Array
    """p0 with the leading axes of the result."""
    operands: Arguments
    """The arrays in the shapes that the kernels take."""


def _read_states(cell: Cell, n: int, **arguments: npt.ArrayLike | None) -> _States:
    read.choice("cell", cell, CELLS)
    if arguments["inputs"] is None and arguments["input_weight"] is not None:
        fail(ValueError, "input_weight", "an array", "None, because inputs is None")
    if arguments["inputs"] is not None and arguments["input_weight"] is None:
        fail_value(ValueError, "input_weight", None, "an array, because inputs are given")
    c = _core.read("real p0(c)", p0=arguments["p0"]).shape[-1]
    arrays = _core.read(CELLS[cell], **arguments, n=n, s=2, g=3 * c)
    start, weight, bias, inputs, input_weight = arrays
    if inputs is not None:
        start = np.broadcast_to(start, (*np.broadcast_shapes(start.shape[:-1], inputs.shape[:-2]), c))
        inputs = _merge_batch(np.broadcast_to(inputs, (*start.shape[:-1], *inputs.shape[-2:])), 2)
    bias = bias if bias.ndim == 2 else bias[None]
    operands = {"weight": weight, "bias": bias, "inputs": inputs, "input_weight": input_weight, "gru": cell == "gru"}
    return _States(arrays, start, operands)


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
        x. With `include_p0`, row k has read ``x[0] .. x[k-1]``, and the last input is not read. Without it, row k has
        read ``x[0] .. x[k]``. The leading axes broadcast against the leading axes of `p0`.
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
    n, include_p0 = read.index("n", n, 0), read.flag("include_p0", include_p0)
    states = _read_states(cell, n, p0=p0, weight=weight, bias=bias, inputs=inputs, input_weight=input_weight)
    rows = _core.recurrent(p0=_merge_batch(states.start), **states.operands, n=n, skip=not include_p0)
    return _split_batch(rows, states.start, out)


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
    n, include_p0 = read.index("n", n, 0), read.flag("include_p0", include_p0)
    states = _read_states(cell, n, p0=p0, weight=weight, bias=bias, inputs=inputs, input_weight=input_weight)
    (first, *of_weights, x, of_x), start, operands = states
    grad = _read_grad(grad, start, n)
    path = _core.recurrent(
        p0=_merge_batch(start), **operands, skip=False, dtype=convert.arithmetic(start), n=n + (not include_p0)
    )
    has_inputs = None if x is None else True
    d_p0, d_weight, d_bias, *of_inputs = _core.recurrent_vjp(
        grad=grad, path=path, **operands, dinputs=has_inputs, dinput_weight=has_inputs, skip=not include_p0
    )
    d_inputs = d_input_weight = None
    if has_inputs:
        d_inputs = convert.unbroadcast(of_inputs[0].reshape(*start.shape[:-1], *x.shape[-2:]), x.shape, x.dtype)
        d_input_weight = convert.result(of_inputs[1], of_x.dtype)
    d_p0 = convert.unbroadcast(d_p0.reshape(start.shape), first.shape, first.dtype)
    d_weight, d_bias = _like_arguments((d_weight, d_bias), of_weights)
    return RecurrentGradient(d_p0, d_weight, d_bias, d_inputs, d_input_weight)


def _read_flow(dt: float, substeps: int, **arguments: npt.ArrayLike) -> tuple[Array, Arguments, Arguments]:
    """Return p0, the field, and the steps of the solver."""
    row = "real p0(c), real w1(e,j) alone, real b1(e) alone, real w2(c,k) alone, real b2(c) alone"
    p0, w1, b1, w2, b2 = _core.read(row, **arguments)
    for name, weight, width in (("w1", w1, p0.shape[-1]), ("w2", w2, len(b1))):
        if weight.shape[1] != width + 1:
            fail(ValueError, name, f"{weight.shape[1]} columns", f"{width + 1}, the last of them for time")
    substeps = read.index("substeps", substeps, 1)
    when = np.arange(substeps) / substeps  # the start of each substep, as a fraction of dt
    return p0, {"w1": w1, "b1": b1, "w2": w2, "b2": b2}, {"when": when, "dt": read.number("dt", dt)}


@door
def floater(
    p0: npt.ArrayLike,
    w1: npt.ArrayLike,
    b1: npt.ArrayLike,
    w2: npt.ArrayLike,
    b2: npt.ArrayLike,
    n: int,
    *,
    dt: float = 0.01,
    substeps: int = 5,
    method: Method = "rk4_38",
    out: Array | None = None,
) -> Array:
    """Return position encodings that follow a learned flow (FLOATER).

    Row k is ``p(k dt)``, where ``dp/dt = W2 [relu(W1 [p; t] + b1); t] + b2`` and ``p(0) = p0``.

    Parameters
    ----------
    p0 : array (..., C)
        Initial states. The leading axes are streams and layers that share the field dp/dt. Row 0 of the result is p0
        itself.
    w1, b1 : array (E, C + 1), (E,)
        First layer of the field. The last column of w1 multiplies time.
    w2, b2 : array (C, E + 1), (C,)
        Second layer of the field. The last column of w2 multiplies time.
    n : int
        Number of positions, at least 0.
    dt : float
        Time from one position to the next. A negative dt integrates backwards in time; 0 repeats `p0`.
    substeps : int
        Steps of the solver from one position to the next, at least 1.
    method : {"rk4_38", "rk4", "midpoint", "euler"}
        Runge-Kutta method: Kutta's 3/8 rule, the classic rule of order 4, order 2, or order 1.
    out : array (..., n, C), optional
        Filled and returned.

    Returns
    -------
    ndarray (..., n, C)
        In the dtype of `p0`. The field is computed in float32, or float64 for float64 data. The state is float64, and
        each row is rounded once.

    Raises
    ------
    TypeError, ValueError
        A weight whose shape does not fit, a `dt` that is not finite, an unknown method, `substeps` below 1.

    Notes
    -----
    Liu et al. 2020, "Learning to Encode Position for Transformer with Continuous Dynamical Model", eq. 4 with the
    network of its authors' code. That code integrates with torchdiffeq's fixed-step "rk4", which is the 3/8 rule, and
    with five steps of ``dt / 5`` per position and ``dt = 0.01``, which are the defaults here. It adds p to the
    projections of queries, keys and values as a bias, with one stream for each and one field for all.

    One call for several streams costs less than one call per stream, because it reads the weights once.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> identity = np.array([[1.0, 0.0]])  # dp/dt = relu(p): p grows as exp(t)
    >>> posenc.floater([1.0], identity, [0.0], identity, [0.0], 3, dt=1.0, substeps=100).round(6).ravel()
    array([1.      , 2.718282, 7.389056])
    """
    p0, field, steps = _read_flow(dt, substeps, p0=p0, w1=w1, b1=b1, w2=w2, b2=b2)
    rows = _core.floater(p0=_merge_batch(p0), n=read.index("n", n, 0), **field, **steps, method=method)
    return _split_batch(rows, p0, out)


@door
def floater_vjp(
    grad: npt.ArrayLike,
    p0: npt.ArrayLike,
    w1: npt.ArrayLike,
    b1: npt.ArrayLike,
    w2: npt.ArrayLike,
    b2: npt.ArrayLike,
    n: int,
    *,
    dt: float = 0.01,
    substeps: int = 5,
    method: Method = "rk4_38",
) -> FloaterGradient:
    """Return the gradients of `floater`, by the discrete adjoint.

    ``lambda <- lambda + sum_i (dh/dp)^T dk[i]`` through every stage of the solver.

    Parameters
    ----------
    grad : array (..., n, C)
        Cotangent of the encoding. See `floater` for the other arguments.

    Returns
    -------
    FloaterGradient
        ``p0``, ``w1``, ``b1``, ``w2`` and ``b2``, each in the shape and dtype of its argument. Those of the field are
        sums over positions, stages and streams, in float64 over runs of several hundred stages.

    Raises
    ------
    TypeError, ValueError
        As `floater`. Also if `grad` does not have the shape of the encoding.

    Notes
    -----
    The gradient is exact for the numbers that `floater` returns, whatever the step. The authors' continuous adjoint
    agrees with it to the accuracy of the solver. The derivative of relu at 0 is 0.

    The memory is ``n C`` numbers for each stream, from which the stages are recomputed. Each thread needs 64 (C + E)
    numbers for each of the 12 states that it computes at once, and C more for every 8 substeps past the first 8. Each
    thread, and each of at most 16 shares of the streams, needs a small number of copies of the weights.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> identity = np.array([[1.0, 0.0]])
    >>> posenc.floater_vjp(np.ones((2, 1)), [1.0], identity, [0.0], identity, [0.0], 2, dt=1.0).p0.round(3)
    array([3.718])
    """
    p0, field, steps = _read_flow(dt, substeps, p0=p0, w1=w1, b1=b1, w2=w2, b2=b2)
    n = read.index("n", n, 0)
    grad = _read_grad(grad, p0, n)
    path = _core.floater(p0=_merge_batch(p0), n=n, **field, **steps, method=method, dtype=convert.arithmetic(p0))
    gradients = _core.floater_vjp(grad=grad, path=path, **field, **steps, method=method)
    return FloaterGradient(*_like_arguments(gradients, (p0, *field.values())))


@door
def integrate(
    h: Callable[[float, Array], npt.ArrayLike],
    p0: npt.ArrayLike,
    times: npt.ArrayLike,
    *,
    substeps: int = 5,
    method: Method = "rk4_38",
    out: Array | None = None,
) -> Array:
    """Return position encodings that follow any flow, ``h(t, p)`` with the time first.

    Row k is ``p(times[k])``, where ``dp/dt = h(t, p)`` and ``p(times[0]) = p0``.

    Parameters
    ----------
    h : callable
        ``h(t, p)`` returns the slope at time t, a float, and state p, an array in the shape of `p0`. The array is
        float32, or float64 if `p0` is, and `h` may change it. The slope has the shape of `p0` and any storage dtype.
    p0 : array (..., C)
        State at ``times[0]``, which is row 0. The leading axes are a batch.
    times : array (N,)
        Finite times in any order: each step leads from one entry to the next, forwards or backwards.
    substeps : int
        Steps of the solver from one entry of `times` to the next, at least 1.
    method : {"rk4_38", "rk4", "midpoint", "euler"}
        As in `floater`.
    out : array (..., N, C), optional
        Filled and returned.

    Returns
    -------
    ndarray (..., N, C)
        In the dtype of `p0`. The steps are summed in float64.

    Raises
    ------
    TypeError
        `h` is not callable, or its result is not an array of a storage dtype.
    ValueError
        The result of `h` has another shape; times are not finite or have several axes; an unknown method; `substeps`
        below 1.

    Notes
    -----
    Liu et al. 2020, eq. 3. The cost is the cost of calling `h`, which is Python; `floater` computes its network in C.
    There is no gradient function, because the derivative of `h` is unknown. The transpose applies the stages of each
    step in reverse order, with the transposed Jacobian of `h` in place of `h`, as `floater_vjp` does for its own field.

    The sinusoidal encoding is the solution for ``h(t, p) = A p``, where A generates a rotation in each pair.

    Examples
    --------
    A rotation by a quarter turn:

    >>> import numpy as np, posenc
    >>> posenc.integrate(lambda t, p: np.array([p[1], -p[0]]), [0.0, 1.0], [0.0, np.pi / 2]).round(3)
    array([[0., 1.],
           [1., 0.]])
    """
    if not callable(h):
        fail(TypeError, "h", f"type {type(h).__name__}", "a callable h(t, p)")
    start, times = _core.read("real p0(c), f64 times(n) finite alone", p0=p0, times=times)
    substeps = read.index("substeps", substeps, 1)
    read.choice("method", method, TABLEAUS)
    stages, weights = TABLEAUS[method]
    dtype, p = convert.arithmetic(start), start.astype(F64)
    states = np.empty((len(times), *start.shape))

    def slope(t: float, state: Float64) -> Float64:
        array = read.data("h", h(t, convert.result(state, dtype)))
        if array.shape != start.shape:
            fail(ValueError, "h", f"a result of shape {array.shape}", str(start.shape))
        return array.astype(F64)

    def moved(step: float, coefficients: tuple[float, ...], slopes: list[Float64]) -> Float64:
        with np.errstate(over="ignore", invalid="ignore"):  # states may be infinite; warnings of h are the caller's
            terms = (step * c * slope for c, slope in zip(coefficients, slopes, strict=True) if c)
            return p + sum(terms)

    begin = 0.0
    for k, end in enumerate(times.tolist()):
        if k:
            step = (end - begin) / substeps
            for substep in range(substeps):
                now = begin + substep * step
                slopes: list[Float64] = []
                for coefficients in stages:
                    slopes.append(slope(now + sum(coefficients) * step, moved(step, coefficients, slopes)))
                p = moved(step, weights, slopes)
        states[k] = p
        begin = end
    return convert.store(out, np.moveaxis(states, 0, -2), start.dtype)
