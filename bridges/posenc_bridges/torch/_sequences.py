"""Attention of sequences of different lengths, whose tokens stand one after the other in one tensor."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch  # type: ignore[import-not-found, unused-ignore]

from . import _functions as pt

if TYPE_CHECKING:
    from typing import TypeAlias

    from ._tensors import Tensor

    Results: TypeAlias = Tensor | tuple[Tensor, ...]

_OF_ONE = ("keep", "q_positions", "k_positions", "q_segments", "k_segments", "seed")
"""Arguments whose numbers would be of all sequences, or the same in each."""
_PARAMETERS = """cu_seqlens_q, cu_seqlens_k : integer array (sequences + 1,), optional
    The tokens of sequence s are ``cu_seqlens_q[s]`` to ``cu_seqlens_q[s + 1] - 1``, as in flash-attention. Then q is
    (tokens, H, D), k (tokens, G, D), v (tokens, G, Dv), out (tokens, H, Dv) and lse (H, tokens), and the sequences are
    computed one after the other, each from position 0. `cu_seqlens_k` is `cu_seqlens_q` by default. Masks and
    positions are not taken. torch.compile breaks the graph; in a graph, use `q_segments` and `k_segments`.
"""


def by_sequence(
    attend: Callable[..., Results], tensors: Sequence[Tensor], q_ends: Sequence[int], k_ends: Sequence[int]
) -> list[Tensor]:
    """Return the results of `attend` for q, k and v of (tokens, heads, width), sequence by sequence.

    The first result is (tokens, heads, width), a second one (heads, tokens).
    """
    found = []
    for row in range(max(len(q_ends) - 1, 1)):  # no sequence: one without tokens, for the shapes
        of_q, of_k = (slice(ends[row], ends[min(row + 1, len(ends) - 1)]) for ends in (q_ends, k_ends))
        results = attend(*(one[at].transpose(0, 1) for one, at in zip(tensors, (of_q, of_k, of_k), strict=True)))
        found.append(results if isinstance(results, tuple) else (results,))
    first, *others = zip(*found, strict=True)
    return [torch.cat([one.transpose(0, 1) for one in first]), *(torch.cat(parts, 1) for parts in others)]


def _read_ends(name: str, lengths: object, of: str, tokens: int) -> list[int]:
    expected = "expected integers (sequences + 1,)"
    try:
        ends = torch.as_tensor(lengths)
        found: list[int] = ends.tolist()
    except (TypeError, ValueError, RuntimeError):  # a text, rows of several lengths, a tensor without numbers
        raise TypeError(f"attention: {name} has type {type(lengths).__name__}; {expected} in memory") from None
    is_integer = not (ends.is_floating_point() or ends.is_complex() or ends.dtype is torch.bool)
    if ends.ndim != 1 or not is_integer or not found:
        raise ValueError(f"attention: {name} has shape {tuple(ends.shape)} and dtype {ends.dtype}; {expected}")
    if found[0] != 0 or found[-1] != tokens or found != sorted(found):
        raise ValueError(
            f"attention: {name} is {found}; expected rising numbers from 0 to {tokens}, the tokens of {of}"
        )
    return found


def attention(*args: Any, cu_seqlens_q: Any = None, cu_seqlens_k: Any = None, **options: Any) -> Any:
    if cu_seqlens_q is None and cu_seqlens_k is None:
        return pt.attention(*args, **options)
    if cu_seqlens_q is None:
        raise ValueError("attention: cu_seqlens_q is None; expected an array, because cu_seqlens_k is given")
    for name in _OF_ONE:
        if options.get(name) is not None:
            raise ValueError(f"attention: {name} is given; expected None, because cu_seqlens_q is given")
    names = ("q", "k", "v")
    tensors = [*args, *(options.pop(name) for name in names[len(args) :] if name in options)]
    if len(tensors) != len(names):
        return pt.attention(*args, **options)  # it names what is missing
    for name, one in zip(names, tensors, strict=True):
        if not isinstance(one, torch.Tensor) or one.ndim != 3:
            has = f"shape {tuple(one.shape)}" if isinstance(one, torch.Tensor) else f"type {type(one).__name__}"
            raise ValueError(f"attention: {name} has {has}; expected a tensor (tokens, heads, width)")
    q_ends = _read_ends("cu_seqlens_q", cu_seqlens_q, "q", len(tensors[0]))
    k_lengths = cu_seqlens_q if cu_seqlens_k is None else cu_seqlens_k
    k_ends = _read_ends("cu_seqlens_k", k_lengths, "k", len(tensors[1]))
    if len(q_ends) != len(k_ends):
        has = f"has {len(k_ends) - 1} sequences"
        raise ValueError(f"attention: cu_seqlens_k {has}; expected {len(q_ends) - 1}, as cu_seqlens_q")
    if len(tensors[2]) != len(tensors[1]):
        raise ValueError(f"attention: v has {len(tensors[2])} tokens; expected {len(tensors[1])}, as k")
    results = by_sequence(lambda *parts: pt.attention(*parts, **options), tensors, q_ends, k_ends)
    return tuple(results) if len(results) > 1 else results[0]


def _document(theirs: Callable[..., object]) -> None:
    """Give `attention` the docstring and the signature of `posenc.attention`, with its own parameters."""
    attention.__doc__ = (theirs.__doc__ or "").replace("return_lse : bool\n", f"{_PARAMETERS}return_lse : bool\n", 1)
    signature, names = inspect.signature(theirs), ("cu_seqlens_q", "cu_seqlens_k")
    own = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in names]
    parameters = [*signature.parameters.values(), *own]
    attention.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]


_document(pt.attention)
