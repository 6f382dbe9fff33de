"""Tables, merging, complex order and digits: worked numbers, identities and what is refused by name."""

import warnings

import numpy as np
import pytest
from cases import BF16, DTYPES
from cases.layouts import same_bits

import posenc

# ---- learned ----


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_learned_is_the_row_itself(rng, dtype):
    """Every bit, also of NaN and of -0."""
    table = rng.standard_normal((5, 33)).astype(dtype)
    table[2, :3] = [np.nan, -0.0, np.inf]
    ids = np.array([[4, 2, 2], [0, 2, 1]])
    assert same_bits(posenc.learned(table, ids), table[ids])
    assert same_bits(posenc.learned(table, 3), table[:3])
    assert posenc.learned(table, []).shape == (0, 33)


def test_repeated_ids_are_summed():
    """Large integers that float32 cannot add one by one: the sum is in float64, rounded once."""
    grad = np.array([[2.0**24], [1.0], [1.0], [5.0]], np.float32)
    gradient = posenc.learned_vjp(grad, np.zeros((3, 1), np.float32), [1, 1, 1, 0]).table
    assert gradient.dtype == np.float32
    assert gradient.tolist() == [[5.0], [2.0**24 + 2], [0.0]]


@pytest.mark.parametrize("function", ["learned", "hierarchical"])
def test_gradients_of_wide_tables(rng, isa, function):
    """Rows of several tiles of columns, an id that has most of the positions, and any number of threads."""
    table, ids = rng.standard_normal((7, 1300)), np.where(rng.random(3000) < 0.8, 5, rng.integers(0, 7, 3000))
    grad = rng.standard_normal((3000, 1300))
    found = []
    for threads in (1, 3):
        with posenc.threads(threads):
            found.append(getattr(posenc, f"{function}_vjp")(grad, table, ids).table)
    wanted = np.zeros_like(table)
    np.add.at(wanted, ids, grad)  # ids below 7 are rows of the table in the hierarchy too
    assert same_bits(*found)
    assert np.abs(found[0] - wanted).max() <= 1e-12  # 3000 numbers of size 4


def test_half_gradients_are_summed_wide():
    """4096 ones: float16 would stop at 2048, bfloat16 at 256."""
    for dtype in (np.dtype(np.float16), BF16):
        grad = np.ones((4096, 3), dtype)
        assert posenc.learned_vjp(grad, np.zeros((2, 3), dtype), np.ones(4096, int)).table[1].tolist() == [4096.0] * 3


@pytest.mark.parametrize("function", ["learned", "learned_vjp"])
@pytest.mark.parametrize(
    ("positions", "named"), [([0, 5, 9], "id 5"), ([-1], "id -1"), (6, "id 5"), ([2**62], "id 4611")]
)
def test_ids_without_a_row(function, positions, named):
    table = np.ones((5, 2))
    arguments = (table, positions) if function == "learned" else (np.ones((3, 2)), table, positions)
    with pytest.raises(IndexError, match=rf"^{function}: positions has {named}.*; expected ids .* below 5$"):
        getattr(posenc, function)(*arguments)


@pytest.mark.parametrize("positions", [[0.0], 1.0, [True], ["0"], None])
def test_ids_are_integers(positions):
    with pytest.raises(TypeError, match="learned: positions has"):
        posenc.learned(np.ones((5, 2)), positions)


def test_ids_of_every_integer_dtype():
    table = np.arange(10.0).reshape(5, 2)
    for dtype in "bhilqBHILQ":
        assert same_bits(posenc.learned(table, np.array([4, 0], dtype)), table[[4, 0]])
    with pytest.raises(IndexError, match="id 18446744073709551615"):
        posenc.learned(table, np.array([2**64 - 1], np.uint64))


# ---- hierarchical ----


