"""Relative operators: numbers worked by hand from each paper, default scales, and what a Bias keeps."""

import copy
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from cases.layouts import same_bits

import posenc

# ---- worked by hand ----


def column(*numbers):
    """(1, N, 1): one head, one channel."""
    return np.array(numbers, np.float64)[None, :, None]


def test_shaw():
    """Equations 3 to 5, K = 1: e = x_i (x_j + a^K), z = sum of softmax(e) (x_j + a^V)."""
    rel_k, rel_v = column(10, 20, 40)[0], column(-1, 5, 100)[0]
    bias = posenc.shaw(rel_k, rel_v)
    q, k, v = column(1, 0, -1), column(3, 4, 5), column(7, 8, 9)
    assert bias.logits(q, k)[0].tolist() == [[20, 40, 40], [0, 0, 0], [-10, -10, -20]]
    out = posenc.attention(q, k, v, bias=bias)[0, :, 0]
    assert out[1] == pytest.approx(((7 - 1) + (8 + 5) + (9 + 100)) / 3, rel=1e-15)  # logits are equal
    weights = np.exp([-13 + 13, -14 + 13, -25 + 13])  # of the last query, whose logits are -(3 + 10), -(4 + 10), ...
    assert out[2] == pytest.approx(weights @ [7 - 1, 8 - 1, 9 + 5] / weights.sum(), rel=1e-15)


def test_shaw_scales_both_terms():
    """Equation 5 divides the sum by sqrt(D)."""
    q, k = np.full((1, 1, 4), 1.0), np.full((1, 2, 4), 1.0)
    rel_k = np.array([[0.0], [0.0], [2.0]]) * np.ones(4)
    _, lse = posenc.attention(q, k, k, bias=posenc.shaw(rel_k), align="start", return_lse=True)
    assert lse[0, 0] == pytest.approx(np.logaddexp(4 / 2, (4 + 8) / 2), rel=1e-15)


def test_nezha():
    """Equation 8: the row of rel = 1 is number 65, and its angle is 65, not 1."""
    row = posenc.nezha(4)[65]
    assert row == pytest.approx([math.sin(65), math.cos(65), math.sin(0.65), math.cos(0.65)], abs=4e-16)
    assert posenc.nezha(4).shape == (129, 4)


def test_transformer_xl():
    """Terms (b), (c) and (d) of section 3.3 for two queries and two keys: q r + u k + v r; (a) is q k."""
    bias = posenc.transformer_xl(column(10, 20, 40), [[7.0]], [[11.0]])
    q, k = column(1, 2), column(3, 5)
    wanted = [[20 + 21 + 220, 40 + 35 + 440], [2 * 10 + 21 + 110, 2 * 20 + 35 + 220]]
    assert bias.logits(q, k)[0].tolist() == wanted
    _, lse = posenc.attention(q, k, k, bias=bias, return_lse=True)
    assert lse[0] == pytest.approx([np.logaddexp(3 + 261, 5 + 515), np.logaddexp(6 + 151, 10 + 295)], rel=1e-15)


def test_xl_table_is_of_the_distance():
    """R_d with d = i - j: the row of rel = -2 is that of the distance 2, sines first."""
    assert posenc.xl_table(3, 4)[3 - 2] == pytest.approx(
        [math.sin(2), math.sin(0.02), math.cos(2), math.cos(0.02)], abs=4e-16
    )


def test_deberta():
    """Equation 4, k = 1: delta is 0 for i - j <= -1, 1 for i - j = 0 (which is >= 1 - k) and clipped to 2k - 1 = 1."""
    rel_q, rel_k = column(100, 200), column(10, 20)
    q, k = column(1, 2), column(3, 5)
    by_code = [[20 + 3 * 200, 10 + 5 * 100], [2 * 20 + 3 * 200, 2 * 20 + 5 * 200]]
    as_printed = [[20 + 3 * 200, 10 + 5 * 200], [2 * 20 + 3 * 100, 2 * 20 + 5 * 200]]
    assert posenc.deberta(rel_q, rel_k).logits(q, k)[0].tolist() == by_code
    assert posenc.deberta(rel_q, rel_k, p2c_index="paper").logits(q, k)[0].tolist() == as_printed
    assert posenc.deberta(None, rel_k, terms=("c2p",)).logits(q, k)[0].tolist() == [[20, 10], [40, 40]]
    assert posenc.deberta(rel_q, None, terms=("p2c",)).logits(q, k)[0].tolist() == [[600, 500], [600, 1000]]


