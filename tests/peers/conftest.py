"""Exclude helpers from the search for doctests if the peers that they import are not installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") and find_spec("transformers") else ["rotations.py"]
