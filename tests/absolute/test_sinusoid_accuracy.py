"""Tables of sines and cosines against mpmath, at positions of every size and at the smallest results."""

import mpmath
import numpy as np
import pytest
from cases import BF16, F32, F64, ulp
from cases.layouts import same_bits

import posenc
from posenc import reference

DIM = 64
HIGHEST = 2**31
mpmath.mp.prec = 260


def numbers(values):
    """The same numbers in mpmath."""
    return np.array([mpmath.mpf(float(v) if isinstance(v, (float, np.floating)) else int(v)) for v in values], object)


def exact(base, dim=DIM):
    """base**(-2i/dim) as 260-bit numbers."""
    return reference.frequencies(dim, base=mpmath.mpf(base))


def truth(positions, w):
    """sin and cos of position * w, (N, 2, e), correctly rounded to float64."""
    table = reference.sinusoidal(numbers(positions), 2 * len(w), frequencies=w, layout="half")
    return table.reshape(len(table), 2, len(w)).astype(np.float64)


def sampled():
    """Positions 0..2**31: dense near 0, then thinner, and on both sides of every power of two."""
    rng = np.random.default_rng(3)
    powers = [2**k + d for k in range(4, 31) for d in (-1, 0, 1)]
    return sorted({*range(16), 2047, 131071, HIGHEST - 1, -1, -2, -131071, 1 - HIGHEST, *powers,
                   *(int(p) for p in np.exp2(rng.uniform(4, 31, 60)))})  # fmt: skip


def nearest_zeros(w, below, most=6):
    """Positions whose angle is nearest to a multiple of pi/2, where a sine or a cosine is smallest: denominators of the
    convergents of w / (pi/2), and their small multiples."""
    x = w / (mpmath.pi / 2)
    before, now, found = 0, 1, []
    while now < below:
        found.append(now)
        x = x - mpmath.floor(x)
        if x == 0:
            break
        x = 1 / x
        before, now = now, int(mpmath.floor(x)) * now + before
    largest = found[-most:]
    return sorted({p * k for p in largest for k in (1, 2, 3, 5) if p * k < below})


