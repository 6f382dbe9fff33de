"""Matrices of all pairs of rows, of posenc.analysis."""

from __future__ import annotations

import numpy as np

from posenc import reference

from . import Case


def sum_of_products(expected, work, arguments):
    """d products are added one after another. Each addition is off by half a spacing of the partial sum, which is at
    most the product of the two norms."""
    x = np.asarray(arguments["encoding"], np.float64)
    norm = np.sqrt((x**2).sum(-1))
    return (x.shape[-1] * np.finfo(work).eps * norm[..., :, None] * norm[..., None, :],)


def sum_of_squares(expected, work, arguments):
    """A difference, a square, and d additions of positive numbers: (d + 3) / 2 eps relative, half of it after the
    square root. The oracle has the same error."""
    return ((arguments["encoding"].shape[-1] + 6) * np.finfo(work).eps * np.abs(expected[0]),)


def correlation(expected, work, arguments):
    """d products of unit vectors whose entries were rounded. The oracle loses as much when it subtracts the mean."""
    return (np.full(expected[0].shape, (arguments["encoding"].shape[-1] + 8) * np.finfo(work).eps),)


def make(width):
    """Arrays (2, n, width(n)), also of many columns."""
    return lambda rng, n: {"encoding": rng.standard_normal((2, n, width(n)))}


def real(rng):
    return {"encoding": rng.standard_normal((1024, 128))}


def case(function, tolerance, label="", width=lambda n: n + 2):
    return Case(
        module="posenc.analysis",
        function=function,
        label=label,
        oracle=getattr(reference, function),
        make=make(width),
        tolerance=tolerance,
        real=real,
        axes={"encoding": "b n d"},
        data=("encoding",),
    )


CASES = [
    case("gram_matrix", sum_of_products),
    case("gram_matrix", sum_of_products, "chunks", lambda n: 520),
    case("distance_matrix", sum_of_squares),
    case("distance_matrix", sum_of_squares, "chunks", lambda n: 520),
    case("correlation_matrix", correlation),
]
