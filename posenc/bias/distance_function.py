"""A bias that is any Python function of the distance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .._core_api import convert, read
from .._core_api.arrays import F64, Array, Dtype, Float64
from .._core_api.door import door, fail, fail_value
from . import operator
from .kinds import fill_matrix, read_diagonal_sums
from .operator import Bias, Gradients, Kind, PositionBias, Scheme, Term
from .positions import Positions

_BLOCK = 1 << 20
"""Pairs whose distances are in memory at a time."""
_MOST = 1 << 22
"""Most distinct distances of a call of attention."""
_NO_DISTANCE = np.array([np.nan])
"""The distances of a call without pairs. The tables of kernels have a first entry, and NaN is visible to no call."""


Function = Callable[..., npt.ArrayLike]
Vjp = Callable[..., Sequence[npt.ArrayLike]]


class FunctionArrays(NamedTuple):
    """Arrays of `distance_function`, or their gradients.

    Attributes
    ----------
    arrays : tuple of arrays
        The arrays in the order of the argument, of any shapes.
    """

    arrays: tuple[Array, ...]


def _pairs(positions: Positions) -> tuple[Float64, Array]:
    """Return the distinct distances, ascending, and for each pair (..., n, m) the number of its distance."""
    rel = positions.pair_distances()
    distances, number = np.unique(rel, return_inverse=True)
    return distances, number.reshape(rel.shape)


def _matrix(bias: Bias, positions: Positions, dtype: Dtype, out: Array | None) -> Array:
    positions = positions.as_consecutive()
    if positions.arrays is None:
        values = convert.result(_values(bias, _diagonals(positions)), dtype)
        return fill_matrix(values, positions.n, positions.m, out)
    distances, number = _pairs(positions)
    return convert.store(out, np.moveaxis(_values(bias, distances)[:, number], 0, -3), dtype)


def _place(bias: Bias, positions: Positions, dtype: Dtype) -> Term:
    """Return the term with the values of the call's distances."""
    for array in bias.arrays.arrays:
        convert.operand("arrays", array, dtype)  # which refuses numbers beyond its range
    distances = _diagonals(positions) if positions.arrays is None else _distinct(positions)
    values = _values(bias, distances, positions.low, positions.high)
    return Term(bias.name, {"function": values, "distances": distances}, *bias.own_positions, bool(bias.arrays.arrays))


def _gradient(bias: Bias, sums: Gradients, term: Term) -> Gradients:
    return (_values_vjp(bias, sums[0], term.operands["distances"]) if sums else (),)


def _vjp(bias: Bias, grad: Array, positions: Positions) -> Gradients:
    positions = positions.as_consecutive()
    heads, n, m = bias.heads or 1, positions.n, positions.m
    if positions.arrays is None:
        diagonals = read_diagonal_sums(grad, heads, n, m)
        return (_values_vjp(bias, diagonals, _diagonals(positions)),)
    distances, number = _pairs(positions)
    batch = number.shape[:-2]
    cotangent, sums = operator.read_cotangent(grad, (*batch, heads, n, m)), np.zeros((heads, len(distances)))
    for row in np.ndindex(batch):
        sums += [np.bincount(number[row].ravel(), of_head.ravel(), len(distances)) for of_head in cotangent[row]]
    return (_values_vjp(bias, sums, distances),)


FUNCTION = Scheme(
    "distance_function", Kind(_gradient, _matrix, _vjp, place=_place), FunctionArrays, operands=lambda bias: {}
)


def _values(bias: Bias, rel: Float64, low: float = -np.inf, high: float = np.inf) -> Float64:
    """Return the values (H, L) of the visible distances, and 0 for others."""
    heads = bias.heads or 1
    values = np.zeros((heads, len(rel)))
    seen = (rel >= low) & (rel <= high)
    if not seen.any():
        return values
    visible = rel[seen]
    visible.flags.writeable = False
    found = read.data("function", bias.options["function"](visible, *bias.arrays.arrays))
    has_heads = bias.options["heads"] is not None
    if found.shape != ((heads, len(visible)) if has_heads else visible.shape):
        hint = "" if has_heads or found.ndim != 2 else f"; pass heads={len(found)} for a result of heads and distances"
        expected = f"({heads}, {len(visible)}), heads and distances" if has_heads else f"({len(visible)},){hint}"
        fail(ValueError, "function", f"a result of shape {found.shape}", expected)
    found = found.astype(F64, copy=False).reshape(heads, len(visible))
    bad = np.isnan(found) | (found == np.inf)
    if bad.any():
        at = visible[bad.any(axis=0)][0]
        fail(ValueError, "function", f"{found[bad][0]} at distance {at}", "numbers, or -inf for a mask")
    values[:, seen] = found
    return values


