"""posenc.analysis: matrices, curves and profiles against brute force."""

import numpy as np
import pytest
from cases.layouts import same_bits

import posenc
from posenc import analysis, reference

# ---- matrices ----


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (65, 5), (130, 520)])
def test_matrices_are_symmetric_bit_for_bit(dtype, n, d, rng):
    x = rng.standard_normal((n, d)).astype(dtype)
    for function in (analysis.gram_matrix, analysis.distance_matrix, analysis.correlation_matrix):
        matrix = function(x)
        assert matrix.dtype == dtype
        assert same_bits(matrix, matrix.T.copy())
    assert not np.diag(analysis.distance_matrix(x)).any()
    if d > 1:
        assert np.all(np.diag(analysis.correlation_matrix(x)) == 1)


def test_neighbours_keep_their_digits():
    """At slow frequencies |p|^2 + |q|^2 - 2 p.q is 0 in float32, while the distance of 1e-4 has all its digits."""
    p = posenc.sinusoidal(2, 2, frequencies=[1e-4])
    wide = posenc.sinusoidal(2, 2, frequencies=[1e-4], dtype=np.float64)
    exact = np.linalg.norm(p[1].astype(np.float64) - p[0])
    assert abs(analysis.distance_matrix(p)[0, 1] - exact) <= 2**-23 * exact
    assert abs(analysis.distance_matrix(wide)[0, 1] - 2 * np.sin(5e-5)) <= 1e-19
    gram = analysis.gram_matrix(p)
    assert gram[0, 0] + gram[1, 1] - 2 * gram[0, 1] <= 1e-7


@pytest.mark.parametrize("module", [analysis, reference])
def test_a_row_of_equal_numbers_has_no_correlation(module):
    """The rounded mean of three times 0.1 is not 0.1."""
    for equal in (0.1, 1e-300, 1e300):
        matrix = module.correlation_matrix([[equal, equal, equal], [1.0, 2.0, 4.0]])
        assert np.isnan([*matrix[0], *matrix[:, 0]]).all()
        assert abs(matrix[1, 1] - 1) <= 7 * np.finfo(np.float64).eps  # the sums and the square root of three channels


def test_correlations_of_large_and_small_numbers(rng):
    x = rng.standard_normal((4, 9))
    wanted = analysis.correlation_matrix(x)
    for size in (1e-300, 1e300, 2.0**-20):
        np.testing.assert_allclose(analysis.correlation_matrix(size * x), wanted, rtol=0, atol=1e-14)
    np.testing.assert_allclose(wanted, np.corrcoef(x), rtol=0, atol=1e-15)