BUCKETS = {0: 0, 1: 1, 127: 127, 128: 128, 129: 129, 200: 169, 511: 255, 512: 256, 600: 270}
"""127 log(200/128) / log(511/128) = 40.94 and ceil 41: 169. 511 is where the logarithm is 127 exactly: 255, and 512 is
one more."""


@pytest.mark.parametrize("distance", BUCKETS)
@pytest.mark.parametrize("sign", [1, -1])
def test_deberta_buckets(distance, sign):
    """v2's 256 buckets to 512, from a table too long to be clipped whose only number is its row."""
    bias = posenc.deberta(None, np.arange(600.0)[None, :, None], buckets=256, max_position=512, terms=("c2p",))
    one = np.ones((1, 1, 1))
    row = bias.logits(one, one, q_positions=[sign * distance], k_positions=[0])[0, 0, 0]
    assert row == 300 + sign * BUCKETS[distance]
    s = BUCKETS[distance] - 128
    if s > 0:  # the smallest s with (distance / 128)**127 <= (511 / 128)**s
        power = Fraction(distance, 128) ** 127
        assert Fraction(511, 128) ** (s - 1) < power <= Fraction(511, 128) ** s


@pytest.mark.parametrize("buckets", [2, 3])
def test_deberta_without_logarithmic_buckets(buckets):
    """mid = 1: ceil(0 log |r|) + 1 is 1 at every distance but 0, so there are three."""
    bias = posenc.deberta(None, np.arange(8.0)[None, :, None], buckets=buckets, max_position=64, terms=("c2p",))
    q = np.ones((1, 9, 1))
    at = [0, 1, 2, 3, 63, 64, 1000, -1, -2]
    assert bias.logits(q, q[:, :1], q_positions=at, k_positions=[0])[0, :, 0].tolist() == [4, 5, 5, 5, 5, 5, 5, 3, 3]


def test_deberta_clips_the_row_and_not_the_distance():
    """Of 512 rows the last is 511 and the first 0, from distances of 512 on; code that clips the distance at 511 first
    never reads row 0."""
    bias = posenc.deberta(None, np.arange(512.0)[None, :, None], buckets=256, max_position=512, terms=("c2p",))
    q = np.ones((1, 6, 1))
    rows = bias.logits(q, q[:, :1], q_positions=[511, 512, 2000, -511, -512, -(2**40)], k_positions=[0])[0, :, 0]
    assert rows.tolist() == [511, 511, 511, 1, 0, 0]


def test_cope():
    """Equations 3 to 5: gates 3/4, 1/2 and 1/4; positions 3/2, 3/4 and 1/4 count back from the last query."""
    log3 = math.log(3.0)
    q, k = column(0, 0, 1), column(log3, 0, -log3)
    table = column(0, 8, 20)[0]
    added = posenc.cope(table).logits(q, k, scale=1.0)[0]
    assert added[2] == pytest.approx([14, 6, 2], rel=1e-15)
    assert not added[:2].any()  # q = 0
    assert posenc.cope(table[:2]).logits(q, k, scale=1.0)[0, 2] == pytest.approx([8, 6, 2], rel=1e-15)  # at most P - 1
    assert posenc.cope(table[1:2]).logits(q, k, scale=1.0)[0, 2].tolist() == [8, 8, 8]


def test_cope_counts_what_is_visible():
    """Without the key in the middle, positions are 1, -, 1/4."""
    log3 = math.log(3.0)
    q, k = column(1), column(log3, 0, -log3)
    bias, keep = posenc.cope(column(0, 8, 20)[0]), np.array([True, False, True])
    _, lse = posenc.attention(q, k, k, bias=bias, keep=keep, scale=1.0, align="end", return_lse=True)
    assert lse[0, 0] == pytest.approx(np.logaddexp(log3 + 8, -log3 + 2), rel=1e-15)


