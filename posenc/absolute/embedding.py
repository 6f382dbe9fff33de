"""Learned position embeddings: rows of a table, n rows combined for n * n positions, or resampled to other lengths."""

from __future__ import annotations

import warnings
from typing import Literal, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api import convert, read
from .._core_api.arrays import I64, Array, Dtype, Float64
from .._core_api.door import door, fail, fail_value
from .._core_api.foreign import refuse_rest, take_all

Indices = npt.NDArray[np.int64]
Method = Literal["linear", "cubic"]
REACH = {"linear": 1, "cubic": 2}
"""Rows on each side of a position that count."""
MOST_ROWS = 2**31 - 1


class LearnedGradient(NamedTuple):
    """Gradient of `learned`.

    Attributes
    ----------
    table : array (n, d)
        In the dtype of the table.
    """

    table: Array


class HierarchicalGradient(NamedTuple):
    """Gradient of `hierarchical`.

    Attributes
    ----------
    table : array (n, d)
        In the dtype of the table.
    """

    table: Array


class InterpolateTableGradient(NamedTuple):
    """Gradient of `interpolate_table`.

    Attributes
    ----------
    table : array (r, d) or (H, W, d)
        In the dtype of the table.
    """

    table: Array


class Entries(NamedTuple):
    """Terms of sums of rows: ``weight[e] * x[position[e]]`` is added to row ``row[e]`` of the result, for each e."""

    row: Indices
    position: Indices
    weight: Float64 | None
    """None: all weights are 1."""


def weighted_rows(x: Array, rows: int, entries: Entries, dtype: Dtype) -> Array:
    """Return an array (..., rows, d), whose row r is the sum of all entries with ``row == r``, of x (..., 1, n, d).

    A stable sort makes the entries of a row adjacent and keeps their order. The kernel adds them in this order in
    float64, with any number of threads, and rounds each sum once.
    """
    order = np.argsort(entries.row, kind="stable")
    bounds = np.zeros(rows + 1, I64)
    np.cumsum(np.bincount(entries.row, minlength=rows), out=bounds[1:])
    weight = None if entries.weight is None else entries.weight[order]
    return _core.weighted_rows(
        x=x, order=entries.position[order], weight=weight, first=bounds[:-1], last=bounds[1:], dtype=dtype
    )


@take_all
def learned(
    table: npt.ArrayLike,
    positions: npt.ArrayLike,
    *more: NoReturn,
    start: int = 0,
    out: Array | None = None,
    **unknown: NoReturn,
) -> Array:
    """Look up learned position embeddings.

    ``PE[m] = table[positions[m]]``.

    Parameters
    ----------
    table : array (n, d)
        A row for each position.
    positions : int or array (..., N) of integers
        Row indices, in any order and with repeats. An int n means start .. start+n-1, by default 0 .. n-1.
    start : int
        The first position, if `positions` is an int n: start .. start+n-1.
    out : array (..., N, d), optional
        Filled and returned.

    Returns
    -------
    ndarray (..., N, d)
        Rows of `table`, bit for bit, in its dtype.

    Raises
    ------
    TypeError
        Positions that are not integers.
    IndexError
        A position that has no row: negative, or at least n. The message names the first such position.
    ValueError
        A table that does not have two axes.

    Notes
    -----
    Gehring et al. 2017, section 3.1; Devlin et al. 2019, section 3. A negative position is refused; it does not
    count from the end. No row is a padding row: torch.nn.Embedding leaves the row ``padding_idx`` without a gradient,
    and `learned_vjp` returns a gradient for every row.

    Examples
    --------
    Two documents, of 2 tokens and 1 token, packed into one sequence:

    >>> import numpy as np, posenc
    >>> table = np.array([[0.0, 1.0], [2.0, 3.0]])
    >>> posenc.learned(table, [0, 1, 0])
    array([[0., 1.],
           [2., 3.],
           [0., 1.]])

    The embedding of the next token of a text of 1 token:

    >>> posenc.learned(table, 1, start=1)
    array([[2., 3.]])
    """
    if more or unknown:
        refuse_rest("learned", learned, {"table": table, "positions": positions}, more, unknown)
    return _core.learned("learned", table=table, positions=positions, start=start, out=out)


