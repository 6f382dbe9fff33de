"""The name of a public function before the messages of everything below it.

A message begins with ": " and the name of an argument; `door` puts the name of the public function before it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn, TypeVar, cast

from .foreign import explain

__tracebackhide__ = True  # pytest shows the line of the call
MOST_BITS_SHOWN = 256
"""Bits of the longest integer that a message shows."""
MOST_SHOWN = 300
"""Characters of the longest value that a message shows."""

Function = TypeVar("Function", bound=Callable[..., Any])


def door(function: Function, name: str = "") -> Function:
    """Decorate a public function, so that messages from below, which begin with ": ", begin with its name.

    In the name of a method, {} is the name of its operator: "alibi.matrix", "(alibi + t5).matrix". A call takes some
    0.4 us more.
    """
    owner, _, own = function.__qualname__.rpartition(".")
    name = name or (own if not owner else owner if own.startswith("__") else f"{{}}.{own}")

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except Exception as error:
            first = args[0] if args else options.get("self")
            owner = str(getattr(first, "name", ""))
            shown_name = name.format(f"({owner})" if "+" in owner else owner)
            trace = error.__traceback__
            if isinstance(error, TypeError) and trace and trace.tb_next is None:  # raised by the call itself
                unfit = explain(shown_name, function, args, options)
                if unfit:
                    raise TypeError(unfit) from None
            _add_name(error, shown_name)
            raise

    return cast("Function", call)


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes a name for its messages as its first argument, as `_core` passes it."""

    def call(name: str, *args: Any) -> Any:
        try:
            return function(*args)
        except Exception as error:
            _add_name(error, name)
            raise

    return call


def _add_name(error: Exception, name: str) -> None:
    if len(error.args) == 1 and isinstance(error.args[0], str) and error.args[0].startswith(": "):
        error.args = (name + error.args[0],)


def fail(kind: type[Exception], argument: str, has: object, expected: str) -> NoReturn:
    """Raise ": <argument> has <has>; expected <expected>", for a property of the argument; see `door`."""
    raise kind(f": {argument} has {has if isinstance(has, str) else shown(has)}; expected {expected}")


def fail_value(kind: type[Exception], argument: str, value: object, expected: str) -> NoReturn:
    """Raise ": <argument> is <value>; expected <expected>", for the argument's own value; see `door`."""
    raise kind(f": {argument} is {shown(value)}; expected {expected}")


def shown(value: object) -> str:
    """Return a value as messages show it, in one line of bounded length."""
    if isinstance(value, int) and value.bit_length() > MOST_BITS_SHOWN:  # Python prints no more than 4300 digits
        return f"an integer of {value.bit_length()} bits"
    ndim = getattr(value, "ndim", 0)
    if isinstance(ndim, int) and ndim:  # numpy.ndim is a function, and numpy.ndarray.ndim a descriptor
        return f"an array of shape {tuple(getattr(value, 'shape', ()))}"
    text = repr(value) if isinstance(value, str | bytes) else str(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
