"""Every dask function equals its twin in posenc: encodings bit for bit, attention and its gradients to float32
rounding."""

from __future__ import annotations

import itertools
import re
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bridge_cases import KINDS
from cases import CASES
from cases.bias import BiasCase, of_method, operator_of
from cases.layouts import same_bits

import posenc

dask = pytest.importorskip("dask", reason="dask is not installed")
import dask.array as da  # noqa: E402

from posenc_bridges import dask as pd  # noqa: E402

EPS = float(np.finfo(np.float32).eps)
H, G, N, M, D, DV = 4, 2, 12, 14, 8, 4
CHUNKS = [
    (4, 5, 14), (1, 6, 5), (2, 4, 7), (3, (1, 10, 1), (1, 1, 12)), ((1, 3), (7, 5), (13, 1)), (1, 12, 14), (4, 12, 1),
]  # fmt: skip
"""Chunkings along heads, queries and keys. A table of calls takes one after the other."""


@pytest.fixture(autouse=True)
def one_thread():
    """Run tasks one after the other in this thread."""
    with dask.config.set(scheduler="synchronous"):
        yield


def random(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def equal(result: Any, expected: np.ndarray) -> None:
    """Refuse a result that differs in a bit, in its dtype or shape, or in what it promised to be before it was
    computed."""
    assert isinstance(result, da.Array)
    found = result.compute()
    assert (result.dtype, result.shape) == (found.dtype, found.shape)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected, strict=True)


# ---- encodings ----

X_CHUNKS = [
    (2, 3, 20, 8), (1, 1, 6, 8), (2, (2, 1), (1, 18, 1), 8), ((1, 1), 3, (19, 1), 4), (2, 3, (3, 5, 12), (1, 7)),
]  # fmt: skip


