"""The option --all, and modules that have no doctests because their extra is not installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("autograd") else ["posenc/autograd.py", "posenc/demos/study"]
if not (find_spec("torch") and find_spec("ml_dtypes")):
    collect_ignore.append("posenc/torch")
if not find_spec("jax"):
    collect_ignore.append("posenc/jax.py")
if not (find_spec("torch") and find_spec("ml_dtypes") and find_spec("transformers")):
    collect_ignore.append("posenc/transformers")
if not find_spec("dask"):
    collect_ignore.append("posenc/dask")


def pytest_addoption(parser):
    parser.addoption(
        "--all",
        action="store_true",
        help="run also the slow tests, and the tests of values on every instruction set instead of the best one",
    )
