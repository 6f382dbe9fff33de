"""Checks through files: what an engine in another language gets, and what is said of its results."""

import json
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import plain
import pytest
from test_interface import ALIBI, YARN

import posenc
from posenc import check
from posenc.__main__ import main
from posenc.check import _files

ROOT = Path(__file__).resolve().parents[2]
W, W16 = plain.frequencies(32), plain.frequencies(16)
HALF = {"dim": 32, "layout": "half"}
DECODER = {"frequencies": W16, "layout": "half"}


# ---- an engine in Python ----


def run_engine(folder, compute):
    """Compute the results of all numbers; those that `compute` does not take are left out."""
    about = json.loads((folder / "calls.json").read_text())
    for number, count in ((one["number"], one["calls"]) for one in about["numbers"]):
        arrays = [np.load(folder / f"{number}-{name}.npy") for name in about["arguments"]]
        rows = [[x] if count == 1 else np.split(x, count) if x.ndim > 2 else [x] * count for x in arrays]
        try:
            found = [compute(*(x.copy() for x in call)) for call in zip(*rows, strict=True)] if rows else [compute()]
        except ValueError:
            continue
        for name, outs in zip(about["results"], zip(*found, strict=True), strict=True):
            np.save(folder / f"{number}-{name}.npy", np.concatenate(outs) if count > 1 else outs[0])


def engine_of(kind, impl):
    """What an engine does that has an implementation for `posenc.check`."""

    def cache(q, k, v, chunks):
        ends = np.cumsum(chunks)
        cuts = [slice(end - chunk, end) for chunk, end in zip(chunks, ends, strict=True)]
        return (np.concatenate([impl(*(x[0, :, at] for x in (q, k, v)), at.start) for at in cuts], -2)[None],)

    def attention(q, k, v):
        return (impl(q[0], k[0], v[0])[None],)

    def one(*arguments):
        found = impl(*(x.item() if x.ndim == 0 else x for x in arguments))
        return found if isinstance(found, tuple) else (found,)

    return {"cache": cache, "attention": attention}.get(kind, one)


def through_files(folder, kind, impl, **options):
    folder = folder / "inputs"
    _files.write(kind, options, {}, f"posenc check {kind}", folder)
    run_engine(folder, engine_of(kind, impl))
    return getattr(check, kind)(_files.Engine(kind, folder), **options)


def causal(q, k, v, **errors):
    return plain.attention(q, k, v, mask=plain.causal(q.shape[-2], k.shape[-2]), **errors)


def top_left(q, k, v):
    return plain.attention(q, k, v, mask=plain.causal(q.shape[-2], k.shape[-2], 0))


def leaking(q, k, v):
    """Hidden keys have the logit -2."""
    return plain.attention(q, k, v, bias=np.where(plain.causal(q.shape[-2], k.shape[-2]), 0.0, -2.0))


def by_column(x, p, axes):
    """The first pairs turn with another coordinate."""
    return posenc.rope_nd(x, p[axes], posenc.mrope_frequencies(posenc.rope_frequencies(32), (4, 6, 6)), layout="half")


PLANTED = {
    "right": ("rope", lambda x, p: plain.rope(x, p, W), HALF),
    "tables": ("rope", lambda x, p: plain.rope(x, p, W, table_pairs="interleaved"), HALF),
    "not linear": ("rope", lambda x, p: plain.rope(x, p, W) + 1, HALF),
    "keys one position too far": (
        "rope", lambda q, k, p: (plain.rope(q, p, W), plain.rope(k, p + 1, W)), {**HALF, "inputs": ("q", "k")}),
    "coordinates": ("rope", partial(by_column, axes=[1, 0, 2]), {**HALF, "sections": (4, 6, 6)}),
    "tokens before heads": (
        "rope", lambda x, p: plain.rope(x.swapaxes(1, 2), p + 1, W).swapaxes(1, 2), {**HALF, "seq_axis": -3}),
    "no scale": ("attention", partial(causal, scale=1.0), {"causal": True}),
    "alignment": ("attention", top_left, {"causal": True}),
    "hidden keys": ("attention", leaking, {"causal": True}),
    "heads": ("attention", partial(plain.attention, repeat="tile"), {"kv_heads": 2}),
    "no sink": ("attention", causal, {"causal": True, "sink": np.linspace(0, 1, 6), "softcap": 2.0}),
    "turns": ("cache", plain.decoder(W16, lambda start: 0), DECODER),
    "cached keys lost": ("cache", plain.decoder(W16, cached=lambda old, new: new, shift=0), DECODER),
    "not reset": (
        "cache", lambda: plain.decoder(W16, cached=lambda old, new: np.concatenate([old, new], -2), first=False),
        DECODER),
    "bias": ("bias", lambda n, m: 2 * ALIBI.matrix(n, m), {"bias": ALIBI, "n": 9, "causal": True}),
    "sinusoid": ("sinusoid", lambda p: plain.sinusoid(np.minimum(p, 2047), 32), {"dim": 32}),
    "frequencies": ("frequencies", lambda: plain.frequencies(32, 3e4), {"dim": 32}),
}  # fmt: skip


