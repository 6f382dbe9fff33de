"""Encodings that flow: positions are samples of the solution of an ordinary differential equation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

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
    as_reals,
    check_choice,
    compute_dtype,
    fail,
    finish_out,
    prepare_out,
)
from .._core_api.constants import TABLEAUS
from ._walk import cotangent, parameter, states, streams, walk_output

__all__ = ["FloaterGradient", "floater", "floater_vjp", "integrate"]

METHODS = tuple(TABLEAUS)


class FloaterGradient(NamedTuple):
    """Gradients of `floater`, each in the shape and dtype of its argument."""

    p0: Array
    w1: Array
    b1: Array
    w2: Array
    b2: Array


class _Flow(NamedTuple):
    """What `floater` and its gradient prepare alike."""

    p0: Array
    field: tuple[Array, Array, Array, Array]
    n: int
    when: Float64
    dt: float
    method: int


def _flow(
    function: str, p0: Any, w1: Any, b1: Any, w2: Any, b2: Any, n: Any, dt: Any, substeps: Any, method: Any
) -> _Flow:
    start = states(function, "p0", p0)
    c, dtype = start.shape[-1], compute_dtype(start)
    up = parameter(function, "w1", w1, ("E", c + 1), dtype)
    e = up.shape[0]
    field = (
        up,
        parameter(function, "b1", b1, (e,), dtype),
        parameter(function, "w2", w2, (c, e + 1), dtype),
        parameter(function, "b2", b2, (c,), dtype),
    )
    count, step = as_index(function, "n", n, 0), as_number(function, "dt", dt)
    steps = as_index(function, "substeps", substeps, 1)
    check_choice(function, "method", method, METHODS)
    return _Flow(start, field, count, np.arange(steps) / steps, step, METHODS.index(method))


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
    method: str = "rk4_38",
    out: Array | None = None,
) -> Array:
    """FLOATER: row k is ``p(k dt)``, where ``dp/dt = W2 [relu(W1 [p; t] + b1); t] + b2`` and ``p(0) = p0``.

    Parameters
    ----------
    p0 : array (..., C)
        Initial states; leading axes are streams and layers that share the field. Row 0 of the result is p0 itself.
    w1, b1 : array (E, C + 1), (E,)
        First layer; its last column multiplies time.
    w2, b2 : array (C, E + 1), (C,)
        Second layer; its last column multiplies time.
    n : int
        Number of positions, at least 0.
    dt : float
        Time from one position to the next. Negative runs backwards; 0 repeats `p0`.
    substeps : int
        Steps of the solver from one position to the next, at least 1.
    method : {"rk4_38", "rk4", "midpoint", "euler"}
        Kutta's 3/8 rule; the classic rule of fourth order; order 2; order 1.
    out : array (..., n, C), optional
        Filled and returned.

    Returns
    -------
    ndarray (..., n, C)
        In the dtype of `p0`. The field is computed in float32, or float64 for float64 data; the state that its steps
        are added to is float64, and each row is rounded once.

    Raises
    ------
    TypeError, ValueError
        A weight whose shape does not fit, `dt` that is not finite, an unknown method, `substeps` below 1.

    Notes
    -----
    Liu et al. 2020, "Learning to Encode Position for Transformer with Continuous Dynamical Model", eq. 4 with the
    network of its authors' code. That code integrates with torchdiffeq's fixed-step "rk4", which is the 3/8 rule, and
    five steps of ``dt / 5`` per position with ``dt = 0.01``: the defaults here. It adds p to the projections of
    queries, keys and values as a bias, one stream for each, one field for all.

    Encodings of a few streams at once cost less than one after the other: the weights are read once for all of them.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> identity = np.array([[1.0, 0.0]])  # dp/dt = relu(p): p grows as exp(t)
    >>> posenc.floater([1.0], identity, [0.0], identity, [0.0], 3, dt=1.0, substeps=100).round(6).ravel()
    array([1.      , 2.718282, 7.389056])
    """
    function = "floater"
    f = _flow(function, p0, w1, b1, w2, b2, n, dt, substeps, method)
    out, buffer = walk_output(function, out, f.p0, f.n, (f.p0, *f.field))
    _core.floater(function, streams(f.p0, 1), *f.field, f.when, streams(buffer, 2), f.dt, f.method)
    return finish_out(out, buffer)


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
    method: str = "rk4_38",
) -> FloaterGradient:
    """Gradient of `floater`: the discrete adjoint, ``lambda <- lambda + sum_i (dh/dp)^T dk[i]`` through every stage.

    Parameters
    ----------
    grad : array (..., n, C)
        Cotangent of the encoding; the other arguments are those of `floater`.

    Returns
    -------
    FloaterGradient
        ``p0``, ``w1``, ``b1``, ``w2`` and ``b2``, each in the shape and dtype of its argument; those of the field are
        summed over positions, stages and streams, in float64 over runs of a few hundred stages.

    Raises
    ------
    TypeError, ValueError
        As `floater`; also where `grad` does not have the shape of the encoding.

    Notes
    -----
    Exact for the numbers that `floater` returns, whatever the step; the authors' continuous adjoint agrees with it to
    the accuracy of the solver. relu has the derivative 0 at 0.

    Memory is ``n C`` numbers for each stream, from which stages are computed again; in each thread 64 (C + E) for each
    of the 12 states that it works on, and C more for every 8 substeps past the first 8; and the weights a few times
    over, for each thread and for each of at most 16 shares of the streams.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> identity = np.array([[1.0, 0.0]])
    >>> posenc.floater_vjp(np.ones((2, 1)), [1.0], identity, [0.0], identity, [0.0], 2, dt=1.0).p0.round(3)
    array([3.718])
    """
    function = "floater_vjp"
    f = _flow(function, p0, w1, b1, w2, b2, n, dt, substeps, method)
    g, begin = cotangent(function, grad, f.p0, f.n), streams(f.p0, 1)
    path = np.empty((len(begin), f.n, f.p0.shape[-1]), compute_dtype(f.p0))
    _core.floater(function, begin, *f.field, f.when, path, f.dt, f.method)
    gradients = [np.empty(begin.shape), *(np.empty(array.shape) for array in f.field)]
    _core.floater_vjp(function, g, path, *f.field, f.when, *gradients, f.dt, f.method)
    gradients[0] = gradients[0].reshape(f.p0.shape)
    given = (f.p0, *(as_data(function, name, a) for name, a in (("w1", w1), ("b1", b1), ("w2", w2), ("b2", b2))))
    return FloaterGradient(*(d.astype(a.dtype, copy=False) for d, a in zip(gradients, given, strict=True)))


def integrate(
    h: Callable[[float, Array], npt.ArrayLike],
    p0: npt.ArrayLike,
    times: npt.ArrayLike,
    *,
    substeps: int = 5,
    method: str = "rk4_38",
    out: Array | None = None,
) -> Array:
    """Encoding by any flow: row k is ``p(times[k])``, where ``dp/dt = h(t, p)`` and ``p(times[0]) = p0``.

    Parameters
    ----------
    h : callable
        ``h(t, p)`` of a float and an array in the shape of `p0` (float32, or float64 where `p0` is) returns the slope,
        in the same shape and any storage dtype. The array is its own to keep or to change.
    p0 : array (..., C)
        State at ``times[0]``, which is row 0; leading axes are a batch.
    times : array (N,)
        Finite; in any order: each step goes from one entry to the next, backwards too.
    substeps : int
        Steps of the solver from one entry of `times` to the next, at least 1.
    method : {"rk4_38", "rk4", "midpoint", "euler"}
        As in `floater`.
    out : array (..., N, C), optional
        Filled and returned.

    Returns
    -------
    ndarray (..., N, C)
        In the dtype of `p0`; the steps are added up in float64.

    Raises
    ------
    TypeError
        `h` is not callable, or returns something that is no array of a storage dtype.
    ValueError
        `h` returns another shape, times that are not finite or not one axis, an unknown method, `substeps` below 1.

    Notes
    -----
    Liu et al. 2020, eq. 3. `h` is Python, so this is as fast as `h` is; `floater` has its network in C. There is no
    gradient here, since `h` has none that is known: the transpose runs the stages of each step backwards, with the
    transposed Jacobian of `h` where the step has `h`, as `floater_vjp` does for its own field.

    The sinusoidal encoding is the solution for ``h(t, p) = A p``, A the generator of a rotation in each pair.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.integrate(lambda t, p: np.array([p[1], -p[0]]), [0.0, 1.0], [0.0, np.pi / 2]).round(3)
    array([[0., 1.],
           [1., 0.]])
    """
    function = "integrate"
    if not callable(h):
        fail(TypeError, function, "h", f"type {type(h).__name__}", "a callable h(t, p)")
    start, at = states(function, "p0", p0), as_reals(function, "times", times).astype(F64, copy=False)
    if at.ndim != 1:
        fail(ValueError, function, "times", f"{at.ndim} axes", "1")
    if not np.isfinite(at).all():
        fail(ValueError, function, "times", "NaN or infinity", "finite numbers")
    steps = as_index(function, "substeps", substeps, 1)
    check_choice(function, "method", method, METHODS)
    rows, weights = TABLEAUS[method]
    kind, p = compute_dtype(start), start.astype(F64)
    path = np.empty((len(at), *start.shape), start.dtype.newbyteorder("="))
    shape = (*start.shape[:-1], len(at), start.shape[-1])
    out, buffer = prepare_out(function, out, shape, start.dtype, (start,))

    def slope(t: float, state: Float64) -> Float64:
        found = as_data(function, "h", h(t, state.astype(kind)))
        if found.shape != start.shape:
            fail(ValueError, function, "h", f"a result of shape {found.shape}", str(start.shape))
        return found.astype(F64)

    for k, t in enumerate(at):
        if k:
            step = (t - at[k - 1]) / steps
            for substep in range(steps):
                now = at[k - 1] + substep * step
                slopes: list[Float64] = []
                for row in rows:
                    moved = sum((step * c * s for c, s in zip(row, slopes, strict=True)), np.zeros_like(p))
                    slopes.append(slope(float(now + sum(row) * step), p + moved))
                p = p + sum((step * c * s for c, s in zip(weights, slopes, strict=True)), np.zeros_like(p))
        path[k] = p
    buffer[...] = np.moveaxis(path, 0, -2)
    return finish_out(out, buffer)
