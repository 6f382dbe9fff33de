"""DeBERTa: numbers worked by hand from the paper, and its buckets."""

from fractions import Fraction

import numpy as np
import pytest
from cases.content import column

import posenc


def test_deberta():
    """Equation 4 with k = 1: delta is 0 for i - j <= -1, and clipped to 2k - 1 = 1 for i - j >= 0."""
    rel_q, rel_k = column(100, 200), column(10, 20)
    q, k = column(1, 2), column(3, 5)
    by_code = [[20 + 3 * 200, 10 + 5 * 100], [2 * 20 + 3 * 200, 2 * 20 + 5 * 200]]
    as_printed = [[20 + 3 * 200, 10 + 5 * 200], [2 * 20 + 3 * 100, 2 * 20 + 5 * 200]]
    assert posenc.deberta(rel_q, rel_k).logits(q, k)[0].tolist() == by_code
    assert posenc.deberta(rel_q, rel_k, p2c_index="paper").logits(q, k)[0].tolist() == as_printed
    assert posenc.deberta(None, rel_k, terms=("c2p",)).logits(q, k)[0].tolist() == [[20, 10], [40, 40]]
    assert posenc.deberta(rel_q, None, terms=("p2c",)).logits(q, k)[0].tolist() == [[600, 500], [600, 1000]]


ONE = np.ones((1, 1, 1))
BUCKETS = {0: 0, 1: 1, 127: 127, 128: 128, 129: 129, 200: 169, 511: 255, 512: 256, 600: 270}
"""127 log(200/128) / log(511/128) = 40.94 and ceil 41: 169. 511 is where the logarithm is 127 exactly: 255, and 512 is
one more."""


def test_deberta_buckets():
    """The 256 buckets of v2 up to distance 512. The table is not clipped, and each row is its own number."""
    bias = posenc.deberta(None, np.arange(600.0)[None, :, None], num_buckets=256, max_distance=512, terms=("c2p",))
    for distance, bucket in BUCKETS.items():
        rows = bias.logits(ONE, np.ones((1, 2, 1)), q_positions=[0], k_positions=[-distance, distance])
        assert rows[0, 0].tolist() == [300 + bucket, 300 - bucket]
        s = bucket - 128
        if s > 0:  # the smallest s with (distance / 128)**127 <= (511 / 128)**s
            assert Fraction(511, 128) ** (s - 1) < Fraction(distance, 128) ** 127 <= Fraction(511, 128) ** s


@pytest.mark.parametrize("buckets", [2, 3])
def test_deberta_without_logarithmic_buckets(buckets):
    """With mid = 1, ceil(0 log |r|) + 1 is 1 at every distance but 0, so there are three buckets."""
    bias = posenc.deberta(None, np.arange(8.0)[None, :, None], num_buckets=buckets, max_distance=64, terms=("c2p",))
    q = np.ones((1, 9, 1))
    at = [0, 1, 2, 3, 63, 64, 1000, -1, -2]
    assert bias.logits(q, q[:, :1], q_positions=at, k_positions=[0])[0, :, 0].tolist() == [4, 5, 5, 5, 5, 5, 5, 3, 3]


def test_deberta_clips_the_row_and_not_the_distance():
    """The last of 512 rows is 511, for distances from 511 on, and the first is 0, from -512 on. An implementation that
    clips the distance at 511 never reads row 0."""
    bias = posenc.deberta(None, np.arange(512.0)[None, :, None], num_buckets=256, max_distance=512, terms=("c2p",))
    q = np.ones((1, 6, 1))
    rows = bias.logits(q, q[:, :1], q_positions=[511, 512, 2000, -511, -512, -(2**40)], k_positions=[0])[0, :, 0]
    assert rows.tolist() == [511, 511, 511, 1, 0, 0]


def test_more_buckets_than_rows():
    """Rows end before the first logarithmic bucket, as without buckets, however many of them are named."""
    table, q = np.arange(16.0)[None, :, None], np.ones((1, 40, 1))
    named = posenc.deberta(None, table, num_buckets=10**12, max_distance=10**13, terms=("c2p",))
    assert np.array_equal(named.logits(q, q), posenc.deberta(None, table, terms=("c2p",)).logits(q, q))


@pytest.mark.parametrize("options", [{}, {"num_buckets": 4, "max_distance": 8}, {"p2c_index": "paper"}], ids=str)
def test_rows_from_the_cache_are_read_only(options):
    """Operators of one size share the rows of their distances."""
    rows = posenc.deberta(*np.ones((2, 1, 8, 2)), **options)._term.operands
    assert not rows["rows"].flags.writeable
    assert not rows["rows_q"].flags.writeable


def test_thousands_of_buckets_are_exact():
    """Bucket mid + s ends at the largest r with (r / mid)**(mid - 1) <= ((max_distance - 1) / mid)**s."""
    buckets, farthest = 2000, 8000
    mid = buckets // 2
    table = np.zeros((1, 2 * buckets, 1))
    rows = posenc.deberta(table, table, num_buckets=buckets, max_distance=farthest)._term.operands["rows"]
    bucket = buckets - rows[len(rows) // 2 :]  # of rel = 0, 1, 2, ...
    for s in (1, 2, 500, mid - 2, mid - 1):
        last = int(np.searchsorted(bucket, mid + s, side="right")) - 1
        ends = [r ** (mid - 1) * mid**s for r in (last, last + 1)]
        assert ends[0] <= mid ** (mid - 1) * (farthest - 1) ** s < ends[1]


def test_buckets_that_skip_rows():
    """With max_distance < 1.6 mid, buckets of neighbouring distances differ by 2 from 1148 to 1214: the rows of a tile
    have one step, but are not the neighbours that products with a run of rows read."""
    buckets, max_position, reach = 2048, 1580, 3000
    bias = posenc.deberta(
        None, np.arange(2.0 * reach)[None, :, None], num_buckets=buckets, max_distance=max_position, terms=("c2p",)
    )
    distances = np.arange(1150, 1212)
    s = np.ceil(1023 * np.log(distances / 1024) / np.log((max_position - 1) / 1024))
    assert set(np.diff(s)) == {2}
    q = np.ones((1, len(distances), 1))
    for n in (4, 8, 16, len(distances)):
        logits = bias.logits(q[:, :n], ONE, q_positions=distances[:n], k_positions=[0])
        assert logits[0, :, 0].tolist() == (reach + 1024 + s[:n]).tolist()
