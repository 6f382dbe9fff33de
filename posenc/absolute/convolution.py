"""Positions from convolutions: what zeros beyond the ends tell the tokens near them, in a sequence and in an image."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from .._core_api.arguments import (
    Array,
    as_bool,
    as_data,
    as_index,
    cast_operand,
    check_choice,
    compute_dtype,
    fail,
    fail_value,
    finish_out,
    prepare_out,
)
from .._core_api.constants import PADDINGS

__all__ = [
    "ConvPosition2dGradient",
    "ConvPositionGradient",
    "conv_position",
    "conv_position_2d",
    "conv_position_2d_vjp",
    "conv_position_vjp",
]


class ConvPositionGradient(NamedTuple):
    """Gradients of `conv_position`, each in its argument's dtype; `bias` is None where there was none."""

    x: Array
    kernel: Array
    bias: Array | None


class ConvPosition2dGradient(NamedTuple):
    """Gradients of `conv_position_2d`, each in its argument's dtype; `bias` is None where there was none."""

    x: Array
    kernel: Array
    bias: Array | None


class _Grid(NamedTuple):
    """A convolution on (..., height, width, d): the arguments of both functions, checked."""

    x: Array
    """As it was given, with the prefix."""
    kernel: Array
    """(rows, columns, d) in the dtype of the arithmetic."""
    bias: Array | None
    given: tuple[Array, Array | None]
    """Kernel and bias as they were given."""
    height: int
    width: int
    prefix: int
    top: int
    left: int
    padding: int
    residual: bool

    def cut(self, array: Array) -> Array:
        """The tokens of the grid; a view, since splitting an axis needs no copy."""
        return array[..., self.prefix :, :].reshape(*array.shape[:-2], self.height, self.width, array.shape[-1])


def _grid(
    function: str,
    x: Any,
    kernel: Any,
    bias: Any,
    size: tuple[Any, Any, Any] | None,
    padding: Any,
    left: Any,
    residual: Any,
) -> _Grid:
    """Both functions' arguments as one grid; a sequence, `size` None, is a grid of one row."""
    check_choice(function, "padding", padding, PADDINGS)
    data, taps = as_data(function, "x", x), as_data(function, "kernel", kernel)
    if data.ndim < 2:
        fail(ValueError, function, "x", f"{data.ndim} axes", "at least 2, (..., N, d)")
    n, d = data.shape[-2:]
    axes = ("d", "taps") if size is None else ("d", "rows", "columns")
    if taps.ndim != len(axes):
        fail(ValueError, function, "kernel", f"{taps.ndim} axes", f"{len(axes)}, ({', '.join(axes)})")
    if taps.shape[0] != d:
        fail(ValueError, function, "kernel", f"{taps.shape[0]} channels", f"{d}, as x")
    if 0 in taps.shape[1:]:
        fail(ValueError, function, "kernel", f"shape {taps.shape}", "at least one tap")
    height, width, prefix = 1, n, 0
    if size is not None:
        height, width, prefix = (
            as_index(function, name, value, 0) for name, value in zip(("height", "width", "prefix"), size, strict=True)
        )
        if n != prefix + height * width:
            fail(ValueError, function, "x", f"{n} tokens", f"{prefix + height * width}, prefix + height * width")
    rows, columns = taps.shape[1:] if size is not None else (1, taps.shape[1])
    top, before = (rows - 1) // 2, (columns - 1) // 2
    if left is not None:
        before = as_index(function, "left", left, 0)
        if before >= columns:
            fail_value(ValueError, function, "left", before, f"less than {columns}, the taps of the kernel")
    if padding == "circular" and height * width:
        for length, reach in ((height, rows - 1 - top), (width, max(before, columns - 1 - before))):
            if reach > length:
                fail(
                    ValueError, function, "kernel", f"taps that reach {reach} tokens past the end",
                    f"at most {length}: circular padding goes around once",
                )  # fmt: skip
    offset = None if bias is None else as_data(function, "bias", bias)
    if offset is not None and offset.shape != (d,):
        fail(ValueError, function, "bias", f"shape {offset.shape}", str((d,)))
    dtype = compute_dtype(data)
    return _Grid(
        data,
        np.moveaxis(taps.reshape(d, rows, columns), 0, -1).astype(dtype, order="C"),
        None if offset is None else cast_operand(offset, dtype),
        (taps, offset),
        height,
        width,
        prefix,
        top,
        before,
        PADDINGS.index(padding),
        as_bool(function, "residual", residual),
    )


def _forward(function: str, grid: _Grid, out: Any) -> Array:
    out, buffer = prepare_out(function, out, grid.x.shape, grid.x.dtype, (grid.x, *grid.given))
    if buffer.size:
        _core.convolution(
            function, grid.cut(grid.x), grid.kernel, grid.bias, grid.cut(buffer),
            grid.top, grid.left, grid.padding, grid.residual, 0,
        )  # fmt: skip
        buffer[..., : grid.prefix, :] = grid.x[..., : grid.prefix, :]
    return finish_out(out, buffer)


