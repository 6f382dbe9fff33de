"""What every operator on the logits is."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import namedtuple
from functools import cache
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import (
    Array,
    Float64,
    as_data,
    as_parameter,
    fail,
    result_dtype,
)
from ._diagonals import Where, lengths, position_pair

__all__ = ["Bias"]


@cache
def arrays_of(row: str) -> tuple[tuple[str, str], ...]:
    """(name, axes) of each array of a row of the table that an operator has. @ marks what the tile supplies, # what
    is derived from the operator."""
    inputs = _core.table()[row].split("->")[0]
    found = re.findall(r"(\w+)([?~!@#]*)\(((?:\w(?:,\w)*)?)\)", inputs)
    return tuple((name, axes.replace(",", "")) for name, marks, axes in found if not {"@", "#"} & {*marks})


@cache
def tuple_of(row: str, fields: tuple[str, ...] | None) -> Any:
    """The NamedTuple of an operator's arrays, for its gradients."""
    return namedtuple(f"{row}_arrays", [name for name, _ in arrays_of(row)] if fields is None else fields)


class Sums(NamedTuple):
    """Sums of dS, the gradient of the biased logits (..., H, N, M): what `attention_vjp` makes for an operator."""

    diagonals: Any = None
    """Over all (batch, i, j) of one j - i + N - 1: float64 (H, N + M - 1)."""
    rows: Any = None
    """Over the keys: float64 (..., H, N)."""
    columns: Any = None
    """Over the queries: float64 (..., H, M)."""
    pairs: Any = None
    """No sum: (..., N, M), reduced to the leading axes of the operator's array."""
    own: Any = None
    """The gradients themselves, float64 in the shapes of the arrays, where a DISTANCE row stands at irregular
    positions."""
    tables: Any = None
    """What the kernel added to the arrays of `Bias.tables`, without batch axes: float64 if anything was summed."""


