"""Base classes of the operators on the logits that `attention` takes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from .._core_api.arguments import (
    F64,
    Array,
    Dtype,
    as_data,
    cast_operand,
    cast_result,
    compute_dtype,
    fail,
    fail_value,
    result_dtype,
    store_result,
    unbroadcast,
    without_warnings,
)
from .._core_api.notebook import picture
from .parameters import check_cotangent, count_heads
from .positions import OwnPositions, Positions, as_lengths, copy_positions, read_positions
from .terms import Call, Gradients, Operands, Options, Sums, Term

if TYPE_CHECKING:
    from typing_extensions import Self, TypeVar

    Arrays = TypeVar("Arrays", bound=NamedTuple, default=Any)
    Gradient = TypeVar("Gradient", bound=NamedTuple, default=Any)
else:
    from typing import TypeVar

    Arrays, Gradient = TypeVar("Arrays"), TypeVar("Gradient")


NO_OPTIONS: Options = MappingProxyType({})


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Bias(ABC, Generic[Arrays]):
    """Base class of the operators on the logits that `attention` takes.

    Functions such as `alibi` and `shaw` make them. ``isinstance`` tells the two kinds apart: a `PositionBias` has a
    matrix, a `ContentBias` reads queries and keys. Operators are immutable and can be pickled. The sum
    ``a + b`` is an operator too. The arrays are attributes too: ``posenc.alibi(s).slopes``.

    Attributes
    ----------
    name : str
        Name of the function that made the operator.
    arrays : NamedTuple
        Its arrays by name, read-only; None for an optional array that was left out.
    options : mapping
        The other arguments of that function by name: numbers, flags, names and functions.
    dtypes : tuple
        The dtype of the gradient of each array, that in which the array was passed.
    own_positions : tuple
        Positions of the queries and of the keys that `at` gave the operator; None means the positions of the call.
    heads : int or None
        Number of heads; None if the operator serves any number.
    reads_positions : bool
        True if `attention` must know the positions of queries and keys.
    parts : tuple of Bias
        The operators of a sum; of another operator, itself alone.

    Examples
    --------
    >>> import posenc
    >>> bias = posenc.alibi([0.5, 0.25])
    >>> bias.slopes, bias.heads
    (array([0.5 , 0.25]), 2)
    """

    name: str
    arrays: Arrays
    options: Options
    dtypes: tuple[Dtype | None, ...]
    own_positions: OwnPositions

    __array_ufunc__ = None  # array + bias is a TypeError, and makes no array of biases
    counts_keys: ClassVar[bool] = False
    """True if a key's number depends on all visible keys after it, so that the keys of a call cannot be split."""
    is_relative: ClassVar[bool] = True
    """True if only differences of positions matter."""
    fits_float32 = False
    """True after `check_range` found no number beyond float32; the arrays never change."""

    def __init__(
        self,
        name: str,
        arrays: Arrays,
        options: Options = NO_OPTIONS,
        dtypes: tuple[Dtype | None, ...] = (),
        own_positions: OwnPositions = (None, None),
    ) -> None:
        for array in (*arrays, *own_positions):
            for one in array if type(array) is tuple else (array,):  # unpickled arrays are writeable
                if isinstance(one, np.ndarray):
                    one.flags.writeable = False
        vars(self).update(
            name=name,
            arrays=arrays,
            options=MappingProxyType({**options}) if options else NO_OPTIONS,
            dtypes=dtypes or tuple([getattr(array, "dtype", None) for array in arrays]),
            own_positions=own_positions,
        )

    @cached_property
    def operands(self) -> Operands:
        """The operands of the row in csrc/ops.def, in its order and in the dtype of the arrays."""
        return self.arrays._asdict()

    @cached_property
    def heads(self) -> int | None:
        return count_heads(self.name, self.arrays, self.options)

    @property
    def reads_positions(self) -> bool:
        q, k = self.own_positions
        return q is None or k is None

    @property
    def parts(self) -> tuple[Bias, ...]:
        return self.options.get("parts") or (self,)

    def at(self, *, q_positions: npt.ArrayLike | None = None, k_positions: npt.ArrayLike | None = None) -> Self:
        """Return the operator with its own positions, which replace the positions of the call for this operator.

        Parameters
        ----------
        q_positions : array (N,), or with batch axes before, optional
            Positions of the queries. If None, the operator reads the positions of the call.
        k_positions : array (M,), or with batch axes before, optional
            Positions of the keys. If None, the operator reads the positions of the call.

        Returns
        -------
        Bias
            An operator of the same kind, for N queries and M keys. Masks (causal, window, segments) keep the positions
            of the call. With positions on both sides the operator needs no ``align``.

        Raises
        ------
        TypeError
            An operator that reads no positions: `toeplitz`, `dense`, `cope`, `tupe`. A sum: place its parts. Positions
            that are no numbers.
        ValueError
            No positions, or positions that are not finite.

        Notes
        -----
        LayoutLMv3, SAM and MViTv2 add one bias by row to one by column. Each is an operator at the rows or columns of
        the tokens.

        Examples
        --------
        Four tokens in two rows and two columns; ALiBi over rows plus ALiBi over columns is the Manhattan distance:

        >>> import numpy as np, posenc
        >>> y, x = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
        >>> alibi = posenc.alibi([1.0])
        >>> bias = alibi.at(q_positions=y, k_positions=y) + alibi.at(q_positions=x, k_positions=x)
        >>> bias.matrix(4)[0]
        array([[ 0., -1., -1., -2.],
               [-1.,  0., -2., -1.],
               [-1., -2.,  0., -1.],
               [-2., -1., -1.,  0.]], dtype=float32)
        """
        function = f"{self.name}.at"
        if q_positions is None and k_positions is None:
            fail_value(ValueError, function, "q_positions", None, "positions of queries, of keys (k_positions) or both")
        q = None if q_positions is None else copy_positions(function, "q_positions", q_positions)
        k = None if k_positions is None else copy_positions(function, "k_positions", k_positions)
        if is_sum(self):
            fail(TypeError, function, "q_positions", "a value", "None for a sum: place the parts")
        if self.counts_keys or not (self.reads_positions or is_placed(self)):
            reason = "counts visible keys" if self.counts_keys else "reads no positions"
            fail(TypeError, function, "q_positions", "a value", f"another operator, because {self.name} {reason}")
        own_q, own_k = self.own_positions
        return replace(self, own_positions=(own_q if q is None else q, own_k if k is None else k))

    def __add__(self, other: object) -> Bias:
        return make_sum((*self.parts, *other.parts)) if isinstance(other, Bias) else NotImplemented

    def __radd__(self, other: object) -> Bias:
        return self if type(other) is int and other == 0 else NotImplemented  # sum() starts with 0

    def __getattr__(self, attribute: str) -> Array:
        """Return an array of the operator."""
        arrays = vars(self).get("arrays")  # absent in an operator that is being made
        if attribute in getattr(arrays, "_fields", ()):
            array: Array = getattr(arrays, attribute)
            return array
        message = f"{type(self).__name__!r} object has no attribute {attribute!r}"
        raise AttributeError(message, name=attribute, obj=self)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.name, self.arrays, dict(self.options), self.dtypes, self.own_positions)

    def __repr__(self) -> str:
        arrays = zip(self.arrays._fields, self.arrays, strict=True)
        shapes = [f"{name} {getattr(array, 'shape', array)}" for name, array in arrays]
        options = [f"{name}={value}" for name, value in self.options.items()]
        sides = zip(("q_positions", "k_positions"), self.own_positions, strict=True)
        places = [f"{name} {own.shape}" for name, own in sides if own is not None]
        return f"<posenc.{self.name}: {', '.join(shapes + options + places)}>"

    def _term(self, call: Call, positions: Positions) -> Term:
        """Return the term for a call at the positions that the operator reads; refuse arrays that do not fit it."""
        raise NotImplementedError("a sum of operators has no term; its parts have terms")

    def _gradient(self, function: str, sums: Sums, positions: Positions) -> Gradients:
        """Return the gradient of each array, in its shape, from what the kernel of attention returns."""
        raise NotImplementedError("a sum of operators has no term; its parts have terms")


