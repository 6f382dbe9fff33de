"""``python -m posenc``: eight schemes and a wrong rotation; also the commands ``info``, ``check`` and ``config``.

``--all`` prints the effects of all schemes. A scheme is one way for positions to enter attention. Embeddings and
projections are random: nothing is trained. The embedding of a word is seeded by the word and other random numbers by
constants, so that the same text gives the same numbers. `examples/tour` draws the schemes of this file.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import math
import os
import platform
import re
import sys
import tracemalloc
import warnings
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

import posenc
from posenc import ContentBias, PositionBias
from posenc.typing import Layer

Array: TypeAlias = npt.NDArray[Any]
PROGRAM = "posenc" if Path(sys.argv[0]).stem == "posenc" else "python -m posenc"

HEADS, WIDTH, MODEL = 8, 64, 512
"""Heads of attention, channels of a head, and channels of a word's embedding."""
LINE, LINES, MAX_WORDS = 8, 128, 1024
"""Words of a line, lines of a page, and words of a page, which are also the rows of tables."""
NO_POSITIONS, CAUSAL_MASK = "no positions", "no positions (causal)"
"""Names of the schemes without an operator."""
ADDED, MULTIPLIED, CONVOLVED = "added to embeddings", "multiplies embeddings", "convolution, added"
ROTATED, BIAS, READS = "rotates q and k", "added to logits", "reads q and k"

SENTENCE, SWAP = "Jack gave a photo to Molly", ("Jack", "Molly")
"""The sentence of the table, and the two words that change places."""
SHIFTS = {"+1": 1, "+10^6": 10**6}
SCORED_WORDS, MEASURED_WORDS = 128, 512
"""Words whose scores are compared before and after a shift, and words of the attention whose memory is measured."""
ROUNDING = 1e-5
"""Relative changes of float32 results below this are rounding errors."""
KNOWN = {
    NO_POSITIONS: "nothing",
    "sinusoidal": "adds sines and cosines of the position to each word",
    "learned": "adds a trained vector to each word; the table ends",
    "rope": "rotates queries and keys by angles of their positions",
    "alibi": "lowers each logit by the distance of its words",
    "t5": "adds a trained number to each logit, by ranges of distance",
    "deberta": "lets queries and keys read trained vectors of distance",
    "shaw": "adds a trained vector of distance to each key",
    "transformer_xl": "lets each query read a sinusoid of distance",
}
"""What the schemes that everybody knows do to a sentence."""
LEGEND = f"""
{SENTENCE}: attention alone sees a set of words, and does not know who gave.
Schemes tell it where the words are, each in another way. Embeddings are random, nothing is trained,
and a change is relative to the largest number.

swap        {SWAP[0]} and {SWAP[1]} change places: the largest change of the output for the other words.
            0: the order is not seen.
+1, +10^6   {SCORED_WORDS} words move to later positions: the largest change of the logits.
            0: only distances count; -: the scheme ends before; empty: no positions are read.
"""
MEGABYTES = f"MB          memory that attention over {MEASURED_WORDS} words allocates besides its result\n"
NEXT = """
All schemes:          python -m posenc --all
Pictures and slides:  python examples/tour --open [FILE], in a clone; needs matplotlib
Manual:               docs/index.md in a clone, or help(posenc.rope) in Python
For a bug report:     python -m posenc info"""


# ---- schemes ----


class Scheme(NamedTuple):
    """One way for positions to enter attention."""

    name: str
    enters: str
    encode: Callable[[Array, Array], Array] = lambda x, p: x
    """(embeddings (N, MODEL), positions (N,)) -> embeddings with positions."""
    rotate: Callable[[Array, Array, bool], Array] = lambda x, p, is_key: x
    """(q or k (H, N, WIDTH), positions (N,), True for k) -> rotated q or k."""
    bias: Callable[[int], PositionBias | ContentBias | None] = lambda n: None
    """Number of words -> the operator on the logits, if there is one."""
    is_causal: bool = False
    """True if a query does not see later keys."""
    reads_positions: bool = True
    """False if the scheme is the same at all positions."""


