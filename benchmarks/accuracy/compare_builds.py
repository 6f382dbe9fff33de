"""Compare two installed builds of posenc bit for bit on random calls.

    python benchmarks/accuracy/compare_builds.py BUILD_A BUILD_B --calls 20000

{HELP}

Each build runs in a process of its own, both see the same calls, and each call covers a result: values, gradients, lse,
`out` and the bytes around it, the type of an exception, the categories of warnings, and whether an input was changed.
Bits are compared, except that all NaNs are equal: IEEE 754 leaves their payload to the compiler. Gradients are compared
by field, whatever the class of the tuple. The calls are drawn in `draws.py`: every public function in all dtypes,
memory layouts, options, instruction sets that both builds can run, and with one to three threads.

A difference is printed with the arguments of the call and the largest deviation. To see one call again:

    python benchmarks/accuracy/compare_builds.py BUILD_A BUILD_B --seed 0 --only 1234

`--cases DIRECTORY` is the folder that contains the package `cases` (default: tests/ of this tree). Each environment
needs NumPy, SciPy and ml_dtypes, in the same versions. The exit status is 1 if a call differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pickle
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools import TREE
from tools.builds import HELP, Build, introduce

CHUNK_SECONDS = 900
"""A chunk that takes longer is stopped, and the call that it stands at is reported."""


# One build, in its own process


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
    import numpy as np

    array = np.asarray(value)
    if array.dtype.kind in "biuOUS":
        return array
    parts = array.view(array.real.dtype) if array.dtype.kind == "c" and array.flags.c_contiguous else array
    parts = parts.astype(parts.dtype.newbyteorder("=")) if parts.dtype.kind in "fc" else parts.copy()
    with np.errstate(all="ignore"):
        parts[np.isnan(parts)] = np.nan
    return parts


def digest(value: Any) -> str:
    """Shape, dtype and bits in a short text."""
    import numpy as np

    if value is None or isinstance(value, str | bool):
        return repr(value)
    array = canonical(value)
    if array.dtype.kind == "O" or array.dtype.char in "gG":  # pointers, and long doubles with bytes that mean nothing
        content = repr(array.tolist()).encode()
    else:
        content = np.ascontiguousarray(array).tobytes()
    return f"{np.asarray(value).dtype.name}{list(np.shape(value))} {hashlib.sha1(content).hexdigest()[:16]}"


class Runner:
    """Runs calls in the build that this process imports."""

    def __init__(self, isas: str, names: str) -> None:
        import posenc

        self.posenc, self.isas, self.names = posenc, isas.split(","), frozenset(names.split(","))

    def made(self, value: Any) -> Any:
        """Arguments with each drawn `Operator` as the build's own Bias."""
        from draws import Operator

        if isinstance(value, Operator):
            arguments = self.made(value.arguments)
            own_positions = arguments.pop("at", None)
            operator = getattr(self.posenc, value.name)(**arguments)
            return operator if own_positions is None else operator.at(**own_positions)
        if isinstance(value, dict):
            return {key: self.made(item) for key, item in value.items()}
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            return tuple(self.made(item) for item in value)
        return value

    def run(self, seed: int, index: int) -> tuple[dict[str, Any], Any]:
        """All results of a call by name, and the call."""
        from draws import draw

        call = draw(seed, index, len(self.isas), self.names)
        results: dict[str, Any] = {"arguments": self.fingerprint(call)}
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            try:
                with self.posenc.use_isa(self.isas[call.isa]), self.posenc.threads(call.threads):
                    self.perform(call, seed, index, results)
            except Exception as error:
                results["error"] = type(error).__name__
                results["_message"] = str(error)
        results["warnings"] = " ".join(sorted({warning.category.__name__ for warning in heard}))
        results["untouched"] = self.fingerprint(call) == results["arguments"] or call.out == "input"
        return results, call

    def fingerprint(self, call: Any) -> str:
        """A digest of the arguments: shapes, dtypes, strides, numbers and the bits of every array."""
        from draws import describe, map_arrays

        found: list[str] = []
        map_arrays(lambda array: found.append(digest(array)), (call.arguments, call.method_arguments))
        return hashlib.sha1(repr((describe(call), found)).encode()).hexdigest()[:16]

    def perform(self, call: Any, seed: int, index: int, results: dict[str, Any]) -> None:
        """Call the function, its gradient, and the function again with `out`."""
        import numpy as np
        from draws import FLOATS, chance, lay_out, pick

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
            out, memory = self.memory(call.out, first, chance(rng, 0.5))
            options = {name: value for name, value in arguments.items() if name != "dtype"}
            returned = function(**{**options, "out": out})
            results |= flatten(returned, "out")
            results["out is returned"] = (returned[0] if isinstance(returned, tuple) else returned) is out
            results["memory of out"] = memory

    def gradient(self, call: Any, arguments: Any, result: Any, cotangents: list[Any]) -> Any:
        """Every gradient of the call; attention's with a cotangent of lse in a part of the calls."""
        if call.method:
            bias = getattr(self.posenc, call.function)(**self.made(call.arguments))
            name = "vjp" if call.method == "matrix" else "logits_vjp"
            given = {key: value for key, value in arguments.items() if key not in ("dtype", "out")}
            return getattr(bias, name)(cotangents[0], **given)
        vjp = getattr(import_module(call.module), f"{call.function}_vjp")
        if call.function == "attention":
            given = {key: value for key, value in arguments.items() if key != "return_lse"}
            if not isinstance(result, tuple):
                return None
            options = {"out": result[0], "lse": result[1], "grad_lse": cotangents[1] if call.threads > 1 else None}
            return vjp(cotangents[0], **given, **options)
        given = {key: value for key, value in arguments.items() if key != "dtype"}
        return vjp(cotangents[0] if len(cotangents) == 1 else tuple(cotangents), **given)

    @staticmethod
    def memory(layout: str, like: Any, swapped: bool) -> tuple[Any, Any]:
        """An array for `out` in a memory layout, and the bytes that contain it with a margin."""
        import numpy as np

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


