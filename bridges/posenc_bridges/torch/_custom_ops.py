"""A function of posenc for tensors: at once, or as custom operators that graphs of PyTorch record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, NoReturn, TypeAlias, cast

import torch  # type: ignore[import-not-found, unused-ignore]
from torch.autograd import forward_ad  # type: ignore[import-not-found, unused-ignore]
from torch.library import custom_op  # type: ignore[import-not-found, unused-ignore]

from posenc import interop
from posenc_bridges import _common
from posenc_bridges._common import Arguments, Call, Function, Node, Outline, Path

from ._private import peek_interpreter_stack, profiler_enabled, read
from ._specs import arguments_of, decode, encode
from ._tensors import (
    DTYPES,
    NUMPY_DTYPES,
    Tensor,
    batch_level,
    convert,
    have_numbers,
    is_constant,
    is_followed,
    is_recorded,
    to_array,
    to_constant,
    to_tensor,
    to_tensors,
)

Context: TypeAlias = Any
"""The context of a `torch.autograd.Function` or of a custom operator."""
_Int: TypeAlias = "int | torch.SymInt"
_Gradient: TypeAlias = tuple[int, int, Sequence[int]]

TENSORS = (torch.Tensor,)


class Plan(NamedTuple):
    """A call without its arrays."""

    spec: Node
    integers: Sequence[int]
    numbers: Sequence[float]
    paths: Sequence[Path] = ()
    """The path of each array, if a gradient may be wanted."""

    def arguments(self, arrays: Sequence[Any]) -> Arguments:
        """Return the arguments of the function of posenc."""
        return arguments_of(self.spec, arrays, self.integers, self.numbers)

    def with_paths(self) -> Plan:
        """Return the plan for a gradient."""
        return self._replace(paths=tuple(_common.paths(self.spec)))


def _plan_of(text: str, integers: Sequence[int], numbers: Sequence[float]) -> Plan:
    """Return the plan that the arguments of a custom operator describe."""
    return Plan(decode(text), integers, numbers).with_paths()


_UNPROFILED: AbstractContextManager[object] = nullcontext()


def profiled(name: str) -> AbstractContextManager[object]:
    """Return a context that torch's profiler shows as "posenc::name", as it shows the custom operator."""
    if not profiler_enabled():  # a record takes longer than a small call
        return _UNPROFILED
    return cast("AbstractContextManager[object]", torch.profiler.record_function(f"posenc::{name}"))


def _outlines(
    function: Function, spec: Node, arrays: Sequence[Tensor], integers: Sequence[_Int], numbers: Sequence[float]
) -> list[tuple[list[_Int], torch.dtype]]:
    """Return the shapes and dtypes of the results for tensors without data, found by the call with held kernels.

    A length that torch keeps as a symbol is tried at its current value and at the next one: a length of a result that
    grows with it contains it. If the call fails at the next one, because something else must grow too, the length is
    fixed.
    """

    def rehearse(sizes: Sequence[int]) -> list[Outline]:
        rest = iter(sizes)
        inputs = [_common.stand_in(tuple(islice(rest, one.ndim)), NUMPY_DTYPES[one.dtype]) for one in arrays]
        return function.outlines(arguments_of(spec, inputs, list(rest), numbers))

    sizes = [*(size for array in arrays for size in array.shape), *integers]
    nodes = [read(size, "SymInt.node") if isinstance(size, torch.SymInt) else None for size in sizes]
    names = [node and str(node.expr) for node in nodes]
    hints = [node.hint if node else int(size) for node, size in zip(nodes, sizes, strict=True)]
    results = rehearse(hints)
    shapes: list[list[_Int]] = [list(shape) for shape, _ in results]
    for name, symbol in dict(zip(names, sizes, strict=True)).items():
        if name is None:
            continue
        try:
            longer = rehearse([hint + (one == name) for hint, one in zip(hints, names, strict=True)])
        except (TypeError, ValueError, IndexError):
            int(symbol)  # a guard
            continue
        for shape, (before, _), (after, _) in zip(shapes, results, longer, strict=True):
            for axis, (length, new) in enumerate(zip(before, after, strict=True)):
                if new != length:
                    shape[axis] = shape[axis] + (new - length) * (symbol - symbol.node.hint)
    return [(shape, DTYPES[dtype]) for shape, (_, dtype) in zip(shapes, results, strict=True)]


