"""What a review found wrong once, in the order of its severity."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import posenc


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_fork_before_the_first_pooled_call():
    """Scratch has a lock that small calls take too: a child must not inherit it closed."""
    script = """
        import os, threading, numpy as np, posenc
        posenc.set_num_threads(1)
        q, keep, going = np.ones((1, 64, 64), np.float32), np.zeros((1, 1, 1), bool), [True]
        def work():
            while going[0]:
                posenc.attention(q, q, q, keep=keep)
        workers = [threading.Thread(target=work) for _ in range(3)]
        [w.start() for w in workers]
        for _ in range(150):
            child = os.fork()
            if child == 0:
                posenc.attention(q[:, :16], q[:, :16], q[:, :16])
                os._exit(0)
            os.waitpid(child, 0)
        going[0] = False
        [w.join() for w in workers]
        print("done")
    """
    run = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)]
    assert subprocess.run(run, capture_output=True, text=True, timeout=60).stdout == "done\n"


def test_out_over_positions_and_segments():
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(1, 256, 4)), rng.normal(size=(1, 256, 4)), rng.normal(size=(1, 256, 1))
    for kind, dtype in (("positions", np.float64), ("segments", np.int64)):
        buffer = (rng.permutation(256) // 3).astype(dtype)
        names = {f"q_{kind}": buffer, f"k_{kind}": buffer}
        want = posenc.attention(q, k, v, causal=True, **{name: array.copy() for name, array in names.items()})
        got = posenc.attention(q, k, v, causal=True, **names, out=buffer.view(np.float64).reshape(1, 256, 1))
        assert (got == want).all()


def test_out_over_positions_that_are_no_array():
    buffer = np.empty(4000)
    buffer[:2000] = np.arange(2000) + 0.5
    want = posenc.sinusoidal(buffer[:2000].copy(), 2, dtype=np.float64)
    assert (posenc.sinusoidal(memoryview(buffer[:2000]), 2, out=buffer.reshape(2000, 2)) == want).all()


@pytest.mark.parametrize("dtype", ["<f4", ">f4", ">f8"])
def test_a_broadcast_dense_bias_is_not_spread_out(dtype):
    import tracemalloc

    q, bias = np.ones((8, 600, 4), np.float32), posenc.dense(np.zeros((1, 1, 600), dtype))
    tracemalloc.start()
    posenc.attention(q, q, q, bias=bias)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20  # H x N x M floats would be 11 MiB


@pytest.mark.skipif(not hasattr(signal, "raise_signal") or os.name == "nt", reason="no SIGINT to send")
def test_ctrl_c_while_only_a_worker_works():
    keys = np.broadcast_to(np.ones((1, 1, 64), np.float32), (1, 20_000_000, 64))
    keep = np.ones((1, 128, 1), bool)
    keep[:, :64] = False  # the caller's block is empty
    with posenc.threads(2):
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            posenc.attention(np.ones((1, 128, 64), np.float32), keys, keys, keep=keep)
        assert (
            time.monotonic() - began < 10
        )  # it would take half a minute; the documented second is for an idle machine


def test_softcap_beyond_the_working_precision():
    q, v = np.ones((1, 3, 4), np.float32), np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    assert np.abs(posenc.attention(q, q, v, softcap=1e39) - posenc.attention(q, q, v)).max() <= 1e-6  # one rounding
    for tiny in (1e-46, 1e-40):
        assert np.abs(posenc.attention(q * [[[1], [2], [3]]], q, v, softcap=tiny) - v.mean(1)).max() <= 1e-6


def test_angles_past_their_bits_are_refused():
    with pytest.raises(ValueError, match=r"^sinusoidal: frequencies has 1e\+30; expected "):
        posenc.sinusoidal([1], 2, frequencies=[1e30])
    assert posenc.sinusoidal([2**53], 2, frequencies=[8.0]).shape == (1, 2)


W = np.ones(2)
REFUSED = {
    "position": (lambda: posenc.rope_matrix(np.nan, W, layout="half"), ValueError, "rope_matrix: position "),
    "odd": (lambda: posenc.shift_matrix(1, 3), ValueError, "shift_matrix: dim "),
    "v": (lambda: posenc.attention(*np.ones((2, 2, 1, 3, 4)), np.ones((3, 1, 3, 4))), ValueError, "attention: v "),
    "width": (lambda: posenc.convert_layout(W[:1], source="half", target="half"), ValueError, "convert_layout: x "),
    "window": (lambda: posenc.attention(*np.ones((3, 1, 2, 2)), window=(10**400, None)), ValueError, "attention: win"),
    "base": (lambda: posenc.sinusoidal(1, 2, base=10**400), ValueError, "sinusoidal: base "),
    "bytes": (lambda: posenc.attention(*np.ones((3, 1, 2, 2)), scale=b"1"), TypeError, "attention: scale "),
    "factor": (
        lambda: posenc.rope(np.ones((1, 4)), 1, posenc.RopeFrequencies(W, 0.0, 1.0), layout="half"),
        ValueError, "rope: attention_factor ",
    ),
    "batches": (
        lambda: posenc.alibi([1.0]).matrix(3, q_positions=np.ones((2, 3)), k_positions=np.ones((4, 3))),
        ValueError, "alibi.matrix: k_positions ",
    ),
    "axis": (lambda: posenc.rope(np.ones((2, 1, 4)), 1, W, layout="half", seq_axis=0.0), TypeError, "rope: seq_axis "),
    "layout": (lambda: posenc.rope(np.ones((1, 4)), 1, W, layout=np.array(["half"])), ValueError, "rope: layout "),
    "huge": (lambda: posenc.sinusoidal([2**70], 4), ValueError, "sinusoidal: positions has 1180591620717411303424; "),
    "offset": (lambda: posenc.rope(np.ones((1, 4)), 1, W, layout="half", rotary_offset=None), TypeError, "rope: rota"),
    "power": (lambda: posenc.frequencies(4, schedule="power", base=-1), ValueError, "frequencies: base "),
    "segment": (
        lambda: posenc.attention(
            *np.ones((3, 1, 1, 2)), q_segments=np.array([2**64 - 1], np.uint64), k_segments=[-1]
        ),
        ValueError, "attention: q_segments ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_refused_by_name(kind):
    call, exception, beginning = REFUSED[kind]
    with pytest.raises(exception) as caught:
        call()
    assert str(caught.value).startswith(beginning)
    assert "; expected " in str(caught.value)


def test_the_first_array_decides_the_dtype():
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(2, 3)).astype(np.float32), rng.normal(size=(2, 3))]
    assert posenc.merge_attention(parts, [np.zeros(2), np.zeros(2)])[0].dtype == np.float32
    assert posenc.rope_table(2, W, dtype=None)[0].dtype == np.float32


STATES = (np.ones(3), np.ones((5, 4)), np.ones(5), np.ones((3, 6)), np.ones(3))
REFUSED_COUNTS = {
    "positions": (lambda n: posenc.sinusoidal(n, 4), "sinusoidal: positions "),
    "0-d positions": (lambda n: posenc.sinusoidal(np.array(n, np.uint64), 4), "sinusoidal: positions "),
    "dim": (lambda n: posenc.frequencies(n), "frequencies: dim "),
    "substeps": (lambda n: posenc.floater(*STATES, 3, substeps=n), "floater: substeps "),
    "n": (lambda n: posenc.recurrent(np.ones(1), np.ones((1, 1)), np.ones(1), n), "recurrent: n "),
}


@pytest.mark.parametrize("n", [2**53 + 1, 2**62, 2**63, 2**63 + 5, 2**64 - 1])
@pytest.mark.parametrize("kind", REFUSED_COUNTS)
def test_counts_that_numpy_would_make_empty(kind, n):
    """np.arange(2**63) is empty: no positions, and no steps of the solver."""
    call, beginning = REFUSED_COUNTS[kind]
    with pytest.raises(ValueError, match=f"^{beginning}(has|is) {n}; expected at most 2"):
        call(n)


REFUSED_KINDS = {
    "0-d float": (lambda: posenc.frequencies(np.array(4.0)), "frequencies: dim "),
    "a type": (lambda: posenc.frequencies(int), "frequencies: dim "),
    "0-d bool": (lambda: posenc.frequencies(np.array(True)), "frequencies: dim "),
    "include_p0": (
        lambda: posenc.recurrent(np.ones(1), np.ones((1, 1)), np.ones(1), 2, include_p0="no"), "recurrent: include_p0 "
    ),
    "ragged": (lambda: posenc.shift_matrix([1, [2]], 4), "shift_matrix: offset "),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Creating an ndarray from ragged")  # NumPy 1.23 makes one of objects, and warns
@pytest.mark.parametrize("kind", REFUSED_KINDS)
def test_kinds_refused_by_name(kind):
    call, beginning = REFUSED_KINDS[kind]
    with pytest.raises(TypeError, match=f"^{beginning}has .*; expected "):
        call()


def test_a_row_past_any_integer_is_an_index_error():
    with pytest.raises(IndexError, match="learned: positions has id 1152921504606846975; expected "):
        posenc.learned(np.ones((3, 2)), 2**60)


def test_digits_do_not_take_the_power_of_a_wide_number():
    began = time.monotonic()
    assert posenc.digits(7, width=5_000_000)[-1] == 7
    assert time.monotonic() - began < 30  # 10**5_000_000 itself takes longer than its digits


def _core_calls():
    from posenc import _core

    p, b2 = np.ones((2, 3)), np.ones((1, 3))
    walk = ("f", np.ones((2, 3)), np.ones((5, 4)), np.ones(5), np.ones((3, 6)), np.ones(3))
    when, out = np.zeros(2), np.empty((2, 4, 3))
    yield lambda: _core.recurrent("f", p, np.ones((1, 3)), np.ones((1, 1)), out, 0, 0)
    yield lambda: _core.recurrent("f", p, np.ones((3, 3)), b2, out, 1, 0)
    yield lambda: _core.recurrent("f", p, np.ones((9, 3)), np.ones((1, 9)), out, 1, 0)
    sums = np.empty((2, 3)), np.empty((3, 3)), np.empty((1, 3))
    yield lambda: _core.recurrent_vjp("f", out, np.ones((2, 9, 3)), np.ones((3, 3)), b2, *sums, 0, 0)
    yield lambda: _core.recurrent_vjp("f", out, np.ones((2, 4, 3)), np.ones((3, 3)), b2, *sums, 0, 1)
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


def test_gather_rows_stays_inside():
    from posenc import _core

    out = np.empty((1, 2))
    order = np.array([10**9, -5], np.int64)
    _core.gather_rows("f", np.ones((3, 2)), order, None, np.array([-7]), np.array([10**9]), out)
    assert (out == 2).all()
    _core.gather_rows("f", np.ones((0, 2)), order, None, np.array([0]), np.array([2]), out)
    assert (out == 0).all()


def _terms_that_do_not_fit():
    """(terms, whether they have gradients): what would lead the kernels out of a table, or of the room for its sums"""
    rows = np.arange(5)

    def ones(*shape):
        return np.ones(shape, np.float32)

    table = ones(2, 5, 8)
    yield (("shaw", table, None, rows[:4]),), False  # an even number of distances
    yield (("shaw", table, None, rows[:0]),), False
    yield (("shaw", ones(2, 0, 8), None, rows),), False
    yield (("cope", ones(2, 0, 8)),), False
    yield (("toeplitz", ones(2, 3)),), False
    yield (("shaw", table, None, rows, ones(2, 5, 8), None),), True  # no whole vectors
    yield (("shaw", table, None, rows, ones(1, 5, 16), None),), True  # too few heads
    yield (("shaw", table, None, rows, ones(2, 5, 16), None), ("cope", ones(2, 4, 8), ones(3, 4, 16))), True


@pytest.mark.parametrize(("terms", "gradients"), [*_terms_that_do_not_fit()])
def test_core_refuses_terms_that_do_not_fit(terms, gradients):
    from posenc import _core

    q, k = np.ones((2, 70, 8), np.float32), np.ones((2, 100, 8), np.float32)
    lse, matrix = np.ones((2, 70), np.float32), np.ones((2, 70, 100), np.float32)
    nothing, numbers = (None,) * 5, (1.0, 0.0, -np.inf, np.inf, 0.0)
    with pytest.raises(ValueError, match="f: "):
        _core.attention_vjp(
            "f", q, k, k, *nothing, terms, q, lse, q, None, q.copy(), k.copy(), k.copy(), *nothing, *numbers, 1, 1, 1
        )
    with pytest.raises(ValueError, match="f: "):
        _core.logits_vjp("f", q, k, None, *nothing, terms, matrix, q.copy(), k.copy(), *numbers)
    if not gradients:
        with pytest.raises(ValueError, match="f: "):
            _core.attention("f", q, k, k, *nothing, terms, q.copy(), lse.copy(), *numbers)


def test_core_takes_no_row_outside_of_a_table():
    """Rows, tokens and buckets that Python would refuse: some row of the table, no other memory."""
    from posenc import _core

    q, far = np.ones((1, 3, 8), np.float32), np.array([2**40, -(2**40), 3, 9, -1])
    term = ("shaw", np.full((1, 5, 8), 2.0, np.float32), None, far)
    out = np.zeros((1, 3, 3), np.float32)
    _core.logits("f", q, q, *(None,) * 6, (term,), out, 1.0, 0.0, -np.inf, np.inf, 0.0)
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
    """Division by zero, and a kv head that is not there."""
    from posenc import _core

    q, k = np.ones((heads, 4, 8)), np.ones((groups, 4, 8))
    with pytest.raises(ValueError, match="f: "):
        _core.attention("f", q, k, k, *(None,) * 5, (), q.copy(), q[..., 0].copy(), 1.0, 0.0, -np.inf, np.inf, 0.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_vjp_keeps_what_is_not_finite(bad):
    """A query or key that is not finite was left out of the tables' gradients, which then looked like numbers."""
    q, k = np.ones((1, 3, 2)), np.ones((1, 3, 2))
    q[0, 1, 0] = bad
    grad = np.tri(3)[None]  # query 1 meets rows 0 and 1
    found = posenc.shaw(np.ones((3, 2))).logits_vjp(grad, q, k).rel_k
    np.testing.assert_array_equal(found, [[bad, 3], [bad, 3], [0, 0]])
    bias = posenc.deberta(np.ones((1, 4, 2)), np.ones((1, 4, 2)))
    for gradient in bias.logits_vjp(grad, q, k).rel_k, bias.logits_vjp(grad, k, q).rel_q:
        assert np.isfinite(gradient[0, :, 1]).all()
        assert not np.isfinite(gradient[0, 2, 0])


