"""Tensors that carry their structure through a model and are computed only if the model needs their numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch

Module: TypeAlias = Any
"""A module of transformers; torch gives its attributes the type Tensor | Module, which fits none of their uses."""


def _dense(value: Any) -> Any:
    """Return arguments of a function with numbers in place of each `LazyTensor`."""
    if isinstance(value, LazyTensor):
        return value.dense()
    if type(value) in (tuple, list):
        return type(value)(map(_dense, value))
    return {name: _dense(one) for name, one in value.items()} if type(value) is dict else value


class LazyTensor(torch.Tensor):  # type: ignore[misc, unused-ignore]
    """A tensor that is computed only if an operation needs its numbers; shape, dtype and device are known before.

    A model that passes it on passes its structure on; a model that computes with it gets the numbers.
    """

    _METADATA = frozenset(
        getattr(torch.Tensor, name).__get__
        for name in ("shape", "dtype", "device", "ndim", "layout", "requires_grad", "is_cuda", "is_sparse")
    ) | {torch.Tensor.dim, torch.Tensor.size, torch.Tensor.is_floating_point}

    posenc_structure: Structure | T5Bias
    _made_from: tuple[Any, ...]

    @staticmethod
    def __new__(cls, *made_from: Any) -> LazyTensor:
        """Return the tensor of (structure, function of a dtype that computes the numbers, shape, dtype, device)."""
        structure, _, shape, dtype, device = made_from
        self: LazyTensor = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=device)
        self.posenc_structure, self._made_from, self.sizes = structure, made_from, shape
        return self

    sizes: tuple[int, ...]
    """The shape; torch takes longer to look it up."""
    is_intact = True
    """False after an operation in place: the numbers are no longer those that the structure describes."""

    def dense(self) -> torch.Tensor:
        """Return the tensor itself; the same object each time."""
        if "_dense" not in self.__dict__:
            _, compute, _, dtype, _ = self._made_from
            self._dense = compute(dtype)
        return self._dense

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., object],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        if function in cls._METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*args, **kwargs)
        # A checkpoint detaches its inputs. The copy keeps the structure, whose parameters have gradients of their own.
        if function is torch.Tensor.detach and args[0].is_intact:
            return LazyTensor(*args[0]._made_from)
        if function is torch.Tensor.contiguous and args[0].is_intact:  # generate asks for it before a static cache
            return args[0]
        if function is torch.Tensor.requires_grad.__set__:
            return None
        is_bool = function is torch.Tensor.to and args[1:] == (torch.bool,)
        if is_bool and isinstance(structure_of(args[0]), Structure):  # MPT: True where a key is hidden
            structure, compute, shape, _, device = args[0]._made_from
            return LazyTensor(structure, compute, shape, torch.bool, device)
        name = getattr(function, "__name__", "")
        in_place = name == "__setitem__" or name.startswith("__i") or (name.endswith("_") and not name.startswith("_"))
        if in_place and isinstance(args[0], LazyTensor):
            args[0].is_intact = False
        return function(*_dense(args), **_dense(kwargs))

    __torch_dispatch__ = __torch_function__  # for calls that do not come from Python


class Structure(NamedTuple):
    """Which keys a query sees, without an array of queries x keys."""

    q_offset: int
    """Index of the first query."""
    k_offset: int
    """Index of the first key."""
    window: tuple[int | None, int | None]
    """Numbers of visible keys to the left and to the right of a query, by index; None is no limit."""
    q_segments: torch.Tensor | None
    """(batch or 1, queries): a query sees keys of its own segment only."""
    k_segments: torch.Tensor | None
    """(batch or 1, keys)."""
    padding: torch.Tensor | None
    """(batch, keys), True = not padding."""

    @property
    def shift(self) -> int | None:
        """Position of query 0 - position of key 0; None if nothing depends on it."""
        return None if self.window == (None, None) else self.q_offset - self.k_offset

    def options(self) -> dict[str, object]:
        """Return the options of `posenc.attention`, without positions."""
        options: dict[str, object] = {}
        if self.window == (None, 0):
            options["causal"] = True
        elif self.window != (None, None):
            options["window"] = self.window
        if self.q_segments is not None:
            options["q_segments"], options["k_segments"] = self.q_segments, self.k_segments
        if self.padding is not None:
            options["keep"] = self.padding[:, None, None, :]
        return options


class T5Bias(NamedTuple):
    """T5's relative bias by its table."""

    table: torch.Tensor
    """(buckets, heads)."""
    shift: int
    """Position of query 0 - position of key 0."""
    options: dict[str, Any]
    """Options of `posenc_bridges.torch.t5`."""


def attach(tensor: torch.Tensor, structure: Structure | T5Bias) -> torch.Tensor:
    """Attach a structure to the numbers that it describes, for a graph, which can have no `LazyTensor`.

    Where attention reads the structure, the compiler removes the numbers.
    """
    tensor.posenc_structure = structure  # type: ignore[attr-defined, unused-ignore]
    return tensor


def structure_of(tensor: object) -> Structure | T5Bias | None:
    """Return the structure of a tensor that carries one; None after an operation in place."""
    if isinstance(tensor, LazyTensor) and not tensor.is_intact:
        return None
    structure: Structure | T5Bias | None = getattr(tensor, "posenc_structure", None)
    return structure


def read_t5(module: Module, past: int) -> T5Bias:
    """Return the bias of an attention module of T5's kind, after `past` keys."""
    is_bidirectional = not getattr(module, "is_decoder", True)  # Pix2Struct's text model is a decoder
    options = {"bidirectional": is_bidirectional, "max_distance": module.relative_attention_max_distance}
    return T5Bias(module.relative_attention_bias.weight, past, options)
