"""Relative operators of every kind, masks, and positions, for the tests of relative operators inside attention."""

import numpy as np

from .attention import ANY

H, G, D, DV = 4, 2, 8, 5


def shaw(*shape, value_shape=None):
    def made(rng, n, m):
        given = {"rel_k": rng.standard_normal((*shape, D))}
        return ("shaw", given if value_shape is None else {**given, "rel_v": rng.standard_normal((*value_shape, DV))})

    return made


def transformer_xl(last):
    return lambda rng, n, m: (
        "transformer_xl",
        {"r": rng.standard_normal((H, 2 * last + 1, D)), "u": rng.standard_normal((H, D)),
         "v": rng.standard_normal((H, D))},
    )  # fmt: skip


def deberta(half, **options):
    used = options.get("terms", ("c2p", "p2c"))

    def made(rng, n, m):
        tables = {"rel_q": "p2c" in used, "rel_k": "c2p" in used}
        given = {name: rng.standard_normal((H, 2 * half, D)) if there else None for name, there in tables.items()}
        return ("deberta", {**given, **options})

    return made


def cope(*shape):
    return lambda rng, n, m: ("cope", {"table": rng.standard_normal((*shape, D))})


def tupe(*resets):
    def made(rng, n, m):
        given = {"pos_q": rng.standard_normal((H, n, 3)), "pos_k": rng.standard_normal((H, m, 3))}
        given.update({name: rng.standard_normal(H) for name in resets})
        return ("tupe", given)

    return made


def gated_distance(*shape, gates=3, **options):
    def made(rng, n, m):
        given = {"gates": rng.standard_normal((H, n, gates)), "table": rng.standard_normal((*shape, gates))}
        return ("gated_distance", {**given, **options})

    return made


OPERATORS = {
    "shaw": shaw(11),
    "shaw K=1": shaw(3, value_shape=(3,)),
    "shaw K=500": shaw(H, 1001, value_shape=(1001,)),
    "shaw heads": shaw(11, value_shape=(H, 11)),
    "transformer_xl": transformer_xl(20),
    "transformer_xl K=1": transformer_xl(1),
    "transformer_xl K=500": transformer_xl(500),
    "deberta": deberta(16),
    "deberta K=1": deberta(1, terms=("p2c",)),
    "deberta K=500": deberta(500, terms=("c2p",)),
    "deberta buckets": deberta(12, buckets=16, max_position=40),
    "deberta paper": deberta(9, buckets=8, max_position=64, p2c_index="paper"),
    "cope": cope(9),
    "cope P=1": cope(H, 1),
    "cope P=500": cope(H, 500),
    "gated_distance": gated_distance(21),
    "gated_distance K=500": gated_distance(H, 1001, gates=1),
    "gated_distance past": gated_distance(30, gates=70, rows="past"),
    "gated_distance buckets": gated_distance(H, 12, gates=1, rows="buckets", max_distance=50),
    "tupe": tupe(),
    "tupe resets": tupe("cls_to_any", "any_to_cls"),
}
"""(generator, N, M) -> the function and its arguments, with tables for each head and tables for all heads."""
KINDS = ("shaw heads", "transformer_xl", "deberta buckets", "cope", "gated_distance past", "tupe resets")
"""One of each function."""
OF_QUERIES = ("tupe", "gated_distance")
"""Functions that take an array with a row for each query, and have a matrix instead of logits."""
WITH_LOGITS = tuple(name for name in OPERATORS if not name.startswith(OF_QUERIES))
MASKS = {
    "none": lambda rng, n, m: {"align": "end"},
    "start": lambda rng, n, m: {"align": "start"},
    "causal": lambda rng, n, m: {"align": "end", "causal": True},
    "window": lambda rng, n, m: {"align": "start", "window": (9, 4)},
    "away": lambda rng, n, m: {"align": "end", "window": (None, -3)},
    "softcap": lambda rng, n, m: {"align": "end", "softcap": 2.0, "causal": True},
    "keep": lambda rng, n, m: {"align": "end", "keep": rng.random((3, 1, n, m)) > 0.4, "scale": -0.7},
    "segments": lambda rng, n, m: {
        "align": "end", "q_segments": rng.integers(0, 3, (3, n)), "k_segments": rng.integers(0, 3, m),
    },
    "gaps": lambda rng, n, m: {
        "q_positions": np.cumsum(rng.integers(1, 4, n)), "k_positions": np.cumsum(rng.integers(1, 4, m)),
        "causal": True,
    },
    "unsorted": lambda rng, n, m: {"q_positions": rng.permutation(n), "k_positions": rng.permutation(m)},
    "fractions": lambda rng, n, m: {
        "q_positions": rng.uniform(-30, 30, (3, n)), "k_positions": rng.uniform(-30, 30, m), "window": (20, 15),
    },
    "far": lambda rng, n, m: {"q_positions": np.arange(n) + 2**40, "k_positions": np.arange(m) + 2**40 - 7},
    "all": lambda rng, n, m: {
        "keep": rng.random((3, 1, n, m)) > 0.2, "causal": True, "window": (60, None), "softcap": 5.0,
        "q_positions": np.sort(rng.integers(0, m, (3, n))), "k_positions": np.sort(rng.integers(0, m, (3, m))),
        "q_segments": rng.integers(0, 2, n), "k_segments": rng.integers(0, 2, m),
    },
}  # fmt: skip


def qkv(rng, n, m, batch=()):
    return {
        "q": rng.standard_normal((*batch, H, n, D)), "k": rng.standard_normal((*batch, G, m, D)),
        "v": rng.standard_normal((*batch, G, m, DV)),
    }  # fmt: skip


def broadcast(rng, n, m):
    """Batch axes that broadcast, and four heads over two kv heads."""
    whole = qkv(rng, n, m, (3,))
    return {**whole, "k": whole["k"][0]}


def drawn(name, n, m, seed=0):
    return OPERATORS[name](np.random.default_rng(seed), n, m)


def made(name, n, m):
    """The operator of posenc, as an option of attention."""
    bias = ANY.with_operators({"bias": (drawn(name, n, m),)})["bias"]
    return {"bias": bias}
