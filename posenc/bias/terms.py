"""Terms: operators on the logits as the kernels of attention take them, and the sums that come back."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from .._core_api.arguments import Array, Dtype, Float64

_EMPTY: Array = np.empty(0)
Reduction = Literal["diagonals", "rows", "columns", "pairs", "parameters", "tables"]
"""A field of `Reductions` that the kernel of attention fills."""
Options: TypeAlias = Mapping[str, Any]
"""Arguments of the function that made an operator, without its arrays."""
Operands: TypeAlias = dict[str, Any]
"""Arrays by the names of a row of csrc/ops.def, in its order; None for an array that was left out."""
Gradients: TypeAlias = tuple[Any, ...]
"""One gradient for each array of an operator: an array, None, or a tuple of them for an array that is a tuple."""


class Call(NamedTuple):
    """The call of attention, or of a method, that an operator gives its term to."""

    function: str
    dtype: Dtype
    """The dtype of the arithmetic."""
    shape: tuple[int, ...]
    """Shape of the logits, (batch axes, H, N, M)."""
    width: int
    """Width of q."""
    value_width: int | None
    """Width of v; None if the call has no values."""


class Term(NamedTuple):
    """An operator as the kernels take it."""

    row: str
    """Name of a row of csrc/ops.def."""
    operands: dict[str, Array | None]
    """Operands of that row by name, without its gradients."""
    reductions: tuple[Reduction, ...] = ()
    """The fields of `Reductions` from which `Bias._gradient` computes the gradients of the arrays."""
    scale: float | None = None
    """The scale of the logits that becomes the default of the call; None is ``width**-0.5``."""


class Reductions(NamedTuple):
    """dS reduced for one operator; dS is the gradient of the biased logits, (..., H, N, M).

    Attention fills the fields that `Term.reductions` names, and `PositionBias.vjp` fills `cotangent`.
    """

    diagonals: Float64 = _EMPTY
    """dS summed over batch axes and each diagonal: (H, N + M - 1), entry j - i + N - 1."""
    rows: Float64 = _EMPTY
    """dS summed over keys: (..., H, N)."""
    columns: Float64 = _EMPTY
    """dS summed over queries: (..., H, M)."""
    pairs: Array = _EMPTY
    """dS summed over the leading axes along which a dense array is broadcast: (..., N, M)."""
    parameters: tuple[Float64, ...] = ()
    """Gradients of the parameters, which the kernel of a DISTANCE or PAIR row sums itself."""
    tables: Mapping[str, Array] = MappingProxyType({})
    """The gradients that a CONTENT row names in csrc/ops.def, without those of operands that are None.

    Those with an axis t are (H, ...), summed over batch axes and queries; the others are (batch axes, H, ...).
    """
    cotangent: Array | None = None
    """dS itself, or its sums along diagonals, as `PositionBias.vjp` takes it."""
