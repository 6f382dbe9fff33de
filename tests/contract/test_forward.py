"""Every Case on every instruction set: values against the oracle, dtypes, memory layouts, rows of a batch."""

import numpy as np
import pytest
from cases import CASES, F64, SIZES, map_arrays
from cases.layouts import LAYOUTS, plain, same_bits

SAMPLED = (0, 1, 2, 3, 8, 17, 33, 65, 97)
ROWS = [pytest.param(case, dtype, id=f"{case.name}-{dtype}") for case in CASES for dtype in case.dtypes]
CASE_ROWS = [pytest.param(case, id=case.name) for case in CASES]


def sizes(case, full):
    return [n for n in (SIZES if full else SAMPLED) if n >= case.least]


def assert_close(case, results, arguments, dtype):
    expected = case.expect(arguments)
    assert len(results) == len(expected)
    for result, e, bound in zip(results, expected, case.bounds(expected, dtype, arguments), strict=True):
        result = np.asarray(result, np.float64)
        assert result.shape == e.shape
        finite = np.isfinite(e)
        np.testing.assert_array_equal(result[~finite], e[~finite])
        excess = np.abs(result[finite] - e[finite]) - bound[finite]
        worst = excess.max(initial=-np.inf)
        assert worst <= 0, f"{case.name} {dtype}: {worst} more than the bound {bound[finite][excess.argmax()]}"


@pytest.mark.parametrize(("case", "dtype"), ROWS)
def test_values(case, dtype, isa, full):
    for n in sizes(case, full):
        arguments = case.arguments(n, dtype)
        results = case.call(arguments, **case.options(dtype))
        assert_close(case, results, arguments, dtype)
        arrays = [r for r in results if isinstance(r, np.ndarray)]
        assert [r.dtype for r in arrays] == list(case.result_dtypes(dtype, len(arrays)))


@pytest.mark.parametrize(("case", "dtype"), ROWS)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_layout_changes_no_bit(case, dtype, layout, full):
    for n in sizes(case, full) if full else (1, 3, 17):
        laid = map_arrays(layout, case.arguments(max(n, case.least), dtype))
        options = case.options(dtype)
        given, wanted = case.call(laid, **options), case.call(map_arrays(plain, laid), **options)
        assert all(same_bits(a, b) for a, b in zip(given, wanted, strict=True))


@pytest.mark.parametrize(("case", "dtype"), ROWS)
def test_rows_of_a_batch_do_not_matter_to_each_other(case, dtype):
    """The first entry of every leading axis has the same bits alone and among others."""
    arguments = case.arguments(9, dtype)
    leading = {a: letters.split() for a, letters in case.axes.items() if letters.split()[0] == "b"}
    firsts = {a: arguments[a][:1] for a in leading}
    results = case.call({**arguments, **firsts}, **case.options(dtype))
    whole = case.call(arguments, **case.options(dtype))
    assert all(same_bits(a, np.asarray(b)[: len(a)] if np.ndim(a) else b) for a, b in zip(results, whole, strict=True))


@pytest.mark.parametrize("case", [c for c in CASES if "dtype" in c.parameters], ids=lambda case: case.name)
def test_dtype_is_float32_unless_given(case):
    arguments = case.arguments(5)
    assert {r.dtype for r in case.call(arguments)} == {np.dtype(np.float32)}
    for dtype in ("float16", np.float64, ">f4"):
        results = case.call(arguments, dtype=dtype)
        assert {r.dtype for r in results} == {np.dtype(dtype).newbyteorder("=")}
    if case.takes_out:
        shape = case.call(arguments)[0].shape
        assert case.call(arguments, out=np.empty(shape, np.float16))[0].dtype == np.float16


@pytest.mark.parametrize("case", [c for c in CASES if c.data], ids=lambda case: case.name)
def test_integers_are_taken_as_float64(case):
    wide = map_arrays(lambda a: np.rint(8 * np.where(np.isfinite(a), a, 0)) if a.dtype == F64 else a, case.arguments(5))
    whole = case.cast(wide, np.int32)
    results = case.call(whole)
    assert results[0].dtype == np.float64
    assert all(same_bits(a, b) for a, b in zip(results, case.call(case.cast(whole, F64)), strict=True))


@pytest.mark.parametrize("case", CASE_ROWS)
@pytest.mark.sweep
def test_real_arguments_are_accepted(case):
    """The arguments of the benchmarks are valid and give finite results."""
    results = case.call(case.real_arguments())
    assert all(np.isfinite(np.asarray(r, np.float64)).all() for r in results if np.size(r) < 1 << 22)
    assert sum(np.size(r) for r in results) > 100
