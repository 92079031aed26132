"""Queues of which only the leader runs jobs: the others stand by, claim nothing, and wait for no hint.

A new leader goes to every partition first, so that none obeys the one before any more. When a term ends, whatever runs
is told to end and handed back, and nobody else leads through the same lock before it has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.agreement import each_partition
from headrace.election.fence import Token
from headrace.errors import Fenced, HeadraceError
from headrace.maintenance.signs import Signs
from headrace.maintenance.turn import NotLeading
from headrace.stores.base import Fence, Store
from headrace.topology import PartitionRef, Topology
from headrace.worker.outage import Backoff, Reachability
from headrace.worker.policies import Policies

if TYPE_CHECKING:
    from headrace.worker.claims import Claims
    from headrace.worker.execution import Executor

log = logging.getLogger("headrace.worker")

STANDING_BY = "standing by"
LOOK_SECONDS = 0.05
"""How often it is looked whether the code of handlers has ended."""


class Exclusive:
    """One queue of a worker: whether it may run jobs there, by the queue's mode and by who leads.

    ``reread`` lets the topology be read now. ``may_lead``: whether this worker stands for election in a queue.
    """

    def __init__(
        self,
        queue: str,
        store: Store,
        policies: Policies,
        signs: Signs,
        claims: Claims,
        executor: Executor,
        reachability: Reachability,
        reread: Callable[[], None],
        may_lead: Callable[[str], bool],
    ) -> None:
        self._queue = queue
        self._store = store
        self._policies = policies
        self._signs = signs
        self._claims = claims
        self._executor = executor
        self._reachability = reachability
        self._reread = reread
        self._may_lead = may_lead
        self._told = False
        self._token: Callable[[], Token | None] = lambda: None
        self._fenced: Callable[[int, int], None] = lambda epoch, newer: None
        self._may_run = False
        self._asking: set[asyncio.Task[None]] = set()

    def fence(self) -> Fence | None:
        """Return what claims have to show, None where everybody may claim, or this worker does not lead."""
        if not self._policies.exclusive(self._queue):
            return None
        token = self._token()
        return None if token is None else Fence(token.epoch, token.nonce, self._policies.incarnation(self._queue))

    # ---- standing by ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Stand by whenever the mode asks for it, until cancelled."""
        changed = self._signs.listen()
        try:
            while True:
                changed.clear()
                if self._policies.exclusive(self._queue) and not self._may_run:
                    await self._stand_by()
                elif not self._policies.exclusive(self._queue):
                    self._go_on()
                await changed.wait()
        finally:
            self._signs.forget(changed)

    async def _stand_by(self) -> None:
        if not self._told and not self._may_lead(self._queue):
            self._told = True
            log.warning(
                "queue %s: only its leader runs jobs, and this worker never leads: it runs none; set leader_backends",
                self._queue,
            )
        for ref in self._claims.pause(self._queue, STANDING_BY):  # the leader may have them
            try:
                await self._store.hint(ref)
            except HeadraceError as error:
                self._reachability.failed(f"giving hints of queue {self._queue} back", error)

    def _go_on(self) -> None:
        self._executor.admit(self._queue)
        self._claims.resume(self._queue, STANDING_BY)

    # ---- leading ----------------------------------------------------------------------------------------------------

    async def lead(self, token: Callable[[], Token | None], fenced: Callable[[int, int], None]) -> None:
        """Let this worker run jobs while it leads. Cancelled, it ends when the last handler has ended.

        ``token`` gives what to show to the fence, None: this worker does not lead now. ``fenced`` is told of a step
        that was refused: its epoch, and the newer one.
        """
        self._token, self._fenced = token, fenced
        changed = self._signs.listen()
        went_to: Topology | None = None
        try:
            while True:
                changed.clear()
                topology = self._signs.topology
                if topology is not None and self._policies.exclusive(self._queue) and topology != went_to:
                    await self._go_to_partitions(topology)
                    went_to = topology
                    if not self._may_run:
                        log.info("queue %s: running its jobs, as its leader", self._queue)
                    self._may_run = True
                    self._go_on()
                await changed.wait()
        finally:
            self._signs.forget(changed)
            if self._may_run:
                await self._end()

    async def _go_to_partitions(self, topology: Topology) -> None:
        """Let every partition obey this leader, whatever it takes."""
        backoff = Backoff()

        async def go_to(ref: PartitionRef) -> None:
            fence = self.fence()
            if fence is None:
                raise NotLeading
            await self._store.fence(ref, fence)

        refs = [ref for version in topology.versions for ref in topology.refs(version)]
        while True:
            try:
                await each_partition(refs, go_to)
                return
            except NotLeading:
                pass  # the end of the term comes, or the right comes back with another lock
            except Fenced as error:
                self._fenced(error.epoch, error.newer)
            except Exception as error:
                self._reachability.failed(f"going to the partitions of queue {self._queue} as its leader", error)
            await asyncio.sleep(backoff.next())

    async def _end(self) -> None:
        """Run nothing any more; whatever goes on is waited for, since it may have effects that no fence sees."""
        self._may_run = False
        if not self._policies.exclusive(self._queue):
            return
        self._claims.pause(self._queue, STANDING_BY)
        self._executor.bar(self._queue)
        if self._executor.runs(self._queue):
            log.warning("queue %s: leading no more, its handlers are told to end", self._queue)
        while self._executor.runs(self._queue):  # noqa: ASYNC110 - nobody tells of the end of single handlers
            await asyncio.sleep(LOOK_SECONDS)

    def refused(self, ref: PartitionRef, fence: Fence | None) -> None:
        """Take note of a claim that a partition refused: only a leader may claim there, and it obeys another one."""
        if fence is None:
            self._reread()  # the mode may have changed
            return
        task = asyncio.get_running_loop().create_task(self._ask(ref, fence))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _ask(self, ref: PartitionRef, fence: Fence) -> None:
        """Find out which leader a partition obeys."""
        try:
            await self._store.fence(ref, fence)
        except Fenced as error:
            self._fenced(error.epoch, error.newer)
        except Exception as error:
            self._reachability.failed(f"asking partition {ref.label} of queue {self._queue} for its leader", error)
