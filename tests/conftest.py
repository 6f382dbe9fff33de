"""Fixtures of all tests: each usable instruction set, random numbers, a fresh interpreter."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import posenc

ROOT = Path(posenc.__file__).parent.parent
PATIENCE = float(os.environ.get("POSENC_TEST_PATIENCE") or 1)
"""Factor on every timeout, for emulators and busy machines: POSENC_TEST_PATIENCE=20 under qemu."""


@pytest.fixture(params=posenc.isas())
def isa(request):
    """Run the test once on each instruction set that this machine has."""
    with posenc.use_isa(request.param):
        yield request.param


def pytest_collection_modifyitems(items):
    """Mark tests with the fixture `isa`: they run on every instruction set, so a run on another one may omit them."""
    for item in items:
        if "isa" in getattr(item, "fixturenames", ()):
            item.add_marker("every_isa")


@pytest.fixture(autouse=True, scope="session")
def interrupts():
    """Restore the default handler of SIGINT, which a shell ignores in background processes and their children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def rng():
    return np.random.default_rng(20240413)


@pytest.fixture(scope="session")
def full():
    """True if POSENC_TEST_FULL=1 asks for every combination instead of a fixed sample."""
    return os.environ.get("POSENC_TEST_FULL", "") not in ("", "0")


@pytest.fixture
def run_python():
    """A function that runs a program in a fresh interpreter with the same posenc and returns its CompletedProcess."""

    def run(code, timeout=60, warnings="error", **environment):
        env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        return subprocess.run(
            [sys.executable, "-W", warnings, "-c", code], env=env, timeout=timeout * PATIENCE, capture_output=True,
            text=True, check=False,
        )  # fmt: skip

    return run
