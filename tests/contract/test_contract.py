"""What every function promises about its arguments: generated from the axes and arrays of each Case."""

import ctypes
import gc
import inspect
import re
import sys
import threading
from contextlib import contextmanager

import numpy as np
import pytest
from cases import BF16, CASES, F64, array_paths, get_path, map_arrays, set_path, terms
from cases.layouts import read_only, reversed_axes, same_bits, step_two, transposed, unaligned

import posenc

N = 5
ROWS = [pytest.param(case, id=case.name) for case in CASES]
OUT_ROWS = [pytest.param(case, id=case.name) for case in CASES if case.takes_out]


@contextmanager
def refused(case, *kinds):
    """Raises one of `kinds`, in the form that every message has, naming an argument that the user gave."""
    with pytest.raises(kinds) as caught:
        yield
    assert type(caught.value) in kinds
    message = str(caught.value)
    found = re.fullmatch(r"(\w+)(\.\w+)?: (\w+) (has|is) .+; expected .+", message, re.DOTALL)
    assert found, message
    known = case.parameters | {name for _, given in nested(case) for name in given} | set(case.parts)
    functions = {case.function} | {function for function, _ in nested(case)}
    assert found[1] in functions, message
    assert found[3] in known | set(inspect.signature(case.public).parameters), message


def nested(case):
    """Operators of the case, and those that are arguments of theirs."""
    outer = terms(case.arguments(max(N, case.least)))
    inner = [v for _, given in outer for v in given.values() if isinstance(v, tuple) and isinstance(v[-1], dict)]
    return (*outer, *inner)


def arguments_of(case, dtype=F64):
    return case.arguments(max(N, case.least), dtype)


def call_all(case, arguments, dtype=F64, **options):
    return case.call(arguments, **case.options(dtype), **options)


def letters(text):
    """[(letter, is tied, may be missing)] of an axes string."""
    return [(word.rstrip("!?"), "!" in word, "?" in word) for word in text.split()]


def one_more(array, axis):
    return np.concatenate([array, np.take(array, [-1], axis=axis)], axis=axis)


@pytest.mark.parametrize("case", ROWS)
def test_each_length_off_by_one(case):
    arguments = arguments_of(case)
    users = {}
    for text in case.axes.values():
        for letter in {letter for letter, _, _ in letters(text)}:
            users[letter] = users.get(letter, 0) + 1
    tried = 0
    for argument, text in case.axes.items():
        assert arguments[argument].ndim == len(text.split())
        for axis, (letter, tied, _) in enumerate(letters(text)):
            if letter == "1" or not (tied or users[letter] > 1):
                continue
            with refused(case, ValueError):
                call_all(case, {**arguments, argument: one_more(arguments[argument], axis)})
            tried += 1
    assert tried or not any("!" in text for text in case.axes.values())


@pytest.mark.parametrize("case", ROWS)
def test_too_few_axes(case):
    arguments = arguments_of(case)
    for argument, text in case.axes.items():
        array = arguments[argument]
        needed = sum(letter not in ("b", "1") and not missing for letter, _, missing in letters(text))
        if needed == 0:
            continue
        fewer = array.astype(F64) if "position" in argument else array  # a 0-d integer is a length, not a position
        with refused(case, ValueError, TypeError):
            call_all(case, {**arguments, argument: fewer[(0,) * (array.ndim - needed + 1)]})
    assert len(case.axes) <= len(arguments)


WRONG = {
    "f": (np.bool_, np.complex64, np.complex128, object, np.longdouble, "U8", "M8[s]"),
    "i": (np.bool_, np.complex128, object, "U8"),
    "b": (np.int8, np.uint8, np.int64, np.float32, object),
}


@pytest.mark.parametrize("case", ROWS)
def test_wrong_dtype(case):
    arguments = arguments_of(case)
    paths = array_paths(arguments)
    for path in paths:
        array = get_path(arguments, path)
        for dtype in WRONG[array.dtype.kind]:
            wrong = np.zeros(array.shape, dtype)
            with refused(case, TypeError):
                call_all(case, set_path(arguments, path, wrong))
    assert all(get_path(arguments, path).dtype.kind in WRONG for path in paths)


