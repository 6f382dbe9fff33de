"""Hooks and fixtures of the tests of posenc and of the bridges: instruction sets, random numbers, an interpreter."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import posenc

ROOT = Path(posenc.__file__).parent.parent
os.environ.setdefault("MPLBACKEND", "agg")  # pyplot opens no windows
PATIENCE = float(os.environ.get("POSENC_TEST_PATIENCE") or 1)
"""Factor on every timeout, for emulators and busy machines: POSENC_TEST_PATIENCE=20 under qemu."""


def pytest_addoption(parser):
    parser.addoption(
        "--all",
        action="store_true",
        help="run also the slow tests, and the tests of values on every instruction set instead of the one in use",
    )


def pytest_generate_tests(metafunc):
    """Run a test with the fixture `isa` on the instruction set in use, the best one or POSENC_ISA; with --all once on
    each of this machine, unless an emulation is in use."""
    if "isa" in metafunc.fixturenames:
        is_each = metafunc.config.getoption("all") and posenc.runtime.isa() in posenc.runtime.isas()
        metafunc.parametrize("isa", posenc.runtime.isas() if is_each else (posenc.runtime.isa(),), indirect=True)


@pytest.fixture
def isa(request):
    """The instruction set of the test, see `pytest_generate_tests`."""
    with posenc.runtime.use_isa(request.param):
        yield request.param


def is_in_default_run(item, seen):
    """False for slow tests, and for three of four combinations of a sweep; `seen` counts those of each function."""
    seen[item.function] += 1
    is_chosen = not item.get_closest_marker("sweep") or seen[item.function] % 4 == 1
    return is_chosen and not item.get_closest_marker("slow")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    """Say how to run a failed test again. Its seeds are fixed, and hypothesis derives its examples from the test."""
    report = (yield).get_result()
    if report.failed:
        again = f"POSENC_ISA={posenc.runtime.isa()} python -m pytest '{item.nodeid}'"
        report.sections.append(("run this case again", again))


def pytest_collection_modifyitems(config, items):
    """Without --all, leave tests out, unless tests are named or -m selects among them."""
    named = config.getoption("markexpr") or any("::" in argument for argument in config.args)
    if not config.getoption("all") and not named:
        seen = Counter()
        chosen = [(item, not hasattr(item, "function") or is_in_default_run(item, seen)) for item in items]
        config.hook.pytest_deselected(items=[item for item, stays in chosen if not stays])
        items[:] = [item for item, stays in chosen if stays]


@pytest.fixture(autouse=True, scope="session")
def interrupts():
    """Restore the default handler of SIGINT, which a shell ignores in background processes and their children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def figures():
    """Close the figures of pyplot after a test: matplotlib warns of the twenty-first."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture
def rng():
    return np.random.default_rng(20240413)


@pytest.fixture
def run_python():
    """A function that runs a program in a fresh interpreter with the same posenc and returns its CompletedProcess."""

    def run(code, timeout=60, warnings="error", **environment):
        env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        return subprocess.run(
            [sys.executable, "-W", warnings, "-c", code],
            env=env,
            timeout=timeout * PATIENCE,
            capture_output=True,
            text=True,
            check=False,
        )

    return run
