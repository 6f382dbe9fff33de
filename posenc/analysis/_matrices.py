"""Inner products, distances and correlations of all pairs of positions of an encoding."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._core_api import convert, read
from .._core_api.arrays import Array, Float64
from .._core_api.door import door, fail

BLOCK_NUMBERS = 1 << 16
"""Differences that are held in memory at a time; they stay in the cache."""


def _read_rows(encoding: npt.ArrayLike) -> Array:
    """Convert to an array of a storage dtype with at least two axes."""
    array = read.data("encoding", encoding)
    if array.ndim < 2:
        fail(ValueError, "encoding", f"{array.ndim} axes", "at least 2: (..., N, d)")
    return array


def _products(rows: Array) -> Array:
    """Return the inner products of all pairs of rows. BLAS computes each pair once."""
    return rows @ rows.swapaxes(-1, -2)


def _distances(rows: Float64) -> Float64:
    """Return the distances of all pairs of rows (N, d).

    ``|a|**2 + |b|**2 - 2 a.b`` has an error of ``(d + 3) 2**-53 (|a| + |b|)**2`` at most: where the result is above a
    quarter of ``|a|**2 + |b|**2``, that of the squared differences times 8. Other pairs, also of numbers that are not
    finite, take the differences.
    """
    norms = np.einsum("nd,nd->n", rows, rows)
    squares: Float64 = norms[:, None] + norms
    squares -= 2 * _products(rows)
    step = max(BLOCK_NUMBERS // max(rows.shape[1], 1), 1)
    for i in range(len(rows)):
        close = i + np.flatnonzero(~(squares[i, i:] > (norms[i] + norms[i:]) / 4))
        for start in range(0, len(close), step):
            others = close[start : start + step]
            differences = rows[others] - rows[i]
            squares[i, others] = squares[others, i] = np.einsum("nd,nd->n", differences, differences)
    return np.sqrt(squares)


@door
@np.errstate(over="ignore", invalid="ignore")
def gram_matrix(encoding: npt.ArrayLike, *, out: Array | None = None) -> Array:
    """Inner products of all pairs of positions.

    ``G[p, q] = <e_p, e_q>``.

    Parameters
    ----------
    encoding : array (..., N, d)
        One row per position.
    out : array (..., N, N), optional
        Array to write the result to, of the dtype of `encoding`.

    Returns
    -------
    ndarray (..., N, N)
        In the dtype of `encoding`; symmetric bit for bit.

    Raises
    ------
    TypeError, ValueError
        `encoding` has fewer than two axes or no storage dtype, or `out` has another shape or dtype.

    Notes
    -----
    NumPy multiplies, in float64 for float64 data and in float32 otherwise; the last bits of a product may depend on the
    number of threads of its BLAS. The matrix of sinusoids is a function of p - q only (see `inner_product`).

    Examples
    --------
    >>> import posenc, posenc.analysis
    >>> posenc.analysis.gram_matrix(posenc.sinusoidal(3, 4, dtype=float)).round(3)
    array([[2.   , 1.54 , 0.584],
           [1.54 , 2.   , 1.54 ],
           [0.584, 1.54 , 2.   ]])
    """
    array = _read_rows(encoding)
    rows = np.require(array, convert.arithmetic(array), ("C", "A"))  # BLAS takes no other layout
    return convert.store(out, _products(rows), array.dtype)


@door
@np.errstate(over="ignore", invalid="ignore")
def distance_matrix(encoding: npt.ArrayLike, *, out: Array | None = None) -> Array:
    """Euclidean distances of all pairs of positions.

    ``D[p, q] = |e_p - e_q|``.

    Parameters
    ----------
    encoding : array (..., N, d)
        One row per position.
    out : array (..., N, N), optional
        Array to write the result to, of the dtype of `encoding`.

    Returns
    -------
    ndarray (..., N, N)
        In the dtype of `encoding`; symmetric bit for bit, 0 on the diagonal.

    Raises
    ------
    TypeError, ValueError
        `encoding` has fewer than two axes or no storage dtype, or `out` has another shape or dtype.

    Notes
    -----
    Distances below half of ``sqrt(|a|**2 + |b|**2)`` are roots of the sum of squared differences in float64, as in
    ``np.linalg.norm``. The faster formula ``|a|**2 + |b|**2 - 2 a.b`` serves the others, where the bound of its error
    is 8 times as large: it subtracts large numbers, and in float32 it puts positions 0 and 1 of a slow pair at distance
    0.

    Examples
    --------
    >>> import posenc.analysis
    >>> posenc.analysis.distance_matrix([[0.0, 0.0], [3.0, 4.0]])
    array([[0., 5.],
           [5., 0.]])
    """
    array = _read_rows(encoding)
    rows = np.require(array, np.float64, ["C", "ALIGNED"])  # BLAS rounds otherwise where memory is unaligned
    distances = np.empty((*rows.shape[:-1], rows.shape[-2]))
    for index in np.ndindex(rows.shape[:-2]):
        distances[index] = _distances(rows[index])
    return convert.store(out, distances, array.dtype)


@door
@np.errstate(over="ignore", invalid="ignore")
def correlation_matrix(encoding: npt.ArrayLike, *, out: Array | None = None) -> Array:
    """Pearson correlations of all pairs of positions over their channels.

    ``C[p, q] = <z_p, z_q>`` with ``z = (e - mean e) / |e - mean e|``.

    Parameters
    ----------
    encoding : array (..., N, d)
        One row per position.
    out : array (..., N, N), optional
        Array to write the result to, of the dtype of `encoding`.

    Returns
    -------
    ndarray (..., N, N)
        In the dtype of `encoding`; symmetric bit for bit, within [-1, 1], 1 on the diagonal. The correlations of a row
        whose numbers are all equal are NaN.

    Raises
    ------
    TypeError, ValueError
        `encoding` has fewer than two axes or no storage dtype, or `out` has another shape or dtype.

    Notes
    -----
    The same as ``np.corrcoef``, without its warning for NaN. The mean over the channels of a sinusoid depends on its
    position. Unlike the inner product, the correlation of p and q is therefore not a function of p - q.

    Examples
    --------
    >>> import posenc.analysis
    >>> posenc.analysis.correlation_matrix([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [3.0, 2.0, 1.0]]).round(12)
    array([[ 1.,  1., -1.],
           [ 1.,  1., -1.],
           [-1., -1.,  1.]])
    """
    array = _read_rows(encoding)
    if array.shape[-1] == 0:
        fail(ValueError, "encoding", "last axis 0", "at least 1 channel")
    rows = array.astype(np.float64, order="C")
    rows -= rows[..., :1].copy()  # a row of equal numbers becomes exactly 0, and 0 / 0 is NaN
    rows /= abs(rows).max(-1, keepdims=True)  # squares neither overflow nor underflow
    rows -= rows.mean(-1, keepdims=True)
    rows /= np.sqrt(np.einsum("...nd,...nd->...n", rows, rows))[..., None]
    correlations = np.clip(_products(rows.astype(convert.arithmetic(array))), -1, 1)
    diagonal = np.einsum("...nn->...n", correlations)
    diagonal[diagonal > 0] = 1
    return convert.store(out, correlations, array.dtype)
