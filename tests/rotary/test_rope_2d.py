"""Rotary encodings by rows and columns: blocks of pairs, and coordinates up to 2**53."""

import numpy as np
from cases.layouts import same_bits

import posenc


def test_coordinates_keep_every_bit_up_to_2_to_the_53(rng, isa):
    x = np.ones((1, 3, 8), np.float32)
    grid = np.array([[2**53, 2**53 - 1, 2**40 + 1], [-(2**53), 2**24 + 1, 3]])
    w = rng.uniform(0, 2, 2)
    cos = [posenc.rope_table(row, w)[0] for row in grid]
    sin = [posenc.rope_table(row, w)[1] for row in grid]
    wanted = posenc.rope_by_table(x, np.concatenate(cos, -1), np.concatenate(sin, -1), layout="half")
    assert same_bits(posenc.rope_2d(x, grid, w, layout="half"), wanted)
    three = np.concatenate([grid, grid[:1]])
    spectrum = np.concatenate([w, w])
    rotated = posenc.mrope(x, three, spectrum, layout="half", sections=(2, 2, 0))
    assert same_bits(rotated, wanted)
