"""Simulate the schedule of posenc.dask.attention on more machines than are here, beside the plan on paper.

    python benchmarks/tools/schedule.py [--tokens 1e6 1e7] [--machines 8 32 128 512] [--chunk 8192]

The graph is that of posenc.dask.attention, with the keys of every task. Each machine runs one task at a time. A task
goes to the machine that can start it first, among those that hold its inputs and the one with the least work; what it
lacks is sent over one link into each machine. A pair of chunks takes the time that its multiplications and additions
take at the measured rate, and a task costs the scheduler a fixed time, one task after the other.

The plan has one line of arithmetic for each figure:
- compute: 2 H (D + Dv) N (N + c) / 2 operations at the rate of all machines;
- network: each machine receives the keys and values that its queries see, once for each of its chunks of queries;
- memory: the shares of q, k, v and out, two chunks of keys and values, and four partial results.
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Callable
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
from dask._task_spec import convert_legacy_graph
from dask.order import order

import posenc.dask

Key = tuple[Any, ...]


def graph_of(n: int, chunk: int, heads: int, kv_heads: int, width: int, window: int | None) -> tuple[Any, Any]:
    """Return the result of attention over n tokens, and its graph; nothing is computed."""
    q = da.empty((heads, n, width), chunks=(heads, chunk, width), dtype=np.float32)
    k, v = (da.empty((kv_heads, n, width), chunks=(kv_heads, chunk, width), dtype=np.float32, name=x) for x in "kv")
    limit = None if window is None else (window - 1, 0)
    out = posenc.dask.attention(q, k, v, causal=True, window=limit)
    return out, dict(out.__dask_graph__())


class Machines:
    """The state of all machines: when each is free, what it holds, and the largest size of that."""

    def __init__(self, count: int, bandwidth: float) -> None:
        self.bandwidth = bandwidth
        self.free = [0.0] * count
        self.started = [0.0] * count
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

    def begin(machine: int) -> None:
        machines.idle.discard(machine)
        _, key = heapq.heappop(machines.queues[machine])
        lacking = missing(key, machine)
        arrives = max(machines.link[machine], machines.started[machine], now) + lacking / bandwidth
        if not lacking:
            arrives = now
        else:
            machines.link[machine] = arrives
            machines.received[machine] += lacking
            for one in inputs[key]:
                if machine not in holders[one]:
                    holders[one].add(machine)
                    machines.hold(machine, size(one))
        start = max(machines.free[machine], arrives)
        machines.started[machine] = start
        machines.free[machine] = start + seconds(key)
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
    parser.add_argument("--chunks", type=int, nargs="+", help="one for each number of tokens")
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--rate", type=float, default=800e9, help="operations per second of a machine")
    parser.add_argument("--bandwidth", type=float, default=1.25e9, help="bytes per second into a machine")
    parser.add_argument("--overhead", type=float, default=0.5e-3, help="seconds of the scheduler per task")
    parser.add_argument("--window", type=int)
    parser.add_argument("--layouts", nargs="+", default=["contiguous", "zigzag"])
    given = parser.parse_args()
    heads, kv_heads, width = given.heads, given.kv_heads, given.width
    row = 4 * width  # bytes of a token and head
    print(f"{heads} heads, {kv_heads} kv heads, D = {width}, float32, causal; {given.rate / 1e9:.0f} GFlop/s, "
          f"{given.bandwidth / 1e9:.2f} GB/s and {given.overhead * 1e3:.1f} ms per task")  # fmt: skip
    print("  tokens machines  chunk  pairs | plan: compute network memory | layout: time, busy, received, memory")
    for n, chunk in zip(map(int, given.tokens), given.chunks or [8192, 32768], strict=True):
        _, graph = graph_of(n, chunk, heads, kv_heads, width, given.window)
        count = -(-n // chunk)
        of_pair = 4 * heads * width * chunk * chunk / given.rate
        pairs = sum(key[0].startswith("attention-pair") for key in graph)

        def seconds(key: Key, of_pair: float = of_pair, chunk: int = chunk) -> float:
            if key[0].startswith("attention-pair"):
                return of_pair / 2 if key[2] == key[3] else of_pair
            return 4 * heads * chunk * row / 20e9 if key[0].startswith("attention-merge") else 0.0

        def size(key: Key, chunk: int = chunk) -> float:
            return chunk * row * (kv_heads if key[0] in ("k", "v") else heads)

        for machines in given.machines:
            share = n / machines
            seen = n if given.window is None else min(n, given.window + share)
            work = 2 * heads * 2 * width * n * (n + chunk) / 2 if given.window is None else pairs * of_pair * given.rate
            plan = (work / given.rate / machines,
                    2 * seen / 2 * kv_heads * row * max(1, count / machines) / given.bandwidth,
                    2 * share * (heads + kv_heads) * row + 4 * chunk * row * (heads + kv_heads))  # fmt: skip
            line = f"{n:>8} {machines:>8} {chunk:>6} {pairs:>6} | "
            line += f"{plan[0]:8.0f} s {plan[1]:7.0f} s {plan[2] / 1e9:6.1f} GB |"
            for layout in given.layouts:
                owner = partial(owner_of, layout=layout, machines=machines, count=count)
                found = simulate(graph, machines, given.bandwidth, seconds, size, owner, given.overhead)
                total = max(found.free)
                line += (f" {layout}: {total:8.0f} s {100 * sum(found.busy) / machines / total:3.0f} %"
                         f" {max(found.received) / 1e9:6.1f} GB {max(found.peak) / 1e9:6.1f} GB")  # fmt: skip
            print(line, flush=True)


if __name__ == "__main__":
    main()
