"""Messages of the bridges: a library that is not installed, an argument that another library names differently."""

import re
from pathlib import Path

import numpy as np
import pytest

from posenc_bridges._common.neighbours import ARGUMENTS

BRIDGES = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("bridge", "library"),
    [("autograd",) * 2, ("dask", "dask.array"), ("jax",) * 2, ("torch",) * 2, ("transformers",) * 2],
)
def test_a_bridge_without_its_library_names_the_packages_of_its_extra(run_python, bridge, library):
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no tomllib")
    extras = tomllib.loads((BRIDGES / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    packages = " ".join(f'"{package}"' if ">" in package else package for package in extras[bridge])
    done = run_python(f"import sys; sys.modules['{library}'] = None; import posenc_bridges.{bridge}", warnings="ignore")
    needs = rf"ImportError: posenc_bridges\.{bridge} needs .*: pip install {re.escape(packages)}\n"
    assert re.search(needs, done.stderr), done.stderr


def test_arguments_of_other_libraries():
    """The table of the manual is that of the messages."""
    autograd = pytest.importorskip("posenc_bridges.autograd", reason="autograd is not installed")
    page = (BRIDGES.parent / "docs/guides/errors.md").read_text("utf-8")
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", page, re.MULTILINE)) == ARGUMENTS
    x = np.ones((1, 2, 4))
    for name, way in ARGUMENTS.items():
        with pytest.raises(TypeError) as caught:
            autograd.attention(x, x, x, **{name: 1})
        assert str(caught.value) == f"attention: got an unexpected keyword argument {name!r}; expected {way}"
