"""One Case row per operator, with its oracle beside it; tests and benchmarks are generated from the rows.

A new operator needs one `Case` in the file of its noun: modules of this package are found by themselves, and each
lists its rows in `CASES`. Nothing in the tests or in the benchmarks names an operator otherwise.

An oracle is the paper's equation in float64 (or wider) NumPy: never our code, never a peer.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

try:
    import ml_dtypes
except ImportError:  # optional, as it is for posenc
    ml_dtypes = None

F16, F32, F64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
BF16 = np.dtype(ml_dtypes.bfloat16) if ml_dtypes else None
DTYPES = tuple(dtype for dtype in (F16, BF16, F32, F64) if dtype is not None)
SIZES = (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 97)
"""Around the edges of every vector width, of the unrolled loops and of the 64-row tile."""

Arguments = dict[str, Any]
Results = tuple[np.ndarray, ...]


def ulp(size: Any, dtype: np.dtype) -> np.ndarray:
    """The spacing of `dtype` at numbers of that size, subnormals included, in float64."""
    info = ml_dtypes.finfo(dtype) if dtype == BF16 else np.finfo(dtype)
    exponent = np.frexp(np.abs(np.asarray(size, np.float64)))[1] - 1
    return np.exp2(np.maximum(exponent, info.minexp).astype(np.float64) - info.nmant)


def working(dtype: np.dtype) -> np.dtype:
    """The precision that a storage dtype is computed in."""
    return F64 if dtype == F64 else F32


def ulps(count: float, size: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Tolerance: so many spacings of the working precision at |result|, or at what `size(**arguments)` gives."""

    def tolerance(expected: Results, work: np.dtype, arguments: Arguments) -> tuple[Any, ...]:
        sizes = [np.abs(e) for e in expected] if size is None else [size(**arguments)] * len(expected)
        return tuple(count * ulp(s, work) for s in sizes)

    return tolerance


def as_tuple(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, tuple) else (result,)


def map_arrays(function: Callable[[np.ndarray], Any], value: Any) -> Any:
    """`function` of every array in a nest of dicts, tuples and NamedTuples."""
    if isinstance(value, np.ndarray):
        return function(value)
    if isinstance(value, dict):
        return {key: map_arrays(function, item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_arrays(function, item) for item in value))
    if isinstance(value, tuple):
        return tuple(map_arrays(function, item) for item in value)
    return value


