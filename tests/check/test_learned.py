"""The check of learned positions: right implementations, and planted errors."""

from functools import partial

import numpy as np
import pytest

import posenc
from posenc import check

RNG = np.random.default_rng(3)
TABLE = RNG.standard_normal((14, 16)).astype(np.float32)
IMAGE = RNG.standard_normal((25, 16))
PADDED = np.array([[-1, -1, -1, 0, 1, 2, 3, 4], np.arange(8)])
"""Positions of RoBERTa: those of padding are -1."""
GRID = {"n": (6, 9), "grid": (4, 6), "prefix": 1}
learned = partial(check.learned, table=TABLE)
image = partial(check.learned, table=IMAGE, **GRID)


def on_line(places):
    """Interpolate the table at places between its rows."""
    first = np.clip(places.astype(int), 0, 12)
    share = (places - first)[:, None]
    return (1 - share) * TABLE[first] + share * TABLE[first + 1]


def resampled(table=TABLE, n=20, **options):
    return posenc.interpolate_table(table, n, **options)


def of_image(**options):
    return resampled(IMAGE, **{**GRID, **options})


RIGHT = [
    partial(learned, lambda p: TABLE[p]),
    partial(learned, TABLE),
    partial(learned, lambda p: TABLE[p + 2], offset=2),
    partial(learned, lambda p: TABLE[p + 2], offset=2, positions=PADDED),
    partial(learned, lambda p: TABLE.astype(np.float16)[p]),
    partial(learned, lambda p: TABLE[None, :9], positions=9),
    partial(learned, on_line(np.arange(20) * 13 / 19), n=20),
    partial(learned, lambda p: on_line(np.clip((p + 0.5) * 14 / 20 - 0.5, 0, 13))[p], n=20, corners=False),
    partial(image, of_image(method="cubic"), method="cubic"),
    partial(image, of_image(antialias=True).astype(np.float32), antialias=True),
    partial(check.learned, np.arange(48.0).reshape(12, 4), np.arange(48.0).reshape(3, 4, 4)),
]


@pytest.mark.parametrize("run", RIGHT)
def test_a_right_lookup_is_not_accused(run):
    run().assert_right()


WRONG = {  # sentence: call
    "at position 0, has row 0 of the table; expected row 2. Position p has row p, not row p + 2.":
        partial(learned, lambda p: TABLE[p], offset=2),
    "Position p has row p + 1, not row p + 2.": partial(learned, lambda p: TABLE[p + 1], offset=2, positions=PADDED),
    "Token i has row i + 2, whatever its position.":
        partial(learned, np.stack([TABLE[2:10]] * 2), offset=2, positions=PADDED),
    "Position p has row min(p, 9), not row p.": partial(learned, lambda p: TABLE[np.minimum(p, 9)]),
    "Where row r is expected, it is row min(r, 9).": partial(learned, lambda p: TABLE[np.minimum(p + 2, 9)], offset=2),
    "Position p has row p mod 8, not row p.": partial(learned, lambda p: TABLE[p % 8]),
    "Position p has row 13 - p, not row p.": partial(learned, TABLE[::-1]),
    "Token i has row i, whatever its position.": partial(learned, lambda p: TABLE[: len(p)]),
    "The rows are multiplied by 4 (sqrt(the width)); expected 1.": partial(learned, lambda p: 4 * TABLE[p]),
    "The rows are multiplied by 2: they are added twice; expected 1.": partial(learned, 2 * TABLE),
    "The vectors of the tokens 1 are at no place of the table. They are 0.":
        partial(learned, TABLE * (np.arange(14) != 1)[:, None]),
    "The places are the centres of intervals": partial(learned, resampled(corners=False), n=20),
    "The first and the last position keep their rows": partial(learned, resampled(), n=20, corners=False),
    "The filter is stretched (antialias)": partial(learned, resampled(n=9, antialias=True), n=9, corners=False),
    "The table is not resampled": partial(learned, TABLE[:9], n=9),
    "All are whole rows: the filter takes the nearest row.": partial(learned, TABLE[np.arange(20) * 14 // 20], n=20),
    "Position p has row 0.65 p, not row 0.68421 p.": partial(learned, on_line(np.arange(20) * 13 / 20), n=20),
    "The rows and columns of the grid are exchanged.": partial(image, of_image(grid=(6, 4))),
    "The filter is linear; expected cubic.": partial(image, of_image(), method="cubic"),
    "numbered down the columns": partial(image, np.concatenate([
        IMAGE[:1], of_image()[1:].reshape(6, 9, 16).swapaxes(0, 1).reshape(54, 16)])),
    "The first rows (class tokens) come last.": partial(image, np.roll(of_image(), -1, 0)),
    "are resampled with the others": partial(learned, resampled(n=20), n=18, prefix=2),
    "The result has shape (10, 16); expected (14, 16).": partial(learned, TABLE[:10]),
}  # fmt: skip


@pytest.mark.parametrize("sentence", WRONG)
def test_an_error_of_a_lookup_is_named(sentence):
    report = WRONG[sentence]()
    assert not report
    assert sentence in str(report)


def test_two_errors_of_a_lookup():
    report = learned(lambda p: 4 * TABLE[p], offset=2)
    assert [one.part for one in report.readings] == ["size", "rows"]


def test_a_position_without_a_row_is_refused():
    with pytest.raises(IndexError, match=r"check.learned: positions has 0 .. 19; expected 0 .. 13"):
        learned(TABLE, positions=20)


def test_a_large_table_is_read_in_parts():
    large = RNG.standard_normal((5000, 64)).astype(np.float32)
    (cause,) = check.learned(lambda p: large[np.minimum(p, 4000)], large).causes
    assert "Position p has row min(p, 4000), not row p." in cause.sentence
