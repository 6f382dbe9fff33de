"""Every position with every other: products, distances and correlations of encodings."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import F32, F64, Array, Float64, as_data, fail, finish_out, prepare_out

__all__ = ["TrianglePoints", "correlation_matrix", "distance_matrix", "gram_matrix", "triangle_points"]

PRODUCT, DISTANCE, CORRELATION = range(3)
"""Modes of csrc/kernels/gram.c."""


class TrianglePoints(NamedTuple):
    """The two halves of a pair of matrices as clouds of points."""

    upper: Float64
    """(pairs, 2): correlation and distance of i and j, i < j, row by row."""
    lower: Float64
    """The same of j and i: row r is the pair of row r of `upper`, from the other side of the diagonal."""


def as_encoding(function: str, encoding: Any, argument: str = "encoding") -> Array:
    array = as_data(function, argument, encoding)
    if array.ndim < 2:
        fail(ValueError, function, argument, f"{array.ndim} axes", "at least 2: (..., N, d)")
    return array


def square(function: str, array: Array, rows: Array, mode: int, out: Array | None) -> Array:
    """The (..., N, N) matrix of `rows`, in the dtype of `array`."""
    result, buffer = prepare_out(function, out, (*array.shape[:-1], array.shape[-2]), array.dtype, (array,))
    _core.gram(function, rows, buffer, mode)
    return finish_out(result, buffer)


def gram_matrix(encoding: npt.ArrayLike, *, out: Array | None = None) -> Array:
    """Inner products of positions: ``G[m, n] = <p_m, p_n>``.

    Parameters
    ----------
    encoding : array (..., N, d)
        A row for each position.
    out : array (..., N, N), optional
        Filled and returned.

    Returns
    -------
    ndarray (..., N, N)
        Symmetric bit for bit, in the dtype of `encoding`.

    Raises
    ------
    TypeError, ValueError
        Not an array of at least two axes; an `out` of another shape or dtype.

    Notes
    -----
    Each pair is computed once, in float32 or float64. A sinusoid's matrix is a function of m - n alone
    (see `inner_product`).

    Examples
    --------
    >>> import posenc, posenc.analysis
    >>> posenc.analysis.gram_matrix(posenc.sinusoidal(3, 4)).round(3).tolist()
    [[2.0, 1.5399999618530273, 0.5839999914169312], [1.5399999618530273, 2.0, 1.5399999618530273], \
[0.5839999914169312, 1.5399999618530273, 2.0]]
    """
    array = as_encoding("gram_matrix", encoding)
    return square("gram_matrix", array, array, PRODUCT, out)


def distance_matrix(encoding: npt.ArrayLike, *, out: Array | None = None) -> Array:
    """Euclidean distances of positions: ``D[m, n] = |p_m - p_n|``.

    Parameters
    ----------
    encoding : array (..., N, d)
        A row for each position.
    out : array (..., N, N), optional
        Filled and returned.

    Returns
    -------
    ndarray (..., N, N)
        Symmetric bit for bit, 0 on the diagonal, in the dtype of `encoding`.

    Raises
    ------
    TypeError, ValueError
        Not an array of at least two axes; an `out` of another shape or dtype.

    Notes
    -----
    A root of a sum of squared differences, like ``np.linalg.norm``. From products, ``|p|**2 + |q|**2 - 2 p.q``, the
    distance of neighbours is a difference of large numbers: float32 positions 0 and 1 of a slow pair would coincide.

    Examples
    --------
    >>> import posenc.analysis
    >>> posenc.analysis.distance_matrix([[0.0, 0.0], [3.0, 4.0]])
    array([[0., 5.],
           [5., 0.]])
    """
    array = as_encoding("distance_matrix", encoding)
    return square("distance_matrix", array, array, DISTANCE, out)


def correlation_matrix(encoding: npt.ArrayLike, *, out: Array | None = None) -> Array:
    """Pearson's correlation of positions over channels: ``C[m, n] = <z_m, z_n>``, ``z = (p - mean p) / |p - mean p|``.

    Parameters
    ----------
    encoding : array (..., N, d)
        A row for each position.
    out : array (..., N, N), optional
        Filled and returned.

    Returns
    -------
    ndarray (..., N, N)
        Symmetric bit for bit, 1 on the diagonal, within [-1, 1], in the dtype of `encoding`. NaN for a row whose
        numbers are all equal: it has no correlation.

    Raises
    ------
    TypeError, ValueError
        Not an array of at least two axes; an `out` of another shape or dtype.

    Notes
    -----
    As ``np.corrcoef``, without its warning. The mean is over the channels of one position, which a sinusoid's relative
    positions do not know: unlike the inner product, the correlation of m and n is no function of m - n.

    Examples
    --------
    >>> import posenc.analysis
    >>> posenc.analysis.correlation_matrix([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [3.0, 2.0, 1.0]]).round(12)
    array([[ 1.,  1., -1.],
           [ 1.,  1., -1.],
           [-1., -1.,  1.]])
    """
    function = "correlation_matrix"
    array = as_encoding(function, encoding)
    if array.shape[-1] == 0:
        fail(ValueError, function, "encoding", "last axis 0", "at least 1 channel")
    rows = np.empty(array.shape, F64 if array.dtype.char == "d" else F32)
    _core.standard(function, array, rows)
    return square(function, array, rows, CORRELATION, out)


def triangle_points(distance: npt.ArrayLike, correlation: npt.ArrayLike) -> TrianglePoints:
    """The cloud of all pairs of positions: ``(C[i, j], D[i, j])`` above and below the diagonal.

    Parameters
    ----------
    distance, correlation : array (N, N)
        As `distance_matrix` and `correlation_matrix` give them; any other two will do.

    Returns
    -------
    TrianglePoints
        ``upper`` and ``lower``, each (N (N - 1) / 2, 2) with the correlation first: it is the horizontal axis.

    Raises
    ------
    TypeError, ValueError
        Matrices that are not square, or not of one size.

    Notes
    -----
    Row r of both parts is the same pair of positions, so symmetric matrices give two equal clouds.

    Examples
    --------
    >>> import posenc.analysis
    >>> points = posenc.analysis.triangle_points([[0, 1], [2, 0]], [[1, 0.5], [0.25, 1]])
    >>> points.upper, points.lower
    (array([[0.5, 1. ]]), array([[0.25, 2.  ]]))
    """
    function = "triangle_points"
    pair = []
    for name, value in (("correlation", correlation), ("distance", distance)):
        array = as_data(function, name, value)
        if array.ndim != 2 or array.shape[0] != array.shape[1]:
            fail(ValueError, function, name, f"shape {array.shape}", "(N, N)")
        pair.append(array.astype(F64, copy=False))
    if pair[0].shape != pair[1].shape:
        fail(ValueError, function, "correlation", f"shape {pair[0].shape}", str(pair[1].shape))
    i, j = np.triu_indices(len(pair[0]), 1)
    return TrianglePoints(*(np.stack([m[a, b] for m in pair], -1) for a, b in ((i, j), (j, i))))
