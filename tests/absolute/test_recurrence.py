"""Recurrent encodings: the accuracy of the gates of a GRU, and layers over inputs."""

import numpy as np
import pytest

import posenc
from posenc import reference


def test_gru_gates_are_accurate(rng, isa):
    """For gates of any size m and z are within 8 ulps, and so is the state between them."""
    c = 64
    bias = np.zeros((2, 3 * c))
    bias[0, c : 2 * c] = np.linspace(-40, 40, c)
    bias[0, 2 * c :] = rng.standard_normal(c)
    p0 = rng.standard_normal(c)
    ours = posenc.recurrent(p0, np.zeros((3 * c, c)), bias, 1, cell="gru", include_p0=False)[0]
    wide = bias.astype(np.longdouble)
    m, z = np.tanh(wide[0, 2 * c :]), 1 / (1 + np.exp(-wide[0, c : 2 * c]))
    wanted = reference.recurrent(p0, np.zeros((3 * c, c)), wide, 1, cell="gru", include_p0=False)[0]
    assert np.abs((ours - wanted) / (np.abs(m) + z * np.abs(p0))).max() <= 8 * 2.0**-53
    far = posenc.recurrent(
        np.ones(c), np.zeros((3 * c, c)), bias * (np.arange(3 * c) < 2 * c), 1, cell="gru", include_p0=False
    )[0]
    # with m = 0 and p = 1 the state is z; without FMA the exponent of exp(-|x|) is off by half an ulp
    lost = np.maximum(-bias[0, c : 2 * c], 0) if isa == "base" else 0
    assert np.all(np.abs(far / z - 1) <= (6 + lost) * 2.0**-53)


def layer(rng, c=5, e=3, n=9):
    weight, input_weight = rng.standard_normal((c, c)) / 3, rng.standard_normal((c, e))
    return {
        "p0": rng.standard_normal(c),
        "weight": weight,
        "bias": rng.standard_normal(c),
        "n": n,
        "inputs": rng.standard_normal((2, n, e)),
        "input_weight": input_weight,
    }


def test_rows_with_and_without_p0(rng):
    """Row k + 1 reads inputs[k]: without p0 the rows are those after it, and with it the last input is not read."""
    options = layer(rng)
    rows = posenc.recurrent(**options)
    assert rows.shape == (2, 9, 5)
    assert np.array_equal(rows[:, 0], np.broadcast_to(options["p0"], (2, 5)))
    assert np.array_equal(posenc.recurrent(**options, include_p0=False)[:, :-1], rows[:, 1:])
    changed = {**options, "inputs": options["inputs"].copy()}
    changed["inputs"][:, -1] = 1e6
    assert np.array_equal(posenc.recurrent(**changed), rows)
    assert not posenc.recurrent_vjp(np.ones(rows.shape), **options).inputs[:, -1].any()


def test_an_rnn_before_attention_sees_order(rng):
    """Without a recurrent layer, attention gives the same result up to rounding."""
    options = layer(rng, 8, 8, 9)
    words = options.pop("inputs")[0]
    swapped = words[[1, 0, *range(2, 9)]]

    def last(x):
        return posenc.attention(x[None, -1:], x[None], x[None])[0, 0]

    assert np.abs(last(words) - last(swapped)).max() <= 1e-14
    states = [posenc.recurrent(**options, inputs=x, include_p0=False) for x in (words, swapped)]
    assert np.abs(last(states[0]) - last(states[1])).max() > 1e-3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_weight": None}, "input_weight is None; expected an array, because inputs are given"),
        ({"inputs": None}, "input_weight has an array; expected None, because inputs is None"),
        ({"inputs": np.ones((2, 8, 3))}, "inputs has length 8 in axis 1; expected 9"),
        ({"inputs": np.ones(9)}, "inputs has 1 axes; expected at least 2"),
        ({"input_weight": np.ones((5, 4))}, "input_weight has length 4 in axis 1; expected 3"),
        ({"p0": np.ones((3, 5))}, "inputs has length 2 in axis 0; expected 3"),
    ],
)
def test_inputs_that_do_not_fit(change, message, rng):
    options = {**layer(rng), **change}
    with pytest.raises(ValueError, match=f"recurrent: {message}"):
        posenc.recurrent(**options)
    with pytest.raises(ValueError, match=f"recurrent_vjp: {message}"):
        posenc.recurrent_vjp(np.ones((2, 9, 5)), **options)
