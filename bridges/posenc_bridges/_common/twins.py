"""The functions and operators of posenc under their names in another module."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

import numpy as np

import posenc
from posenc.interop import OPERATORS, Arguments

from .function import FUNCTIONS, LOGITS, MATRIX, Binder, Function
from .operator import Operator


def export(
    namespace: dict[str, object],
    operator: type[Operator],
    make_twin: Callable[[Function], Callable[[Arguments, bool], object]],
    arrays: str,
) -> None:
    """Add the twins of all functions and operators to the namespace of a module.

    `make_twin` returns a function of (arguments of a call, whether all results are wanted).
    """

    def function_twin(function: Function) -> Callable[..., object]:
        run = make_twin(function)

        def twin(*args: object, **options: object) -> object:
            arguments = function.bind(args, options)
            returns_all = function.returns_lse and arguments.pop("return_lse", False)
            if not isinstance(returns_all, (bool, np.bool_)):
                has = f"type {type(returns_all).__name__}"
                raise TypeError(f"{function.name}: return_lse has {has}; expected True or False")
            if isinstance(arguments.get("bias"), Operator):
                arguments["bias"] = (arguments["bias"],)  # as the gradient of one bias is a tuple of one
            return run(arguments, bool(returns_all))

        return function.document(twin, describe(function.name, f"`posenc.{function.name}` for {arrays}."))

    def operator_twin(name: str) -> Callable[..., object]:
        binder = Binder(name, inspect.signature(OPERATORS[name]), operator)

        def twin(*args: object, **options: object) -> Operator:
            return operator(name, binder.bind(args, options))

        return binder.document(twin, describe(name, f"`posenc.{name}` for {arrays}; returns an `Operator`."))

    def describe(name: str, summary: str) -> str:
        """Return the docstring of a function of posenc below a summary, without `out` and examples of NumPy."""
        doc = inspect.getdoc(getattr(posenc, name, None)) or ""  # matrix and logits are documented by `Operator`
        doc = re.sub(r"^out : array.*\n(?: .*\n)*", "", doc.partition("\n\nExamples\n--")[0], count=1, flags=re.M)
        return f"{summary}\n\n{doc}"

    namespace.update({name: function_twin(function) for name, function in FUNCTIONS.items()})
    namespace.update({name: operator_twin(name) for name in OPERATORS})
    operator._matrix, operator._logits = function_twin(MATRIX), function_twin(LOGITS)
    namespace["__all__"] = ["Operator", *FUNCTIONS, *OPERATORS]
