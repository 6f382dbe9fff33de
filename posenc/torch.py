"""Functions and operators of posenc for PyTorch, under their own names.

`posenc.torch` has every function of posenc that has a ``_vjp``, and every function that returns a `Bias`. They take
the arguments of their namesakes, except `out`, and return tensors. Every tensor that has a gradient may require it.

>>> import torch
>>> import posenc, posenc.torch as pt
>>> q, k, v = torch.randn(3, 2, 8, 100, 64, dtype=torch.bfloat16).requires_grad_()  # 2 sentences, 8 heads
>>> slopes = torch.nn.Parameter(torch.tensor(posenc.alibi_slopes(8), dtype=torch.float32))
>>> out = pt.attention(q, k, v, bias=pt.alibi(slopes), causal=True)
>>> out.sum().backward()  # one backward call for q, k, v and the slopes
>>> out.dtype, slopes.grad.shape
(torch.bfloat16, torch.Size([8]))

- Tensors are on the CPU, in float16, bfloat16, float32 or float64, with any strides. Nothing is copied on the way in.
  NumPy arrays and numbers are taken too.
- A gradient has the dtype of its argument.
- Every function is a custom operator with rules for autograd and for fake tensors. ``torch.compile(fullgraph=True)``
  keeps it in one graph, also where lengths are dynamic.
- An operator such as ``pt.alibi(slopes)`` describes a call: a module may keep it, and each use reads the tensors anew.
- A tensor that requires a gradient where there is none (``scale``, a mask, positions of attention) is a TypeError.
- Only reverse mode and first derivatives exist. A second derivative, forward mode and `torch.func.vmap` are errors;
  instead of `vmap`, pass batch axes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from posenc import RopeFrequencies, _core, _derive
from posenc._core_api.arguments import Array, cast_result
from posenc._core_api.tensors import to_array

try:
    import ml_dtypes
    import torch  # type: ignore[import-not-found, unused-ignore]
    from torch._C import _len_torch_dispatch_stack  # type: ignore[import-not-found, unused-ignore]
    from torch._C._functorch import is_legacy_batchedtensor, peek_interpreter_stack  # type: ignore[import-not-found, unused-ignore]
    from torch.autograd import forward_ad  # type: ignore[import-not-found, unused-ignore]
    from torch.library import custom_op  # type: ignore[import-not-found, unused-ignore]
    from torch.utils._pytree import register_pytree_node  # type: ignore[import-not-found, unused-ignore]
except ImportError as error:
    raise ImportError('posenc.torch needs torch and ml_dtypes: pip install "posenc[torch]"') from error

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_DTYPES = {_BFLOAT16: torch.bfloat16} | {
    np.dtype(name): getattr(torch, name)
    for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64",
                 "complex128", "uint16", "uint32", "uint64")
}  # fmt: skip
_NUMPY_DTYPES = {of_torch: of_numpy for of_numpy, of_torch in _DTYPES.items()}


# ---- tensors and arrays ----


def _to_tensor(array: Array) -> torch.Tensor:
    """Return an array as a tensor, in the same memory if torch can share it."""
    if not (array.flags.carray or _is_shared_by_torch(array)):
        array = np.array(array, array.dtype.newbyteorder("="), order="C")
    if array.dtype == _BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _is_shared_by_torch(array: Array) -> bool:
    size = array.itemsize
    return array.flags.behaved and all(stride >= 0 and stride % size == 0 for stride in array.strides)


def _to_tensors(results: Sequence[Any], inputs: Sequence[Array]) -> list[torch.Tensor]:
    """Return results as contiguous tensors; a custom operator must not return views of inputs or of other results."""
    taken = list(inputs)
    for result in results:
        array = np.asarray(result, order="C")
        if array.base is not None and any(np.may_share_memory(array, other) for other in taken):
            array = array.copy()
        taken.append(array)
    return [_to_tensor(array) for array in taken[len(inputs) :]]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _convert(value: Any, path: _derive.Path) -> Any:
    """Replace arrays by tensors, integers in tensors without axes by integers, and dtypes by their names."""
    if isinstance(value, torch.Tensor):
        is_integer = value.ndim == 0 and not (value.is_floating_point() or value.dtype is torch.bool)
        return int(value) if is_integer else value
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value) if torch.compiler.is_compiling() else _to_tensor(value)
    if isinstance(value, torch.dtype):
        return _NUMPY_DTYPES[value].name
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, range):
        return tuple(value)
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, type) and issubclass(value, np.generic):
        return value.__name__
    return value


def _flatten_frequencies(w: RopeFrequencies) -> tuple[list[Any], tuple[Any, ...]]:
    return [w.inv_freq], (w.attention_factor, w.softmax_factor, w.layout, w.rotary_dim, w.description)


def _unflatten_frequencies(leaves: Iterable[Any], rest: tuple[Any, ...]) -> RopeFrequencies:
    return RopeFrequencies(*leaves, *rest)


# torch.export.register_dataclass would also make leaves of the factors and of the layout
register_pytree_node(RopeFrequencies, _flatten_frequencies, _unflatten_frequencies)


# ---- custom operators ----


class _HeldKernels:
    """A block in which calls check their operands and run no kernel, to find the shapes of results."""

    __slots__ = ()
    __enter__ = staticmethod(_core.hold_kernels)
    __exit__ = staticmethod(_core.release_kernels)


_HELD_KERNELS = _HeldKernels()
Outline = tuple[tuple[int, ...], np.dtype[Any]]
"""Shape and dtype of a result."""


class _Rehearsal:
    """Shapes of the results of a call, found by the call itself with held kernels, for tensors without data.

    A length that torch keeps as a symbol is tried at its current value and at the next one: a length of a result that
    grows with it contains it. If the call fails at the next one, because something else must grow too, the length is
    fixed.
    """

    def __init__(
        self,
        function: _derive.Function,
        text: str,
        arrays: Sequence[torch.Tensor],
        integers: Sequence[int],
        numbers: Sequence[float],
    ) -> None:
        self._function, self._text, self._numbers = function, text, numbers
        self._layouts = [(array.ndim, _NUMPY_DTYPES[array.dtype]) for array in arrays]
        self._sizes = [size for array in arrays for size in array.shape] + list(integers)

    def outlines(self) -> list[tuple[list[Any], torch.dtype]]:
        """Return the shape and dtype of each result."""
        sizes = self._sizes
        symbols = {str(size.node.expr): size for size in sizes if isinstance(size, torch.SymInt)}
        hints = [size.node.hint if isinstance(size, torch.SymInt) else size for size in sizes]
        results = self._call(hints)
        shapes = [list[Any](shape) for shape, _ in results]
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
        return [(shape, _DTYPES[dtype]) for shape, (_, dtype) in zip(shapes, results, strict=True)]

    def _call(self, sizes: Sequence[int]) -> list[Outline]:
        dummies, at = [], 0
        for ndim, dtype in self._layouts:
            value = np.ones((), dtype) if dtype.kind not in "biu" else np.zeros((), dtype)
            dummies.append(np.broadcast_to(value, tuple(sizes[at : at + ndim])))
            at += ndim
        with _HELD_KERNELS, np.errstate(all="ignore"):  # results are whatever the memory holds
            results = self._function.forward(_derive.arguments(self._text, dummies, sizes[at:], self._numbers))
        return [(np.shape(result), np.asarray(result).dtype) for result in results]


_CALL = "str call, Tensor[] arrays, SymInt[] integers, float[] numbers"


class _Twin:
    """A function as two custom operators, one for its value and one for its gradients."""

    def __init__(self, function: _derive.Function) -> None:
        self.function = function
        self.value = custom_op(
            f"posenc::{function.name}", self.forward, mutates_args=(), device_types="cpu",
            schema=f"({_CALL}) -> Tensor[]",
        )  # fmt: skip
        self.gradient = custom_op(
            f"posenc::{function.name}_vjp", self.backward, mutates_args=(), device_types="cpu",
            schema=f"({_CALL}, Tensor[] results, Tensor[] cotangents, int[] wanted) -> Tensor[]",
        )  # fmt: skip
        self.value.register_fake(self._fake_forward)
        self.gradient.register_fake(self._fake_backward)
        self.value.register_autograd(self._differentiate, setup_context=self.save)
        self.gradient.register_autograd(self.refuse_second_derivative)
        self.value.register_vmap(self.refuse_vmap)
        self.gradient.register_vmap(self.refuse_vmap)

    def forward(
        self, call: str, arrays: Sequence[torch.Tensor], integers: Sequence[int], numbers: Sequence[float]
    ) -> list[torch.Tensor]:
        """Return all results of the function."""
        inputs = [to_array(array) for array in arrays]
        return _to_tensors(self.function.forward(_derive.arguments(call, inputs, integers, numbers)), inputs)

    def backward(
        self,
        call: str,
        arrays: Sequence[torch.Tensor],
        integers: Sequence[int],
        numbers: Sequence[float],
        results: Sequence[torch.Tensor],
        cotangents: Sequence[torch.Tensor],
        wanted: Sequence[int],
    ) -> list[torch.Tensor]:
        """Return the gradients of the wanted arrays, in their dtypes."""
        inputs = [to_array(array) for array in (*arrays, *results, *cotangents)]
        split = len(arrays), len(arrays) + len(results)
        given = _derive.arguments(call, inputs[: split[0]], integers, numbers)
        gradients = self.function.backward(given, inputs[split[0] : split[1]], inputs[split[1] :])
        paths, found = _derive.paths(call), []
        for number in wanted:
            one, like = self.function.gradient_at(gradients, paths[number]), inputs[number]
            found.append(np.zeros(like.shape, like.dtype) if one is None else cast_result(np.asarray(one), like.dtype))
        return _to_tensors(found, inputs)

    def _fake_forward(self, call: str, arrays: Any, integers: Any, numbers: Any) -> list[torch.Tensor]:
        outlines = _Rehearsal(self.function, call, arrays, integers, numbers).outlines()
        device = next((array.device for array in arrays if array.is_meta), arrays[0].device)
        return [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in outlines]

    def _fake_backward(self, call: str, arrays: Any, *others: Any) -> list[torch.Tensor]:
        return [arrays[number].new_empty(arrays[number].shape) for number in others[-1]]

    def save(self, ctx: Any, inputs: tuple[Any, ...], output: Sequence[torch.Tensor]) -> None:
        """Keep what the gradient reads; `inputs` are those of `forward`."""
        text, arrays, integers, numbers = inputs
        ctx.set_materialize_grads(False)
        ctx.call, ctx.count = (text, integers, numbers), len(arrays)
        ctx.save_for_backward(*arrays, *(output if self.function.returns_lse else ()))

    def differentiate(
        self, gradient: Callable[..., Any], ctx: Any, needed: Sequence[bool], grads: Sequence[torch.Tensor | None]
    ) -> list[torch.Tensor | None]:
        """Return the gradients of all arrays, for the cotangents `grads` of the results, by one call of `gradient`."""
        gradients: list[torch.Tensor | None] = [None] * ctx.count
        if all(grad is None for grad in grads):
            return gradients
        saved = ctx.saved_tensors  # checkpoints allow one access
        arrays, results = saved[: ctx.count], saved[ctx.count :]
        first, *rest = grads
        cotangents = [torch.zeros_like(results[0]) if first is None else first, *(g for g in rest if g is not None)]
        wanted = [number for number, is_needed in enumerate(needed) if is_needed]
        text, integers, numbers = ctx.call
        found = gradient(text, arrays, integers, numbers, results, cotangents, wanted)
        for number, one in zip(wanted, found, strict=True):
            gradients[number] = one
        return gradients

    def refuse(self, what: str, expected: str) -> NoReturn:
        raise NotImplementedError(f"{self.function.name}: {what}; expected {expected}")

    def refuse_second_derivative(self, *args: Any) -> NoReturn:
        self.refuse("its gradient is differentiated", "first derivatives only")

    def refuse_forward_mode(self, *args: Any) -> NoReturn:
        self.refuse("a tensor has a tangent of forward mode", "reverse mode")

    def refuse_vmap(self, *args: Any) -> NoReturn:
        self.refuse("torch.func.vmap has no rule for it", "batch axes in its arguments")

    def _differentiate(self, ctx: Any, grads: Sequence[torch.Tensor | None]) -> tuple[Any, ...]:
        _, integers, numbers = ctx.call
        gradients = self.differentiate(self.gradient, ctx, ctx.needs_input_grad[1], grads)
        return None, gradients, None if integers else [], None if numbers else []  # torch takes [] as a list of tensors


# ---- calls that the dispatcher of torch need not see ----


class _Node(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """A call in the graph of autograd. The dispatcher would take longer than a small call."""

    @staticmethod
    def forward(
        ctx: Any, twin: _Twin, text: str, integers: Sequence[int], numbers: Sequence[float], *arrays: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.twin = twin
        results = tuple(twin.forward(text, arrays, integers, numbers))
        twin.save(ctx, (text, arrays, integers, numbers), results)
        return results

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[Any, ...]:
        twin = ctx.twin
        if any(grad is not None and is_legacy_batchedtensor(grad) for grad in grads):
            twin.refuse_vmap()

        def differentiable(*call: Any) -> Any:
            text, arrays, integers, numbers, results, cotangents, wanted = call
            counts = len(arrays), len(results)
            return _Gradient.apply(twin, text, integers, numbers, counts, wanted, *arrays, *results, *cotangents)

        gradient = differentiable if torch.is_grad_enabled() else twin.backward
        if not _is_eager(grads):
            gradient = twin.gradient
        return None, None, None, None, *twin.differentiate(gradient, ctx, ctx.needs_input_grad[4:], grads)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> None:
        ctx.twin.refuse_forward_mode()

    @staticmethod
    def vmap(info: Any, in_dims: Any, twin: _Twin, *inputs: Any) -> None:
        twin.refuse_vmap()


class _TransformedNode(_Node):
    """The same for torch.func, which wants the context apart. That form takes 20 us more."""

    @staticmethod
    def forward(  # type: ignore[override]
        twin: _Twin, text: str, integers: Sequence[int], numbers: Sequence[float], *arrays: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return tuple(twin.forward(text, arrays, integers, numbers))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        ctx.twin, text, integers, numbers, *arrays = inputs
        ctx.twin.save(ctx, (text, arrays, integers, numbers), output)


class _Gradient(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """The gradients of a `_Node`, for a graph that autograd could differentiate again."""

    @staticmethod
    def forward(
        twin: _Twin, text: str, integers: Any, numbers: Any, counts: tuple[int, int], wanted: Any, *tensors: Any
    ) -> tuple[torch.Tensor, ...]:
        first, second = counts[0], sum(counts)
        parts = tensors[first:second], tensors[second:]
        return tuple(twin.backward(text, tensors[:first], integers, numbers, *parts, wanted))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.twin = inputs[0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> None:
        ctx.twin.refuse_second_derivative()

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> None:
        ctx.twin.refuse_second_derivative()

    @staticmethod
    def vmap(info: Any, in_dims: Any, twin: _Twin, *inputs: Any) -> None:
        twin.refuse_vmap()


_EAGER_TYPES = (torch.Tensor, torch.nn.Parameter, type(None))


def _is_eager(tensors: Sequence[Any]) -> bool:
    """Return whether tensors hold numbers, and no graph or mode records what is done to them."""
    return (
        not torch.compiler.is_compiling()
        and _len_torch_dispatch_stack() == 0
        and all(type(tensor) in _EAGER_TYPES and (tensor is None or tensor.is_cpu) for tensor in tensors)
    )


class _FollowedError(Exception):
    """A tensor is no plain array: something follows what is done to it, or it is refused."""


def _call_plainly(function: _derive.Function, arguments: dict[str, Any]) -> list[torch.Tensor] | None:
    """Return the results of a call that neither autograd nor a graph, mode or transformation follows; else None."""
    if (
        torch.compiler.is_compiling()
        or _len_torch_dispatch_stack() > 0
        or peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
        or (torch.is_grad_enabled() and any(getattr(value, "requires_grad", False) for value in arguments.values()))
    ):
        return None
    inputs: list[Array] = []
    try:
        given = {name: _plain(value, inputs) for name, value in arguments.items()}
    except _FollowedError:
        return None
    return _to_tensors(function.forward(given), inputs)


def _plain(value: Any, inputs: list[Array]) -> Any:
    """Return a value with arrays for its tensors, which are appended to `inputs`."""
    if isinstance(value, torch.Tensor):
        is_plain = type(value) in _EAGER_TYPES and value.is_cpu and value.layout is torch.strided
        if not is_plain or (value.requires_grad and torch.is_grad_enabled()):
            raise _FollowedError
        if value.ndim == 0:
            return _convert(value, ()) if not value.is_floating_point() else to_array(value)
        inputs.append(to_array(value))
        return inputs[-1]
    if isinstance(value, Operator):
        return _derive.make(value.name, {name: _plain(one, inputs) for name, one in value.arguments.items()})
    if isinstance(value, RopeFrequencies):
        return replace(value, inv_freq=_plain(value.inv_freq, inputs))
    if isinstance(value, tuple | list):
        items = [_plain(one, inputs) for one in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return _convert(value, ()) if isinstance(value, torch.dtype) else value


# ---- the public functions ----


class Operator(_derive.Operator):
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

    def __repr__(self) -> str:
        shapes = (f"{name} {getattr(one, 'shape', one)}" for name, one in self.arguments.items())
        return f"<posenc.torch.{self.name}: {', '.join(shapes)}>"

    def matrix(self, *args: Any, **options: Any) -> Any:
        """Return `PositionBias.matrix` as a contiguous tensor; float32 without ``dtype``."""
        return _matrix(self, *args, **options)

    def logits(self, *args: Any, **options: Any) -> Any:
        """Return `ContentBias.logits` as a tensor."""
        return _logits(self, *args, **options)


def _check_tensor(function: _derive.Function, tensor: Any, path: _derive.Path) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{function.name}: {path[0]} has type {type(tensor).__name__}; expected a tensor")
    if not (tensor.is_cpu or tensor.is_meta):
        raise TypeError(f"{function.name}: {path[0]} has device {tensor.device}; expected a tensor on the CPU")
    if tensor.layout is not torch.strided:
        raise TypeError(f"{function.name}: {path[0]} has layout {tensor.layout}; expected torch.strided")
    if tensor.requires_grad and torch.is_grad_enabled() and not function.has_gradient(path):
        expected = "one that does not, because it has no gradient"
        raise TypeError(f"{function.name}: {path[0]} has a tensor that requires a gradient; expected {expected}")


def _make_function(function: _derive.Function) -> Callable[..., Any]:
    """Return the twin of a function that has a gradient."""
    twin = _Twin(function)
    run = getattr(torch.ops.posenc, function.name).default

    def wrapper(*args: Any, **options: Any) -> Any:
        arguments = function.bind(args, options)
        returns_all = function.returns_lse and arguments.pop("return_lse", False)
        plain = _call_plainly(function, arguments)
        results = call_followed(arguments) if plain is None else plain
        return tuple(results) if returns_all else results[0]

    def call_followed(arguments: dict[str, Any]) -> Sequence[torch.Tensor]:
        call = _derive.Call(_is_tensor, _convert)
        for argument, value in arguments.items():
            call.add(argument, (value,) if isinstance(value, Operator) and argument != "self" else value)
        arrays = call.arrays
        for array, path in zip(arrays, call.paths):  # noqa: B905 - torch.compile knows no strict
            _check_tensor(function, array, path)
        if _is_eager(arrays):
            node = _Node if peek_interpreter_stack() is None else _TransformedNode
            return node.apply(twin, call.text, call.integers, call.numbers, *arrays)  # type: ignore[no-any-return]
        if forward_ad._current_level >= 0:  # the dispatcher would return tangents of 0
            twin.refuse_forward_mode()
        # An operator needs a tensor: the dispatcher finds its implementation by it.
        return run(call.text, arrays or [torch.empty(0)], call.integers, call.numbers)  # type: ignore[no-any-return]

    wrapper.__name__ = wrapper.__qualname__ = function.name
    wrapper.__doc__ = f"`posenc.{function.name}` for tensors; see there."
    wrapper.__signature__ = function.signature  # type: ignore[attr-defined]
    return wrapper


@lru_cache(maxsize=256)
def _in_arrays(function: Callable[..., torch.Tensor]) -> tuple[Callable[..., Array], Callable[..., list[Array]]]:
    """Return a function of tensors as a function of arrays, and its vjp, which autograd computes."""

    def value(*arrays: Array) -> Array:
        with torch.no_grad():
            return to_array(function(*map(_to_tensor, arrays)))

    def vjp(grad: Array, rel: Array, *arrays: Array) -> list[Array]:
        with torch.enable_grad():
            leaves = [_to_tensor(array).clone().requires_grad_() for array in arrays]
            if not leaves[0].clone().requires_grad:
                raise NotImplementedError("distance_function: vjp is None in torch.compile; expected a function")
            result = function(_to_tensor(rel), *leaves)
            if not result.requires_grad:  # it reads no array
                return [np.zeros_like(array) for array in arrays]
            cotangent = _to_tensor(grad).to(result.dtype)
            found = torch.autograd.grad(result, leaves, cotangent, materialize_grads=True)
        return [to_array(one) for one in found]

    return value, vjp


def _make_operator(name: str) -> Callable[..., Operator]:
    """Return the twin of a function that returns a `Bias`."""
    maker = _derive.Maker(name)

    def wrapper(*args: Any, **options: Any) -> Operator:
        arguments = maker.bind(args, options)
        if "function" in arguments and arguments.get("vjp") is None:
            arguments |= zip(("function", "vjp"), _in_arrays(arguments["function"]), strict=True)
        return Operator(name, arguments)

    wrapper.__name__ = wrapper.__qualname__ = name
    wrapper.__doc__ = f"`posenc.{name}` for tensors; returns an `Operator`."
    signature = inspect.signature(_derive.OPERATORS[name])
    wrapper.__signature__ = signature.replace(return_annotation=Operator)  # type: ignore[attr-defined]
    return wrapper


_matrix, _logits = _make_function(_derive.MATRIX), _make_function(_derive.LOGITS)
__all__ = ["Operator", *_derive.FUNCTIONS, *_derive.OPERATORS]
globals().update({name: _make_function(function) for name, function in _derive.FUNCTIONS.items()})
globals().update({name: _make_operator(name) for name in _derive.OPERATORS})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
