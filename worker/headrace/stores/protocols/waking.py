"""Hints: which partition is worth a claim, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headrace.stores.protocols.registry import Beat
from headrace.topology import PartitionRef


class Tick(NamedTuple):
    """``alarm_ms``: until the next due time if this worker holds the queue's alarm, None if another one does.

    ``stop_ms``: for how long this worker is to claim nothing, None if it may (see `RegistrySteps.stop_claiming`);
    ``stop_till``: until when, by the server's clock, 0 if it may. It says that in its next beat.
    """

    alarm_ms: int | None
    stop_ms: int | None = None
    stop_till: int = 0


class WakingSteps(Protocol):
    """Waiting for hints, and the timer of what becomes due."""

    @property
    def hints_may_be_lost(self) -> bool:
        """Whether a partition may be worth a claim with no hint of it, so that workers have to look now and then."""
        ...

    async def wait_hint(self, queues: Sequence[str], timeout: float) -> PartitionRef | str | None:
        """Wait at most ``timeout`` seconds until a partition of one of the queues is worth a claim.

        Returns the partition (only one waiter gets it), or the name of a queue whose timer must be set anew (call
        `tick`), or None.
        """
        ...

    async def hint(self, ref: PartitionRef) -> None:
        """Give a hint back, or raise one, so that some worker claims from the partition. Nothing of a deleted queue."""
        ...

    async def tick(self, queue: str, worker: str, beat: Beat | None = None) -> Tick:
        """Turn what is due into hints and record that ``worker`` lives, with what it says of itself.

        Every worker calls at least every 5 s, and one that is told an ``alarm_ms`` at that time.
        """
        ...

    async def leave(self, queue: str, worker: str) -> None:
        """Forget a worker that stops; if it held the queue's alarm, one that waits for hints is to set its timer."""
        ...
