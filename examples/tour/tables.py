"""Tables of the tour: one of the operators, and one of the other functions."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from posenc.__main__ import (
    CAUSAL_MASK,
    HEADS,
    NO_POSITIONS,
    ROUNDING,
    SCORED_WORDS,
    SHIFTS,
    WIDTH,
    Scheme,
    amount,
    attend,
    change_by_swap,
    embeddings,
    extra_bytes,
    project,
    shifted,
)

from .functions import functions
from .terminal import Cell, Table
from .text import Text, labels

TIMED_SECONDS = 0.25
"""Time that is spent on the measurement of each layer."""
SHOWN = (NO_POSITIONS, CAUSAL_MASK, "sinusoidal", "learned", "rope", "alibi", "t5", "shaw")
"""Names of the rows that are printed; index.html has all rows."""

Step = Callable[[str], None]
"""Called with a description at the start of each step."""


def layer(scheme: Scheme, words: Sequence[str]) -> Callable[[], object]:
    """A layer of attention with the operator. NumPy's projections are computed before, once."""
    x, positions = embeddings(words), np.arange(len(words))
    qkv = project(x)
    return lambda: (scheme.encode(x, positions), attend(scheme, qkv, positions))


def least_seconds(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Least time of each call. The calls take turns, so that other load on the machine slows all of them."""
    times: list[list[float]] = [[] for _ in calls]
    while len(times[0]) < 3 or sum(map(sum, times)) < TIMED_SECONDS * len(calls):
        for call, of_call in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            of_call.append(time.perf_counter() - start)
    return [min(of_call) for of_call in times]


def cells_of_shifts(scheme: Scheme, words: Sequence[str]) -> list[Cell]:
    """Cells with the change of a scheme's scores by each shift; empty if the scores do not depend on positions."""
    known = {"": Cell(""), "-": Cell("-", "dim"), "0": Cell("0", "good")}
    changes = [shifted(scheme, words, shift) for shift in SHIFTS.values()]
    return [known.get(change, Cell(change, "bad")) for change in changes]


def operators_table(schemes: Sequence[Scheme], text: Text, step: Step) -> Table:
    """A row for each scheme: the effect of a swap and of a shift, and the cost of a layer."""
    words, a, b = text.drawn
    step("time and memory")
    seconds = least_seconds([layer(scheme, text.words) for scheme in schemes])
    extra = [extra_bytes(scheme, text.words) for scheme in schemes]
    rows = []
    for scheme, least, size in zip(schemes, seconds, extra, strict=True):
        step(scheme.name)
        change = change_by_swap(scheme, words, a, b)
        causal = ", causal" if scheme.is_causal and scheme.name != CAUSAL_MASK else ""
        rows.append((
            Cell(scheme.name), Cell(scheme.enters + causal),
            Cell(amount(change), "good" if change > ROUNDING else "bad"),
            *cells_of_shifts(scheme, text.words[:SCORED_WORDS]), Cell(f"{1e3 * least:.2f}"), Cell(f"{size / 1e6:.2f}"),
        ))  # fmt: skip
    n, scored = len(text.words), len(text.words[:SCORED_WORDS])
    return Table(
        "Every operator",
        ("", "operation", " <-> ".join(labels([words[a], words[b]], 8)), *SHIFTS, "ms", "MB"),
        rows,
        f'{words[a]} <-> {words[b]}: these words of "{" ".join(words)}" change places; the largest change of '
        f"attention's output for the other words, relative to the largest output. {', '.join(SHIFTS)}: the first "
        f"{scored} words move to later positions; the largest change of the part of the scores that depends on "
        f"positions, relative to the largest number of this part. 0 is a change below {ROUNDING:g}, which is rounding; "
        "- is a table that ends before these positions. On a page of lines (rope_2d, rope_nd, mrope, swin, beit), a "
        "shift by 1 moves words to other lines. FIRE divides distances by the position of the query. Embeddings and "
        "projections are random: nothing is trained. ms: the least time of a call of posenc.attention with the "
        f"operator; N = {n:,} words, {HEADS} heads of {WIDTH} channels, float32. MB: the most memory that the call "
        "allocates besides its result.",
        text_columns=2,
    )


def short_table(table: Table) -> Table:
    """The rows that are printed."""
    rows = [row for row in table.rows if row[0].text in SHOWN]
    note = (
        "Changes of the other words' outputs if two words change places, and of the scores if the text moves to later "
        f"positions; time and memory of a layer. index.html explains the columns and has all {len(table.rows)} rows."
    )
    return table._replace(title="Effects of positions", rows=rows, note=note)


def functions_table(text: Text, step: Step) -> Table:
    step("the other functions")
    words = text.words[:SCORED_WORDS]
    rows = [(Cell(name), Cell(what), Cell(number)) for name, (what, number) in functions(words).items()]
    return Table(
        "The other functions, a number from each",
        ("", "meaning", "number"),
        rows,
        f"Functions of words are computed from the first {len(words)} words in float32. A difference is the largest "
        "difference of two results, relative to the largest number of the expected result.",
        text_columns=2,
    )
