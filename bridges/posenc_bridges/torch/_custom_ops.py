"""A function of posenc as custom operators of PyTorch, with rules for autograd, torch.func and fake tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, cast

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]
from torch._C._functorch import is_legacy_batchedtensor, peek_interpreter_stack  # type: ignore[import-not-found, unused-ignore]
from torch.library import custom_op  # type: ignore[import-not-found, unused-ignore]

from posenc.runtime import follow_threads
from posenc_bridges import _common
from posenc_bridges._common import Arguments, Array, Call, Function, Node, Outline, cast_result

from ._specs import arguments_of, decode, encode, functions_of
from ._tensors import DTYPES, NUMPY_DTYPES, Tensor, has_numbers, runs_eagerly, to_array, to_tensors

if TYPE_CHECKING:
    from typing_extensions import Unpack

Context: TypeAlias = Any
"""The context of a `torch.autograd.Function` or of a custom operator."""
_Given: TypeAlias = tuple[
    Sequence[Tensor], Sequence[int], Sequence[float], Sequence[Tensor], Sequence[Tensor], Sequence[int]
]
"""Arrays, integers and numbers of a call, its results, their cotangents, and the numbers of the wanted gradients."""

_UNPROFILED: AbstractContextManager[object] = nullcontext()


def _profiled(name: str) -> AbstractContextManager[object]:
    """Return a context that torch's profiler shows as "posenc::name", as it shows the custom operator."""
    if not torch.autograd._profiler_enabled():  # a record takes longer than a small call
        return _UNPROFILED
    return cast("AbstractContextManager[object]", torch.profiler.record_function(f"posenc::{name}"))


class _Rehearsal:
    """Shapes of the results of a call, found by the call itself with held kernels, for tensors without data.

    A length that torch keeps as a symbol is tried at its current value and at the next one: a length of a result that
    grows with it contains it. If the call fails at the next one, because something else must grow too, the length is
    fixed.
    """

    def __init__(
        self,
        function: Function,
        spec: Node,
        arrays: Sequence[Tensor],
        integers: Sequence[int],
        numbers: Sequence[float],
    ) -> None:
        self._function, self._spec, self._numbers = function, spec, numbers
        self._layouts = [(array.ndim, NUMPY_DTYPES[array.dtype]) for array in arrays]
        self._sizes: Sequence[int | torch.SymInt] = [size for array in arrays for size in array.shape] + list(integers)

    def outlines(self) -> list[tuple[list[int | torch.SymInt], torch.dtype]]:
        """Return the shape and dtype of each result."""
        sizes = self._sizes
        symbols = {str(size.node.expr): size for size in sizes if isinstance(size, torch.SymInt)}
        hints = [size.node.hint if isinstance(size, torch.SymInt) else size for size in sizes]
        results = self._call(hints)
        shapes: list[list[int | torch.SymInt]] = [list(shape) for shape, _ in results]
        for name, symbol in symbols.items():
            grown = [
                hint + (isinstance(size, torch.SymInt) and str(size.node.expr) == name)
                for size, hint in zip(sizes, hints, strict=True)
            ]
            try:
                longer = self._call(grown)
            except (TypeError, ValueError, IndexError):
                int(symbol)  # a guard
                continue
            for shape, (before, _), (after, _) in zip(shapes, results, longer, strict=True):
                for axis, (length, new) in enumerate(zip(before, after, strict=True)):
                    if new != length:
                        shape[axis] = shape[axis] + (new - length) * (symbol - symbol.node.hint)
        return [(shape, DTYPES[dtype]) for shape, (_, dtype) in zip(shapes, results, strict=True)]

    def _call(self, sizes: Sequence[int]) -> list[Outline]:
        arrays, at = [], 0
        for ndim, dtype in self._layouts:
            arrays.append(_common.stand_in(tuple(sizes[at : at + ndim]), dtype))
            at += ndim
        return self._function.outlines(arguments_of(self._spec, arrays, sizes[at:], self._numbers))


_CALL = "str call, Tensor[] arrays, SymInt[] integers, float[] numbers"


