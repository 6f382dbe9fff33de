"""Every way for positions to enter attention, one scheme for each operator.

Encodings and rotations have a line each; biases and the operators that read q and k are found by themselves, and take
their arguments from `ARGUMENTS`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

import posenc

from ... import _core
from ..._core_api.arguments import F32, Array
from ...bias.operator import Bias, arrays_of
from ...relative._content import Content
from .text import LONGEST

HEADS, WIDTH = 8, 64
MODEL = HEADS * WIDTH
"""A word is a vector of so many numbers; attention has HEADS heads of WIDTH channels."""
LINE, LINES = 32, 32
"""Words of a line and lines of a page, for operators on grids; a page has LONGEST words."""

ADDED, TURNED, BIAS, READS = "added to the words", "turns q and k", "added to the logits", "reads q and k"


class Scheme(NamedTuple):
    """One way for positions to enter attention, and its score: the part of the logits that they decide."""

    name: str
    enters: str
    score: str = ""
    """Empty where there is no such part."""
    encode: Callable[[Array, Array], Array] | None = None
    """x (N, MODEL), positions (N,) -> the words with their positions."""
    turn: Callable[[Array, Array, Array], tuple[Array, Array]] | None = None
    """q, k (H, N, WIDTH), positions (N,) -> q, k."""
    bias: Callable[[int], Bias] | None = None
    """Number of words -> what is added to the logits."""
    usual: Callable[[Array, Array], Array] | Callable[[Array, Array, Array], tuple[Array, Array]] | None = None
    """`encode` or `turn` as it is usually written, in float32."""
    ends: int = 2**53
    """The first position that it does not have."""


# ---- encodings ----


@cache
def numbers(*shape: int) -> Array:
    """Random numbers in place of what would be learned: vectors about as long as those of words."""
    made: Array = np.random.default_rng(1).standard_normal(shape, np.float32)
    return made


@cache
def walks() -> dict[str, Array]:
    """Encodings that go from one position to the next, at the first LONGEST."""
    start = numbers(MODEL)
    weight = np.float32(1.2) * posenc.shift_matrix(1, MODEL).astype(F32)  # rotations, a little too large for tanh
    inner, outer = numbers(WIDTH, MODEL + 1) / np.float32(math.sqrt(MODEL)), numbers(MODEL, WIDTH + 1) / WIDTH
    zeros, w = np.zeros(MODEL, F32), posenc.frequencies(MODEL).astype(F32)

    def turning(t: float, p: Array) -> Array:
        """The slope whose path is the sinusoid."""
        return np.stack([w * p[1::2], -w * p[0::2]], -1).reshape(-1)

    return {
        "recurrent": posenc.recurrent(start, weight, zeros, LONGEST),
        "floater": posenc.floater(start, inner, zeros[:WIDTH], outer, zeros, LONGEST, dt=0.05),
        "integrate": posenc.integrate(turning, posenc.sinusoidal(1, MODEL)[0], np.arange(LONGEST)),
    }


def usual_angles(positions: Array, dim: int) -> Array:
    """The formula of most code: positions, frequencies and their product in float32."""
    return positions.astype(F32)[:, None] * posenc.frequencies(dim).astype(F32)


def usual_sinusoidal(x: Array, positions: Array) -> Array:
    angles = usual_angles(positions, MODEL)
    rows: Array = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(x.shape)
    return x + rows


def multiplied(x: Array, positions: Array) -> Array:
    return posenc.merge(x, posenc.sinusoidal(positions, MODEL), mode="mul1p")


def on_circles(x: Array, positions: Array) -> Array:
    """Half of a word's numbers are amplitudes, the others phases; real and imaginary parts stand side by side."""
    amplitude, phase = np.ascontiguousarray(x[:, : MODEL // 2]), np.ascontiguousarray(x[:, MODEL // 2 :])
    z = posenc.complex_order(amplitude, posenc.frequencies(MODEL), positions, phase=phase)
    return np.concatenate([z.real, z.imag], -1)


def with_neighbours(x: Array, positions: Array) -> Array:
    return posenc.conv_position(x, numbers(MODEL, 9) / 3, residual=True)


def with_neighbours_on_a_page(x: Array, positions: Array) -> Array:
    width = next(w for w in range(math.isqrt(len(x)), len(x) + 1) if len(x) % w == 0)
    return posenc.conv_position_2d(x, numbers(MODEL, 3, 3) / 3, height=len(x) // width, width=width)


def encodings() -> list[Scheme]:
    """A new encoding is one more line here."""
    table, made = numbers(LONGEST, MODEL), walks()

    def added(name: str, rows: Callable[[Array], Array], **options: Any) -> Scheme:
        return Scheme(name, ADDED, "p_i . p_j", encode=lambda x, p: posenc.merge(x, rows(p)), **options)

    return [
        added("sinusoidal", lambda p: posenc.sinusoidal(p, MODEL), usual=usual_sinusoidal),
        added("learned", partial(posenc.learned, table), ends=LONGEST),
        added("hierarchical", partial(posenc.hierarchical, table), ends=LONGEST**2),
        *(added(name, partial(posenc.learned, rows), ends=LONGEST) for name, rows in made.items()),
        Scheme("merge", "multiplies the words", "x_i' . x_j'", encode=multiplied),
        Scheme("complex_order", "turns the words", "x_i' . x_j'", encode=on_circles),
        Scheme("conv_position", "neighbours, added", encode=with_neighbours),
        Scheme("conv_position_2d", "neighbours, added", encode=with_neighbours_on_a_page),
    ]


# ---- rotations ----


def usual_rope(q: Array, k: Array, positions: Array) -> tuple[Array, Array]:
    angles = usual_angles(positions, WIDTH)
    table = np.cos(angles), np.sin(angles)
    return posenc.rope(q, table, layout="half"), posenc.rope(k, table, layout="half")


def page(positions: Array) -> Array:
    """(line, column) of each word."""
    return np.stack(np.divmod(positions, LINE))


def book(positions: Array) -> Array:
    """(page, line, column) of each word."""
    lines, column = page(positions)
    return np.stack([*np.divmod(lines, LINES), column])


def rotations() -> list[Scheme]:
    """A new rotation is one more line here."""
    w = posenc.rope_frequencies(WIDTH)

    def turned(name: str, turn: Callable[[Array, Array, str], Array], **options: Any) -> Scheme:
        """`turn` is told which of the two it turns."""
        return Scheme(
            name, TURNED, "q_i . k_j", turn=lambda q, k, p: (turn(q, p, "q"), turn(k, p, "k")), **options
        )  # fmt: skip

    def xpos(x: Array, p: Array, which: str) -> Array:
        return posenc.xpos(x, p, w, layout="half", downscale=which == "k", center=int(p[len(p) // 2]))

    return [
        turned("rope", lambda x, p, _: posenc.rope(x, p, w, layout="half"), usual=usual_rope),
        turned(
            "rope_2d", lambda x, p, _: posenc.rope_2d(x, page(p), posenc.rope_frequencies(WIDTH // 2), layout="half")
        ),
        turned(
            "mrope", lambda x, p, _: posenc.mrope(x, book(p), w, layout="half", sections=(11, 11, 10), interleaved=True)
        ),
        turned("xpos", xpos),
    ]


# ---- operators on the logits ----


def random(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


ARGUMENTS: dict[str, Any] = {
    "heads": HEADS, "dim": WIDTH,
    # the network of FIRE, 32 units
    "fire.w1": random(1, 32, 1), "fire.b1": random(2, 32), "fire.w2": random(3, HEADS, 32), "fire.b2": np.zeros(HEADS),
    "fire.c": 0.1, "fire.threshold": 64.0,
    "fox.log_forget": -0.1 * random(4, HEADS, LONGEST) ** 2,
    "swin.table": random(5, (2 * LINES - 1) * (2 * LINE - 1), HEADS), "swin.height": LINES, "swin.width": LINE,
    "dense.array": lambda n: numbers(HEADS, n, n),
    "toeplitz.diagonals": lambda n: numbers(HEADS, 2 * n - 1),
    "tupe.pos_q": lambda n: numbers(2, HEADS, n, WIDTH)[0], "tupe.pos_k": lambda n: numbers(2, HEADS, n, WIDTH)[1],
    "cope.table": random(6, 64, WIDTH) / 8,
    "deberta.rel_q": random(7, HEADS, 128, WIDTH), "deberta.rel_k": random(8, HEADS, 128, WIDTH),
    "shaw.rel_k": lambda n: posenc.nezha(WIDTH),
    "transformer_xl.r": lambda n: np.einsum(
        "td,dhc->htc", posenc.xl_table(64, MODEL), random(9, MODEL, HEADS, WIDTH) / math.sqrt(MODEL)
    ),
    "transformer_xl.u": random(10, HEADS, WIDTH), "transformer_xl.v": random(11, HEADS, WIDTH),
}  # fmt: skip
"""Values for arguments, by "operator.argument" or by the argument alone; a function gets the number of words. Arrays of
a DISTANCE row need none, see `argument`."""
ENDS = {"fox": LONGEST, "swin": LONGEST}


def argument(row: str, name: str, n: int) -> Any:
    """A value for an argument of an operator; KeyError where there is none."""
    for key in (f"{row}.{name}", name):
        if key in ARGUMENTS:
            return ARGUMENTS[key](n) if callable(ARGUMENTS[key]) else ARGUMENTS[key]
    if f"{row}_vjp" not in _core.table():
        raise KeyError(f"{row}: its argument {name} needs a value in ARGUMENTS of {__name__}")
    axes = dict(arrays_of(row))[name]
    if axes == "h":
        return posenc.alibi_slopes(HEADS)
    return random(0, *(HEADS if axis == "h" else 32 for axis in axes))


@cache
def operator(name: str, n: int) -> Bias:
    """The public function `name`, made for n words."""
    function = getattr(posenc, name)
    required = [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    made: Bias = function(*(argument(name, one, n) for one in required))
    return made


def operators() -> list[Scheme]:
    """Every public function that returns a Bias."""
    found = []
    for name, function in vars(posenc).items():
        if inspect.isfunction(function) and function.__annotations__.get("return") == "Bias":
            reads = isinstance(operator(name, 2), Content)
            made = partial(operator, name)
            found.append(Scheme(name, READS if reads else BIAS, "b_ij", bias=made, ends=ENDS.get(name, 2**53)))
    return found


def all_schemes() -> list[Scheme]:
    return [Scheme("none", "-"), *encodings(), *rotations(), *operators()]
