"""Peers are optional: without them a helper that needs them is no module to look for doctests in."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") and find_spec("transformers") else ["rotations.py"]
