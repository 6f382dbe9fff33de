"""Merging an encoding with what it encodes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import (
    Array,
    as_data,
    broadcasts_to,
    cast_operand,
    check_choice,
    compute_dtype,
    fail,
    finish_out,
    prepare_out,
    unbroadcast,
)
from .._core_api.constants import MERGE_MODES

__all__ = ["MergeGradient", "merge", "merge_vjp"]

MODES = (*MERGE_MODES, "concat")


class MergeGradient(NamedTuple):
    """Gradients of `merge`, each in the dtype and shape of its argument."""

    x: Array
    p: Array


def _operands(function: str, x: Any, p: Any, mode: str) -> tuple[Array, Array]:
    check_choice(function, "mode", mode, MODES)
    data, encoding = as_data(function, "x", x), as_data(function, "p", p)
    if data.ndim < 1:
        fail(ValueError, function, "x", "no axes", "at least one")
    if mode == "concat":
        fits = encoding.ndim >= 1 and broadcasts_to(encoding.shape[:-1], data.shape[:-1])
        expected = f"what broadcasts to {data.shape[:-1]}, and a last axis of any length"
    else:
        fits, expected = broadcasts_to(encoding.shape, data.shape), f"what broadcasts to the shape {data.shape} of x"
    if not fits:
        fail(ValueError, function, "p", f"shape {encoding.shape}", expected)
    return data, encoding


def _beside(encoding: Array, data: Array, mode: str) -> Array:
    """p as the kernel reads it: in a dtype that goes with x, as wide as x."""
    if mode in ("replace", "concat"):
        encoding = encoding.astype(data.dtype, copy=False)  # rounded once, by the cast
    else:
        encoding = cast_operand(encoding, compute_dtype(data))
    if mode != "concat" and encoding.shape[-1:] != data.shape[-1:]:
        encoding = np.broadcast_to(encoding, (*encoding.shape[:-1], data.shape[-1]))
    return encoding


def merge(x: npt.ArrayLike, p: npt.ArrayLike, *, mode: str = "add", out: Array | None = None) -> Array:
    """``x + p``, ``x * p``, ``x * (1 + p)``, ``[x | p]`` or ``p``.

    Parameters
    ----------
    x : array (..., N, d)
        What is encoded: word vectors.
    p : array
        The encoding; broadcasts to `x`, never `x` to `p`. With "concat" its last axis may have another length.
    mode : {"add", "mul", "mul1p", "concat", "replace"}
        "mul" is the product itself: with a sinusoid it erases half of the channels of position 0, where sin is 0.
        "mul1p" keeps x where p is 0. "replace" is p in the shape of x.
    out : array, optional
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
    Vaswani et al. 2017, section 3.4, adds. bert4keras, ``merge_mode``: its "mul" is "mul1p" here, its "zero" is
    "replace" (there without the axes that p lacks), anything else is "concat". float16 and bfloat16 are computed in
    float32 and rounded once.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> x, p = np.array([[2.0, 3.0]]), np.array([0.0, 1.0])
    >>> posenc.merge(x, p), posenc.merge(x, p, mode="mul"), posenc.merge(x, p, mode="mul1p")
    (array([[2., 4.]]), array([[0., 3.]]), array([[2., 6.]]))
    """
    function = "merge"
    data, encoding = _operands(function, x, p, mode)
    width = data.shape[-1] + (encoding.shape[-1] if mode == "concat" else 0)
    out, buffer = prepare_out(function, out, (*data.shape[:-1], width), data.dtype, (data, encoding))
    beside = _beside(encoding, data, mode)
    if mode == "concat":
        _core.concat(function, data, beside, buffer)
    else:
        _core.merge(function, data, beside, buffer, MERGE_MODES.index(mode))
    return finish_out(out, buffer)


def merge_vjp(grad: npt.ArrayLike, x: npt.ArrayLike, p: npt.ArrayLike, *, mode: str = "add") -> MergeGradient:
    """Gradient of `merge`: with "mul" ``dx = grad p``, ``dp = sum of grad x``, with "mul1p" ``dx = grad (1 + p)``.

    Parameters
    ----------
    grad : array
        Cotangent of the result; the other arguments are those of `merge`.

    Returns
    -------
    MergeGradient
        ``x`` and ``p``, each in its dtype; that of p is summed in float64 over the axes that p lacks, in order.

    Raises
    ------
    TypeError, ValueError
        As `merge`; also where `grad` does not have the shape of the result.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.merge_vjp(np.ones((2, 1)), np.array([[2.0], [3.0]]), np.array([5.0]), mode="mul")
    MergeGradient(x=array([[5.],
           [5.]]), p=array([5.]))
    """
    function = "merge_vjp"
    data, encoding = _operands(function, x, p, mode)
    width = data.shape[-1]
    wanted = (*data.shape[:-1], width + (encoding.shape[-1] if mode == "concat" else 0))
    cotangent = as_data(function, "grad", grad)
    if cotangent.shape != wanted:
        fail(ValueError, function, "grad", f"shape {cotangent.shape}", str(wanted))
    cotangent = cast_operand(cotangent, compute_dtype(data))
    of_x, of_p = (cotangent[..., :width], cotangent[..., width:]) if mode == "concat" else (cotangent, cotangent)
    kind = data.dtype.newbyteorder("=") if not data.dtype.isnative else data.dtype
    dx = np.zeros(data.shape, kind) if mode == "replace" else np.empty(data.shape, kind)
    if mode in ("mul", "mul1p"):
        _core.merge(function, of_x, _beside(encoding, data, mode), dx, MERGE_MODES.index(mode))
    elif mode != "replace":
        dx[...] = of_x
    factor = data if mode in ("mul", "mul1p") else None
    return MergeGradient(dx, _summed(function, of_p, factor, encoding))


def _summed(function: str, grad: Array, factor: Array | None, encoding: Array) -> Array:
    """Sum of grad * factor over the axes along which the encoding was broadcast."""
    kind = encoding.dtype.newbyteorder("=") if not encoding.dtype.isnative else encoding.dtype
    lengths = (1,) * (grad.ndim - encoding.ndim) + encoding.shape
    last = grad.ndim - 1
    summed = [a for a in range(last) if lengths[a] != grad.shape[a]]
    kept = [a for a in range(last) if lengths[a] == grad.shape[a]]
    rows = int(np.prod([grad.shape[a] for a in summed], dtype=np.int64))
    # (rows, what is kept): a view where p lacks leading axes, which is how batches are
    shape, axes = (rows, grad.size // max(rows, 1)), (*summed, *kept, last)
    factors = None if factor is None else factor.transpose(axes).reshape(shape)
    along = (*(1 if a in summed else grad.shape[a] for a in range(last)), grad.shape[-1])
    total = np.empty(along) if rows else np.zeros(along)
    if rows:
        _core.merge_vjp(function, grad.transpose(axes).reshape(shape), factors, total.reshape(-1))
    return unbroadcast(total, encoding.shape, kind)