def halves(table):
    return np.stack([table[..., : table.shape[-1] // 2], table[..., table.shape[-1] // 2 :]], -2).astype(np.float64)


def assert_ulps(result, wanted, dtype=F32, count=1.0):
    """Assert |result - wanted| <= count ulps, plus half a float64 ulp for the rounding of the reference."""
    excess = np.abs(result - wanted) - count * ulp(wanted, dtype) - np.spacing(np.abs(wanted)) / 2
    assert excess.max(initial=-1) <= 0


@pytest.mark.parametrize("base", [10000, 500000.0, 1e6, 2])
def test_float32_within_one_ulp_at_sampled_positions(base, isa):
    positions = sampled()
    table = posenc.sinusoidal(positions, DIM, base=base, layout="half")
    assert_ulps(halves(table), truth(positions, exact(base)))


@pytest.mark.parametrize("i", range(0, DIM // 2, 3))
def test_float32_within_one_ulp_nearest_the_zeros(i):
    w = exact(10000)
    positions = nearest_zeros(w[i], HIGHEST)
    wanted = truth(positions, w)
    assert np.abs(wanted[..., i]).min() < 1e-6, "these positions are not near any zero"
    for name in posenc.isas():
        with posenc.use_isa(name):
            assert_ulps(halves(posenc.sinusoidal(positions, DIM, layout="half")), wanted)
            double = posenc.sinusoidal(positions, DIM, layout="half", dtype=F64)
            assert np.abs(halves(double) - wanted).max() <= 4e-16


@pytest.mark.parametrize(
    "frequencies", [posenc.rope_frequencies(64).inv_freq, np.array([1.0, 0.1, np.pi / 2, 3e-5, 7.0])]
)
def test_given_frequencies_are_exact_float64(frequencies, isa):
    """rope_table and sinusoidal(frequencies=) take the float64 frequencies as exact."""
    w = numbers(frequencies)
    positions = sampled() + [p for each in w[::4] for p in nearest_zeros(each, HIGHEST)]
    wanted = truth(positions, w)
    cos, sin = posenc.rope_table(positions, frequencies)
    assert_ulps(np.stack([sin, cos], -2).astype(F64), wanted)
    cos, sin = posenc.rope_table(positions, frequencies, dtype=F64)
    assert np.abs(np.stack([sin, cos], -2) - wanted).max() <= 4e-16
    table = posenc.sinusoidal(positions, 2 * len(w), frequencies=frequencies, layout="half")
    assert_ulps(halves(table), wanted)


@pytest.mark.parametrize("position", [2**31, 2**40, 2**40 + 12345, 2**52 + 1, 2**53 - 1, 2**53, -(2**53)])
def test_positions_up_to_2_to_the_53(position, isa):
    w = exact(10000)
    positions = [position]
    wanted = truth(positions, w)
    for given in (positions, [float(position)]):
        assert np.abs(halves(posenc.sinusoidal(given, DIM, layout="half")) - wanted).max() <= 2.0**-24
        double = halves(posenc.sinusoidal(given, DIM, layout="half", dtype=F64))
        assert np.abs(double - wanted).max() <= 1e-12


def test_zeros_beyond_2_to_the_31(isa):
    w = exact(10000)
    for i in range(0, DIM // 2, 5):
        positions = [p for p in nearest_zeros(w[i], 2**53) if p > HIGHEST]
        wanted = truth(positions, w)
        assert np.abs(halves(posenc.sinusoidal(positions, DIM, layout="half")) - wanted).max() <= 2.0**-24
        assert np.abs(halves(posenc.sinusoidal(positions, DIM, layout="half", dtype=F64)) - wanted).max() <= 1e-12


def test_float64_within_4e_16_at_sampled_positions(isa):
    positions = sampled()
    wanted = truth(positions, exact(10000))
    assert np.abs(halves(posenc.sinusoidal(positions, DIM, layout="half", dtype=F64)) - wanted).max() <= 4e-16


def test_fractional_positions(isa):
    """For fractions no ulp is promised near the zeros; the absolute bounds hold."""
    positions = [float(p) for p in np.random.default_rng(5).uniform(-1e6, 1e6, 100)] + [0.1, 1 / 3, 1e-300, 5e-324]
    wanted = truth(positions, exact(10000))
    assert np.abs(halves(posenc.sinusoidal(positions, DIM, layout="half")) - wanted).max() <= 2.0**-24
    assert np.abs(halves(posenc.sinusoidal(positions, DIM, layout="half", dtype=F64)) - wanted).max() <= 4e-16


@pytest.mark.parametrize("dtype", [d for d in (np.dtype(np.float16), BF16) if d is not None], ids=str)
def test_half_types_are_rounded_once(dtype, isa):
    """Half an ulp of the storage dtype, and a float32 ulp."""
    positions = sampled()
    wanted = truth(positions, exact(10000))
    result = halves(posenc.sinusoidal(positions, DIM, layout="half", dtype=dtype))
    bound = ulp(wanted, dtype) / 2 + ulp(wanted, F32)
    assert np.all(np.abs(result - wanted) <= bound)


@pytest.mark.parametrize("base", [1e4, 5e5, 1e6])
def test_rope_at_long_positions(base):
    """The error is 3e-7. A float32 phase would be off by 3e-3 at position 131071, and by 0.35 at 2**24."""
    positions = [0, 2047, 131071, 2**20, 2**24]
    frequencies = posenc.rope_frequencies(128, base=base)
    wanted = truth(positions, numbers(frequencies.inv_freq))
    ones = np.concatenate([np.ones((5, 64)), np.zeros((5, 64))], -1).astype(np.float32)
    rotated = halves(posenc.rope(ones, positions, frequencies, layout="half"))
    assert np.abs(rotated - wanted[:, ::-1]).max() <= 3e-7


# ---- a row is a function of its position alone ----


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dim", [1, 6, 33, 128])
def test_rows_depend_on_their_position_alone(dim, dtype, isa):
    options = {"dim": dim, "dtype": dtype}
    whole = posenc.sinusoidal(300, **options)
    for p in (0, 1, 2, 7, 8, 63, 64, 65, 255, 299):
        assert same_bits(posenc.sinusoidal([p], **options)[0], whole[p])
        assert same_bits(posenc.sinusoidal([float(p)], **options)[0], whole[p])
    assert same_bits(posenc.sinusoidal(np.arange(300)[::-1], **options), whole[::-1].copy())
    packed = posenc.sinusoidal([*range(100), *range(100), *range(17, 80)], **options)
    assert same_bits(packed[100:200], whole[:100])
    assert same_bits(packed[200:], whole[17:80])
    assert same_bits(posenc.sinusoidal(np.arange(300).reshape(3, 100), **options).reshape(300, dim), whole)


def test_unit_norm_of_every_pair(isa):
    """sin**2 + cos**2 = 1 within two float64 roundings of each, also at the largest positions."""
    positions = np.random.default_rng(7).integers(-(2**53), 2**53, 200)
    table = halves(posenc.sinusoidal(positions, 256, layout="half", dtype=F64))
    assert np.abs((table**2).sum(-2) - 1).max() <= 4 * 4e-16


# ---- instruction sets ----


def on_each_isa(make):
    """The results of make() on every instruction set."""
    results = []
    for name in posenc.isas():
        with posenc.use_isa(name):
            results.append(make())
    return results


ISA_SETS = {
    "consecutive": lambda rng: np.arange(4096),
    "anywhere": lambda rng: rng.integers(-HIGHEST + 1, HIGHEST, 4096),
    "fractional": lambda rng: rng.uniform(-1e6, 1e6, 1024),
}


@pytest.mark.parametrize("which", ISA_SETS)
def test_float32_is_the_same_on_every_instruction_set(which, rng):
    """Two of 10**9 entries differ, by 1 ulp, as documented: without FMA products round twice, so float64 numbers differ
    by 2**-53, and float32 results where a boundary lies between them. The bound, one in 10**7, is fifty times that."""
    positions = ISA_SETS[which](rng)
    differing = entries = 0
    for dim, options in ((64, {}), (1000, {"layout": "half"}), (512, {"base": 5e5, "denominator": "half-1"})):
        first, *others = on_each_isa(lambda dim=dim, options=options: posenc.sinusoidal(positions, dim, **options))
        for other in others:
            different = first != other
            differing, entries = differing + different.sum(), entries + first.size
            apart = np.abs(first[different].astype(F64) - other[different])
            assert np.all(apart <= np.spacing(np.abs(first[different])))
    assert differing <= max(1, entries // 10**7)


def test_rope_table_is_the_same_on_every_instruction_set(rng):
    for positions in (np.arange(8192), rng.integers(-HIGHEST + 1, HIGHEST, 4096)):
        w = posenc.rope_frequencies(128, base=5e5)
        first, *others = on_each_isa(lambda p=positions, w=w: np.stack(posenc.rope_table(p, w)))
        for other in others:
            different = first != other
            assert different.sum() <= 1  # of 10**6; 0.002 are expected
            apart = np.abs(first[different].astype(F64) - other[different])
            assert np.all(apart <= np.spacing(np.abs(first[different])))


@pytest.mark.parametrize(("position", "column", "base"), [
    (1038942783, 241, float.fromhex("0x1.c3e102084e756p+19")),
    (972578694, 31, float.fromhex("0x1.3c0c5dddbb46cp+19")),
    (520043003, 286, float.fromhex("0x1.605eaf3959ef5p+18")),
])  # fmt: skip
def test_where_instruction_sets_do_differ(position, column, base):
    """Found among 10**10 entries: the boundary between two floats is within 2**-51, the error of angle addition, so
    both results are right."""
    rows = on_each_isa(lambda: posenc.sinusoidal([position], 1024, base=base)[0, column])
    wanted = reference.sinusoidal(numbers([position]), 1024, base=mpmath.mpf(base))[0, column]
    for result in rows:
        assert abs(mpmath.mpf(float(result)) - wanted) <= ulp(float(wanted), F32) / 2 + 2.0**-51


def test_float64_differs_by_two_roundings_between_instruction_sets(rng):
    """Each result is within 4e-16 of the truth below 2**31, so two results are within 8e-16."""
    positions = rng.integers(-HIGHEST + 1, HIGHEST, 1024)
    first, *others = on_each_isa(lambda: posenc.sinusoidal(positions, 512, dtype=F64))
    assert all(np.abs(first - other).max() <= 8e-16 for other in others)
