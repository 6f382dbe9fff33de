"""The kernels run without Python: tests/c/kernels.c, with a compiler if there is one."""

import ast
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import posenc

HERE = Path(__file__).parent
CSRC = HERE.parents[1] / "csrc"
CC = os.environ.get("CC") or shutil.which("cc")
INCLUDE = ["-I", str(CSRC), "-I", str(CSRC / "kernels")]


def of_setup(name: str) -> Any:
    """A constant of setup.py, read without running it."""
    for node in ast.parse((CSRC.parent / "setup.py").read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            return ast.literal_eval(node.value)
    raise AssertionError(f"setup.py has no {name}")


def flags(isa: str) -> list[str]:
    """The flags of setup.py for a variant, and -O1, which compiles in less time."""
    own = of_setup("X86").get(isa, [])  # other machines have one variant
    return [*of_setup("GNU_FLAGS"), *own, "-O1", *os.environ.get("POSENC_CFLAGS", "").split()]


def run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)


def compiled(source: Path, folder: Path, isa: str, real: int) -> Path:
    target = folder / f"{source.parent.name}_{source.stem}.o"
    done = run(CC, *flags(isa), *INCLUDE, f"-DPE_ISA={isa}", f"-DPE_REAL={real}", "-c", source, "-o", target)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="module", params=[(isa, real) for isa in posenc.runtime.isas() for real in (32, 64)], ids=str)
def objects(request, tmp_path_factory):
    """The object files of one variant by the name of the source."""
    if not CC or not CSRC.exists():
        pytest.skip("there is no C compiler `cc`, or no sources")
    folder, (isa, real) = tmp_path_factory.mktemp("kernels"), request.param
    sources = [*sorted((CSRC / "kernels").rglob("*.c")), HERE / "kernels.c"]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda source: compiled(source, folder, isa, real), sources)
    return folder, (isa, real), {source.name: file for source, file in zip(sources, found, strict=True)}


def program(folder: Path, objects: dict[str, Path]) -> Path:
    done = run(CC, *flags("base"), *objects.values(), "-lm", "-o", folder / "kernels")
    assert done.returncode == 0, done.stderr
    return folder / "kernels"


@pytest.mark.skipif(not CC or not CSRC.exists(), reason="there is no C compiler `cc`, or no sources")
def test_the_probe_of_the_build(tmp_path):
    """setup.py compiles the variant that this program names."""
    done = run(CC, "-DPE_PROBE", "-I", CSRC, CSRC / "runtime" / "cpu.c", "-o", tmp_path / "probe")
    assert done.returncode == 0, done.stderr
    best = run(tmp_path / "probe").stdout.strip()
    assert best in posenc.runtime.isas() or f"runs {best}, which is not compiled" in posenc.runtime.build_flags()


@pytest.mark.slow
def test_kernels_without_python(objects):
    folder, _, files = objects
    done = run(program(folder, files))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "correct", "wrong", "output"),
    [
        ("rope.c", "-(x1 * s[k])", "(x1 * s[k])", "rope: number"),
        ("alibi.c", "fabs_(rel[j]))", "rel[j])", "alibi: number"),
    ],
)
def test_a_fault_is_found(objects, tmp_path, name, correct, wrong, output):
    _, variant, files = objects
    text = next((CSRC / "kernels").rglob(name)).read_text("utf-8")
    assert correct in text
    fault = tmp_path / name
    fault.write_text(text.replace(correct, wrong, 1), "utf-8")
    done = run(program(tmp_path, {**files, name: compiled(fault, tmp_path, *variant)}))
    assert done.returncode == 1, done.stderr
    assert output in done.stdout
