"""Equal bits of two ways, for any shape and layout that hypothesis finds."""

import numpy as np
from cases.layouts import same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import posenc

settings.register_profile("posenc", deadline=None, max_examples=60, derandomize=True, database=None)
settings.load_profile("posenc")


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
    where, w = np.arange(x.shape[-2]) + start, posenc.sinusoidal_frequencies(r)
    to = {"source": "half", "target": "interleaved", "rotary_dim": r}
    back = {"source": "interleaved", "target": "half", "rotary_dim": r}
    assert same_bits(posenc.convert_layout(posenc.convert_layout(x, **to), **back), x)
    half = posenc.rope(x, where, w, layout="half", rotary_dim=r)
    other = posenc.rope(posenc.convert_layout(x, **to), where, w, layout="interleaved", rotary_dim=r)
    assert same_bits(posenc.convert_layout(other, **back), half)
    assert same_bits(posenc.rope(x, where, w, layout="half", out_layout="interleaved", rotary_dim=r), other)
    assert same_bits(half[..., r:], x[..., r:])