@door
def learned_vjp(
    grad: npt.ArrayLike, table: npt.ArrayLike, positions: npt.ArrayLike, *, start: int = 0
) -> LearnedGradient:
    """Return the gradient of `learned`.

    ``dtable[r] = sum of grad[m]`` over all m with ``positions[m] == r``.

    Parameters
    ----------
    grad : array (..., N, d)
        Cotangent of the result.
    table, positions, start
        The arguments of `learned`. Of the table only its shape and dtype are used.

    Returns
    -------
    LearnedGradient
        ``table`` (n, d), in its dtype. Each row is summed in float64, in the order of the positions, and rounded once.

    Raises
    ------
    TypeError, ValueError, IndexError
        As `learned`. Also if `grad` does not have the shape of the result.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.learned_vjp(np.array([[1.0], [2.0], [4.0]]), np.zeros((3, 1)), [1, 0, 1]).table
    array([[2.],
           [5.],
           [0.]])
    """
    table, ids, grad = _core.read("learned", table=table, positions=positions, start=start, grad=grad)
    entries = Entries(ids.reshape(-1), np.arange(ids.size), None)
    return LearnedGradient(weighted_rows(grad.reshape(ids.size, table.shape[1]), len(table), entries, table.dtype))


def _read_alpha(alpha: float) -> float:
    number = read.number("alpha", alpha)
    if not 0 < number < 1:
        fail_value(ValueError, "alpha", alpha, "more than 0 and less than 1")
    return number


@door
def hierarchical(
    table: npt.ArrayLike, positions: npt.ArrayLike, *, alpha: float = 0.4, start: int = 0, out: Array | None = None
) -> Array:
    """Extend n learned position embeddings to n * n positions.

    ``PE[i n + j] = alpha u[i] + (1 - alpha) u[j]``, ``u = (p - alpha p[0]) / (1 - alpha)``.

    Parameters
    ----------
    table : array (n, d)
        Trained embeddings p of the first n positions.
    positions : int or array (..., N) of integers
        At least 0 and below n * n. An int m means start .. start+m-1, by default 0 .. m-1.
    alpha : float
        More than 0 and less than 1. With 0.5 the positions (i, j) and (j, i) have the same row, so a warning is issued.
    start : int
        The first position, if `positions` is an int m: start .. start+m-1.
    out : array (..., N, d), optional
        Filled and returned.

    Returns
    -------
    ndarray (..., N, d)
        In the dtype of `table`. A position below n has its row of the table, bit for bit.

    Raises
    ------
    TypeError
        Positions that are not integers.
    IndexError
        A position below 0, or at least n * n. The message names the first such position.
    ValueError
        An alpha that is not between 0 and 1, or a table that does not have two axes.

    Warns
    -----
    UserWarning
        ``alpha=0.5``. `hierarchical_vjp` does not repeat the warning.

    Notes
    -----
    Su 2020, "Hierarchical decomposition of position codes", which counts i and j from 1; bert4keras,
    ``hierarchical_position``. A row is computed as ``p[j] + alpha / (1 - alpha) (p[i] - p[0])``, which is equal to the
    formula. Rows with i = 0 are copied, because the second term is 0. bert4keras computes both products of the formula,
    so its first n rows differ from the table in the last bit. Only the requested rows are computed.

    Examples
    --------
    A table of 2 rows reaches 4 positions:

    >>> import numpy as np, posenc
    >>> posenc.hierarchical(np.array([[0.0], [3.0]]), 4)
    array([[0.],
           [3.],
           [2.],
           [5.]])
    """
    alpha = _read_alpha(alpha)
    if alpha == 0.5:
        warnings.warn(
            "hierarchical: alpha is 0.5; expected another value: positions (i, j) and (j, i) have the same row",
            UserWarning,
            stacklevel=3,  # beyond the door
        )
    return _core.hierarchical(table=table, positions=positions, start=start, out=out, alpha=alpha)


