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
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from posenc import _core, _derive
from posenc._core_api.arguments import Array, cast_result

try:
    import ml_dtypes
    import torch  # type: ignore[import-not-found, unused-ignore]
    from torch.library import custom_op  # type: ignore[import-not-found, unused-ignore]
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


def _to_array(tensor: torch.Tensor) -> Array:
    """Return a view of a tensor as an array."""
    tensor = tensor.detach().resolve_neg().resolve_conj()
    is_bfloat16 = tensor.dtype is torch.bfloat16  # NumPy takes it as integers only
    array: Array = (tensor.view(torch.int16) if is_bfloat16 else tensor).numpy()
    return array.view(_BFLOAT16) if is_bfloat16 else array


def _to_tensor(array: Array) -> torch.Tensor:
    """Return an array as a contiguous tensor, in the same memory if torch can share it."""
    if not (array.flags.carray and array.dtype.isnative):
        array = np.array(array, array.dtype.newbyteorder("="), order="C")
    if array.dtype == _BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _to_tensors(results: Sequence[Any], inputs: Sequence[Array]) -> list[torch.Tensor]:
    """Return results as tensors; a custom operator must not return views of its inputs or of other results."""
    taken = list(inputs)
    for result in results:
        array = np.asarray(result)
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
        return _to_tensor(value)
    if isinstance(value, torch.dtype):
        return _NUMPY_DTYPES[value].name
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, type) and issubclass(value, np.generic):
        return value.__name__
    return value


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
        with _HELD_KERNELS:
            results = self._function.forward(_derive.arguments(self._text, dummies, sizes[at:], self._numbers))
        return [(np.shape(result), np.asarray(result).dtype) for result in results]


_CALL = "str call, Tensor[] arrays, SymInt[] integers, float[] numbers"


