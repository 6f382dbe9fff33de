"""Content of three kinds, and operators on the logits that read it, for a picture."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np

import posenc
from arrays import Array
from posenc import ContentBias
from posenc.__main__ import HEADS, WIDTH, random

GROUPS = "ABCA"
"""The kinds of content in the picture of operators that read q and k; each is that of `RUN` words in a row."""
RUN = 4
PREFERENCES: dict[str, Callable[[Array], Array]] = {
    "A": lambda rel: np.exp(-((rel + 1) ** 2) / 2.0),
    "B": lambda rel: np.exp(-abs(rel) / 3.0),
    "C": lambda rel: 1 - np.exp(-abs(rel) / 6.0),
}
"""The weight that a query of each kind gives to a key at relative position rel: the key before, near keys, far keys."""


@cache
def groups() -> tuple[Array, Array]:
    """Return a vector (3, WIDTH) for each kind of content, and three vectors that read one kind each.

    The product of two kinds is below 0, so the gates of CoPE are open for keys of the query's kind alone.
    """
    products = np.where(np.eye(3, dtype=bool), 48.0, -16.0)
    axes = np.linalg.qr(random(19, WIDTH, 3))[0].T
    content = np.linalg.cholesky(products) @ axes
    return content, np.linalg.inv(products) @ content


def preferred(first: int, last: int, order: str = "ABC") -> Array:
    """Return a table of the rows rel = first .. last, by which the kinds of `order` prefer what A, B and C name."""
    content = dict(zip(order, PREFERENCES.values(), strict=True))
    rel = np.linspace(first, last, abs(last - first) + 1)
    weights = np.stack([content[kind](rel) for kind in "ABC"], -1)
    table: Array = 2 * math.sqrt(WIDTH) * weights @ groups()[1]
    return table


def operators_of_groups() -> dict[str, ContentBias]:
    """Return operators with values of their arguments that show what they read from `groups`."""
    last = len(GROUPS) * RUN - 1
    table = preferred(-last, last)
    every_head = (HEADS, 1, 1)
    reads_c = np.tile(math.sqrt(WIDTH) * groups()[1][2], (HEADS, 1))
    rel_q = np.tile(preferred(last + 1, -last, "ACB"), every_head)
    return {
        "shaw": posenc.shaw(table),
        "transformer_xl": posenc.transformer_xl(np.tile(table, every_head), reads_c, 0 * reads_c),
        "deberta": posenc.deberta(rel_q, np.tile(preferred(last + 1, -last), every_head)),
        "cope": posenc.cope(preferred(0, -last)),
    }
