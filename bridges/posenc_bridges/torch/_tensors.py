"""Tensors as arrays and back, and how calls of posenc look to graphs of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]
from torch._C import _len_torch_dispatch_stack  # type: ignore[import-not-found, unused-ignore]
from torch._C._functorch import peek_interpreter_stack  # type: ignore[import-not-found, unused-ignore]
from torch.autograd import forward_ad  # type: ignore[import-not-found, unused-ignore]
from torch.utils._pytree import register_pytree_node  # type: ignore[import-not-found, unused-ignore]

import posenc
from posenc_bridges import _common
from posenc_bridges._common import Array

Tensor: TypeAlias = torch.Tensor

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = {_BFLOAT16: torch.bfloat16} | {
    np.dtype(name): getattr(torch, name)
    for name in (
        "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128",
        "uint16", "uint32", "uint64",
    )
}  # fmt: skip
NUMPY_DTYPES = {of_torch: of_numpy for of_numpy, of_torch in DTYPES.items()}
_BATCHED = torch._C._dispatch_key_parse("Batched")
_EAGER_TYPES = (torch.Tensor, torch.nn.Parameter)


def to_array(tensor: Tensor) -> Array:
    """Return a view of the memory of a tensor on the CPU; bfloat16 becomes that of ml_dtypes.

    After `Tensor.numpy`, the memory cannot be resized. FSDP resizes the memory of parameters and of views of them, so
    tensors that may be such are read by DLPack, which takes 2 us more.
    """
    to_numpy = torch.Tensor.numpy
    if tensor.requires_grad or type(tensor) is not torch.Tensor:
        to_numpy, tensor = np.from_dlpack, tensor.detach()
    if tensor.is_neg() or tensor.is_conj():
        tensor = tensor.resolve_neg().resolve_conj()
    if tensor.dtype is not torch.bfloat16:
        return to_numpy(tensor)  # type: ignore[no-any-return]
    return to_numpy(tensor.view(torch.int16)).view(_BFLOAT16)  # type: ignore[no-any-return]


def to_tensor(array: Array) -> Tensor:
    """Return an array as a tensor, in the same memory if it is contiguous."""
    if not array.flags.carray:
        array = np.array(array, array.dtype.newbyteorder("="), order="C")
    if array.dtype == _BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def to_tensors(results: Sequence[object], inputs: Sequence[Array]) -> list[Tensor]:
    """Return results as contiguous tensors; a custom operator must not return views of inputs or of other results."""
    taken = list(inputs)
    for result in results:
        array = np.asarray(result, order="C")
        if array.base is not None and any(np.may_share_memory(array, other) for other in taken):
            array = array.copy()
        taken.append(array)
    return [to_tensor(array) for array in taken[len(inputs) :]]


_PROXY = "posenc_bridges.torch: an argument has type Proxy of torch.fx; expected a tensor, as torch.export passes it"


def tensors_in(values: Iterable[object]) -> list[Tensor]:
    """Return the tensors in arguments, also those in operators, sequences and frequencies."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, _common.NESTED):
            found += tensors_in(value.arguments.values() if isinstance(value, _common.Operator) else value)
        elif isinstance(value, posenc.RopeFrequencies) and isinstance(value.inv_freq, torch.Tensor):
            found.append(value.inv_freq)
        elif isinstance(value, torch.fx.Proxy):
            raise TypeError(_PROXY)
    return found


def runs_eagerly(tensors: Sequence[Tensor]) -> bool:
    """Return whether nothing records calls, nor follows tangents, and all tensors are arrays of numbers in memory."""
    is_recorded = torch.compiler.is_compiling() or torch.jit.is_tracing() or _len_torch_dispatch_stack()
    return not is_recorded and forward_ad._current_level < 0 and all(map(_has_numbers, tensors))


def is_followed(tensors: Sequence[Tensor]) -> bool:
    """Return whether autograd or torch.func follows tensors."""
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor.requires_grad:
                return True
    return peek_interpreter_stack() is not None


def batch_level(tensors: Sequence[Tensor]) -> int:
    """Return the level of the batch of cotangents in tensors (`is_grads_batched`, ``vectorize=True``), or 0.

    Autograd makes it by an older `vmap`, which has no rules for Python functions, and whose tensors have no numbers.
    """
    torch._C._vmapmode_increment_nesting()
    level: int = torch._C._vmapmode_decrement_nesting()
    return level if level and any(torch._C._dispatch_keys(one).has(_BATCHED) for one in tensors) else 0


def _has_numbers(tensor: Tensor) -> bool:
    """Return whether a tensor is no tensor of a GPU, of another class or layout, or of float8."""
    return (
        type(tensor) in _EAGER_TYPES
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and tensor.dtype in NUMPY_DTYPES
    )


def convert(value: object) -> object:
    """Replace integers in tensors without axes by integers, ranges by tuples, dtypes by their names."""
    if isinstance(value, torch.Tensor):
        is_integer = value.ndim == 0 and not (value.is_floating_point() or value.dtype is torch.bool)
        return int(value) if is_integer else value
    if isinstance(value, torch.dtype):
        return NUMPY_DTYPES[value].name
    if isinstance(value, np.generic) and not isinstance(value, (np.longdouble, np.clongdouble)):
        return value.item()
    if isinstance(value, range):
        return tuple(value)
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, type) and issubclass(value, np.generic):
        return value.__name__
    return _common.call_of(value) if isinstance(value, posenc.Bias) else value


_STRICT = "posenc_bridges.torch: a NumPy array is in torch.export(strict=True); expected a tensor, or strict=False"


def to_constant(value: object) -> object:
    """Return a NumPy array as a tensor of its own: torch does not see that it changes before the gradient reads it."""
    if not isinstance(value, np.ndarray):
        return value
    if not torch.compiler.is_compiling():
        return to_tensor(value.copy())
    if torch.compiler.is_dynamo_compiling() and torch.compiler.is_exporting():  # the program would lose its numbers
        raise NotImplementedError(_STRICT)
    return torch.from_numpy(value).clone()


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
for _name in ("alibi_slopes", "axial_frequencies", "sinusoidal_frequencies", "nezha_table", "xl_table"):
    torch.compiler.assume_constant_result(getattr(posenc, _name))
