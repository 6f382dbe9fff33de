"""The study: its text, its layers, training of every scheme, refused options, files, and the main figure."""

import json
import re
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("autograd", reason="needs HIPS autograd: pip install autograd")

from autograd.test_util import check_grads

from study import __main__ as program
from study import command, evaluation, layers, text
from study.model import initial, losses
from study.rope_extensions import EXTENSIONS
from study.schemes import SCHEMES
from study.training import DivergedError, train

SMALL = command.QUICK._replace(steps=3, batch=2, targets=512)


def test_no_paragraph_is_in_two_parts(corpus):
    """No paragraph occurs twice, in two parts or in one, whatever its indentation."""
    train, test = (
        [words for _, words in text.paragraphs(bytes(part).decode())] for part in (corpus.train, corpus.test)
    )
    assert len({*train, *test}) == len(train) + len(test)
    assert max(corpus.train.max(), corpus.test.max()) < corpus.vocabulary
    assert len(corpus.train) > 2 * len(corpus.test) > 2 * 49152
    assert len(set(text.TEST) | set(text.UNUSED)) == 18


def test_windows_score_the_same_targets():
    data = np.arange(101, dtype=np.uint8)
    count = text.target_count(data, 1000, (4, 8, 16))
    assert count == 96
    for length in (4, 8, 16):
        inputs, targets = text.windows(data, count, length)
        assert inputs.shape == (96 // length, length)
        assert np.array_equal(targets.ravel(), np.arange(1, 97))
        assert np.array_equal(inputs.ravel(), np.arange(96))


def test_layers():
    rng = np.random.default_rng(0)
    np.random.seed(0)  # noqa: NPY002 - autograd draws directions from here
    x, gain, targets = rng.standard_normal((5, 7)), rng.standard_normal(7), rng.integers(0, 7, 5)
    check_grads(layers.layer_norm, modes=["rev"], order=1)(x, gain)
    check_grads(layers.linear_relu, modes=["rev"], order=1)(x, x.T)
    wide, deep = rng.standard_normal((6, 5)), rng.standard_normal((5, 8))
    check_grads(lambda x, w: layers.project_to_heads(x, w, (2, 3, 4)), modes=["rev"], order=1)(wide, deep)
    check_grads(layers.project_from_heads, modes=["rev"], order=1)(rng.standard_normal((2, 4, 3, 2)), deep.T)
    heads = layers.project_to_heads(wide, deep, (2, 3, 4))
    assert np.allclose(heads[1, 2, 0], wide[3] @ deep[:, 4:6])
    assert np.allclose(layers.project_from_heads(heads, np.eye(8)), wide @ deep)
    check_grads(lambda x: layers.cross_entropy(x, targets), modes=["rev"], order=1)(x)
    plain = -np.log(np.exp(x) / np.exp(x).sum(-1, keepdims=True))[np.arange(5), targets]
    assert np.allclose(layers.cross_entropy(x, targets), plain, rtol=1e-13, atol=0)


@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_learns(name, corpus):
    """Every array changes and stays float32, the same seed gives the same numbers, and longer windows can be
    evaluated."""
    scheme = SCHEMES[name]
    before = initial(SMALL, scheme, corpus.vocabulary, 0)
    after = [train(SMALL, scheme, corpus.train, corpus.vocabulary, 0) for _ in range(2)]
    for key, array in after[0].items():
        assert array.dtype == np.float32
        assert array.shape == before[key].shape
        assert np.array_equal(array, after[1][key])
        assert not np.array_equal(array, before[key]), key
    assert evaluation.perplexity(SMALL, scheme, after[0], corpus.test, 512, SMALL.lengths[0]) < 256
    with pytest.raises(IndexError) if name in ("learned", "product") else nullcontext():
        evaluation.perplexity(SMALL, scheme, after[0], corpus.test, 512, SMALL.lengths[1])


def test_divergence_says_where(corpus):
    with pytest.raises(DivergedError, match=r"training diverged at step \d of 3: loss"):
        train(SMALL._replace(rate=1e30), SCHEMES["alibi"], corpus.train, 128, 0)


def test_sliding_windows_and_last_bytes(corpus):
    """Against one call for each byte, which is the last byte of its own window, or of a shorter one at the
    beginning."""
    scheme, data = SCHEMES["alibi"], corpus.test[:400]
    weights = train(SMALL, scheme, corpus.train, 128, 0)

    def alone(first, target):
        ids = data[None, first : target + 1].astype(np.int64)
        return losses(SMALL, scheme, weights, ids[:, :-1], ids[:, 1:])[-1]

    for stride in (1, 24, 64):
        slid = evaluation.nats_per_byte(SMALL, scheme, weights, data, 384, 96, stride)
        ends = [96, *range(96 + stride, 384, stride), 384]
        direct = [alone(max(0, end - 96), t) for t in range(1, 385) for end in [min(e for e in ends if e >= t)]]
        assert np.allclose(slid, direct, rtol=2e-5, atol=0)
    assert np.array_equal(
        evaluation.nats_per_byte(SMALL, scheme, weights, data, 384, 64, 64),
        evaluation.nats_per_byte(SMALL, scheme, weights, data, 384, 64),
    )
    long, short = (evaluation.nats_per_byte(SMALL, scheme, weights, data, 384, length) for length in (128, 64))
    last = evaluation.last_of_windows(long, 128, 64)
    assert np.allclose(last, [alone(t // 128 * 128, t + 1) for t in range(384) if t % 128 >= 64], rtol=2e-5, atol=0)
    setting = SMALL._replace(targets=384, tested=(1, 1.5, 2))
    whole, sliding, of_last, last_ratio = evaluation.evaluate(
        setting, scheme, weights, data, evaluation.protocol(setting, data)
    )
    assert whole[128] == np.exp(long.mean())
    assert sliding[128] == np.exp(evaluation.nats_per_byte(SMALL, scheme, weights, data, 384, 128, 64).mean())
    assert of_last[128] == np.exp(last.mean())
    assert of_last[96] is None
    paired = np.exp(last.mean() - short.reshape(3, 128)[:, 64:].mean())
    assert np.isclose(last_ratio[128], paired, rtol=1e-12)


def test_rope_extensions(corpus):
    """Up to the length of training only schemes that scale at every length differ; beyond it all schemes do."""
    weights = train(SMALL, SCHEMES["rope"], corpus.train, 128, 0)
    ids = corpus.test[:193].astype(np.int64)[None]

    def nats(scheme, n):
        return losses(SMALL, scheme, weights, ids[:, :n], ids[:, 1 : n + 1])

    for n in (64, 192):
        assert np.allclose(nats(EXTENSIONS["raw"](SMALL), n), nats(SCHEMES["rope"], n), rtol=1e-6, atol=0)
    for name, extend in EXTENSIONS.items():
        scheme = extend(SMALL)
        same = np.allclose(nats(scheme, 64), nats(SCHEMES["rope"], 64), rtol=1e-5, atol=0)
        assert same == (not name.startswith(("NTK ", "ReRoPE"))), name
        assert (np.abs(nats(scheme, 192) - nats(SCHEMES["rope"], 192)).max() < 1e-5) == (name == "raw"), name


@pytest.mark.parametrize("name", ["ReRoPE", "Self-Extend"])
def test_rope_extensions_by_position(name):
    """Against the matrix of distances of each scheme, with a rotation of every pair by its own distance."""
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 1, 2, 192, 16))
    i, j = np.arange(192)[:, None], np.arange(192)[None]
    group = 6  # five leave distances of more than 63
    far = 32 if name == "ReRoPE" else i // group + 32 - 32 / group - j // group
    distance = np.where(i - j < 32, i - j, far)
    assert np.tril(distance).max() <= 63 < 191 // 5 + 32 - 32 / 5
    w = 10000.0 ** (-np.arange(8) / 8)
    a, b = (x[..., :8] + 1j * x[..., 8:] for x in (q, k))
    rotated = np.exp(1j * distance[..., None] * w)
    logits = np.einsum("bhid,bhjd,ijd->bhij", a, b.conj(), rotated).real / 4
    weights = np.where(i >= j, np.exp(logits), 0)
    wanted = weights / weights.sum(-1, keepdims=True) @ v
    assert np.allclose(EXTENSIONS[name](SMALL).attention(q, k, v, causal=True), wanted, rtol=1e-10, atol=1e-12)


def test_files(tmp_path, monkeypatch, capsys):
    """The printed table and the file have the same numbers, and results are not overwritten."""
    monkeypatch.setattr(command, "QUICK", SMALL)
    words = ["--methods", "rope", "learned", "--seeds", "2", "--out", str(tmp_path)]
    assert program.main(words) == 0
    out = capsys.readouterr().out
    whole = json.loads((tmp_path / "study.json").read_text(encoding="utf-8"))
    assert [run["method"] for run in whole["runs"]] == ["rope", "rope", "learned", "learned"]
    assert whole["protocol"] == {"targets": 512, "sliding_targets": 512}
    for run in whole["runs"]:
        printed = "".join("        -" if p is None else f"{p:9.2f}" for p in run["perplexity"].values())
        assert re.search(rf"^{run['method']}, seed {run['seed']} +{re.escape(printed.strip())} ", out, re.MULTILINE)
    assert re.search(r"^learned, seed 0 +\d+\.\d\d +- +- +- ", out, re.MULTILINE)
    for name in EXTENSIONS:
        assert re.search(rf"^{re.escape(name)} +\d+\.\d\d ", out, re.MULTILINE)
        means = np.mean([[*run["rope_extensions"][name].values()] for run in whole["runs"][:2]], 0)
        assert " ".join(f"{p:.2f}" for p in means) in " ".join(out.split())
    assert (tmp_path / "study.png").read_bytes().startswith(b"\x89PNG")
    there = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(SystemExit):
        program.main(words)
    assert "study.json: it has the results of an earlier study; choose another --out" in capsys.readouterr().err
    assert there == {path: path.read_bytes() for path in tmp_path.iterdir()}


def test_interrupted(tmp_path, monkeypatch, capsys):
    """Ctrl-C exits with status 130; the results of finished trainings are written."""
    monkeypatch.setattr(command, "QUICK", SMALL._replace(tested=(1, 2)))
    results = iter([command.result])
    monkeypatch.setattr(command, "result", lambda *given: next(results, interrupted)(*given))
    with pytest.raises(SystemExit) as left:
        program.main(["--methods", "alibi", "t5", "--out", str(tmp_path)])
    assert left.value.code == 130
    assert capsys.readouterr().err == "python examples/study: interrupted\n"
    (run,) = json.loads((tmp_path / "study.json").read_text("utf-8"))["runs"]
    assert run["method"] == "alibi"


def interrupted(*given):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--methods", "alibi", "alibo"], "alibo: no such method; expected one of none, learned,"),
        (["--seeds", "0"], "--seeds 0: expected at least 1"),
        (["--quick", "--full"], "not allowed with"),
        (["--text", "nowhere.txt"], "nowhere.txt: No such file"),
        (["--text", "latin.txt"], r"latin.txt: not UTF-8 text \(byte 3 is 0xe9\)"),
        (["--text", "short.txt"], "short.txt: 60 bytes for the test; expected at least 513, for whole windows of 64, "),
        (["--why", "--text", "empty.txt"], "empty.txt: 0 bytes for the test; expected at least 513"),
        (["--cost", "--text", "empty.txt"], "empty.txt: 0 bytes for the test; expected at least 513"),
        (["--out", "short.txt"], "--out short.txt: File exists"),
        (["--lengths", "64", "32"], "--lengths 32: expected at least 64, the training length"),
        (["--lengths", "1000", "1001"], "expected at least 8008001, for whole windows of 64, 1000, 1001 bytes"),
        (["--length", "3"], "--length 3: expected 4 to 4096"),
        (["--length", "128", "--lengths", "64"], "--lengths 64: expected at least 128, the training length"),
    ],
)
def test_refused(words, message, tmp_path, monkeypatch, refusal):
    """A refusal is one line with status 2, and no file is written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 " * 5000)
    (tmp_path / "short.txt").write_bytes(b"words " * 100)
    (tmp_path / "empty.txt").touch()
    assert re.search(message, refusal(words))
    assert {path.name for path in tmp_path.iterdir()} == {"latin.txt", "short.txt", "empty.txt"}


def script(*words, before=""):
    """Code that runs ``python examples/study`` with these words."""
    study = str(Path(program.__file__).parent)
    return f"import runpy, sys; {before}sys.argv = {['study', *words]}; runpy.run_path({study!r}, run_name='__main__')"


def test_without_the_extra(run_python):
    done = run_python(script("--quick", before="sys.modules['autograd'] = None; "))
    assert done.returncode == 2
    assert 'pip install "./bridges[autograd]" matplotlib' in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_quick_shows_the_figure(tmp_path, run_python):
    """Ratios to the perplexity at the length of training, with the margins of seven runs on other machines: ALiBi stays
    (worst 0.995), sinusoidal positions fail at once (1.48, 1.84, 2.11), rotary later (1.76, 2.68), T5 in between."""
    # BLAS on one thread: two wait for each other where another process has a core, which once took six minutes
    assert run_python(script("--quick", "--out", str(tmp_path)), timeout=1200, OPENBLAS_NUM_THREADS="1").returncode == 0
    runs = json.loads((tmp_path / "study.json").read_text(encoding="utf-8"))["runs"]
    at = {run["method"]: list(run["perplexity"].values()) for run in runs}
    sinusoidal, rope, t5, alibi = ([p / at[name][0] for p in at[name]] for name in command.DEFAULT)
    assert at["alibi"][0] < 10  # less than two bytes of context give, so the model has learned
    assert max(alibi) <= 1.03
    assert all(r >= least for r, least in zip(sinusoidal[1:], (1.25, 1.5, 1.7), strict=True))
    assert rope[2] >= 1.35
    assert rope[3] >= 1.8
    assert 1.12 <= t5[3] < min(rope[3], sinusoidal[3])
    assert at["alibi"][3] < min(0.7 * at["sinusoidal"][3], 0.7 * at["rope"][3], at["t5"][3])


def test_embeddings():
    """Words that do not occur are left out."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((20000, 4)) * 3 + 1
    assert evaluation.diagonal_dominance(rows) > 20
    assert np.isclose(evaluation.diagonal_dominance(np.repeat(rows[:, :1], 4, 1)), 1)
    weights = {"embedding": np.full((128, 4), np.nan), "scheme.table": np.eye(4)}
    weights["embedding"][66:69] = [[0, 0, 3, 4], [0, 5, 0, 0], [5, 0, 0, 0]]
    found = evaluation.embedding_statistics(weights, np.array([66, 66, 67, 68], np.uint8))
    assert (found["word_norm"], found["position_norm"]) == (10, 1)
    assert found["position_diagonal"] == pytest.approx(3)  # of 1/4 - 1/16 and -1/16