def test_tupe():
    """Equations 7, 8 and 10: column 0, then row 0, whose number stands at the corner; relative on top of all."""
    pos_q, pos_k = column(1, 2) * math.sqrt(2), column(1, 2)  # over sqrt(2 D): 1 2, 2 4
    one, other = {"any_to_cls": [7.0]}, {"cls_to_any": [9.0]}
    for resets, wanted in (({}, [[1, 2], [2, 4]]), (one, [[7, 2], [7, 4]]), (other, [[9, 9], [2, 4]]),
                           ({**one, **other}, [[9, 9], [7, 4]])):  # fmt: skip
        matrix = posenc.tupe(pos_q, pos_k, **resets).matrix(2, dtype=np.float64)[0]
        assert matrix == pytest.approx(np.array(wanted, float), rel=1e-15)
    relative = posenc.toeplitz([[10.0, 20.0, 30.0]])
    both = posenc.tupe(pos_q, pos_k, **one, **other, relative=relative).matrix(2)
    assert both[0, 0].tolist() == [9 + 20, 9 + 30]
    assert both[0, 1, 0] == 7 + 10


# ---- scales ----


def logit(bias, **options):
    """The only logit of a query and a key of 4 channels whose product is 12, where the operators add nothing."""
    q, k = np.full((1, 1, 4), 3.0), np.ones((1, 1, 4))
    return posenc.attention(q, k, k, bias=bias, return_lse=True, **options)[1][0, 0]


ZERO = np.zeros((1, 2, 4))
DEBERTA = posenc.deberta(ZERO, ZERO)
C2P = posenc.deberta(None, ZERO, terms=("c2p",))
P2C = posenc.deberta(ZERO, None, terms=["p2c"])
TUPE = posenc.tupe(ZERO[:, :1], ZERO[:, :1])
SHAW = posenc.shaw(np.zeros((3, 4)))
XL = posenc.transformer_xl(np.zeros((1, 3, 4)), np.zeros((1, 4)), np.zeros((1, 4)))
COPE = posenc.cope(np.zeros((3, 4)))


@pytest.mark.parametrize(("bias", "parts"), [
    (DEBERTA, 3), (C2P, 2), (P2C, 2), (TUPE, 2), (SHAW, 1), (XL, 1), (COPE, 1), ([C2P, P2C, TUPE], 2),
    ([SHAW, DEBERTA], 3), ([DEBERTA, DEBERTA, posenc.alibi([1.0])], 3), ([COPE, TUPE], 2),
], ids=lambda x: "+".join(one.name for one in x) if isinstance(x, list) else getattr(x, "name", str(x)))  # fmt: skip
def test_default_scale(bias, parts):
    """1 / sqrt(D) times what the operators ask for, where all that ask do so for the same."""
    assert logit(bias) == pytest.approx(12 / math.sqrt(4 * parts), rel=1e-15)
    assert logit(bias, scale=0.25) == 3


@pytest.mark.parametrize(
    "pair", [(DEBERTA, C2P), (TUPE, DEBERTA), (P2C, SHAW, DEBERTA)], ids=["deberta", "tupe", "three"]
)
def test_scales_that_disagree(pair):
    with pytest.raises(ValueError, match=r"^attention: scale is None; expected a number: .*deberta"):
        logit(pair)
    assert logit(pair, scale=1.0) == 12


# ---- what a Bias keeps ----


def drawn():
    """Each operator with numbers in it, for two heads of 4 channels and 5 words."""
    rng = np.random.default_rng(0)
    normal = rng.standard_normal
    return {
        "shaw": posenc.shaw(normal((3, 4)).astype(np.float16), normal((2, 3, 4))),
        "shaw_keys": posenc.shaw(normal((2, 3, 4)).astype(">f4")),
        "transformer_xl": posenc.transformer_xl(normal((2, 3, 4)), normal((2, 4)), normal((2, 4))),
        "deberta": posenc.deberta(normal((2, 4, 4)), normal((2, 4, 4)), buckets=8, max_position=16, p2c_index="paper"),
        "deberta_c2p": posenc.deberta(None, normal((2, 4, 4)), terms=("c2p",)),
        "cope": posenc.cope(normal((3, 4))),
        "tupe": posenc.tupe(normal((2, 5, 4)), normal((2, 5, 4)), any_to_cls=normal(2)),
        "tupe_relative": posenc.tupe(normal((2, 5, 4)), normal((2, 5, 4)), relative=posenc.alibi([0.5, 0.1])),
    }  # fmt: skip


