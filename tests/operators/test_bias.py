"""Position biases: a number of each worked by hand from its paper, T5's buckets where floating point errs, errors."""

import math
import pickle

import numpy as np
import pytest
from cases import F64
from cases.layouts import same_bits
from cases.t5 import bucket

import posenc

# ---- by hand ----


def test_kerple_power_by_hand():
    """Equation 5 at distance 4, r1 = 3, r2 = 1/2: -3 sqrt 4 = -6; at distance 0 it is 0."""
    matrix = posenc.kerple_power([3.0], [0.5]).matrix(5, dtype=F64)[0]
    assert abs(matrix[4, 0] + 6) <= 1e-15
    assert matrix[2, 2] == 0
    assert not np.signbit(matrix[2, 2])


def test_kerple_power_with_exponent_one_is_alibi():
    slopes = posenc.alibi_slopes(8)
    power = posenc.kerple_power(slopes, np.ones(8)).matrix(100, dtype=F64)
    assert np.abs(power - posenc.alibi(slopes).matrix(100, dtype=F64)).max() <= 2e-14  # 2 ulp of 50


def test_sandwich_by_hand():
    """d = 4, H = 2, distance 3: (cos 3/100 + cos 3/10000 - 2) / 4 for the first head, half of it for the second."""
    wanted = (math.cos(0.03) + math.cos(0.0003) - 2) / 4
    row = posenc.sandwich(2, 4).matrix(4, dtype=F64)[:, 0, 3]
    assert np.abs(row - [wanted, wanted / 2]).max() <= 1e-15


def test_fire_by_hand():
    """c = 1, L = 7, query at 3, key at 0: log 4 / (log 8 + 1e-6) = 2/3; one unit 6 z - 1, doubled, and 1/2 added."""
    bias = posenc.fire([[6.0]], [-1.0], [[2.0], [-1.0]], [0.5, 0.0], 1.0, 7.0)
    values = bias.matrix(4, dtype=F64)[:, 3, 0]
    assert np.abs(values - [6.5, -3.0]).max() <= 1e-5  # 12 z moves by 4e-6 for the 1e-6 of the divisor


def test_swin_by_hand():
    """2 x 3 tokens, query (1, 0), key (0, 2): dy = 1, dx = -2 is row (1 + 1) 5 + (-2 + 2) = 10 of 15."""
    matrix = posenc.swin(np.arange(15.0)[:, None], 2, 3).matrix(6)
    assert matrix[0, 3, 2] == 10
    assert matrix[0, 2, 3] == 4
    assert np.all(np.diag(matrix[0]) == 7)


def test_fox_by_hand():
    """Gates 1/2, 1/4, 1/8: from query 2 to key 0 the product of gates 1 and 2 is 1/32."""
    matrix = posenc.fox(np.log([[0.5, 0.25, 0.125]])).matrix(3, dtype=F64)[0]
    assert abs(matrix[2, 0] - math.log(1 / 32)) <= 1e-15
    assert abs(matrix[1, 0] - math.log(1 / 4)) <= 1e-15
    assert not np.diag(matrix).any()


def test_fox_of_a_constant_gate_is_alibi():
    """For keys before the query; cumulative sums of 0.5 are exact."""
    fox = posenc.fox(np.full((1, 60), -0.5)).matrix(60, dtype=F64)
    assert np.array_equal(np.tril(fox), np.tril(posenc.alibi([0.5]).matrix(60, dtype=F64)))


def test_fox_keeps_differences_of_long_sums():
    """At |C| = 1e6 a float32 sum would be wrong by 0.06; here 1e-9."""
    gates = np.full((1, 1 << 20), -1.0)
    row = posenc.fox(gates).matrix(1, 3, q_positions=[(1 << 20) - 1], k_positions=[(1 << 20) - 4, 5, 0])
    assert row[0, 0].tolist() == [-3.0, -(2.0**20 - 6), -(2.0**20 - 1)]


# ---- T5's buckets ----

S4 = [0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 8, 9, 9, 9, 9, 10, 10, 10, 10, 10, 10, 10, *[11] * 8]


