"""A bias that is any Python function of the distance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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
    cast_operand,
    cast_result,
    fail,
    fail_value,
    finish_out,
    prepare_out,
    unbroadcast,
)
from ._diagonals import fill_matrix, read_diagonal_sums
from ._parameters import check_cotangent, check_heads
from ._positions import Positions
from .operator import PositionBias, Reduction, Reductions, Term
from .toeplitz import diagonal_term

__all__ = ["distance_function"]

Function = Callable[..., npt.ArrayLike]
Vjp = Callable[..., Sequence[npt.ArrayLike]]
_BLOCK = 1 << 20
"""Pairs whose distances are in memory at a time."""
_MOST = 1 << 22
"""Most distinct distances of a call of attention."""


class DistanceFunctionArrays(NamedTuple):
    """Arrays of `distance_function`, or their gradients."""

    arrays: tuple[Array, ...]


class DistanceFunctionBias(PositionBias[DistanceFunctionArrays]):
    """A function of the distance, called once with all distances that occur."""

    __slots__ = ()

    @property
    def _heads(self) -> int:
        return int(self.options["heads"])

    def _kernel_operands(self) -> tuple[Array, ...]:
        return ()

    def __repr__(self) -> str:
        function = self.options["function"]
        name = getattr(function, "__qualname__", type(function).__name__)
        shapes = "".join(f", {array.shape}" for array in self.arrays.arrays)
        return f"<posenc.distance_function: {name}, heads={self._heads}{shapes}>"

    # ---- calls of the functions ----

    def _values(self, function: str, rel: Float64, low: float = -np.inf, high: float = np.inf) -> Float64:
        """Return the values (H, L) of the visible distances, and 0 for others."""
        values = np.zeros((self._heads, len(rel)))
        seen = (rel >= low) & (rel <= high)
        if not seen.any():
            return values
        visible = rel[seen]
        visible.flags.writeable = False
        found = as_data(function, "function", self.options["function"](visible, *self.arrays.arrays))
        if found.shape != (self._heads, len(visible)):
            expected = f"({self._heads}, {len(visible)}), heads and distances"
            fail(ValueError, function, "function", f"a result of shape {found.shape}", expected)
        found = found.astype(F64, copy=False)
        bad = np.isnan(found) | (found == np.inf)
        if bad.any():
            at = visible[bad.any(axis=0)][0]
            fail(ValueError, function, "function", f"{found[bad][0]} at distance {at}", "numbers, or -inf for a mask")
        values[:, seen] = found
        return values

    def _values_vjp(
        self, function: str, grad: Float64, rel: Float64, low: float = -np.inf, high: float = np.inf
    ) -> tuple[tuple[Array, ...]]:
        """Return the gradient of each array for a cotangent (H, L) of the values."""
        arrays, vjp = self.arrays.arrays, self.options["vjp"]
        if not arrays:
            return ((),)
        if vjp is None:
            fail_value(TypeError, function, "vjp", None, "a function, because there are arrays")
        seen = (rel >= low) & (rel <= high)
        gradients = vjp(np.ascontiguousarray(grad[:, seen]), rel[seen], *arrays)
        if not isinstance(gradients, tuple | list) or len(gradients) != len(arrays):
            count = len(gradients) if isinstance(gradients, tuple | list) else type(gradients).__name__
            fail(ValueError, function, "vjp", f"a result of {count}", f"a tuple of {len(arrays)}, one per array")
        found = tuple(as_data(function, "vjp", gradient) for gradient in gradients)
        for gradient, array in zip(found, arrays, strict=True):
            if gradient.shape != array.shape:
                fail(ValueError, function, "vjp", f"a gradient of shape {gradient.shape}", str(array.shape))
        return (found,)

    def _named(self, gradients: tuple[Any, ...]) -> DistanceFunctionArrays:
        pairs = zip(gradients[0], self.arrays.arrays, strict=True)
        return DistanceFunctionArrays(tuple(cast_result(gradient, array.dtype) for gradient, array in pairs))

    # ---- methods ----

    def _matrix(self, function: str, positions: Positions, dtype: np.dtype[Any], out: Array | None) -> Array:
        positions = positions.as_consecutive()
        n, m = positions.n, positions.m
        if positions.arrays is None:
            values = cast_result(self._values(function, positions.distances), dtype)
            return fill_matrix(function, values, n, m, out)
        batch = np.broadcast_shapes(*(array.shape[:-1] for array in positions.arrays))
        result = np.empty((*batch, self._heads, n, m), dtype)
        for distances, blocks in _groups(positions):
            values = self._values(function, distances)
            for rows, rel in blocks:
                flat = rel.reshape(*batch, rel.shape[-2] * m)
                block = np.empty((*batch, self._heads, flat.shape[-1]))
                _core.distance_function(function, values=values, distances=distances, rel=flat, out=block)
                result[..., rows, :] = block.reshape(*batch, self._heads, rel.shape[-2], m)
        if out is None:
            return result
        out, buffer = prepare_out(function, out, result.shape, dtype, (result,))
        buffer[...] = result
        return finish_out(out, buffer)

    def _vjp(self, function: str, grad: Array, positions: Positions) -> tuple[tuple[Array, ...]]:
        positions = positions.as_consecutive()
        n, m = positions.n, positions.m
        if positions.arrays is None:
            sums = read_diagonal_sums(function, grad, self._heads, n, m)
            return self._values_vjp(function, sums, positions.distances)
        batch = np.broadcast_shapes(*(array.shape[:-1] for array in positions.arrays))
        shape = (*batch, self._heads, n, m)
        cotangent = unbroadcast(check_cotangent(function, grad, shape).astype(F64, copy=False), shape, F64)
        total: tuple[Array, ...] = tuple(np.zeros(array.shape) for array in self.arrays.arrays)
        for distances, blocks in _groups(positions):
            values, sums = np.zeros((2, self._heads, len(distances)))
            for rows, rel in blocks:
                for row in np.ndindex(batch):
                    flat = np.ascontiguousarray(cotangent[(*row, slice(None), rows)]).reshape(self._heads, -1)
                    _core.distance_function_vjp(
                        function, grad=flat, values=values, distances=distances, rel=rel[row].reshape(-1), d_values=sums
                    )
            (part,) = self._values_vjp(function, sums, distances)
            total = tuple(map(np.add, total, part))
        return (total,)

    # ---- attention ----

    def _term(self, function: str, dtype: np.dtype[Any], shape: tuple[int, ...], positions: Positions) -> Term:
        check_heads(function, self.name, self._heads, shape)
        for array in self.arrays.arrays:
            cast_operand(function, "arrays", array, dtype)
        if positions.arrays is None:
            values = self._values(function, positions.distances, positions.low, positions.high)
            return diagonal_term(cast_operand(function, "function", values, dtype))
        distances = _distinct(function, positions)
        values = self._values(function, distances, positions.low, positions.high)
        cast_operand(function, "function", values, dtype)
        return Term(self.name, {"values": values, "distances": distances})

    def _reductions(self, positions: Positions) -> tuple[Reduction, ...]:
        if not self.arrays.arrays:
            return ()
        return ("diagonals",) if positions.arrays is None else ("parameters",)

    def _gradient(self, function: str, reductions: Reductions, positions: Positions) -> tuple[tuple[Array, ...]]:
        if not self.arrays.arrays:
            return ((),)
        visible = (positions.low, positions.high)
        if positions.arrays is None:
            return self._values_vjp(function, reductions.diagonals, positions.distances, *visible)
        return self._values_vjp(function, reductions.parameters[0], _distinct(function, positions), *visible)


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
        yield _distinct("", positions), _rel_blocks(positions)
        return
    for rows, rel in _rel_blocks(positions):
        yield np.unique(rel), [(rows, rel)]


def _distinct(function: str, positions: Positions) -> Float64:
    """Return the distinct distances of a call, ascending."""
    distances = np.empty(0)
    for _, rel in _rel_blocks(positions):
        distances = np.union1d(distances, rel)
        if function and len(distances) > _MOST:
            what = f"more than {_MOST} distinct distances from k_positions"
            fail(ValueError, function, "q_positions", what, "integers, or fewer positions in a call")
    return distances


def distance_function(
    function: Function, heads: int, *, arrays: Sequence[npt.ArrayLike] = (), vjp: Vjp | None = None
) -> PositionBias[DistanceFunctionArrays]:
    """Return a bias that is any Python function of the distance.

    ``b[h](rel) = function(rel, *arrays)[h]``

    Parameters
    ----------
    function : callable
        ``function(rel, *arrays)`` returns the bias of each head and distance, (heads, L), for float64 distances (L,).
        -inf masks a pair. A call of `attention` calls it once, with the distances that causality and windows leave. It
        must not change its arguments.
    heads : int
        H.
    arrays : sequence of arrays
        Parameters of the function, finite; copied. Differentiable if `vjp` is passed.
    vjp : callable, optional
        ``vjp(grad, rel, *arrays)`` returns one gradient per array for a cotangent (heads, L).

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
    A learned Gaussian window, with its gradient:

    >>> import numpy as np, posenc
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
    name = "distance_function"
    for argument, value in (("function", function), ("vjp", vjp)):
        if not callable(value) and not (argument == "vjp" and value is None):
            fail(TypeError, name, argument, f"type {type(value).__name__}", "a function")
    if not isinstance(arrays, tuple | list):
        fail(TypeError, name, "arrays", f"type {type(arrays).__name__}", "a tuple or list of arrays")
    kept = tuple(np.array(as_data(name, "arrays", array)) for array in arrays)
    for array in kept:
        if not np.isfinite(array.astype(F64, copy=False)).all():
            fail(ValueError, name, "arrays", "NaN or infinity", "finite numbers")
        array.flags.writeable = False
    options = (("function", function), ("heads", as_index(name, "heads", heads, 1)), ("vjp", vjp))
    return DistanceFunctionBias(name, DistanceFunctionArrays(kept), (None,), options)
