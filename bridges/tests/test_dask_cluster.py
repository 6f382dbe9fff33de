"""posenc_bridges.dask on threads, on processes, and on two workers that speak TCP, one of which is killed."""

from __future__ import annotations

import os
import pickle
import signal
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import posenc

dask = pytest.importorskip("dask", reason="dask is not installed")
distributed = pytest.importorskip("distributed", reason="distributed is not installed")
import dask.array as da  # noqa: E402
from dask.core import get_deps  # noqa: E402
from dask.order import order  # noqa: E402
from dask.utils import key_split  # noqa: E402

import posenc_bridges.dask  # noqa: E402

OPTIONS = {"bias": posenc.alibi(posenc.alibi_slopes(4)), "causal": True}


@pytest.fixture(scope="module")
def client():
    """Two worker processes on this machine, connected by TCP."""
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        assert cluster.scheduler_address.startswith("tcp://")
        yield client


def inputs() -> list:
    rng = np.random.default_rng(0)
    return [da.from_array(rng.standard_normal((4, 64, 16), np.float32), chunks=(2, 16, 16)) for _ in range(4)]


def step(q, k, v, grad) -> tuple:
    """The results of attention and its gradient, and a rotation before them."""
    q, k = (posenc_bridges.dask.rope(x, 64, posenc.rope_frequencies(16), layout="half") for x in (q, k))
    out, lse = posenc_bridges.dask.attention(q, k, v, return_lse=True, **OPTIONS)
    gradient = posenc_bridges.dask.attention_vjp(grad, q, k, v, out=out, lse=lse, **OPTIONS)
    return out, lse, gradient.q, gradient.k, gradient.v, gradient.bias[0].slopes


@pytest.fixture(scope="module")
def expected() -> tuple:
    return dask.compute(*step(*inputs()), scheduler="synchronous")


def same(results, expected) -> None:
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, wanted, strict=True)


def test_threads(expected):
    same(dask.compute(*step(*inputs()), scheduler="threads", num_workers=3), expected)


def test_processes(expected):
    same(dask.compute(*step(*inputs()), scheduler="processes", num_workers=2), expected)


def test_two_workers_over_tcp(client, expected):
    same(client.gather(client.compute(step(*inputs()))), expected)


def die_once(chunk: np.ndarray, flag: str, block_id: tuple[int, ...] = ()) -> np.ndarray:
    """Return a chunk; the process that is the first to do so for chunk (1, 2, 0) kills itself."""
    if block_id == (1, 2, 0):
        try:
            Path(flag).touch(exist_ok=False)
        except FileExistsError:
            return chunk
        time.sleep(0.3)  # meanwhile the other worker computes
        os.kill(os.getpid(), signal.SIGKILL)
    return chunk


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows has no SIGKILL")
@pytest.mark.parametrize("number", [2, 3], ids=["forward", "backward"])
def test_a_worker_is_killed_in_the_middle(client, expected, tmp_path, number):
    """The forward pass reads the values, the backward pass the cotangent; the chunk that kills is in the middle."""
    arrays = inputs()
    arrays[number] = arrays[number].map_blocks(
        partial(die_once, flag=str(tmp_path / "killed")), dtype=np.float32, meta=np.empty((0, 0, 0), np.float32)
    )
    before = set(client.run(os.getpid).values())
    same(client.gather(client.compute(step(*arrays))), expected)
    client.wait_for_workers(2)
    after = set(client.run(os.getpid).values())
    assert (tmp_path / "killed").exists()
    assert len(before - after) == 1


def test_a_task_carries_a_description():
    """No task of a million tokens carries an array: a pair of chunks is its keys, two ranges and the options."""
    q, k, v = (da.empty((8, 2**20, 64), chunks=(8, 8192, 64), dtype=np.float32) for _ in range(3))
    out, lse = posenc_bridges.dask.attention(q, k, v, return_lse=True, **{**OPTIONS, "bias": posenc.alibi(np.ones(8))})
    graph = dict(out.__dask_graph__())
    pairs = [task for key, task in graph.items() if key_split(key) == "attention-pair"]
    assert len(pairs) == 128 * 129 // 2
    assert max(len(pickle.dumps(task)) for task in pairs[::100]) < 2000
    gradient = posenc_bridges.dask.attention_vjp(
        out, q, k, v, out=out, lse=lse, **{**OPTIONS, "bias": posenc.alibi(np.ones(8))}
    )
    assert gradient.q.chunks == q.chunks


def test_the_gradient_holds_few_partial_results():
    """In the order in which dask takes 64 chunks of queries, at most two partial gradients of a chunk of keys exist."""
    count, chunk = 64, 8
    arrays = [
        da.empty((2, count * chunk, 4), chunks=(2, chunk, 4), name=name) for name in ("q", "k", "v", "grad", "out")
    ]
    lse = da.empty((2, count * chunk), chunks=(2, chunk), name="lse")
    *qkv, grad, out = arrays
    gradient = posenc_bridges.dask.attention_vjp(grad, *qkv, out=out, lse=lse, causal=True)[:3]
    graph = {key: task for result in gradient for key, task in dict(result.__dask_graph__()).items()}
    priority, (needed, users) = order(graph), get_deps(graph)
    held, most, unread = set(), 0, {key: len(found) for key, found in users.items()}
    for key in sorted(graph, key=priority.__getitem__):
        if key[1] == "kv":
            held.add(key)
        most = max(most, len(held))
        for one in needed[key]:
            unread[one] -= 1
            held -= {one} if not unread[one] else set()
    assert count < most <= 2 * count


@pytest.mark.parametrize(("window", "made"), [((1023, 0), 2 * 128 - 1), ((8193, 0), 3 * 128 - 3), ((0, 0), 128)])
def test_pairs_beyond_the_window_are_not_made(window, made):
    q, k, v = (da.empty((8, 2**20, 64), chunks=(8, 8192, 64), dtype=np.float32) for _ in range(3))
    graph = dict(posenc_bridges.dask.attention(q, k, v, window=window).__dask_graph__())
    assert sum(key_split(key) == "attention-pair" for key in graph) == made


def test_documents_meet_themselves_only():
    """Packed documents of 3 chunks each: of 6 x 6 pairs, those within a document exist, and half of them if causal."""
    q, k, v = (da.empty((8, 60, 8), chunks=(8, 10, 8)) for _ in range(3))
    segments = np.repeat([7, 3], 30)
    for causal, made in ((False, 18), (True, 12)):
        out = posenc_bridges.dask.attention(q, k, v, q_segments=segments, k_segments=segments, causal=causal)
        assert sum(key_split(key) == "attention-pair" for key in dict(out.__dask_graph__())) == made
