"""ALiBi at L against sinusoids at 2L: both attentions are one function, and measurements and files are complete."""

import json
import re
from functools import partial

import numpy as np
import pytest

pytest.importorskip("autograd", reason="needs HIPS autograd: pip install autograd")

import autograd.numpy as anp
from autograd import value_and_grad

from study import __main__ as program
from study import command, cost
from study.model import initial, losses
from study.schemes import SCHEMES

SMALL = command.QUICK._replace(width=16, heads=2, layers=1, steps=2, targets=512)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("method", ["alibi", "sinusoidal", "t5"])
def test_both_attentions_are_one_function(method, dtype, corpus):
    """The same loss and gradients, also of T5's table, in the dtype of the weights. 70 additions of a row and layers
    with factors below 10 leave less than 1000 roundings of the largest entry. Gradients are compared in float64,
    because in float32 a ReLU may be so near to 0 (3e-8) that its two sides differ."""
    ids = corpus.train[:142].reshape(2, 71).astype(np.int64)
    weights = {name: w.astype(dtype) for name, w in initial(SMALL, SCHEMES[method], corpus.vocabulary, 0).items()}
    bound = 1000 * np.finfo(dtype).eps / 2
    found = []
    for attention in cost.ATTENTIONS.values():
        scheme = SCHEMES[method]._replace(attention=attention)

        def mean(weights, scheme=scheme):
            return anp.mean(losses(SMALL, scheme, weights, ids[:, :-1], ids[:, 1:]))

        found.append(value_and_grad(mean)(weights))
    (loss, gradient), (plain_loss, plain) = found
    assert abs(loss - plain_loss) <= bound * loss
    assert gradient.keys() == plain.keys()
    for name, array in gradient.items():
        assert array.dtype == plain[name].dtype == dtype
        if dtype is np.float64:
            assert np.abs(array - plain[name]).max() <= bound * np.abs(array).max(), name


def test_a_matrix_of_scores_is_seen(corpus):
    """A materialised attention has a float32 matrix of scores, (batch, heads, N, N), in its peak of memory, and twice
    as much of it at 2 N. The memory of posenc does not depend on the length; rows of sinusoids are 4 * 512 * 16
    bytes."""
    peak = partial(cost.array_peak, SMALL, corpus)
    scores = 4 * SMALL.heads * cost.STEP_BYTES * 512 / cost.MIB
    short, long = (peak(cost.Contender("materialised", "sinusoidal", length)) for length in (256, 512))
    assert scores < long
    assert long - short >= scores / 2
    ours = [peak(cost.Contender("posenc", "sinusoidal", length)) for length in (256, 512)]
    assert abs(ours[1] - ours[0]) < 0.1 * ours[0]
    assert ours[1] < short


def test_files(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "QUICK", SMALL)
    monkeypatch.setattr(cost, "LENGTHS", (32,))
    monkeypatch.setattr(cost, "ROUNDS", 1)
    assert program.main(["--cost", "--length", "32", "--out", str(tmp_path)]) == 0
    whole = json.loads((tmp_path / "cost.json").read_text(encoding="utf-8"))
    assert [(row["attention"], row["length"]) for row in whole["steps"]] == [("posenc", 32), ("materialised", 32)]
    (read,) = whole["perplexity"]
    assert 1 < min(read["alibi"], read["sinusoidal"]) < 256
    said = capsys.readouterr().out
    assert re.search(r"^materialised +32 .*\d\.\d\d", said, re.MULTILINE)
    assert re.search(r"^Perplexity in windows of 64, seed 0: \d+\.\d\d for ALiBi trained at 32, ", said, re.MULTILINE)
