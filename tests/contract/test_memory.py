"""Memory leaks, the floating-point environment, and arrays with more than 2**31 bytes."""

import ctypes
import gc
import sys
import threading

import numpy as np
import pytest
from cases import CASES, array_paths, get_path, set_path
from cases.calls import call_all
from cases.layouts import same_bits

import posenc

ROWS = [pytest.param(case, id=case.name) for case in CASES]


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


def calls_of(case):
    """The arguments, a call that succeeds with its gradient, and calls that fail in Python and in C."""
    arguments = case.arguments(max(2, case.least))
    path = (array_paths(arguments) or [None])[0]
    grads = tuple(np.ones(np.shape(r)) for r in call_all(case, arguments))
    wrong = (
        [] if path is None else [set_path(arguments, path, bad) for bad in (np.array("x"), np.full((2, 0, 7), np.nan))]
    )

    def good():
        case.call(arguments)
        if case.gradients:
            case.vjp(grads, arguments)

    def bad():
        for each in wrong:
            try:
                case.call(each)
            except (TypeError, ValueError):
                continue

    return arguments, good, bad


@pytest.mark.parametrize("case", ROWS)
@pytest.mark.sweep
def test_no_leak(case, full, frozen):
    times = 10_000 if full else 500
    arguments, good, bad = calls_of(case)
    references = [sys.getrefcount(get_path(arguments, path)) for path in array_paths(arguments)]
    assert_no_leak(good, times)
    assert_no_leak(bad, times)
    assert references == [sys.getrefcount(get_path(arguments, path)) for path in array_paths(arguments)]


SUBNORMALS = """
import threading
import numpy as np
def check():
    tiny = np.array([5e-324, 2.2250738585072014e-308])
    small = np.array([1e-45, 1.1754944e-38], np.float32)
    assert np.all(tiny * np.float64(1.0) > 0) and (tiny / 2)[1] > 0, "float64 subnormals are flushed"
    assert np.all(small * np.float32(1.0) > 0) and (small / np.float32(2))[1] > 0, "float32 subnormals are flushed"
    assert np.finfo(np.float32).smallest_subnormal > 0 and np.finfo(np.float64).smallest_subnormal > 0
check()
import posenc
check()
posenc.set_num_threads(3)
x = np.full((64, 512, 64), 1e-45, np.float32)
def call():
    assert np.array_equal(posenc.rope(x, np.zeros(512), np.ones(32), layout="half"), x), "kernels flush subnormals"
    posenc.sinusoidal(4096, 512)
    check()
call()
failures = []
def in_thread():
    try:
        check(); call()
    except BaseException as error:
        failures.append(error)
threads = [threading.Thread(target=in_thread) for _ in range(3)]
[t.start() for t in threads], [t.join() for t in threads]
assert not failures, failures
check()
print("kept")
"""


def test_subnormals_survive_import_calls_and_threads(run_python):
    done = run_python(SUBNORMALS)
    assert done.stdout.strip() == "kept", done.stderr


def test_calls_from_threads_keep_errstate(rng):
    """A kernel whose results overflow raises no NumPy warning, in any thread."""
    x = np.full((2, 8), 1e38, np.float32)
    found = []

    def call():
        with np.errstate(all="raise"):
            found.append(posenc.rope(x, np.ones(2), np.ones(4), layout="half").shape)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    call()
    assert found == [(2, 8)] * 2


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
    values = rng.standard_normal((2, 3, 16)).astype(np.float32)
    far = far_rows(16, values)
    arguments = ([5, 6, 7], np.ones(8))
    wanted = posenc.rope(values, *arguments, layout="half")
    assert same_bits(posenc.rope(far, *arguments, layout="half"), wanted)
    assert same_bits(posenc.attention(far, far, far), posenc.attention(values, values, values))
    assert same_bits(posenc.attention(far, far[..., ::2, :], far[..., ::2, ::-1]),
                     posenc.attention(values, values[..., ::2, :], values[..., ::2, ::-1]))  # fmt: skip
    assert same_bits(posenc.convert_layout(far, source="half", target="interleaved"),
                     posenc.convert_layout(values, source="half", target="interleaved"))  # fmt: skip
    posenc.rope(far, *arguments, layout="half", out=far)
    assert same_bits(far, wanted)


def test_a_dense_bias_with_far_rows(far_rows, rng):
    q, k, v = rng.standard_normal((3, 2, 3, 8)).astype(np.float32)
    bias = rng.standard_normal((2, 3, 3)).astype(np.float32)
    far = far_rows(3, bias)
    assert same_bits(posenc.attention(q, k, v, bias=posenc.dense(far)),
                     posenc.attention(q, k, v, bias=posenc.dense(bias)))  # fmt: skip


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


ROWS_OF_NOTHING = 2**56
NOTHING = {
    "merge": lambda x: posenc.merge(x, 1.0),
    "concat": lambda x: posenc.merge(x, x, mode="concat"),
    "digits": lambda x: posenc.digits(x, width=3)[..., 0],
    "conv_position": lambda x: posenc.conv_position(x, np.zeros((0, 3))),
}


@pytest.mark.parametrize("kind", NOTHING)
def test_rows_without_columns_take_no_time(kind):
    """NumPy has arrays of 2**56 rows that need no memory. A scan of their rows would take a year."""
    x = np.zeros((1, ROWS_OF_NOTHING, 0))
    assert NOTHING[kind](x).shape == x.shape


@pytest.mark.parametrize("argument", ["q", "k"])
def test_more_keys_than_positions_are_refused(argument):
    """Positions end at 2**53, and so does the number of queries or keys without channels."""
    few, many = np.zeros((1, 2, 0)), np.zeros((1, ROWS_OF_NOTHING, 0))
    operands = (many, few, few) if argument == "q" else (few, many, many)
    with pytest.raises(
        ValueError, match=rf"^attention: {argument} has sequence axis {2**56}; expected at most 2\*\*53"
    ):
        posenc.attention(*operands)


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


@pytest.mark.parametrize("argument", ["q", "v"])
def test_heads_are_at_most_2_to_the_24_wide(argument):
    """Offsets inside a tile are ints, and a tile has up to 96 rows. Arrays without rows need no memory."""
    wide, narrow = np.zeros((1, 0, 2**24 + 1)), np.zeros((1, 0, 4))
    operands = (wide, wide, narrow) if argument == "q" else (narrow, narrow, wide)
    with pytest.raises(ValueError, match=rf"^attention: {argument} has width 16777217; expected at most 16777216$"):
        posenc.attention(*operands)
