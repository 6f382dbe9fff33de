"""Operators, which `attention` takes and adds to the logits: a name, arrays, options and positions.

`SCHEMES` has an entry for each function that makes operators: the kind of the scheme, whose functions compute with an
operator, and what distinguishes the scheme from others of its kind. A row is a line of csrc/ops.def. A sum is an
operator whose option `parts` has its operators; its `arrays` are those of the parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, reduce
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, NoReturn, TypeAlias, cast, get_args

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api import convert, read
from .._core_api.arrays import F32, F64, Array, Dtype, Float64
from .._core_api.door import door, fail, fail_value
from .._core_api.notebook import picture
from .positions import OwnPositions, Positions, copy_positions, read_positions

if TYPE_CHECKING:
    from typing_extensions import Self, TypeVar

    Arrays = TypeVar("Arrays", bound=NamedTuple, default=Any)
else:
    from typing import TypeVar

    Arrays = TypeVar("Arrays")

Options: TypeAlias = Mapping[str, Any]
"""Arguments of the function that made an operator, without its arrays."""
Align: TypeAlias = Literal["start", "end"]
"""Where fewer queries than keys stand."""
NO_OPTIONS: Options = MappingProxyType({})
Operands: TypeAlias = dict[str, Any]
"""Arrays by the names of a row of csrc/ops.def; None for an array that was left out."""
Gradients: TypeAlias = tuple[Any, ...]
"""One gradient for each array of an operator: an array, None, or a tuple of them for an array that is a tuple."""


class Term(NamedTuple):
    """An operator as `_core.attention` takes it."""

    entry: str
    """Name of an entry of csrc/ops.def."""
    operands: Operands
    """Operands of that entry by name."""
    q_positions: Array | None = None
    """Positions of the queries, if the operator reads others than those of the call."""
    k_positions: Array | None = None
    has_gradient: bool = True
    """False if the gradients of the entry are not wanted."""


def _missing(*_: object) -> Any:
    raise NotImplementedError("a sum has no term, and an operator that reads q and k has no matrix")


class Kind(NamedTuple):
    """What operators of a kind do. All functions take the operator first; positions are those that it reads."""

    gradient: Callable[[Any, Gradients, Term], Gradients] = _missing
    """The gradient of each array, from the sums that `_core` returns for the term."""
    matrix: Callable[[Any, Positions, Dtype, Array | None], Array] = _missing
    """The result of `PositionBias.matrix` in a dtype, or in `out`."""
    vjp: Callable[[Any, Array, Positions], Gradients] = _missing
    """The gradient of each array, for a cotangent of the matrix; of a sum, that of each part."""
    is_relative: bool = True
    """True if only differences of positions matter."""
    place: Callable[[Any, Positions, Dtype], Term] | None = None
    """The term at the positions of a call and for its arithmetic, of operators whose operands depend on them."""


@dataclass(frozen=True)
class Scheme(Generic[Arrays]):
    """What operators of one name share. Making one adds it to `SCHEMES`."""

    name: str
    """The function that makes the operators, and their row in csrc/ops.def."""
    kind: Kind
    arrays: type[Arrays]
    """The NamedTuple of the arrays."""
    operands: Callable[[Any], Operands] = lambda bias: bias.arrays._asdict()
    """(bias): the operands of the row, in its order and in the dtype of the arrays."""
    default_scale: Callable[[Any, int], float | None] | None = None
    """(bias, width of q): the scale of attention if none is passed; None is ``width**-0.5``."""
    reads_positions: bool = True
    counts_keys: bool = False
    """True if a key's number depends on all visible keys after it."""

    def __post_init__(self) -> None:
        SCHEMES[self.name] = self

    def from_arrays(
        self, *arrays: Any, options: Options = NO_OPTIONS, dtypes: tuple[Dtype, ...] = ()
    ) -> PositionBias[Arrays]:
        """Return an operator that keeps these arrays, read-only and not copied."""
        return PositionBias(self.name, self.arrays(*arrays), options, dtypes)

    def from_parameters(self, *parameters: npt.ArrayLike, options: Options = NO_OPTIONS) -> PositionBias[Arrays]:
        """Return an operator that keeps finite float64 copies of the user's arrays, whose axes the row states."""
        arrays, dtypes = copy_parameters(self.name, *parameters)
        return self.from_arrays(*arrays, options=options, dtypes=dtypes)


