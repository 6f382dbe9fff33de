"""A learned table resampled to another number of positions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import I64, Array, as_index, fail, finish_out, prepare_out
from .embedding import as_table, gathered

__all__ = ["InterpolateTableGradient", "interpolate_table", "interpolate_table_vjp"]


class InterpolateTableGradient(NamedTuple):
    """Gradient of `interpolate_table`, in the dtype of the table."""

    table: Array


def _table_and_rows(function: str, table: npt.ArrayLike, n: int) -> tuple[Array, int]:
    array, rows = as_table(function, table), as_index(function, "n", n, 0, 2**31 - 1)
    if rows and not len(array):
        fail(ValueError, function, "table", "no rows", "at least one")
    return array, rows


def interpolate_table(table: npt.ArrayLike, n: int, *, out: Array | None = None) -> Array:
    """Resample a learned table linearly to `n` positions, keeping its end points.

    ``out[i] = (1 - f) table[w] + f table[w + 1]``, ``w + f = i (len(table) - 1) / (n - 1)``

    Parameters
    ----------
    table : array (r, d)
        A row for each position, at least one.
    n : int
        Positions wanted, at most ``2**31 - 1``. One position is row 0.
    out : array (n, d), optional
        Filled and returned.

    Returns
    -------
    ndarray (n, d)
        In the dtype of `table`. A position that falls on a row of the table is that row, bit for bit.

    Raises
    ------
    TypeError, ValueError
        A table that does not have two axes or has no row, an `n` that is no integer of at least 0.

    Notes
    -----
    As ``torch.nn.functional.interpolate(mode="linear", align_corners=True)`` along the positions. It is how a learned
    table is stretched to longer texts or finer images before fine-tuning (Dosovitskiy et al. 2021, section 3.2, which
    interpolates in two dimensions).

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
    """
    function = "interpolate_table"
    array, rows = _table_and_rows(function, table, n)
    out, buffer = prepare_out(function, out, (rows, array.shape[1]), array.dtype, (array,))
    if buffer.size:
        _core.interpolate_table(function, array, buffer)
    return finish_out(out, buffer)


def interpolate_table_vjp(grad: npt.ArrayLike, table: npt.ArrayLike, n: int) -> InterpolateTableGradient:
    """Compute the gradient of `interpolate_table`: each row gathers the positions that it is mixed into.

    Parameters
    ----------
    grad : array (n, d)
        Cotangent of the result.
    table, n
        As in `interpolate_table`.

    Returns
    -------
    InterpolateTableGradient
        ``table``, in the shape and dtype of the table.

    Raises
    ------
    TypeError, ValueError
        As `interpolate_table`; also a `grad` of another shape.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.interpolate_table_vjp(np.ones((3, 1)), np.zeros((2, 1)), 3).table
    array([[1.5],
           [1.5]])
    """
    function = "interpolate_table_vjp"
    array, rows = _table_and_rows(function, table, n)
    positions = np.arange(rows, dtype=I64)
    parts = max(rows - 1, 1)
    row, rest = np.divmod(positions * max(len(array) - 1, 0), parts)
    upper = np.minimum(row + 1, max(len(array) - 1, 0))
    entries = np.concatenate([row, upper]), np.tile(positions, 2), np.concatenate([1 - rest / parts, rest / parts])
    return InterpolateTableGradient(gathered(function, grad, array, positions, entries))
