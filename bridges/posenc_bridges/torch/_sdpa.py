"""Attention with the signature and the meaning of `torch.nn.functional.scaled_dot_product_attention`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NoReturn
from unittest.mock import patch

import torch  # type: ignore[import-not-found, unused-ignore]
from torch.nn import functional  # type: ignore[import-not-found, unused-ignore]
from torch.nn.attention.bias import CausalBias, CausalVariant  # type: ignore[import-not-found, unused-ignore]
from torch.overrides import TorchFunctionMode  # type: ignore[import-not-found, unused-ignore]

import posenc

from . import _functions as pt
from ._prepared import PreparedAttention, prepare
from ._private import read
from ._sequences import by_sequence

if TYPE_CHECKING:
    from ._tensors import Tensor

_NAME = "scaled_dot_product_attention"
_THEIRS = functional.scaled_dot_product_attention
_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def _fail(error: type[Exception], argument: str, has: object, expected: str) -> NoReturn:
    raise error(f"{_NAME}: {argument} {has}; expected {expected}")


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    bias: pt.Operator | posenc.Bias | Sequence[pt.Operator | posenc.Bias] | None = None,
) -> Tensor:
    """Compute attention as `torch.nn.functional.scaled_dot_product_attention` does, by `posenc.attention`.

    ``softmax(scale query.key + attn_mask + bias, over visible keys) . value``

    Parameters
    ----------
    query, key, value : Tensor (..., H, N, E), (..., G, M, E) and (..., G, M, Ev)
        Of one dtype. Leading axes broadcast, the axis of heads included; tensors with two axes are one head. All three
        may be nested tensors of layout ``torch.jagged`` whose ragged axis is N, without `attn_mask`.
    attn_mask : Tensor (..., N, M), optional
        A boolean mask, True = the query may see the key, or numbers that are added to the logits, in the dtype of the
        query or in float32. It may require a gradient. A `torch.nn.attention.bias.CausalBias` is taken, too.
    dropout_p : float
        Probability that a weight is dropped, below 1. The seed comes from torch's generator.
    is_causal : bool
        If True, query i sees the keys 0 .. i, also where N != M. A mask is applied as well; PyTorch refuses the two
        together from 2.14 on.
    scale : float, optional
        ``E**-0.5`` by default, unless an operator in `bias` has another default.
    enable_gqa : bool
        If True, G divides H, and query head h reads key head ``h // (H // G)``. If False, H equals G, or one is 1.
    bias : Operator or sequence of Operator, optional
        Operators on the logits, as `posenc_bridges.torch.attention` takes them.

    Returns
    -------
    Tensor (..., H, N, Ev)
        Contiguous, in the dtype of the query.

    Raises
    ------
    TypeError, ValueError
        Other dtypes, a mask of integers, shapes that do not fit. PyTorch 2.13 and 2.14 refuse them, too.
    NotImplementedError
        `dropout_p` is 1.

    Notes
    -----
    Inside ``torch.autocast("cpu")`` tensors other than float64 are converted first, as for PyTorch's function. A query
    that sees no key gives 0, as there. Unlike there, NaN in a masked key or value does not reach the result, and in
    float16 and bfloat16 only the result is rounded.

    Examples
    --------
    >>> import torch, posenc, posenc_bridges.torch as pt
    >>> q, k, v = torch.randn(3, 2, 8, 100, 64)
    >>> ours = pt.scaled_dot_product_attention(q, k, v, is_causal=True)
    >>> theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    >>> torch.allclose(ours, theirs, atol=1e-5)
    True
    >>> pt.scaled_dot_product_attention(q, k, v, bias=pt.alibi(posenc.alibi_slopes(8)), is_causal=True).shape
    torch.Size([2, 8, 100, 64])
    """
    is_usual = attn_mask is None and bias is None and dropout_p == 0 and not enable_gqa and type(is_causal) is bool
    if is_usual and (scale is None or type(scale) is float) and _are_alike(query, key, value):
        return _prepared(is_causal, scale)(query, key, value)
    for argument, one in (("query", query), ("key", key), ("value", value), ("attn_mask", attn_mask)):
        if not isinstance(one, torch.Tensor) and (one is not None or argument != "attn_mask"):
            _fail(TypeError, argument, f"has type {type(one).__name__}", "a tensor")
        if one is not None and one.is_nested:
            jagged = partial(_attend_jagged, query, key, value, attn_mask, scale=scale, bias=bias)
            return jagged(dropout_p=dropout_p, is_causal=is_causal, enable_gqa=enable_gqa)
        if one is not None and one.ndim < 2:
            _fail(ValueError, argument, f"has shape {tuple(one.shape)}", "at least 2 axes")
    for argument, flag in (("is_causal", is_causal), ("enable_gqa", enable_gqa)):
        if not isinstance(flag, bool):
            _fail(TypeError, argument, f"has type {type(flag).__name__}", "True or False")
    if not isinstance(dropout_p, (int, float, torch.SymFloat, torch.Tensor)):
        _fail(TypeError, "dropout_p", f"has type {type(dropout_p).__name__}", "a probability")
    if not 0 <= dropout_p <= 1:
        _fail(ValueError, "dropout_p", f"is {dropout_p}", "a probability")
    if dropout_p == 1:
        _fail(NotImplementedError, "dropout_p", f"is {dropout_p}", "less than 1")
    options: dict[str, object] = {"causal": True, "align": "start"} if is_causal else {}
    if isinstance(attn_mask, CausalBias):
        is_at_end = attn_mask.variant is CausalVariant.LOWER_RIGHT
        options, attn_mask = {"causal": True, "align": "end" if is_at_end else "start"}, None
    if torch.is_autocast_enabled("cpu"):
        query, key, value, attn_mask = map(_autocast, (query, key, value, attn_mask))
    _check_dtypes(query, key, value, attn_mask)

    has_heads = max(query.ndim, key.ndim, value.ndim) > 2
    if has_heads:
        query, key, value = (one[None] if one.ndim == 2 else one for one in (query, key, value))
        query, key, value = _match_heads(query, key, value, enable_gqa)
        if attn_mask is not None and attn_mask.ndim == 4 > query.ndim and attn_mask.shape[0] == 1:
            attn_mask = attn_mask[0]  # as PyTorch from 2.14 on
    elif enable_gqa:
        _fail(ValueError, "query", f"has shape {tuple(query.shape)}", "an axis of heads, because enable_gqa is True")
    _check_shapes(query, key, value, attn_mask)

    operators = [] if bias is None else list(bias) if isinstance(bias, (tuple, list)) else [bias]
    if operators:
        options.setdefault("align", "start")
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        options["keep"] = attn_mask
    elif attn_mask is not None:
        operators.append(pt.dense(attn_mask))
    out: Tensor = pt.attention(query, key, value, bias=operators, scale=scale, dropout=float(dropout_p), **options)
    return out


def _are_alike(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Return whether posenc and PyTorch read the shapes and dtypes of three tensors in the same way: of most calls."""
    if not type(query) is type(key) is type(value) is torch.Tensor or torch.compiler.is_compiling():
        return False
    dtype = query.dtype
    if dtype not in _DTYPES or key.dtype is not dtype or value.dtype is not dtype:
        return False
    if query.is_nested or key.is_nested or value.is_nested or torch.is_autocast_enabled("cpu"):
        return False
    shape, of_keys = query.shape, key.shape
    return bool(of_keys == value.shape and shape[:-2] == of_keys[:-2] and shape[-1:] == of_keys[-1:])