@pytest.mark.parametrize("alpha", [0.4, 0.1, 0.9])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_hierarchical_over_all_ids(rng, n, alpha):
    """q_{(i-1)n+j} = alpha u_i + (1-alpha) u_j with i, j = 1..n, for all n n of them."""
    p = rng.standard_normal((n, 4))
    q = posenc.hierarchical(p, n * n, alpha=alpha)
    u = [(row - alpha * p[0]) / (1 - alpha) for row in p]
    for i in range(1, n + 1):
        for j in range(1, n + 1):
            wanted = alpha * u[i - 1] + (1 - alpha) * u[j - 1]
            # both sides round a few numbers of size alpha / (1 - alpha) <= 9
            assert np.abs(q[(i - 1) * n + j - 1] - wanted).max() <= 1e-14
    with pytest.raises(IndexError, match=rf"hierarchical: positions has id {n * n}; expected .* below {n * n}"):
        posenc.hierarchical(p, [n * n], alpha=alpha)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_first_n_are_the_table(rng, dtype):
    """Bit for bit, whatever the numbers: -0 and NaN too."""
    table = rng.standard_normal((9, 40)).astype(dtype)
    table[3, :2] = [-0.0, np.nan]
    assert same_bits(posenc.hierarchical(table, 9), table)
    assert same_bits(posenc.hierarchical(table, 81)[:9], table)


def test_hierarchical_reaches_512_squared():
    table = np.eye(512, 3)
    assert posenc.hierarchical(table, [262143]).shape == (1, 3)
    with pytest.raises(IndexError, match="id 262144; expected ids of at least 0 and below 262144"):
        posenc.hierarchical(table, [262144])
    with pytest.raises(IndexError, match="id -1"):
        posenc.hierarchical(table, [-1])


@pytest.mark.parametrize("alpha", [0, 1, 1.0, -0.1, 1.5, np.nan])
def test_alpha_outside(alpha):
    for call in (
        lambda: posenc.hierarchical(np.ones((2, 2)), 4, alpha=alpha),
        lambda: posenc.hierarchical_vjp(np.ones((4, 2)), np.ones((2, 2)), 4, alpha=alpha),
    ):
        with pytest.raises(ValueError, match=r"hierarchical(_vjp)?: alpha is"):
            call()


def test_alpha_of_a_half_warns(rng):
    table = rng.standard_normal((3, 4))
    with pytest.warns(UserWarning, match=r"\(i, j\) and \(j, i\)") as caught:
        q = posenc.hierarchical(table, 9, alpha=0.5).reshape(3, 3, 4)
    assert caught[0].filename == __file__
    assert np.abs(q - q.swapaxes(0, 1)).max() <= 1e-15  # they collide, but for rounding
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posenc.hierarchical(table, 9)


# ---- merge ----


def test_a_product_with_a_sinusoid_erases_half_of_position_0(rng):
    x, p = rng.standard_normal((3, 8)), posenc.sinusoidal(3, 8, dtype=np.float64)
    product = posenc.merge(x, p, mode="mul")
    assert not product[0, ::2].any()
    assert product[0, 1::2].tolist() == x[0, 1::2].tolist()
    kept = posenc.merge(x, p, mode="mul1p")
    assert kept[0, ::2].tolist() == x[0, ::2].tolist()
    assert kept[0, 1::2].tolist() == (2 * x[0, 1::2]).tolist()
    assert same_bits(posenc.merge(x, np.zeros(8), mode="mul1p"), x)


def test_infinite_words_stay_infinite():
    """x (1 + p), not x + x p, which would be NaN."""
    assert posenc.merge([np.inf], [-0.5], mode="mul1p").tolist() == [np.inf]


def test_merge_modes_and_dtypes(rng):
    x, p = rng.standard_normal((2, 3, 4)).astype(np.float32), rng.standard_normal((3, 4))
    assert posenc.merge(x, p).dtype == np.float32
    assert posenc.merge(x, p, mode="concat").shape == (2, 3, 8)
    assert same_bits(posenc.merge(x, p, mode="replace"), np.broadcast_to(p.astype(np.float32), x.shape).copy())
    with pytest.raises(ValueError, match=r"merge: p has shape \(2, 2, 3, 4\); expected what broadcasts to"):
        posenc.merge(x, np.ones((2, 2, 3, 4)))
    with pytest.raises(ValueError, match=r"merge: p has shape \(3, 4\)"):
        posenc.merge(x[:, :1], p)
    assert posenc.merge_vjp(x, x, 2.0, mode="mul").p.shape == ()


