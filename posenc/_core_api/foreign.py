"""What to pass or to call here for the names that other libraries and the papers use.

foreign.txt has a sentence for each. It is read when a call does not fit a signature or a module lacks a name. The
manual shows the sentences on its page about errors.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
EMPTY: Any = inspect.Parameter.empty
"""The default of a required parameter of a function that refuses by itself what is missing."""

FILE = Path(__file__).with_name("foreign.txt")


@cache
def words(kind: str) -> dict[str, str]:
    """Return the words of one kind, "argument", "check", "name" or "call", and a sentence for each."""
    lines = (line.split(" | ", 2) for line in FILE.read_text("utf-8").splitlines() if not line.startswith("#"))
    return {word: sentence for of, word, sentence in lines if of == kind}


MOST_LISTED = 6
"""Arguments that a message lists; of a function with more, it names help()."""


def expected_argument(function: str, word: str, keywords: Sequence[str]) -> str:
    """Return what a function, with these keywords, expects in place of an unknown one."""
    from difflib import get_close_matches  # importing it takes too long for `import posenc`

    sentences = [words("argument").get(word, "")]
    if function.startswith("check."):  # its own sentence, or the one for the argument that takes the word's place
        of_check, place = words("check"), re.split(r"\W", sentences[0])[0]
        sentences = [of_check.get(word, ""), *sentences, of_check.get(place, "")]
    for sentence in sentences:
        if re.split(r"\W", sentence)[0] in (*keywords, "nothing", "a"):
            return sentence
    close = get_close_matches(word, keywords, 1)
    return close[0] if close else ", ".join(keywords) if len(keywords) <= MOST_LISTED else f"those of help({function})"


def missing_name(module: str, word: str, names: Sequence[str]) -> AttributeError:
    """Return the error for a name that a module has not. Python adds what is spelt alike when it prints it."""
    vjp = re.sub(r"_(backward|bwd|grad|gradient)$", "_vjp", word)
    expected = words("name").get(word) or (_call_of(vjp, getattr(sys.modules[module], vjp)) if vjp in names else "")
    hint = f"; expected {module}.{expected}" if expected else ""
    return AttributeError(f"module {module!r} has no attribute {word!r}{hint}", name=word, obj=sys.modules[module])


def _call_of(name: str, function: Callable[..., Any]) -> str:
    """Return a call with the parameters that a function needs."""
    parameters = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    needed = [p.name for p in parameters if p.default is p.empty and p.kind in kinds and p.name != "self"]
    return f"{name}({', '.join(needed)})"


def explain(name: str, function: Callable[..., Any], args: Sequence[object], options: Mapping[str, object]) -> str:
    """Return what is wrong with a call that does not fit the signature of a function, as a message; "" if it fits."""
    parameters = dict(inspect.signature(function).parameters)
    args = args[1:] if parameters.pop("self", None) else args
    own = name.rpartition(".")[2]
    places = [k for k, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    unknown = [word for word in options if word not in parameters]
    given = {*places[: len(args)], *options}
    absent = [k for k, p in parameters.items() if p.default is p.empty and k not in given]
    if unknown:
        return f"{name}: {unknown[0]} is unknown; expected {expected_argument(name, unknown[0], list(parameters))}"
    if len(args) > len(places):
        others = "others go by name" if len(parameters) > len(places) else "no more"
        more = words("call").get(own, others)
        return f"{name}: {len(args)} positional arguments were given; expected {', '.join(places)}; {more}"
    if absent:
        return f"{name}: {absent[0]} is missing; expected {_call_of(own, function)}"
    twice = [k for k in places[: len(args)] if k in options]
    return f"{name}: {twice[0]} is given twice, by place and by name" if twice else ""


def refuse_rest(
    name: str,
    function: Callable[..., Any],
    given: Mapping[str, object],
    more: Sequence[object],
    rest: Mapping[str, object],
) -> NoReturn:
    """Raise what is wrong with a call of a function that `take_all` decorates; of `given`, EMPTY was left out."""
    by_name = {} if more else {k: value for k, value in given.items() if value is not EMPTY}
    raise TypeError(explain(name, function, [*given.values(), *more] if more else (), {**by_name, **rest}))


def take_all(function: Function) -> Function:
    """Decorate a function that takes all arguments, ``*more`` and ``**unknown``, so that its signature has its own.

    It refuses them itself, because the wrapper of `door` takes a fifth of its small calls.
    """
    plain = inspect.signature(function)
    own = [p for p in plain.parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    function.__signature__ = plain.replace(parameters=own)  # type: ignore[attr-defined]
    return function
