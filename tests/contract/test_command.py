"""The command `posenc`: its version, and the description of the installation for bug reports."""

import inspect
import re
import subprocess
import sys

import numpy as np
import pytest

import posenc
from posenc import __main__ as command


def test_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit, match=r"^0$"):
        command.main(["--version"])
    assert capsys.readouterr().out == f"posenc {posenc.__version__}\n"


def rows_of(printed):
    """The columns of the table by the name of the row, without the rows whose names are indented."""
    table = printed.partition("MB\n")[2].partition("\n\n")[0]
    return {
        line[:24].rstrip(): [line[48 + i : 56 + i].strip() for i in (0, 8, 16, 24)]
        for line in table.splitlines()
        if line[0] != " "
    }


def printed_by(*options):
    """What ``python -m posenc`` prints where nothing is installed but NumPy."""
    hidden = ("rich", "matplotlib", "scipy", "ml_dtypes", "pydoc_data")
    code = f"import sys; sys.modules.update(dict.fromkeys({hidden})); from posenc.__main__ import main; main({options})"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_first_lines_are_eight_schemes_and_a_wrong_rotation():
    printed = printed_by()
    lines = printed.partition("+10^6\n")[2].splitlines()[:9]
    rows = {line[:16].rstrip(): [line[76 + i : 84 + i].strip() for i in (0, 8, 16)] for line in lines}
    assert rows.keys() == command.KNOWN.keys()
    assert rows.pop(command.NO_POSITIONS) == ["0", "", ""]
    assert all(float(swap) > 0.1 for swap, *_ in rows.values())
    assert {name: far for name, (*_, far) in rows.items() if far != "0"} == {"learned": "-"}
    assert re.search(r"^rope: wrong\. .*\nCause: tables\. .*\nChange: ", printed, re.MULTILINE)
    code = re.sub(r"(:| ->) (Array|Any)", "", printed[printed.index("def my_rope") : printed.index("\n>>> ")])
    exec(code, names := {"np": np})
    assert posenc.check.rope(names["my_rope"], dim=64, layout="half").causes[0].name == "tables"


@pytest.fixture(scope="module")
def printed():
    return printed_by("--all")


def test_table_has_every_scheme(printed):
    """Each function that returns a bias, each encoding and each rotation has a row of numbers."""
    rows, functions = rows_of(printed), vars(posenc).values()
    biases = {f.__name__ for f in functions if inspect.isfunction(f) and "Bias" in str(f.__annotations__.get("return"))}
    missing = (biases | {"sinusoidal", "learned", "rope", "xpos", "rope_nd", "combine"}) - set(rows)
    assert missing <= {"distance_function"}
    for name, (swap, *shifts, size) in rows.items():
        assert np.isfinite([float(x) for x in (swap, size, *shifts) if x not in ("", "-")]).all(), name
        assert (float(swap) > 0) == (name != command.NO_POSITIONS), name
    assert max(map(len, printed.splitlines())) <= 100
    assert printed.startswith(f"posenc {posenc.__version__}: ")


def test_table_knows_effects(printed):
    rows = rows_of(printed)
    for name in ("sinusoidal", "rope", "xpos", "alibi", "t5", "shaw", "deberta", "complex_order"):
        assert rows[name][1:3] == ["0", "0"], name
    for name in ("learned", "swin", "fox"):
        assert rows[name][2] == "-", name
    assert [rows[name][1:3] for name in ("dense", "toeplitz", "tupe", "conv_position")] == [["", ""]] * 4
    naive = [line.split() for line in printed.splitlines() if line.startswith("  angles in float32")]
    assert len(naive) == 2
    assert all(row[-3] == "0" and float(row[-2]) > 1e-4 for row in naive)
    (array,) = (line.split() for line in printed.splitlines() if "alibi as an array" in line)
    assert float(array[-1]) > 100 * float(rows["alibi"][3])


def test_info_describes_package_and_machine(capsys):
    assert command.main(["info"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert list(lines) == ["posenc", "isa", "threads", "build", "cpu", "caches", "python", "numpy"]
    assert lines["posenc"].startswith(posenc.__version__)
    assert lines["isa"].startswith(posenc.runtime.isa())
    assert lines["build"] == posenc.runtime.build_flags()
    assert lines["numpy"].startswith(f"{np.__version__}, BLAS ")


def test_module_and_command_are_one_program():
    done = subprocess.run([sys.executable, "-m", "posenc", "--help"], capture_output=True, text=True, check=True)
    assert re.match(r"usage: python -m posenc ", done.stdout)
    assert "--version" in done.stdout


def test_an_output_that_cannot_be_written_is_one_line():
    command_line = ["sh", "-c", 'exec "$0" -m posenc info >/dev/full', sys.executable]
    done = subprocess.run(command_line, capture_output=True, text=True)
    assert done.returncode == 1
    assert re.fullmatch(r"python -m posenc: .+\n", done.stderr), done.stderr
