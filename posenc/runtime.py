"""Control of the threads and the instruction set that run a call."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from . import _core
from ._core_api import read
from ._core_api.constants import MOST_THREADS
from ._core_api.door import door, fail_value

EMULATED = ("amx-emulated",)
"""Instruction sets for tests: slow, on every machine, with the bits of the hardware. `isas` does not list them."""

__all__ = ["build_flags", "get_num_threads", "isa", "isas", "set_num_threads", "threads", "use_isa"]


def _cgroup_quota() -> float:
    """Return the number of CPUs that the control group of this process grants, or infinity."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").read_text()
            period = Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us").read_text()
        except OSError:
            return float("inf")
    return float("inf") if quota.strip() in ("max", "-1") else max(1.0, float(quota) / float(period))


def _is_joblib_worker() -> bool:
    """Return whether this process is a worker of loky, the default backend of joblib."""
    process = sys.modules.get("multiprocessing.process")  # loky has imported it; other programs need not
    return process is not None and process.current_process().name.startswith("Loky")


def _default_threads() -> int:
    if _is_joblib_worker():  # there are as many workers as CPUs
        return 1
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(min(affinity, _cgroup_quota(), MOST_THREADS))


@door
def set_num_threads(n: int) -> None:
    """Set the number of threads that one call may use.

    Results have the same bits for any `n`. Small calls use one thread.

    The default is the environment variable ``POSENC_NUM_THREADS``. Without it, the default is the number of CPUs that
    this process may run on, or the quota of its control group if that is smaller. In a worker process of joblib (loky)
    it is 1, because there are as many workers as CPUs. Calls of `posenc_bridges.torch` take the number of PyTorch,
    unless a number was chosen by this function or by the variable.

    Parameters
    ----------
    n : int
        At least 1.

    Raises
    ------
    TypeError, ValueError
        A number that is not an integer, below 1, or larger than the pool can be.

    Examples
    --------
    >>> import posenc
    >>> before = posenc.get_num_threads()
    >>> posenc.set_num_threads(1)
    >>> posenc.get_num_threads()
    1
    >>> posenc.set_num_threads(before)
    """
    global _is_chosen
    _core.set_threads(read.index("n", n, 1, MOST_THREADS))
    _is_chosen = True


_is_chosen = False
"""True if the user has chosen a number of threads for posenc."""


def follow_threads(n: int) -> None:
    """Use the number of threads of another library, unless the user has chosen one for posenc."""
    if not _is_chosen and n != _core.threads():
        _core.set_threads(min(n, MOST_THREADS))


def get_num_threads() -> int:
    """Return the number of threads that one call may use.

    Returns
    -------
    int
    """
    return _core.threads()


@contextmanager
def threads(n: int) -> Iterator[None]:
    """Set the number of threads inside a ``with`` block, for the whole process.

    Parameters
    ----------
    n : int
        As in `set_num_threads`.

    Examples
    --------
    >>> import posenc
    >>> with posenc.threads(1):
    ...     posenc.get_num_threads()
    1
    """
    global _is_chosen
    before, was_chosen = get_num_threads(), _is_chosen
    set_num_threads(n)
    try:
        yield
    finally:
        set_num_threads(before)
        _is_chosen = was_chosen


def isa() -> str:
    """Return the instruction set in use: "base", "avx2", "avx512", "avx512bf16" or "amx" (on aarch64 "base" is NEON).

    The last two are avx512 with instructions that multiply 16-bit numbers. Only `attention` of 16-bit queries uses
    these. On Linux, the first such call asks the system to permit AMX; if it refuses, the call runs on avx512.

    Returns
    -------
    str
    """
    return _core.isa()


def isas() -> tuple[str, ...]:
    """Return the compiled instruction sets that this machine can run, the slowest first.

    An installation from sources compiles ``base`` and the best instruction set of the CPU, or all of them with the
    environment variable ``POSENC_VARIANTS=all``.

    Returns
    -------
    tuple of str
    """
    return _core.isas()


def build_flags() -> str:
    """Return the compiler, the compiled instruction sets and the flags of the kernels, for bug reports.

    If this CPU runs a better instruction set that is not compiled, the text names it.

    Examples
    --------
    >>> import posenc
    >>> "-ffp-contract=fast" in posenc.runtime.build_flags()
    True
    """
    best = _core.cpu_best()
    missing = "" if best in isas() else f"; this CPU also runs {best}, which is not compiled: install posenc again"
    return _core.BUILD + missing


@contextmanager
def use_isa(name: str) -> Iterator[None]:
    """Use another instruction set inside a ``with`` block, for the whole process.

    A call that another thread has begun may run its next kernel on the new one: wait for such calls first. The
    environment variable ``POSENC_ISA`` sets the instruction set for the whole run.

    Parameters
    ----------
    name : str
        One of `isas`.

    Raises
    ------
    ValueError
        A name that does not exist, or an instruction set that this machine cannot run.

    Examples
    --------
    >>> import posenc
    >>> with posenc.runtime.use_isa("base"):
    ...     posenc.runtime.isa()
    'base'
    """
    before = isa()
    door(_set_isa, "use_isa")("name", name)
    try:
        yield
    finally:
        _core.set_isa(before)


def _set_isa(argument: str, name: str) -> None:
    if name not in EMULATED:
        read.choice(argument, name, isas())
    _core.set_isa(name)


@partial(door, name="posenc")
def _read_environment() -> None:
    count = os.environ.get("POSENC_NUM_THREADS", "")
    if not count:
        _core.set_threads(_default_threads())
    elif count.isdecimal() and len(count) < 10 and 1 <= int(count) <= MOST_THREADS:  # int() takes 4300 digits at most
        set_num_threads(int(count))
    else:
        fail_value(ValueError, "POSENC_NUM_THREADS", count, f"an integer from 1 to {MOST_THREADS}")
    name = os.environ.get("POSENC_ISA", "")
    if name:
        _set_isa("POSENC_ISA", name)


_read_environment()
