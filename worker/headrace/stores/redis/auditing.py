"""Audits on Redis."""

from __future__ import annotations

from functools import partial

from headrace.errors import HeadraceError
from headrace.stores.protocols.auditing import Leftover, PartitionAudit, Pause
from headrace.stores.redis.access import RedisAccess
from headrace.stores.redis.audit.partition_pass import DONE, HINT, PartitionPass, Repair
from headrace.stores.redis.keys import PARTITION_KEYS
from headrace.stores.redis.scripts import script
from headrace.stores.redis.topology import STATES
from headrace.topology import PartitionRef

ROUNDS = 8
"""Looks at a partition that is repaired: what one repair leaves, for example a job without an index, the next mends."""

MOST_HINTS = 1000

KINDS = {
    **dict.fromkeys(("r0", "r1", "r2", "suspects", "alone"), "list"),
    **dict.fromkeys(("scheduled", "retry", "leased", "park", "seen", "dead"), "zset"),
    "done": "stream",
}
"""What the keys of a partition are; the others are hashes."""


class RedisAuditing(RedisAccess):
    """Implements `headrace.stores.protocols.auditing.AuditSteps`."""

    async def audit_partition(self, ref: PartitionRef, *, repair: bool, pause: Pause) -> PartitionAudit:
        """Look through one partition in bounded steps, and mend it if so asked."""
        try:
            return await self._audit(ref, repair=repair, pause=pause)
        except HeadraceError as error:
            if "WRONGTYPE" not in str(error):
                raise
            # Somebody has put a key of another kind in the place of one of ours; no step works any more.
            return PartitionAudit("absent", 1, 0, [Leftover("key of another kind", await self._strange(ref))], False, 1)

    async def _audit(self, ref: PartitionRef, *, repair: bool, pause: Pause) -> PartitionAudit:
        known: dict[Leftover, None] = {}
        steps, records = 0, None
        for turn in range(ROUNDS):
            look = PartitionPass(ref.label, partial(self._audit_step, ref), pause)
            await look.look(repair=repair and turn < ROUNDS - 1)
            steps += look.steps
            records = look.sizes["jobs"] if records is None else records
            known |= dict.fromkeys(found.leftover for found in look.found)
            if not repair or turn == ROUNDS - 1:
                break
            mended = [await self._mend(ref, found.repair) for found in look.found if found.repair]
            if not any(mended):
                break
        left = {found.leftover for found in look.found}
        leftovers = [each._replace(repaired=each not in left) for each in known]
        return PartitionAudit(STATES[look.state], look.incarnation, records or 0, leftovers, look.proven, steps)

    async def _strange(self, ref: PartitionRef) -> str:
        """Return the names of the partition's keys that are not of the kind that they should be."""
        strange = []
        for name in PARTITION_KEYS:
            kind = (await self._client.command("TYPE", self._keys.partition(ref, name))).decode()
            if kind not in ("none", KINDS.get(name, "hash")):
                strange.append(name)
        return " ".join(strange)

    async def _audit_step(self, ref: PartitionRef, name: str, *arguments: bytes | str | int) -> object:
        return await self._run(name, ref, *arguments)

    async def _mend(self, ref: PartitionRef, repair: Repair) -> bool:
        name, arguments = repair
        if name == DONE:
            return True
        if name == HINT:
            return bool(await self._client.command("ZADD", self._keys.queue(ref.queue, "due"), "NX", 0, ref.label))
        return bool(await self._run(name, ref, *arguments))

    async def stored_partitions(self, queue: str, pause: Pause) -> tuple[set[PartitionRef], list[str]]:
        """Return the partitions of which any key exists, and keys of the queue that are not of Headrace."""
        refs: set[PartitionRef] = set()
        unknown: list[str] = []
        for pattern in self._keys.patterns(queue):
            async for page in self._client.scan(pattern):
                for name in page:
                    ref = self._keys.whose(queue, name)
                    if isinstance(ref, PartitionRef):
                        refs.add(ref)
                    elif not ref:
                        unknown.append(name.decode(errors="replace"))
                await pause()
        return refs, sorted(unknown)

    async def hinted_labels(self, queue: str) -> list[bytes]:
        """Return the labels of the partitions that hints of any kind name."""
        labels: set[bytes] = set()
        for name in ("hot", "due", "parked"):
            labels |= set(await self._client.command("ZRANGE", self._keys.queue(queue, name), 0, MOST_HINTS - 1))
        return sorted(labels - {b"@"})

    async def forget_hints(self, queue: str, label: bytes, epoch: int) -> bool:
        """Remove the hints of a partition that the topology of this epoch does not list."""
        keys = self._keys.of_queue_script("forget_stray", queue)
        return bool(await self._client.run(script("forget_stray"), keys, (label, epoch)))
