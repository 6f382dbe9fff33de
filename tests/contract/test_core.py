"""The compiled module refuses arrays that would make a kernel access memory out of bounds, whoever calls it."""

from pathlib import Path

import numpy as np
import pytest


def _core_calls():
    from posenc import _core

    p, b2 = np.ones((2, 3)), np.ones((1, 3))
    walk = ("f", np.ones((2, 3)), np.ones((5, 4)), np.ones(5), np.ones((3, 6)), np.ones(3))
    when, out = np.zeros(2), np.empty((2, 4, 3))
    no_inputs = (None, None)
    yield lambda: _core.recurrent("f", p, np.ones((1, 3)), np.ones((1, 1)), *no_inputs, out, 0, 0)
    yield lambda: _core.recurrent("f", p, np.ones((3, 3)), b2, *no_inputs, out, 1, 0)
    yield lambda: _core.recurrent("f", p, np.ones((9, 3)), np.ones((1, 9)), *no_inputs, out, 1, 0)
    for steps, skip in ((2, 0), (3, 1)):
        inputs = np.ones((2, steps, 4)), np.ones((3, 4))
        yield lambda t=(inputs, skip): _core.recurrent("f", p, np.ones((3, 3)), b2, *t[0], out, 0, t[1])
    sums = np.empty((2, 3)), np.empty((3, 3)), np.empty((1, 3))
    yield lambda: _core.recurrent_vjp(
        "f", out, np.ones((2, 9, 3)), np.ones((3, 3)), b2, *no_inputs, *sums, *no_inputs, 0, 0
    )
    yield lambda: _core.recurrent_vjp(
        "f", out, np.ones((2, 4, 3)), np.ones((3, 3)), b2, *no_inputs, *sums, *no_inputs, 0, 1
    )
    yield lambda: _core.floater(*walk[:2], np.ones((5, 3)), *walk[3:], when, out, 0.1, 0)
    yield lambda: _core.floater(*walk[:4], np.ones((3, 5)), walk[5], when, out, 0.1, 0)
    yield lambda: _core.floater(*walk, when, out, 0.1, 4)
    yield lambda: _core.floater(*walk, when, out, 0.1, -1)
    yield lambda: _core.floater(*walk, when[:0], out, 0.1, 0)
    for sine, cosine, step in ((10**6, 0, 2), (0, 0, 2), (0, 1, 3)):
        yield lambda t=(sine, cosine, step): _core.sinusoid("f", when, when, None, np.empty((2, 4)), *t, 1, 1)
    x, kernel = np.ones((1, 4, 3)), np.ones((1, 9, 3))
    for top, left, padding, fold in ((0, -1, 0, 0), (0, 9, 0, 0), (1, 0, 0, 0), (0, 8, 1, 0), (0, 4, 2, 1)):
        yield lambda t=(top, left, padding, 0, fold): _core.convolution("f", x, kernel, None, np.empty_like(x), *t)
    yield lambda: _core.convolution_vjp("f", x, x, np.empty((1, 9, 3)), np.empty(3), 0, 8, 1)


@pytest.mark.parametrize("call", [*_core_calls()])
def test_kernels_refuse_what_would_leave_their_arrays(call):
    with pytest.raises(ValueError, match=r"^f: an array has lengths that do not fit; expected "):
        call()


SCALE_TO_SHIFT = (1.0, 0.0, -np.inf, np.inf, 0.0)
"""Parameters of attention, which end with the number of parts and invariance."""


def test_a_wrong_type_is_named():
    from posenc import _core

    with pytest.raises(TypeError, match=r"^f: grad has type list; expected an array$"):
        _core.embedding_backward("f", [[1.0]], None, None, None, None, None)
    q, nothing = np.ones((1, 1, 1)), (None,) * 8
    for bias, message in [
        ([], "bias has type list; expected a tuple"),
        ((3,), "bias has an unknown operator; expected "),
        (((),), "bias has an unknown operator; expected "),
        ((("rope",),), "bias has an unknown operator; expected "),
        (((3,),), "bad argument type"),
    ]:
        with pytest.raises(TypeError, match=message):
            _core.attention("f", q, q, q, *nothing, bias, q.copy(), q[0].copy(), None, None, *SCALE_TO_SHIFT, 1, 0)


def test_embedding_backward_stays_inside():
    from posenc import _core

    out = np.empty((1, 2))
    order = np.array([10**9, -5], np.int64)
    _core.embedding_backward("f", np.ones((3, 2)), order, None, np.array([-7]), np.array([10**9]), out)
    assert (out == 2).all()
    _core.embedding_backward("f", np.ones((0, 2)), order, None, np.array([0]), np.array([2]), out)
    assert (out == 0).all()


def _terms_that_do_not_fit():
    """(terms, whether they have gradients) that would make kernels access memory outside of a table, or of the buffer
    of its gradients."""
    rows = np.arange(5)

    def ones(*shape):
        return np.ones(shape, np.float32)

    table = ones(2, 5, 8)
    yield (("shaw", table, None, rows[:4]),), False  # an even number of distances
    yield (("shaw", table, None, rows[:0]),), False
    yield (("shaw", ones(2, 0, 8), None, rows),), False
    yield (("cope", ones(2, 0, 8)),), False
    yield (("toeplitz", ones(2, 3)),), False
    yield (("shaw", table, None, rows, ones(2, 5, 8), None),), True  # rows that are not padded to whole vectors
    yield (("shaw", table, None, rows, ones(1, 5, 16), None),), True  # too few heads
    yield (("shaw", table, None, rows, ones(2, 5, 16), None), ("cope", ones(2, 4, 8), ones(3, 4, 16))), True


