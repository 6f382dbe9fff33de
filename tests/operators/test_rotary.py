"""What rotary embeddings promise beyond single values: relative scores, moved keys, coordinates, far positions."""

import numpy as np
import pytest
from cases import BF16, DTYPES, F32, F64, ulp
from cases.layouts import same_bits
from cases.rope import norm_of_pairs
from cases.rope import rope as oracle

import posenc

D = 32
W = posenc.rope_frequencies(D)
LAYOUTS = ("half", "interleaved")


def heads(rng, n, dtype=np.float32, d=D):
    return rng.standard_normal((2, 3, n, d)).astype(dtype)


# ---- scores depend on the distance ----


@pytest.mark.parametrize("start", [0, 131072, 2**24 + 1, 2**31 - 100, 2**40, 2**53 - 100])
def test_scores_at_any_distance_from_zero(start, rng, isa):
    """float32 rotations of float32 vectors: three roundings of each channel, wherever the pair of tokens stands."""
    q, k = heads(rng, 40), heads(rng, 40)
    near = [posenc.rope(x, np.arange(40), W, layout="half") for x in (q, k)]
    far = [posenc.rope(x, start + np.arange(40), W, layout="half") for x in (q, k)]
    scores = [np.einsum("bhnd,bhmd->bhnm", *(x.astype(F64) for x in pair)) for pair in (near, far)]
    norms = np.linalg.norm(q, axis=-1)[..., :, None] * np.linalg.norm(k, axis=-1)[..., None, :]
    # each rotation is off by 3 half ulps of its vector, there are four
    assert (np.abs(scores[0] - scores[1]) <= 4 * 3 * 2.0**-24 * norms).all()


def test_two_packed_documents_are_two_documents(rng, isa):
    for dtype in DTYPES:
        x = heads(rng, 50, dtype)
        positions = np.concatenate([np.arange(20), np.arange(30)])
        packed = posenc.rope(x, positions, W, layout="half")
        for here, n in ((slice(0, 20), 20), (slice(20, 50), 30)):
            assert same_bits(packed[..., here, :].copy(), posenc.rope(x[..., here, :], n, W, layout="half"))


