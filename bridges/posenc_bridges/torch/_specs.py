"""Specs of calls as text, as arguments of custom operators, and functions of tensors in them."""

from __future__ import annotations

import ast
import itertools
import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import cast

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]

from posenc_bridges import _common
from posenc_bridges._common import Arguments, Array, Node, Spec

from ._tensors import Tensor, to_array, to_tensor

_LEAVES = ("array", "integer", "number")


def encode(value: Spec) -> str:
    """Return a spec as Python code, in which ``array``, ``integer`` and ``number`` stand for the leaves."""
    if isinstance(value, tuple):
        kind, names, inner = value
        values = [encode(one) for one in inner]
        if names:
            values = [f"{name}={one}" for name, one in zip(names, values)]  # noqa: B905 - torch.compile
        return f"{kind}({', '.join(values)})"
    if type(value) is int:
        return _LEAVES[value]
    return f"held(number={_hold(value)!r})" if callable(value) else repr(value)


@lru_cache(maxsize=1024)
def decode(text: str) -> Node:
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
        raise ReferenceError("posenc_bridges.torch: a function of a graph is gone; keep it as long as the graph")
    return _HELD[number]


def functions_of(spec: Node) -> list[Callable[..., object]]:
    """Return the functions of the user that the spec of a text names."""
    kind, _, values = spec
    if kind == "held":
        return [_held(str(values[0]))]
    return [function for value in values if isinstance(value, tuple) for function in functions_of(value)]


def make_node(kind: str, names: Sequence[str], values: list[object]) -> object:
    """Return what a node of a spec describes."""
    return _MAKERS[kind](*values) if kind in _MAKERS else _common.make_node(kind, names, values)


def arguments_of(spec: Node, arrays: Sequence[Array], integers: Sequence[int], numbers: Sequence[float]) -> Arguments:
    return _common.arguments(spec, arrays, integers, numbers, make_node)


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


def _seed_of(number: Array) -> int:
    """Return the seed of attention in an array (1,) of int64, whose negative numbers are seeds of 2**63 and more."""
    return int(number[0]) % 2**64


_MAKERS: dict[str, Callable[..., object]] = {
    "held": _held, "function_of_tensors": _of_tensors, "vjp_of_tensors": _vjp_of_tensors, "seed_of": _seed_of
}  # fmt: skip
"""Functions that make what a node describes, for nodes that only this module makes."""


def draw_seed(arguments: Arguments) -> None:
    """Let dropout have a seed: a tensor, which a graph reads anew in each call; by default of torch's generator."""
    seed, dropout = arguments.get("seed"), arguments.get("dropout")
    if seed is None and isinstance(dropout, (int, float)) and dropout > 0:
        seed = torch.randint(2**63 - 1, (1,), dtype=torch.int64, device="cpu")
    elif isinstance(seed, int) and 2**63 <= seed < 2**64:
        seed = torch.tensor([seed - 2**64])
    if isinstance(seed, torch.Tensor) and seed.dtype is torch.int64 and seed.numel() == 1:
        arguments["seed"] = _common.Operator("seed_of", {"number": seed.reshape(1)})


def prepare(name: str, arguments: Arguments) -> Arguments:
    """Let autograd differentiate a function of tensors that has no vjp."""
    if "function" in arguments and arguments.get("vjp") is None:
        given = {"function": arguments["function"]}
        arguments["function"] = _common.Operator("function_of_tensors", given)
        arguments["vjp"] = _common.Operator("vjp_of_tensors", given)
    return arguments