@lru_cache(maxsize=64)
def _prepared(is_causal: bool, scale: float | None) -> PreparedAttention:
    return prepare(causal=is_causal, align="start" if is_causal else None, scale=scale)


def _attend_jagged(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any) -> Tensor:
    """Return attention of jagged tensors (batch, H, ragged N, E), one sequence after the other."""
    if mask is not None:
        _fail(NotImplementedError, "attn_mask", "is given", "None, because query is a nested tensor")
    for argument, one in (("query", query), ("key", key), ("value", value)):
        if not one.is_nested or one.layout is not torch.jagged:
            _fail(TypeError, argument, "is no jagged tensor", "query, key and value of layout torch.jagged, or none")
        if one.ndim != 4 or read(one, "NestedTensor._ragged_idx") != 2 or one.lengths() is not None:
            _fail(
                ValueError, argument, f"has shape {tuple(one.shape)}", "(batch, heads, ragged axis, width) without gaps"
            )
    sequences = [one.transpose(1, 2) for one in (query, key, value)]  # the numbers are (tokens, heads, width)
    numbers = [one.values() for one in sequences]
    ends = [one.offsets().tolist() for one in sequences]
    if ends[1] != ends[2] or len(ends[0]) != len(ends[1]):
        _fail(ValueError, "key", "has other lengths", "as many sequences as query, with the lengths of value")
    (found,) = by_sequence(partial(scaled_dot_product_attention, **options), numbers, *ends[:2])
    joined = torch.nested.nested_tensor_from_jagged(found, sequences[0].offsets())
    return joined.transpose(1, 2)


def _autocast(tensor: Tensor | None) -> Tensor | None:
    """Return a tensor as autocast converts the arguments of SDPA."""
    if tensor is None or not tensor.is_floating_point() or tensor.dtype is torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype("cpu"))