def _gradient(function: str, grad: Any, grid: _Grid) -> tuple[Array, Array, Array | None]:
    cotangent = as_data(function, "grad", grad)
    if cotangent.shape != grid.x.shape:
        fail(ValueError, function, "grad", f"shape {cotangent.shape}", str(grid.x.shape))
    cotangent = cast_operand(cotangent, compute_dtype(grid.x))
    dtype = grid.x.dtype.newbyteorder("=")
    dx = np.empty(grid.x.shape, dtype)
    rows, columns, d = grid.kernel.shape
    dkernel, dbias = np.zeros((rows, columns, d)), np.zeros(d)
    if dx.size:
        # the transpose reads the kernel backwards; what a replicated token was read for goes back to it
        transposed = PADDINGS.index("zero") if PADDINGS[grid.padding] == "replicate" else grid.padding
        _core.convolution(
            function, grid.cut(cotangent), grid.kernel[::-1, ::-1], None, grid.cut(dx), rows - 1 - grid.top,
            columns - 1 - grid.left, transposed, grid.residual, PADDINGS[grid.padding] == "replicate",
        )  # fmt: skip
        dx[..., : grid.prefix, :] = cotangent[..., : grid.prefix, :]
        _core.convolution_vjp(
            function, grid.cut(cotangent), grid.cut(grid.x), dkernel, dbias, grid.top, grid.left, grid.padding
        )
    kernel, bias = grid.given
    return (
        dx,
        np.moveaxis(dkernel, -1, 0).reshape(kernel.shape).astype(kernel.dtype.newbyteorder("="), order="C"),
        None if bias is None else dbias.astype(bias.dtype.newbyteorder("="), copy=False),
    )


def conv_position(
    x: npt.ArrayLike,
    kernel: npt.ArrayLike,
    bias: npt.ArrayLike | None = None,
    *,
    padding: str = "zero",
    left: int | None = None,
    residual: bool = False,
    out: Array | None = None,
) -> Array:
    """Depthwise convolution along the sequence: ``y[n] = bias + sum_t kernel[:, t] x[n + t - left]``.

    Parameters
    ----------
    x : array (..., N, d)
        Tokens. Those that only pad a batch must be zero, or they leak into their neighbours.
    kernel : array (d, taps)
        One kernel for each channel, not reversed (a cross-correlation, as everywhere in deep learning).
    bias : array (d,), optional
        Added to every token.
    padding : {"zero", "circular", "replicate"}
        What is read beyond the ends: 0, the other end, or the last token there is.
    left : int, optional
        How many taps stand before the token itself, ``0 <= left < taps``; ``(taps - 1) // 2`` unless given.
        ``taps - 1`` is causal.
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
        A dtype that is none of the four, a `left` that is no integer, a `residual` that is no bool.
    ValueError
        Shapes that do not fit, no taps, `left` out of range, an unknown padding, circular padding with taps that reach
        further past an end than the sequence is long. Zeros and replicas may be read at any distance.

    Notes
    -----
    Zero padding is what tells position: Islam, Jia and Bruce 2020, "How much position information do convolutional
    neural networks encode?". Each layer carries the ends ``(taps - 1) / 2`` tokens further in. A circular convolution
    commutes with cyclic shifts and so knows no position; replicate leaks nothing where the tokens are alike, but is not
    equivariant either.

    References disagree about even kernels. wav2vec 2.0 (Baevski et al. 2020) pads ``taps // 2`` and drops the last
    output: ``left=taps // 2``. fairseq's ConvS2S (Gehring et al. 2017) encoder has the default; its decoder is causal.
    wav2vec 2.0's own convolution has 16 groups that mix 48 or 64 channels each, then GELU: this one is depthwise, a
    group per channel, and is no substitute for trained weights of that kind. A torch weight (d, 1, taps) is
    ``kernel = weight[:, 0]``.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.conv_position(np.ones((5, 1)), np.ones((1, 3)))[:, 0]
    array([2., 3., 3., 3., 2.])
    >>> posenc.conv_position(np.ones((5, 1)), np.ones((1, 3)), padding="circular")[:, 0]
    array([3., 3., 3., 3., 3.])
    """
    function = "conv_position"
    return _forward(function, _grid(function, x, kernel, bias, None, padding, left, residual), out)


