"""Pairs of channels, rotated channels, and coordinates."""

import numpy as np
import plain

from posenc import check

from . import reported

W, W16 = plain.frequencies(32), plain.frequencies(16)
HALF = {"dim": 32, "layout": "half"}


def rope(w=W, **errors):
    return lambda x, p: plain.rope(x, p, w, **errors)


def turned(x, angle):
    """Rotate the pairs (i, i + half) by angles."""
    (a, b), cos, sin = np.split(x, 2, -1), np.cos(angle), np.sin(angle)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


@reported(
    "raiyanyahya/how-to-train-your-gpt#6",
    "The rotation has pairs (i, i + 16), but the tables of cos and sin are in the order of (2 i, 2 i + 1).",
)
def halves_of_adjacent_tables():
    """A chapter expands its tables by adjacent pairs, and rotates the two halves of the channels."""
    return check.rope(rope(table_pairs="interleaved"), dim=32, layout="interleaved")


@reported("huggingface/transformers#47328", "The tables of cos and sin have the order of pairs (i, i + 16)")
def tables_of_halves():
    """A speech model's tables became concatenated halves, while its rotation still has adjacent pairs."""
    return check.rope(rope(pairs="interleaved", table_pairs="half"), dim=32, layout="interleaved")


@reported("ohdearquant/lattice#392", "Your pairs are (2 i, 2 i + 1); expected (i, i + 8)")
def one_path_adjacent():
    """The 8-bit path rotates adjacent pairs of the rotary channels, the other paths the two halves."""
    return check.rope(rope(W16, pairs="interleaved"), dim=32, rotary_dim=16, layout="half")


@reported("NeuraLegion/shainet#111", "Your pairs are (2 i, 2 i + 1); expected (i, i + 16)")
def adjacent_for_llama():
    """Pairs are (2 i, 2 i + 1), and the weights have (i, i + d / 2)."""
    return check.rope(rope(pairs="interleaved"), **HALF)


@reported("vllm-project/vllm-metal#44", "The pairs are right, and their results are stored in another order.")
def concatenated():
    """Rotated even and odd channels are concatenated instead of interleaved."""

    def rotate(x, p):
        y = plain.rope(x, p, W, pairs="interleaved")
        return np.concatenate([y[..., 0::2], y[..., 1::2]], -1)

    return check.rope(rotate, dim=32, layout="interleaved")


@reported("pie-project/pie#602", "The exponents are 2 k / 32, over the whole head; expected 2 k / 16.")
def partial_over_the_head():
    """A part of the head is rotated with exponents over the whole head, and in pairs (i, i + head / 2)."""

    def rotate(x, p):
        y, angle = x.copy(), p[:, None] * plain.frequencies(16, over=32)
        both = np.concatenate([x[..., :8], x[..., 16:24]], -1)
        y[..., :8], y[..., 16:24] = np.split(turned(both, angle), 2, -1)
        return y

    return check.rope(rotate, dim=32, rotary_dim=16, layout="half")


@reported("apple/coreai-models#66", "Pairs of channels are (i, i + 4) for i in 0-3; expected (i, i + 16) for i in 0-3.")
def contiguous_block():
    """The rotated pairs are (i, i + dims / 2) in the first channels; expected (i, i + head / 2), type proportional."""
    scaling = {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 10000.0}

    def rotate(x, p):
        return np.concatenate([turned(x[..., :8], p[:, None] * W[:4]), x[..., 8:]], -1)

    return check.rope(rotate, {"head_dim": 32, "rope_parameters": scaling}, layout="half")


