"""The scripts of the store, one per step, in ``lua``."""

from headrace.redis.scripts import Script, load

OVERLAPPING = frozenset({"claim", "ack", "fail", "release", "park"})
"""The steps of a busy worker: the server is to have one of its claims at hand while another one is answered."""


def script(name: str) -> Script:
    """Return the script of a name, ready to run."""
    return load("headrace.stores.redis", name, overlaps=name in OVERLAPPING)
