"""The check of masks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import reference
from ._inputs import call, choice, places
from ._judge import Case, Kind, as_numbers, hypotheses, judge, known
from ._laws import law, number, runs
from ._report import Float64, Reading, Report, further

__tracebackhide__ = True  # pytest shows the line of the implementation

MORE_KEYS = "more keys than queries (m = n + 5)"
Window = tuple[int | None, int | None]
Segments = tuple[npt.ArrayLike, npt.ArrayLike]
HIDES = -87.0
"""A smaller number in a mask hides a pair: its exponential is below 2**-125, about the smallest
normal number of float32. Swin adds -100."""


def mask_options(c: Case) -> Case:
    """The arguments of `reference.attention` that say which pairs see each other."""
    options = {name: c[name] for name in ("causal", "window", "q_segments", "k_segments")}
    both = [one for one in (c["kept"], c.get("keep")) if one is not None]
    keep = np.logical_and(both[0], both[-1]) if both else None
    return {**options, "keep": keep, "q_positions": c["mask_q"], "k_positions": c["mask_k"]}


def visible(c: Case) -> npt.NDArray[np.bool_]:
    """The pairs that see each other, (n, m): those with a weight if all logits are alike."""
    zeros = (np.zeros((len(c[name]), 1)) for name in ("mask_q", "mask_k"))
    return np.asarray(reference.attention_weights(*zeros, **mask_options(c)) > 0)


MASKS = hypotheses("mask")
"""Known errors of masks, and of the keys that a chunk of a cache sees."""


def ends(reads: npt.NDArray[np.bool_]) -> str:
    """Describe the keys of each query by the first and the last, if they are in a row and follow a law."""
    if not reads.any(1).all():
        return ""
    first, last = reads.argmax(1), reads.shape[1] - 1 - reads[:, ::-1].argmax(1)
    in_a_row = (reads.sum(1) == last - first + 1).all()
    words = [law(np.arange(len(reads)), one, "i") for one in (first, last)]
    return f"from {words[0]} to {words[1]}" if in_a_row and all(words) else ""


def with_first_keys(c: Case, seen: npt.NDArray[np.bool_]) -> tuple[int, float] | None:
    """Return the number of first keys that all queries see, and how far a causal window reaches back, if a mask is both
    (StreamingLLM: attention sinks and a window). A causal mask is an infinite window."""
    rel, row = c["mask_k"] - c["mask_q"][:, None], int(c["mask_q"].argmax())
    hidden = np.flatnonzero(~seen[row] & (rel[row] <= 0))
    first, left = (int(hidden[0]), float(-rel[row, hidden[-1]] - 1)) if len(hidden) else (0, np.inf)
    made = (rel <= 0) & ((np.arange(seen.shape[1]) < first) | (rel >= -left))
    return (first, left) if (made == seen).all() else None


def _streaming(first: int, left: float, right_first: int, right_left: float) -> str:
    """Say how first keys and a window differ from the right ones."""
    words = ""
    if left == np.inf:
        words = f"expected the first {right_first}, and {number(right_left)} keys back."
        return f" All keys up to the query are seen, without a window; {words}"
    if first != right_first:
        hidden, seen = f" The first {right_first} keys are hidden;", f" The first {first} keys are always seen;"
        words = f"{seen if first else hidden} expected the first {right_first} for each query."
    if left != right_left:
        words += f" The window reaches {number(left)} keys back; expected {number(right_left)}."
        more = first * (first == right_first)
        words += f" Its size counts the first {more} keys." * (more > 0 and left + more == right_left)
        words += f" Its size does not count the first {more} keys." * (more > 0 and left == right_left + more)
    return words


def read_mask(c: Case, numbers: npt.ArrayLike, wanted: npt.ArrayLike) -> Iterator[Reading]:
    """Read which keys each query sees."""
    got, right = np.asarray(numbers) > 0, np.asarray(wanted) > 0
    if (got == right).all():
        return
    row = int(np.flatnonzero((got != right).any(1))[0])
    now, then = (runs(one[row]) for one in (got, right))
    text = f"Query {row} reads the keys {now}; expected {then}."
    causes = known(MASKS, c, _seen, got.astype(np.float64), 0.5, "keys")
    if causes:
        yield Reading("keys", text, True, causes)
        return
    of_got, of_right = (with_first_keys(c, one) for one in (got, right))
    if of_got and of_right and of_right[0]:
        yield Reading("window", text + _streaming(*of_got, *of_right), True)
        return
    blind = np.asarray(~right.any(1))
    if got[blind].all() and (got == right)[~blind].all():
        text = f"The queries {runs(blind)} see no key, but the softmax gives all keys the same weight; expected 0."
        yield Reading("empty rows", text, True)
        return
    rel = c["mask_k"] - c["mask_q"][:, None]
    back, ahead = (int(side * rel[got].max(initial=0) if side > 0 else -rel[got].min(initial=0)) for side in (-1, 1))
    words, expected = ends(got), ends(right)
    if (got == ~right).all():
        yield Reading("polarity", "True marks the pairs to leave out; expected the pairs to keep.", True)
    elif got.shape[0] == got.shape[1] and (right == got.T).all():
        text = "The mask is transposed: queries see the keys after them. Exchange queries and keys."
        yield Reading("axes", text, True)
    elif c["kept"] is None and (got == ((rel >= -back) & (rel <= ahead))).all():
        left, right_side = c["window"] or (None, None)
        then = f"{left} and {0 if c['causal'] else right_side}".replace("None", "all")
        reach = ["all" if one == most else one for one, most in ((back, -rel.min()), (ahead, rel.max()))]
        yield Reading("window", f"The window reaches {reach[0]} keys back and {reach[1]} ahead; expected {then}.", True)
    elif words and expected:
        yield Reading("keys", f"{text} Query i reads the keys {words}; expected {expected}.", True)
    elif (got == (right & got.any(0))).all():
        never = np.flatnonzero(right.any(0) & ~got.any(0))
        yield Reading("keys", f"{text} No query reads the keys {runs(never)}; all other pairs are right.", True)
    elif of_segments := _read_segments(c, got):
        yield Reading("segments", f"{text} {of_segments}", True)
    else:
        well = (got == right).all(1)
        yield Reading("keys", f"{text} Right are the queries {runs(well)}." if well.any() else text, False)


def _read_segments(c: Case, got: npt.NDArray[np.bool_]) -> str:
    """Say where segments in a row begin, if a mask of as many queries as keys is one of other segments."""
    given = c["k_segments"]
    if given is None or c["n"] != c["m"] or not np.diagonal(got).all():
        return ""
    seen, at = got | got.T, np.arange(c["m"])
    starts = [int(i) for i in at if not seen[i, :i].any()]
    found = np.searchsorted(starts, at, side="right")
    made = visible({**c, "q_segments": found, "k_segments": found})
    expected = np.flatnonzero(np.append(True, given[1:] != given[:-1]))
    return f"Segments begin at {runs(starts)}; expected at {runs(expected)}." if (made == got).all() else ""


def _seen(c: Case) -> Float64:
    return visible(c).astype(np.float64)


MASK = Kind("mask", _seen, ("query", "key"), lambda c, wanted, u: 0.5, read=read_mask)


BY_TOKEN = ("keep", "q_positions", "k_positions")
"""Arguments with one number for each query and each key, which do not fit more keys."""


def _placed(subject: str, c: Case, keep: Any, q_positions: Any, k_positions: Any) -> Case:
    """The fields of a mask that `keep` and positions change."""
    found: Case = {"kept": None, "index_q": None, "index_k": None}
    if keep is not None:
        keep = np.asarray(keep)
        if keep.dtype != bool:
            raise TypeError(f"check.{subject}: keep has dtype {keep.dtype}; expected bool, True = may be seen")
        if np.broadcast_shapes(keep.shape, (1, 1)) not in itertools.product((1, c["n"]), (1, c["m"])):
            raise ValueError(f"check.{subject}: keep has shape {keep.shape}; expected ({c['n']}, {c['m']}), or n and m")
        found["kept"] = np.broadcast_to(keep, (c["n"], c["m"]))
    if q_positions is None and k_positions is None:
        return found
    found |= {"index_q": c["mask_q"], "index_k": c["mask_k"], "past": 0}
    for name, value, count in (("q", q_positions, c["n"]), ("k", k_positions, c["m"])):
        at = places(subject, count if value is None else value).astype(np.float64)
        if len(at) != count:
            raise ValueError(f"check.{subject}: {name}_positions has shape {at.shape}; expected ({count},)")
        found[f"mask_{name}"] = at
    return found


def mask_case(
    subject: str,
    n: int,
    m: int,
    causal: bool,
    window: Window | None,
    align: str,
    segments: Segments | None = None,
    given: Case | None = None,
) -> Case:
    """The fields of a mask, with words for sentences. `given` may have keep, q_positions and k_positions."""
    at_end = choice(subject, "align", align, "end", "start") == "end"
    if window is not None and not (isinstance(window, tuple | list) and len(window) == 2):
        raise ValueError(f"check.{subject}: window is {window}; expected (left, right), numbers or None")
    q_segments, k_segments = segments or (None, None)
    at, past, names = np.arange(float(n)), m - n, ("i", f"i + {m - n}")
    q_at = at + past if at_end else at
    case: Case = {
        "n": n, "m": m, "causal": causal, "window": window, "align": align, "past": past,
        "place": names[at_end], "other_place": names[not at_end], "mask_q": q_at, "mask_k": np.arange(float(m)),
        "other_q": at if at_end else at + past,
        "q_segments": None if q_segments is None else np.array(q_segments),
        "k_segments": None if k_segments is None else np.array(k_segments), "row_segments": None, "chunk": None,
    }  # fmt: skip
    case |= _placed(subject, case, **{name: (given or {}).get(name) for name in BY_TOKEN})
    if segments is None:
        return case
    q, k = case["q_segments"], case["k_segments"]
    if n == m and not np.array_equal(q, k):
        case["row_segments"] = k
    size = max(int((k == k[0]).sum()), 1)
    if 1 < size < m and (k == k[0] + np.arange(m) // size).all() and np.array_equal(q, k[-n:]):
        case["chunk"] = size  # the segments are attention chunks of equal sizes
    return case


def with_unseen_window(report: Report, subject: str, n: int, m: int, options: Case) -> Report:
    """Say that a window was not tried, if it hides no pair. `options` are arguments of the check."""
    causal, window, align = (options[name] for name in ("causal", "window", "align"))
    case = mask_case(subject, n, m, causal, window, align, options.get("segments"), options)
    hides = (visible(case) != visible({**case, "window": None})).any()
    if hides or window is None or (window[0] is None and (causal or window[1] is None)):
        return report
    return further(report, None, "the window, which hides no pair; pass a larger n")


def mask(
    impl: object,
    n: int,
    m: int | None = None,
    *,
    causal: bool = False,
    window: Window | None = None,
    align: str | None = None,
    segments: Segments | None = None,
    keep: npt.ArrayLike | None = None,
    q_positions: npt.ArrayLike | None = None,
    k_positions: npt.ArrayLike | None = None,
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
        As in `posenc.attention`.
    segments : (array (n,), array (m,)), optional
        The segments of queries and keys. For padding: ones, and 1 for a token and 0 for padding.
    keep : bool array that broadcasts to (n, m), optional
        True = the query may see the key. Attention sinks of StreamingLLM: ``causal=True`` and
        ``keep=(np.arange(n) < 4) | (np.arange(n) >= np.arange(n)[:, None] - left)``.
    q_positions, k_positions : array (n,) and (m,), optional
        As in `posenc.attention`.

    Returns
    -------
    Report

    Examples
    --------
    >>> import numpy as np, posenc.check
    >>> print(posenc.check.mask(np.tri(3, 8, dtype=bool), 3, 8, causal=True, align="end"))
    mask: wrong. The largest error is 1; the bound is 0.5 (float64).
    Cause: alignment. The mask puts query i at position i; expected i + 5.
    Change: Put query i at position i + 5, as align="end" says: "end" counts the cached keys (bottom-right).
    Evidence: this explanation leaves an error of 0; the best other hypothesis, diagonal, leaves 1.
    Read: keys. Query 0 reads the keys 0; expected 0-5.
    First difference: query 0, key 1: 0 instead of 1.
    Right for key 0.
    Wrong (#) and right (.) numbers, query downwards and key across.
      .#####..
      ..#####.
      ...#####
    """

    given: Case = {"keep": keep, "q_positions": q_positions, "k_positions": k_positions}
    is_placed = any(value is not None for value in given.values())
    has_positions = not (q_positions is None and k_positions is None)
    if align is None and m is not None and n != m and (causal or window is not None) and not has_positions:
        expected = f'"start", or "end" as in decoding, because n = {n} and m = {m} differ'
        raise ValueError(f"check.mask: align is None; expected {expected}")

    def run(keys: int) -> Report:
        case = mask_case("mask", n, keys, causal, window, align or "end", segments, given)
        got, _ = as_numbers(call("mask", impl, n, keys), "mask")
        if got.dtype.kind == "f":
            case["adds_ones"] = bool((got == 1).any()) and not (got < 0).any()
            got = got > HIDES
        return judge(MASK, got, case, "float64")

    report = run(n if m is None else m)
    is_square = m is None and causal and segments is None and not is_placed
    report = further(report, lambda: run(n + 5), MORE_KEYS) if is_square else report
    options = {"causal": causal, "window": window, "align": align or "end", "segments": segments, **given}
    return with_unseen_window(report, "mask", n, n + 5 if is_square else n if m is None else m, options)
