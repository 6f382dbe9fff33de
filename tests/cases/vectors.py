"""The calls in examples/vectors: every case at one size, and again at positions up to 2**31.

`python examples/vectors DIR` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from . import F32, F64, Arguments, Case, IntegerCase, map_arrays, terms

SIZE = 6
"""Small, and an even width has several pairs."""
PLACES = ("positions", "q_positions", "k_positions", "old_positions", "new_positions", "rel", "offset", "position")
OF_FUNCTIONS = "an argument is a Python function"
OF_PLOTS = "its result is made for a plot"
WITHOUT = {
    "distance_function": OF_FUNCTIONS,
    "integrate": OF_FUNCTIONS,
    "order_sensitivity": OF_FUNCTIONS,
    "taylor_terms": OF_FUNCTIONS,
    "interaction_matrix": OF_FUNCTIONS,
    "attention_profile": OF_PLOTS,
    "decay": OF_PLOTS,
    "inner_product": OF_PLOTS,
    "rope_bands": OF_PLOTS,
    "rope_coverage": OF_PLOTS,
    "triangle_points": OF_PLOTS,
    "reference_matrix": "it evaluates an operator by posenc.reference",
    "reference_logits": "it evaluates an operator by posenc.reference",
    "quantize": "its result is an object of posenc",
    "layers": "its result is an object of posenc",
    "mrope_positions": "its result is integers",
    "grid_positions": "its result is a product of indices and constants",
}
"""Public functions without a vector."""
NOT_FAR = {
    "learned": "positions are rows of a table",
    "hierarchical": "positions are rows of a table",
    "swin": "positions are places in a window",
    "beit": "positions are places in a window",
    "fox": "positions are indices of gates",
    "xpos": "its scale overflows",
    "rerope_positions": "the bound of the case is for positions below 2**14",
    "self_extend_positions": "the bound of the case is for positions below 2**11",
}
"""Functions whose positions do not reach 2**31."""


def in_float32(array: np.ndarray) -> np.ndarray:
    """The nearest numbers of float32, so that an implementation in float32 reads the same arguments."""
    return array.astype(F32).astype(F64) if array.dtype.kind == "f" else array


def far(arguments: Arguments) -> Arguments:
    """The arguments with positions that are moved together: the largest is 2**31, and distances stay, to 1/8."""
    places = {a: np.asarray(arguments[a]) for a in PLACES if isinstance(arguments.get(a), (float, np.ndarray))}
    last = max((place.max() for place in places.values()), default=0)
    return {a: np.round((place - last) * 8) / 8 + 2**31 for a, place in places.items()}


def vectors() -> Iterator[tuple[str, Case, Arguments]]:
    """Yield the name, the case and the arguments of each vector."""
    from . import CASES

    for case in CASES:
        if case.function in WITHOUT or any(name in WITHOUT for name, _ in terms(case.arguments(SIZE))):
            continue
        name = re.sub(r"\W+", "-", case.name)
        arguments = map_arrays(in_float32, case.arguments(max(SIZE, case.least)))
        yield name, case, arguments
        if isinstance(case, IntegerCase):  # where a bucket begins, a rounded logarithm is off by one
            yield f"{name}-many", case, map_arrays(in_float32, case.real_arguments(F64))
        moved = far(arguments)
        if moved and not {case.function, *(operator for operator, _ in terms(arguments))} & set(NOT_FAR):
            yield f"{name}@2^31", case, {**arguments, **moved}