def test_s4_table():
    """S4 prints f(i - j) for 0 .. 30; i - j is -rel here. It is the half of the default 32 for keys before the query,
    and that of 16 buckets in one direction."""
    distance = np.arange(31)
    assert posenc.t5_bucket(-distance).tolist() == S4
    assert posenc.t5_bucket(-distance, buckets=16, bidirectional=False).tolist() == S4
    assert posenc.t5_bucket(distance[1:]).tolist() == [16 + b for b in S4[1:]]


EDGES = {
    (32, 128, True): [12, 16, 23, 32, 46, 64, 91], (32, 128, False): [19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77,
    87, 99, 113], (32, 256, True): [13, 20, 30, 46, 70, 108, 166],
}  # fmt: skip


@pytest.mark.parametrize("settings", EDGES, ids=str)
def test_where_buckets_begin(settings):
    """Thresholds of the usual settings, as integers of (128/8)**(k/8) 8 and the like rounded up."""
    buckets, max_distance, bidirectional = settings
    found = posenc.t5_bucket(-np.arange(1000), buckets=buckets, max_distance=max_distance, bidirectional=bidirectional)
    exact = buckets // (4 if bidirectional else 2)
    assert (np.flatnonzero(np.diff(found)) + 1).tolist()[exact:] == EDGES[settings]


def in_logarithms(n, side, max_distance, dtype):
    """The references' formula in floating point: transformers in float32, NumPy in float64."""
    e = side // 2
    with np.errstate(divide="ignore"):
        steps = np.log(n.astype(dtype) / dtype(e)) / dtype(math.log(max_distance / e)) * dtype(side - e)
    large = np.where(n < e, 0, np.minimum(e + np.trunc(np.where(n < e, 0, steps)), side - 1))
    return np.where(n < e, n, large).astype(np.int64)


