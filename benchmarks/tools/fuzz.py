"""Call every public function with random arguments, and compare the results with the oracles of tests/cases.

    python benchmarks/tools/fuzz.py --seconds 60
    python benchmarks/tools/fuzz.py --calls 1000000 --no-oracle --state build/fuzz.json
    python benchmarks/tools/fuzz.py --calls 10000 --no-oracle --variations 1000
    python benchmarks/tools/fuzz.py --seed 5 --only 1234

The calls are those of benchmarks/accuracy/draws.py: all public functions, dtypes, memory layouts, byte orders,
positions, options, instruction sets and one to three threads, with gradients and `out`. Some calls have a wrong
argument, and in some `out` overlaps an argument. Each call must

- return, or raise TypeError, ValueError, IndexError or, for a path, FileNotFoundError, whose message begins with the
  name of a function;
- warn only of a deprecation, and leave its arguments as they were;
- write the same numbers to any `out`, and no byte beside it;
- agree with its oracle within the bound that the tests use, where the oracle knows the arguments;
- have gradients whose product with a random direction is the oracle's derivative in this direction.

`--no-oracle` omits the last two. `--variations N` calls each function N more times with one or two arrays changed:
cut, stored otherwise, of another dtype, or with a number that is not finite, too large or out of range. Of these calls
only the first rule is checked, and they are fast: thousands a second.

Sanitizers find more: `.ci/sanitizers` runs this program in a build with AddressSanitizer and
UndefinedBehaviorSanitizer. With `--state FILE` the number of the call is written to FILE before each call. The next run
with this file begins after the call, and reports it if the process has died in it.
"""

from __future__ import annotations

import argparse
import json
import mmap
import re
import sys
import time
import traceback
import warnings
from collections import Counter
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "accuracy"))

import tools  # noqa: F401  first: it makes posenc and tests/cases importable

import numpy as np  # isort: skip
from cases import CASES, F64, as_tuple, get_path, set_path
from cases.attention import AttentionCase
from cases.deviation import STEP
from compare_builds import Runner
from draws import FLOATS, LAYOUTS, Call, Operator, chance, describe, draw, map_arrays, pick, spoil

import posenc
import posenc.analysis

EXPECTED_ERRORS = ("TypeError", "ValueError", "IndexError", "FileNotFoundError")
NAMES = frozenset((*posenc.__all__, *posenc.analysis.__all__))
ATTENTION = next(case for case in CASES if case.function == "attention")
FORM = re.compile(r"[\w.]+(\(\))?: \w+ .*", re.DOTALL)
LARGEST_FOR_ORACLE = 1 << 22
"""Pairs of a query and a key in all heads; larger matrices take the oracle seconds."""
LONGEST_TO_VARY = 3e-4
"""Seconds of the first call; a function that takes longer is varied less."""


class Finding(Exception):
    """A call that does not keep a promise."""