@pytest.mark.parametrize("case", ROWS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_must_be_finite(case, value):
    """Positions, offsets, frequencies and the parameters of a Bias; data may hold anything, dense may hold -inf."""
    arguments = arguments_of(case)
    for path in array_paths(arguments):
        array = get_path(arguments, path)
        if path[0] in case.data or path[-1] == "array" or array.dtype.kind == "b" or "segments" in path[0]:
            continue
        bad = array.astype(F64)
        bad.flat[-1] = value
        with refused(case, TypeError if path[0] in case.ids else ValueError):
            call_all(case, set_path(arguments, path, bad))
    assert case.call(arguments)


@pytest.mark.parametrize("case", ROWS)
@pytest.mark.parametrize("position", [2**53 + 1, -(2**53) - 1, 2.0**53 + 2, 2**63, 1e300])
def test_positions_are_exact_or_refused(case, position):
    arguments = arguments_of(case)
    for argument in ("positions", "q_positions", "k_positions", "offset", "position"):
        if isinstance(arguments.get(argument), np.ndarray) and argument not in case.data:
            far = np.full(arguments[argument].shape, position)
            kinds = (IndexError,) if far.dtype.kind in "iu" else (TypeError,)
            with refused(case, *(kinds if argument in case.ids else (ValueError,))):
                call_all(case, {**arguments, argument: far})
    assert case.call(arguments)


@pytest.mark.parametrize("case", ROWS)
def test_unknown_and_missing_arguments(case):
    arguments = arguments_of(case)
    with pytest.raises(TypeError, match="no_such_option"):
        case.call({**arguments, "no_such_option": 1})
    parameters = inspect.signature(case.public).parameters.values()
    for parameter in parameters:
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
            with pytest.raises(TypeError, match=parameter.name):
                case.call({name: value for name, value in arguments.items() if name != parameter.name})


@pytest.mark.parametrize("case", ROWS)
def test_options_after_the_star_are_keyword_only(case):
    """Nothing that is an option can be given by its place: at most the data, positions and frequencies can."""
    parameters = inspect.signature(case.public).parameters.values()
    by_place = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    options = {"out", "dtype", "layout", "scale", "base", "order", "align", "causal", "keep", "seq_axis", "denominator"}
    assert by_place
    assert not options & set(by_place[1:])  # the mask is the data of positions_from_mask


@pytest.mark.parametrize("case", ROWS)
def test_strings_name_what_is_allowed(case):
    arguments = arguments_of(case)
    for argument, value in arguments.items():
        if isinstance(value, str):
            with refused(case, ValueError):
                case.call({**arguments, argument: "no such thing"})
            with refused(case, ValueError, TypeError):
                case.call({**arguments, argument: ["half"]})
    assert case.call(arguments)


@pytest.mark.parametrize("case", ROWS)
def test_lists(case):
    arguments = arguments_of(case)
    lists = {
        a: v if isinstance(v, tuple) and a == "bias" else map_arrays(np.ndarray.tolist, v) for a, v in arguments.items()
    }
    assert all(same_bits(a, b) for a, b in zip(call_all(case, lists), call_all(case, arguments), strict=True))


class Exporter:
    """A NumPy array that is known by the DLPack protocol alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("case", ROWS)
def test_dlpack(case):
    arguments = arguments_of(case, np.float32 if case.data else F64)
    exported = map_arrays(lambda a: Exporter(a) if a.dtype.kind != "b" else a, arguments)
    assert all(same_bits(a, b) for a, b in zip(case.call(exported), case.call(arguments), strict=True))


@pytest.mark.parametrize("case", ROWS)
def test_torch_tensors(case):
    torch = pytest.importorskip("torch", reason="torch is not installed: DLPack is tested with NumPy arrays only")
    arguments = arguments_of(case, np.float32 if case.data else F64)
    before = map_arrays(np.copy, arguments)
    tensors = map_arrays(lambda a: torch.from_numpy(a.copy()), arguments)
    assert all(same_bits(a, b) for a, b in zip(case.call(tensors), case.call(before), strict=True))


@pytest.mark.parametrize("case", [c for c in CASES if c.data], ids=lambda case: case.name)
def test_tensors_that_numpy_cannot_take_are_refused(case):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    arguments = arguments_of(case)
    argument = case.data[0]
    for tensor in (
        torch.from_numpy(arguments[argument].copy()).to(torch.bfloat16),
        torch.from_numpy(arguments[argument].copy()).requires_grad_(),
    ):
        with refused(case, TypeError):
            case.call({**arguments, argument: tensor})


@pytest.mark.parametrize("case", ROWS)
def test_inputs_are_not_modified(case):
    for dtype in case.dtypes:
        arguments = arguments_of(case, dtype)
        before = map_arrays(np.copy, arguments)
        results = call_all(case, arguments, dtype)
        if case.gradients:
            case.vjp(tuple(np.ones(np.shape(r)) for r in results), arguments)
        paths = array_paths(arguments)
        assert all(same_bits(get_path(arguments, path), get_path(before, path)) for path in paths)


@pytest.mark.parametrize("case", ROWS)
def test_results_own_their_numbers(case):
    """Writing to a result reaches no input, no cache and no later result; views say that they are read-only."""
    arguments = arguments_of(case)
    first = [r for r in call_all(case, arguments) if isinstance(r, np.ndarray)]
    kept = [r.copy() for r in first]
    for result in first:
        if result.flags.writeable:
            result[...] = 77
    again = [r for r in call_all(case, arguments) if isinstance(r, np.ndarray)]
    assert all(same_bits(a, b) for a, b in zip(again, kept, strict=True))


@pytest.mark.parametrize("case", OUT_ROWS)
@pytest.mark.parametrize("layout", [np.copy, reversed_axes, step_two, transposed, unaligned], ids=lambda f: f.__name__)
def test_out_of_any_layout(case, layout):
    for dtype in case.dtypes:
        for n in (max(1, case.least), 9, 33):
            arguments = case.arguments(n, dtype)
            wanted = call_all(case, arguments, dtype)
            out = layout(np.full(wanted[0].shape, 7, dtype))
            results = case.call(arguments, out=out)
            assert results[0] is out
            assert all(same_bits(a, b) for a, b in zip(results, wanted, strict=True))


@pytest.mark.parametrize("case", OUT_ROWS)
def test_wrong_out(case):
    arguments = arguments_of(case)
    right = np.full(call_all(case, arguments)[0].shape, 7.0)
    for axis in range(right.ndim):
        with refused(case, ValueError):
            case.call(arguments, out=one_more(right, axis))
    with refused(case, ValueError):
        case.call(arguments, out=right[None])
    with refused(case, ValueError):
        case.call(arguments, out=read_only(right))
    for dtype in (np.int64, np.bool_, np.complex128, object, np.longdouble):
        with refused(case, TypeError):
            case.call(arguments, out=right.astype(dtype))
    with refused(case, TypeError):
        case.call(arguments, out=right.tolist())
    for other in case.dtypes[:-1]:
        with refused(case, TypeError):
            case.call(arguments, out=right.astype(other), **case.options(F64))
    assert np.all(right == 7)


@pytest.mark.parametrize("case", OUT_ROWS)
def test_a_failed_call_leaves_out_alone(case):
    arguments = arguments_of(case)
    out = np.full(call_all(case, arguments)[0].shape, 7.0)
    failures = 0
    for path in array_paths(arguments):
        array = get_path(arguments, path)
        for bad in (np.zeros(array.shape, object), np.full(array.shape, np.nan), array[..., None, None, None]):
            try:
                case.call(set_path(arguments, path, bad), out=out)
            except (TypeError, ValueError, IndexError):
                failures += 1
                assert np.all(out == 7)
            else:
                out[...] = 7
    assert failures or not array_paths(arguments)


@pytest.mark.parametrize("case", OUT_ROWS)
def test_overlapping_out(case):
    """Every array of the result's dtype in turn shares its memory with out, shifted by a few elements."""
    arguments = arguments_of(case)
    wanted = call_all(case, arguments)[0]
    for path in array_paths(arguments):
        array = get_path(arguments, path)
        if array.dtype != wanted.dtype:
            continue
        for shift in (0, 1, 7):
            for backwards in (False, True):
                room = np.empty(max(array.size, wanted.size) + shift)
                source, out = room[: array.size].reshape(array.shape), room[shift : shift + wanted.size]
                out = (out[::-1] if backwards else out).reshape(wanted.shape)
                source[...] = array
                message = ""
                try:
                    case.call(set_path(arguments, path, source), out=out)
                except ValueError as error:  # refused is as good as right
                    message = str(error)
                assert "out has" in message or same_bits(out, wanted), (path, shift, backwards)
    assert wanted.size


def test_rope_in_place(rng, isa):
    for dtype in (np.float16, np.float32, np.float64):
        x = rng.standard_normal((3, 9, 16)).astype(dtype)
        for view in (x.copy(), reversed_axes(x), step_two(x), unaligned(x)):
            wanted = posenc.rope(view.copy(), 9, np.ones(4), layout="half", rotary_dim=8, out_layout="interleaved")
            result = posenc.rope(view, 9, np.ones(4), layout="half", rotary_dim=8, out_layout="interleaved", out=view)
            assert result is view
            assert same_bits(view, wanted)


# ---- memory ----


class Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]  # fmt: skip  # noqa: SIM905, E501