def settings_of_all_kinds():
    """Ties, where max_distance is e r**steps or n a power in between, the usual settings, and random ones."""
    pairs = {(side, (side // 2) * r ** (side - side // 2)) for side in range(2, 24) for r in (2, 3, 4) if side < 16}
    pairs |= {(10, 160), (20, 320), (40, 640), (80, 1280), (6, 6591), (60, 16384), (74, 65536), (124, 10000), (16, 800)}
    pairs |= {(side, m) for side in (4, 12, 16, 32, 36, 54, 64, 128) for m in (65, 100, 128, 200, 256, 600, 1024, 4096)}
    rng = np.random.default_rng(5)
    while len(pairs) < 560:
        side = int(rng.integers(2, 130))
        pairs.add((side, side // 2 + 1 + int(rng.integers(0, 4000))))
    return sorted(pair for pair in pairs if pair[1] > pair[0] // 2)


@pytest.mark.slow
def test_buckets_are_exact(capsys):
    """All |rel| <= 4 max_distance of 560 settings (around every edge and at random where that is more than 4096), and
    the ends of int64, in both directions."""
    settings = settings_of_all_kinds()
    assert len(settings) >= 500
    rng = np.random.default_rng(0)
    missed = {np.float32: 0, np.float64: 0}
    for side, max_distance in settings:
        n = np.arange(min(4 * max_distance, 4096) + 1)
        if len(n) <= 4 * max_distance:
            edges = np.flatnonzero(np.diff(posenc.t5_bucket(-n, buckets=side, max_distance=max_distance,
                                                            bidirectional=False)))  # fmt: skip
            steps = side - side // 2
            far = [int((side // 2) * (max_distance / (side // 2)) ** (k / steps)) for k in range(1, steps)]
            near = np.add.outer([-2, -1, 0, 1, 2], [*edges, *far, max_distance, 4 * max_distance]).ravel()
            n = np.unique(np.abs([*n[:600], *near, *rng.integers(0, 4 * max_distance, 200)]))
        n = np.append(n, 2**63 - 1)
        wanted = np.array([bucket(int(x), side, max_distance) for x in n])
        one = {"buckets": side, "max_distance": max_distance, "bidirectional": False}
        both = {"buckets": 2 * side, "max_distance": max_distance}
        assert np.array_equal(posenc.t5_bucket(-n, **one), wanted)
        assert not posenc.t5_bucket(n, **one).any()
        assert np.array_equal(posenc.t5_bucket(-n, **both), wanted)
        assert np.array_equal(posenc.t5_bucket(n, **both), wanted + side * (n > 0))
        assert posenc.t5_bucket(-(2**63), **both) == wanted[-1]
        for dtype in missed:
            missed[dtype] += not np.array_equal(in_logarithms(n[:-1], side, max_distance, dtype), wanted[:-1])
    with capsys.disabled():
        single, double = missed.values()
        print(f"\n    {len(settings)} settings: logarithms in float32 miss {single}, in float64 {double}")
    assert all(missed.values())  # the sample has what makes integers worth their while


def test_the_kernel_and_the_function_agree(isa):
    """Inside and beyond what is looked up, for fractions, and for distances that no int32 holds."""
    rel = np.array([0, -0.9, 0.9, 1, -1, 19.5, -4095.5, 4096, 4097, -4097, 10**5, -(10**6), 10**9, -(2.0**52), 2.0**52])
    for buckets, max_distance in ((32, 128), (32, 10**6), (6, 5), (33, 10**15)):
        for bidirectional in (True, False):
            options = {"max_distance": max_distance, "bidirectional": bidirectional}
            matrix = posenc.t5(np.arange(float(buckets))[:, None], **options).matrix(
                1, len(rel), q_positions=[0], k_positions=rel, dtype=F64
            )
            assert np.array_equal(matrix[0, 0], posenc.t5_bucket(rel, buckets=buckets, **options))


def test_buckets_of_any_integer():
    assert posenc.t5_bucket(np.int8(-100)) == 15
    assert posenc.t5_bucket(np.array([200], np.uint8)).tolist() == [31]
    assert posenc.t5_bucket([[-1.999, 1.999]]).tolist() == [[1, 17]]
    assert posenc.t5_bucket([1e300, -1e300]).tolist() == [31, 15]
    assert posenc.t5_bucket([]).shape == (0,)
    assert posenc.t5_bucket([1]).dtype == np.int64


# ---- what reads absolute positions ----


@pytest.mark.parametrize("shift", [0, 7, 1000])
def test_fire_reads_the_position_of_the_query(shift, rng):
    """In matrix and in attention, wherever consecutive positions begin."""
    bias = posenc.fire(rng.uniform(0, 1, (4, 1)), rng.uniform(0, 1, 4), rng.standard_normal((2, 4)), [0.0, 1.0], 0.3, 9)
    q, k, v = rng.standard_normal((3, 2, 30, 8))
    where = {"q_positions": np.arange(30) + shift, "k_positions": np.arange(30) + shift}
    out = posenc.attention(q, k, v, bias=bias, causal=True, **where)
    wanted = posenc.attention(q, k, v, bias=posenc.dense(bias.matrix(30, dtype=F64, **where)), causal=True)
    assert np.abs(out - wanted).max() <= 1e-14
    apart = np.abs(bias.matrix(30, dtype=F64, **where) - bias.matrix(30, dtype=F64)).max()
    assert (apart > 1e-6) == (shift > 0)


def test_aligned_at_the_end(rng):
    """Queries are the last of the keys, by align as by positions."""
    bias = [
        posenc.fox(-rng.uniform(0, 1, (2, 9))), posenc.swin(rng.standard_normal((25, 2)), 3, 3),
        posenc.fire(rng.uniform(0, 1, (4, 1)), rng.uniform(0, 1, 4), rng.standard_normal((2, 4)), [0.0, 1.0], 0.3, 2),
        posenc.sandwich(2, 4), posenc.t5(rng.standard_normal((32, 2))),
    ]  # fmt: skip
    q, k, v = rng.standard_normal((2, 4, 8)), *rng.standard_normal((2, 2, 9, 8))
    out = posenc.attention(q, k, v, bias=bias, align="end")
    placed = posenc.attention(q, k, v, bias=bias, q_positions=np.arange(5, 9), k_positions=np.arange(9))
    matrices = [posenc.dense(one.matrix(4, 9, dtype=F64)) for one in bias]
    assert np.abs(out - placed).max() <= 1e-14
    assert np.abs(out - posenc.attention(q, k, v, bias=matrices)).max() <= 1e-14


@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (1, 3), (2, 1)], ids=str)
def test_forget_gates_of_a_batch(batch, rng):
    """Leading axes of log_forget broadcast as those of q, and must not add to them."""
    gates = -rng.uniform(0, 1, (*batch, 4, 70))
    q, k, v = rng.standard_normal((2, 3, 4, 70, 8)), *rng.standard_normal((2, 3, 2, 70, 8))
    out = posenc.attention(q, k, v, bias=posenc.fox(gates), causal=True)
    sums = np.cumsum(gates, -1)
    matrix = posenc.dense(np.broadcast_to(sums[..., :, None] - sums[..., None, :], (*batch, 4, 70, 70)))
    assert np.abs(out - posenc.attention(q, k, v, bias=matrix, causal=True)).max() <= 1e-13
    with pytest.raises(ValueError, match=r"^attention: bias has batch axes"):
        posenc.attention(q, k, v, bias=posenc.fox(np.zeros((5, 1, 4, 70))), causal=True)


def test_gradient_of_gates_is_summed_over_what_it_was_broadcast_to(rng):
    gates, places = -rng.uniform(0, 1, (1, 2, 9)), rng.integers(0, 9, (3, 5))
    grad = rng.standard_normal((3, 2, 5, 5))
    whole = posenc.fox(gates).vjp(grad, 5, q_positions=places, k_positions=places).log_forget
    parts = sum(
        posenc.fox(gates[0]).vjp(grad[b], 5, q_positions=places[b], k_positions=places[b]).log_forget for b in range(3)
    )
    assert whole.shape == gates.shape
    assert np.abs(whole[0] - parts).max() <= 1e-13


def test_gradient_of_fire_at_the_threshold_is_the_mean_of_both_sides():
    """max(i, |threshold|) has a corner where they are equal."""
    made = {"w1": [[1.0]], "b1": [1.0], "w2": [[1.0]], "b2": [0.0], "c": 0.5}
    grad = np.ones((1, 1, 1))
    sides = [
        posenc.fire(**made, threshold=4 + d).vjp(grad, 1, q_positions=[4], k_positions=[1]).threshold
        for d in (-1e-9, 0.0, 1e-9)
    ]
    assert sides[0] == 0
    assert abs(sides[1] - sides[2] / 2) <= 1e-8


# ---- errors ----

TABLE, GATES = np.zeros((32, 2)), np.zeros((2, 9))
LAYERS = {"w1": np.ones((3, 1)), "b1": np.ones(3), "w2": np.ones((2, 3)), "b2": np.ones(2), "c": 0.1, "threshold": 8.0}
ERRORS = {
    "alibi of heads": (lambda: posenc.alibi(8), ValueError, "alibi: slopes"),
    "t5 few rows": (lambda: posenc.t5(np.zeros((3, 2))), ValueError, "t5: table"),
    "t5 one row": (lambda: posenc.t5(np.zeros((1, 2)), bidirectional=False), ValueError, "t5: table"),
    "t5 axes": (lambda: posenc.t5(np.zeros(32)), ValueError, "t5: table"),
    "t5 no bucket left": (lambda: posenc.t5(TABLE, max_distance=8), ValueError, "t5: max_distance"),
    "t5 no bucket left, decoder": (
        lambda: posenc.t5(TABLE, max_distance=16, bidirectional=False), ValueError, "t5: max_distance",
    ),
    "t5 distance": (lambda: posenc.t5(TABLE, max_distance=128.0), TypeError, "t5: max_distance"),
    "t5 direction": (lambda: posenc.t5(TABLE, bidirectional=1), TypeError, "t5: bidirectional"),
    "t5 NaN": (lambda: posenc.t5(TABLE * np.nan), ValueError, "t5: table"),
    "bucket count": (lambda: posenc.t5_bucket([1], buckets=3), ValueError, "t5_bucket: buckets"),
    "bucket distance": (lambda: posenc.t5_bucket([1], max_distance=8), ValueError, "t5_bucket: max_distance"),
    "bucket NaN": (lambda: posenc.t5_bucket([np.nan]), ValueError, "t5_bucket: rel"),
    "bucket dtype": (lambda: posenc.t5_bucket([True]), TypeError, "t5_bucket: rel"),
    "kerple r2": (lambda: posenc.kerple_power([1.0], [0.0]), ValueError, "kerple_power: r2"),
    "kerple lengths": (lambda: posenc.kerple_power([1.0], [1.0, 1.0]), ValueError, "kerple_power: r2"),
    "sandwich odd": (lambda: posenc.sandwich(2, 7), ValueError, "sandwich: dim"),
    "sandwich heads": (lambda: posenc.sandwich(0, 8), ValueError, "sandwich: heads"),
    "sandwich float": (lambda: posenc.sandwich(2, 8.0), TypeError, "sandwich: dim"),
    "fire inputs": (lambda: posenc.fire(**{**LAYERS, "w1": np.ones((3, 2))}), ValueError, "fire: w1"),
    "fire width": (lambda: posenc.fire(**{**LAYERS, "b1": np.ones(4)}), ValueError, "fire: b1"),
    "fire heads": (lambda: posenc.fire(**{**LAYERS, "b2": np.ones(3)}), ValueError, "fire: b2"),
    "fire scalar": (lambda: posenc.fire(**{**LAYERS, "c": [0.1]}), ValueError, "fire: c"),
    "fire bool": (lambda: posenc.fire(**{**LAYERS, "threshold": True}), TypeError, "fire: threshold"),
    "swin rows": (lambda: posenc.swin(np.zeros((24, 2)), 3, 3), ValueError, "swin: table"),
    "swin height": (lambda: posenc.swin(np.zeros((5, 2)), 0, 3), ValueError, "swin: height"),
    "swin width": (lambda: posenc.swin(np.zeros((5, 2)), 1, 3.0), TypeError, "swin: width"),
    "swin outside": (lambda: posenc.swin(np.zeros((25, 2)), 3, 3).matrix(10), IndexError, "swin.matrix: q_positions"),
    "swin fraction": (
        lambda: posenc.swin(np.zeros((25, 2)), 3, 3).matrix(2, q_positions=[0.0, 1.0]), TypeError,
        "swin.matrix: q_positions",
    ),
    "swin negative": (
        lambda: posenc.swin(np.zeros((25, 2)), 3, 3).vjp(np.zeros((2, 2, 2)), 2, k_positions=[0, -1]), IndexError,
        "swin.vjp: k_positions",
    ),
    "fox axes": (lambda: posenc.fox(np.zeros(9)), ValueError, "fox: log_forget"),
    "fox NaN": (lambda: posenc.fox(GATES * np.nan), ValueError, "fox: log_forget"),
    "fox sum": (lambda: posenc.fox(GATES - 1e308), ValueError, "fox: log_forget"),
    "fox outside": (lambda: posenc.fox(GATES).matrix(2, q_positions=[3, 9]), IndexError, "fox.matrix: q_positions"),
    "fox before": (lambda: posenc.fox(GATES).matrix(3, 2), IndexError, "fox.matrix: q_positions"),
    "fox fraction": (lambda: posenc.fox(GATES).matrix(1, k_positions=[0.5]), TypeError, "fox.matrix: k_positions"),
    "fox batch": (
        lambda: posenc.fox(np.zeros((2, 2, 9))).matrix(1, q_positions=np.zeros((3, 1), int)), ValueError,
        "fox.matrix: q_positions",
    ),
    "fox grad": (lambda: posenc.fox(GATES).vjp(np.zeros((2, 3, 4)), 3), ValueError, "fox.vjp: grad"),
    "fox diagonals": (lambda: posenc.fox(GATES).vjp(np.zeros((2, 5)), 3), ValueError, "fox.vjp: grad"),
    "sandwich grad": (lambda: posenc.sandwich(2, 4).vjp(np.zeros((2, 3, 4)), 3), ValueError, "sandwich.vjp: grad"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ERRORS)
def test_errors(kind):
    call, exception, start = ERRORS[kind]
    with pytest.raises(exception, match=rf"^{start} (has|is) .+; expected "):
        call()


ATTENTION_ERRORS = {
    "t5 heads": (posenc.t5(np.zeros((32, 3))), {}, ValueError, "bias"),
    "sandwich heads": (posenc.sandwich(3, 4), {}, ValueError, "bias"),
    "fire heads": (posenc.fire(**{**LAYERS, "w2": np.ones((1, 3)), "b2": np.ones(1)}), {}, ValueError, "bias"),
    "fox heads": (posenc.fox(np.zeros((1, 9))), {}, ValueError, "bias"),
    "fox short": (posenc.fox(np.zeros((2, 8))), {}, IndexError, "q_positions"),
    "fox placed": (posenc.fox(GATES), {"k_positions": np.arange(9) + 1}, IndexError, "k_positions"),
    "fox fraction": (posenc.fox(GATES), {"q_positions": np.arange(9) / 2}, TypeError, "q_positions"),
    "swin short": (posenc.swin(np.zeros((15, 2)), 2, 3), {}, IndexError, "q_positions"),
}


@pytest.mark.parametrize("kind", ATTENTION_ERRORS)
def test_attention_errors(kind):
    bias, options, exception, argument = ATTENTION_ERRORS[kind]
    q = np.zeros((2, 9, 4))
    out = np.full(q.shape, 7.0)
    with pytest.raises(exception, match=rf"^attention: {argument} (has|is) .+; expected "):
        posenc.attention(q, q, q, bias=bias, out=out, **options)
    assert np.all(out == 7)


def test_more_queries_than_keys_have_no_position_before_the_first(rng):
    """align="end" puts query 0 at -2: no gate is there."""
    q, k = rng.standard_normal((2, 5, 4)), rng.standard_normal((2, 3, 4))
    with pytest.raises(IndexError, match="attention: q_positions has -2; expected 0 to 8"):
        posenc.attention(q, k, k, bias=posenc.fox(GATES), align="end")
    assert posenc.attention(q, k, k, bias=posenc.fox(GATES), align="start").shape == q.shape


# ---- as objects ----

OBJECTS = {
    "t5": posenc.t5(np.arange(64.0).reshape(32, 2), bidirectional=False, max_distance=40),
    "sandwich": posenc.sandwich(2, 6), "swin": posenc.swin(np.arange(30.0).reshape(15, 2), 2, 3),
    "fox": posenc.fox(-np.ones((2, 6), np.float32)), "fire": posenc.fire(**LAYERS),
}  # fmt: skip


@pytest.mark.parametrize("name", OBJECTS)
def test_pickled_and_shown(name):
    bias = OBJECTS[name]
    again = pickle.loads(pickle.dumps(bias))
    assert again.options == bias.options
    assert same_bits(np.array(again.matrix(6)), np.array(bias.matrix(6)))
    assert repr(bias).startswith(f"<posenc.{name}: ")
    assert all(f"{option}={value}" in repr(bias) for option, value in bias.options.items())
    assert not any(array.flags.writeable for array in bias.arrays)
    with pytest.raises(AttributeError):
        bias.name = "other"


def test_sandwich_has_nothing_to_learn():
    bias = posenc.sandwich(2, 6)
    assert bias.arrays == ()
    assert bias.vjp(np.zeros((2, 3, 4)), 3, 4) == ()
    assert bias.vjp(np.zeros((2, 6)), 3, 4) == ()


@pytest.mark.parametrize("name", ["t5", "sandwich"])
def test_views(name):
    """Where only distance matters the matrix is a view, of as many numbers as there are distances."""
    matrix = OBJECTS[name].matrix(1000, 3000)
    assert matrix.strides[1:] == (-4, 4)
    assert not matrix.flags.writeable
    assert same_bits(OBJECTS[name].matrix(9, 5, out=np.empty((2, 9, 5), np.float32)), matrix[:, -9:, -5:].copy())