SCHEMES: dict[str, Scheme[Any]] = {}
"""All schemes by name."""
PICTURED = 64
"""Most queries and keys of the picture in a notebook of an operator that serves any number."""


@dataclass(frozen=True, eq=False, repr=False)
class Bias(Generic[Arrays]):
    """Base class of the operators on the logits that `attention` takes.

    Functions such as `alibi` and `shaw` make them. ``isinstance`` tells the two kinds apart: a `PositionBias` has a
    matrix, a `ContentBias` reads queries and keys. Operators are immutable and can be pickled. The sum
    ``a + b`` is an operator too. The arrays are attributes too: ``posenc.alibi(s).slopes``.

    Attributes
    ----------
    name : str
        Name of the function that made the operator; of a sum, "alibi + t5".
    arrays : NamedTuple
        Its arrays by name, read-only; None for an optional array that was left out. Of a sum, a tuple of them.
    options : mapping
        All other arguments of that function by name, defaulted or not: numbers, flags, names, functions and None.
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
    dtypes: tuple[Dtype | None, ...] = ()
    own_positions: OwnPositions = (None, None)

    def __post_init__(self) -> None:
        vars(self).update(
            arrays=_read_only(self.arrays),
            options=MappingProxyType({**self.options}),
            dtypes=self.dtypes or tuple([getattr(array, "dtype", None) for array in self.arrays]),
            own_positions=_read_only(self.own_positions),
        )

    @cached_property
    def _scheme(self) -> Scheme[Any]:
        """What all operators of this name share."""
        return SCHEMES.get(self.name, SUM)

    @cached_property
    def _term(self) -> Term:
        """What `attention` passes to C; it depends on no call. A sum has none."""
        return Term(self.name, self._scheme.operands(self), *self.own_positions, bool(self.arrays))

    @cached_property
    def heads(self) -> int | None:
        if self._scheme is SUM:
            return max((part.heads for part in self.parts if part.heads is not None), default=None)
        return count_heads(self.name, self.arrays, self.options)

    @property
    def reads_positions(self) -> bool:
        if self._scheme is SUM:
            return any(part.reads_positions for part in self.parts)
        return self._scheme.reads_positions and any(own is None for own in self.own_positions)

    @property
    def parts(self) -> tuple[Bias, ...]:
        parts: tuple[Bias, ...] = self.options.get("parts", (self,))
        return parts

    @door
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
            An operator that reads no positions: `toeplitz`, `dense`, `cope` and `tupe`; a sum, whose parts are placed
            before they are added. Positions that are no numbers.
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
        if q_positions is None and k_positions is None:
            fail_value(ValueError, "q_positions", None, "positions of queries, of keys (k_positions) or both")
        if self._scheme is SUM:
            fail(TypeError, "q_positions", "a value", "None for a sum: place the parts")
        if self._scheme.counts_keys or not self._scheme.reads_positions:
            reason = "counts visible keys" if self._scheme.counts_keys else "reads no positions"
            fail(TypeError, "q_positions", "a value", f"another operator, because {self.name} {reason}")
        q, k = self.own_positions
        q = q if q_positions is None else copy_positions("q_positions", q_positions)
        k = k if k_positions is None else copy_positions("k_positions", k_positions)
        return replace(self, own_positions=(q, k))

    def __add__(self, other: object) -> Bias:
        if not isinstance(other, Bias):
            return NotImplemented
        if self.heads != other.heads and self.heads not in (None, 1) and other.heads not in (None, 1):
            expected = f"{self.heads}, as {self.name}"
            raise ValueError(f"{self.name} + {other.name}: {other.name} has {other.heads} heads; expected {expected}")
        kind = type(self) if type(self) is type(other) else Bias
        parts = (*self.parts, *other.parts)
        return kind(f"{self.name} + {other.name}", cast("Any", tuple(part.arrays for part in parts)), {"parts": parts})

    def __radd__(self, other: object) -> Bias:
        return self if type(other) is int and other == 0 else NotImplemented  # sum() starts with 0

    def _is_no_array(self, *_args: object, **_options: object) -> NoReturn:
        """Refuse what NumPy would do with an array of one object, or with numbers that are made only in a call."""
        name = f"({self.name})" if self._scheme is SUM else self.name
        raise TypeError(f"{name} is an operator, not an array; expected {name}.matrix(N), or a call of attention")

    __array__ = __array_ufunc__ = __mul__ = __rmul__ = __sub__ = __rsub__ = __truediv__ = __neg__ = _is_no_array

    def __getattr__(self, attribute: str) -> Array:
        """Return an array of the operator."""
        arrays = vars(self).get("arrays")  # absent in an operator that is being made
        fields = getattr(arrays, "_fields", ())
        if attribute in fields:
            array: Array = getattr(arrays, attribute)
            return array
        hint = f"; its arrays are {', '.join(fields)}" if fields else ""
        hint += "; matrix(N) has the number of each pair" if isinstance(self, PositionBias) else ""
        has = f"{type(self).__name__!r} object has no attribute {attribute!r}{hint}"
        raise AttributeError(has, name=attribute, obj=self)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *getattr(self.arrays, "_fields", ())})

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.name, self.arrays, dict(self.options), self.dtypes, self.own_positions)

    def __repr__(self) -> str:
        if self._scheme is SUM:
            return " + ".join(map(repr, self.parts))
        shapes = []
        for name, array in zip(self.arrays._fields, self.arrays, strict=True):
            shape = tuple(one.shape for one in array) if type(array) is tuple else getattr(array, "shape", array)
            shapes.append(f"{name} {shape}")
        given = {name: value for name, value in self.options.items() if value is not None}
        options = [f"{name}={getattr(value, '__qualname__', value)}" for name, value in given.items()]
        sides = zip(("q_positions", "k_positions"), self.own_positions, strict=True)
        places = [f"{name} {own.shape}" for name, own in sides if own is not None]
        return f"<posenc.{self.name}: {', '.join(shapes + options + places)}>"


def _read_only(array: Any) -> Any:
    """Return a view of an array, or of each of a tuple, that is not writeable; the user's own array stays as it is."""
    if isinstance(array, tuple):
        return getattr(array, "_make", tuple)(map(_read_only, array))
    if isinstance(array, np.ndarray) and array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


