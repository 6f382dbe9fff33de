"""A bias that is any Python function of the distance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
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


def _matrix(bias: Bias, positions: Positions, dtype: Dtype, out: Array | None) -> Array:
    positions = positions.as_consecutive()
    n, m = positions.n, positions.m
    if positions.arrays is None:
        values = convert.result(_values(bias, _diagonals(positions)), dtype)
        return fill_matrix(values, n, m, out)
    batch = np.broadcast_shapes(*(array.shape[:-1] for array in positions.arrays))
    heads = bias.heads or 1
    result = np.empty((*batch, heads, n, m), dtype)
    for distances, blocks in _groups(positions):
        values = _values(bias, distances)
        for rows, rel in blocks:
            flat = rel.reshape(*batch, rel.shape[-2] * m)
            block = _core.distance_function(function=values, distances=distances, rel=flat, dtype=F64)
            result[..., rows, :] = convert.result(block.reshape(*batch, heads, rel.shape[-2], m), dtype)
    return result if out is None else convert.store(out, result, dtype)


def _place(bias: Bias, positions: Positions, dtype: Dtype) -> Term:
    """Return the term with the values of the call's distances."""
    for array in bias.arrays.arrays:
        convert.operand("arrays", array, dtype)  # which refuses numbers beyond its range
    distances = _distances(positions)
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
    batch = np.broadcast_shapes(*(array.shape[:-1] for array in positions.arrays))
    cotangent = operator.read_cotangent(grad, (*batch, heads, n, m))
    total: tuple[Array, ...] = tuple(np.zeros(array.shape) for array in bias.arrays.arrays)
    for distances, blocks in _groups(positions):
        values, sums = np.zeros((2, heads, len(distances)))
        for rows, rel in blocks:
            for row in np.ndindex(batch):
                flat = np.ascontiguousarray(cotangent[(*row, slice(None), rows)]).reshape(heads, -1)
                _core.distance_function_vjp(
                    grad=flat, function=values, distances=distances, rel=rel[row].reshape(-1), d_function=sums
                )
        total = tuple(map(np.add, total, _values_vjp(bias, sums, distances)))
    return (total,)


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


def _values_vjp(
    bias: Bias, grad: Float64, rel: Float64, low: float = -np.inf, high: float = np.inf
) -> tuple[Array, ...]:
    """Return the gradient of each array for a cotangent (H, L) of the values."""
    arrays = bias.arrays.arrays
    if not arrays:
        return ()
    seen = (rel >= low) & (rel <= high)
    if not seen.any():
        return tuple(np.zeros(array.shape) for array in arrays)
    cotangent = np.ascontiguousarray(grad[:, seen])
    return _call_vjp(bias, cotangent if bias.options["heads"] is not None else cotangent[0], rel[seen])


def _distances(positions: Positions) -> Float64:
    """Return the distances of a call whose values are needed: those of all diagonals, or the distinct ones."""
    return _diagonals(positions) if positions.arrays is None else _distinct(positions, _MOST)


def _diagonals(positions: Positions) -> Float64:
    """Return the distances of all diagonals, which occur unless there are no queries or no keys."""
    distances = positions.distances()
    return distances if positions.n and positions.m else distances * np.nan


def _are_integers(positions: Positions) -> bool:
    return positions.arrays is not None and all(array.dtype.kind == "i" for array in positions.arrays)


def _rel_blocks(positions: Positions) -> Iterator[tuple[slice, Float64]]:
    """Yield slices of queries, and the distances of these queries from all keys."""
    q, k = positions.as_arrays()
    batch = np.broadcast_shapes(q.shape[:-1], k.shape[:-1])
    step = max(1, _BLOCK // max(1, positions.m * int(np.prod(batch))))
    for first in range(0, positions.n, step):
        rows = slice(first, min(first + step, positions.n))
        yield rows, np.subtract(k[..., None, :], q[..., rows, None]).astype(F64, copy=False)


def _groups(positions: Positions) -> Iterator[tuple[Float64, Iterable[tuple[slice, Float64]]]]:
    """Yield the distinct distances of blocks of queries, and these blocks: all of them if positions are integers."""
    if _are_integers(positions):
        yield _distinct(positions), _rel_blocks(positions)
        return
    for rows, rel in _rel_blocks(positions):
        yield np.unique(rel) if rel.size else _NO_DISTANCE, [(rows, rel)]


def _distinct(positions: Positions, most: float = np.inf) -> Float64:
    """Return the distinct distances of a call, ascending; `_NO_DISTANCE` if there are none."""
    distances = np.empty(0)
    for _, rel in _rel_blocks(positions):
        distances = np.union1d(distances, rel)
        if len(distances) > most:
            what = f"more than {most} distinct distances from k_positions"
            fail(ValueError, "q_positions", what, "integers, or fewer positions in a call")
    return distances if len(distances) else _NO_DISTANCE


def _call_vjp(bias: Bias, grad: Array, rel: Array) -> tuple[Array, ...]:
    """Return the gradient of each array for a cotangent of the result of the user's function."""
    arrays, vjp = bias.arrays.arrays, bias.options["vjp"]
    if not arrays:
        return ()
    if vjp is None:
        fail_value(TypeError, "vjp", None, "a function, because there are arrays")
    gradients = vjp(grad, rel, *arrays)
    if not isinstance(gradients, tuple | list) or len(gradients) != len(arrays):
        count = len(gradients) if isinstance(gradients, tuple | list) else type(gradients).__name__
        fail(ValueError, "vjp", f"a result of {count}", f"a tuple of {len(arrays)}, one per array")
    found = tuple(
        np.array(read.data("vjp", gradient)) for gradient in gradients
    )  # the function may use its arrays again
    for gradient, array in zip(found, arrays, strict=True):
        if gradient.shape != array.shape:
            fail(ValueError, "vjp", f"a gradient of shape {gradient.shape}", str(array.shape))
    return found


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
        -inf masks a pair. `attention` calls the function once, with the distances that causality and windows leave. The
        function must not change its arguments.
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
    `toeplitz` takes the numbers themselves, for one N and one M. Where positions are consecutive or integers, `matrix`
    calls the function once; else it calls it for blocks of queries.

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
    >>> bias.vjp(np.ones((1, 3, 3)), 3).arrays
    (array([3.]),)
    """
    for argument, value in (("function", function), ("vjp", vjp)):
        if not callable(value) and not (argument == "vjp" and value is None):
            fail(TypeError, argument, f"type {type(value).__name__}", "a function")
    if not isinstance(arrays, tuple | list):
        fail(TypeError, "arrays", f"type {type(arrays).__name__}", "a tuple or list of arrays")
    kept = tuple(np.array(read.data("arrays", array)) for array in arrays)
    for array in kept:
        if not np.isfinite(array.astype(F64, copy=False)).all():
            fail(ValueError, "arrays", "NaN or infinity", "finite numbers")
    count = None if heads is None else read.index("heads", heads, 1)
    options = {"function": function, "heads": count, "vjp": vjp}
    return FUNCTION.from_arrays(kept, options=options)