@pytest.mark.parametrize("chunks", X_CHUNKS, ids=str)
def test_rotations(chunks):
    x = random(2, 3, 20, 8)
    lazy, w = da.from_array(x, chunks=chunks), posenc.rope_frequencies(8)
    scaled = posenc.rope_frequencies(8, rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
    of_batch = np.random.default_rng(1).integers(0, 2**31, (2, 1, 20))
    equal(pd.rope(lazy, 20, w, layout="half", start=10**6), posenc.rope(x, 20, w, layout="half", start=10**6))
    options = {"layout": "interleaved", "rotary_dim": 4, "rotary_offset": 2, "inverse": True, "out_layout": "half"}
    few = w.inv_freq[:2]
    equal(pd.rope(lazy, of_batch, few, **options), posenc.rope(x, of_batch, few, **options))
    for one in (of_batch[:, 0], da.from_array(of_batch[:, 0], chunks=(1, 6))):  # without an axis for heads
        equal(pd.rope(lazy, one, w, layout="half"), posenc.rope(x, of_batch, w, layout="half"))
    positions = da.from_array(of_batch[0, 0], chunks=6)
    equal(pd.rope(lazy, positions, scaled, layout="half"), posenc.rope(x, of_batch[0, 0], scaled, layout="half"))
    moved = {"layout": "half", "seq_axis": 1}
    equal(pd.rope(lazy, [5, 7, 1], w, **moved), posenc.rope(x, [5, 7, 1], w, **moved))
    equal(pd.xpos(lazy, 20, w, layout="half", start=9), posenc.xpos(x, 20, w, layout="half", start=9))
    channels = {"layout": "half", "rotary_dim": 4, "rotary_offset": 2, "center": 500}
    near = of_batch % 1000
    equal(pd.xpos(lazy, near, few, **channels), posenc.xpos(x, near, few, **channels))
    two = np.stack(np.divmod(np.arange(20), 5))
    axial = posenc.axial_frequencies((4, 4))
    equal(pd.rope_nd(lazy, two, axial, layout="half"), posenc.rope_nd(x, two, axial, layout="half"))
    grid = np.stack([of_batch[:, 0], of_batch[:, 0] + 1])
    equal(
        pd.rope_nd(lazy, da.from_array(grid, chunks=(2, 1, 7)), axial, layout="half"),
        posenc.rope_nd(x, grid[:, :, None], axial, layout="half"),
    )
    three = random(3, 2, 1, 20, dtype=float)
    mixed = posenc.mrope_frequencies(scaled, (1, 2, 1))
    equal(
        pd.rope_nd(lazy, da.from_array(three, chunks=2), mixed, layout="half"),
        posenc.rope_nd(x, three, mixed, layout="half"),
    )
    options = {"layout": "half", "rotary_dim": 6, "inverse": True}
    for mixed in (random(3, 3, dtype=float), random(3, 3, 3, dtype=float), posenc.axial_frequencies((2, 0, 4))):
        equal(pd.rope_nd(lazy, three, mixed, **options), posenc.rope_nd(x, three, mixed, **options))
    by_head = random(2, 20, 4), np.indices((1, 3)).reshape(2, 3)  # heads are after the sequence
    options = {"layout": "interleaved", "seq_axis": -3}
    equal(pd.rope_nd(lazy, by_head[1], by_head[0], **options), posenc.rope_nd(x, *by_head[::-1], **options))


@pytest.mark.parametrize("chunks", X_CHUNKS, ids=str)
@pytest.mark.parametrize("mode", ["add", "mul", "mul1p", "replace", "concat"])
def test_merge(mode, chunks):
    x, p = random(2, 3, 20, 8, dtype=np.float16), random(3, 1, 8)
    equal(pd.combine(da.from_array(x, chunks=chunks), p, mode=mode), posenc.combine(x, p, mode=mode))
    wide = random(20, 8 if mode != "concat" else 3)
    lazy = da.from_array(wide, chunks=(6, 2))
    equal(pd.combine(da.from_array(x, chunks=chunks), lazy, mode=mode), posenc.combine(x, wide, mode=mode))


@pytest.mark.parametrize("chunks", [1, 49, (20, -1), ((1, 48, 1), 6), "auto"])
def test_sinusoidal(chunks):
    equal(pd.sinusoidal(50, 6, chunks=chunks, start=10**7), posenc.sinusoidal(50, 6, start=10**7))
    positions = random(50, dtype=float)
    options = {"order": "cossin", "layout": "half", "dtype": np.float64}
    equal(pd.sinusoidal(positions, 6, chunks=chunks, **options), posenc.sinusoidal(positions, 6, **options))
    lazy = da.from_array(positions.reshape(2, 25), chunks=(1, 7))
    equal(pd.sinusoidal(lazy, 5), posenc.sinusoidal(positions.reshape(2, 25), 5))


@pytest.mark.parametrize(("rows", "chunks"), [(40, 33), (7, (1, 5)), (1, 33), ((39, 1), (1, 5))])
def test_learned(rows, chunks):
    """A table that is split by rows: no task holds more than the rows that its positions read."""
    table = random(40, 6)
    ids = np.random.default_rng(0).integers(0, 40, (2, 33))
    for columns in (6, 4):
        lazy = da.from_array(table, chunks=(rows, columns))
        equal(pd.learned(lazy, ids, chunks=chunks), posenc.learned(table, ids))
        equal(pd.learned(lazy, da.from_array(ids, chunks=chunks)), posenc.learned(table, ids))
    equal(pd.learned(table, 33, chunks=7), posenc.learned(table, 33))
    equal(pd.learned(table, 9, start=31, chunks=7), posenc.learned(table, 9, start=31))


def test_learned_reads_the_chunks_of_known_rows_only():
    table = da.from_array(random(40, 6), chunks=(10, 6))
    rows = pd.learned(table, np.arange(10, 20), chunks=5)
    keys = set(dask.optimization.cull(dict(rows.__dask_graph__()), rows.__dask_keys__())[0])
    assert [row for row in range(4) if (table.name, row, 0) in keys] == [1]


# ---- matrices ----


MATRICES = [case for case in KINDS.values() if isinstance(case, BiasCase) and case.method == "matrix"]


@pytest.mark.parametrize("case", MATRICES, ids=lambda case: case.name)
def test_matrix(case):
    arguments = case.arguments(N)
    bias, given = case.bias(arguments), of_method(arguments)
    lengths, align = [given.pop(name) for name in "nm"], given.pop("align", None)
    given = {name: one.reshape(-1, one.shape[-1])[0] for name, one in given.items()}  # of the first row of a batch
    expected = bias.matrix(*lengths, align=align, **given)
    of_chunks = {name: da.from_array(one, chunks=4) for name, one in given.items()}
    result = pd.matrix(bias, *lengths, chunks=5, align=align, **of_chunks)
    if case.function not in ("tupe", "gated_distance"):  # the sums of BLAS depend on the size of the matrix
        equal(result, expected)
    np.testing.assert_allclose(result.compute(), expected, rtol=0, atol=8 * EPS * np.abs(expected).max())


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_matrix_of_a_sum_is_rounded_once(dtype):
    """A sum is cut like its parts, which may have positions of their own."""
    bias = posenc.alibi([0.1]).at(q_positions=np.arange(N) // 4) + posenc.kerple_log([0.3], [0.7])
    options = {"align": "end", "dtype": dtype}
    equal(pd.matrix(bias, N, M, chunks=(1, 5, 4), **options), bias.matrix(N, M, **options))


def test_matrix_of_numbers_beyond_its_dtype():
    for number, dtype in ((1e300, np.float32), (1e5, np.float16)):
        assert pd.matrix(posenc.toeplitz([[number]]), 1, chunks=1, dtype=dtype).compute() == np.inf


# ---- attention ----


def options_of_calls() -> dict[str, dict[str, Any]]:
    rng = np.random.default_rng(0)
    end, keep = {"align": "end"}, rng.random((H, N, M)) < 0.5
    keep[:, 3] = False
    of_rows = {"q_positions": np.arange(N) // 4, "k_positions": np.arange(M) // 4}
    return {
        "plain": {}, "causal": {"causal": True, **end}, "from start": {"causal": True, "align": "start"},
        "window": {"window": (3, 1), **end}, "capped": {"softcap": 2.0, "scale": 0.7},
        "positions": {"q_positions": rng.integers(0, M, N), "causal": True},
        "fractions": {
            "q_positions": random(N, dtype=float), "k_positions": random(M, dtype=float), "window": (0.3, 0.2)
        },
        "segments": {"q_segments": np.repeat([0, 1, 2], 4), "k_segments": np.repeat([0, 3, 1], [6, 1, 7])},
        "documents": {
            "q_segments": np.repeat([0, 1], 6), "k_segments": np.repeat([0, 1], 7), "causal": True,
            "q_positions": np.tile(np.arange(6), 2), "k_positions": np.tile(np.arange(7), 2),
        },
        "keep": {"keep": keep}, "keep of keys": {"keep": keep[0, 0]},
        "lazy keep": {"keep": da.from_array(keep, chunks=(3, 5, 4))},
        "lazy sink": {"sink": da.from_array(random(H), chunks=3), "window": (2, 1), **end},
        "dead rows with sink": {"sink": random(H), "window": (None, -9), **end},
        "sum": {"bias": posenc.alibi(posenc.alibi_slopes(H)) + posenc.shaw(random(9, D)), "causal": True, **end},
        "own positions": {"bias": posenc.t5(random(32, H), bidirectional=True).at(**of_rows), "causal": True, **end},
        "own positions of keys": {"bias": posenc.shaw(random(9, D)).at(k_positions=of_rows["k_positions"]), **end},
        "distance_function": {"bias": posenc.distance_function(lambda rel: np.stack([-np.abs(rel)] * H), H), **end},
        "alibi": {"bias": posenc.alibi(posenc.alibi_slopes(H)), "causal": True, **end},
        "fox": {"bias": posenc.fox(-np.abs(random(H, M))), "causal": True, **end},
    }  # fmt: skip


def arrays_of(gradient: Any, path: tuple[Any, ...] = ()) -> dict[tuple[Any, ...], Any]:
    """Return the arrays of a gradient by their places."""
    if gradient is None:
        return {}
    if not isinstance(gradient, tuple):
        return {path: gradient}
    return {key: one for i, item in enumerate(gradient) for key, one in arrays_of(item, (*path, i)).items()}


def agree(q, k, v, chunks, **options: Any) -> None:
    """Compare attention and all of its gradients; `chunks` are those of q, k and v.

    A sum of n terms of size s in another order differs by at most n s eps. A number of a relative table sums over the
    most pairs, H N M / 9 = 75, and s is about the largest number of the result.
    """
    plain = {name: one.compute() if isinstance(one, da.Array) else one for name, one in options.items()}
    out, lse = posenc.attention(q, k, v, return_lse=True, **plain)
    lazy = [da.from_array(array, chunks=chunk) for array, chunk in zip((q, k, v), chunks, strict=True)]
    lazy_out, lazy_lse = pd.attention(*lazy, return_lse=True, **options)
    grad, grad_lse = random(*out.shape).astype(out.dtype), random(*lse.shape) * np.isfinite(lse)
    given = {"out": out, "lse": lse, "grad_lse": grad_lse}
    expected = posenc.attention_vjp(grad, q, k, v, **given, **plain)
    given = {"out": lazy_out, "lse": lazy_lse, "grad_lse": grad_lse}
    gradient = pd.attention_vjp(da.from_array(grad, chunks=chunks[0][:-1] + (-1,)), *lazy, **given, **options)
    theirs, ours = arrays_of(expected), arrays_of(gradient)
    assert theirs.keys() == ours.keys()
    found_out, found_lse, found = dask.compute(lazy_out, lazy_lse, ours)
    eps = max(EPS, {2: 2.0**-8 if "bfloat" in out.dtype.name else 2.0**-11}.get(out.dtype.itemsize, 0))
    pairs = [(lazy_out, found_out, out), (lazy_lse, found_lse, lse)]
    for promised, result, wanted in [*pairs, *((ours[key], found[key], theirs[key]) for key in ours)]:
        assert promised.dtype == result.dtype == wanted.dtype
        assert promised.shape == result.shape == wanted.shape
        dead = ~np.isfinite(wanted.astype(np.float64))
        np.testing.assert_array_equal(result[dead], wanted[dead])
        size = np.abs(wanted[~dead].astype(np.float64)).max(initial=1)
        np.testing.assert_allclose(
            result[~dead].astype(np.float64), wanted[~dead].astype(np.float64), rtol=0, atol=75 * eps * size
        )


@pytest.fixture(scope="module")
def qkv() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return random(H, N, D), random(G, M, D, seed=1), random(G, M, DV, seed=2)


OPERATORS = [case for case in CASES if re.search("with (?!cope|distance_function)", case.label)]


@pytest.mark.parametrize("case", OPERATORS, ids=lambda case: case.name)
def test_operators(case):
    """The gradients of each operator; those of attention itself are in the tables of calls."""
    arguments = case.arguments(N, np.float32)
    bias = [operator_of(one) for one in arguments["bias"]]
    q, k, v = (arguments[name] for name in "qkv")
    agree(q, k, v, [(1,) * (x.ndim - 3) + (1, 5, -1) for x in (q, k, v)], bias=bias, align="end")


ROWS = [*zip(options_of_calls(), itertools.cycle(CHUNKS))]


@pytest.mark.parametrize(("name", "chunks"), ROWS, ids=str)
def test_attention(qkv, name, chunks):
    heads, n, m = chunks
    of_kv = (G if heads == 4 else (1, 1), m, -1)
    agree(*qkv, ((heads, n, -1), of_kv, of_kv), **options_of_calls()[name])


@pytest.mark.parametrize(("name", "chunks"), ROWS, ids=str)
def test_invariant(qkv, name, chunks):
    """The bits do not depend on the chunks of heads and queries; with keys of one chunk they are those of posenc."""
    heads, n, m = chunks
    options = {**options_of_calls()[name], "invariant": True, "return_lse": True}
    kv = G if heads == 4 else (1, 1)
    chunkings = [((H, N, -1), (G, m, -1)), ((heads, n, -1), (kv, m, -1)), ((heads, n, -1), (kv, -1, -1))]
    whole, cut, one_chunk_of_keys = dask.compute(
        [
            pd.attention(*(da.from_array(x, chunks=c) for x, c in zip(qkv, (of_q, of_k, of_k), strict=True)), **options)
            for of_q, of_k in chunkings
        ]
    )[0]
    assert all(map(same_bits, cut, whole))
    plain = {name: one.compute() if isinstance(one, da.Array) else one for name, one in options.items()}
    assert all(map(same_bits, one_chunk_of_keys, posenc.attention(*qkv, **plain)))


@pytest.mark.parametrize("chunks", CHUNKS[:4], ids=str)
def test_quantized(qkv, chunks):
    """Codes and scales are those of posenc bit for bit, and attention reads them as float32 within rounding."""
    q, k, v = qkv
    heads, n, m = chunks
    lazy = [da.from_array(x, chunks=(G if heads == 4 else (1, 1), m, (3, 1))) for x in (k[..., :4], v)]
    ours, theirs = [pd.quantize(x) for x in lazy], [posenc.quantize(x.compute()) for x in lazy]
    for one, plain in zip(ours, theirs, strict=True):
        equal(one.codes, plain.codes)
        equal(one.scale, plain.scale)
        equal(one.dequantize(), plain.dequantize())
    q = q[..., :4]
    lazy_q = da.from_array(q, chunks=(heads, n, -1))
    options = {"causal": True, "align": "end", "bias": posenc.shaw(random(9, 4)), "sink": random(H)}
    for of_ours, of_theirs in (
        (ours, theirs),
        ((ours[0], lazy[1]), (theirs[0], v)),
        ((lazy[0], ours[1]), (k[..., :4], theirs[1])),
    ):
        wanted = posenc.attention(q, *of_theirs, **options)
        found = pd.attention(lazy_q, *of_ours, **options).compute()
        np.testing.assert_allclose(found, wanted, rtol=0, atol=M * EPS * np.abs(v).max())
        one_chunk = [
            x.rechunk((-1, -1, -1)) if isinstance(x, da.Array) else pd.Quantized(x.codes.rechunk((-1, -1, -1)), x.scale)
            for x in of_ours
        ]
        found = pd.attention(lazy_q, *one_chunk, invariant=True, **options).compute()
        assert same_bits(found, posenc.attention(q, *of_theirs, invariant=True, **options))


@pytest.mark.parametrize("axis", [0, -2, -1])
def test_each_chunk_is_quantized_once(monkeypatch, axis):
    """Codes and scales come from one task for each chunk, in attention too."""
    quantize, calls = posenc.quantize, []
    monkeypatch.setattr(posenc, "quantize", lambda x, **options: calls.append(x.shape) or quantize(x, **options))
    x = random(2, 10, 8)
    lazy = pd.quantize(da.from_array(x, chunks=(1, 4, 8)), axis=axis)
    calls.clear()  # of the checks
    codes, scale = dask.compute(lazy.codes, lazy.scale)
    assert sorted(calls) == sorted(itertools.product(*lazy.codes.chunks))
    assert same_bits(codes, quantize(x, axis=axis).codes)
    assert same_bits(scale, quantize(x, axis=axis).scale)
    if axis == -1:
        calls.clear()
        pd.attention(lazy.dequantize(), lazy, lazy).compute()
        assert len(calls) == 6


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int64"])
def test_dtypes(dtype):
    """Partial results are float32 or wider, so half precision is rounded once."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    q, k, v = (2 * random(H, N, D)).astype(kind), random(G, M, D, seed=1), random(G, M, DV, seed=2)
    k, v = (x.astype(kind if dtype != "int64" else "float64") for x in (k, v))
    table = random(32, H).astype(kind if dtype != "int64" else "float16")
    chunks = (4, 5, -1), (2, 5, -1), (2, 5, -1)
    agree(q, k, v, chunks, bias=posenc.t5(table, bidirectional=True), align="end", causal=True, sink=random(H))


BATCHES = [
    ((2, 3, 6, 10, 4), (1, 1, 2, 5, 4), (1, 1, 2, 11, 2)),
    ((1, 1, 3, 10, 4), (1, 1, 2, 6, 4), (2, 1, 1, 11, 4)),
    ((2, 3, (2, 1, 3), 10, 2), (1, 3, 2, 11, 2), (2, 1, 1, 11, 4)),
]


@pytest.mark.parametrize("chunks", BATCHES, ids=str)
def test_batches(chunks):
    """Batch axes broadcast, and heads are split inside a group of GQA."""
    q, k, v = random(2, 3, 6, 10, 4), random(1, 3, 2, 11, 4, seed=1), random(2, 1, 2, 11, 4, seed=2)
    rng = np.random.default_rng(0)
    agree(q, k, v, chunks, causal=True, align="end", sink=random(2, 1, 6), bias=posenc.fox(-np.abs(random(3, 6, 11))))
    places = {"q_positions": rng.integers(0, 9, (2, 1, 10)), "k_positions": rng.integers(0, 9, (3, 11))}
    segments = {"q_segments": rng.integers(0, 3, (3, 10)), "k_segments": rng.integers(0, 3, 11)}
    agree(q, k, v, chunks, window=(2, 1), **places, **segments)
    lazy = {name: da.from_array(array, chunks=3) for name, array in (places | segments).items()}
    agree(q, k, v, chunks, window=(2, 1), **lazy)
    own = posenc.t5(random(32, 6), bidirectional=True).at(
        q_positions=places["q_positions"], k_positions=random(2, 1, 11, dtype=float)
    )
    agree(q, k, v, chunks, bias=own + posenc.shaw(random(9, 4)).at(k_positions=places["k_positions"]), align="end")
    keep = da.from_array(rng.random((3, 1, 10, 11)) < 0.5, chunks=(1, 1, 3, 4))
    agree(q, k, v, chunks, keep=keep, bias=posenc.dense(random(2, 3, 1, 10, 11)))


@pytest.mark.parametrize("chunks", CHUNKS[1:4], ids=str)
def test_nan_behind_a_mask_stays_there(chunks):
    """Keys and values of another document are NaN, and no result is."""
    q, k, v = random(H, N, D), random(G, M, D, seed=1), random(G, M, DV, seed=2)
    k[:, 9:], v[:, 9:] = np.nan, np.nan
    of_kv = (G if chunks[0] == 4 else (1, 1), chunks[2], -1)
    of_qkv = ((*chunks[:2], -1), of_kv, of_kv)
    lazy = [da.from_array(x, chunks=c) for x, c in zip((q, k, v), of_qkv, strict=True)]
    segments = {"q_segments": np.zeros(N, int), "k_segments": np.repeat([0, 1], [9, 5])}
    biases = [posenc.alibi(posenc.alibi_slopes(H)), posenc.shaw(random(9, D), random(9, DV))]
    for options in (segments, {"keep": np.arange(M) < 9}, {"window": (None, -3), "align": "start"}):
        options = {"bias": biases, "align": "end", **options}
        agree(q, k, v, of_qkv, **options)
        out, lse = pd.attention(*lazy, return_lse=True, **options)
        gradient = pd.attention_vjp(da.ones_like(out), *lazy, out=out, lse=lse, **options)
        found = dask.compute(out, gradient.q, gradient.k[:, :9], gradient.v[:, :9], *arrays_of(gradient.bias).values())
        assert all(np.isfinite(array).all() for array in found)


@pytest.mark.parametrize(("n", "m"), [(0, 9), (9, 0), (0, 0)])
def test_empty(n, m):
    qkv = random(H, n, D), random(G, m, D), random(G, m, DV)
    agree(*qkv, ((4, 5, -1), (2, 4, -1), (2, 4, -1)), causal=True, align="end")


@pytest.mark.parametrize("chunks", CHUNKS[:3], ids=str)
def test_cope(qkv, chunks):
    """In chunks of heads and queries; its keys are one chunk."""
    heads, n, _ = chunks
    of_kv = (G if heads == 4 else (1, 1), -1, -1)
    for options in ({}, {"sink": random(H), "softcap": 2.0}):
        options |= {"bias": posenc.cope(random(6, D)), "causal": True, "align": "end"}
        agree(*qkv, ((heads, n, -1), of_kv, of_kv), **options)


def test_refused_operators(qkv):
    q, k, v = (da.from_array(x, chunks=(-1, 5, -1)) for x in qkv)
    with pytest.raises(ValueError, match="attention: k has 3 chunks of keys; expected one, because cope sums"):
        pd.attention(q, k, v, bias=posenc.cope(random(6, D)), causal=True, align="end")
    out, lse = pd.attention(q, k, v, return_lse=True)
    learned = posenc.distance_function(lambda rel, a: np.stack([a[0] * rel] * H), H, arrays=(np.ones(1),))
    with pytest.raises(TypeError, match="operator distance_function with arrays"):
        pd.attention_vjp(out, q, k, v, out=out, lse=lse, bias=learned, align="end")


# ---- refusals ----


def test_plain_functions_name_this_module():
    x = da.ones((2, 8, 8))
    for call in (
        lambda: posenc.rope(x, 8, posenc.rope_frequencies(8), layout="half"),
        lambda: posenc.attention(x, x, x),
        lambda: posenc.sinusoidal(da.arange(8), 4),
        lambda: posenc.dense(x),
        lambda: posenc.attention(np.ones((2, 8, 8)), np.ones((2, 8, 8)), np.ones((2, 8, 8)), keep=x > 0),
        lambda: posenc.merge_attention([x, x], [x[..., 0]] * 2),
    ):
        with pytest.raises(TypeError, match=r"posenc_bridges\.dask"):
            call()


X, W = da.ones((2, 8, 8), chunks=(1, 3, 8)), posenc.rope_frequencies(8)
F = X.astype(np.float32)
UNKNOWN = X[X[:, 0, 0] > 0]
REFUSED = {
    "rope: x has type ndarray": (TypeError, lambda p: p.rope(np.ones((2, 8)), 2, W, layout="half")),
    "rope: positions has a table": (ValueError, lambda p: p.rope(X, (np.ones((8, 4)), F[0, :, :4]), W, layout="half")),
    "rope: positions has length 7": (ValueError, lambda p: p.rope(X, 7, W, layout="half")),
    "rope: start is 3": (TypeError, lambda p: p.rope(X, da.arange(8), W, layout="half", start=3)),
    "rope: x has chunks of unknown length": (ValueError, lambda p: p.rope(UNKNOWN, 8, W, layout="half")),
    "rope_nd: frequencies has 3 heads": (
        ValueError, lambda p: p.rope_nd(X, np.ones((1, 8)), np.ones((1, 3, 4)), layout="half")
    ),
    "sinusoidal: chunks is None": (TypeError, lambda p: p.sinusoidal(8, 4)),
    "sinusoidal: chunks has 2 chunks": (ValueError, lambda p: p.sinusoidal(8, 4, chunks=(4, 2))),
    "sinusoidal: dim is 0": (ValueError, lambda p: p.sinusoidal(8, 0, chunks=4)),
    "combine: mode is 'sub'": (ValueError, lambda p: p.combine(X, X, mode="sub")),
    "learned: chunks is None": (TypeError, lambda p: p.learned(X[0], 8)),
    "learned: positions has id 8": (IndexError, lambda p: p.learned(X[0], [8], chunks=1)),
    "learned: positions has id 9": (IndexError, lambda p: p.learned(X[0], 2, start=8, chunks=1)),
    "learned: start is 3": (TypeError, lambda p: p.learned(X[0], [1], start=3, chunks=1)),
    "learned: positions has id -1": (IndexError, lambda p: p.learned(X[0], da.arange(-1, 4)).compute()),
    "matrix: bias has type int": (TypeError, lambda p: p.matrix(3, 8, chunks=4)),
    "matrix: bias has operator shaw": (TypeError, lambda p: p.matrix(posenc.shaw(np.ones((3, 8))), 8, chunks=4)),
    "matrix: k_positions has length 7; expected 8": (
        ValueError, lambda p: p.matrix(posenc.alibi([1.0]), 8, chunks=4, k_positions=np.arange(7))
    ),
    "attention: q has type ndarray": (TypeError, lambda p: p.attention(np.ones((2, 8, 8)), X, X)),
    "attention: k has 7 channels; expected 8, as q": (ValueError, lambda p: p.attention(X, X[..., :7], X)),
    "attention: keep has shape": (ValueError, lambda p: p.attention(X, X, X, keep=X[..., :5] > 0)),
    "attention: bias has type int": (TypeError, lambda p: p.attention(X, X, X, bias=3)),
    "attention: k has type Quantized of arrays in memory; expected posenc_bridges.dask.Quantized": (
        TypeError, lambda p: p.attention(X, posenc.quantize(np.ones((2, 8, 8))), X)
    ),
    "attention: v has 2 axes; expected at least 3": (ValueError, lambda p: p.attention(F, F, p.quantize(X[0]))),
    "attention: q has 2 axes; expected at least 3": (ValueError, lambda p: p.attention(F[0], F[0], F[0])),
    "attention_vjp: v has type Quantized": (TypeError, lambda p: p.attention_vjp(X, X, X, p.quantize(X), out=X, lse=X)),
    "Quantized: codes has type ndarray": (TypeError, lambda p: p.Quantized(np.ones(8, np.int8), X)),
    "Quantized: scale has shape": (ValueError, lambda p: p.Quantized(X.astype("i1"), F)),
    "Quantized: codes has chunks of unknown length": (
        ValueError, lambda p: p.Quantized(UNKNOWN.astype("i1"), F[..., 0])
    ),
    "quantize: axis is 3": (ValueError, lambda p: p.quantize(X, axis=3)),
    "quantize: x has NaN or infinity": (ValueError, lambda p: p.quantize(X * np.nan).codes.compute()),
    "attention: q_positions has 9 queries .alibi.; expected 8, as q": (
        ValueError, lambda p: p.attention(X, X, X, bias=posenc.alibi([1.0, 2.0]).at(q_positions=np.arange(9)))
    ),
    "matrix: k_positions has 9 keys .alibi.; expected 8, as k": (
        ValueError, lambda p: p.matrix(posenc.alibi([1.0]).at(k_positions=np.arange(9)), 8, chunks=4)
    ),
    "matrix: k_positions has a value; expected None": (
        ValueError,
        lambda p: p.matrix(posenc.alibi([1.0]).at(k_positions=np.arange(8)), 8, chunks=4, k_positions=np.arange(8)),
    ),
    "attention_vjp: lse has shape": (ValueError, lambda p: p.attention_vjp(X, X, X, X, out=X, lse=X)),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_refusals(message):
    error, call = REFUSED[message]
    with pytest.raises(error, match=f"^{message}"):
        call(pd)


def test_names_of_dask_are_public():
    """Dask's manual documents these names, so the list of private names that can go missing is empty."""
    text = "".join(file.read_text() for file in Path(pd.__file__).parent.glob("*.py"))
    imported = {*re.findall(r"^ *(?:from|import) (dask(?:[\w.]| import )*)", text, re.MULTILINE)}
    assert imported == {"dask.array", "dask.base import tokenize", "dask.highlevelgraph import HighLevelGraph"}
    assert not re.search(r"\b(?:da|dask|posenc)\.(?:\w+\.)*_|posenc\._", text)


def test_signatures_are_those_of_the_twins():
    """Without an `out` that is filled, and with `chunks` where no argument need be a dask array."""
    for name in set(pd.__all__) - {"matrix", "Quantized"}:
        ours, theirs = (signature(getattr(module, name)).parameters for module in (pd, posenc))
        kept = [one for one in theirs if one != "out" or name.endswith("_vjp")]
        assert [one for one in ours if one != "chunks"] == kept, name
        assert ("chunks" in ours) == (name in ("sinusoidal", "learned"))


def test_xarray():
    """A rotation of named dimensions keeps its names; attention refuses them, and says what it takes."""
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    x = xarray.DataArray(random(8, 2, 8), dims=("token", "head", "channel"), name="q").chunk(token=3)
    rotated = pd.rope(x, 8, W, layout="half", seq_axis="token")
    assert (rotated.dims, rotated.name, rotated.chunks) == (x.dims, "q", x.chunks)
    np.testing.assert_array_equal(rotated, posenc.rope(x.values, 8, W, layout="half", seq_axis=0))
    np.testing.assert_array_equal(pd.combine(x, np.ones(8)), x.values + 1)
    swapped = pd.rope_nd(x, np.ones((2, 8)), np.ones((2, 4)), layout="half", seq_axis="token")
    assert swapped.dims == x.dims


XARRAY = {
    "rope: positions": lambda x: pd.rope(X, x, W, layout="half"),
    "learned: table": lambda x: pd.learned(x.expand_dims("width"), [0], chunks=1),
    "combine: p": lambda x: pd.combine(X, x),
    "quantize: x": lambda x: pd.quantize(x),
    "Quantized: codes": lambda x: pd.Quantized(x.astype("i1"), X[0, 0, 0]),
    "attention: keep": lambda x: pd.attention(X, X, X, keep=x > 0),
    "attention_vjp: grad": lambda x: pd.attention_vjp(x, X, X, X, out=X, lse=X[..., 0]),
}


@pytest.mark.parametrize("argument", XARRAY)
def test_xarray_is_refused_by_name(argument):
    """Where a result would have no names of dimensions, or names would be ignored."""
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    x = xarray.DataArray(np.arange(8.0), dims="token")
    expected = r" has type DataArray of xarray; expected a dask array, such as its \.data"
    for one in (x, x.chunk(token=3)):
        with pytest.raises(TypeError, match=f"^{argument}{expected}$"):
            XARRAY[argument](one)
