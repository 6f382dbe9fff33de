"""Every position bias: errors, tables with gaps, and large matrices."""

import dataclasses

import numpy as np
import pytest

import posenc

TABLE, GATES = np.zeros((32, 2)), np.zeros((2, 9))
LAYERS = {"w1": np.ones((3, 1)), "b1": np.ones(3), "w2": np.ones((2, 3)), "b2": np.ones(2), "c": 0.1, "threshold": 8.0}
ERRORS = {
    "alibi of no heads": (lambda: posenc.alibi(0), ValueError, "alibi_slopes: heads"),
    "t5 few rows": (lambda: posenc.t5(np.zeros((3, 2)), bidirectional=True), ValueError, "t5: table"),
    "t5 one row": (lambda: posenc.t5(np.zeros((1, 2)), bidirectional=False), ValueError, "t5: table"),
    "t5 no bucket left": (lambda: posenc.t5(TABLE, max_distance=8, bidirectional=True), ValueError, "t5: max_distance"),
    "t5 no bucket left, decoder": (
        lambda: posenc.t5(TABLE, max_distance=16, bidirectional=False), ValueError, "t5: max_distance",
    ),
    "bucket count": (lambda: posenc.t5_bucket(1, num_buckets=3, bidirectional=True), ValueError,
                     "t5_bucket: num_buckets"),
    "bucket distance": (lambda: posenc.t5_bucket(1, max_distance=8, bidirectional=True), ValueError,
                        "t5_bucket: max_distance"),
    "kerple r2": (lambda: posenc.kerple_power([1.0], [0.0]), ValueError, "kerple_power: r2"),
    "sandwich odd": (lambda: posenc.sandwich(2, 7), ValueError, "sandwich: dim"),
    "sandwich heads": (lambda: posenc.sandwich(0, 8), ValueError, "sandwich: heads"),
    "fire inputs": (lambda: posenc.fire(**{**LAYERS, "w1": np.ones((3, 2))}), ValueError, "fire: w1"),
    "fire heads": (lambda: posenc.fire(**{**LAYERS, "b2": np.ones(3)}), ValueError, "fire: b2"),
    "fire scalar": (lambda: posenc.fire(**{**LAYERS, "c": [0.1]}), ValueError, "fire: c"),
    "fire bool": (lambda: posenc.fire(**{**LAYERS, "threshold": True}), TypeError, "fire: threshold"),
    "swin rows": (lambda: posenc.swin(np.zeros((24, 2)), 3, 3), ValueError, "swin: table"),
    "swin height": (lambda: posenc.swin(np.zeros((5, 2)), 0, 3), ValueError, "swin: height"),
    "swin outside": (lambda: posenc.swin(np.zeros((25, 2)), 3, 3).matrix(10), IndexError, "swin.matrix: q_positions"),
    "swin fraction": (
        lambda: posenc.swin(np.zeros((25, 2)), 3, 3).matrix(2, q_positions=[0.0, 1.0]), TypeError,
        "swin.matrix: q_positions",
    ),
    "fox sum": (lambda: posenc.fox(GATES - 1e308), ValueError, "fox: log_forget"),
    "fox outside": (lambda: posenc.fox(GATES).matrix(2, q_positions=[3, 9]), IndexError, "fox.matrix: q_positions"),
    "fox before": (lambda: posenc.fox(GATES).matrix(3, 2, align="end"), IndexError, "fox.matrix: q_positions"),
    "fox fraction": (lambda: posenc.fox(GATES).matrix(1, k_positions=[0.5]), TypeError, "fox.matrix: k_positions"),
    "fox batch": (
        lambda: posenc.fox(np.zeros((2, 2, 9))).matrix(1, q_positions=np.zeros((3, 1), int)), ValueError,
        "fox.matrix: q_positions",
    ),
    "fox grad": (lambda: posenc.fox(GATES).matrix_vjp(np.zeros((2, 3, 4)), 3), ValueError, "fox.matrix_vjp: grad"),
    "sandwich grad": (lambda: posenc.sandwich(2, 4).matrix_vjp(np.zeros((2, 3, 4)), 3), ValueError,
                      "sandwich.matrix_vjp: grad"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ERRORS)
def test_errors(kind):
    call, exception, start = ERRORS[kind]
    with pytest.raises(exception, match=rf"^{start} (has|is) .+; expected "):
        call()


ATTENTION_ERRORS = {
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


def test_heads_of_shared_tables():
    """The table of `shaw` below serves any number of heads."""
    assert posenc.shaw(np.zeros((3, 4))).heads is None
    assert posenc.shaw(np.zeros((3, 4)), np.zeros((5, 3, 4))).heads == 5
    assert (posenc.shaw(np.zeros((3, 4))) + posenc.alibi([1.0, 2.0])).heads == 2


GAPS = {
    "both": lambda table: table[::-1, ::-1],
    "step": lambda table: np.repeat(table, 2, 0)[::2],
    "swapped": lambda table: np.asfortranarray(table.astype(table.dtype.newbyteorder())),
}


@pytest.mark.parametrize("gaps", GAPS)
@pytest.mark.parametrize("name", ["t5", "swin", "tisa", "fire"])
def test_gradient_of_an_array_with_gaps(name, gaps):
    """dataclasses.replace puts any array into an operator; the kernel wrote the gradient with the strides of the array,
    before its own memory. At other positions than 0, 1, ... the kernel adds up the gradient of a function of distance,
    too."""
    table = np.random.default_rng(3).standard_normal((49, 2))
    bias, field = {
        "t5": lambda: (posenc.t5(table, bidirectional=True), "table"),
        "swin": lambda: (posenc.swin(table, 4, 4), "table"),
        "tisa": lambda: (posenc.tisa(table[:2], table[2:4], table[:2]), "a"),
        "fire": lambda: (posenc.fire(**LAYERS), "w2"),
    }[name]()
    table = getattr(bias.arrays, field)
    q, k, v, grad = np.random.default_rng(4).standard_normal((4, 2, 16, 4))
    for at in (np.arange(16), np.random.default_rng(5).permutation(16)):
        found = []
        for array in (GAPS[gaps](table), np.array(GAPS[gaps](table), float, order="C")):
            made = dataclasses.replace(bias, arrays=bias.arrays._replace(**{field: array}))
            vjp = posenc.attention_vjp(grad, q, k, v, bias=made, q_positions=at, k_positions=at)
            found.append(getattr(vjp.bias[0], field))
        assert found[0].any()
        np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(("dtype", "m"), [(np.float32, 2052), (np.float64, 1023)])
def test_large_matrix_is_the_view(dtype, m):
    """Matrices of more than 32 MiB are written with streaming stores, row by row. Rows of 1023 float64 numbers are no
    multiple of 16 bytes."""
    bias, n = posenc.alibi(posenc.alibi_slopes(4)), (33 << 20) // (4 * m * np.dtype(dtype).itemsize)
    out = np.full((4, n, m), 7, dtype)
    with posenc.threads(3):
        bias.matrix(n, m, align="end", dtype=dtype, out=out)
    assert np.array_equal(out, bias.matrix(n, m, align="end", dtype=dtype))


def test_one_slope_is_told_to_be_an_array():
    """The error says how to make slopes, which the error of a wrong number of axes does not."""
    for slope in (0.5, True):
        expected = rf"^alibi: slopes is {slope}; expected an array \(H,\), or a number of heads"
        with pytest.raises(ValueError, match=expected):
            posenc.alibi(slope)


def test_an_int_is_a_number_of_heads():
    assert np.array_equal(posenc.alibi(12).slopes, posenc.alibi(posenc.alibi_slopes(12)).slopes)


def test_replaced_arrays_stay_the_users():
    """`dataclasses.replace` makes another operator, whose arrays are read-only views."""
    bias, slopes = posenc.alibi([0.5]), np.array([0.25])
    other = dataclasses.replace(bias, arrays=bias.arrays._replace(slopes=slopes))
    assert other.slopes is not slopes
    assert slopes.flags.writeable
    assert not other.slopes.flags.writeable
