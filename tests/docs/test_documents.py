"""Worked numbers of the five documents S0 to S4, restated and checked."""

import numpy as np
import pytest

import posenc
from posenc import analysis, reference

# ---- S3: BERT base, d = 768 ----


def test_s3_position_one_of_768_dimensions():
    """S3 prints 0.84, 0.54, 0.83, 0.56, ..., 0.00, 1.00, the formula to two decimals."""
    p = posenc.sinusoidal(512, 768)
    assert p.shape == (512, 768)
    assert [f"{x:.2f}" for x in p[1, :2]] == ["0.84", "0.54"]
    assert [f"{x:.2f}" for x in p[1, 766:]] == ["0.00", "1.00"]
    assert abs(p[1, 2] - 0.83) < 0.01
    assert abs(p[1, 3] - 0.56) < 0.01


def test_s3_rounds_the_wavelength_before_the_sine():
    """S3 writes 10000**(2/768) as 1.02, so its dims 2 and 3 are sin(1/1.02) = 0.83 and cos(1/1.02) = 0.56. The power is
    1.0243; the exact values sin(0.97630) = 0.828 and cos(0.97630) = 0.560 round to the same decimals."""
    w = posenc.frequencies(768)
    assert f"{1 / w[1]:.2f}" == "1.02"
    assert f"{1 / w[1]:.4f}" == "1.0243"
    p = posenc.sinusoidal([1], 768, dtype=np.float64)[0]
    assert (f"{p[2]:.2f}", f"{np.sin(1 / 1.02):.2f}") == ("0.83", "0.83")
    assert (f"{p[3]:.2f}", f"{np.cos(1 / 1.02):.2f}") == ("0.56", "0.56")


def test_s3_last_wavelength_is_9763():
    """10000**(766/768) = 9763.0 to two decimals, as S3 prints."""
    wavelength = 1 / posenc.frequencies(768)[383]
    assert f"{wavelength:.2f}" == "9763.00"


@pytest.mark.parametrize(("position", "turns", "reduced", "right"), [
    (1, "0.31", "0.31", "0.32"), (2, "0.64", "0.64", "0.64"), (3, "0.96", "0.96", "0.95"),
    (6, "1.91", "1.91", "1.91"), (7, "2.23", "0.23", "2.23"), (8, "2.54", "0.54", "2.55"),
])  # fmt: skip
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
    ..., 767."""
    p = posenc.sinusoidal(512, 768, dtype=np.float64)
    angle = np.arange(512)[:, None] * posenc.frequencies(768)
    assert angle.shape == (512, 384)
    assert np.abs(p[:, 0:767:2] - np.sin(angle)).max() <= 1e-13  # angles to 511, rounded to 6e-14
    assert np.abs(p[:, 1:768:2] - np.cos(angle)).max() <= 1e-13


def test_s3_last_two_figures():
    """S3: sin(1/9763.00) = 0.00, cos(1/9763.00) = 1.00; to more digits 0.00010243 and 1 - 5.2e-9."""
    sine, cosine = posenc.sinusoidal([1], 768, dtype=np.float64)[0, 766:]
    assert f"{sine:.8f}" == f"{np.sin(1 / 9763.00):.8f}" == "0.00010243"
    assert f"{1 - cosine:.1e}" == "5.2e-09"


@pytest.mark.parametrize("offset", [1, 2, 7, 100, 12345, 10**6, -1, -(10**6)])
def test_s3_the_addition_theorem_is_a_matrix(offset):
    """sin(a+b) = sin a cos b + cos a sin b: PE[p + k] = matrix(k) PE[p] for every p. Both tables are within 4e-16, and
    the product has three roundings."""
    p = posenc.sinusoidal(64, 32, dtype=np.float64)
    shifted = posenc.sinusoidal(np.arange(64) + offset, 32, dtype=np.float64)
    matrix = posenc.shift_matrix(offset, 32)
    assert np.abs(p @ matrix.T - shifted).max() <= 2e-15
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
    """S0: the rows 0 -1 -2 -3 -4 / -1 0 -1 -2 -3 / ... times m."""
    picture = [[0, -1, -2, -3, -4], [-1, 0, -1, -2, -3], [-2, -1, 0, -1, -2], [-3, -2, -1, 0, -1], [-4, -3, -2, -1, 0]]
    assert np.array_equal(posenc.alibi([1.0]).matrix(5)[0], picture)
    assert np.array_equal(posenc.alibi([0.25]).matrix(5)[0], 0.25 * np.array(picture))


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


@pytest.mark.parametrize("heads", range(1, 257))
def test_slopes_are_the_authors(heads):
    """The authors' repeated float64 product loses up to an ulp per step, n * 2**-53."""
    np.testing.assert_allclose(posenc.alibi_slopes(heads), authors_slopes(heads), rtol=256 * 2.0**-52, atol=0)


