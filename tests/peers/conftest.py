"""Exclude helpers from the search for doctests if the peers that they import are not installed. Let tests fork after
JAX has started its threads. Run tests with `dtype` in both wide dtypes."""

from importlib.util import find_spec

import pytest

collect_ignore = [] if find_spec("torch") and find_spec("transformers") else ["rotations.py", "small_models.py"]


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", r"ignore:os.fork\(\) was called:RuntimeWarning")


@pytest.fixture(params=["float64", "float32"])
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)
