"""The kernels run without Python: tests/c/kernels.c, with a compiler if there is one."""

import ast
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CSRC = HERE.parents[1] / "csrc"
CC = os.environ.get("CC") or shutil.which("cc")
INCLUDE = ["-I", str(CSRC), "-I", str(CSRC / "kernels")]


def flags() -> list[str]:
    """The flags of setup.py, and -O1, which compiles in less time."""
    for node in ast.parse((CSRC.parent / "setup.py").read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "GNU_FLAGS":
            return [*ast.literal_eval(node.value), "-O1", *os.environ.get("POSENC_CFLAGS", "").split()]
    raise AssertionError("setup.py has no GNU_FLAGS")


def run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)


def compiled(source: Path, folder: Path, real: int) -> Path:
    target = folder / f"{source.parent.name}_{source.stem}.o"
    done = run(CC, *flags(), *INCLUDE, "-DPE_ISA=base", f"-DPE_REAL={real}", "-c", source, "-o", target)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="module", params=[32, 64])
def objects(request, tmp_path_factory):
    """The object files of one variant by the name of the source."""
    if not CC or not CSRC.exists():
        pytest.skip("there is no C compiler `cc`, or no sources")
    folder, real = tmp_path_factory.mktemp("kernels"), request.param
    sources = [*sorted((CSRC / "kernels").rglob("*.c")), HERE / "kernels.c"]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda source: compiled(source, folder, real), sources)
    return real, folder, {source.name: file for source, file in zip(sources, found, strict=True)}


def program(folder: Path, objects: dict[str, Path]) -> Path:
    done = run(CC, *flags(), *objects.values(), "-lm", "-o", folder / "kernels")
    assert done.returncode == 0, done.stderr
    return folder / "kernels"


@pytest.mark.slow
def test_kernels_without_python(objects):
    _, folder, files = objects
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
    real, _, files = objects
    text = next((CSRC / "kernels").rglob(name)).read_text("utf-8")
    assert correct in text
    fault = tmp_path / name
    fault.write_text(text.replace(correct, wrong, 1), "utf-8")
    done = run(program(tmp_path, {**files, name: compiled(fault, tmp_path, real)}))
    assert done.returncode == 1, done.stderr
    assert output in done.stdout
