"""Check the arguments of attention over chunks; values in dask arrays are checked when they are computed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import posenc
from posenc import Bias
from posenc._core_api.arguments import Array, as_data, as_positions, fail, fail_value
from posenc.bias.operator import single_terms

from ._arrays import DaskArray, as_chunked, check_known, is_dask, read_array, rehearsal, zeros_of
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
        (k, k_scale), (v, v_scale) = (self._read_keys(name, array) for name, array in (("k", k), ("v", v)))
        self.arrays: dict[str, DaskArray] = {
            "q": q, "k": k, "v": v, "k_scale": k_scale, "v_scale": v_scale,
            "keep": None if keep is None else as_chunked(function, "keep", keep),
            "sink": None if sink is None else as_chunked(function, "sink", sink),
        }  # fmt: skip
        given = {
            "q_positions": q_positions, "k_positions": k_positions, "q_segments": q_segments, "k_segments": k_segments,
        }  # fmt: skip
        for name, value in given.items():
            if not is_dask(value) and hasattr(value, "dims"):
                read_array(function, name, value)
        self.operators = () if bias is None else tuple(bias) if isinstance(bias, Sequence) else (bias,)
        parts: tuple[Bias, ...] = ()
        are_operators = all(isinstance(operator, Bias) for operator in self.operators)
        if are_operators:
            parts = tuple(part for operator in self.operators for part in single_terms(operator))

        # The function itself checks stand-ins of all arrays, in their shapes. Values without channels make a result
        # without numbers.
        reads_positions = any(part.reads_positions for part in parts)
        options = {name: _stand_in(value) if is_dask(value) else value for name, value in given.items()}
        options |= {name: _stand_in(self.arrays[name]) for name in ("keep", "sink")}
        options |= {
            "bias": () if are_operators else bias,
            "scale": scale,
            "softcap": softcap,
            "invariant": invariant,
            "align": align,
            "window": window,
        }
        keys, values = self._stand_in_of_keys("k"), self._stand_in_of_keys("v")
        with rehearsal(function):
            out, lse = posenc.attention(
                _stand_in(q), keys, values, causal=causal or reads_positions, return_lse=True, **options
            )
        *batch, heads, n, self.value_width = *out.shape[:-1], v.shape[-1]
        m, width = k.shape[-2:]
        self.shape = (*batch, heads, n, m)
        """Shape of the logits: (batch axes, H, N, M)."""
        self.dtype, self.work_dtype = out.dtype, lse.dtype

        self.parts = [Operator(part, n, m) for part in parts]
        for part in self.parts:
            part.check(function, self.dtype, self.shape, (width, self.value_width))
            if saved is not None and part.hides_arrays:
                expected = "one without arrays, because its gradient is not split into chunks"
                fail(TypeError, function, "bias", f"operator {part.bias.name} with arrays", expected)
        self._check_token(heads, width, causal, scale)

        left, right = (None, None) if window is None else window
        self.low, self.high = -math.inf if left is None else -left, math.inf if right is None else right
        self.high = min(self.high, 0.0) if causal else self.high
        self.parameters = sum(len(part.arrays) for part in parts) + (sink is not None)
        self.invariant = invariant
        self.pair_options = (
            causal, window if window is None else tuple(window), scale, softcap, invariant, self.value_width,
            self.parameters,
        )  # fmt: skip
        """The arguments of the tasks `Forward` and `Backward`."""

        self.places: dict[str, Any] = dict.fromkeys(given)
        """Positions and segments, each as a range, an array, a dask array, or None if nothing reads them."""
        if self.low > -math.inf or self.high < math.inf or reads_positions:
            shift = m - n if align == "end" else 0
            alone = q_positions is None and k_positions is None
            self.places["q_positions"] = (
                range(shift, shift + n) if alone else self._place("q_positions", q_positions, n)
            )
            self.places["k_positions"] = self._place("k_positions", k_positions, m)
        for name in ("q_segments", "k_segments"):
            value = given[name]
            self.places[name] = value if value is None or is_dask(value) else np.asarray(value)
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
        return array

    def _read_keys(self, argument: str, value: Any) -> tuple[DaskArray, DaskArray | None]:
        """Return keys or values and, if they are quantised, their scales."""
        if isinstance(value, posenc.Quantized):
            expected = "posenc.dask.Quantized, or posenc.attention for arrays in memory"
            fail(TypeError, self.function, argument, "type Quantized of arrays in memory", expected)
        if not isinstance(value, Quantized):
            return self._read_heads(argument, value), None
        if self.function != "attention":
            fail(TypeError, self.function, argument, "type Quantized", "an array, as dequantize() returns")
        if value.axis != -1:
            expected = "-1, a scale for each token and head"
            fail_value(ValueError, self.function, f"axis of {argument}", value.axis, expected)
        return value.codes, value.scale

    def _stand_in_of_keys(self, name: str) -> Any:
        """Return a stand-in for keys, or for values without channels."""
        array, scale = self.arrays[name], self.arrays[f"{name}_scale"]
        shape = array.shape if name == "k" else (*array.shape[:-1], 0)
        codes = zeros_of(shape, array.dtype)
        return codes if scale is None else posenc.Quantized(codes, _stand_in(scale))

    def _check_token(self, heads: int, width: int, causal: bool, scale: Any) -> None:
        """Raise the errors of one query and one key: of widths, and of operators that do not fit each other."""
        place = {"n": (0, min(1, self.shape[-2])), "m": (0, min(1, self.shape[-1]))}
        parts = [part.part(place).bias for part in self.parts] or self.operators
        shapes = [(*self.shape[:-3], heads, place[axis][1], channels)
                  for axis, channels in (("n", width), ("m", width), ("m", self.value_width))]  # fmt: skip
        with rehearsal(self.function):
            posenc.attention(*(zeros_of(shape, self.dtype) for shape in shapes), bias=parts, causal=causal,
                             scale=scale, align="start")  # fmt: skip

    def _place(self, argument: str, value: Any, length: int, shift: int = 0) -> range | Array | DaskArray:
        """Return positions; None are shift, shift + 1, ...."""
        if value is None or is_dask(value):
            return range(shift, shift + length) if value is None else value
        array = as_positions(self.function, argument, value)
        if length and array.ndim == 1 and array.dtype.kind == "i" and (np.diff(array) == 1).all():
            return range(int(array[0]), int(array[0]) + length)
        return array

    def _read_saved(self, argument: str, value: Any, shape: tuple[int, ...]) -> DaskArray:
        array = as_chunked(self.function, argument, value)
        as_data(self.function, argument, np.zeros((), array.dtype))
        if array.shape != shape:
            fail(ValueError, self.function, argument, f"shape {array.shape}", str(shape))
        return array


def _stand_in(array: DaskArray | None) -> Array | None:
    return None if array is None else zeros_of(array.shape, array.dtype)
