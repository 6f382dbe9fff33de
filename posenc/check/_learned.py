"""The check of learned positions: rows of a table, which may be resampled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt

from .. import reference
from ._inputs import SEED, ToArray, call, converted, places
from ._judge import Case, Kind, as_numbers, hypotheses, judge
from ._laws import law, named, near, number, runs
from ._report import Array, Float64, Reading, Report, further

__tracebackhide__ = True  # pytest shows the line of the implementation

ORDER = "positions in another order"
LAWS = (
    "Position p has row {}, not row {}.",
    "Where row r is expected, it is row {}.",
    "Token i has row {}, whatever its position.",
)
READ_ROWS = 128
"""Most wrong rows, and most other rows, that are read."""


def true_rows(c: Case) -> Float64:
    """The rows of the table, or of the resampled one."""
    options = {name: c[name] for name in ("grid", "method", "corners", "antialias", "prefix")}
    table = c["table"] if c["n"] is None else reference.interpolate_table(c["table"], c["n"], **options)
    table = table.reshape(-1, table.shape[-1])
    return np.asarray(table[np.clip(c["rows"], 0, len(table) - 1)])


def _bound(c: Case, wanted: Float64, u: float) -> float:
    """A few roundings; places between the rows of a table are rounded, too."""
    return float(u * (4 if c["n"] is None else 16 + 4 * max(c["table"].shape[:-1])) * abs(c["table"]).max(initial=0))


def places_in(table: Float64, x: Float64) -> Float64:
    """The place of each vector between two adjacent rows of a table; NaN if it is at none."""
    first, steps = table[:-1], np.diff(table, axis=0)
    lengths = np.maximum((steps**2).sum(-1), 1e-300)
    share = np.clip((x @ steps.T - (first * steps).sum(-1)) / lengths, 0, 1)
    distance = (first**2).sum(-1) - 2 * x @ first.T + share * (2 * (first * steps).sum(-1) - 2 * x @ steps.T)
    row = (distance + share**2 * lengths).argmin(-1)
    weight = share[np.arange(len(x)), row]
    off = abs(first[row] + weight[:, None] * steps[row] - x).max(-1)
    return np.where(off < 1e-2 * abs(table).max(), row + weight, np.nan)


def size_of(x: Float64, right: Float64, table: Float64) -> float:
    """The factor of all vectors, or 1: of the right ones, or of other rows of the table."""
    times = float((x * right).sum() / (right**2).sum())
    if near(x, times * right):
        return times
    lengths, of_rows = (np.sqrt((one**2).sum(-1)) for one in (x, table))
    ratios = lengths / of_rows[(x @ table.T / np.maximum(of_rows, 1e-300)).argmax(-1)]
    return float(np.median(ratios)) if np.ptp(ratios) < 1e-3 * ratios.max() else 1.0


def read_learned(c: Case, numbers: Float64, wanted: Float64) -> Iterator[Reading]:
    """Read the factor of the rows, then the row of each position."""
    dim, off = wanted.shape[-1], abs(numbers - wanted).max(-1).ravel()
    seen = np.unique([*np.argsort(-off, kind="stable")[:READ_ROWS], *range(0, off.size, 1 + off.size // READ_ROWS)])
    x, right, table = numbers.reshape(-1, dim)[seen], wanted.reshape(-1, dim)[seen], c["table"].reshape(-1, dim)
    token = np.broadcast_to(np.arange(wanted.shape[-2]), wanted.shape[:-1]).ravel()[seen]
    at = c["positions"].ravel()[seen]
    times = size_of(x, right, table)
    if abs(times - 1) > 1e-3:
        more = ": they are added twice" if near(times, 2) else ""
        text = f"The rows are multiplied by {number(times)}{named(times, {'the width': dim})}{more}; expected 1."
        yield Reading("size", text, True)
    row, expected = places_in(table, x / times), places_in(table, right)
    expected = c["rows"].ravel()[seen] if c["n"] is None else expected
    wrong = ~(abs(row - expected) < 1e-2)
    if not wrong.any() or np.isnan(expected).any():
        return
    lost = np.isnan(row)
    if lost.any():
        zero = " They are 0." * (not x[lost].any())
        yield Reading("rows", f"The vectors of the tokens {runs(token[lost])} are at no place of the table.{zero}")
        return
    i, is_line = int(wrong.argmax()), c["n"] is not None
    text = f"Token {token[i]}, at position {at[i]}, has row {number(row[i])} of the table; expected row"
    inside = (row * expected > 0) & (row < len(table) - 1) if is_line else slice(None)
    laws = [law(one[inside], row[inside], name, 1e-2) for name, one in (("p", at), ("r", expected), ("i", token))]
    right = law(at[inside], expected[inside], "p", 1e-2)
    words = [words.format(of, right) for words, of in zip(LAWS, laws, strict=True) if of]
    words += ["All are whole rows: the filter takes the nearest row."] * (is_line and near(row, np.rint(row)))
    yield Reading("rows", f"{text} {number(expected[i])}. {[*words, ''][0]}".strip(), bool(words))


LEARNED = Kind("learned", true_rows, ("batch", "token", "channel"), _bound, hypotheses("learned"), read=read_learned)


def learned(
    impl: object,
    table: npt.ArrayLike,
    *,
    positions: npt.ArrayLike | None = None,
    offset: int = 0,
    n: int | tuple[int, int] | None = None,
    grid: tuple[int, int] | None = None,
    method: Literal["linear", "cubic"] = "linear",
    corners: bool | None = None,
    antialias: bool = False,
    prefix: int = 0,
    array: ToArray = np.asarray,
) -> Report:
    """Check learned position embeddings: rows of a table, or of a resampled one.

    Parameters
    ----------
    impl : callable or array
        ``impl(positions)`` returns the embeddings, (N, dim); or the embeddings themselves.
    table : array (rows, dim) or (H, W, dim)
        The weights of the checkpoint. They should differ from row to row.
    positions : int or array (..., N) of integers, optional
        As in `posenc.learned`. By default all rows that `offset` leaves; if a function is right, it then gets them in
        another order, too.
    offset : int
        Position p has the row p + offset: 2 in OPT and BART, ``padding_idx + 1`` in RoBERTa, whose positions count the
        tokens without padding (`posenc.positions_from_mask`), and where padding has position -1.
    n, grid, method, corners, antialias, prefix
        As in `posenc.interpolate_table`, if the table is resampled. `offset` counts the rows of the result.
    array : callable
        Converts the positions, such as ``torch.as_tensor``.

    Returns
    -------
    Report

    Examples
    --------
    >>> import numpy as np, posenc.check
    >>> table = np.random.default_rng(0).standard_normal((12, 8))
    >>> print(posenc.check.learned(lambda positions: table[positions], table, offset=2).causes[0].sentence)
    Token 0, at position 0, has row 0 of the table; expected row 2. Position p has row p, not row p + 2.
    """
    weights, dtype = as_numbers(table, "learned")
    case: Case = {"table": weights.astype(np.float64), "n": n, "grid": grid, "method": method, "prefix": prefix}
    case |= {"antialias": antialias, "other": {"linear": "cubic", "cubic": "linear"}.get(method)}
    case["corners"] = np.ndim(n or 0) == 0 and method == "linear" and not antialias if corners is None else corners
    rows = int(np.prod(weights.shape[:-1])) if n is None else prefix * (weights.ndim == 2) + int(np.prod(n))
    given = places("learned", rows - offset if positions is None else positions, range(32))

    def run(at: Array) -> Report:
        if (at + offset < 0).any() or (at + offset >= rows).any():
            expected = f"expected {-offset} .. {rows - offset - 1}, whose rows the table has"
            raise IndexError(f"check.learned: positions has {at.min()} .. {at.max()}; {expected}")
        called = call("learned", impl, converted(array, at))
        return judge(LEARNED, called, {**case, "rows": at + offset, "positions": at}, dtype)

    report = run(given)
    is_tried = positions is not None or not callable(impl) or n is not None
    return report if is_tried else further(report, lambda: run(np.random.default_rng(SEED).permutation(given)), ORDER)
