"""Call posenc from many threads at once, and compare every result bit for bit with the result of one thread.

    python benchmarks/tools/threads.py --seconds 600

The calls are the rows of tests/cases at several sizes, with their gradients. Meanwhile one thread more changes the
number of threads of the pool and, in every second phase of a second, the instruction set. A function that overlaps
such a change may run its kernels on different ones: its results must be within the bounds of the case. Gradients are
called in the other phases only, because they have no such bounds.

`--race` is the positive control of `.ci/sanitizers`: two threads write the same `out`, and ThreadSanitizer must say so.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

import tools  # noqa: F401  first: it makes posenc and tests/cases importable

import numpy as np  # isort: skip
from cases import CASES, Case
from cases.deviation import share_of_bound

import posenc

PHASE_SECONDS = 1.0


def bits(results: Iterable[Any]) -> list[bytes]:
    return [np.asarray(one).tobytes() for one in results]


class Work:
    """One call and its gradient, with the bytes of their results, those of the call on each instruction set."""

    def __init__(self, case: Case, n: int, dtype: Any) -> None:
        self.case, self.arguments, self.options = case, case.arguments(n, dtype), case.options(dtype)
        self.dtype = np.dtype(dtype)
        self.name = f"{case.name} n={n} {np.dtype(dtype).name}"
        rng = np.random.default_rng(0)
        self.grads: tuple[np.ndarray, ...] = ()
        if case.gradients:
            self.grads = tuple(rng.standard_normal(np.shape(r)) for r in case.call(self.arguments, **self.options))
        self.backward, self.forward = self.gradients(), list[list[bytes]]()
        for isa in dict.fromkeys((posenc.runtime.isa(), *posenc.runtime.isas())):  # the one in use is the first
            with posenc.runtime.use_isa(isa):
                self.forward.append(bits(self.results()))

    def results(self) -> Any:
        return self.case.call(self.arguments, **self.options)

    def is_near(self, results: Any) -> bool:
        if bits(results) in self.forward:
            return True
        return share_of_bound(self.case, results, self.arguments, self.dtype) <= 1

    def gradients(self) -> list[bytes]:
        found = self.case.vjp(self.grads, self.arguments) if self.grads else {}
        return bits(found[name] for name in self.case.gradients if name in found)


class Stress:
    """Threads that compute, and one that changes the controls."""

    def __init__(self, work: list[Work], threads: int, seconds: float, seed: int) -> None:
        self.work, self.seed, self.until = work, seed, time.monotonic() + seconds
        self.changing = threading.Event()
        self.over = False
        self.barrier = threading.Barrier(threads + 1, action=self.look_at_clock)
        self.counts = [0] * threads
        self.wrong: list[str] = []

    def look_at_clock(self) -> None:
        """Decide for all threads: if each looked itself, some could end and the others wait for them."""
        self.over = time.monotonic() >= self.until

    def compute(self, number: int) -> None:
        rng = np.random.default_rng([self.seed, number])
        while True:
            self.barrier.wait()  # the control thread begins a phase, or ends the run
            if self.over:
                return
            end = time.monotonic() + PHASE_SECONDS
            while time.monotonic() < end:
                work = self.work[int(rng.integers(len(self.work)))]
                changing = self.changing.is_set()
                try:
                    if changing:
                        same = work.is_near(work.results())
                    elif not work.grads or rng.random() < 0.5:
                        same = bits(work.results()) == work.forward[0]
                    else:
                        same = work.gradients() == work.backward
                except Exception as error:
                    self.wrong.append(f"{work.name}: {error!r}")
                    continue
                if not same:
                    self.wrong.append(work.name)
                self.counts[number] += 1
            self.barrier.wait()

    def control(self) -> None:
        rng = np.random.default_rng([self.seed, 1 << 20])
        changing = False
        while True:
            self.barrier.wait()
            if self.over:
                return
            end = time.monotonic() + PHASE_SECONDS
            while time.monotonic() < end:
                posenc.set_num_threads(int(rng.integers(1, 5)))
                if changing:
                    with posenc.runtime.use_isa(posenc.runtime.isas()[int(rng.integers(len(posenc.runtime.isas())))]):
                        time.sleep(0.001)
                time.sleep(0.001)
            self.barrier.wait()
            changing = not changing
            (self.changing.set if changing else self.changing.clear)()

    def run(self) -> None:
        targets = [threading.Thread(target=self.compute, args=(i,)) for i in range(len(self.counts))]
        targets.append(threading.Thread(target=self.control))
        for thread in targets:
            thread.start()
        for thread in targets:
            thread.join()


def race() -> None:
    """Two threads write one array, without a lock."""
    out = np.empty((512, 512), np.float32)
    barrier = threading.Barrier(2)

    def write() -> None:
        barrier.wait()
        for _ in range(20):
            posenc.sinusoidal(512, 512, out=out)

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sizes", type=int, nargs="+", default=[9, 65, 257], help="sizes of the cases")
    parser.add_argument("--race", action="store_true", help="write one array from two threads instead")
    options = parser.parse_args()
    if options.race:
        race()
        return 0
    begun = time.monotonic()
    posenc.set_num_threads(1)
    work = [
        Work(case, max(n, case.least), kind)
        for case in CASES
        for n, kind in zip(options.sizes, [np.float32, np.float64] * len(options.sizes), strict=False)
    ]
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    print(
        f"{len(work)} calls prepared in {time.monotonic() - begun:.0f} s; the GIL is {'on' if gil else 'off'}",
        flush=True,
    )
    stress = Stress(work, options.threads, options.seconds, options.seed)
    stress.run()
    for name in sorted(set(stress.wrong)):
        print(f"{stress.wrong.count(name)} times wrong: {name}")
    print(
        f"{sum(stress.counts)} calls on {options.threads} threads in {options.seconds:.0f} s, seed {options.seed}: "
        f"{len(stress.wrong)} differ from one thread"
    )
    return bool(stress.wrong)


if __name__ == "__main__":
    sys.exit(main())
