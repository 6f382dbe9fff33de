"""HIPS autograd with types. Its own functions have none, or are created at import, where no type checker sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import autograd  # type: ignore[import-not-found, import-untyped, unused-ignore]
import autograd.extend  # type: ignore[import-not-found, import-untyped, unused-ignore]
import autograd.numpy  # type: ignore[import-not-found, import-untyped, unused-ignore]

F = TypeVar("F", bound=Callable[..., Any])

anp: Any = autograd.numpy
"""NumPy's functions for arrays that autograd traces."""
value_and_grad: Callable[[Callable[..., Any]], Callable[..., tuple[Any, Any]]] = autograd.value_and_grad
"""Returns the function that computes another one and its gradient with respect to the first argument."""
_primitive: Any = autograd.extend.primitive
defvjp: Callable[..., None] = autograd.extend.defvjp
defvjp_argnums: Callable[..., None] = autograd.extend.defvjp_argnums


def primitive(function: F) -> F:
    """Make a function of arrays a node of autograd's graph."""
    node: F = _primitive(function)
    return node
