"""The check of masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from .. import reference
from .inputs import choice
from .judge import Case, Kind, as_numbers, hypotheses, judge, when
from .judge import Hypothesis as H
from .report import Array, Float64, Report

Window = tuple[int | None, int | None]
Segments = tuple[npt.ArrayLike, npt.ArrayLike]
HIDES = -87.0
"""A smaller number in a mask hides a pair: its exponential is below 2**-125, about the smallest
normal number of float32. Swin adds -100."""


def visible(c: Case) -> npt.NDArray[np.bool_]:
    """The pairs that see each other, (n, m), with the errors that the fields of the case name."""
    rel = np.arange(c["m"]) - np.arange(c["n"])[:, None] - c["mask_shift"]
    left, right = c["window"] or (None, None)
    seen = np.ones(rel.shape, bool)
    if c["causal"]:
        seen &= rel <= c["diagonal"]
    if left is not None:
        seen &= rel >= -left
    if right is not None:
        seen &= rel <= right
    if c["segments"] is not None:
        q_segments, k_segments = c["segments"]
        seen &= q_segments[:, None] == k_segments
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


def _changed(change: Callable[[Array, Array], object]) -> Callable[[Case], object]:
    """Other segments of queries and keys."""
    return when(lambda c: c["segments"] is not None)(lambda c: change(*c["segments"]))


def _of_the_query(q: Array, k: Array) -> object:
    return None if len(q) != len(k) or np.array_equal(q, k) else (q, k[:, None])


MASK_FIELDS: Case = {"diagonal": 0, "mask_transposed": False, "inverted": False, "segments": None, "window": None}
MASKS = hypotheses("mask", {
    "alignment": {"mask_shift": lambda c: c["past"] - c["mask_shift"]},
    "window one wider": {"window": widened(1)},
    "window one narrower": {"window": widened(-1)},
    "window on both sides": {"window": _both_sides},
    "segments of the query": {"segments": _changed(_of_the_query)},
    "padding on the other side": {"segments": _changed(lambda q, k: (q, k[::-1]))},
    "no segments": {"segments": _changed(lambda q, k: (0 * q, 0 * k))},
})  # fmt: skip


def mask_options(c: Case) -> Case:
    """The arguments of `reference.attention` that say which pairs see each other."""
    q_segments, k_segments = c["segments"] or (None, None)
    return {
        "causal": c["causal"], "window": c["window"], "q_segments": q_segments, "k_segments": k_segments,
        "q_positions": np.arange(float(c["n"])) + c["mask_shift"], "k_positions": np.arange(float(c["m"])),
    }  # fmt: skip


def _true_mask(c: Case) -> Float64:
    zeros = np.zeros((c["n"], 1)), np.zeros((c["m"], 1))  # queries and keys whose logits are 0
    return np.asarray(reference.attention_weights(*zeros, **mask_options(c)) > 0, np.float64)


def reach(seen: npt.NDArray[np.bool_], shift: int) -> Window:
    """Return how many keys before and after its own position a query sees at most."""
    i, j = np.nonzero(seen)
    rel = j - i - shift
    return int(-rel.min(initial=0)), int(rel.max(initial=0))


def _other_window(c: Case, numbers: Float64) -> Sequence[H]:
    if c["window"] is None:
        return ()
    (back, ahead), (left, right) = (reach(seen > 0, c["mask_shift"]) for seen in (numbers, _true_mask(c)))
    text = f"The window reaches {back} keys back and {ahead} ahead; expected {left} and {right}."
    return [H("window", text, "Count the keys on each side; the query is not one of them.",
              {"causal": False, "window": (back, ahead)})]  # fmt: skip


MASK = Kind(
    "mask", _true_mask, lambda c: visible(c).astype(np.float64), MASKS, ("query", "key"), lambda c, wanted, u: 0.5,
    more=_other_window,
)  # fmt: skip


def alignment(n: int, m: int, align: str) -> Case:
    """The fields of an alignment, for sentences, too."""
    past, at_end = m - n, choice("align", align, "end", "start") == "end"
    names = ("i", f"i + {past}")
    return {"align": align, "past": past, "place": names[at_end], "other_place": names[not at_end]}


def mask_case(
    n: int, m: int, causal: bool, window: Window | None, align: str, segments: Segments | None
) -> Case:  # fmt: skip
    shift = m - n if align == "end" else 0
    both = None if segments is None else tuple(np.asarray(one) for one in segments)
    return {**MASK_FIELDS, "n": n, "m": m, "causal": causal, "window": window, "segments": both,
            **alignment(n, m, align), "mask_shift": shift, "q_shift": shift}  # fmt: skip


def mask(
    impl: object, n: int, m: int | None = None, *, causal: bool = True, window: Window | None = None,
    align: str = "end", segments: Segments | None = None,
) -> Report:  # fmt: skip
    """Check an attention mask.

    Parameters
    ----------
    impl : callable or array
        ``impl(n, m)`` returns the mask, or the mask itself, (n, m): True where a query sees a key, or numbers to add to
        the logits, which hide a pair below -87.
    n, m : int
        Numbers of queries and keys; m is n by default.
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
    keys = n if m is None else m
    got, _ = as_numbers(impl(n, keys) if callable(impl) else impl)
    if got.dtype.kind == "f":
        got = got > HIDES if (got < 0).any() else got != 0
    return judge(MASK, got, mask_case(n, keys, causal, window, align, segments), "float64")
