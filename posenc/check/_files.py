"""Checks through files: inputs in .npy files for an engine in any language, and a judgement of its results.

`write` runs a check with the right answer as the implementation and records the arguments of every call: those of the
check itself, and the probes of its readers. `Engine` is an implementation that returns the results of an engine for
the recorded arguments.
"""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from .. import Bias
from ._frequencies import angles
from ._inputs import Recorder
from ._report import Array

Call: TypeAlias = tuple[Array, ...]
"""The arguments of one call, in the order of their names."""
ARGUMENTS = {
    "rope": ("x", "positions"),
    "attention": ("q", "k", "v"),
    "cache": ("q", "k", "v", "chunks"),
    "bias": ("n", "m"),
    "sinusoid": ("positions",),
    "frequencies": (),
}
"""The arguments of a call by kind."""
TEXT = Path(__file__).with_name("engine.txt").read_text(encoding="utf-8")
WORDS = dict(line.split(" | ") for line in TEXT.splitlines())
"""What an engine computes, by kind, and what options mean."""
JOINED = ("x", "q", "k", "v")
"""Arguments (batch, heads, tokens, channels), of which a file holds many calls along the batch."""
LIMIT = 20_000_000
"""Most bytes of inputs. Further probes are left out."""


def shaped(name: str, x: Any) -> Array:
    """An argument as it is stored."""
    return np.reshape(x, (-1, *np.shape(x)[-3:])) if name in JOINED else np.asarray(x)


def key(call: Call) -> tuple[tuple[tuple[int, ...], bytes], ...]:
    return tuple((x.shape, x.tobytes()) for x in call)


def extended(before: Call, chunk: Call) -> Call:
    """The tokens of a cache with those of another chunk."""
    return tuple(np.concatenate(both, 2) for both in zip(before, chunk, strict=False)) if before else chunk


# ---- inputs ----


