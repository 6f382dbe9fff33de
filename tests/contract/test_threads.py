"""Threads, forks and Ctrl-C: results have the same bits on any number of threads, and nothing hangs."""

import os
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from cases import CASES
from cases.layouts import same_bits

import posenc

COUNTS = (1, 2, 3, 8)
UNMEASURED = {"COVERAGE_PROCESS_CONFIG": ""}
"""For a program that forks among threads: coverage.py takes a lock at each first line of a file, and a child that
inherits it in its locked state does not end."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.sweep
def test_results_do_not_depend_on_the_number_of_threads(case):
    """The arrays are large enough that the pool wakes up. Partial sums of gradients are added in the order of blocks,
    whichever thread computed them."""
    arguments, smaller = case.arguments(1025, np.float32), case.arguments(385)
    grads = tuple(np.cos(np.arange(np.size(e))).reshape(np.shape(e)) for e in case.call(smaller))
    results = []
    for count in COUNTS:
        with posenc.threads(count):
            gradients = case.vjp(grads, smaller) if case.gradients else {}
            results.append([*case.call(arguments), *(gradients[name] for name in case.gradients)])
    for other in results[1:]:
        assert all(map(same_bits, results[0], other))


def test_eight_python_threads_at_once(rng):
    """Callers that find the pool busy compute alone; no caller waits for or receives the result of another, or notices
    that the number of threads changes."""
    inputs = [rng.standard_normal((8, 512, 64)).astype(np.float32) for _ in range(8)]
    w = 10000.0 ** (-np.arange(32) / 32)

    def call(x):
        return [(posenc.rope(x, 512, w, layout="half"), posenc.attention(x[:2], x[:2], x[:2])) for _ in range(8)]

    wanted = [call(x)[0] for x in inputs]
    with posenc.threads(3), ThreadPoolExecutor(8) as pool:
        found = pool.map(call, inputs)
        for i in range(64):  # while others compute
            posenc.set_num_threads(1 + i % 4)
        for (rope, attention), pairs in zip(wanted, found, strict=True):
            assert all(same_bits(rope, a) and same_bits(attention, b) for a, b in pairs)


FORK = """
import math, os, signal, sys, time
import numpy as np
import posenc
posenc.set_num_threads(4)
def call():
    q = np.ones((4, 512, 32), np.float32)
    d = posenc.attention_vjp(q, q, q, q, out=q, lse=q[..., 0])
    return posenc.sinusoidal(4096, 512), posenc.attention(q, q, q), d.q, d.k
wanted = call()
SECONDS = math.ceil(5 * float(os.environ.get("POSENC_TEST_PATIENCE") or 1))
def check():
    signal.alarm(SECONDS)  # ends a process whose pool waits for threads that are no more
    for _ in range(3):
        assert all(np.array_equal(a, b) for a, b in zip(call(), wanted))
    signal.alarm(0)
import threading
stop = threading.Event()
def work():
    while not stop.is_set():
        call()
thread = threading.Thread(target=work); thread.start()
statuses = set()
for _ in range(5):  # forked while another thread may hold the pool
    time.sleep(0.01)
    pid = os.fork()
    if pid == 0:
        check()
        os._exit(0)
    statuses.add(os.waitpid(pid, 0)[1])
stop.set(); thread.join()
print(max(statuses))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_fork_while_another_thread_may_hold_the_pool(run_python):
    """test_tile_state.py forks when none does, and in the handler of a signal. Each process has five seconds for three
    calls that take a tenth of one, or POSENC_TEST_PATIENCE times as long."""
    done = run_python(FORK, **UNMEASURED)
    assert done.stdout.split() == ["0"], done.stderr


