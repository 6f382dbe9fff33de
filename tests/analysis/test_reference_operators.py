"""The operators by their equations: equal to the kernels for N != M, memory, both directions, batches, shared keys."""

import numpy as np
import pytest

import posenc
from posenc import analysis

RNG = np.random.default_rng(3)
H, D = 4, 6


def normal(*shape):
    return RNG.standard_normal(shape)


POSITION = {
    "alibi": posenc.alibi(posenc.alibi_slopes(H)),
    "t5": posenc.t5(normal(12, H), max_distance=20),
    "t5 decoder": posenc.t5(normal(9, H), bidirectional=False, max_distance=31),
    "swin": posenc.swin(normal(7 * 9, H), 4, 5),
    "tupe": posenc.tupe(normal(H, 12, 3), normal(H, 20, 3), cls_to_any=normal(H), any_to_cls=normal(H),
                        relative=posenc.t5(normal(12, H), max_distance=20)),
    "sum": posenc.t5(normal(12, H)) + posenc.kerple_log(abs(normal(H)), abs(normal(H))),
    "user": posenc.distance_function(lambda rel, a: a[:, None] * np.tanh(rel), H, arrays=(normal(H),)),
    "tupe without resets": posenc.tupe(normal(H, 12, 3), normal(H, 20, 3)),
}  # fmt: skip
CONTENT = {
    "shaw": posenc.shaw(normal(7, D)),
    "cope": posenc.cope(normal(5, D)),
    "sum": posenc.shaw(normal(7, D)) + posenc.relative_key_query(normal(3, D)),
    "shaw per head": posenc.shaw(normal(H, 7, D)),
    "music transformer": posenc.shaw(normal(H, 9, D), k_min=8),
    "relative_key_query": posenc.relative_key_query(normal(11, D)),
    "transformer_xl": posenc.transformer_xl(normal(H, 41, D), normal(H, D), normal(H, D)),
    "transformer_xl clipped": posenc.transformer_xl(normal(H, 5, D), normal(H, D), normal(H, D)),
    "deberta": posenc.deberta(normal(H, 12, D), normal(H, 12, D)),
    "deberta buckets": posenc.deberta(normal(H, 12, D), normal(H, 12, D), buckets=8, max_position=16),
    "deberta paper": posenc.deberta(normal(H, 12, D), normal(H, 12, D), p2c_index="paper"),
    "deberta c2p": posenc.deberta(None, normal(H, 12, D), terms=("c2p",)),
}
PLACES = {
    "memory": {},
    "positions": {"q_positions": RNG.integers(0, 20, 12), "k_positions": RNG.integers(0, 20, 20)},
    "queries first": {"q_positions": np.arange(12)},
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", POSITION)
def test_matrix(name, place):
    bias, options = POSITION[name], PLACES[place]
    ours = bias.matrix(12, 20, dtype=np.float64, **options)
    assert np.abs(analysis.reference_matrix(bias, 12, 20, **options) - ours).max() <= 1e-13


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", CONTENT)
def test_logits(name, place):
    """Sums of at most three products of D numbers of size 3."""
    bias, options = CONTENT[name], PLACES[place]
    q, k = normal(2, H, 12, D), normal(2, 2, 20, D)
    ours = bias.logits(q, k, **options)
    found = analysis.reference_logits(bias, q, k, **options)
    assert found.shape == ours.shape == (2, H, 12, 20)
    assert np.abs(found - ours).max() <= 1e-13


def test_own_positions():
    x = RNG.integers(0, 9, 12)
    bias = POSITION["t5"].at(q_positions=x, k_positions=x)
    assert np.array_equal(analysis.reference_matrix(bias, 12), bias.matrix(12, dtype=np.float64))
    content = CONTENT["shaw"].at(q_positions=x, k_positions=x)
    q, k = normal(2, H, 12, D)
    assert np.abs(analysis.reference_logits(content, q, k) - content.logits(q, k)).max() <= 1e-13


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: analysis.reference_matrix(CONTENT["shaw"], 3), TypeError, "bias has type ShawBias"),
    (lambda: analysis.reference_matrix(POSITION["alibi"], 3, q_positions=[1, 2]), ValueError, "q_positions has shape"),
    (lambda: analysis.reference_logits(POSITION["t5"], 0, 0), TypeError, "bias has type T5Bias"),
    (lambda: analysis.reference_logits(posenc.cope(normal(3, D)), 0, 0), ValueError, "q has 0 axes; expected"),
])  # fmt: skip
def test_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call()