def _register(function: _derive.Function) -> Callable[..., Any]:
    """Register a function and its gradient as custom operators; return the first."""
    name = function.name

    def arguments(call: str, arrays: Sequence[Array], integers: Any, numbers: Any) -> dict[str, Any]:
        return _derive.arguments(call, arrays, integers, numbers)

    def forward(call: str, arrays: Any, integers: Any, numbers: Any) -> list[torch.Tensor]:
        inputs = [_to_array(array) for array in arrays]
        return _to_tensors(function.forward(arguments(call, inputs, integers, numbers)), inputs)

    def fake(call: str, arrays: Any, integers: Any, numbers: Any) -> list[torch.Tensor]:
        outlines = _Rehearsal(function, call, arrays, integers, numbers).outlines()
        device = next((array.device for array in arrays if array.is_meta), arrays[0].device)
        return [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in outlines]

    def gradient(
        call: str, arrays: Any, integers: Any, numbers: Any, results: Any, cotangents: Any, wanted: Any
    ) -> list[torch.Tensor]:
        given, inner = [_to_array(array) for array in arrays], [_to_array(array) for array in (*results, *cotangents)]
        gradients = function.backward(
            arguments(call, given, integers, numbers), inner[: len(results)], inner[len(results) :]
        )
        paths = _derive.paths(call)
        found = []
        for number in wanted:
            one, like = function.gradient_at(gradients, paths[number]), given[number]
            found.append(np.zeros_like(like, order="C") if one is None else cast_result(np.asarray(one), like.dtype))
        return _to_tensors(found, [*given, *inner])

    def fake_gradient(
        call: str, arrays: Any, integers: Any, numbers: Any, results: Any, cotangents: Any, wanted: Any
    ) -> list[torch.Tensor]:
        return [arrays[number].new_empty(arrays[number].shape) for number in wanted]

    def save(ctx: Any, inputs: Any, output: Any) -> None:
        call, arrays, integers, numbers = inputs
        ctx.set_materialize_grads(False)
        ctx.call, ctx.integers, ctx.numbers, ctx.count = call, integers, numbers, len(arrays)
        ctx.save_for_backward(*arrays, *(output if function.returns_lse else ()))
        ctx.like = output[0].shape, output[0].dtype

    def backward(ctx: Any, grads: Any) -> tuple[Any, ...]:
        arrays, results = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        gradients: list[Any] = [None] * len(arrays)
        if any(grad is not None for grad in grads):
            wanted = [number for number, needed in enumerate(ctx.needs_input_grad[1]) if needed]
            first, *rest = grads
            if first is None:
                first = torch.zeros_like(results[0])
            cotangents = [first, *(grad for grad in rest if grad is not None)]
            found = vjp(ctx.call, arrays, ctx.integers, ctx.numbers, results, cotangents, wanted)
            for number, one in zip(wanted, found, strict=True):
                gradients[number] = one
        return None, gradients, None if ctx.integers else [], None if ctx.numbers else []

    def refuse_second(ctx: Any, *grads: Any) -> None:
        raise NotImplementedError(f"{name}: its gradient is differentiated; expected first derivatives only")

    def refuse_vmap(*args: Any) -> None:
        raise NotImplementedError(f"{name}: torch.func.vmap has no rule; expected batch axes in its arguments")

    operator = custom_op(
        f"posenc::{name}", forward, mutates_args=(), device_types="cpu", schema=f"({_CALL}) -> Tensor[]"
    )
    vjp = custom_op(
        f"posenc::{name}_vjp", gradient, mutates_args=(), device_types="cpu",
        schema=f"({_CALL}, Tensor[] results, Tensor[] cotangents, int[] wanted) -> Tensor[]",
    )  # fmt: skip
    operator.register_fake(fake)
    vjp.register_fake(fake_gradient)
    operator.register_autograd(backward, setup_context=save)
    vjp.register_autograd(refuse_second)
    operator.register_vmap(refuse_vmap)
    vjp.register_vmap(refuse_vmap)
    return getattr(torch.ops.posenc, name).default  # type: ignore[no-any-return]


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
    if tensor.device.type not in ("cpu", "meta"):
        raise TypeError(f"{function.name}: {path[0]} has device {tensor.device}; expected a tensor on the CPU")
    if tensor.layout is not torch.strided:
        raise TypeError(f"{function.name}: {path[0]} has layout {tensor.layout}; expected torch.strided")
    if tensor.requires_grad and torch.is_grad_enabled() and not function.has_gradient(path):
        raise TypeError(
            f"{function.name}: {path[0]} has a tensor that requires a gradient; expected one that does not, "
            "because it has no gradient"
        )


def _make_function(function: _derive.Function) -> Callable[..., Any]:
    """Return the twin of a function that has a gradient."""
    run = _register(function)

    def wrapper(*args: Any, **options: Any) -> Any:
        arguments = function.bind(args, options)
        returns_all = function.returns_lse and arguments.pop("return_lse", False)
        call = _derive.Call(_is_tensor, _convert)
        for argument, value in arguments.items():
            call.add(argument, (value,) if isinstance(value, Operator) and argument != "self" else value)
        for array, path in zip(call.arrays, call.paths):  # noqa: B905 - torch.compile knows no strict
            _check_tensor(function, array, path)
        arrays = call.arrays or [torch.empty(0)]  # an operator needs a tensor to be found by
        results = run(call.text, arrays, call.integers, call.numbers)
        return tuple(results) if returns_all else results[0]

    wrapper.__name__ = wrapper.__qualname__ = function.name
    wrapper.__doc__ = f"`posenc.{function.name}` for tensors; see there."
    wrapper.__signature__ = function.signature  # type: ignore[attr-defined]
    return wrapper


def _make_operator(name: str) -> Callable[..., Operator]:
    """Return the twin of a function that returns a `Bias`."""
    maker = _derive.Maker(name)

    def wrapper(*args: Any, **options: Any) -> Operator:
        return Operator(name, maker.bind(args, options))

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
