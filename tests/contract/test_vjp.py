"""Every gradient of every vjp against central differences of the oracle."""

import itertools
import pickle
from functools import partial

import numpy as np
import pytest
from cases import CASES, DTYPES, array_paths, get_path, map_arrays
from cases.deviation import ALLOWED, cotangents, differences, relative_deviation
from cases.layouts import LAYOUTS, plain, same_bits

import posenc

ROWS = [pytest.param(case, id=case.name) for case in CASES if case.gradients]


@pytest.mark.every_isa
@pytest.mark.parametrize("case", ROWS)
def test_central_differences(case):
    """By entry; random calls compare other lengths in a random direction."""
    for n in (1, 9):
        arguments = case.arguments(n)
        grads = cotangents(case, arguments)
        wanted = {name: differences(case, arguments, grads, path) for name, path in case.gradients.items()}
        for isa in posenc.runtime.isas():
            with posenc.runtime.use_isa(isa):
                gradients = case.vjp(grads, arguments)
            for name, expected in wanted.items():
                assert gradients[name].shape == expected.shape
                assert relative_deviation(gradients[name], expected) <= ALLOWED, (isa, name, n)


@pytest.mark.parametrize("case", ROWS)
def test_dtypes_and_empty_arguments(case):
    """Gradients of data have the dtype of the data; those of positions, offsets and frequencies are float64. Empty
    arguments have gradients of zeros."""
    for dtype in DTYPES if case.data else DTYPES[-1:]:
        for n in (5, 0):
            arguments = case.arguments(n, dtype)
            gradients = case.vjp(tuple(g.astype(dtype) for g in cotangents(case, arguments)), arguments)
            for name, path in case.gradients.items():
                assert gradients[name].shape == np.shape(get_path(arguments, path))
                assert gradients[name].dtype == (dtype if path[0] in case.data else np.float64)
                assert n or not gradients[name].any()


@pytest.mark.parametrize("case", ROWS)
def test_narrow_gradients_follow_the_wide_ones(case):
    """Gradients of float32 data are sums of float32 products, so their entries are off by the roundings of as many
    terms as the largest array has, at the size of the largest entry."""
    arguments = case.arguments(9, np.float32)
    grads = tuple(g.astype(np.float32) for g in cotangents(case, arguments))
    narrow, wide = case.vjp(grads, arguments), case.vjp(grads, case.cast(arguments, np.float64))
    terms = max(np.size(g) for g in grads)
    for name in case.gradients:
        bound = np.sqrt(terms) * 4 * np.finfo(np.float32).eps * max(np.abs(wide[name]).max(), 1)
        assert np.abs(narrow[name] - wide[name]).max() <= bound, name


@pytest.mark.parametrize("case", ROWS)
def test_layout_changes_no_bit(case):
    """Of arguments, cotangents, and the results that a gradient reads. Gradients have native byte order, as the results
    of ufuncs have."""
    arguments = case.arguments(17, np.float32)
    grads = tuple(g.astype(np.float32) for g in cotangents(case, arguments))
    for layout in LAYOUTS:
        laid, laid_grads = map_arrays(layout, arguments), tuple(map(layout, grads))
        found, wanted = case.vjp(laid_grads, laid), case.vjp(tuple(map(plain, laid_grads)), map_arrays(plain, laid))
        assert all(same_bits(found[name], wanted[name]) for name in case.gradients), layout.__name__


SUMMED = {
    "dense with a row": lambda x: posenc.dense(x[:, :1]),
    "dense with a column": lambda x: posenc.dense(x[..., :1]),
    "toeplitz": lambda x: posenc.toeplitz(np.resize(x[:, 0], (3, 135))),
    "tupe": lambda x: posenc.tupe(x, x),
}


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_layout_changes_no_bit_of_a_long_sum(layout, rng):
    """NumPy and its BLAS add the numbers of large arrays in an order that depends on the strides."""
    x, grad = rng.standard_normal((3, 68, 68)), layout(rng.standard_normal((3, 2, 3, 68, 68)))
    for name, make in SUMMED.items():
        bias = make(x)
        for found, wanted in zip(bias.matrix_vjp(grad, 68, 68), bias.matrix_vjp(plain(grad), 68, 68), strict=True):
            assert found is wanted is None or same_bits(found, wanted), name
    arrays = [layout(rng.standard_normal((2, 3, 68, 30)).astype(np.float32)) for _ in range(4)]
    scale = np.array([0.5, 0.7, 1.0])
    found, wanted = (posenc.attention_vjp(*given, scale=scale).scale for given in (arrays, map(plain, arrays)))
    assert same_bits(found, wanted)


@pytest.mark.parametrize("case", ROWS)
def test_a_cotangent_of_another_shape(case):
    arguments = case.arguments(5)
    first, *rest = cotangents(case, arguments)
    axes = range(first.ndim - (case.function == "complex_order"))  # whose last axis is the pair of reals
    for wrong in (first[0], *(np.concatenate([first, first], axis) for axis in axes)):
        with pytest.raises(ValueError, match=r"^\w+(\.\w+)?: grad (has|is) .+; expected "):
            case.vjp((wrong, *rest), arguments)


