"""Terms: operators on the logits as the kernels of attention take them, and what comes back for their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from .._core_api.arguments import Array, Dtype

Options: TypeAlias = Mapping[str, Any]
"""Arguments of the function that made an operator, without its arrays."""
Operands: TypeAlias = dict[str, Any]
"""Arrays by the names of a row of csrc/ops.def, in its order; None for an array that was left out."""
Gradients: TypeAlias = tuple[Any, ...]
"""One gradient for each array of an operator: an array, None, or a tuple of them for an array that is a tuple."""


Sums: TypeAlias = Mapping[str, Array]
"""What the kernel of attention computes for the gradient of an operator: the arrays that `Term.reads` names.

Arrays ``d_...`` are the gradients of a row of csrc/ops.def, without those of operands that are None. They are summed
over the batch, but those of a CONTENT row without an axis t are (batch axes, H, ...). The other arrays are sums of dS,
the gradient of the biased logits, (batch axes, H, N, M):

- "diagonals", over batch axes and each diagonal: (H, N + M - 1), entry j - i + N - 1
- "rows", over keys: (batch axes, H, N)
- "columns", over queries: (batch axes, H, M)
- "pairs", over the leading axes along which a dense array is broadcast: (..., N, M)
"""


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
    reads: tuple[str, ...] = ()
    """The names of the `Sums` from which `Bias._gradient` computes the gradients of the arrays."""
    scale: float | None = None
    """The scale of the logits that becomes the default of the call; None is ``width**-0.5``."""
