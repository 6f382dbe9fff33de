"""Numbers beyond the range of a dtype: one rule for all arguments, and one for all results."""

import numpy as np
import pytest
from cases import CASES, F16, F32, F64, array_paths, get_path, set_path
from cases.bias import BiasCase
from cases.calls import arguments_of

import posenc

EXACT = ("positions", "frequencies", "frequency", "offset", "phase", "times", "rel")
"""Arguments that stay float64 whatever the data are."""
PAST = 1e39
ROWS = [
    pytest.param(case, id=case.name)
    for case in CASES
    if case.data and not (isinstance(case, BiasCase) and case.method == "matrix")  # whose numbers may be infinite
]


@pytest.mark.parametrize("case", ROWS)
def test_arguments_beyond_float32_are_refused(case):
    """With float32 data, a finite number of any argument must fit float32. Infinity may be passed as data."""
    arguments = arguments_of(case, F32)
    for path in array_paths(arguments):
        array = get_path(arguments, path)
        exact = (*EXACT, "cos", "sin") if arguments.get("inverse") else EXACT  # which are divided in float64
        is_exact = any(str(step).endswith(exact) for step in path)
        if is_exact or array.dtype.kind != "f" or not array.size or path == case.data[:1]:
            continue
        far = array.astype(F64)
        far.flat[0] = PAST
        with pytest.raises(ValueError, match=r"numbers beyond float32; expected at most 3.4e\+38 in size, or float64"):
            case.call(set_path(arguments, path, far))
    assert case.call(arguments_of(case, F64))


@pytest.mark.parametrize("case", [row for row in ROWS if row.values[0].gradients])
def test_cotangents_beyond_a_dtype(case):
    """Those of float32 are refused. Gradients beyond their dtype are infinite without a warning of NumPy, which would
    come from a cast that the user did not write. Warnings are errors here."""
    arguments = arguments_of(case, F32)
    expected = case.expect(arguments)
    with pytest.raises(ValueError, match=r"(grad|lse|out) has numbers beyond float32; expected at most"):
        case.vjp(tuple(np.full(np.shape(e), PAST) for e in expected), arguments)
    gradients = case.vjp(tuple(np.full(np.shape(e), 1e30) for e in expected), arguments_of(case, F16))
    assert set(gradients) >= set(case.gradients)


SCALARS = {
    "attention: scale ": lambda x, s: posenc.attention(x, x, x, scale=s),
    "sinusoidal: scale ": lambda x, s: posenc.sinusoidal(2, 4, scale=s, dtype=x.dtype),
    "sinusoidal_vjp: scale ": lambda x, s: posenc.sinusoidal_vjp(x[0], 2, 4, scale=s),
    "cope.logits: scale ": lambda x, s: posenc.cope(np.ones((2, 4))).logits(x, x, scale=s),
    "rope: attention_factor ": lambda x, s: posenc.rope(x, 2, attended(s), layout="half"),
    "rope: attention_factor is": lambda x, s: posenc.rope(x, 2, attended(1 / s), layout="half", inverse=True),
    "rope_table: attention_factor ": lambda x, s: posenc.rope_table(2, attended(s), dtype=x.dtype),
}


def attended(factor):
    return posenc.RopeFrequencies(np.ones(2), factor, 1.0)


@pytest.mark.parametrize("beginning", SCALARS)
def test_scalars_beyond_float32_are_refused(beginning):
    """As infinity, a scale would turn zeros into NaN."""
    call = SCALARS[beginning]
    with pytest.raises(ValueError, match=rf"^{beginning}.*; expected at most (3.4|1.7)e\+38 in size, or float64$"):
        call(np.zeros((1, 2, 4), np.float32), PAST)
    for dtype, factor in ((F32, 1e38), (F64, PAST)):
        result = call(np.zeros((1, 2, 4), dtype), factor)
        assert all(np.isfinite(np.asarray(part, F64)).all() for part in np.atleast_1d(result))


@pytest.mark.parametrize(("name", "arrays"), [("alibi", 1), ("kerple_power", 2), ("kerple_log", 2)])
def test_parameters_in_half_precision_at_far_positions(name, arrays):
    """The gradient with respect to a slope of float16 at a distance of 2**40 is infinite, silently."""
    bias = getattr(posenc, name)(*[np.array([0.5], np.float16)] * arrays)
    gradient = bias.matrix_vjp(np.ones((1, 2, 2)), 2, q_positions=[0, 1], k_positions=[2**40, 2**40 + 1])
    assert all(g.dtype == np.float16 for g in gradient)
    assert np.isneginf(gradient[0][0]) or name == "kerple_log"


def test_the_most_negative_float64_is_a_mask():
    """Additive masks hold the smallest number of their own dtype, so `dense` takes them as -inf."""
    mask = np.zeros((1, 2, 2))
    mask[0, 0, 1] = np.finfo(F64).min
    x = np.eye(2, dtype=F32)[None]
    assert posenc.attention(x, x, x, bias=posenc.dense(mask))[0, 0].tolist() == [1, 0]
    with pytest.raises(ValueError, match=r"^attention: array has numbers beyond float32"):
        posenc.attention(x, x, x, bias=posenc.dense(-mask))


def test_infinite_data_may_be_passed():
    x = np.ones((1, 2, 2), F32)
    assert np.isposinf(posenc.attention(x, x, np.full((1, 2, 2), np.inf))).all()
