"""Tasks of a developer: `nox -l` lists them, `nox -s lint` runs one.

The sessions `tests` and `docs` run commands of README.md, as they stand there. By default each session
has its own environment. With `nox --no-venv` it uses the current environment, in which posenc is already installed,
and adds only what is missing; `.ci/run` calls all but `bridges` in this way.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "venv"

ROOT = Path(__file__).resolve().parent
PROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
BRIDGES = nox.project.load_toml(ROOT / "bridges" / "pyproject.toml")
PEERS = BRIDGES["project"]["optional-dependencies"]["test"]
"""Packages that the bridges' tests compare with."""
RUNTIMES = ("onnxruntime", "openvino")
"""Packages that only the benchmarks compare with."""
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Thread pools of BLAS and torch that spin for the same cores take up to twenty times as long as one thread each."""


def readme_command(package: str) -> tuple[list[str], list[str]]:
    """Return the command of README.md that installs this: its installation and the rest, without the comment."""
    pattern = rf"^(pip install -e {re.escape(package)}) && ([^#\n]+)"
    found = re.search(pattern, (ROOT / "README.md").read_text(), re.MULTILINE)
    if found is None:
        raise ValueError(f"README.md has no command that begins with pip install -e {package} &&")
    return shlex.split(found[1]), shlex.split(found[2])


def install(session: nox.Session, *requirements: str) -> None:
    session.run("python", "-m", "pip", "install", "-q", *requirements)


def requirements(extra: str) -> list[str]:
    return list(PROJECT["project"]["optional-dependencies"][extra])


def run_readme_command(session: nox.Session, package: str) -> None:
    """Run a command of README.md; further arguments of the session are appended to it."""
    pip, command = readme_command(package)
    if session.venv_backend == "none":
        pip = ["python", "-m", *pip, "-q"]
    session.run(*pip)
    session.run(*command, *session.posargs, env=ONE_THREAD)


@nox.session
def tests(session: nox.Session) -> None:
    """README's second command; for example: nox -s tests -- -n 2 -k rope."""
    run_readme_command(session, '".[test]"')


@nox.session(default=False)
def bridges(session: nox.Session) -> None:
    """Test posenc-bridges beside torch, transformers, ONNX, JAX, dask and others; posenc is installed as by a user."""
    install(session, ".", "./bridges[test]")
    session.chdir("bridges")
    session.run("python", "-m", "pytest", *session.posargs, env=ONE_THREAD)


@nox.session(default=False)
def benchmarks(session: nox.Session) -> None:
    """Measure everything beside every peer, into benchmarks/results; for example: nox -s benchmarks -- --quick."""
    install(session, *PEERS, *RUNTIMES)
    if session.venv_backend != "none":
        install(session, "-e", ".[test]", "-e", "./bridges")
    session.run("python", "benchmarks/run.py", *session.posargs)


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """README's command for the manual; the pages must need no network."""
    run_readme_command(session, '".[docs]"')
    for program in ("docs/function_text.py", "docs/benchmark_page.py", "docs/pictures.py"):
        session.run("python", program, "--check")
    pages = sorted((ROOT / "build" / "docs-html").rglob("*.html"))
    loads = re.compile(r'<(?:script|link|img)[^>]*(?:src|href)="(?:https?:)?//')
    if remote := [str(page) for page in pages if loads.search(page.read_text())]:
        session.error(f"pages load from the network: {', '.join(remote)}")


@nox.session(default=False)
def explore(session: nox.Session) -> None:
    """Compare the numbers of docs/explore with the library's, and move every control; needs chromium in PATH."""
    install(session, "playwright", "ziglang")
    if session.venv_backend != "none":
        install(session, "-e", ".[test]")
    session.run("python", "-m", "pytest", "tests/docs/test_explore.py", "--all", *session.posargs, env=ONE_THREAD)


@nox.session(default=False)
def vectors(session: nox.Session) -> None:
    """Write the test vectors, and compare them with the committed ones; the tests check those."""
    install(session, *requirements("vectors"), *(["-e", "."] if session.venv_backend != "none" else []))
    written = Path(session.create_tmp())
    session.run("python", "examples/vectors", str(written))
    for file in sorted(written.glob("vectors.*")):
        if file.read_bytes() != (ROOT / "examples" / "vectors" / file.name).read_bytes():
            session.error(f"{file.name} is out of date; run python examples/vectors")


@nox.session
def lint(session: nox.Session) -> None:
    """Check form and types with the pinned tools of the dependency group `lint`; nothing is compiled."""
    group = nox.project.dependency_groups(PROJECT, "lint")
    install(session, *group, *requirements("test"), *PROJECT["project"]["dependencies"])
    sources = subprocess.check_output(["git", "ls-files", "*.[ch]"], cwd=ROOT, text=True).split()
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("clang-format", "--dry-run", "--Werror", *sources)
    session.run("git", "grep", "-nE", "^.{121,}", "--", "csrc", external=True, success_codes=[1])  # comments, too
    inexact = ("-e", "-(ffast-math|Ofast|march=native)", "--and", "--not", "-e", "no -ffast-math")  # a comment
    session.run("git", "grep", "-nE", *inexact, "--", "setup.py", "csrc", external=True, success_codes=[1])


@nox.session(default=False)
def coverage(session: nox.Session) -> None:
    """Print which share of the lines of posenc (coverage.py) and of csrc (gcovr) the tests run."""
    group = nox.project.dependency_groups(PROJECT, "coverage")
    install(session, *group, *requirements("test"), *PROJECT["project"]["dependencies"], "setuptools")
    tree = Path(session.create_tmp()).resolve() / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    session.run("git", "clone", "-q", ".", str(tree), external=True)
    session.chdir(tree)
    # -O1: with -O3 gcc moves counters, and lines of inlined functions are lost. Children that a test kills write none.
    flags = {"POSENC_CFLAGS": "-O1 --coverage -fprofile-update=prefer-atomic", "POSENC_LDFLAGS": "--coverage"}
    session.run("python", "setup.py", "-q", "build_ext", "--inplace", env=flags)
    marked = ("-m", "not slow", *(session.posargs or ("-n", "2")))
    patient = {**ONE_THREAD, "POSENC_TEST_PATIENCE": "20"}  # counted lines take many times as long
    session.run("python", "-m", "coverage", "run", "-m", "pytest", *marked, env=patient)
    session.run("python", "-m", "coverage", "combine", "-q")
    session.run("python", "-m", "coverage", "report", "--skip-covered", "--sort=cover")
    # Lines of a macro or an inlined function count once, and no count is taken for an error because it is large.
    counts = ("--merge-lines", "--gcov-suspicious-hits-threshold", "0")
    session.run("gcovr", "--root", str(tree), "--filter", "csrc/", *counts, "--sort", "uncovered-percent", "build")