def test_parameters_beyond_float32_are_refused_by_name():
    q = np.ones((1, 3, 2), np.float32)
    large, ones = np.full((1, 3, 2), 1e300), np.ones((1, 3, 2))
    for bias, argument in (
        (posenc.shaw(large[0]), "rel_k"),
        (posenc.shaw(ones[0], large[0]), "rel_v"),
        (posenc.tupe(large, ones), "pos_q"),
        (posenc.tupe(ones, ones, any_to_cls=[1e300]), "any_to_cls"),
        (posenc.toeplitz(np.full((1, 5), 1e300)), "diagonals"),
    ):
        with pytest.raises(ValueError, match=f"attention: {argument} has numbers beyond float32"):
            posenc.attention(q, q, q, bias=bias)
        posenc.attention(q.astype(np.float64), q, q, bias=bias)
    mask = np.triu(np.full((3, 3), np.finfo(np.float64).min), 1)
    np.testing.assert_array_equal(
        posenc.attention(q, q, q, bias=posenc.dense(mask)), posenc.attention(q, q, q, causal=True)
    )


@pytest.mark.parametrize("n", [1, 3, 20])
@pytest.mark.parametrize(("d", "e"), [(0, 3), (3, 0), (0, 0)])
def test_heads_without_channels(isa, n, d, e):
    """A kernel for few queries divided by the width of a row."""
    q, k, v = np.ones((2, n, d), np.float32), np.ones((2, 5, d), np.float32), np.arange(10.0 * e).reshape(2, 5, e)
    out, lse = posenc.attention(q, k, v, return_lse=True)
    np.testing.assert_allclose(out, np.broadcast_to(v.mean(1, keepdims=True), (2, n, e)), rtol=1e-6)
    np.testing.assert_allclose(lse, d**0.5 + np.log(5), rtol=1e-6)
    gradient = posenc.attention_vjp(np.ones_like(out), q, k, v, out=out, lse=lse)
    assert [part.shape for part in gradient[:3]] == [q.shape, k.shape, v.shape]
    np.testing.assert_allclose(gradient.v, np.full((2, 5, e), n / 5), rtol=1e-6)
