"""Run a call of `draws`, and collect what it returns, raises, warns of, and writes."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from draws import FLOATS, Call, Operator, chance, describe, draw, lay_out, map_arrays, pick

import posenc


def flatten(value: Any, name: str = "result") -> dict[str, Any]:
    """Results by name: fields of NamedTuples and of RopeFrequencies, items of tuples, arrays and numbers."""
    if hasattr(value, "inv_freq"):  # a NamedTuple in older builds
        items = ((field, getattr(value, field)) for field in ("inv_freq", "attention_factor", "softmax_factor"))
    elif hasattr(value, "_fields"):
        items = zip(value._fields, value, strict=True)
    elif isinstance(value, tuple | list):
        items = enumerate(value)
    else:
        return {name: value}
    found: dict[str, Any] = {}
    for key, item in items:
        found |= flatten(item, f"{name}.{key}")
    return found


def canonical(value: Any) -> Any:
    """An array without the payload and the sign of NaNs."""
    array = np.asarray(value)
    if array.dtype.kind in "biuOUS":
        return array
    is_cut = array.dtype.kind == "c" and array.flags.c_contiguous and array.ndim > 0
    parts = array.view(array.real.dtype) if is_cut else array
    parts = parts.astype(parts.dtype.newbyteorder("=")) if parts.dtype.kind in "fc" else parts.copy()
    with np.errstate(all="ignore"):
        parts[np.isnan(parts)] = np.nan
    return parts


def digest(value: Any) -> str:
    """Shape, dtype and bits in a short text."""
    if value is None or isinstance(value, str | bool):
        return repr(value)
    array = canonical(value)
    if array.dtype.kind == "O" or array.dtype.char in "gG":  # pointers, and long doubles with bytes that mean nothing
        content = repr(array.tolist()).encode()
    else:
        content = np.ascontiguousarray(array).tobytes()
    return f"{np.asarray(value).dtype.name}{list(np.shape(value))} {hashlib.sha1(content).hexdigest()[:16]}"


def memory_of(layout: str, like: Any, swapped: bool) -> tuple[Any, Any]:
    """An array for `out` in a memory layout, and the bytes that contain it with a margin."""
    shape, dtype = like.shape, like.dtype
    if layout == "byte_swapped" and dtype.kind == "f":
        dtype = dtype.newbyteorder("S") if swapped else dtype
    order = list(range(len(shape)))
    if layout == "transposed":
        order.reverse()
    elif layout == "heads_inside" and len(order) > 2:
        order[-3], order[-2] = order[-2], order[-3]
    step = 2 if layout == "step_two" else 1
    stored = [shape[axis] * step for axis in order]
    count = int(np.prod(stored, dtype=int)) * dtype.itemsize
    memory = np.full(count + 65, 0xA5, np.uint8)
    start = 33 if layout == "unaligned" else 32
    array = memory[start : start + count].view(dtype).reshape(stored)
    array = array[tuple(slice(None, None, step) for _ in stored)].transpose(np.argsort(order))
    return (np.flip(array) if layout == "reversed_axes" else array), memory


class Runner:
    """Runs calls in the build that this process imports."""

    def __init__(self, isas: Sequence[str], names: Iterable[str]) -> None:
        self.isas, self.names = isas, frozenset(names)

    def made(self, value: Any) -> Any:
        """Arguments with each drawn `Operator` as the build's own Bias."""
        if isinstance(value, Operator):
            arguments = self.made(value.arguments)
            own_positions = arguments.pop("at", None)
            operator = getattr(posenc, value.name)(**arguments)
            return operator if own_positions is None else operator.at(**own_positions)
        if isinstance(value, dict):
            return {key: self.made(item) for key, item in value.items()}
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            return tuple(self.made(item) for item in value)
        return value

    def run(self, seed: int, index: int) -> tuple[dict[str, Any], Call]:
        """All results of a call by name, and the call."""
        call = draw(seed, index, len(self.isas), self.names)
        results: dict[str, Any] = {"arguments": self.fingerprint(call)}
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            try:
                with posenc.runtime.use_isa(self.isas[call.isa]), posenc.threads(call.threads):
                    self.perform(call, seed, index, results)
            except Exception as error:
                results["error"] = type(error).__name__
                results["_message"] = str(error)
        results["warnings"] = " ".join(sorted({warning.category.__name__ for warning in heard}))
        results["untouched"] = self.fingerprint(call) == results["arguments"] or call.out == "input"
        return results, call

    def fingerprint(self, call: Call) -> str:
        """A digest of the arguments: shapes, dtypes, strides, numbers and the bits of every array."""
        found: list[str] = []
        map_arrays(lambda array: found.append(digest(array)), (call.arguments, call.method_arguments))
        return hashlib.sha1(repr((describe(call), found)).encode()).hexdigest()[:16]

    def perform(self, call: Call, seed: int, index: int, results: dict[str, Any]) -> None:
        """Call the function, its gradient, and the function again with `out`."""
        rng = np.random.default_rng([seed, index, 1])
        module = import_module(call.module)
        arguments = self.made(call.arguments)
        function = getattr(module, call.function)
        if call.method:
            bias = function(**arguments)
            if callable(getattr(bias, call.method, None)):
                function, arguments = getattr(bias, call.method), self.made(call.method_arguments)
        result = function(**arguments)
        results |= flatten(result)
        if call.gradient:
            cotangents = [
                lay_out(rng, rng.standard_normal(np.shape(r)).astype(pick(rng, FLOATS)), 0.3)
                if np.asarray(r).dtype.kind != "c"
                else rng.standard_normal(np.shape(r)) + 1j * rng.standard_normal(np.shape(r))
                for r in (result if isinstance(result, tuple) else (result,))
            ]
            results |= flatten(self.gradient(call, arguments, result, cotangents), "gradient")
        if call.out == "input":
            target = next(iter(arguments[name] for name in ("x", "k") if name in arguments))
            target.flags.writeable and results.update(flatten(function(**{**arguments, "out": target}), "out"))
        elif call.out and isinstance(result if not isinstance(result, tuple) else result[0], np.ndarray):
            first = result[0] if isinstance(result, tuple) else result
            swapped = chance(rng, 0.5)
            (out, memory), (like, expected) = (memory_of(call.out, first, swapped) for _ in range(2))
            like[...] = first
            options = {name: value for name, value in arguments.items() if name != "dtype"}
            returned = function(**{**options, "out": out})
            results |= flatten(returned, "out")
            results["out is returned"] = (returned[0] if isinstance(returned, tuple) else returned) is out
            results |= {"memory of out": memory, "expected memory": expected}

    def gradient(self, call: Call, arguments: Any, result: Any, cotangents: list[Any]) -> Any:
        """Every gradient of the call; attention's with a cotangent of lse in a part of the calls."""
        if call.method:
            bias = getattr(posenc, call.function)(**self.made(call.arguments))
            given = {key: value for key, value in arguments.items() if key not in ("dtype", "out")}
            if call.method == "matrix":
                return bias.matrix_vjp(cotangents[0], **given)
            found = bias.logits_vjp(cotangents[0], **given)
            return (found.q, found.k, *(found.bias if "bias" in found._fields else found[2:]))  # as in older builds
        vjp = getattr(import_module(call.module), f"{call.function}_vjp")
        if call.function == "attention":
            given = {key: value for key, value in arguments.items() if key != "return_lse"}
            if not isinstance(result, tuple):
                return None
            options = {"out": result[0], "lse": result[1], "grad_lse": cotangents[1] if call.threads > 1 else None}
            return vjp(cotangents[0], **given, **options)
        given = {key: value for key, value in arguments.items() if key != "dtype"}
        return vjp(cotangents[0] if len(cotangents) == 1 else tuple(cotangents), **given)