@reported("vllm-project/vllm#43770", "Channels 0-31 are rotated; expected 0-15.")
def factor_of_one():
    """The share of rotated channels is overwritten with 1, because the config has no rotary_dim."""
    right = {"head_dim": 32, "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    return check.rope(rope(), right, layout="half")


@reported(
    "vllm-project/vllm#41185", "Pairs of channels are (i, i + 8) for i in 0-7; expected (i, i + 16) for i in 0-15."
)
def half_of_the_rotary_part():
    """The share of another kind of layer is applied to the rotary part of latent attention, which turns whole."""

    def rotate(x, p):
        return np.concatenate([turned(x[..., :16], p[:, None] * W16), x[..., 16:]], -1)

    return check.rope(rotate, **HALF)


@reported("karpathy/nanochat#489", "The rotation is clockwise: the sign of the sine is wrong.")
def transposed():
    """The pair becomes (x cos + y sin, -x sin + y cos). It stays: the weights are trained with it."""
    return check.rope(rope(sign=(1, -1)), **HALF)


@reported("hpcaitech/ColossalAI#6429", "The rotated q depends on k; expected on q alone.")
def crossed():
    """The second half of q is computed from k, and the first half of k from q."""

    def rotate(q, k, p):
        angle = p[:, None] * W
        of_q, of_k = turned(q[:, :2], angle), turned(k, angle)
        crossed_q = np.concatenate([of_q[..., :16], of_k[..., 16:]], -1)
        crossed_k = np.concatenate([of_q[..., :16], of_k[..., 16:]], -1)
        return np.concatenate([crossed_q, turned(q[:, 2:], angle)], 1), crossed_k

    return check.rope(rotate, inputs=("q", "k"), **HALF)


# ---- coordinates ----


def by_coordinates(coordinate, w=W):
    """Pair k turns with this coordinate."""
    return lambda x, p: turned(x, np.moveaxis(p[coordinate], 0, -1) * w)


@reported("alibaba/MNN#4133", "Pairs read coordinate 0: pairs 0-5; coordinate 1: pairs 6-10; coordinate 2: pairs 11-15")
def blocked_for_interleaved():
    """The pairs of the three coordinates are in blocks, and Qwen3-VL interleaves them."""
    runs = np.repeat(np.arange(3), (6, 5, 5))
    return check.rope(by_coordinates(runs), sections=(6, 5, 5), interleaved=True, **HALF)


@reported("huggingface/diffusers#12538", "coordinate 0 turns 0-21, coordinate 1 turns 22-42, coordinate 2 turns 43-63")
def split_twice():
    """Tables are made for 24, 20 and 20 channels of the axes, and cut at 22, 43 and 64."""
    of_channel = np.repeat(np.arange(3), (22, 21, 21))
    w = np.repeat(plain.frequencies(64), 2)

    def rotate(x, p):
        angle = np.moveaxis(p[of_channel], 0, -1) * w
        return x * np.cos(angle) + plain.rotate_half(x, "interleaved") * np.sin(angle)

    return check.rope(rotate, dim=64, layout="interleaved", sections=(12, 10, 10))


@reported("AI-Hypercomputer/maxtext#4616", "Channels 0-31 are rotated; expected 0-7.")
def whole_head():
    """The share of rotated channels is ignored if there are three coordinates."""
    axis = np.repeat(np.arange(3), (8, 4, 4))
    return check.rope(by_coordinates(axis), dim=32, rotary_dim=8, layout="half", sections=(2, 1, 1))


@reported("huggingface/pytorch-image-models#2541", "Pairs read coordinate 0: pairs 8-15; coordinate 1: pairs 0-7")
def height_for_width():
    """Height and width are exchanged in the grid of coordinates."""
    w = np.tile(plain.frequencies(16), 2)
    return check.rope(by_coordinates(np.repeat([1, 0], 8), w), dim=32, layout="half", axes="concat")


@reported("osaurus-ai/vmlx-swift#225", "Pairs read coordinate 0: pairs 8-15; coordinate 1: pairs 0-7")
def axes_of_a_vision_tower():
    """The first of five errors of a vision tower: the two axes of its rotation are exchanged."""
    w = np.tile(plain.frequencies(16), 2)
    rotate = by_coordinates(np.repeat([1, 0], 8), w)
    return check.rope(rotate, dim=32, layout="half", axes="concat", positions=np.indices((4, 6)).reshape(2, 24))