@door
def hierarchical_vjp(
    grad: npt.ArrayLike, table: npt.ArrayLike, positions: npt.ArrayLike, *, alpha: float = 0.4, start: int = 0
) -> HierarchicalGradient:
    """Return the gradient of `hierarchical`.

    ``dp[j] += g``, ``dp[i] += c g``, ``dp[0] -= c g``, ``c = alpha / (1 - alpha)``.

    Parameters
    ----------
    grad : array (..., N, d)
        Cotangent of the result.
    table, positions, alpha, start
        The arguments of `hierarchical`.

    Returns
    -------
    HierarchicalGradient
        ``table`` (n, d), in its dtype. Each row is summed in float64 in a fixed order and rounded once.

    Raises
    ------
    TypeError, ValueError, IndexError
        As `hierarchical`. Also if `grad` does not have the shape of the result.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.hierarchical_vjp(np.array([[3.0]]), np.zeros((2, 1)), [3]).table
    array([[-2.],
           [ 5.]])
    """
    alpha = _read_alpha(alpha)
    table, ids, grad = _core.read("hierarchical", table=table, positions=positions, start=start, grad=grad)
    i, j = np.divmod(ids.reshape(-1), max(table.shape[0], 1))
    (beyond,) = np.nonzero(i)  # the other positions have i = 0, so their p[i] - p[0] is 0
    factor = alpha / (1 - alpha)
    entries = Entries(
        row=np.concatenate([j, i[beyond], np.zeros_like(beyond)]),
        position=np.concatenate([np.arange(ids.size), beyond, beyond]),
        weight=np.repeat([1.0, factor, -factor], [ids.size, beyond.size, beyond.size]),
    )
    return HierarchicalGradient(weighted_rows(grad.reshape(ids.size, table.shape[1]), len(table), entries, table.dtype))


class _Resampling(NamedTuple):
    """What is to be computed."""

    prefix: int
    """Rows before those of the grid, which are kept."""
    grid: tuple[int, ...]
    """Lengths of the table's axes of positions."""
    size: tuple[int, ...]
    """Lengths of the result's axes of positions."""
    entries: tuple[Entries, ...]
    """The sums of rows along each axis."""


def _read_pair(argument: str, value: object) -> tuple[int, int]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        fail_value(ValueError, argument, value, "two lengths, such as (14, 14)")
    first, second = (read.index(argument, length, 0, MOST_ROWS) for length in value)
    return first, second


def _read_arguments(
    table: npt.ArrayLike,
    n: int | tuple[int, int],
    grid: tuple[int, int] | None,
    method: Method,
    corners: bool | None,
    antialias: bool,
    prefix: int,
    **result: npt.ArrayLike | None,
) -> tuple[Array, Array, _Resampling]:
    """Return the table, the array of the result `out` or its cotangent `grad`, and what is to be computed."""
    read.choice("method", method, REACH)
    antialias, prefix = read.flag("antialias", antialias), read.index("prefix", prefix, 0, MOST_ROWS)
    is_line = not isinstance(n, tuple | list)
    size = (read.index("n", n, 0, MOST_ROWS),) if is_line else _read_pair("n", n)
    corners = is_line and method == "linear" and not antialias if corners is None else read.flag("corners", corners)
    if is_line and grid is not None:
        fail_value(ValueError, "grid", grid, "None, because n is one number")
    signature = "real table(r,d) alone -> real out(n,d) like_first"
    lengths = {"n": prefix + int(np.prod(size, dtype=object))}
    if not is_line and grid is None:
        table = read.array("table", table)
        if table.ndim == 2:
            fail_value(ValueError, "n", n, "an integer for a table (N, D); (h, w) needs (H, W, D), or grid=(H, W)")
        signature, lengths = "real table(r,s,d) alone -> real out(m,n,d) like_first", {"m": size[0], "n": size[-1]}
        if prefix:
            fail_value(ValueError, "prefix", prefix, "0 for a table (H, W, D); rows before a grid need grid=(H, W)")
    table = _core.read(signature.partition(" ->")[0], table=table)
    if is_line:
        shape: tuple[int, ...] = (len(table) - prefix,)
    else:
        shape = table.shape[:2] if grid is None else _read_pair("grid", grid)
    if (grid is not None and len(table) != prefix + shape[0] * shape[1]) or shape[0] < 0:
        expected = f"{prefix} + {shape[0]} * {shape[1]}, prefix and grid" if grid is not None else f"at least {prefix}"
        fail(ValueError, "table", f"{len(table)} rows", expected)
    for rows, length in zip(shape, size, strict=True):
        if length and not rows:
            fail(ValueError, "table", "no rows", "at least one")
        if rows > MOST_ROWS:
            fail(ValueError, "table", f"{rows} rows", f"at most {MOST_ROWS}")
    _, of_result = _core.read(signature, table=table, **lengths, **result)  # beyond memory it is refused before weights
    read.check_table_size(max(size) * 4, n=max(size))  # the weights of positions
    entries = tuple([_resample(*axis, method, corners, antialias) for axis in zip(shape, size, strict=True)])
    return table, of_result, _Resampling(prefix, shape, size, entries)


