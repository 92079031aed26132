"""Adapters of the Python peers. Each runs in an environment of its own, where only the standard library is certain."""
