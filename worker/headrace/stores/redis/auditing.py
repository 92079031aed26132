"""Audits on Redis."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial

from headrace.errors import AccessDenied, DataDamaged, TopologyUnreadable
from headrace.stores.protocols.auditing import Leftover, PartitionAudit, Pause
from headrace.stores.redis.access import RedisAccess
from headrace.stores.redis.audit.fields import META_ENTRIES, QUEUE_ENTRIES, SHARED_ENTRIES
from headrace.stores.redis.audit.keys import KeyAudit
from headrace.stores.redis.audit.partition_pass import DONE, ENTRY, HINT, PartitionPass, Repair
from headrace.stores.redis.kinds import PARTITION_KINDS, QUEUE_KINDS, SHARED_KINDS
from headrace.stores.redis.scripts import script
from headrace.stores.redis.topology import STATES
from headrace.topology import PartitionRef, Topology

log = logging.getLogger("headrace.audit")

ROUNDS = 8
"""Looks at a partition that is repaired: what one repair leaves, for example a job without an index, the next mends.

A repair that finds something changed leaves it alone: what a claim has taken out meanwhile, say, is no leftover any
more. So nothing counts as left that was not seen again after it.
"""

MOST_HINTS = 1000


class RedisAuditing(RedisAccess):
    """Implements `headrace.stores.protocols.auditing.AuditSteps`."""

    async def audit_partition(self, ref: PartitionRef, *, repair: bool, pause: Pause) -> PartitionAudit:
        """Look through one partition in bounded steps, and mend it if so asked."""
        keys = {name: self._keys.partition(ref, name) for name in PARTITION_KINDS}
        look = KeyAudit(self._client, pause, repair=repair)
        left = await look.kinds(keys, PARTITION_KINDS)
        try:
            left += await look.entries("meta", keys["meta"], "hash", META_ENTRIES, "settings unreadable")
            found = await self._audit(ref, repair=repair, pause=pause)
        except DataDamaged as error:
            # Beside a key of another kind no step gets to its end. One of the queue's is named by `audit_keys`.
            if not any(not each.repaired for each in left) and not _is_of_queue(error, ref.queue):
                name = error.key.partition("}:")[2] or "*"
                left.append(Leftover("contents unreadable", name, error.problem[:200].encode()))
            return PartitionAudit("absent", 1, 0, left, False, 1)
        return found._replace(leftovers=[*left, *found.leftovers], steps=found.steps + 1)

    async def audit_keys(self, queue: str, *, repair: bool, pause: Pause, other_queues: bool = True) -> list[Leftover]:
        """Look at the queue's own keys, and at those of all queues."""
        look = KeyAudit(self._client, pause, repair=repair)
        own = {name: self._keys.queue(queue, name) for name in QUEUE_KINDS}
        shared = {name: self._keys.shared(name) for name in SHARED_KINDS}
        left = [
            *await look.kinds(own, QUEUE_KINDS, kept=("topology",)),
            *await look.kinds(shared, SHARED_KINDS, kept=("marker",)),
        ]
        strange = {each.key for each in left if not each.repaired}
        of_all = SHARED_ENTRIES if other_queues else {}
        for keys, kinds, judged in ((own, QUEUE_KINDS, QUEUE_ENTRIES), (shared, SHARED_KINDS, of_all)):
            for name, entries in judged.items():
                if name not in strange:
                    left += await look.entries(name, keys[name], kinds[name], entries)
                    await pause()
        if "topology" not in strange:
            stored = await self._client.command("GET", own["topology"])
            try:
                if stored is not None:
                    Topology.from_json(queue, stored)
            except TopologyUnreadable as error:
                left.append(Leftover("topology unreadable", "topology", error.problem[:200].encode(errors="replace")))
        if any(each.kind == "key of another kind" and each.key == "queues" and each.repaired for each in left):
            await self._list_again(queue, pause)
        return left

    async def _list_again(self, queue: str, pause: Pause) -> None:
        """List the queue, and every other one that has a topology, after the list of queues was moved away."""
        try:
            queues, _ = await self.stored_queues(pause)
        except AccessDenied as error:
            log.warning("only queue %s is listed again, others after their next promotion or edit: %s", queue, error)
            queues = set()
        for each in sorted(queues | {queue}):
            if each == queue or await self._client.command("EXISTS", self._keys.queue(each, "topology")):
                await self._client.command("ZADD", self._keys.shared("queues"), 0, each)

    async def _audit(self, ref: PartitionRef, *, repair: bool, pause: Pause) -> PartitionAudit:
        known: dict[Leftover, None] = {}
        refused: set[Leftover] = set()  # by the repairs since the last look, if that was all that they did
        steps, records = 0, None
        for turn in range(ROUNDS):
            look = PartitionPass(ref.label, partial(self._audit_step, ref), pause)
            await look.look(repair=repair and turn < ROUNDS - 1)
            steps += look.steps
            records = look.sizes["jobs"] if records is None else records
            left = {found.leftover for found in look.found}
            known |= dict.fromkeys(found.leftover for found in look.found)
            repairs = [found.repair for found in look.found if found.repair]
            if not repair or turn == ROUNDS - 1 or not repairs or left == refused:
                break
            mended = [await self._mend(ref, each) for each in repairs]
            refused = set() if any(mended) else left
        leftovers = [each._replace(repaired=each not in left) for each in known]
        return PartitionAudit(STATES[look.state], look.incarnation, records or 0, leftovers, look.proven, steps)

    async def _audit_step(self, ref: PartitionRef, name: str, *arguments: bytes | str | int) -> object:
        return await self._run(name, ref, *arguments)

    async def _mend(self, ref: PartitionRef, repair: Repair) -> bool:
        name, arguments = repair
        if name == DONE:
            return True
        if name == HINT:
            return bool(await self._client.command("ZADD", self._keys.queue(ref.queue, "due"), "NX", 0, ref.label))
        if name == ENTRY:
            key, kind, member = arguments
            return bool(
                await self._client.run(
                    script("repair_entry"), (self._keys.partition(ref, str(key)),), (kind, member, b"")
                )
            )
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

    async def stored_queues(self, pause: Pause) -> tuple[set[str], list[str]]:
        """Return the queues of which a partition has any key, and keys under the prefix that belong to no queue."""
        queues: set[str] = set()
        unknown: list[str] = []
        async for page in self._client.scan(self._keys.pattern):
            for name in page:
                queue, partition = self._keys.owner(name)
                if queue is None:
                    unknown.append(name.decode(errors="replace"))
                elif partition:
                    queues.add(queue)
            await pause()
        return queues, sorted(unknown)

    async def hinted_labels(self, queue: str) -> list[bytes]:
        """Return the labels of the partitions that hints of any kind name."""
        labels: set[bytes] = set()
        for name in ("hot", "due", "parked"):
            with suppress(DataDamaged):  # a key of another kind, which `audit_keys` has named
                labels |= set(await self._client.command("ZRANGE", self._keys.queue(queue, name), 0, MOST_HINTS - 1))
        return sorted(labels - {b"@"})

    async def forget_hints(self, topology: Topology, label: bytes) -> bool:
        """Remove the hints of a partition that the topology does not list."""
        keys = self._keys.of_queue_script("forget_stray", topology.queue)
        return bool(await self._client.run(script("forget_stray"), keys, (label, topology.to_json())))


def _is_of_queue(error: DataDamaged, queue: str) -> bool:
    """Whether the key that a step has stumbled over is the queue's, or of all queues, and not a partition's."""
    tag, _, _ = error.key.partition("}:")
    return tag.endswith(f":{queue}") or ":" not in tag if tag else False
