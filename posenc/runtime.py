"""Threads and instruction sets: what runs a call, never what it returns."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import _core
from ._core_api.arguments import as_index, fail_value
from ._core_api.constants import MOST_THREADS

__all__ = ["build_flags", "get_num_threads", "isa", "isas", "set_num_threads", "threads", "use_isa"]


def _cgroup_quota() -> float:
    """CPUs that the control group of this process grants, or infinity."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").read_text()
            period = Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us").read_text()
        except OSError:
            return float("inf")
    return float("inf") if quota.strip() in ("max", "-1") else max(1.0, float(quota) / float(period))


def _default_threads() -> int:
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(min(affinity, _cgroup_quota(), MOST_THREADS))


def set_num_threads(n: int) -> None:
    """Let each call use at most `n` threads. Results are the same, bit for bit, for every `n`.

    The default is the environment variable ``POSENC_NUM_THREADS``, else the smaller of the CPUs that this process may
    run on and the quota of its control group. Small calls use one thread whatever is set.

    Examples
    --------
    >>> import posenc
    >>> before = posenc.get_num_threads()
    >>> posenc.set_num_threads(1)
    >>> posenc.get_num_threads()
    1
    >>> posenc.set_num_threads(before)
    """
    number = as_index("set_num_threads", "n", n, 1)
    if number > MOST_THREADS:
        fail_value(ValueError, "set_num_threads", "n", number, f"at most {MOST_THREADS}")
    _core.set_threads(number)


def get_num_threads() -> int:
    """How many threads a call may use."""
    count: int = _core.threads()
    return count


@contextmanager
def threads(n: int) -> Iterator[None]:
    """``with posenc.threads(n):`` at most `n` threads inside the block, for the whole process.

    Examples
    --------
    >>> import posenc
    >>> with posenc.threads(1):
    ...     posenc.get_num_threads()
    1
    """
    before = get_num_threads()
    set_num_threads(n)
    try:
        yield
    finally:
        set_num_threads(before)


def isa() -> str:
    """Name of the kernel variant in use: "base", "avx2" or "avx512" (on aarch64 "base" is NEON)."""
    name: str = _core.isa()
    return name


def isas() -> tuple[str, ...]:
    """Names of the variants that this machine can run, slowest first."""
    names: tuple[str, ...] = _core.isas()
    return names


def build_flags() -> str:
    """Compiler and flags that built the kernels, for bug reports.

    Examples
    --------
    >>> import posenc
    >>> "-ffp-contract=fast" in posenc.build_flags()
    True
    """
    flags: str = _core.build()
    return flags


@contextmanager
def use_isa(name: str) -> Iterator[None]:
    """``with posenc.use_isa("base"):`` that variant inside the block, for the whole process.

    The environment variable ``POSENC_ISA`` chooses one for the whole run. A name that does not exist or that this
    machine cannot run is a ValueError.

    Examples
    --------
    >>> import posenc
    >>> with posenc.use_isa("base"):
    ...     posenc.isa()
    'base'
    """
    if name not in isas():
        fail_value(ValueError, "use_isa", "name", name, "one of " + ", ".join(isas()))
    before = isa()
    _core.set_isa(name)
    try:
        yield
    finally:
        _core.set_isa(before)


def _from_environment() -> None:
    wanted = os.environ.get("POSENC_NUM_THREADS", "")
    if wanted:
        if not wanted.isdecimal() or not 1 <= int(wanted) <= MOST_THREADS:
            fail_value(ValueError, "posenc", "POSENC_NUM_THREADS", wanted, f"a whole number from 1 to {MOST_THREADS}")
        set_num_threads(int(wanted))
    else:
        set_num_threads(_default_threads())
    name = os.environ.get("POSENC_ISA", "")
    if name:
        if name not in isas():
            fail_value(ValueError, "posenc", "POSENC_ISA", name, "one of " + ", ".join(isas()))
        _core.set_isa(name)


_from_environment()
