"""A learned table resampled to another number of positions, along one axis or over a grid."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api import convert, read
from .._core_api.arrays import I64, Array, Dtype, Float64
from .._core_api.door import door, fail, fail_value
from .embedding import Entries, weighted_rows

Method = Literal["linear", "cubic"]
REACH = {"linear": 1, "cubic": 2}
"""Rows on each side of a position that count."""
MOST_ROWS = 2**31 - 1


class InterpolateTableGradient(NamedTuple):
    """Gradient of `interpolate_table`.

    Attributes
    ----------
    table : array (r, d) or (H, W, d)
        In the dtype of the table.
    """

    table: Array


class _Resampling(NamedTuple):
    """What is to be computed."""

    signature: str
    """The table and the result, for `_core.read`."""
    lengths: dict[str, int]
    """Lengths of the axes that only the result has, by their letter."""
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
    out: Array | None = None,
) -> tuple[Array, Array, _Resampling]:
    """Return the table, the array of the result, which has no numbers yet, and what is to be computed."""
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
    _, target = _core.read(signature, table=table, **lengths, out=out)  # beyond memory it is refused before its weights
    read.check_table_size(max(size) * 4, n=max(size))  # the weights of positions
    axes = zip(shape, size, strict=True)
    entries = tuple([_resample(rows, length, method, corners, antialias) for rows, length in axes])
    return table, target, _Resampling(signature, lengths, prefix, shape, size, entries)


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

    Row i is ``PE[i] = sum of f(t - p) table[t]``, where p is its place between the rows of the table: ``i (r - 1) /
    (n - 1)`` if the corners are aligned, else ``(i + 1/2) r / n - 1/2``. The filter f is a triangle, so that two rows
    count, or a cubic convolution of four rows. Over a grid, both axes are resampled, one after the other.

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
    Equal to ``torch.nn.functional.interpolate`` with ``mode="bilinear"`` or ``"bicubic"``, `size`,
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
    table, target, to = _read_arguments(table, n, grid, method, corners, antialias, prefix, out)
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
    table, _, to = _read_arguments(table, n, grid, method, corners, antialias, prefix)
    _, grad = _core.read(to.signature, table=table, grad=grad, **to.lengths)
    dtype = table.dtype.newbyteorder("=")
    result = grad[to.prefix :].reshape(*to.size, table.shape[-1])
    for axis, (rows, entries) in reversed(list(enumerate(zip(to.grid, to.entries, strict=True)))):
        transposed = entries._replace(row=entries.position, position=entries.row)
        result = _sum_rows(result, axis, rows, transposed, convert.arithmetic(table) if axis else dtype)
    result = result.reshape(len(table) - to.prefix, *table.shape[1:])
    if to.prefix:
        result = np.concatenate([convert.result(grad[: to.prefix], dtype), result])
    return InterpolateTableGradient(result)