@pytest.mark.parametrize("planted", PLANTED)
def test_an_error_has_the_same_sentence_through_files(tmp_path, planted):
    kind, impl, options = PLANTED[planted]
    one, other = (impl(), impl()) if planted == "not reset" else (impl, impl)  # it keeps a state
    direct, found = getattr(check, kind)(one, **options), through_files(tmp_path, kind, other, **options)
    assert bool(found) is bool(direct) is (planted == "right")
    assert [cause.sentence for cause in found.causes] == [cause.sentence for cause in direct.causes]
    assert [one.sentence for one in found.readings] == [one.sentence for one in direct.readings]
    files = list((tmp_path / "inputs").iterdir())
    assert len(files) < 40
    assert sum(file.stat().st_size for file in files) < 2e7


def test_an_engine_may_leave_out_probes(tmp_path):
    folder = tmp_path / "inputs"
    _files.write("rope", HALF, {}, "posenc check rope", folder)
    run_engine(folder, engine_of("rope", lambda x, p: plain.rope(x, p + 1, W)))
    for file in folder.glob("*-out.npy"):
        if not file.name.startswith("0000"):
            file.unlink()
    engine = _files.Engine("rope", folder)
    report = check.rope(engine, **HALF)
    assert not report
    assert engine.missing == ["0002-out.npy", "0004-out.npy"]


def test_a_factor_is_read_from_its_file(tmp_path):
    folder = tmp_path / "inputs"
    _files.write("frequencies", {"frequencies": YARN}, {}, "posenc check frequencies", folder)
    np.save(folder / "0000-out.npy", plain.yarn(32, 1e4, 8.0, 32))
    report = check.frequencies(_files.Engine("frequencies", folder), YARN)
    assert "the attention factor" in report.untried[0]
    np.save(folder / "0000-factor.npy", 1.0)
    report = check.frequencies(_files.Engine("frequencies", folder), YARN)
    assert report.causes[0].name == "attention factor"


def test_probes_beyond_the_limit_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(_files, "LIMIT", 200_000)
    folder = tmp_path / "inputs"
    _files.write("rope", HALF, {}, "posenc check rope", folder)
    assert sum(file.stat().st_size for file in folder.glob("*.npy")) < 210_000
    assert "probes beyond" in (folder / "README.txt").read_text()


# ---- an engine in C ----

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


@pytest.mark.skipif(COMPILER is None, reason="no C compiler in PATH")
def test_the_engine_in_c_is_right_and_its_errors_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps({"model_type": "llama", "head_dim": 64, "rope_theta": 500000.0}))
    words = ["check", "rope", "--config", "config.json"]
    assert main([*words, "--inputs", "inputs"]) == 0
    text = Path("inputs/README.txt").read_text()
    assert "posenc check rope --config config.json" in text.splitlines()[0]
    assert len(text.splitlines()) <= 24
    sentences = ["", "Your pairs are (2 i, 2 i + 1); expected (i, i + 32)", "The base is 10000; expected 500000."]
    sentences.append("position p is taken for min(p, 2047); expected p.")
    for error, sentence in enumerate(sentences):
        source = ["-Wall", "-Wextra", "-Werror", f"-DERROR={error}", str(ROOT / "examples/engine/rotate.c"), "-lm"]
        subprocess.run([COMPILER, "-std=c11", "-O2", *source, "-o", "rotate"], check=True)
        subprocess.run(["./rotate", "inputs"], check=True)
        capsys.readouterr()
        assert main([*words, "--got", "inputs"]) == int(error > 0)
        assert sentence in capsys.readouterr().out


# ---- the command ----


