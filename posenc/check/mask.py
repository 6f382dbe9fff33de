"""The check of masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .inputs import call, choice
from .judge import Case, Kind, as_numbers, hypotheses, judge, when
from .judge import Hypothesis as H
from .report import Float64, Report, further

MORE_KEYS = "more keys than queries (m = n + 5)"
Window = tuple[int | None, int | None]
Segments = tuple[npt.ArrayLike, npt.ArrayLike]
HIDES = -87.0
"""A smaller number in a mask hides a pair: its exponential is below 2**-125, about the smallest
normal number of float32. Swin adds -100."""


def visible(c: Case) -> npt.NDArray[np.bool_]:
    """The pairs that see each other, (n, m), with the errors that the fields of the case name."""
    rel = c["mask_k"] - c["mask_q"][:, None]
    left, right = c["window"] or (None, None)
    seen = np.ones(rel.shape, bool)
    if c["causal"]:
        seen &= rel <= c["diagonal"]
    if left is not None:
        seen &= (rel if c["window_q"] is None else c["mask_k"] - c["window_q"][:, None]) >= -left
    if right is not None:
        seen &= rel <= right
    if c["k_segments"] is not None:
        seen &= c["q_segments"][:, None] == c["k_segments"]
    seen = seen.T if c["mask_transposed"] else seen
    return ~seen if c["inverted"] else seen


def widened(step: int) -> Callable[[Case], object]:
    def change(c: Case) -> object:
        left, right = c["window"] or (None, None)
        return None if left is None or left + step < 0 else (left + step, right)

    return change


def _both_sides(c: Case) -> object:
    left, right = c["window"] or (None, None)
    return (left, left) if left is not None and right != left else None


def _in_chunks(side: str) -> Callable[[Case], object]:
    """The attention chunk of each query, or of each key, as large as the window."""
    return of_window(lambda c: None if c["window"][0] is None else c[f"mask_{side}"] // (c["window"][0] + 1))


of_window, of_segments, of_padding = when("window"), when("segments"), when("padding")
NO_SEGMENTS = {name: of_segments(lambda c, name=name: 0 * c[name]) for name in ("q_segments", "k_segments")}
MASK_FIELDS: Case = {"diagonal": 0, "mask_transposed": False, "inverted": False, "window": None, "window_q": None}
MASKS = hypotheses(
    "mask",
    {
        "alignment": {"mask_q": when("unequal")(lambda c: c["other_q"])},
        "window one wider": {"window": widened(1)},
        "window one narrower": {"window": widened(-1)},
        "window on both sides": {"window": _both_sides},
        "chunks in place of a window": {
            "window": of_window((None, None)),
            "q_segments": _in_chunks("q"),
            "k_segments": _in_chunks("k"),
        },
        "window in place of chunks": {"window": lambda c: c["chunk"] and (c["chunk"] - 1, None), **NO_SEGMENTS},
        "segments of the query": {"k_segments": of_padding(lambda c: c["row_segments"][:, None])},
        "padding on the other side": {"k_segments": of_segments(lambda c: c["k_segments"][::-1])},
        "no segments": NO_SEGMENTS,
    },
)
OF_ROWS = ("mask_q", "other_q", "window_start", "q_segments", "row_segments", "q_at", "bias_q", "present", "start_of",
           "end_of", "chunk_of", "in_chunk", "one_late", "one_early", "first_twice", "start_twice",
           "after_update")  # fmt: skip
"""Fields with a number for each query."""


def sample(off: Float64, axis: int = -2) -> npt.NDArray[np.intp]:
    """Some places along an axis: the first ones, for small steps, and some where numbers are wrong."""
    wrong = np.flatnonzero((off > 1).any(tuple(a for a in range(off.ndim) if a != axis % off.ndim)))
    some = wrong[np.linspace(0, len(wrong) - 1, min(len(wrong), 6)).astype(int)]
    return np.union1d(np.arange(min(4, off.shape[axis])), some)


def some_rows(c: Case, off: Float64) -> tuple[Any, Case]:
    """The case of some queries; of all, if an operator reads their numbers and not their positions."""
    if c.get("indexed"):
        return ..., c
    rows = sample(off)
    part = {name: c[name][rows] for name in OF_ROWS if np.ndim(c.get(name, 0)) > 0}
    part |= {"q": c["q"][..., rows, :]} if "q" in c else {}
    return (..., rows, slice(None)), {**c, **part, "n": len(rows)}


def mask_options(c: Case) -> Case:
    """The arguments of `reference.attention` that say which pairs see each other."""
    return {
        **{name: c[name] for name in ("causal", "window", "q_segments", "k_segments")},
        "q_positions": c["mask_q"],
        "k_positions": c["mask_k"],
    }


def _other_window(c: Case, numbers: Float64) -> Sequence[H]:
    """Read the window off the mask: the keys before and after its own position that a query sees at most."""
    if c["window"] is None:
        return ()
    row, key = np.nonzero(numbers)
    rel = c["mask_k"][key] - c["mask_q"][row]
    back, ahead = int(-rel.min(initial=0)), int(rel.max(initial=0))
    left, right = c["window"]
    expected = f"{left} and {0 if c['causal'] else right}".replace("None", "all")
    text = f"The window reaches {back} keys back and {ahead} ahead; expected {expected}."
    return [
        H(
            "window",
            text,
            "Count the keys on each side; the query is not one of them.",
            {"causal": False, "window": (back, ahead)},
        )
    ]


def _seen(c: Case) -> Float64:
    return visible(c).astype(np.float64)


MASK = Kind(
    "mask",
    _seen,
    _seen,
    MASKS,
    ("query", "key"),
    lambda c, wanted, u: 0.5,
    part=some_rows,
    whole=frozenset(["mask_transposed"]),
    more=_other_window,
)


def mask_case(
    subject: str, n: int, m: int, causal: bool, window: Window | None, align: str, segments: Segments | None = None
) -> Case:
    """The fields of a mask, with words for sentences."""
    at_end = choice(subject, "align", align, "end", "start") == "end"
    if window is not None and not (isinstance(window, tuple | list) and len(window) == 2):
        raise ValueError(f"check.{subject}: window is {window}; expected (left, right), numbers or None")
    q_segments, k_segments = segments or (None, None)
    at, past, names = np.arange(float(n)), m - n, ("i", f"i + {m - n}")
    q_at = at + past if at_end else at
    case: Case = {
        **MASK_FIELDS, "n": n, "m": m, "causal": causal, "window": window, "align": align, "past": past,
        "place": names[at_end], "other_place": names[not at_end], "mask_q": q_at, "mask_k": np.arange(float(m)),
        "other_q": at if at_end else at + past, "window_start": np.full(n, q_at[0] if n else 0.0),
        "q_segments": None if q_segments is None else np.array(q_segments),
        "k_segments": None if k_segments is None else np.array(k_segments), "row_segments": None, "chunk": None,
    }  # fmt: skip
    if segments is None:
        return case
    q, k = case["q_segments"], case["k_segments"]
    if n == m and not np.array_equal(q, k):
        case["row_segments"] = k
    size = max(int((k == k[0]).sum()), 1)
    if 1 < size < m and (k == k[0] + np.arange(m) // size).all() and (q == k[-n:]).all():
        case["chunk"] = size  # the segments are attention chunks of equal sizes
    return case


def mask(
    impl: object,
    n: int,
    m: int | None = None,
    *,
    causal: bool = True,
    window: Window | None = None,
    align: str = "end",
    segments: Segments | None = None,
) -> Report:
    """Check an attention mask.

    Parameters
    ----------
    impl : callable or array
        ``impl(n, m)`` returns the mask, or the mask itself, (n, m): True where a query sees a key, or numbers to add to
        the logits, which hide a pair below -87.
    n, m : int
        Numbers of queries and keys. By default m is n, and then, in a causal mask, n + 5.
    causal, window, align
        As in `posenc.attention`; the queries are the last n of the m keys.
    segments : (array (n,), array (m,)), optional
        The segments of queries and keys. For padding: ones, and 1 for a token and 0 for padding.

    Returns
    -------
    Report

    Examples
    --------
    >>> import numpy as np, posenc.check
    >>> print(posenc.check.mask(np.tri(3, 8, dtype=bool), 3, 8))
    mask: wrong. The largest error is 1; the bound is 0.5 (float64).
    Cause: alignment. The mask puts query i at position i; expected i + 5.
    Change: Put query i at position i + 5, as align="end" says: "end" counts the cached keys (bottom-right).
    Evidence: this explanation leaves an error of 0; the best other hypothesis, diagonal, leaves 1.
    First difference: query 0, key 1: 0 instead of 1.
    Right for key 0.
    Wrong (#) and right (.) numbers, query downwards and key across.
      .#####..
      ..#####.
      ...#####
    """

    def run(keys: int) -> Report:
        case = mask_case("mask", n, keys, causal, window, align, segments)
        got, _ = as_numbers(call("mask", impl, n, keys), "mask")
        if got.dtype.kind == "f":
            case["adds_ones"] = bool((got == 1).any()) and not (got < 0).any()
            got = got > HIDES
        return judge(MASK, got, case, "float64")

    report = run(n if m is None else m)
    return further(report, lambda: run(n + 5), MORE_KEYS) if m is None and causal and segments is None else report
