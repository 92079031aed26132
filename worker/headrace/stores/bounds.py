"""How much one call may ask for, how much is kept, and for how long: the same in every store."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import InvalidInput

MAX_CLAIM = 256
MAX_STEP_BYTES = 256 << 10
"""Records in one enqueue or claim at most (or a single larger one): the server does nothing else meanwhile."""
MAX_BATCH = 1000
"""Elements of a call that costs the server a microsecond or two for each. Those that cost more have limits below, by
what `make bench ID=B15` measures: no step is to keep the server busy for more than 5 ms."""
MAX_ENQUEUE = 500
MAX_FUSED = 256
"""Acknowledgements in a claim."""
MAX_SETTLE = 250
"""Jobs in one step that writes what has happened to each of them, or makes them dead letters."""
LETTER_WEIGHT = 700
"""Bytes that a job counts besides those of its record and history in a step that may make it a dead letter."""
MAX_ASKED = 200
"""Ids that one call looks for."""
MAX_RECOVER = 100
MAX_PROMOTE = 500
MAX_UNPARK = 1000
MAX_ASIDE = 100
"""Jobs of one partition that are on their way to another version at the same time, at most."""
NONCE_TTL_MS = 10_000
REPLICATION_MS = 1000
"""How long a write that a failover should not forget waits for a replica to have it."""
TOMBSTONE_TTL_MS = 7 * 24 * 3600 * 1000
GRAVE_TTL_MS = TOMBSTONE_TTL_MS + 24 * 3600 * 1000
"""What is left of a deleted queue outlives the tombstones of its partitions, whose incarnation it knows."""
SUSPECT_RECHECK_MS = 1000
"""A partition whose suspects nobody may take now is hinted again after this time."""
ROOM_MS = 10_000
"""A worker that makes room for a job that runs alone has to say so within this time, or another one is asked."""
FENCED_RECHECK_MS = 1000
"""A partition in which only a leader may claim is hinted again after this time, if another one came."""
RECHECK_MS = 2000
"""A partition with ready jobs is hinted again after this time, whatever happened to the first hint."""
MAX_RESULT_BYTES = 64 << 10
"""A result that is larger is not kept."""
MAX_RESULTS_BYTES = 256 << 10
"""Results in one acknowledging call at most."""
HORIZONS = (10, 30, 60, 300, 900, 3600)
"""Seconds within which statistics tell how many delayed jobs become due."""


def number_within(sizes: Sequence[int], limit: int = MAX_STEP_BYTES) -> int:
    """Return how many of the first elements stay within ``limit`` in sum; one always does."""
    total = 0
    for number, size in enumerate(sizes):
        total += size
        if number and total > limit:
            return number
    return len(sizes)


def check_batch(batch: Sequence[object], most: int = MAX_BATCH) -> None:
    """Raise InvalidInput if one call is given more than ``most`` elements."""
    if len(batch) > most:
        raise InvalidInput("batch", f"has {len(batch)} elements", f"send at most {most} in one call")


def check_acks(
    acks: Sequence[object], successes: Sequence[tuple[object, object, bytes]], most: int = MAX_BATCH
) -> None:
    """Raise InvalidInput if there are more than ``most``, or too much is to be kept of them."""
    check_batch(acks, most)
    if successes and len(successes) != len(acks):
        raise InvalidInput("successes", f"has {len(successes)} elements", f"tell all of the {len(acks)} jobs or none")
    if (size := sum(len(result) for _, _, result in successes)) > MAX_RESULTS_BYTES:
        raise InvalidInput(
            "successes", f"hold {size} bytes of results", f"send at most {MAX_RESULTS_BYTES} in one call"
        )


def check_limit(limit: int) -> None:
    """Raise InvalidInput if a claim asks for more than MAX_CLAIM jobs, or for fewer than none."""
    if not 0 <= limit <= MAX_CLAIM:
        raise InvalidInput("limit", f"is {limit}", f"claim 0 to {MAX_CLAIM} jobs at once")


def check_page(limit: int, most: int = MAX_BATCH) -> None:
    """Raise InvalidInput if a page of fewer than 1 or more than ``most`` elements is asked for."""
    if not 1 <= limit <= most:
        raise InvalidInput("limit", f"is {limit}", f"ask for 1 to {most} at once")


def check_aside(number: int) -> None:
    """Raise InvalidInput if one call moves more than MAX_ASIDE jobs."""
    if not 0 <= number <= MAX_ASIDE:
        raise InvalidInput("limit", f"is {number}", f"move 0 to {MAX_ASIDE} jobs at once")
