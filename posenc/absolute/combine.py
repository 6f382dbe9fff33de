"""Combination of a position encoding with the vectors that it encodes."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api import convert, read
from .._core_api.arrays import F64, Array
from .._core_api.door import door, fail

Mode = Literal["add", "mul", "mul1p", "replace", "concat"]


class CombineGradient(NamedTuple):
    """Gradients of `combine`.

    Attributes
    ----------
    x, p : array
        Each in the shape and dtype of its argument.
    """

    x: Array
    p: Array


@door
def combine(x: npt.ArrayLike, p: npt.ArrayLike, *, mode: Mode = "add", out: Array | None = None) -> Array:
    """Combine vectors with their position encodings.

    ``x + p``, ``x * p``, ``x * (1 + p)``, ``[x | p]`` or ``p``.

    Parameters
    ----------
    x : array (..., N, d)
        The vectors to encode, such as word vectors.
    p : array that broadcasts to `x`
        The encoding. `x` does not broadcast to `p`. With "concat" the last axis of `p` has any length c.
    mode : {"add", "mul", "mul1p", "concat", "replace"}
        - "add": ``x + p``.
        - "mul": ``x * p``. A sinusoid erases half of the channels of position 0, where the sines are 0.
        - "mul1p": ``x * (1 + p)``, which is x where p is 0.
        - "concat": ``[x | p]``.
        - "replace": p in the shape of x.
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
    >>> posenc.combine(x, p), posenc.combine(x, p, mode="mul"), posenc.combine(x, p, mode="mul1p")
    (array([[2., 4.]]), array([[0., 3.]]), array([[2., 6.]]))

    Add sinusoids to a batch of word vectors in place:

    >>> words = np.ones((2, 3, 4), np.float32)
    >>> posenc.combine(words, posenc.sinusoidal(3, 4), out=words) is words
    True
    """
    data, encoding = _read(x, p, mode)
    if mode in ("replace", "concat"):
        copied = np.broadcast_to(convert.copied("p", encoding, data.dtype), (*data.shape[:-1], *encoding.shape[-1:]))
        return convert.store(out, np.concatenate([data, copied], -1) if mode == "concat" else copied, data.dtype)
    factor = convert.operand("p", encoding, convert.arithmetic(data)).astype(convert.arithmetic(data), copy=False)
    wide = data.astype(convert.arithmetic(data), copy=False)
    with convert.without_warnings():
        result = wide + factor if mode == "add" else wide * (factor if mode == "mul" else 1 + factor)
    return convert.store(out, result, data.dtype)


def _read(x: npt.ArrayLike, p: npt.ArrayLike, mode: object) -> tuple[Array, Array]:
    read.choice("mode", mode, get_args(Mode))
    row = "real x(c), real p(d) following" if mode == "concat" else "real x(), real p() following"
    data, encoding = _core.read(row, x=x, p=p)
    return data, encoding


@door
def combine_vjp(grad: npt.ArrayLike, x: npt.ArrayLike, p: npt.ArrayLike, *, mode: Mode = "add") -> CombineGradient:
    """Return the gradients of `combine`.

    With "mul", ``dx = grad p`` and ``dp = sum of grad x``; with "mul1p", ``dx = grad (1 + p)``.

    Parameters
    ----------
    grad : array
        Cotangent of the result. See `combine` for the other arguments.

    Returns
    -------
    CombineGradient
        ``x`` and ``p``, each in its dtype. The gradient of p is summed in float64 over the axes that p lacks.

    Raises
    ------
    TypeError, ValueError
        As `combine`. Also if `grad` does not have the shape of the result.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.combine_vjp(np.ones((2, 1)), np.array([[2.0], [3.0]]), np.array([5.0]), mode="mul")
    CombineGradient(x=array([[5.],
           [5.]]), p=array([5.]))
    """
    data, encoding = _read(x, p, mode)
    shape = data.shape if mode != "concat" else (*data.shape[:-1], data.shape[-1] + encoding.shape[-1])
    cotangent = read.data("grad", grad)
    if cotangent.shape != shape:
        fail(ValueError, "grad", f"shape {cotangent.shape}", str(shape))
    cotangent = convert.operand("grad", cotangent, convert.arithmetic(data)).astype(F64)
    of_x, of_p = np.split(cotangent, [data.shape[-1]], -1) if mode == "concat" else (cotangent, cotangent)
    with convert.without_warnings():
        if mode in ("mul", "mul1p"):
            factor = convert.operand("p", encoding, convert.arithmetic(data)).astype(F64)
            of_x, of_p = of_x * (factor if mode == "mul" else 1 + factor), of_p * data.astype(F64)
    d_x = np.zeros(data.shape, F64) if mode == "replace" else of_x
    return CombineGradient(convert.result(d_x, data.dtype), convert.unbroadcast(of_p, encoding.shape, encoding.dtype))
