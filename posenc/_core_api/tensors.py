"""Tensors of PyTorch as arguments. Nothing here imports torch: a caller that passes a tensor has imported it."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt


def is_tensor(value: object) -> bool:
    """Return whether a value is a tensor of torch, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def requires_gradient(tensor: Any) -> bool:
    """Return whether a call of a function that torch does not follow would lose the gradient of a tensor."""
    return bool(tensor.requires_grad) and sys.modules["torch"].is_grad_enabled()


def to_array(tensor: Any) -> npt.NDArray[Any]:
    """Return a view of the memory of a tensor on the CPU; bfloat16 becomes that of ml_dtypes.

    After `Tensor.numpy`, the memory cannot be resized. FSDP resizes the memory of parameters and of views of them, so
    tensors that may be such are read by DLPack, which takes 2 us more.
    """
    torch = sys.modules["torch"]
    to_numpy = torch.Tensor.numpy
    if tensor.requires_grad or type(tensor) is not torch.Tensor:
        to_numpy, tensor = np.from_dlpack, tensor.detach()
    if tensor.is_neg() or tensor.is_conj():
        tensor = tensor.resolve_neg().resolve_conj()
    if tensor.dtype is not torch.bfloat16:
        return to_numpy(tensor)  # type: ignore[no-any-return]
    from ml_dtypes import bfloat16

    return to_numpy(tensor.view(torch.int16)).view(bfloat16)  # type: ignore[no-any-return]
