"""The tour: what each way of telling attention where a word stands does to real text.

A `Scheme` says how an operator enters attention: added to the embeddings, turning queries and keys, or added to the
logits. Encodings and rotations have a line each in `schemes`; biases are found by themselves. Everything is seeded by
the words, so that the same text gives the same numbers.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import math
import re
import sys
import textwrap
import time
import tracemalloc
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import posenc

from . import _core
from ._call import Array
from .bias.operator import Bias, arrays_of

HEADS, WIDTH = 8, 64
MODEL = HEADS * WIDTH
"""A word is a vector of so many numbers; attention has HEADS heads of WIDTH channels."""
LONGEST, SCORED = 1024, 128
"""Words of the text that are used, and those of them whose scores are compared after a shift."""
SHIFTS = {"+1": 1, "+10^6": 10**6, "+2^24": 2**24}
ROUNDING = 1e-5
"""Relative differences of float32 results below this are rounding."""

# ---- text ----

HAN = "\u3005\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
WORD = re.compile(rf"[{HAN}]|[^\W{HAN}]+(?:['\u2019-][^\W{HAN}]+)*")
PAIRS = (("Jack gave a photo to Molly", 0, 5), ("我爱中国", 0, 1))
"""Sentences, and which two of their words change places: Molly gave a photo to Jack, 爱我中国."""


class Text(NamedTuple):
    """What the words are, how many, and the first LONGEST of them; none where there is nothing but the pairs."""

    name: str
    total: int
    words: tuple[str, ...]


def words_of(text: str) -> tuple[str, ...]:
    """English by words, Chinese by characters."""
    return tuple(WORD.findall(text))


def of_user(name: str, text: str) -> Text:
    words = words_of(text)
    if not words:
        raise ValueError(f"{name}: no words in it")
    used = words[:LONGEST]
    if len(used) < 3 or len(set(used)) < 2:
        raise ValueError(f"{name}: {len(used)} words, {len(set(used))} different; at least 3 are needed, 2 different")
    return Text(name, len(words), used)


def embedded() -> Text:
    """The reference texts that ship inside Python, where they do."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return Text("two sentences only, this Python came without pydoc_data.topics", 0, ())
    words = words_of("\n".join(topics[key] for key in sorted(topics)))
    return Text("Python's reference (pydoc_data.topics)", len(words), words[:LONGEST])


def embeddings(words: Sequence[str]) -> Array:
    """(N, MODEL): random numbers that depend on the word alone."""
    vectors = {}
    for word in set(words):
        seed = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
        vectors[word] = np.random.default_rng(seed).standard_normal(MODEL, np.float32)
    return np.stack([vectors[word] for word in words])


# ---- schemes ----


class Scheme(NamedTuple):
    """One way for positions to enter attention, and its score: the part of the logits that they decide."""

    name: str
    enters: str
    score: str = ""
    add: Callable[[Array], Array] | None = None
    """positions (N,) -> (N, MODEL), added to the embeddings."""
    turn: Callable[[Array, Array], Array] | None = None
    """x (H, N, WIDTH), positions (N,) -> x: applied to queries and to keys."""
    bias: tuple[Bias, ...] = ()
    """Added to the logits."""
    usual: Callable[[Array], Array] | Callable[[Array, Array], Array] | None = None
    """`add` or `turn` as it is usually written, in float32."""
    ends: int = 2**53
    """The first position that it does not have."""


def usual_angles(positions: Array, dim: int) -> Array:
    """The formula of most code: positions, frequencies and their product in float32."""
    return positions.astype(np.float32)[:, None] * posenc.frequencies(dim).astype(np.float32)


def usual_sinusoidal(positions: Array) -> Array:
    angles = usual_angles(positions, MODEL)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(len(positions), MODEL)


def usual_rope(x: Array, positions: Array) -> Array:
    angles = usual_angles(positions, WIDTH)
    return posenc.rope(x, (np.cos(angles), np.sin(angles)), layout="half")


@cache
def numbers(*shape: int) -> Array:
    """Random numbers in place of what would be learned: vectors about as long as those of words."""
    made: Array = np.random.default_rng(1).standard_normal(shape, np.float32)
    return made


@cache
def walks() -> dict[str, Array]:
    """Encodings that go from one position to the next, at the first LONGEST."""
    start, weight = numbers(MODEL), numbers(MODEL, MODEL) / np.float32(math.sqrt(MODEL))
    inner, outer = numbers(WIDTH, MODEL + 1) / np.float32(math.sqrt(MODEL)), numbers(MODEL, WIDTH + 1) / WIDTH
    zeros = np.zeros(MODEL, np.float32)
    return {
        "recurrent": posenc.recurrent(start, weight, zeros, LONGEST),
        "floater": posenc.floater(start, inner, zeros[:WIDTH], outer, zeros, LONGEST),
    }


