"""Attention that a module of transformers computes step by step: the steps are recorded, and posenc computes them."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any, TypeAlias

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from ._attention import attention_forward, fail
from ._lazy import Structure, structure_of

Operand: TypeAlias = Any
"""A tensor or a number that a module combines with its logits, or the logits if the tensor is to their left."""


class _Row:
    """A number for each query, which a softmax does not depend on."""

    def unsqueeze(self, dim: int) -> _Row:
        return self


_ROW = _Row()


def _add(logits: Operand, other: Operand) -> Logits:
    if not isinstance(logits, Logits):
        logits, other = other, logits
    term = (1.0, other, logits.shape)
    return logits.change(terms=[*logits.terms, term])  # type: ignore[no-any-return]


def _multiply(logits: Operand, other: Operand) -> Logits:
    if not isinstance(logits, Logits):
        logits, other = other, logits
    if isinstance(other, torch.Tensor):
        if logits.terms or (other.ndim and other.shape[-1] != 1):
            fail(logits.recorder.module, "attention", "multiplies logits by a tensor; expected one number for each row")
        return logits.change(query=logits.query * other)  # type: ignore[no-any-return]
    terms = [(other * factor, tensor, shape) for factor, tensor, shape in logits.terms]
    return logits.change(factor=logits.factor * other, terms=terms)  # type: ignore[no-any-return]


class Logits:
    """The product of queries and keys, and the steps that a module has applied to it, without queries x keys numbers.

    A step that is not in `_STEPS` is an error.
    """

    def __init__(self, recorder: Recorder, query: torch.Tensor, key: torch.Tensor) -> None:
        self.recorder, self.query, self.key = recorder, query, key
        self.shape = torch.Size((*query.shape[:-1], key.shape[-2]))
        self.batch_and_heads = torch.Size((1, *query.shape[:-2]))[-2:]
        self.dtype, self.device, self.ndim = query.dtype, query.device, query.ndim
        self.factor, self.is_softmax, self.dropout = 1.0, False, 0.0
        self.terms: list[tuple[float, torch.Tensor, torch.Size]] = []
        """Factors and tensors that are added, and the shape that the logits had."""
        self.hidden: torch.Tensor | None = None

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        name = function.__name__
        if name not in _STEPS:
            module = next(one for one in args if isinstance(one, Logits)).recorder.module
            fail(module, "attention", f"calls {name} with its logits; expected one of {', '.join(_STEPS)}")
        return _STEPS[name](*args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        if name not in _STEPS:
            raise AttributeError(name)
        return partial(_STEPS[name], self)

    def __sub__(self, other: Operand) -> Logits:
        return self if other is _ROW else NotImplemented

    def __truediv__(self, other: Operand) -> Logits:
        return _multiply(self, 1 / other)

    def __matmul__(self, value: torch.Tensor) -> object:
        return torch.matmul(self, value)  # type: ignore[call-overload, unused-ignore]

    __add__ = __radd__ = _add
    __mul__ = __rmul__ = _multiply

    def change(self, **changes: object) -> Logits:
        other = copy(self)
        other.__dict__.update(changes)
        return other


def _view(logits: Logits, *sizes: object) -> Logits:
    shape = torch.empty(logits.shape, device="meta").view(*sizes).shape
    return logits.change(
        shape=shape, ndim=len(shape), batch_and_heads=shape[:2] if len(shape) == 4 else logits.batch_and_heads
    )


def _fill(logits: Logits, hidden: torch.Tensor, value: float) -> Logits:
    lowest = torch.finfo(logits.dtype).min
    if logits.is_softmax and value == 0 and logits.hidden is not None and torch.equal(hidden, logits.hidden):
        return logits
    if logits.is_softmax or value > lowest / 2:
        fail(logits.recorder.module, "attention", f"fills masked logits with {float(value)}; expected {lowest}")
    zero = torch.zeros((), dtype=logits.dtype)
    return _add(logits.change(hidden=hidden), zero.masked_fill(hidden, lowest))


def _fill_in_place(logits: Logits, hidden: torch.Tensor, value: float) -> Logits:
    logits.__dict__.update(_fill(logits, hidden, value).__dict__)
    return logits


def _softmax(logits: Logits, dim: int | None = None, **options: object) -> Logits:
    if dim not in (-1, logits.ndim - 1):
        fail(logits.recorder.module, "softmax", f"has dim {dim}; expected -1")
    return logits.change(is_softmax=True)


def _drop(weights: Logits, p: float, training: bool, **options: object) -> Logits:
    return weights.change(dropout=p if training else 0.0)


def _limit(logits: Logits, lowest: torch.Tensor) -> Logits:
    """Return `torch.max` of logits and the smallest number of their dtype, which changes nothing."""
    if lowest.numel() > 1 or lowest > torch.finfo(logits.dtype).min:
        fail(logits.recorder.module, "attention", "limits its logits; expected the smallest number of their dtype")
    return logits


def _attend(weights: object, value: torch.Tensor) -> torch.Tensor:
    """Return attention, in the shape of the product of weights and values."""
    if not isinstance(weights, Logits) or not weights.is_softmax:
        logits = weights if isinstance(weights, Logits) else value
        fail(logits.recorder.module, "attention", "has no softmax; expected one")  # type: ignore[attr-defined, unused-ignore]
    module, lead = weights.recorder.module, weights.batch_and_heads
    query, key, values = (one.reshape(*lead, *one.shape[-2:]) for one in (weights.query, weights.key, value))
    mask: torch.Tensor | None = None
    of_keys: list[torch.Tensor] = []
    of_heads: list[torch.Tensor] = []
    for factor, tensor, shape in weights.terms:
        if mask is None and isinstance(structure_of(tensor), Structure):
            mask = tensor
            continue
        term = _with_heads(tensor, shape, lead)
        (of_keys if term.shape[1] == 1 else of_heads).append(term if factor == 1 else factor * term)
    if mask is None and of_keys:
        mask, of_keys = sum(of_keys[1:], of_keys[0]), []
    bias = [*of_keys, *of_heads]
    weights.recorder.calls += 1
    out, _ = attention_forward(
        module,
        query,
        key,
        values,
        mask,
        scaling=weights.factor,
        dropout=weights.dropout,
        is_causal=False,
        position_bias=sum(bias[1:], bias[0]) if bias else None,
    )
    return out.transpose(1, 2).reshape(*weights.shape[:-1], value.shape[-1])


def _with_heads(tensor: torch.Tensor, shape: torch.Size, lead: torch.Size) -> torch.Tensor:
    """Return a tensor that is added to logits of a shape, with an axis for batches and one for heads."""
    if len(shape) == 5:  # Swin's images and windows
        return tensor.expand(*shape[:2], *tensor.shape[-3:]).flatten(0, 1)
    tensor = tensor[(None,) * (len(shape) - tensor.ndim)]
    if len(shape) == 4:
        return tensor
    return tensor[None] if tensor.shape[0] == 1 else tensor.unflatten(0, lead)


def _same(logits: Logits, *args: object, **options: object) -> Logits:
    return logits


_STEPS: dict[str, Callable[..., object]] = {
    "add": _add, "amax": lambda logits, dim: _ROW, "bmm": _attend, "contiguous": _same, "div": Logits.__truediv__,
    "dim": lambda logits: logits.ndim, "dropout": _drop, "expand_as": _same, "float": _same, "masked_fill": _fill,
    "masked_fill_": _fill_in_place, "matmul": _attend, "max": _limit, "mul": _multiply, "reshape": _view,
    "size": lambda logits, *dim: logits.shape[dim[0]] if dim else logits.shape, "softmax": _softmax, "to": _same,
    "type_as": _same, "view": _view,
}  # fmt: skip
"""Functions and methods of torch that a module may call with its logits."""


class Recorder(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
    """A block in which a product of two tensors is the beginning of attention."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module, self.calls = module, 0

    def __torch_function__(
        self,
        function: Callable[..., object],
        types: object,
        args: tuple[Operand, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        is_product = getattr(function, "__name__", "") in ("matmul", "bmm")
        if is_product and all(isinstance(one, torch.Tensor) and one.ndim > 2 for one in args):
            return Logits(self, args[0], args[1].transpose(-1, -2))
        return function(*args, **(kwargs or {}))


def record(module: torch.nn.Module, *args: object, theirs: Callable[..., object], **kwargs: object) -> object:
    """Return the result of the forward method of transformers, with the attention inside it computed by posenc."""
    with Recorder(module) as recorder:
        result = theirs(module, *args, **kwargs)
    if not recorder.calls:
        fail(module, "forward", "computes no attention that posenc knows")
    return tree_map_only(Logits, lambda weights: None, result)


record = torch.compiler.disable(record)  # a graph has no objects that are not tensors