# ---- complex order ----


def test_phases_are_added_exactly():
    """Where frequency * position is a whole number of turns but for 2**-20 of one, at position 2**52, a phase still
    counts to the last bit: what is known of the angle is known of the sum."""
    where = np.array([0.0, 2.0**31, 2.0**52 + 1])
    w, theta = np.array([[0.25], [0.5], [1.0]]), np.array([[1e-3], [-7.5], [3.0]])
    mpmath = pytest.importorskip("mpmath", reason="mpmath is not installed")
    with mpmath.workprec(200):
        angles = [
            mpmath.mpf(p) * mpmath.mpf(a) + mpmath.mpf(t) for p, a, t in zip(where, w[:, 0], theta[:, 0], strict=True)
        ]
        wanted = np.array([[complex(float(mpmath.cos(a)), float(mpmath.sin(a)))] for a in angles])
    for name in posenc.isas():
        with posenc.use_isa(name):
            result = posenc.complex_order(np.ones((3, 1)), w, where, phase=theta)
            assert np.abs(result[:2] - wanted[:2]).max() <= 4e-16  # the bound of sinusoidal below 2**31
            assert np.abs(result[2] - wanted[2]).max() <= 1e-12  # and below 2**53


def test_complex_order_dtypes(rng):
    for dtype in DTYPES:
        z = posenc.complex_order(np.ones((2, 3), dtype), np.ones(3), 2)
        assert z.dtype == (np.complex128 if dtype == np.float64 else np.complex64)
    amplitude = rng.standard_normal((4, 3)).astype(np.float32)
    gradient = posenc.complex_order_vjp(np.ones((4, 3)), amplitude, np.ones(3), 4)
    assert gradient.phase is None
    assert gradient.amplitude.dtype == np.float32
    assert np.abs(gradient.amplitude - np.cos(np.arange(4.0))[:, None]).max() <= 1e-7  # a real cotangent is real


def test_sharing_patterns_agree(rng):
    """A scalar of a word and a vector of dimensions are the same numbers as written out, bit for bit."""
    amplitude, where = rng.standard_normal((2, 5, 300)), rng.integers(-99, 99, (2, 5))
    for shape in [(2, 5, 1), (300,), (1, 1, 300), (5, 1), ()]:
        w, theta = rng.standard_normal(shape), rng.standard_normal(shape)
        shared = posenc.complex_order(amplitude, w, where, phase=theta)
        whole = [np.broadcast_to(a, amplitude.shape).copy() for a in (w, theta)]
        assert same_bits(shared, posenc.complex_order(amplitude, whole[0], where, phase=whole[1]))
        assert posenc.complex_order_vjp(shared, amplitude, w, where, phase=theta).phase.shape == shape


def test_complex_order_refuses_angles_past_what_is_known():
    with pytest.raises(ValueError, match=r"complex_order: frequency has 1e\+30; expected at most 2\*\*56 radians"):
        posenc.complex_order(np.ones((2, 1)), [1e30], 2)
    with pytest.raises(ValueError, match="complex_order: phase has"):
        posenc.complex_order(np.ones((2, 1)), [1.0], 2, phase=[1e30])
    with pytest.raises(ValueError, match="complex_order: frequency has shape"):
        posenc.complex_order(np.ones((2, 1)), np.ones((2, 2)), 2)


# ---- digits ----


