"""docs/claims: statements of the five documents S0 to S4 that no other test shows."""

import numpy as np
import pytest

import posenc
from posenc import analysis, reference

# ---- S0, S3: the sinusoid ----


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


def test_padding_is_masked(rng):
    """S3: positions beyond the words of a sequence do not matter, because they are masked."""
    q, k, v = rng.standard_normal((3, 2, 9, 8))
    keep = np.arange(9) < 6
    changed = v.copy()
    changed[:, 6:] = np.nan
    assert np.array_equal(posenc.attention(q, k, changed, keep=keep), posenc.attention(q, k, v, keep=keep))
    short = posenc.attention(q, k[:, :6], v[:, :6])
    assert np.abs(posenc.attention(q, k, v, keep=keep) - short).max() <= 1e-15 * 9


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


def test_any_frequencies_solve_equation_5(rng):
    """S1: the solution is not unique; any frequencies, in any order, are one."""
    p = posenc.sinusoidal(60, 14, frequencies=rng.uniform(0, 2, 7), dtype=np.float64)[:, rng.permutation(14)]
    gram = p @ p.T
    assert max(np.ptp(np.diag(gram, offset)) for offset in range(59)) <= 1e-13


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


def test_sinusoids_can_be_computed_before():
    """S4: the encoding needs no training and can be computed in advance: a table of rows has the same bits."""
    table, where = posenc.sinusoidal(512, 64), [3, 511, 7]
    assert np.array_equal(posenc.learned(table, where), posenc.sinusoidal(where, 64))


def test_sinusoids_have_no_last_position():
    """S4: the formula reaches any position; neighbours at 10**9 are as far apart as at 0."""
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
        posenc.transformer_xl(table, *rng.standard_normal((2, 2, 8))), posenc.t5(rng.standard_normal((32, 2))),
        posenc.tupe(q, k), posenc.deberta(pairs, pairs), posenc.alibi([0.5, 0.25]),
    ]  # fmt: skip
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


def test_alibi_slopes_are_powers_of_two():
    """S4: ALiBi's factors depend on the number of heads, and their exponents differ by a constant; nothing is
    trained."""
    for heads in (4, 8, 16):
        exponents = np.log2(posenc.alibi_slopes(heads))
        assert np.abs(exponents + np.arange(1.0, heads + 1) * 8 / heads).max() <= 4e-15  # powers of 2**0.5 are rounded


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
