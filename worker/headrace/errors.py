"""Typed errors: each names the object and the field it is about, and says what to do.

No message ever contains a credential: connection errors name host and port only.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.job import Enqueued
    from headrace.job_status import JobStatus
    from headrace.topology import Topology


class HeadraceError(Exception):
    """Base of all errors raised by Headrace."""


class InvalidInput(HeadraceError, ValueError):
    """A value given by the caller is refused before anything was changed.

    ``field`` is the name of the argument or setting, ``remedy`` says what is accepted.
    """

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        super().__init__(f"{field}: {problem}; {remedy}")
        self.field = field
        self.problem = problem
        self.remedy = remedy


class UnknownQueue(HeadraceError):
    """The queue has no topology in this store: nobody has promoted a version of it yet."""

    def __init__(self, queue: str) -> None:
        super().__init__(
            f"queue {queue!r} does not exist in this store; create it by applying a Queue object "
            f"or with `headrace topology promote {queue} --version 1 --partitions N`"
        )
        self.queue = queue


class QueueDeleting(HeadraceError):
    """The queue is being deleted for good; nothing was changed or added."""

    def __init__(self, queue: str) -> None:
        super().__init__(
            f"queue {queue!r} is being deleted; finish that with `headrace queue delete {queue}`, "
            "or wait until it has ended and create the queue again"
        )
        self.queue = queue


class QueueNotEmpty(HeadraceError):
    """The queue holds jobs and was to be deleted only without any; nothing was changed. ``counts``: jobs by state."""

    def __init__(self, queue: str, counts: Mapping[str, int]) -> None:
        held = ", ".join(f"{number} {state}" for state, number in counts.items())
        super().__init__(
            f"queue {queue!r} is not empty: {held}; let it drain and look after its dead letters, "
            "or delete it with everything in it"
        )
        self.queue = queue
        self.counts = counts


class OwnedByObject(HeadraceError):
    """A setting of the queue follows its Queue object, from which the operator would set it again; nothing was changed.

    ``owner``: ``namespace/name`` of the object.
    """

    def __init__(self, queue: str, owner: str, problem: str, remedy: str) -> None:
        super().__init__(f"queue {queue!r} belongs to the Queue object {owner}, and {problem}; {remedy}")
        self.queue = queue
        self.owner = owner


class JobRunning(HeadraceError):
    """The job runs, and is deleted only when it does not; nothing was changed."""

    def __init__(self, queue: str, id: str) -> None:
        super().__init__(
            f"queue {queue!r}: job {id} runs; wait until it has ended, or end it: `headrace job cancel {queue} {id}`"
        )
        self.queue = queue
        self.id = id


class JobMoving(HeadraceError):
    """The job is on its way to another version of the queue, and was left alone."""

    def __init__(self, queue: str, id: str) -> None:
        super().__init__(
            f"queue {queue!r}: job {id} is on its way to another version, and was left alone; try again. If that "
            f"lasts, no worker leads the queue: see `headrace leader show {queue}`"
        )
        self.queue = queue
        self.id = id


class JobUnlisted(HeadraceError):
    """The job is there and waits nowhere, as after damage by a foreign hand; it was left alone."""

    def __init__(self, queue: str, id: str) -> None:
        super().__init__(
            f"queue {queue!r}: job {id} is held and was found in no list of ready jobs, and was left alone; try again. "
            f"If that lasts, the queue is damaged: `headrace audit {queue}` shows it, with --repair it is mended"
        )
        self.queue = queue
        self.id = id


class UnknownVersion(HeadraceError):
    """The version is not (or no longer) part of the queue's topology."""

    def __init__(self, queue: str, version: int, known: tuple[int, ...]) -> None:
        listed = ", ".join(f"v{number}" for number in known) or "none"
        super().__init__(f"queue {queue!r} has no version {version}; versions in its topology: {listed}")
        self.queue = queue
        self.version = version


class VersionNotHigher(HeadraceError):
    """A version number at or below the highest one ever used cannot be promoted."""

    def __init__(self, queue: str, version: int, highest: int) -> None:
        super().__init__(
            f"queue {queue!r}: version {version} is not above {highest}, the highest ever used; "
            f"promote version {highest + 1} or higher (a rollback is a new version with the old partition count)"
        )
        self.queue = queue
        self.version = version
        self.highest = highest


class VersionActive(HeadraceError):
    """The active version cannot be completed."""

    def __init__(self, queue: str, version: int) -> None:
        super().__init__(f"queue {queue!r}: version {version} is active; promote a higher version before completing it")
        self.queue = queue
        self.version = version


