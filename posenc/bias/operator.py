"""Base classes of the operators on the logits that `attention` takes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import Array, Float64, as_data, cast_result, result_dtype, without_warnings
from .._core_api.variant import in_one_isa
from ._positions import Positions, as_lengths, read_positions

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Arrays = TypeVar("Arrays", bound=NamedTuple, default=Any)
    Gradient = TypeVar("Gradient", bound=NamedTuple, default=Any)
else:
    from typing import TypeVar

    Arrays, Gradient = TypeVar("Arrays"), TypeVar("Gradient")

__all__ = ["Bias", "ContentBias", "PositionBias"]

_EMPTY: Array = np.empty(0)
Reduction = Literal["diagonals", "rows", "columns", "pairs", "parameters", "tables"]
"""A field of `Reductions`."""
Term = tuple[Any, ...]
"""An operator as `_core.attention` takes it: the name of its row in csrc/ops.def, then the operands of that row."""


class Reductions(NamedTuple):
    """dS reduced for one operator; dS is the gradient of the biased logits, (..., H, N, M).

    Fields that the operator does not name in `Bias._reductions` are empty.
    """

    diagonals: Float64 = _EMPTY
    """dS summed over batch axes and each diagonal: (H, N + M - 1), entry j - i + N - 1."""
    rows: Float64 = _EMPTY
    """dS summed over keys: (..., H, N)."""
    columns: Float64 = _EMPTY
    """dS summed over queries: (..., H, M)."""
    pairs: Array = _EMPTY
    """dS summed over the leading axes along which a dense array is broadcast: (..., N, M)."""
    parameters: tuple[Float64, ...] = ()
    """Gradients of the parameters, which the kernel of a DISTANCE or PAIR row sums itself."""
    tables: tuple[Any, ...] = ()
    """Buffers of `Bias._gradient_buffers` after the kernel, summed over batch axes and blocks of queries."""


def _make_read_only(arrays: tuple[Any, ...]) -> None:
    for array in arrays:
        if isinstance(array, np.ndarray):
            array.flags.writeable = False


class MissingMethodError(AttributeError, TypeError):
    """An operator has no such method because it is of the other kind; so `hasattr` is False."""


class Bias(ABC, Generic[Arrays]):
    """Base class of the operators on the logits that `attention` takes.

    Functions such as `alibi` and `shaw` make them. ``isinstance`` tells the two kinds apart: a `PositionBias` has a
    matrix, a `ContentBias` reads queries and keys. Operators are immutable and can be pickled.

    Attributes
    ----------
    name : str
        Name of the function that made the operator.
    arrays : NamedTuple
        Its arrays by name, read-only; None for an optional array that was left out.
    options : dict
        The other arguments of that function: numbers, flags and names.
    """

    __slots__ = ("_dtypes", "_operands", "_options", "arrays", "name")
    name: str
    arrays: Arrays
    _operands: tuple[Array, ...]
    _dtypes: tuple[np.dtype[Any] | None, ...]
    _options: tuple[tuple[str, Any], ...]

    counts_keys: ClassVar[bool] = False
    """True if a key's number depends on all visible keys after it, so that the keys of a call cannot be split."""
    is_relative: ClassVar[bool] = True
    """Whether only differences of positions matter."""
    first_chunk_only: ClassVar[dict[str, str]] = {}
    """Arrays that only row 0 ("n") or column 0 ("m") of the logits reads."""
    _of_other_kind: ClassVar[tuple[str, dict[str, str]]]
    """The inputs of operators of this kind, and for each method of the other kind the method to use instead."""

    def __init__(
        self,
        name: str,
        arrays: Arrays,
        dtypes: tuple[np.dtype[Any] | None, ...] | None = None,
        options: tuple[tuple[str, Any], ...] = (),
    ) -> None:
        """Keep the arrays. Gradients are returned in `dtypes`, which are those of the arrays if None."""
        _make_read_only(arrays)
        if dtypes is None:
            dtypes = tuple(getattr(array, "dtype", None) for array in arrays)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "arrays", arrays)
        object.__setattr__(self, "_dtypes", dtypes)
        object.__setattr__(self, "_options", options)
        operands = self._kernel_operands()
        _make_read_only(operands)  # some come from a cache
        object.__setattr__(self, "_operands", operands)

    def _kernel_operands(self) -> tuple[Any, ...]:
        """Return the operands that the kernel takes; those with a gradient come first."""
        return tuple(self.arrays)

    @property
    def options(self) -> dict[str, Any]:
        return dict(self._options)

    @property
    def reads_positions(self) -> bool:
        """True if `attention` must know the positions of queries and keys."""
        return True

    def __setattr__(self, attribute: str, value: object) -> NoReturn:
        raise AttributeError(f"{self.name}: a Bias is immutable; expected a new one with another {attribute}")

    if not TYPE_CHECKING:

        def __getattr__(self, attribute: str) -> NoReturn:
            reads, instead = self._of_other_kind
            if attribute in instead:
                what = f"undefined for an operator that reads {reads}"
                message = f"{self.name}: {attribute} is {what}; expected its method {instead[attribute]}"
                raise MissingMethodError(message, name=attribute, obj=self)
            message = f"{type(self).__name__!r} object has no attribute {attribute!r}"
            raise AttributeError(message, name=attribute, obj=self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.arrays, self._dtypes, self._options)

    def __repr__(self) -> str:
        arrays = zip(self.arrays._fields, self.arrays, strict=True)
        shapes = [f"{name} {getattr(array, 'shape', array)}" for name, array in arrays]
        options = [f"{name}={value}" for name, value in self._options]
        return f"<posenc.{self.name}: {', '.join(shapes + options)}>"

    def default_scale(self, width: int) -> float | None:
        """Return the scale that replaces ``width**-0.5`` as the default of `attention`, or None."""
        return None

    # ---- for attention ----

    def _parts(self) -> tuple[Bias, ...]:
        """Return the operators that are one term of the kernel each: this one, and those inside it."""
        return (self,)

    def _assemble(self, gradients: tuple[Any, ...]) -> Any:
        """Return the gradient of this operator from those of its parts."""
        return gradients[0]

    def _check_widths(self, function: str, width: int, value_width: int | None) -> None:
        """Refuse arrays that do not fit the widths of q and v. A `value_width` of None fits everything."""

    @abstractmethod
    def _term(self, function: str, dtype: np.dtype[Any], shape: tuple[int, ...], positions: Positions) -> Term:
        """Return the term for arithmetic in `dtype` and logits of `shape` (..., H, N, M)."""

    @abstractmethod
    def _reductions(self, positions: Positions) -> tuple[Reduction, ...]:
        """Return the names of the reductions of dS that `_gradient` reads."""

    def _gradient_buffers(
        self, shape: tuple[int, ...], batch: tuple[int, ...], rows: int, dtype: np.dtype[Any]
    ) -> tuple[Array | None, ...]:
        """Return zeros (batch axes, rows, ...) to which the kernel adds gradients, for the end of the term.

        `rows` is H, or H times the blocks of queries that are summed apart.
        """
        return ()

    @abstractmethod
    def _gradient(self, function: str, reductions: Reductions, positions: Positions) -> tuple[Any, ...]:
        """Return the gradient of each array, in its shape."""

    def _named(self, gradients: tuple[Any, ...]) -> Arrays:
        """Return gradients by name, each in the dtype that the array was passed in."""
        pairs = zip(gradients, self._dtypes, strict=True)
        return self.arrays._make(g if g is None or t is None else cast_result(g, t) for g, t in pairs)


