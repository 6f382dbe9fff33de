"""Operators before the cap, with queries, keys, tables and scales near the ends of the range and ordinary logits.

Multiplying queries, keys and tables by powers of two and dividing the scale by them changes no logit. It changes no bit
either, because each product and sum is multiplied by a power of two.
"""

import numpy as np
import pytest
from cases import F32, F64
from cases.layouts import same_bits

import posenc

H, G, D, DV, K = 4, 2, 19, 5, 6
POWERS = {
    "query and scale large": (100, -126),
    "scale large": (2, -126),
    "query below float32": (-126, 100),
    "query times scale small": (-10, 120),
    "scale below float32": (70, 70),
    "keys and tables large": (63, 63),
    "query and keys small": (-61, -61),
}
"""Exponents of queries and keys in float32. Those of float64 are 7 times as large, or that of the least number."""

# For each operator: arrays, each with its axes, and the operand whose power of two it has.
OPERATORS = {
    "shaw": (posenc.shaw, {"rel_k": ("k", (2 * K + 1, D)), "rel_v": ("", (2 * K + 1, DV))}),
    "transformer_xl": (
        posenc.transformer_xl, {"r": ("k", (H, 2 * K + 1, D)), "u": ("q", (H, D)), "v": ("q", (H, D))}
    ),
    "deberta": (posenc.deberta, {"rel_q": ("q", (H, 2 * K, D)), "rel_k": ("k", (H, 2 * K, D))}),
    "relative_key_query": (posenc.relative_key_query, {"table": ("k", (2 * K + 1, D))}),
    "cope": (posenc.cope, {"table": ("k", (9, D))}),
}  # fmt: skip
CALLS = {
    "plain": {}, "causal": {"causal": True}, "softcap": {"softcap": 3.0}, "alibi": {},
    "gaps": {"q_positions": 2, "k_positions": 2},
}  # fmt: skip


def drawn(rng, name, n, m, dtype):
    """Ordinary queries, keys, values and arrays of an operator, whose logits are some tens."""

    def numbers(*shape):
        return (rng.uniform(1, 1.9, shape) * rng.choice([-1, 1], shape)).astype(dtype)

    arrays = {array: numbers(*axes) for array, (_, axes) in OPERATORS[name][1].items()}
    return {"q": numbers(H, n, D), "k": numbers(G, m, D), "v": numbers(G, m, DV)}, arrays


def powers_of(kind, dtype):
    least = np.finfo(dtype).minexp
    q, k = (least if power == -126 else power * (7 if dtype == F64 else 1) for power in POWERS[kind])
    return {"q": q, "k": k, "v": 0, "": 0}


def options_of(call, kind, n, m):
    """A large scale times keys that are just normal makes logits of some tens."""
    options = {key: np.arange({"q": n, "k": m}[key[0]]) * x if "pos" in key else x for key, x in CALLS[call].items()}
    at = {} if "q_positions" in options else {"align": "end"}
    return {"scale": 4 if "scale large" in kind else 1 / 8, **at, **options}


def operators(call, name, arrays):
    alibi = [posenc.alibi([0.1, 0.3, 0.0, 1.0])] if call == "alibi" else []
    return [*alibi, OPERATORS[name][0](**arrays)]


def multiplied(x, power):
    y = np.ldexp(x, power)
    assert np.isfinite(y).all()
    assert np.abs(y).min() >= np.finfo(x.dtype).smallest_normal
    return y


def check_multiple(found, x, power, products, scale):
    """Compare with x 2**power where that is in range. Each product may underflow before an ordinary scale multiplies
    it, and the last bit may differ for that reason."""
    scale = scale if 1 < scale < 2**40 else 1
    information = np.finfo(x.dtype)
    exact = np.ldexp(x.astype(np.longdouble), power)
    in_range = np.abs(exact) <= information.max
    underflow = products * scale * np.longdouble(information.smallest_normal)
    bound = information.eps * np.abs(exact).max(initial=0) + underflow
    assert (np.abs(found - exact)[in_range] <= bound).all()


def extreme(kind, name, data, arrays, dtype):
    powers = powers_of(kind, dtype)
    tables = OPERATORS[name][1]
    return (
        {operand: multiplied(x, powers[operand]) for operand, x in data.items()},
        {array: multiplied(x, powers[tables[array][0]]) for array, x in arrays.items()},
        2.0 ** -(powers["q"] + powers["k"]),
    )


def is_served(kind, name):
    """A table for both products has the power of the keys, so the one with the keys is ordinary only if the queries
    have the same power."""
    return name != "relative_key_query" or POWERS[kind][0] == POWERS[kind][1]


