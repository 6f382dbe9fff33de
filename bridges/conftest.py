"""The hooks and fixtures that posenc's tests share, and what the bridges' tests add.

Modules whose library is not installed have no doctests. Tests may fork after JAX has started its threads. Tests with
`dtype` run in both wide dtypes.
"""

from importlib.util import find_spec

import pytest
from cases.fixtures import (  # noqa: F401 - pytest finds them here
    interrupts,
    isa,
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_generate_tests,
    pytest_runtest_makereport,
    rng,
    run_python,
)

NEEDS = {
    "posenc_bridges/autograd.py": ("autograd",),
    "posenc_bridges/dask": ("dask",),
    "posenc_bridges/jax.py": ("jax",),
    "posenc_bridges/torch": ("torch", "ml_dtypes"),
    "posenc_bridges/transformers": ("torch", "ml_dtypes", "transformers"),
    "tests/rotations.py": ("torch", "transformers"),
    "tests/small_models.py": ("torch", "transformers"),
}
collect_ignore = [file for file, libraries in NEEDS.items() if not all(map(find_spec, libraries))]


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", r"ignore:os.fork\(\) was called:RuntimeWarning")


@pytest.fixture(params=["float64", "float32"])
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)
