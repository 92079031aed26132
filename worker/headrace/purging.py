"""Removing many jobs of a queue: those that wait, dead letters and finished ones, by state, type, age and version.

A purge looks through the queue in steps of a few milliseconds, partition by partition, and leaves the store time for
others. It is for what was there when it began: what comes later is left alone. Jobs that run are never purged. It may
be broken off at any time, and the same again goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, Literal, NamedTuple, get_args

from headrace.dead_letters import PAGE, open_letter
from headrace.errors import InvalidInput, UnknownVersion
from headrace.known_queue import topology_of
from headrace.pacing import DEFAULT_LOAD, paced
from headrace.stores.base import INDEXES, DeadLetter, Pause, Sought, Store, Waiting
from headrace.topology import PartitionRef, Topology, check_queue_name

PurgeState = Literal["scheduled", "ready", "retry_wait", "parked", "dead", "succeeded"]
PURGEABLE: Final[tuple[PurgeState, ...]] = get_args(PurgeState)
_WAITING: Final[dict[PurgeState, Waiting]] = {
    "scheduled": "scheduled", "ready": "ready", "retry_wait": "retry", "parked": "parked",
}  # fmt: skip


class Purge(NamedTuple):
    """Which jobs of a queue are to go.

    ``type``: None for all. ``before``: ms, of the server's clock; jobs that wait count from their enqueueing, dead and
    finished ones from their end. ``version``: None for all.
    """

    states: tuple[PurgeState, ...]
    before: int
    type: str | None = None
    version: int | None = None


async def purge_queue(
    store: Store,
    queue: str,
    wanted: Purge,
    *,
    dry_run: bool = False,
    load: float = DEFAULT_LOAD,
    progress: Callable[[Counter[PurgeState]], None] = lambda removed: None,
) -> Counter[PurgeState]:
    """Remove the jobs that are wanted; how many of each state there were. ``dry_run``: count them only.

    ``load``: share of the time in which it keeps the store busy, above 0 and at most 1. Raises InvalidInput,
    UnknownQueue or UnknownVersion.
    """
    _check(wanted)
    topology = await topology_of(store, check_queue_name(queue))
    pause, found = paced(load), Counter[PurgeState]()
    for ref in _refs(topology, wanted):
        for state in wanted.states:
            if state == "dead":
                found[state] += await _dead(store, ref, wanted, pause, remove=not dry_run)
            elif state == "succeeded":
                found[state] += await _finished(store, ref, wanted, pause, remove=not dry_run)
            else:
                found[state] += await _waiting(store, ref, _WAITING[state], wanted, pause, remove=not dry_run)
        progress(found)
    return +found


def _check(wanted: Purge) -> None:
    unknown = [state for state in wanted.states if state not in PURGEABLE]
    if unknown or not wanted.states:
        problem = f"cannot be {unknown[0]!r}" if unknown else "are none"
        raise InvalidInput("states", problem, f"give some of {', '.join(PURGEABLE)}")
    if "succeeded" in wanted.states and wanted.type is not None:
        raise InvalidInput(
            "type",
            "cannot choose among finished jobs, which are kept in batches",
            "purge those by age or version",
        )


def _refs(topology: Topology, wanted: Purge) -> Iterable[PartitionRef]:
    if wanted.version is not None and wanted.version not in topology.versions:
        raise UnknownVersion(topology.queue, wanted.version, tuple(sorted(topology.versions)))
    versions = sorted(topology.versions) if wanted.version is None else [wanted.version]
    return [ref for version in versions for ref in topology.refs(version)]


async def _waiting(
    store: Store, ref: PartitionRef, state: Waiting, wanted: Purge, pause: Pause, *, remove: bool
) -> int:
    """Look through one state, and again until nothing more was found, since entries move while it looks."""
    removed, sought = 0, Sought(wanted.before, wanted.type)
    for index in INDEXES[state]:
        while True:
            passed = matching = 0
            while not (step := await store.purge(ref, index, sought, passed, remove=remove)).end:
                passed += step.seen - (step.matching if remove else 0)
                matching += step.matching
                await pause()
            removed += matching
            if not (remove and matching and passed):
                break
    return removed


async def _dead(store: Store, ref: PartitionRef, wanted: Purge, pause: Pause, *, remove: bool) -> int:
    matching, after = 0, None
    while page := await store.dead_letters(ref, after, PAGE):
        after = page[-1]
        names = [letter.letter for letter in page if _is_wanted(ref, letter, wanted)]
        matching += await store.remove_dead(ref, names) if remove and names else len(names)
        await pause()
        if after.died_at >= wanted.before:
            break
    return matching


def _is_wanted(ref: PartitionRef, letter: DeadLetter, wanted: Purge) -> bool:
    if letter.died_at >= wanted.before:
        return False
    if wanted.type is None:
        return True
    job = open_letter(ref, letter).job
    return job is not None and job.type == wanted.type


async def _finished(store: Store, ref: PartitionRef, wanted: Purge, pause: Pause, *, remove: bool) -> int:
    matching, after = 0, b""
    while page := await store.finished(ref, after, PAGE, newest_first=False):
        after = page[-1].entry
        old = [batch for batch in page if all(job.finished_at < wanted.before for job in batch.jobs)]
        if remove and old:
            await store.forget_finished(ref, [batch.entry for batch in old])
        matching += sum(len(batch.jobs) for batch in old)
        await pause()
    return matching
