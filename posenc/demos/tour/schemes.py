"""Schemes of the tour: one way for positions to enter attention per operator.

Encodings and rotations are listed here. Operators on the logits are the public functions that return a `posenc.Bias`;
`ARGUMENTS` has values for their arguments.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple, get_origin, get_type_hints

import numpy as np

import posenc
from posenc import Bias, ContentBias, PositionBias

from ..arrays import Array
from .text import MAX_WORDS

HEADS, WIDTH = 8, 64
"""Heads of attention, and channels of a head."""
MODEL = HEADS * WIDTH
"""Channels of a word's embedding."""
LINE, LINES = 8, 128
"""Words of a line and lines of a page, for operators on grids; a page has MAX_WORDS words."""

NO_END = 1 << 53
"""The largest position that posenc takes."""

NO_POSITIONS, CAUSAL_MASK = "no positions", "no positions (causal)"
"""Names of the schemes without an operator."""
ADDED, ROTATED = "added to embeddings", "rotates q and k"
BIAS, READS = "added to logits", "reads q and k"


class Scheme(NamedTuple):
    """One way for positions to enter attention."""

    name: str
    enters: str
    score: str = ""
    """Formula of the part of the logits that depends on positions; empty if there is none."""
    encode: Callable[[Array, Array], Array] | None = None
    """(embeddings (N, MODEL), positions (N,)) -> embeddings with positions."""
    rotate: Callable[[Array, Array, Array], tuple[Array, Array]] | None = None
    """(q, k (H, N, WIDTH), positions (N,)) -> rotated q and k."""
    bias: Callable[[int], PositionBias | ContentBias] | None = None
    """Number of words -> the operator on the logits."""
    end: int = NO_END
    """The first position that the scheme does not have."""
    is_causal: bool = False
    """True if a query does not see later keys."""
    ignores_positions: bool = False
    """True if an operator on the logits is the same at all positions."""


# ---- encodings ----


@cache
def random_vectors(*shape: int) -> Array:
    """Random float32 numbers in place of learned ones; vectors are about as long as embeddings."""
    return np.random.default_rng(1).standard_normal(shape, np.float32)


@cache
def smooth_vectors(rows: int, width: int, seed: int = 1) -> Array:
    """Random float32 numbers that change slowly from row to row, as those of learned tables do."""
    waves = posenc.sinusoidal(rows, 32, frequencies=np.geomspace(0.2, 0.002, 16))
    mixed: Array = waves @ np.random.default_rng(seed).standard_normal((32, width), np.float32) / 4
    return mixed


@cache
def iterated_encodings() -> dict[str, Array]:
    """Encodings that compute each position from the one before, at the positions 0 .. MAX_WORDS - 1."""
    start = random_vectors(MODEL)
    weight = np.float32(1.2) * posenc.shift_matrix(1, MODEL).astype(np.float32)  # rotations, enlarged against tanh
    inner = random_vectors(WIDTH, MODEL + 1) / np.float32(math.sqrt(MODEL))
    outer = random_vectors(MODEL, WIDTH + 1) / WIDTH
    zeros, frequencies = np.zeros(MODEL, np.float32), posenc.frequencies(MODEL).astype(np.float32)

    def derivative(t: float, p: Array) -> Array:
        """The derivative of the sinusoidal encoding, from its value."""
        return np.stack([frequencies * p[1::2], -frequencies * p[0::2]], -1).reshape(-1)

    return {
        "recurrent": posenc.recurrent(start, weight, zeros, MAX_WORDS),
        "floater": posenc.floater(start, inner, zeros[:WIDTH], outer, zeros, MAX_WORDS, dt=0.05),
        "integrate": posenc.integrate(derivative, posenc.sinusoidal(1, MODEL)[0], np.arange(MAX_WORDS)),
    }


def float32_angles(positions: Array, dim: int) -> Array:
    """Angles as most code computes them: positions, frequencies and their products in float32."""
    return positions.astype(np.float32)[:, None] * posenc.frequencies(dim).astype(np.float32)


def naive_sinusoidal(positions: Array) -> Array:
    angles = float32_angles(positions, MODEL)
    rows: Array = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(len(positions), MODEL)
    return rows


