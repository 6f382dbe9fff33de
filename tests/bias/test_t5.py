"""T5: buckets are exact at every distance, where floating-point logarithms err."""

import numpy as np
import pytest
from cases import F64

import posenc
from posenc import reference

TABLE = [0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 8, 9, 9, 9, 9, 10, 10, 10, 10, 10, 10, 10, *[11] * 8]


def test_table_of_31_distances():
    """The buckets of keys before the query, of the default 32 buckets and of 16 in one direction."""
    distance = np.arange(31)
    assert posenc.t5_bucket(-distance, bidirectional=True).tolist() == TABLE
    assert posenc.t5_bucket(-distance, num_buckets=16, bidirectional=False).tolist() == TABLE
    assert posenc.t5_bucket(distance[1:], bidirectional=True).tolist() == [16 + b for b in TABLE[1:]]


EDGES = {
    (32, 128, True): [12, 16, 23, 32, 46, 64, 91],
    (32, 128, False): [19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113],
    (32, 256, True): [13, 20, 30, 46, 70, 108, 166],
}


@pytest.mark.parametrize("settings", EDGES, ids=str)
def test_where_buckets_begin(settings):
    """First distances of the logarithmic buckets, 8 (128/8)**(k/8) and so on, rounded up."""
    buckets, max_distance, bidirectional = settings
    found = posenc.t5_bucket(
        -np.arange(1000), num_buckets=buckets, max_distance=max_distance, bidirectional=bidirectional
    )
    exact = buckets // (4 if bidirectional else 2)
    assert (np.flatnonzero(np.diff(found)) + 1).tolist()[exact:] == EDGES[settings]


