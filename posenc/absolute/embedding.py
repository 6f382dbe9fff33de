"""Learned position embeddings: one table row per position, or n table rows combined for n * n positions."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api import read
from .._core_api.arrays import I64, Array, Dtype, Float64
from .._core_api.door import door, fail_value

Indices = npt.NDArray[np.int64]


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


def learned(table: npt.ArrayLike, positions: npt.ArrayLike, *, out: Array | None = None) -> Array:
    """Look up learned position embeddings.

    ``PE[m] = table[positions[m]]``.

    Parameters
    ----------
    table : array (n, d)
        A row for each position.
    positions : int or array (..., N) of integers
        Row indices, in any order and with repeats. An int n means 0 .. n-1.
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
    """
    return _core.learned("learned", table=table, positions=positions, out=out)


@door
def learned_vjp(grad: npt.ArrayLike, table: npt.ArrayLike, positions: npt.ArrayLike) -> LearnedGradient:
    """Return the gradient of `learned`.

    ``dtable[r] = sum of grad[m]`` over all m with ``positions[m] == r``.

    Parameters
    ----------
    grad : array (..., N, d)
        Cotangent of the result.
    table, positions
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
    table, ids, grad = _core.read("learned", table=table, positions=positions, grad=grad)
    entries = Entries(ids.reshape(-1), np.arange(ids.size), None)
    return LearnedGradient(weighted_rows(grad.reshape(ids.size, table.shape[1]), len(table), entries, table.dtype))


def _read_alpha(alpha: float) -> float:
    number = read.number("alpha", alpha)
    if not 0 < number < 1:
        fail_value(ValueError, "alpha", alpha, "more than 0 and less than 1")
    return number


@door
def hierarchical(
    table: npt.ArrayLike, positions: npt.ArrayLike, *, alpha: float = 0.4, out: Array | None = None
) -> Array:
    """Extend n learned position embeddings to n * n positions.

    ``PE[i n + j] = alpha u[i] + (1 - alpha) u[j]``, ``u = (p - alpha p[0]) / (1 - alpha)``.

    Parameters
    ----------
    table : array (n, d)
        Trained embeddings p of the first n positions.
    positions : int or array (..., N) of integers
        At least 0 and below n * n. An int m means 0 .. m-1.
    alpha : float
        More than 0 and less than 1. With 0.5 the positions (i, j) and (j, i) have the same row, so a warning is issued.
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
    return _core.hierarchical(table=table, positions=positions, out=out, alpha=alpha)


@door
def hierarchical_vjp(
    grad: npt.ArrayLike, table: npt.ArrayLike, positions: npt.ArrayLike, *, alpha: float = 0.4
) -> HierarchicalGradient:
    """Return the gradient of `hierarchical`.

    ``dp[j] += g``, ``dp[i] += c g``, ``dp[0] -= c g``, ``c = alpha / (1 - alpha)``.

    Parameters
    ----------
    grad : array (..., N, d)
        Cotangent of the result.
    table, positions, alpha
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
    table, ids, grad = _core.read("hierarchical", table=table, positions=positions, grad=grad)
    i, j = np.divmod(ids.reshape(-1), max(table.shape[0], 1))
    (beyond,) = np.nonzero(i)  # the other positions have i = 0, so their p[i] - p[0] is 0
    factor = alpha / (1 - alpha)
    entries = Entries(
        row=np.concatenate([j, i[beyond], np.zeros_like(beyond)]),
        position=np.concatenate([np.arange(ids.size), beyond, beyond]),
        weight=np.repeat([1.0, factor, -factor], [ids.size, beyond.size, beyond.size]),
    )
    return HierarchicalGradient(weighted_rows(grad.reshape(ids.size, table.shape[1]), len(table), entries, table.dtype))
