"""Tensors as arrays and back, and how calls of posenc look to graphs of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]
from torch.utils.dlpack import to_dlpack  # type: ignore[import-not-found, unused-ignore]

import posenc
from posenc_bridges import _common
from posenc_bridges._common import Array

from ._private import find, forward_level, has_batches, len_torch_dispatch_stack, peek_interpreter_stack

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
_BATCHED = torch._C._dispatch_key_parse("Batched") if has_batches else None
_EAGER_TYPES = (torch.Tensor, torch.nn.Parameter)


class _ByDlpack:
    """A tensor that NumPy reads by DLPack, in a third of the time of ``Tensor.__dlpack__``."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **options: object) -> Any:
        return to_dlpack(self.tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the CPU


def to_array(tensor: Tensor) -> Array:
    """Return a view of the memory of a tensor on the CPU; bfloat16 becomes that of ml_dtypes.

    After `Tensor.numpy`, the memory cannot be resized. FSDP resizes the memory of parameters and of views of them, so
    tensors that may be such are read by DLPack.
    """
    is_plain = type(tensor) is torch.Tensor and not tensor.requires_grad
    if not is_plain:
        tensor = tensor.detach()
    if tensor.is_neg() or tensor.is_conj():
        tensor = tensor.resolve_neg().resolve_conj()
    is_bfloat16 = tensor.dtype is torch.bfloat16
    if is_bfloat16:
        tensor = tensor.view(torch.int16)
    array: Array = tensor.numpy() if is_plain else np.from_dlpack(_ByDlpack(tensor))
    return array.view(_BFLOAT16) if is_bfloat16 else array


def to_tensor(array: Array) -> Tensor:
    """Return an array as a tensor, in the same memory if it is contiguous."""
    if not array.flags.carray:
        array = np.array(array, array.dtype.newbyteorder("="), order="C")
    if array.dtype == _BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def to_tensors(results: Iterable[object]) -> list[Tensor]:
    """Return results of posenc, which share no memory with anything else, as contiguous tensors."""
    return [to_tensor(np.asarray(result)) for result in results]


_PROXY = "posenc_bridges.torch: an argument has type Proxy of torch.fx; expected a tensor, as torch.export passes it"


def is_recorded() -> bool:
    """Return whether something records calls, or follows tangents of forward mode."""
    recorded = torch.compiler.is_compiling() or torch.jit.is_tracing() or len_torch_dispatch_stack()
    return bool(recorded) or forward_level() >= 0


def is_followed(arrays: Iterable[Any]) -> bool:
    """Return whether autograd or torch.func follows tensors among arrays."""
    if torch.is_grad_enabled():
        for one in arrays:
            if isinstance(one, torch.Tensor) and one.requires_grad:
                return True
    return peek_interpreter_stack() is not None


def have_numbers(arrays: Iterable[Any]) -> bool:
    """Return whether no array is a tensor of a GPU, of another class or layout, or of float8."""
    for one in arrays:
        if isinstance(one, torch.Tensor) and not (
            type(one) in _EAGER_TYPES
            and one.is_cpu
            and one.layout is torch.strided
            and not one.is_nested
            and one.dtype in NUMPY_DTYPES
        ):
            return False
    return True


def batch_level(tensors: Sequence[Tensor]) -> int:
    """Return the level of the batch of cotangents in tensors (`is_grads_batched`, ``vectorize=True``), or 0.

    Autograd makes it by an older `vmap`, which has no rules for Python functions, and whose tensors have no numbers.
    """
    if not has_batches:
        return 0
    torch._C._vmapmode_increment_nesting()
    level: int = torch._C._vmapmode_decrement_nesting()
    return level if level and any(torch._C._dispatch_keys(one).has(_BATCHED) for one in tensors) else 0


def is_constant(value: object) -> bool:
    """Return whether a call without a gradient may keep a value as it is: an object of posenc without tensors."""
    is_bias = isinstance(value, posenc.Bias)
    return is_bias or (isinstance(value, posenc.RopeFrequencies) and not isinstance(value.inv_freq, torch.Tensor))


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
    if isinstance(value, torch.fx.Proxy):
        raise TypeError(_PROXY)
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
if _register := find("utils._pytree.register_pytree_node"):
    _register(posenc.RopeFrequencies, _flatten_frequencies, _unflatten_frequencies)


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