class Bias(ABC):
    """A description of an operator on the logits: its row of the table and its arrays. Immutable.

    Attributes
    ----------
    name : str
        The function that made it.
    arrays : NamedTuple
        Its arrays by name; read-only.
    options : dict
        What else it was made with: integers and flags.
    """

    __slots__ = ("_dtypes", "_options", "arrays", "name")
    name: str
    arrays: Any
    _dtypes: tuple[np.dtype[Any], ...]
    _options: tuple[tuple[str, Any], ...]
    reads_positions: ClassVar[bool] = True
    """Whether `attention` must know where queries and keys stand."""
    within: ClassVar[tuple[Bias, ...]] = ()
    """Operators that come along with this one."""
    is_relative: ClassVar[bool] = True
    """Whether only differences of positions matter."""
    fields: ClassVar[tuple[str, ...] | None] = None
    """Names of the arrays where they are not those of the table."""

    def __init__(
        self,
        name: str,
        arrays: tuple[Any, ...],
        dtypes: tuple[Any, ...],
        options: tuple[tuple[str, Any], ...] = (),
    ) -> None:
        for array in arrays:
            if isinstance(array, np.ndarray):
                array.flags.writeable = False
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "arrays", tuple_of(name, self.fields)(*arrays))
        object.__setattr__(self, "_dtypes", dtypes)
        object.__setattr__(self, "_options", options)

    @property
    def options(self) -> dict[str, Any]:
        return dict(self._options)

    @property
    def operands(self) -> tuple[Array, ...]:
        """The arrays that the kernel takes; those that have gradients first."""
        return tuple(self.arrays)

    def __setattr__(self, attribute: str, value: object) -> NoReturn:
        raise AttributeError(f"{self.name}: a Bias is immutable; expected a new one with another {attribute}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, tuple(self.arrays), self._dtypes, self._options)

    def __repr__(self) -> str:
        shapes = [
            f"{name} {getattr(array, 'shape', array)}"
            for name, array in zip(self.arrays._fields, self.arrays, strict=True)
        ]
        return f"<posenc.{self.name}: {', '.join([*shapes, *(f'{name}={value}' for name, value in self._options)])}>"

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
        return self.as_gradients(self._vjp(function, as_data(function, "grad", grad), n, m, where))

    @abstractmethod
    def _matrix(self, function: str, n: int, m: int, where: Where, dtype: np.dtype[Any], out: Array | None) -> Array:
        """What `matrix` returns; where is (positions of queries, of keys), or None for the last n of m."""

    @abstractmethod
    def _vjp(self, function: str, grad: Array, n: int, m: int, where: Where) -> tuple[Array, ...]:
        """The gradient of each array, in its shape, as float64."""

    @abstractmethod
    def term(
        self,
        function: str,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        distances: Float64 | None,
        where: Where = None,
    ) -> tuple[Any, ...]:
        """This operator as `_core.attention` takes it, for logits of `shape` (..., H, n, m).

        distances are those of the n + m - 1 diagonals where positions are consecutive, else None, and where is then
        the positions of queries and keys.
        """

    @abstractmethod
    def wants(self, shape: tuple[int, ...], distances: Float64 | None) -> tuple[str, ...]:
        """The fields of Sums that `gradients` reads; arguments as of `term`."""

    @abstractmethod
    def gradients(self, function: str, sums: Sums, distances: Float64 | None, where: Where = None) -> tuple[Array, ...]:
        """The gradient of each array, in its shape, from the sums that were wanted."""

    def as_gradients(self, gradients: tuple[Any, ...]) -> Any:
        """Gradients by name, in the dtypes that the arrays were given in."""
        pairs = zip(gradients, self._dtypes, strict=True)
        return type(self.arrays)(*(g if g is None or t is None else g.astype(t, copy=False) for g, t in pairs))

    def tables(
        self, shape: tuple[int, ...], batch: tuple[int, ...], rows: int, dtype: np.dtype[Any]
    ) -> tuple[Array | None, ...]:
        """Room for the gradients at the end of the operator's row: zeros (batch axes, rows, ...)."""
        return ()

    def default_scale(self, width: int) -> float | None:
        """The scale that `attention` takes where the operator wants another than ``D**-0.5``."""
        return None

    def check_widths(self, function: str, width: int, value_width: int | None) -> None:  # noqa: B027
        """Refuse what does not fit the widths of q, k and v: nothing, for most."""

    def logits(
        self,
        q: npt.ArrayLike,
        k: npt.ArrayLike,
        *,
        q_positions: npt.ArrayLike | None = None,
        k_positions: npt.ArrayLike | None = None,
        scale: float | None = None,
        out: Array | None = None,
    ) -> Array:
        """What an operator that reads q and k adds to the logits, before the common scale.

        Parameters
        ----------
        q : array (..., H, N, D)
            Queries.
        k : array (..., G, M, D)
            Keys; head h reads kv head ``h // (H // G)``.
        q_positions, k_positions : array (N,) and (M,), or with batch axes, optional
            As in `matrix`.
        scale : float, optional
            ``D**-0.5``. Only CoPE reads it, for its gates.
        out : array (..., H, N, M), optional
            Filled and returned.

        Returns
        -------
        ndarray (..., H, N, M)
            In the dtype of q.

        Raises
        ------
        TypeError
            The operator is a position bias: use `matrix`.
        ValueError
            Shapes that do not fit.

        Examples
        --------
        >>> import numpy as np, posenc
        >>> posenc.shaw(np.array([[-1.0], [0.0], [2.0]])).logits(np.ones((1, 2, 1)), np.ones((1, 2, 1)))
        array([[[ 0.,  2.],
                [-1.,  0.]]])
        """
        fail(TypeError, self.name, "logits", "a position operator", "an operator that reads q and k; use matrix")

    def logits_vjp(
        self,
        grad: npt.ArrayLike,
        q: npt.ArrayLike,
        k: npt.ArrayLike,
        *,
        q_positions: npt.ArrayLike | None = None,
        k_positions: npt.ArrayLike | None = None,
        scale: float | None = None,
    ) -> Any:
        """Gradient of `logits`.

        Parameters
        ----------
        grad : array (..., H, N, M)
            Cotangent of the logits; the other arguments are those of `logits`.
        q, k, q_positions, k_positions, scale
            As in `logits`.

        Returns
        -------
        NamedTuple
            ``q``, ``k`` and one gradient for each array of the operator, each in its argument's shape and dtype; 0 for
            Shaw's values, which are in no logit.

        Raises
        ------
        TypeError, ValueError
            As `logits`; also where `grad` does not have the shape of the logits.

        Examples
        --------
        >>> import numpy as np, posenc
        >>> q = k = np.ones((1, 2, 1))
        >>> posenc.shaw(np.array([[-1.0], [0.0], [2.0]])).logits_vjp(np.ones((1, 2, 2)), q, k).rel_k
        array([[1.],
               [2.],
               [1.]])
        """
        fail(TypeError, self.name, "logits_vjp", "a position operator", "an operator that reads q and k; use vjp")


def keep_arrays(name: str, *arrays: Any) -> tuple[tuple[Array, ...], tuple[np.dtype[Any], ...]]:
    """Copies of the arrays that a user gave for a row, and their dtypes: ranks and common lengths are read off the
    row."""
    dtypes, kept = [], []
    known: dict[str, int] = {}
    for (argument, axes), given in zip(arrays_of(name), arrays, strict=True):
        dtypes.append(as_data(name, argument, given).dtype)
        array = as_parameter(name, argument, given, len(axes))
        for axis, length in zip(axes, array.shape, strict=True):
            if known.setdefault(axis, length) != length:
                fail(ValueError, name, argument, f"length {length}", str(known[axis]))
        kept.append(array)
    return tuple(kept), tuple(dtypes)


def check_heads(function: str, name: str, heads: int, shape: tuple[int, ...]) -> None:
    if heads != shape[-3]:
        fail(ValueError, function, "bias", f"{heads} heads ({name})", f"{shape[-3]}, axis -3 of q")


def fits_end(function: str, grad: Array, shape: tuple[int, ...]) -> Array:
    """A dense cotangent whose last axes are the matrix's."""
    if grad.ndim < len(shape) or grad.shape[grad.ndim - len(shape) :] != shape:
        fail(ValueError, function, "grad", f"shape {grad.shape}", f"(..., {', '.join(map(str, shape))})")
    return grad
