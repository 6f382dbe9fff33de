"""One `Case` per operator, with its oracle beside it; tests and benchmarks are generated from the cases.

A new operator needs one `Case` in a file of the operator's name. The modules of this package are imported by name
pattern, and each lists its cases in `CASES`, so no other file of the tests or of the benchmarks names an operator.

An oracle is the equation in plain NumPy of `posenc.reference`, in float64 or wider.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np

import posenc
from posenc import reference

try:
    import ml_dtypes
except ImportError:  # optional, as it is for posenc
    ml_dtypes = None

F16, F32, F64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
BF16 = np.dtype(ml_dtypes.bfloat16) if ml_dtypes else None
DTYPES = tuple(dtype for dtype in (F16, BF16, F32, F64) if dtype is not None)

Arguments = dict[str, Any]
Results = tuple[np.ndarray, ...]


def ulp(size: Any, dtype: np.dtype) -> np.ndarray:
    """Return the spacing of `dtype` at numbers of the given size, subnormals included, in float64."""
    info = ml_dtypes.finfo(dtype) if dtype == BF16 else np.finfo(dtype)
    exponent = np.frexp(np.abs(np.asarray(size, np.float64)))[1] - 1
    return np.exp2(np.maximum(exponent, info.minexp).astype(np.float64) - info.nmant)


def working(dtype: np.dtype) -> np.dtype:
    """Return the precision in which data of a storage dtype are computed."""
    return F64 if dtype == F64 else F32


def ulps(count: float, size: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Tolerance of `count` spacings of the working precision at |result|, or at `size(**arguments)`."""

    def tolerance(expected: Results, work: np.dtype, arguments: Arguments) -> tuple[Any, ...]:
        sizes = [np.abs(e) for e in expected] if size is None else [size(**arguments)] * len(expected)
        return tuple(count * ulp(s, work) for s in sizes)

    return tolerance


def longdouble(value: Any) -> Any:
    """The same floating-point numbers in np.longdouble; integers and all else stay what they are."""
    if hasattr(value, "inv_freq"):
        return reference.RopeFrequencies(*map(longdouble, (value.inv_freq, value.attention_factor)))
    if isinstance(value, float) or getattr(value, "dtype", np.dtype(bool)).kind == "f":
        return np.asarray(value, np.longdouble)[()]
    if isinstance(value, dict):
        return {key: longdouble(item) for key, item in value.items()}
    return tuple(map(longdouble, value)) if isinstance(value, (tuple, list)) else value