def multiplied(x: Array, positions: Array) -> Array:
    return posenc.merge(x, posenc.sinusoidal(positions, MODEL), mode="mul1p")


def complex_order(x: Array, positions: Array) -> Array:
    """Half of an embedding are amplitudes, the other half phases. Real parts are followed by imaginary parts."""
    amplitude, phase = np.ascontiguousarray(x[:, : MODEL // 2]), np.ascontiguousarray(x[:, MODEL // 2 :])
    z = posenc.complex_order(amplitude, posenc.frequencies(MODEL), positions, phase=phase)
    return np.concatenate([z.real, z.imag], -1)


def convolved(x: Array, positions: Array) -> Array:
    return posenc.conv_position(x, random_vectors(MODEL, 9) / 3, residual=True)


def convolved_2d(x: Array, positions: Array) -> Array:
    """The words fill a rectangle that is as nearly square as their number allows."""
    width = next(w for w in range(math.isqrt(len(x)), len(x) + 1) if len(x) % w == 0)
    return posenc.conv_position_2d(x, random_vectors(MODEL, 3, 3) / 3, height=len(x) // width, width=width)


def encodings() -> list[Scheme]:
    """Absolute encodings. A new one is one more line here."""
    table, rows_and_columns = smooth_vectors(MAX_WORDS, MODEL), smooth_vectors(32, MODEL)

    def added(name: str, rows: Callable[[Array], Array], end: int = NO_END) -> Scheme:
        return Scheme(name, ADDED, "p_i . p_j", encode=lambda x, p: posenc.merge(x, rows(p)), end=end)

    return [
        added("sinusoidal", lambda p: posenc.sinusoidal(p, MODEL)),
        added("  angles in float32", naive_sinusoidal),
        added("learned", partial(posenc.learned, table), end=MAX_WORDS),
        added("hierarchical", partial(posenc.hierarchical, rows_and_columns), end=len(rows_and_columns) ** 2),
        *(added(name, partial(posenc.learned, rows), end=MAX_WORDS) for name, rows in iterated_encodings().items()),
        Scheme("merge", "multiplies embeddings", "x_i' . x_j'", encode=multiplied),
        Scheme("complex_order", "rotates embeddings", "x_i' . x_j'", encode=complex_order),
        Scheme("conv_position", "convolution, added", encode=convolved),
        Scheme("conv_position_2d", "convolution, added", encode=convolved_2d),
    ]


# ---- rotations ----


def naive_rope(x: Array, positions: Array) -> Array:
    angles = float32_angles(positions, WIDTH)
    return posenc.rope(x, (np.cos(angles), np.sin(angles)), layout="half")


def line_and_column(positions: Array) -> Array:
    return np.stack(np.divmod(positions, LINE))


def page_line_and_column(positions: Array) -> Array:
    lines, columns = line_and_column(positions)
    return np.stack([*np.divmod(lines, LINES), columns])


def rotations() -> list[Scheme]:
    """Rotations of queries and keys. A new one is one more line here."""
    frequencies = posenc.rope_frequencies(WIDTH)

    def rotated(name: str, rotate: Callable[[Array, Array], Array]) -> Scheme:
        return Scheme(name, ROTATED, "q_i . k_j", rotate=lambda q, k, p: (rotate(q, p), rotate(k, p)))

    def rope_2d(x: Array, p: Array) -> Array:
        return posenc.rope_2d(x, line_and_column(p), posenc.rope_frequencies(WIDTH // 2), layout="half")

    def rope_nd(x: Array, p: Array) -> Array:
        return posenc.rope_nd(x, line_and_column(p), posenc.axial_frequencies((WIDTH // 2, WIDTH // 2)), layout="half")

    def mrope(x: Array, p: Array) -> Array:
        sections = (11, 11, 10)
        return posenc.mrope(x, page_line_and_column(p), frequencies, layout="half", sections=sections, interleaved=True)

    def xpos(q: Array, k: Array, p: Array) -> tuple[Array, Array]:
        turn = partial(posenc.xpos, positions=p, frequencies=frequencies, layout="half", center=int(p[len(p) // 2]))
        return turn(q), turn(k, downscale=True)

    return [
        rotated("rope", lambda x, p: posenc.rope(x, p, frequencies, layout="half")),
        rotated("  angles in float32", naive_rope),
        rotated("rope_2d", rope_2d),
        rotated("rope_nd", rope_nd),
        rotated("mrope", mrope),
        Scheme("xpos", ROTATED, "q_i . k_j", rotate=xpos),
    ]


# ---- operators on the logits ----


def random(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def smooth(seed: int, rows: int, *shape: int) -> Array:
    """Numbers (rows, *shape) that change slowly from row to row."""
    return smooth_vectors(rows, math.prod(shape), seed).reshape(rows, *shape).astype(np.float64)


def t5_table() -> Array:
    """A table whose heads prefer near keys, more and more."""
    bucket = np.arange(32)[:, None] % 16  # the second half are keys after the query
    return smooth(0, 32, HEADS) - 0.3 * bucket * np.linspace(0, 1, HEADS)


def grid_table(extra: int) -> Array:
    """A table of `swin` that falls with the distance on the page, and rows of 1 for a class token."""
    dy, dx = np.indices((2 * LINES - 1, 2 * LINE - 1)) - np.array([LINES - 1, LINE - 1])[:, None, None]
    falling = -np.hypot(dy, dx).reshape(-1, 1) * posenc.alibi_slopes(HEADS)
    return np.concatenate([falling, np.ones((extra, HEADS))])


def lines_apart(n: int) -> Array:
    """An array (H, n, n) that falls with the distance and with the step to another line."""
    i, j = np.indices((n, n))
    other_line = i // LINE != j // LINE
    width = np.linspace(4, 64, HEADS)[:, None, None]
    fall: Array = (-(((i - j) / width) ** 2) / 2 - other_line).astype(np.float32)
    return fall


def ripples(n: int) -> Array:
    """Diagonals (H, 2 n - 1) of waves that fade with the distance."""
    rel = np.arange(1 - n, n)
    faded: Array = np.cos(rel / 2) * np.exp(-abs(rel) / np.linspace(4, 32, HEADS)[:, None])
    return faded


def projected_sinusoids(seed: int, n: int) -> Array:
    """Position vectors (H, n, WIDTH): sinusoids, each head with a projection of its own near the identity."""
    projection = np.eye(WIDTH) + random(seed, HEADS, WIDTH, WIDTH) / (2 * math.sqrt(WIDTH))
    vectors: Array = posenc.sinusoidal(n, WIDTH, dtype=np.float64) @ projection
    return vectors


Argument = float | Array | Callable[[int], Array]
ARGUMENTS: dict[str, Argument] = {
    "heads": HEADS, "dim": WIDTH,
    "t5.table": t5_table(),
    # the network of FIRE has 32 units
    "fire.w1": random(1, 32, 1), "fire.b1": random(2, 32), "fire.w2": random(3, HEADS, 32), "fire.b2": np.zeros(HEADS),
    "fire.c": 0.1, "fire.threshold": 64.0,
    "fox.log_forget": -0.1 * random(4, HEADS, MAX_WORDS) ** 2,
    "swin.table": grid_table(0), "swin.height": LINES, "swin.width": LINE,
    "beit.table": grid_table(3), "beit.height": LINES, "beit.width": LINE,
    "tisa.a": random(13, HEADS, 5), "tisa.b": 0.1 * random(14, HEADS, 5), "tisa.c": 16 * random(15, HEADS, 5),
    "dense.array": lines_apart,
    "toeplitz.diagonals": ripples,
    "tupe.pos_q": partial(projected_sinusoids, 17), "tupe.pos_k": partial(projected_sinusoids, 18),
    "gated_distance.gates": lambda n: 2 * abs(smooth(19, n, HEADS).T[..., None]),
    "gated_distance.table": smooth(20, 63, 1),
    "cope.table": smooth(6, 64, WIDTH) / 8,
    "deberta.rel_q": smooth(7, 128, HEADS, WIDTH).swapaxes(0, 1),
    "deberta.rel_k": smooth(8, 128, HEADS, WIDTH).swapaxes(0, 1),
    "relative_key_query.table": smooth(16, 127, WIDTH) / 8,
    "shaw.rel_k": lambda n: posenc.nezha(WIDTH),
    "transformer_xl.r": lambda n: np.einsum(
        "td,dhc->htc", posenc.xl_table(64, MODEL), random(9, MODEL, HEADS, WIDTH) / math.sqrt(MODEL)
    ),
    "transformer_xl.u": random(10, HEADS, WIDTH) / 4, "transformer_xl.v": random(11, HEADS, WIDTH),
}  # fmt: skip
"""Values of the arguments of operators on the logits, by "operator.argument" or by the argument. Functions get the
number of words. Every other argument gets the slopes of ALiBi, one number per head."""
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


@cache
def arguments_of_groups() -> dict[str, Array]:
    """Return values for `ARGUMENTS` with which the operators show what they read from `groups`."""
    last = len(GROUPS) * RUN - 1
    table = preferred(-last, last)
    every_head = (HEADS, 1, 1)
    reads_c = np.tile(math.sqrt(WIDTH) * groups()[1][2], (HEADS, 1))
    return {
        "shaw.rel_k": table,
        "relative_key_query.table": table,
        "transformer_xl.r": np.tile(table, every_head),
        "transformer_xl.u": reads_c,
        "transformer_xl.v": 0 * reads_c,
        "deberta.rel_k": np.tile(preferred(last + 1, -last), every_head),
        "deberta.rel_q": np.tile(preferred(last + 1, -last, "ACB"), every_head),
        "cope.table": preferred(0, -last),
    }


ENDS = {"fox": MAX_WORDS, "swin": MAX_WORDS, "beit": MAX_WORDS + 1}
"""The first position that an operator does not have."""
CAUSAL = ("fox", "cope")
"""Operators that count gates between a key and a later query."""


def argument(operator: str, name: str, n: int, of_groups: bool = False) -> float | Array:
    value = ARGUMENTS.get(f"{operator}.{name}", ARGUMENTS.get(name))
    if of_groups:
        value = arguments_of_groups().get(f"{operator}.{name}", value)
    if value is None:
        return posenc.alibi_slopes(HEADS)
    return value(n) if callable(value) else value


@cache
def operator(name: str, n: int, of_groups: bool = False) -> PositionBias | ContentBias:
    """Call the public function `name` with arguments for n words, or with those for content in groups."""
    function = getattr(posenc, name)
    required = [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    made: PositionBias | ContentBias = function(*(argument(name, one, n, of_groups) for one in required))
    return made


def returns_bias(function: object) -> bool:
    returned = get_type_hints(function).get("return") if inspect.isfunction(function) else None
    kind = get_origin(returned) or returned
    return isinstance(kind, type) and issubclass(kind, Bias)


def operators() -> list[Scheme]:
    """Every public function that returns a Bias, but those of functions that the caller writes."""
    schemes = []
    for name, function in vars(posenc).items():
        if name not in ("distance_function", "pair_function") and returns_bias(function):
            small = operator(name, 2)
            scheme = Scheme(
                name, READS if isinstance(small, ContentBias) else BIAS, "b_ij", bias=partial(operator, name),
                end=ENDS.get(name, NO_END), is_causal=name in CAUSAL, ignores_positions=not small.reads_positions,
            )  # fmt: skip
            schemes.append(scheme)
    return schemes


def alibi_array(n: int) -> PositionBias:
    """Return the bias of ALiBi as an array (HEADS, n, n), which attention without the operator needs."""
    alibi = operator("alibi", n)
    assert isinstance(alibi, PositionBias)
    return posenc.dense(alibi.matrix(n, out=np.empty((HEADS, n, n), np.float32)))


def all_schemes() -> list[Scheme]:
    """Every scheme; the first two are attention without positions."""
    return [
        Scheme(NO_POSITIONS, "-"), Scheme(CAUSAL_MASK, "-", is_causal=True), *encodings(), *rotations(), *operators(),
        Scheme("  alibi as an array", BIAS, bias=alibi_array),
    ]  # fmt: skip