class PositionBias(Bias[Arrays]):
    """An operator that reads positions only: ``attention`` adds ``b[h, i, j]`` to the logits after scale and cap.

    Examples
    --------
    >>> import posenc
    >>> bias = posenc.alibi(posenc.alibi_slopes(8))
    >>> isinstance(bias, posenc.PositionBias), hasattr(bias, "logits")
    (True, False)
    """

    @property
    def positions_end(self) -> int | None:
        """Positions must be integers from 0 and below this number, if it is not None: they are rows of a table."""
        return None

    def _repr_png_(self) -> bytes | None:
        """Return a picture for a notebook; None without matplotlib, where the text of the operator is shown."""
        return picture(self)

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
            Dtype of the result: by default the dtype of `out`, or float32.
        out : array (H, n, m), optional
            Filled and returned.

        Returns
        -------
        ndarray (H, n, m)
            If the bias depends only on distance and positions are consecutive, the result is a read-only view with
            strides ``(., -s, s)`` of H rows of n + m - 1 numbers: it takes O(n + m) time and memory. Otherwise, for a
            sum, and with `out`, it is dense.

        Raises
        ------
        TypeError
            A dtype that is none of the four, an `out` that is no array.
        ValueError
            Positions that are not finite or not n and m of them, an `out` of another shape. Positions for an operator
            that has its own.

        Examples
        --------
        Three keys, of which the last two are at the positions of the queries.

        >>> import posenc
        >>> posenc.alibi([1.0]).matrix(2, 3)
        array([[[-1.,  0., -1.],
                [-2., -1.,  0.]]], dtype=float32)
        """
        function = f"{self.name}.matrix"
        positions = read_method_positions(function, self, n, m, q_positions, k_positions)
        return self._matrix(function, positions, result_dtype(function, dtype, out), out)

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
        positions = read_method_positions(function, self, n, m, q_positions, k_positions)
        cotangent = as_data(function, "grad", grad)
        with without_warnings():
            return cast("Arrays", name_gradients(self, self._matrix_gradient(function, cotangent, positions)))

    @abstractmethod
    def _matrix(self, function: str, positions: Positions, dtype: Dtype, out: Array | None) -> Array:
        """Return the result of `matrix`."""

    @abstractmethod
    def _matrix_gradient(self, function: str, grad: Array, positions: Positions) -> Gradients:
        """Return the gradient of each array, in its shape, for a cotangent of the matrix as `vjp` takes it."""


class ContentBias(Bias[Arrays], Generic[Arrays, Gradient]):
    """An operator that reads queries and keys: `attention` adds its logits before scale and cap.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> bias = posenc.shaw(np.zeros((3, 64)))
    >>> isinstance(bias, posenc.ContentBias), hasattr(bias, "matrix")
    (True, False)
    """

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
            Queries. Arrays q (N, D) and k (M, D), both without an axis of heads, are one head.
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
            In the dtype of q; (N, M) for one head.

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
            ``q``, ``k``, then one gradient per array of the operator, each in the shape and dtype of its argument. For
            one head, too, the gradients of the operator's arrays keep their axis of heads. The gradient of an array
            that no logit reads, such as ``rel_v`` of `shaw`, is 0.

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


# ---- operators as a whole ----


def is_sum(operator: Bias) -> bool:
    """Return whether an operator is a sum of others."""
    return "parts" in operator.options


def name_gradients(operator: Bias, gradients: Gradients) -> Gradients:
    """Return gradients by name, each in the dtype that its array was passed in; of a sum, those of each part."""
    if is_sum(operator):
        return tuple(map(name_gradients, operator.parts, gradients))
    found: list[object] = []
    for gradient, array, dtype in zip(gradients, operator.arrays, operator.dtypes, strict=True):
        if gradient is None:
            found.append(None)
        elif dtype is not None:
            found.append(cast_result(gradient, dtype))
        else:
            found.append(tuple(cast_result(one, each.dtype) for one, each in zip(gradient, array, strict=True)))
    named: Gradients = operator.arrays._make(found)
    return named


# ---- checks of a call ----


def check_heads(function: str, operator: Bias, shape: tuple[int, ...]) -> None:
    """Refuse an operator that has not as many heads as the logits of `shape` (..., H, N, M)."""
    heads = operator.heads
    if heads not in (None, shape[-3]):
        is_transposed = any(np.shape(array) == (shape[-3], heads) for array in operator.arrays)
        hint = "; its table (rows, heads) seems to be transposed" if is_transposed else ""
        fail(ValueError, function, "bias", f"{heads} heads ({operator.name})", f"{shape[-3]}, axis -3 of q{hint}")


def check_range(function: str, operator: Bias, dtype: Dtype) -> None:
    """Refuse parameters with numbers beyond float32 for arithmetic in float32, although the bias is float64 inside."""
    if dtype is not F64 and not operator.fits_float32:
        for name, array in zip(operator.arrays._fields, operator.arrays, strict=True):
            cast_operand(function, name, array, dtype)
        vars(operator)["fits_float32"] = True


def check_unread(
    function: str, operator: Bias, q_positions: npt.ArrayLike | None, k_positions: npt.ArrayLike | None
) -> None:
    """Refuse positions of a call on a side on which no part of the operator reads them."""
    sides = (("q_positions", q_positions), ("k_positions", k_positions))
    for side, (argument, positions) in enumerate(sides):
        if positions is not None and all(part.own_positions[side] is not None for part in operator.parts):
            fail(ValueError, function, argument, "a value", f"None, because {operator.name} has positions of its own")


def resolve_positions(function: str, operator: Bias, call: Positions) -> Positions:
    """Return the positions that an operator reads: its own, or those of the call.

    Both sides may be moved by one offset where the operator reads distances only.
    """
    q, k = operator.own_positions
    if q is None and k is None:
        return call
    for argument, own, length in (("q_positions", q, call.n), ("k_positions", k, call.m)):
        if own is not None and own.shape[-1] != length:
            fail(ValueError, function, argument, f"length {own.shape[-1]} ({operator.name}.at)", str(length))
    of_call = call.as_arrays()
    positions = Positions(call.n, call.m, 0.0, (of_call[0] if q is None else q, of_call[1] if k is None else k))
    return positions.as_consecutive() if operator.is_relative else positions


def read_method_positions(
    function: str,
    operator: Bias,
    n: int,
    m: int | None,
    q_positions: npt.ArrayLike | None,
    k_positions: npt.ArrayLike | None,
) -> Positions:
    """Return the positions that an operator reads in a call of one of its methods."""
    n, m = as_lengths(function, n, m)
    check_unread(function, operator, q_positions, k_positions)
    return resolve_positions(function, operator, read_positions(function, n, m, q_positions, k_positions))


def is_placed(operator: Bias) -> bool:
    """Return whether an operator has positions of its own, on one side or both."""
    q, k = operator.own_positions
    return q is not None or k is not None


def allows_shift(operator: Bias) -> bool:
    """Return whether the positions of queries and keys of a call may be moved by one offset."""
    given = sum(own is not None for own in operator.own_positions)
    return given == 2 or (given == 0 and operator.is_relative)


# ---- sums ----


class SumGradient(NamedTuple):
    """Gradients of the logits of a sum.

    Attributes
    ----------
    q : array (..., H, N, D)
    k : array (..., G, M, D)
    parts : tuple of NamedTuples
        The gradients of the arrays of each part.
    """

    q: Array
    k: Array
    parts: Gradients


def make_sum(parts: tuple[Bias, ...]) -> Bias:
    """Return the sum of operators that are no sums: of the kind of its parts, if they are of one kind."""
    kind: type[Bias] = MixedSum
    if all(isinstance(part, PositionBias) for part in parts):
        kind = PositionSum
    elif all(isinstance(part, ContentBias) for part in parts):
        kind = ContentSum
    return kind("sum", tuple(part.arrays for part in parts), {"parts": parts})


class _Sum(Bias):
    """A sum of operators. `arrays` has the arrays of each part. Attention sees only the parts."""

    @cached_property
    def heads(self) -> int | None:
        return next((part.heads for part in self.parts if part.heads is not None), None)

    @property
    def reads_positions(self) -> bool:
        return any(part.reads_positions for part in self.parts)

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.parts))


class MixedSum(_Sum):
    """A sum of operators of both kinds: it exists only inside `attention`."""


class PositionSum(_Sum, PositionBias):
    """A sum of operators that read only positions."""

    def _matrix(self, function: str, positions: Positions, dtype: Dtype, out: Array | None) -> Array:
        matrices = _matrices(self, function, positions)
        return store_result(function, out, sum(matrices[1:], matrices[0]), dtype)

    def _matrix_gradient(self, function: str, grad: Array, positions: Positions) -> Gradients:
        matrices = _matrices(self, function, positions)
        cotangent = check_cotangent(function, grad, np.broadcast_shapes(*(matrix.shape for matrix in matrices)))
        gradients = []
        parts = (part for part in self.parts if isinstance(part, PositionBias))
        for part, matrix in zip(parts, matrices, strict=True):
            own = unbroadcast(cotangent, matrix.shape, F64)
            at = resolve_positions(function, part, positions)
            gradients.append(part._matrix_gradient(function, own, at))
        return tuple(gradients)


def _matrices(bias: PositionSum, function: str, positions: Positions) -> list[Array]:
    """Return the matrices of the parts of a sum as float64."""
    matrices = [
        part._matrix(function, resolve_positions(function, part, positions), F64, None)
        for part in bias.parts
        if isinstance(part, PositionBias)
    ]
    try:
        np.broadcast_shapes(*(matrix.shape for matrix in matrices))
    except ValueError:
        shapes = ", ".join(str(matrix.shape) for matrix in matrices)
        fail(ValueError, function, "bias", f"parts of shapes {shapes}", "shapes that broadcast")
    return matrices


class ContentSum(_Sum, ContentBias[NamedTuple, SumGradient]):
    """A sum of operators that read queries and keys."""

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
        function = "sum.logits"
        query = as_data(function, "q", q)
        wide = query.astype(compute_dtype(query), copy=False)
        check_unread(function, self, q_positions, k_positions)
        logits = [
            part.logits(wide, k, **_positions_of(part, q_positions, k_positions), scale=scale)
            for part in self.parts
            if isinstance(part, ContentBias)
        ]
        return store_result(function, out, sum(logits[1:], logits[0]), query.dtype)

    def logits_vjp(
        self,
        grad: npt.ArrayLike,
        q: npt.ArrayLike,
        k: npt.ArrayLike,
        *,
        q_positions: npt.ArrayLike | None = None,
        k_positions: npt.ArrayLike | None = None,
        scale: float | None = None,
    ) -> SumGradient:
        function = "sum.logits_vjp"
        query, key = as_data(function, "q", q), as_data(function, "k", k)
        wide_q, wide_k = (array.astype(compute_dtype(array), copy=False) for array in (query, key))
        check_unread(function, self, q_positions, k_positions)
        gradients = [
            part.logits_vjp(grad, wide_q, wide_k, **_positions_of(part, q_positions, k_positions), scale=scale)
            for part in self.parts
            if isinstance(part, ContentBias)
        ]
        with without_warnings():
            d_q = cast_result(sum((g.q for g in gradients[1:]), gradients[0].q), query.dtype)
            d_k = cast_result(sum((g.k for g in gradients[1:]), gradients[0].k), key.dtype)
        parts = zip(self.parts, gradients, strict=True)
        return SumGradient(d_q, d_k, tuple(part.arrays._make(gradient[2:]) for part, gradient in parts))


def _positions_of(part: Bias, q_positions: npt.ArrayLike | None, k_positions: npt.ArrayLike | None) -> dict[str, Any]:
    """Return the positions of the call that a part reads."""
    given = {"q_positions": q_positions, "k_positions": k_positions}
    sides = zip(given.items(), part.own_positions, strict=True)
    return {argument: positions for (argument, positions), own in sides if own is None}
