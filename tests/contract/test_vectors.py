"""vectors/: every function has a case, posenc is within every bound, and programs in other languages can read them."""

import inspect
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cases.vectors import NOT_FAR, PLACES, WITHOUT

import posenc
import vectors as tool
from posenc import analysis

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "vectors"
PAGE = (ROOT / "docs" / "guides" / "vectors.md").read_text(encoding="utf-8")
CASES = json.loads((FOLDER / "vectors.json").read_text(encoding="utf-8"))["cases"]
TENSORS = tool.unpacked((FOLDER / "vectors.safetensors").read_bytes())
FUNCTIONS = {case["function"].removeprefix("analysis.") for case in CASES}


def public_functions():
    """Names of the functions that compute numbers."""
    named = ((name, getattr(module, name)) for module in (posenc, analysis) for name in module.__all__)
    return {name for name, one in named if inspect.isfunction(one) and one.__module__ != "posenc.runtime"}


def test_every_function_has_a_vector():
    """A function without one is in the table, and in the page; f_vjp is the gradient of f."""
    functions = {name for name in public_functions() if not name.endswith("_vjp")}
    assert len(functions) > 70
    assert functions == FUNCTIONS | set(WITHOUT)
    assert not FUNCTIONS & set(WITHOUT)
    rows = dict(re.findall(r"^\| (`.+) \| ([^|]+) \|$", PAGE.partition("## Checking")[2], re.MULTILINE))
    listed = {name: reason for names, reason in rows.items() for name in re.findall(r"`(\w+)`", names)}
    assert listed.pop("f_vjp")
    assert listed == WITHOUT


def test_every_function_of_positions_has_a_vector_at_2_31():
    near = {case["function"] for case in CASES if set(PLACES) & set(case["arguments"])}
    far = {case["function"] for case in CASES if case["name"].endswith("@2^31")}
    counted = {"learned", "hierarchical"}
    assert far <= near
    assert near - far <= set(NOT_FAR) | counted
    assert not far & set(NOT_FAR)
    for case in CASES:
        if case["name"].endswith("@2^31"):
            given = (tool.decoded(case["arguments"][name], TENSORS) for name in PLACES if name in case["arguments"])
            assert max(np.max(places) for places in given if np.ndim(places) or places == 2.0**31) == 2**31


def test_names_sources_and_bounds():
    names = [case["name"] for case in CASES]
    assert len(set(names)) == len(names) > 200
    assert all(case["source"] for case in CASES)
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) <= 2_000_000
    for case in CASES:
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


def test_check_names_what_is_wrong(tmp_path, capsys):
    """An expected number that is changed by twice its bound, and one that is infinite."""
    assert tool.main([str(FOLDER), "--check"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^float32: \d+ cases; largest error 0\.\d+ of its bound, in [\w-]+$", said, re.MULTILINE)
    shutil.copytree(FOLDER, tmp_path / "changed")
    tensors = {name: array.copy() for name, array in TENSORS.items()}
    tensors["rope-half/expected/0"].flat[3] += 2.5 * TENSORS["rope-half/float64/0"].flat[3]
    tensors["attention/expected/1"].flat[0] = np.inf
    (tmp_path / "changed" / "vectors.safetensors").write_bytes(tool.packed(tensors))
    assert tool.main([str(tmp_path / "changed"), "--check"]) == 1
    said = capsys.readouterr().out
    assert re.search(r"^rope-half: the error in float64 is [23]\.?\d* times its bound$", said, re.MULTILINE)
    assert "attention: the error in float64 is inf times its bound\n" in said


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


def test_safetensors_reads_the_arrays():
    library = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    found = library.load_file(FOLDER / "vectors.safetensors")
    assert found.keys() == TENSORS.keys()
    for name, array in found.items():
        assert array.dtype == TENSORS[name].dtype
        assert np.array_equal(array, TENSORS[name])


# ---- other languages ----

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
STRICT = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror"]
needs_c = pytest.mark.skipif(COMPILER is None, reason="no C compiler in PATH")


def run(*command):
    """Run a program without the sanitizers that this process may have been started with."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120)


@needs_c
def test_a_program_in_c_computes_vectors(tmp_path):
    """And it notices an error of two bounds."""
    built = run(COMPILER, *STRICT, "vectors/check.c", "-lm", "-o", str(tmp_path / "check"))
    assert built.returncode == 0, built.stderr
    done = run(str(tmp_path / "check"), "vectors")
    assert done.returncode == 0, done.stdout
    found = dict(re.findall(r"^(\S+) +([\d.]+) of the bound$", done.stdout, re.MULTILINE))
    assert {"rope-half@2^31", "rope-interleaved@2^31", "sinusoidal@2^31", "alibi_slopes", "t5_bucket-far"} <= set(found)
    assert all(float(share) <= 1 for share in found.values())
    assert done.stdout.endswith(f"{len(found)} cases, 0 beyond their bounds\n")
    shutil.copytree(FOLDER, tmp_path / "changed")
    tensors = {name: array.copy() for name, array in TENSORS.items()}
    tensors["sinusoidal@2^31/expected/0"].flat[1] += 1e-15
    (tmp_path / "changed" / "vectors.safetensors").write_bytes(tool.packed(tensors))
    wrong = run(str(tmp_path / "check"), str(tmp_path / "changed"))
    assert wrong.returncode == 1
    assert wrong.stdout.endswith(f"{len(found)} cases, 1 beyond their bounds\n")


def program_of_page(language, file):
    (code,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(code.splitlines()) <= 12
    file.write_text(code, encoding="utf-8")
    return str(file)


def check_slopes(done):
    assert done.returncode == 0, done.stderr
    assert [float(x) for x in re.findall(r"[\d.e-]+", done.stdout)] == posenc.alibi_slopes(6).tolist()


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not in PATH")
def test_javascript_of_the_page(tmp_path):
    check_slopes(run("node", program_of_page("javascript", tmp_path / "read.js")))


@pytest.mark.skipif(shutil.which("rustc") is None, reason="rustc is not in PATH")
def test_rust_of_the_page(tmp_path):
    source = program_of_page("rust", tmp_path / "read.rs")
    built = run("rustc", "--edition", "2021", "-D", "warnings", "-o", str(tmp_path / "read"), source)
    assert built.returncode == 0, built.stderr
    check_slopes(run(str(tmp_path / "read")))


@needs_c
def test_c_of_the_page(tmp_path):
    built = run(COMPILER, *STRICT, program_of_page("c", tmp_path / "read.c"), "-o", str(tmp_path / "read"))
    assert built.returncode == 0, built.stderr
    check_slopes(run(str(tmp_path / "read")))


def test_lines_of_the_page_are_those_of_the_file():
    (lines,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert lines in (FOLDER / "vectors.txt").read_text(encoding="utf-8")
