"""Simulate the schedule of posenc_bridges.dask.attention on more machines than are here, beside the plan on paper.

    python benchmarks/tools/schedule.py [--tokens 1e6 1e7] [--chunks 8192 65536] [--machines 8 32 128 512] [--gradient]

The graph is that of posenc_bridges.dask.attention, or of its attention_vjp, with the keys of every task. The times of
its tasks are measured here, on one processor: a pair of chunks, a pair on the diagonal, a merge of four partial results
or a sum of two partial gradients, and the scheduler's time for a task. They are measured for one kv head with its
queries and at most 4096 tokens; for all heads and longer chunks they are multiplied. A simulated machine divides them
by its number of processors, and runs one task at a time. A task goes to the machine that can start it first, among
those that hold its inputs and the one with the least work. Its other inputs are sent over one link into each machine,
whose bandwidth is an option, while the machine computes another task.

The plan has one line of arithmetic for each figure. With c tokens in a chunk:
- compute: 2 H (D + Dv) N (N + c) / 2 operations, 2.5 times as many for the gradient, at the measured rate of all
  machines;
- network: each machine receives the keys and values that its queries see, once for each of its chunks of queries; for
  the gradient it also receives as many partial gradients of keys and values;
- memory: the shares of q, k, v and out, and four chunks of each; for the gradient also the shares of the cotangent, of
  three gradients, and of two partial gradients of all keys and values.
"""

from __future__ import annotations

import argparse
import heapq
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask._task_spec import convert_legacy_graph
from dask.order import order
from distributed import Client

import posenc
import posenc_bridges.dask
from posenc_bridges.dask._tasks import Backward, Forward, add, merge_parts

Key = tuple[Any, ...]
AHEAD = 3
"""Tasks for which a machine fetches inputs; it runs the first of them whose inputs are there."""


class Times(NamedTuple):
    """Seconds of each kind of task."""

    pair: float
    diagonal: float
    """A pair of which causality leaves half."""
    reduce: dict[str, float]
    """A merge of four partial results, and sums of two partial gradients of queries and of keys and values."""

    def of(self, key: Key) -> float:
        kind = kind_of(key)
        if kind == "pair":
            return self.diagonal if key[2] == key[3] else self.pair
        return self.reduce.get("merge" if kind == "merge" else key[1] if kind == "sum" else "", 0.0)


def kind_of(key: Key) -> str:
    """Return the kind of a task, or the name of an array."""
    return str(key[0]).removeprefix("attention-").removeprefix("attention_vjp-").partition("-")[0]


def processor_seconds(call: Callable[[], Any], repeats: int = 3) -> float:
    """Return the least processor time of a call, in seconds; other programs on this machine do not count."""
    found = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return min(found)


def measure_tasks(chunk: int, heads: int, kv_heads: int, width: int, processors: int, gradient: bool) -> Times:
    """Measure tasks of one kv head on one processor; return the times of all heads on a machine."""
    c, group, rng = min(chunk, 4096), heads // kv_heads, np.random.default_rng(0)
    q, k, v, grad = (rng.standard_normal((h, c, width), np.float32) for h in (group, 1, 1, group))
    options = True, None, width**-0.5, None, False, width
    nothing = (None,) * 3

    def forward(first: int) -> Any:
        return Forward(*options)(q, k, v, *nothing, range(first, first + c), range(c), *nothing, [])

    def backward(first: int, out: Any, lse: Any) -> Any:
        places = range(first, first + c), range(c)
        return Backward(*options)(q, k, v, *nothing, *places, *nothing, [], grad, out, lse, None, grad)

    with posenc.threads(1):
        if gradient:
            calls = [partial(backward, first, *forward(first)) for first in (c, 0)]
            small = {"row": partial(add, q, grad), "kv": partial(add, (k, v), (k, v))}
        else:
            calls = [partial(forward, first) for first in (c, 0)]
            small = {"merge": partial(merge_parts, [forward(c)] * 4)}
        seconds = [processor_seconds(call) for call in calls]
        reduce = {name: processor_seconds(call) for name, call in small.items()}
    longer = chunk / c
    per_machine = kv_heads / processors
    return Times(*(one * longer**2 * per_machine for one in seconds),
                 {name: one * longer * per_machine for name, one in reduce.items()})  # fmt: skip


def measure_overhead(tasks: int = 2000) -> float:
    """Return the processor time that scheduler and client, which are in this process, take for a task."""
    with Client(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None) as client:
        client.gather(client.map(abs, range(10)))
        numbers = range(10, 10 + tasks)
        return processor_seconds(lambda: client.gather(client.map(abs, numbers, pure=False)), 1) / tasks


