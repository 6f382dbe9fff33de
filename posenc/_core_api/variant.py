"""One instruction set for each public call."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar, cast

from .. import _core

Function = TypeVar("Function", bound=Callable[..., object])


class _OneIsa:
    """A block whose kernels are all of the instruction set in use at its start.

    Without it, another thread that calls `use_isa` meanwhile could give results that no instruction set gives. Enter
    and exit are functions of C, so Python handles no signal between one of them and the block.
    """

    __slots__ = ()
    __enter__ = staticmethod(_core.hold_isa)
    __exit__ = staticmethod(_core.release_isa)


ONE_ISA = _OneIsa()


def in_one_isa(function: Function) -> Function:
    """Decorate a function that runs several kernels, so that its body is a block of `ONE_ISA`.

    A call costs 0.6 us more; functions for which that matters have the block inside.
    """

    @wraps(function)
    def call(*args: object, **options: object) -> object:
        with ONE_ISA:
            return function(*args, **options)

    return cast("Function", call)
