"""The inputs of checks: those beyond the first call, and those of each argument."""

import numpy as np
import pytest

import posenc
from posenc import check

W = posenc.rope_frequencies(32)
LAYOUT = {"layout": "half"}
MROPE = posenc.mrope_frequencies(W, (8, 4, 4), interleaved=True)
AXIAL = posenc.axial_frequencies((16, 16))
ROWS = np.stack([np.arange(24), np.arange(24) + 5])
GEMMA = {
    "model_type": "gemma3_text", "head_dim": 32, "hidden_size": 128, "num_attention_heads": 4, "rope_theta": 1e6,
    "rope_local_base_freq": 1e4, "layer_types": ["sliding_attention", "full_attention"],
}  # fmt: skip


def rope(x, positions, frequencies=W, **options):
    return posenc.rope(x, positions, frequencies, **{**LAYOUT, **options})


def rope_nd(x, positions, frequencies):
    return posenc.rope_nd(x, positions, frequencies, **LAYOUT)


def causal(q, k, v):
    return posenc.attention(q, k, v, causal=True, align="end")


def ring(rows):
    """A cache of so many rows and a window of 8 keys: a longer chunk overwrites what its first queries read."""
    stored = {}

    def mine(q, k, v, start):
        at = start + np.arange(q.shape[-2])
        if start == 0:
            stored.update(k=0 * k[..., :1, :].repeat(rows, -2), v=0 * v[..., :1, :].repeat(rows, -2))
            stored["at"] = np.full(rows, -(10**6))
        stored["k"][..., at % rows, :], stored["v"][..., at % rows, :], stored["at"][at % rows] = k, v, at
        places = {"q_positions": at, "k_positions": stored["at"]}
        return posenc.attention(q, stored["k"], stored["v"], causal=True, window=(7, 0), **places)

    return mine


@pytest.mark.parametrize("frequencies", [AXIAL, MROPE])
def test_a_rotation_by_several_coordinates_is_checked_by_its_frequencies(frequencies):
    assert check.rope(lambda x, p: rope_nd(x, p, frequencies), frequencies, **LAYOUT)
    exchanged = check.rope(lambda x, p: rope_nd(x, p[::-1], frequencies), frequencies, **LAYOUT)
    assert exchanged.causes[0].sentence.startswith("Pairs read coordinate 0: pairs ")
    with pytest.raises(ValueError, match=r"check.rope: positions has shape \(24,\); expected an array \(\d, N\)"):
        check.rope(rope, frequencies, **LAYOUT, positions=np.arange(24))


def test_a_pair_that_turns_with_two_coordinates_is_refused():
    with pytest.raises(ValueError, match="a pair of frequencies turns with two coordinates"):
        check.rope(rope_nd, np.ones((2, 16)), **LAYOUT)


def test_the_first_rotated_channel():
    options = {"rotary_dim": 32, "rotary_offset": 8}
    assert check.rope(lambda x, p: rope(x, p, **options), W, dim=64, rotary_offset=8, **LAYOUT)
    report = check.rope(lambda x, p: rope(x, p, rotary_dim=32), W, dim=64, rotary_offset=8, **LAYOUT)
    assert report.causes[0].sentence == "Channels 0-31 are rotated; expected 8-39."


def test_positions_by_batch_row():
    assert check.rope(lambda x, p: rope(x, p[:, None]), W, positions=ROWS, **LAYOUT)
    first = check.rope(lambda x, p: rope(x, p[0]), W, positions=ROWS, **LAYOUT)
    assert "In batch row 1. These are the positions of batch row 0." in first.causes[0].sentence
    late = check.rope(lambda x, p: rope(x, p[:, None] + 1), W, positions=ROWS, **LAYOUT)
    assert "position p is taken for p + 1; expected p. In batch row 0." in late.causes[0].sentence


def test_the_layers_of_a_config():
    local, whole = (posenc.rope_from_config(GEMMA, layer_type=name) for name in GEMMA["layer_types"])
    assert check.frequencies(local.inv_freq, GEMMA, layer_type="sliding_attention")
    assert check.rope(lambda x, p: rope(x, p, whole), GEMMA, layer_type="full_attention")
    exchanged = check.frequencies(whole.inv_freq, GEMMA, layer_type="sliding_attention")
    assert "The base is 1000000; expected 10000." in exchanged.causes[0].sentence


def test_a_count_of_tokens_shows_in_positions_out_of_order():
    report = check.rope(lambda x, p: rope(x, p[0] + np.arange(len(p))), W, **LAYOUT)
    assert "token n is rotated by the first position + n, not by its position" in report.causes[0].sentence


def test_the_angle_of_the_first_pair_is_exact_at_far_positions():
    far = np.arange(131_048, 131_072)
    assert check.rope(rope, W, positions=far, **LAYOUT)
    off = np.array([0.3 / far[0], *np.zeros(15)])
    assert not check.rope(lambda x, p: rope(x, p, W.inv_freq + off), W, positions=far, **LAYOUT)


def test_a_second_batch_row():
    assert not check.attention(causal, causal=True, batch=True).untried
    report = check.attention(lambda q, k, v: causal(q, k[:1], v), causal=True, batch=True)
    assert report.causes[0].sentence == "Batch row 1 depends on the k of another batch row."
    one_row = check.attention(lambda q, k, v: causal(q[0], k[0], v[0])[None], causal=True, batch=True)
    assert one_row.untried == ("a second batch row: the implementation does not take them.",)


def test_a_chunk_longer_than_the_window():
    report = check.cache(ring(8), window=(7, 0))
    assert "Before a chunk is read, keys outside the window of its last query are dropped." in str(report)
    assert check.cache(ring(16), window=(7, 0))


def test_the_width_of_attention_is_that_of_the_frequencies():
    def mine(q, k, v):
        q, k = (posenc.rope(x, x.shape[-2], W, layout="half") for x in (q, k))
        return posenc.attention(q, k, v)

    assert check.attention(mine, frequencies=W, **LAYOUT)


def test_axes_are_named_in_a_result_with_a_batch_axis():
    report = check.attention(lambda q, k, v: posenc.attention(q, k, v).swapaxes(1, 2), batch=True, m=9)
    assert report.causes[0].name == "order of axes"


def test_a_place_has_its_token_and_its_position():
    report = check.rope(lambda x, p: rope(x, np.minimum(p, 2047)), W, **LAYOUT)
    assert "position 4079 (token 0)" in report.where


def test_a_ring_that_counts_one_round_alone():
    """Rows are those of the last 8 positions until the second round is over."""
    stored = {}

    def mine(q, k, v, start):
        for name, new in (("k", k), ("v", v)):
            stored[name] = new if start == 0 else np.concatenate([stored[name], new], -2)
        at, every = start + np.arange(q.shape[-2]), np.arange(stored["k"].shape[-2])
        places = {"q_positions": at, "k_positions": np.where(every < 16, every, every - 8)}
        return posenc.attention(q, stored["k"], stored["v"], causal=True, window=(7, 0), **places)

    assert not check.cache(mine, window=(7, 0))
