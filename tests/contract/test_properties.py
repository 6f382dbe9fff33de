"""Properties that hold for any shape, position and layout, with examples from hypothesis."""

import numpy as np
from cases.layouts import same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import posenc

settings.register_profile("posenc", deadline=None, max_examples=60, derandomize=True, database=None)
settings.load_profile("posenc")

layouts = st.sampled_from(["half", "interleaved"])
dtypes = st.sampled_from([np.float16, np.float32, np.float64])


def tensors(dtype=np.float64):
    """Arrays (..., N, D) with D even and values up to 100."""
    shapes = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 20).map(lambda half: 2 * half))
    kind = np.dtype(dtype)
    return shapes.flatmap(lambda shape: hnp.arrays(kind, shape, elements=st.floats(-100, 100, width=8 * kind.itemsize)))


def norm(x):
    return max(1.0, np.abs(x.astype(np.float64)).max(initial=0))


@given(tensors(), st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6), layouts, st.data())
def test_rope_scores_depend_on_the_difference(x, move, start, layout, data):
    """The score of q at p + move and k at p does not depend on p: two rotations with three float64 roundings per
    channel."""
    w = np.array(data.draw(st.lists(st.floats(0, 2), min_size=x.shape[-1] // 2, max_size=x.shape[-1] // 2)))
    n = x.shape[-2]
    scores = []
    for p in (0, start):
        q = posenc.rope(x, np.full(n, p + move), w, layout=layout)
        k = posenc.rope(x[..., ::-1, :], np.full(n, p), w, layout=layout)
        scores.append(q @ k.swapaxes(-1, -2))
    assert np.abs(scores[0] - scores[1]).max() <= 1e-15 * 8 * x.shape[-1] * norm(x) ** 2


@given(tensors(np.float32), st.integers(-(2**31), 2**31), st.data())
def test_layouts_convert_exactly(x, start, data):
    """rope in one layout is rope in the other between two permutations, bit for bit; so is out_layout."""
    width = x.shape[-1]
    r = data.draw(st.integers(1, width // 2)) * 2
    where, w = np.arange(x.shape[-2]) + start, posenc.frequencies(r)
    to = {"source": "half", "target": "interleaved", "rotary_dim": r}
    back = {"source": "interleaved", "target": "half", "rotary_dim": r}
    assert same_bits(posenc.convert_layout(posenc.convert_layout(x, **to), **back), x)
    half = posenc.rope(x, where, w, layout="half", rotary_dim=r)
    other = posenc.rope(posenc.convert_layout(x, **to), where, w, layout="interleaved", rotary_dim=r)
    assert same_bits(posenc.convert_layout(other, **back), half)
    assert same_bits(posenc.rope(x, where, w, layout="half", out_layout="interleaved", rotary_dim=r), other)
    assert same_bits(half[..., r:], x[..., r:])


@given(
    st.integers(1, 40),
    st.integers(-(10**6), 10**6),
    st.integers(-(10**6), 10**6),
    st.sampled_from(["sincos", "cossin"]),
)
def test_shifts_add_up(half, a, b, order):
    """Shifts by a and by b are a shift by a + b, and a shift by -a undoes one by a. Each shift has three roundings of a
    channel of size 1."""
    p = posenc.sinusoidal([0, 5, 77], 2 * half, dtype=np.float64, order=order)
    twice = posenc.shift(posenc.shift(p, a, order=order), b, order=order)
    assert np.abs(twice - posenc.shift(p, a + b, order=order)).max() <= 3e-15
    assert np.abs(posenc.shift(posenc.shift(p, a, order=order), -a, order=order) - p).max() <= 3e-15
    product = posenc.shift_matrix(b, 2 * half, order=order) @ posenc.shift_matrix(a, 2 * half, order=order)
    assert np.abs(product - posenc.shift_matrix(a + b, 2 * half, order=order)).max() <= 3e-15
    assert same_bits(posenc.shift(p, 0, order=order), p)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 5), dtypes)
def test_alibi_is_toeplitz(n, m, heads, dtype):
    """The matrix is a function of j - i + m - n. The view, out=, positions and `toeplitz` of its diagonals have the
    same bits."""
    slopes = posenc.alibi_slopes(heads)
    view = posenc.alibi(slopes).matrix(n, m, dtype=dtype)
    assert view.shape == (heads, n, m)
    assert same_bits(posenc.alibi(slopes).matrix(n, m, out=np.empty(view.shape, dtype)), view)
    placed = posenc.alibi(slopes).matrix(n, m, dtype=dtype, q_positions=np.arange(n) + (m - n) + 0.0, k_positions=m)
    assert same_bits(placed, view)
    moved = posenc.alibi(slopes).matrix(
        n, m, dtype=dtype, q_positions=np.arange(n) + 7 + m - n, k_positions=np.arange(m) + 7
    )
    assert same_bits(moved, view)
    if n and m:
        row = np.concatenate([view[:, ::-1, 0], view[:, 0, 1:]], -1)
        assert same_bits(posenc.toeplitz(row).matrix(n, m, dtype=dtype), view)
        assert np.all(view <= 0)