def graph_of(n: int, chunk: int, heads: int, kv_heads: int, width: int, window: int | None, gradient: bool) -> Any:
    """Return the graph of attention over n tokens or of its gradient; nothing is computed."""

    def empty(name: str, heads: int, *last: int) -> Any:
        return da.empty((heads, n, *last), chunks=(heads, chunk, *last), dtype=np.float32, name=name)

    q, k, v = (empty(name, of, width) for name, of in (("q", heads), ("k", kv_heads), ("v", kv_heads)))
    options: Any = {"causal": True, "window": None if window is None else (window - 1, 0)}
    if not gradient:
        return dict(posenc_bridges.dask.attention(q, k, v, **options).__dask_graph__())
    grad, out, lse = empty("grad", heads, width), empty("out", heads, width), empty("lse", heads)
    results = posenc_bridges.dask.attention_vjp(grad, q, k, v, out=out, lse=lse, **options)[:3]
    return {key: task for result in results for key, task in dict(result.__dask_graph__()).items()}


class Machines:
    """The state of all machines: when each is free, what it holds, and the largest size of that."""

    def __init__(self, count: int, bandwidth: float) -> None:
        self.bandwidth = bandwidth
        self.free = [0.0] * count
        self.link = [0.0] * count
        self.busy = [0.0] * count
        self.promised = [0.0] * count
        self.held = [0.0] * count
        self.peak = [0.0] * count
        self.received = [0.0] * count
        self.queues: list[list[tuple[int, Key]]] = [[] for _ in range(count)]
        self.idle = set(range(count))

    def hold(self, machine: int, size: float) -> None:
        self.held[machine] += size
        self.peak[machine] = max(self.peak[machine], self.held[machine])


def simulate(
    graph: dict[Key, Any],
    count: int,
    bandwidth: float,
    seconds: Callable[[Key], float],
    size: Callable[[Key], float],
    owner: Callable[[Key], int],
    overhead: float,
) -> Machines:
    """Run a graph on `count` machines; `owner` places the tasks without inputs, which take no time."""
    tasks = convert_legacy_graph(graph)
    inputs = {key: list(task.dependencies) for key, task in tasks.items()}
    priority = order(tasks)
    users: dict[Key, list[Key]] = {key: [] for key in inputs}
    for key, needed in inputs.items():
        for one in needed:
            users[one].append(key)
    waiting = {key: len(needed) for key, needed in inputs.items()}
    unused = {key: len(found) for key, found in users.items()}
    machines, holders = Machines(count, bandwidth), {}
    events: list[tuple[float, int, int, Key]] = []
    arrival: dict[tuple[int, Key], float] = {}
    scheduler = 0.0

    def missing(key: Key, machine: int) -> float:
        return sum(size(one) for one in inputs[key] if machine not in holders[one])

    def assign(key: Key) -> None:
        near = {machine for one in inputs[key] for machine in holders[one]} if len(inputs[key]) < 9 else set()
        least = min(range(count), key=machines.promised.__getitem__)
        chosen = min(near | {least}, key=lambda m: (machines.promised[m] + missing(key, m) / bandwidth, m))
        machines.promised[chosen] += seconds(key)
        heapq.heappush(machines.queues[chosen], (priority[key], key))
        if chosen in machines.idle:
            begin(chosen)

    def fetch(key: Key, machine: int) -> float:
        """Send a machine the inputs that it lacks; return when all inputs are there."""
        for one in inputs[key]:
            if machine not in holders[one]:
                machines.link[machine] = max(machines.link[machine], now) + size(one) / bandwidth
                machines.received[machine] += size(one)
                machines.hold(machine, size(one))
                holders[one].add(machine)
                arrival[machine, one] = machines.link[machine]
        return max((arrival.get((machine, one), 0.0) for one in inputs[key]), default=0.0)

    def begin(machine: int) -> None:
        machines.idle.discard(machine)
        queue = machines.queues[machine]
        arrivals = [(fetch(task[1], machine), task) for task in heapq.nsmallest(AHEAD, queue)]
        ready, task = min(arrivals, key=lambda found: (max(found[0], now), found[1]))
        queue.remove(task)
        heapq.heapify(queue)
        key = task[1]
        machines.free[machine] = max(ready, now) + seconds(key)
        machines.busy[machine] += seconds(key)
        heapq.heappush(events, (machines.free[machine], priority[key], machine, key))

    def finish(key: Key, machine: int) -> list[Key]:
        holders[key] = {machine}
        machines.hold(machine, size(key))
        ready = []
        for one in inputs[key]:
            unused[one] -= 1
            if not unused[one]:
                for other in holders[one]:
                    machines.held[other] -= size(one)
        for user in users[key]:
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
        return ready

    now = 0.0
    ready = [
        user for key in sorted(inputs, key=priority.__getitem__) if not inputs[key] for user in finish(key, owner(key))
    ]
    for key in sorted(ready, key=priority.__getitem__):
        assign(key)
    while events:
        now, _, machine, key = heapq.heappop(events)
        machines.promised[machine] -= seconds(key)
        scheduler = max(scheduler, now) + overhead
        found = finish(key, machine)
        now = scheduler
        for user in found:
            assign(user)
        if machines.queues[machine]:
            begin(machine)
        else:
            steal(machines, machine, begin)
    return machines


