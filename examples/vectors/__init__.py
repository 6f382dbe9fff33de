"""Test vectors: arguments, exact results and error bounds of every function, for an implementation in any language.

A directory of vectors has two files:

- ``vectors.safetensors``: every array, and in the metadata of its header, as JSON, the function, arguments, results,
  bounds and source of each case. An array is ``{"tensor": NAME}``, an operator
  ``{"operator": FUNCTION, "arguments": {...}}``.
- ``vectors.txt``: the same cases for programs without a JSON reader, one name and value per line. An array is its type,
  the byte of ``vectors.safetensors`` at which it starts, and its lengths.

The cases and their bounds are those of posenc's tests, so only a clone of the sources can write vectors.
"""

from __future__ import annotations

import inspect
import json
import struct
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import posenc
from arrays import Array
from files import refusing
from posenc.__main__ import Parser

PROGRAM = "python examples/vectors"
HERE = Path(__file__).resolve().parent
TESTS = HERE.parents[1] / "tests"
ARRAYS, LINES = "vectors.safetensors", "vectors.txt"
FORMAT = 2
PRECISIONS = ("float64", "float32")
TYPES: dict[str, np.dtype[np.generic]] = {
    "F64": np.dtype("<f8"),
    "I64": np.dtype("<i8"),
    "F32": np.dtype("<f4"),
    "BOOL": np.dtype(bool),
}
"""Names of dtypes in the header of safetensors, the widest first, so that every array is aligned."""
Tensors: TypeAlias = dict[str, Array]
Record: TypeAlias = dict[str, Any]
"""A part of a JSON document."""


# ---- safetensors ----


def packed(tensors: Tensors, cases: list[Record]) -> bytes:
    """The bytes of a file of safetensors: the length of the header, the header, and the arrays."""
    types = {dtype: name for name, dtype in TYPES.items()}
    order = sorted(tensors, key=lambda name: (list(types).index(tensors[name].dtype), name))
    header: Record = {"__metadata__": {"format": str(FORMAT), "cases": json.dumps(cases, separators=(",", ":"))}}
    end = 0
    for name in order:
        array, start, end = tensors[name], end, end + tensors[name].nbytes
        header[name] = {"dtype": types[array.dtype], "shape": array.shape, "data_offsets": (start, end)}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(tensors[name].tobytes() for name in order)


def header_of(content: bytes) -> tuple[int, Record]:
    """The byte at which the arrays of a file of safetensors start, and its header."""
    start = 8 + struct.unpack("<Q", content[:8])[0]
    return start, json.loads(content[8:start])


def unpacked(content: bytes) -> tuple[Tensors, list[Record]]:
    """The arrays of a file of safetensors by name, and the cases."""
    start, header = header_of(content)
    cases = json.loads(header.pop("__metadata__")["cases"])

    def array(about: Record) -> Array:
        first, last = about["data_offsets"]
        return np.frombuffer(content[start + first : start + last], TYPES[about["dtype"]]).reshape(about["shape"])

    return {name: array(about) for name, about in header.items()}, cases


# ---- write ----


def write(directory: Path) -> int:
    """Write the two files, and return the number of cases."""
    if not (TESTS / "cases").is_dir():
        raise ValueError(
            f"{TESTS / 'cases'}: not found; expected a clone of the sources of posenc, whose tests have the cases"
        )
    sys.path.insert(0, str(TESTS))
    tensors: Tensors = {}
    vectors = import_module("cases.vectors").vectors()
    cases = [describe(name, case, arguments, tensors) for name, case, arguments in vectors]
    with refusing(str(directory)):
        directory.mkdir(parents=True, exist_ok=True)
        content = packed(tensors, cases)
        (directory / ARRAYS).write_bytes(content)
        (directory / LINES).write_bytes("".join(f"{line}\n" for line in plain_text(cases, content)).encode())
    return len(cases)