def arrays_of(value):
    """The arrays of a nest of tuples, in their order."""
    found = []
    map_arrays(found.append, value)
    return found


def share_memory(arrays, others):
    """Whether two arrays of a list, or one of them and one of the others, have a byte in common."""
    pairs = [*itertools.combinations(arrays, 2), *itertools.product(arrays, others)]
    return any(np.shares_memory(one, other) for one, other in pairs)


@pytest.mark.parametrize("case", ROWS)
def test_gradients_are_memory_of_their_own(case):
    """A training step may scale or clip them in place: neither another gradient nor an argument changes."""
    arguments = case.arguments(5)
    grads = cotangents(case, arguments)
    gradient = case.gradient(grads, arguments)
    given = [get_path(arguments, path) for path in array_paths(arguments)]
    found = arrays_of(gradient)
    assert found
    assert all(array.flags.writeable for array in found)
    assert not share_memory(found, [*given, *grads])
    before = [array.copy() for array in found]
    case.gradient(tuple(2 * g for g in grads), arguments)
    assert all(map(same_bits, found, before))


def given_back(grad, rel, width):
    """A gradient in the same buffer at each call."""
    BUFFER[0][...] = (grad * rel**2).sum()
    return BUFFER


BUFFER = (np.zeros(1),)


def as_given(rel, width):
    return -(width * rel**2)


def window(width, function=as_given):
    return posenc.distance_function(function, arrays=[np.array([width])], vjp=given_back)


def keeps(rel, width, of_call={}):  # noqa: B006 it is what the function keeps from call to call
    values = of_call.setdefault(len(rel), np.zeros(len(rel)))
    values[...] = as_given(rel, width)
    return values


def test_gradients_of_given_arrays_are_memory_of_their_own(rng):
    """Of operators whose gradient is the cotangent itself, of their sums, and of functions that return one buffer."""
    grad, heads, n = rng.standard_normal((2, 4, 4)), 2, 4
    dense = posenc.dense(rng.standard_normal((heads, n, n)))
    toeplitz = posenc.toeplitz(rng.standard_normal((heads, 2 * n - 1)))
    for bias in (dense, toeplitz, dense + dense, toeplitz + toeplitz, dense + toeplitz + dense):
        for cotangent in (grad, grad.astype(np.float32)):
            assert not share_memory(arrays_of(bias.matrix_vjp(cotangent, n)), [cotangent])
    sums = rng.standard_normal((heads, 2 * n - 1))
    assert not share_memory(arrays_of(toeplitz.matrix_vjp(sums, n)), [sums])

    x = rng.standard_normal((4, heads, n, 3))
    for dtype in (np.float32, np.float64):
        for biases in ([dense, dense], [toeplitz, toeplitz], [dense + dense, toeplitz, toeplitz + dense]):
            gradient = posenc.attention_vjp(*x.astype(dtype), bias=biases)
            assert not share_memory(arrays_of(tuple(gradient)), list(x))

    q = np.ones((1, 2, 1))
    twice = posenc.attention_vjp(q, q, q, q * [[1], [2]], bias=[window(1.0), window(2.0)])
    alone = [posenc.attention_vjp(q, q, q, q * [[1], [2]], bias=window(1.0) + window(2.0)).bias[0][i] for i in (0, 1)]
    assert all(map(same_bits, arrays_of(twice.bias), arrays_of(tuple(alone))))
    first = window(1.0).matrix_vjp(np.ones((1, 2, 2)), 2)
    window(1.0).matrix_vjp(np.zeros((1, 2, 2)), 2)
    assert first.arrays[0] == 2
    kept, fresh = (
        posenc.attention(q, q, q * [[1], [3]], bias=[window(1.0, f), window(2.0, f)]) for f in (keeps, as_given)
    )
    assert same_bits(kept, fresh)


@pytest.mark.parametrize("case", ROWS)
def test_pickled(case):
    """A process of a pool sends its gradients back by pickle, those of operators inside attention too."""
    arguments = case.arguments(3)
    gradient = case.gradient(cotangents(case, arguments), arguments)
    again = pickle.loads(pickle.dumps(gradient))
    assert type(again) is type(gradient)
    assert repr(again) == repr(gradient)


def with_first(array, first):
    """A copy whose first entry is another."""
    changed = array.copy()
    changed.flat[:1] = first
    return changed


@pytest.mark.parametrize("case", [row for row in ROWS if row.values[0].data])
def test_infinite_data_give_no_warning(case):
    """Infinities and NaNs pass through without a RuntimeWarning, which pytest makes an error."""
    arguments = case.arguments(9)
    for infinite in (np.inf, np.nan):
        spoiled = {**arguments}
        for name in case.data:
            if name in arguments:
                spoiled[name] = map_arrays(partial(with_first, first=infinite), arguments[name])
        grads = cotangents(case, arguments)
        case.call(spoiled)
        case.vjp(grads, spoiled)
    case.vjp(tuple(np.full_like(g, np.nan) for g in grads), arguments)