def _resample(rows: int, n: int, method: Method, corners: bool, antialias: bool) -> Entries:
    """Return the rows of a table, and their weights, that make up each of n positions."""
    reach, positions = REACH[method], np.arange(n, dtype=I64)
    step, per = (rows, max(n, 1)) if not corners else (rows - 1, n - 1) if n > 1 else (0, 1)
    # Places are fractions of integers, so that a row of the table is met exactly.
    place, steps = (positions * step, per) if corners and not antialias else ((2 * positions + 1) * step - per, 2 * per)
    if antialias:
        stretch = max(step / per, 1.0)
        begin = np.maximum(np.floor(place / steps - reach * stretch).astype(I64), 0)
        taps = begin[:, None] + np.arange(int(2 * reach * stretch) + 2)
        weight = _filter((taps * steps - place[:, None]) / (steps * stretch), method, a=-0.5) * (taps < rows)
        weight /= weight.sum(axis=1, keepdims=True)
    else:
        row, rest = np.divmod(place if method == "cubic" else np.maximum(place, 0), steps)
        offsets = np.arange(1 - reach, 1 + reach)
        taps = np.clip(row[:, None] + offsets, 0, max(rows - 1, 0))
        weight = _filter(offsets - (rest / steps)[:, None], method, a=-0.75)
    used = weight != 0  # other rows are not read, and may be NaN
    return Entries(row=np.nonzero(used)[0], position=taps[used], weight=weight[used])


def _filter(distance: Float64, method: Method, a: float) -> Float64:
    """Return the weight of a row at a distance: a triangle, or the cubic convolution of Keys 1981, equation 4."""
    x = np.abs(distance)
    if method == "linear":
        triangle: Float64 = np.maximum(1 - x, 0)
        return triangle
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, a * (((x - 5) * x + 8) * x - 4)
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _sum_rows(x: Array, axis: int, rows: int, entries: Entries, dtype: Dtype) -> Array:
    """Return x (..., D) with sums of its rows along one of its axes."""
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    flat = x.reshape(int(np.prod(before)), 1, x.shape[axis], int(np.prod(after)))
    return weighted_rows(flat, rows, entries, dtype).reshape(*before, rows, *after)