class Fuzzer(Runner):
    """Runs drawn calls, and raises a Finding for one that breaks a rule."""

    def __init__(self, seed: int, oracle: bool) -> None:
        unlisted = {posenc.isa()} - set(posenc.isas())  # an emulation that POSENC_ISA names
        super().__init__(",".join([*posenc.isas(), *unlisted]), ",".join(NAMES))
        self.seed, self.oracle = seed, oracle
        self.wanted: list[tuple[str, bool]] = []
        self.counted = Counter[str]()

    def memory(self, layout: str, like: Any, swapped: bool) -> tuple[Any, Any]:  # type: ignore[override]
        """Keep what the memory around `out` must contain after the call."""
        self.expected_out, self.expected_memory = Runner.memory(layout, like, swapped)
        self.expected_out[...] = like
        return Runner.memory(layout, like, swapped)

    def check(self, index: int) -> None:
        """Run the call of this index."""
        results, call = self.run(self.seed, index)
        name = results.get("error")
        self.counted[f"raised {name}" if name else "returned"] += 1
        if name and name not in EXPECTED_ERRORS:
            raise Finding(f"raised {name}: {results['_message']}")
        if name and not FORM.fullmatch(results["_message"]):
            raise Finding(f"the message does not begin with a name: {results['_message']}")
        if heard := set(results["warnings"].split()) - {"DeprecationWarning", "FutureWarning"}:
            raise Finding(f"warned: {heard}")
        if not results["untouched"]:
            raise Finding("an argument has changed")
        if "memory of out" in results:
            if not results["out is returned"]:
                raise Finding("out is not the array that was returned")
            if results["memory of out"].tobytes() != self.expected_memory.tobytes():
                self.compare_out(results)
        if name or call.spoiled:
            return
        rng = np.random.default_rng([self.seed, index, 2])
        if call.out and chance(rng, 0.5):
            self.check_overlap(call, results, rng)
        if self.oracle:
            self.check_oracle(call, results, rng)

    def vary(self, index: int, variations: int) -> None:
        """Run variations of the call of this index, fewer of a slow one."""
        rng = np.random.default_rng([self.seed, index, 3])
        call = draw(self.seed, index, len(self.isas), NAMES)
        if holds_function(call.arguments):  # a function of the caller that expects these shapes
            return
        module = sys.modules[call.module]
        begun, made = time.perf_counter(), 0
        with posenc.use_isa(self.isas[call.isa]), posenc.threads(call.threads), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            while made < variations and (made < 2 or time.perf_counter() - begun < variations * LONGEST_TO_VARY):
                made += 1
                changed = replace(call, arguments=varied(rng, call.arguments))
                if call.method and chance(rng, 0.5):
                    changed = replace(call, method_arguments=varied(rng, call.method_arguments))
                try:
                    self.perform_once(changed, module, rng)
                except Exception as error:
                    self.counted[f"variation raised {type(error).__name__}"] += 1
                    if type(error).__name__ not in EXPECTED_ERRORS or not FORM.fullmatch(str(error)):
                        told = f"variation raised {type(error).__name__}: {error}\n    {describe(changed)}"
                        raise Finding(told) from error
        self.counted["variations"] += made

    def perform_once(self, call: Call, module: Any, rng: np.random.Generator) -> None:
        """Call the function, and its gradient if the call has one."""
        arguments = self.made(call.arguments)
        function = getattr(module, call.function)
        if call.method:
            function = getattr(function(**arguments), call.method)
            arguments = self.made(call.method_arguments)
        result = function(**arguments)
        if call.gradient:
            cotangents = [
                rng.standard_normal(np.shape(r)) for r in (result if isinstance(result, tuple) else (result,))
            ]
            self.gradient(call, arguments, result, cotangents)

    def compare_out(self, results: dict[str, Any]) -> None:
        """Accept NaNs of other bits in `out`; all other bytes must be as expected."""
        first = results.get("result", results.get("result.0"))
        if not np.isnan(np.asarray(first, np.complex128)).any():
            raise Finding("out has other bits than the result, or bytes beside it have changed")

    def check_overlap(self, call: Call, results: dict[str, Any], rng: np.random.Generator) -> None:
        """An `out` that overlaps an argument gets the same bits as one of its own, or is refused."""
        arguments = self.made(call.method_arguments if call.method else call.arguments)
        result = results.get("result", results.get("result.0"))
        if not isinstance(result, np.ndarray) or not result.size or call.out == "input":
            return
        shared = [k for k, v in arguments.items() if isinstance(v, np.ndarray) and v.dtype == result.dtype and v.size]
        if not shared:
            return
        name = pick(rng, shared)
        given, shift = arguments[name], int(rng.integers(0, arguments[name].size))
        buffer = np.zeros(max(given.size, shift + result.size), result.dtype)
        laid = buffer[: given.size].reshape(given.shape)
        laid[...] = given
        out = buffer[shift : shift + result.size].reshape(result.shape)
        options = {key: value for key, value in arguments.items() if key != "dtype"} | {name: laid, "out": out}
        function = getattr(sys.modules[call.module], call.function)
        if call.method:
            function = getattr(function(**self.made(call.arguments)), call.method)
        with posenc.use_isa(self.isas[call.isa]), posenc.threads(call.threads):
            try:
                function(**options)
            except ValueError:
                self.counted["overlap refused"] += 1
                return
        self.counted["overlaps"] += 1
        if not np.array_equal(out.astype(np.complex128), result.astype(np.complex128), equal_nan=True):
            raise Finding(f"out that overlaps {name} from element {shift} on differs from the result")

    # Oracles

    def check_oracle(self, call: Call, results: dict[str, Any], rng: np.random.Generator) -> None:
        """Compare with the oracle, if it knows these arguments."""
        own = [value for key, value in results.items() if key == "result" or re.fullmatch(r"result\.[^.]+", key)]
        found = [value for value in own if value is not None and not isinstance(value, str)]  # as a layout
        case = call.case or (ATTENTION if call.function == "attention" and call.module == "posenc" else None)
        if case is None or call.redrawn or not found:
            self.counted["without oracle"] += 1
            return
        arguments = plain({**call.arguments, **call.method_arguments}, case)
        options = {"dtype"} & set(arguments)
        arguments = {key: value for key, value in arguments.items() if key not in options}
        if too_large(arguments) or not finite(arguments):
            self.counted["without oracle"] += 1
            return
        in_use = posenc.use_isa(self.isas[call.isa])  # bounds of 16-bit products depend on it
        with in_use, np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                expected = case.expect(arguments)
                bounds = case.bounds(expected, np.asarray(found[0]).dtype.newbyteorder("="), arguments)
            except Exception as error:  # options of the function that this oracle does not have
                self.counted[f"without oracle: {type(error).__name__} in {case.name}"] += 1
                return
        self.counted["with oracle"] += 1
        for number, (result, e, bound) in enumerate(zip(found, expected, bounds, strict=True)):
            if np.iscomplexobj(result):  # oracles write (real, imaginary)
                result = np.stack([result.real, result.imag], -1)
            compare(np.asarray(result), e, bound, f"result {number} of {case.name}")
        if call.case and case.gradients and call.gradient and widest(arguments):
            self.check_gradient(case, arguments, expected, rng)

    def check_gradient(self, case: Any, arguments: Any, expected: Any, rng: np.random.Generator) -> None:
        """The derivative of sum(grad * result) in a random direction of one argument, by central differences."""
        if not all(np.isfinite(e).all() for e in expected):
            return
        grads = tuple(rng.standard_normal(np.shape(e)) for e in expected)
        gradients = case.vjp(grads, arguments)
        field, path = pick(rng, list(case.gradients.items()))
        given = np.array(get_path(arguments, path), np.float64)
        if not given.size:
            return
        direction = rng.standard_normal(given.shape)
        step = STEP / (1 + np.abs(direction).max())
        sides = []
        for sign in (1, -1, 2, -2):
            moved = set_path(arguments, path, given + sign * step * direction)
            sides.append(sum((g * r).sum() for g, r in zip(grads, as_tuple(case.truth(moved)), strict=True)))
        near, far = (sides[0] - sides[1]) / (2 * step), (sides[2] - sides[3]) / (4 * step)
        terms = np.asarray(gradients[field], np.float64) * direction
        size = np.abs(terms).sum() + abs(near) + 1e-9
        if abs(near - far) > 1e-5 * size:  # a kink, a jump, or a third derivative that is too large for this step
            self.counted["gradients at kinks"] += 1
            return
        self.counted["gradients with oracle"] += 1
        rounding = 1e-12  # of a sum of 4500 numbers of size 1
        if not abs(terms.sum() - near) <= 1e-4 * size + rounding:
            raise Finding(f"gradient {field} of {case.name}: {terms.sum()} in a direction, expected {near}")


