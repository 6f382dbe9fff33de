"""Functions and operators of posenc as custom operators of PyTorch, with rules for autograd and fake tensors."""

from __future__ import annotations

import ast
import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, cast

import numpy as np

import posenc
from posenc import _bridge
from posenc._bridge import Arguments, Call, Function, Node, Outline, Path, Spec
from posenc._core_api.arguments import STORAGE_DTYPES, Array, cast_result
from posenc._core_api.tensors import to_array
from posenc.runtime import follow_threads

try:
    import ml_dtypes
    import torch  # type: ignore[import-not-found, unused-ignore]
    from torch._C import _len_torch_dispatch_stack  # type: ignore[import-not-found, unused-ignore]
    from torch._C._functorch import is_legacy_batchedtensor, peek_interpreter_stack  # type: ignore[import-not-found, unused-ignore]
    from torch.autograd import forward_ad  # type: ignore[import-not-found, unused-ignore]
    from torch.library import custom_op  # type: ignore[import-not-found, unused-ignore]
    from torch.utils._pytree import register_pytree_node  # type: ignore[import-not-found, unused-ignore]
except ImportError as error:
    raise ImportError("posenc.torch needs torch and ml_dtypes: pip install torch ml_dtypes") from error

if TYPE_CHECKING:
    from typing_extensions import Unpack

Tensor: TypeAlias = torch.Tensor
Context: TypeAlias = Any
"""The context of a `torch.autograd.Function` or of a custom operator."""
_Given: TypeAlias = tuple[
    Sequence[Tensor], Sequence[int], Sequence[float], Sequence[Tensor], Sequence[Tensor], Sequence[int]
]
"""Arrays, integers and numbers of a call, its results, their cotangents, and the numbers of the wanted gradients."""

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_DTYPES = {_BFLOAT16: torch.bfloat16} | {
    np.dtype(name): getattr(torch, name)
    for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64",
                 "complex128", "uint16", "uint32", "uint64")
}  # fmt: skip
_NUMPY_DTYPES = {of_torch: of_numpy for of_numpy, of_torch in _DTYPES.items()}


# ---- tensors and arrays ----


def _to_tensor(array: Array) -> Tensor:
    """Return an array as a tensor, in the same memory if torch can share it."""
    if not (array.flags.carray or _is_shared_by_torch(array)):
        array = np.array(array, array.dtype.newbyteorder("="), order="C")
    if array.dtype == _BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _is_shared_by_torch(array: Array) -> bool:
    size = array.itemsize
    return array.flags.behaved and all(stride >= 0 and stride % size == 0 for stride in array.strides)


def _to_tensors(results: Sequence[object], inputs: Sequence[Array]) -> list[Tensor]:
    """Return results as contiguous tensors; a custom operator must not return views of inputs or of other results."""
    taken = list(inputs)
    for result in results:
        array = np.asarray(result, order="C")
        if array.base is not None and any(np.may_share_memory(array, other) for other in taken):
            array = array.copy()
        taken.append(array)
    return [_to_tensor(array) for array in taken[len(inputs) :]]


_STRICT = "posenc.torch: a NumPy array is in torch.export(strict=True); expected a tensor, or strict=False"


def _convert(value: object) -> object:
    """Replace arrays by tensors, integers in tensors without axes by integers, and dtypes by their names.

    Arrays are copied: torch does not see that an array changes between a call and its gradient.
    """
    if isinstance(value, torch.Tensor):
        is_integer = value.ndim == 0 and not (value.is_floating_point() or value.dtype is torch.bool)
        return int(value) if is_integer else value
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
    if isinstance(value, np.ndarray):
        if not torch.compiler.is_compiling():
            return _to_tensor(value.copy())
        if torch.compiler.is_dynamo_compiling() and torch.compiler.is_exporting():  # the program would lose its numbers
            raise NotImplementedError(_STRICT)
        return torch.from_numpy(value).clone()
    return _bridge.call_of(value) if isinstance(value, posenc.Bias) else value


def _flatten_frequencies(w: posenc.RopeFrequencies) -> tuple[list[object], tuple[object, ...]]:
    return [w.inv_freq], (w.attention_factor, w.softmax_factor, w.layout, w.rotary_dim, w.description)