class PositionBias(Bias[Arrays]):
    """An operator that reads positions only: ``attention`` adds ``b[h, i, j]`` to the logits after scale and cap.

    Examples
    --------
    >>> import posenc
    >>> bias = posenc.alibi(posenc.alibi_slopes(8))
    >>> isinstance(bias, posenc.PositionBias), hasattr(bias, "logits")
    (True, False)
    """

    def _repr_png_(self) -> bytes | None:
        """Return a picture for a notebook; None without matplotlib, where the text of the operator is shown."""
        return picture(self, *count_positions(self, PICTURED))

    @door
    def matrix(
        self,
        n: int,
        m: int | None = None,
        *,
        align: Align | None = None,
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
        align : {"start", "end"}, optional
            Where the queries stand if n and m differ and no positions are passed, as in `attention`: at the first or at
            the last n of m positions. An operator that reads no positions does not need it.
        q_positions, k_positions : array (n,) and (m,), optional
            Positions of queries and keys. If only one of the two is passed, the other is 0, 1, 2, ....
        dtype : dtype, optional
            Dtype of the result: by default the dtype of `out`, or float32.
        out : array (H, n, m), optional
            Filled and returned.

        Returns
        -------
        ndarray (H, n, m)
            If the bias depends only on distance and positions are consecutive, the result is a read-only view with
            strides ``(., -s, s)`` of H rows of n + m - 1 numbers: it takes O(n + m) time and memory. Otherwise, of a
            sum, and with `out`, it is dense.

        Raises
        ------
        TypeError
            A dtype that is none of the four, an `out` that is no array. Positions that are no integers, for `swin`,
            `beit` and `fox`.
        ValueError
            No `align` where it is needed. Positions that are not finite or not n and m of them, an `out` of another
            shape. Positions for an operator that has its own.
        IndexError
            A position outside of the table of `swin`, `beit` or `fox`.

        Examples
        --------
        Three keys, of which the last two are at the positions of the queries.

        >>> import posenc
        >>> posenc.alibi([1.0]).matrix(2, 3, align="end")
        array([[[-1.,  0., -1.],
                [-2., -1.,  0.]]], dtype=float32)
        """
        positions = read_method_positions(self, n, m, align, q_positions, k_positions)
        return self._scheme.kind.matrix(self, positions, read.result_dtype(dtype, out), out)

    @door
    def matrix_vjp(
        self,
        grad: npt.ArrayLike,
        n: int,
        m: int | None = None,
        *,
        align: Align | None = None,
        q_positions: npt.ArrayLike | None = None,
        k_positions: npt.ArrayLike | None = None,
    ) -> Arrays:
        """Return the gradient of `matrix` with respect to the operator's arrays.

        Parameters
        ----------
        grad : array (..., H, n, m) or (..., H, n + m - 1)
            Cotangent of the matrix. If the matrix is a view, the sums of the cotangent along diagonals are accepted
            too: entry ``j - i + n - 1``.
        n, m, align, q_positions, k_positions
            As in `matrix`.

        Returns
        -------
        NamedTuple
            One gradient per array, in its shape and dtype, summed over leading axes of `grad`. Of a sum, a tuple with
            the NamedTuple of each part.

        Raises
        ------
        TypeError, ValueError, IndexError
            As `matrix`; also a `grad` of another shape.

        Examples
        --------
        >>> import numpy as np, posenc
        >>> posenc.alibi([1.0]).matrix_vjp(np.ones((1, 2, 2)), 2)
        AlibiArrays(slopes=array([-2.]))
        """
        positions = read_method_positions(self, n, m, align, q_positions, k_positions)
        with convert.without_warnings():
            gradients = self._scheme.kind.vjp(self, read.data("grad", grad), positions)
        return name_gradients(self, gradients if self._scheme is SUM else (gradients,))


# ---- what calls of attention and of methods share ----


def add_slots(sums: Array, rank: int) -> Array:
    """Return sums (batch axes, H, slots, ...) of `_core`, whose last `rank` axes are their own, summed over slots."""
    axis = -1 - rank
    return sums.squeeze(axis) if sums.shape[axis] == 1 else sums.sum(axis)


def add_rows(sums: Array, rank: int) -> Array:
    """Return such sums summed over the batch and slots: float64, or as they are if there is nothing to add."""
    own = sums.shape[sums.ndim - rank - 2 :]
    rows = sums.reshape(prod(sums.shape[: sums.ndim - rank - 2]), *own)
    return rows[0, :, 0] if rows.shape[0] == rows.shape[2] == 1 else rows.sum((0, 2), dtype=F64)


def name_gradients(bias: Bias[Arrays], of_parts: Sequence[Gradients]) -> Arrays:
    """Return gradients by name, in the dtypes in which the arrays were passed; of a sum, those of each part."""
    named = []
    for part, gradients in zip(bias.parts, of_parts, strict=True):
        arrays: list[object] = []
        for gradient, array, dtype in zip(gradients, part.arrays, part.dtypes, strict=True):
            if type(array) is tuple:
                pairs = zip(gradient, array, strict=True)
                arrays.append(tuple([convert.result(one, each.dtype) for one, each in pairs]))
            else:
                arrays.append(None if gradient is None or dtype is None else convert.result(gradient, dtype))
        named.append(part.arrays._make(arrays))
    return cast("Arrays", tuple(named) if bias._scheme is SUM else named[0])


def resolve_positions(bias: Bias, of_call: Positions) -> Positions:
    """Return the positions that an operator reads: its own, or those of the call.

    Both sides may be moved by one offset where the operator reads distances only.
    """
    q, k = bias.own_positions
    if q is None and k is None:
        return of_call
    for argument, own, length in (("q_positions", q, of_call.n), ("k_positions", k, of_call.m)):
        if own is not None and own.shape[-1] != length:
            fail(ValueError, argument, f"length {own.shape[-1]} ({bias.name}.at)", str(length))
    of_queries, of_keys = of_call.as_arrays()
    positions = Positions(of_call.n, of_call.m, 0.0, (of_queries if q is None else q, of_keys if k is None else k))
    return positions.as_consecutive() if bias._scheme.kind.is_relative else positions


def read_method_positions(
    bias: Bias,
    n: int,
    m: int | None,
    align: Align | None,
    q_positions: npt.ArrayLike | None,
    k_positions: npt.ArrayLike | None,
) -> Positions:
    """Return the positions that an operator reads in a call of a method."""
    n = read.index("n", n, 0)
    m = n if m is None else read.index("m", m, 0)
    if align is not None:
        read.choice("align", align, get_args(Align))
    if q_positions is None and k_positions is None:
        if align is None and n != m and bias.reads_positions:
            expected = f"'start', or 'end' as in decoding, because n = {n} and m = {m} differ"
            fail_value(ValueError, "align", None, expected)
        positions = Positions(n, m, float(m - n) if align == "end" else 0.0)
    else:
        if align is not None:
            fail_value(ValueError, "align", align, "None where positions are given")
        refuse_positions(bias, q_positions, k_positions)
        positions = read_positions(n, m, q_positions, k_positions)
    return resolve_positions(bias, positions)


def refuse_positions(bias: Bias, *sides: npt.ArrayLike | None) -> None:
    """Refuse positions of a side, queries or keys, on which every part has its own."""
    for side, (argument, positions) in enumerate(zip(("q_positions", "k_positions"), sides, strict=True)):
        if positions is not None and all(part.own_positions[side] is not None for part in bias.parts):
            fail(ValueError, argument, "a value", f"None, because {bias.name} has positions of its own")


def heads_of(q: Array) -> int:
    """Return the number of heads of q (..., H, N, D), or of one head (N, D)."""
    return q.shape[-3] if q.ndim > 2 else 1


def check_heads(bias: Bias, q: Array) -> None:
    """Refuse an operator that has not as many heads as q (..., H, N, D)."""
    heads = heads_of(q)
    if bias.heads not in (None, heads) and bias.name != "dense":  # whose array broadcasts
        is_transposed = any(np.shape(array) == (heads, bias.heads) for array in bias.arrays)
        hint = "; its table (rows, heads) seems to be transposed" if is_transposed else ""
        hint = f"; pass heads={heads} to {bias.name}" if "heads" in bias.options else hint
        fail(ValueError, "bias", f"{bias.heads} heads ({bias.name})", f"{heads}, axis -3 of q{hint}")


# ---- sums ----


def _matrices(bias: Bias, positions: Positions) -> list[Array]:
    """Return the matrices of the parts of a sum as float64."""
    matrices = [part._scheme.kind.matrix(part, resolve_positions(part, positions), F64, None) for part in bias.parts]
    try:
        np.broadcast_shapes(*(matrix.shape for matrix in matrices))
    except ValueError:
        shapes = ", ".join(str(matrix.shape) for matrix in matrices)
        fail(ValueError, "bias", f"parts of shapes {shapes}", "shapes that broadcast")
    return matrices


def _sum_matrix(bias: Bias, positions: Positions, dtype: Dtype, out: Array | None) -> Array:
    return convert.store(out, reduce(np.add, _matrices(bias, positions)), dtype)


def _sum_vjp(bias: Bias, grad: Array, positions: Positions) -> Gradients:
    shapes = [matrix.shape for matrix in _matrices(bias, positions)]
    check_cotangent(grad, np.broadcast_shapes(*shapes))
    gradients = []
    for part, shape in zip(bias.parts, shapes, strict=True):
        at = resolve_positions(part, positions)
        gradients.append(part._scheme.kind.vjp(part, convert.unbroadcast(grad, shape, F64), at))
    return tuple(gradients)


SUM: Scheme[Any] = Scheme("sum", Kind(matrix=_sum_matrix, vjp=_sum_vjp), cast("Any", tuple))


# ---- arrays ----


class Row(NamedTuple):
    """The arrays of an operator, read from its row of csrc/ops.def."""

    axes: dict[str, str]
    """The axes of each array that the user passes, one letter per axis."""
    signature: str
    """The signature by which `_core.read` reads them in any dtype."""


@cache
def read_row(row: str) -> Row:
    """Return the arrays of a row. Operands that the tile supplies or that Python derives are left out."""
    inputs = _core.TABLE[row].partition("->")[0]
    arrays = re.findall(r"\w+ (\w+)\(([\w,]*)\)([\w ]*)", inputs)
    own = [(name, letters) for name, letters, words in arrays if not {"tiled", "derived"} & {*words.split()}]
    axes = {name: letters.replace(",", "") for name, letters in own}
    return Row(axes, ", ".join(f"real {name}({letters}) alone" for name, letters in own))


def count_heads(row: str, arrays: tuple[object, ...], options: Options) -> int | None:
    """Return the number of heads: the option `heads`, or the length of an axis h. Return None if there is neither."""
    if "heads" in options:
        return int(options["heads"] or 1)
    for axes, array in zip(read_row(row).axes.values(), arrays, strict=False):
        if isinstance(array, np.ndarray) and "h" in axes and array.ndim >= len(axes):
            return int(array.shape[axes.index("h") - len(axes)])
    return None


def count_positions(bias: Bias, most: int) -> tuple[int, int]:
    """Return numbers of queries and keys that all parts of an operator serve.

    Axes n and m of the arrays and the operator's own positions are exactly as long. Other parts serve any number, or
    the positions of their table: then it is `most`, or as many as the table has.
    """
    by_position = ((part, re.search(r"(\w+)\((?:\w,)*T\)", _core.TABLE[part.name])) for part in bias.parts)
    ends = [part._term.operands[found[1]].shape[-1] for part, found in by_position if found]
    lengths = dict.fromkeys("nm", min([most, *ends]))
    for part in bias.parts:
        arrays = zip(read_row(part.name).axes.values(), part.arrays, strict=False)
        for axes, array in (*arrays, *zip("nm", part.own_positions, strict=True)):
            if "l" in axes:  # the diagonals of `toeplitz`
                lengths.update(n=(array.shape[-1] + 1) // 2, m=array.shape[-1] // 2 + 1)
            for side in lengths:
                if side in axes and array is not None:
                    lengths[side] = array.shape[axes.index(side) - len(axes)]
    return lengths["n"], lengths["m"]


def copy_parameters(row: str, *parameters: npt.ArrayLike) -> tuple[list[Array], tuple[Dtype, ...]]:
    """Return finite float64 copies of the user's arrays, whose axes the row states, and the dtypes of these arrays.

    Of a table whose last axis is that of the heads, the numbers of a head are adjacent in memory.
    """
    axes, signature = read_row(row)
    read = _core.read(signature, **dict(zip(axes, parameters, strict=True)))
    arrays = read if isinstance(read, tuple) else (read,)
    copies = []
    for (name, letters), array in zip(axes.items(), arrays, strict=True):
        finite = _core.read(f"f64 {name}() finite", **{name: array})
        copies.append(np.array(finite, order="F" if letters[1:] == "h" else "C"))
    return copies, tuple([array.dtype for array in arrays])


def copy_finite(argument: str, array: Array) -> Array:
    """Return a contiguous copy of an array in native byte order. Refuse NaN and infinity."""
    copy = np.array(array, array.dtype.newbyteorder("="), order="C")
    if not np.isfinite(copy.astype(F32 if copy.itemsize == 2 else copy.dtype, copy=False)).all():
        fail(ValueError, argument, "NaN or infinity", "finite numbers")
    return copy


def read_cotangent(grad: Array, shape: tuple[int, ...]) -> Float64:
    """Return `grad` summed over the axes before those of the matrix, which has this shape."""
    return convert.unbroadcast(check_cotangent(grad, shape).astype(F64, copy=False), shape, F64)


def check_cotangent(grad: Array, shape: tuple[int, ...]) -> Array:
    """Return `grad`. Raise ValueError unless its last axes have the lengths `shape`, that of the matrix."""
    if grad.ndim < len(shape) or grad.shape[grad.ndim - len(shape) :] != shape:
        fail(ValueError, "grad", f"shape {grad.shape}", f"(..., {', '.join(map(str, shape))})")
    return grad
