"""Random calls of posenc's public functions, each reproducible from (seed, index).

A call is drawn as plain data: the name of a function, NumPy arrays, numbers, and operators as `Operator(name,
arguments)`. Drawing never looks at a result of posenc, so two builds get the same calls. Nearly half of the calls are
rows of tests/cases, which know the arguments of every function; attention, its operators and the rotary family are also
drawn here, with more freedom in shapes, positions and masks.
"""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from cases import BF16, CASES, F16, F32, F64, Case, layouts

Generator = np.random.Generator
Arguments = dict[str, Any]
FLOATS = tuple(dtype for dtype in (F16, BF16, F32, F64) if dtype is not None)
EDGES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 95, 96, 97, 127, 128, 129)
"""Sizes around vector widths, panels and tiles."""
WIDTHS = (1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 24, 31, 32, 33, 40, 48, 64, 65, 72, 80, 96, 128, 160, 257)
OF_METHOD = ("n", "m", "q", "k", "q_positions", "k_positions", "scale", "align")
"""Arguments of a Bias's methods; the others construct it."""
OPTIONS: dict[str, tuple[Any, ...]] = {
    "layout": ("half", "interleaved"), "out_layout": (None, "half", "interleaved"),
    "order": ("sincos", "cossin"), "denominator": ("dim", "half-1"), "base": (10000.0, 500, 2.5),
    "padding": ("zero", "circular", "replicate"), "mode": ("add", "mul", "mul1p", "concat", "replace"),
    "method": ("rk4_38", "rk4", "midpoint", "euler"), "cell": ("tanh", "gru"), "schedule": ("geometric", "power"),
    "alpha": (0.4, 0.3, 1.0), "axes": ("concat", "blocks", "alternate"), "bidirectional": (True, False),
    "residual": (True, False), "include_p0": (True, False), "inverse": (True, False), "downscale": (True, False),
    "interleaved": (True, False), "substeps": (1, 2, 5), "p2c_index": ("code", "paper"), "scale": (1.0, -0.3, 7.0),
}  # fmt: skip
"""Options of a case that are sometimes drawn again. Both builds must refuse a choice that the function refuses."""


@dataclass(frozen=True)
class Operator:
    """A Bias by the name of the function that makes it."""

    name: str
    arguments: Arguments


@dataclass
class Call:
    """One drawn call of a public function."""

    function: str
    arguments: Arguments
    module: str = "posenc"
    method: str | None = None
    """Method of the Bias that the function returns, with `method_arguments`; None if the function is the call."""
    method_arguments: Arguments = field(default_factory=dict)
    gradient: bool = False
    out: str | None = None
    """Memory layout of `out`, "input" for the first array itself, or None for a call without `out`."""
    isa: int = 0
    threads: int = 1
    case: Case | None = None
    """The row of tests/cases from which the call was drawn."""
    redrawn: bool = False
    """Options differ from those of the row, so that its tolerance may not apply."""
    spoiled: bool = False
    """One argument was made wrong."""


# Memory layouts


def step_last(a: np.ndarray) -> np.ndarray:
    """The last axis with a stride of three elements."""
    if not a.ndim:
        return a
    padded = np.full((*a.shape[:-1], 3 * a.shape[-1]), 1 if a.dtype.kind in "biu" else np.nan, a.dtype)
    padded[..., ::3] = a
    return padded[..., ::3]


def swapped_axes(a: np.ndarray) -> np.ndarray:
    """The last two axes swapped in memory."""
    return a.swapaxes(-1, -2).copy().swapaxes(-1, -2) if a.ndim > 1 else a


def heads_inside(a: np.ndarray) -> np.ndarray:
    """Axis -3 stored after axis -2, as a projection leaves it."""
    return a.swapaxes(-3, -2).copy().swapaxes(-3, -2) if a.ndim > 2 else a


