"""Modules whose library is not installed name the extra, and posenc itself imports none of the libraries."""

import pytest


@pytest.mark.parametrize(
    ("module", "library", "needs"),
    [("autograd", "autograd", "HIPS autograd"), ("torch", "torch", "torch and ml_dtypes")],
)
def test_module_without_its_library(run_python, module, library, needs):
    done = run_python(f"import sys; sys.modules['{library}'] = None; import posenc; import posenc.{module}")
    assert f'ImportError: posenc.{module} needs {needs}: pip install "posenc[{module}]"' in done.stderr


def test_posenc_imports_no_library(run_python):
    code = "import sys, posenc; assert not {'autograd', 'torch', 'ml_dtypes', 'jax', 'transformers'} & set(sys.modules)"
    assert run_python(code).returncode == 0
