"""The binding reads arguments once: code of the user that runs meanwhile, memory of results, references of failures."""

import gc
import sys
from functools import partial

import numpy as np
import pytest

import posenc
from posenc import _core

X, W = np.ones((3, 4)), np.ones(2)


class Number:
    """An integer and a real number whose conversion runs code of the user."""

    def __init__(self, run):
        self.run = run

    def __index__(self):
        self.run()
        return 4

    def __float__(self):
        self.run()
        return 4.0


class Rows:
    """An array whose conversion runs code of the user."""

    def __init__(self, run, array):
        self.run, self.array = run, array

    def __array__(self, dtype=None, copy=None):
        self.run()
        return self.array


class Dtype:
    def __init__(self, run):
        self.run = run

    @property
    def dtype(self):
        self.run()
        return np.dtype(np.float32)


def stop(kind):
    raise kind("of the user")


rope = partial(_core.rope_positions, x=X, positions=3, frequencies=W, layout="half")
READERS = {
    "integer": lambda run: rope(rotary_dim=Number(run)),
    "number": lambda run: rope(attention_factor=Number(run)),
    "start": lambda run: rope(start=Number(run)),
    "dtype": lambda run: posenc.sinusoidal(3, 2, dtype=Dtype(run)),
    "read": lambda run: _core.read("real x(); alpha", x=X, alpha=Number(run)),
}


def numpy_keeps_exceptions():
    """Return whether np.dtype passes on what the attribute dtype of an object raises; NumPy 1.23 does not."""
    try:
        np.dtype(Dtype(partial(stop, RuntimeError)))
    except RuntimeError:
        return True
    except TypeError:
        return False


@pytest.mark.parametrize("name", READERS)
def test_exceptions_of_the_user_are_kept(name):
    """Only those that say what a value is not become a message of posenc."""
    if name == "dtype" and not numpy_keeps_exceptions():
        pytest.skip("this NumPy replaces exceptions of an attribute dtype")
    READERS[name](lambda: None)
    for kind in (KeyboardInterrupt, MemoryError, RuntimeError):
        with pytest.raises(kind, match="of the user"):
            READERS[name](partial(stop, kind))
    for kind in (TypeError, ValueError, OverflowError):
        with pytest.raises((TypeError, ValueError), match="expected "):
            READERS[name](partial(stop, kind))


@pytest.mark.parametrize("length", [2, 1 << 20])
def test_code_of_the_user_may_resize_arrays(length):
    """It runs before a pointer is taken, so the call reads the arrays as it left them."""
    x = np.ones((1 << 16, 4))
    cos = Rows(partial(x.resize, (length, 4), refcheck=False), np.full((length, 2), 3.0))
    rotated = _core.rope(x=x, cos=cos, sin=np.zeros((length, 2)), layout="half")
    assert (rotated[:2] == 3).all()
    x = np.ones((1 << 16, 4))
    width = Number(partial(x.resize, (length, 4), refcheck=False))
    assert _core.rope_positions(
        x=x, positions=np.zeros(length), frequencies=W, layout="half", rotary_dim=width
    ).shape == (length, 4)


def test_arrays_of_operators_are_arrays():
    """A list would be read while pointers into other arrays are held."""
    q = np.ones((1, 2, 4))
    for bias, name in [
        (("alibi", {"slopes": [1.0]}, None, None), "slopes"),
        (("alibi", {"slopes": np.ones(1)}, [0, 1], np.arange(2)), "q_positions"),
    ]:
        with pytest.raises(TypeError, match=f"^f: {name} has type list; expected an array$"):
            _core.attention("f", q=q, k=q, v=q, bias=(bias,))


def test_inputs_of_recurrences_come_together():
    """Kernels know by a length whether there are inputs."""
    states = {
        "p0": np.ones((2, 3)),
        "weight": np.ones((3, 3)),
        "bias": np.ones((1, 3)),
        "gru": False,
        "skip": True,
        "n": 4,
    }
    inputs, weight = np.ones((2, 4, 5)), np.ones((3, 5))
    for given, missing in (({"inputs": inputs}, "input_weight"), ({"input_weight": weight}, "inputs")):
        with pytest.raises(
            TypeError, match=f"^f: {missing} is None; expected an array, because {next(iter(given))} is"
        ):
            _core.recurrent("f", **states, **given)
    path = {"grad": np.ones((2, 4, 3)), "path": np.ones((2, 5, 3))}
    states.pop("p0"), states.pop("n")
    both = {"inputs": inputs, "input_weight": weight}
    for given in (both, {**both, "dinputs": True}, {**both, "dinput_weight": True}, {"dinputs": np.empty((2, 4, 5))}):
        with pytest.raises(TypeError, match=r"^f: d?input\w+ is None; expected an array"):
            _core.recurrent_vjp("f", **states, **path, **given)


