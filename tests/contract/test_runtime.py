"""Threads, instruction sets, environment variables, and the cost of an import."""

import sysconfig

import pytest

import posenc

SHOW = "import posenc; print(posenc.get_num_threads(), posenc.runtime.isa())"


def test_set_and_restore_threads():
    before = posenc.get_num_threads()
    with posenc.threads(3):
        assert posenc.get_num_threads() == 3
        with posenc.threads(1):
            assert posenc.get_num_threads() == 1
        assert posenc.get_num_threads() == 3
    assert posenc.get_num_threads() == before
    with pytest.raises(KeyError), posenc.threads(5):
        raise KeyError
    assert posenc.get_num_threads() == before


@pytest.mark.parametrize(
    ("n", "error"), [(n, ValueError) for n in (0, -1, 2**70)] + [(n, TypeError) for n in (2.0, True, "2", None)]
)
def test_refused_thread_counts(n, error):
    before = posenc.get_num_threads()
    with pytest.raises(error, match=r"^set_num_threads: n (has|is) .+; expected "):
        posenc.set_num_threads(n)
    assert posenc.get_num_threads() == before


def test_a_block_of_threads_chooses_no_number(run_python):
    """`threads` restores the number that was there, which another library may still set; `set_num_threads` does not."""
    program = """
import posenc
from posenc.runtime import follow_threads
with posenc.threads(1):
    follow_threads(3)
    print(posenc.get_num_threads())
follow_threads(4)
print(posenc.get_num_threads())
posenc.set_num_threads(2)
follow_threads(4)
print(posenc.get_num_threads())
"""
    done = run_python(program)
    assert done.stdout.split() == ["1", "4", "2"], done.stderr


def test_use_isa():
    before = posenc.runtime.isa()
    assert before in (*posenc.runtime.isas(), "amx-emulated")
    assert posenc.runtime.isas()[0] == "base"
    for name in posenc.runtime.isas():
        with posenc.runtime.use_isa(name):
            assert posenc.runtime.isa() == name
    assert posenc.runtime.isa() == before
    with pytest.raises(KeyError), posenc.runtime.use_isa("base"):
        raise KeyError
    assert posenc.runtime.isa() == before


def test_an_emulation_is_used_by_name_and_not_listed(run_python):
    assert "amx-emulated" not in posenc.runtime.isas()
    with posenc.runtime.use_isa("amx-emulated"):
        assert posenc.runtime.isa() == "amx-emulated"
    done = run_python(SHOW, POSENC_ISA="amx-emulated", POSENC_NUM_THREADS="2")
    assert done.stdout.split() == ["2", "amx-emulated"], done.stderr


def test_build_flags_name_the_instruction_sets(monkeypatch):
    """Those that are compiled, and a better one of this CPU that is not."""
    compiled = {"base", "avx2", "avx512"} & {*posenc.runtime.isas()}
    assert compiled <= {*posenc.runtime.build_flags().replace(",", "").split()}
    monkeypatch.setattr(posenc.runtime._core, "cpu_best", lambda: "base")
    assert "not compiled" not in posenc.runtime.build_flags()
    monkeypatch.setattr(posenc.runtime._core, "cpu_best", lambda: "avx9")
    assert "; this CPU also runs avx9, which is not compiled" in posenc.runtime.build_flags()


@pytest.mark.parametrize("name", ["", "AVX2", "avx2 ", None, b"base"])
def test_unknown_isa_is_refused_by_name(name):
    before = posenc.runtime.isa()
    with (
        pytest.raises((TypeError, ValueError), match=r"^use_isa: name (has|is) .*; expected one of 'base'") as caught,
        posenc.runtime.use_isa(name),
    ):
        pytest.fail("entered")
    assert repr(name) in str(caught.value)
    assert posenc.runtime.isa() == before


def test_environment_chooses(run_python):
    for name in posenc.runtime.isas():
        done = run_python(SHOW, POSENC_ISA=name, POSENC_NUM_THREADS="7")
        assert done.stdout.split() == ["7", name], done.stderr
    done = run_python(SHOW, POSENC_ISA="", POSENC_NUM_THREADS="")
    assert done.returncode == 0
    assert done.stdout.split()[1] == posenc.runtime.isas()[-1], "without a wish the widest variant runs"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("POSENC_ISA", "AVX2"),
        ("POSENC_NUM_THREADS", "0"),
        ("POSENC_NUM_THREADS", "1.5"),
        ("POSENC_NUM_THREADS", "²"),
        ("POSENC_NUM_THREADS", "9" * 5000),
    ],
)
def test_a_wrong_environment_is_refused_by_name(run_python, variable, value):
    """A wrong value is never ignored: a typing error would select another instruction set than the user asked for."""
    done = run_python(SHOW, **{variable: value})
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ValueError: posenc: {variable} is ")
    assert len(last) < 500


def test_default_threads_respect_affinity(run_python):
    done = run_python(
        "import os\nif hasattr(os, 'sched_setaffinity'): os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])\n"
        + SHOW
        + "\nprint(hasattr(os, 'sched_setaffinity'))",
        POSENC_NUM_THREADS="",
    )
    count, _, limited = done.stdout.split()
    assert int(count) == 1 or limited == "False"


IN_WORKER = """
import multiprocessing
multiprocessing.current_process().name = {name!r}
import posenc
before = posenc.get_num_threads()
posenc.set_num_threads(3)
print(before, posenc.get_num_threads())
"""


def test_one_thread_in_a_worker_of_joblib(run_python):
    """Unless the environment or the program asks for more. loky names the process before it imports anything else."""
    program = IN_WORKER.format(name="LokyProcess-1")
    assert run_python(program, POSENC_NUM_THREADS="").stdout.split() == ["1", "3"]
    assert run_python(program, POSENC_NUM_THREADS="5").stdout.split() == ["5", "3"]
    other = run_python(IN_WORKER.format(name="SpawnProcess-1"), POSENC_NUM_THREADS="")
    assert other.stdout.split()[0] == run_python(SHOW, POSENC_NUM_THREADS="").stdout.split()[0]


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python cannot run without the GIL")
def test_the_gil_stays_disabled(run_python):
    """An extension module that does not declare its support enables the GIL, with a RuntimeWarning."""
    done = run_python("import sys, posenc\nposenc.sinusoidal(4, 4)\nprint(sys._is_gil_enabled())", PYTHON_GIL="")
    assert done.stdout.strip() == "False", done.stderr


HEAVY = "scipy matplotlib rich torch jax autograd dask ml_dtypes transformers pandas decimal subprocess multiprocessing"
IMPORT = f"""
import sys, numpy, os
before = set(sys.modules)
tasks = lambda: len(os.listdir("/proc/self/task")) if os.path.exists("/proc/self/task") else 0
n = tasks()
import posenc
print([m for m in {HEAVY.split()} if m in sys.modules and m not in before])
posenc.rope(numpy.ones((2, 4)), 2, numpy.ones(2), layout="half")
print(tasks() - n)
first = posenc
[sys.modules.pop(m) for m in list(sys.modules) if m.startswith("posenc")]
import posenc
assert posenc is not first
print(posenc.alibi_slopes(8)[0])
"""


def test_import(run_python):
    """posenc imports no module of the standard library that is slow to load besides those of NumPy. Workers start at
    the first call that is large enough for them, so a program that forks before is safe. A second import works."""
    done = run_python(IMPORT)
    assert done.stdout.split() == ["[]", "0", "0.5"], done.stderr
