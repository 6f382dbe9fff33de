"""Equal bits of two ways, for any shape and layout that hypothesis finds."""

import numpy as np
from cases.layouts import same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import posenc

settings.register_profile("posenc", deadline=None, max_examples=60, derandomize=True, database=None)
settings.load_profile("posenc")

dtypes = st.sampled_from([np.float16, np.float32, np.float64])


def tensors(dtype=np.float64):
    """Arrays (..., N, D) with D even and values up to 100."""
    shapes = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 20).map(lambda half: 2 * half))
    kind = np.dtype(dtype)
    return shapes.flatmap(lambda shape: hnp.arrays(kind, shape, elements=st.floats(-100, 100, width=8 * kind.itemsize)))


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