@door
def interpolate_table(
    table: npt.ArrayLike,
    n: int | tuple[int, int],
    *,
    grid: tuple[int, int] | None = None,
    method: Method = "linear",
    corners: bool | None = None,
    antialias: bool = False,
    prefix: int = 0,
    out: Array | None = None,
) -> Array:
    """Resample learned position embeddings to `n` positions, along one axis or over a grid of image patches.

    ``PE[i] = sum_t f(t - p[i]) table[t]``, ``p[i] = i (r - 1) / (n - 1)`` if `corners`, else ``(i + 1/2) r / n - 1/2``.

    The result is that of ``torch.nn.functional.interpolate``. Position i is at place p[i] between the r rows of the
    table. The filter f is a triangle, which weights two rows, or a cubic convolution, which weights four. Over a grid,
    both axes are resampled, one after the other.

    Parameters
    ----------
    table : array (r, d) or (H, W, d)
        A row for each position. Of an image either (H, W, d), or (prefix + H W, d) with ``grid=(H, W)``.
    n : int or (int, int)
        Number of positions, at most ``2**28``, or (h, w) for a grid.
    grid : (int, int), optional
        H and W of a table (prefix + H W, d), whose rows are those of the image, one after the other.
    method : {"linear", "cubic"}
        The filter. Cubic weights may be negative.
    corners : bool, optional
        True: the first and the last position keep their rows. False: positions are centres of intervals (half-pixel),
        and the borders are repeated. The default is True for one axis, linear and without `antialias`, else False.
    antialias : bool
        Stretch the filter where the result has fewer positions, so that each row of the table counts; rows beyond the
        borders are left out instead of repeated, and the cubic filter is another one (Notes).
    prefix : int
        Rows before the positions, such as class tokens, which are copied.
    out : array of the result's shape, optional
        Filled and returned.

    Returns
    -------
    ndarray (prefix + n, d), (prefix + h w, d) or (h, w, d)
        In the dtype of `table`. A position that coincides with a row of the table is that row, bit for bit.

    Raises
    ------
    TypeError, ValueError
        A table whose axes or rows do not fit `n`, `grid` and `prefix`, or that has no row; a length that is not an
        integer of at least 0.

    Notes
    -----
    The arguments of ``torch.nn.functional.interpolate`` are ``mode="bilinear"`` or ``"bicubic"``, `size`,
    ``align_corners=corners`` and `antialias`; one axis is a grid with an axis of 1. As there, the cubic filter has
    a = -0.75, and -0.5 with `antialias` (Keys 1981), and `antialias` together with aligned corners shifts the result.
    Learned tables are extended this way to longer texts or finer images before fine-tuning (Dosovitskiy et al. 2021,
    section 3.2).

    Examples
    --------
    A model that was trained on 3 positions reads 5:

    >>> import numpy as np, posenc
    >>> posenc.interpolate_table(np.array([[0.0, 8.0], [2.0, 6.0], [4.0, 0.0]]), 5)
    array([[0., 8.],
           [1., 7.],
           [2., 6.],
           [3., 3.],
           [4., 0.]])

    A ViT of 14 x 14 patches and a class token reads 16 x 16:

    >>> table = np.zeros((1 + 14 * 14, 768), np.float32)
    >>> posenc.interpolate_table(table, (16, 16), grid=(14, 14), method="cubic", prefix=1).shape
    (257, 768)
    """
    table, target, to = _read_arguments(table, n, grid, method, corners, antialias, prefix, out=out)
    result = table[to.prefix :].reshape(*to.grid, table.shape[-1])
    for axis, (rows, entries) in enumerate(zip(to.size, to.entries, strict=True)):
        is_last = axis == len(to.size) - 1
        result = _sum_rows(result, axis, rows, entries, target.dtype if is_last else convert.arithmetic(table))
    kept = table[: to.prefix].copy()  # `out` may be the memory of the table
    target[to.prefix :] = result.reshape(target[to.prefix :].shape)
    if to.prefix:
        target[: to.prefix] = kept
    return target


@door
def interpolate_table_vjp(
    grad: npt.ArrayLike,
    table: npt.ArrayLike,
    n: int | tuple[int, int],
    *,
    grid: tuple[int, int] | None = None,
    method: Method = "linear",
    corners: bool | None = None,
    antialias: bool = False,
    prefix: int = 0,
) -> InterpolateTableGradient:
    """Return the gradient of `interpolate_table`.

    ``dtable[t] = sum of f(t - p_i) grad[i]``, in the order of the positions i.

    Parameters
    ----------
    grad : array of the result's shape
        Cotangent of the result. See `interpolate_table` for the other arguments.

    Returns
    -------
    InterpolateTableGradient
        ``table``, in the shape and dtype of the table.

    Raises
    ------
    TypeError, ValueError
        As `interpolate_table`. Also if `grad` does not have the shape of the result.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.interpolate_table_vjp(np.ones((3, 1)), np.zeros((2, 1)), 3).table
    array([[1.5],
           [1.5]])
    """
    table, grad, to = _read_arguments(table, n, grid, method, corners, antialias, prefix, grad=grad)
    dtype = table.dtype.newbyteorder("=")
    result = grad[to.prefix :].reshape(*to.size, table.shape[-1])
    for axis, (rows, entries) in reversed(list(enumerate(zip(to.grid, to.entries, strict=True)))):
        transposed = entries._replace(row=entries.position, position=entries.row)
        result = _sum_rows(result, axis, rows, transposed, convert.arithmetic(table) if axis else dtype)
    result = result.reshape(len(table) - to.prefix, *table.shape[1:])
    if to.prefix:
        result = np.concatenate([convert.result(grad[: to.prefix], dtype), result])
    return InterpolateTableGradient(result)
