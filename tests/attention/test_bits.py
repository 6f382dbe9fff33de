"""Attention alone and with relative operators, bit for bit: masked numbers, other rows of the batch, and positions that
move together change nothing; tables keep their precision."""

import numpy as np
import pytest
from cases import DTYPES, F32, F64
from cases.attention import ANY, WALLS
from cases.layouts import same_bits
from draws import draw_operator

import posenc

H, G, D, DV = 2, 1, 8, 5
CONTENT = ("shaw", "transformer_xl", "deberta", "cope")
OPERATORS = [(name, seed) for name in (*CONTENT, "gated_distance", "tupe") for seed in range(2)]
"""Drawn with this seed: tables of some or many rows, for each head or for all, with any option."""


def drawn(operator, n, m):
    """The operator as (function, its arguments) of tests/cases."""
    name, seed = operator
    one = draw_operator(np.random.default_rng(seed), name, H, n, m, D, DV, 2 * m + 101)
    return one.name, one.arguments


def made(operator, n, m):
    if operator is None:
        return {"bias": ()}
    return {"bias": ANY.with_operators({"bias": (drawn(operator, n, m),)})["bias"]}


def qkv(rng, n, m, batch=()):
    return {
        "q": rng.standard_normal((*batch, H, n, D)),
        "k": rng.standard_normal((*batch, G, m, D)),
        "v": rng.standard_normal((*batch, G, m, DV)),
    }


# ---- masked numbers are never used ----


@pytest.mark.parametrize("kind", WALLS)
@pytest.mark.parametrize("operator", [None, *OPERATORS])
def test_wall(operator, kind, rng, isa):
    """NaN and infinity in masked keys and values change no bit, in tiles with visible keys and in tiles without."""
    n, m = 9, 300
    arguments, bias = qkv(rng, n, m), made(operator, n, m)["bias"]
    bad = (rng.random(m) > 0.5) | (np.arange(m) // 64 == 2)
    options = ANY.with_operators(WALLS[kind](n, m, bad))
    options["bias"] = (*bias, *options.pop("bias", ()))
    if "q_positions" not in options:
        options["align"] = "end"
    options["sink"] = np.array([0.7, -3.0])
    for dtype, poison in zip(DTYPES, (np.nan, np.inf, -np.inf, 1e38), strict=False):
        clean, dirty = (
            ANY.cast({a: np.where(bad[:, None], number, x) if a in "kv" else x for a, x in arguments.items()}, dtype)
            for number in (0.0, poison)
        )
        wanted = posenc.attention(**clean, **options, return_lse=True)
        with np.errstate(all="raise"):
            ours = posenc.attention(**dirty, **options, return_lse=True)
        assert all(same_bits(a, b) for a, b in zip(ours, wanted, strict=True))
        assert np.isfinite(ours[0].astype(F64)).all()


@pytest.mark.parametrize("operator", [None, *OPERATORS])
def test_causal_wall_per_row(operator, rng, isa):
    """NaN in key j changes no bit of the queries before j, and makes all later queries NaN."""
    arguments, bias = qkv(rng, 150, 150), made(operator, 150, 150)["bias"]
    wanted = posenc.attention(**arguments, bias=bias, causal=True)
    for j in (1, 48, 64, 149):
        for poisoned in "kv":
            bad = {**arguments, poisoned: arguments[poisoned].copy()}
            bad[poisoned][:, j] = np.nan
            out = posenc.attention(**bad, bias=bias, causal=True)
            assert same_bits(out[:, :j].copy(), wanted[:, :j].copy())
            assert np.isnan(out[:, j:]).all()


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_query_reaches_its_own_row_alone(operator, rng):
    arguments, bias = qkv(rng, 70, 90), made(operator, 70, 90)["bias"]
    wanted = posenc.attention(**arguments, bias=bias, align="end")
    for i in (0, 63, 69):
        q = arguments["q"].copy()
        q[1, i, 3] = np.nan
        out = posenc.attention(**{**arguments, "q": q}, bias=bias, align="end")
        assert np.isnan(out[1, i]).all()
        out[1, i] = wanted[1, i]
        assert same_bits(out, wanted)


# ---- the same bits ----


@pytest.mark.parametrize("operator", OPERATORS)
def test_other_rows_of_the_batch_change_no_bit(operator, rng):
    n, m = 70, 190
    arguments, bias = qkv(rng, n, m, (3,)), made(operator, n, m)["bias"]
    with posenc.threads(3):
        whole = posenc.attention(**arguments, bias=bias, causal=True, align="end")
        for b in range(3):
            alone = posenc.attention(**{a: x[b] for a, x in arguments.items()}, bias=bias, causal=True, align="end")
            assert same_bits(whole[b].copy(), alone)


@pytest.mark.parametrize("operator", [None, *OPERATORS])
def test_other_rows_of_the_batch_change_no_bit_of_a_gradient(operator, rng):
    """One row has work items for its chunks; nine rows are work items themselves. The sums of q, k and v have one
    order, those of the operators are over the batch."""
    n, m = 300, 190
    arguments, bias = qkv(rng, n, m, (9,)), made(operator, n, m)["bias"]
    arguments = ANY.cast(arguments, F32)
    grad = rng.standard_normal((9, H, n, 5)).astype(F32)
    options = {"bias": bias, "causal": True, "align": "end"}
    out, lse = posenc.attention(**arguments, **options, return_lse=True)
    whole = posenc.attention_vjp(grad, **arguments, **options, out=out, lse=lse)
    first = {a: x[:1] for a, x in arguments.items()}
    alone = posenc.attention_vjp(grad[:1], **first, **options, out=out[:1], lse=lse[:1])
    assert all(same_bits(a[:1].copy(), b) for a, b in zip(whole[:3], alone[:3], strict=True))


# ---- dtypes and positions ----


def test_operators_without_positions(rng):
    """dense, toeplitz and tupe read rows and columns, so they need no align; operators of distance do."""
    arguments = qkv(rng, 5, 8)
    tupe = made(("tupe", 0), 5, 8)["bias"][0]
    for bias in (posenc.dense(rng.standard_normal((H, 5, 8))), posenc.toeplitz(rng.standard_normal((H, 12))), tupe):
        out = posenc.attention(**arguments, bias=bias)
        assert same_bits(out, posenc.attention(**arguments, bias=[bias], q_positions=np.arange(5) * 7.5))
    for bias in [tupe + posenc.alibi(np.ones(H)), *(made((name, 0), 5, 8)["bias"][0] for name in CONTENT)]:
        with pytest.raises(ValueError, match=r"^attention: align is None"):
            posenc.attention(**arguments, bias=bias)


@pytest.mark.parametrize("operator", [one for one in OPERATORS if one[0] in CONTENT])
def test_positions_may_move_together(operator, rng):
    """Relative operators read differences: integer positions moved by 2**40 change no bit."""
    arguments = qkv(rng, 40, 70)
    q_at, k_at = rng.integers(0, 90, 40), rng.integers(0, 90, 70)
    bias = made(operator, 40, 70)["bias"]
    near = posenc.attention(**arguments, bias=bias, q_positions=q_at, k_positions=k_at)
    assert same_bits(near, posenc.attention(**arguments, bias=bias, q_positions=q_at + 2**40, k_positions=k_at + 2**40))
