"""The tables: what operators do to words that change places or move, what they cost, and what the rest is for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .measure import (
    ROUNDING,
    change_by_shift,
    change_by_swap,
    dense_layer,
    extra_bytes,
    fastest,
    layer,
)
from .others import others
from .schemes import HEADS, WIDTH, Scheme
from .terminal import Cell, Table
from .text import PAIRS, Text, words_of

SCORED = 128
"""Words whose scores are compared after a shift."""
SHIFTS = {"+1": 1, "+10^6": 10**6, "+2^24": 2**24}


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
        texts=2,
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
        "that are learned, or that follow from each other, know no distance, and those of a table end with it. FIRE "
        "measures distances by where the query stands, FoX by gates, and a text that is laid out in lines breaks "
        "elsewhere (rope_2d, mrope, swin). The usual formula multiplies position and frequency in float32, where the "
        "angle loses its digits as the position grows.",
        texts=2,
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


def others_table(text: Text, step: Callable[[str], None]) -> Table:
    step("the other functions")
    words = (text.words or words_of(PAIRS[0][0]))[:SCORED]
    rows: list[tuple[Cell, ...]] = [
        (Cell(name), Cell(what), Cell(number())) for name, (what, number) in others(words).items()
    ]
    return Table(
        "And the others: what each says",
        ("", "what", "number"),
        rows,
        f"On the first {len(words)} words, in float32. How far a result is from another is relative to the largest "
        "number.",
        texts=2,
    )
