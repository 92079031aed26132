"""Which steps of a store were taken: for tests that must take all of them, those too that are still to come."""

from __future__ import annotations

import inspect
from collections import Counter
from typing import Any, cast

from headrace.stores.base import Store


def steps_of_a_store() -> set[str]:
    """Return the names of everything that the Store protocol offers."""
    public = ((name, member) for name, member in inspect.getmembers(Store) if not name.startswith("_"))
    return {name for name, member in public if inspect.isfunction(member) or isinstance(member, property)}


class Witness:
    """Passes steps on to a store and counts them, by name, in ``taken``. Hand ``store`` of it to whoever takes them."""

    def __init__(self, store: Store, taken: Counter[str]) -> None:
        self._store = store
        self._taken = taken

    @property
    def store(self) -> Store:
        return cast(Store, self)

    def __getattr__(self, step: str) -> Any:
        self._taken[step] += 1
        return getattr(self._store, step)