def pickled(bias):
    return pickle.loads(pickle.dumps(bias))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled], ids=["copy", "deepcopy", "pickle"])
@pytest.mark.parametrize("name", drawn())
def test_round_trip(name, copied, rng):
    bias = drawn()[name]
    again = copied(bias)
    q, k, v = rng.standard_normal((3, 2, 5, 4))
    assert again.name == bias.name
    assert type(again.arrays).__name__ == type(bias.arrays).__name__
    for a, b in zip(again.arrays, bias.arrays, strict=True):
        assert not isinstance(a, np.ndarray) or (same_bits(a, b) and not a.flags.writeable)
    assert same_bits(posenc.attention(q, k, v, bias=again), posenc.attention(q, k, v, bias=bias))


@pytest.mark.parametrize("name", drawn())
def test_immutable(name):
    bias = drawn()[name]
    for attribute in ("name", "arrays", "rows", "other"):
        with pytest.raises(AttributeError):
            setattr(bias, attribute, None)
    for array in bias.arrays:
        if isinstance(array, np.ndarray):
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
    with pytest.raises(AttributeError):
        bias.arrays.none_of_them  # noqa: B018


def test_tables_are_copied():
    """What happens to the caller's table later does not reach the operator, and the caller's stays writeable."""
    table = np.ones((3, 4))
    biases = (posenc.shaw(table, table), posenc.cope(table))
    table[...] = 7
    assert all((array == 1).all() for bias in biases for array in bias.arrays)
    assert table.flags.writeable


def test_arrays_keep_their_dtypes_and_names():
    made = drawn()
    assert made["shaw"].arrays._fields == ("rel_k", "rel_v")
    assert made["shaw"].arrays.rel_k.dtype == np.float16
    assert made["shaw_keys"].arrays.rel_k.dtype == np.float32
    assert made["shaw_keys"].arrays.rel_v is None
    assert made["transformer_xl"].arrays._fields == ("r", "u", "v")
    assert made["deberta_c2p"].arrays._fields == ("rel_q", "rel_k")
    assert made["deberta_c2p"].arrays.rel_q is None
    assert made["cope"].arrays._fields == ("table",)
    assert made["tupe"].arrays._fields == ("pos_q", "pos_k", "cls_to_any", "any_to_cls", "relative")
    assert "shaw" in repr(made["shaw"])


@pytest.mark.parametrize("name", ["shaw", "transformer_xl", "deberta", "cope"])
@pytest.mark.parametrize("placed", [False, True])
def test_logits_vjp_over_several_tiles(name, placed, rng, isa):
    """Along a random direction of each argument; float64 differences of sums of size 1000, kinks of CoPE apart."""
    heads, n, m, width, last = 4, 130, 300, 5, 7
    tables = {
        "shaw": {"rel_k": rng.standard_normal((heads, 2 * last + 1, width))},
        "transformer_xl": {
            "r": rng.standard_normal((heads, 2 * last + 1, width)), "u": rng.standard_normal((heads, width)),
            "v": rng.standard_normal((heads, width)),
        },
        "deberta": {a: rng.standard_normal((heads, 2 * last, width)) for a in ("rel_q", "rel_k")},
        "cope": {"table": rng.standard_normal((9, width))},
    }[name]  # fmt: skip
    arguments = {"q": rng.standard_normal((2, heads, n, width)), "k": rng.standard_normal((2, 2, m, width)), **tables}
    where = {"q_positions": np.sort(rng.integers(0, 99, n)), "k_positions": rng.uniform(0, 99, m)} if placed else {}
    grad = rng.standard_normal((2, heads, n, m))

    def result(q, k, **arrays):
        return getattr(posenc, name)(**arrays).logits(q, k, **where)

    gradients = getattr(posenc, name)(**tables).logits_vjp(grad, arguments["q"], arguments["k"], **where)._asdict()
    for argument, array in arguments.items():
        direction, step = rng.standard_normal(array.shape), 1e-6
        up, down = (result(**{**arguments, argument: array + s * direction}) for s in (step, -step))
        wanted = (grad * (up - down)).sum() / (2 * step)
        assert abs((gradients[argument] * direction).sum() - wanted) <= 1e-6 * max(1, abs(wanted))
