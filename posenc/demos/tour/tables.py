"""Tables of the tour: one of the operators, and one of the other functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .functions import functions
from .measure import ROUNDING, change_by_shift, change_by_swap, extra_bytes, layer, least_seconds
from .schemes import CAUSAL_MASK, HEADS, NO_POSITIONS, WIDTH, Scheme
from .terminal import Cell, Table
from .text import Text, labels

SCORED_WORDS = 128
"""Number of words whose scores are compared before and after a shift."""
SHIFTS = {"+1": 1, "+10^6": 10**6}
SHOWN = (NO_POSITIONS, CAUSAL_MASK, "sinusoidal", "learned", "rope", "alibi", "t5", "shaw")
"""Names of the rows that are printed; index.html has all rows."""

Step = Callable[[str], None]
"""Called with a description at the start of each step."""


def amount(x: float) -> str:
    """Format a relative change: two decimals, one digit below 0.005, and 0 below `ROUNDING`."""
    return "0" if x < ROUNDING else f"{x:.0e}" if x < 0.005 else f"{x:.2f}"


def cells_of_shifts(scheme: Scheme, words: Sequence[str]) -> list[Cell]:
    """Cells with the change of a scheme's scores by each shift; empty if the scores do not depend on positions."""
    if not scheme.score or scheme.ignores_positions:
        return [Cell("") for _ in SHIFTS]
    changes = [
        None if shift + len(words) > scheme.end else change_by_shift(scheme, words, shift) for shift in SHIFTS.values()
    ]
    return [
        Cell("-", "dim") if change is None else Cell(amount(change), "good" if change < ROUNDING else "bad")
        for change in changes
    ]


def operators_table(schemes: Sequence[Scheme], text: Text, step: Step) -> Table:
    """A row for each scheme: the effect of a swap and of a shift, and the cost of a layer."""
    words, a, b = text.drawn
    step("time and memory")
    layers = [layer(scheme, text.words) for scheme in schemes]
    seconds, extra = least_seconds(layers), [extra_bytes(call) for call in layers]
    rows = []
    for scheme, time, size in zip(schemes, seconds, extra, strict=True):
        step(scheme.name)
        change = change_by_swap(scheme, words, a, b)
        rows.append((
            Cell(scheme.name), Cell(scheme.enters + (", causal" if scheme.is_causal and scheme.score else "")),
            Cell(amount(change), "good" if change > ROUNDING else "bad"),
            *cells_of_shifts(scheme, text.words[:SCORED_WORDS]), Cell(f"{1e3 * time:.2f}"), Cell(f"{size / 1e6:.2f}"),
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