def _values_vjp(bias: Bias, grad: Array, rel: Float64) -> tuple[Array, ...]:
    """Return the gradient of each array for a cotangent (H, L) of the values."""
    arrays, vjp = bias.arrays.arrays, bias.options["vjp"]
    if not arrays or np.isnan(rel).all():  # there are no pairs
        return tuple(np.zeros(array.shape) for array in arrays)
    if vjp is None:
        fail_value(TypeError, "vjp", None, "a function, because there are arrays")
    gradients = vjp(grad if bias.options["heads"] is not None else grad[0], rel, *arrays)
    if not isinstance(gradients, tuple | list) or len(gradients) != len(arrays):
        count = len(gradients) if isinstance(gradients, tuple | list) else type(gradients).__name__
        fail(ValueError, "vjp", f"a result of {count}", f"a tuple of {len(arrays)}, one per array")
    found = tuple(np.array(read.data("vjp", one)) for one in gradients)  # the function may use its arrays again
    for gradient, array in zip(found, arrays, strict=True):
        if gradient.shape != array.shape:
            fail(ValueError, "vjp", f"a gradient of shape {gradient.shape}", str(array.shape))
    return found


def _diagonals(positions: Positions) -> Float64:
    """Return the distances of all diagonals, which occur unless there are no queries or no keys."""
    distances = positions.distances()
    return distances if positions.n and positions.m else distances * np.nan


def _distinct(positions: Positions) -> Float64:
    """Return the distinct distances of a call of attention, ascending; `_NO_DISTANCE` if there are none."""
    q, k = positions.as_arrays()
    step = max(1, _BLOCK // max(1, positions.m * prod(positions.batch)))
    distances = np.empty(0)
    for first in range(0, positions.n, step):
        rel = np.subtract(k[..., None, :], q[..., first : first + step, None]).astype(F64, copy=False)
        distances = np.union1d(distances, rel)
        if len(distances) > _MOST:
            what = f"more than {_MOST} distinct distances from k_positions"
            fail(ValueError, "q_positions", what, "integers, or fewer positions in a call")
    return distances if len(distances) else _NO_DISTANCE


@door
def distance_function(
    function: Function, heads: int | None = None, *, arrays: Sequence[npt.ArrayLike] = (), vjp: Vjp | None = None
) -> PositionBias[FunctionArrays]:
    """Return a bias that is any Python function of the distance.

    ``b[h](rel) = function(rel, *arrays)[h]``

    Parameters
    ----------
    function : callable
        ``function(rel, *arrays)`` returns the bias of each head and distance, (heads, L), for float64 distances (L,).
        -inf masks a pair. A call of `attention`, `attention_vjp` or `matrix` calls the function once; `attention`
        leaves out distances that causality and windows mask. The function must not change its arguments.
    heads : int, optional
        H. Without it there is one head, and the function returns (L,).
    arrays : sequence of arrays
        Parameters of the function, finite; copied. Differentiable if `vjp` is passed.
    vjp : callable, optional
        ``vjp(grad, rel, *arrays)`` returns one gradient per array for a cotangent of the function's result.

    Returns
    -------
    PositionBias
        For ``attention(bias=...)``, at any N and M, in decoding too. It can be pickled if the functions can.

    Raises
    ------
    TypeError
        A `function` that cannot be called, results that are no numbers; a gradient without `vjp` if there are arrays.
    ValueError
        Arrays that are not finite, results of another shape, NaN or +inf at a visible distance. In `attention`, more
        than 2**22 distinct distances of positions that are not consecutive.

    Notes
    -----
    `toeplitz` takes the numbers themselves, for one N and one M.

    Examples
    --------
    A window for one head:

    >>> import numpy as np, posenc
    >>> posenc.distance_function(lambda rel: np.where(abs(rel) < 2, 0.0, -np.inf)).matrix(3)
    array([[[  0.,   0., -inf],
            [  0.,   0.,   0.],
            [-inf,   0.,   0.]]], dtype=float32)

    A learned Gaussian window for H heads, with its gradient:

    >>> def window(rel, width):
    ...     return -((rel / width[:, None]) ** 2)
    >>> def window_vjp(grad, rel, width):
    ...     return (2 * (grad * rel**2).sum(-1) / width**3,)
    >>> bias = posenc.distance_function(window, 1, arrays=[np.array([2.0])], vjp=window_vjp)
    >>> bias.matrix(3)
    array([[[-0.  , -0.25, -1.  ],
            [-0.25, -0.  , -0.25],
            [-1.  , -0.25, -0.  ]]], dtype=float32)
    >>> bias.matrix_vjp(np.ones((1, 3, 3)), 3).arrays
    (array([3.]),)
    """
    for argument, value in (("function", function), ("vjp", vjp)):
        if not callable(value) and not (argument == "vjp" and value is None):
            fail(TypeError, argument, f"type {type(value).__name__}", "a function")
    if not isinstance(arrays, tuple | list):
        fail(TypeError, "arrays", f"type {type(arrays).__name__}", "a tuple or list of arrays")
    kept = tuple(operator.copy_finite("arrays", read.data("arrays", array)) for array in arrays)
    count = None if heads is None else read.index("heads", heads, 1)
    options = {"function": function, "heads": count, "vjp": vjp}
    return FUNCTION.from_arrays(kept, options=options)