class PositionBias(Bias[Arrays]):
    """An operator that reads positions only: ``attention`` adds ``b[h, i, j]`` to the logits after scale and cap.

    Examples
    --------
    >>> import posenc
    >>> bias = posenc.alibi(posenc.alibi_slopes(8))
    >>> isinstance(bias, posenc.PositionBias), hasattr(bias, "logits")
    (True, False)
    """

    __slots__ = ()
    _of_other_kind = ("only positions", {"logits": "matrix", "logits_vjp": "vjp"})

    @in_one_isa
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
        """Return the bias of n queries and m keys.

        Parameters
        ----------
        n, m : int
            Numbers of queries and keys; m is n if None.
        q_positions, k_positions : array (n,) and (m,), optional
            Positions of queries and keys. By default key j is at j and query i at i + m - n: the queries are the last
            n positions. If only one of the two is passed, the other is 0, 1, 2, .... (`attention` asks for ``align``
            if n and m differ.)
        dtype : dtype, optional
            Dtype of the result; float32 by default, or that of `out`.
        out : array (H, n, m), optional
            Filled and returned.

        Returns
        -------
        ndarray (H, n, m)
            If the bias depends only on distance and positions are consecutive, the result is a read-only view with
            strides ``(., -s, s)`` of H rows of n + m - 1 numbers: it takes O(n + m) time and memory. Otherwise, and
            with `out`, it is dense.

        Raises
        ------
        TypeError
            A dtype that is none of the four, an `out` that is no array.
        ValueError
            Positions that are not finite or not n and m of them, an `out` of another shape.

        Examples
        --------
        Three keys, of which the last two are at the positions of the queries.

        >>> import posenc
        >>> posenc.alibi([1.0]).matrix(2, 3)
        array([[[-1.,  0., -1.],
                [-2., -1.,  0.]]], dtype=float32)
        """
        function = f"{self.name}.matrix"
        n, m = as_lengths(function, n, m)
        positions = read_positions(function, n, m, q_positions, k_positions)
        return self._matrix(function, positions, result_dtype(function, dtype, out), out)

    @in_one_isa
    def vjp(
        self,
        grad: npt.ArrayLike,
        n: int,
        m: int | None = None,
        *,
        q_positions: npt.ArrayLike | None = None,
        k_positions: npt.ArrayLike | None = None,
    ) -> Arrays:
        """Return the gradient of `matrix` with respect to the operator's arrays.

        Parameters
        ----------
        grad : array (..., H, n, m) or (..., H, n + m - 1)
            Cotangent of the matrix. If the matrix is a view, the sums of the cotangent along diagonals are accepted
            too: entry ``j - i + n - 1``.
        n, m, q_positions, k_positions
            As in `matrix`.

        Returns
        -------
        NamedTuple
            One gradient per array, in its shape and dtype, summed over leading axes of `grad`.

        Raises
        ------
        TypeError, ValueError
            As `matrix`; also a `grad` of another shape.

        Examples
        --------
        >>> import numpy as np, posenc
        >>> posenc.alibi([1.0]).vjp(np.ones((1, 2, 2)), 2)
        AlibiArrays(slopes=array([-2.]))
        """
        function = f"{self.name}.vjp"
        n, m = as_lengths(function, n, m)
        positions = read_positions(function, n, m, q_positions, k_positions)
        cotangent = as_data(function, "grad", grad)
        with without_warnings():
            return self._named(self._vjp(function, cotangent, positions))

    @abstractmethod
    def _matrix(self, function: str, positions: Positions, dtype: np.dtype[Any], out: Array | None) -> Array:
        """Return the result of `matrix`."""

    @abstractmethod
    def _vjp(self, function: str, grad: Array, positions: Positions) -> tuple[Any, ...]:
        """Return the gradient of each array, in its shape, as float64."""


