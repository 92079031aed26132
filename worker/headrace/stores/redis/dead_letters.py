"""Dead letters on Redis."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.stores.bounds import MAX_ASKED, MAX_SETTLE, MAX_STEP_BYTES, check_batch, check_page, number_within
from headrace.stores.protocols.dead_letters import DeadLetter, FoundDead
from headrace.stores.protocols.moving import Fence
from headrace.stores.redis.access import RedisAccess, pack
from headrace.stores.redis.parts import one_part
from headrace.topology import PartitionRef


class RedisDeadLetters(RedisAccess):
    """Implements `headrace.stores.protocols.dead_letters.DeadLetterSteps`."""

    async def dead_letters(
        self, ref: PartitionRef, after: DeadLetter | None = None, limit: int = 100
    ) -> list[DeadLetter]:
        """Return at most ``limit`` dead letters, oldest first, beginning after one that was seen."""
        check_page(limit)
        while True:
            seen = (after.letter, after.died_at) if after else (b"", 0)
            flat = iter(await self._run("dead_letters", ref, *seen, limit))
            page = [
                DeadLetter(letter, int(float(at)), record, changes)
                for letter, at, record, changes in zip(flat, flat, flat, flat, strict=True)
            ]
            fresh = [letter for letter in page if after is None or letter.order > after.order]
            if fresh or not page:
                return fresh
            after = page[-1]

    async def find_dead(
        self, ref: PartitionRef, ids: Sequence[bytes], *, since: int = 0, go_on: tuple[int, int] | None = None
    ) -> FoundDead:
        """Look for the newest dead letter of each stored id, among those that died at ``since`` ms or later."""
        check_batch(ids, MAX_ASKED)
        at, skip, rows = await self._run("find_dead", ref, *(go_on or ("", 0)), since, *ids)
        flat = iter(rows)
        letters = [
            DeadLetter(letter, int(float(died)), record, changes)
            for letter, died, record, changes in zip(flat, flat, flat, flat, strict=True)
        ]
        return FoundDead({letter.stored_id: letter for letter in letters}, (int(at), int(skip)) if at else None)

    async def adopt_dead(
        self, ref: PartitionRef, letters: Sequence[DeadLetter], incarnation: int = 1, *, fence: Fence | None = None
    ) -> bool:
        """Copy dead letters of an older version; False if the partition is not active."""
        check_batch(letters, MAX_SETTLE)
        start = 0
        while start < len(letters) or not start:  # also without any: is it active?
            rest = letters[start:]
            part = rest[: number_within([len(each.record) + len(each.changes) for each in rest], 2 * MAX_STEP_BYTES)]
            packed = pack([field for letter in part for field in letter])
            with one_part(begun=start > 0):
                if not await self._fenced("dead_adopt", ref, fence, incarnation, packed):
                    return False
            start += len(part) or 1
        return True

    async def remove_dead(self, ref: PartitionRef, letters: Sequence[bytes]) -> int:
        """Remove dead letters; the number of those that were there."""
        check_batch(letters)
        return int(await self._run("dead_remove", ref, pack(list(letters))))
