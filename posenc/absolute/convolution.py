"""Depthwise convolutions, whose zero padding tells tokens their distance from the ends of a sequence or an image."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api import convert, read
from .._core_api.arrays import Array
from .._core_api.door import door, fail, fail_value

Padding = Literal["zero", "circular", "replicate"]


class ConvPositionGradient(NamedTuple):
    """Gradients of `conv_position`, each in its argument's dtype.

    Attributes
    ----------
    x : array (..., N, d)
    kernel : array (d, taps)
    bias : array (d,) or None
        None without a bias.
    """

    x: Array
    kernel: Array
    bias: Array | None


class ConvPosition2dGradient(NamedTuple):
    """Gradients of `conv_position_2d`, each in its argument's dtype.

    Attributes
    ----------
    x : array (..., prefix + height * width, d)
    kernel : array (d, rows, columns)
    bias : array (d,) or None
        None without a bias.
    """

    x: Array
    kernel: Array
    bias: Array | None


class _Convolution(NamedTuple):
    """The checked arguments of `conv_position` or `conv_position_2d`. A sequence is a grid of one row."""

    x: Array
    taps: Array
    """The kernel as (rows, columns, d)."""
    bias: Array | None
    height: int
    width: int
    prefix: int
    """Tokens before the grid."""
    top: int
    left: int

    def grid(self, array: Array) -> Array:
        """View the tokens of the grid as (..., height, width, d)."""
        return array[..., self.prefix :, :].reshape(*array.shape[:-2], self.height, self.width, array.shape[-1])


def _read_convolution(
    x: npt.ArrayLike,
    kernel: npt.ArrayLike,
    bias: npt.ArrayLike | None,
    padding: Padding,
    size: tuple[int, int, int] | None = None,
    left: int | None = None,
) -> _Convolution:
    """Check the arguments of a convolution of a grid, or without `size` (height, width, prefix) of a sequence."""
    axes = "d,s" if size is None else "d,r,s"
    x, kernel, bias = _core.read(
        f"real x(n,d), real kernel({axes}) alone, real bias(d) optional alone", x=x, kernel=kernel, bias=bias
    )
    if 0 in kernel.shape[1:]:
        fail(ValueError, "kernel", f"shape {kernel.shape}", "at least one tap")
    n = x.shape[-2]
    names = ("height", "width", "prefix")
    height, width, prefix = (read.index(*one, 0) for one in zip(names, size, strict=True)) if size else (1, n, 0)
    if n != prefix + height * width:
        fail(ValueError, "x", f"{n} tokens", f"{prefix + height * width}, prefix + height * width")
    taps = (kernel if size else kernel[:, None]).transpose(1, 2, 0)
    rows, columns, _ = taps.shape
    top, before = (rows - 1) // 2, (columns - 1) // 2
    if left is not None:
        before = read.index("left", left, 0)
        if before >= columns:
            fail_value(ValueError, "left", before, f"less than {columns}, the taps of the kernel")
    if isinstance(padding, str) and padding == "circular" and height * width:  # `==` compares each element of an array
        for length, reach in ((height, rows - 1 - top), (width, max(before, columns - 1 - before))):
            if reach > length:
                expected = f"at most {length}, because circular padding goes around once"
                fail(ValueError, "kernel", f"taps that reach {reach} tokens past the end", expected)
    return _Convolution(x, taps, bias, height, width, prefix, top, before)


def _convolve(c: _Convolution, padding: Padding, residual: bool, out: Array | None) -> Array:
    x, result = _core.read("real x(n,d) -> real out(n,d) typed", x=c.x, out=out)
    prefix = x[..., : c.prefix, :].copy()  # `out` may be x
    _core.convolution(
        x=c.grid(x),
        kernel=c.taps,
        bias=c.bias,
        out=c.grid(np.asarray(result)),
        top=c.top,
        left=c.left,
        padding=padding,
        residual=residual,
    )
    result[..., : c.prefix, :] = prefix
    return result


def _gradients(
    grad: npt.ArrayLike, c: _Convolution, padding: Padding, residual: bool
) -> tuple[Array, Array, Array | None]:
    """Return the gradients with respect to x, kernel (d, rows, columns) and bias."""
    x, grad = _core.read("real x(n,d) -> real out(n,d)", x=c.x, grad=grad)
    rows, columns, _ = c.taps.shape
    d_taps, d_bias = _core.convolution_vjp(
        grad=c.grid(grad), x=c.grid(x), r=rows, s=columns, top=c.top, left=c.left, padding=padding
    )
    d_x = np.empty(x.shape, x.dtype.newbyteorder("="))
    if c.grid(d_x).size:
        # The transpose reverses the kernel. For "replicate" it is a convolution with zeros on a larger grid, of which
        # the results beyond the edges are added to the tokens that were replicated.
        tokens, d_tokens, replicates = c.grid(grad), c.grid(d_x), padding == "replicate"
        edges = (c.top, rows - 1 - c.top), (c.left, columns - 1 - c.left)
        if replicates:
            tokens = np.pad(tokens, [(0, 0)] * (x.ndim - 2) + [*edges, (0, 0)])
            d_tokens = np.empty(tokens.shape, convert.arithmetic(x))
        _core.convolution(
            x=tokens,
            kernel=c.taps[::-1, ::-1],
            out=d_tokens,
            top=edges[0][1],
            left=edges[1][1],
            padding="zero" if replicates else padding,
            residual=residual,
            dtype=d_tokens.dtype,
        )
        if replicates:
            c.grid(d_x)[...] = convert.result(_add_edges(_add_edges(d_tokens, -3, *edges[0]), -2, *edges[1]), d_x.dtype)
    d_x[..., : c.prefix, :] = convert.result(grad[..., : c.prefix, :], d_x.dtype)
    d_kernel = np.ascontiguousarray(convert.result(d_taps.transpose(2, 0, 1), c.taps.dtype))
    return d_x, d_kernel, None if c.bias is None else convert.result(d_bias, c.bias.dtype)


def _add_edges(array: Array, axis: int, before: int, after: int) -> Array:
    """Add the first and the last entries along an axis to the nearest entry that stays."""
    array = np.moveaxis(array, axis, 0)
    last = len(array) - after - 1
    with convert.without_warnings():
        if last == before:
            summed = np.add.accumulate(array)[-1:]  # in order, whatever the strides are
        else:
            summed = array[before : last + 1].copy()
            summed[0], summed[-1] = np.add.accumulate(array[: before + 1])[-1], np.add.accumulate(array[last:])[-1]
    return np.moveaxis(summed, 0, axis)


@door
def conv_position(
    x: npt.ArrayLike,
    kernel: npt.ArrayLike,
    bias: npt.ArrayLike | None = None,
    *,
    padding: Padding = "zero",
    left: int | None = None,
    residual: bool = False,
    out: Array | None = None,
) -> Array:
    """Convolve each channel along the sequence, so that padding tells tokens their position.

    ``y[n] = bias + sum_t kernel[:, t] x[n + t - left]``.

    Parameters
    ----------
    x : array (..., N, d)
        Tokens. Padding tokens must be zero, because tokens read their neighbours.
    kernel : array (d, taps)
        One kernel for each channel. It is not reversed: this is a cross-correlation, as usual in deep learning.
    bias : array (d,), optional
        Added to every token.
    padding : {"zero", "circular", "replicate"}
        Values beyond the ends: 0, tokens from the other end, or the nearest token.
    left : int, optional
        Number of taps before the token itself, ``0 <= left < taps``; ``(taps - 1) // 2`` by default. ``taps - 1`` is
        causal.
    residual : bool
        Add `x` to the result.
    out : array (..., N, d), optional
        Filled and returned.

    Returns
    -------
    ndarray (..., N, d)
        In the dtype of `x`.

    Raises
    ------
    TypeError
        A dtype that is not one of the four, a `left` that is not an integer, a `residual` that is not a bool.
    ValueError
        Shapes that do not fit, no taps, `left` out of range, an unknown padding, circular padding with taps that reach
        further past an end than the sequence is long. Other paddings have no such limit.

    Notes
    -----
    Zero padding contains the information about positions: Islam, Jia and Bruce 2020, "How much position information do
    convolutional neural networks encode?". Each layer carries it ``(taps - 1) / 2`` tokens further from the ends. A
    circular convolution commutes with cyclic shifts, so it has no such information. With "replicate" equal tokens have
    equal results, but the convolution does not commute with shifts.

    References disagree about even kernels. wav2vec 2.0 (Baevski et al. 2020) pads ``taps // 2`` and drops the last
    output: ``left=taps // 2``. The encoder of fairseq's ConvS2S (Gehring et al. 2017) has the default; its decoder is
    causal. wav2vec 2.0's own convolution has 16 groups that mix 48 or 64 channels each, then GELU. This convolution has
    a group per channel, so weights of wav2vec 2.0 do not fit it. A torch weight (d, 1, taps) is
    ``kernel = weight[:, 0]``.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.conv_position(np.ones((5, 1)), np.ones((1, 3)))[:, 0]
    array([2., 3., 3., 3., 2.])
    >>> posenc.conv_position(np.ones((5, 1)), np.ones((1, 3)), padding="circular")[:, 0]
    array([3., 3., 3., 3., 3.])
    """
    return _convolve(_read_convolution(x, kernel, bias, padding, left=left), padding, residual, out)


@door
def conv_position_vjp(
    grad: npt.ArrayLike,
    x: npt.ArrayLike,
    kernel: npt.ArrayLike,
    bias: npt.ArrayLike | None = None,
    *,
    padding: Padding = "zero",
    left: int | None = None,
    residual: bool = False,
) -> ConvPositionGradient:
    """Return the gradients of `conv_position`.

    ``dkernel[:, t] = sum_n grad[n] x[n + t - left]``, ``dbias = sum_n grad[n]``, and ``dx`` is the convolution of
    `grad` with the reversed kernel.

    Parameters
    ----------
    grad : array (..., N, d)
        Cotangent of the result. See `conv_position` for the other arguments.

    Returns
    -------
    ConvPositionGradient
        ``x``, ``kernel`` and ``bias``, each in its argument's dtype; ``bias`` is None without a bias. The gradients of
        replicated values are added to the gradient of the replicated token. Sums over tokens are float32 (float64 for
        float64 data) over 64 tokens and float64 beyond.

    Raises
    ------
    TypeError, ValueError
        As `conv_position`. Also if `grad` does not have the shape of `x`.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> gradient = posenc.conv_position_vjp(np.ones((5, 1)), np.ones((5, 1)), np.ones((1, 3)))
    >>> gradient.kernel
    array([[4., 5., 4.]])
    """
    convolution = _read_convolution(x, kernel, bias, padding, left=left)
    d_x, d_kernel, d_bias = _gradients(grad, convolution, padding, residual)
    return ConvPositionGradient(d_x, d_kernel[:, 0], d_bias)


@door
def conv_position_2d(
    x: npt.ArrayLike,
    kernel: npt.ArrayLike,
    bias: npt.ArrayLike | None = None,
    *,
    height: int,
    width: int,
    prefix: int = 0,
    padding: Padding = "zero",
    residual: bool = False,
    out: Array | None = None,
) -> Array:
    """Convolve each channel of an image of tokens: a position encoding generator (PEG).

    ``y[i, j] = bias + sum_ab kernel[:, a, b] x[i + a - top, j + b - left]``, and ``+ x[i, j]`` with `residual`.

    Parameters
    ----------
    x : array (..., prefix + height * width, d)
        Tokens of an image, row by row.
    kernel : array (d, rows, columns)
        One kernel for each channel; ``top = (rows - 1) // 2``, ``left = (columns - 1) // 2``.
    bias : array (d,), optional
        Added to every token of the grid.
    height, width : int
        Size of the grid.
    prefix : int
        Number of tokens before the grid (class token, registers), which are copied to the result.
    padding : {"zero", "circular", "replicate"}
        Values beyond the edges: 0, tokens from the opposite edge, or the nearest token.
    residual : bool
        Add `x` to the result, as a PEG does. The prefix is copied in both cases.
    out : array, shape of `x`, optional
        Filled and returned.

    Returns
    -------
    ndarray, shape of `x`
        In the dtype of `x`.

    Raises
    ------
    TypeError
        A dtype that is not one of the four, sizes that are not integers, a `residual` that is not a bool.
    ValueError
        Shapes that do not fit, negative sizes, no taps, an unknown padding, circular padding with taps that reach
        further past an edge than the grid is long.

    Notes
    -----
    Chu et al. 2021, "Conditional positional encodings for vision transformers" (CPVT), section 3.2: the position
    encoding generator is a 3 x 3 depthwise convolution with zero padding, to which the tokens are added, after the
    first block. Twins' ``PosCNN`` adds the tokens if its stride is 1. Both are ``residual=True``. Zero padding contains
    the information about positions (Islam, Jia and Bruce 2020); with circular padding the grid is a torus and has no
    such information. A torch weight (d, 1, rows, columns) is ``kernel = weight[:, 0]``.

    Examples
    --------
    The PEG of a class token and an image of 3 x 4 patches:

    >>> import numpy as np, posenc
    >>> x, grid = np.ones((1 + 3 * 4, 1)), {"height": 3, "width": 4, "prefix": 1}
    >>> y = posenc.conv_position_2d(x, np.ones((1, 3, 3)), **grid, residual=True)
    >>> float(y[0, 0])
    1.0
    >>> y[1:, 0].reshape(3, 4)
    array([[ 5.,  7.,  7.,  5.],
           [ 7., 10., 10.,  7.],
           [ 5.,  7.,  7.,  5.]])
    """
    return _convolve(_read_convolution(x, kernel, bias, padding, (height, width, prefix)), padding, residual, out)


@door
def conv_position_2d_vjp(
    grad: npt.ArrayLike,
    x: npt.ArrayLike,
    kernel: npt.ArrayLike,
    bias: npt.ArrayLike | None = None,
    *,
    height: int,
    width: int,
    prefix: int = 0,
    padding: Padding = "zero",
    residual: bool = False,
) -> ConvPosition2dGradient:
    """Return the gradients of `conv_position_2d`.

    ``dkernel[:, a, b] = sum_ij grad[i, j] x[i + a - top, j + b - left]``, ``dbias = sum_ij grad[i, j]``.

    Parameters
    ----------
    grad : array, shape of `x`
        Cotangent of the result. See `conv_position_2d` for the other arguments.

    Returns
    -------
    ConvPosition2dGradient
        ``x``, ``kernel`` and ``bias``, each in its argument's dtype; ``bias`` is None without a bias. The prefix of
        ``x`` is the prefix of `grad`.

    Raises
    ------
    TypeError, ValueError
        As `conv_position_2d`. Also if `grad` does not have the shape of `x`.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> ones = np.ones((3 * 4, 1))
    >>> posenc.conv_position_2d_vjp(ones, ones, np.ones((1, 3, 3)), height=3, width=4).kernel
    array([[[ 6.,  8.,  6.],
            [ 9., 12.,  9.],
            [ 6.,  8.,  6.]]])
    """
    convolution = _read_convolution(x, kernel, bias, padding, (height, width, prefix))
    return ConvPosition2dGradient(*_gradients(grad, convolution, padding, residual))