def bytes_in_use():
    """Bytes that malloc has handed out, exactly where glibc tells, else none."""
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        return 0
    mallinfo.restype = Mallinfo
    info = mallinfo()
    return info.uordblks + info.hblkhd


@pytest.fixture(scope="module")
def frozen():
    """What torch and pytest hold is not searched again at each collection: that took half a second each."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def growth(call, times):
    """(bytes, Python blocks) that `times` calls leave behind, after some calls for the caches."""
    for _ in range(64):
        call()
    gc.collect()
    bytes_before, blocks_before = bytes_in_use(), sys.getallocatedblocks()
    for _ in range(times):
        call()
    gc.collect()
    return bytes_in_use() - bytes_before, sys.getallocatedblocks() - blocks_before


def assert_no_leak(call, times):
    """A leak of the smallest object is 16 bytes or a block per call; a tenth of that is caches that settle, which takes
    NumPy 1.23 a thousand calls. What leaks does so in every round."""
    for _ in range(4):
        in_bytes, in_blocks = growth(call, times)
        if in_bytes < 1.6 * times + 4096 and in_blocks < 0.1 * times + 64:
            return
    assert in_bytes < 1.6 * times + 4096
    assert in_blocks < 0.1 * times + 64


def calls_of(case):
    """A call that succeeds, its gradient, and calls that fail in Python and in C."""
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
def test_no_leak(case, full, frozen):
    times = 10_000 if full else 500
    arguments, good, bad = calls_of(case)
    references = [sys.getrefcount(get_path(arguments, path)) for path in array_paths(arguments)]
    assert_no_leak(good, times)
    assert_no_leak(bad, times)
    assert references == [sys.getrefcount(get_path(arguments, path)) for path in array_paths(arguments)]


# ---- the floating-point environment ----

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
    """A kernel that overflows on purpose raises no NumPy warning, here or in a thread."""
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


# ---- sizes past 2**31 ----


@pytest.fixture
def far_rows(tmp_path):
    """(2, 3, d) in a sparse file: rows 2**30 + 7 float32 apart, the two halves 2**32 elements."""

    def make(d, values):
        row, half = 2**30 + 7, 2**32
        room = np.memmap(tmp_path / "sparse", np.float32, "w+", shape=(half + 3 * row + d,))
        view = np.lib.stride_tricks.as_strided(room, (2, 3, d), (half * 4, row * 4, 4))
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
    """The window makes it fast: nearly every tile is empty."""
    n = 70_000
    q, k, v = rng.standard_normal((3, 1, n, 4)).astype(np.float32)
    out = posenc.attention(q, k, v, window=(3, 3))
    some = slice(n - 10, n)
    part = posenc.attention(q[:, some], k[:, n - 20 :], v[:, n - 20 :], window=(3, 3), align="end")
    np.testing.assert_allclose(out[:, some], part, rtol=0, atol=2**-20)  # a softmax over 7 keys in float32, |v| < 8


def test_bfloat16_without_ml_dtypes_is_not_needed(run_python):
    """ml_dtypes is optional: nothing imports it."""
    done = run_python("import sys, posenc; posenc.sinusoidal(2, 4); print('ml_dtypes' in sys.modules)")
    assert done.stdout.strip() == "False", done.stderr
    assert BF16 is None or posenc.sinusoidal(2, 4, dtype=BF16).dtype == BF16


def test_out_over_positions_and_segments():
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(1, 256, 4)), rng.normal(size=(1, 256, 4)), rng.normal(size=(1, 256, 1))
    for kind, dtype in (("positions", np.float64), ("segments", np.int64)):
        buffer = (rng.permutation(256) // 3).astype(dtype)
        names = {f"q_{kind}": buffer, f"k_{kind}": buffer}
        want = posenc.attention(q, k, v, causal=True, **{name: array.copy() for name, array in names.items()})
        got = posenc.attention(q, k, v, causal=True, **names, out=buffer.view(np.float64).reshape(1, 256, 1))
        assert (got == want).all()


def test_out_over_positions_that_are_no_array():
    buffer = np.empty(4000)
    buffer[:2000] = np.arange(2000) + 0.5
    want = posenc.sinusoidal(buffer[:2000].copy(), 2, dtype=np.float64)
    assert (posenc.sinusoidal(memoryview(buffer[:2000]), 2, out=buffer.reshape(2000, 2)) == want).all()


W = np.ones(2)


def test_the_first_array_decides_the_dtype():
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(2, 3)).astype(np.float32), rng.normal(size=(2, 3))]
    assert posenc.merge_attention(parts, [np.zeros(2), np.zeros(2)])[0].dtype == np.float32
    assert posenc.rope_table(2, W, dtype=None)[0].dtype == np.float32