def answer(words, capsys):
    status = main(["check", *words, "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_json_of_a_failure(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["sinusoid", "--dim", "32"]
    assert answer([*words, "--inputs", "inputs"], capsys)[0] == 0
    run_engine(Path("inputs"), engine_of("sinusoid", lambda p: 2 * plain.sinusoid(p, 32)))
    status, found = answer([*words, "--got", "inputs"], capsys)
    assert status == 1
    assert (found["verdict"], found["part"], found["sentence"]) == (
        "wrong",
        "size",
        "The numbers are 2 times the right ones.",
    )
    assert (found["first_wrong_index"], found["axes"]) == ([0, 1], ["position", "channel"])
    assert (found["got"], found["expected"]) == (2.0, 1.0)
    assert found["error"] > found["bound"] > 0
    run_engine(Path("inputs"), engine_of("sinusoid", lambda p: np.full((len(p), 32), np.nan)))
    status, found = answer([*words, "--got", "inputs"], capsys)
    assert (status, found["got"], found["error"]) == (1, "nan", "inf")
    run_engine(Path("inputs"), engine_of("sinusoid", lambda p: plain.sinusoid(p, 32)))
    status, found = answer([*words, "--got", "inputs"], capsys)
    assert (status, found["verdict"], found["sentence"], found["not_tried"]) == (0, "right", None, [])
    Path("inputs/0001-out.npy").unlink()
    status, found = answer([*words, "--got", "inputs"], capsys)
    assert (status, found["verdict"]) == (2, "could not run")
    assert "0001-out.npy: missing; expected a result for each judged number" in found["error"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sinusoid", "--dim", "32", "--got", "inputs"], "FileNotFoundError: "),
        (["sinusoid", "--dim", "64", "--got", "inputs"], "--dim is 64; the inputs in inputs are for 32"),
        (["cache", "--got", "inputs"], "inputs has the inputs of check sinusoid; expected of check cache"),
        (["sinusoid", "--dim", "32", "--inputs", "inputs"], "inputs is not empty"),
        (["rope", "mine:rope"], "ModuleNotFoundError"),
    ],
)
def test_a_check_that_could_not_run_has_the_status_2(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert main(["check", "sinusoid", "--dim", "32", "--inputs", "inputs"]) == 0
    capsys.readouterr()
    status, found = answer(words, capsys)
    assert status == 2
    assert message in found["error"]
    with pytest.raises(SystemExit, match=r"^2$"):
        main(["check", *words])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("kind", [name for name in check.__all__ if name.islower()])
def test_the_help_of_a_kind_has_its_options_alone(kind, capsys):
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["check", kind, "--help"])
    text = capsys.readouterr().out
    assert ("--max-distance" in text) is (kind == "buckets")
    assert ("--sections" in text) is (kind == "rope")
    assert ("--inputs" in text) is (kind in _files.ARGUMENTS)


def test_an_operator_is_written_beside_the_inputs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("of_test.py").write_text("import posenc\nALIBI = posenc.alibi(posenc.alibi_slopes(6))\n")
    assert main(["check", "attention", "--bias", "of_test:ALIBI", "--inputs", "inputs"]) == 0
    assert np.array_equal(np.load("inputs/bias-slopes.npy"), posenc.alibi_slopes(6))
    assert "--bias is posenc.alibi" in Path("inputs/README.txt").read_text()


def test_an_array_is_the_same_option_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("scales_of_test.py").write_text("import numpy as np\nSCALE = np.linspace(0.1, 0.6, 6)\n")
    words = ["attention", "--scale", "scales_of_test:SCALE"]
    assert main(["check", *words, "--inputs", "inputs"]) == 0
    capsys.readouterr()
    status, found = answer([*words, "--got", "inputs"], capsys)
    assert status == 2
    assert "0000-out.npy" in found["error"]


def test_the_folder_has_the_options_and_the_config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps({"model_type": "gpt_neox", "head_dim": 32, "rotary_pct": 0.5}))
    assert main(["check", "rope", "--config", "config.json", "--inputs", "inputs"]) == 0
    Path("config.json").unlink()
    assert "r is 16." in Path("inputs/README.txt").read_text()
    w = posenc.rope_frequencies(16)
    run_engine(Path("inputs"), engine_of("rope", lambda x, p: posenc.rope(x, p, w, layout="half", rotary_dim=16)))
    assert main(["check", "rope", "--got", "inputs"]) == 0


def test_an_implementation_is_described_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "import posenc\n\n\ndef slopes(n, m):\n    return posenc.alibi(4).matrix(n, m, align='end')\n"
    )
    assert main(["check", "describe", "mine:slopes", "--kind", "bias"]) == 0
    assert capsys.readouterr().out == "posenc.alibi(4)\n"
    assert main(["check", "describe", "mine:slopes", "--kind", "bias", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["call"] == "posenc.alibi(4)"


def test_an_exception_of_an_implementation_says_what_it_was_called_with(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("broken.py").write_text("def rope(x, positions):\n    raise RuntimeError('boom')\n")
    with pytest.raises(SystemExit):
        main(["check", "rope", "broken:rope", "--dim", "32", "--layout", "half"])
    message = capsys.readouterr().err
    assert "RuntimeError: boom" in message
    assert sys.version_info < (3, 11) or "check.rope called it with ndarray (2, 3, 24, 32)" in message
