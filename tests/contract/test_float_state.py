"""The floating-point state of threads: kernels have their own, and give the caller's back."""

import ctypes
import platform
import sys

import numpy as np
import pytest

import posenc

TINY = np.float32(1e-40)  # subnormal
GLIBC_X86 = sys.platform == "linux" and platform.machine() == "x86_64" and platform.libc_ver()[0] == "glibc"
FLUSH, UPWARD = 0x8040, 0x4000
"""Bits of MXCSR: flush subnormal results and operands to 0; round upward."""
MXCSR = 7
"""Index of the register in the 8 words of glibc's fenv_t on x86-64."""


class FloatState:
    """Set bits of MXCSR in this thread, as other libraries may."""

    def __init__(self, bits):
        self.bits = bits
        self.libm = ctypes.CDLL("libm.so.6")

    def __enter__(self):
        self.before, changed = (ctypes.c_uint32 * 8)(), (ctypes.c_uint32 * 8)()
        self.libm.fegetenv(self.before)
        self.libm.fegetenv(changed)
        changed[MXCSR] |= self.bits
        self.libm.fesetenv(changed)

    def __exit__(self, *error):
        self.libm.fesetenv(self.before)


def attention_calls():
    """Forward, decoding and gradient of one key: the weight is 1, so each returns a number of its input."""
    q, k, v = np.zeros((1, 1, 4), np.float32), np.zeros((1, 1, 4), np.float32), np.full((1, 1, 4), TINY)
    return {
        "forward": lambda: posenc.attention(np.zeros((1, 40, 4), np.float32), k, v),
        "decode": lambda: posenc.attention(q, k, v),
        "gradient": lambda: posenc.attention_vjp(v, q, k, np.ones_like(v), out=v, lse=np.zeros((1, 1), np.float32)).v,
    }


@pytest.mark.parametrize("call", attention_calls())
def test_attention_flushes_subnormal_numbers(call, isa):
    """They cost some hundred cycles each on many CPUs, and no result that is not subnormal itself depends on them."""
    if platform.machine().lower() not in {"x86_64", "amd64", "aarch64", "arm64"}:
        pytest.skip("the kernels cannot set the floating-point state of this machine")
    assert np.all(attention_calls()[call]() == 0)
    assert TINY * np.float32(1) == TINY, "the caller's state is restored"


def test_encodings_keep_subnormal_numbers(isa):
    """On three threads, and in the caller, whose state an import of a library built with -ffast-math would change."""
    x = np.full((64, 512, 64), TINY)
    with posenc.threads(3):
        assert np.array_equal(posenc.rope(x, np.zeros(512), np.ones(32), layout="half"), x)
    assert TINY * np.float32(1) == TINY
    assert np.float64(5e-324) * 1.0 > 0


@pytest.mark.skipif(not GLIBC_X86, reason="the test sets a register by glibc's fenv_t of x86-64")
@pytest.mark.parametrize("bits", [FLUSH, UPWARD], ids=["flush", "upward"])
def test_results_do_not_depend_on_the_state_of_the_caller(bits, isa, rng):
    """The caller's state is neither that of the workers nor that of another call."""
    x = rng.standard_normal((8, 2048, 64)).astype(np.float32)
    x[:, ::3] *= TINY
    cos, sin = posenc.rope_table(2048, 10000.0 ** (-np.arange(32) / 32), dtype=np.float32)
    out, wanted = np.empty_like(x), posenc.rope_by_table(x, cos, sin, layout="half")
    attended = posenc.attention(x[:, :512], x[:, :512], x[:, :512])
    for threads in (1, 3):
        with posenc.threads(threads):
            with FloatState(bits):
                posenc.rope_by_table(x, cos, sin, layout="half", out=out)
                found = posenc.attention(x[:, :512], x[:, :512], x[:, :512], scale=0.125)
                flushed = TINY * np.float32(1) == 0
            assert np.array_equal(out, wanted)
            assert np.array_equal(found, attended)
            assert flushed == (bits == FLUSH), "the state that the caller set is restored"
