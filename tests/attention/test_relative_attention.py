"""Relative operators inside attention against the oracle: masks, positions, dtypes, sizes, and Bias.logits."""

import inspect

import numpy as np
import pytest
from cases import F32, F64, map_arrays
from cases.attention import ANY, check
from cases.layouts import same_bits
from cases.relative_operators import DV, KINDS, MASKS, OPERATORS, WITH_LOGITS, D, G, H, broadcast, drawn, made, qkv

import posenc

F16 = np.dtype(np.float16)
SHAPES = [(37, 81), (81, 37), (130, 150)]
"""Beside the edges of a tile of 64 queries and of a row of keys."""


@pytest.mark.parametrize(("n", "m"), SHAPES)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.sweep
def test_masks_and_places(name, mask, n, m, rng):
    options = MASKS[mask](rng, n, m)
    check(broadcast(rng, n, m), bias=(drawn(name, n, m),), **options)
    assert set(options) <= inspect.signature(posenc.attention).parameters.keys()


@pytest.mark.parametrize("dtype", [F16, F32], ids=str)
@pytest.mark.parametrize("name", KINDS)
def test_tables_of_another_dtype(name, dtype, rng):
    """The dtype of the result does not depend on the dtype of a table, whose numbers are not rounded to the storage
    dtype."""
    arguments = ANY.cast(qkv(rng, 9, 9), F32)
    narrow = map_arrays(lambda a: a.astype(dtype), drawn(name, 9, 9))
    wide = map_arrays(lambda a: a.astype(F64), narrow)
    out = ANY.call({**arguments, "bias": (narrow,)})[0]
    assert out.dtype == F32
    assert same_bits(out, ANY.call({**arguments, "bias": (wide,)})[0])


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 7), (7, 1), (2, 2), (0, 5), (5, 0), (0, 0)])
def test_small(name, n, m, rng):
    arguments = {**qkv(rng, n, m), "bias": (drawn(name, n, m),), "align": "end"}
    check(arguments)
    check(arguments, causal=True)


@pytest.mark.parametrize(("name", "empty"), [
    *((name, empty) for name in KINDS for empty in ("batch", "width", "value_width")), ("cope", "heads"),
])  # fmt: skip
def test_empty_axes(name, empty, rng):
    """Without channels every product is 0; tables are as wide as q and v. The table of CoPE may lack the axis of
    heads."""
    b, heads, groups = (0 if empty == "batch" else 3, *((0, 0) if empty == "heads" else (H, G)))
    d, e = 0 if empty == "width" else D, 0 if empty == "value_width" else DV
    q, k, v = (np.ones((b, *shape)) for shape in ((heads, 5, d), (groups, 5, d), (groups, 5, e)))
    function, given = drawn(name, 5, 5)
    widths = {"rel_k": d, "rel_v": e, "r": d, "u": d, "v": d, "rel_q": d, "table": d}
    if function != "gated_distance":  # whose table is as wide as its gates
        given = {argument: x[..., : widths[argument]] if argument in widths else x for argument, x in given.items()}
    out = ANY.call({"q": q, "k": k, "v": v, "bias": ((function, given),)})[0]
    assert out.shape == (b, heads, 5, e)
    assert np.isfinite(out).all()


# ---- attention is the softmax of the logits ----


def test_tupe_reads_positions_only_beside_it(rng):
    """TUPE itself depends on rows and columns, so it needs no align; a bias beside it needs positions."""
    arguments = qkv(rng, 5, 8)
    bias = made("tupe", 5, 8)["bias"][0]
    out = posenc.attention(**arguments, bias=bias)
    assert same_bits(out, posenc.attention(**arguments, bias=bias, q_positions=np.arange(5) * 7.5))
    with pytest.raises(ValueError, match=r"^attention: align is None"):
        posenc.attention(**arguments, bias=bias + posenc.alibi(np.ones(H)))


@pytest.mark.parametrize("name", [name for name in KINDS if name != "tupe resets"])
def test_align_is_required(name, rng):
    with pytest.raises(ValueError, match=r"^attention: align is None"):
        posenc.attention(**qkv(rng, 5, 8), **made(name, 5, 8))
    assert posenc.attention(**qkv(rng, 8, 8), **made(name, 8, 8)).shape == (H, 8, DV)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", WITH_LOGITS)
def test_decode_is_prefill(name, dtype, rng):
    """One token at a time against the cache is prefill up to the last bits, 16 spacings of the largest value; the
    positions of CoPE are sums of 140 gates in another order."""
    n = 140
    arguments = {a: x.astype(dtype) for a, x in qkv(rng, n, n).items()}
    bias = made(name, n, n)["bias"]
    whole = posenc.attention(**arguments, causal=True, bias=bias)
    bound = (64 if name.startswith("cope") else 16) * np.spacing(np.abs(arguments["v"]).max() + 4)
    for i in (0, 1, 47, 48, 63, 64, 65, 95, 96, 139):
        q, k, v = arguments["q"][:, i : i + 1], arguments["k"][:, : i + 1], arguments["v"][:, : i + 1]
        for options in ({"align": "end"}, {"q_positions": [i]}, {"q_positions": [i + 0.0], "k_positions": i + 1}):
            step = posenc.attention(q, k, v, causal=True, bias=bias, **options)
            assert np.abs(step[:, 0].astype(np.float64) - whole[:, i]).max() <= bound


@pytest.mark.parametrize("name", WITH_LOGITS)
def test_positions_may_move_together(name, rng):
    """Relative operators read differences: integer positions moved by 2**40 change no bit."""
    arguments = qkv(rng, 40, 70)
    q_at, k_at = rng.integers(0, 90, 40), rng.integers(0, 90, 70)
    bias = made(name, 40, 70)["bias"]
    near = posenc.attention(**arguments, bias=bias, q_positions=q_at, k_positions=k_at)
    assert same_bits(near, posenc.attention(**arguments, bias=bias, q_positions=q_at + 2**40, k_positions=k_at + 2**40))
