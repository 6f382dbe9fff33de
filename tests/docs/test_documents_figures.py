"""docs/explanations/figures.md: numbers in its sentences that no example of the page prints."""

import numpy as np

from posenc import analysis


def test_printed_numbers_of_the_sentences():
    x = analysis.decay([128, 1000], schedule="power", alpha=2.0).real
    y = analysis.decay([128, 1000]).real
    assert [f"{v:.2f}" for v in (y[0] - y[1], x[0] - x[1], y[1] / y[0], x[1] / x[0])] == [
        "0.22",
        "0.04",
        "0.46",
        "0.35",
    ]  # of 128 to 1000; test_s1_exponentials_fall_faster_at_long_range has 1000 to 4000
    far = np.arange(1, 4001)
    assert np.all(abs(analysis.decay(far, schedule="power", alpha=2.0).real) < abs(analysis.decay(far).real))
