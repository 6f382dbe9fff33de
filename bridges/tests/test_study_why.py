"""The analysis of attention after training: the weights are those of posenc, and each number follows its definition."""

import json
import re

import numpy as np
import pytest

pytest.importorskip("autograd", reason="needs HIPS autograd: pip install autograd")
pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")

from posenc_bridges import autograd as traced
from study import __main__ as program
from study import attention, command, text
from study.model import initial, losses
from study.schemes import SCHEMES

SMALL = command.QUICK._replace(width=16, heads=2, length=32, steps=2, batch=2, targets=256)


@pytest.mark.parametrize("name", SCHEMES)
def test_weights_are_those_of_attention(name, corpus):
    """Rows sum to 1 within the rounding of 32 additions, no weight is on a later key, and weights times values are the
    result of `posenc.attention`, in float32."""
    ids = corpus.train[:66].reshape(2, 33).astype(np.int64)
    layers = []

    def keeping(q, k, v, *, bias, causal):
        out = traced.attention(q, k, v, bias=bias, causal=causal)
        layers.append((attention.attention_weights(q, k, bias), v, out))
        return out

    weights = initial(SMALL, SCHEMES[name], corpus.vocabulary, 0)
    losses(SMALL, SCHEMES[name]._replace(attention=keeping), weights, ids[:, :-1], ids[:, 1:])
    assert len(layers) == SMALL.layers
    for found, v, out in layers:
        assert found.shape == (2, SMALL.heads, 32, 32)
        assert np.abs(found.sum(-1) - 1).max() <= 32 * 2.0**-53
        assert not np.triu(found, 1).any()
        assert np.abs(found @ v - out).max() <= 32 * 2.0**-23 * np.abs(v).max()


def test_entropy():
    """log n for n equal weights, log 2 for two, 0 for one, within the rounding of n logarithms."""
    for n in (1, 7, 512):
        assert attention.entropy(np.full((3, n), 1 / n)) == pytest.approx(np.log(n), abs=n * 2.0**-52)
    assert attention.entropy(np.array([0.0, 0.5, 0.5])) == pytest.approx(np.log(2), abs=1e-15)
    assert attention.entropy(np.array([0.0, 1.0, 0.0])) == 0


def test_even_attention(corpus):
    """Queries of 0 have equal weights, for which every number has a formula. Sums of 64 logarithms round to 1e-14."""
    weights = initial(SMALL, SCHEMES["none"], corpus.vocabulary, 0)
    weights |= {f"{layer}.q": np.zeros_like(weights["0.q"]) for layer in range(SMALL.layers)}
    seen = attention.statistics(SMALL, SCHEMES["none"], weights, corpus.test, 128, 64)
    place = np.arange(64)
    assert np.abs(seen.entropy - np.log(place + 1)).max() <= 1e-13
    tail = place[-8:]  # a quarter of the trained length
    assert seen.far == pytest.approx(np.mean((tail + 1 - 32) / (tail + 1)), abs=1e-14)
    assert seen.by_distance[:57] == pytest.approx(np.full(57, np.mean(1 / (tail + 1))), abs=1e-15)
    assert seen.by_distance[63] == pytest.approx(1 / 64, abs=1e-15)
    assert seen.size[-1] < seen.size[0]  # a mean of 64 values is smaller than one of them
    inputs, targets = text.windows(corpus.test, 128, 64)
    one = losses(SMALL, SCHEMES["none"], weights, inputs, targets).reshape(2, 64).mean(0)
    assert np.abs(seen.nats - one).max() <= 1e-5  # float32, in batches of another size


def test_files(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "QUICK", SMALL)
    monkeypatch.setattr(attention, "STATISTICS_BYTES", 256)
    assert program.main(["--why", "--methods", "rope", "learned", "--out", str(tmp_path)]) == 0
    whole = json.loads((tmp_path / "why.json").read_text(encoding="utf-8"))
    assert [(row["method"], row["length"]) for row in whole["rows"]] == [
        *(("rope", length) for length in SMALL.lengths),
        ("learned", 32),
    ]
    assert len(whole["longest"]["rope"]["entropy"]) == 256
    said = capsys.readouterr().out
    assert re.search(r"^rope +64 +\d+\.\d\d +\d+\.\d\d +\d\.\d\d \(\d\.\d\d\) .*\d%$", said, re.MULTILINE)
    assert re.search(r"^learned +32 .* -$", said, re.MULTILINE)