def relatives(x, where):
    """Every encoding of this family of one token after another, at whole positions."""
    three = np.stack([where, where // 7, where % 7])
    plane, sections = posenc.rope_frequencies(D // 2), (6, 5, 5)
    return {
        "rope": posenc.rope(x, where, W, layout="half"),
        **{
            f"rope_2d {axes}": posenc.rope_2d(
                x, three[1:], W if axes == "alternate" else plane, layout="half", axes=axes
            )
            for axes in ("concat", "blocks", "alternate")
        },
        "mrope": posenc.mrope(x, three, W, layout="half", sections=sections),
        "mrope interleaved": posenc.mrope(x, three, W, layout="half", sections=sections, interleaved=True),
        "xpos": posenc.xpos(x, where, W, layout="half", center=40),
        "rerotate": posenc.rerotate(x, where, where * 3, W, layout="half"),
    }


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_token_at_a_time_is_all_at_once(dtype, rng, isa):
    x = heads(rng, 70, dtype)
    whole = relatives(x, np.arange(70))
    for p in (0, 1, 17, 63, 64, 69):
        for name, one in relatives(x[..., p : p + 1, :], np.array([p])).items():
            assert same_bits(one, whole[name][..., p : p + 1, :].copy()), name


# ---- rounding ----


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_inverse_within_2_ulp_of_the_pair(dtype, layout, rng, isa):
    x = heads(rng, 64, dtype)
    where = rng.integers(-(2**31), 2**31, 64)
    back = posenc.rope(posenc.rope(x, where, W, layout=layout), where, W, layout=layout, inverse=True)
    norm = norm_of_pairs(x.astype(F64), where, W, layout=layout)
    # an ulp as a share of the norm; float64 tables are rounded from nothing wider, which without FMA costs a quarter
    count = 2.5 if dtype == F64 else 2
    assert (np.abs(back.astype(F64) - x.astype(F64)) <= count * ulp(1.0, np.dtype(dtype)) * norm).all()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [d for d in (np.dtype(np.float16), BF16) if d is not None], ids=str)
def test_half_precision_within_051_ulp_of_the_pair(dtype, layout, rng, isa):
    """One rounding, and float32 arithmetic before it, which is 2**-13 of a float16 ulp for each of three roundings."""
    x = heads(rng, 200, dtype)
    where = rng.integers(0, 131072, 200)
    ours = posenc.rope(x, where, W, layout=layout).astype(F64)
    wide = x.astype(F64)
    truth = np.asarray(oracle(wide, where, W, layout=layout), F64)
    norm = norm_of_pairs(wide, where, W, layout=layout)
    assert (np.abs(ours - truth) / ulp(norm, dtype)).max() <= 0.51


# ---- coordinates ----


@pytest.mark.parametrize("layout", LAYOUTS)
def test_equal_coordinates_are_rope(layout, rng, isa):
    """M-RoPE of text, and of a video whose tokens stand on the diagonal, is rope bit for bit."""
    x, where = heads(rng, 50), rng.integers(-99, 9999, 50)
    wanted = posenc.rope(x, where, W, layout=layout)
    for options in ({}, {"interleaved": True}, {"interleaved": True, "overflow": 2}):
        for sections in ((6, 5, 5), (16, 0, 0), (0, 0, 16), (1, 15, 0)):
            same = posenc.mrope(x, np.stack([where] * 3), W, layout=layout, sections=sections, **options)
            assert same_bits(same, wanted)


def test_blocks_of_pairs_are_concatenated_pairs(rng):
    x, grid, w = heads(rng, 42), np.indices((6, 7)).reshape(2, -1), posenc.rope_frequencies(D // 2)
    blocks = posenc.rope_2d(x, grid, w, layout="interleaved", axes="blocks")
    assert same_bits(blocks, posenc.rope_2d(x, grid, w, layout="interleaved"))
    of_rows = posenc.rope(x, grid[0], w, layout="half", rotary_dim=D // 2)
    both = posenc.rope(of_rows, grid[1], w, layout="half", rotary_dim=D // 2, rotary_offset=D // 2)
    assert same_bits(posenc.rope_2d(x, grid, w, layout="half", axes="blocks"), both)


def test_coordinates_keep_every_bit_up_to_2_to_the_53(rng, isa):
    x = np.ones((1, 3, 8), np.float32)
    grid = np.array([[2**53, 2**53 - 1, 2**40 + 1], [-(2**53), 2**24 + 1, 3]])
    w = rng.uniform(0, 2, 2)
    cos = [posenc.rope_table(row, w)[0] for row in grid]
    sin = [posenc.rope_table(row, w)[1] for row in grid]
    wanted = posenc.rope(x, (np.concatenate(cos, -1), np.concatenate(sin, -1)), layout="half")
    assert same_bits(posenc.rope_2d(x, grid, w, layout="half"), wanted)
    three = np.concatenate([grid, grid[:1]])
    spectrum = np.concatenate([w, w])
    turned = posenc.mrope(x, three, spectrum, layout="half", sections=(2, 2, 0))
    assert same_bits(turned, wanted)


# ---- moved keys ----


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_moved_keys(dtype, rng, isa):
    """Moved by 0 they keep their bits; moved, they are where rope would have put them, within two rotations."""
    w = posenc.RopeFrequencies(W.inv_freq, 1.25, 1.0)
    x, old, new = heads(rng, 30, dtype), rng.integers(0, 2**31, 30), rng.integers(0, 2**31, 30)
    cache = posenc.rope(x, old, w, layout="half")
    assert same_bits(posenc.rerotate(cache, old, old, w, layout="half"), cache)
    wanted = posenc.rope(x, new, w, layout="half").astype(F64)
    norm = norm_of_pairs(x.astype(F64), old, w, layout="half")
    moved = posenc.rerotate(cache, old, new, w, layout="half", out=cache)
    assert moved is cache
    assert (np.abs(moved.astype(F64) - wanted) <= 3 * ulp(norm, np.dtype(dtype))).all()  # three rotations, 1 ulp each


def test_moves_are_exact_or_refused():
    k = np.ones((1, 2))
    far, near = np.array([-(2**53)]), np.array([2**53])
    with pytest.raises(ValueError, match=r"^rerotate: new_positions has a move by 18014398509481984; expected "):
        posenc.rerotate(k, far, near, [1.0], layout="half")
    with pytest.raises(ValueError, match=r"^rerotate: old_positions has 9007199254740993; expected "):
        posenc.rerotate(k, [2**53 + 1], [0], [1.0], layout="half")
    exact = posenc.rerotate(k, [2**52], [2**53], [1.0], layout="half")
    assert same_bits(exact, posenc.rope(k, [2**52], [1.0], layout="half"))


# ---- lengths ----


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_xpos_scores_decay_alike_everywhere(dtype, rng, isa):
    """A score depends on the distance, wherever the center is and however many tokens came before."""
    q, k = heads(rng, 60, dtype), heads(rng, 60, dtype)
    scores = []
    for start, center in ((0, 0), (0, 30), (3000, 3000), (3000, 2000)):
        where, options = np.arange(60) + start, {"layout": "half", "center": center}
        turned = posenc.xpos(q, where, W, **options), posenc.xpos(k, where, W, downscale=True, **options)
        scores.append(np.einsum("bhnd,bhmd->bhnm", *(x.astype(F64) for x in turned)))
    norms = np.linalg.norm(q, axis=-1)[..., :, None] * np.linalg.norm(k, axis=-1)[..., None, :]
    # as of rope, 12 half ulps, times the largest zeta**(distance / 512); in float64 those of the exponent as well
    allowed = (12 if dtype == np.float32 else 50) * np.finfo(dtype).eps / 2 * norms * 1.16
    assert all((np.abs(other - scores[0]) <= allowed).all() for other in scores)


@pytest.mark.parametrize(("dtype", "furthest"), [(np.float16, 3966), (np.float32, 35694), (np.float64, 289519)])
def test_xpos_refuses_what_a_dtype_cannot_hold(dtype, furthest):
    """Never 0 or infinity in place of a number; the documented distances are the last ones."""
    x, w = np.ones((1, 512), dtype), posenc.rope_frequencies(512)
    for sign in (1, -1):
        for downscale in (False, True):
            result = posenc.xpos(x, [sign * furthest], w, layout="half", downscale=downscale)
            assert np.isfinite(result).all()
            assert np.hypot(*np.split(result.astype(F64), 2, -1)).all()
            with pytest.raises(ValueError, match=r"^xpos: positions has -?\d+; expected at most \d+ from center"):
                posenc.xpos(x, [sign * (furthest + 1)], w, layout="half", downscale=downscale)
    assert posenc.xpos(x, [furthest + 1], w, layout="half", center=furthest).shape == x.shape


def test_logn_is_1_at_the_trained_length_and_doubles_at_its_square():
    for length in (2, 512, 4096, 1e6, 77.5):
        assert posenc.logn_scale([length - 1], length, base_clip=0)[0] == 1
    np.testing.assert_allclose(posenc.logn_scale([2**24 - 1], 2**12), [2.0], rtol=2**-51)
    assert posenc.logn_scale(9, 4096).max() == 1
    assert posenc.logn_scale([0], 4096, base_clip=-np.finfo(float).max)[0] == 0


def distances(of, window, n=200):
    """Distance of query i to key j as attention would see it: near pairs their own, far pairs what `of` gives."""
    i = np.arange(n)
    q, k = of
    return np.where(i[:, None] - i < window, i[:, None] - i, q[:, None] - k)


def test_far_positions_continue_the_near_ones():
    """At the window's edge there is no jump, and beyond it distances never shrink."""
    window = 32
    flat = distances(posenc.rerope_positions(200, window=window), window)
    assert flat.max() == window
    leaky = distances(posenc.rerope_positions(200, window=window, leak=4), window)
    assert leaky[199, 0] == window + (199 - window) / 4
    grouped = distances(posenc.self_extend_positions(200, group=4, window=window), window)
    assert grouped[199, 0] == 199 // 4 + window - window // 4
    for seen in (flat, leaky, grouped):
        steps = seen[199, :-1] - seen[199, 1:]
        assert (steps >= 0).all()
        assert steps.max() <= 1


def test_two_passes_and_a_merge_are_attention_with_far_positions(rng):
    """ReRoPE and Self-Extend with what is here: near and far pairs apart, merged by their lse, against one softmax."""
    n, window = 48, 8
    q, k, v = (rng.standard_normal((2, n, 8)) for _ in range(3))
    w = posenc.rope_frequencies(8)
    for far in (posenc.rerope_positions(n, window=window), posenc.rerope_positions(n, window=window, leak=3),
                posenc.self_extend_positions(n, group=2, window=window)):  # fmt: skip
        turned = {}
        for name, q_at, k_at in (("near", n, n), ("far", *far)):
            turned[name] = posenc.rope(q, q_at, w, layout="half"), posenc.rope(k, k_at, w, layout="half")
        options = {"return_lse": True, "q_positions": n, "k_positions": n}
        near = posenc.attention(*turned["near"], v, window=(window - 1, 0), **options)
        rest = posenc.attention(*turned["far"], v, window=(None, -window), **options)
        merged, _ = posenc.merge_attention((near[0], rest[0]), (near[1], rest[1]))
        i = np.arange(n)
        logits = [qs @ ks.swapaxes(-1, -2) / 8**0.5 for qs, ks in turned.values()]
        logits = np.where(i[:, None] - i < window, *logits)
        weights = np.exp(np.where(i[:, None] >= i, logits, -np.inf))
        wanted = weights @ v / weights.sum(-1, keepdims=True)
        np.testing.assert_allclose(merged, wanted, rtol=0, atol=1e-13)  # two softmaxes of 48 terms of size 1


# ---- memory ----


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "d"), [(np.float32, 128), (np.float16, 136), (np.float64, 37)])
def test_large_results_are_those_of_small_ones(dtype, d, layout, rng):
    """Past 32 MiB stores go past the caches, row by row; 37 doubles are no multiple of 16 bytes."""
    n = (33 << 20) // (d * np.dtype(dtype).itemsize)
    x = rng.standard_normal((1, n, d), np.float32).astype(dtype)
    options = {"layout": layout, "rotary_dim": 32, "rotary_offset": 3}
    wanted = posenc.rope(x, n, W, **options)
    out = np.full(x.shape, 7, dtype)
    for threads in (1, 3):
        with posenc.threads(threads):
            assert same_bits(posenc.rope(x, n, W, **options, out=out), wanted)
            out.fill(7)
    table = posenc.rope_table(n, W, dtype=F64 if dtype == np.float64 else F32)
    assert same_bits(posenc.rope(x, table, **options, out=out), wanted)
    assert same_bits(posenc.rope(x, table, **options, out=x), wanted)


def test_a_table_may_share_memory_with_out(rng):
    cos, sin = rng.standard_normal((2, 9, 4)).astype(np.float32)
    x = rng.standard_normal((3, 9, 8)).astype(np.float32)
    wanted = posenc.rope(x, (cos, sin), layout="half")
    room = np.zeros(3 * 72 + 8, np.float32)
    for start in (0, 8):  # the table lies inside of what is written
        into = room[start : start + 216].reshape(3, 9, 8)
        c, s = room[4:40].reshape(9, 4), room[60:96].reshape(9, 4)
        c[...], s[...] = cos, sin
        assert same_bits(posenc.rope(x, (c, s), layout="half", out=into), wanted)


# ---- bad input ----

X = np.ones((2, 5, 8))
GRID, VIDEO = np.zeros((2, 5)), np.zeros((3, 5))
ROPE = {"x": X, "positions": 5, "frequencies": np.ones(4), "layout": "half"}
PLANE = {**ROPE, "positions": GRID, "frequencies": np.ones(2)}
THREE = {**ROPE, "positions": VIDEO, "sections": (2, 1, 1)}
MOVE = {"k": X, "old_positions": 5, "new_positions": 5, "frequencies": np.ones(4), "layout": "half"}
REFUSED = [
    # function, arguments, what differs, the message after the name of the function
    ("rope", ROPE, {"x": X[..., :7]}, "x has last axis 7; expected an even rotary_dim"),
    ("rope", ROPE, {"layout": "halves"}, "layout is 'halves'; expected one of 'half', 'interleaved'"),
    ("rope", ROPE, {"positions": 2}, "positions has length 2; expected 5"),
    ("rope", ROPE, {"positions": np.zeros((2, 2))}, "positions has length 2; expected 5"),
    ("rope", ROPE, {"x": X[None], "positions": GRID}, "positions has 2 axes; expected 1, or 3 to broadcast"),
    ("rope", ROPE, {"frequencies": np.ones(3)}, "frequencies has 3 entries; expected rotary_dim // 2 = 4"),
    ("rope", ROPE, {"frequencies": 8}, "frequencies is 8; expected an array (e,), as rope_frequencies(D) makes it"),
    ("rope", ROPE, {"positions": (np.ones((5, 4)), np.ones((2, 4))), "frequencies": None},
     "sin has length 2; expected 5"),
    ("rope_2d", PLANE, {"positions": 5}, "positions has shape (); expected (2, N)"),
    ("rope_2d", PLANE, {"positions": VIDEO}, "positions has shape (3, 5); expected (2, N)"),
    ("rope_2d", PLANE, {"positions": GRID[:, :2]}, "positions has length 2; expected 5"),
    ("rope_2d", PLANE, {"x": X[..., :6]}, "x has 6 rotated channels; expected a multiple of 4"),
    ("rope_2d", PLANE, {"frequencies": np.ones(4)}, "frequencies has 4 entries; expected rotary_dim // 4 = 2"),
    ("rope_2d", PLANE, {"axes": "alternate"}, "frequencies has 2 entries; expected rotary_dim // 2 = 4"),
    ("rope_2d", PLANE, {"axes": "rows"}, "axes is 'rows'; expected one of 'concat', 'blocks', 'alternate'"),
    ("mrope", THREE, {"sections": (1, 1, 1)},
     "sections has [1, 1, 1], 3 pairs; expected three numbers that add up to rotary_dim // 2 = 4"),
    ("mrope", THREE, {"sections": (2, 2)}, "sections has [2, 2], 4 pairs; expected three numbers"),
    ("mrope", THREE, {"sections": (5, 0, -1)}, "sections is -1; expected at least 0"),
    ("mrope", THREE, {"positions": GRID}, "positions has shape (2, 5); expected (3, N)"),
    ("mrope", THREE, {"overflow": 3}, "overflow is 3; expected 0, 1 or 2"),
    ("xpos", ROPE, {"scale_base": 0}, "scale_base is 0; expected a positive number"),
    ("xpos", ROPE, {"gamma": -0.5}, "gamma is -0.5; expected a positive number"),
    ("xpos", ROPE, {"center": np.nan}, "center is nan; expected a finite number"),
    ("rerotate", MOVE, {"k": X[..., :7]}, "k has last axis 7; expected an even rotary_dim"),
    ("rerotate", MOVE, {"new_positions": 4}, "new_positions has length 4; expected 5"),
    ("rerotate", MOVE, {"old_positions": [[0]]}, "old_positions has length 1; expected 5"),
    ("logn_scale", {"positions": [-1], "train_length": 512}, {}, "positions has -1; expected at least 0"),
    ("logn_scale", {"positions": 5, "train_length": 1}, {}, "train_length is 1; expected more than 1"),
    ("rerope_positions", {"positions": 5, "window": 0}, {}, "window is 0; expected a positive number"),
    ("rerope_positions", {"positions": 5, "window": 8, "leak": -1}, {}, "leak is -1; expected a positive number"),
    ("self_extend_positions", {"positions": 5, "window": 8, "group": 0}, {}, "group is 0; expected at least 1"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "arguments", "wrong", "message"), REFUSED)
def test_bad_input_is_named(function, arguments, wrong, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 -- the message is compared below
        getattr(posenc, function)(**{**arguments, **wrong})
    assert str(caught.value).startswith(f"{function}: {message}")


def test_bad_kinds_are_named():
    with pytest.raises(TypeError, match="layout"):
        posenc.rope(X, 5, np.ones(4))
    with pytest.raises(TypeError, match=r"^mrope: sections has type float; expected three integers$"):
        posenc.mrope(X, VIDEO, np.ones(4), layout="half", sections=4.0)
    with pytest.raises(TypeError, match=r"^mrope: sections has type float; expected an integer$"):
        posenc.mrope(X, VIDEO, np.ones(4), layout="half", sections=(2.0, 1, 1))
    with pytest.raises(TypeError, match=r"^self_extend_positions: group has type float; expected an integer$"):
        posenc.self_extend_positions(5, group=2.0, window=8)
