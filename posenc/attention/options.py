"""The options of attention: their types, their defaults, and the checks of those that need no other argument.

`attention` documents them. What has to fit other arguments, such as bias, keep, window, positions, segments, scale and
sink, is checked in inputs.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from math import inf
from typing import Literal, NamedTuple, NoReturn, TypeAlias, TypedDict, TypeVar, cast

import numpy.typing as npt

from .._core_api import read
from .._core_api.door import fail_value
from ..bias.operator import Bias

Function = TypeVar("Function", bound=Callable[..., object])


class Options(TypedDict, total=False):
    """The options by name, in the order in which a signature shows them."""

    bias: Bias | Sequence[Bias] | None
    keep: npt.ArrayLike | None
    causal: bool
    align: Literal["start", "end"] | None
    window: tuple[float | None, float | None] | None
    q_positions: npt.ArrayLike | None
    k_positions: npt.ArrayLike | None
    q_segments: npt.ArrayLike | None
    k_segments: npt.ArrayLike | None
    scale: npt.ArrayLike | None
    softcap: float | None
    sink: npt.ArrayLike | None
    dropout: float
    seed: int | None
    invariant: bool
    precision: Literal["high", "low"]


DEFAULTS: Mapping[str, object] = {
    "bias": (), "keep": None, "causal": False, "align": None, "window": None, "q_positions": None, "k_positions": None,
    "q_segments": None, "k_segments": None, "scale": None, "softcap": None, "sink": None, "dropout": 0.0, "seed": None,
    "invariant": False, "precision": "high",
}  # fmt: skip


class Flag(NamedTuple):
    """True or False."""

    def read(self, name: str, value: object) -> bool:
        return read.flag(name, value)


class Choice(NamedTuple):
    """One of some words."""

    words: tuple[str, ...]

    def read(self, name: str, value: object) -> object:
        read.choice(name, value, self.words)
        return value


class Integer(NamedTuple):
    """An integer from `least` to `most`."""

    least: int
    most: int

    def read(self, name: str, value: object) -> int:
        return read.index(name, value, self.least, self.most)


class Number(NamedTuple):
    """A finite number, at least `least`, above `above` and below `below`; `expected` says so in words."""

    expected: str
    least: float = -inf
    above: float = -inf
    below: float = inf

    def read(self, name: str, value: object) -> float:
        number = read.number(name, value)
        if number < self.least or number <= self.above or number >= self.below:
            fail_value(ValueError, name, value, self.expected)
        return number


Check: TypeAlias = Flag | Choice | Integer | Number
CHECKS: dict[str, Check] = {
    "causal": Flag(),
    "align": Choice(("start", "end")),
    "softcap": Number("a positive number or None", above=0.0),
    "dropout": Number("a probability from 0 to below 1", least=0.0, below=1.0),
    "seed": Integer(0, 2**64 - 1),
    "invariant": Flag(),
    "precision": Choice(("high", "low")),
}
"""What an option has to be, apart from None where that is the default; inputs.py checks the others."""
KEYWORDS: dict[str, list[str]] = {}
"""All keywords of each function that has the options, by its name; `show_options` fills it."""


def read_options(caller: str, options: Mapping[str, object]) -> Options:
    """Return all options, of which a caller passed some; refuse unknown ones, and values that fail their check."""
    complete = {**DEFAULTS, **options}
    for name, value in options.items():
        if name not in DEFAULTS:
            _refuse_unknown(caller, name)
        if name in CHECKS and (value is not None or DEFAULTS[name] is not None):
            complete[name] = CHECKS[name].read(name, value)
    return cast("Options", complete)


def _refuse_unknown(caller: str, name: str) -> NoReturn:
    from difflib import get_close_matches  # importing it takes too long for `import posenc`

    keywords = KEYWORDS[caller]
    expected = get_close_matches(name, keywords, 1) or keywords
    raise TypeError(f": {name} is unknown; expected {', '.join(expected)}")


def show_options(before: str | None = None) -> Callable[[Function], Function]:
    """Decorate a function whose last parameter is ``**options``, so that its signature shows each of them.

    They stand before the keyword `before`, or at the end. There is no wrapper, so a call takes as long as without. The
    keywords of the function join KEYWORDS.
    """

    def decorate(function: Function) -> Function:
        plain = signature(function)
        *own, _ = plain.parameters.values()
        place = [p.name for p in own].index(before) if before else len(own)
        options = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=DEFAULTS[name], annotation=hint.__forward_arg__)
            for name, hint in Options.__annotations__.items()
        ]
        parameters = [*own[:place], *options, *own[place:]]
        function.__signature__ = plain.replace(parameters=parameters)  # type: ignore[attr-defined]
        function.__annotations__ = {**{p.name: p.annotation for p in parameters}, "return": plain.return_annotation}
        KEYWORDS[function.__name__] = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
        return function

    return decorate
