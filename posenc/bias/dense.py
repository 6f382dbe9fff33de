"""A bias given as an array."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .._core_api import convert, read
from .._core_api.arrays import F64, Array, Dtype
from .._core_api.door import door, fail
from . import operator
from .operator import Bias, Gradients, Kind, PositionBias, Scheme, Term
from .positions import Positions


class DenseArrays(NamedTuple):
    """Arrays of `dense`, or their gradients.

    Attributes
    ----------
    array : array (..., N, M)
    """

    array: Array


def _shape_of(bias: Bias, n: int, m: int) -> tuple[int, ...]:
    shape: tuple[int, ...] = bias.arrays.array.shape
    if shape[-2] not in (1, n) or shape[-1] not in (1, m):
        fail(ValueError, "array", f"shape {shape}", f"(..., {n}, {m})")
    return (*shape[:-2], n, m)


def _gradient(bias: Bias, sums: Gradients, term: Term) -> Gradients:
    return (convert.unbroadcast(operator.add_slots(sums[0], 2), bias.arrays.array.shape, sums[0].dtype),)


def _matrix(bias: Bias, positions: Positions, dtype: Dtype, out: Array | None) -> Array:
    shape = _shape_of(bias, positions.n, positions.m)
    matrix = np.broadcast_to(convert.result(bias.arrays.array, dtype), shape)
    return matrix if out is None else convert.store(out, matrix, dtype)


def _vjp(bias: Bias, grad: Array, positions: Positions) -> Gradients:
    cotangent = operator.check_cotangent(grad, _shape_of(bias, positions.n, positions.m))
    return (convert.unbroadcast(np.array(cotangent, F64, order="C"), bias.arrays.array.shape, F64),)


DENSE = Scheme("dense", Kind(_gradient, _matrix, _vjp), DenseArrays, reads_positions=False)


@door
def dense(array: npt.ArrayLike) -> PositionBias[DenseArrays]:
    """Return a bias given as an array, one number per query and key.

    ``b[..., i, j] = array[..., i, j]``

    Parameters
    ----------
    array : array (..., N, M)
        Leading axes are (batch axes, H). Axes broadcast. -inf masks a pair. i and j count queries and keys; positions
        are not read. The array is not copied: changing it later changes the operator. Differentiable.

    Returns
    -------
    PositionBias
        For ``attention(bias=...)``.

    Raises
    ------
    TypeError, ValueError
        An array with fewer than two axes, or of a dtype that is none of the four. Pass a boolean mask as ``keep=`` of
        `attention`.

    Notes
    -----
    PyTorch's ``attn_mask`` of floats in ``scaled_dot_product_attention``.

    Examples
    --------
    An additive mask that hides the last key of the second sequence of a batch, as a padding mask of transformers:

    >>> import numpy as np, posenc
    >>> mask = np.zeros((2, 1, 1, 4), np.float32)  # (batch, heads, queries, keys)
    >>> mask[1, ..., -1] = -np.inf
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 8, 4, 16), np.float32)
    >>> posenc.attention(q, k, v, bias=posenc.dense(mask)).shape
    (2, 8, 4, 16)
    """
    kept = read.data("array", array)
    if kept.ndim < 2:
        fail(ValueError, "array", f"{kept.ndim} axes", "at least 2, queries and keys")
    return DENSE.from_arrays(kept)
