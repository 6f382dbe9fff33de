"""The compiled module refuses arrays that would make a kernel access memory out of bounds, whoever calls it."""

import sys
from functools import partial
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

import posenc
from posenc import _core


def calls_that_do_not_fit():
    """(row, operands) with lengths that the signature allows and the kernel does not."""
    p, out, one, square = np.ones((2, 3)), np.empty((2, 4, 3)), np.ones((1, 3)), np.ones((3, 3))
    states = {"p0": p, "out": out, "gru": False, "skip": False, "weight": square, "bias": one}
    yield "recurrent", {**states, "weight": one, "bias": np.ones((1, 1))}
    yield "recurrent", {**states, "gru": True}
    yield "recurrent", {**states, "gru": True, "weight": np.ones((9, 3)), "bias": np.ones((1, 9))}
    for steps, skip in ((2, False), (3, True)):
        yield "recurrent", {**states, "skip": skip, "inputs": np.ones((2, steps, 4)), "input_weight": np.ones((3, 4))}
    sums = {"dp0": np.empty((2, 3)), "dweight": np.empty((3, 3)), "dbias": np.empty((1, 3))}
    for steps, skip in ((9, False), (4, True)):
        path = np.ones((2, steps, 3))
        yield (
            "recurrent_vjp",
            {"grad": out, "weight": square, "bias": one, "gru": False, "path": path, **sums, "skip": skip},
        )
    walk = {"p0": p, "w1": np.ones((5, 4)), "b1": np.ones(5), "w2": np.ones((3, 6)), "b2": np.ones(3),
            "when": np.zeros(2), "out": out, "dt": 0.1, "method": "rk4"}  # fmt: skip
    for name, value in {"w1": np.ones((5, 3)), "w2": np.ones((3, 5)), "when": np.zeros(0)}.items():
        yield "floater", {**walk, name: value}
    columns = {
        "positions": np.zeros(2),
        "frequencies": np.zeros(2),
        "out": np.empty((2, 4)),
        "sine_scale": 1,
        "cosine_scale": 1,
    }
    for sine, cosine, step in ((10**6, 0, 2), (0, 0, 2), (0, 1, 3)):
        yield "sinusoid", {**columns, "sine": sine, "cosine": cosine, "step": step}
    x = np.ones((1, 4, 3))
    image = {"x": x, "kernel": np.ones((1, 9, 3)), "out": np.empty_like(x), "residual": False}
    for top, left, padding in ((0, 9, "zero"), (1, 0, "zero"), (0, 8, "circular")):
        yield "convolution", {**image, "top": top, "left": left, "padding": padding}
    yield (
        "convolution_vjp",
        {
            "grad": x,
            "x": x,
            "dkernel": np.empty((1, 9, 3)),
            "dbias": np.empty(3),
            "top": 0,
            "left": 8,
            "padding": "circular",
        },
    )
    for count in (0, 2):  # an entry for each distance -reach .. reach
        yield (
            "t5",
            {
                "table": np.ones((4, 1)),
                "lookup": np.zeros(count, np.int64),
                "edges": np.array([3, 9]),
                "rel": np.zeros(2),
                "out": np.empty((1, 2)),
            },
        )
    at, scalars = np.arange(3.0), {"c": np.array(1.0), "threshold": np.array(1.0)}
    for inputs in (0, 2):
        yield (
            "fire",
            {
                "w1": np.ones((5, inputs)),
                "b1": np.ones(5),
                "w2": np.ones((1, 5)),
                "b2": np.ones(1),
                **scalars,
                "q_positions": at,
                "k_positions": at,
                "out": np.empty((1, 3, 3)),
            },
        )


@pytest.mark.parametrize(("row", "operands"), [*calls_that_do_not_fit()])
def test_kernels_refuse_what_would_leave_their_arrays(row, operands):
    with pytest.raises(ValueError, match=r"^f: an array has lengths that do not fit; expected "):
        getattr(_core, row)("f", **operands)


def test_a_wrong_type_is_named():
    nothing = dict.fromkeys(("order", "first", "last", "out"))
    with pytest.raises(TypeError, match=r"^f: order has type NoneType; expected an array$"):
        _core.weighted_rows("f", x=[[1.0]], **nothing)
    q, slopes = np.ones((1, 1, 1)), {"slopes": np.ones(1)}
    for bias, message in [
        ([], "f: bias has type list; expected a tuple"),
        ((3,), "f: bias has an unknown operator; expected "),
        (((),), "f: bias has an unknown operator; expected "),
        ((("rope", {}, None, None),), "f: bias has an unknown operator; expected "),
        (((3, {}, None, None),), "f: bias has an unknown operator; expected "),
        ((("alibi", (), None, None),), "f: bias has an unknown operator; expected "),
        ((("alibi", {}, None, None),), "f: slopes has type NoneType; expected an array"),
        ((("alibi", {**slopes, "table": q}, None, None),), "f: alibi has unknown operands; expected "),
    ]:
        with pytest.raises(TypeError, match=f"^{message}"):
            _core.attention("f", q=q, k=q, v=q, bias=bias, out=q.copy())


