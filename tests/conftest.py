"""Fixtures that every file shares: each usable instruction set, random numbers, a fresh interpreter."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import posenc

ROOT = Path(posenc.__file__).parent.parent


@pytest.fixture(params=posenc.isas())
def isa(request):
    """The test runs once on each variant that this machine can run."""
    with posenc.use_isa(request.param):
        yield request.param


def pytest_collection_modifyitems(items):
    """What takes `isa` has seen every variant; a run for the sake of another variant leaves it out."""
    for item in items:
        if "isa" in getattr(item, "fixturenames", ()):
            item.add_marker("every_isa")


@pytest.fixture(autouse=True, scope="session")
def interrupts():
    """A shell starts what runs in the background with SIGINT ignored, and so would its children be."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def rng():
    return np.random.default_rng(20240413)


@pytest.fixture(scope="session")
def full():
    """POSENC_TEST_FULL=1 runs every combination; otherwise a fixed sample of them."""
    return os.environ.get("POSENC_TEST_FULL", "") not in ("", "0")


@pytest.fixture
def run_python():
    """Run a program in a fresh interpreter that imports the same posenc; its CompletedProcess."""

    def run(code, timeout=60, **environment):
        env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", code], env=env, timeout=timeout, capture_output=True, text=True,
            check=False,
        )  # fmt: skip

    return run
