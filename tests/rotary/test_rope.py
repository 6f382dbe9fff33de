"""Rotary embeddings: decoding, rounding, stores past the caches, shared memory, and errors."""

import dataclasses

import numpy as np
import pytest
from cases import DTYPES, F16, F32, F64, as_tuple, working
from cases.layouts import same_bits
from cases.rope import D, W, heads

import posenc


def relatives(x, where):
    """Every rotary encoding of the tokens at whole positions."""
    three, half = np.stack([where, where // 7, where % 7]), {"layout": "half"}
    axial, mixed = posenc.axial_frequencies((D // 2, D // 2)), posenc.mrope_frequencies(W, (6, 5, 5), interleaved=True)
    return {
        "rope": posenc.rope(x, where, W, **half),
        "rope interleaved": posenc.rope(x, where, W, layout="interleaved"),
        "rope table": posenc.rope_by_table(x, *posenc.rope_table(where, W, dtype=working(x.dtype)), **half),
        "rope_nd axial": posenc.rope_nd(x, three[1:], axial, **half),
        "rope_nd interleaved": posenc.rope_nd(x, three, mixed, **half),
        "rope_nd mixed": posenc.rope_nd(x, three[1:], axial + axial[::-1], **half),
        "xpos": posenc.xpos(x, where, W, center=40, **half),
        "rerotate": posenc.rerotate(x, where, where * 3, W, **half),
    }


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_token_at_a_time_is_all_at_once(dtype, rng, isa):
    x = heads(rng, 70, dtype)
    whole = relatives(x, np.arange(70))
    assert same_bits(whole["rope"], whole["rope table"])
    for p in (0, 17, 64):
        for name, one in relatives(x[..., p : p + 1, :], np.array([p])).items():
            assert same_bits(one, whole[name][..., p : p + 1, :].copy()), name


@pytest.mark.parametrize(("dtype", "d", "layout"), [(F32, 128, "half"), (F16, 136, "interleaved"), (F64, 37, "half")])
def test_large_results_are_those_of_small_ones(dtype, d, layout, rng):
    """Results of more than 32 MiB are written with streaming stores, row by row. 37 float64 numbers are no multiple of
    16 bytes."""
    n = (33 << 20) // (d * dtype.itemsize)
    x = np.resize(rng.standard_normal(1 << 20), (1, n, d)).astype(dtype)
    options = {"layout": layout, "rotary_dim": 32, "rotary_offset": 3}
    wanted = posenc.rope(x, n, W, **options)
    out = np.full(x.shape, 7, dtype)
    with posenc.threads(3):
        assert same_bits(posenc.rope(x, n, W, **options, out=out), wanted)
    cos, sin = posenc.rope_table(n, W, dtype=working(dtype))
    assert same_bits(posenc.rope_by_table(x, cos, sin, **options, out=x), wanted)


def test_heads_that_share_a_large_table_are_separate_calls(rng):
    """A table larger than 4 MiB, on Intel than 256 KiB, is read in parts: all heads of a batch use one before the next.
    17000 positions are no whole number of parts."""
    b, h, n, d = 2, 2, 17000, 64
    x, options = rng.standard_normal((b, h, n, d), np.float32), {"layout": "half"}
    w = posenc.rope_frequencies(d)
    batches = np.stack([np.arange(n), np.arange(n)[::-1]])
    for positions in (np.arange(n), batches):
        of_batch = np.broadcast_to(positions, (b, n))
        wanted = np.stack([[posenc.rope(x[i, j], of_batch[i], w, **options) for j in range(h)] for i in range(b)])
        for threads in (1, 3):
            with posenc.threads(threads):
                assert same_bits(posenc.rope(x, positions, w, **options), wanted)
    table = posenc.rope_table(n, w, dtype=F32)
    assert same_bits(posenc.rope_by_table(x, *table, **options), posenc.rope(x, n, w, **options))


def test_a_table_may_share_memory_with_out(rng):
    cos, sin = rng.standard_normal((2, 9, 4)).astype(np.float32)
    x = rng.standard_normal((3, 9, 8)).astype(np.float32)
    wanted = posenc.rope_by_table(x, cos, sin, layout="half")
    buffer = np.zeros(3 * 72 + 8, np.float32)
    for start in (0, 8):  # the table lies inside of out
        into = buffer[start : start + 216].reshape(3, 9, 8)
        c, s = buffer[4:40].reshape(9, 4), buffer[60:96].reshape(9, 4)
        c[...], s[...] = cos, sin
        assert same_bits(posenc.rope_by_table(x, c, s, layout="half", out=into), wanted)


X = np.ones((2, 5, 8))
GRID, VIDEO = np.zeros((2, 5)), np.zeros((3, 5))
ROPE = {"x": X, "positions": 5, "frequencies": np.ones(4), "layout": "half"}
TABLE = {"x": X, "cos": np.ones((5, 4)), "sin": np.ones((5, 4)), "layout": "half"}
PLANE = {**ROPE, "positions": GRID, "frequencies": np.ones((2, 4))}
REFUSED = [
    # function, arguments, changed arguments, message after the name of the function
    ("rope", ROPE, {"x": X[0, 0]}, "x has 1 axes; expected at least 2, a sequence axis and channels"),
    ("rope", ROPE, {"x": X[..., :7]}, "x has last axis 7; expected an even rotary_dim"),
    ("rope", ROPE, {"x": X[None], "positions": GRID},
     "positions has shape (2, 5); expected a shape that broadcasts against (1, 5)"),
    ("rope", ROPE, {"x": X[None, None], "positions": GRID},
     "positions has 2 axes; expected 1, or 4 to broadcast against x, or 3 without its axis of heads"),
    ("rope", ROPE, {"frequencies": np.ones(3)}, "frequencies has 3 entries; expected rotary_dim // 2 = 4"),
    ("rope", ROPE, {"frequencies": 8}, "frequencies is 8; expected an array (e,), such as rope_frequencies(D)"),
    ("rope_by_table", TABLE, {"x": X[..., :7]}, "x has last axis 7; expected an even rotary_dim"),
    ("rope_by_table", TABLE, {"cos": np.ones((5, 8))}, "sin has 4 columns; expected 8, as cos"),
    ("rope_by_table", TABLE, {"cos": np.ones((5, 8)), "sin": np.ones((5, 8))},
     "cos has 8 columns; expected rotary_dim // 2 = 4"),
    ("rope_by_table", TABLE, {"sin": np.ones(4)}, "sin has 1 axes; expected at least 2, positions and pairs"),
    ("rope_by_table", TABLE, {"sin": np.ones((4, 4))}, "sin has length 4; expected 5, the sequence axis of x"),
    ("rope_by_table", TABLE, {"sin": None}, "sin has type NoneType; expected an array"),
    ("rope_by_table", TABLE, {"sin": np.zeros((5, 4)), "cos": np.eye(5, 4), "inverse": True},
     "cos has a 0 where sin is 0; expected a table that can be inverted"),
    ("rope_by_table_vjp", {"grad": X, **TABLE}, {"cos": np.ones((5, 3))}, "sin has 4 columns; expected 3, as cos"),
    ("rope_by_table_vjp", {"grad": X, **TABLE}, {"grad": X[0]}, "grad has "),
    ("rope_nd", PLANE, {"positions": VIDEO}, "positions has shape (3, 5); expected (2, N)"),
    ("rope_nd", PLANE, {"x": X[..., :7]}, "x has last axis 7; expected an even rotary_dim"),
    ("xpos", ROPE, {"scale_base": 0}, "scale_base is 0; expected a positive number"),
    ("xpos", ROPE, {"gamma": -0.5}, "gamma is -0.5; expected a positive number"),
    ("logn_scale", {"positions": [-1], "train_length": 512}, {}, "positions has -1; expected at least 0"),
    ("logn_scale", {"positions": 5, "train_length": 1}, {}, "train_length is 1; expected more than 1"),
    ("rerope_positions", {"positions": 5, "window": 0}, {}, "window is 0; expected a positive number"),
    ("rerope_positions", {"positions": 5, "window": 8, "leak": -1}, {}, "leak is -1; expected a positive number"),
    ("self_extend_positions", {"positions": 5, "window": 8, "group": 0}, {}, "group is 0; expected at least 1"),
    ("self_extend_positions", {"positions": 5, "window": 8, "group": 2.0}, {}, "group has type float; expected an int"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "arguments", "wrong", "message"), REFUSED)
def test_bad_input_is_named(function, arguments, wrong, message):
    with pytest.raises((TypeError, ValueError)) as caught:
        getattr(posenc, function)(**{**arguments, **wrong})
    assert isinstance(caught.value, TypeError if " has type " in message else ValueError)
    assert str(caught.value).startswith(f"{function}: {message}")


@pytest.mark.parametrize("kind", [tuple, list])
@pytest.mark.parametrize("function", ["rope", "rope_vjp", "xpos"])
def test_a_table_in_place_of_positions_is_refused(function, kind, rng):
    """The shape (2, 4, 4) of the pair would fit x as positions for each batch row and head."""
    x, w = rng.standard_normal((2, 4, 4, 8)), posenc.rope_frequencies(8)
    table = kind(posenc.rope_table(4, w, dtype=F64))
    grad = {"grad": x} if function == "rope_vjp" else {}
    message = rf"^{function}: positions has a table \(cos, sin\); expected positions; use rope_by_table\(x, cos, sin\)$"
    for frequencies in (w, None):
        with pytest.raises(ValueError, match=message):
            getattr(posenc, function)(x=x, positions=table, frequencies=frequencies, layout="half", **grad)


@pytest.mark.parametrize("argument", ["old_positions", "new_positions"])
def test_a_table_in_place_of_positions_of_keys_is_refused(argument, rng):
    k, w = rng.standard_normal((2, 4, 4, 8)), posenc.rope_frequencies(8)
    positions = {"old_positions": 4, "new_positions": 4, argument: posenc.rope_table(4, w, dtype=F64)}
    with pytest.raises(ValueError, match=rf"^rerotate: {argument} has a table \(cos, sin\); expected positions"):
        posenc.rerotate(k, **positions, frequencies=w, layout="half")


def test_a_list_of_positions_is_no_table(rng):
    x, w = rng.standard_normal((2, 4, 4, 8)), posenc.rope_frequencies(8)
    wanted = posenc.rope(x, [1] * 4, w, layout="half")
    for positions in (np.ones((2, 4, 4)).tolist(), [np.ones((4, 4), int)] * 2):
        assert same_bits(posenc.rope(x, positions, w, layout="half"), wanted)


def test_convert_layout_needs_to_know_the_axis_of_a_matrix(rng):
    """A square weight without `heads` would be permuted along its inputs, which no shape reveals."""
    weight, to = rng.standard_normal((8, 8)), {"source": "half", "target": "interleaved"}
    with pytest.raises(ValueError, match=r"^convert_layout: x has 2 axes; expected heads= for weights .*, or axis=-1 "):
        posenc.convert_layout(weight, **to)
    with pytest.raises(ValueError, match=r"^convert_layout: heads is 0; expected at least 1$"):
        posenc.convert_layout(weight, **to, heads=0)
    rows, columns = posenc.convert_layout(weight, **to, heads=1), posenc.convert_layout(weight, **to, axis=-1)
    order = [0, 4, 1, 5, 2, 6, 3, 7]
    assert same_bits(rows, weight[order])
    assert same_bits(columns, weight[:, order].copy())
    assert same_bits(posenc.convert_layout(weight.T, **to, heads=1, axis=1), rows.T.copy())
    assert same_bits(posenc.convert_layout(weight[None], **to)[0], columns)
    out = weight.copy()
    assert posenc.convert_layout(out, **to, heads=1, out=out) is out
    assert same_bits(out, rows)
    with pytest.raises(ValueError, match=r"^convert_layout: axis is 2; expected at most 1$"):
        posenc.convert_layout(weight, **to, axis=2)


FROM = {
    "rope": lambda p, **o: posenc.rope(THREE_ROWS, p, ONES, layout="half", **o),
    "rope_vjp": lambda p, **o: posenc.rope_vjp(THREE_ROWS, THREE_ROWS, p, ONES, layout="half", **o).frequencies,
    "rope_table": lambda p, **o: posenc.rope_table(p, ONES, **o)[0],
    "xpos": lambda p, **o: posenc.xpos(THREE_ROWS, p, ONES, **FLAT, **o),
    "xpos_vjp": lambda p, **o: posenc.xpos_vjp(THREE_ROWS, THREE_ROWS, p, ONES, **FLAT, **o).frequencies,
    "logn_scale": lambda p, **o: posenc.logn_scale(p, 64, **o),
    "floor_log_scale": lambda p, **o: posenc.floor_log_scale(p, floor=2, scale=0.1, offset=7, **o),
    "rerope_positions": lambda p, **o: posenc.rerope_positions(p, window=2, leak=2, **o)[1],
    "self_extend_positions": lambda p, **o: posenc.self_extend_positions(p, group=2, window=2, **o)[1],
    "sinusoidal": lambda p, **o: posenc.sinusoidal(p, 8, **o),
    "sinusoidal_vjp": lambda p, **o: posenc.sinusoidal_vjp(np.ones((3, 8)), p, 8, **o).frequencies,
    "complex_order": lambda p, **o: posenc.complex_order(THREE_ROWS, np.ones(8), p, **o),
    "complex_order_vjp": lambda p, **o: posenc.complex_order_vjp(THREE_ROWS, THREE_ROWS, np.ones(8), p, **o).frequency,
    "learned": lambda p, **o: posenc.learned(TABLE, p, **o),
    "learned_vjp": lambda p, **o: posenc.learned_vjp(np.ones((3, 2)), TABLE, p, **o).table,
    "hierarchical": lambda p, **o: posenc.hierarchical(TABLE, p, **o),
    "hierarchical_vjp": lambda p, **o: posenc.hierarchical_vjp(np.ones((3, 2)), TABLE, p, **o).table,
}  # fmt: skip
THREE_ROWS, ONES, TABLE = np.ones((2, 3, 8)), np.ones(4), np.arange(20.0).reshape(10, 2)
FLAT = {"layout": "half", "scale_base": 1e300}
"""Options of xpos with a scale of 1 at every position."""


@pytest.mark.parametrize("function", FROM)
def test_start(function):
    """With an int n, positions are start .. start+n-1; arrays say themselves where they begin."""
    call = FROM[function]
    has_ids, counts_from_0 = function.startswith(("learned", "hierarchical")), function == "logn_scale"
    for start in [5, np.int64(7)] if has_ids else [2**53 - 2, np.int64(5), *([] if counts_from_0 else [-7])]:
        assert same_bits(call(3, start=start), call(np.arange(start, start + 3)))
    assert same_bits(call(np.array(3), start=5), call([5, 6, 7]))
    assert same_bits(call([1, 2, 3], start=0), call([1, 2, 3]))
    message = rf"^{function}: start is 5; expected an int n for positions, meaning start"
    for positions in ([1, 2, 3], 3.0):
        with pytest.raises(TypeError, match=message):
            call(positions, start=5)
    with pytest.raises(TypeError, match=rf"^{function}: start has type float; expected an integer$"):
        call(3, start=5.0)
    beyond = (
        rf"positions has id {2**53 + 1}" if has_ids else rf"start is {2**53 - 1}; expected start \+ 3 - 1, the last"
    )
    with pytest.raises((ValueError, IndexError), match=rf"^{function}: {beyond}"):
        call(3, start=2**53 - 1)


# ---- options that frequencies know ----

KNOWN = posenc.RopeFrequencies(np.array([1.0, 0.5]), 1.25, 1.0, "interleaved", 4)
CALLS = {
    # the call, without the options that its frequencies know
    "rope": lambda w, **o: posenc.rope(X, 5, w, **o),
    "rope, inverse": lambda w, **o: posenc.rope(X, 5, w, inverse=True, out_layout="half", **o),
    "rope_vjp": lambda w, **o: posenc.rope_vjp(X, X + 1, 5, w, **o),
    "rope_nd": lambda w, **o: posenc.rope_nd(X, VIDEO, posenc.mrope_frequencies(w, (1, 1, 0)), **o),
    "rope_nd_vjp": lambda w, **o: posenc.rope_nd_vjp(X, X + 1, VIDEO, posenc.mrope_frequencies(w, (1, 1, 0)), **o),
    "rerotate": lambda w, **o: posenc.rerotate(X, 5, np.arange(5) + 3.5, w, **o),
}


@pytest.mark.parametrize("name", CALLS)
def test_frequencies_know_the_layout_and_the_width(name):
    call, function = CALLS[name], name.split(",")[0]
    plain = posenc.RopeFrequencies(KNOWN.inv_freq, KNOWN.attention_factor)
    wanted = call(plain, layout="interleaved", rotary_dim=4)
    for options in ({}, {"layout": "interleaved"}, {"rotary_dim": 4}):
        for found, one in zip(as_tuple(call(KNOWN, **options)), as_tuple(wanted), strict=True):
            assert same_bits(found, one)
    with pytest.raises(ValueError, match=f"^{function}: layout is 'half'; expected None or 'interleaved', the lay"):
        call(KNOWN, layout="half")
    with pytest.raises(ValueError, match=f"^{function}: rotary_dim is 8; expected None or 4, the rotary_dim of"):
        call(KNOWN, rotary_dim=8)
    message = "layout is None; expected 'half' .* or 'interleaved' .*; only frequencies of rope_from_config have one"
    with pytest.raises(ValueError, match=f"^{function}: {message}"):
        call(plain, rotary_dim=4)
    with pytest.raises(ValueError, match=f"^{function}: frequencies has 2 entries; expected rotary_dim // 2 = 4"):
        call(plain, layout="half")


def test_a_layout_that_frequencies_know_where_there_is_no_width():
    assert same_bits(posenc.rope_matrix(3, KNOWN), posenc.rope_matrix(3, KNOWN, layout="interleaved"))
    wide = dataclasses.replace(KNOWN, inv_freq=np.ones(4), rotary_dim=8)
    assert same_bits(posenc.xpos(X, 5, wide), posenc.xpos(X, 5, wide, layout="interleaved"))
    table = posenc.rope_table(5, wide)
    for name, call in {
        "rope_by_table": lambda: posenc.rope_by_table(X, *table, layout=None),
        "rope_by_table_vjp": lambda: posenc.rope_by_table_vjp(X, X, *table, layout=None),
        "rope_nd": lambda: posenc.rope_nd(X, GRID, np.ones((2, 4))),
        "xpos": lambda: posenc.xpos(X, 5, np.ones(4)),
        "rope_matrix": lambda: posenc.rope_matrix(3, [1.0]),
    }.items():
        with pytest.raises(ValueError, match=f"^{name}: layout is None; expected 'half' .* or 'interleaved' "):
            call()
    with pytest.raises(ValueError, match=r"^rope_matrix: layout is 'half'; expected None or 'interleaved'"):
        posenc.rope_matrix(3, KNOWN, layout="half")


# ---- positions of each row of a batch ----


@pytest.mark.parametrize(("seq_axis", "inverse"), [(2, False), (1, True), (0, False)])
def test_positions_of_a_batch_need_no_axis_for_heads(seq_axis, inverse, rng):
    x, positions = np.moveaxis(rng.standard_normal((2, 3, 5, 8)), 2, seq_axis), rng.uniform(0, 100, (2, 5))
    grad = rng.standard_normal(x.shape)
    w, options = posenc.rope_frequencies(8).inv_freq, {"layout": "half", "seq_axis": seq_axis}
    two, three = np.stack([positions, positions + 1.5]), np.stack([positions, positions / 3, positions + 2])
    by_head = rng.uniform(0, 1, (2, 3, 4))
    calls = [
        ("rope", {"frequencies": w}, positions),
        ("rope_nd", {"frequencies": posenc.mrope_frequencies(w, (2, 1, 1))}, three),
        ("rope_nd", {"frequencies": np.array([w, w[::-1]])}, two),
        ("rope_nd", {"frequencies": by_head}, two),
        ("xpos", {"frequencies": w}, positions),
    ]
    for function, arguments, places in calls:
        arguments |= options | ({} if function == "xpos" else {"inverse": inverse})
        rotate, back = getattr(posenc, function), getattr(posenc, f"{function}_vjp")
        assert same_bits(rotate(x, places, **arguments), rotate(x, places[..., None, :], **arguments))
        found, wanted = (back(grad, x, where, **arguments) for where in (places, places[..., None, :]))
        assert same_bits(found.positions, wanted.positions[..., 0, :])
        assert same_bits(found.x, wanted.x)
        assert same_bits(found.frequencies, wanted.frequencies)
    long = positions[:, None]
    moved = posenc.rerotate(x, positions, long + 1, w, **options)
    assert same_bits(moved, posenc.rerotate(x, long, positions + 1, w, **options))
    table, long_table = posenc.rope_table(positions, w), posenc.rope_table(long, w)
    mixed, options = (table[0], long_table[1]), {**options, "inverse": inverse}
    assert same_bits(posenc.rope_by_table(x, *mixed, **options), posenc.rope_by_table(x, *long_table, **options))
    found, wanted = (posenc.rope_by_table_vjp(grad, x, *one, **options) for one in (mixed, long_table))
    assert same_bits(found.cos, wanted.cos[:, 0])
    assert same_bits(found.sin, wanted.sin)
    assert same_bits(found.x, wanted.x)


@pytest.mark.parametrize("own", [0, 1], ids=["cos by head", "sin by head"])
def test_one_half_of_a_table_is_shared_by_the_heads(own, rng):
    """Two heads are rotated together only if they share both cos and sin."""
    x = rng.standard_normal((4, 8, 16)).astype("f")
    table = list(rng.standard_normal((2, 8, 8)).astype("f"))
    table[own] = rng.standard_normal((4, 8, 8)).astype("f")
    whole = [np.broadcast_to(half, (4, 8, 8)).copy() for half in table]
    assert same_bits(posenc.rope_by_table(x, *table, layout="half"), posenc.rope_by_table(x, *whole, layout="half"))


@pytest.mark.parametrize("function", ["rope", "rope_vjp", "rope_nd", "xpos"])
def test_frequencies_are_no_option(function):
    arguments = PLANE if function == "rope_nd" else ROPE
    grad = {"grad": X} if function == "rope_vjp" else {}
    with pytest.raises(TypeError, match=rf"^{function}: frequencies (is None|has type NoneType); expected an array"):
        getattr(posenc, function)(**{**arguments, "frequencies": None}, **grad)