def _unflatten_frequencies(leaves: Iterable[Any], rest: tuple[Any, ...]) -> posenc.RopeFrequencies:
    return posenc.RopeFrequencies(*leaves, *rest)


# torch.export.register_dataclass would also make leaves of the factors and of the layout
register_pytree_node(posenc.RopeFrequencies, _flatten_frequencies, _unflatten_frequencies)


def _read_in_graphs(function: Callable[..., posenc.RopeFrequencies]) -> None:
    """Let torch.compile call a function of numbers once, while it traces, instead of tracing its checks."""

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator, unused-ignore]
    def read(field: str, args: tuple[object, ...], options: dict[str, object]) -> Any:
        return getattr(function(*args, **options), field)

    def made(*args: object, **options: object) -> posenc.RopeFrequencies:
        layout, width = read("layout", args, options), read("rotary_dim", args, options)
        # an operation, because torch.compile does not read the type of a number or text that is a constant result
        return posenc.RopeFrequencies(
            read("inv_freq", args, options),
            1.0 * read("attention_factor", args, options),
            1.0 * read("softmax_factor", args, options),
            None if layout is None else "" + layout,
            None if width is None else 1 * width,
            "" + read("description", args, options),
        )

    torch.compiler.substitute_in_graph(function, skip_signature_check=True)(made)


_read_in_graphs(posenc.rope_frequencies)
_read_in_graphs(posenc.rope_from_config)
for _name in ("alibi_slopes", "axial_frequencies", "frequencies", "nezha", "xl_table"):
    torch.compiler.assume_constant_result(getattr(posenc, _name))


# ---- specs as text, for custom operators ----


_LEAVES = ("array", "integer", "number")


def _encode(value: Spec) -> str:
    """Return a spec as Python code, in which ``array``, ``integer`` and ``number`` stand for the leaves."""
    if isinstance(value, tuple):
        kind, names, inner = value
        values = [_encode(one) for one in inner]
        if names:
            values = [f"{name}={one}" for name, one in zip(names, values)]  # noqa: B905 - torch.compile
        return f"{kind}({', '.join(values)})"
    if type(value) is int:
        return _LEAVES[value]
    return f"held(number={_hold(value)!r})" if callable(value) else repr(value)


@lru_cache(maxsize=1024)
def _decode(text: str) -> Node:
    """Return the spec of a text. A function of the user is a node with the number of the function."""
    return cast("Node", _decode_node(ast.parse(text, mode="eval").body))


def _decode_node(node: ast.expr) -> Spec:
    if isinstance(node, ast.Name):
        return _LEAVES.index(node.id)
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        constant: Spec = ast.literal_eval(node)
        return constant
    names = tuple(str(keyword.arg) for keyword in node.keywords)
    values = node.args + [keyword.value for keyword in node.keywords]
    return node.func.id, names, tuple(_decode_node(one) for one in values)


_COUNTER = itertools.count()
_NUMBERS: dict[int, str] = {}
"""The numbers of the live functions of users in texts, by the id of the function."""
_HELD: weakref.WeakValueDictionary[str, Callable[..., object]] = weakref.WeakValueDictionary()
"""These functions by number. No number is given twice, so a text never names another function."""


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator, unused-ignore]
def _hold(function: Callable[..., object]) -> str:
    """Return the number of a function of the user, which has to be kept by the call or by the caller of a graph."""
    if id(function) not in _NUMBERS:
        number = str(next(_COUNTER))
        try:
            _HELD[number] = function
        except TypeError:  # a class with __slots__
            has = f"type {type(function).__name__}, to which no weak reference is possible"
            raise TypeError(f"distance_function: function has {has}; expected a function") from None
        _NUMBERS[id(function)] = number
        weakref.finalize(function, _NUMBERS.pop, id(function))
    return _NUMBERS[id(function)]


def _held(number: str) -> Callable[..., object]:
    if number not in _HELD:
        raise ReferenceError("posenc.torch: a function of a graph no longer exists; keep it as long as the graph")
    return _HELD[number]


def _functions_of(spec: Node) -> list[Callable[..., object]]:
    """Return the functions of the user that the spec of a text names."""
    kind, _, values = spec
    if kind == "held":
        return [_held(str(values[0]))]
    return [function for value in values if isinstance(value, tuple) for function in _functions_of(value)]


