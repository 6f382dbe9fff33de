"""Position biases: operators on the logits that read only positions.

Each function returns a `Bias`, which can be looked at, made a matrix, differentiated, or handed to `attention`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import namedtuple
from functools import cache
from typing import Any, ClassVar, NoReturn

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from . import _core
from ._call import (
    F32,
    F64,
    Array,
    Float64,
    as_data,
    as_index,
    as_number,
    as_parameter,
    as_positions,
    broadcasts_to,
    check_positions,
    fail,
    finish,
    output,
    reduce_to,
    result_dtype,
    working,
)

__all__ = ["Bias", "alibi", "alibi_slopes", "dense", "kerple_log", "toeplitz"]


@cache
def _arrays_of(row: str) -> tuple[tuple[str, str], ...]:
    """(name, axes) of each array of a row of the table, its distances left out."""
    inputs = _core.table()[row].split("->")[0]
    found = re.findall(r"(\w+)[?~!]*\((\w(?:,\w)*)\)", inputs)
    return tuple((name, axes.replace(",", "")) for name, axes in found if name != "rel")


@cache
def _tuple_of(row: str) -> Any:
    """The NamedTuple of a row's arrays, for its gradients."""
    return namedtuple(f"{row}_arrays", [name for name, _ in _arrays_of(row)])


_Where = tuple[Array, Array] | None


