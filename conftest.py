"""Modules whose extra is not installed cannot be imported, and so have no doctests."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("autograd") else ["posenc/autograd.py", "posenc/demos/study"]