def describe(name: str, case: Any, arguments: Record, tensors: Tensors) -> Record:
    """Describe one case of the tests, and add its arrays to `tensors`."""

    def tensor(path: str, array: Array) -> dict[str, str]:
        tensors[f"{name}/{path}"] = np.array(array, order="C")
        return {"tensor": f"{name}/{path}"}

    def encoded(path: str, value: object) -> Any:
        if isinstance(value, np.ndarray):
            return tensor(path, narrow(value))
        if isinstance(value, posenc.RopeFrequencies):
            value = {"inv_freq": value.inv_freq, "attention_factor": value.attention_factor}
        elif isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], dict):
            value = {"operator": value[0], "arguments": value[1]}
        if isinstance(value, dict):
            return {key: encoded(f"{path}/{key}", item) for key, item in value.items()}
        if isinstance(value, (tuple, list)):
            return [encoded(f"{path}/{key}", item) for key, item in enumerate(value)]
        return value

    module = case.module.removeprefix("posenc").removeprefix(".")
    given = {argument: encoded(argument, value) for argument, value in arguments.items()}
    expected = case.exact(arguments)
    results = [{"expected": tensor(f"expected/{i}", one)} for i, one in enumerate(expected)]
    for precision in PRECISIONS:
        if np.dtype(precision) in case.dtypes:
            bounds = case.bounds(expected, np.dtype(precision), arguments)
            for i, (result, bound) in enumerate(zip(results, bounds, strict=True)):
                whole = np.where(np.isfinite(expected[i]), bound, 0.0)
                result[precision] = tensor(f"{precision}/{i}", rounded_up(whole))
    return {
        "name": name,
        "function": f"{module}.{case.function}".lstrip("."),
        **({"method": case.method} if hasattr(case, "method") else {}),
        "source": source_of(case.function),
        "data": list(case.data),
        "arguments": given,
        "results": results,
    }


def source_of(function: str) -> str:
    """The equation and the paper: the docstring in posenc.reference without its first sentence and its examples."""
    text = (inspect.getdoc(getattr(posenc.reference, function)) or "").partition("\nExamples\n")[0]
    return " ".join(text.partition("\n\n")[2].split())


def narrow(array: Array) -> Array:
    """The same numbers in float32 if it represents them all."""
    short = array.astype(np.float32)
    return short if array.dtype == np.float64 and np.array_equal(short, array) else array


def rounded_up(bound: Array) -> Array:
    """Bounds with eight significant bits, so that another processor's last bit changes no byte of the files."""
    mantissa, exponent = np.frexp(bound)
    wide = np.ldexp(np.ceil(mantissa * 256) / 256, exponent)
    nearest = np.asarray(wide, np.float32)
    above: Array = np.where(nearest < wide, np.nextafter(nearest, np.float32(np.inf)), nearest)
    return above


def plain_text(cases: list[Record], content: bytes) -> Iterator[str]:
    """Yield the lines of vectors.txt: a path in the case, a type, a value."""
    start, header = header_of(content)

    def lines(path: str, value: Any) -> Iterator[str]:
        if isinstance(value, dict) and "tensor" in value:
            about = header[value["tensor"]]
            place = start + about["data_offsets"][0]
            yield " ".join(map(str, (path, about["dtype"], place, len(about["shape"]), *about["shape"])))
        elif isinstance(value, (dict, list)):
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                yield from lines(f"{path}/{key}", item)
        elif value is not None:
            yield f"{path} text {value}" if isinstance(value, str) else f"{path} number {+value}"

    yield f"format number {FORMAT}"
    for case in cases:
        yield f"case {case['name']}"
        for key in ("function", "method", "arguments", "results"):
            yield from (line.removeprefix("arguments/") for line in lines(key, case.get(key)))


# ---- check ----


class Error(NamedTuple):
    """The largest error of posenc in one case and precision, as a share of the bound."""

    share: float
    precision: str
    name: str