class ContentBias(Bias[Arrays], Generic[Arrays, Gradient]):
    """An operator that reads queries and keys: `attention` adds its logits before scale and cap.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> bias = posenc.shaw(np.zeros((3, 64)))
    >>> isinstance(bias, posenc.ContentBias), hasattr(bias, "matrix")
    (True, False)
    """

    __slots__ = ()
    _of_other_kind = ("queries and keys", {"matrix": "logits", "vjp": "logits_vjp"})

    @abstractmethod
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
        """Return what the operator adds to the logits, before the common scale.

        Parameters
        ----------
        q : array (..., H, N, D)
            Queries.
        k : array (..., G, M, D)
            Keys; head h reads kv head ``h // (H // G)``.
        q_positions, k_positions : array (N,) and (M,), or with batch axes before, optional
            As in `PositionBias.matrix`.
        scale : float, optional
            Scale of the gates of `cope`; ``D**-0.5`` by default. Other operators ignore it.
        out : array (..., H, N, M), optional
            Filled and returned.

        Returns
        -------
        ndarray (..., H, N, M)
            In the dtype of q.

        Raises
        ------
        TypeError
            Arrays of a dtype that is none of the four.
        ValueError
            Shapes that do not fit.

        Examples
        --------
        >>> import numpy as np, posenc
        >>> posenc.shaw(np.array([[-1.0], [0.0], [2.0]])).logits(np.ones((1, 2, 1)), np.ones((1, 2, 1)))
        array([[[ 0.,  2.],
                [-1.,  0.]]])
        """

    @abstractmethod
    def logits_vjp(
        self,
        grad: npt.ArrayLike,
        q: npt.ArrayLike,
        k: npt.ArrayLike,
        *,
        q_positions: npt.ArrayLike | None = None,
        k_positions: npt.ArrayLike | None = None,
        scale: float | None = None,
    ) -> Gradient:
        """Return the gradient of `logits` with respect to q, k and the operator's arrays.

        Parameters
        ----------
        grad : array (..., H, N, M)
            Cotangent of the logits.
        q, k, q_positions, k_positions, scale
            As in `logits`.

        Returns
        -------
        NamedTuple
            ``q``, ``k``, then one gradient per array of the operator, each in the shape and dtype of its argument. The
            gradient of an array that no logit reads, such as ``rel_v`` of `shaw`, is 0.

        Raises
        ------
        TypeError, ValueError
            As `logits`; also a `grad` that has not the shape of the logits.

        Examples
        --------
        >>> import numpy as np, posenc
        >>> q = k = np.ones((1, 2, 1))
        >>> posenc.shaw(np.array([[-1.0], [0.0], [2.0]])).logits_vjp(np.ones((1, 2, 2)), q, k).rel_k
        array([[1.],
               [2.],
               [1.]])
        """
