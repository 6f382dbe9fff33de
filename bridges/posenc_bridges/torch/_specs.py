"""Specs of calls as text, as arguments of custom operators, and functions of tensors in them."""

from __future__ import annotations

import itertools
import json
import weakref
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]

from posenc_bridges import _common
from posenc_bridges._common import Arguments, Array, Node

from ._tensors import Tensor, to_array, to_tensor

_COUNTER = itertools.count()
_FUNCTIONS: weakref.WeakValueDictionary[int, Callable[..., object]] = weakref.WeakValueDictionary()
"""The functions of users in texts, by number. No number is given twice, so a text never names another function."""
BY_AUTOGRAD = "autograd"
"""The vjp of a `distance_function` of tensors, which autograd differentiates."""


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator, unused-ignore]
def encode(spec: Node) -> str:
    """Return a spec as JSON, with a number in place of a function of the user."""
    return json.dumps(spec, default=_number_of)


def decode(text: str) -> Node:
    """Return the spec of a text."""
    return cast("Node", _to_tuples(json.loads(text, object_hook=_function_of)))


def _to_tuples(value: object) -> object:
    return tuple(map(_to_tuples, value)) if isinstance(value, list) else value


def _number_of(function: Callable[..., object]) -> dict[str, int]:
    """Return the number of a function of the user, which has to be kept by the call or by the caller of a graph."""
    for number, one in _FUNCTIONS.items():
        if one is function:
            return {"function": number}
    number = next(_COUNTER)
    try:
        _FUNCTIONS[number] = function
    except TypeError:  # a class with __slots__
        has = f"type {type(function).__name__}, to which no weak reference is possible"
        raise TypeError(f"distance_function: function has {has}; expected a function") from None
    return {"function": number}


def _function_of(numbered: dict[str, int]) -> Callable[..., object]:
    function = _FUNCTIONS.get(numbered["function"])
    if function is None:
        expected = "one that is made outside the compiled function and kept as long as its graph"
        raise ReferenceError(f"distance_function: function of a graph is gone; expected {expected}")
    return function


def arguments_of(spec: Node, arrays: Sequence[Array], integers: Sequence[int], numbers: Sequence[float]) -> Arguments:
    """Return the arguments of the function of posenc."""
    return with_seed(_common.arguments(spec, arrays, integers, numbers, make_node))


def with_seed(arguments: Arguments) -> Arguments:
    """Return arguments with the number of a seed in an array (1,), where a negative one is a seed of 2**63 or more."""
    seed = arguments.get("seed")
    if isinstance(seed, np.ndarray) and seed.shape == (1,) and seed.dtype == np.int64:
        arguments["seed"] = int(seed[0]) % 2**64
    return arguments


def make_node(kind: str, names: Sequence[str], values: list[object]) -> object:
    """Return what a node of a spec describes; functions of tensors become functions of arrays."""
    given: Arguments = dict(zip(names, values))  # noqa: B905 - a tuple has no names
    if given.get("vjp") == BY_AUTOGRAD:
        function = given["function"]
        values = list({**given, "function": _of_tensors(function), "vjp": _vjp_of_tensors(function)}.values())
    return _common.make_node(kind, names, values)


def _of_tensors(function: Callable[..., Tensor]) -> Callable[..., Array]:
    """Return a function of tensors as a function of arrays."""

    def value(*arrays: Array) -> Array:
        with torch.no_grad():
            return to_array(function(*map(to_tensor, arrays)))

    return value


def _vjp_of_tensors(function: Callable[..., Tensor]) -> Callable[..., list[Array]]:
    """Return the vjp of a function of tensors, which autograd computes, as a function of arrays."""

    def vjp(grad: Array, rel: Array, *arrays: Array) -> list[Array]:
        with torch.enable_grad():
            leaves = [to_tensor(array).clone().requires_grad_() for array in arrays]
            if not leaves[0].clone().requires_grad:
                raise NotImplementedError("distance_function: vjp is None in torch.compile; expected a function")
            result = function(to_tensor(rel), *leaves)
            if not result.requires_grad:  # it reads no array
                return [np.zeros_like(array) for array in arrays]
            cotangent = to_tensor(grad).to(result.dtype)
            found = torch.autograd.grad(result, leaves, cotangent, materialize_grads=True)
        return [to_array(one) for one in found]

    return vjp