def in_mpmath(value: Any, kinds: str = "fiu") -> Any:
    """The same numbers in mpmath; flags, text, single integers and arrays of other `kinds` stay what they are."""
    import mpmath  # benchmarks read this package in environments without it

    if hasattr(value, "inv_freq"):
        return reference.RopeFrequencies(in_mpmath(value.inv_freq), mpmath.mpf(value.attention_factor))
    if isinstance(value, np.ndarray) and value.dtype.kind in kinds and value.size:
        return np.vectorize(mpmath.mpf, otypes=[object])(value)
    if isinstance(value, dict):
        return {key: in_mpmath(item, kinds) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(in_mpmath(item, kinds) for item in value)
    return mpmath.mpf(value) if isinstance(value, float) else value


def in_longdouble(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function in np.longdouble, because a float64 angle at position 2000 is off by 2e-13."""
    return converted(function, longdouble)


def converted(function: Callable[..., Any], convert: Callable[[Any], Any]) -> Callable[..., Any]:
    """The same function of converted arguments. Defaults are converted, and integers where the default is a float."""

    def oracle(*args: Any, **options: Any) -> Any:
        bound = inspect.signature(function).bind(*args, **options)
        bound.apply_defaults()
        for name, parameter in bound.signature.parameters.items():
            if isinstance(parameter.default, float) and isinstance(bound.arguments[name], int):
                bound.arguments[name] = float(bound.arguments[name])
        return function(*convert(bound.args), **convert(bound.kwargs))

    return oracle


def as_tuple(result: Any) -> tuple[Any, ...]:
    if hasattr(result, "inv_freq"):
        return result.inv_freq, result.attention_factor, result.softmax_factor
    return tuple(result) if isinstance(result, tuple) else (result,)


def map_arrays(function: Callable[[np.ndarray], Any], value: Any) -> Any:
    """Apply `function` to every array in nested dicts, tuples, NamedTuples and RopeFrequencies."""
    if isinstance(value, np.ndarray):
        return function(value)
    if isinstance(value, dict):
        return {key: map_arrays(function, item) for key, item in value.items()}
    if isinstance(value, posenc.RopeFrequencies):
        return replace(value, inv_freq=function(value.inv_freq))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_arrays(function, item) for item in value))
    if isinstance(value, tuple):
        return tuple(map_arrays(function, item) for item in value)
    return value


def get_path(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value.inv_freq if isinstance(value, posenc.RopeFrequencies) else value[step]
    return value


def set_path(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return a copy of `value` in which the item at `path` is `new`."""
    if not path:
        return new
    if isinstance(value, posenc.RopeFrequencies):
        return replace(value, inv_freq=new)
    inner = set_path(value[path[0]], path[1:], new)
    if isinstance(value, dict):
        return {**value, path[0]: inner}
    items = [inner if i == path[0] else item for i, item in enumerate(value)]
    return type(value)(*items) if hasattr(value, "_fields") else tuple(items)


def array_paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all arrays in nested dicts, tuples and RopeFrequencies."""
    if isinstance(value, np.ndarray):
        return [path]
    if isinstance(value, posenc.RopeFrequencies):
        return [(*path, "inv_freq")]
    if isinstance(value, dict):
        items = list(value.items())
    else:
        items = list(enumerate(value)) if isinstance(value, tuple) else []
    return [found for key, item in items for found in array_paths(item, (*path, key))]


def terms(arguments: Arguments) -> tuple[Any, ...]:
    """The operators in the argument `bias` of attention, each (name, arguments). Elsewhere `bias` may be an array."""
    bias = arguments.get("bias")
    return bias if isinstance(bias, tuple) else ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One way to call one public function, with the expected result and its tolerance."""

    function: str
    """Its name in `module`."""
    module: str = "posenc"
    """The module from which users import the function."""
    label: str = ""
    """Distinguishes the cases of one function."""
    make: Callable[[np.random.Generator, int], Arguments]
    """All arguments by name for a size n. Arrays are float64 (or int64, bool) and C-contiguous."""
    oracle: Callable[..., Any] | None = None
    """The same arguments -> the result, or a tuple of results. None: the function of this name in `posenc.reference`,
    in np.longdouble."""
    tolerance: Callable[[Results, np.dtype, Arguments], tuple[Any, ...]]
    """(expected, working dtype, arguments) -> largest allowed |result - expected|, one array per result. Half a spacing
    is added for results in half precision, for the last rounding."""
    real: Callable[[np.random.Generator], Arguments] | None = None
    """Arguments of a realistic size, for the benchmarks. None: those of size 256."""
    axes: Mapping[str, str] = field(default_factory=dict)
    """Axes of each array argument, as "b n d". A letter is one length in all arguments: with one entry more in one of
    them the call must fail. "d!": the call must fail although no other argument has the letter. "n?": the axis may be
    missing."""
    data: tuple[str, ...] = ()
    """Arguments in a storage dtype; the first one decides the dtype of the result. Other arrays keep their dtypes."""
    gradients: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Field of the NamedTuple that the vjp returns -> path in the arguments, e.g. {"x": ("x",), "cos": ("positions",
    0)}. Empty if the function has no vjp."""
    ids: tuple[str, ...] = ()
    """Arguments that are row numbers of a table: reals raise TypeError, and numbers outside the table IndexError."""
    least: int = 0
    """The smallest size that makes sense."""
    precise: tuple[str, ...] = ()
    """Integers that the reference takes as numbers of any precision, and then computes in it."""
    kinds: str = "fiu"
    """Kinds of arrays that `exact` converts: numbers of mpmath have no operator //."""

    @property
    def name(self) -> str:
        return f"{self.function}-{self.label}" if self.label else self.function

    @property
    def public(self) -> Callable[..., Any]:
        """The function itself."""
        return getattr(import_module(self.module), self.function)

    @property
    def target(self) -> Callable[..., Any]:
        """The callable that has the options `dtype` and `out`."""
        return self.public

    @property
    def parameters(self) -> set[str]:
        return set(inspect.signature(self.target).parameters)

    @property
    def takes_out(self) -> bool:
        return "out" in self.parameters

    @property
    def dtypes(self) -> tuple[np.dtype, ...]:
        """The dtypes that the results can have."""
        return DTYPES if self.data or "dtype" in self.parameters else (F64,)

    def arguments(self, n: int, dtype: Any = F64, seed: int = 0) -> Arguments:
        """Arguments of size n with the data in `dtype`."""
        return self.cast(self.make(np.random.default_rng([seed, n]), n), dtype)

    def real_arguments(self, dtype: Any = F32) -> Arguments:
        """Arguments of a realistic size with the data in `dtype`: `case.call(case.real_arguments())`."""
        rng = np.random.default_rng(0)
        return self.cast(self.real(rng) if self.real else self.make(rng, 256), dtype)

    def cast(self, arguments: Arguments, dtype: Any) -> Arguments:
        """Convert the data arguments to another dtype."""
        changed = {a: map_arrays(lambda array: array.astype(dtype), arguments[a]) for a in self.data if a in arguments}
        return {**arguments, **changed}

    def options(self, dtype: Any) -> Arguments:
        """The options that make results have this dtype, if the data do not decide it."""
        return {"dtype": dtype} if "dtype" in self.parameters else {}

    def call(self, arguments: Arguments, **options: Any) -> tuple[Any, ...]:
        """The numbers that posenc returns, always as a tuple."""
        return as_tuple(self.target(**arguments, **options))

    def result_dtypes(self, dtype: np.dtype, count: int) -> tuple[np.dtype, ...]:
        return (dtype,) * count

    def truth(self, arguments: Arguments) -> Any:
        """The result of the oracle, unconverted."""
        return (self.oracle or in_longdouble(getattr(reference, self.function)))(**self.precisely(arguments))

    def precisely(self, arguments: Arguments) -> Arguments:
        """The arguments with floating point for the integers in `precise`."""
        return {name: float(value) if name in self.precise else value for name, value in arguments.items()}

    def twin(self, arguments: Arguments) -> Any:
        """The result of `posenc.reference` for numbers of mpmath."""
        return converted(getattr(reference, self.function), lambda value: in_mpmath(value, self.kinds))(**arguments)

    def exact(self, arguments: Arguments, bits: int = 200) -> Results:
        """The results of `posenc.reference` in numbers of so many bits, which mpmath rounds once to float64."""
        import mpmath

        with mpmath.workprec(bits):
            found = map(np.asarray, as_tuple(self.twin(in_mpmath(self.precisely(arguments), self.kinds))))
            return tuple(one.astype(F64) if one.dtype == object else one for one in found)

    def expect(self, arguments: Arguments) -> Results:
        """The results of the oracle for the stored numbers, converted to float64 first."""
        wide = map_arrays(lambda a: a.astype(F64) if a.dtype.kind not in "biu" else a, arguments)
        return tuple(np.asarray(r, np.float64) for r in as_tuple(self.truth(wide)))

    def bounds(self, expected: Results, dtype: np.dtype, arguments: Arguments) -> Results:
        """The largest allowed error of each result that is stored in `dtype`."""
        wide = map_arrays(lambda a: a.astype(F64) if a.dtype.kind not in "biu" else a, arguments)
        allowed = self.tolerance(expected, working(dtype), wide)
        stored = self.result_dtypes(dtype, len(expected))
        return tuple(
            np.broadcast_to(a + (0 if d in (F32, F64) else ulp(np.abs(e) + a, d) / 2), e.shape)
            for a, e, d in zip(allowed, expected, stored, strict=True)
        )

    def gradient(self, grads: Results, arguments: Arguments) -> Any:
        """The NamedTuple that the vjp of posenc returns."""
        grad = grads[0] if len(grads) == 1 else tuple(grads)
        return getattr(import_module(self.module), f"{self.function}_vjp")(grad=grad, **arguments)

    def vjp(self, grads: Results, arguments: Arguments) -> dict[str, np.ndarray]:
        """The gradients of posenc by field."""
        return self.gradient(grads, arguments)._asdict()


@dataclass(frozen=True, kw_only=True, eq=False)
class IntegerCase(Case):
    """A Case of a function whose result is int64, and exact."""

    def result_dtypes(self, dtype: np.dtype, count: int) -> tuple[np.dtype, ...]:
        return (np.dtype(np.int64),) * count

    def bounds(self, expected: Results, dtype: np.dtype, arguments: Arguments) -> Results:
        return tuple(np.zeros(e.shape) for e in expected)


def at(*names: str) -> dict[str, tuple[Any, ...]]:
    """Gradients with the names of their arguments."""
    return {name: (name,) for name in names}


def collect() -> tuple[Case, ...]:
    """The cases of every module in this package; a module of helpers has none."""
    modules = [import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    rows = tuple(case for module in modules for case in getattr(module, "CASES", ()))
    return rows + tuple(case for module in modules if hasattr(module, "derived") for case in module.derived(rows))


CASES = collect()