class Bias(ABC):
    """A description of an operator on the logits: its row of the table and its arrays. Immutable.

    Attributes
    ----------
    name : str
        The function that made it.
    arrays : NamedTuple
        Its arrays by name; read-only.
    """

    __slots__ = ("_dtypes", "arrays", "name")
    name: str
    arrays: Any
    _dtypes: tuple[np.dtype[Any], ...]
    reads_positions: ClassVar[bool] = True
    """Whether `attention` must know where queries and keys stand."""

    def __init__(self, name: str, arrays: tuple[Array, ...], dtypes: tuple[np.dtype[Any], ...]) -> None:
        for array in arrays:
            array.flags.writeable = False
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "arrays", _tuple_of(name)(*arrays))
        object.__setattr__(self, "_dtypes", dtypes)

    def __setattr__(self, attribute: str, value: object) -> NoReturn:
        raise AttributeError(f"{self.name}: a Bias is immutable; expected a new one with another {attribute}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, tuple(self.arrays), self._dtypes)

    def __repr__(self) -> str:
        shapes = ", ".join(
            f"{name} {array.shape}" for name, array in zip(self.arrays._fields, self.arrays, strict=True)
        )
        return f"<posenc.{self.name}: {shapes}>"

    def matrix(
        self,
        n: int,
        m: int | None = None,
        *,
        q_positions: npt.ArrayLike | None = None,
        k_positions: npt.ArrayLike | None = None,
        dtype: npt.DTypeLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """The bias of n queries and m keys, (H, n, m).

        Parameters
        ----------
        n, m : int
            Numbers of queries and keys; m is n if None.
        q_positions, k_positions : array (n,) and (m,), optional
            Where they stand. Without, key j is at j and query i at i + m - n: the queries are the last n of the keys.
            With one of the two, the other is 0, 1, 2, .... (`attention` asks for ``align`` where n and m differ.)
        dtype : dtype, optional
            float32 unless given, or that of `out`.
        out : array (H, n, m), optional
            Filled and returned.

        Returns
        -------
        ndarray (H, n, m)
            Where the bias depends only on distance and positions are consecutive: a read-only view with strides
            ``(., -s, s)`` over H rows of n + m - 1 numbers, which costs next to nothing at any length. Else, and with
            `out`, dense.

        Examples
        --------
        >>> import posenc
        >>> posenc.alibi([1.0]).matrix(2, 3)
        array([[[-1.,  0., -1.],
                [-2., -1.,  0.]]], dtype=float32)
        """
        function = f"{self.name}.matrix"
        n, m = lengths(function, n, m)
        where = position_pair(function, n, m, q_positions, k_positions)
        return self._matrix(function, n, m, where, result_dtype(function, dtype, out), out)

    def vjp(
        self,
        grad: npt.ArrayLike,
        n: int,
        m: int | None = None,
        *,
        q_positions: npt.ArrayLike | None = None,
        k_positions: npt.ArrayLike | None = None,
    ) -> Any:
        """Gradient of `matrix` with respect to the operator's arrays.

        Parameters
        ----------
        grad : array (..., H, n, m) or (..., H, n + m - 1)
            Cotangent of the matrix; where the matrix is a view, its sums along diagonals, entry ``j - i + n - 1``, do.
        n, m, q_positions, k_positions
            As in `matrix`.

        Returns
        -------
        NamedTuple
            One gradient for each array, in its shape and dtype, summed over leading axes of `grad`.

        Examples
        --------
        >>> import numpy as np, posenc
        >>> posenc.alibi([1.0]).vjp(np.ones((1, 2, 2)), 2)
        alibi_arrays(slopes=array([-2.]))
        """
        function = f"{self.name}.vjp"
        n, m = lengths(function, n, m)
        where = position_pair(function, n, m, q_positions, k_positions)
        gradients = self._vjp(function, as_data(function, "grad", grad), n, m, where)
        return _tuple_of(self.name)(*(g.astype(t, copy=False) for g, t in zip(gradients, self._dtypes, strict=True)))

    @abstractmethod
    def _matrix(self, function: str, n: int, m: int, where: _Where, dtype: np.dtype[Any], out: Array | None) -> Array:
        """What `matrix` returns; where is (positions of queries, of keys), or None for the last n of m."""

    @abstractmethod
    def _vjp(self, function: str, grad: Array, n: int, m: int, where: _Where) -> tuple[Array, ...]:
        """The gradient of each array, in its shape, as float64."""

    @abstractmethod
    def term(self, function: str, wide: bool, shape: tuple[int, ...], distances: Float64 | None) -> tuple[Any, ...]:
        """This operator as `_core.attention` takes it, for logits of `shape` (..., H, n, m).

        distances are those of the n + m - 1 diagonals where positions are consecutive, else None.
        """

    def logits(self, q: npt.ArrayLike, k: npt.ArrayLike, **options: Any) -> NoReturn:
        """A position bias reads neither q nor k: TypeError. Use `matrix`."""
        fail(TypeError, self.name, "logits", "a position operator", "an operator that reads q and k; use matrix")

    def logits_vjp(self, grad: npt.ArrayLike, q: npt.ArrayLike, k: npt.ArrayLike, **options: Any) -> NoReturn:
        """A position bias reads neither q nor k: TypeError. Use `vjp`."""
        fail(TypeError, self.name, "logits_vjp", "a position operator", "an operator that reads q and k; use vjp")


def lengths(function: str, n: int, m: int | None) -> tuple[int, int]:
    n = as_index(function, "n", n, 0)
    return n, n if m is None else as_index(function, "m", m, 0)


def consecutive(positions: Array) -> bool:
    """Whether positions are (N,) integers that go up by one."""
    return positions.ndim == 1 and positions.dtype.kind == "i" and bool((np.diff(positions) == 1).all())


def position_pair(function: str, n: int, m: int, q_positions: Any, k_positions: Any) -> _Where:
    """Positions of queries and keys, or None where neither is given; one alone has 0, 1, 2, ... beside it."""
    if q_positions is None and k_positions is None:
        return None
    pair = []
    for argument, given, length in (("q_positions", q_positions, n), ("k_positions", k_positions, m)):
        array = as_positions(function, argument, length if given is None else given)
        check_positions(function, argument, array)
        if array.shape[-1] != length:
            fail(ValueError, function, argument, f"length {array.shape[-1]}", str(length))
        pair.append(array)
    try:
        np.broadcast_shapes(pair[0].shape[:-1], pair[1].shape[:-1])
    except ValueError:
        batch = f"batch axes {pair[1].shape[:-1]}"
        fail(ValueError, function, "k_positions", batch, f"to broadcast against {pair[0].shape[:-1]}")
    return pair[0], pair[1]


def diagonal_distances(n: int, m: int, shift: float) -> Float64:
    """rel of the diagonals t = j - i + n - 1 when query i is at i + shift and key j at j."""
    return np.arange(max(n + m - 1, 0), dtype=np.float64) - (n - 1 + shift)


def matrix_view(row: Array, n: int, m: int) -> Array:
    """(..., n + m - 1) numbers as the read-only (..., n, m) matrix whose entry (i, j) is number j - i + n - 1."""
    if n == 0 or m == 0:
        return np.empty((*row.shape[:-1], n, m), row.dtype)
    step = row.strides[-1]
    return as_strided(row[..., n - 1 :], (*row.shape[:-1], n, m), (*row.strides[:-1], -step, step), writeable=False)


def fill_matrix(function: str, row: Array, n: int, m: int, out: Array | None) -> Array:
    """The view of `row`, or `out` filled from it."""
    if out is None:
        return matrix_view(row, n, m)
    out, memory, staged = output(function, out, (*row.shape[:-1], n, m), row.dtype, (row,))
    if n and m:
        _core.toeplitz_matrix(function, row, memory)
    return finish(out, staged)


def diagonal_sums(function: str, grad: Array, n: int, m: int) -> Float64:
    """Sums of (..., n, m) along its diagonals, float64 (..., n + m - 1)."""
    sums = np.zeros((*grad.shape[:-2], max(n + m - 1, 0)))
    if grad.size:
        _core.diagonal_sums(function, grad, sums)
    return sums


def summed_rows(function: str, grad: Array, heads: int, n: int, m: int) -> Float64:
    """A cotangent of a matrix view, given dense or as diagonal sums, as (heads, n + m - 1)."""
    if grad.shape[-3:] == (heads, n, m):
        grad = diagonal_sums(function, grad, n, m)
    elif grad.shape[-2:] != (heads, max(n + m - 1, 0)):
        expected = f"(..., {heads}, {n}, {m}) or (..., {heads}, {max(n + m - 1, 0)})"
        fail(ValueError, function, "grad", f"shape {grad.shape}", expected)
    return reduce_to(grad.astype(F64, copy=False), (heads, max(n + m - 1, 0)), F64)


def check_heads(function: str, name: str, heads: int, shape: tuple[int, ...]) -> None:
    if heads != shape[-3]:
        fail(ValueError, function, "bias", f"{heads} heads ({name})", f"{shape[-3]}, axis -3 of q")


def fits_end(function: str, grad: Array, shape: tuple[int, ...]) -> Array:
    """A dense cotangent whose last axes are the matrix's."""
    if grad.ndim < len(shape) or grad.shape[grad.ndim - len(shape) :] != shape:
        fail(ValueError, function, "grad", f"shape {grad.shape}", f"(..., {', '.join(map(str, shape))})")
    return grad


class Distance(Bias):
    """A bias that is a function of rel alone: a DISTANCE row of the table."""

    __slots__ = ()

    @property
    def heads(self) -> int:
        for (_, axes), array in zip(_arrays_of(self.name), self.arrays, strict=True):
            if "h" in axes:
                return int(array.shape[axes.index("h")])
        return 1

    def _values(self, function: str, rel: Float64, dtype: np.dtype[Any]) -> Array:
        """b_h(rel), (..., H, l)."""
        values = np.empty((*rel.shape[:-1], self.heads, rel.shape[-1]), dtype)
        getattr(_core, self.name)(function, *self.arrays, rel, values)
        return values

    def _rel(self, n: int, m: int, where: _Where) -> tuple[Float64, bool]:
        """Distances of the diagonals and True, or (..., n, m) distances and False."""
        if where is None:
            return diagonal_distances(n, m, m - n), True
        q, k = where
        if consecutive(q) and consecutive(k):
            return diagonal_distances(n, m, float(q[0] - k[0]) if n and m else 0.0), True
        return np.subtract(k[..., None, :], q[..., :, None]).astype(F64, copy=False), False

    def _matrix(self, function: str, n: int, m: int, where: _Where, dtype: np.dtype[Any], out: Array | None) -> Array:
        rel, is_row = self._rel(n, m, where)
        if is_row:
            return fill_matrix(function, self._values(function, rel, dtype), n, m, out)
        values = self._values(function, rel.reshape(*rel.shape[:-2], n * m), dtype)
        out, memory, staged = output(function, out, (*values.shape[:-1], n, m), dtype)
        memory[...] = values.reshape(memory.shape)
        return finish(out, staged)

    def _vjp(self, function: str, grad: Array, n: int, m: int, where: _Where) -> tuple[Array, ...]:
        rel, is_row = self._rel(n, m, where)
        if is_row:
            return self._sum(function, summed_rows(function, grad, self.heads, n, m), rel)
        shape = (*rel.shape[:-2], self.heads, n, m)
        weights = reduce_to(fits_end(function, grad, shape).astype(F64, copy=False), shape, F64)
        total = tuple(np.zeros(array.shape) for array in self.arrays)
        for batch in np.ndindex(shape[:-3]):
            part = self._sum(function, weights[batch].reshape(self.heads, n * m), rel[batch].reshape(n * m))
            total = tuple(map(np.add, total, part))
        return total

    def _sum(self, function: str, weights: Float64, rel: Float64) -> tuple[Array, ...]:
        sums = tuple(np.zeros(array.shape) for array in self.arrays)
        getattr(_core, f"{self.name}_vjp")(function, weights, *self.arrays, rel, *sums)
        return sums

    def term(self, function: str, wide: bool, shape: tuple[int, ...], distances: Float64 | None) -> tuple[Any, ...]:
        check_heads(function, self.name, self.heads, shape)
        if distances is None:
            return (self.name, *self.arrays)
        return ("toeplitz", self._values(function, distances, F64 if wide else F32))


class Toeplitz(Bias):
    """A number for each diagonal."""

    __slots__ = ()
    reads_positions = False

    def _check(self, function: str, n: int, m: int) -> None:
        have = self.arrays.diagonals.shape[1]
        if have != max(n + m - 1, 0):
            fail(ValueError, function, "diagonals", f"{have} entries", f"n + m - 1 = {max(n + m - 1, 0)}")

    def _matrix(self, function: str, n: int, m: int, where: _Where, dtype: np.dtype[Any], out: Array | None) -> Array:
        self._check(function, n, m)
        return fill_matrix(function, self.arrays.diagonals.astype(dtype, copy=False), n, m, out)

    def _vjp(self, function: str, grad: Array, n: int, m: int, where: _Where) -> tuple[Array, ...]:
        self._check(function, n, m)
        return (summed_rows(function, grad, self.arrays.diagonals.shape[0], n, m),)

    def term(self, function: str, wide: bool, shape: tuple[int, ...], distances: Float64 | None) -> tuple[Any, ...]:
        check_heads(function, self.name, self.arrays.diagonals.shape[0], shape)
        self._check(function, *shape[-2:])
        return (self.name, self.arrays.diagonals.astype(F64 if wide else F32, copy=False))


class Dense(Bias):
    """A number for each query and key."""

    __slots__ = ()
    reads_positions = False

    def _shape(self, function: str, n: int, m: int) -> tuple[int, ...]:
        have = self.arrays.array.shape
        if any(length not in (1, wanted) for length, wanted in zip(have[-2:], (n, m), strict=True)):
            fail(ValueError, function, "array", f"shape {have}", f"(..., {n}, {m})")
        return (*have[:-2], n, m)

    def _matrix(self, function: str, n: int, m: int, where: _Where, dtype: np.dtype[Any], out: Array | None) -> Array:
        matrix = np.broadcast_to(self.arrays.array.astype(dtype, copy=False), self._shape(function, n, m))
        if out is None:
            return matrix
        out, memory, staged = output(function, out, matrix.shape, dtype, (matrix,))
        np.copyto(memory, matrix)
        return finish(out, staged)

    def _vjp(self, function: str, grad: Array, n: int, m: int, where: _Where) -> tuple[Array, ...]:
        given = fits_end(function, grad, self._shape(function, n, m))
        return (reduce_to(given.astype(F64, copy=False), self.arrays.array.shape, F64),)

    def term(self, function: str, wide: bool, shape: tuple[int, ...], distances: Float64 | None) -> tuple[Any, ...]:
        array = self.arrays.array
        if not broadcasts_to(array.shape, shape):
            fail(ValueError, function, "array", f"shape {array.shape}", f"to broadcast to {shape}")
        small = working(array, wide)  # before it is broadcast: afterwards a copy would be H x N x M
        if not (small.dtype.isnative and small.flags.aligned):
            small = small.astype(small.dtype.newbyteorder("="))
        return (self.name, np.broadcast_to(small, (*array.shape[:-3], *shape[-3:])))


def _distance(name: str, *arrays: Any) -> Bias:
    """A DISTANCE row over arrays that a user gave: ranks and common lengths are read off the row."""
    dtypes, kept = [], []
    known: dict[str, int] = {}
    for (argument, axes), given in zip(_arrays_of(name), arrays, strict=True):
        dtypes.append(as_data(name, argument, given).dtype)
        array = as_parameter(name, argument, given, len(axes))
        for axis, length in zip(axes, array.shape, strict=True):
            if known.setdefault(axis, length) != length:
                fail(ValueError, name, argument, f"length {length}", str(known[axis]))
        kept.append(array)
    return Distance(name, tuple(kept), tuple(dtypes))


def alibi_slopes(heads: int, *, bias_max: float = 8.0) -> Float64:
    """ALiBi's slopes: ``m[h] = 2**(-bias_max (h + 1) / H)`` for H a power of two.

    Parameters
    ----------
    heads : int
        H, at least 1.
    bias_max : float
        8 in the paper; ``alibi_bias_max`` of MPT.

    Returns
    -------
    ndarray of float64, shape (heads,)
        For other H, the slopes of the power of two below, then every second slope of the power of two above, as the
        authors' code, BLOOM, Falcon and MPT order them. They are not sorted.

    Raises
    ------
    TypeError, ValueError
        `heads` is no positive integer, `bias_max` no number.

    Notes
    -----
    Press et al. 2022 (Train Short, Test Long), section 3. A formula with ``2**(1 / (log2 H + 3))`` in the exponent is
    in circulation; it is garbled: at H = 8 it gives 0.459, 0.211, ... where the paper has 1/2, 1/4, ....

    Examples
    --------
    >>> import posenc
    >>> posenc.alibi_slopes(8)[:3]
    array([0.5  , 0.25 , 0.125])
    >>> posenc.alibi_slopes(3)
    array([0.0625    , 0.00390625, 0.25      ])
    """
    function = "alibi_slopes"
    heads = as_index(function, "heads", heads, 1)
    top = as_number(function, "bias_max", bias_max)
    power = 1 << (heads.bit_length() - 1)
    slopes = 2.0 ** (-top * np.arange(1, power + 1) / power)
    between = 2.0 ** (-top * np.arange(1, 2 * power + 1, 2) / (2 * power))
    return np.concatenate([slopes, between[: heads - power]])


def alibi(slopes: npt.ArrayLike) -> Bias:
    """ALiBi: ``b[h](rel) = -slopes[h] |rel|``.

    Parameters
    ----------
    slopes : array (H,)
        Finite; see `alibi_slopes`. Differentiable, see `Bias.vjp`.

    Returns
    -------
    Bias
        For ``attention(bias=...)``; its `matrix` shows it.

    Raises
    ------
    TypeError, ValueError
        Slopes that are not one finite number per head.

    Notes
    -----
    Press et al. 2022, section 3. Added after the scaling of the logits. Code that adds ``m j`` or ``m (j - M + 1)``
    instead differs by a constant in each row, which the softmax of a causal attention does not see; only this form is
    right without a causal mask. Falcon also divides the bias by sqrt(D).

    Examples
    --------
    >>> import posenc
    >>> posenc.alibi(posenc.alibi_slopes(8)).matrix(3)[0]
    array([[ 0. , -0.5, -1. ],
           [-0.5,  0. , -0.5],
           [-1. , -0.5,  0. ]], dtype=float32)
    """
    return _distance("alibi", slopes)


def kerple_log(r1: npt.ArrayLike, r2: npt.ArrayLike) -> Bias:
    """KERPLE, logarithmic: ``b[h](rel) = -r1[h] log(1 + r2[h] |rel|)``.

    Parameters
    ----------
    r1, r2 : array (H,)
        Finite; r2 at least 0 (both positive in the paper). Differentiable.

    Returns
    -------
    Bias

    Raises
    ------
    TypeError, ValueError
        Parameters that are not one finite number per head, or a negative r2.

    Notes
    -----
    Chi et al. 2022 (KERPLE), equation 6, there for a causal model. The authors' code clamps both parameters to at least
    0.01 in each forward pass; here they are taken as they are.

    Examples
    --------
    >>> import posenc
    >>> posenc.kerple_log([1.0], [1.0]).matrix(3).round(3)
    array([[[ 0.   , -0.693, -1.099],
            [-0.693,  0.   , -0.693],
            [-1.099, -0.693,  0.   ]]], dtype=float32)
    """
    bias = _distance("kerple_log", r1, r2)
    if (bias.arrays.r2 < 0).any():
        fail(ValueError, "kerple_log", "r2", "a negative number", "at least 0")
    return bias


def toeplitz(diagonals: npt.ArrayLike) -> Bias:
    """Your own function of row and column difference: entry (i, j) is ``diagonals[h, j - i + N - 1]``.

    Parameters
    ----------
    diagonals : array (H, N + M - 1)
        Finite. By row and column, whatever the positions. Differentiable.

    Returns
    -------
    Bias
        For N queries and M keys.

    Raises
    ------
    TypeError, ValueError
        An array that is not two-dimensional and finite.

    Examples
    --------
    >>> import posenc
    >>> posenc.toeplitz([[-1.0, 0.0, 1.0]]).matrix(2)
    array([[[ 0.,  1.],
            [-1.,  0.]]], dtype=float32)
    """
    given = as_data("toeplitz", "diagonals", diagonals)
    as_parameter("toeplitz", "diagonals", given, 2)
    kept = np.array(given, given.dtype.newbyteorder("="), order="C")
    return Toeplitz("toeplitz", (kept,), (kept.dtype,))


def dense(array: npt.ArrayLike) -> Bias:
    """Your own matrix: entry (i, j) is ``array[..., i, j]``.

    Parameters
    ----------
    array : array (..., N, M)
        Leading axes are (batch axes, H) and broadcast; axes of length 1 broadcast. -inf masks a pair. Not copied:
        changing it later changes the operator. By row and column, whatever the positions. Differentiable.

    Returns
    -------
    Bias

    Raises
    ------
    TypeError, ValueError
        An array with fewer than two axes, or of another dtype (a boolean mask is ``keep=`` of `attention`).

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.dense(np.zeros((4, 2, 3))).matrix(2, 3).shape
    (4, 2, 3)
    """
    given = as_data("dense", "array", array)
    if given.ndim < 2:
        fail(ValueError, "dense", "array", f"{given.ndim} axes", "at least 2, queries and keys")
    return Dense("dense", (given.view(),), (given.dtype,))
