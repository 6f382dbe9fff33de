"""Causal attention with ALiBi by posenc_bridges.dask on two worker processes, against one process with two threads.

    python benchmarks/tools/cluster.py [--tokens 32768] [--chunks 1024 2048 4096 8192] [--gradient] [--window 1024]

For each chunk length: the number of tasks and of skipped pairs, the time, the time that each worker ran tasks, the
overhead, which is the share of the workers' time in which no task ran, the processor time of the workers, which other
programs of the machine do not lengthen, and the peak memory of each worker. The workers make q, k and v.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections import defaultdict
from typing import Any

import dask.array as da
import numpy as np
from dask.utils import key_split
from distributed import Client, LocalCluster, get_task_stream, wait

import posenc
import posenc_bridges.dask

HEADS, WIDTH = 8, 64


def noise(block_id: tuple[int, ...] = (), n: int = 0, chunk: int = 0, seed: int = 0) -> np.ndarray:
    """Return a chunk of q, k or v."""
    length = min(chunk, n - block_id[1] * chunk)
    return np.random.default_rng([seed, block_id[1]]).standard_normal((HEADS, length, WIDTH), np.float32)


def inputs(n: int, chunk: int) -> list[Any]:
    lengths = tuple(min(chunk, n - first) for first in range(0, n, chunk))
    shape = ((HEADS,), lengths, (WIDTH,))
    return [
        da.map_blocks(
            noise, chunks=shape, dtype=np.float32, meta=np.empty((0, 0, 0), np.float32), n=n, chunk=chunk, seed=i
        )
        for i in range(4)
    ]


def peak_memory() -> int:
    """Return the largest resident memory of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def one_process(n: int, options: dict[str, Any], gradient: bool) -> None:
    arrays = [np.concatenate([noise((0, i, 0), n, 4096, seed) for i in range(-(-n // 4096))], 1) for seed in range(4)]
    with posenc.threads(2):
        start, of_processors = time.perf_counter(), time.process_time()
        out, lse = posenc.attention(*arrays[:3], **options, return_lse=True)
        if gradient:
            posenc.attention_vjp(arrays[3], *arrays[:3], out=out, lse=lse, **options)
        seconds, of_processors = time.perf_counter() - start, time.process_time() - of_processors
    print(
        f"one process, two threads: {seconds:.1f} s, processors {of_processors:.1f} s, "
        f"peak {peak_memory() / 2**20:.0f} MiB",
        flush=True,
    )


def place(client: Any, array: Any, workers: list[str], layout: str) -> Any:
    """Return an array whose chunks are in the memory of workers: one after the other, or there and back (zigzag)."""
    count, chunks = len(workers), array.numblocks[1]
    placed = []
    for i in range(chunks):
        turn = i % (2 * count)
        of_chunk = i * count // chunks if layout == "contiguous" else min(turn, 2 * count - 1 - turn)
        placed.append(client.persist(array.blocks[:, i], workers=[workers[of_chunk]], allow_other_workers=False))
    wait(placed)
    return da.concatenate(placed, axis=1)


def two_processes(
    n: int, chunk: int, options: dict[str, Any], gradient: bool, memory: str, layout: str = "zigzag"
) -> None:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, memory_limit=memory, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.run(posenc.set_num_threads, 1)
        workers = sorted(client.scheduler_info()["workers"])
        q, k, v, grad = (place(client, array, workers, layout) for array in inputs(n, chunk))
        start = time.perf_counter()
        out, lse = posenc_bridges.dask.attention(q, k, v, return_lse=True, **options)
        results = [out]
        if gradient:
            results += posenc_bridges.dask.attention_vjp(grad, q, k, v, out=out, lse=lse, **options)[:3]
        built = time.perf_counter() - start
        graph = {key: task for result in results for key, task in dict(result.__dask_graph__()).items()}
        made = sum(key_split(key).endswith("-pair") for key in graph)
        skipped = (1 + gradient) * q.numblocks[1] ** 2 - made
        of_processors = sum(client.run(time.process_time).values())
        start = time.perf_counter()
        with get_task_stream(client) as stream:
            results = client.persist(results)
            wait(results)
        seconds = time.perf_counter() - start
        of_processors = sum(client.run(time.process_time).values()) - of_processors
        busy: dict[str, float] = defaultdict(float)
        for record in stream.data:
            busy[record["worker"]] += sum(
                s["stop"] - s["start"] for s in record["startstops"] if s["action"] == "compute"
            )
        peaks = sorted(client.run(peak_memory).values())
        print(
            f"chunk {chunk:>6}: {made:>5} pairs, {skipped} skipped, {len(graph):>6} tasks, graph {built:.2f} s; "
            f"{seconds:7.1f} s; busy {' '.join(f'{s:.1f}' for s in busy.values())} s, "
            f"overhead {100 * (1 - sum(busy.values()) / (2 * seconds)):.1f} %; processors {of_processors:.1f} s; "
            f"peak {' '.join(f'{peak / 2**20:.0f}' for peak in peaks)} MiB",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument(
        "--chunks", type=int, nargs="*", default=[1024, 2048, 4096, 8192], help="none: only the one process"
    )
    parser.add_argument("--window", type=int, help="see this many keys back")
    parser.add_argument("--gradient", action="store_true", help="also the gradients of q, k and v")
    parser.add_argument("--layout", choices=["contiguous", "zigzag"], default="zigzag", help="of chunks on the workers")
    parser.add_argument("--memory", default="2GiB", help="limit of each worker")
    parser.add_argument("--no-reference", action="store_true", help="leave out the run in one process")
    given = parser.parse_args()
    options: dict[str, Any] = {"bias": posenc.alibi(posenc.alibi_slopes(HEADS)), "causal": True}
    if given.window:
        options["window"] = (given.window - 1, 0)
    print(f"{given.tokens} tokens, {HEADS} heads, D = {WIDTH}, causal, ALiBi, {posenc.isa()}", flush=True)
    for chunk in given.chunks:
        two_processes(given.tokens, chunk, options, given.gradient, given.memory, given.layout)
    if not given.no_reference:
        one_process(given.tokens, options, given.gradient)


if __name__ == "__main__":
    main()
