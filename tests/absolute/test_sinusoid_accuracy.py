"""Tables of sines and cosines against mpmath, at positions of every size and at the smallest results."""

import mpmath
import numpy as np
import pytest
from cases import DTYPES, F32, F64, ulp
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
    return reference.sinusoidal_frequencies(dim, base=mpmath.mpf(base))


def truth(positions, w):
    """sin and cos of position * w, (N, 2, e), correctly rounded to float64."""
    table = reference.sinusoidal(numbers(positions), 2 * len(w), frequencies=w, layout="half")
    return table.reshape(len(table), 2, len(w)).astype(np.float64)


def sampled():
    """Positions 0..2**31: dense near 0, then thinner, and on both sides of every power of two."""
    rng = np.random.default_rng(3)
    powers = [2**k + d for k in range(4, 31) for d in (-1, 0, 1)]
    return sorted(
        {
            *range(16),
            2047,
            131071,
            HIGHEST - 1,
            -1,
            -2,
            -131071,
            1 - HIGHEST,
            *powers,
            *(int(p) for p in np.exp2(rng.uniform(4, 31, 60))),
        }
    )


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


@pytest.mark.parametrize("base", [10000, 500000.0])
def test_sampled_positions(base, isa):
    """Within 1 ulp in float32, 4e-16 in float64, and half an ulp of a half type and a float32 ulp."""
    positions = sampled()
    wanted = truth(positions, exact(base))
    for dtype in DTYPES:
        table = halves(posenc.sinusoidal(positions, DIM, base=base, layout="half", dtype=dtype))
        if dtype == F64:
            assert np.abs(table - wanted).max() <= 4e-16
        elif dtype == F32:
            assert_ulps(table, wanted)
        else:
            assert np.all(np.abs(table - wanted) <= ulp(wanted, dtype) / 2 + ulp(wanted, F32))


@pytest.mark.parametrize("i", range(0, DIM // 2, 6))
def test_nearest_the_zeros(i):
    """Positions below 2**31; beyond, no ulp is promised."""
    w = exact(10000)
    for highest, bound in ((HIGHEST, 4e-16), (2**53, 1e-12)):
        positions = nearest_zeros(w[i], highest)
        wanted = truth(positions, w)
        assert np.abs(wanted[..., i]).min() < 1e-6, "these positions are not near any zero"
        for name in posenc.runtime.isas():
            with posenc.runtime.use_isa(name):
                single = halves(posenc.sinusoidal(positions, DIM, layout="half"))
                double = halves(posenc.sinusoidal(positions, DIM, layout="half", dtype=F64))
            if highest == HIGHEST:
                assert_ulps(single, wanted)
            assert np.abs(single - wanted).max() <= 2.0**-24
            assert np.abs(double - wanted).max() <= bound


def test_given_frequencies_are_exact_float64(isa):
    """rope_table and sinusoidal(frequencies=) take the float64 frequencies as exact."""
    frequencies = np.array([1.0, 0.1, np.pi / 2, 3e-5, 7.0])
    w = numbers(frequencies)
    positions = sampled() + [p for each in w[::4] for p in nearest_zeros(each, HIGHEST)]
    wanted = truth(positions, w)
    cos, sin = posenc.rope_table(positions, frequencies, dtype=np.float32)
    assert_ulps(np.stack([sin, cos], -2).astype(F64), wanted)
    cos, sin = posenc.rope_table(positions, frequencies, dtype=F64)
    assert np.abs(np.stack([sin, cos], -2) - wanted).max() <= 4e-16
    table = posenc.sinusoidal(positions, 2 * len(w), frequencies=frequencies, layout="half")
    assert_ulps(halves(table), wanted)


@pytest.mark.parametrize(
    ("positions", "bound"),
    [
        ([2**31, 2**40 + 12345, 2**52 + 1, 2**53 - 1, 2**53, -(2**53)], 1e-12),
        ([-1e6 / 3, -0.5, 0.1, 1 / 3, 1e6 / 7, 1e-300, 5e-324], 4e-16),
    ],
    ids=["far", "fractions"],
)
def test_far_and_fractional_positions(positions, bound, isa):
    """No ulp is promised near the zeros; the absolute bounds hold."""
    wanted = truth(positions, exact(10000))
    for given in (positions, [float(position) for position in positions]):
        assert np.abs(halves(posenc.sinusoidal(given, DIM, layout="half")) - wanted).max() <= 2.0**-24
        assert np.abs(halves(posenc.sinusoidal(given, DIM, layout="half", dtype=F64)) - wanted).max() <= bound


# ---- a row is a function of its position alone ----


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dim", [1, 33, 128])
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


# ---- instruction sets ----


def on_each_isa(make):
    """The results of make() on every instruction set."""
    results = []
    for name in posenc.runtime.isas():
        with posenc.runtime.use_isa(name):
            results.append(make())
    return results


def test_float32_is_the_same_on_every_instruction_set(rng):
    """Two of 10**9 entries differ, by 1 ulp, as documented: without FMA products round twice, so float64 numbers differ
    by 2**-53, and float32 results where a boundary lies between them. The bound, one in 10**7, is fifty times that."""
    differing = entries = 0
    for positions in (np.arange(4096), rng.integers(-HIGHEST + 1, HIGHEST, 4096), rng.uniform(-1e6, 1e6, 1024)):
        for dim, options in ((64, {}), (512, {"base": 5e5, "denominator": "half-1"})):
            tables = on_each_isa(lambda d=dim, o=options, p=positions: posenc.sinusoidal(p, d, **o))
            for other in tables[1:]:
                different = tables[0] != other
                differing, entries = differing + different.sum(), entries + other.size
                apart = np.abs(tables[0][different].astype(F64) - other[different])
                assert np.all(apart <= np.spacing(np.abs(tables[0][different])))
    assert differing <= max(1, entries // 10**7)