def get_path(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def set_path(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """`value` with what lies at `path` replaced; nothing is modified."""
    if not path:
        return new
    inner = set_path(value[path[0]], path[1:], new)
    if isinstance(value, dict):
        return {**value, path[0]: inner}
    items = [inner if i == path[0] else item for i, item in enumerate(value)]
    return type(value)(*items) if hasattr(value, "_fields") else tuple(items)


def array_paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where the arrays are in a nest."""
    if isinstance(value, np.ndarray):
        return [path]
    if isinstance(value, dict):
        items = list(value.items())
    else:
        items = list(enumerate(value)) if isinstance(value, tuple) else []
    return [found for key, item in items for found in array_paths(item, (*path, key))]


def terms(arguments: Arguments) -> tuple[Any, ...]:
    """The operators in attention's `bias`, (name, arguments) each; elsewhere `bias` may be an array."""
    given = arguments.get("bias")
    return given if isinstance(given, tuple) else ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One way to call one public function, and everything that is known about the answer."""

    function: str
    """Its name in `module`."""
    module: str = "posenc"
    """Where users find it."""
    label: str = ""
    """What tells this row from others of the same function."""
    make: Callable[[np.random.Generator, int], Arguments]
    """All arguments by name, for a size n of SIZES; arrays are float64 (int64, bool) and C-contiguous."""
    oracle: Callable[..., Any]
    """The same arguments -> the result, or a tuple of results, in float64."""
    tolerance: Callable[[Results, np.dtype, Arguments], tuple[Any, ...]]
    """(expected, working dtype, arguments) -> largest allowed |result - expected|, one array per result. Results in
    half precision get half a spacing more, for the last rounding."""
    real: Callable[[np.random.Generator], Arguments]
    """Arguments of a realistic size, for the benchmarks; see `arguments`."""
    axes: Mapping[str, str] = field(default_factory=dict)
    """Axes of each array argument, as "b n d". A letter that several arguments have is one length: with one entry
    more the call must fail. "d!": fails although no other argument has the letter. "n?": the axis may be missing."""
    data: tuple[str, ...] = ()
    """Arguments in a storage dtype; the first decides the dtype of the result. The other arrays keep theirs."""
    gradients: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Field of the vjp's NamedTuple -> where in the arguments it belongs, e.g. {"x": ("x",), "cos": ("positions", 0)}.
    Empty where there is no vjp."""
    ids: tuple[str, ...] = ()
    """Arguments that name rows of a table: reals are a TypeError, and integers without a row an IndexError."""
    parts: tuple[str, ...] = ()
    """How messages call the members of an argument that is a pair."""
    least: int = 0
    """The smallest size that makes sense."""

    @property
    def name(self) -> str:
        return f"{self.function}-{self.label}" if self.label else self.function

    @property
    def public(self) -> Callable[..., Any]:
        """The function itself."""
        return getattr(import_module(self.module), self.function)

    @property
    def target(self) -> Callable[..., Any]:
        """The callable that has the options dtype and out."""
        return self.public

    @property
    def parameters(self) -> set[str]:
        return set(inspect.signature(self.target).parameters)

    @property
    def takes_out(self) -> bool:
        return "out" in self.parameters

    @property
    def dtypes(self) -> tuple[np.dtype, ...]:
        """The dtypes that its results can have."""
        return DTYPES if self.data or "dtype" in self.parameters else (F64,)

    def arguments(self, n: int, dtype: Any = F64, seed: int = 0) -> Arguments:
        """Arguments of size n with the data in `dtype`."""
        return self.cast(self.make(np.random.default_rng([seed, n]), n), dtype)

    def real_arguments(self, dtype: Any = F32) -> Arguments:
        """Arguments of a realistic size with the data in `dtype`: `case.call(case.real_arguments())`."""
        return self.cast(self.real(np.random.default_rng(0)), dtype)

    def cast(self, arguments: Arguments, dtype: Any) -> Arguments:
        """The data arguments in another dtype."""
        changed = {a: map_arrays(lambda array: array.astype(dtype), arguments[a]) for a in self.data if a in arguments}
        return {**arguments, **changed}

    def options(self, dtype: Any) -> Arguments:
        """What to say so that the result has this dtype, where the data do not say it."""
        return {"dtype": dtype} if "dtype" in self.parameters else {}

    def call(self, arguments: Arguments, **options: Any) -> tuple[Any, ...]:
        """Our results, always as a tuple."""
        return as_tuple(self.target(**arguments, **options))

    def result_dtypes(self, dtype: np.dtype, count: int) -> tuple[np.dtype, ...]:
        return (dtype,) * count

    def truth(self, arguments: Arguments) -> Any:
        """The oracle's result as it comes."""
        return self.oracle(**arguments)

    def expect(self, arguments: Arguments) -> Results:
        """What the oracle says to these very numbers, whatever dtype they are stored in."""
        wide = map_arrays(lambda a: a.astype(F64) if a.dtype.kind not in "biu" else a, arguments)
        return tuple(np.asarray(r, np.float64) for r in as_tuple(self.oracle(**wide)))

    def bounds(self, expected: Results, dtype: np.dtype, arguments: Arguments) -> Results:
        """Largest allowed error of each result stored in `dtype`."""
        wide = map_arrays(lambda a: a.astype(F64) if a.dtype.kind not in "biu" else a, arguments)
        allowed = self.tolerance(expected, working(dtype), wide)
        stored = self.result_dtypes(dtype, len(expected))
        return tuple(
            np.broadcast_to(a + (0 if d in (F32, F64) else ulp(np.abs(e) + a, d) / 2), e.shape)
            for a, e, d in zip(allowed, expected, stored, strict=True)
        )

    def vjp(self, grads: Results, arguments: Arguments) -> dict[str, np.ndarray]:
        """Our gradients by field."""
        grad = grads[0] if len(grads) == 1 else tuple(grads)
        return getattr(import_module(self.module), f"{self.function}_vjp")(grad=grad, **arguments)._asdict()


@dataclass(frozen=True, kw_only=True, eq=False)
class IntegerCase(Case):
    """A Case of a function whose result is int64, and exact."""

    def result_dtypes(self, dtype: np.dtype, count: int) -> tuple[np.dtype, ...]:
        return (np.dtype(np.int64),) * count

    def bounds(self, expected: Results, dtype: np.dtype, arguments: Arguments) -> Results:
        return tuple(np.zeros(e.shape) for e in expected)


def at(*names: str) -> dict[str, tuple[Any, ...]]:
    """Gradients that belong to the arguments of the same names."""
    return {name: (name,) for name in names}


def collect() -> tuple[Case, ...]:
    """The rows of every module in this folder; a module of helpers has none."""
    modules = [import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return tuple(case for module in modules for case in getattr(module, "CASES", ()))


CASES = collect()