def test_triangles():
    p = posenc.sinusoidal(64, 32, base=10.0)
    distance, correlation = analysis.distance_matrix(p), analysis.correlation_matrix(p)
    points = analysis.triangle_points(distance, correlation)
    assert points.upper.shape == (64 * 63 // 2, 2)
    assert same_bits(points.upper, points.lower)
    assert points.upper[63].tolist() == [correlation[1, 2], distance[1, 2]]
    for bad in ((distance, correlation[:3, :3]), (distance[0], correlation), (distance[:2], correlation)):
        with pytest.raises(ValueError, match=r"triangle_points: \w+ has shape"):
            analysis.triangle_points(*bad)


# ---- curves ----


def test_inner_product(rng):
    """Angles of 400 in float64 are off by 5e-14."""
    w, h = rng.uniform(0, 2, 7), rng.standard_normal((2, 7))
    m, n = rng.integers(-99, 99, (5, 1)), rng.uniform(-99, 99, 6)
    bound = 2e-13 * np.abs(h).sum()
    found = analysis.inner_product(m, n, w, weights=(h[0], h[1]))
    for ours, theirs in zip(found, reference.inner_product(m, n, w, weights=(h[0], h[1])), strict=True):
        assert np.abs(ours - theirs).max() <= bound
    diagonal = np.diag(h.T.ravel())
    assert np.abs(found.total - reference.inner_product(m, n, w, weights=diagonal)).max() <= bound
    assert np.abs(analysis.inner_product(m, n, w) - reference.inner_product(m, n, w)).max() <= 2e-13 * 7
    full = rng.standard_normal((14, 14))
    whole = analysis.inner_product(m, n, w, weights=full)
    assert np.abs(whole - reference.inner_product(m, n, w, weights=full)).max() <= 2e-13 * np.abs(full).sum()
    assert analysis.inner_product(3, 4, w, weights=full).shape == ()


def test_equal_weights_leave_no_sum(rng):
    w, h = posenc.sinusoidal_frequencies(8), rng.standard_normal(4)
    parts = analysis.inner_product(np.arange(9)[:, None], np.arange(9), w, weights=(h, h))
    assert not parts.sum.any()
    assert same_bits(parts.total, parts.difference)
    assert analysis.inner_product(5, 3, w, weights=(np.ones(4),) * 2).total == analysis.inner_product(5, 3, w)


@pytest.mark.parametrize("base", [1e-300, 1e-5, 1 / 1.0003, 1.0, 1 + 1e-9, 1.0003, 1e300])
def test_any_base_and_distance(base):
    """Against exact values where all angles are small, or equal. No value exceeds 1, and there is no warning."""
    x = np.array([0.0, 1e-308, 1e-9, 3e-5, 1e-3, 1.0, 1e3, 1e6, 2.0**53])
    found = analysis.decay(x, base=base)
    assert np.isfinite(found).all()
    assert np.abs(found).max() <= 1 + 1e-12
    small = x < 1e-8 * min(1, base)
    mean = 1.0 if base == 1 else (1 - 1 / base) / np.log(base)
    np.testing.assert_allclose(found[small], 1 + 1j * x[small] * mean, rtol=0, atol=1e-15)
    if abs(base - 1) <= 1e-9:
        np.testing.assert_allclose(found[:-2], np.exp(1j * x[:-2]), rtol=0, atol=2e-6)


FAR = np.array([0.25, 39.0, 41.0, 101.0, 1e3, 1e5, 1e7, 1e10, 2.0**53])


@pytest.mark.parametrize("base", [10000.0, 500000.0, 2.0, 0.5, 1e-5])
def test_far_distances_of_the_geometric_schedule(base):
    """Within the promised 1e-13 of the closed form, in 40 digits."""
    mpmath = pytest.importorskip("mpmath")

    def wave(v):
        return mpmath.mpc(mpmath.ci(v), mpmath.si(v))

    with mpmath.workdps(40):
        b = mpmath.mpf(base)
        wanted = [complex((wave(mpmath.mpf(x)) - wave(mpmath.mpf(x) / b)) / mpmath.log(b)) for x in FAR]
    assert np.abs(analysis.decay(FAR, base=base) - wanted).max() <= 1e-13


@pytest.mark.parametrize("alpha", [0.05, 0.3, 1.0, 2.0, 50.0])
def test_far_distances_of_the_power_schedule(alpha):
    """Within the promised 1e-13 of the incomplete gamma function, in 40 digits."""
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(40):
        s, i = 1 / mpmath.mpf(alpha), mpmath.mpc(0, 1)
        wanted = [complex(s * (-i * x) ** -s * mpmath.gammainc(s, 0, -i * x)) for x in map(mpmath.mpf, FAR)]
    assert np.abs(analysis.decay(FAR, schedule="power", alpha=alpha) - wanted).max() <= 1e-13


# ---- profiles ----


def test_rotary_profile_is_decay():
    w = posenc.rope_frequencies(64)
    profile = analysis.attention_profile(w, -np.arange(99), position=7)
    np.testing.assert_allclose(profile.logits[0], 8 * analysis.decay(np.arange(99), dim=64).real, rtol=0, atol=1e-13)
    q, k = np.random.default_rng(0).standard_normal((2, 64))
    there, back = (analysis.attention_profile(w, s * np.arange(99), q=q, k=k, scale=1.0).logits for s in (1, -1))
    assert abs(there - back).max() > 1  # rotations of different vectors depend on the sign


def test_profile_of_operators_that_read_content(rng):
    table, q, k = rng.standard_normal((9, 8)), rng.standard_normal(8), rng.standard_normal(8)
    profile = analysis.attention_profile(posenc.shaw(table), np.arange(-6, 7), q=q, k=k)
    rows = np.clip(np.arange(-6, 7), -4, 4) + 4
    np.testing.assert_allclose(profile.logits[0], table[rows] @ q / np.sqrt(8), rtol=0, atol=1e-14)
    none = analysis.attention_profile(None, np.arange(-3, 1))
    assert none.logits.tolist() == [[0.0] * 4]
    assert none.weights.tolist() == [[0.25] * 4]
    with pytest.raises(TypeError, match=r"^attention_profile: q is None; expected a query and a key, which shaw reads"):
        analysis.attention_profile(posenc.shaw(table), np.arange(3))
    with pytest.raises(TypeError, match=r"^attention_profile: q has a value; expected None, because alibi reads"):
        analysis.attention_profile(posenc.alibi([1.0]), np.arange(3), q=q, k=k)


def test_a_profile_of_an_int_is_that_of_the_keys_before():
    for n in (3, np.int32(3)):
        assert analysis.attention_profile(posenc.alibi([0.5]), n).logits.tolist() == [[-1.0, -0.5, 0.0]]


def test_a_profile_of_no_distances():
    assert analysis.attention_profile(posenc.alibi([1.0]), np.zeros(0)).weights.shape == (1, 0)


def test_order_sensitivity_of_large_values_and_of_nan(rng):
    x = rng.standard_normal((4, 3))
    small, large = (analysis.order_sensitivity(lambda x: np.cumsum(x, 0), x * size) for size in (1.0, 2.0**900))
    assert np.array_equal(small, large)
    x[1, 2] = np.nan
    assert np.isnan(analysis.order_sensitivity(lambda x: np.cumsum(x, 0), x)).all()


def test_order_sensitivity_of_a_function_that_reuses_its_arrays(rng):
    """Its result is copied before the next call, and it gets a copy of x."""
    result, x = np.empty((4, 3)), rng.standard_normal((4, 3))
    kept = x.copy()

    def double_in_place(rows):
        rows *= 2
        result[:] = rows
        return result

    assert not analysis.order_sensitivity(double_in_place, x).any()
    assert same_bits(x, kept)


def test_order_sensitivity(rng):
    x = rng.standard_normal((12, 8))

    def layer(x, **options):
        return posenc.attention(x[None], x[None], x[None], **options)[0]

    orders = np.array([np.arange(12), np.arange(12)[::-1]])
    assert analysis.order_sensitivity(layer, x).max() <= 1e-14
    biased = analysis.order_sensitivity(lambda x: layer(x, bias=posenc.alibi([1.0])), x, permutations=orders)
    assert biased[0] == 0
    assert biased[1] <= 1e-14  # ALiBi is even: the reversed text gives the reversed result
    causal = analysis.order_sensitivity(lambda x: layer(x, causal=True), x, permutations=orders)
    assert causal[1] > 0.1


# ---- the other functions, beside posenc.reference ----

W, SLOPES = posenc.rope_frequencies(16), posenc.alibi([0.5, 0.25])
TABLE = np.linspace(-1, 1, 27).reshape(9, 3)
TWINS = {
    "rope_bands": (posenc.rope_frequencies(16, rope_type="linear", factor=4.0), W),
    "rope_coverage": (W, 512),
    "attention_profile": (W, [-5.0, -1.0, 0.0, 7.0]),
}
OPTIONS = {"rope_bands": {"train_length": 512}, "rope_coverage": {"test_length": 4096, "test_frequencies": W}}


@pytest.mark.parametrize("function", TWINS)
def test_twins(function):
    """Numbers of size 1 up to 2 pi / w, each after at most ten roundings, and logits of D = 16 products."""
    arguments, options = TWINS[function], OPTIONS.get(function, {})
    found, wanted = (getattr(m, function)(*arguments, **options) for m in (analysis, reference))
    for ours, theirs in zip(found, wanted, strict=True):
        if ours.dtype.kind == "U":
            assert ours.tolist() == theirs.tolist()
        else:
            np.testing.assert_allclose(ours, theirs, rtol=4e-15, atol=4e-15)


def test_profiles_of_operators_beside_the_reference(rng):
    q, k, rel = rng.standard_normal(3), rng.standard_normal((2, 3)), np.arange(-6, 7)
    for ours, twin, content in (
        (SLOPES, reference.alibi([0.5, 0.25]), {}),
        (posenc.shaw(TABLE), reference.shaw(TABLE), {"q": q, "k": k, "scale": 0.5}),
    ):
        found = analysis.attention_profile(ours, rel, position=2, **content)
        wanted = reference.attention_profile(twin, rel, position=2, **content)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-14, atol=1e-15)