def steal(machines: Machines, thief: int, begin: Callable[[int], None]) -> None:
    """Give an idle machine the last task of the longest queue, as the scheduler of distributed does."""
    longest = max(range(len(machines.queues)), key=lambda m: len(machines.queues[m]))
    queue = machines.queues[longest]
    if not queue:
        machines.idle.add(thief)
        return
    last = max(queue)
    queue.remove(last)
    heapq.heapify(queue)
    machines.queues[thief].append(last)
    begin(thief)


def owner_of(key: Key, layout: str, machines: int, count: int) -> int:
    """Return the machine on which a chunk of q, k or v lies."""
    if layout == "contiguous":
        return int(key[2]) * machines // count
    place = int(key[2]) % (2 * machines)
    return min(place, 2 * machines - 1 - place)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=float, nargs="+", default=[1e6, 1e7])
    parser.add_argument("--machines", type=int, nargs="+", default=[8, 32, 128, 512])
    parser.add_argument("--chunks", type=int, nargs="+", default=[8192, 65536], help="one for each number of tokens")
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--processors", type=int, default=16, help="of a machine, each as the one that is measured")
    parser.add_argument("--bandwidth", type=float, default=1.25e9, help="bytes per second into a machine")
    parser.add_argument("--window", type=int)
    parser.add_argument("--gradient", action="store_true", help="the backward pass instead of the forward pass")
    parser.add_argument("--layouts", nargs="+", default=["contiguous", "zigzag"])
    given = parser.parse_args()
    heads, kv_heads, width = given.heads, given.kv_heads, given.width
    row = 4 * width  # bytes of a token and head
    overhead = measure_overhead()
    print(f"{heads} heads, {kv_heads} kv heads, D = {width}, float32, causal; {overhead * 1e3:.2f} ms per task")
    print(f"machines of {given.processors} processors ({posenc.isa()}) and {given.bandwidth / 1e9:.2f} GB/s")
    print("  tokens machines  chunk  pairs | plan: compute network memory | layout: time, busy, received, memory")
    for n, chunk in zip(map(int, given.tokens), given.chunks, strict=True):
        graph = graph_of(n, chunk, heads, kv_heads, width, given.window, given.gradient)
        count = -(-n // chunk)
        times = measure_tasks(chunk, heads, kv_heads, width, given.processors, given.gradient)
        operations = (10 if given.gradient else 4) * heads * width
        rate = operations * chunk * chunk / times.pair
        pairs = sum(kind_of(key) == "pair" for key in graph)
        reduce = ", ".join(f"{name} {seconds:.3g} s" for name, seconds in times.reduce.items())
        print(f"chunk {chunk}: pair {times.pair:.3g} s, diagonal {times.diagonal:.3g} s, {reduce}; "
              f"{rate / 1e9:.0f} Gflop/s per machine, {len(graph)} tasks")  # fmt: skip
        of_heads = {"parameters": 0, "k": kv_heads, "v": kv_heads, "kv": 2 * kv_heads, "lse": heads / width}

        def size(key: Key, chunk: int = chunk, of_heads: dict[str, float] = of_heads) -> float:
            kind = kind_of(key)
            if kind == "pair":
                return chunk * row * (heads + 2 * kv_heads * given.gradient)
            return chunk * row * of_heads.get(key[1] if kind in ("item", "sum") else kind, heads)

        for machines in given.machines:
            share = n / machines
            seen = n if given.window is None else min(n, given.window + share)
            work = operations * n * (n + chunk) / 2 if given.window is None else pairs * times.pair * rate
            shares = (4 * (heads + kv_heads) + 4 * kv_heads if given.gradient else 2 * (heads + kv_heads)) * share * row
            plan = (work / rate / machines,
                    (1 + given.gradient) * seen * kv_heads * row * max(1, count / machines) / given.bandwidth,
                    shares + 4 * chunk * row * (heads + kv_heads))  # fmt: skip
            line = f"{n:>8} {machines:>8} {chunk:>6} {pairs:>6} | "
            line += f"{plan[0]:8.0f} s {plan[1]:7.0f} s {plan[2] / 1e9:6.1f} GB |"
            for layout in given.layouts:
                owner = partial(owner_of, layout=layout, machines=machines, count=count)
                found = simulate(graph, machines, given.bandwidth, times.of, size, owner, overhead)
                total = max(found.free)
                line += (f" {layout}: {total:8.0f} s {100 * sum(found.busy) / machines / total:3.0f} %"
                         f" {max(found.received) / 1e9:6.1f} GB {max(found.peak) / 1e9:6.1f} GB")  # fmt: skip
            print(line, flush=True)


if __name__ == "__main__":
    main()
