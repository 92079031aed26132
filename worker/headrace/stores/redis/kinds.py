"""What each key is, as TYPE tells it: a key of another kind was put there by somebody else."""

from __future__ import annotations

from typing import Final

PARTITION_KINDS: Final = {
    **dict.fromkeys(("r0", "r1", "r2", "suspects", "alone"), "list"),
    **dict.fromkeys(("scheduled", "retry", "leased", "park", "seen", "dead"), "zset"),
    **dict.fromkeys(("meta", "lease", "jobs", "mut", "moving", "arrived", "letters"), "hash"),
    "done": "stream",
}
QUEUE_KINDS: Final = {
    **dict.fromkeys(("topology", "grave"), "string"),
    **dict.fromkeys(("hot", "due", "workers", "gone", "stopping", "parked"), "zset"),
    **dict.fromkeys(("alarm", "about", "fence", "lock", "stats", "schedules"), "hash"),
}
SHARED_KINDS: Final = {"marker": "string", "queues": "zset", "wakes": "stream"}
"""Keys that belong to all queues."""

_BY_PARTS: Final = {1: SHARED_KINDS, 2: QUEUE_KINDS, 4: PARTITION_KINDS}


def kind_of(key: bytes) -> str | None:
    """Return what a key should be, by its name; None if it is not one of Headrace."""
    tag, _, name = key.decode(errors="replace").partition("}:")
    return _BY_PARTS.get(tag.count(":") + 1, {}).get(name)