def plain(value: Any, case: Any) -> Any:
    """The arguments as the oracles take them: operators as pairs, and attention's positions as arrays."""
    if isinstance(value, Operator):
        return value.name, plain(value.arguments, None)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(plain(item, None) for item in value)
    if not isinstance(value, dict):
        return value
    found = {key: plain(item, None) for key, item in value.items()}
    for name in [name for name in found if name.endswith("positions")]:  # differences of unsigned ones would wrap
        found[name] = map_arrays(lambda a: a.astype(np.int64) if a.dtype.kind in "iu" else a, found[name])
    if isinstance(case, AttentionCase):
        if isinstance(found.get("bias"), tuple) and found["bias"] and isinstance(found["bias"][0], str):
            found["bias"] = (found["bias"],)
        for name in ("q_positions", "k_positions"):
            if isinstance(found.get(name), int):
                found[name] = np.arange(found[name])
    return found


def varied(rng: np.random.Generator, arguments: Any) -> Any:
    """The arguments with one or two arrays changed, or seldom with an argument of a wrong kind."""
    if chance(rng, 0.05) and arguments:
        return spoil(rng, arguments)
    chosen = rng.integers(0, max(1, len(arrays_of(arguments))), int(rng.integers(1, 3)))
    numbers = count()
    return map_arrays(lambda array: changed_array(rng, array) if next(numbers) in chosen else array, arguments)


