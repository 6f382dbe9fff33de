"""The state of AMX tiles: set for each thread before it multiplies, released before anything else runs on the thread.

The variant "amx-emulated" multiplies to NaN on a thread that has no configuration, where hardware stops the process,
and on a thread that never released the one before.
"""

import os
import signal
import sys

import pytest

import posenc

HAS_AMX = "amx" in posenc.runtime.isas()
VARIANTS = ["amx-emulated", pytest.param("amx", marks=pytest.mark.skipif(not HAS_AMX, reason="this CPU has no AMX"))]

HEAD = """
import os, signal, sys, threading, time
import numpy as np
import posenc
posenc.set_num_threads(3)
q = np.random.default_rng(0).standard_normal((4, 1024, 64)).astype(np.float16)
call = lambda: posenc.attention(q, q, q)
same = lambda a, b: a.tobytes() == b.tobytes()
"""
PROGRAMS = {
    "threads": """
start, results = threading.Event(), []
def work():
    start.wait()  # this thread is older than the permission of tiles
    results.append(call())
thread = threading.Thread(target=work)
thread.start()
wanted = call()
start.set()
thread.join()
assert same(results[0], wanted) and np.isfinite(wanted).all()
""",
    "fork": """
wanted = call()
child = os.fork()
if child == 0:
    right = same(call(), wanted)
    inner = os.fork()
    if inner == 0:
        os._exit(not same(call(), wanted))
    os._exit(not right or os.waitpid(inner, 0)[1] != 0)
assert os.waitpid(child, 0)[1] == 0 and same(call(), wanted)
""",
    "signals": """
ticks, handled = [], []
def handler(*_):
    ticks.append(0)
    if len(ticks) % 8 == 1:  # a call within a call
        handled.append(posenc.attention(q[:1, :64], q[:1], q[:1]))
wanted, small = call(), posenc.attention(q[:1, :64], q[:1], q[:1])
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
found = [call() for _ in range(5)]
while len(handled) < 3:
    found.append(call())
signal.setitimer(signal.ITIMER_REAL, 0)
assert all(same(x, wanted) for x in found) and all(same(x, small) for x in handled)
""",
    "fork in a handler": """
q = np.tile(q, (1, 2, 1))
small = posenc.attention(q[:, :64], q, q)
children = []
signal.signal(signal.SIGALRM, lambda *_: children.append(os.fork()))
signal.setitimer(signal.ITIMER_REAL, 0.02)
try:
    while not children:
        call()
    assert children[0], "the child returned without its workers"
except RuntimeError as error:
    assert children == [0] and "forked during the call" in str(error), error
right = same(posenc.attention(q[:, :64], q, q), small)
if children == [0]:
    os._exit(not right)
assert right and os.waitpid(children[0], 0)[1] == 0
""",
    "Ctrl-C": """
small = call()
long = np.broadcast_to(q[:, :1], (4, 1 << 18, 64))
timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
timer.start()
try:
    posenc.attention(long, long, long)
    raise AssertionError("the call ended")
except KeyboardInterrupt:
    timer.join()
assert same(call(), small)
""",
    "waiting": """
# The caller computes the first block, and a worker the second, which takes longer. The caller looks for signals then.
posenc.set_num_threads(2)
wide = np.random.default_rng(0).standard_normal((1, 4096, 2048)).astype(np.float16)
at = np.repeat([256, 4096], 64)
small = call()
for _ in range(3):
    found = posenc.attention(wide[:, :128], wide, wide, causal=True, q_positions=at, k_positions=np.arange(4096))
    assert np.isfinite(found).all() and same(call(), small)
""",
}


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this platform has no fork or timers that send signals")
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_each_thread_has_its_state(run_python, program, variant):
    done = run_python(HEAD + PROGRAMS[program] + "print('right')", POSENC_ISA=variant, COVERAGE_PROCESS_CONFIG="")
    assert done.stdout == "right\n", done.stderr


KERNEL = """
import ctypes, mmap
libc = ctypes.CDLL(None, use_errno=True)
def is_permitted():
    enabled = ctypes.c_uint64()
    ARCH_PRCTL, ARCH_GET_XCOMP_PERM, XTILEDATA = 158, 0x1022, 18
    assert libc.syscall(ARCH_PRCTL, ARCH_GET_XCOMP_PERM, ctypes.byref(enabled)) == 0
    return bool(enabled.value >> XTILEDATA & 1)
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("b901000000 0f01d0 c3"))  # mov $1, %ecx; xgetbv; ret
states_in_use = ctypes.CFUNCTYPE(ctypes.c_uint32)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
"""
RELEASED = """
X87, TILES = 1, 3 << 17
real = q.astype(np.float32)
posenc.attention(real, real, real)
assert not is_permitted(), "float32 needs no tiles"
call()
assert is_permitted() == (posenc.runtime.isa() == "amx")
assert states_in_use() & TILES == 0, "each context switch would save the tiles"
"""
SMALL_STACK = """
class Stack(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]
memory = ctypes.create_string_buffer(4096)
assert libc.sigaltstack(ctypes.byref(Stack(ctypes.addressof(memory), 0, 4096)), None) == 0
found = call()
assert not is_permitted()
with posenc.runtime.use_isa("avx512"):
    assert same(found, call())
"""


@pytest.mark.skipif(sys.platform != "linux" or os.uname().machine != "x86_64", reason="these are calls of Linux on x86")
def test_other_variants_ask_for_no_permission_and_use_no_tiles(run_python):
    done = run_python(HEAD + KERNEL + RELEASED + "print('right')", POSENC_ISA="amx-emulated")
    assert done.stdout == "right\n", done.stderr


@pytest.mark.skipif(not HAS_AMX, reason="this CPU has no AMX, or Linux does not offer it")
@pytest.mark.parametrize("program", [RELEASED, SMALL_STACK], ids=["released", "no permission"])
def test_permission_and_release(run_python, program):
    """Linux refuses tiles if a thread has an alternate signal stack too small for them; then float32 multiplies."""
    done = run_python(HEAD + KERNEL + program + "print('right')", POSENC_ISA="")
    assert done.stdout == "right\n", done.stderr
