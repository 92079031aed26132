"""The scripts of fence and lock of last resort, in ``lua``."""

from functools import partial

from headrace.redis.scripts import load

script = partial(load, "headrace.election")
"""Takes the name of a script; returns it, ready to run."""
