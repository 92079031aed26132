"""Dead letters of a queue, over all its versions and partitions: list, put back, delete.

A letter is put back by enqueueing its job, under its id, into the active version, and then removing the letter. While
another job of the id lives, the letter stays: it may hold other work. If that stops in between, the job lives and the
letter is still there, to be deleted, or put back once more when the job has ended.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import NamedTuple

from headrace.ids import check_id, decode_id, encode_id, partition_of
from headrace.inquiry import newest_letters, read_job
from headrace.job import Job
from headrace.known_queue import topology_of
from headrace.producer import Producer
from headrace.stores.base import MAX_BATCH, DeadLetter, Store
from headrace.topology import PartitionRef

PAGE = 200


class DeadJob(NamedTuple):
    """A dead letter, opened. ``job`` is None if its record cannot be read by this version of Headrace."""

    ref: PartitionRef
    letter: DeadLetter
    id: str
    job: Job | None

    @property
    def error(self) -> str:
        """Why the job died: its last error."""
        return self.job.last_error if self.job else "the stored record cannot be read"


Wanted = Callable[[DeadJob], bool]


async def dead_jobs(store: Store, queue: str, *, died_before: int | None = None) -> AsyncIterator[DeadJob]:
    """Yield the queue's dead letters, version by version and partition by partition, each oldest first.

    ``died_before`` (ms): leave out those that died later, so that a bulk action has a fixed set. Raises UnknownQueue.
    """
    topology = await topology_of(store, queue)
    for version in sorted(topology.versions):
        for ref in topology.refs(version):
            after: DeadLetter | None = None
            while page := await store.dead_letters(ref, after, PAGE):
                after = page[-1]
                for letter in page:
                    if died_before is None or letter.died_at < died_before:
                        yield open_letter(ref, letter)


async def server_now(store: Store, queue: str) -> int:
    """Return the store's time in ms, as dead letters carry it. Raises UnknownQueue."""
    topology = await topology_of(store, queue)
    (counts,) = await store.counts([PartitionRef(queue, topology.active, 0)])
    return counts.now


async def retry_dead(producer: Producer, store: Store, dead: DeadJob) -> bool | None:
    """Put one dead letter back into the active version, to run now with all its runs before it.

    True: enqueued. False: a job of its id is live, and the letter stays. None: unreadable, it stays too.
    """
    if dead.job is None:
        return None
    placed = await producer.enqueue_record(dead.ref.queue, dead.id, dead.letter.record)
    if placed.existing:
        return False
    await store.remove_dead(dead.ref, [dead.letter.letter])
    return True


async def newest_letter(store: Store, queue: str, id: str) -> DeadJob | None:
    """Return the newest dead letter of an id, None if there is none. Raises UnknownQueue."""
    topology = await topology_of(store, queue)
    stored, found = encode_id(check_id(id)), None
    for version, known in topology.versions.items():
        ref = PartitionRef(queue, version, partition_of(id, known.partitions))
        letter = (await newest_letters(store, ref, [stored])).get(stored)
        if letter and (found is None or found.letter.died_at < letter.died_at):
            found = open_letter(ref, letter)
    return found


async def delete_dead(store: Store, dead: Iterable[DeadJob]) -> int:
    """Forget dead letters, in one call per partition and 1,000 of them; the number of those that were there."""
    letters: dict[PartitionRef, list[bytes]] = {}
    for each in dead:
        letters.setdefault(each.ref, []).append(each.letter.letter)
    deleted = 0
    for ref, names in letters.items():
        for start in range(0, len(names), MAX_BATCH):
            deleted += await store.remove_dead(ref, names[start : start + MAX_BATCH])
    return deleted


def open_letter(ref: PartitionRef, letter: DeadLetter) -> DeadJob:
    """Unpack a dead letter of a partition, as far as it can be read."""
    try:
        job_id = decode_id(letter.stored_id)
    except ValueError:
        return DeadJob(ref, letter, letter.stored_id.hex(), None)
    return DeadJob(ref, letter, job_id, read_job(ref, letter.stored_id, letter))
