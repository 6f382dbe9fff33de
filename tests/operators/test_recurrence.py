"""Recurrent encodings: the accuracy of the gates of a GRU."""

import numpy as np

import posenc


def test_gru_gates_are_accurate(rng, isa):
    """For gates of any size m and z are within 8 ulps, and so is the state between them."""
    c = 64
    bias = np.zeros((2, 3 * c))
    bias[0, c : 2 * c] = np.linspace(-40, 40, c)
    bias[0, 2 * c :] = rng.standard_normal(c)
    p0 = rng.standard_normal(c)
    ours = posenc.recurrent(p0, np.zeros((3 * c, c)), bias, 1, cell="gru", include_p0=False)[0]
    z = 1 / (1 + np.exp(-bias[0, c : 2 * c].astype(np.longdouble)))
    m = np.tanh(bias[0, 2 * c :].astype(np.longdouble))
    wanted = (1 - z) * m + z * p0
    assert np.abs((ours - wanted) / (np.abs(m) + z * np.abs(p0))).max() <= 8 * 2.0**-53
    far = posenc.recurrent(np.ones(c), np.zeros((3 * c, c)), bias * (np.arange(3 * c) < 2 * c), 1, cell="gru",
                           include_p0=False)[0]  # fmt: skip
    # with m = 0 and p = 1 the state is z; without FMA the exponent of exp(-|x|) is off by half an ulp
    lost = np.maximum(-bias[0, c : 2 * c], 0) if isa == "base" else 0
    assert np.all(np.abs(far / z - 1) <= (6 + lost) * 2.0**-53)