def test_s0_a_distance_of_one_costs_one():
    """S0: one step more between q_i and k_j adds -1 times m; the bias is never positive."""
    bias = posenc.alibi(posenc.alibi_slopes(8)).matrix(16, dtype=np.float64)
    for h, m in enumerate(posenc.alibi_slopes(8)):
        assert np.array_equal(np.diff(bias[h, 0]), np.full(15, -m))
    assert bias.max() == 0


def test_the_two_ways_to_write_alibi_have_one_softmax(rng):
    """m j and -m (i - j) differ by a number that is the same for all keys of a causal row (llm-foundry#186)."""
    q, k, v = rng.standard_normal((3, 4, 12, 8))
    slopes = posenc.alibi_slopes(4)
    by_key = np.broadcast_to(slopes[:, None, None] * np.arange(12), (4, 12, 12))
    ours = posenc.attention(q, k, v, bias=posenc.alibi(slopes), causal=True)
    theirs = posenc.attention(q, k, v, bias=posenc.dense(by_key), causal=True)
    assert np.abs(ours - theirs).max() <= 1e-14  # logits of at most 12, |v| < 4


# ---- S0: the sinusoid ----


@pytest.mark.parametrize("dim", [16, 64, 768])
def test_s0_columns_end_before_d(dim):
    """S0 says 2i <= d and 2i + 1 <= d. With columns 0..d-1 both are strict: the last sine is column d-2, the last
    cosine d-1."""
    p = posenc.sinusoidal(3, dim, dtype=np.float64)
    assert p.shape == (3, dim)
    assert len(posenc.frequencies(dim)) == dim // 2
    assert p[0, dim - 2 :].tolist() == [0, 1]


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
    assert posenc.merge(np.zeros((3, 8)), posenc.sinusoidal(3, 8)).shape == (3, 8)
    with pytest.raises(ValueError, match="merge: p"):
        posenc.merge(np.zeros((3, 8)), posenc.sinusoidal(3, 6))


# ---- S1: derivation of the sinusoid ----


def test_s1_inner_product_as_a_complex_product():
    """S1: [3, 5] . [1, 6] = 33 = Re[(3 + 5i)(1 - 6i)], and (3 + 5i)(1 - 6i) = 33 - 13i."""
    product = (3 + 5j) * (1 - 6j)
    assert product == 33 - 13j
    assert np.dot([3, 5], [1, 6]) == product.real
    """Turning both by one angle changes neither: that is why a position can be an angle."""
    rotated = posenc.rope(np.array([[3.0, 5.0], [1.0, 6.0]]), [7, 7], [0.3], layout="half")
    assert abs(rotated[0] @ rotated[1] - 33) <= 1e-14  # 33 with two rotations of three roundings


def test_s1_inner_products_depend_on_the_difference():
    """S1 eq. 5 and 11: <p_m, p_n> = g(m - n) = sum_i cos((m - n) theta_i)."""
    p = posenc.sinusoidal(200, 64, dtype=np.float64)
    gram = p @ p.T
    g = np.cos(np.arange(200)[:, None] * posenc.frequencies(64)).sum(-1)
    m, n = np.indices(gram.shape)
    assert np.abs(gram - g[np.abs(m - n)]).max() <= 64 * 2e-15  # 64 products, each within 4 roundings; angle 200 eps
    assert np.allclose(np.diag(gram), 32, rtol=0, atol=64 * 1e-15)


