"""Tensors of PyTorch as arguments. Nothing here imports torch: a caller that passes a tensor has imported it."""

from __future__ import annotations

import sys
from typing import Any

import numpy.typing as npt


def is_tensor(value: object) -> bool:
    """Return whether a value is a tensor of torch, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def requires_gradient(tensor: Any) -> bool:
    """Return whether a call of a function that torch does not follow would lose the gradient of a tensor."""
    return bool(tensor.requires_grad) and sys.modules["torch"].is_grad_enabled()


def to_array(tensor: Any) -> npt.NDArray[Any]:
    """Return a view of the memory of a tensor on the CPU; bfloat16 becomes that of ml_dtypes."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.is_neg() or tensor.is_conj():
        tensor = tensor.resolve_neg().resolve_conj()
    torch = sys.modules["torch"]
    if tensor.dtype is not torch.bfloat16:
        return tensor.numpy()  # type: ignore[no-any-return]
    from ml_dtypes import bfloat16

    return tensor.view(torch.int16).numpy().view(bfloat16)  # type: ignore[no-any-return]
