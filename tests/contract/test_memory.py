"""Memory leaks, and arrays with more than 2**31 bytes."""

import ctypes
import gc
import sys
from contextlib import suppress

import numpy as np
import pytest
from cases import CASES, array_paths, get_path, set_path
from cases.calls import call_all
from cases.layouts import same_bits

import posenc


class Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]  # fmt: skip  # noqa: SIM905, E501


def bytes_in_use():
    """Bytes that malloc has handed out, from mallinfo2 of glibc; 0 elsewhere."""
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        return 0
    mallinfo.restype = Mallinfo
    info = mallinfo()
    return info.uordblks + info.hblkhd


@pytest.fixture(scope="module")
def frozen():
    """Exclude the objects of torch and pytest from garbage collections, which would take half a second each."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def growth(call, times):
    """(bytes, Python blocks) that `times` calls leave behind, after 64 calls that fill caches."""
    for _ in range(64):
        call()
    gc.collect()
    bytes_before, blocks_before = bytes_in_use(), sys.getallocatedblocks()
    for _ in range(times):
        call()
    gc.collect()
    return bytes_in_use() - bytes_before, sys.getallocatedblocks() - blocks_before


def assert_no_leak(call, times):
    """Assert that calls leave nothing behind in at least one of four rounds. The smallest leak is 16 bytes or a block
    per call; a tenth of that is allowed for caches, which take a thousand calls to settle in NumPy 1.23."""
    for _ in range(4):
        in_bytes, in_blocks = growth(call, times)
        if in_bytes < 1.6 * times + 4096 and in_blocks < 0.1 * times + 64:
            return
    assert in_bytes < 1.6 * times + 4096
    assert in_blocks < 0.1 * times + 64


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.sweep
def test_no_leak(case, frozen):
    """Of a call and its gradient, and of calls that fail in Python and in C."""
    arguments = case.arguments(max(2, case.least))
    paths = array_paths(arguments)
    grads = tuple(np.ones(np.shape(r)) for r in call_all(case, arguments))
    wrong = [
        set_path(arguments, path, bad) for path in paths[:1] for bad in (np.array("x"), np.full((2, 0, 7), np.nan))
    ]

    def calls():
        case.call(arguments)
        if case.gradients:
            case.vjp(grads, arguments)
        for value in wrong:
            with suppress(TypeError, ValueError):
                case.call(set_path(arguments, paths[0], value))

    references = [sys.getrefcount(get_path(arguments, path)) for path in paths]
    assert_no_leak(calls, 500)
    assert references == [sys.getrefcount(get_path(arguments, path)) for path in paths]


@pytest.fixture
def far_rows(tmp_path):
    """A function that makes an array (2, 3, d) in a sparse file, with rows 2**30 + 7 float32 apart and halves 2**32
    elements apart."""

    def make(d, values):
        row, half = 2**30 + 7, 2**32
        buffer = np.memmap(tmp_path / "sparse", np.float32, "w+", shape=(half + 3 * row + d,))
        view = np.lib.stride_tricks.as_strided(buffer, (2, 3, d), (half * 4, row * 4, 4))
        view[...] = values
        return view

    return make


def test_strides_past_2_to_the_31(far_rows, rng):
    values, dense = (
        rng.standard_normal((2, 3, 16)).astype(np.float32),
        rng.standard_normal((2, 3, 3)).astype(np.float32),
    )
    far, w = far_rows(16, values), np.ones(8)
    for call in (
        lambda x: posenc.rope(x, [5, 6, 7], w, layout="half"),
        lambda x: posenc.attention(x, x, x),
        lambda x: posenc.attention(x, x[..., ::2, :], x[..., ::2, ::-1]),
        lambda x: posenc.convert_layout(x, source="half", target="interleaved"),
    ):
        assert same_bits(call(far), call(values))
    posenc.rope(far, [5, 6, 7], w, layout="half", out=far)
    assert same_bits(far, posenc.rope(values, [5, 6, 7], w, layout="half"))
    near, away = (posenc.dense(x) for x in (dense, far_rows(3, dense)))
    assert same_bits(
        posenc.attention(values, values, values, bias=away), posenc.attention(values, values, values, bias=near)
    )


def test_matrix_views_past_2_to_the_32():
    n = 70_000  # n * n > 2**32
    matrix = posenc.alibi([1.0, 0.5]).matrix(n)
    assert matrix.shape == (2, n, n)
    assert matrix[0, -1, 0] == matrix[0, 0, -1] == 1 - n
    assert matrix[1, 46_341, 65_536] == -(65_536 - 46_341) / 2
    assert not matrix.flags.writeable


def test_more_pairs_than_2_to_the_32(rng):
    """The window makes the call fast: nearly every tile is empty."""
    n = 70_000
    q, k, v = rng.standard_normal((3, 1, n, 4)).astype(np.float32)
    out = posenc.attention(q, k, v, window=(3, 3))
    some = slice(n - 10, n)
    part = posenc.attention(q[:, some], k[:, n - 20 :], v[:, n - 20 :], window=(3, 3), align="end")
    np.testing.assert_allclose(out[:, some], part, rtol=0, atol=2**-20)  # a softmax over 7 keys in float32, |v| < 8


NOTHING = {
    "combine": lambda x: posenc.combine(x, 1.0),
    "concat": lambda x: posenc.combine(x, x, mode="concat"),
    "digits": lambda x: posenc.digits(x, width=3)[..., 0],
    "conv_position": lambda x: posenc.conv_position(x, np.zeros((0, 3))),
}


@pytest.mark.parametrize("kind", NOTHING)
def test_rows_without_columns_take_no_time(kind):
    """NumPy has arrays of 2**56 rows that need no memory. A scan of their rows would take a year."""
    x = np.zeros((1, 2**56, 0))
    assert NOTHING[kind](x).shape == x.shape


def test_rows_of_distances_that_no_memory_holds():
    """2**11 heads times 2**53 + 1 distances are 2**64 + 2**11 numbers, whose bytes exceed a size_t."""
    q, k = np.zeros((2**11, 2, 0)), np.zeros((1, 2**53, 0))
    bias = posenc.alibi(np.ones(2**11))
    with pytest.raises(MemoryError):
        posenc.attention(q, k, k, bias=bias, align="start", return_lse=True)


def test_sums_along_diagonals_that_no_memory_holds():
    """2**49 rows of a batch with 2**12 sums each, in float64, are 2**64 bytes, which NumPy does not allocate."""
    batch, m = 2**49, 2**12 - 1
    q, k = np.zeros((batch, 1, 2, 0), np.float16), np.zeros((batch, 1, m, 0), np.float16)
    lse = np.broadcast_to(np.float32(0), q.shape[:-1])
    with pytest.raises(MemoryError, match=r"^attention_vjp: the result has shape "):
        posenc.attention_vjp(q, q, k, k, out=q, lse=lse, bias=posenc.alibi([1.0]), align="start")


@pytest.mark.parametrize(
    ("argument", "shape", "message"),
    [
        ("q", (1, 2**56, 0), rf"sequence axis {2**56}; expected at most 2\*\*53"),
        ("k", (1, 2**56, 0), rf"sequence axis {2**56}; expected at most 2\*\*53"),
        ("q", (1, 0, 2**24 + 1), r"width 16777217; expected at most 16777216$"),
        ("v", (1, 0, 2**24 + 1), r"width 16777217; expected at most 16777216$"),
    ],
)
def test_lengths_that_need_no_memory_end(argument, shape, message):
    """Positions end at 2**53. Offsets inside a tile are ints, and a tile has up to 96 rows."""
    large, small = np.zeros(shape), np.zeros((1, 2 * (shape[1] > 0), 4 * (shape[1] == 0)))
    operands = {"q": (large, large, small), "k": (small, large, large), "v": (small, small, large)}[argument]
    if shape[1] and argument == "q":
        operands = (large, small, small)
    with pytest.raises(ValueError, match=rf"^attention: {argument} has {message}"):
        posenc.attention(*operands)