class Twin:
    """A function as two custom operators, one for its value and one for its gradients."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.value = custom_op(
            f"posenc::{function.name}", self.forward_of_text, mutates_args=(), device_types="cpu",
            schema=f"({_CALL}) -> Tensor[]",
        )  # fmt: skip
        self.gradient = custom_op(
            f"posenc::{function.name}_vjp", self.backward_of_text, mutates_args=(), device_types="cpu",
            schema=f"({_CALL}, Tensor[] results, Tensor[] cotangents, int[] wanted) -> Tensor[]",
        )  # fmt: skip
        self.run = getattr(torch.ops.posenc, function.name).default
        self.value.register_fake(self._fake_forward)
        self.gradient.register_fake(self._fake_backward)
        self.value.register_autograd(self._differentiate, setup_context=self._save)
        self.gradient.register_autograd(self.refuse_second_derivative)
        self.value.register_vmap(partial(_by_rows, self.value))
        self.gradient.register_vmap(partial(_by_rows, self.gradient))

    def compute(self, arguments: Arguments) -> tuple[Array, ...]:
        """Return all results of the function for arguments of NumPy, under its name in a profile."""
        follow_threads(torch.get_num_threads())
        try:
            with _profiled(self.function.name):
                return self.function.forward(arguments)
        except TypeError as error:
            if "has type ndarray" not in str(error):
                raise
            raise TypeError(str(error).replace("has type ndarray", "has type Tensor")) from None

    def forward(
        self, spec: Node, arrays: Sequence[Tensor], integers: Sequence[int], numbers: Sequence[float]
    ) -> list[Tensor]:
        """Return all results of the function."""
        inputs = [to_array(array) for array in arrays]
        return to_tensors(self.compute(arguments_of(spec, inputs, integers, numbers)), inputs)

    def forward_of_text(
        self, call: str, arrays: Sequence[Tensor], integers: Sequence[int], numbers: Sequence[float]
    ) -> list[Tensor]:
        return self.forward(decode(call), arrays, integers, numbers)

    def backward(
        self,
        spec: Node,
        arrays: Sequence[Tensor],
        integers: Sequence[int],
        numbers: Sequence[float],
        results: Sequence[Tensor],
        cotangents: Sequence[Tensor],
        wanted: Sequence[int],
    ) -> list[Tensor]:
        """Return the gradients of the wanted arrays, in their dtypes."""
        inputs = [to_array(array) for array in (*arrays, *results, *cotangents)]
        split = len(arrays), len(arrays) + len(results)
        given = arguments_of(spec, inputs[: split[0]], integers, numbers)
        follow_threads(torch.get_num_threads())
        with _profiled(f"{self.function.name}_vjp"):
            gradients = self.function.backward(given, inputs[split[0] : split[1]], inputs[split[1] :])
        paths, found = list(_common.paths(spec)), []
        for number in wanted:
            one, like = self.function.gradient_at(gradients, paths[number]), inputs[number]
            found.append(np.zeros(like.shape, like.dtype) if one is None else cast_result(np.asarray(one), like.dtype))
        return to_tensors(found, inputs)

    def backward_of_text(self, call: str, *others: Unpack[_Given]) -> list[Tensor]:
        return self.backward(decode(call), *others)

    def gradient_of_spec(self, spec: Node, *others: Unpack[_Given]) -> list[Tensor]:
        """Return the gradients of the wanted arrays by the dispatcher."""
        found: list[Tensor] = self.gradient(encode(spec), *others)
        return found

    def _fake_forward(
        self, call: str, arrays: Sequence[Tensor], integers: Sequence[int], numbers: Sequence[float]
    ) -> list[Tensor]:
        outlines = _Rehearsal(self.function, decode(call), arrays, integers, numbers).outlines()
        device = next((array.device for array in arrays if array.is_meta), arrays[0].device)
        return [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in outlines]

    def _fake_backward(self, call: str, *others: Unpack[_Given]) -> list[Tensor]:
        arrays, *_, wanted = others
        return [arrays[number].new_empty(arrays[number].shape) for number in wanted]

    def _save(
        self,
        ctx: Context,
        inputs: tuple[str, Sequence[Tensor], Sequence[int], Sequence[float]],
        output: Sequence[Tensor],
    ) -> None:
        ctx.functions = functions_of(decode(inputs[0]))  # for the call of the gradient
        self.save(ctx, *inputs, output)

    def save(self, ctx: Context, call: object, arrays: Sequence[Tensor], *others: Sequence[object]) -> None:
        """Keep what the gradient reads: the arguments of `forward`, and its results."""
        *numbers, output = others
        ctx.set_materialize_grads(False)
        ctx.call, ctx.count = (call, *numbers), len(arrays)
        ctx.save_for_backward(*arrays, *(output if self.function.returns_lse else ()))

    def differentiate(
        self,
        gradient: Callable[..., Sequence[Tensor]],
        ctx: Context,
        needed: Sequence[bool],
        grads: Sequence[Tensor | None],
    ) -> list[Tensor | None]:
        """Return the gradients of all arrays, for the cotangents `grads` of the results, by one call of `gradient`."""
        gradients: list[Tensor | None] = [None] * ctx.count
        if all(grad is None for grad in grads):
            return gradients
        saved = ctx.saved_tensors  # checkpoints allow one access
        arrays, results = saved[: ctx.count], saved[ctx.count :]
        first, *rest = grads
        cotangents = [torch.zeros_like(results[0]) if first is None else first, *(g for g in rest if g is not None)]
        wanted = [number for number, is_needed in enumerate(needed) if is_needed]
        call, integers, numbers = ctx.call
        found = gradient(call, arrays, integers, numbers, results, cotangents, wanted)
        for number, one in zip(wanted, found, strict=True):
            gradients[number] = one
        return gradients

    def refuse(self, what: str, expected: str) -> NoReturn:
        raise NotImplementedError(f"{self.function.name}: {what}; expected {expected}")

    def refuse_second_derivative(self, *args: object) -> NoReturn:
        self.refuse("its gradient is differentiated", "first derivatives only")

    def refuse_forward_mode(self) -> NoReturn:
        self.refuse("a tensor has a tangent of forward mode", "reverse mode")

    def refuse_vmap(self, *args: object) -> NoReturn:
        self.refuse("its gradient has a batch of cotangents", "one cotangent, or torch.func.vmap")

    def _differentiate(self, ctx: Context, grads: Sequence[Tensor | None]) -> tuple[object, ...]:
        return None, self.differentiate(self.gradient, ctx, ctx.needs_input_grad[1], grads), None, None


def _by_rows(function: Callable[..., Sequence[Tensor]], info: Any, in_dims: Sequence[Any], *inputs: Any) -> Any:
    """Return the rule of a function for `torch.func.vmap`: its results for each row, one by one."""

    def select(value: Any, dim: Any, row: int) -> Any:
        if isinstance(value, list) and isinstance(dim, (list, tuple)):
            return [select(one, at, row) for one, at in zip(value, dim, strict=True)]
        return value.select(dim, row) if isinstance(value, torch.Tensor) and dim is not None else value

    rows = []
    for row in range(info.batch_size):
        rows.append(function(*[select(one, dim, row) for one, dim in zip(inputs, in_dims, strict=True)]))
    results = [torch.stack(parts) for parts in zip(*rows, strict=True)]
    return results, [0] * len(results)


class GraphNode(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """A call in the graph of autograd. The dispatcher would take longer than a small call."""

    @staticmethod
    def forward(ctx: Context, twin: Twin, call: Call, *arrays: Tensor) -> tuple[Tensor, ...]:
        given = call.spec, arrays, call.integers, call.numbers
        results = tuple(twin.forward(*given))
        ctx.twin = twin
        twin.save(ctx, *given, results)
        return results

    @staticmethod
    def backward(ctx: Context, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        twin: Twin = ctx.twin
        if any(grad is not None and is_legacy_batchedtensor(grad) for grad in grads):
            twin.refuse_vmap()

        def differentiable(spec: Node, *others: Unpack[_Given]) -> tuple[Tensor, ...]:
            arrays, integers, numbers, results, cotangents, wanted = others
            counts = len(arrays), len(results)
            given = spec, integers, numbers, counts, wanted, *arrays, *results, *cotangents
            gradients: tuple[Tensor, ...] = _Gradient.apply(twin, *given)  # type: ignore[no-untyped-call, unused-ignore]
            return gradients

        is_followed = torch.is_grad_enabled() or peek_interpreter_stack() is not None
        gradient: Callable[..., Sequence[Tensor]] = differentiable if is_followed else twin.backward
        if not (runs_eagerly() and all(grad is None or has_numbers(grad) for grad in grads)):
            gradient = twin.gradient_of_spec
        return None, None, *twin.differentiate(gradient, ctx, ctx.needs_input_grad[2:], grads)

    @staticmethod
    def jvp(ctx: Context, *tangents: object) -> None:
        ctx.twin.refuse_forward_mode()


class TransformedNode(GraphNode):
    """The same for torch.func, which wants the context apart. That form takes 20 us more."""

    @staticmethod
    def forward(twin: Twin, call: Call, *arrays: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        return tuple(twin.forward(call.spec, arrays, call.integers, call.numbers))

    @staticmethod
    def setup_context(
        ctx: Context, inputs: tuple[Twin, Call, Unpack[tuple[Tensor, ...]]], output: tuple[Tensor, ...]
    ) -> None:
        ctx.twin, call, *arrays = inputs
        ctx.twin.save(ctx, call.spec, arrays, call.integers, call.numbers, output)

    @staticmethod
    def vmap(info: object, in_dims: Sequence[object], *inputs: object) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        results, dims = _by_rows(TransformedNode.apply, info, in_dims, *inputs)
        return tuple(results), tuple(dims)


class _Gradient(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """The gradients of a `GraphNode`, for a graph that autograd could differentiate again."""

    @staticmethod
    def forward(twin: Twin, *given: Any) -> tuple[Tensor, ...]:
        spec, integers, numbers, counts, wanted, *tensors = given
        first, second = counts[0], sum(counts)
        parts = tensors[first:second], tensors[second:]
        return tuple(twin.backward(spec, tensors[:first], integers, numbers, *parts, wanted))

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[object, ...], output: object) -> None:
        ctx.twin = inputs[0]

    @staticmethod
    def backward(ctx: Context, *grads: object) -> None:
        ctx.twin.refuse_second_derivative()

    @staticmethod
    def jvp(ctx: Context, *tangents: object) -> None:
        ctx.twin.refuse_second_derivative()

    @staticmethod
    def vmap(info: object, in_dims: Sequence[object], *inputs: object) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        results, dims = _by_rows(_Gradient.apply, info, in_dims, *inputs)
        return tuple(results), tuple(dims)