# ---- pairs of RoPE ----

LLAMA = {"factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192}
YARN = {"factor": 8, "original_max_position_embeddings": 8192}


@pytest.mark.parametrize(
    ("rope_type", "keys", "kinds"),
    [
        ("linear", {"factor": 8}, {"interpolated"}),
        ("ntk", {"factor": 8}, {"kept", "blended", "interpolated"}),
        ("yarn", YARN, {"kept", "blended", "interpolated"}),
        ("llama3", LLAMA, {"kept", "blended", "interpolated"}),
        ("default", {}, {"kept"}),
    ],
)
def test_bands(rope_type, keys, kinds):
    plain = posenc.rope_frequencies(128)
    bands = analysis.rope_bands(posenc.rope_frequencies(128, rope_type=rope_type, **keys), plain, train_length=8192)
    assert set(bands.kind) == kinds
    assert np.all(bands.ratio[bands.kind == "kept"] == 1)
    if "interpolated" in kinds:
        np.testing.assert_allclose(bands.ratio[bands.kind == "interpolated"], 1 / 8, rtol=1e-9)
    assert np.all(np.diff(bands.ratio) <= 1e-15)
    if rope_type == "llama3":  # by definition: pairs with more than 4 turns are kept, with fewer than 1 interpolated
        assert np.array_equal(bands.kind == "kept", bands.turns >= 4)
        assert np.array_equal(bands.kind == "interpolated", bands.turns <= 1)


def test_coverage_by_hand():
    """L = 64, w = 0.05: training covers angles 0 .. 3.15, 0.50134 of the circle. Distance 64 has the new angle 3.2, and
    so on up to distance 125 (6.25); 126 has 6.3 = 0.0168 + 2 pi, a known angle."""
    found = analysis.rope_coverage([0.05], 64, test_length=128)
    assert abs(found.covered[0] - 3.15 / (2 * np.pi)) <= 1e-15
    assert abs(found.turns[0] - 3.2 / (2 * np.pi)) <= 1e-15
    assert abs(found.gap[0] - (2 * np.pi - 3.15)) <= 1e-15
    assert found.first_unseen[0] == 64
    assert found.unseen[0] == 62 / 64


# ---- any theta, any weights, any H ----


CURVES = {
    "10000**-t": (lambda t: 10000.0**-t, {"base": 10000.0}),
    "t": (lambda t: t, {"schedule": "power"}),
    "t**2": (lambda t: t**2, {"schedule": "power", "alpha": 2.0}),
    "t**0.3": (lambda t: t**0.3, {"schedule": "power", "alpha": 0.3}),
}


@pytest.mark.parametrize("name", CURVES)
def test_theta_as_a_function(name):
    """The integral agrees with that of the named schedule, both within 1e-12, and the mean with frequencies."""
    theta, options = CURVES[name]
    x = np.array([0.0, 1e-6, 0.5, -3.0, 17.25, 128.0, 1000.0])
    assert np.abs(analysis.decay(x, schedule=theta) - analysis.decay(x, **options)).max() <= 2e-12
    mean, wanted = (analysis.decay(x, dim=31, **o) for o in ({"schedule": theta}, options))
    assert np.abs(mean - wanted).max() <= 1e-12  # frequencies of 1 ulp at distances of up to 1000


def test_almost_any_monotone_theta_decays():
    """A monotone theta that is constant on an interval does not decay."""
    far = [10.0, 1e3, 1e5]
    curves = [lambda t: t**0.5, lambda t: t**3, lambda t: 1 / (1 + 99 * t), lambda t: np.sin(t), lambda t: (1 - t) ** 2]
    for theta in curves:
        found = np.abs(analysis.decay(far, schedule=theta))
        assert found[0] > found[1] > found[2]
        assert found[2] < 0.02
    for theta in (lambda t: 0.0 * t + 0.5, lambda t: np.maximum(t - 0.5, 0)):
        assert np.abs(analysis.decay(far[1:], schedule=theta)).min() >= 0.49


def test_weights_of_the_integral(rng):
    """The mean with weights h_k tends to the integral of h(t) exp(i x theta(t)), which tends to 0."""
    x = np.array([0.0, 1.0, 40.0])

    def h(t):
        return 1 + np.cos(3 * t)

    limit = analysis.decay(x, weights=h)
    errors = [np.abs(analysis.decay(x, dim=d, weights=h) - limit).max() for d in (512, 1024, 2048)]
    assert errors[0] > 1.8 * errors[1] > 3.2 * errors[2]
    assert limit[0] == pytest.approx(1 + np.sin(3) / 3, abs=1e-12)
    k, w = rng.standard_normal(8), posenc.sinusoidal_frequencies(16)
    by_hand = np.exp(1j * x[:, None] * w) @ k / 8
    assert np.abs(analysis.decay(x, dim=16, weights=k) - by_hand).max() <= 1e-14
    sine, cosine = rng.standard_normal((2, 8))
    parts = analysis.inner_product(x, 0, w, weights=(sine, cosine))
    halves = analysis.decay(x, dim=16, weights=(sine + cosine) / 2).real * 8
    assert np.abs(parts.difference - halves).max() <= 1e-13
    far = analysis.decay([10.0, 1e3, 1e5], schedule="power", weights=h)
    assert np.all(np.diff(np.abs(far)) < 0)


def test_weights_that_are_infinite_at_an_end():
    assert analysis.decay(0.0, schedule="power", weights=lambda t: t**-0.5).real == pytest.approx(2, abs=1e-11)


def a_model(rng):
    """One layer of attention over six words and a nonlinear readout; H is not symmetric."""
    q, k, v, readout = rng.standard_normal((4, 6, 6)) / 2

    def f(x):
        return np.tanh(reference.attention(x @ q, x @ k, x @ v, scale=1.0) @ readout).sum()

    return f


def test_taylor_terms(rng):
    """Half the encodings leave an eighth of the error."""
    f, x = a_model(rng), rng.standard_normal((6, 6))
    p = posenc.sinusoidal(6, 6, dtype=np.float64)
    errors = []
    for size in (0.2, 0.1, 0.05):
        moved = x.copy()
        moved[[1, 4]] += size * p[[1, 4]]
        errors.append(abs(sum(analysis.taylor_terms(f, x, size * p, 1, 4)) - f(moved)))
    assert 5 < errors[0] / errors[1] < 12
    assert 5 < errors[1] / errors[2] < 12
    h = analysis.interaction_matrix(f, x, 1, 4)
    terms = analysis.taylor_terms(f, x, p, 1, 4)
    assert terms.interaction == pytest.approx(p[1] @ h @ p[4], abs=1e-6)
    assert terms.interaction == pytest.approx(
        analysis.inner_product(1, 4, posenc.sinusoidal_frequencies(6), weights=h), abs=1e-6
    )
    swapped = analysis.interaction_matrix(f, x, 4, 1)
    assert np.abs(swapped - h.T).max() <= 1e-6


def test_taylor_terms_of_a_polynomial():
    """Central differences with extrapolation are exact for polynomials of degree 4."""

    def f(x):
        return np.array([x[0, 0] ** 2 * x[1, 0], x[0, 1] ** 4 + x[1, 1]])

    x, p = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0.5, -1.0], [2.0, 1.0]])
    terms = analysis.taylor_terms(f, x, p, 0, 1)
    wanted = [[3, 20], [3, -32], [2, 1], [0.75, 24], [0, 0], [2, 0]]
    assert np.abs(np.array(terms) - wanted).max() <= 1e-8


