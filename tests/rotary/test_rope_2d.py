"""Rotary encodings by rows and columns: blocks of pairs, and coordinates up to 2**53."""

import numpy as np
from cases.layouts import same_bits
from cases.rope import D, heads

import posenc


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
    rotated = posenc.mrope(x, three, spectrum, layout="half", sections=(2, 2, 0))
    assert same_bits(rotated, wanted)
