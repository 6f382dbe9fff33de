"""Numbers of sinusoids: rows, inner products, distances."""

import numpy as np
import pytest

import posenc


def test_position_one_of_768_channels():
    w, p = posenc.sinusoidal_frequencies(768), posenc.sinusoidal([1], 768, dtype=np.float64)[0]
    assert [f"{x:.2f}" for x in p[[0, 1, 2, 3, 766, 767]]] == ["0.84", "0.54", "0.83", "0.56", "0.00", "1.00"]
    assert (f"{1 / w[1]:.2f}", f"{1 / w[1]:.4f}", f"{1 / w[383]:.2f}") == ("1.02", "1.0243", "9763.00")
    assert (f"{np.sin(1 / 1.02):.2f}", f"{np.cos(1 / 1.02):.2f}") == ("0.83", "0.56")
    assert f"{p[766]:.8f}" == f"{np.sin(1 / 9763.00):.8f}" == "0.00010243"
    assert f"{1 - p[767]:.1e}" == "5.2e-09"


@pytest.mark.parametrize(
    ("position", "turns", "reduced", "right"),
    [
        (1, "0.31", "0.31", "0.32"),
        (2, "0.64", "0.64", "0.64"),
        (3, "0.96", "0.96", "0.95"),
        (6, "1.91", "1.91", "1.91"),
        (7, "2.23", "0.23", "2.23"),
        (8, "2.54", "0.54", "2.55"),
    ],
)
def test_multiples_of_pi(position, turns, reduced, right):
    assert f"{position / np.pi:.2f}" == right
    p = posenc.sinusoidal([position], 768, dtype=np.float64)[0, 0]
    for printed in (turns, reduced):
        assert abs(p - np.sin(float(printed) * np.pi)) < 0.01 * np.pi
    assert abs(p - np.sin(float(right) * np.pi)) <= 0.005 * np.pi


def test_indices_of_768_channels():
    p = posenc.sinusoidal(512, 768, dtype=np.float64)
    angle = np.arange(512)[:, None] * posenc.sinusoidal_frequencies(768)
    assert (p.shape, angle.shape) == ((512, 768), (512, 384))
    assert np.abs(p[:, 0:767:2] - np.sin(angle)).max() <= 1e-13  # angles to 511, rounded to 6e-14
    assert np.abs(p[:, 1:768:2] - np.cos(angle)).max() <= 1e-13


@pytest.mark.parametrize("offset", [1, 12345, -(10**6)])
def test_addition_theorem(offset):
    p = posenc.sinusoidal(64, 32, dtype=np.float64)
    shifted = posenc.sinusoidal(np.arange(64) + offset, 32, dtype=np.float64)
    matrix = posenc.shift_matrix(offset, 32)
    assert np.abs(p @ matrix.T - shifted).max() <= 2e-15
    assert np.abs(np.diag(matrix, 1)[::2] - shifted[0, 0::2]).max() <= 4e-16
    assert np.abs(np.diag(matrix)[::2] - shifted[0, 1::2]).max() <= 4e-16
    assert np.abs(posenc.shift(p, offset) - shifted).max() <= 2e-15
    assert np.abs(matrix @ matrix.T - np.eye(32)).max() <= 2e-15


def test_inner_products_have_no_sign():
    p = posenc.sinusoidal(64, 128, dtype=np.float64)
    gram = p @ p.T
    assert np.abs(np.diag(gram, 3)[0] - np.diag(gram, -3)).max() <= 64 * 1e-15
    q, k, w = np.array([[1.0, 0.5]]), np.array([[0.3, 1.0]]), posenc.rope_frequencies(2)

    def score(rel):
        return (posenc.rope(q, [9], w, layout="half") * posenc.rope(k, [9 + rel], w, layout="half")).sum()

    assert abs(score(3) - score(-3)) > 0.1


def test_ranges_of_the_last_sine():
    ranges = [np.ptp(posenc.sinusoidal(512, dim, dtype=np.float64)[:, -2]) for dim in (4, 6, 8, 16, 64, 768)]
    assert np.all(np.diff(ranges) < 0)
    assert [f"{r:.2f}" for r in ranges] == ["2.00", "0.89", "0.49", "0.16", "0.07", "0.05"]


def test_inner_product_as_a_complex_product():
    product = (3 + 5j) * (1 - 6j)
    assert product == 33 - 13j
    assert np.dot([3, 5], [1, 6]) == product.real
    rotated = posenc.rope(np.array([[3.0, 5.0], [1.0, 6.0]]), [7, 7], [0.3], layout="half")
    assert abs(rotated[0] @ rotated[1] - 33) <= 1e-14  # 33 with two rotations of three roundings


