"""Inner products of sinusoids against the distance, by schedule."""

import numpy as np
import pytest

import posenc
from posenc import analysis


def test_means_of_inner_products_fall():
    p = posenc.sinusoidal(2049, 128, dtype=np.float64)
    g = p @ p[0] / 64
    assert g[0] == pytest.approx(1, abs=1e-14)
    assert np.abs(g[1:9]).mean() > np.abs(g[64:129]).mean() > np.abs(g[1024:]).mean()


def test_inner_products_tend_to_an_integral():
    t = np.linspace(0, 1, 200_001)
    for dim in (768, 4096):
        p = posenc.sinusoidal(129, dim, dtype=np.float64)
        g = p @ p[0] / (dim / 2)
        for m in (0, 1, 8, 64, 128):
            integrand = np.cos(m * 10000.0**-t)
            integral = (integrand[1:] + integrand[:-1]).sum() / 2 * (t[1] - t[0])
            assert abs(g[m] - integral) <= np.abs(np.diff(integrand)).sum() * 2 / dim + 1e-6


def power(alpha):
    return {"schedule": "power", "alpha": alpha}


def test_values_of_the_integral():
    assert [f"{v:.2g}" for v in np.abs(analysis.decay([1e3, 1e5, 1e7]))] == ["0.25", "0.011", "0.00011"]
    curve = analysis.decay(np.arange(-128, 129)).real
    assert np.abs(curve - curve[::-1]).max() <= 1e-12
    right = curve[128:]
    assert np.all(np.diff(right[[0, 1, 2, 4, 8, 16, 32, 64, 128]]) < 0)
    assert right[0] == 1
    assert right[128] == pytest.approx(0.411, abs=1e-3)


def test_powers_up_to_1_4_cross_the_axis():
    x = np.arange(129)
    assert analysis.decay(x, **power(1)).real.min() == pytest.approx(-0.192, abs=1e-3)
    for alpha in (0.3, 0.5, 0.7, 0.9, 1.1, 1.2, 1.3, 1.4):
        assert analysis.decay(x, **power(alpha)).real.min() < -0.01
    for options in (*(power(alpha) for alpha in (1.5, 1.6, 1.8, 2, 3, 4)), {}, {"base": 1000.0}):
        assert analysis.decay(x, **options).real.min() > 0.01


def test_powers_at_short_distances():
    near = [2, 4, 10]
    exponentials = [analysis.decay(near, **options).real for options in ({}, {"base": 1000.0})]
    for alpha in (1, 2, 3, 4):
        assert np.all(analysis.decay(near, **power(alpha)).real < min(exponentials, key=lambda v: v[0]))


def test_exponentials_at_long_distances():
    curves = [analysis.decay([1000, 4000], **options).real for options in ({}, power(2), power(3), power(4))]
    kept = [end / start for start, end in curves]
    assert [f"{k:.2f}" for k in kept] == ["0.22", "0.49", "0.63", "0.71"]
    assert analysis.decay(618, base=1000.0).real < 0


def test_a_step_changes_far_products_as_well(rng):
    steps = [np.abs(np.diff(analysis.decay(np.arange(a, a + 1001), dim=128).real)).mean() for a in (100, 1000, 10000)]
    assert [f"{s:.3f}" for s in steps] == ["0.017", "0.017", "0.017"]
    limit = analysis.decay([10000, 10001]).real
    assert abs(limit[1] - limit[0]) < 2e-5


def test_a_dominant_diagonal_keeps_the_distance(rng):
    w, n = posenc.sinusoidal_frequencies(32), np.arange(64)
    spread = []
    for other in (0.0, 0.02, 1.0):
        h = np.eye(32) + other * rng.standard_normal((32, 32))
        products = np.diag(analysis.inner_product(n[:, None], n, w, weights=h), 3)
        spread.append(np.ptp(products) / np.abs(products).max())
    assert spread[0] <= 1e-13 < spread[1] < 0.1 < 0.5 < spread[2]


def test_numbers_from_128_to_1000():
    x = analysis.decay([128, 1000], schedule="power", alpha=2.0).real
    y = analysis.decay([128, 1000]).real
    found = [f"{v:.2f}" for v in (y[0] - y[1], x[0] - x[1], y[1] / y[0], x[1] / x[0])]
    assert found == ["0.22", "0.04", "0.46", "0.35"]  # from 128 to 1000
    far = np.arange(1, 4001)
    assert np.all(abs(analysis.decay(far, schedule="power", alpha=2.0).real) < abs(analysis.decay(far).real))


def test_products_of_a_diagonal_and_both_parts(rng):
    (cosine, sine), w, m, n = rng.standard_normal((2, 16)), posenc.sinusoidal_frequencies(32), 9, 4
    direct = cosine * np.cos(m * w) * np.cos(n * w) + sine * np.sin(m * w) * np.sin(n * w)
    parts = analysis.inner_product(m, n, w, weights=(sine, cosine))
    assert abs(parts.total - direct.sum()) <= 1e-13
    assert abs(parts.difference - ((cosine + sine) / 2 * np.cos((m - n) * w)).sum()) <= 1e-13
    assert abs(parts.sum - ((cosine - sine) / 2 * np.cos((m + n) * w)).sum()) <= 1e-13
    assert abs(analysis.inner_product(m, n, w, weights=(cosine, sine)).total - direct.sum()) > 0.1
