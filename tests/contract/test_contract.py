"""Arguments of every function: shapes, dtypes, numbers and tensors, generated from the axes of each Case."""

import numpy as np
import pytest
from cases import CASES, F64, array_paths, get_path, map_arrays, set_path
from cases.calls import arguments_of, call_all, one_more, refused
from cases.layouts import same_bits

import posenc

ROWS = [pytest.param(case, id=case.name) for case in CASES]


def letters(text):
    """[(letter, is tied, may be missing)] of a string of axes."""
    return [(word.rstrip("!?"), "!" in word, "?" in word) for word in text.split()]


@pytest.mark.parametrize("case", ROWS)
def test_each_length_off_by_one(case):
    arguments = arguments_of(case)
    users = [letter for text in case.axes.values() for letter in {letter for letter, _, _ in letters(text)}]
    tried = 0
    for argument, text in case.axes.items():
        assert arguments[argument].ndim == len(text.split())
        for axis, (letter, tied, _) in enumerate(letters(text)):
            if letter != "1" and (tied or users.count(letter) > 1):
                with refused(case, ValueError):
                    call_all(case, {**arguments, argument: one_more(arguments[argument], axis)})
                tried += 1
    assert tried or not any("!" in text for text in case.axes.values())


@pytest.mark.parametrize("case", ROWS)
def test_numbers_of_axes(case):
    """Too few, and so many that NumPy's broadcasting ends with an error that names no argument."""
    arguments = arguments_of(case)
    for argument, text in case.axes.items():
        array = arguments[argument]
        needed = sum(letter not in ("b", "1") and not missing for letter, _, missing in letters(text))
        if needed:
            fewer = array.astype(F64) if "position" in argument else array  # a 0-d integer is a length
            with refused(case, ValueError, TypeError):
                call_all(case, {**arguments, argument: fewer[(0,) * (array.ndim - needed + 1)]})
    most = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32
    for path in array_paths(arguments):
        array = get_path(arguments, path)
        for axes in {33, most} if most > 32 and "arrays" not in path else ():  # of a user's function
            with refused(case, ValueError, TypeError):
                call_all(case, set_path(arguments, path, array.reshape((1,) * (axes - array.ndim) + array.shape)))
    assert len(case.axes) <= len(arguments)


WRONG = {
    "f": (np.bool_, np.complex64, np.complex128, object, np.longdouble, "U8", "M8[s]"),
    "i": (np.bool_, np.complex128, object, "U8"),
    "b": (np.int8, np.uint8, np.int64, np.float32, object),
}


@pytest.mark.parametrize("case", ROWS)
def test_wrong_dtype(case):
    """NumPy would drop the mask of a masked array, and a masked number would be taken as it is."""
    arguments = arguments_of(case)
    paths = array_paths(arguments)
    for path in paths:
        array = get_path(arguments, path)
        wrong = [np.zeros(array.shape, dtype) for dtype in WRONG[array.dtype.kind]]
        for value in (*wrong, np.ma.masked_array(array, mask=False)):
            with refused(case, TypeError, path=path):
                call_all(case, set_path(arguments, path, value))
    assert all(get_path(arguments, path).dtype.kind in WRONG for path in paths)


@pytest.mark.parametrize("case", ROWS)
def test_numbers_that_must_be_finite_and_exact(case):
    """Positions, offsets, frequencies and parameters of a Bias are finite. Data may be anything, and dense and a sink
    may have -inf. Positions are integers of float64."""
    arguments = arguments_of(case)
    for path in array_paths(arguments):
        array = get_path(arguments, path)
        if path[0] in case.data or path[-1] == "array" or array.dtype.kind == "b" or "segments" in path[0]:
            continue
        for value in (np.nan, np.inf) if path == ("sink",) else (np.nan, np.inf, -np.inf):
            bad = array.astype(F64)
            bad.flat[-1] = value
            with refused(case, TypeError if path[0] in case.ids else ValueError, path=path):
                call_all(case, set_path(arguments, path, bad))
        if path[-1] not in ("positions", "q_positions", "k_positions", "offset", "position") or len(path) > 1:
            continue
        for position in (2**53 + 1, -(2**53) - 1, 2.0**53 + 2, 2**63, 1e300):
            far = np.full(array.shape, position)
            kinds = (IndexError,) if far.dtype.kind in "iu" else (TypeError,)
            with refused(case, *(kinds if path[0] in case.ids else (ValueError,))):
                call_all(case, {**arguments, path[0]: far})
    assert case.call(arguments)


class Exporter:
    """A NumPy array that is accessible by the DLPack protocol alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("case", ROWS)
def test_lists_and_dlpack(case):
    arguments = arguments_of(case)
    lists = {
        a: v if isinstance(v, tuple) and a == "bias" else map_arrays(np.ndarray.tolist, v) for a, v in arguments.items()
    }
    assert all(same_bits(a, b) for a, b in zip(call_all(case, lists), call_all(case, arguments), strict=True))
    arguments = arguments_of(case, np.float32 if case.data else F64)
    exported = map_arrays(lambda a: Exporter(a) if a.dtype.kind != "b" else a, arguments)
    assert all(same_bits(a, b) for a, b in zip(case.call(exported), case.call(arguments), strict=True))


class Broken:
    """An array of the user whose protocol fails."""

    def __init__(self, error):
        self.error = error

    def __dlpack__(self, **options):
        raise self.error

    def __dlpack_device__(self):
        return (1, 0)


@pytest.mark.parametrize("case", ROWS)
def test_exceptions_of_a_protocol(case):
    """They become a TypeError that names the argument, and are its cause."""
    arguments = arguments_of(case)
    errors = (AttributeError, RecursionError)
    for argument in [name for name, value in arguments.items() if isinstance(value, np.ndarray)]:
        for error in errors:
            with pytest.raises(TypeError, match=rf": {argument} has type Broken; expected an array .*mine") as caught:
                case.call({**arguments, argument: Broken(error("mine"))})
            assert type(caught.value.__cause__) is error


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_other_exceptions_of_a_protocol_pass(error):
    with pytest.raises(error, match="mine"):
        posenc.combine(Broken(error("mine")), 1.0)