def schemes() -> list[Scheme]:
    """Every operator that the tour can show. A new encoding or rotation is one more line here."""
    rotary = posenc.rope_frequencies(WIDTH)
    added = ("added to the words", "p_i . p_j")
    return [
        Scheme("none", "-"),
        Scheme("sinusoidal", *added, add=lambda p: posenc.sinusoidal(p, MODEL), usual=usual_sinusoidal),
        Scheme("learned", *added, add=lambda p: posenc.learned(numbers(LONGEST, MODEL), p), ends=LONGEST),
        Scheme("hierarchical", *added, add=lambda p: posenc.hierarchical(numbers(LONGEST, MODEL), p), ends=LONGEST**2),
        *(Scheme(name, *added, add=partial(posenc.learned, rows), ends=LONGEST) for name, rows in walks().items()),
        Scheme("rope", "turns q and k", "q_i . k_j", turn=lambda x, p: posenc.rope(x, p, rotary, layout="half"),
               usual=usual_rope),
        *(Scheme(name, "added to the logits", "b_ij", bias=(bias,)) for name, bias in biases()[0].items()),
    ]  # fmt: skip


ARGUMENTS: dict[str, Any] = {
    "heads": HEADS, "dim": WIDTH,
    # the network of FIRE, 32 units
    "w1": np.random.default_rng(1).standard_normal((32, 1)), "b1": np.random.default_rng(2).standard_normal(32),
    "w2": np.random.default_rng(3).standard_normal((HEADS, 32)), "b2": np.zeros(HEADS), "c": 0.1, "threshold": 64.0,
}  # fmt: skip
"""Values for arguments of biases, by name; the arrays of a DISTANCE row need none, see `argument`."""


def argument(row: str, name: str) -> Any:
    """A value for an argument of a bias; KeyError where only the user has one."""
    if name in ARGUMENTS:
        return ARGUMENTS[name]
    if f"{row}_vjp" not in _core.table():
        raise KeyError(name)
    axes = dict(arrays_of(row))[name]
    if axes == "h":
        return posenc.alibi_slopes(HEADS)
    return np.random.default_rng(0).standard_normal([HEADS if axis == "h" else 32 for axis in axes])


def biases() -> tuple[dict[str, Bias], list[str]]:
    """Every public function that returns a Bias: the biases, and the names of those that need the user's numbers."""
    made, rest = {}, []
    for name in posenc.__all__:
        function = getattr(posenc, name)
        if not inspect.isfunction(function) or function.__annotations__.get("return") != "Bias":
            continue
        required = [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty]
        try:
            made[name] = function(*(argument(name, one) for one in required))
        except KeyError:
            rest.append(name)
    return made, rest


# ---- measuring ----


@cache
def weights() -> Array:
    """Projections to queries, keys and values."""
    numbers: Array = np.random.default_rng(0).standard_normal((3, MODEL, MODEL), np.float32)
    return numbers / np.float32(math.sqrt(MODEL))


def project(x: Array) -> Array:
    """(N, MODEL) -> q, k, v, each (HEADS, N, WIDTH)."""
    return np.ascontiguousarray(np.matmul(x, weights()).reshape(3, len(x), HEADS, WIDTH).swapaxes(1, 2))


def encode(scheme: Scheme, x: Array, positions: Array) -> Array:
    return x if scheme.add is None else x + scheme.add(positions)


def attend(scheme: Scheme, q: Array, k: Array, v: Array, positions: Array) -> Array:
    if scheme.turn is not None:
        q, k = scheme.turn(q, positions), scheme.turn(k, positions)
    out: Any = posenc.attention(q, k, v, bias=scheme.bias, q_positions=positions, k_positions=positions)
    return np.asarray(out)


def output(scheme: Scheme, words: Sequence[str]) -> Array:
    positions = np.arange(len(words))
    q, k, v = project(encode(scheme, embeddings(words), positions))
    return attend(scheme, q, k, v, positions)


def swapped(words: Sequence[str], a: int, b: int) -> list[str]:
    other = list(words)
    other[a], other[b] = other[b], other[a]
    return other


