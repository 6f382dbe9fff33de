"""Encodings that flow: positions are samples of the solution of an ordinary differential equation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import (
    F64,
    Array,
    Float64,
    as_data,
    as_index,
    as_number,
    cast_result,
    check_choice,
    compute_dtype,
    door,
    fail,
    store_result,
)
from .._core_api.constants import TABLEAUS
from ._scan import like_arguments, merge_batch_axes, read_grad_of_rows, split_batch_axis

Method = Literal["rk4_38", "rk4", "midpoint", "euler"]
METHODS = tuple(TABLEAUS)


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


class _Flow(NamedTuple):
    """The checked arguments of `floater`."""

    p0: Array
    field: tuple[Array, ...]
    """w1, b1, w2, b2."""
    n: int
    arguments: dict[str, Any]
    """All other arguments of the kernels, with the field, by name."""


def _read_flow(
    p0: npt.ArrayLike,
    w1: npt.ArrayLike,
    b1: npt.ArrayLike,
    w2: npt.ArrayLike,
    b2: npt.ArrayLike,
    n: int,
    dt: float,
    substeps: int,
    method: Method,
) -> _Flow:
    row = "real p0(c), real w1:(e,j), real b1:(e), real w2:(c,k), real b2:(c)"
    p0, w1, b1, w2, b2 = _core.read(row, p0=p0, w1=w1, b1=b1, w2=w2, b2=b2)
    for name, weight, width in (("w1", w1, p0.shape[-1]), ("w2", w2, len(b1))):
        if weight.shape[1] != width + 1:
            fail(ValueError, name, f"{weight.shape[1]} columns", f"{width + 1}, the last of them for time")
    n, dt = as_index("n", n, 0), as_number("dt", dt)
    substeps = as_index("substeps", substeps, 1)
    when = np.arange(substeps) / substeps  # the start of each substep, as a fraction of dt
    arguments = {"w1": w1, "b1": b1, "w2": w2, "b2": b2, "when": when, "dt": dt, "method": method}
    return _Flow(p0, (w1, b1, w2, b2), n, arguments)


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
    flow = _read_flow(p0, w1, b1, w2, b2, n, dt, substeps, method)
    rows = _core.floater(p0=merge_batch_axes(flow.p0, 1), n=flow.n, **flow.arguments)
    return split_batch_axis(rows, flow.p0, out)


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
    flow = _read_flow(p0, w1, b1, w2, b2, n, dt, substeps, method)
    grad = read_grad_of_rows(grad, flow.p0, flow.n)
    p0 = merge_batch_axes(flow.p0, 1)
    path = _core.floater(p0=p0, n=flow.n, dtype=compute_dtype(p0), **flow.arguments)
    gradients = _core.floater_vjp(grad=grad, path=path, **flow.arguments)
    return FloaterGradient(*like_arguments(gradients, (flow.p0, *flow.field)))


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
    start, times = _core.read("real p0(c), f64 times!:(n)", p0=p0, times=times)
    substeps = as_index("substeps", substeps, 1)
    check_choice("method", method, METHODS)
    stages, weights = TABLEAUS[method]
    dtype, p = compute_dtype(start), start.astype(F64)
    states = np.empty((len(times), *start.shape))

    def slope(t: float, state: Float64) -> Float64:
        array = as_data("h", h(t, cast_result(state, dtype)))
        if array.shape != start.shape:
            fail(ValueError, "h", f"a result of shape {array.shape}", str(start.shape))
        return array.astype(F64)

    def moved(step: float, coefficients: tuple[float, ...], slopes: list[Float64]) -> Float64:
        with np.errstate(over="ignore", invalid="ignore"):  # states may be infinite; warnings of h are the caller's
            terms = (step * c * slope for c, slope in zip(coefficients, slopes, strict=True) if c)
            return p + sum(terms, np.zeros_like(p))

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
    return store_result(out, np.moveaxis(states, 0, -2), start.dtype)