INTERRUPT = """
import os, signal, threading
import numpy as np
import posenc
posenc.set_num_threads({threads})
small = lambda: posenc.attention(*np.ones((3, 4, 512, 32), np.float32))
wanted = small()
{prepare}
timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
timer.start()
try:
    {call}
    print("finished")
except KeyboardInterrupt:
    timer.join()
    assert np.array_equal(small(), wanted), "the pool does not work afterwards"
    print("interrupted")
"""
LONG = {
    "attention": ("q = np.ones((8, 1 << 16, 128), np.float32)", "posenc.attention(q, q, q)"),
    "wide": ("q = np.ones((1, 64, 256)); k = np.lib.stride_tricks.as_strided(q, (1, 1 << 28, 256), (0, 0, 8))",
             "posenc.attention(q, k, k)"),
    "a worker alone": (
        "q = np.ones((1, 128, 64), np.float32); k = np.broadcast_to(q[:, :1], (1, 1 << 28, 64)); "
        "keep = np.ones((1, 128, 1), bool); keep[:, :64] = False",  # no key is visible for the block of the caller
        "posenc.attention(q, k, k, keep=keep)"),
    "gradient": ("q = np.ones((8, 1 << 16, 64), np.float32)",
                 "posenc.attention_vjp(q, q, q, q, out=q, lse=q[..., 0])"),
    "gradient of a shared matrix": (
        "q = np.ones((1 << 13, 1 << 12, 1), np.float32); bias = posenc.dense(np.zeros((1 << 12, 1 << 12)))",
        "posenc.attention_vjp(q, q, q, q, out=q, lse=q[..., 0], bias=bias)"),
    "masked keys": ("q = np.ones((1, 40, 8)); k = np.broadcast_to(q[:, :1], (1, 1 << 50, 8))",
                    "posenc.attention(q, k, k, causal=True, align='start')"),
    "masked keys of gates": (
        "q = np.ones((1, 40, 1)); k = np.broadcast_to(q[:, :1], (1, 1 << 36, 1)); cope = posenc.cope(np.ones((3, 1)))",
        "posenc.attention(q, k, k, bias=cope, causal=True, align='start')"),
    "gradient with masked keys": (
        "q = np.ones((1, 40, 0)); k = np.ones((1, 1 << 40, 0)); lse = np.zeros((1, 40))",
        "posenc.attention_vjp(q, q, k, k, out=q, lse=lse, sink=np.zeros(1), causal=True, align='start')"),
    "floater": ("w1 = np.ones((512, 513)); b = np.ones(512); p0 = np.zeros((40, 512))",
                "posenc.floater(p0, w1, b, -w1, b, 1 << 10, dt=1e-6, substeps=1000)"),
    "recurrent": ("w = np.ones((3072, 1024)); b = np.ones((2, 3072)); p0 = np.zeros((40, 1024))",
                  "posenc.recurrent(p0, w, b, 1 << 14, cell='gru')"),
}  # fmt: skip
"""Calls that take minutes, so that a call that ends within the time of a process was interrupted."""


@pytest.mark.skipif(sys.platform == "win32", reason="os.kill cannot send SIGINT there")
@pytest.mark.parametrize("call", LONG)
def test_control_c(run_python, call):
    """Ctrl-C raises KeyboardInterrupt inside a call of one thread or of three, and the next call is right."""
    prepare, expression = LONG[call]
    threads = 3 if call in ("a worker alone", "gradient", "recurrent", "masked keys") else 1
    done = run_python(INTERRUPT.format(prepare=prepare, call=expression, threads=threads), timeout=45)
    assert done.stdout.split() == ["interrupted"], done.stdout + done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_fork_before_the_first_pooled_call(run_python):
    """A child does not inherit the lock of the scratch memory, which small calls take too, in its locked state."""
    script = """
        import os, threading, numpy as np, posenc
        posenc.set_num_threads(1)
        q, keep, going = np.ones((1, 64, 64), np.float32), np.zeros((1, 1, 1), bool), [True]
        def work():
            while going[0]:
                posenc.attention(q, q, q, keep=keep)
        workers = [threading.Thread(target=work) for _ in range(3)]
        [w.start() for w in workers]
        for _ in range(150):
            child = os.fork()
            if child == 0:
                posenc.attention(q[:, :16], q[:, :16], q[:, :16])
                os._exit(0)
            os.waitpid(child, 0)
        going[0] = False
        [w.join() for w in workers]
        print("done")
    """
    # Newer Pythons warn of forks among threads.
    done = run_python(textwrap.dedent(script), warnings="ignore", **UNMEASURED)
    assert done.stdout == "done\n", done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_control_c_in_the_child_of_a_thread(run_python):
    """The thread that forked is the main thread of the child, so signals reach its calls."""
    script = """
        import os, signal, threading, numpy as np, posenc
        q = np.ones((8, 1 << 16, 128), np.float32)
        posenc.attention(q[:, :512], q[:, :512], q[:, :512])  # the parent's main thread is known from here on
        def fork():
            child = os.fork()
            if child == 0:
                signal.signal(signal.SIGALRM, lambda *_: os._exit(7))
                signal.setitimer(signal.ITIMER_REAL, 0.5)
                posenc.attention(q, q, q)
                os._exit(1)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        codes = []
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
        print(codes)
    """
    done = run_python(textwrap.dedent(script), warnings="ignore", timeout=45)
    assert done.stdout == "[7]\n", done.stdout + done.stderr


