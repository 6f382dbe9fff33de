"""The check of decoding with a cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from .. import Bias
from .attention import ATTENTIONS, attend, attention_bound, attention_case, biased, one_side, rotating, true_attention
from .inputs import Precision, ToArray, dtype_of
from .judge import Case, Kind, as_numbers, coarser, judge, within
from .judge import Hypothesis as H
from .mask import Window
from .report import Float64, Report


def attend_in_chunks(c: Case) -> Float64:
    """Attention by chunks of queries, each with the keys up to its end."""
    outs, ends = [], np.cumsum(c["chunks"])
    for chunk, end in zip(c["chunks"], ends, strict=True):
        start = end - chunk
        first = {"all": 0, "none": start, "window": max(end - 1 - (c["reach"] or 0), 0) if start else 0}[c["cached"]]
        age = c["chunk_of"][start] - c["chunk_of"][first:end]
        turns = {"once": 1, "in every step": age + 1, "not cached": age == 0}[c["rotations"]]
        k_at = c["k_at"][end - 1 if c["keys_at_last"] and chunk == 1 else first : end] * turns
        outs.append(attend({
            **c, **(c["later"] if start else {}), "q": c["q"][:, start:end],
            "k": c["k"][:, first:end], "v": c["v"][:, first:end], "q_at": c["q_at"][start:end], "k_at": k_at,
            "n": chunk, "m": end - first,
            "q_shift": (start - first) * c["bias_past"] + c["q_shift"], "mask_shift": (start - first) * c["mask_past"],
        }))  # fmt: skip
    return np.concatenate(outs, -2)


def _within(c: Case) -> Float64:
    return np.asarray(c["k_true"] - c["start_of"])


def _later(step: int) -> Callable[[Case], object]:
    return rotating(lambda c: c["k_true"] + step * (c["start_of"] > 0))


CACHES = (
    H("offset", "Each chunk is rotated from position 0: the number of cached tokens is forgotten.",
      "Add the number of cached tokens to the positions of the new queries and keys.",
      {"q_at": rotating(_within), "k_at": rotating(_within)}),
    H("offset of the queries", "The queries of each chunk are rotated from position 0; the keys are right.",
      "Add the number of cached tokens to the positions of the queries.", {"q_at": rotating(_within)}),
    H("offset of the keys", "The keys of each chunk are rotated from position 0; the queries are right.",
      "Add the number of cached tokens to the positions of the keys.", {"k_at": rotating(_within)}),
    H("offset of the bias", "The bias puts the queries of each chunk at position 0.",
      "Add the number of cached tokens to the positions of the queries in the bias.", {"bias_past": biased(0)}),
    H("offset everywhere", "Mask, bias and rotation put each chunk at position 0.",
      "Add the number of cached tokens to all positions.",
      {"q_at": lambda c: None if c["w"] is None and c["operator"] is None else _within(c), "k_at": _within,
       "bias_past": 0, "mask_past": 0}),
    H("offset one too large", "After the first chunk the positions are one too large: the count of cached tokens "
      "includes the new one.", "Read the number of cached tokens before the new one is stored.",
      {"q_at": _later(1), "k_at": _later(1)}),
    H("offset one too small", "After the first chunk the positions are one too small.",
      "Position of the next token is the number of cached tokens.", {"q_at": _later(-1), "k_at": _later(-1)}),
    H("offset of the queries one too large", "After the first chunk the positions of the queries are one too large.",
      "Read the number of cached tokens before the new one is stored.", {"q_at": _later(1)}),
    H("first chunk twice", "After the first chunk the positions are larger by its length: the offset counts it twice.",
      "Increase the offset once for each chunk.",
      {name: rotating(lambda c: c["k_true"] + c["chunks"][0] * (c["start_of"] > 0)) for name in ("q_at", "k_at")}),
    H("cached keys rotated again", "Cached keys are rotated again in every step.",
      "Store rotated keys and rotate only new ones, or store keys before the rotation.",
      {"rotations": rotating("in every step")}),
    H("cached before the rotation", "Keys are stored before their rotation, and cached keys are not rotated.",
      "Store rotated keys, or rotate all keys by their own positions.", {"rotations": rotating("not cached")}),
    H("cached keys at the new position", "In a step of one token, all keys are rotated by the position of the token.",
      "Rotate each key by its own position, before it is stored.", {"keys_at_last": rotating(True)}),
    H("alignment", "The mask puts each chunk of queries at position 0: a query does not see the cached keys.",
      "Add the number of cached keys to the index of the query (bottom-right alignment).", {"mask_past": 0}),
    H("cached keys lost", "A chunk sees only its own keys.", "Append new keys and values to the cached ones.",
      {"cached": "none"}),
    H("window of the last query", "Before a chunk is read, keys outside the window of its last query are dropped.",
      "Drop them after the chunk, because its first queries read more.",
      {"cached": lambda c: "window" if c["reach"] is not None else None}),
    *(h for h in ATTENTIONS if "alignment" not in h.name and h.name not in ("queries and keys exchanged", "polarity",
      "transposed mask", "queries one late", "queries one early", "softmax over queries", "transposed (bias)")),
)  # fmt: skip
PLACES = {"q_at", "k_at", "q_shift", "mask_shift", "rotations", "cached", "keys_at_last", "bias_past", "mask_past"}
"""Fields that `attend_in_chunks` reads itself."""


def _in_parts(c: Case, numbers: Float64) -> Iterable[H]:
    """Errors of one side of the rotation, and of the code that computes the chunks after the first."""
    later = (h for h in CACHES if not PLACES & h.fields.keys())
    yield from one_side(c, numbers)
    yield from (H(f"{h.name} after the first chunk", f"After the first chunk: {h.sentence}", h.change,
                  {"later": within(h)}) for h in later)  # fmt: skip


CACHE = Kind(
    "cache", true_attention, attend_in_chunks, CACHES, ("head", "query", "channel"), attention_bound, more=_in_parts,
)  # fmt: skip


def cache(
    impl: Callable[..., object], *, chunks: Sequence[int] = (4, 1, 1, 3), window: Window | None = None,
    bias: Bias | None = None, frequencies: object = None, layout: str | None = None, scale: float | None = None,
    softcap: float | None = None, sink: npt.ArrayLike | None = None, heads: int = 6, kv_heads: int | None = None,
    dim: int = 16, batch: bool = False, dtype: Precision = "float32", array: ToArray = np.asarray,
) -> Report:  # fmt: skip
    """Check causal attention that stores keys and values, chunk by chunk, against attention to the whole sequence.

    Parameters
    ----------
    impl : callable
        ``impl(q, k, v, start)`` returns the output of the queries of a chunk (heads, chunk, dim). It gets the queries,
        keys and values of the chunk alone, before their rotation, and the position of the first; it keeps the keys and
        values of earlier chunks. A chunk with start 0 begins a new sequence.
    chunks : sequence of int
        The lengths of the chunks.
    window, bias, frequencies, layout, scale, softcap, sink, heads, kv_heads, dim, batch, dtype, array
        As in `attention`.

    Returns
    -------
    Report

    Examples
    --------
    >>> import numpy as np, posenc, posenc.check
    >>> w, stored = posenc.rope_frequencies(16), {}
    >>> def mine(q, k, v, start):
    ...     q, k = (posenc.rope(x, x.shape[-2], w, layout="half") for x in (q, k))  # start is not used
    ...     for name, new in (("k", k), ("v", v)):
    ...         stored[name] = new if start == 0 else np.concatenate([stored[name], new], -2)
    ...     return posenc.attention(q, stored["k"], stored["v"], causal=True, align="end")
    >>> print(posenc.check.cache(mine, frequencies=w, layout="half").causes[0].sentence)
    Each chunk is rotated from position 0: the number of cached tokens is forgotten.
    """
    total = sum(chunks)
    case = attention_case(heads, kv_heads, total, total, dim, dtype, True, window, "end", None, bias, frequencies,
                          layout, scale, softcap, sink)  # fmt: skip
    starts = np.cumsum([0, *chunks[:-1]])
    outs = []
    for start, chunk in zip(starts, chunks, strict=True):
        given = (x[:, start : start + chunk] for x in case["given"])
        found = impl(*(array(one[None] if batch else one) for one in given), int(start))
        outs.append(as_numbers(found)[0])
    case |= {
        "chunks": tuple(chunks), "start_of": np.repeat(starts, chunks).astype(np.float64), "k_true": case["k_at"],
        "chunk_of": np.repeat(np.arange(len(chunks)), chunks), "bias_past": 1, "mask_past": 1, "cached": "all",
        "rotations": "once", "keys_at_last": False, "later": {}, "reach": (window or (None,))[0],
    }  # fmt: skip
    return judge(CACHE, np.concatenate(outs, -2), case, coarser(dtype, dtype_of(found)))