def fortran(a: np.ndarray) -> np.ndarray:
    return np.asfortranarray(a)


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    layout.__name__: layout for layout in (*layouts.LAYOUTS, step_last, swapped_axes, heads_inside, fortran)
}
OUT_LAYOUTS = ("contiguous", "reversed_axes", "step_two", "transposed", "unaligned", "heads_inside", "byte_swapped")


# Random choices


def chance(rng: Generator, probability: float) -> bool:
    return bool(rng.random() < probability)


def pick(rng: Generator, options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


def size(rng: Generator, most: int = 300) -> int:
    """A length: mostly near a vector or tile width, else anything up to `most`."""
    return min(int(pick(rng, EDGES)) if chance(rng, 0.7) else int(rng.integers(0, 301)), most)


def map_arrays(function: Callable[[np.ndarray], Any], value: Any) -> Any:
    """Apply `function` to every array in a nest of dicts, tuples, NamedTuples and operators."""
    if isinstance(value, np.ndarray):
        return function(value)
    if isinstance(value, dict):
        return {key: map_arrays(function, item) for key, item in value.items()}
    if isinstance(value, Operator):
        return Operator(value.name, map_arrays(function, value.arguments))
    if is_dataclass(value) and hasattr(value, "inv_freq"):  # a RopeFrequencies; in older builds it is a NamedTuple
        return replace(value, inv_freq=function(value.inv_freq))
    if isinstance(value, tuple):
        items = [map_arrays(function, item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


def lay_out(rng: Generator, value: Any, probability: float) -> Any:
    """Give each array in `value` another memory layout with this probability."""
    return map_arrays(lambda a: LAYOUTS[pick(rng, list(LAYOUTS))](a) if chance(rng, probability) else a, value)


def in_dtypes(rng: Generator, value: Any, probability: float) -> Any:
    """Store each float64 array in `value` in another float dtype with this probability."""

    def cast(a: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):  # float16 ends at 65504
            return a.astype(pick(rng, FLOATS)) if a.dtype == F64 and chance(rng, probability) else a

    return map_arrays(cast, value)


def changed_array(rng: Generator, array: np.ndarray) -> np.ndarray:
    """Return a part of an array, or its numbers in another layout or dtype, or with one number replaced."""
    kind = int(rng.integers(6)) if array.dtype.kind != "O" else 0
    if kind == 0 and array.ndim:
        part: list[Any] = [slice(None)] * array.ndim
        part[int(rng.integers(array.ndim))] = slice(int(rng.integers(3)), None, int(pick(rng, (1, 1, 2, -1))))
        return array[tuple(part)]
    if kind == 1:
        return LAYOUTS[pick(rng, list(LAYOUTS))](array)
    if kind == 2:
        with warnings.catch_warnings(), np.errstate(all="ignore"):  # NaN as an integer, and complex as real numbers
            warnings.simplefilter("ignore")
            return array.astype(pick(rng, (*FLOATS, bool, complex, np.longdouble, object, np.int64)))
    if kind == 3:
        return array[None] if chance(rng, 0.5) else array.T
    array = array.copy()
    if array.size and array.dtype.kind in "fciu":
        limits: Any = np.finfo(array.dtype) if array.dtype.kind in "fc" else np.iinfo(array.dtype)
        numbers: list[Any] = [0, 1, limits.max, limits.min]
        numbers += [np.nan, np.inf, -np.inf, limits.tiny] if array.dtype.kind in "fc" else []
        array.flat[int(rng.integers(array.size))] = pick(rng, numbers)
    return array


def arrays_of(arguments: Any) -> list[np.ndarray]:
    found: list[np.ndarray] = []
    map_arrays(found.append, arguments)
    return found


def spoil(rng: Generator, arguments: Arguments) -> Arguments:
    """Change one array, or make an argument a value of another type."""
    arrays = arrays_of(arguments)
    if arguments and (not arrays or chance(rng, 0.1)):
        return {**arguments, pick(rng, list(arguments)): pick(rng, (None, "wrong", -1, 0, 1.5, np.nan, True))}
    chosen, numbers = int(rng.integers(max(len(arrays), 1))), itertools.count()
    return map_arrays(lambda array: changed_array(rng, array) if next(numbers) == chosen else array, arguments)


# Rows of tests/cases


def operators_of(value: Any) -> Any:
    """(function, its arguments), as tests/cases writes an operator, as an `Operator`."""
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], dict):
        return Operator(value[0], operators_of(value[1]))
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(operators_of(item) for item in value)
    return {key: operators_of(item) for key, item in value.items()} if isinstance(value, dict) else value


@cache
def cases_among(names: frozenset[str]) -> tuple[Case, ...]:
    return tuple(case for case in CASES if case.function in names)


def draw_case(rng: Generator, names: frozenset[str]) -> Call:
    """A row of tests/cases at a drawn size, with options, dtypes and layouts drawn again."""
    case = pick(rng, cases_among(names))
    n = max(size(rng, 300 if chance(rng, 0.1) else 130), case.least)
    arguments = operators_of(case.make(np.random.default_rng(int(rng.integers(2**31))), n))
    dtype = pick(rng, FLOATS)
    for name in case.data:
        if name in arguments:
            arguments[name] = map_arrays(
                lambda a, dtype=dtype: a.astype(dtype) if a.dtype == F64 else a, arguments[name]
            )
    rest = {name: value for name, value in arguments.items() if "position" not in name and "frequenc" not in name}
    arguments |= in_dtypes(rng, rest, 0.1 if case.data else 0.3)
    public = getattr(import_module(case.module), case.function)
    parameters = inspect.signature(public).parameters
    redrawn = {name: pick(rng, choices) for name, choices in OPTIONS.items() if name in parameters and chance(rng, 0.1)}
    arguments |= redrawn
    gradient = bool(case.gradients) and chance(rng, 0.6)
    call = Call(case.function, {}, module=case.module, gradient=gradient, case=case, redrawn=bool(redrawn))
    arguments = lay_out(rng, arguments, pick(rng, (0.0, 0.3, 1.0)))
    if hasattr(case, "method"):
        call.method = "logits" if "q" in arguments else "matrix"
        call.method_arguments = {name: arguments.pop(name) for name in OF_METHOD if name in arguments}
        if call.method == "matrix" and chance(rng, 0.7):
            call.method_arguments["dtype"] = dtype
    elif "dtype" in parameters and chance(rng, 0.7):
        arguments["dtype"] = dtype
    if "out" in parameters or call.method:
        call.out = pick(rng, OUT_LAYOUTS) if chance(rng, 0.3) else None
    call.arguments = arguments
    return call


# Attention


def draw_positions(rng: Generator, count: int, batch: tuple[int, ...], whole: bool) -> Any:
    """Positions of one side: 0..n-1, an offset, gaps, repeats, far ones, fractions or negatives, with or without batch
    axes."""
    shape = (*batch, count) if batch and chance(rng, 0.3) else (count,)
    kind = rng.integers(7)
    if kind == 0:
        return count
    if kind == 1:
        return np.arange(count) + int(rng.integers(0 if whole else -50, 50))
    if kind == 2:
        return np.sort(rng.integers(0 if whole else -count, 2 * count + 1, shape), -1)
    if kind == 3:
        return rng.integers(0, 2 * count + 1, shape)
    if kind == 4:
        return (np.arange(count) * 3).astype(pick(rng, (np.int32, np.uint16, np.float32)))
    if whole:
        return rng.integers(0, count + 1, shape).astype(np.float64)
    if kind == 5:
        return np.sort(rng.integers(-(10**6), 10**6, shape))
    return np.sort(rng.uniform(-count, count, shape), -1)


def draw_operator(rng: Generator, name: str, heads: int, n: int, m: int, d: int, dv: int, reach: int) -> Operator:
    """A Bias for `heads` heads, n queries and m keys of width d, values of width dv; whole positions below `reach`."""
    normal, uniform = rng.standard_normal, rng.uniform
    per_head = (heads,) if chance(rng, 0.5) else ()
    rows = 2 * (500 if chance(rng, 0.05) else size(rng, 40)) + 1
    arguments: Arguments
    match name:
        case "alibi":
            arguments = {"slopes": uniform(0, 1, heads)}
        case "kerple_log":
            arguments = {"r1": uniform(0.1, 2, heads), "r2": uniform(0, 1, heads)}
        case "kerple_power":
            arguments = {"r1": uniform(0.1, 2, heads), "r2": uniform(0.1, 2, heads)}
        case "t5":
            arguments = {
                "table": normal((2 * int(rng.integers(4, 20)), heads)),
                "bidirectional": chance(rng, 0.5),
                "max_distance": int(10 ** rng.uniform(1.7, 6)),
            }
        case "sandwich":
            arguments = {"heads": heads, "dim": 2 * int(rng.integers(1, 40))}
        case "fire":
            width = size(rng, 33)
            arguments = {
                "w1": normal((width, 1)),
                "b1": normal(width),
                "w2": normal((heads, width)),
                "b2": normal(heads),
                "c": np.array(normal()),
                "threshold": np.array(normal() * 20),
            }
        case "swin":
            width = int(rng.integers(1, 40))
            height = -(-reach // width)
            arguments = {"table": normal(((2 * height - 1) * (2 * width - 1), heads)), "height": height, "width": width}
        case "fox":
            arguments = {"log_forget": -uniform(0, 0.3, (heads, reach))}
        case "toeplitz":
            arguments = {"diagonals": normal((heads, max(n + m - 1, 0)))}
        case "dense":
            shape = pick(rng, ((heads, n, m), (n, m), (1, n, m), (heads, 1, m), (heads, n, 1), (1, m)))
            array = normal(shape)
            if chance(rng, 0.3):
                array[rng.random(shape) < 0.2] = -np.inf
            arguments = {"array": array}
        case "shaw":
            arguments = {"rel_k": normal((*per_head, rows, d))}
            if chance(rng, 0.5):
                arguments["rel_v"] = normal((*((heads,) if chance(rng, 0.5) else ()), rows, dv))
        case "transformer_xl":
            arguments = {"r": normal((heads, rows, d)), "u": normal((heads, d)), "v": normal((heads, d))}
        case "deberta":
            terms = pick(rng, (("c2p", "p2c"), ("c2p",), ("p2c",)))
            arguments = {
                "rel_q": normal((heads, rows + 1, d)) if "p2c" in terms else None,
                "rel_k": normal((heads, rows + 1, d)) if "c2p" in terms else None,
                "terms": terms,
                "p2c_index": pick(rng, ("code", "paper")),
            }
            if chance(rng, 0.5):
                least = max(2, rows // 4 + 1)  # fewer do not reach all rows
                buckets = 2 * int(rng.integers(least, least + 12))
                arguments |= {"num_buckets": buckets, "max_distance": buckets + int(rng.integers(1, 300))}
        case "tupe":
            width = pick(rng, WIDTHS)
            arguments = {"pos_q": normal((heads, n, width)), "pos_k": normal((heads, m, width))}
            for reset in ("cls_to_any", "any_to_cls"):
                if chance(rng, 0.5):
                    arguments[reset] = normal(heads)
        case "gated_distance":
            width = pick(rng, (1, 1, 16, *WIDTHS))
            options = pick(
                rng, ({}, {"rows": "past"}, {"rows": "buckets", "max_distance": int(10 ** rng.uniform(1.8, 6))})
            )
            arguments = {"gates": normal((heads, n, width)), "table": normal((*per_head, rows, width)), **options}
            if options.get("rows") == "buckets":
                arguments["table"] = normal((*per_head, int(rng.integers(4, 60)), width))
        case "cope":
            arguments = {"table": normal((*per_head, rows, d))}
        case _:
            raise KeyError(name)
    return Operator(name, in_dtypes(rng, arguments, 0.15))


OF_POSITIONS = ("alibi", "kerple_log", "kerple_power", "t5", "sandwich", "fire", "toeplitz", "dense")
ON_ANY = (*OF_POSITIONS, "shaw", "transformer_xl", "deberta", "tupe", "gated_distance", "cope")
ON_WHOLE = ("swin", "fox")
"""Operators that index a table by whole positions, none negative."""


def draw_attention(rng: Generator, names: frozenset[str]) -> Call:
    """A call of attention in which every argument is drawn."""
    while True:
        groups, share = pick(rng, (1, 1, 2, 3, 4)), pick(rng, (1, 1, 1, 2, 2, 3, 4, 8, 16, 33))
        heads, batch = groups * share, pick(rng, ((), (), (), (), (1,), (2,), (2,), (3, 2), (0,)))
        n, m = (int(rng.integers(1, 5)) if chance(rng, 0.25) else size(rng)), size(rng)
        m = n if chance(rng, 0.4) else m
        d, dv = pick(rng, (0, *WIDTHS)), pick(rng, (0, *WIDTHS))
        dv = d if chance(rng, 0.6) else dv
        if int(np.prod(batch, dtype=int)) * heads * (n + 8) * (m + 8) * (d + dv) < pick(rng, (2e6, 6e6, 2e7)):
            break
    strength = pick(rng, (1.0, 1.0, 1.0, 0.01, 8.0, 60.0))
    arguments: Arguments = {
        "q": strength * rng.standard_normal((*partly(rng, batch), heads, n, d)),
        "k": rng.standard_normal((*partly(rng, batch), groups, m, d)),
        "v": rng.standard_normal((*partly(rng, batch), groups, m, dv)),
    }
    batch = np.broadcast_shapes(*(arguments[name].shape[:-3] for name in "qkv"))
    count = pick(rng, (0, 0, 1, 1, 1, 2, 2, 3, 5))
    whole = chance(rng, 0.4)
    names = [pick(rng, (*ON_ANY, *ON_WHOLE) if whole else ON_ANY) for _ in range(count)]
    names = [name for i, name in enumerate(names) if name not in ("tupe", "deberta") or name not in names[:i]]
    reads_queries = {"shaw", "transformer_xl", "deberta", "gated_distance", "cope"}
    reach = 2 * max(n, m) + 101
    biases = tuple(draw_operator(rng, name, heads, n, m, d, dv, reach) for name in names)
    if biases:
        arguments["bias"] = biases[0] if len(biases) == 1 and chance(rng, 0.5) else biases
    if {"tupe", "deberta"} <= set(names) or chance(rng, 0.3):
        arguments["scale"] = float(pick(rng, (0.3, 1.0, -0.5, 0.07)))
    elif chance(rng, 0.2) and not reads_queries & set(names):
        arguments["scale"] = rng.uniform(-1, 1, heads)
    if chance(rng, 0.2):
        sink = rng.standard_normal((*partly(rng, batch), heads))
        arguments["sink"] = np.where(rng.random(sink.shape) < 0.2, -np.inf, sink)
    if chance(rng, 0.2):
        arguments |= {"dropout": pick(rng, (0.1, 0.5, 0.97)), "seed": int(rng.integers(2**63)) * 2 + 1}
    if chance(rng, 0.3):
        arguments |= {"invariant": chance(rng, 0.5), "precision": pick(rng, ("high", "low"))}
    if chance(rng, 0.3):
        arguments["softcap"] = float(pick(rng, (0.5, 5.0, 50.0)))
    if chance(rng, 0.5):
        arguments["causal"] = True
    if chance(rng, 0.3):
        sides = (None if chance(rng, 0.3) else int(rng.integers(-20, 300)) / 2 for _ in range(2))
        arguments["window"] = tuple(side if side is None or side % 1 else int(side) for side in sides)
    if chance(rng, 0.55):
        if n != m or chance(rng, 0.3):
            arguments["align"] = pick(rng, ("start", "end"))
    else:
        sides = pick(rng, (("q",), ("k",), ("q", "k"), ("q", "k")))
        for side in sides:
            arguments[f"{side}_positions"] = draw_positions(rng, n if side == "q" else m, batch, whole)
    if chance(rng, 0.25):
        shape = pick(rng, ((n, m), (1, m), (heads, n, m), (n, 1), (m,), (), (*batch, 1, n, m), (*batch, heads, n, m)))
        arguments["keep"] = np.asarray(rng.random(shape)) < pick(rng, (0.05, 0.5, 0.95))
        if chance(rng, 0.3):  # NaN in keys that no query sees
            hidden = rng.random(m) < 0.2
            arguments["keep"] = np.broadcast_to(arguments["keep"], (*arguments["keep"].shape[:-1], m)) & ~hidden
            arguments["k"][..., hidden, :] = np.nan
            arguments["v"][..., hidden, :] = pick(rng, (np.nan, np.inf))
    if chance(rng, 0.2):
        kind = pick(rng, (np.int64, np.int32, np.uint8))
        arguments["q_segments"] = np.sort(rng.integers(0, 4, (*partly(rng, batch), n))).astype(kind)
        arguments["k_segments"] = np.sort(rng.integers(0, 4, (*partly(rng, batch), m))).astype(kind)
    if chance(rng, 0.04):
        name = pick(rng, ("q", "k", "v"))
        if arguments[name].size:
            arguments[name].flat[int(rng.integers(arguments[name].size))] = pick(rng, (np.nan, np.inf, 1e30))
    dtype = pick(rng, FLOATS)
    for name in "qkv":
        with np.errstate(all="ignore"):
            arguments[name] = arguments[name].astype(dtype if chance(rng, 0.9) else pick(rng, FLOATS))
    arguments = lay_out(rng, arguments, pick(rng, (0.0, 0.0, 0.3, 1.0)))
    arguments["return_lse"] = gradient = chance(rng, 0.6)
    gradient = gradient and chance(rng, 0.8)
    return Call("attention", arguments, gradient=gradient, out=pick(rng, OUT_LAYOUTS) if chance(rng, 0.25) else None)


def partly(rng: Generator, batch: tuple[int, ...]) -> tuple[int, ...]:
    """Batch axes that broadcast to `batch`."""
    kept = tuple(1 if chance(rng, 0.15) else length for length in batch)
    return kept[1:] if kept and chance(rng, 0.15) else kept


# Other families


def draw_bias(rng: Generator, names: frozenset[str]) -> Call:
    """matrix, vjp, logits or logits_vjp of an operator of drawn shape."""
    content = chance(rng, 0.4)
    name = pick(rng, ("shaw", "transformer_xl", "deberta", "cope") if content else (*OF_POSITIONS, "tupe", *ON_WHOLE))
    whole = name in ON_WHOLE
    groups, share, n, m, d = (
        pick(rng, (1, 2, 3)),
        pick(rng, (1, 2, 4)),
        size(rng, 150),
        size(rng, 150),
        pick(rng, WIDTHS),
    )
    m = n if chance(rng, 0.3) else m
    heads, reach = groups * share, 2 * max(n, m) + 101
    operator = draw_operator(rng, name, heads, n, m, d, d, reach)
    given: Arguments = {}
    if content:
        batch = pick(rng, ((), (2,)))
        dtype = pick(rng, FLOATS)
        given["q"] = rng.standard_normal((*batch, heads, n, d)).astype(dtype)
        given["k"] = rng.standard_normal((*batch, groups, m, d)).astype(dtype)
    else:
        batch = ()
        given |= {"n": n, "m": m}
        if chance(rng, 0.7):
            given["dtype"] = pick(rng, FLOATS)
    for side, count in (("q", n), ("k", m)):
        if chance(rng, 0.4):
            given[f"{side}_positions"] = draw_positions(rng, count, batch, whole)
    if not content and not given.keys() & {"q_positions", "k_positions"}:
        given["align"] = "end"
    return Call(
        name,
        lay_out(rng, operator.arguments, 0.3),
        method="logits" if content else "matrix",
        method_arguments=lay_out(rng, given, pick(rng, (0.0, 0.4))),
        gradient=chance(rng, 0.6),
        out=pick(rng, OUT_LAYOUTS) if chance(rng, 0.2) else None,
    )


def draw_rotary(rng: Generator, names: frozenset[str]) -> Call:
    """A call of the rotary family at drawn widths, positions, channels and axes."""
    function = pick(rng, ("rope", "rope", "rope", "rope_nd", "rope_nd", "xpos", "rerotate"))
    half = pick(rng, (*WIDTHS[:-4], 256))
    heads, n = pick(rng, (1, 2, 5, 8)), size(rng, 300 if half < 70 else 70)
    batch = pick(rng, ((), (2,), (2, 3)))
    inside = chance(rng, 0.3)
    offset, tail = pick(rng, (0, 0, 0, 1, 3, 8)), pick(rng, (0, 0, 0, 1, 5, 16))
    shape = (*batch, n, heads, 2 * half + offset + tail) if inside else (*batch, heads, n, 2 * half + offset + tail)
    x = rng.standard_normal(shape)
    axes = (pick(rng, (2, 3)),) if function == "rope_nd" else ()
    lead = batch if batch and chance(rng, 0.3) else ()
    where = (*axes, *lead, *((1,) if lead else ()), n)
    kind = rng.integers(6)
    positions: Any = rng.integers(-50, 5000, where)
    if kind == 0:
        positions = np.broadcast_to(np.arange(n), where)
    elif kind == 1:
        positions = rng.uniform(-100, 100, where)
    elif kind == 2:
        positions = rng.integers(0, 2**31, where)
    elif kind == 3 and not axes:
        positions = n
    elif kind == 4:
        positions = rng.integers(0, 100, where).astype(pick(rng, (np.int32, np.float32, np.uint8)))
    frequencies: Any = 10000.0 ** -(np.arange(half) / max(half, 1)) if chance(rng, 0.6) else rng.uniform(0, 2, half)
    arguments: Arguments = {"layout": pick(rng, ("half", "interleaved"))}
    if function == "rope_nd":  # one coordinate for each pair, or all of them
        kind_of_pairs = pick(rng, ("sections", "any", "mixed"))
        pair = np.sort(rng.integers(0, *axes, half)) if kind_of_pairs == "sections" else rng.integers(0, *axes, half)
        mixed = rng.uniform(0, 2, (*axes, half))
        own = np.where(np.arange(*axes)[:, None] == pair, frequencies, 0.0)
        frequencies = mixed if kind_of_pairs == "mixed" else own
    if chance(rng, 0.4):
        import posenc

        frequencies = posenc.RopeFrequencies(frequencies, float(pick(rng, (1.0, 2.0, 0.5))), 1.0)
    if function == "xpos" and chance(rng, 0.7):
        arguments |= {
            "scale_base": pick(rng, (512, 20.0)),
            "gamma": pick(rng, (0.4, 0.7)),
            "center": pick(rng, (0, 5.5)),
            "downscale": chance(rng, 0.5),
        }
    arguments |= {"rotary_offset": offset} if offset else {}
    arguments |= {"rotary_dim": 2 * half} if tail or chance(rng, 0.3) else {}
    if function in ("rope", "rope_nd"):
        if chance(rng, 0.3):
            arguments["inverse"] = True
        if chance(rng, 0.3):
            arguments["out_layout"] = pick(rng, ("half", "interleaved"))
    if inside:
        arguments["seq_axis"] = -3
    dtype = pick(rng, FLOATS)
    x = x.astype(dtype)
    if function == "rerotate":
        positions = np.rint(2 * positions) / 2 if kind == 1 else positions  # whose differences are exact
        arguments |= {
            "k": x,
            "old_positions": positions,
            "new_positions": rng.integers(0, 5000, n),
            "frequencies": frequencies,
        }
    elif function == "rope" and chance(rng, 0.2):
        function, angle = "rope_by_table", rng.uniform(-3, 3, (n, half))
        kind = pick(rng, FLOATS)
        arguments |= {"x": x, "cos": np.cos(angle).astype(kind), "sin": np.sin(angle).astype(kind)}
    else:
        arguments |= {"x": x, "positions": positions, "frequencies": frequencies}
        arguments |= {"start": int(rng.integers(-50, 5000))} if type(positions) is int and chance(rng, 0.5) else {}
    in_place = function in ("rope", "rope_by_table")
    out = pick(rng, OUT_LAYOUTS) if chance(rng, 0.3) else "input" if in_place and chance(rng, 0.2) else None
    arguments = lay_out(rng, arguments, pick(rng, (0.0, 0.0, 0.4, 1.0)))
    return Call(function, arguments, gradient=function != "rerotate" and chance(rng, 0.5), out=out)


FAMILIES: tuple[tuple[float, Callable[[Generator, frozenset[str]], Call]], ...] = (
    (0.45, draw_case),
    (0.36, draw_attention),
    (0.08, draw_bias),
    (0.11, draw_rotary),
)
"""Share of the calls that each family has; a family draws from the public names that both builds have."""


def names_of(value: Any) -> set[str]:
    """Names of the operators in a nest of arguments."""
    if isinstance(value, Operator):
        return {value.name} | names_of(value.arguments)
    if isinstance(value, dict | tuple):
        return set().union(*map(names_of, value.values() if isinstance(value, dict) else value))
    return set()


def draw(seed: int, index: int, isas: int, names: frozenset[str]) -> Call:
    """The call of this index, of functions and operators among `names`."""
    rng = np.random.default_rng([seed, index])
    shares = [share for share, _ in FAMILIES]
    draw_one = FAMILIES[int(rng.choice(len(FAMILIES), p=shares))][1]
    call = draw_one(rng, names)
    while not names >= {call.function} | names_of(call.arguments):
        call = draw_one(rng, names)
    call.isa, call.threads = int(rng.integers(isas)), pick(rng, (1, 1, 2, 3))
    if chance(rng, 0.03) and call.arguments:
        call.arguments, call.spoiled = spoil(rng, call.arguments), True
    return call


def describe(call: Call) -> str:
    """The call as a user would read it: shapes, dtypes and strides in place of the arrays."""

    def one(value: Any) -> str:
        if isinstance(value, np.ndarray):
            return f"{value.dtype}{list(value.shape)} strides {list(value.strides)}"
        if isinstance(value, Operator):
            return f"{value.name}({', '.join(f'{k}={one(v)}' for k, v in value.arguments.items())})"
        if hasattr(value, "inv_freq"):
            return f"RopeFrequencies({one(value.inv_freq)}, {value.attention_factor})"
        if isinstance(value, tuple):
            return f"({', '.join(map(one, value))})"
        if callable(value) and hasattr(value, "__name__"):
            return str(value.__name__)
        return repr(value)

    text = f"{call.module}.{call.function}({', '.join(f'{k}={one(v)}' for k, v in call.arguments.items())})"
    if call.method:
        text += f".{call.method}({', '.join(f'{k}={one(v)}' for k, v in call.method_arguments.items())})"
    wanted = (", gradient" if call.gradient else "") + (f", out {call.out}" if call.out else "")
    return f"{text}{wanted}, ISA {call.isa}, {call.threads} threads"
