"""Worked numbers of the five documents S0 to S4, restated and checked."""

import ml_dtypes
import numpy as np
import pytest

import posenc
from posenc import analysis, reference

# ---- S3: BERT base, d = 768 ----


def test_s3_position_one_of_768_dimensions():
    """S3 prints 0.84, 0.54, 0.83, 0.56, ..., 0.00, 1.00. It writes 10000**(2/768) as 1.02, while the power is 1.0243;
    sin(1/1.02) = 0.83 and cos(1/1.02) = 0.56 round to the same decimals. The last wavelength is 9763.00; to more
    digits the last two are 0.00010243 and 1 - 5.2e-9."""
    w, p = posenc.frequencies(768), posenc.sinusoidal([1], 768, dtype=np.float64)[0]
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
def test_s3_multiples_of_pi_in_dimension_zero(position, turns, reduced, right):
    """S3: P(1,0) = sin(0.31 pi), P(2,0) = sin(0.64 pi), ... Three of the six figures are not position / pi to two
    decimals: 0.318 and 2.546 are cut, and 0.955 is rounded up to 0.96. Each figure is within 0.01, so its sine is
    within 0.01 pi; rounded figures are within half as much. The period is two pi, not one: sin(2.23 pi) = sin(0.23
    pi)."""
    assert f"{position / np.pi:.2f}" == right
    p = posenc.sinusoidal([position], 768, dtype=np.float64)[0, 0]
    for printed in (turns, reduced):
        assert abs(p - np.sin(float(printed) * np.pi)) < 0.01 * np.pi
    assert abs(p - np.sin(float(right) * np.pi)) <= 0.005 * np.pi


def test_s3_indices_of_768_dimensions():
    """S3: pos runs to 511 and i from 0 to 383; the sines have the columns 2i = 0, 2, ..., 766, the cosines 2i + 1 = 1,
    ..., 767. S0 says 2i <= d and 2i + 1 <= d, where both are strict."""
    p = posenc.sinusoidal(512, 768, dtype=np.float64)
    angle = np.arange(512)[:, None] * posenc.frequencies(768)
    assert (p.shape, angle.shape) == ((512, 768), (512, 384))
    assert np.abs(p[:, 0:767:2] - np.sin(angle)).max() <= 1e-13  # angles to 511, rounded to 6e-14
    assert np.abs(p[:, 1:768:2] - np.cos(angle)).max() <= 1e-13


@pytest.mark.parametrize("offset", [1, 12345, -(10**6)])
def test_s3_the_addition_theorem_is_a_matrix(offset):
    """sin(a+b) = sin a cos b + cos a sin b: PE[p + k] = matrix(k) PE[p] for every p, and matrix(k) has the numbers of
    PE[k]. Both tables are within 4e-16, and the product has three roundings."""
    p = posenc.sinusoidal(64, 32, dtype=np.float64)
    shifted = posenc.sinusoidal(np.arange(64) + offset, 32, dtype=np.float64)
    matrix = posenc.shift_matrix(offset, 32)
    assert np.abs(p @ matrix.T - shifted).max() <= 2e-15
    assert np.abs(np.diag(matrix, 1)[::2] - shifted[0, 0::2]).max() <= 4e-16
    assert np.abs(np.diag(matrix)[::2] - shifted[0, 1::2]).max() <= 4e-16
    assert np.abs(posenc.shift(p, offset) - shifted).max() <= 2e-15
    assert np.abs(matrix @ matrix.T - np.eye(32)).max() <= 2e-15


def test_s3_relative_position_has_no_sign_in_the_inner_product():
    """S3: the inner product is even in the offset, so it does not distinguish before from after."""
    p = posenc.sinusoidal(64, 128, dtype=np.float64)
    gram = p @ p.T
    assert np.abs(np.diag(gram, 3)[0] - np.diag(gram, -3)).max() <= 64 * 1e-15
    """... while rotated queries and keys can."""
    q, k, w = np.array([[1.0, 0.5]]), np.array([[0.3, 1.0]]), posenc.rope_frequencies(2)

    def score(rel):
        return (posenc.rope(q, [9], w, layout="half") * posenc.rope(k, [9 + rel], w, layout="half")).sum()

    assert abs(score(3) - score(-3)) > 0.1


# ---- S0: ALiBi ----


def test_s0_bias_matrix():
    """S0: the rows 0 -1 -2 -3 -4 / -1 0 -1 -2 -3 / ... times m: one step more between q_i and k_j adds -m."""
    picture = [[0, -1, -2, -3, -4], [-1, 0, -1, -2, -3], [-2, -1, 0, -1, -2], [-3, -2, -1, 0, -1], [-4, -3, -2, -1, 0]]
    slopes = posenc.alibi_slopes(8)
    assert np.array_equal(posenc.alibi(slopes).matrix(5, dtype=np.float64), np.multiply.outer(slopes, picture))