class NotDrained(HeadraceError):
    """A version still holds jobs, so it is not completed; nothing was changed.

    ``counts`` maps partition number to the number of jobs per state (only states that are not empty).
    ``parked_types``: types of jobs that no worker knew. ``wait_ms``: when to ask again, if waiting alone helps.
    """

    def __init__(
        self,
        queue: str,
        version: int,
        counts: Mapping[int, Mapping[str, int]],
        reason: str,
        *,
        parked_types: Sequence[str] = (),
        wait_ms: int = 0,
    ) -> None:
        detail = "; ".join(
            f"partition {partition}: " + ", ".join(f"{number} {state}" for state, number in states.items())
            for partition, states in counts.items()
        )
        text = f"queue {queue!r}: version {version} is not drained ({reason}){': ' + detail if detail else ''}"
        if parked_types:
            text += f"; parked types: {', '.join(parked_types)}, see `headrace type list {queue}`"
        if wait_ms:
            text += f"; wait {math.ceil(wait_ms / 100) / 10} s: until then a producer may send a call again"
        super().__init__(text)
        self.queue = queue
        self.version = version
        self.counts = counts
        self.reason = reason
        self.parked_types = tuple(parked_types)
        self.wait_ms = wait_ms


class TopologyConflict(HeadraceError):
    """Another actor changed the topology at the same time in a way that contradicts this request."""

    def __init__(self, queue: str, problem: str, current: Topology) -> None:
        super().__init__(f"queue {queue!r}: {problem}; the current topology is {current.summary()}")
        self.queue = queue
        self.current = current


class TopologyUnreadable(HeadraceError, ValueError):
    """The stored topology of a queue is damaged, or written by a newer Headrace; nothing was changed."""

    def __init__(self, queue: str, problem: str) -> None:
        super().__init__(
            f"queue {queue!r}: the stored topology cannot be read: {problem}; "
            f"`headrace audit {queue}` tells what can be done"
        )
        self.queue = queue
        self.problem = problem


class DataDamaged(HeadraceError):
    """What is stored was damaged by somebody else: a key of another kind, or contents that cannot be read.

    The call may have been applied in part; no record of a job is lost by that. ``key``: the key, or ``{...}:*`` for one
    of those under this hash tag; "" if the server did not say. ``queue``: "" for what belongs to all queues.
    """

    def __init__(self, key: str, problem: str, queue: str = "") -> None:
        super().__init__(
            f"{f'key {key}' if key else 'a key of the call'} {problem}, so somebody else has written there; "
            f"`headrace audit {queue or 'QUEUE'}` names what is damaged, and mends it with --repair"
        )
        self.key = key
        self.problem = problem
        self.queue = queue


class Fenced(HeadraceError):
    """A newer leader has been at this partition: the caller does not lead any more, and nothing was changed."""

    def __init__(self, queue: str, partition: str, epoch: int, newer: int) -> None:
        super().__init__(
            f"queue {queue!r}: partition {partition} obeys the leader of epoch {newer}, not that of {epoch}; "
            "stop leading, and take part in the next election"
        )
        self.queue = queue
        self.partition = partition
        self.epoch = epoch
        self.newer = newer


class QueueFull(HeadraceError):
    """The queue's length limit is reached; nothing was added."""

    def __init__(self, queue: str, partition: str, length: int, limit: int) -> None:
        super().__init__(
            f"queue {queue!r} is full: partition {partition} holds {length} of {limit} jobs; "
            "enqueue again later, add workers, or raise the queue's length limit"
        )
        self.queue = queue
        self.length = length
        self.limit = limit


class QueueHeld(HeadraceError):
    """The queue takes no new jobs, by its settings; nothing was added."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"queue {queue!r} takes no new jobs (stop policy HoldAndDrain); enqueue when it is lifted")
        self.queue = queue


class PayloadTooLarge(HeadraceError):
    """A payload is larger than the limit; store it elsewhere and enqueue a reference to it.

    ``field`` names it, with the index of its job where there are several.
    """

    def __init__(self, size: int, limit: int, field: str = "payload") -> None:
        super().__init__(f"{field}: {size} bytes are above the limit of {limit} bytes; enqueue a reference instead")
        self.field = field
        self.size = size
        self.limit = limit


class InvalidPayload(HeadraceError):
    """A payload does not fit the annotation of its handler: the job is dead at once, since no run of it can succeed.

    ``fields``: pairs of path and code of the problem, as pydantic names them; values are not told.
    """

    def __init__(self, fields: Sequence[tuple[str, str]], more: int = 0) -> None:
        told = ", ".join(f"{path} ({code})" for path, code in fields)
        super().__init__(f"invalid payload: {told}{f' and {more} more' if more else ''}")
        self.fields = tuple(fields)
        self.more = more


class ProcessFailed(HeadraceError):
    """A process for handlers could not be started."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"a process for handlers {problem}")