def _check_dtypes(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> None:
    if query.dtype not in _DTYPES:
        _fail(TypeError, "query", f"has dtype {query.dtype}", "float16, bfloat16, float32 or float64")
    for argument, one in (("key", key), ("value", value)):
        if one.dtype is not query.dtype:
            _fail(TypeError, argument, f"has dtype {one.dtype}", f"{query.dtype}, the dtype of query")
    is_narrow = query.dtype is torch.float16 or query.dtype is torch.bfloat16
    allowed = (torch.bool, query.dtype, *((torch.float32,) if is_narrow else ()))
    if mask is not None and mask.dtype not in allowed:
        _fail(TypeError, "attn_mask", f"has dtype {mask.dtype}", f"torch.bool or {query.dtype}")


def _check_shapes(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> None:
    if key.shape[-1] != query.shape[-1]:
        _fail(ValueError, "key", f"has width {key.shape[-1]}", f"{query.shape[-1]}, the width of query")
    if value.shape[-2] != key.shape[-2]:
        _fail(ValueError, "value", f"has {value.shape[-2]} rows", f"{key.shape[-2]}, the rows of key")
    if mask is None:
        return
    batch = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    shape = (*batch, *query.shape[-3:-1], key.shape[-2])
    pairs = zip(reversed(mask.shape), reversed(shape))  # noqa: B905 - torch.compile knows no strict
    if mask.ndim > len(shape) or any(length not in (1, other) for length, other in pairs):
        _fail(ValueError, "attn_mask", f"has shape {tuple(mask.shape)}", f"to broadcast to {tuple(shape)}")


def _match_heads(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return the arguments with numbers of heads that `posenc.attention` takes; views, where it is possible."""
    heads, of_keys, of_values = query.shape[-3], key.shape[-3], value.shape[-3]
    if enable_gqa:
        for argument, count in (("key", of_keys), ("value", of_values)):
            if heads % count if count else heads:
                _fail(ValueError, argument, f"has {count} heads", f"a divisor of {heads}, the heads of query")
        if of_keys != of_values and heads:
            most = heads if of_keys % of_values and of_values % of_keys else max(of_keys, of_values)
            key = key.repeat_interleave(most // of_keys, -3)
            value = value.repeat_interleave(most // of_values, -3)
        return query, key, value
    most = max(heads, of_keys, of_values)
    for argument, count in (("query", heads), ("key", of_keys), ("value", of_values)):
        if count not in (1, most):
            _fail(ValueError, argument, f"has {count} heads", f"1 or {most}, or enable_gqa=True")
    query = query.expand(*query.shape[:-3], most, *query.shape[-2:])
    if of_keys != of_values:
        key, value = (one.expand(*one.shape[:-3], most, *one.shape[-2:]) for one in (key, value))
    return query, key, value


class ReplacedSdpa(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
    """The block that `replace_sdpa` returns.

    Attributes
    ----------
    calls : int
        Number of calls that posenc computed.
    left : list of str
        For each call that PyTorch computed, the error of posenc.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.left: list[str] = []

    def __torch_function__(
        self,
        function: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        if function is _THEIRS:
            return self._attend(*args, **kwargs)
        is_mha = function is functional.multi_head_attention_forward  # its body runs outside this mode
        with patch.object(functional, _NAME, self._attend) if is_mha else nullcontext():
            return function(*args, **kwargs)

    def _attend(self, *args: Any, **kwargs: Any) -> Tensor:
        try:
            result = scaled_dot_product_attention(*args, **kwargs)
        except (TypeError, ValueError, NotImplementedError) as error:
            self.left.append(str(error))
            theirs: Tensor = _THEIRS(*args, **kwargs)
            return theirs
        self.calls += 1
        return result


def replace_sdpa() -> ReplacedSdpa:
    """Return a block in which PyTorch's `scaled_dot_product_attention` is computed by posenc.

    A call that posenc refuses is left to PyTorch.

    Returns
    -------
    ReplacedSdpa
        A context manager. ``calls`` is the number of calls that posenc computed; ``left`` lists the reasons of the
        calls that were left to PyTorch.

    Notes
    -----
    The block is a `torch.overrides.TorchFunctionMode`: it also replaces calls by modules that imported the function by
    name. The fused kernels of ``torch.nn.MultiheadAttention`` and ``torch.nn.TransformerEncoderLayer``, which PyTorch
    runs without gradients in evaluation, do not call the function and are not replaced.

    Examples
    --------
    >>> import torch, posenc_bridges.torch as pt
    >>> q, k, v = torch.randn(3, 2, 8, 100, 64)
    >>> with pt.replace_sdpa() as replaced:
    ...     out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    ...     nothing = torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=1.0)
    >>> replaced.calls, replaced.left
    (1, ['scaled_dot_product_attention: dropout_p is 1.0; expected less than 1'])
    """
    return ReplacedSdpa()
