"""Check the arguments of attention over chunks; values in dask arrays are checked when they are computed."""

from __future__ import annotations

from typing import Any

import numpy as np

import posenc
from posenc._core_api.arguments import (
    as_data,
    broadcasts_to,
    check_choice,
    compute_dtype,
    fail,
    fail_value,
)
from posenc.attention.inputs import (
    INFINITY,
    check_batch,
    check_shapes,
    default_scale,
    read_call_positions,
    read_keys,
    read_operators,
    read_segments_of,
    read_softcap,
    read_visible_range,
)
from posenc.bias.operator import single_terms
from posenc.bias.positions import is_consecutive, read_side
from posenc.bias.terms import Call

from ._arrays import DaskArray, as_chunked, check_known, is_dask, read_array
from ._operators import Operator
from ._quantized import Quantized


class Inputs:
    """The checked arguments of a call."""

    def __init__(
        self,
        function: str,
        q: Any,
        k: Any,
        v: Any,
        *,
        bias: Any,
        keep: Any,
        causal: Any,
        align: Any,
        window: Any,
        q_positions: Any,
        k_positions: Any,
        q_segments: Any,
        k_segments: Any,
        scale: Any,
        softcap: Any,
        sink: Any,
        invariant: Any,
        saved: dict[str, Any] | None = None,
    ) -> None:
        self.function = function
        q = self._read_heads("q", q)
        (k, k_scale), (v, v_scale) = (self.read_keys(name, array, q.dtype) for name, array in (("k", k), ("v", v)))
        batch = check_shapes(function, q, k, v)
        heads, n, width = q.shape[-3:]
        _kv_heads, m, self.value_width = v.shape[-3:]
        self.shape = (*batch, heads, n, m)
        """Shape of the logits: (batch axes, H, N, M)."""
        self.dtype = as_data(function, "q", np.zeros((), q.dtype)).dtype
        self.work_dtype = compute_dtype(np.zeros((), self.dtype))

        self.operators = read_operators(function, bias)
        parts = tuple(part for operator in self.operators for part in single_terms(operator))
        self.parts = [Operator(part, n, m) for part in parts]
        call = Call(function, self.work_dtype, self.shape, width, self.value_width)
        terms = [part.term(call) for part in self.parts]
        for part in self.parts:
            part.check_own_positions(function, batch)
            if saved is not None and part.hides_arrays:
                expected = "an operator without arrays, because posenc.dask cannot split its gradient into chunks"
                fail(TypeError, function, "bias", f"operator {part.bias.name} with arrays", expected)
        self.low, self.high = read_visible_range(function, causal, window)
        read_softcap(function, softcap, self.work_dtype)
        factor = default_scale(function, width, parts, terms) if scale is None else scale
        self._check_scalars(scale, softcap, invariant)
        self.parameters = sum(len(part.arrays) for part in parts) + (sink is not None)
        window = window if window is None else tuple(window)
        self.invariant = bool(invariant)
        self.pair_options = (
            bool(causal), window, float(factor), softcap, self.invariant, self.value_width, self.parameters
        )  # fmt: skip
        """The arguments of `Forward` and `Backward`, which compute one chunk of queries with one chunk of keys."""

        is_limited = self.low > -INFINITY or self.high < INFINITY
        self.reads_positions = is_limited or any(part.reads_positions for part in parts)
        q_places, k_places = self._read_positions(parts, align, q_positions, k_positions)
        self.places: dict[str, Any] = {"q_positions": q_places, "k_positions": k_places}
        """Positions and segments. Each is a range, an array, a dask array, or None if no operator or mask reads it."""
        for name, segments, length in (("q_segments", q_segments, n), ("k_segments", k_segments, m)):
            self.places[name] = None if segments is None else self._read_segments(name, segments, length)
        for name, other in (("q_segments", "k_segments"), ("k_segments", "q_segments")):
            if self.places[name] is None and self.places[other] is not None:
                fail_value(ValueError, function, name, None, "segments of both queries and keys")

        self.arrays: dict[str, DaskArray] = {
            "q": q, "k": k, "v": v, "k_scale": k_scale, "v_scale": v_scale,
            "keep": self._read_keep(keep), "sink": self._read_sink(sink),
        }  # fmt: skip
        rows = self.shape[:-1]
        for name, array in (saved or {}).items():
            wanted = rows if "lse" in name else (*rows, self.value_width)
            self.arrays[name] = None if array is None else self._read_saved(name, array, wanted)
        for name, array in (*self.arrays.items(), *self.places.items()):
            if is_dask(array):
                check_known(function, name, array)

    def _read_heads(self, argument: str, value: Any) -> DaskArray:
        array = read_array(self.function, argument, value)
        check_known(self.function, argument, array)
        as_data(self.function, argument, np.zeros((), array.dtype))
        if array.ndim < 3:
            fail(ValueError, self.function, argument, f"{array.ndim} axes", "at least 3: heads, sequence, channels")
        return array

    def read_keys(
        self, argument: str, value: Any, dtype: np.dtype[Any]
    ) -> tuple[DaskArray, None] | tuple[DaskArray, DaskArray]:
        """Return keys or values and, if they are quantised, their scales; `dtype` is the dtype of q."""
        if isinstance(value, posenc.Quantized):
            expected = "posenc.dask.Quantized, or posenc.attention for arrays in memory"
            fail(TypeError, self.function, argument, "type Quantized of arrays in memory", expected)
        if not isinstance(value, Quantized):
            return self._read_heads(argument, value), None
        codes, scale = (np.zeros((1,) * part.ndim, part.dtype) for part in (value.codes, value.scale))
        tiny = posenc.Quantized(codes, scale, value.axis)
        read_keys(self.function, argument, tiny, dtype)
        return value.codes, value.scale

    def _check_scalars(self, scale: Any, softcap: Any, invariant: Any) -> None:
        """Call `posenc.attention` with empty arrays, which raises its errors for `scale`, `softcap` and `invariant`."""
        nothing = np.zeros((1, 0, 1), self.dtype)
        posenc.attention(nothing, nothing, nothing, scale=scale, softcap=softcap, invariant=invariant)

    def _read_positions(self, parts: Any, align: Any, q: Any, k: Any) -> tuple[Any, Any]:
        """Return the positions of queries and keys, each as a range, an array or a dask array.

        Both are None if neither an operator nor a mask reads positions.
        """
        n, m = self.shape[-2:]
        if q is None and k is None:
            limits = self.low, self.high
            shift = int(read_call_positions(self.function, self.shape, parts, *limits, align, None, None).shift)
            return (range(shift, shift + n), range(m)) if self.reads_positions else (None, None)
        if align is not None:
            check_choice(self.function, "align", align, ("start", "end"))
            fail_value(ValueError, self.function, "align", align, "None where positions are given")
        q = self.read_side("q_positions", n if q is None else q, n)
        k = self.read_side("k_positions", m if k is None else k, m)
        return (q, k) if self.reads_positions else (None, None)

    def read_side(self, argument: str, value: Any, length: int) -> Any:
        if is_dask(value):
            if value.dtype.kind not in "iuf":
                fail(TypeError, self.function, argument, f"dtype {value.dtype}", "integers or reals")
            check_batch(self.function, argument, value, self.shape[:-3], length)
            return value
        self._refuse_xarray(argument, value)
        array = read_side(self.function, argument, value, length)
        check_batch(self.function, argument, array, self.shape[:-3], length)
        if length and is_consecutive(array):
            return range(int(array[0]), int(array[0]) + length)
        return array

    def _read_segments(self, argument: str, value: Any, length: int) -> Any:
        batch = self.shape[:-3]
        if is_dask(value):
            if value.dtype.kind not in "iu":
                fail(TypeError, self.function, argument, f"dtype {value.dtype}", "integers")
            check_batch(self.function, argument, value, batch, length)
            return value
        self._refuse_xarray(argument, value)
        return read_segments_of(self.function, argument, value, batch, length)

    def _refuse_xarray(self, argument: str, value: Any) -> None:
        if hasattr(value, "dims"):
            read_array(self.function, argument, value)

    def _read_keep(self, keep: Any) -> DaskArray | None:
        if keep is None:
            return None
        mask = as_chunked(self.function, "keep", keep)
        if mask.dtype != np.bool_:
            fail(TypeError, self.function, "keep", f"dtype {mask.dtype}", "bool, True = this key may be seen")
        if not broadcasts_to(mask.shape, self.shape):
            fail(ValueError, self.function, "keep", f"shape {mask.shape}", f"to broadcast to {self.shape}")
        return mask

    def _read_sink(self, sink: Any) -> DaskArray | None:
        if sink is None:
            return None
        array = as_chunked(self.function, "sink", sink)
        as_data(self.function, "sink", np.zeros((), array.dtype))
        check_batch(self.function, "sink", array, self.shape[:-3], self.shape[-3])
        return array

    def _read_saved(self, argument: str, value: Any, shape: tuple[int, ...]) -> DaskArray:
        array = as_chunked(self.function, argument, value)
        as_data(self.function, argument, np.zeros((), array.dtype))
        if array.shape != shape:
            fail(ValueError, self.function, argument, f"shape {array.shape}", str(shape))
        return array