def test_a_row_of_half_numbers_is_widened():
    """The tile reads the diagonals of `toeplitz` as numbers of the arithmetic."""
    q = np.ones((1, 3, 4), np.float32)
    diagonals = np.arange(5.0)[None] * 100
    found = [
        _core.attention(q=q, k=q, v=q, bias=(("toeplitz", {"diagonals": diagonals.astype(dtype)}, None, None),))
        for dtype in (np.float16, np.float32)
    ]
    assert (found[0] == found[1]).all()


def test_a_sinusoid_has_one_row_of_frequencies():
    columns = {"sine": 0, "cosine": 1, "step": 1, "sine_scale": 1, "cosine_scale": 1, "d": 2}
    with pytest.raises(ValueError, match=r"^f: frequencies has 2 axes; expected 1"):
        _core.sinusoid("f", positions=np.zeros(2), frequencies=np.ones((2, 1)), **columns)


# ---- numbers ----


@pytest.mark.parametrize(("number", "has"), [(2**63 + 2, "9223372036854775810"), (10**300, "an integer of 997 bits")])
def test_large_integers(number, has):
    for name in ("rotary_dim", "rotary_offset"):
        with pytest.raises(ValueError, match=rf"^rope: {name} is {has}; expected at most 2\*\*53$"):
            posenc.rope(X, 3, W, layout="half", **{name: number})
    with pytest.raises(ValueError, match=r"^f: alpha has an integer beyond float64; expected a finite number"):
        _core.read("f", "real x(); alpha", x=X, alpha=10**400)


def test_ids_of_a_table_with_many_rows():
    """The rows of a table without columns take no memory, and their square is no number of 64 bits."""
    table = np.empty((2**40, 0))
    assert posenc.hierarchical(table, [5, 2**62]).shape == (2, 0)
    assert posenc.learned(table, [2**40 - 1]).shape == (1, 0)
    with pytest.raises(IndexError, match="learned: positions has id 1099511627776; expected ids of at least 0"):
        posenc.learned(table, [2**40])


def test_broadcast_numbers_are_checked_once():
    """A view of 2**40 numbers has one number to check, and its result is refused for its size."""
    far = np.broadcast_to(np.arange(3.0), (2**40, 3))
    with pytest.raises(MemoryError, match=r"^sinusoidal: the result has shape \(1099511627776, 3, 2\)"):
        posenc.sinusoidal(far, 2)
    assert (posenc.sinusoidal(far[:2, ::-1], 2) == posenc.sinusoidal(np.arange(3.0)[::-1], 2)).all()
    for wrong in (np.nan, 2.0**60):
        numbers = np.broadcast_to(np.array([1.0, wrong]), (2**40, 2))
        with pytest.raises(ValueError, match=r"^sinusoidal: positions has .*; expected finite positions of at most"):
            posenc.sinusoidal(numbers, 2)


def test_the_array_of_counted_positions_is_read_only():
    """The next call uses it again."""
    counted = _core.read("pos p(n) counted", p=5)
    with pytest.raises(ValueError, match="read-only"):
        counted[0] = 7
    assert (posenc.sinusoidal(5, 4) == posenc.sinusoidal(np.arange(5), 4)).all()


# ---- memory of results ----


def twice(shape, strides):
    """Memory in which elements of an array overlap."""
    return np.lib.stride_tricks.as_strided(np.full(64, 7.0), shape, strides)


@pytest.mark.parametrize(
    "strides", [(16, 16, 8), (0, 16, 8), (32, 8, 8), (8, 64, 16)], ids=["rows", "one row", "columns", "interleaved"]
)
def test_an_out_that_overlaps_itself_is_filled_as_by_a_copy(strides):
    """The result is computed elsewhere, and copied in NumPy's order: the threads do not decide what remains."""
    positions = np.arange(6).reshape(2, 3)
    out, wanted = twice((2, 3, 2), strides), twice((2, 3, 2), strides)
    np.copyto(wanted, posenc.sinusoidal(positions, 2, dtype=np.float64))
    for number in (1, 2):
        with posenc.threads(number):
            posenc.sinusoidal(positions, 2, out=out)
        assert (out == wanted).all()