CASES = [(kind, name) for kind in POWERS for name in OPERATORS if is_served(kind, name)]


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize(("kind", "name"), CASES)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(("n", "m"), [(1, 200), (70, 130)])
def test_powers_of_two_change_no_bit(kind, name, call, n, m, dtype, rng, isa):
    data, arrays = drawn(rng, name, n, m, dtype)
    options = options_of(call, kind, n, m)
    far, far_arrays, factor = extreme(kind, name, data, arrays, dtype)
    wanted = posenc.attention(**data, bias=operators(call, name, arrays), return_lse=True, **options)
    options["scale"] *= factor
    found = posenc.attention(**far, bias=operators(call, name, far_arrays), return_lse=True, **options)
    assert same_bits(found[0], wanted[0])
    assert same_bits(found[1], wanted[1])


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize(("kind", "name"), CASES)
@pytest.mark.parametrize("call", CALLS)
def test_gradient_of_extreme_operands(kind, name, call, dtype, rng, isa):
    """The gradients of an operand 2**p times as large are 2**-p times as large."""
    n, m = 70, 130
    data, arrays = drawn(rng, name, n, m, dtype)
    options = options_of(call, kind, n, m)
    grad = (rng.standard_normal((H, n, DV)) / 1024).astype(dtype)
    far, far_arrays, factor = extreme(kind, name, data, arrays, dtype)
    powers = powers_of(kind, dtype)
    operands = {**{x: x for x in data}, **{array: operand for array, (operand, _) in OPERATORS[name][1].items()}}

    def gradient(data, arrays, options):
        bias = operators(call, name, arrays)
        out, lse = posenc.attention(**data, bias=bias, return_lse=True, **options)
        found = posenc.attention_vjp(grad, **data, bias=bias, out=out, lse=lse, **options)
        return {"q": found.q, "k": found.k, "v": found.v, **found.bias[-1]._asdict()}

    wanted = gradient(data, arrays, options)
    options["scale"] *= factor
    found = gradient(far, far_arrays, options)
    for array, x in wanted.items():
        check_multiple(found[array], x, -powers[operands[array]], n + m, options["scale"])


@pytest.mark.parametrize("name", [name for name in OPERATORS if name != "cope"])
@pytest.mark.parametrize(("q", "k", "scale"), [(3e37, 1.2e-38, 10.0), (1e-3, 1.7e38, 1e-36)])
def test_ordinary_logits(q, k, scale, name, rng, isa):
    """Against float64, where q scale is finite. The scale is no power of two, so it rounds: 40 units of 2**-24 times
    the sum of the sizes of the products, for a score and the softmax. (Errors of CoPE's gates add up to positions.)"""
    data, arrays = drawn(rng, name, 20, 30, F32)
    factors = {"q": q, "k": k, "v": 1, "": 1}
    data = {operand: (x * factors[operand]).astype(F32) for operand, x in data.items()}
    arrays = {array: (x * factors[OPERATORS[name][1][array][0]]).astype(F32) for array, x in arrays.items()}
    if name == "relative_key_query" and k > 1:
        arrays["table"] = np.ldexp(arrays["table"], -137)  # its product with keys is the ordinary one
    exact = {operand: x.astype(F64) for operand, x in data.items()}
    exact_arrays = {array: x.astype(F64) for array, x in arrays.items()}
    options = {"scale": scale, "causal": True, "align": "end", "return_lse": True}
    wanted = posenc.attention(**exact, bias=OPERATORS[name][0](**exact_arrays), **options)
    found = posenc.attention(**data, bias=OPERATORS[name][0](**arrays), **options)
    bound = 40 * 2.0**-24 * (1 + 4 * 1.9**2 * D * q * k * scale)
    assert np.abs(found[0] - wanted[0]).max() <= bound * np.abs(data["v"]).max()
    assert np.abs(found[1] - wanted[1]).max() <= bound


@pytest.mark.parametrize("kind", POWERS)
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_gates_of_logits(kind, dtype, rng, isa):
    """The logits of CoPE have no scale, its gates have one."""
    n, m = 70, 130
    data, arrays = drawn(rng, "cope", n, m, dtype)
    far, _, factor = extreme(kind, "cope", data, arrays, dtype)
    powers = powers_of(kind, dtype)
    grad = (rng.standard_normal((H, n, m)) / 2**16).astype(dtype)
    bias, far_bias = posenc.cope(**arrays), posenc.cope(multiplied(arrays["table"], -powers["q"]))
    wanted = bias.logits(data["q"], data["k"], scale=1 / 8)
    assert same_bits(far_bias.logits(far["q"], far["k"], scale=factor / 8), wanted)
    exact = bias.logits_vjp(grad, data["q"], data["k"], scale=1 / 8)
    ours = far_bias.logits_vjp(grad, far["q"], far["k"], scale=factor / 8)
    powers = {"q": -powers["q"], "k": -powers["k"], "table": powers["q"]}
    for name, shift in powers.items():
        check_multiple(getattr(ours, name), getattr(exact, name), shift, n + m, factor / 8)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("kind", POWERS)
@pytest.mark.parametrize("call", ["plain", "softcap", "alibi"])
def test_extreme_queries_change_no_bit_of_others(kind, name, call, rng, isa):
    """The bits of a query do not depend on the range of the queries of its block."""
    n, m = 70, 70
    data, arrays = drawn(rng, name, n, m, F32)
    far, far_arrays, factor = extreme(kind, name, data, arrays, F32)
    options = {**options_of(call, kind, n, m), "causal": True, "invariant": True}
    options["scale"] *= factor * 0.9
    far["q"][:, ::2] = rng.standard_normal((H, 35, D)) * min(1 / options["scale"], 1e30)
    bias = operators(call, name, far_arrays)
    whole = posenc.attention(**far, bias=bias, **options)
    far["q"][:, 1::2] = min(1 / options["scale"], 1e30)
    assert same_bits(posenc.attention(**far, bias=bias, **options)[:, ::2], whole[:, ::2])