def test_s0_formula_of_the_slopes_is_garbled():
    """S0 prints m_h = (1 / 2**(2**(1 / (log2 H + 3))))**h, which is 0.459, 0.211, ... at H = 8, while the paper has
    2**-h. With the exponent 2**-(log2 H - 3) of the authors' code the formula gives the slopes of the paper."""
    heads = 8
    h = np.arange(1, heads + 1)
    garbled = (1 / 2 ** (2 ** (1 / (np.log2(heads) + 3)))) ** h
    assert [f"{m:.3f}" for m in garbled[:2]] == ["0.459", "0.211"]
    ours = posenc.alibi_slopes(heads)
    assert np.array_equal(ours, [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256])
    assert np.array_equal(ours, (1 / 2 ** (2 ** -(np.log2(heads) - 3))) ** h)
    assert np.abs(ours - garbled).max() > 0.03


def authors_slopes(n):
    """Press et al., fairseq/models/transformer.py: get_slopes, as published."""

    def power_of_2(n):
        start = 2 ** (-(2 ** -(np.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if np.log2(n).is_integer():
        return power_of_2(n)
    closest = 2 ** int(np.floor(np.log2(n)))
    return power_of_2(closest) + authors_slopes(2 * closest)[0::2][: n - closest]


def test_slopes_are_the_authors():
    """The authors' repeated float64 product loses up to an ulp per step, n * 2**-53."""
    for heads in (4, 8, 16):  # S4: their exponents differ by a constant
        exponents = np.log2(posenc.alibi_slopes(heads))
        assert np.abs(exponents + np.arange(1.0, heads + 1) * 8 / heads).max() <= 4e-15  # 2**0.5 is rounded
    for heads in range(1, 257):
        np.testing.assert_allclose(posenc.alibi_slopes(heads), authors_slopes(heads), rtol=256 * 2.0**-52, atol=0)


# ---- S0: the sinusoid ----


def test_s0_late_dimensions_differ_less_in_a_wide_encoding():
    """S0: with a small dimension positions differ clearly, with a large one the later dimensions hardly do. The last
    sine of 512 positions covers 2.0 with 4 channels, 0.89 with 6, and 0.05 with 768."""
    ranges = [np.ptp(posenc.sinusoidal(512, dim, dtype=np.float64)[:, -2]) for dim in (4, 6, 8, 16, 64, 768)]
    assert np.all(np.diff(ranges) < 0)
    assert [f"{r:.2f}" for r in ranges] == ["2.00", "0.89", "0.49", "0.16", "0.07", "0.05"]


def test_s0_the_factor_scales_the_bias_alone(rng):
    """S0's prose adds m times the matrix of distances to the scores. The caption of its figure scales the sum."""
    q, k, v = rng.standard_normal((3, 6, 8))
    m, distance = 0.25, np.abs(np.arange(6)[:, None] - np.arange(6))
    found = posenc.attention(q, k, v, bias=posenc.alibi([m]), scale=1.0)

    def weighted(logits):
        return reference.attention(np.zeros_like(q), k, v, bias=posenc.dense(logits[None]))

    assert np.abs(found - weighted(q @ k.T - m * distance)).max() <= 1e-14
    assert np.abs(found - weighted(m * (q @ k.T - distance))).max() > 0.1


def test_alibi_weights_by_distance():
    """S0 and S4: the farther a key, the smaller its weight. For equal scores the weights are a geometric sequence; a
    step costs the factor exp(-m), near and far."""
    m, zeros = 0.5, np.zeros((64, 4))
    weights = posenc.attention_weights(zeros, zeros, bias=posenc.alibi([m]), causal=True)[-1]
    steps = np.diff(np.log(weights))  # towards the query
    assert np.abs(steps - m).max() <= 1e-13
    assert weights[-1] == pytest.approx(1 - np.exp(-m), rel=1e-13)  # the sum of 64 terms ends at exp(-32)


def test_s0_the_sum_needs_one_dimension():
    """S0: the dimension of the encoding is that of the word embedding."""
    assert posenc.combine(np.zeros((3, 8)), posenc.sinusoidal(3, 8)).shape == (3, 8)
    with pytest.raises(ValueError, match="combine: p"):
        posenc.combine(np.zeros((3, 8)), posenc.sinusoidal(3, 6))


# ---- S1: derivation of the sinusoid ----


def test_s1_inner_product_as_a_complex_product():
    """S1: [3, 5] . [1, 6] = 33 = Re[(3 + 5i)(1 - 6i)], and (3 + 5i)(1 - 6i) = 33 - 13i."""
    product = (3 + 5j) * (1 - 6j)
    assert product == 33 - 13j
    assert np.dot([3, 5], [1, 6]) == product.real
    """Turning both by one angle changes neither: that is why a position can be an angle."""
    rotated = posenc.rope(np.array([[3.0, 5.0], [1.0, 6.0]]), [7, 7], [0.3], layout="half")
    assert abs(rotated[0] @ rotated[1] - 33) <= 1e-14  # 33 with two rotations of three roundings


def test_s1_inner_products_depend_on_the_difference(rng):
    """S1 eq. 5 and 11: <p_m, p_n> = g(m - n) = sum_i cos((m - n) theta_i). The solution is not unique: any frequencies,
    in any order, are one."""
    for w, order in ((posenc.frequencies(64), np.arange(64)), (rng.uniform(0, 2, 32), rng.permutation(64))):
        p = posenc.sinusoidal(200, 64, frequencies=w, dtype=np.float64)[:, order]
        gram = p @ p.T
        g = np.cos(np.arange(200)[:, None] * w).sum(-1)
        m, n = np.indices(gram.shape)
        # 64 products, each within 4 roundings, and an angle of up to 400 in g
        assert np.abs(gram - g[np.abs(m - n)]).max() <= 64 * 2e-15 + 32 * 2.0**-45


def test_s1_decays_with_distance():
    """S1 section 3: <p_m, p_n> tends to zero as |m - n| grows."""
    p = posenc.sinusoidal(2049, 128, dtype=np.float64)
    g = p @ p[0] / 64
    assert g[0] == pytest.approx(1, abs=1e-14)
    assert np.abs(g[1:9]).mean() > np.abs(g[64:129]).mean() > np.abs(g[1024:]).mean()


def test_s1_inner_products_are_an_integral():
    """S1 eq. 11: inner products tend to the integral of cos(m 10000**-t) over 0 < t < 1. The sum is a left Riemann sum,
    off by at most one step times the total variation of the integrand; the trapezoidal rule below is within 1e-6."""
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


def test_s1_the_plot_decays():
    """S1's plot of the integral on [-128, 128] is even and falls. Its absolute value tends to 0: it is 0.25 at 1000,
    0.011 at 10**5 and 0.0001 at 10**7."""
    assert [f"{v:.2g}" for v in np.abs(analysis.decay([1e3, 1e5, 1e7]))] == ["0.25", "0.011", "0.00011"]
    curve = analysis.decay(np.arange(-128, 129)).real
    assert np.abs(curve - curve[::-1]).max() <= 1e-12
    right = curve[128:]
    assert np.all(np.diff(right[[0, 1, 2, 4, 8, 16, 32, 64, 128]]) < 0)
    assert right[0] == 1
    assert right[128] == pytest.approx(0.411, abs=1e-3)


def test_s1_powers_up_to_1_4_cross_the_axis():
    """S1 says that theta = t alone crosses the axis, down to -0.19. On [-128, 128] each power of an exponent up to 1.4
    does, also the square root; powers from 1.5 on and the two exponentials do not."""
    x = np.arange(129)
    assert analysis.decay(x, **power(1)).real.min() == pytest.approx(-0.192, abs=1e-3)
    for alpha in (0.3, 0.5, 0.7, 0.9, 1.1, 1.2, 1.3, 1.4):
        assert analysis.decay(x, **power(alpha)).real.min() < -0.01
    for options in (*(power(alpha) for alpha in (1.5, 1.6, 1.8, 2, 3, 4)), {}, {"base": 1000.0}):
        assert analysis.decay(x, **options).real.min() > 0.01


def test_s1_powers_fall_faster_at_short_range():
    """S1: the powers fall faster at short distances than the two exponentials."""
    near = [2, 4, 10]
    exponentials = [analysis.decay(near, **options).real for options in ({}, {"base": 1000.0})]
    for alpha in (1, 2, 3, 4):
        assert np.all(analysis.decay(near, **power(alpha)).real < min(exponentials, key=lambda v: v[0]))


def test_s1_exponentials_fall_faster_at_long_range():
    """S1: the exponentials fall faster at long distances. From 1000 to 4000, 10000**-t keeps 0.22 of its value, t**2
    keeps 0.49, t**3 0.63 and t**4 0.71. 1000**-t has crossed the axis before."""
    curves = [analysis.decay([1000, 4000], **options).real for options in ({}, power(2), power(3), power(4))]
    kept = [end / start for start, end in curves]
    assert [f"{k:.2f}" for k in kept] == ["0.22", "0.49", "0.63", "0.71"]
    assert analysis.decay(618, base=1000.0).real < 0


# ---- S2: base 10 against base 10000 ----


def test_s2_first_dimensions_vary_and_last_hardly():
    """S2: the code changes most in the first dimensions and least in the last; base 10 spreads the change over more
    dimensions."""
    spread = posenc.sinusoidal(128, 64, dtype=np.float64).std(0)[0::2]
    assert spread[0] > 0.6
    assert spread[-1] < 0.01
    assert posenc.sinusoidal(128, 64, base=10.0, dtype=np.float64).std(0)[0::2][-1] > 0.6


def test_s2_distance_and_correlation_say_the_same():
    """S2 plots |PE_p - PE_q| against the correlation: |p - q|**2 = d - 2 <p, q> puts all points on one curve."""
    p = posenc.sinusoidal(128, 64, dtype=np.float64)
    distance = np.linalg.norm(p[:, None] - p[None], axis=-1)
    assert np.abs(distance**2 - (64 - 2 * p @ p.T)).max() <= 64 * 4e-15  # 64 products and squares, rounded
    assert np.abs(distance - distance.T).max() == 0
    assert np.corrcoef(distance[np.triu_indices(128, 1)], np.corrcoef(p)[np.triu_indices(128, 1)])[0, 1] < -0.9


def test_s2_the_share_of_positions_falls_with_the_base():
    """S2: the larger the base k, the smaller the share of the position encoding. The share of its squares that varies
    with the position is 0.997 for k = 10 and 0.434 for k = 10000. The norm is 8 for each k."""
    shares = []
    for base in (10, 100, 1000, 10000, 1000000):
        p = posenc.sinusoidal(128, 128, base=base, dtype=np.float64)
        assert np.abs(np.linalg.norm(p, axis=1) - 8).max() <= 1e-13
        shares.append(p.var(0).sum() / 64)
    assert [f"{s:.3f}" for s in shares] == ["0.997", "0.846", "0.577", "0.434", "0.292"]


# ---- S4: rope and alibi ----


def test_s4_rope_is_absolute_made_relative(rng):
    """S4: <f(q, m), f(k, n)> = g(q, k, m - n); f(q, 0) = q; |f(q, m)| = |q|."""
    q, k = rng.standard_normal((2, 1, 64))
    w = posenc.rope_frequencies(64)

    def at(x, p):
        return posenc.rope(x, [p], w, layout="interleaved")[0]

    reached = [at(q, m + 3) @ at(k, m) for m in (0, 1, 10, 1000, 10**6)]
    assert np.ptp(reached) <= 64 * 1e-15 * np.linalg.norm(q) * np.linalg.norm(k)
    assert np.array_equal(at(q, 0), q[0])
    assert np.linalg.norm(at(q, 12345)) == pytest.approx(np.linalg.norm(q), rel=1e-14)


def test_s4_rope_of_two_dimensions_is_the_rotation_matrix():
    """S4: f(q, m) = [[cos m theta, -sin m theta], [sin m theta, cos m theta]] q."""
    theta, m = 0.25, 5
    c, s = np.cos(m * theta), np.sin(m * theta)
    assert np.abs(posenc.rope_matrix(m, [theta], layout="half") - [[c, -s], [s, c]]).max() <= 4e-16
    z = (0.6 + 0.8j) * np.exp(1j * m * theta)
    assert np.abs(posenc.rope([[0.6, 0.8]], [m], [theta], layout="half") - [z.real, z.imag]).max() <= 8e-16


def test_s4_rope_inner_product_is_a_sum_over_pairs(rng):
    """S4: (W_m q)^T (W_n k) = Re[sum_i q_[2i:2i+1] k*_[2i:2i+1] exp(i (m - n) theta_i)]."""
    q, k = rng.standard_normal((2, 16))
    theta, m, n = posenc.rope_frequencies(16).inv_freq, 40, 11
    formula = ((q[0::2] + 1j * q[1::2]) * (k[0::2] - 1j * k[1::2]) * np.exp(1j * (m - n) * theta)).sum().real
    rotated = posenc.rope(np.stack([q, k]), [m, n], theta, layout="interleaved")
    assert rotated[0] @ rotated[1] == pytest.approx(formula, abs=1e-13)  # 16 products of size 4


def test_s4_attention_alone_cannot_see_order(rng):
    """S0 and S4: without positions, permuting keys and values changes nothing; with a bias it does."""
    q, k, v = rng.standard_normal((3, 2, 9, 8))
    order = rng.permutation(9)
    plain, permuted = posenc.attention(q, k, v), posenc.attention(q, k[:, order], v[:, order])
    assert np.abs(plain - permuted).max() <= 1e-14
    bias = posenc.alibi(posenc.alibi_slopes(2))
    placed = posenc.attention(q, k, v, bias=bias)
    assert np.abs(placed - posenc.attention(q, k[:, order], v[:, order], bias=bias)).max() > 1e-3
    same = posenc.attention(q, k[:, order], v[:, order], bias=bias, k_positions=order)
    assert np.abs(placed - same).max() <= 1e-14


# ---- statements of docs/claims that no other test shows ----


def test_positions_are_distinct():
    """S0: each position has its own vector. Of 2048 positions with 64 channels no two are closer than 0.8."""
    p = posenc.sinusoidal(2048, 64, dtype=np.float64)
    squared = 64 - 2 * p @ p.T
    assert np.sqrt(squared[~np.eye(2048, dtype=bool)].min()) > 0.8


def test_equal_offsets_have_unequal_differences():
    """S0 says that the difference of two encodings depends on the offset alone. Only its length does."""
    p = posenc.sinusoidal(512, 64, dtype=np.float64)
    difference = p[3:] - p[:-3]
    assert np.abs(difference - difference[0]).max() > 1
    assert np.ptp(np.linalg.norm(difference, axis=1)) <= 1e-13


def test_projections_let_absolute_positions_in(rng):
    """S0 and S3: a prefix does not change how two words attend to each other. With projections of sinusoids it does;
    with rotary embeddings it does not."""
    d = 64
    p, w = posenc.sinusoidal(512, d, dtype=np.float64), rng.standard_normal((2, d, d)) / np.sqrt(d)
    logits = np.diag(p @ w[0] @ (p @ w[1]).T, 3)
    assert np.ptp(logits) > 0.5 * np.abs(logits).max()
    q, k = np.broadcast_to(rng.standard_normal((2, 1, d)), (2, 512, d))
    q, k = (posenc.rope(x, 512, posenc.rope_frequencies(d), layout="half") for x in (q, k))
    rotated = np.diag(q @ k.T, 3)
    assert np.ptp(rotated) <= 1e-12 * d


# ---- S1: equations 7 to 10 ----


def test_equations_7_to_10():
    """p_m p_n* is a function q of m - n; the absolute values are constant and the angles an arithmetic progression."""
    p = posenc.sinusoidal(99, 2, frequencies=[0.3], order="cossin", dtype=np.float64) @ [1, 1j]
    products = p[:, None] * p.conj()
    m, n = np.indices(products.shape)
    assert np.abs(products - np.exp(0.3j * (m - n))).max() <= 4e-15 * 99
    assert np.abs(np.abs(p) - 1).max() <= 4e-16
    steps = np.angle(p[1:] / p[:-1])
    assert np.abs(steps - 0.3).max() <= 1e-14


def test_a_pooled_model_is_symmetric(rng):
    """S1, equations 2 and 3: exchanging two inputs of attention does not change a function of all outputs; with a
    different vector added at each position it does."""
    x, p = rng.standard_normal((6, 8)), posenc.sinusoidal(6, 8, dtype=np.float64)

    def f(x):
        return np.tanh(posenc.attention(x, x, x)).sum()

    for m, n in ((1, 4), (2, 3)):
        order = np.arange(6)
        order[[m, n]] = n, m
        assert abs(f(x) - f(x[order])) <= 1e-14 * x.size
        assert abs(f(x + p) - f(x[order] + p)) > 1e-3


def test_five_terms_depend_on_one_position(rng):
    """S1, equation 4: the value depends on no position, four terms on one, and the last on both."""
    x, p = rng.standard_normal((6, 6)), rng.standard_normal((2, 6, 6))

    def f(x):
        return np.tanh(posenc.attention(x, x, x)).sum()

    only_m, only_n = p[0].copy(), p[0].copy()
    only_m[1], only_n[4] = p[1, 1], p[1, 4]
    first, moved_m, moved_n = (np.array(analysis.taylor_terms(f, x, q, 1, 4)) for q in (p[0], only_m, only_n))
    assert (moved_m != first).tolist() == [False, True, False, True, False, True]
    assert (moved_n != first).tolist() == [False, False, True, False, True, True]


def test_a_channel_is_periodic():
    """S3: a channel of the encoding is periodic in the position, with the period 2 pi / w."""
    w, i = posenc.frequencies(768), 383
    where = np.array([0.0, 1.0, 511.0])
    first, later = (posenc.sinusoidal(where + n * 2 * np.pi / w[i], 768, dtype=np.float64) for n in (0, 1))
    assert np.abs(first[:, 2 * i :] - later[:, 2 * i :]).max() <= 1e-14


# ---- S4 ----


def test_expansion_of_the_logits(rng):
    """S4: (x + p) W_Q W_K' (x + p)' is the sum of input-input, input-position, position-input and position-position."""
    x, p = rng.standard_normal((2, 6, 8))
    w_q, w_k = rng.standard_normal((2, 8, 8))
    whole = (x + p) @ w_q @ w_k.T @ (x + p).T
    parts = [a @ w_q @ w_k.T @ b.T for a in (x, p) for b in (x, p)]
    assert np.abs(whole - sum(parts)).max() <= 1e-12


def test_t5_keeps_input_input_and_adds_a_number(rng):
    """S4: T5 drops the mixed terms, and a learned number replaces position-position."""
    x, table = rng.standard_normal((1, 6, 8)), rng.standard_normal((32, 1))
    bias = posenc.t5(table, unscaled=True)
    logits = x @ x.swapaxes(-1, -2) + bias.matrix(6, dtype=np.float64)
    expected = reference.attention(x, x, x, bias=posenc.dense(logits), scale=0.0)
    assert np.abs(posenc.attention(x, x, x, bias=bias) - expected).max() <= 1e-13


def test_rows_beyond_a_learned_table(rng):
    """S4: a table of 512 rows has no position 512. Random rows can be appended and trained: they have gradients."""
    table = rng.standard_normal((512, 4))
    with pytest.raises(IndexError, match="learned: positions"):
        posenc.learned(table, [512])
    longer = np.concatenate([table, rng.standard_normal((512, 4))])
    assert np.array_equal(posenc.learned(longer, 1024)[:512], table)
    target = np.zeros((1024, 4))
    loss = np.square(posenc.learned(longer, 1024) - target).sum()
    grad = posenc.learned_vjp(2 * (posenc.learned(longer, 1024) - target), longer, 1024).table
    assert np.all(grad[512:] != 0)
    assert np.square(posenc.learned(longer - 0.1 * grad, 1024)).sum() < loss


def test_recursion_is_more_flexible_than_sinusoids(rng):
    """S4: the sinusoid is one solution of dp/dt = h(p, t), and h(p, t) = -p is one that no sinusoid is: its length
    changes with the position."""
    p = posenc.sinusoidal(9, 2, dtype=np.float64)
    rotation = np.array([[0.0, 1.0], [-1.0, 0.0]])
    turned = posenc.integrate(lambda t, p: rotation @ p, p[0], np.arange(9), substeps=50)
    assert np.abs(turned - p).max() <= 1e-6
    fading = posenc.integrate(lambda t, p: -p, p[0], np.arange(9), substeps=50)
    assert np.abs(np.linalg.norm(fading, axis=1) - np.exp(-np.arange(9.0))).max() <= 1e-6
    any_sinusoid = posenc.sinusoidal(9, 2, frequencies=rng.uniform(0, 3, 1), dtype=np.float64)
    assert np.ptp(np.linalg.norm(any_sinusoid, axis=1)) <= 1e-15


def test_sinusoids_have_no_last_position():
    """S4: the encoding needs no training and can be computed in advance: a table of rows has the same bits. The formula
    reaches any position; neighbours at 10**9 are as far apart as at 0."""
    table, where = posenc.sinusoidal(512, 64), [3, 511, 7]
    assert np.array_equal(posenc.learned(table, where), posenc.sinusoidal(where, 64))
    p = posenc.sinusoidal([0, 1, 10**9, 10**9 + 1], 128, dtype=np.float64)
    near, far = np.linalg.norm(p[1] - p[0]), np.linalg.norm(p[3] - p[2])
    assert far == pytest.approx(near, rel=1e-12)


def test_a_step_changes_far_products_as_well(rng):
    """S4: far away the product of two encodings becomes a straight line, in which positions can hardly be
    distinguished. With 64 pairs a step changes it by 0.017 on average, near 1000 and near 10000. For infinitely many
    pairs the curve does become one: a step from 10000 changes it by 1e-5."""
    steps = [np.abs(np.diff(analysis.decay(np.arange(a, a + 1001), dim=128).real)).mean() for a in (100, 1000, 10000)]
    assert [f"{s:.3f}" for s in steps] == ["0.017", "0.017", "0.017"]
    limit = analysis.decay([10000, 10001]).real
    assert abs(limit[1] - limit[0]) < 2e-5


def test_the_scale_of_the_survey_is_missing(rng):
    """S4 writes softmax(q k'), S0 and Shaw et al. softmax(q k' / sqrt(d)): with the same weights the results differ."""
    q, k, v = rng.standard_normal((3, 6, 16))
    scaled, printed = posenc.attention(q, k, v), posenc.attention(q, k, v, scale=1.0)
    assert np.abs(posenc.attention(q / 4, k, v, scale=1.0) - scaled).max() <= 1e-14
    assert np.abs(printed - scaled).max() > 0.1


def test_only_shaw_adds_to_values(rng):
    """S4: after Shaw, relative encodings are added to the logits alone, no longer to the values: without values the
    result is 0."""
    q, k, v = rng.standard_normal((3, 2, 5, 8))
    table, zeros = rng.standard_normal((2, 9, 8)), np.zeros_like(v)
    pairs = rng.standard_normal((2, 8, 8))
    later = [
        posenc.transformer_xl(table, *rng.standard_normal((2, 2, 8))),
        posenc.t5(rng.standard_normal((32, 2))),
        posenc.tupe(q, k),
        posenc.deberta(pairs, pairs),
        posenc.alibi([0.5, 0.25]),
    ]
    for bias in later:
        assert not posenc.attention(q, k, zeros, bias=bias).any()
    assert posenc.attention(q, k, zeros, bias=posenc.shaw(table, table)).any()


def test_buckets_grow_with_the_distance():
    """S4: distances 0 to 7 have buckets of their own, the next four share one, farther ones share more, and the last
    bucket has no end."""
    found = posenc.t5_bucket(-np.arange(5000))
    assert found[:8].tolist() == list(range(8))
    widths = np.bincount(found)
    assert widths[8] == 4
    assert np.all(np.diff(widths[8:]) >= 0)
    assert found[-1] == found.max() == posenc.t5_bucket(-(10**9)) == 15


def test_kernels_tell_directions(rng):
    """S4: a kernel that is not symmetric tells left from right. One that is gives the mirrored result for mirrored
    input."""
    x = rng.standard_normal((9, 1))
    for kernel, mirrored in (([[1.0, 2.0, 1.0]], True), ([[0.0, 1.0, 2.0]], False)):
        there, back = posenc.conv_position(x, kernel), posenc.conv_position(x[::-1], kernel)[::-1]
        assert np.allclose(there, back, rtol=0, atol=1e-14) == mirrored


def test_a_reserved_digit_is_not_read():
    """S4: a digit that is 0 throughout training and not in the test is not understood. A linear model of four digits,
    fitted to 0 .. 999, reads 1749 as 749."""
    numbers = np.arange(1000)
    weights = np.linalg.lstsq(posenc.digits(numbers, width=4), numbers, rcond=None)[0]
    assert np.abs(posenc.digits(numbers, width=4) @ weights - numbers).max() <= 1e-9
    assert posenc.digits(1749, width=4) @ weights == pytest.approx(749)


def test_interpolation_crowds_the_last_digit_alone():
    """S4: of halved numbers, neighbouring values of the ones are 0.5 apart, of the tens and hundreds still 1."""
    digits = posenc.digits(np.arange(2000) / 2, width=3)
    assert [np.unique(np.diff(np.unique(column))).tolist() for column in digits.T] == [[1.0], [1.0], [0.5]]


def test_digits_in_smaller_bases():
    """S4: a smaller base makes each digit smaller, and more digits necessary."""
    for base, width in ((10, 3), (8, 4), (6, 4), (2, 10)):
        digits = posenc.digits(np.arange(1000), base=base, width=width)
        assert digits.max() == base - 1
        with pytest.raises(ValueError, match="digits: numbers"):
            posenc.digits(999, base=base, width=width - 1)


def test_interpolation_divides_positions():
    """S4: to read 2000 positions with 1000, divide by 2: neighbours are 0.5 apart, in every pair of channels alike."""
    x = np.random.default_rng(0).standard_normal((5, 8))
    w = posenc.rope_frequencies(8, rope_type="linear", factor=2.0)
    at = np.array([0, 1, 2, 1000, 1749])
    halved = posenc.rope(x, at / 2, posenc.rope_frequencies(8), layout="half")
    assert np.abs(posenc.rope(x, at, w, layout="half") - halved).max() <= 1e-12


def test_ntk_is_a_change_of_base():
    """S4: NTK-aware RoPE is a change of base. As in base 16 for base 10, no digit is added, neighbours keep their
    distance in the last digit (the fastest pair), the first digit covers a range that is larger by the factor, and all
    ratios of neighbouring frequencies, the base, grow alike."""
    d, factor = 64, 8.0
    before = posenc.rope_frequencies(d).inv_freq
    after = posenc.rope_frequencies(d, rope_type="ntk", factor=factor).inv_freq
    assert after.shape == before.shape
    assert after[0] == before[0]
    assert after[-1] == pytest.approx(before[-1] / factor, rel=1e-13)
    bases = after[:-1] / after[1:]
    assert np.ptp(bases) <= 1e-13
    assert np.all(bases > before[:-1] / before[1:])


def test_attention_spreads_over_more_keys(rng):
    """S4: with more keys the entropy of attention grows; for independent logits by about log(512 / 64)."""
    entropies = []
    for m in (64, 512):
        q, k = rng.standard_normal((1, 64, 32)), rng.standard_normal((1, m, 32))
        weights = posenc.attention_weights(q, k)
        entropies.append(float(-(weights * np.log(weights)).sum(-1).mean()))
    assert entropies[1] - entropies[0] == pytest.approx(np.log(8), abs=0.2)


def test_a_dominant_diagonal_keeps_the_distance(rng):
    """S1: if the diagonal of H dominates, the products of one offset stay close to each other; for a full H they do
    not."""
    w, n = posenc.frequencies(32), np.arange(64)
    spread = []
    for other in (0.0, 0.02, 1.0):
        h = np.eye(32) + other * rng.standard_normal((32, 32))
        products = np.diag(analysis.inner_product(n[:, None], n, w, weights=h), 3)
        spread.append(np.ptp(products) / np.abs(products).max())
    assert spread[0] <= 1e-13 < spread[1] < 0.1 < 0.5 < spread[2]


def test_s4_recursion_counts_positions():
    """S4: a recursion can count. With W = 1, b = 0 and a small start, tanh leaves each position a vector of its own."""
    rows = posenc.recurrent(np.array([1.0, 0.5]), np.array([[0.0, -1.0], [1.0, 0.0]]), np.zeros(2), 64)
    distances = np.linalg.norm(rows[:, None] - rows, axis=-1)
    assert distances[~np.eye(64, dtype=bool)].min() > 1e-4


def test_zero_padding_tells_attention_nothing(rng):
    """S4: zeros at the border tell a convolution its positions. Attention over zeros stays symmetric."""
    x, zeros = rng.standard_normal((7, 8)), np.zeros((2, 8))

    def padded(x):
        keys = np.concatenate([zeros, x, zeros])[None]
        return posenc.attention(x[None], keys, keys)[0]

    kernel = rng.standard_normal((8, 3))
    assert analysis.order_sensitivity(padded, x).max() <= 1e-14
    assert analysis.order_sensitivity(lambda x: posenc.conv_position(x, kernel), x).min() > 0.1


# ---- numbers in the sentences of docs/explanations: figures.md and rotary-embeddings.md ----


def test_printed_numbers_of_the_sentences():
    x = analysis.decay([128, 1000], schedule="power", alpha=2.0).real
    y = analysis.decay([128, 1000]).real
    found = [f"{v:.2f}" for v in (y[0] - y[1], x[0] - x[1], y[1] / y[0], x[1] / x[0])]
    assert found == ["0.22", "0.04", "0.46", "0.35"]  # from 128 to 1000
    far = np.arange(1, 4001)
    assert np.all(abs(analysis.decay(far, schedule="power", alpha=2.0).real) < abs(analysis.decay(far).real))


def test_the_rotation_error_of_bfloat16_positions(rng):
    """8 radians in the fastest pair, and 76 % of the length of a vector: sqrt(mean of |1 - exp(8iw)|**2)."""
    w = posenc.rope_frequencies(128)
    assert w.inv_freq[0] * (5000 - 4992) == 8
    x = rng.standard_normal((4096, 128))
    true, wrong = (posenc.rope(x, np.full(4096, p), w, layout="half") for p in (5000, 4992))
    error = np.linalg.norm(wrong - true) / np.linalg.norm(true)
    expected = np.sqrt(np.mean(np.abs(1 - np.exp(8j * w.inv_freq)) ** 2))
    assert error == pytest.approx(expected, rel=0.02)  # 262144 pairs of random length
    assert f"{expected:.2f}" == "0.76"
    rounded = w.inv_freq.astype(ml_dtypes.bfloat16).astype(np.float64)
    assert round(np.abs(5000 * (rounded - w.inv_freq)).max()) == 6