def change_by_swap(scheme: Scheme, words: Sequence[str], a: int, b: int) -> float:
    """How far the outputs of the other words move when two change places, as a part of the largest output."""
    before, after = output(scheme, words), output(scheme, swapped(words, a, b))
    others = np.delete(np.arange(len(words)), [a, b])
    return float(abs(after - before)[:, others].max() / abs(before).max())


def scores(scheme: Scheme, q: Array, k: Array, positions: Array, usual: bool = False) -> Array:
    """The part of the logits that positions decide; products in float64, so that only the operator rounds."""
    if scheme.bias:
        return scheme.bias[0].matrix(len(positions), q_positions=positions, k_positions=positions)
    function: Any = scheme.usual if usual else (scheme.add or scheme.turn)
    operands = [function(positions)] * 2 if scheme.add else [function(x, positions) for x in (q, k)]
    left, right = (operand.astype(np.float64) for operand in operands)
    product: Array = left @ right.swapaxes(-1, -2)
    return product


def change_by_shift(scheme: Scheme, words: Sequence[str], shift: int, usual: bool = False) -> float:
    """How far the scores move when the whole text begins `shift` later, as a part of the largest score."""
    q, k, _ = project(embeddings(words))
    positions = np.arange(len(words))
    here, there = (scores(scheme, q, k, positions + by, usual) for by in (0, shift))
    return float(abs(there - here).max() / abs(here).max())


