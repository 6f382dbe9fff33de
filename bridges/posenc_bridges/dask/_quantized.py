"""Quantised keys and values in chunks."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

import dask.array as da
import numpy as np

import posenc
from posenc.interop import door

from ._arrays import Array, read_array, zeros_like

__all__ = ["Quantized", "quantize"]


@dataclass(frozen=True, eq=False)
class Quantized:
    """A dask array as int8 codes with one float32 scale for each row along `axis`, as `posenc.Quantized`.

    `attention` takes keys and values of this form. A worker receives a quarter of the bytes of float32.

    Parameters
    ----------
    codes : dask array of int8 (..., D)
        Split along any axis.
    scale : dask array of float32 (...)
        Shape of `codes` without `axis`.
    axis : int
        Axis of `codes` along which numbers share a scale; `attention` takes -1.

    Attributes
    ----------
    codes, scale, axis
        The parameters.

    Raises
    ------
    TypeError, ValueError
        As `posenc.Quantized`; arrays that are not dask arrays.

    Examples
    --------
    >>> import dask.array as da, numpy as np, posenc, posenc_bridges.dask
    >>> codes, scale = da.ones((2, 100, 64), chunks=(2, 30, 64), dtype=np.int8), da.ones((2, 100), dtype=np.float32)
    >>> k = posenc_bridges.dask.Quantized(codes, scale)
    >>> posenc_bridges.dask.attention(da.ones((2, 8, 64), dtype=np.float32), k, k).shape
    (2, 8, 64)
    """

    codes: da.Array
    scale: da.Array
    axis: int = -1

    @door
    def __post_init__(self) -> None:
        for name in ("codes", "scale"):
            read_array(name, getattr(self, name))
        object.__setattr__(self, "axis", self.like().axis)

    def like(self) -> posenc.Quantized:
        """Return zeros of these shapes in memory, for checks."""
        return posenc.Quantized(zeros_like(self.codes), zeros_like(self.scale), self.axis)

    def dequantize(self) -> da.Array:
        """Return ``codes * scale`` as float32, in the chunks of `codes`."""
        return da.multiply(self.codes.astype(np.float32), da.expand_dims(self.scale, self.axis))


@door
def quantize(x: da.Array, *, axis: int = -1) -> Quantized:
    """Round numbers to int8 codes with one scale for each row along an axis, as `posenc.quantize` does.

    Parameters
    ----------
    x : dask array
        Keys or values. `axis` is merged into one chunk.
    axis : int
        Axis along which numbers share a scale. `attention` takes the last one.

    Returns
    -------
    Quantized
        Equal to the result of `posenc.quantize`, bit for bit. Compute its codes and scale together: one task for each
        chunk makes both.

    Raises
    ------
    TypeError, ValueError
        As `posenc.quantize`; numbers that are not finite when a chunk is computed. An x that is not a dask array.

    Examples
    --------
    >>> import dask.array as da, posenc_bridges.dask
    >>> k = posenc_bridges.dask.quantize(da.random.default_rng(0).random((2, 1000, 64), chunks=(2, 300, 64)))
    >>> k.codes.dtype, k.scale.chunks
    (dtype('int8'), ((2,), (300, 300, 300, 100)))
    """
    x = read_array("x", x)
    axis = posenc.quantize(np.zeros((1,) * x.ndim, x.dtype), axis=axis).axis % x.ndim
    whole = x.rechunk({axis: -1})
    axes, empty = [*range(x.ndim)], (0,) * x.ndim
    others = [one for one in axes if one != axis]
    both = whole.map_blocks(posenc.quantize, axis=axis, meta=np.empty(empty, object))
    codes = da.blockwise(attrgetter("codes"), axes, both, axes, token="quantize-codes", meta=np.empty(empty, np.int8))
    meta = np.empty(empty[1:], np.float32)
    scale = da.blockwise(_scale_of, others, both, axes, token="quantize-scale", meta=meta)
    return Quantized(codes, scale, axis)


def _scale_of(chunks: list[posenc.Quantized]) -> Array:
    """Return the scale of a chunk, which is whole along the axis that the scale lacks."""
    return chunks[0].scale
