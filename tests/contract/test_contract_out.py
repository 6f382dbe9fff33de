"""Inputs are not modified, results own their memory, and `out` may have any layout but not overlap."""

import numpy as np
import pytest
from cases import CASES, F64, array_paths, get_path, set_path
from cases.calls import arguments_of, call_all, one_more, refused
from cases.layouts import read_only, same_bits, transposed

import posenc

ROWS = [pytest.param(case, id=case.name) for case in CASES]
OUT_ROWS = [pytest.param(case, id=case.name) for case in CASES if case.takes_out]


@pytest.mark.parametrize("case", ROWS)
def test_results_own_their_numbers(case):
    """Writing to a result changes no input, no cache and no later result. Views are read-only."""
    arguments = arguments_of(case)
    first = [r for r in call_all(case, arguments) if isinstance(r, np.ndarray)]
    kept = [r.copy() for r in first]
    for result in first:
        if result.flags.writeable:
            result[...] = 77
    again = [r for r in call_all(case, arguments) if isinstance(r, np.ndarray)]
    assert all(same_bits(a, b) for a, b in zip(again, kept, strict=True))


class Subclass(np.ndarray):
    """An array of the user, as np.memmap is one."""


@pytest.mark.parametrize("case", OUT_ROWS)
def test_out_of_a_subclass(case):
    """The call fills it and returns the same object. A matrix has two axes in every shape, so kernels get a view."""
    arguments = arguments_of(case)
    wanted = call_all(case, arguments)[0]
    for layout in (np.copy, transposed):
        for kind in (Subclass, np.matrix) if wanted.ndim == 2 else (Subclass,):
            out = layout(np.full(wanted.shape, 7.0)).view(kind)
            assert case.call(arguments, out=out)[0] is out
            assert same_bits(np.asarray(out), wanted)


@pytest.mark.parametrize("function", ["rope", "rope_nd", "xpos"])
def test_a_matrix_in_place(function):
    x = np.ones((3, 8)).view(np.matrix)
    positions, w = (np.ones((2, 3)), np.ones((2, 4))) if function == "rope_nd" else (3, np.ones(4))
    wanted = getattr(posenc, function)(np.ones((3, 8)), positions, w, layout="half")
    assert getattr(posenc, function)(x, positions, w, layout="half", out=x) is x
    assert same_bits(np.asarray(x), wanted)


@pytest.mark.parametrize("case", OUT_ROWS)
def test_a_failed_call_leaves_out_alone(case):
    """A wrong `out`, and wrong arguments with a right one."""
    arguments = arguments_of(case)
    right = np.full(call_all(case, arguments)[0].shape, 7.0)
    for wrong in (*(one_more(right, axis) for axis in range(right.ndim)), right[None], read_only(right)):
        with refused(case, ValueError):
            case.call(arguments, out=wrong)
    dtypes = (np.int64, np.bool_, np.complex128, object, np.longdouble)
    for wrong in (*(right.astype(dtype) for dtype in dtypes), right.tolist(), np.ma.masked_array(right)):
        with refused(case, TypeError):
            case.call(arguments, out=wrong)
    for dtype in case.dtypes[:-1]:
        with refused(case, TypeError):
            case.call(arguments, out=right.astype(dtype), **case.options(F64))
    for path in array_paths(arguments):
        array = get_path(arguments, path)
        for bad in (np.zeros(array.shape, object), array[..., None, None, None]):
            changed = set_path(arguments, path, bad)
            try:
                case.call(changed)
            except (TypeError, ValueError, IndexError) as error:
                with pytest.raises(type(error)):
                    case.call(changed, out=right)
    assert np.all(right == 7)


def test_out_over_segments():
    """Random calls lay `out` over arguments of its dtype."""
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(1, 256, 4)), rng.normal(size=(1, 256, 4)), rng.normal(size=(1, 256, 1))
    buffer = rng.permutation(256) // 3
    want = posenc.attention(q, k, v, q_segments=buffer.copy(), k_segments=buffer.copy())
    out = buffer.view(np.float64).reshape(1, 256, 1)
    assert (posenc.attention(q, k, v, q_segments=buffer, k_segments=buffer, out=out) == want).all()


def test_out_over_positions_that_are_no_array():
    buffer = np.empty(4000)
    buffer[:2000] = np.arange(2000) + 0.5
    want = posenc.sinusoidal(buffer[:2000].copy(), 2, dtype=np.float64)
    assert (posenc.sinusoidal(memoryview(buffer[:2000]), 2, out=buffer.reshape(2000, 2)) == want).all()


def test_the_first_array_decides_the_dtype():
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(2, 3)).astype(np.float32), rng.normal(size=(2, 3))]
    assert posenc.merge_attention(parts, [np.zeros(2), np.zeros(2)])[0].dtype == np.float32
    assert posenc.sinusoidal(2, 2, dtype=None).dtype == np.float32
    assert posenc.rope_table(2, np.ones(2), dtype=None)[0].dtype == np.float64  # it serves data of any dtype
    assert posenc.rope_table(2, np.ones(2), dtype=np.float16)[1].dtype == np.float16
