"""Every Case on every instruction set: values against the oracle, dtypes, memory layouts, rows of a batch."""

import numpy as np
import pytest
from cases import CASES, F32, F64, map_arrays
from cases.layouts import LAYOUTS, plain, same_bits

SIZES = (0, 1, 2, 3, 8, 17, 33, 65, 97)
"""Lengths around every vector width, the unrolled loops and the 64-row block."""
OF_16_BITS = (1, 8, 65)
"""Numbers of 16 bits are converted to float32, with the same kernels."""
ROWS = [pytest.param(case, id=case.name) for case in CASES]


def assert_close(case, results, arguments, dtype):
    expected = case.expect(arguments)
    for result, e, bound in zip(results, expected, case.bounds(expected, dtype, arguments), strict=True):
        result = np.asarray(result, np.float64)
        assert result.shape == e.shape
        finite = np.isfinite(e)
        np.testing.assert_array_equal(result[~finite], e[~finite])
        excess = np.abs(result[finite] - e[finite]) - bound[finite]
        worst = excess.max(initial=-np.inf)
        assert worst <= 0, f"{case.name} {dtype}: {worst} more than the bound {bound[finite][excess.argmax()]}"


@pytest.mark.parametrize("case", ROWS)
def test_values(case, isa):
    for dtype in case.dtypes:
        for n in SIZES if dtype in (F32, F64) else OF_16_BITS:
            arguments = case.arguments(max(n, case.least), dtype)
            results = case.call(arguments, **case.options(dtype))
            assert_close(case, results, arguments, dtype)
            arrays = [r for r in results if isinstance(r, np.ndarray)]
            assert [r.dtype for r in arrays] == list(case.result_dtypes(dtype, len(arrays)))


@pytest.mark.parametrize("case", ROWS)
def test_layout_changes_no_bit(case):
    """Each layout in one of the dtypes; random calls draw the combinations, and allow for rounding errors."""
    for i, layout in enumerate(LAYOUTS):
        dtype, n = case.dtypes[i % len(case.dtypes)], max((17, 3)[i % 2], case.least)
        laid, options = map_arrays(layout, case.arguments(n, dtype)), case.options(dtype)
        given, wanted = case.call(laid, **options), case.call(map_arrays(plain, laid), **options)
        assert all(same_bits(a, b) for a, b in zip(given, wanted, strict=True)), layout.__name__


@pytest.mark.parametrize("case", ROWS)
def test_rows_of_a_batch_do_not_matter_to_each_other(case):
    """The first entry of every leading axis has the same bits alone and among others."""
    leading = [name for name, letters in case.axes.items() if letters.split()[0] == "b"]
    for dtype in case.dtypes:
        arguments, options = case.arguments(9, dtype), case.options(dtype)
        results = case.call({**arguments, **{name: arguments[name][:1] for name in leading}}, **options)
        for a, b in zip(results, case.call(arguments, **options), strict=True):
            assert same_bits(a, np.asarray(b)[: len(a)] if np.ndim(a) else b)


@pytest.mark.parametrize("case", [row for row in ROWS if "dtype" in row.values[0].parameters])
def test_dtype_is_float32_unless_given(case):
    """A table for `rope_by_table` is float64: it serves data of any dtype."""
    arguments, default = case.arguments(5), np.float64 if case.function == "rope_table" else np.float32
    assert {r.dtype for r in case.call(arguments)} == {np.dtype(default)}
    for dtype in ("float16", np.float64, ">f4"):
        results = case.call(arguments, dtype=dtype)
        assert {r.dtype for r in results} == {np.dtype(dtype).newbyteorder("=")}
    if case.takes_out:
        shape = case.call(arguments)[0].shape
        assert case.call(arguments, out=np.empty(shape, np.float16))[0].dtype == np.float16


@pytest.mark.parametrize("case", [row for row in ROWS if row.values[0].data])
def test_integers_are_taken_as_float64(case):
    wide = map_arrays(lambda a: np.rint(8 * np.where(np.isfinite(a), a, 0)) if a.dtype == F64 else a, case.arguments(5))
    whole = case.cast(wide, np.int32)
    results = case.call(whole)
    assert results[0].dtype == np.float64
    assert all(same_bits(a, b) for a, b in zip(results, case.call(case.cast(whole, F64)), strict=True))


@pytest.mark.parametrize("case", [row for row in ROWS if row.values[0].real])
@pytest.mark.sweep
def test_real_arguments_are_accepted(case):
    """The arguments of the benchmarks are valid and give finite results."""
    results = case.call(case.real_arguments())
    assert all(np.isfinite(np.asarray(r, np.float64)).all() for r in results if np.size(r) < 1 << 22)
    assert sum(np.size(r) for r in results) > 100
