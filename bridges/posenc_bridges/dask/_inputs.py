"""Check the arguments of attention over chunks; values in dask arrays are checked when they are computed."""

from __future__ import annotations

import dask.array as da
import numpy as np

import posenc
from posenc._core_api.arguments import I64, Array, as_bool, as_data, fail, fail_value
from posenc.attention import inputs as attention
from posenc.bias.operator import Call
from posenc.bias.positions import is_consecutive

from ._arrays import Arguments, is_xarray, read_array, read_places, shape_of, zeros_of
from ._blocks import name_axes
from ._operators import Operator
from ._quantized import Quantized
from ._tasks import Backward, Forward


class Inputs:
    """The checked arguments of a call.

    Attributes
    ----------
    arrays : dict
        Arrays of the call by name, as dask arrays.
    known : dict
        Positions and segments that are in memory by name, each a range or an array.
    shape : tuple of int
        Shape of the logits: (batch axes, H, N, M).
    lengths : dict
        The length of each axis of the call.
    low, high : float
        The lowest and the highest visible distance.
    pair : Forward or Backward
        The task of a pair of chunks.
    """

    def __init__(self, function: str, given: Arguments) -> None:
        self.function, self.given = function, given
        self.arrays: dict[str, da.Array] = {}
        self.known: dict[str, range | Array] = {}
        self._read_qkv()
        if np.size(given["scale"]) > 1:
            fail(TypeError, "scale", f"shape {np.shape(given['scale'])}", "a number in posenc_bridges.dask")
        q, k, v = (self.arrays[name] for name in "qkv")
        causal, window, scale, softcap = (given[name] for name in ("causal", "window", "scale", "softcap"))
        self.dtype = as_data("q", np.zeros((), q.dtype)).dtype
        # Arrays of zeros take no memory, and posenc raises its errors for them.
        alike = ("align", "scale", "softcap", "dropout", "seed", "invariant", "precision")
        options = {name: given[name] for name in alike}
        options |= {name: self._stand_in(name) for name in ("keep", "q_segments", "k_segments", "sink")}
        plain = attention.read_inputs(
            self.function,
            zeros_of(q.shape, self.dtype),
            zeros_of(k.shape, self.dtype),
            zeros_of(v.shape, self.dtype),
            options,
        )
        if plain.options["dropout"]:
            expected = "0, because posenc_bridges.dask has no dropout"
            fail_value(NotImplementedError, "dropout", given["dropout"], expected)
        self.shape, self.work_dtype = plain.shape, plain.dtype
        for name, array in plain.arguments.items():
            if name.endswith("segments") and array is not None and name not in self.arrays:
                self.known[name] = array
        n, m = self.shape[-2:]
        self.lengths = dict(zip(name_axes("*hnm", len(self.shape)), self.shape, strict=True))
        self.lengths.update(g=k.shape[-3], D=k.shape[-1], V=v.shape[-1])

        self.operators = attention.read_operators(given["bias"])
        biases = tuple(part for operator in self.operators for part in operator.parts)
        self.parts = [Operator(bias, n, m) for bias in biases]
        for bias in biases if function == "attention_vjp" else ():
            if any(isinstance(array, tuple) and array for array in bias.arrays):
                expected = "an operator without arrays, because its gradient cannot be split into chunks"
                fail(TypeError, "bias", f"operator {bias.name} with arrays", expected)
        for part in self.parts:
            part.check(Call(self.work_dtype, self.shape, q.shape[-1], v.shape[-1]))
        if scale is None:
            scale = attention.default_scale(q.shape[-1], biases)
        self.low, self.high = attention.read_visible_range(as_bool("causal", causal), window)
        count = sum(len(bias.arrays) for bias in biases)
        self.pair = (Forward if function == "attention" else Backward)(
            bool(causal), window and tuple(window), float(scale), softcap, plain.options["invariant"], v.shape[-1],
            count + ("sink" in self.arrays),
        )  # fmt: skip
        is_limited = self.low > -attention.INFINITY or self.high < attention.INFINITY
        self._read_positions(is_limited or any(bias.reads_positions for bias in biases))
        for name in ("grad", "out", "lse", "grad_lse"):
            if given.get(name) is not None:
                array = self.arrays[name] = read_array(name, given[name], is_lazy=False)
                as_data(name, np.zeros((), array.dtype))
                wanted = (*self.shape[:-1], self.lengths["V"])[: len(self.shape) - ("lse" in name)]
                if array.shape != wanted:
                    fail(ValueError, name, f"shape {array.shape}", str(wanted))

    def _read_qkv(self) -> None:
        for name in "qkv":
            value = self.given[name]
            if isinstance(value, posenc.Quantized):
                expected = "posenc_bridges.dask.Quantized, or posenc.attention for arrays in memory"
                fail(TypeError, name, "type Quantized of arrays in memory", expected)
            if isinstance(value, Quantized) and name != "q":
                codes, of_rows = (np.zeros((1,) * part.ndim, part.dtype) for part in (value.codes, value.scale))
                tiny = posenc.Quantized(codes, of_rows, value.axis)
                attention.read_keys(self.function, name, tiny, self.arrays["q"].dtype)
                self.arrays[f"{name}_scale"], value = value.scale, value.codes
            array = self.arrays[name] = read_array(name, value)
            as_data(name, np.zeros((), array.dtype))
            if array.ndim < 3:
                fail(ValueError, name, f"{array.ndim} axes", "at least 3: heads, sequence, channels")

    def _stand_in(self, name: str) -> object:
        """Return an argument in memory, or zeros of the shape and dtype of a dask array; keep what tasks read."""
        value, is_segments = self.given[name], name.endswith("segments")
        if value is None:
            return None
        if is_segments and not isinstance(value, da.Array) and not is_xarray(value):
            return value
        array = self.arrays[name] = read_array(name, value, is_lazy=is_segments)
        return zeros_of(array.shape, I64 if is_segments and array.dtype.kind in "iu" else array.dtype)

    def _read_positions(self, are_read: bool) -> None:
        """Read the positions of queries and keys, as a range where they count up by one."""
        align, sizes = self.given["align"], self.shape[-2:]
        given = {name: self.given[name] for name in ("q_positions", "k_positions")}
        if all(one is None for one in given.values()):
            biases = tuple(part.bias for part in self.parts)
            places = attention.read_call_positions(self.shape, biases, self.low, self.high, align, None, None)
            ranges = (range(int(places.shift), int(places.shift) + sizes[0]), range(sizes[1]))
            self.known.update(zip(given, ranges, strict=True) if are_read else ())
            return
        if align is not None:
            fail_value(ValueError, "align", align, "None where positions are given")
        for (name, value), length in zip(given.items(), sizes, strict=True):
            array = read_places(name, length if value is None else value)
            if isinstance(array, np.ndarray) and array.size and is_consecutive(array):
                array = range(int(array[0]), int(array[-1]) + 1)
            if not isinstance(array, da.Array) and shape_of(array)[-1] != length:
                fail(ValueError, name, f"length {shape_of(array)[-1]}", str(length))
            if not isinstance(array, range):
                attention.check_batch(name, array, self.shape[:-3], length)
            if are_read and isinstance(array, da.Array):
                self.arrays[name] = array
            elif are_read:
                self.known[name] = array