def test_digits_of_the_blog():
    """What happens to 1749 when 1000 numbers of three digits become 2000, four ways."""
    assert posenc.digits(999, width=3).tolist() == [9, 9, 9]  # three digits reach 999
    assert posenc.digits(1749, width=4).tolist() == [1, 7, 4, 9]  # extrapolation: one more digit
    assert posenc.digits(1749 / 2, width=3).tolist() == [8, 7, 4.5]  # interpolation: 874.5
    assert posenc.from_digits([7, 4, 9]) * 2 == 1498  # what [7, 4, 9] then means
    assert np.diff(posenc.digits(np.array([1748, 1749]) / 2, width=3)[:, -1]).tolist() == [0.5]  # neighbours crowd
    assert posenc.digits(1749, base=16, width=3).tolist() == [6, 13, 5]  # another base: three digits are enough
    assert posenc.digits(16**3 - 1, base=16, width=3).tolist() == [15, 15, 15]  # up to 4095
    assert 16**3 - 1 == 4095 > 1999
    assert posenc.from_digits([6, 13, 5], base=16) == 1749
    for number, base in [(1000, 10), (1749, 10), (999.5 + 1, 10), (4096, 16)]:
        with pytest.raises(ValueError, match=rf"digits: numbers has {number}.*; expected less than {base}\*\*3"):
            posenc.digits(number, base=base, width=3)


@pytest.mark.parametrize("base", [2, 3, 10, 16, 1000, 2**32 - 1, 2**32, 2**53])
def test_digits_of_large_integers_are_exact(base, rng):
    numbers = [
        0,
        1,
        base - 1,
        2**32 - 1,
        2**32,
        2**53,
        2**53 + 1,
        2**63 - 1,
        2**63,
        2**64 - 1,
        *map(int, rng.integers(0, 2**63, 50)),
    ]
    for dtype in (np.uint64, np.int64):
        kept = [n for n in numbers if n <= np.iinfo(dtype).max]
        for number, row in zip(kept, posenc.digits(np.array(kept, dtype), base=base, width=64), strict=True):
            wanted = []
            rest = number
            for _ in range(64):
                rest, digit = divmod(rest, base)
                wanted.append(digit)
            assert row.tolist() == wanted[::-1]
            if base < 2**32:
                assert posenc.from_digits(row, base=base) == float(number)


@pytest.mark.parametrize("base", [2, 3, 10, 97])
def test_from_digits_undoes_digits(base, rng):
    """To the bit, with fractions and up to 2**64."""
    numbers = np.concatenate([rng.uniform(0, 1e6, 200), np.floor(np.exp2(rng.uniform(0, 64, 200)))])
    back = posenc.from_digits(posenc.digits(numbers, base=base, width=64), base=base)
    assert same_bits(back, numbers)


def test_digits_refuses():
    for numbers in ([-1], [-0.5], [np.nan], [np.inf], [2.0**64], [1e300], [2**70], 2**64):
        with pytest.raises(ValueError, match="digits: numbers has"):
            posenc.digits(numbers, width=400)
    for base in (1, 0, -2, 2**53 + 1):
        with pytest.raises(ValueError, match="digits: base is"):
            posenc.digits(5, base=base, width=3)
    for options in ({"base": 2.0, "width": 3}, {"width": 3.0}, {"width": True}):
        with pytest.raises(TypeError, match=r"digits: (base|width) has"):
            posenc.digits(5, **options)
    with pytest.raises(ValueError, match="digits: width is 0"):
        posenc.digits(5, width=0)
    assert posenc.from_digits(np.full(400, 9.0)) == np.inf  # past float64, as its overflow is


# ---- positions_from_mask ----


def test_positions_from_mask_of_both_sides():
    keep = np.array([[1, 1, 1, 0, 0], [0, 0, 1, 1, 1], [0, 1, 0, 1, 0], [0, 0, 0, 0, 0]], bool)
    ids = posenc.positions_from_mask(keep)
    assert ids.dtype == np.int64
    assert ids.tolist() == [[0, 1, 2, 2, 2], [0, 0, 0, 1, 2], [0, 0, 0, 1, 1], [0] * 5]
    fairseq = np.cumsum(keep, -1) * keep + 1  # padding_idx 1: padding has its own position
    assert np.array_equal(np.where(keep, posenc.positions_from_mask(keep, start=2), 1), fairseq)
    with pytest.raises(TypeError, match="positions_from_mask: keep has dtype int64"):
        posenc.positions_from_mask([[1, 0]])
    with pytest.raises(TypeError, match="start"):
        posenc.positions_from_mask(keep, start=1.0)
    with pytest.raises(ValueError, match="positions_from_mask: keep has no axes"):
        posenc.positions_from_mask(np.True_)