def child(options: argparse.Namespace) -> None:
    """Run the calls that the parent asks for; one line of JSON per call, or one pickle for --only."""
    runner = Runner(options.isas, options.names)
    if options.only is not None:
        from draws import describe

        results, call = runner.run(options.seed, options.only)
        plain = {name: canonical(v) if hasattr(v, "dtype") else v for name, v in results.items()}
        sys.stdout.buffer.write(pickle.dumps((describe(call), plain)))
        return
    for index in range(options.start, options.stop):
        results, call = runner.run(options.seed, index)
        digests = {name: digest(value) for name, value in results.items() if not name.startswith("_")}
        name = f"{call.function}.{call.method}" if call.method else call.function
        print(json.dumps({"index": index, "call": name, "gradient": call.gradient, "results": digests}), flush=True)


# The parent


Row = dict[str, Any]
"""The results of a call by name."""
Command = tuple[str, ...]
"""This script as the process of one build, without the options that select the calls."""


def run_range(build: Build, command: Command, cases: str, start: int, stop: int) -> dict[int, Row]:
    """Results of a range of calls by index. A process that a signal ends is started again after its last call."""
    rows: dict[int, Row] = {}
    while start < stop:
        with tempfile.TemporaryFile() as file:
            process = build.start(*command, "--start", str(start), "--stop", str(stop), path=(cases,), stdout=file)
            try:
                process.wait(CHUNK_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.returncode > 0:
                sys.exit(f"{build.interpreter} {build.tree}: exit status {process.returncode}")
            file.seek(0)
            for row in map(json.loads, file):
                rows[row["index"]] = row
                start = row["index"] + 1
        if start < stop:
            rows[start] = {"call": "?", "gradient": False, "results": {"process": f"signal {-process.returncode}"}}
            start += 1
    return rows


def deviation(a: Any, b: Any) -> str:
    """Describe the difference of two results."""
    import numpy as np

    if not (hasattr(a, "dtype") and hasattr(b, "dtype")):
        return f"{a!r} and {b!r}"
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)}"
    if a.dtype.kind in "OUS":
        return f"{a!r} and {b!r}"
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        x, y = a.astype(wide), b.astype(wide)
        differs = ~((x == y) & (np.signbit(x.real) == np.signbit(y.real)) | (np.isnan(x) & np.isnan(y)))
        gap, largest = np.abs(x - y)[differs], np.nanmax(np.abs(x), initial=0)
    return (
        f"{differs.sum()} of {differs.size} entries differ, by at most {gap.max(initial=0):.3g}; largest {largest:.3g}"
    )