def test_operands_are_found_by_name():
    """In any order, by names that are not interned, once each; optional ones may be left out or None."""
    operands = {"out": np.empty((2, 4)), "frequencies": np.zeros(2), "positions": 2, "x": np.full((2, 4), 3.0)}
    _core.rope_positions("f", layout="half", **{"".join(name): array for name, array in operands.items()})
    assert (operands["out"] == 3).all()
    assert _core.sinusoid("f", d=2, sine_scale=1, cosine_scale=1, lo=None, step=1, sine=0, cosine=1, positions=1,
                          frequencies=[1.0]).tolist() == [[0.0, 1.0]]  # fmt: skip
    with pytest.raises(TypeError, match=r"^f: layout is missing; expected real x"):
        _core.rope_positions("f", **operands)
    with pytest.raises(ValueError, match=r"^: layout is 0; expected one of 'half', 'interleaved'$"):  # below a door
        _core.rope_positions(layout=0, **operands)
    with pytest.raises(TypeError, match=r"^: x has type str; expected an array|^: x has dtype"):
        _core.read("rope_positions", x="text")


def test_weighted_rows_stay_inside():
    out = np.empty((1, 2))
    order, ends = np.array([10**9, -5], np.int64), {"first": np.array([-7]), "last": np.array([10**9])}
    _core.weighted_rows("f", x=np.ones((3, 2)), order=order, **ends, out=out)
    assert (out == 2).all()
    ends = {"first": np.array([0]), "last": np.array([2])}
    _core.weighted_rows("f", x=np.ones((0, 2)), order=order, **ends, out=out)
    assert (out == 0).all()


def shaw(*shape, rows=5):
    return "shaw", {"rel_k": np.ones(shape, np.float32), "rows": np.arange(rows)}, None, None


@pytest.mark.parametrize(
    "term",
    [
        shaw(2, 5, 8, rows=4),
        shaw(2, 5, 8, rows=0),
        shaw(2, 0, 8),
        ("cope", {"table": np.ones((2, 0, 8))}, None, None),
        ("toeplitz", {"diagonals": np.ones((2, 3))}, None, None),
    ],
)
def test_core_refuses_terms_that_do_not_fit(term):
    """They would make kernels access memory outside of a table: an even number of distances, none, no rows."""
    q, k = np.ones((2, 70, 8), np.float32), np.ones((2, 100, 8), np.float32)
    lse, matrix = np.ones((2, 70), np.float32), np.ones((2, 70, 100), np.float32)
    inputs = {"q": q, "k": k, "bias": (term,)}
    for call in (
        partial(_core.attention_vjp, v=k, out=q, lse=lse, grad=q),
        partial(_core.logits_vjp, grad=matrix),
        partial(_core.attention, v=k),
        _core.logits,
    ):
        with pytest.raises(ValueError, match="f: "):
            call("f", **inputs)


def test_sums_are_written_to_arrays_with_gaps():
    """A kernel would use their strides for its partial sums, which have no gaps."""
    at = np.arange(4)
    swin = {"grad": np.ones((2, 4, 4)), "table": np.ones((9, 2)), "codes": np.array([0, 1, 3, 4])}
    whole, gaps = (
        _core.swin_vjp(**swin, q_positions=at, k_positions=at, d_table=out) for out in (None, np.ones((9, 90))[:, :2])
    )
    assert (whole == gaps).all()


def test_core_takes_no_row_outside_of_a_table():
    """Row numbers, tokens and buckets that Python would refuse read a row of the table."""
    q, far = np.ones((1, 3, 8), np.float32), np.array([2**40, -(2**40), 3, 9, -1])
    term = ("shaw", {"rel_k": np.full((1, 5, 8), 2.0, np.float32), "rows": far}, None, None)
    out = np.zeros((1, 3, 3), np.float32)
    _core.logits("f", q=q, k=q, bias=(term,), out=out, scale=1.0)
    np.testing.assert_array_equal(out, 16)
    tokens = dict.fromkeys(("q_positions", "k_positions"), np.arange(3))
    _core.swin("f", table=np.ones((9, 1)), codes=np.array([2**63 - 1, -(2**62), -1]), **tokens, out=out)
    np.testing.assert_array_equal(out, 1)
    row = np.zeros((1, 4), np.float32)
    for near in (-9, 2**63 - 1):
        buckets = {"lookup": np.array([near, 0, near]), "edges": np.array([3, 9])}
        _core.t5("f", table=np.ones((4, 1)), **buckets, rel=np.array([-100.0, 0, 1, 1000]), out=row)
        np.testing.assert_array_equal(row, 1)