# ---- refusals ----

ONES = np.ones((3, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: analysis.rope_coverage([-1.0], 4), "frequencies has a negative frequency"),
        (lambda: analysis.rope_coverage([1.0], 4, test_length=3), "test_length is 3"),
        (lambda: analysis.rope_bands([1.0], [0.0], train_length=4), "original has"),
        (lambda: analysis.inner_product(1, 2, []), "frequencies has shape"),
        (lambda: analysis.inner_product(1, 2, [1.0], weights=[1.0]), "weights has"),
        (lambda: analysis.inner_product(1, 2, [1.0], weights=ONES), "weights has shape"),
        (lambda: analysis.inner_product(1, 2, [1.0], weights=np.nan * ONES[:2]), "weights has NaN"),
        (lambda: analysis.inner_product([1, 2], [1, 2, 3], [1.0]), "p has shape"),
        (lambda: analysis.inner_product(np.nan, 2, [1.0]), "p has nan"),
        (lambda: analysis.decay(1, base=0), "base is 0"),
        (lambda: analysis.decay(1, alpha=-1), "alpha is -1"),
        (lambda: analysis.decay(1, schedule="linear"), "schedule is 'linear'"),
        (lambda: analysis.decay([1.0, 2.0], schedule=lambda t: t[:-1]), "schedule has results of shape"),
        (
            lambda: analysis.decay(1, schedule=lambda t: np.where(t > 0, t, np.nan), dim=8),
            "schedule has NaN .* at t = 0",
        ),
        (lambda: analysis.decay(1, schedule=lambda t: "x"), "schedule has"),
        (lambda: analysis.decay(1, weights=lambda t: np.full(len(t), np.inf)), "weights has NaN or infinity"),
        (lambda: analysis.decay(1, weights=[1.0, 2.0], dim=8), "weights has 2 entries"),
        (lambda: analysis.decay(1, weights=np.ones(4)), "decay: weights has an array; expected a function h"),
        (lambda: analysis.decay(0.0, schedule="power", weights=lambda t: 1 / t), "weights has no integral near t = 0"),
        (lambda: analysis.correlation_matrix(np.zeros((2, 0))), "encoding has last axis 0"),
        (lambda: analysis.distance_matrix([1.0]), "encoding has 1 axes"),
        (lambda: analysis.attention_profile("rope", [0]), "attention_profile: bias has type str; expected"),
        (lambda: analysis.attention_profile(SLOPES, 3.0), "attention_profile: distances has 0 axes; expected 1"),
        (lambda: analysis.attention_profile(SLOPES, -3), "attention_profile: distances is -3; expected at least 0"),
        (
            lambda: analysis.attention_profile(SLOPES + SLOPES.at(q_positions=[0]), 3),
            r"attention_profile: bias has positions of its own \(Bias.at\); expected an operator that reads those",
        ),
        (lambda: analysis.taylor_terms(np.sum, ONES[0], ONES[0], 0, 1), "x has shape"),
        (lambda: analysis.taylor_terms(np.sum, ONES, ONES[:, :1], 0, 1), "encoding has shape"),
        (lambda: analysis.taylor_terms(np.sum, ONES, ONES, 1, 1), "q is 1; expected a row other"),
        (lambda: analysis.taylor_terms(np.sum, ONES, ONES, 0, 3), "q is 3"),
        (lambda: analysis.taylor_terms(np.sum, ONES, ONES, 0, 1, step=0), "step is 0"),
        (lambda: analysis.taylor_terms(lambda x: x * np.inf, ONES, ONES, 0, 1), "f has a result with NaN"),
        (lambda: analysis.interaction_matrix(lambda x: x, ONES, 0, 1), "f has a result of shape"),
        (lambda: analysis.order_sensitivity(np.sum, ONES, permutations=np.zeros((2, 3), int)), "permutations has"),
    ],
)
def test_refusals(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()
