"""Wake-ups in memory: which partitions of a queue are worth a claim, when others become so, and who waits for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import RLock

from headrace.stores.bounds import RECHECK_MS
from headrace.topology import PartitionRef

Hint = PartitionRef | str
MAX_TICK = 200


@dataclass(slots=True)
class QueueHints:
    """Hints of one queue. ``hot``: partition -> time of its hint; ``due``: partition -> time of its next one.

    ``given``: partitions whose hint a waiter has, until they are claimed from. ``parked``: partition with parked jobs
    -> when one was parked last.
    """

    hot: dict[PartitionRef, int] = field(default_factory=dict)
    given: set[PartitionRef] = field(default_factory=set)
    due: dict[PartitionRef, int] = field(default_factory=dict)
    parked: dict[PartitionRef, int] = field(default_factory=dict)
    rearm: bool = False
    alarm_at: int = 0
    alarm_worker: str = ""

    def became_ready(self, ref: PartitionRef, now: int) -> None:
        """Hint at the partition, and look again a little later, in case the hint is lost with its worker."""
        self.hot.setdefault(ref, now)
        self.due[ref] = min(now + RECHECK_MS, self.due.get(ref, now + RECHECK_MS))

    def waits_until(self, ref: PartitionRef, at: int) -> None:
        """Look at the partition at ``at`` or earlier; the queue's new earliest time makes a worker set its timer."""
        head = self._head()
        self.due[ref] = min(at, self.due.get(ref, at))
        self.rearm = self.rearm or head is None or at < head - 1

    def claimed(self, ref: PartitionRef, *, more: bool, next_due: int | None, now: int) -> None:
        """Set what is known of a partition after a claim: jobs are left, or when it needs attention again."""
        self.forget(ref)
        if more:
            self.hot[ref] = now
            self.due[ref] = now + RECHECK_MS
        elif next_due is not None:
            self.due[ref] = next_due

    def forget(self, ref: PartitionRef) -> None:
        """Remove the partition's hint and its planned one."""
        self.hot.pop(ref, None)
        self.given.discard(ref)
        self.due.pop(ref, None)

    def remove(self, ref: PartitionRef) -> None:
        """Forget everything about a partition."""
        self.forget(ref)
        self.parked.pop(ref, None)

    def tick(self, now: int) -> None:
        """Turn what is due into hints, and look again a little later, in case a hint is lost with its worker."""
        self.rearm = False
        due = sorted((at, ref) for ref, at in self.due.items() if at <= now)
        for _, ref in due[:MAX_TICK]:
            self.hot.setdefault(ref, now)
            self.due[ref] = now + RECHECK_MS

    def take_alarm(self, worker: str, now: int) -> int | None:
        """Return the ms until the next due time if ``worker`` holds the alarm, or takes it now, else None."""
        head = self._head()
        if head is None:
            return None
        if self.alarm_worker == worker or self.alarm_at < now or head < self.alarm_at - 1:
            self.alarm_at, self.alarm_worker = head, worker
            return max(0, head - now)
        return None

    def give_up_alarm(self, worker: str) -> None:
        """Let another worker take the alarm, if ``worker`` holds it."""
        if self.alarm_worker == worker:
            self.alarm_at, self.alarm_worker = 0, ""
            self.rearm = self._head() is not None

    def knows(self, ref: PartitionRef) -> bool:
        """Whether the partition is hinted at, or will be."""
        return ref in self.hot or ref in self.due

    @property
    def quiet(self) -> bool:
        """Whether no partition is known to be worth a claim."""
        return not self.hot and not self.given

    def first(self) -> PartitionRef | None:
        """Return the hint that is next, without removing it."""
        return min(self.hot, key=lambda ref: (self.hot[ref], ref), default=None)

    def _head(self) -> int | None:
        return min(self.due.values(), default=None)


class _Waiter:
    """One call of `Waiters.wait`: the hint is handed over under the lock, the event loop is only told about it."""

    def __init__(self, queues: Sequence[str]) -> None:
        self.queues = queues
        self.hint: Hint | None = None
        self.loop = asyncio.get_running_loop()
        self.told: asyncio.Future[None] = self.loop.create_future()

    def tell(self) -> None:
        """Wake the waiting task. Raises RuntimeError if its loop is closed."""
        self.loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        if not self.told.done():
            self.told.set_result(None)


class Waiters:
    """Hands each hint to exactly one waiter, the one that waits longest, in whichever event loop it runs."""

    def __init__(self, lock: RLock, queue: Callable[[str], QueueHints]) -> None:
        self._lock = lock
        self._queue = queue
        self._waiting: OrderedDict[_Waiter, None] = OrderedDict()
        self._calls = 0

    async def wait(self, queues: Sequence[str], timeout: float) -> Hint | None:
        """Wait at most ``timeout`` seconds for a hint of one of the queues."""
        with self._lock:
            # Each call begins with another queue, or one starves the rest.
            self._calls += 1
            first = self._calls % len(queues)
            if (hint := self._pop((*queues[first:], *queues[:first]))) is not None:
                return hint
            waiter = _Waiter(queues)
            self._waiting[waiter] = None
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await waiter.told
        except BaseException:
            # A hint handed over between the cancellation and now goes to the next one who waits.
            with self._lock:
                self._waiting.pop(waiter, None)
                if waiter.hint is not None:
                    self._give_back(waiter.hint)
            raise
        with self._lock:
            self._waiting.pop(waiter, None)
            return waiter.hint

    def deliver(self, queue: str) -> None:
        """Hand the hints of a queue to those who wait for them. Call it, under the lock, after adding any."""
        for waiter in [each for each in self._waiting if queue in each.queues]:
            if (hint := self._pop([queue])) is None:
                return
            del self._waiting[waiter]
            waiter.hint = hint
            try:
                waiter.tell()
            except RuntimeError:  # its event loop was closed without ending the task
                self._restore(hint)

    def _give_back(self, hint: Hint) -> None:
        self._restore(hint)
        self.deliver(hint if isinstance(hint, str) else hint.queue)

    def _restore(self, hint: Hint) -> None:
        if isinstance(hint, str):
            self._queue(hint).rearm = True
        else:
            self._queue(hint.queue).hot.setdefault(hint, 0)

    def _pop(self, queues: Sequence[str]) -> Hint | None:
        for queue in queues:
            hints = self._queue(queue)
            if hints.rearm:
                hints.rearm = False
                return queue
            if (ref := hints.first()) is not None:
                del hints.hot[ref]
                hints.given.add(ref)
                return ref
        return None
