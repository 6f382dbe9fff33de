"""A learned table resampled to another number of positions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import I64, Array, as_index, door, fail
from .embedding import Entries, read_table, scatter_add


class InterpolateTableGradient(NamedTuple):
    """Gradient of `interpolate_table`.

    Attributes
    ----------
    table : array (r, d)
        In the dtype of the table.
    """

    table: Array


def _read_arguments(table: npt.ArrayLike, n: int) -> tuple[Array, int]:
    table, n = read_table(table), as_index("n", n, 0, 2**31 - 1)
    if n and not len(table):
        fail(ValueError, "table", "no rows", "at least one")
    return table, n


@door
def interpolate_table(table: npt.ArrayLike, n: int, *, out: Array | None = None) -> Array:
    """Resample learned position embeddings linearly to `n` positions, keeping the end points.

    ``PE[i] = (1 - f) table[w] + f table[w + 1]``, ``w + f = i (len(table) - 1) / (n - 1)``.

    Parameters
    ----------
    table : array (r, d)
        A row for each position, at least one.
    n : int
        Number of positions, at most ``2**31 - 1``. One position is row 0.
    out : array (n, d), optional
        Filled and returned.

    Returns
    -------
    ndarray (n, d)
        In the dtype of `table`. A position that coincides with a row of the table is that row, bit for bit.

    Raises
    ------
    TypeError, ValueError
        A table that does not have two axes or has no row, an `n` that is not an integer of at least 0.

    Notes
    -----
    Equal to ``torch.nn.functional.interpolate(mode="linear", align_corners=True)`` along the positions. Learned tables
    are extended this way to longer texts or finer images before fine-tuning (Dosovitskiy et al. 2021, section 3.2, who
    interpolate in two dimensions).

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
    table, n = _read_arguments(table, n)
    return _core.interpolate_table(table=table, out=out, n=n)


@door
def interpolate_table_vjp(grad: npt.ArrayLike, table: npt.ArrayLike, n: int) -> InterpolateTableGradient:
    """Return the gradient of `interpolate_table`.

    ``dtable[w] += (1 - f) grad[i]``, ``dtable[w + 1] += f grad[i]``, in the order of the positions i.

    Parameters
    ----------
    grad : array (n, d)
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
    table, n = _read_arguments(table, n)
    table, grad = _core.read("interpolate_table", table=table, grad=grad, n=n)
    last_row, last_position = max(len(table) - 1, 0), max(n - 1, 1)
    positions = np.arange(n, dtype=I64)
    row, remainder = np.divmod(positions * last_row, last_position)
    fraction = remainder / last_position
    entries = Entries(
        row=np.concatenate([row, np.minimum(row + 1, last_row)]),
        position=np.tile(positions, 2),
        weight=np.concatenate([1 - fraction, fraction]),
    )
    return InterpolateTableGradient(scatter_add(grad, table, positions, entries))