def _make_node(kind: str, names: Sequence[str], values: list[object]) -> object:
    """Return what a node of a spec describes."""
    return _MAKERS[kind](*values) if kind in _MAKERS else _bridge.make_node(kind, names, values)


def _arguments(spec: Node, arrays: Sequence[Array], integers: Sequence[int], numbers: Sequence[float]) -> Arguments:
    return _bridge.arguments(spec, arrays, integers, numbers, _make_node)


# ---- functions of tensors as functions of arrays ----


def _of_tensors(function: Callable[..., Tensor]) -> Callable[..., Array]:
    """Return a function of tensors as a function of arrays."""

    def value(*arrays: Array) -> Array:
        with torch.no_grad():
            return to_array(function(*map(_to_tensor, arrays)))

    return value


def _vjp_of_tensors(function: Callable[..., Tensor], operator: str) -> Callable[..., list[Array]]:
    """Return the vjp of a function of tensors, which autograd computes, as a function of arrays."""
    sides = 2 if operator == "pair_function" else 1

    def vjp(grad: Array, *others: Array) -> list[Array]:
        positions, arrays = others[:sides], others[sides:]
        with torch.enable_grad():
            leaves = [_to_tensor(array).clone().requires_grad_() for array in arrays]
            if not leaves[0].clone().requires_grad:
                raise NotImplementedError(f"{operator}: vjp is None in torch.compile; expected a function")
            result = function(*map(_to_tensor, positions), *leaves)
            if not result.requires_grad:  # it reads no array
                return [np.zeros_like(array) for array in arrays]
            cotangent = _to_tensor(grad).to(result.dtype)
            found = torch.autograd.grad(result, leaves, cotangent, materialize_grads=True)
        return [to_array(one) for one in found]

    return vjp


def _seed_of(number: Array) -> int:
    """Return the seed of attention in an array (1,) of int64, whose negative numbers are seeds of 2**63 and more."""
    return int(number[0]) % 2**64


_MAKERS: dict[str, Callable[..., object]] = {
    "held": _held, "function_of_tensors": _of_tensors, "vjp_of_tensors": _vjp_of_tensors, "seed_of": _seed_of
}  # fmt: skip
"""Functions that make what a node describes, for nodes that only this module makes."""


def _draw_seed(arguments: Arguments) -> None:
    """Let dropout have a seed: a tensor, which a graph reads anew in each call; by default of torch's generator."""
    seed, dropout = arguments.get("seed"), arguments.get("dropout")
    if seed is None and isinstance(dropout, (int, float)) and dropout > 0:
        seed = torch.randint(2**63 - 1, (1,), dtype=torch.int64, device="cpu")
    elif isinstance(seed, int) and 2**63 <= seed < 2**64:
        seed = torch.tensor([seed - 2**64])
    if isinstance(seed, torch.Tensor) and seed.dtype is torch.int64 and seed.numel() == 1:
        arguments["seed"] = _bridge.Operator("seed_of", {"number": seed.reshape(1)})


def _prepare(name: str, arguments: Arguments) -> Arguments:
    """Let autograd differentiate a function of tensors that has no vjp."""
    if "function" in arguments and arguments.get("vjp") is None:
        given = {"function": arguments["function"]}
        arguments["function"] = _bridge.Operator("function_of_tensors", given)
        arguments["vjp"] = _bridge.Operator("vjp_of_tensors", {**given, "operator": name})
    return arguments


# ---- custom operators ----


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
        self._layouts = [(array.ndim, _NUMPY_DTYPES[array.dtype]) for array in arrays]
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
        return [(shape, _DTYPES[dtype]) for shape, (_, dtype) in zip(shapes, results, strict=True)]

    def _call(self, sizes: Sequence[int]) -> list[Outline]:
        arrays, at = [], 0
        for ndim, dtype in self._layouts:
            arrays.append(_bridge.stand_in(tuple(sizes[at : at + ndim]), dtype))
            at += ndim
        return self._function.outlines(_arguments(self._spec, arrays, sizes[at:], self._numbers))