class ProcessDied(HeadraceError):
    """The process of a handler ended while it ran: the run has failed, and no other run is concerned.

    ``exit_code``: 128 + its number for a signal, whose name is ``signal``. ``out_of_memory``: the kernel killed it
    because the memory of the container ran out.
    """

    def __init__(self, how: str, exit_code: int, signal: str = "", *, out_of_memory: bool = False) -> None:
        super().__init__(f"the process of its handler {how}")
        self.how = how
        self.exit_code = exit_code
        self.signal = signal
        self.out_of_memory = out_of_memory


class RaisedInProcess(HeadraceError):
    """A handler raised this in a process of its own; the text is type, message and last frames, as they were there."""


class DependencyFailed(HeadraceError):
    """A dependency could not be made, so that the worker did not start."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"dependency {name!r} could not be made: {problem}")
        self.name = name


class StoreUnavailable(HeadraceError):
    """The store gave no answer or cannot serve now; whether the call was applied is unknown."""


class StoreRefused(StoreUnavailable):
    """Nothing of this step was applied: there was no connection, or the answer was that the store cannot serve now.

    Of a call that takes several steps, it is the first one that was refused: later ones raise StoreUnavailable.
    """

    half_way = False
    """Whether a step had begun when it was refused, so that a part of it may have been applied."""


class AccessDenied(StoreRefused):
    """The store refused the credentials, or a command or a key that Headrace needs: nothing of the call was applied.

    Unless ``half_way``: the user may run scripts, but not all that they do.
    """

    def __init__(self, message: str, *, half_way: bool = False) -> None:
        super().__init__(message)
        self.half_way = half_way


def not_applied(error: BaseException) -> bool:
    """Whether it is certain from this error that nothing of the call was applied."""
    return isinstance(error, StoreRefused) and not error.half_way


class StoreFull(StoreRefused):
    """The store is out of memory and refused the call: nothing of it was applied."""


class OutcomeUnknown(HeadraceError):
    """A call was resent until its time limit without a definitive answer.

    The job may or may not be in the queue. Enqueueing it again under the same id is safe while it is live.
    """


class RetentionOff(HeadraceError):
    """The queue keeps no finished jobs, so that nobody could tell when one has succeeded."""

    def __init__(self, queue: str) -> None:
        super().__init__(
            f"queue {queue!r} keeps no finished jobs, so none can be waited for; set spec.retention of its Queue "
            "(or QueueSettings.retention), `{}` for the defaults"
        )
        self.queue = queue


class WaitTimeout(HeadraceError, TimeoutError):
    """The time to wait is over. ``statuses``: the last status of each job; ``live``: of a queue, how many are left."""

    def __init__(self, queue: str, statuses: Mapping[str, JobStatus], *, live: int | None = None) -> None:
        states = Counter(status.state for status in statuses.values())
        seen = ", ".join(f"{number} {state}" for state, number in states.most_common()) or "nothing was seen"
        if live is not None:
            seen = f"{live} job(s) left" if live >= 0 else "the store did not answer"
        super().__init__(f"queue {queue!r}: waited in vain ({seen}); wait longer, or see `headrace status {queue}`")
        self.queue = queue
        self.statuses = dict(statuses)
        self.live = live


class JobFailed(HeadraceError):
    """The job that was waited for is dead, or unknown: it has no result. ``status``: what is known of it."""

    def __init__(self, queue: str, status: JobStatus) -> None:
        told = (
            f"is dead after {status.attempt} failed run(s): {status.error}"
            if status.state == "dead"
            else (
                "is unknown: it never was there, was cancelled, or nothing is kept of it: it ended too long ago, or "
                "before the retention of its queue was in force, some 5 s after it was set"
            )
        )
        super().__init__(f"queue {queue!r}: job {status.id} {told}")
        self.queue = queue
        self.status = status


class ResultNotKept(HeadraceError):
    """The job succeeded, and what its handler returned could not be kept; ``reason`` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the job succeeded, but its result was not kept: it {reason}; return less, or store it elsewhere and "
            "return a reference"
        )
        self.reason = reason


class NotReplicated(OutcomeUnknown):
    """The job is stored, but fewer replicas have it in time than the producer asked for: a failover now may lose it.

    ``placed`` says where it is. Enqueueing it again under the same id is safe, and waits for the replicas again.
    """

    def __init__(self, placed: Enqueued, queue: str, replicas: int, wanted: int, within_ms: int, problem: str) -> None:
        super().__init__(
            f"queue {queue!r}: job {placed.id!r} is stored, but {replicas} of {wanted} replica(s) have it after "
            f"{within_ms} ms{': ' + problem if problem else ''}; a failover now may lose it"
        )
        self.placed = placed
        self.replicas = replicas


class UnsupportedServer(HeadraceError):
    """The server lacks a feature that Headrace needs."""
