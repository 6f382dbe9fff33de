"""Modules whose library is not installed say how to install it; test_runtime.py imports posenc alone."""

from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("extra", "file"),
    [("plot", "posenc/plot/__init__.py"), ("vectors", "examples/vectors/__init__.py")],
)
def test_messages_install_the_packages_of_the_extra(extra, file):
    """A message names packages, because posenc with its extras is not on PyPI."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no tomllib")
    root = Path(__file__).parents[2]
    packages = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"][extra]
    assert "pip install " + " ".join(packages) in (root / file).read_text("utf-8")


def test_a_module_is_imported_at_its_first_use(run_python):
    code = """
import sys, posenc
assert "posenc.analysis" not in sys.modules and "posenc.plot" not in sys.modules
assert posenc.analysis.__all__ and posenc.analysis is sys.modules["posenc.analysis"]
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr


def test_plot_without_matplotlib_is_no_attribute(run_python):
    """`hasattr` and `inspect.getmembers` work, and each way to the module says how to install it."""
    code = """
import inspect, sys
sys.modules["matplotlib"] = None
import posenc
assert not hasattr(posenc, "plot") and not hasattr(posenc, "plots")
assert "plot" not in dict(inspect.getmembers(posenc))
for line in ("posenc.plot", "from posenc import plot", "import posenc.plot"):
    try:
        exec(line)
    except (AttributeError, ImportError) as error:
        assert str(error) == "posenc.plot needs matplotlib: pip install matplotlib", error
    else:
        raise AssertionError(line)
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr
