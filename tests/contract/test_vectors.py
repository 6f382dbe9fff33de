"""examples/vectors: every function has a case, posenc is within every bound, and other languages can read them."""

import inspect
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cases.vectors import WITHOUT

import posenc
import vectors as tool
from posenc import analysis

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "vectors"
PAGE = (ROOT / "docs" / "guides" / "vectors.md").read_text(encoding="utf-8")
TENSORS, CASES = tool.unpacked((FOLDER / "vectors.safetensors").read_bytes())
FUNCTIONS = {case["function"].removeprefix("analysis.") for case in CASES}


def test_every_function_has_a_vector():
    """A function without one is in the table, and in the page; f_vjp is the gradient of f."""
    named = ((name, getattr(module, name)) for module in (posenc, analysis) for name in module.__all__)
    functions = {name for name, f in named if inspect.isfunction(f) and f.__module__ != "posenc.runtime"}
    assert {name for name in functions if not name.endswith("_vjp")} == FUNCTIONS | set(WITHOUT)
    assert not FUNCTIONS & set(WITHOUT)
    rows = dict(re.findall(r"^\| (`.+) \| ([^|]+) \|$", PAGE.partition("## Checking")[2], re.MULTILINE))
    listed = {name: reason for names, reason in rows.items() for name in re.findall(r"`(\w+)`", names)}
    assert listed.pop("f_vjp")
    assert listed == WITHOUT


def test_names_sources_and_bounds():
    names = [case["name"] for case in CASES]
    assert len(set(names)) == len(names)
    for case in CASES:
        assert case["source"]
        for result in case["results"]:
            expected = TENSORS[result["expected"]["tensor"]]
            assert not np.isnan(expected).any()
            for precision in set(result) & set(tool.PRECISIONS):
                bound = TENSORS[result[precision]["tensor"]]
                assert bound.shape == expected.shape
                assert np.all((bound >= 0) & (bound <= 1e-2 * np.abs(expected[np.isfinite(expected)]).max(initial=1)))


def test_posenc_is_within_every_bound(isa):
    errors = tool.check(FOLDER)
    assert {error.precision for error in errors} == set(tool.PRECISIONS)
    assert [error for error in errors if not error.share <= 1] == []


def changed(directory, name, add):
    """A copy of the vectors in which a number is another."""
    shutil.copytree(FOLDER, directory)
    tensors = {key: array.copy() for key, array in TENSORS.items()}
    tensors[name].flat[1] += add
    (directory / "vectors.safetensors").write_bytes(tool.packed(tensors, CASES))
    return directory


def test_check_names_what_is_wrong(tmp_path, capsys):
    """An expected number that is changed by twice its bound, and one that is infinite."""
    assert tool.main([str(FOLDER), "--check"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^float32: \d+ cases; largest error 0\.\d+ of its bound, in [\w-]+$", said, re.MULTILINE)
    for name, add, times in (
        ("rope-half", 2.5 * TENSORS["rope-half/float64/0"].flat[1], r"[23]\.?\d*"),
        ("attention", np.inf, "inf"),
    ):
        assert tool.main([str(changed(tmp_path / name, f"{name}/expected/0", add)), "--check"]) == 1
        wanted = rf"^{name}: the error in float64 is {times} times its bound$"
        assert re.search(wanted, capsys.readouterr().out, re.MULTILINE)


BY_NAME = {case["name"]: case for case in CASES}


@pytest.mark.parametrize("name", ["rope-half@2^31", "sinusoidal@2^31", "complex_order@2^31"])
def test_a_rounded_product_of_position_and_frequency_fails_at_2_31(name, monkeypatch):
    """`posenc.reference` in float64 rounds the angle."""
    case = BY_NAME[name]
    monkeypatch.setattr(posenc, case["function"], getattr(posenc.reference, case["function"]))
    (found,) = tool.compute(case, TENSORS, "float64")
    expected, bound = (TENSORS[case["results"][0][key]["tensor"]] for key in ("expected", "float64"))
    assert 1000 < tool.share_of_bound(found, expected, bound) < np.inf


def test_refusals(tmp_path, monkeypatch, capsys):
    for words, wanted in (
        (["--check", str(tmp_path)], f"{tmp_path}: No such file or directory"),
        ([str(tmp_path)], f"{tmp_path / 'cases'}: not found; expected a clone"),
    ):
        monkeypatch.setattr(tool, "TESTS", tmp_path)
        with pytest.raises(SystemExit, match=r"^2$"):
            tool.main(words)
        assert wanted in capsys.readouterr().err


# ---- other languages ----

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
STRICT = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror"]


def run(*command):
    """Run a program without the sanitizers that this process may have been started with."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.skipif(COMPILER is None, reason="no C compiler in PATH")
def test_a_program_in_c_computes_vectors(tmp_path):
    """And it notices an error of two bounds."""
    built = run(COMPILER, *STRICT, "examples/vectors/check.c", "-lm", "-o", str(tmp_path / "check"))
    assert built.returncode == 0, built.stderr
    done = run(str(tmp_path / "check"), "examples/vectors")
    assert done.returncode == 0, done.stdout
    found = dict(re.findall(r"^(\S+) +([\d.]+) of the bound$", done.stdout, re.MULTILINE))
    assert {"rope-half@2^31", "rope-interleaved@2^31", "sinusoidal@2^31", "alibi_slopes", "t5_bucket-far"} <= set(found)
    assert all(float(share) <= 1 for share in found.values())
    assert done.stdout.endswith(f"{len(found)} cases, 0 beyond their bounds\n")
    wrong = run(str(tmp_path / "check"), str(changed(tmp_path / "changed", "sinusoidal@2^31/expected/0", 1e-15)))
    assert wrong.returncode == 1
    assert wrong.stdout.endswith(f"{len(found)} cases, 1 beyond their bounds\n")


PROGRAMS = {
    "javascript": ("read.js", "node", []),
    "rust": ("read.rs", "rustc", ["--edition", "2021", "-D", "warnings"]),
    "c": ("read.c", COMPILER or "cc", STRICT),
}


@pytest.mark.parametrize("language", PROGRAMS)
def test_programs_of_the_page(language, tmp_path):
    file, tool, options = PROGRAMS[language]
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not in PATH")
    (code,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(code.splitlines()) <= 12
    (tmp_path / file).write_text(code, encoding="utf-8")
    done = run(tool, *options, str(tmp_path / file), *(["-o", str(tmp_path / "read")] if options else []))
    if options:
        assert done.returncode == 0, done.stderr
        done = run(str(tmp_path / "read"))
    assert done.returncode == 0, done.stderr
    assert [float(x) for x in re.findall(r"[\d.e-]+", done.stdout)] == posenc.alibi_slopes(6).tolist()


def test_lines_of_the_page_are_those_of_the_file():
    (lines,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert lines in (FOLDER / "vectors.txt").read_text(encoding="utf-8")
