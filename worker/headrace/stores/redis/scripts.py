"""The scripts of the store, one per step, in ``lua``."""

from functools import partial

from headrace.redis.scripts import load

script = partial(load, "headrace.stores.redis")
"""Takes the name of a script; returns it, ready to run."""