class Calls(Recorder):
    """Record the calls of a check, and return the right result, or one that is changed."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.calls: dict[Any, Call] = {}
        self.count, self.wrong = 0, -1
        self.last: Any = None
        self.change: Callable[[Array, Call], Array] = lambda y, call: y

    def __call__(self, wanted: Any, *arguments: Any) -> Any:
        call = tuple(shaped(name, np.array(x)) for name, x in zip(self.names, arguments, strict=True))
        begins = self.names[-1:] != ("chunks",) or arguments[-1] == 0
        if self.names[-1:] == ("chunks",):  # a call is a sequence, whose chunks are its last argument
            before = () if begins else self.calls.pop(self.last)
            call = (*extended(before[:3], call[:3]), np.append(before[3:], call[0].shape[2]).astype(np.int64))
        self.count, self.last = self.count + begins, key(call)
        self.calls.setdefault(self.last, call)
        several = isinstance(wanted, list)
        found = [self.change(y, call) + (self.count - 1 == self.wrong) for y in (wanted if several else [wanted])]
        return found if several else found[0]


def leaking(y: Array, call: Call) -> Array:
    """Attention in which hidden keys have a weight."""
    mean = call[2][0].mean(-2, keepdims=True)
    return np.asarray(y + 0.01 * np.repeat(mean, y.shape[-3] // len(mean), 0))


CHANGES: Mapping[str, tuple[Callable[[Array, Call], Array], ...]] = {
    "rope": (lambda y, call: y + 1, lambda y, call: y * np.linspace(1, 2, y.shape[-1])),
    "attention": (leaking,),
    "cache": (leaking,),
}
"""Errors for which readers make calls that they do not make of a right implementation."""


def record(kind: str, names: Sequence[str], run: Callable[[Any], object]) -> tuple[list[Call], list[Call]]:
    """Return the distinct calls of a check: those that are judged, and the probes of its readers."""
    calls = Calls(names)
    run(calls)
    judged = list(calls.calls.values())
    first = {tuple(x.shape for x in call): i for i, call in reversed([*enumerate(judged)])}  # calls of each size
    for calls.wrong in sorted(first.values()) if kind in CHANGES else ():  # readers run if a result is wrong
        calls.count = 0
        run(calls)
    calls.wrong = -1
    for calls.change in CHANGES.get(kind, ()):
        run(calls)
    return judged, list(calls.calls.values())[len(judged) :]


def grouped(names: Sequence[str], probes: Sequence[Call]) -> list[list[Call]]:
    """Group calls that differ in arguments with a batch axis alone."""
    groups: dict[Any, list[Call]] = {}
    for call in probes:
        same = tuple(x.shape if name in JOINED else key((x,)) for name, x in zip(names, call, strict=True))
        groups.setdefault(same, []).append(call)
    return list(groups.values())


def write(kind: str, options: Mapping[str, Any], texts: Mapping[str, str], command: str, folder: Path) -> str:
    """Write the inputs of a check, and return a sentence about them. `texts` are the options as they were given."""
    names = (*options.get("inputs", ("x",)), "positions") if kind == "rope" else ARGUMENTS[kind]
    results = [f"out-{name}" for name in names[:-1]] if kind == "rope" and len(names) > 2 else ["out"]
    if folder.is_dir() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty; expected a new folder")
    judged, probes = record(kind, names, partial(getattr(import_module("posenc.check"), kind), **options))
    sizes = np.cumsum([sum(x.nbytes for x in call) for call in (*judged, *probes)])
    kept = probes[: int((sizes <= LIMIT).sum()) - len(judged)]
    folder.mkdir(parents=True, exist_ok=True)
    table, numbers = ["number  calls  arguments"], []
    for number, group in enumerate([*([call] for call in judged), *grouped(names, kept)]):
        columns = zip(names, zip(*group, strict=True), strict=True)
        arrays = {name: np.concatenate(xs) if name in JOINED else xs[0] for name, xs in columns}
        for name, x in arrays.items():
            np.save(folder / f"{number:04}-{name}.npy", x)
        words = (f"{name} {x.shape} {x.dtype}" if x.ndim else f"{name} = {x}" for name, x in arrays.items())
        table.append(f"{number:04} {len(group):8}  {', '.join(words)}")
        numbers.append({"number": f"{number:04}", "calls": len(group)})
    if isinstance(operator := options.get("bias"), Bias):
        table.append(f"--bias is posenc.{operator.name}, with the arrays bias-*.npy and {dict(operator.options)}.")
        for name, array in filter(lambda one: one[1] is not None, operator.arrays._asdict().items()):
            np.save(folder / f"bias-{name}.npy", np.asarray(array))
    if "config" in texts:
        shutil.copyfile(texts["config"], folder / "config.json")
    stored = {"kind": kind, "options": texts, "arguments": names, "results": results, "judged": len(judged)}
    stored["numbers"] = numbers
    (folder / "calls.json").write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    axes = "(batch, tokens, heads, channels)" if options.get("seq_axis") == -3 else "(batch, heads, tokens, channels)"
    rotates = kind == "rope" or (kind in CHANGES and "frequencies" in options)
    w, dim = options.get("frequencies"), options.get("dim", 2)
    of = angles(kind, w, dim, options.get("seq_len"), options.get("layer_type")) if rotates else {}
    told = {*options, *texts, options.get("layout") or of.get("layout")} - {*ARGUMENTS}
    lines = [
        f"These are the inputs of: {command}",
        WORDS[kind].format(axes=axes, names=" and ".join(names[:-1])),
        *[text for name, text in WORDS.items() if name in told],
        *([f"r is {of['rotary_dim']}."] if of else []),
        *[f"cos and sin are multiplied by the attention factor {of.get('factor', 1):.9g}."]
        * bool(of.get("factor", 1) != 1),
        *[f"The scale is multiplied by {of.get('softmax_factor', 1):.9g}."]
        * (kind != "rope" and of.get("softmax_factor", 1) != 1),
        "The options of the first line say how; the others have their defaults (--help). Read the arguments of each "
        f"number, and write its result beside them: that of 0000 as {' and '.join(f'0000-{x}.npy' for x in results)}. "
        "Results are in float32, float64 or float16.",
        *("", *table, ""),
        f"The numbers up to {len(judged) - 1:04} are judged. The others are probes, which show where an error is. An "
        "engine may leave out what it cannot take.",
        *["Batch rows are calls of their own: an engine without a batch axis loops over them."] * (kind in CHANGES),
        *[f"{len(probes) - len(kept)} probes beyond {LIMIT // 10**6} MB are left out: take smaller sizes."]
        * (len(kept) < len(probes)),
        "The files are NumPy's .npy in version 1.0: little-endian, in C order.",
        f"Then run: {command.partition(f' {kind}')[0]} {kind} --got {folder}",
    ]
    filled = (line if command in line else textwrap.fill(line, 110, break_on_hyphens=False) for line in lines)
    (folder / "README.txt").write_text("\n".join(filled) + "\n", encoding="utf-8")
    return f"{len(judged)} calls and {len(kept)} probes are in {folder}; see README.txt there"


# ---- results ----


class Engine:
    """An implementation that returns the results in a folder of inputs."""

    def __init__(self, kind: str, folder: Path) -> None:
        stored = json.loads((folder / "calls.json").read_text(encoding="utf-8"))
        if stored["kind"] != kind:
            raise ValueError(f"{folder} has the inputs of check {stored['kind']}; expected of check {kind}")
        self.kind, self.folder, self.names, self.results = kind, folder, stored["arguments"], stored["results"]
        self.options: dict[str, str] = stored["options"]
        """The options with which the inputs were written, as texts."""
        self.judged = stored["judged"]
        self.missing: list[str] = []
        self.tokens: Call = ()
        self.places: dict[Any, tuple[str, Any]] = {}
        """The number of each call, and the index of its result."""
        self.load = lru_cache(maxsize=8)(partial(np.load, allow_pickle=False))
        for number, count in ((one["number"], one["calls"]) for one in stored["numbers"]):
            arrays = {name: np.load(folder / f"{number}-{name}.npy") for name in self.names}
            for i in range(count):
                ends = {name: [j * len(x) // count for j in (i, i + 1)] for name, x in arrays.items() if name in JOINED}
                call = tuple(x[slice(*ends[name])] if name in ends else x for name, x in arrays.items())
                if kind == "cache":
                    chunks = {key(to): (number, (slice(*ends["q"]), ..., *at)) for to, at in chunks_of(call)}
                    self.places = chunks | self.places  # probes may begin as the case that is judged
                else:
                    self.places[key(call)] = number, slice(*next(iter(ends.values()))) if count > 1 else ()

    def __call__(self, *arguments: Any) -> Any:
        call = tuple(shaped(name, x) for name, x in zip(self.names, arguments, strict=True))
        if self.kind == "cache":
            call = self.tokens = extended(() if arguments[-1] == 0 else self.tokens, call[:3])
        if key(call) not in self.places:
            raise LookupError(f"{self.folder} lacks the inputs of a call; write them with this version of posenc")
        number, index = self.places[key(call)]
        found = [self.result(f"{number}-{name}.npy")[index] for name in self.results]
        if (factor := self.folder / f"{number}-factor.npy").is_file():
            return found[0], float(self.load(factor))
        return found[0] if len(found) == 1 else tuple(found)

    @property
    def needed(self) -> list[str]:
        """The missing results that are judged."""
        return [name for name in self.missing if int(name.partition("-")[0]) < self.judged]

    def result(self, name: str) -> Array:
        try:
            return np.asarray(self.load(self.folder / name))
        except FileNotFoundError:
            self.missing += [name] * (name not in self.missing)
            raise


def chunks_of(call: Call) -> Iterator[tuple[Call, tuple[slice, slice]]]:
    """The tokens of a sequence up to each chunk, and the index of the chunk."""
    ends = np.cumsum(call[3])
    for start, end in zip(ends - call[3], ends, strict=True):
        yield tuple(x[..., :end, :] for x in call[:3]), (slice(start, end), slice(None))
