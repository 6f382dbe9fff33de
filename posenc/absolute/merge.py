"""Combination of a position encoding with the vectors that it encodes."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import Array, cast_result, door, unbroadcast

Mode = Literal["add", "mul", "mul1p", "replace", "concat"]
MODES = get_args(Mode)


class MergeGradient(NamedTuple):
    """Gradients of `merge`.

    Attributes
    ----------
    x, p : array
        Each in the shape and dtype of its argument.
    """

    x: Array
    p: Array


def merge(x: npt.ArrayLike, p: npt.ArrayLike, *, mode: Mode = "add", out: Array | None = None) -> Array:
    """Combine vectors with their position encodings.

    ``x + p``, ``x * p``, ``x * (1 + p)``, ``[x | p]`` or ``p``.

    Parameters
    ----------
    x : array (..., N, d)
        The vectors to encode, such as word vectors.
    p : array that broadcasts to `x`
        The encoding. `x` does not broadcast to `p`. With "concat" the last axis of `p` has any length c.
    mode : {"add", "mul", "mul1p", "concat", "replace"}
        "mul" is ``x * p``: with a sinusoid it erases half of the channels of position 0, where the sines are 0.
        "mul1p" is ``x * (1 + p)``, which is x where p is 0. "replace" is p in the shape of x.
    out : array in the shape of the result, optional
        Filled and returned.

    Returns
    -------
    ndarray (..., N, d), or (..., N, d + c) with "concat"
        In the dtype of `x`.

    Raises
    ------
    TypeError
        Data that are not real numbers.
    ValueError
        A `p` that does not broadcast to `x`, an unknown mode.

    Notes
    -----
    Vaswani et al. 2017, section 3.4, adds. In bert4keras, the ``merge_mode`` "mul" is "mul1p" here, "zero" is
    "replace" (there the result has the shape of p), and other names are "concat". float16 and bfloat16 are computed in
    float32 and rounded once.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> x, p = np.array([[2.0, 3.0]]), np.array([0.0, 1.0])
    >>> posenc.merge(x, p), posenc.merge(x, p, mode="mul"), posenc.merge(x, p, mode="mul1p")
    (array([[2., 4.]]), array([[0., 3.]]), array([[2., 6.]]))

    Add sinusoids to a batch of word vectors in place:

    >>> words = np.ones((2, 3, 4), np.float32)
    >>> posenc.merge(words, posenc.sinusoidal(3, 4), out=words) is words
    True
    """
    if isinstance(mode, str) and mode == "replace":  # `==` compares each element of an array
        x, p = _core.read("merge", "merge", x=x, p=p)
        return _core.concat("merge", x=x[..., :0], p=np.broadcast_to(p, x.shape), out=out)
    if isinstance(mode, str) and mode == "concat":
        return _core.concat("merge", x=x, p=p, out=out)
    return _core.merge("merge", x=x, p=p, out=out, mode=mode)


@door
def merge_vjp(grad: npt.ArrayLike, x: npt.ArrayLike, p: npt.ArrayLike, *, mode: Mode = "add") -> MergeGradient:
    """Return the gradients of `merge`.

    With "mul", ``dx = grad p`` and ``dp = sum of grad x``; with "mul1p", ``dx = grad (1 + p)``.

    Parameters
    ----------
    grad : array
        Cotangent of the result. See `merge` for the other arguments.

    Returns
    -------
    MergeGradient
        ``x`` and ``p``, each in its dtype. The gradient of p is summed in float64 and in a fixed order over the axes
        that p lacks.

    Raises
    ------
    TypeError, ValueError
        As `merge`. Also if `grad` does not have the shape of the result.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.merge_vjp(np.ones((2, 1)), np.array([[2.0], [3.0]]), np.array([5.0]), mode="mul")
    MergeGradient(x=array([[5.],
           [5.]]), p=array([5.]))
    """
    if isinstance(mode, str) and mode == "concat":
        x, p, grad = _core.read("concat", x=x, p=p, grad=grad)
    else:
        x, p, grad = _core.read("merge", x=x, p=p, mode=mode, grad=grad)
    of_x, of_p = (grad[..., : x.shape[-1]], grad[..., x.shape[-1] :]) if mode == "concat" else (grad, grad)
    is_product = mode in ("mul", "mul1p")
    if is_product:
        d_x = _core.merge(x=of_x, p=p, mode=mode, dtype=x.dtype)
    else:
        d_x = np.zeros(x.shape, x.dtype.newbyteorder("=")) if mode == "replace" else cast_result(of_x.copy(), x.dtype)
    return MergeGradient(d_x, _gradient_of_p(of_p, x if is_product else None, p))


def _gradient_of_p(grad: Array, factor: Array | None, p: Array) -> Array:
    """Sum grad * factor over the axes along which p was broadcast."""
    lengths = (1,) * (grad.ndim - p.ndim) + p.shape
    last = grad.ndim - 1
    summed = [axis for axis in range(last) if lengths[axis] != grad.shape[axis]]
    kept = [axis for axis in range(last) if lengths[axis] == grad.shape[axis]]
    sum_shape = (*(1 if axis in summed else grad.shape[axis] for axis in range(last)), grad.shape[-1])
    # The kernel sums the rows of a matrix (rows, kept axes). If p lacks leading axes only, the matrix is a view.
    axes = (*summed, *kept, last)
    shape = math.prod(grad.shape[axis] for axis in summed), math.prod(sum_shape)
    factors = None if factor is None else factor.transpose(axes).reshape(shape)
    total = _core.merge_vjp(grad=grad.transpose(axes).reshape(shape), x=factors).reshape(sum_shape)
    own_axes = total.reshape(sum_shape[min(grad.ndim - p.ndim, last) :])  # a sum over axes of length 1 would copy
    return unbroadcast(own_axes, p.shape, p.dtype)
