"""Takes jobs out of the parking that this worker knows the type of: left there by workers that did not."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable

from headrace.errors import DataDamaged, HeadraceError, StoreUnavailable
from headrace.stores.base import MAX_BATCH, Store
from headrace.topology import PartitionRef

log = logging.getLogger("headrace.worker")

TOLD_TYPES = 20


class Unparker:
    """Looks for parked jobs of one queue; looks again only where one was parked since.

    The first look tells of types that this worker does not know either; later ones are told as they are parked.

    ``freed`` is called with each partition where jobs became ready, so that this worker claims there at once: a hint
    alone may reach one that does not know them, which would park them again.
    """

    def __init__(self, queue: str, store: Store, types: Iterable[str], freed: Callable[[PartitionRef], None]) -> None:
        self._queue = queue
        self._store = store
        self._types = sorted(types)
        self._freed = freed
        self._looked: dict[PartitionRef, int] = {}
        self._told = False

    async def look(self) -> int:
        """Make the parked jobs of known types ready; the number of them. Raises what the store raises."""
        if not self._told and self._store.hints_may_be_lost:
            await self._raise_hints()
        parked = await self._store.parked_partitions(self._queue)
        freed = 0
        unknown: Counter[str] = Counter()
        problem: DataDamaged | None = None
        for ref, parked_at in parked.items():
            if self._looked.get(ref) == parked_at:
                continue
            try:
                for start in range(0, len(self._types), MAX_BATCH):
                    while taken := await self._store.unpark(ref, self._types[start : start + MAX_BATCH]):
                        freed += taken
                        self._freed(ref)
                if not self._told:
                    unknown.update(await self._store.parked(ref))
            except DataDamaged as error:  # of this partition: the others are to be looked at
                problem = error
                continue
            self._looked[ref] = parked_at
        self._looked = {ref: at for ref, at in self._looked.items() if ref in parked}
        if not self._told:
            self._told = True
            self._tell(unknown)
        if problem is not None:
            raise problem
        return freed

    async def _raise_hints(self) -> None:
        """See to it that no partition with parked jobs is missed because a worker died before it could tell."""
        topology = await self._store.read_topology(self._queue)
        refs = [ref for version in topology.versions for ref in topology.refs(version)] if topology else []
        for ref in refs:
            try:
                (counts,) = await self._store.counts([ref])
            except StoreUnavailable:
                raise
            except HeadraceError:  # spoilt by a foreign hand, which the audit tells; the others are to be found
                continue
            if counts.parked:
                await self._store.hint_parked(ref, counts.now)

    def _tell(self, unknown: Counter[str]) -> None:
        for kind, jobs in unknown.most_common(TOLD_TYPES):
            if kind not in self._types:
                log.warning(
                    "queue %s: no handler here for type %r; %d job(s) of it are parked until a worker has one",
                    self._queue,
                    kind,
                    jobs,
                )