@pytest.mark.parametrize("far", [3, -1, 2**50])
@pytest.mark.parametrize("side", ["q_positions", "k_positions"])
def test_core_refuses_positions_beyond_a_table(side, far):
    """In the values of a bias and in its gradient; a call without pairs reads no position."""
    rows = {"q_positions": np.arange(3), "k_positions": np.arange(3), side: np.array([[0, 1, 2], [2, far, 0]])}
    wrong = rf"^f: {side} has {far}; expected 0 to 2$"
    arrays = {"fox": {"log_forget": np.ones((1, 3))}, "swin": {"table": np.ones((5, 1)), "codes": np.arange(3)}}
    for name, operands in arrays.items():
        with pytest.raises(IndexError, match=wrong):
            getattr(_core, name)("f", **operands, **rows)
        with pytest.raises(IndexError, match=wrong):
            getattr(_core, f"{name}_vjp")("f", grad=np.ones((1, 3, 3)), **operands, **rows)
        other = {**rows, "k_positions" if side == "q_positions" else "q_positions": np.arange(0)}
        assert getattr(_core, name)("f", **operands, **other).size == 0


@pytest.mark.parametrize(("heads", "groups"), [(3, 2), (3, 0)])
def test_core_refuses_heads_that_cannot_be_shared(heads, groups):
    """Such heads would divide by zero, or read a kv head that does not exist."""
    q, k = np.ones((heads, 4, 8)), np.ones((groups, 4, 8))
    with pytest.raises(ValueError, match="f: "):
        _core.attention("f", q=q, k=k, v=k, out=q.copy(), lse=q[..., 0].copy())


@pytest.mark.skipif(sys.platform != "linux", reason="other systems name imported functions otherwise")
def test_kernels_call_no_function_of_libm():
    """Its bits depend on the machine. `pow` and `frexp` of double are exact here, or of the binding alone."""
    names = Path(_core.__file__).read_bytes()
    functions = ("exp", "exp2", "expm1", "log", "log2", "log1p", "sin", "cos", "sincos", "tanh", "tan", "atan", "cbrt")
    found = [name for base in functions for name in (base, f"{base}f") if b"\0" + name.encode() + b"\0" in names]
    assert not found


def test_none_is_counted_with_the_headers_of_every_python():
    """In headers of Python 3.12 and 3.13, Py_RETURN_NONE does not count None, even in a module for 3.10, which does."""
    binding = Path(__file__).parents[2] / "csrc/python"
    files = sorted(binding.glob("*.c"))
    assert files
    assert [file.name for file in files if "Py_RETURN_" in file.read_text()] == []


def test_held_kernels_check_operands_and_write_nothing():
    """A hold is of one thread, and holds nest."""
    table, out = np.ones((3, 2)), np.zeros((5, 2))
    other = Thread(target=lambda: posenc.learned(table, [0, 1, 2, 1, 0], out=out))
    _core.begin_rehearsal()
    _core.begin_rehearsal()
    try:
        posenc.learned(table, [0, 1, 2, 1, 0], out=out)
        _core.end_rehearsal()
        posenc.learned(table, [0, 1, 2, 1, 0], out=out)
        assert not out.any()
        with pytest.raises(ValueError, match="learned: "):
            _core.learned("learned", table=table, positions=np.zeros(5, np.int64), out=np.empty((5, 3)))
        other.start()
        other.join()
        assert out.all()
    finally:
        _core.end_rehearsal()
    assert posenc.learned(table, 3).all()


def test_scans_take_no_axes_before_the_batch():
    """Their kernels know no loops: they would read past the states."""
    p0, square, bias = np.ones((2, 3, 4)), np.ones((4, 4)), np.ones((1, 4))
    with pytest.raises(ValueError, match=r"^f: p0 has 3 axes; expected 2$"):
        _core.recurrent("f", p0=p0, weight=square, bias=bias, n=2, gru=False, skip=False)
    with pytest.raises(ValueError, match=r"^f: w1 has 3 axes; expected 2$"):
        _core.floater(
            "f",
            p0=p0[0],
            w1=np.ones((2, 5, 5)),
            b1=np.ones(5),
            w2=np.ones((4, 6)),
            b2=np.ones(4),
            when=[0.0],
            n=2,
            dt=1.0,
            method="euler",
        )