def fastest(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Seconds that each takes at best. They take turns, so that what else the machine does meets all of them."""
    times: list[list[float]] = [[] for _ in calls]
    while len(times[0]) < 3 or sum(map(sum, times)) < 0.6 * len(calls):
        for call, taken in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            taken.append(time.perf_counter() - start)
    return [min(taken) for taken in times]


def extra_bytes(call: Callable[[], Array]) -> int:
    """The most that arrays of a call take at one time, besides its result."""
    tracemalloc.start()
    try:
        size = call().nbytes
        return tracemalloc.get_traced_memory()[1] - size
    finally:
        tracemalloc.stop()


def layer(scheme: Scheme, words: Sequence[str]) -> Callable[[], Array]:
    """A layer of attention with the operator; the projections, which are NumPy's, are done before."""
    x, positions = embeddings(words), np.arange(len(words))
    q, k, v = project(x)

    def call() -> Array:
        encoded = encode(scheme, x, positions)  # kept until the end, as a model would
        out = attend(scheme, q, k, v, positions)
        del encoded
        return out

    return call


def dense_layer(scheme: Scheme, words: Sequence[str]) -> Callable[[], Array]:
    """The same with the bias as an array that has a number for each head, query and key."""
    n = len(words)
    q, k, v = project(embeddings(words))

    def call() -> Array:
        array = scheme.bias[0].matrix(n, out=np.empty((HEADS, n, n), np.float32))
        return attend(Scheme("", "", bias=(posenc.dense(array),)), q, k, v, np.arange(n))

    return call


# ---- tables ----


class Cell(NamedTuple):
    text: str
    style: str = ""


class Table(NamedTuple):
    """A question, the answer in rows, and what the numbers mean."""

    title: str
    header: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    note: str


def amount(x: float) -> str:
    return "0" if x == 0 else f"{x:.0e}" if x < 1e-3 else f"{x:.2g}"


def swap_table(plans: Sequence[Scheme], text: Text, step: Callable[[str], None]) -> Table:
    swaps = [(words_of(sentence), a, b) for sentence, a, b in PAIRS]
    if words := text.words:
        swaps.append((words, 0, max(i for i, word in enumerate(words) if word != words[0])))
    rows = []
    for scheme in plans:
        step(f"{scheme.name}: two words change places")
        cells = [Cell(scheme.name), Cell(scheme.enters)]
        for words, a, b in swaps:
            change = change_by_swap(scheme, words, a, b)
            seen = change > ROUNDING
            cells.append(Cell(f"{'yes' if seen else 'no'}, {amount(change)}", "good" if seen else "bad"))
        rows.append(tuple(cells))
    header = ("", "how it enters", *(f"{words[a]:.12} <-> {words[b]:.12}" for words, a, b in swaps))
    return Table(
        "Two words change places. Do the others notice?",
        header,
        rows,
        "How far attention's output of a word that stayed where it was moves, as a part of the largest output. Without "
        "positions it is rounding: attention alone cannot tell who gave the photo to whom. The words are real, their "
        "vectors and projections random, one for each different word: nothing is trained.",
    )


def shift_table(plans: Sequence[Scheme], text: Text, step: Callable[[str], None]) -> Table:
    words = (text.words or words_of(PAIRS[0][0]))[:SCORED]
    rows = []
    for scheme in plans:
        if not scheme.score:
            continue
        step(f"{scheme.name}: the text is shifted")
        for usual in (False, True) if scheme.usual else (False,):
            cells = [Cell("  usual float32 formula", "dim") if usual else Cell(scheme.name), Cell(scheme.score)]
            for shift in SHIFTS.values():
                if shift + len(words) > scheme.ends:
                    cells.append(Cell("not there", "dim"))
                    continue
                change = change_by_shift(scheme, words, shift, usual)
                cells.append(Cell(amount(change), "good" if change < ROUNDING else "bad"))
            rows.append(tuple(cells))
    return Table(
        "The whole text begins later. Do the scores move?",
        ("", "score", *SHIFTS),
        rows,
        "Only the part of a score that positions decide is compared. Where it depends on distance only, nothing moves "
        "but the last bit; a word plus its sinusoid still tells where it stands, which is what absolute means. Vectors "
        "that are learned, or that follow from each other, know no distance, and those of a table end with it; FIRE "
        "measures distances by where the query stands. The "
        "usual formula multiplies position and frequency in float32, where the angle loses its digits as the position "
        "grows.",
    )


def cost_table(plans: Sequence[Scheme], text: Text, step: Callable[[str], None]) -> Table:
    words = text.words or words_of(PAIRS[0][0])
    step("time and memory")
    layers = {scheme.name: layer(scheme, words) for scheme in plans}
    dense = next((scheme for scheme in plans if scheme.bias), None)
    if dense is not None:
        layers[f"{dense.name}, as an N x N array"] = dense_layer(dense, words)
    extra = [extra_bytes(call) for call in layers.values()]
    times = fastest(list(layers.values()))
    return Table(
        f"What does it cost? N = {len(words):,} words, {HEADS} heads of {WIDTH} channels, float32",
        ("", "ms per call", "extra MB"),
        [
            (Cell(name), Cell(f"{1e3 * t:.2f}"), Cell(f"{b / 1e6:.2f}"))
            for name, t, b in zip(layers, times, extra, strict=True)
        ],
        "A layer of posenc.attention with the operator: the fastest of several calls, and the arrays that one makes "
        "besides its result. Differences of a few per cent are noise.",
    )


def columns(text: str) -> int:
    """Places that a text takes in a terminal."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def plain(table: Table) -> str:
    lines = [table.header, *(tuple(cell.text for cell in row) for row in table.rows)]
    widths = [max(columns(line[i]) for line in lines) for i in range(len(table.header))]

    def line(cells: tuple[str, ...]) -> str:
        pads = [" " * (width - columns(cell)) for cell, width in zip(cells, widths, strict=True)]
        padded = [cell + pad if i < 1 else pad + cell for i, (cell, pad) in enumerate(zip(cells, pads, strict=True))]
        return ("  " + "  ".join(padded)).rstrip()

    return "\n".join([table.title, "", *map(line, lines), "", textwrap.fill(table.note, 100)])


STYLES = {"good": "green", "bad": "red", "dim": "dim", "": ""}


class Terminal:
    """Where the tour is shown: rich where it is installed, else plain text."""

    def __init__(self) -> None:
        self.console: Any = None
        if find_spec("rich"):
            from rich.console import Console

            self.console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)

    def say(self, text: str = "") -> None:
        if self.console is None:
            print(text, flush=True)
        else:
            self.console.print(text, markup=False, soft_wrap=True)

    def show(self, table: Table) -> None:
        if self.console is None:
            self.erase()
            print(plain(table), end="\n\n", flush=True)
            return
        from rich import box
        from rich.table import Table as Grid
        from rich.text import Text as Styled

        grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False)
        for i, name in enumerate(table.header):
            grid.add_column(Styled(name), justify="right" if i else "left", no_wrap=True)
        for row in table.rows:
            grid.add_row(*(Styled(cell.text, STYLES[cell.style]) for cell in row))
        self.console.print(table.title, style="bold")
        self.console.print(grid)
        self.console.print(table.note, style="italic", markup=False)
        self.console.print()

    @staticmethod
    def erase() -> None:
        """Remove the line of progress."""
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    @contextmanager
    def progress(self, steps: int) -> Iterator[Callable[[str], None]]:
        """A function to call at the beginning of each step; seen where there is a terminal."""
        if not sys.stderr.isatty():
            yield lambda description: None
        elif self.console is None:
            number = itertools.count(1)

            def step(description: str) -> None:
                self.erase()
                print(f"[{next(number)}/{steps}] {description}", end="", file=sys.stderr, flush=True)

            yield step
            self.erase()
        else:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            console = self.console if sys.stdout.isatty() else Console(stderr=True)
            with Progress(BarColumn(20), TextColumn("{task.description}"), console=console, transient=True) as bar:
                task = bar.add_task("", total=steps)
                yield lambda description: bar.update(task, advance=1, description=description)


# ---- pictures ----


def can_draw() -> bool:
    return find_spec("matplotlib") is not None


def sinusoid_figure() -> Any:
    from . import plot

    figure = plot.encoding(posenc.sinusoidal(128, 128, layout="halves"), layout="halves")
    figure.axes[0].set(xlabel="channel: 64 sines, then 64 cosines, fast to slow")
    figure.axes[0].set_title('posenc.sinusoidal(128, 128, layout="halves")')
    return figure


def attention_weights(scheme: Scheme, words: Sequence[str]) -> Array:
    """(N, N) of the first head: the output of attention where the values are the unit vectors."""
    positions = np.arange(len(words))
    q, k, _ = project(encode(scheme, embeddings(words), positions))
    units = np.broadcast_to(np.eye(len(words), dtype=np.float32), (HEADS, len(words), len(words)))
    weights: Array = attend(scheme, q, k, units, positions)[0]
    return weights


def order_figure(plans: Sequence[Scheme]) -> Any:
    """The attention maps of the two sentences, and what is between them word by word."""
    from . import plot

    sentence, a, b = PAIRS[0]
    words = words_of(sentence)
    other = swapped(words, a, b)
    back = np.arange(len(words))
    back[[a, b]] = b, a
    maps = {}
    for scheme in plans:
        first, second = attention_weights(scheme, words), attention_weights(scheme, other)
        maps["no positions" if scheme.name == "none" else scheme.name] = (
            first, second, second[np.ix_(back, back)] - first,
        )  # fmt: skip
    names = (" ".join(words), " ".join(other), "second - first, word by word")
    figure = plot.attention_maps(maps, (words, other, words), names)
    figure.suptitle("Attention weights of the first head (random vectors, nothing is trained)")
    return figure


def error_figure() -> Any:
    from . import plot

    return plot.precision()


def bias_figure(plans: Sequence[Scheme]) -> Any:
    """Each bias against distance, a line for each head."""
    from . import plot

    return plot.biases({f"posenc.{scheme.name}": scheme.bias[0] for scheme in plans if scheme.bias})


def pictures(plans: Sequence[Scheme]) -> list[tuple[str, str, Callable[[], Any]]]:
    """(file, what it shows, the function that draws it)"""
    found: list[tuple[str, str, Callable[[], Any]]] = [
        ("sinusoid.png", "the sinusoidal encoding, position by channel", sinusoid_figure),
        ("order.png", "who looks at whom, with and without positions", lambda: order_figure(plans)),
        ("float32-error.png", "what the usual float32 formula loses as positions grow", error_figure),
    ]
    if any(scheme.bias for scheme in plans):
        found.append(("bias.png", "each bias against distance, head by head", lambda: bias_figure(plans)))
    return found


# ---- the tour ----


def run(text: Text, directory: Path) -> None:
    """Measure, show, draw. The directory exists where matplotlib does."""
    terminal = Terminal()
    plans, figures = schemes(), can_draw()
    files = pictures(plans) if figures else []
    terminal.say(f"posenc {posenc.__version__}: {posenc.isa()} kernels, {posenc.get_num_threads()} threads")
    used = f", {text.total:,} words" + (f", the first {LONGEST:,} are used" if text.total > LONGEST else "")
    terminal.say(f"Text: {text.name}{used if text.words else ''}")
    if terminal.console is None:
        terminal.say('rich is not installed, so this is plain; for colours and a bar: pip install "posenc[tour]"')
    terminal.say()
    with terminal.progress(2 * len(plans) + len(files)) as step:
        for make in (swap_table, shift_table, cost_table):
            terminal.show(make(plans, text, step))
        for name, _, draw in files:
            step(name)
            draw().savefig(directory / name, dpi=120)
    missing = biases()[1]
    if missing:
        terminal.say(f"Not shown, because their numbers are yours: {', '.join(missing)}.")
    if figures:
        terminal.say(f"Pictures in {directory}:")
        for name, what, _ in files:
            terminal.say(f"  {name:18} {what}")
    else:
        terminal.say('No pictures: matplotlib is not installed (pip install "posenc[tour]").')
