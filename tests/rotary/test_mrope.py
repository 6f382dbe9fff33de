"""Multimodal rotary encodings: equal coordinates are those of text."""

import numpy as np
import pytest
from cases.layouts import same_bits
from cases.rope import LAYOUTS, W, heads

import posenc


@pytest.mark.parametrize("layout", LAYOUTS)
def test_equal_coordinates_are_rope(layout, rng, isa):
    """M-RoPE of text, whose tokens have three equal coordinates, is rope bit for bit."""
    x, where = heads(rng, 50), rng.integers(-99, 9999, 50)
    wanted = posenc.rope(x, where, W, layout=layout)
    for options in ({}, {"interleaved": True}, {"interleaved": True, "overflow": 2}):
        for sections in ((6, 5, 5), (16, 0, 0), (0, 0, 16), (1, 15, 0)):
            same = posenc.mrope(x, np.stack([where] * 3), W, layout=layout, sections=sections, **options)
            assert same_bits(same, wanted)