def check(directory: Path) -> list[Error]:
    """Compute every case by posenc, and compare with the vectors in `directory`."""
    with refusing(str(directory)):
        tensors, cases = unpacked((directory / ARRAYS).read_bytes())
    errors = []
    for case in cases:
        for precision in PRECISIONS:
            if precision in case["results"][0]:
                found = compute(case, tensors, precision)
                shares = [
                    share_of_bound(one, *(tensors[result[key]["tensor"]] for key in ("expected", precision)))
                    for one, result in zip(found, case["results"], strict=True)
                ]
                errors.append(Error(max(shares), precision, case["name"]))
    return errors


def report(errors: list[Error]) -> int:
    """Print the cases beyond their bounds, and the largest error of each precision; return the exit status."""
    beyond = [error for error in errors if not error.share <= 1]
    for error in beyond:
        print(f"{error.name}: the error in {error.precision} is {error.share:.3g} times its bound")
    for precision in PRECISIONS:
        found = [error for error in errors if error.precision == precision]
        worst = max(found)
        print(f"{precision}: {len(found)} cases; largest error {worst.share:.3g} of its bound, in {worst.name}")
    return int(bool(beyond))


def share_of_bound(found: Array, expected: Array, bound: Array) -> float:
    """The largest |found - expected| / bound. An infinite entry is equal, or the share is infinite."""
    if found.shape != expected.shape:
        return np.inf
    with np.errstate(invalid="ignore"):
        error = np.where(found == expected, 0.0, np.abs(found - expected))
    share = np.divide(error, bound, out=np.where(error == 0, 0.0, np.inf), where=bound > 0)
    return float(np.nan_to_num(share, nan=np.inf, posinf=np.inf).max(initial=0.0))


def compute(case: Record, tensors: Tensors, precision: str) -> list[Array]:
    """The results of posenc as arrays, for data in this precision."""
    arguments = {name: decoded(value, tensors) for name, value in case["arguments"].items()}
    for name in set(case["data"]) & set(arguments):
        arguments[name] = arguments[name].astype(precision)
    function = attrgetter(case["function"])(posenc)
    if "method" in case:
        own = set(inspect.signature(function).parameters)
        function = getattr(function(**{a: x for a, x in arguments.items() if a in own}), case["method"])
        arguments = {a: x for a, x in arguments.items() if a not in own}
    if "dtype" in inspect.signature(function).parameters:
        arguments["dtype"] = precision
    found = function(**arguments)
    if isinstance(found, posenc.RopeFrequencies):
        found = (found.inv_freq, found.attention_factor, found.softmax_factor)
    several = [np.asarray(one) for one in (found if isinstance(found, tuple) else (found,))]
    several = [np.stack([z.real, z.imag], -1) if z.dtype.kind == "c" else z for z in several]
    return [one.astype(np.float64) for one in several]


def decoded(value: object, tensors: Tensors) -> Any:
    """An argument of posenc: arrays in float64, operators, frequencies, tuples."""
    if isinstance(value, list):
        return tuple(decoded(item, tensors) for item in value)
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        array = tensors[value["tensor"]]
        return array.astype(np.float64) if array.dtype.kind == "f" else array
    inner = {key: decoded(item, tensors) for key, item in value.items()}
    if "operator" in value:
        own = inner["arguments"].pop("at", None)
        made = getattr(posenc, value["operator"])(**inner["arguments"])
        return made if own is None else made.at(**own)
    return posenc.RopeFrequencies(**inner) if "inv_freq" in value else inner


# ---- command ----


def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(
        prog=PROGRAM,
        description="Test vectors for an implementation in any language: arguments, exact results and error bounds of "
        "every function, as safetensors and as plain text.",
    )
    parser.add_argument(
        "directory",
        nargs="?",
        type=Path,
        metavar="DIR",
        default=HERE,
        help="directory of the vectors (default: examples/vectors)",
    )
    parser.add_argument("--check", action="store_true", help="compare posenc with the vectors in DIR")
    options = parser.parse_args(arguments)
    try:
        if options.check:
            return report(check(options.directory))
        print(f"{write(options.directory)} cases in {options.directory}")
    except ImportError as error:
        parser.error(f"{error}; to write vectors: pip install mpmath")
    except ValueError as error:
        parser.error(str(error))
    return 0
