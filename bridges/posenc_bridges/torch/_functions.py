"""Functions and operators of posenc for tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch  # type: ignore[import-not-found, unused-ignore]
from torch._C._functorch import peek_interpreter_stack  # type: ignore[import-not-found, unused-ignore]
from torch.autograd import forward_ad  # type: ignore[import-not-found, unused-ignore]

import posenc
from posenc_bridges import _common
from posenc_bridges._common import Arguments, Array, Call, Function, Path

from ._custom_ops import GraphNode, TransformedNode, Twin
from ._specs import draw_seed, encode, make_node, prepare
from ._tensors import EAGER_TYPES, NUMPY_DTYPES, Tensor, convert, has_numbers, runs_eagerly, to_array, to_tensors

_CONSTANTS = (int, str, bool, float)


class _FollowedError(Exception):
    """Autograd follows a tensor, or the tensor is no array of numbers."""


class Operator(_common.Operator):
    """A `posenc.Bias` whose arrays may be tensors, for `attention` of this module.

    It describes a call and copies nothing, so each use reads the current numbers of its tensors. Errors in the arrays
    are raised there, too.

    Attributes
    ----------
    name : str
        Name of the function that made the operator.
    arguments : dict
        Its arguments by name.
    """

    __slots__ = ()

    # torch.compile follows a global of this module, and not an attribute of the class of an object that it made itself.
    def matrix(self, *args: object, **options: object) -> Tensor:
        """Return `PositionBias.matrix` as a contiguous tensor; float32 without ``dtype``."""
        return _matrix(self, *args, **options)

    def logits(self, *args: object, **options: object) -> Tensor:
        """Return `ContentBias.logits` as a tensor."""
        return _logits(self, *args, **options)

    def __repr__(self) -> str:
        return f"<posenc_bridges.torch.{self._described()}>"


def _check_tensor(function: Function, tensor: object, path: Path) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{function.name}: {path[0]} has type {type(tensor).__name__}; expected a tensor")
    if not (tensor.is_cpu or tensor.is_meta):
        raise TypeError(f"{function.name}: {path[0]} has device {tensor.device}; expected a tensor on the CPU")
    if tensor.layout is not torch.strided:
        raise TypeError(f"{function.name}: {path[0]} has layout {tensor.layout}; expected torch.strided")
    if tensor.dtype not in NUMPY_DTYPES:
        expected = "float16, bfloat16, float32 or float64, integers or bool"
        raise TypeError(f"{function.name}: {path[0]} has dtype {tensor.dtype}; expected {expected}")
    if tensor.requires_grad and torch.is_grad_enabled() and not function.has_gradient(path):
        expected = "one that does not, because the argument has no gradient"
        raise TypeError(f"{function.name}: {path[0]} has a tensor that requires a gradient; expected {expected}")


def _make_twin(function: Function) -> Callable[[Arguments, bool], Tensor | tuple[Tensor, ...]]:
    twin = Twin(function)

    def run(arguments: Arguments, returns_all: bool) -> Tensor | tuple[Tensor, ...]:
        if "dropout" in arguments:
            draw_seed(arguments)
        is_eager = runs_eagerly()
        is_plain = is_eager and peek_interpreter_stack() is None and forward_ad._current_level < 0
        results = (call_plainly(arguments) if is_plain else None) or follow(arguments, is_eager)
        return tuple(results) if returns_all else results[0]

    def call_plainly(arguments: Arguments) -> Sequence[Tensor] | None:
        """Return the results of a call that nothing follows; else None."""
        inputs: list[Array] = []

        def leaf(value: object) -> Any:
            if isinstance(value, torch.Tensor):
                if not has_numbers(value) or (value.requires_grad and torch.is_grad_enabled()):
                    raise _FollowedError
                if value.ndim == 0 and not value.is_floating_point():
                    return convert(value)
                try:
                    inputs.append(to_array(value))
                except TypeError:  # NumPy has no such dtype; `follow` names the argument
                    raise _FollowedError from None
                return inputs[-1]
            if isinstance(value, posenc.RopeFrequencies) and isinstance(value.inv_freq, torch.Tensor):
                return replace(value, inv_freq=leaf(value.inv_freq))
            return convert(value) if isinstance(value, torch.dtype) else value

        if torch.is_grad_enabled() and any(getattr(value, "requires_grad", False) for value in arguments.values()):
            return None
        try:
            given = {
                name: leaf(value)
                if type(value) in EAGER_TYPES
                else value
                if type(value) in _CONSTANTS
                else _common.walk(value, leaf, make_node)
                for name, value in arguments.items()
            }
        except _FollowedError:
            return None
        return to_tensors(twin.compute(given), inputs)

    def follow(arguments: Arguments, is_eager: bool) -> Sequence[Tensor]:
        call = Call(arguments, convert, (torch.Tensor,), (torch.SymInt,))
        arrays = call.arrays
        are_plain = is_eager and all(map(has_numbers, arrays))
        for array, path in zip(arrays, call.paths()):  # noqa: B905 - torch.compile knows no strict
            if not are_plain or array.requires_grad:
                _check_tensor(function, array, path)
        if are_plain:
            node = GraphNode if peek_interpreter_stack() is None else TransformedNode
            try:
                results: Sequence[Tensor] = node.apply(twin, call, *arrays)  # type: ignore[no-untyped-call, unused-ignore]
            except TypeError:  # perhaps of a dtype that NumPy does not have
                for array, path in zip(arrays, call.paths(), strict=True):
                    _check_tensor(function, array, path)
                raise
            return results
        if forward_ad._current_level >= 0:  # the dispatcher would return tangents of 0
            twin.refuse_forward_mode()
        # An operator needs a tensor: the dispatcher finds its implementation by it. Autograd takes an empty list for a
        # list of tensors, and programs that are compiled ahead of time pass None for it.
        return twin.run(  # type: ignore[no-any-return]
            encode(call.spec), arrays or [torch.empty(0)], call.integers or [0], call.numbers or [0.0]
        )

    return run


_common.export(globals(), Operator, _make_twin, "tensors", prepare)
_matrix, _logits = Operator._matrix, Operator._logits

if TYPE_CHECKING:
    __all__: list[str]

    def __getattr__(name: str) -> Any: ...