def _draw_seed(seed: Any, dropout: object) -> object:
    """Return the seed of dropout: a tensor, which a graph reads anew in each call; by default of torch's generator."""
    if seed is None and isinstance(dropout, (int, float)) and dropout > 0:
        return torch.randint(2**63 - 1, (1,), dtype=torch.int64, device="cpu")
    if isinstance(seed, int) and 2**63 <= seed < 2**64:
        return torch.tensor([seed - 2**64])
    is_one = isinstance(seed, torch.Tensor) and seed.dtype is torch.int64 and seed.numel() == 1
    return seed.reshape(1) if is_one else seed


_SCHEMA = "str call, Tensor[] arrays, SymInt[] integers, float[] numbers"


class Twin:
    """A function of tensors, and two custom operators, one for its value and one for its gradients."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self._with_gradient = {name for name in function.signature.parameters if function.has_gradient((name,))}
        self.value = custom_op(
            f"posenc::{function.name}",
            lambda call, arrays, *given: self.forward(_plan_of(call, *given), arrays),
            mutates_args=(),
            device_types="cpu",
            schema=f"({_SCHEMA}) -> Tensor[]",
        )
        self.gradient = custom_op(
            f"posenc::{function.name}_vjp",
            lambda call, arrays, integers, numbers, *given: self.backward(
                _plan_of(call, integers, numbers), arrays, *given
            ),
            mutates_args=(),
            device_types="cpu",
            schema=f"({_SCHEMA}, Tensor[] results, Tensor[] cotangents, int[] wanted) -> Tensor[]",
        )
        self.operator = getattr(torch.ops.posenc, function.name).default
        self.value.register_fake(self._fake_forward)
        self.gradient.register_fake(
            lambda call, arrays, *given: [arrays[n].new_empty(arrays[n].shape) for n in given[-1]]
        )
        self.value.register_autograd(self._differentiate, setup_context=self._save)
        self.gradient.register_autograd(self.refuse_second_derivative)
        self.value.register_vmap(partial(_by_rows, self.value))
        self.gradient.register_vmap(partial(_by_rows, self.gradient))

    def __call__(self, arguments: Arguments, returns_all: bool) -> Tensor | tuple[Tensor, ...]:
        """Return the first result of a call, or all."""
        if "dropout" in arguments:
            arguments["seed"] = _draw_seed(arguments.get("seed"), arguments["dropout"])
        if not is_recorded():
            call = Call(arguments, convert, TENSORS, is_constant=is_constant)
            if call.has_objects and is_followed(call.arrays):  # the user may change their arrays before the gradient
                call = Call(arguments, convert, TENSORS)
            if have_numbers(call.arrays):
                return self.run(Plan(call.spec, call.integers, call.numbers), call.arrays, returns_all)
        results = self._record(Call(arguments, convert, TENSORS, (torch.SymInt,)))
        return tuple(results) if returns_all else results[0]

    def run(self, plan: Plan, arrays: Sequence[Any], returns_all: bool) -> Tensor | tuple[Tensor, ...]:
        """Compute a call that nothing records, in a node of a graph if autograd or torch.func follows a tensor."""
        results: Sequence[Tensor]
        if is_followed(arrays):
            plan = plan if plan.paths else plan.with_paths()
            constants: list[Any] = [one if isinstance(one, torch.Tensor) else to_constant(one) for one in arrays]
            for array, path in zip(constants, plan.paths, strict=True):
                has_gradient = len(path) == 1 and path[0] in self._with_gradient
                if not isinstance(array, torch.Tensor) or (array.requires_grad and not has_gradient):
                    self._check(array, path)
            results = _follow(self, plan, None, *constants)
        else:
            results = self.forward(plan, arrays, returns_all)
        return tuple(results) if returns_all else results[0]

    def _record(self, call: Call) -> Sequence[Tensor]:
        constants = [to_constant(one) for one in call.arrays]
        for array, path in zip(constants, call.paths()):  # noqa: B905 - torch.compile knows no strict
            self._check(array, path)
        # An operator needs a tensor: the dispatcher finds its implementation by it. Autograd takes an empty list for a
        # list of tensors, and programs that are compiled ahead of time pass None for it.
        return self.operator(  # type: ignore[no-any-return]
            encode(call.spec), constants or [torch.empty(0)], call.integers or [0], call.numbers or [0.0]
        )

    def _check(self, tensor: object, path: Path) -> None:
        name = f"{self.function.name}: {path[0]}"
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} has type {type(tensor).__name__}; expected a tensor")
        if not (tensor.is_cpu or tensor.is_meta):
            raise TypeError(f"{name} has device {tensor.device}; expected a tensor on the CPU")
        if tensor.layout is not torch.strided or tensor.is_nested:
            has = "is a nested tensor" if tensor.is_nested else f"has layout {tensor.layout}"
            raise TypeError(f"{name} {has}; expected layout torch.strided, and one length along each axis")
        if tensor.dtype not in NUMPY_DTYPES:
            expected = "float16, bfloat16, float32 or float64, integers or bool"
            raise TypeError(f"{name} has dtype {tensor.dtype}; expected {expected}")
        if tensor.requires_grad and torch.is_grad_enabled() and not self.function.has_gradient(path):
            expected = "one that does not, because the argument has no gradient"
            raise TypeError(f"{name} has a tensor that requires a gradient; expected {expected}")
        if forward_ad.unpack_dual(tensor).tangent is not None:
            self._refuse("a tensor has a tangent of forward mode", "reverse mode")

    def forward(self, plan: Plan, arrays: Sequence[Any], returns_all: bool = True) -> list[Tensor]:
        """Return the results of the function; of attention, without its lse unless all are wanted."""
        arguments = plan.arguments([to_array(one) if isinstance(one, torch.Tensor) else one for one in arrays])
        interop.follow_threads(torch.get_num_threads())
        try:
            with profiled(self.function.name):
                if self.function.returns_lse and not returns_all:
                    return [to_tensor(self.function.plain(**arguments))]
                return to_tensors(self.function.forward(arguments))
        except TypeError as error:
            if "has type ndarray" not in str(error):
                raise
            raise TypeError(str(error).replace("has type ndarray", "has type Tensor")) from None

    def backward(
        self,
        plan: Plan,
        arrays: Sequence[Tensor],
        results: Sequence[Tensor],
        cotangents: Sequence[Tensor],
        wanted: Sequence[int],
    ) -> list[Tensor]:
        """Return the gradients of the wanted arrays, in their dtypes."""
        inputs, outputs, grads = ([to_array(one) for one in group] for group in (arrays, results, cotangents))
        interop.follow_threads(torch.get_num_threads())
        with profiled(f"{self.function.name}_vjp"):
            like = [(plan.paths[number], inputs[number]) for number in wanted]
            return to_tensors(self.function.gradients_of(plan.arguments(inputs), outputs, grads, like))

    def _fake_forward(
        self, call: str, arrays: Sequence[Tensor], integers: Sequence[int], numbers: Sequence[float]
    ) -> list[Tensor]:
        outlines = _outlines(self.function, decode(call), arrays, integers, numbers)
        device = next((array.device for array in arrays if array.is_meta), arrays[0].device)
        return [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in outlines]

    def save(self, ctx: Context, plan: Plan, arrays: Sequence[Tensor], output: Sequence[Tensor]) -> None:
        """Keep what the gradient reads: the plan of the call, its arrays and its results."""
        ctx.set_materialize_grads(False)
        ctx.plan, ctx.count = plan, len(arrays)
        ctx.save_for_backward(*arrays, *(output if self.function.returns_lse else ()))

    def differentiate(
        self, ctx: Context, needed: Sequence[bool], grads: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        """Return the gradients of all arrays, for the cotangents `grads` of the results, by one call."""
        gradients: list[Tensor | None] = [None] * ctx.count
        if all(grad is None for grad in grads):
            return gradients
        saved = ctx.saved_tensors  # checkpoints allow one access
        arrays, results = saved[: ctx.count], saved[ctx.count :]
        first, *rest = grads
        cotangents = [torch.zeros_like(results[0]) if first is None else first, *(g for g in rest if g is not None)]
        wanted = [number for number, is_needed in enumerate(needed) if is_needed]
        compute = partial(self._gradients, ctx.plan, arrays, results, wanted)
        level = batch_level(cotangents)
        found = _by_cotangents(compute, level, cotangents) if level else compute(cotangents)
        for number, one in zip(wanted, found, strict=True):
            gradients[number] = one
        return gradients

    def _gradients(
        self,
        plan: Plan,
        arrays: Sequence[Tensor],
        results: Sequence[Tensor],
        wanted: Sequence[int],
        cotangents: Sequence[Tensor],
    ) -> Sequence[Tensor]:
        inputs = *arrays, *results, *cotangents
        if is_recorded() or not have_numbers(inputs):
            text, *numbers = encode(plan.spec), plan.integers, plan.numbers
            return self.gradient(text, arrays, *numbers, results, cotangents, wanted)  # type: ignore[no-any-return, unused-ignore]
        if is_followed(inputs):
            return _follow(self, plan, (len(arrays), len(results), wanted), *inputs)
        return self.backward(plan, arrays, results, cotangents, wanted)

    def _save(self, ctx: Context, inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
        call, arrays, *numbers = inputs
        self.save(ctx, _plan_of(call, *numbers), arrays, output)

    def _differentiate(self, ctx: Context, grads: Sequence[Tensor | None]) -> tuple[object, ...]:
        return None, self.differentiate(ctx, ctx.needs_input_grad[1], grads), None, None

    def _refuse(self, what: str, expected: str) -> NoReturn:
        raise NotImplementedError(f"{self.function.name}: {what}; expected {expected}")

    def refuse_second_derivative(self, *args: object) -> NoReturn:
        self._refuse("its gradient is differentiated", "first derivatives only")


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


def _by_cotangents(
    function: Callable[[Sequence[Tensor]], Sequence[Tensor]], level: int, cotangents: Sequence[Tensor]
) -> list[Tensor]:
    """Return the results of a function for each row of a batch that autograd made (`is_grads_batched`), one by one."""
    batches = [torch._remove_batch_dim(one, level, 1, 0) for one in cotangents]
    size = max(map(len, batches))  # a cotangent without a batch has length 1
    rows = [function(row) for row in zip(*(one.expand(size, *one.shape[1:]) for one in batches), strict=True)]
    return [torch._add_batch_dim(torch.stack(parts), 0, level) for parts in zip(*rows, strict=True)]


class GraphNode(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """A call, or the gradient of a call, in a graph of autograd. The dispatcher would take longer than a small call.

    `gradient` is None, or the numbers of arrays and of results, and `wanted`.
    """

    @staticmethod
    def forward(ctx: Context, *given: Any) -> tuple[Tensor, ...]:
        results = TransformedNode.forward(*given)
        TransformedNode.setup_context(ctx, given, results)
        return results

    @staticmethod
    def backward(ctx: Context, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if ctx.gradient is not None:
            ctx.twin.refuse_second_derivative()
        return None, None, None, *ctx.twin.differentiate(ctx, ctx.needs_input_grad[3:], grads)


class TransformedNode(GraphNode):
    """The same for torch.func, which wants the context apart. PyTorch takes 60 us more for that form."""

    @staticmethod
    def forward(twin: Twin, plan: Plan, gradient: _Gradient | None, *tensors: Tensor) -> tuple[Tensor, ...]:
        if gradient is None:
            return tuple(twin.forward(plan, tensors))
        count, results, wanted = gradient
        others = tensors[count : count + results], tensors[count + results :]
        return tuple(twin.backward(plan, tensors[:count], *others, wanted))

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.twin, plan, ctx.gradient, *tensors = inputs
        if ctx.gradient is None:
            ctx.twin.save(ctx, plan, tensors, output)

    @staticmethod
    def vmap(info: object, in_dims: Sequence[object], *inputs: object) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        results, dims = _by_rows(TransformedNode.apply, info, in_dims, *inputs)
        return tuple(results), tuple(dims)


def _follow(*given: Any) -> tuple[Tensor, ...]:
    """Return the results of a node."""
    node = GraphNode if peek_interpreter_stack() is None else TransformedNode
    return node.apply(*given)  # type: ignore[no-any-return, no-untyped-call, unused-ignore]