def random(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def random32(seed: int, *shape: int) -> Array:
    """Random float32 numbers in place of learned ones; vectors are about as long as embeddings."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def smooth(seed: int, rows: int, *shape: int) -> Array:
    """Random float32 numbers (rows, *shape) that change slowly from row to row, as those of learned tables do."""
    waves = posenc.sinusoidal(rows, 32, frequencies=np.geomspace(0.2, 0.002, 16))
    return (waves @ random32(seed, 32, math.prod(shape)) / 4).reshape(rows, *shape)


def float32_cos_sin(positions: Array, dim: int) -> tuple[Array, Array]:
    """Compute angles as most code does: positions, frequencies and their products in float32."""
    angles = positions.astype(np.float32)[:, None] * posenc.sinusoidal_frequencies(dim).astype(np.float32)
    return np.cos(angles), np.sin(angles)


def complex_order(x: Array, positions: Array) -> Array:
    """Half of an embedding are amplitudes, the other half phases. Real parts are followed by imaginary parts."""
    z = posenc.complex_order(
        x[:, : MODEL // 2], posenc.sinusoidal_frequencies(MODEL), positions, phase=x[:, MODEL // 2 :]
    )
    return np.concatenate([z.real, z.imag], -1)


def convolved_2d(x: Array, positions: Array) -> Array:
    """The words fill a rectangle that is as nearly square as their number allows."""
    width = next(w for w in range(math.isqrt(len(x)), len(x) + 1) if len(x) % w == 0)
    return posenc.conv_position_2d(x, random32(1, MODEL, 3, 3) / 3, height=len(x) // width, width=width, residual=True)


def encodings(rows: int = MAX_WORDS) -> list[Scheme]:
    """Absolute encodings, with tables of this many rows. A new one is one more line here."""

    def merged(name: str, at: Callable[[Array], Array], mode: Literal["add", "mul1p"] = "add") -> Scheme:
        return Scheme(name, ADDED if mode == "add" else MULTIPLIED, lambda x, p: posenc.combine(x, at(p), mode=mode))

    def slope(t: float, p: Array) -> Array:
        """The derivative of the sinusoidal encoding: each pair is a complex number that rotates."""
        return (turns * p.view(np.complex64)).view(np.float32)

    def convolved(x: Array, p: Array) -> Array:
        return posenc.conv_position(x, random32(1, MODEL, 9) / 3, residual=True)

    w = posenc.sinusoidal_frequencies(MODEL).astype(np.float32)
    start, zeros = random32(1, MODEL), np.zeros(MODEL, np.float32)
    turns = -1j * w
    weight = np.float32(1.2) * posenc.shift_matrix(1, MODEL).astype(np.float32)  # rotations, enlarged against tanh
    inner, outer = random32(1, WIDTH, MODEL + 1) / np.float32(math.sqrt(MODEL)), random32(1, MODEL, WIDTH + 1) / WIDTH
    tables = {
        "learned": smooth(1, rows, MODEL),
        "recurrent": posenc.recurrent(start, weight, zeros, rows),
        "floater": posenc.floater(start, inner, zeros[:WIDTH], outer, zeros, rows, dt=0.05),
        "integrate": posenc.integrate(slope, posenc.sinusoidal(1, MODEL)[0], np.arange(rows)),
    }
    return [
        merged("sinusoidal", lambda p: posenc.sinusoidal(p, MODEL)),
        merged("  angles in float32", lambda p: np.stack(float32_cos_sin(p, MODEL)[::-1], -1).reshape(len(p), MODEL)),
        merged("hierarchical", partial(posenc.hierarchical, smooth(1, 32, MODEL))),
        *(merged(name, partial(posenc.learned, table)) for name, table in tables.items()),
        merged("combine", lambda p: posenc.sinusoidal(p, MODEL), "mul1p"),
        Scheme("complex_order", "rotates embeddings", complex_order),
        Scheme("conv_position", CONVOLVED, convolved, reads_positions=False),
        Scheme("conv_position_2d", CONVOLVED, convolved_2d, reads_positions=False),
    ]


def rotations() -> list[Scheme]:
    """Rotations of queries and keys. A new one is one more line here."""
    w, axes = posenc.rope_frequencies(WIDTH), posenc.axial_frequencies((WIDTH // 2, WIDTH // 2))
    mixed = posenc.mrope_frequencies(w, (11, 11, 10), interleaved=True)

    def grid(p: Array) -> Array:
        return np.stack([p // (LINE * LINES), p // LINE % LINES, p % LINE])

    rotated: dict[str, Callable[[Array, Array, bool], Array]] = {
        "rope": lambda x, p, key: posenc.rope(x, p, w, layout="half"),
        "  angles in float32": lambda x, p, key: posenc.rope_by_table(x, *float32_cos_sin(p, WIDTH), layout="half"),
        "rope_nd": lambda x, p, key: posenc.rope_nd(x, np.stack(np.divmod(p, LINE)), axes, layout="half"),
        "  M-RoPE": lambda x, p, key: posenc.rope_nd(x, grid(p), mixed, layout="half"),
        "xpos": lambda x, p, key: posenc.xpos(x, p, w, layout="half", center=int(p[len(p) // 2]), downscale=key),
    }
    return [Scheme(name, ROTATED, rotate=rotate) for name, rotate in rotated.items()]


def grid_table(extra: int) -> Array:
    """Return a table of `swin` that falls with the distance on the page, and rows of 1 for a class token."""
    dy, dx = np.indices((2 * LINES - 1, 2 * LINE - 1)) - np.array([LINES - 1, LINE - 1])[:, None, None]
    falling = -np.hypot(dy, dx).reshape(-1, 1) * posenc.alibi_slopes(HEADS)
    return np.concatenate([falling, np.ones((extra, HEADS))])


def operators() -> list[Scheme]:
    """Operators on the logits. A new one is one more line here."""

    def heads_first(seed: int, rows: int) -> Array:
        return smooth(seed, rows, HEADS, WIDTH).swapaxes(0, 1)

    def scheme(name: str, make: Callable[[int], PositionBias | ContentBias]) -> Scheme:
        small, causal = make(2), name in ("fox", "cope")
        enters = READS if isinstance(small, ContentBias) else BIAS
        once = make if "array" in name else cache(make)  # a layer without the operator makes its array (H, n, n) anew
        return Scheme(name, enters, bias=once, is_causal=causal, reads_positions=small.reads_positions)

    h, d, slopes = HEADS, WIDTH, posenc.alibi_slopes(HEADS)
    nearer = 0.3 * (np.arange(32)[:, None] % 16) * np.linspace(0, 1, h)  # T5's buckets of later keys follow the others
    made: dict[str, Callable[[int], PositionBias | ContentBias]] = {
        "alibi": lambda n: posenc.alibi(slopes),
        "beit": lambda n: posenc.beit(grid_table(3), LINES, LINE),
        "dense": lambda n: posenc.dense(random32(12, h, n, n)),
        "fire": lambda n: posenc.fire(random(1, 32, 1), random(2, 32), random(3, h, 32), np.zeros(h), 0.1, 64.0),
        "fox": lambda n: posenc.fox(-0.1 * random(4, h, MAX_WORDS) ** 2),
        "kerple_log": lambda n: posenc.kerple_log(slopes, slopes),
        "kerple_power": lambda n: posenc.kerple_power(slopes, slopes),
        "sandwich": lambda n: posenc.sandwich(h, d),
        "swin": lambda n: posenc.swin(grid_table(0), LINES, LINE),
        "t5": lambda n: posenc.t5(smooth(0, 32, h) - nearer, bidirectional=True),
        "tisa": lambda n: posenc.tisa(random(13, h, 5), 0.1 * random(14, h, 5), 16 * random(15, h, 5)),
        "toeplitz": lambda n: posenc.toeplitz(smooth(17, 2 * n - 1, h).T),
        "cope": lambda n: posenc.cope(smooth(6, 64, d) / 8),
        "deberta": lambda n: posenc.deberta(heads_first(7, 128), heads_first(8, 128)),
        "gated_distance": lambda n: posenc.gated_distance(2 * abs(smooth(19, n, h).T[..., None]), smooth(20, 63, 1)),
        "relative_key_query": lambda n: posenc.relative_key_query(smooth(16, 127, d) / 8),
        "shaw": lambda n: posenc.shaw(posenc.nezha_table(64, d)),
        "transformer_xl": lambda n: posenc.transformer_xl(heads_first(9, 129), random(10, h, d) / 4, random(11, h, d)),
        "tupe": lambda n: posenc.tupe(heads_first(18, n), heads_first(21, n)),
        "  alibi as an array": lambda n: posenc.dense(posenc.alibi(slopes).matrix(n).astype(np.float32, "C")),
    }
    return [scheme(name, make) for name, make in made.items()]


def all_schemes(rows: int = MAX_WORDS) -> list[Scheme]:
    """Return every scheme, for texts of up to this many words; the first two are attention without positions."""
    without = Scheme(NO_POSITIONS, "not given", reads_positions=False)
    return [without, without._replace(name=CAUSAL_MASK, is_causal=True), *encodings(rows), *rotations(), *operators()]


# ---- effects ----


@cache
def embedding(word: str) -> Array:
    """A random embedding (MODEL,), seeded by the word."""
    return random32(int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little"), MODEL)


def embeddings(words: Sequence[str]) -> Array:
    return np.stack([embedding(word) for word in words])


@cache
def projections() -> Array:
    """Random projections to queries, keys and values, (3, MODEL, MODEL)."""
    return random32(0, 3, MODEL, MODEL) / np.float32(math.sqrt(MODEL))


def project(x: Array) -> Array:
    """(N, MODEL) -> q, k and v, (3, HEADS, N, WIDTH)."""
    return np.ascontiguousarray(np.matmul(x, projections()).reshape(3, len(x), HEADS, WIDTH).swapaxes(1, 2))


@lru_cache(maxsize=2)
def without_positions(words: tuple[str, ...]) -> tuple[Array, Array]:
    """Embeddings of words and their q, k and v, which are the same for all schemes: of the scores and the memory."""
    x = embeddings(words)
    return x, project(x)


def attend(scheme: Scheme, qkv: Array | Sequence[Array], positions: Array) -> Array:
    """Attention with the rotation, the bias and the mask of a scheme, for q, k and v."""
    q, k = scheme.rotate(qkv[0], positions, False), scheme.rotate(qkv[1], positions, True)
    bias, causal = scheme.bias(len(positions)), scheme.is_causal
    return posenc.attention(q, k, qkv[2], bias=bias, causal=causal, q_positions=positions, k_positions=positions)


def change_by_swap(scheme: Scheme, words: Sequence[str], a: int, b: int) -> float:
    """Largest change of the other words' outputs when words a and b are swapped, relative to the largest output."""
    x, positions, order = embeddings(words), np.arange(len(words)), np.arange(len(words))
    order[[a, b]] = b, a
    before, after = (attend(scheme, project(scheme.encode(x[i], positions)), positions) for i in (positions, order))
    return float(abs(after - before)[:, order == positions].max() / abs(before).max())


def scores(scheme: Scheme, words: Sequence[str], positions: Array) -> Array:
    """The part of the logits that depends on positions.

    Products are computed in float64, so that only the operator rounds to float32.
    """
    (x, (q, k, _)), bias = without_positions(tuple(words)), scheme.bias(len(words))
    if isinstance(bias, PositionBias):
        return bias.matrix(len(words), q_positions=positions, k_positions=positions)
    if isinstance(bias, ContentBias):
        return bias.logits(q, k, q_positions=positions, k_positions=positions)
    left, right = scheme.rotate(q, positions, False), scheme.rotate(k, positions, True)
    if scheme.enters != ROTATED:  # embeddings of 0 give an encoding that is added
        left = right = scheme.encode(0 * x if scheme.enters == ADDED else x, positions)
    return left.astype(np.float64) @ right.astype(np.float64).swapaxes(-1, -2)


def change_by_shift(scheme: Scheme, words: Sequence[str], shift: int) -> float:
    """Largest change of the scores when all positions increase by `shift`, relative to the largest score."""
    before, after = (scores(scheme, words, np.arange(len(words)) + offset) for offset in (0, shift))
    return float(abs(after - before).max() / abs(before).max())


def extra_bytes(scheme: Scheme, words: Sequence[str]) -> int:
    """Peak of the memory that a layer with the scheme allocates, its result excepted."""
    (x, qkv), positions = without_positions(tuple(words)), np.arange(len(words))
    scheme.bias(len(words))  # operators are made once
    tracemalloc.start()
    results = scheme.encode(x, positions), attend(scheme, qkv, positions)  # a model keeps both
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak - results[1].nbytes


def amount(x: float) -> str:
    """Format a relative change: two decimals, one digit below 0.005, and 0 below `ROUNDING`."""
    return "0" if x < ROUNDING else f"{x:.0e}" if x < 0.005 else f"{x:.2f}"


def shifted(scheme: Scheme, words: Sequence[str], shift: int) -> str:
    """Format the change by a shift: empty without positions, "-" if the scheme ends before the new positions."""
    try:
        return amount(change_by_shift(scheme, words, shift)) if scheme.reads_positions else ""
    except IndexError:
        return "-"


def print_table(everything: bool) -> None:
    """Print the effects of the schemes, each as soon as it is computed."""
    sentence, words = SENTENCE.split(), re.findall(r"\w+", f"{SENTENCE} {posenc.__doc__}")
    print(f"posenc {posenc.__version__}: {posenc.runtime.isa()} kernels, {posenc.get_num_threads()} threads")
    print(LEGEND + MEGABYTES * everything)
    line = "{:24}{:24}{:>8}{:>8}{:>8}{:>8}" if everything else "{:16}{:60}{:>8}{:>8}{:>8}"
    print(line.format("", "positions are" if everything else "what it does", "swap", *SHIFTS, "MB"))
    for scheme in all_schemes(MEASURED_WORDS):
        if everything or scheme.name in KNOWN:
            does = scheme.enters if everything else KNOWN[scheme.name]
            swap = amount(change_by_swap(scheme, sentence, *map(sentence.index, SWAP)))
            shifts = [shifted(scheme, words[:SCORED_WORDS], shift) for shift in SHIFTS.values()]
            size = extra_bytes(scheme, (words * MEASURED_WORDS)[:MEASURED_WORDS]) / 1e6 if everything else 0
            print(line.format(scheme.name, does, swap, *shifts, f"{size:.2f}").rstrip(), flush=True)


# ---- a wrong rotation ----


def my_rope(x: Array, positions: Array) -> Any:
    angles = positions[:, None] * 10000.0 ** (-np.arange(0, 64, 2) / 64)
    cos, sin = (np.repeat(table, 2, axis=-1) for table in (np.cos(angles), np.sin(angles)))
    return x * cos + np.concatenate([-x[..., 32:], x[..., :32]], axis=-1) * sin


def print_check() -> None:
    """Print what the checker says about a wrong rotation."""
    print("\nIs this RoPE? posenc.check compares a function with the equation, and names the error.\n")
    call = '>>> print(posenc.check.rope(my_rope, dim=64, layout="half"))'
    print(inspect.getsource(my_rope), call, posenc.check.rope(my_rope, dim=64, layout="half"), sep="\n")


# ---- info ----


def contents(pattern: str) -> list[str]:
    """Return the texts of the files of the operating system by this pattern, if it has such files."""
    return [file.read_text(errors="replace").strip() for file in sorted(Path("/").glob(pattern))]


def info() -> str:
    """Describe the installation and the machine, for bug reports."""
    found = re.search(r"^model name\s*:\s*(.+)$", "".join(contents("proc/cpuinfo")), re.MULTILINE)
    model = found[1] if found else platform.processor() or "unknown model"
    blas = getattr(np.__config__, "CONFIG", {}).get("Build Dependencies", {}).get("blas", {})  # NumPy 1.25 or later
    lines = {
        "posenc": f"{posenc.__version__}, {Path(posenc.__file__).parent}",
        "isa": f"{posenc.runtime.isa()}, usable here: {', '.join(posenc.runtime.isas())}",
        "threads": str(posenc.get_num_threads()),
        "build": posenc.runtime.build_flags(),
        "cpu": f"{model}, {platform.machine()}, {os.cpu_count()} logical cores",
        "caches": ", ".join(contents("sys/devices/system/cpu/cpu0/cache/index*/size")) or "unknown",
        "python": f"{platform.python_version()} {platform.python_implementation()}, {platform.platform()}",
        "numpy": f"{np.__version__}, BLAS {blas.get('name', 'unknown')} {blas.get('version', '')}".strip(),
    }
    return "\n".join(f"{name:10}{value}" for name, value in lines.items())


# ---- commands ----


class Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line and exits with status 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def numbered(numbers: Sequence[int]) -> str:
    """Format 0, 1, 2, 7 as "0-2, 7"."""
    ends = zip((n for n in numbers if n - 1 not in numbers), (n for n in numbers if n + 1 not in numbers), strict=True)
    return ", ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in ends)


def shown(value: object) -> str:
    """Format a field of a layer."""
    return "-" if value in (None, False) else f"{value:g}" if isinstance(value, float) else str(value)


def layer_table(found: Sequence[Layer]) -> str:
    """Format layers as a table, with one row for all layers that do the same."""
    groups: dict[Layer, list[int]] = {}
    for layer in found:
        groups.setdefault(layer._replace(number=0, rotation=None), []).append(layer.number)
    rows: list[tuple[str, ...]] = [Layer._fields]
    for layer, numbers in groups.items():
        rotation = "yes" if layer.scaling else "not read" if layer.scale is None else "none"
        rows.append((numbered(numbers), layer.attention, rotation, *map(shown, layer[3:])))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def run_config(words: Sequence[str]) -> int:
    """Run ``python -m posenc config FILE``: a table of the layers, and what is probably wrong."""
    parser = Parser(prog=f"{PROGRAM} config", description="Print what each layer of a config.json does with positions.")
    parser.add_argument("file", metavar="FILE", help="a config.json")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            print(layer_table(posenc.layers(Path(parser.parse_args(words).file))))
    except (OSError, TypeError, ValueError) as error:
        parser.error(str(error))
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        print(f"Probably wrong: {text.removeprefix('layers: ')}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``python -m posenc``."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["check"]:
        return posenc.check.run_command(Parser(prog=f"{PROGRAM} check"), words[1:])
    if words[:1] == ["config"]:
        return run_config(words[1:])
    parser = Parser(prog=PROGRAM, description="Print what eight schemes do to a sentence.")
    about = "info: describe the installation and the machine, for bug reports; check: check an implementation; config:"
    about = f"{about} describe the layers of a config.json; see {PROGRAM} COMMAND --help"
    parser.add_argument("command", nargs="?", choices=("info", "check", "config"), help=about)
    parser.add_argument("--all", action="store_true", help="print the effects of all schemes on a text, as a table")
    parser.add_argument("--version", action="version", version=f"posenc {posenc.__version__}")
    asked = parser.parse_args(words)
    if asked.command == "info":
        print(info())
    else:
        print_table(asked.all)
        if not asked.all:
            print_check()
        print(NEXT)
    return 0


def command(run: Callable[[], int] = main, program: str = PROGRAM) -> NoReturn:
    """Run a program and exit with its status."""
    if sys.stdout is None:  # closed by the caller
        sys.exit(f"{program}: standard output is closed")
    try:
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal may lack the characters
        status = run()
        sys.stdout.flush()
        sys.exit(status)
    except KeyboardInterrupt:
        print(f"\n{program}: interrupted", file=sys.stderr)
        sys.exit(130)
    except OSError as error:  # a full disk, or a pipe that its reader has closed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python reports an error when it flushes
        sys.exit(1 if isinstance(error, BrokenPipeError) else f"{program}: {error}")


if __name__ == "__main__":
    command()