DAEMON = """
import threading, time
import numpy as np
import posenc
posenc.set_num_threads(2)
q = np.zeros((64, 65536, 16), np.float32)
def work():
    while True:
        posenc.attention(q, q, q)
threading.Thread(target=work, daemon=True).start()
time.sleep(0.45)  # the thread is in the middle of a call
print("end")
"""


def test_daemon_thread_in_a_call_when_the_interpreter_ends(run_python):
    """A thread that is not the main one never asks for the interpreter's lock while workers share its call."""
    done = run_python(DAEMON)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


NAN_POSITIONS = """
import threading
import numpy as np
import posenc
n, d = 512, 16
positions = np.arange(n, dtype=float)
q = np.ones((2, n, d), np.float32)
rows = np.ones((2 * 16 + 1, d), np.float32)
biases = [posenc.t5(np.ones((32, 2)), bidirectional=True), posenc.shaw(rows), posenc.alibi(np.ones(2))]
going = [True]
def write():
    while going[0]:
        positions[1::7] = np.nan
        positions[1::7] = 1.5
writer = threading.Thread(target=write)
writer.start()
for _ in range(60):
    for bias in biases:
        try:
            posenc.attention(q, q, q, bias=bias, q_positions=positions, k_positions=positions)
        except ValueError:
            pass  # the check at the beginning of the call met a NaN
going[0] = False
writer.join()
print("done")
"""


def test_positions_that_become_nan_during_a_call(run_python):
    """Another thread may write to the caller's positions at any time. Its numbers must not become addresses."""
    done = run_python(NAN_POSITIONS)
    assert done.stdout == "done\n", done.stderr


SMALL_STACK = """
import sys, threading
sys.path[:0] = [{tests!r}]
import numpy as np
import posenc
from cases import CASES
posenc.set_num_threads(1)
threading.stack_size(1 << 17)
failed = []
def work(case, arguments, grads):
    try:
        case.call(arguments)
        if case.gradients:
            case.vjp(grads, arguments)
    except Exception as error:
        failed.append((case.name, error))
for case in CASES:
    for dtype in (np.float32, np.float64):
        arguments = case.arguments(70, dtype)
        grads = tuple(np.ones(np.shape(r)) for r in case.call(arguments)) if case.gradients else ()
        thread = threading.Thread(target=work, args=(case, arguments, grads))
        thread.start()
        thread.join()
print(failed)
"""


def test_a_stack_of_128_kb_is_enough(run_python):
    """Threads of musl have that much by default; so may those of `threading.stack_size`."""
    done = run_python(SMALL_STACK.format(tests=str(Path(__file__).resolve().parents[1])), timeout=240)
    assert done.stdout == "[]\n", (done.returncode, done.stdout, done.stderr)