def changed_array(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """Return a part of an array, or its numbers in another layout or dtype, or with one number replaced."""
    kind = int(rng.integers(6)) if array.dtype.kind != "O" else 0
    if kind == 0 and array.ndim:
        part = [slice(None)] * array.ndim
        part[int(rng.integers(array.ndim))] = slice(int(rng.integers(3)), None, int(pick(rng, (1, 1, 2, -1))))
        return array[tuple(part)]
    if kind == 1:
        return LAYOUTS[pick(rng, list(LAYOUTS))](array)
    if kind == 2 and array.dtype.kind == "f":
        return array.astype(pick(rng, FLOATS))
    if kind == 3:
        return array[None] if chance(rng, 0.5) else array.T
    array = array.copy()
    if not array.size or array.dtype.kind not in "fciu":
        return array
    limits = np.finfo(array.dtype) if array.dtype.kind in "fc" else np.iinfo(array.dtype)
    numbers = (0, 1, limits.max, limits.min) + (
        (np.nan, np.inf, -np.inf, limits.tiny) if array.dtype.kind in "fc" else ()
    )
    array.flat[int(rng.integers(array.size))] = pick(rng, numbers)
    return array


def holds_function(value: Any) -> bool:
    if isinstance(value, Operator):
        return holds_function(value.arguments)
    if isinstance(value, dict):
        return any(map(holds_function, value.values()))
    return any(map(holds_function, value)) if isinstance(value, tuple | list) else callable(value)


def arrays_of(arguments: Any) -> list[np.ndarray]:
    found: list[np.ndarray] = []
    map_arrays(found.append, arguments)
    return found


def finite(arguments: Any) -> bool:
    """The bounds hold for numbers that are not near the range of float16. -inf masks a pair in a dense bias."""
    numbers = [np.asarray(a, np.float64) for a in arrays_of(arguments) if a.dtype.kind not in "biuOSUc"]
    return all((np.isneginf(a) | (np.abs(a) < 1e4)).all() for a in numbers)


def widest(arguments: Any) -> bool:
    """Return whether all numbers are float64 in native order, as the oracle's derivatives need them."""
    return all(a.dtype == F64 for a in arrays_of(arguments) if a.dtype.kind not in "biu")


def too_large(arguments: Any) -> bool:
    if not {"q", "k"} <= set(arguments):
        return False
    q, k = arguments["q"], arguments["k"]
    return np.prod(q.shape[:-1], dtype=float) * k.shape[-2] * q.shape[-1] > LARGEST_FOR_ORACLE


def compare(result: np.ndarray, expected: np.ndarray, bound: np.ndarray, what: str) -> None:
    if result.shape != expected.shape:
        raise Finding(f"{what} has shape {result.shape}; expected {expected.shape}")
    half, result = result.dtype == np.float16, result.astype(F64)
    if half:  # from 65520 on, numbers of the oracle are infinite in float16
        expected = np.where(np.isinf(result) & (np.sign(result) * expected + bound >= 65520), result, expected)
    known = np.isfinite(expected)
    if not np.array_equal(result[~known], expected[~known], equal_nan=True):
        raise Finding(f"{what}: infinite at other places than the oracle")
    error = np.nan_to_num(np.abs(result[known] - expected[known]), nan=np.inf)
    if (error > bound[known]).any():
        worst = int((error - bound[known]).argmax())
        raise Finding(f"{what}: error {error[worst]:.3g}, bound {bound[known][worst]:.3g}")


def again(options: argparse.Namespace, index: int) -> str:
    """Return the command that runs one call again."""
    oracle = " --no-oracle" if options.no_oracle else ""
    return f"python benchmarks/tools/fuzz.py --seed {options.seed} --only {index}{oracle}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, help="number of calls; default: no limit")
    parser.add_argument("--seconds", type=float, help="time limit; 60 unless --calls is given")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="index of the first call")
    parser.add_argument("--only", type=int, help="index of one call to repeat")
    parser.add_argument("--no-oracle", action="store_true", help="only run the calls, and compare nothing")
    parser.add_argument(
        "--variations", type=int, default=0, help="calls with changed arrays after each call (default 0)"
    )
    parser.add_argument("--state", type=Path, help="file that says where to go on")
    parser.add_argument("--findings", type=int, default=20, help="stop after this many findings (default 20)")
    options = parser.parse_args()
    seconds = options.seconds or (float("inf") if options.calls else 60.0)
    fuzzer, findings = Fuzzer(options.seed, not options.no_oracle), 0
    if options.only is not None:
        print(describe(draw(options.seed, options.only, len(fuzzer.isas), NAMES)), flush=True)
        fuzzer.check(options.only)
        fuzzer.vary(options.only, options.variations)
        print("no finding")
        return 0

    first, state = options.start, None
    if options.state:
        if not options.state.exists():
            options.state.write_text(" " * 64)
        with options.state.open("r+b") as file:
            state = mmap.mmap(file.fileno(), 64)
        if earlier := state[:].strip(b" \0"):
            last = json.loads(earlier)
            if last["seed"] != options.seed:
                parser.error(f"{options.state} is of seed {last['seed']}")
            first = last["index"] + 1
            if last["inside"]:
                print(f"{again(options, last['index'])}: the process ended in this call")
                findings += 1

    def note(index: int, inside: bool) -> None:
        if state is not None:
            state[:] = json.dumps({"seed": options.seed, "index": index, "inside": inside}).ljust(64).encode()

    begun, index = time.monotonic(), first
    while time.monotonic() - begun < seconds and findings < options.findings:
        if options.calls and index - first >= options.calls:
            break
        note(index, True)
        try:
            fuzzer.check(index)
            if options.variations:
                fuzzer.vary(index, options.variations)
        except Exception as error:
            findings += 1
            told = str(error) if isinstance(error, Finding) else traceback.format_exc()
            call = describe(draw(options.seed, index, len(fuzzer.isas), NAMES))
            print(f"{again(options, index)}: {told}\n    {call}", flush=True)
        note(index, False)
        index += 1
    passed = time.monotonic() - begun
    for what, times in sorted(fuzzer.counted.items()):
        print(f"{times:9} {what}")
    calls = index - first + fuzzer.counted["variations"]
    print(f"{calls} calls from {first} on with seed {options.seed}: {findings} findings, "
          f"{calls / passed:.0f} calls per second, {posenc.build_flags()}")  # fmt: skip
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
