"""The options of attention: their types and their defaults. `attention` documents them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from typing import Literal, TypedDict, TypeVar

import numpy.typing as npt

from .._core_api import foreign
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


READ_BY_PYTHON = {"bias", "window", "scale", "sink", "seed"}
"""The options that inputs.py reads; `_core` reads the others as they are."""
KEYWORDS: dict[str, list[str]] = {}
"""All keywords of each function that has the options, by its name; `show_options` fills it."""


def refuse_unknown(caller: str, options: Mapping[str, object]) -> None:
    """Refuse options that `attention` has not."""
    name = next(name for name in options if name not in DEFAULTS)
    raise TypeError(f": {name} is unknown; expected {foreign.expected_argument(caller, name, KEYWORDS[caller])}")


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
        KEYWORDS[function.__name__] = [p.name for p in parameters]
        return function

    return decorate