def test_inner_products_depend_on_the_difference(rng):
    for w, order in ((posenc.sinusoidal_frequencies(64), np.arange(64)), (rng.uniform(0, 2, 32), rng.permutation(64))):
        p = posenc.sinusoidal(200, 64, frequencies=w, dtype=np.float64)[:, order]
        gram = p @ p.T
        g = np.cos(np.arange(200)[:, None] * w).sum(-1)
        m, n = np.indices(gram.shape)
        # 64 products, each within 4 roundings, and an angle of up to 400 in g
        assert np.abs(gram - g[np.abs(m - n)]).max() <= 64 * 2e-15 + 32 * 2.0**-45


def test_spread_of_the_first_and_last_channel():
    spread = posenc.sinusoidal(128, 64, dtype=np.float64).std(0)[0::2]
    assert spread[0] > 0.6
    assert spread[-1] < 0.01
    assert posenc.sinusoidal(128, 64, base=10.0, dtype=np.float64).std(0)[0::2][-1] > 0.6


def test_distance_and_correlation():
    p = posenc.sinusoidal(128, 64, dtype=np.float64)
    distance = np.linalg.norm(p[:, None] - p[None], axis=-1)
    assert np.abs(distance**2 - (64 - 2 * p @ p.T)).max() <= 64 * 4e-15  # 64 products and squares, rounded
    assert np.abs(distance - distance.T).max() == 0
    assert np.corrcoef(distance[np.triu_indices(128, 1)], np.corrcoef(p)[np.triu_indices(128, 1)])[0, 1] < -0.9


def test_varying_share_by_base():
    shares = []
    for base in (10, 100, 1000, 10000, 1000000):
        p = posenc.sinusoidal(128, 128, base=base, dtype=np.float64)
        assert np.abs(np.linalg.norm(p, axis=1) - 8).max() <= 1e-13
        shares.append(p.var(0).sum() / 64)
    assert [f"{s:.3f}" for s in shares] == ["0.997", "0.846", "0.577", "0.434", "0.292"]


def test_positions_are_distinct():
    p = posenc.sinusoidal(2048, 64, dtype=np.float64)
    squared = 64 - 2 * p @ p.T
    assert np.sqrt(squared[~np.eye(2048, dtype=bool)].min()) > 0.8


def test_equal_offsets_have_unequal_differences():
    p = posenc.sinusoidal(512, 64, dtype=np.float64)
    difference = p[3:] - p[:-3]
    assert np.abs(difference - difference[0]).max() > 1
    assert np.ptp(np.linalg.norm(difference, axis=1)) <= 1e-13


def test_projections_let_absolute_positions_in(rng):
    d = 64
    p, w = posenc.sinusoidal(512, d, dtype=np.float64), rng.standard_normal((2, d, d)) / np.sqrt(d)
    logits = np.diag(p @ w[0] @ (p @ w[1]).T, 3)
    assert np.ptp(logits) > 0.5 * np.abs(logits).max()
    q, k = np.broadcast_to(rng.standard_normal((2, 1, d)), (2, 512, d))
    q, k = (posenc.rope(x, 512, posenc.rope_frequencies(d), layout="half") for x in (q, k))
    rotated = np.diag(q @ k.T, 3)
    assert np.ptp(rotated) <= 1e-12 * d


def test_complex_products_of_a_pair():
    p = posenc.sinusoidal(99, 2, frequencies=[0.3], order="cossin", dtype=np.float64) @ [1, 1j]
    products = p[:, None] * p.conj()
    m, n = np.indices(products.shape)
    assert np.abs(products - np.exp(0.3j * (m - n))).max() <= 4e-15 * 99
    assert np.abs(np.abs(p) - 1).max() <= 4e-16
    steps = np.angle(p[1:] / p[:-1])
    assert np.abs(steps - 0.3).max() <= 1e-14


def test_a_channel_is_periodic():
    w, i = posenc.sinusoidal_frequencies(768), 383
    where = np.array([0.0, 1.0, 511.0])
    first, later = (posenc.sinusoidal(where + n * 2 * np.pi / w[i], 768, dtype=np.float64) for n in (0, 1))
    assert np.abs(first[:, 2 * i :] - later[:, 2 * i :]).max() <= 1e-14


def test_sinusoids_have_no_last_position():
    table, where = posenc.sinusoidal(512, 64), [3, 511, 7]
    assert np.array_equal(posenc.learned(table, where), posenc.sinusoidal(where, 64))
    p = posenc.sinusoidal([0, 1, 10**9, 10**9 + 1], 128, dtype=np.float64)
    near, far = np.linalg.norm(p[1] - p[0]), np.linalg.norm(p[3] - p[2])
    assert far == pytest.approx(near, rel=1e-12)


def test_fractional_positions():
    assert np.array_equal(posenc.sinusoidal([1, 2, 3], 8), posenc.sinusoidal(4, 8)[1:])
    assert posenc.sinusoidal([0.5], 2, dtype=np.float64).round(3).tolist() == [[0.479, 0.878]]
