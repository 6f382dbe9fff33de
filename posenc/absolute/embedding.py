"""Tables: a row for each position, and n rows that reach n * n positions."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import (
    I64,
    Array,
    as_array,
    as_data,
    as_index,
    as_number,
    cast_operand,
    compute_dtype,
    fail,
    fail_value,
    finish_out,
    prepare_out,
)

__all__ = ["HierarchicalGradient", "LearnedGradient", "hierarchical", "hierarchical_vjp", "learned", "learned_vjp"]

Ids = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float64]


class LearnedGradient(NamedTuple):
    """Gradient of `learned`, in the dtype of the table."""

    table: Array


class HierarchicalGradient(NamedTuple):
    """Gradient of `hierarchical`, in the dtype of the table."""

    table: Array


def as_table(function: str, table: Any) -> Array:
    array = as_data(function, "table", table)
    if array.ndim != 2:
        fail(ValueError, function, "table", f"{array.ndim} axes", "2: a row for each position")
    return array


def as_ids(function: str, positions: Any, limit: int) -> Ids:
    """Ids of rows below `limit` as int64; ``n`` means 0..n-1."""
    expected = f"ids of at least 0 and below {limit}"
    array = positions if isinstance(positions, np.ndarray) else as_array(function, "positions", positions)
    kind = array.dtype.kind
    if array.ndim == 0 and kind in "iu":
        if int(array) > limit:
            fail(IndexError, function, "positions", f"id {int(array) - 1}", expected)
        count = as_index(function, "positions", int(array), 0)
        return np.arange(count, dtype=I64)
    if kind not in "iu":
        if isinstance(positions, list | tuple) and array.size == 0 and array.ndim:
            return array.astype(I64)  # NumPy calls an empty list float64
        if isinstance(positions, list | tuple) and kind == "O" and all(type(p) is int for p in array.flat):
            fail(IndexError, function, "positions", f"id {max(array.flat, key=abs)}", expected)
        fail(TypeError, function, "positions", f"dtype {array.dtype}", "integers")
    if array.size and (array.min() < 0 or array.max() >= limit):
        first = array[(array < 0) | (array >= limit)][0]
        fail(IndexError, function, "positions", f"id {first}", expected)
    return array.astype(I64, copy=False)


def gathered(
    function: str, grad: Any, table: Array, ids: Ids, entries: tuple[Ids, Ids, Weights | None] | None = None
) -> Array:
    """``dtable[r] = sum of weight * grad[position]`` over the entries (row, position, weight) of row r, in their order.

    Without entries each position is one, of the row of its id, with weight 1. A stable sort brings the entries of a
    row together, so that every row is one sum in float64 whatever the number of threads, and no row is zeroed twice.
    """
    cotangent = as_data(function, "grad", grad)
    wanted = (*ids.shape, table.shape[1])
    if cotangent.shape != wanted:
        fail(ValueError, function, "grad", f"shape {cotangent.shape}", str(wanted))
    rows, width = table.shape
    flat = cast_operand(cotangent, compute_dtype(table)).reshape(ids.size, width)
    row, position, weight = entries or (ids.reshape(-1), None, None)
    order = np.argsort(row, kind="stable")
    bounds = np.zeros(rows + 1, I64)
    np.cumsum(np.bincount(row, minlength=rows), out=bounds[1:])
    if weight is not None:
        weight = weight[order]
    if position is not None:
        order = position[order]
    out = np.empty(table.shape, table.dtype.newbyteorder("=") if not table.dtype.isnative else table.dtype)
    _core.gather_rows(function, flat, order, weight, bounds[:-1], bounds[1:], out)
    return out


def learned(table: npt.ArrayLike, positions: npt.ArrayLike | int, *, out: Array | None = None) -> Array:
    """Learned positions: ``PE[m] = table[positions[m]]``.

    Parameters
    ----------
    table : array (n, d)
        A row for each position.
    positions : int or array (..., N) of integers
        Rows to take, in any order, as often as they occur; ``n`` means 0..n-1.
    out : array (..., N, d), optional
        Filled and returned.

    Returns
    -------
    ndarray (..., N, d)
        In the dtype of `table`, bit for bit its rows.

    Raises
    ------
    TypeError
        Positions that are not integers.
    IndexError
        A position that has no row: negative, or n and more. The message names the first of them.
    ValueError
        A table that does not have two axes.

    Notes
    -----
    Gehring et al. 2017, section 3.1; Devlin et al. 2019, section 3. There is no padding row and no wrapping around:
    torch.nn.Embedding with ``padding_idx`` gives that row no gradient, here a table is a table.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.learned(np.array([[0.0, 1.0], [2.0, 3.0]]), [1, 0, 1])
    array([[2., 3.],
           [0., 1.],
           [2., 3.]])
    """
    function = "learned"
    rows = as_table(function, table)
    ids = as_ids(function, positions, rows.shape[0])
    out, buffer = prepare_out(function, out, (*ids.shape, rows.shape[1]), rows.dtype, (rows, ids))
    _core.learned(function, rows, ids, buffer)
    return finish_out(out, buffer)


def learned_vjp(grad: npt.ArrayLike, table: npt.ArrayLike, positions: npt.ArrayLike | int) -> LearnedGradient:
    """Gradient of `learned`: ``dtable[r] = sum of grad[m]`` over all m with ``positions[m] == r``.

    Parameters
    ----------
    grad : array (..., N, d)
        Cotangent of the rows; the other arguments are those of `learned`. Of the table only shape and dtype count.

    Returns
    -------
    LearnedGradient
        ``table`` (n, d), in its dtype. Each row is summed in float64 in the order of the positions and rounded once.

    Raises
    ------
    TypeError, ValueError, IndexError
        As `learned`; also where `grad` does not have the shape of the result.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.learned_vjp(np.array([[1.0], [2.0], [4.0]]), np.zeros((3, 1)), [1, 0, 1]).table
    array([[2.],
           [5.],
           [0.]])
    """
    function = "learned_vjp"
    rows = as_table(function, table)
    ids = as_ids(function, positions, rows.shape[0])
    return LearnedGradient(gathered(function, grad, rows, ids))


def _alpha(function: str, alpha: Any) -> float:
    number = as_number(function, "alpha", alpha)
    if not 0 < number < 1:
        fail_value(ValueError, function, "alpha", alpha, "more than 0 and less than 1")
    return number


def hierarchical(
    table: npt.ArrayLike, positions: npt.ArrayLike | int, *, alpha: float = 0.4, out: Array | None = None
) -> Array:
    """n * n positions: ``PE[i n + j] = alpha u[i] + (1 - alpha) u[j]``, ``u = (p - alpha p[0]) / (1 - alpha)``.

    Parameters
    ----------
    table : array (n, d)
        Rows p, trained as the first n positions.
    positions : int or array (..., N) of integers
        At least 0 and below n * n; ``m`` means 0..m-1.
    alpha : float
        Between 0 and 1. 0.5 warns: positions (i, j) and (j, i) then have the same row.
    out : array (..., N, d), optional
        Filled and returned.

    Returns
    -------
    ndarray (..., N, d)
        In the dtype of `table`. Positions below n are its rows bit for bit.

    Raises
    ------
    TypeError
        Positions that are not integers.
    IndexError
        A position below 0, or n * n and more. The message names the first of them.
    ValueError
        An alpha that is not inside (0, 1), a table that does not have two axes.

    Warns
    -----
    UserWarning
        ``alpha=0.5``. `hierarchical_vjp` does not say it again.

    Notes
    -----
    Su 2020, "Hierarchical decomposition of position codes", which counts i and j from 1; bert4keras,
    ``hierarchical_position``. Computed as ``p[j] + alpha / (1 - alpha) (p[i] - p[0])``, which is the same: the second
    term is zero where i = 0, and those rows are copied. bert4keras computes the two products, and its first n rows are
    the table's but for the last bit. No table of n * n rows is made.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.hierarchical(np.array([[0.0], [3.0]]), 4)
    array([[0.],
           [3.],
           [2.],
           [5.]])
    """
    function = "hierarchical"
    rows = as_table(function, table)
    number = _alpha(function, alpha)
    ids = as_ids(function, positions, rows.shape[0] ** 2)
    if number == 0.5:
        warnings.warn(
            "hierarchical: alpha has 0.5; expected another: positions (i, j) and (j, i) have the same row",
            UserWarning,
            stacklevel=2,
        )
    out, buffer = prepare_out(function, out, (*ids.shape, rows.shape[1]), rows.dtype, (rows, ids))
    _core.hierarchical(function, rows, ids, buffer, number)
    return finish_out(out, buffer)


def hierarchical_vjp(
    grad: npt.ArrayLike, table: npt.ArrayLike, positions: npt.ArrayLike | int, *, alpha: float = 0.4
) -> HierarchicalGradient:
    """Gradient of `hierarchical`: ``dp[j] += g``, ``dp[i] += c g``, ``dp[0] -= c g``, ``c = alpha / (1 - alpha)``.

    Parameters
    ----------
    grad : array (..., N, d)
        Cotangent of the rows; the other arguments are those of `hierarchical`.

    Returns
    -------
    HierarchicalGradient
        ``table`` (n, d), in its dtype. Each row is summed in float64 in a fixed order and rounded once.

    Raises
    ------
    TypeError, ValueError, IndexError
        As `hierarchical`; also where `grad` does not have the shape of the result.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.hierarchical_vjp(np.array([[3.0]]), np.zeros((2, 1)), [3]).table
    array([[-2.],
           [ 5.]])
    """
    function = "hierarchical_vjp"
    rows = as_table(function, table)
    number = _alpha(function, alpha)
    ids = as_ids(function, positions, rows.shape[0] ** 2)
    flat, n = ids.reshape(-1), max(rows.shape[0], 1)
    i, j = np.divmod(flat, n)
    (moved,) = np.nonzero(i)  # positions past the table: what is added to p[j] there is zero elsewhere
    factor = number / (1 - number)
    row = np.concatenate([j, i[moved], np.zeros_like(moved)])
    position = np.concatenate([np.arange(flat.size), moved, moved])
    weight = np.repeat([1.0, factor, -factor], [flat.size, moved.size, moved.size])
    return HierarchicalGradient(gathered(function, grad, rows, ids, (row, position, weight)))