SETTINGS = {(side, (side // 2) * r ** (side - side // 2)) for side in range(2, 16) for r in (2, 3, 4)}
SETTINGS |= {(10, 160), (6, 6591), (60, 16384), (74, 65536), (124, 10000), (16, 128), (16, 256), (129, 4000), (17, 9)}
"""Buckets of a side, and largest distances; with ties in the first set, where a power lies in between."""


def test_buckets_are_exact(rng):
    """Around every threshold, at random, and at the ends of int64, in both directions."""
    for side, max_distance in sorted(SETTINGS):
        one = {"num_buckets": side, "max_distance": max_distance, "bidirectional": False}
        both = {"num_buckets": 2 * side, "max_distance": max_distance, "bidirectional": True}
        exact, steps = side // 2, side - side // 2
        far = [int(exact * (max_distance / exact) ** (k / steps)) for k in range(1, steps)]
        near = np.add.outer([-2, -1, 0, 1, 2], [exact, *far, max_distance, 4 * max_distance]).ravel()
        n = np.append(np.unique(np.abs([*range(200), *near, *rng.integers(0, 4 * max_distance, 200)])), 2**63 - 1)
        wanted = reference.t5_bucket(-n, **one)
        assert np.array_equal(posenc.t5_bucket(-n, **one), wanted)
        assert not posenc.t5_bucket(n, **one).any()
        assert np.array_equal(posenc.t5_bucket(-n, **both), wanted)
        assert np.array_equal(posenc.t5_bucket(n, **both), wanted + side * (n > 0))
        assert posenc.t5_bucket(-(2**63), **both) == wanted[-1]


@pytest.mark.parametrize("max_distance", [128, 10**6, 2**62])
def test_far_edges_of_buckets_in_a_matrix(max_distance, rng, isa):
    """The rows of a table that holds its own row numbers: at random distances, and on both sides of each edge."""
    table, far = np.arange(32.0)[:, None], 10 ** rng.uniform(0, 15, 400)
    rel = np.unique(np.concatenate([[-12265, -53183, -230615], far, -far]).astype(np.int64))
    steps = np.flatnonzero(np.diff(posenc.t5_bucket(rel, max_distance=max_distance, bidirectional=True)))
    edges = [bisect(int(a), int(b), max_distance) for a, b in zip(rel[steps], rel[steps + 1], strict=True)]
    rel = np.unique(np.concatenate([rel, edges, np.array(edges) - 1]))
    rows = posenc.t5(table, max_distance=max_distance, bidirectional=True).matrix(
        1, len(rel), q_positions=[0], k_positions=rel
    )[0, 0]
    assert np.array_equal(rows, reference.t5_bucket(rel, max_distance=max_distance, bidirectional=True))


def bisect(low, high, max_distance):
    """The first distance after `low` with the bucket of `high`, if there are two between them."""
    first = reference.t5_bucket(np.array([low]), max_distance=max_distance, bidirectional=True)
    while high - low > 1:
        middle = (low + high) // 2
        same = reference.t5_bucket(np.array([middle]), max_distance=max_distance, bidirectional=True) == first
        low, high = (middle, high) if same else (low, middle)
    return high


def test_the_smallest_tables():
    """A bucket for each distance and one for the rest, in one direction or in both."""
    assert posenc.t5(np.zeros((4, 2)), bidirectional=True).matrix(3).shape == (2, 3, 3)
    assert posenc.t5(np.zeros((2, 2)), bidirectional=False).matrix(3).shape == (2, 3, 3)
    for rows, options in ((3, {"bidirectional": True}), (1, {"bidirectional": False})):
        with pytest.raises(ValueError, match=r"^t5: table has \d rows; expected at least"):
            posenc.t5(np.zeros((rows, 2)), **options)


def test_the_kernel_and_the_function_agree(isa):
    """At distances inside and beyond the look-up table, for fractions, and at distances beyond int32."""
    rel = np.array([0, -0.9, 0.9, 1, -1, 19.5, -4095.5, 4096, 4097, -4097, 10**5, -(10**6), 10**9, -(2.0**52), 2.0**52])
    for buckets, max_distance in ((32, 128), (32, 10**6), (6, 5), (33, 10**15)):
        for bidirectional in (True, False):
            options = {"max_distance": max_distance, "bidirectional": bidirectional}
            matrix = posenc.t5(np.arange(float(buckets))[:, None], **options).matrix(
                1, len(rel), q_positions=[0], k_positions=rel, dtype=F64
            )
            assert np.array_equal(matrix[0, 0], posenc.t5_bucket(rel, num_buckets=buckets, **options))


def test_buckets_of_any_integer():
    assert posenc.t5_bucket(np.int8(-100), bidirectional=True) == 15
    assert posenc.t5_bucket(np.array([200], np.uint8), bidirectional=True).tolist() == [31]
    assert posenc.t5_bucket([[-1.999, 1.999]], bidirectional=True).tolist() == [[1, 17]]
    assert posenc.t5_bucket([1e300, -1e300], bidirectional=True).tolist() == [31, 15]
    assert posenc.t5_bucket([], bidirectional=True).shape == (0,)
    assert posenc.t5_bucket([1], bidirectional=True).dtype == np.int64


def test_thousands_of_buckets_are_exact():
    """The first distance of a bucket e + k is the smallest n with n**steps >= max_distance**k e**(steps - k)."""
    buckets, farthest = 8000, 128_000
    exact = steps = buckets // 2
    bucket = posenc.t5_bucket(-np.arange(farthest + 9), num_buckets=buckets, max_distance=farthest, bidirectional=False)
    assert bucket.max() == buckets - 1
    for k in (1, 2, 17, 1999, 2000, 3998, 3999):
        first = int(np.searchsorted(bucket, exact + k))
        threshold = farthest**k * exact ** (steps - k)
        assert first**steps >= threshold > (first - 1) ** steps


def test_a_transposed_table_is_named():
    """A table (heads, buckets) is a table of 12 buckets for 32 heads, which attention has not."""
    q = np.ones((12, 4, 8))
    message = r"^attention: bias has 32 heads \(t5\); expected 12, .*; its table .* transposed$"
    with pytest.raises(ValueError, match=message):
        posenc.attention(q, q, q, bias=posenc.t5(np.zeros((12, 32)), bidirectional=True))
    with pytest.raises(ValueError, match=r"^attention: bias has 4 heads \(t5\); expected 12, axis -3 of q$"):
        posenc.attention(q, q, q, bias=posenc.t5(np.zeros((32, 4)), bidirectional=True))


def test_unscaled_is_a_scale_of_1(rng):
    """T5's attention in one option: the default scale is 1, forward and backward; a given scale still counts."""
    q, k, v = rng.standard_normal((3, 2, 9, 16))
    table = rng.standard_normal((8, 2))
    plain, preset = posenc.t5(table, bidirectional=True), posenc.t5(table, unscaled=True, bidirectional=True)
    assert np.array_equal(preset.matrix(9), plain.matrix(9))
    for given, scale in (({}, 1), ({"scale": 0.5}, 0.5)):
        found = posenc.attention_vjp(v, q, k, v, bias=preset, **given)
        assert all(map(np.array_equal, found[:3], posenc.attention_vjp(v, q, k, v, bias=plain, scale=scale)[:3]))
        expected = posenc.attention(q, k, v, bias=plain, scale=scale)
        assert np.array_equal(posenc.attention(q, k, v, bias=preset, **given), expected)
    summed = posenc.attention(q, k, v, bias=preset + posenc.alibi([0.5, 0.25]))
    assert np.array_equal(summed, posenc.attention(q, k, v, bias=[plain, posenc.alibi([0.5, 0.25])], scale=1))
    with pytest.raises(TypeError, match="t5: unscaled"):
        posenc.t5(table, unscaled=1, bidirectional=True)