@pytest.mark.parametrize(("terms", "gradients"), [*_terms_that_do_not_fit()])
def test_core_refuses_terms_that_do_not_fit(terms, gradients):
    from posenc import _core

    q, k = np.ones((2, 70, 8), np.float32), np.ones((2, 100, 8), np.float32)
    lse, matrix = np.ones((2, 70), np.float32), np.ones((2, 70, 100), np.float32)
    nothing, numbers = (None,) * 8, (1.0, 0.0, -np.inf, np.inf, 0.0)
    with pytest.raises(ValueError, match="f: "):
        _core.attention_vjp(
            "f",
            q,
            k,
            k,
            *nothing,
            terms,
            q,
            lse,
            q,
            None,
            q.copy(),
            k.copy(),
            k.copy(),
            *nothing[:6],
            *numbers,
            1,
            1,
            1,
        )
    with pytest.raises(ValueError, match="f: "):
        _core.logits_vjp("f", q, k, None, *nothing, terms, matrix, q.copy(), k.copy(), *numbers)
    if not gradients:
        with pytest.raises(ValueError, match="f: "):
            _core.attention("f", q, k, k, *nothing, terms, q.copy(), lse.copy(), None, None, *numbers, 1, 0)


@pytest.mark.parametrize(("parts", "rows"), [(0, 2), (-1, 2), (np.nan, 2), (2, 3), (2, None), (17, 34), (1.5, 3)])
def test_core_refuses_parts_that_do_not_fit(parts, rows):
    """Each head has a row of results for each part, and there are at most 16 parts."""
    from posenc import _core

    q, lse = np.ones((2, 3, 8)), np.ones((2, 3))
    results = (None, None) if rows is None else (np.ones((rows, 3, 8)), np.ones((rows, 3)))
    with pytest.raises(ValueError, match="f: an array has lengths that do not fit"):
        _core.attention("f", q, q, q, *(None,) * 8, (), q.copy(), lse, *results, *SCALE_TO_SHIFT, parts, 0)


def test_core_takes_no_row_outside_of_a_table():
    """Row numbers, tokens and buckets that Python would refuse read a row of the table."""
    from posenc import _core

    q, far = np.ones((1, 3, 8), np.float32), np.array([2**40, -(2**40), 3, 9, -1])
    term = ("shaw", np.full((1, 5, 8), 2.0, np.float32), None, far)
    out = np.zeros((1, 3, 3), np.float32)
    _core.logits("f", q, q, *(None,) * 9, (term,), out, 1.0, 0.0, -np.inf, np.inf, 0.0)
    np.testing.assert_array_equal(out, 16)
    away = np.array([5, -7, 2**50])
    _core.fox("f", np.ones((1, 3)), away, away, out)
    np.testing.assert_array_equal(out, 0)
    _core.swin("f", np.ones((9, 1)), np.array([2, 2]), away, away, out)
    np.testing.assert_array_equal(out, 1)
    row = np.zeros((1, 4), np.float32)
    _core.t5("f", np.ones((4, 1)), np.array([-9, 0, 99]), np.array([3, 9]), np.array([-100.0, 0, 1, 1000]), row)
    np.testing.assert_array_equal(row, 1)


@pytest.mark.parametrize(("heads", "groups"), [(3, 2), (3, 0)])
def test_core_refuses_heads_that_cannot_be_shared(heads, groups):
    """Such heads would divide by zero, or read a kv head that does not exist."""
    from posenc import _core

    q, k = np.ones((heads, 4, 8)), np.ones((groups, 4, 8))
    with pytest.raises(ValueError, match="f: "):
        _core.attention("f", q, k, k, *(None,) * 8, (), q.copy(), q[..., 0].copy(), None, None, *SCALE_TO_SHIFT, 1, 0)


def test_none_is_counted_with_the_headers_of_every_python():
    """In headers of Python 3.12 and 3.13, Py_RETURN_NONE does not count None, even in a module for 3.10, which does."""
    binding = Path(__file__).parents[2] / "csrc/python"
    files = sorted(binding.glob("*.c"))
    assert files
    assert [file.name for file in files if "Py_RETURN_" in file.read_text()] == []


def test_held_kernels_check_operands_and_write_nothing():
    """A hold is of one thread, and holds nest."""
    from threading import Thread

    import posenc
    from posenc import _core

    table, out = np.ones((3, 2)), np.zeros((5, 2))
    other = Thread(target=lambda: posenc.learned(table, [0, 1, 2, 1, 0], out=out))
    _core.hold_kernels()
    _core.hold_kernels()
    try:
        posenc.learned(table, [0, 1, 2, 1, 0], out=out)
        _core.release_kernels()
        posenc.learned(table, [0, 1, 2, 1, 0], out=out)
        assert not out.any()
        with pytest.raises(ValueError, match="learned: "):
            _core.learned("learned", table, np.zeros(5, np.int64), np.empty((5, 3)))
        other.start()
        other.join()
        assert out.all()
    finally:
        _core.release_kernels()
    assert posenc.learned(table, 3).all()