def show(builds: list[Build], command: Command, cases: str, index: int) -> None:
    """Print one call and where its results differ."""
    (text, a), (_, b) = (pickle.loads(build.ask(*command, "--only", str(index), path=(cases,))) for build in builds)
    print(f"\n{' '.join(command[2:4])} --only {index}: {text}")
    for name in dict.fromkeys([*a, *b]):
        if name not in a or name not in b:
            print(f"    {name}: only in {'A' if name in a else 'B'}")
        elif name.startswith("_"):
            print(f"    {name}: {a[name]!r}, {b[name]!r}")
        elif digest(a[name]) != digest(b[name]):
            print(f"    {name}: {deviation(a[name], b[name])}")


def main() -> int:
    text = (__doc__ or "").format(HELP=HELP)
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="*", metavar="BUILD", help="two builds")
    parser.add_argument("--calls", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="index of one call to show")
    parser.add_argument("--chunk", type=int, default=1000, help="calls of one process (default 1000)")
    parser.add_argument("--show", type=int, default=20, help="differences to print in full (default 20)")
    parser.add_argument("--cases", type=Path, default=TREE / "tests", help="folder of the package `cases`")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    for hidden in ("--isas", "--names"):
        parser.add_argument(hidden, default="", help=argparse.SUPPRESS)
    for hidden in ("--start", "--stop"):
        parser.add_argument(hidden, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options)
        return 0
    if len(options.builds) != 2:
        parser.error("two builds are expected")
    builds, cases = [Build.parse(text) for text in options.builds], str(options.cases.resolve())
    isas, names = map(",".join, introduce(builds))
    script = str(Path(__file__).resolve())
    command = (script, "--child", "--seed", str(options.seed), "--isas", isas, "--names", names)
    if options.only is not None:
        show(builds, command, cases, options.only)
        return 0

    start, counted, raised = time.monotonic(), Counter[str](), Counter[str]()
    different: list[int] = []
    ended: dict[int, str] = {}
    for first in range(0, options.calls, options.chunk):
        last = min(first + options.chunk, options.calls)
        with ThreadPoolExecutor(2) as pool:
            ours, theirs = pool.map(partial(run_range, command=command, cases=cases, start=first, stop=last), builds)
        for index in range(first, last):
            a, b = ours[index], theirs[index]
            counted[a["call"]] += 1
            counted["gradients"] += a["gradient"]
            raised[a["results"].get("error", "").strip("'")] += 1
            if a["results"] != b["results"]:
                different.append(index)
            if which := "".join(
                letter for letter, row in zip("AB", (a, b), strict=True) if "process" in row["results"]
            ):
                ended[index] = which
        passed = time.monotonic() - start
        print(f"{last} calls, {last / passed:.0f} per second, {len(different)} differ", flush=True)
    for index in different[: options.show]:
        if index in ended:
            print(f"\n--seed {options.seed} --only {index}: build {ended[index]} ended, by this call or one before it")
        else:
            show(builds, command, cases, index)
    del raised[""]
    print(f"\nfunctions: {', '.join(f'{name} {count}' for name, count in sorted(counted.items()))}")
    print(f"raised in A: {', '.join(f'{name} {count}' for name, count in raised.most_common())}")
    print(f"{options.calls} calls with seed {options.seed}: {len(different)} differ {different or ''}".rstrip())
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