def conv_position_vjp(
    grad: npt.ArrayLike,
    x: npt.ArrayLike,
    kernel: npt.ArrayLike,
    bias: npt.ArrayLike | None = None,
    *,
    padding: str = "zero",
    left: int | None = None,
    residual: bool = False,
) -> ConvPositionGradient:
    """Gradient of `conv_position`: ``dkernel[:, t] = sum_n grad[n] x[n + t - left]``, ``dbias = sum_n grad[n]``.

    Parameters
    ----------
    grad : array (..., N, d)
        Cotangent of the result; the other arguments are those of `conv_position`.

    Returns
    -------
    ConvPositionGradient
        ``x``, ``kernel`` and ``bias``, each in its argument's dtype, ``bias`` None where there was none. ``dx`` is the
        convolution with the kernel reversed; what was read of a replica goes to the token that it copies. Sums over
        tokens are float32 (float64 for float64 data) over 64 of them and float64 beyond.

    Raises
    ------
    TypeError, ValueError
        As `conv_position`; also where `grad` does not have the shape of `x`.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> gradient = posenc.conv_position_vjp(np.ones((5, 1)), np.ones((5, 1)), np.ones((1, 3)))
    >>> gradient.kernel
    array([[4., 5., 4.]])
    """
    function = "conv_position_vjp"
    return ConvPositionGradient(
        *_gradient(function, grad, _grid(function, x, kernel, bias, None, padding, left, residual))
    )


def conv_position_2d(
    x: npt.ArrayLike,
    kernel: npt.ArrayLike,
    bias: npt.ArrayLike | None = None,
    *,
    height: int,
    width: int,
    prefix: int = 0,
    padding: str = "zero",
    residual: bool = True,
    out: Array | None = None,
) -> Array:
    """PEG, on a grid of tokens: ``y[i, j] = x[i, j] + bias + sum_ab kernel[:, a, b] x[i + a - top, j + b - left]``.

    Parameters
    ----------
    x : array (..., prefix + height * width, d)
        Tokens of an image, row by row.
    kernel : array (d, rows, columns)
        One kernel for each channel; ``top = (rows - 1) // 2``, ``left = (columns - 1) // 2``.
    bias : array (d,), optional
        Added to every token of the grid.
    height, width : int
        Of the grid.
    prefix : int
        So many tokens at the front (class token, registers) are copied as they are.
    padding : {"zero", "circular", "replicate"}
        What is read beyond the edges: 0, the opposite edge, or the nearest token.
    residual : bool
        Add `x` to the result, once; the prefix is never added.
    out : array, shape of `x`, optional
        Filled and returned.

    Returns
    -------
    ndarray, shape of `x`
        In the dtype of `x`.

    Raises
    ------
    TypeError
        A dtype that is none of the four, sizes that are no integers, a `residual` that is no bool.
    ValueError
        Shapes that do not fit, negative sizes, no taps, an unknown padding, circular padding with taps that reach
        further past an edge than the grid is long.

    Notes
    -----
    Chu et al. 2021, "Conditional positional encodings for vision transformers" (CPVT), section 3.2: the position
    encoding generator is a 3 x 3 depthwise convolution with zeros around and the tokens added, after the first block.
    Twins' ``PosCNN`` adds the tokens where its stride is 1, and so does this. The zeros are what tells position (Islam,
    Jia and Bruce 2020): with circular padding the grid is a torus and no token knows where it is. A torch weight
    (d, 1, rows, columns) is ``kernel = weight[:, 0]``.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> y = posenc.conv_position_2d(np.ones((1 + 3 * 4, 1)), np.ones((1, 3, 3)), height=3, width=4, prefix=1)
    >>> float(y[0, 0])
    1.0
    >>> y[1:, 0].reshape(3, 4)
    array([[ 5.,  7.,  7.,  5.],
           [ 7., 10., 10.,  7.],
           [ 5.,  7.,  7.,  5.]])
    """
    function = "conv_position_2d"
    grid = _grid(function, x, kernel, bias, (height, width, prefix), padding, None, residual)
    return _forward(function, grid, out)


def conv_position_2d_vjp(
    grad: npt.ArrayLike,
    x: npt.ArrayLike,
    kernel: npt.ArrayLike,
    bias: npt.ArrayLike | None = None,
    *,
    height: int,
    width: int,
    prefix: int = 0,
    padding: str = "zero",
    residual: bool = True,
) -> ConvPosition2dGradient:
    """Gradient of `conv_position_2d`: ``dkernel[:, a, b] = sum_ij grad[i, j] x[i + a - top, j + b - left]``.

    Parameters
    ----------
    grad : array, shape of `x`
        Cotangent of the result; the other arguments are those of `conv_position_2d`.

    Returns
    -------
    ConvPosition2dGradient
        ``x``, ``kernel`` and ``bias``, each in its argument's dtype, ``bias`` None where there was none. The prefix of
        ``x`` is that of `grad`.

    Raises
    ------
    TypeError, ValueError
        As `conv_position_2d`; also where `grad` does not have the shape of `x`.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> ones = np.ones((3 * 4, 1))
    >>> posenc.conv_position_2d_vjp(ones, ones, np.ones((1, 3, 3)), height=3, width=4).kernel
    array([[[ 6.,  8.,  6.],
            [ 9., 12.,  9.],
            [ 6.,  8.,  6.]]])
    """
    function = "conv_position_2d_vjp"
    grid = _grid(function, x, kernel, bias, (height, width, prefix), padding, None, residual)
    return ConvPosition2dGradient(*_gradient(function, grad, grid))