def test_s1_order_of_sine_and_cosine():
    """S1's solution (10) puts the cosine first, which permutes the columns."""
    ours = posenc.sinusoidal(9, 8)
    assert np.array_equal(posenc.sinusoidal(9, 8, order="cossin")[:, [1, 0, 3, 2, 5, 4, 7, 6]], ours)


def test_s1_decays_with_distance():
    """S1 section 3: <p_m, p_n> tends to zero as |m - n| grows."""
    p = posenc.sinusoidal(2049, 128, dtype=np.float64)
    g = p @ p[0] / 64
    assert g[0] == pytest.approx(1, abs=1e-14)
    assert np.abs(g[1:9]).mean() > np.abs(g[64:129]).mean() > np.abs(g[1024:]).mean()


def test_s1_any_base_and_the_power_schedule():
    """S1 suggests theta_t = 1000**-t, and compares t**alpha."""
    assert posenc.frequencies(8, base=1000.0)[2] == pytest.approx(1000**-0.5, rel=1e-15)
    assert np.allclose(posenc.frequencies(8, schedule="power", alpha=2.0), [0, 1 / 16, 1 / 4, 9 / 16], rtol=0, atol=0)


def inner_products(w):
    """<p_m, p_0> / (d/2) for m = 0..128."""
    p = posenc.sinusoidal(129, 2 * len(w), frequencies=w, dtype=np.float64)
    return p @ p[0] / len(w)


def test_s1_inner_products_are_an_integral():
    """S1 eq. 11: inner products tend to the integral of cos(m 10000**-t) over 0 < t < 1. The sum is a left Riemann sum,
    off by at most one step times the total variation of the integrand; the trapezoidal rule below is within 1e-6."""
    t = np.linspace(0, 1, 200_001)
    for dim in (768, 4096):
        g = inner_products(posenc.frequencies(dim))
        for m in (0, 1, 8, 64, 128):
            integrand = np.cos(m * 10000.0**-t)
            integral = (integrand[1:] + integrand[:-1]).sum() / 2 * (t[1] - t[0])
            assert abs(g[m] - integral) <= np.abs(np.diff(integrand)).sum() * 2 / dim + 1e-6


def power(alpha):
    return {"schedule": "power", "alpha": alpha}


def test_s1_the_plot_decays():
    """S1's plot of the integral on [-128, 128] is even and falls."""
    curve = analysis.decay(np.arange(-128, 129)).real
    assert np.abs(curve - curve[::-1]).max() <= 1e-12
    right = curve[128:]
    assert np.all(np.diff(right[[0, 1, 2, 4, 8, 16, 32, 64, 128]]) < 0)
    assert right[0] == 1
    assert right[128] == pytest.approx(0.411, abs=1e-3)


def test_s1_the_integral_tends_to_zero():
    """S1: the inner product decays because an oscillating integral tends to 0. Its absolute value is 0.25 at 1000,
    0.011 at 10**5 and 0.0001 at 10**7."""
    found = np.abs(analysis.decay([1e3, 1e5, 1e7]))
    assert [f"{v:.2g}" for v in found] == ["0.25", "0.011", "0.00011"]


def test_s1_theta_t_crosses_the_axis():
    """S1: the curve of theta = t crosses the axis; it falls to -0.19."""
    assert analysis.decay(np.arange(129), **power(1)).real.min() == pytest.approx(-0.192, abs=1e-3)


def test_s1_powers_up_to_1_4_cross_the_axis():
    """S1 says that theta = t alone crosses the axis. On [-128, 128] each power of an exponent up to 1.4 does, also the
    square root; powers from 1.5 on and the two exponentials do not."""
    x = np.arange(129)
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


@pytest.mark.parametrize(("a", "b"), [(3, 4), (512, 511), (10**6, 17), (123456, -(10**6)), (0.25, 7.5)])
def test_s4_a_sum_of_positions_from_both_vectors(a, b):
    """S4: the vector of position a + b is a combination of those of a and b."""
    x, y, both = posenc.sinusoidal(np.array([a, b, a + b]), 128, layout="half", dtype=np.float64)
    (sa, ca), (sb, cb) = np.split(x, 2), np.split(y, 2)
    wanted = np.concatenate([sa * cb + ca * sb, ca * cb - sa * sb])
    assert np.abs(both - wanted).max() <= 2e-15  # four factors within 4e-16, three roundings


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
