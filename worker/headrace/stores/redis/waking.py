"""Hints on Redis. What the scripts of a Cluster cannot give is in `headrace.stores.redis.hints`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from headrace.stores.protocols.registry import Beat
from headrace.stores.protocols.waking import Tick
from headrace.stores.redis.access import RedisAccess, pack
from headrace.stores.redis.scripts import script
from headrace.topology import PartitionRef, labelled


class RedisWaking(RedisAccess):
    """Implements `headrace.stores.protocols.waking.WakingSteps`."""

    _waits = 0

    @property
    def hints_may_be_lost(self) -> bool:
        """Whether a partition may be worth a claim with no hint: in a Cluster, if a client died at the wrong time."""
        return self._hints is not None

    async def wait_hint(self, queues: Sequence[str], timeout: float) -> PartitionRef | str | None:
        """Wait at most ``timeout`` seconds until a partition of one of the queues is worth a claim."""
        # The first queue that has a hint is served: each call begins with another one, or one starves the rest.
        self._waits += 1
        first = self._waits % len(queues)
        queues = (*queues[first:], *queues[:first])
        if self._hints is not None and len(queues) > 1:
            return await self._first_hint(queues, timeout)
        hot = {self._keys.queue(queue, "hot"): queue for queue in queues}
        reply = await self._client.blocking(timeout, "BZPOPMIN", *hot, f"{max(timeout, 0.001):.3f}")
        if reply is None:
            return None
        queue = hot[reply[0]]
        if reply[1] == b"@":
            return queue
        return labelled(queue, reply[1])

    async def _first_hint(self, queues: Sequence[str], timeout: float) -> PartitionRef | str | None:
        """Wait for several queues whose keys lie on different nodes; a second hint at the same moment is given back."""
        for queue in queues:  # in turn, before the nodes race
            if popped := await self._client.command("ZPOPMIN", self._keys.queue(queue, "hot")):
                return queue if popped[0] == b"@" else labelled(queue, popped[0])
        waits = [asyncio.create_task(self.wait_hint([queue], timeout)) for queue in queues]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            results = await asyncio.gather(*waits, return_exceptions=True)
        problem = next((each for each in results if isinstance(each, Exception)), None)
        hints = [each for each in results if isinstance(each, PartitionRef | str)]
        for extra in hints[1:]:
            if isinstance(extra, PartitionRef):
                await self.hint(extra)
        if not hints and problem is not None:
            raise problem
        return hints[0] if hints else None

    async def hint(self, ref: PartitionRef) -> None:
        """Give a hint back, or raise one; it goes to the head."""
        await self._client.run(script("give_hint"), self._keys.of_queue_script("give_hint", ref.queue), (ref.label,))

    async def tick(self, queue: str, worker: str, beat: Beat | None = None) -> Tick:
        """Turn what is due into hints, and record that the worker lives."""
        keys = self._keys.of_queue_script("tick", queue)
        alarm, stop, till = await self._client.run(script("tick"), keys, (worker, pack(list(beat)) if beat else b""))
        return Tick(None if alarm < 0 else alarm, None if stop < 0 else stop, till)

    async def leave(self, queue: str, worker: str) -> None:
        """Forget a worker that stops; the alarm that it held is offered to another one."""
        await self._client.run(script("leave"), self._keys.of_queue_script("leave", queue), (worker,))