_CALL = "str call, Tensor[] arrays, SymInt[] integers, float[] numbers"


class _Twin:
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
        return _to_tensors(self.compute(_arguments(spec, inputs, integers, numbers)), inputs)

    def forward_of_text(
        self, call: str, arrays: Sequence[Tensor], integers: Sequence[int], numbers: Sequence[float]
    ) -> list[Tensor]:
        return self.forward(_decode(call), arrays, integers, numbers)

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
        given = _arguments(spec, inputs[: split[0]], integers, numbers)
        follow_threads(torch.get_num_threads())
        with _profiled(f"{self.function.name}_vjp"):
            gradients = self.function.backward(given, inputs[split[0] : split[1]], inputs[split[1] :])
        paths, found = list(_bridge.paths(spec)), []
        for number in wanted:
            one, like = self.function.gradient_at(gradients, paths[number]), inputs[number]
            found.append(np.zeros(like.shape, like.dtype) if one is None else cast_result(np.asarray(one), like.dtype))
        return _to_tensors(found, inputs)

    def backward_of_text(self, call: str, *others: Unpack[_Given]) -> list[Tensor]:
        return self.backward(_decode(call), *others)

    def gradient_of_spec(self, spec: Node, *others: Unpack[_Given]) -> list[Tensor]:
        """Return the gradients of the wanted arrays by the dispatcher."""
        found: list[Tensor] = self.gradient(_encode(spec), *others)
        return found

    def _fake_forward(
        self, call: str, arrays: Sequence[Tensor], integers: Sequence[int], numbers: Sequence[float]
    ) -> list[Tensor]:
        outlines = _Rehearsal(self.function, _decode(call), arrays, integers, numbers).outlines()
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
        ctx.functions = _functions_of(_decode(inputs[0]))  # for the call of the gradient
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


