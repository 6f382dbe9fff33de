"""Inputs are not modified, results own their memory, and `out` may have any layout but not overlap."""

import numpy as np
import pytest
from cases import CASES, F64, array_paths, get_path, map_arrays, set_path
from cases.calls import arguments_of, call_all, one_more, refused
from cases.layouts import read_only, reversed_axes, same_bits, step_two, transposed, unaligned

import posenc

ROWS = [pytest.param(case, id=case.name) for case in CASES]
OUT_ROWS = [pytest.param(case, id=case.name) for case in CASES if case.takes_out]


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
    """Writing to a result changes no input, no cache and no later result. Views are read-only."""
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


class Subclass(np.ndarray):
    """An array of the user, as np.memmap is one."""


@pytest.mark.parametrize("case", OUT_ROWS)
@pytest.mark.parametrize("layout", [np.copy, transposed], ids=lambda f: f.__name__)
def test_out_of_a_subclass(case, layout):
    """The call fills it and returns the same object. A matrix has two axes in every shape, so kernels get a view."""
    arguments = arguments_of(case)
    wanted = call_all(case, arguments)[0]
    kinds = (Subclass, np.matrix) if wanted.ndim == 2 else (Subclass,)
    for kind in kinds:
        out = layout(np.full(wanted.shape, 7.0)).view(kind)
        assert case.call(arguments, out=out)[0] is out
        assert same_bits(np.asarray(out), wanted)


@pytest.mark.parametrize("function", ["rope", "rope_2d", "xpos"])
def test_a_matrix_in_place(function):
    x = np.ones((3, 8)).view(np.matrix)
    positions, w = (np.ones((2, 3)), np.ones(2)) if function == "rope_2d" else (3, np.ones(4))
    wanted = getattr(posenc, function)(np.ones((3, 8)), positions, w, layout="half")
    assert getattr(posenc, function)(x, positions, w, layout="half", out=x) is x
    assert same_bits(np.asarray(x), wanted)


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
    with refused(case, TypeError):
        case.call(arguments, out=np.ma.masked_array(right))
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
    """Every array of the result's dtype in turn shares memory with out, shifted by several elements; the call is right
    or refused."""
    arguments = arguments_of(case)
    wanted = call_all(case, arguments)[0]
    for path in array_paths(arguments):
        array = get_path(arguments, path)
        if array.dtype != wanted.dtype:
            continue
        for shift in (0, 1, 7):
            for backwards in (False, True):
                buffer = np.empty(max(array.size, wanted.size) + shift)
                source, out = buffer[: array.size].reshape(array.shape), buffer[shift : shift + wanted.size]
                out = (out[::-1] if backwards else out).reshape(wanted.shape)
                source[...] = array
                message = ""
                try:
                    case.call(set_path(arguments, path, source), out=out)
                except ValueError as error:  # a refusal is allowed
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
