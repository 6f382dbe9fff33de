"""The option --all, and the hooks and fixtures of all tests."""

from cases.fixtures import (  # noqa: F401 - pytest finds them here
    figures,
    interrupts,
    isa,
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_generate_tests,
    pytest_runtest_makereport,
    rng,
    run_python,
)