class _Node(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """A call in the graph of autograd. The dispatcher would take longer than a small call."""

    @staticmethod
    def forward(ctx: Context, twin: _Twin, call: Call, *arrays: Tensor) -> tuple[Tensor, ...]:
        given = call.spec, arrays, call.integers, call.numbers
        results = tuple(twin.forward(*given))
        ctx.twin = twin
        twin.save(ctx, *given, results)
        return results

    @staticmethod
    def backward(ctx: Context, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        twin: _Twin = ctx.twin
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
        if not (_is_eager() and all(grad is None or _has_numbers(grad) for grad in grads)):
            gradient = twin.gradient_of_spec
        return None, None, *twin.differentiate(gradient, ctx, ctx.needs_input_grad[2:], grads)

    @staticmethod
    def jvp(ctx: Context, *tangents: object) -> None:
        ctx.twin.refuse_forward_mode()


class _TransformedNode(_Node):
    """The same for torch.func, which wants the context apart. That form takes 20 us more."""

    @staticmethod
    def forward(twin: _Twin, call: Call, *arrays: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        return tuple(twin.forward(call.spec, arrays, call.integers, call.numbers))

    @staticmethod
    def setup_context(
        ctx: Context, inputs: tuple[_Twin, Call, Unpack[tuple[Tensor, ...]]], output: tuple[Tensor, ...]
    ) -> None:
        ctx.twin, call, *arrays = inputs
        ctx.twin.save(ctx, call.spec, arrays, call.integers, call.numbers, output)

    @staticmethod
    def vmap(info: object, in_dims: Sequence[object], *inputs: object) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        results, dims = _by_rows(_TransformedNode.apply, info, in_dims, *inputs)
        return tuple(results), tuple(dims)


class _Gradient(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """The gradients of a `_Node`, for a graph that autograd could differentiate again."""

    @staticmethod
    def forward(twin: _Twin, *given: Any) -> tuple[Tensor, ...]:
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


_EAGER_TYPES = (torch.Tensor, torch.nn.Parameter)
_CONSTANTS = (int, str, bool, float)


def _is_eager() -> bool:
    """Return whether no graph and no mode records what is done to tensors."""
    return not torch.compiler.is_compiling() and _len_torch_dispatch_stack() == 0 and not torch.jit.is_tracing()


def _has_numbers(tensor: Tensor) -> bool:
    """Return whether a tensor is an array of numbers in memory: no tensor of a GPU, of another class or layout."""
    return type(tensor) in _EAGER_TYPES and tensor.is_cpu and tensor.layout is torch.strided


class _FollowedError(Exception):
    """Autograd follows a tensor, or the tensor is no array of numbers."""


# ---- the public functions ----


class Operator(_bridge.Operator):
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
        return f"<posenc.torch.{self._described()}>"


def _check_tensor(function: Function, tensor: object, path: Path) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{function.name}: {path[0]} has type {type(tensor).__name__}; expected a tensor")
    if not (tensor.is_cpu or tensor.is_meta):
        raise TypeError(f"{function.name}: {path[0]} has device {tensor.device}; expected a tensor on the CPU")
    if tensor.layout is not torch.strided:
        raise TypeError(f"{function.name}: {path[0]} has layout {tensor.layout}; expected torch.strided")
    if tensor.dtype not in _NUMPY_DTYPES:
        expected = f"{STORAGE_DTYPES}, integers or bool"
        raise TypeError(f"{function.name}: {path[0]} has dtype {tensor.dtype}; expected {expected}")
    if tensor.requires_grad and torch.is_grad_enabled() and not function.has_gradient(path):
        expected = "one that does not, because the argument has no gradient"
        raise TypeError(f"{function.name}: {path[0]} has a tensor that requires a gradient; expected {expected}")


def _make_twin(function: Function) -> Callable[[Arguments, bool], Tensor | tuple[Tensor, ...]]:
    twin = _Twin(function)

    def run(arguments: Arguments, returns_all: bool) -> Tensor | tuple[Tensor, ...]:
        if "dropout" in arguments:
            _draw_seed(arguments)
        is_eager = _is_eager()
        is_plain = is_eager and peek_interpreter_stack() is None and forward_ad._current_level < 0
        results = (call_plainly(arguments) if is_plain else None) or follow(arguments, is_eager)
        return tuple(results) if returns_all else results[0]

    def call_plainly(arguments: Arguments) -> Sequence[Tensor] | None:
        """Return the results of a call that nothing follows; else None."""
        inputs: list[Array] = []

        def leaf(value: object) -> Any:
            if isinstance(value, torch.Tensor):
                if not _has_numbers(value) or (value.requires_grad and torch.is_grad_enabled()):
                    raise _FollowedError
                if value.ndim == 0 and not value.is_floating_point():
                    return _convert(value)
                try:
                    inputs.append(to_array(value))
                except TypeError:  # NumPy has no such dtype; `follow` names the argument
                    raise _FollowedError from None
                return inputs[-1]
            if isinstance(value, posenc.RopeFrequencies) and isinstance(value.inv_freq, torch.Tensor):
                return replace(value, inv_freq=leaf(value.inv_freq))
            return _convert(value) if isinstance(value, torch.dtype) else value

        if torch.is_grad_enabled() and any(getattr(value, "requires_grad", False) for value in arguments.values()):
            return None
        try:
            given = {
                name: leaf(value)
                if type(value) in _EAGER_TYPES
                else value
                if type(value) in _CONSTANTS
                else _bridge.walk(value, leaf, _make_node)
                for name, value in arguments.items()
            }
        except _FollowedError:
            return None
        return _to_tensors(twin.compute(given), inputs)

    def follow(arguments: Arguments, is_eager: bool) -> Sequence[Tensor]:
        call = Call(arguments, _convert, (torch.Tensor,), (torch.SymInt,))
        arrays = call.arrays
        are_plain = is_eager and all(map(_has_numbers, arrays))
        for array, path in zip(arrays, call.paths()):  # noqa: B905 - torch.compile knows no strict
            if not are_plain or array.requires_grad:
                _check_tensor(function, array, path)
        if are_plain:
            node = _Node if peek_interpreter_stack() is None else _TransformedNode
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
            _encode(call.spec), arrays or [torch.empty(0)], call.integers or [0], call.numbers or [0.0]
        )

    return run


_bridge.export(globals(), Operator, _make_twin, "tensors", _prepare)
_matrix, _logits = Operator._matrix, Operator._logits

if TYPE_CHECKING:
    __all__: list[str]

    def __getattr__(name: str) -> Any: ...
