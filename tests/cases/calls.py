"""Calls of a Case in the tests of the contract, and the form of error messages."""

import inspect
import re
from contextlib import contextmanager

import numpy as np

from . import F64, terms

N = 5


@contextmanager
def refused(case, *kinds, path=()):
    """Assert that an error of one of `kinds` is raised, in the common form, and that it names an argument of the
    user: the one at `path`, if there is one."""
    import pytest  # benchmarks read this package in environments without pytest

    with pytest.raises(kinds) as caught:
        yield
    assert type(caught.value) in kinds
    message = str(caught.value)
    found = re.fullmatch(r"(\w+)(\.\w+)?: (\w+) (has|is) .+; expected .+", message, re.DOTALL)
    assert found, message
    operators = terms(case.arguments(max(N, case.least)))
    known = case.parameters | {name for _, given in operators for name in given}
    functions = {case.function} | {function for function, _ in operators}
    assert found[1] in functions, message
    known |= set(inspect.signature(case.public).parameters)
    assert found[3] in (known & {*path} if path else known), message


def arguments_of(case, dtype=F64):
    return case.arguments(max(N, case.least), dtype)


def call_all(case, arguments):
    return case.call(arguments, **case.options(F64))


def one_more(array, axis):
    return np.concatenate([array, np.take(array, [-1], axis=axis)], axis=axis)
