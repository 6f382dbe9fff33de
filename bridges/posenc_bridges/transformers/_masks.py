"""The mask function of transformers: masks as structure, without an array of queries x keys where there is one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from math import inf
from typing import Any, NamedTuple

import torch
from transformers import masking_utils
from transformers.utils.import_utils import is_tracing

from ._lazy import LazyTensor, Structure, attach
from ._private import MASKS, MISSING, find

Mask = Callable[..., object]
"""A mask function of transformers: of the indices of batch row, head, query and key."""


CONFIGS_OF_SDPA: set[type] = set()
"""Configs of models that can do without a mask where nothing is masked, because they support SDPA."""


class _Rule(NamedTuple):
    """The part of a `Structure` that a mask function determines; segments as pairs of queries and keys."""

    left: int | None = None
    right: int | None = None
    segments: tuple[tuple[torch.Tensor, torch.Tensor], ...] = ()

    def __and__(self, other: _Rule) -> _Rule:
        return _Rule(_smaller(self.left, other.left), _smaller(self.right, other.right), self.segments + other.segments)


def _smaller(a: int | None, b: int | None) -> int | None:
    return a if b is None else b if a is None else min(a, b)


def _read_rule(function: Mask, q: torch.Tensor, k: torch.Tensor) -> _Rule | None:
    """Return the rule of a mask function for queries and keys at the indices q and k (batch or 1, length).

    None if it is not one of those of transformers that have a structure.
    """
    if function is masking_utils.causal_mask_function:
        return _Rule(right=0)
    if function is masking_utils.bidirectional_mask_function:
        return _Rule()
    read = getattr(function, "posenc_rule", None)
    return None if read is None else read(q=q, k=k)


def _and(*functions: Mask, q: torch.Tensor, k: torch.Tensor) -> _Rule | None:
    rule = _Rule()
    for function in functions:
        one = _read_rule(function, q, k)
        if one is None:
            return None
        rule = rule & one  # torch.compile before 2.13 does not trace &= of a NamedTuple
    return rule


def _chunks(size: int, start: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> _Rule:
    return _Rule(segments=(((q - start[:, None]) // size, (k - start[:, None]) // size),))


_RULES: dict[str, Callable[..., _Rule | None]] = {
    "and_masks": _and,
    "chunked_overlay": _chunks,
    "packed_sequence_mask_function": lambda packed, q, k: _Rule(segments=((packed, packed),)),
    # Within one packed sequence positions differ as indices do, so a window is the same in both.
    "remap_positions_for_packed_sequence": lambda function, at, q, k: _read_rule(function, at, at),
    "sliding_window_bidirectional_overlay": lambda size, q, k: _Rule(size, size),
    "sliding_window_overlay": lambda size, q, k: _Rule(left=size - 1),
}
"""For each function of transformers that makes a mask function, the rule of that for its arguments, q and k."""


def describe_mask_functions() -> None:
    """Let the mask functions of transformers keep their rule as a function of q and k, which torch.compile can call."""

    def describe(name: str, rule: Callable[..., _Rule | None]) -> None:
        theirs = getattr(masking_utils, name)

        @wraps(theirs)
        def make(*args: object, **kwargs: object) -> Mask:
            function: Mask = theirs(*args, **kwargs)
            function.posenc_rule = partial(rule, *args, **kwargs)  # type: ignore[attr-defined]
            return function

        setattr(masking_utils, name, make)

    for path in MASKS:
        module, _, name = path.partition(".")
        if find(path):
            describe(name, _RULES[name])
        else:  # masks of a function without a rule are arrays
            MISSING.setdefault(module, []).append(name)


def _merge_segments(
    pairs: tuple[tuple[torch.Tensor, torch.Tensor], ...],
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return segments that are equal where those of all pairs are."""
    if not pairs:
        return None, None
    q, k = pairs[0]
    for next_q, next_k in pairs[1:]:
        low = torch.minimum(next_q.min(), next_k.min())
        count = torch.maximum(next_q.max(), next_k.max()) - low + 1
        q, k = q * count + (next_q - low), k * count + (next_k - low)
    return q, k


def make_mask(
    q_length: int,
    kv_length: int,
    q_offset: int | torch.Tensor = 0,
    kv_offset: int = 0,
    mask_function: Mask = masking_utils.causal_mask_function,
    attention_mask: torch.Tensor | None = None,
    **others: Any,
) -> torch.Tensor | None:
    """Return the mask of a call of transformers' mask interface, structured if `mask_function` has a structure."""
    # like SDPA's, the mask of a token that is decoded may be None
    is_token = q_length == 1 and others.get("allow_is_causal_skip") and type(others.get("config")) in CONFIGS_OF_SDPA
    if is_token and attention_mask is None and kv_length < (others.get("local_size") or inf):
        return None
    is_traced = is_tracing(attention_mask)
    eager = partial(masking_utils.eager_mask, q_length=q_length, kv_length=kv_length, kv_offset=kv_offset)
    eager = partial(eager, mask_function=mask_function, attention_mask=attention_mask, **others)
    if is_traced and isinstance(q_offset, torch.Tensor):  # its number is not known
        return eager(q_offset=q_offset)
    # static caches count in a tensor, which they change in place after this call
    first = int(q_offset)
    q = torch.arange(first, first + q_length)[None]
    k = torch.arange(kv_offset, kv_offset + kv_length)[None]
    rule = _read_rule(mask_function, q, k)
    if rule is None:
        return eager(q_offset=first)
    padding = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
    if padding is not None:
        padding = padding[:, kv_offset : kv_offset + kv_length]
        padding = None if not is_traced and padding.all() else padding
    most = max(first + q_length - 1 - kv_offset, 0)  # keys to the left of the last query
    left = rule.left if rule.left is not None and rule.left < most else None  # as for most tokens that are decoded
    is_limited = left is not None or (rule.right is not None and rule.right < max(kv_offset + kv_length - 1 - first, 0))
    may_skip = is_token or others.get("allow_is_bidirectional_skip")
    if may_skip and padding is None and not is_limited and not rule.segments:
        return None
    q_segments, k_segments = _merge_segments(rule.segments)
    structure = Structure(first, kv_offset, (left, rule.right), q_segments, k_segments, padding)
    if is_traced:
        return attach(eager(q_offset=first), structure)

    def compute(dtype: torch.dtype) -> torch.Tensor:
        mask: torch.Tensor = eager(q_offset=first, dtype=torch.float32 if dtype is torch.bool else dtype)
        return mask.to(dtype)

    shape = others["batch_size"], 1, q_length, kv_length  # as eager attention adds it
    return LazyTensor(structure, compute, shape, others.get("dtype", torch.float32), others.get("device", "cpu"))
