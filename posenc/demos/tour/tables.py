"""Tables of the tour: swapped words, shifted texts, cost, and the other functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .functions import functions
from .measure import ROUNDING, as_dense, change_by_shift, change_by_swap, extra_bytes, layer, least_seconds
from .schemes import HEADS, WIDTH, Scheme
from .terminal import Cell, Table
from .text import SWAPS, Swap, Text, first_and_last, words_of

SCORED_WORDS = 128
"""Words whose scores are compared after a shift."""
SHIFTS = {"+1": 1, "+10^6": 10**6, "+2^24": 2**24}

Step = Callable[[str], None]
"""Called with a description at the start of each step."""


def amount(x: float) -> str:
    return "0" if x == 0 else f"{x:.0e}" if x < 1e-3 else f"{x:.2g}"


def swap_table(schemes: Sequence[Scheme], text: Text, step: Step) -> Table:
    swaps = [Swap(words_of(sentence), a, b) for sentence, a, b in SWAPS]
    if text.words:
        swaps.append(first_and_last(text.words))
    rows = []
    for scheme in schemes:
        step(f"{scheme.name}: two words change places")
        cells = [Cell(scheme.name), Cell(scheme.enters)]
        for words, a, b in swaps:
            change = change_by_swap(scheme, words, a, b)
            noticed = change > ROUNDING
            cells.append(Cell(f"{'yes' if noticed else 'no'}, {amount(change)}", "good" if noticed else "bad"))
        rows.append(tuple(cells))
    header = ("", "operation", *(f"{words[a]:.12} <-> {words[b]:.12}" for words, a, b in swaps))
    return Table(
        "Two words change places. Do the outputs of the other words change?",
        header,
        rows,
        "Largest change of attention's output for the words that stay in place, relative to the largest output. "
        "Without positions only rounding errors remain: attention by itself cannot tell who gave the photo to whom. "
        "Embeddings are random, one for each different word, and so are the projections: nothing is trained.",
        text_columns=2,
    )


def shift_table(schemes: Sequence[Scheme], text: Text, step: Step) -> Table:
    words = (text.words or words_of(SWAPS[0][0]))[:SCORED_WORDS]
    rows, without = [], []
    for scheme in schemes:
        if not scheme.score:
            continue
        if scheme.ignores_positions:
            without.append(scheme.name)
            continue
        step(f"{scheme.name}: the text is shifted")
        for one in (scheme, scheme.naive) if scheme.naive else (scheme,):
            cells = [Cell(one.name, "" if one is scheme else "dim"), Cell(one.score)]
            for shift in SHIFTS.values():
                if shift + len(words) > scheme.end:
                    cells.append(Cell("no position", "dim"))
                    continue
                change = change_by_shift(one, words, shift)
                cells.append(Cell(amount(change), "good" if change < ROUNDING else "bad"))
            rows.append(tuple(cells))
    return Table(
        "The whole text moves to later positions. Do the scores change?",
        ("", "score", *SHIFTS),
        rows,
        "Largest change of the part of the scores that depends on positions, relative to the largest score. Where it "
        "is a function of distance, only rounding errors remain. This holds for products of sinusoids too, although a "
        "word plus its sinusoid depends on the absolute position. Products of learned vectors, and of vectors that are "
        "computed one from the other, are not functions of distance; their tables end before the larger shifts (no "
        "position). FIRE normalises distances by the position of the query, FoX sums the gates of positions, and CoPE "
        "counts gates of the words, which move along. On a page of lines, other words begin a line after a shift "
        "(rope_2d, mrope, swin). Most code computes angles as position times frequency in float32; these lose digits "
        "as positions grow."
        + (f" Not in the table, because they read no positions: {', '.join(without)}." if without else ""),
        text_columns=2,
    )


def cost_table(schemes: Sequence[Scheme], text: Text, step: Step) -> Table:
    words = text.words or words_of(SWAPS[0][0])
    step("time and memory")
    biases = [scheme for scheme in schemes if scheme.bias]
    layers = {scheme.name: layer(scheme, words) for scheme in (*schemes, *map(as_dense, biases[:1]))}
    extra = [extra_bytes(call) for call in layers.values()]
    seconds = least_seconds(list(layers.values()))
    return Table(
        f"Cost of a layer: N = {len(words):,} words, {HEADS} heads of {WIDTH} channels, float32",
        ("", "ms per call", "extra MB"),
        [
            (Cell(name), Cell(f"{1e3 * t:.2f}"), Cell(f"{b / 1e6:.2f}"))
            for name, t, b in zip(layers, seconds, extra, strict=True)
        ],
        "A call of posenc.attention with the operator: the least time of several calls, and the memory that one call "
        "allocates besides its result. Differences of a few per cent are noise.",
    )


def functions_table(text: Text, step: Step) -> Table:
    step("the other functions")
    words = (text.words or words_of(SWAPS[0][0]))[:SCORED_WORDS]
    rows = [(Cell(name), Cell(what), Cell(number)) for name, (what, number) in functions(words).items()]
    return Table(
        "The other functions, a number from each",
        ("", "meaning", "number"),
        rows,
        f"Computed from the first {len(words)} words in float32. The difference of two results is the largest one, "
        "relative to the largest number.",
        text_columns=2,
    )