def test_read_arrays_outlive_the_arguments():
    """No array that `read` returns points to memory of an argument that is gone, or of the binding."""
    texts = {
        "real x(n,d), real p(d) following": {"x": [[1.0, 2.0]] * 9, "p": [3.0, 4.0]},
        "f64 x() finite": {"x": list(range(99))},
        "pos p(n) counted": {"p": 1000},
        "bool keep(n)": {"keep": [True] * 99},
        "real x(n,d) following": {"x": np.broadcast_to(np.arange(3.0), (9, 3))},
    }
    for text, arguments in texts.items():
        read = _core.read(
            text, **{name: np.array(value) if type(value) is list else value for name, value in arguments.items()}
        )
        arrays = read if isinstance(read, tuple) else (read,)
        before = [array.copy() for array in arrays]
        gc.collect()
        used = [np.full(1000, 255, np.uint8) for _ in range(1000)]
        assert all((a == b).all() for a, b in zip(arrays, before, strict=True)), len(used)


# ---- failures ----

HALF = np.ones((2, 3, 4), np.float16)
FAILURES = {
    "none": lambda: _core.toeplitz_matrix(row=None, n=1, m=1),
    "axes": lambda: _core.toeplitz_matrix(row=1.0, n=1, m=1),
    "more axes": lambda: posenc.learned(np.ones((1, 2, 3)), 3),
    "length": lambda: posenc.rope(X, 5, W, layout="half"),
    "dtype": lambda: posenc.learned(np.ones(3, complex), 3),
    "range": lambda: _core.attention(q=HALF, k=np.full((2, 3, 4), 1e300), v=HALF),
    "frequencies": lambda: posenc.rope(X, 3, np.ones(3), layout="half"),
    "large angles": lambda: posenc.rope(X, np.full(3, 2**52), np.full(2, 1e9), layout="half"),
    "nan": lambda: posenc.sinusoidal([0.0, np.nan], 2),
    "far": lambda: posenc.sinusoidal([2**60], 2),
    "far unsigned": lambda: posenc.sinusoidal(np.array([2**63], np.uint64), 2),
    "ids": lambda: posenc.learned(X, [7]),
    "count of ids": lambda: posenc.learned(X, 7),
    "negative count": lambda: posenc.sinusoidal(-1, 2),
    "large count": lambda: posenc.sinusoidal(2**60, 2),
    "count beyond memory": lambda: posenc.sinusoidal(2**53, 2),
    "start": lambda: posenc.sinusoidal(3, 2, start=2**60),
    "start before": lambda: posenc.sinusoidal(3, 2, start=-(2**60)),
    "start and array": lambda: posenc.sinusoidal([1, 2], 2, start=3),
    "start of reals": lambda: posenc.sinusoidal(3, 2, start=1.5),
    "last position": lambda: posenc.sinusoidal(3, 2, start=2**53),
    "real count": lambda: posenc.sinusoidal(3.0, 2),
    "broadcast": lambda: _core.rope(
        x=X, cos=np.ones((2, 2)), sin=W, offset=0, interleaved=False, out_interleaved=False
    ),
    "word": lambda: posenc.rope(X, 3, W, layout="sum"),
    "flag": lambda: posenc.rope(X, 3, W, layout="half", inverse=1),
    "integer": lambda: posenc.rope(X, 3, W, layout="half", rotary_dim=2.0),
    "negative": lambda: posenc.rope(X, 3, W, layout="half", rotary_dim=-2),
    "large integer": lambda: posenc.rope(X, 3, W, layout="half", rotary_dim=10**400),
    "number": lambda: _core.hierarchical(table=X, positions=[1], alpha="a"),
    "large number": lambda: _core.hierarchical(table=X, positions=[1], alpha=10**400),
    "array for a number": lambda: _core.hierarchical(table=X, positions=[1], alpha=np.ones(1)),
    "factor": lambda: posenc.rope(X, 3, posenc.RopeFrequencies(W, np.inf), layout="half"),
    "factor of float32": lambda: posenc.rope(X.astype("f"), 3, posenc.RopeFrequencies(W, 1e300), layout="half"),
    "factor 0": lambda: posenc.rope(X, 3, posenc.RopeFrequencies(W, 0.0), layout="half"),
    "inverse of a factor": lambda: posenc.rope(
        X.astype("f"), 3, posenc.RopeFrequencies(W, 1e-40), layout="half", inverse=True
    ),
    "dtype of results": lambda: posenc.sinusoidal(3, 2, dtype=complex),
    "no dtype": lambda: posenc.sinusoidal(3, 2, dtype="text"),
    "out": lambda: posenc.sinusoidal(3, 2, out=[1.0]),
    "masked out": lambda: posenc.sinusoidal(3, 2, out=np.ma.zeros((3, 2))),
    "dtype of out": lambda: posenc.rope(X, 3, W, layout="half", out=np.ones((3, 4), np.float32)),
    "shape of out": lambda: posenc.rope(X, 3, W, layout="half", out=np.ones((3, 5))),
    "read-only out": lambda: posenc.rope(X, 3, W, layout="half", out=np.broadcast_to(1.0, (3, 4))),
    "size of a result": lambda: _core.sinusoid(
        positions=np.zeros(2), frequencies=W, sine=0, cosine=2, step=1, sine_scale=1, cosine_scale=1, d=2**60
    ),
    "unknown name": lambda: _core.learned(table=X, positions=1, other=1),
    "missing name": lambda: _core.learned(table=X),
    "signature": lambda: _core.read("no row", x=X),
    "lengths": lambda: _core.floater(
        p0=X, w1=X, b1=np.ones(3), w2=np.ones((4, 4)), b2=np.ones(4), when=np.zeros(1), dt=1.0, method="rk4", n=2
    ),
    "operators": lambda: _core.attention(q=HALF, k=HALF, v=HALF, bias=[]),
    "many operators": lambda: _core.attention(q=HALF, k=HALF, v=HALF, bias=(("alibi", {}, None, None),) * 17),
    "operator": lambda: _core.attention(q=HALF, k=HALF, v=HALF, bias=(("rope", {}, None, None),)),
    "operand": lambda: _core.attention(q=HALF, k=HALF, v=HALF, bias=(("alibi", {"slopes": np.ones(3)}, None, None),)),
    "operands": lambda: _core.attention(
        q=HALF, k=HALF, v=HALF, bias=(("alibi", {"slopes": np.ones(2), "more": W}, None, None),)
    ),
    "positions of an operator": lambda: _core.attention(
        q=HALF, k=HALF, v=HALF, bias=(("alibi", {"slopes": np.ones(2)}, np.arange(4), None),)
    ),
    "rows of operators": lambda: _core.attention(
        q=HALF, k=HALF, v=HALF, bias=(("shaw", {"rel_k": np.ones((2, 0, 4)), "rows": np.zeros(1, int)}, None, None),)
    ),
    "heads": lambda: _core.attention(q=HALF, k=np.ones((3, 3, 4), np.float16), v=np.ones((3, 3, 4), np.float16)),
    "alignment": lambda: _core.attention(q=HALF, k=HALF[:, :2], v=HALF[:, :2], causal=True),
    "result that the call makes": lambda: _core.attention_vjp(
        q=HALF, k=HALF, v=HALF, out=HALF, lse=np.ones((2, 3)), grad=HALF, dq=HALF
    ),
    "inputs": lambda: _core.recurrent(
        p0=X, weight=np.ones((4, 4)), bias=np.ones((1, 4)), inputs=np.ones((3, 2, 2)), gru=False, skip=False, n=2
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
def test_failures_lose_no_reference(name):
    """A failing call keeps no object: blocks of Python and references of its arguments are flat."""

    def counts():
        """Of objects that calls share. NumPy's own functions do not count references of dtypes."""
        gc.collect()
        return np.array([sys.getallocatedblocks(), *map(sys.getrefcount, (X, W, HALF, None, True))])

    def fail():
        with pytest.raises((TypeError, ValueError, IndexError, MemoryError), match=r"expected|at most|no row"):
            FAILURES[name]()

    def growth():
        before = counts()
        for _ in range(300):
            fail()
        return (counts() - before).max()

    for _ in range(5):
        fail()
    assert min(growth() for _ in range(3)) < 200  # NumPy and pytest keep blocks now and then, a leak grows each time


@pytest.mark.parametrize("bias", [posenc.fox(-np.ones((2, 3))), posenc.alibi([0.5, 1.0])], ids=lambda bias: bias.name)
def test_an_empty_batch_has_no_position(bias):
    """Its arrays have no element that the binding could look at, although they have strides."""
    x, positions = np.ones((0, 2, 3, 4)), np.zeros((0, 3), int)
    placed = bias.at(q_positions=positions, k_positions=positions)
    for options in ({"bias": placed}, {"bias": bias, "q_positions": positions, "k_positions": positions}):
        assert posenc.attention(x, x, x, **options).shape == x.shape
        assert posenc.attention_vjp(x, x, x, x, **options).q.shape == x.shape


def test_words_of_a_signature_stand_in_any_order():
    """Each sets a member of its own: "optional" once cleared the members beside it."""
    for words in ("finite optional", "optional finite"):
        with pytest.raises(ValueError, match=r"^: x has inf; expected finite numbers$"):
            _core.read(f"f64 x(n) {words}", x=np.array([np.inf]))
