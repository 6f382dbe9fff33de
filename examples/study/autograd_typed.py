"""HIPS autograd with types. Its own functions have none, or are created at import, where no type checker sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import autograd  # type: ignore[import-not-found, import-untyped, unused-ignore]
import autograd.numpy  # type: ignore[import-not-found, import-untyped, unused-ignore]
from autograd import extend  # type: ignore[import-not-found, import-untyped, unused-ignore]

from arrays import Array, Traced

Function = TypeVar("Function", bound=Callable[..., Array])
Gradients = tuple[Array, ...]

anp: Traced = autograd.numpy
"""NumPy's functions for arrays that autograd traces."""
value_and_grad: Callable[[Callable[..., Traced]], Callable[..., tuple[Traced, Traced]]] = autograd.value_and_grad
"""Returns the function that computes another one and its gradient with respect to the first argument."""


def node(vjp: Callable[..., Gradients]) -> Callable[[Function], Function]:
    """Make a function of arrays a node of autograd's graph.

    ``vjp(g, result, *arguments)`` returns the gradients of the arguments that have one.
    """

    def decorate(function: Function) -> Function:
        made: Function = extend.primitive(function)

        def of_call(
            argnums: tuple[int, ...], result: Array, arguments: Gradients, _: object
        ) -> Callable[[Array], Gradients]:
            def gradients(g: Array) -> Gradients:
                of_arguments = vjp(g, result, *arguments)
                return tuple(of_arguments[number] for number in argnums)

            return gradients

        extend.defvjp_argnums(made, of_call)
        return made

    return decorate
