"""What bridges share: names and docstrings, and messages for missing libraries and for arguments of other libraries."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from cases import CASES

import posenc
from posenc_bridges import _common

BRIDGES = Path(__file__).parents[1]


LIBRARIES = (
    "autograd autograd", "dask dask.array", "jax jax", "torch torch", "torch ml_dtypes", "transformers transformers",
    "transformers torch", "transformers ml_dtypes",
)  # fmt: skip


@pytest.mark.parametrize(("bridge", "library"), [pair.split() for pair in LIBRARIES])
def test_a_bridge_without_its_library_names_the_packages_of_its_extra(run_python, bridge, library):
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no tomllib")
    extras = tomllib.loads((BRIDGES / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    packages = " ".join(f'"{package}"' if ">" in package else package for package in extras[bridge])
    done = run_python(f"import sys; sys.modules['{library}'] = None; import posenc_bridges.{bridge}", warnings="ignore")
    needs = rf"ImportError: posenc_bridges\.{bridge} needs .*: pip install {re.escape(packages)}\n"
    assert re.search(needs, done.stderr), done.stderr


def test_arguments_of_other_libraries():
    """They are those of posenc."""
    autograd = pytest.importorskip("posenc_bridges.autograd", reason="autograd is not installed")
    x = np.ones((1, 2, 4))
    for name in ("attn_mask", "is_causal", "xyz"):
        messages = []
        for function in (autograd.attention, posenc.attention):
            with pytest.raises(TypeError) as caught:
                function(x, x, x, **{name: 1})
            messages.append(str(caught.value))
        assert messages[0] == messages[1]


@pytest.mark.parametrize("bridge", ["autograd", "jax", "torch"])
def test_signatures_and_help(bridge):
    """Every function with a gradient has a twin, which documents the parameters of its namesake except `out`."""
    module = pytest.importorskip(f"posenc_bridges.{bridge}", reason=f"{bridge} is not installed")
    with_gradient = {name.removesuffix("_vjp") for name in posenc.__all__ if name.endswith("_vjp")}
    assert {case.function for case in CASES if case.gradients} | with_gradient <= set(module.__all__)
    for name in [*_common.FUNCTIONS, *_common.OPERATORS]:
        twin = getattr(module, name)
        assert "out" not in inspect.signature(twin).parameters
        assert f"posenc.{name}" in twin.__doc__
        text, plain = inspect.getdoc(twin), inspect.getdoc(getattr(posenc, name))
        entries = [re.findall(r"^[\w, *]+ : .*$", one.partition("Returns")[0], re.M) for one in (text, plain)]
        own = [entry for entry in entries[0] if not entry.startswith("cu_seqlens_q, ")]  # of sequences, in torch
        assert own == [entry for entry in entries[1] if not entry.startswith("out : ")], name
        assert ">>>" not in text
        assert plain.splitlines()[0] in text
