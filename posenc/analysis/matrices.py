"""Inner products, distances and correlations of all pairs of positions of an encoding."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import F32, F64, Array, Float64, as_data, door, fail
from .._core_api.constants import GRAM_MODES

PRODUCT, DISTANCE, CORRELATION = map(GRAM_MODES.index, ("product", "distance", "correlation"))


class TrianglePoints(NamedTuple):
    """Correlation and distance of all pairs of positions, each (pairs, 2).

    Attributes
    ----------
    upper : float64 array (pairs, 2)
        Entries (i, j) of the matrices with i < j, row by row.
    lower : float64 array (pairs, 2)
        Entries (j, i) in the same order as `upper`.
    """

    upper: Float64
    lower: Float64


def as_encoding(encoding: npt.ArrayLike) -> Array:
    """Convert to an array of a storage dtype with at least two axes."""
    array = as_data("encoding", encoding)
    if array.ndim < 2:
        fail(ValueError, "encoding", f"{array.ndim} axes", "at least 2: (..., N, d)")
    return array


def pair_matrix(array: Array, rows: Array, mode: int, out: Array | None) -> Array:
    """Compute the (..., N, N) matrix of `rows`, in the dtype of `array`."""
    return _core.gram(x=rows, out=out, mode=mode, dtype=array.dtype)


@door
def gram_matrix(encoding: npt.ArrayLike, *, out: Array | None = None) -> Array:
    """Inner products of all pairs of positions.

    ``G[m, n] = <p_m, p_n>``.

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
    Each pair is computed once, in float64 for float64 data and in float32 otherwise. The matrix of sinusoids is a
    function of m - n only (see `inner_product`).

    Examples
    --------
    >>> import posenc, posenc.analysis
    >>> posenc.analysis.gram_matrix(posenc.sinusoidal(3, 4, dtype=float)).round(3)
    array([[2.   , 1.54 , 0.584],
           [1.54 , 2.   , 1.54 ],
           [0.584, 1.54 , 2.   ]])
    """
    array = as_encoding(encoding)
    return pair_matrix(array, array, PRODUCT, out)


@door
def distance_matrix(encoding: npt.ArrayLike, *, out: Array | None = None) -> Array:
    """Euclidean distances of all pairs of positions.

    ``D[m, n] = |p_m - p_n|``.

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
    The distance is the root of the sum of squared differences, as in ``np.linalg.norm``. The faster formula
    ``|p|**2 + |q|**2 - 2 p.q`` subtracts large numbers: in float32 it puts positions 0 and 1 of a slow pair at distance
    0.

    Examples
    --------
    >>> import posenc.analysis
    >>> posenc.analysis.distance_matrix([[0.0, 0.0], [3.0, 4.0]])
    array([[0., 5.],
           [5., 0.]])
    """
    array = as_encoding(encoding)
    return pair_matrix(array, array, DISTANCE, out)


@door
def correlation_matrix(encoding: npt.ArrayLike, *, out: Array | None = None) -> Array:
    """Pearson correlations of all pairs of positions over their channels.

    ``C[m, n] = <z_m, z_n>`` with ``z = (p - mean p) / |p - mean p|``.

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
    position. Unlike the inner product, the correlation of m and n is therefore not a function of m - n.

    Examples
    --------
    >>> import posenc.analysis
    >>> posenc.analysis.correlation_matrix([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [3.0, 2.0, 1.0]]).round(12)
    array([[ 1.,  1., -1.],
           [ 1.,  1., -1.],
           [-1., -1.,  1.]])
    """
    array = as_encoding(encoding)
    if array.shape[-1] == 0:
        fail(ValueError, "encoding", "last axis 0", "at least 1 channel")
    rows = np.empty(array.shape, F64 if array.dtype.char == "d" else F32)
    _core.standardize(x=array, out=rows)
    return pair_matrix(array, rows, CORRELATION, out)


@door
def triangle_points(distance: npt.ArrayLike, correlation: npt.ArrayLike) -> TrianglePoints:
    """Pair the correlation and the distance of all pairs of positions, for a scatter plot.

    Points ``(C[i, j], D[i, j])``, above and below the diagonal.

    Parameters
    ----------
    distance, correlation : array (N, N)
        From `distance_matrix` and `correlation_matrix`, or any other two matrices.

    Returns
    -------
    TrianglePoints
        ``upper`` and ``lower``, each (N (N - 1) / 2, 2). The correlation comes first: it is the horizontal axis.

    Raises
    ------
    TypeError, ValueError
        A matrix is not square, or the two have different sizes.

    Notes
    -----
    Row r of both parts belongs to the same pair of positions. Symmetric matrices give equal parts.

    Examples
    --------
    >>> import posenc.analysis
    >>> points = posenc.analysis.triangle_points([[0, 1], [2, 0]], [[1, 0.5], [0.25, 1]])
    >>> points.upper, points.lower
    (array([[0.5, 1. ]]), array([[0.25, 2.  ]]))
    """
    matrices = []
    for name, value in (("correlation", correlation), ("distance", distance)):
        array = as_data(name, value)
        if array.ndim != 2 or array.shape[0] != array.shape[1]:
            fail(ValueError, name, f"shape {array.shape}", "(N, N)")
        matrices.append(array.astype(F64, copy=False))
    if matrices[0].shape != matrices[1].shape:
        fail(ValueError, "correlation", f"shape {matrices[0].shape}", str(matrices[1].shape))
    i, j = np.triu_indices(len(matrices[0]), 1)
    upper, lower = (np.stack([matrix[rows, columns] for matrix in matrices], -1) for rows, columns in ((i, j), (j, i)))
    return TrianglePoints(upper, lower)
