"""Names of the keys in Redis, and which of them each script declares.

Two kinds of hash tag: ``{prefix:queue}`` for what belongs to the queue, ``{prefix:queue:version:partition}`` for what
belongs to one partition. In the Cluster form every script stays within one partition's tag; the standalone form
(`hinted`) appends the queue's hint keys, which no cluster would allow.
"""

from __future__ import annotations

from typing import Final

from headrace.redis.patterns import literal
from headrace.stores.redis.kinds import SHARED_KINDS
from headrace.topology import PartitionRef, is_queue_name

PARTITION_KEYS: Final = (
    "meta", "r0", "r1", "r2", "scheduled", "retry", "leased", "lease", "jobs", "mut", "park", "moving", "arrived",
    "seen", "dead", "letters", "suspects", "alone", "done",
)  # fmt: skip

COUNTED: Final = (
    "meta", "r0", "r1", "r2", "scheduled", "retry", "leased", "jobs", "park", "moving", "arrived", "dead", "suspects",
    "alone",
)  # fmt: skip

SCRIPT_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "enqueue": ("meta", "r0", "r1", "r2", "scheduled", "jobs", "moving", "seen"),
    "probe": ("meta", "jobs", "moving", "seen"),
    "claim": (
        "meta", "r0", "r1", "r2", "scheduled", "retry", "leased", "lease", "jobs", "mut", "seen", "suspects", "alone",
        "dead", "letters", "done",
    ),
    "resume": ("meta", "leased", "lease", "jobs", "mut", "seen"),
    "ack": ("meta", "r0", "r1", "r2", "leased", "lease", "jobs", "mut", "done"),
    "fail": ("meta", "r0", "r1", "r2", "retry", "leased", "lease", "jobs", "mut", "dead", "letters"),
    "release": ("meta", "r0", "r1", "r2", "retry", "leased", "lease", "mut", "suspects", "alone"),
    "renew": ("meta", "leased", "lease", "mut"),
    "recover": ("meta", "leased", "lease", "jobs", "mut", "suspects", "alone", "dead", "letters"),
    "promote_due": ("meta", "r0", "r1", "r2", "scheduled", "retry"),
    "park": ("meta", "r0", "r1", "r2", "leased", "lease", "park", "mut"),
    "unpark": ("meta", "r0", "r1", "r2", "park"),
    "parked": ("park",),
    "bury_parked": ("meta", "park", "jobs", "mut", "dead", "letters"),
    "trim_parked": ("meta", "park", "jobs", "mut", "dead", "letters"),
    "dead_letters": ("dead", "letters"),
    "dead_remove": ("dead", "letters"),
    "find_dead": ("dead", "letters"),
    "finished": ("done",),
    "find_finished": ("done",),
    "adopt_finished": ("meta", "done"),
    "forget_finished": ("done",),
    "trim": ("meta", "dead", "letters", "done"),
    "statuses": ("meta", "jobs", "lease", "leased", "scheduled", "retry", "park", "moving"),
    "describe": ("jobs", "lease", "leased", "scheduled", "retry", "park", "moving", "mut"),
    "browse": (
        "r0", "r1", "r2", "suspects", "alone", "scheduled", "retry", "park", "leased", "jobs", "mut", "lease",
    ),
    "dead_adopt": ("meta", "dead", "letters"),
    "fence": ("meta", "r0", "r1", "r2", "suspects", "alone"),
    "set_aside": (
        "meta", "r0", "r1", "r2", "scheduled", "retry", "jobs", "mut", "park", "moving", "suspects", "alone",
    ),
    "adopt": (
        "meta", "r0", "r1", "r2", "scheduled", "retry", "jobs", "mut", "park", "arrived", "suspects", "alone",
    ),
    "bury_waiting": (
        "meta", "r0", "r1", "r2", "scheduled", "retry", "jobs", "mut", "park", "dead", "letters", "suspects", "alone",
    ),
    "retarget": ("meta", "moving"),
    "let_go": ("meta", "jobs", "mut", "moving"),
    "forget_arrived": ("meta", "arrived"),
    "arrivals": ("arrived",),
    "still_aside": ("moving",),
    "install": ("meta", "r0", "r1", "r2", "suspects", "alone", "scheduled", "retry", "leased"),
    "mark": ("meta",),
    "barrier": ("meta",),
    "close": COUNTED,
    "counts": COUNTED,
    "survey": COUNTED,
    "remove": PARTITION_KEYS,
    "discard": ("meta", "jobs", "moving", "arrived", "dead", "seen"),
    "audit_sizes": (
        "meta", "r0", "r1", "r2", "scheduled", "retry", "leased", "lease", "jobs", "mut", "park", "moving", "arrived",
        "dead", "letters", "suspects", "alone",
    ),
    "audit_list": (
        "meta", "r0", "r1", "r2", "suspects", "alone", "scheduled", "retry", "leased", "jobs", "park", "moving",
    ),
    "audit_index": (
        "scheduled", "retry", "leased", "lease", "jobs", "mut", "park", "moving", "dead", "letters", "arrived",
    ),
    "audit_done": ("done",),
    "audit_records": ("scheduled", "retry", "leased", "jobs", "park", "moving"),
    "audit_confirm": (
        "meta", "r0", "r1", "r2", "suspects", "alone", "scheduled", "retry", "leased", "lease", "jobs", "mut", "park",
        "moving", "dead", "letters",
    ),
    "repair": (
        "meta", "r0", "r1", "r2", "scheduled", "retry", "leased", "lease", "jobs", "mut", "park", "moving", "dead",
        "letters",
    ),
    "repair_list": (
        "meta", "r0", "r1", "r2", "suspects", "alone", "scheduled", "retry", "leased", "jobs", "park", "moving",
    ),
    "withdraw": (
        "meta", "r0", "r1", "r2", "suspects", "alone", "scheduled", "retry", "park", "leased", "lease", "jobs", "mut",
        "moving",
    ),
    "purge": ("meta", "r0", "r1", "r2", "suspects", "alone", "scheduled", "retry", "park", "jobs", "mut"),
    "sleep": ("meta", "r0", "r1", "r2", "suspects", "alone", "scheduled", "retry", "leased", "moving", "arrived"),
}  # fmt: skip
"""Partition keys of each script, in the order of its KEYS."""

SINGLE_KEY_SCRIPTS: Final = ("repair_entry", "set_apart")
"""Of the audit: they get one key of any name, and perhaps the one that it is renamed to."""

WAKES: Final = "wakes"
HINTED: Final = (
    "ack", "fail", "release", "recover", "promote_due", "install", "fence", "audit_sizes", "audit_confirm", "repair",
)  # fmt: skip
HINT_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "enqueue": ("hot", "due", WAKES),
    "claim": ("hot", "due", "alarm"),
    "park": ("hot", "due", "parked"),
    "unpark": ("hot", "due", "parked"),
    "adopt": ("hot", "due", "parked", WAKES),
    "bury_parked": ("parked",),
    "trim_parked": ("parked",),
    "bury_waiting": ("parked",),
    "set_aside": ("parked",),
    "withdraw": ("hot", "due", "parked"),
    "purge": ("parked",),
    "remove": ("hot", "due", "parked"),
    **dict.fromkeys(HINTED, ("hot", "due")),
}
"""Queue keys, and the wakes of all queues, that the standalone form appends."""

QUEUE_KEYS: Final = (
    "topology", "grave", "hot", "due", "alarm", "workers", "about", "gone", "stopping", "parked", "fence", "lock",
    "stats", "schedules",
)  # fmt: skip

QUEUE_SCRIPT_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "write_topology": ("topology", "grave"),
    "bury_queue": QUEUE_KEYS,
    "tick": ("hot", "due", "alarm", "workers", "about", "gone", "stopping"),
    "leave": ("hot", "due", "alarm", "workers", "about", "gone", "stopping"),
    "workers": ("workers", "about", "gone", "stopping"),
    "stop_claiming": ("stopping",),
    "hint": ("hot", "due", "topology", "grave"),
    "give_hint": ("hot", "topology", "grave"),
    "note_parked": ("parked", "topology", "grave"),
    "claimed": ("hot", "due", "alarm", "topology", "grave"),
    "forget": ("hot", "due", "parked"),
    "forget_stray": ("hot", "due", "parked", "topology"),
    "read_stats": ("stats",),
    "write_stats": ("stats", "topology"),
    "count_work": ("stats", "topology"),
    "write_scaling": ("stats", "topology"),
    "read_schedules": ("schedules",),
    "note_schedule": ("schedules", "topology"),
    "forget_schedule": ("schedules",),
    "glance": ("hot", "due"),
    "wake": (WAKES,),
}


CACHED: Final = 4096
"""Partitions whose keys are remembered, a few kilobytes each: all of four versions of the largest size."""


class Keys:
    """Builds key names under one prefix, and remembers those of the scripts of CACHED partitions."""

    def __init__(self, prefix: str, *, hinted: bool = True) -> None:
        self._prefix = prefix
        self._hinted = hinted
        self._cache: dict[PartitionRef, dict[str, tuple[bytes, ...]]] = {}

    def shared(self, name: str) -> bytes:
        """Return a key that belongs to all queues.

        ``marker`` tells one data set from another, the zset ``queues`` has the names of all queues with a topology, the
        stream ``wakes`` names queues that were woken.
        """
        return f"{{{self._prefix}}}:{name}".encode()

    def tag(self, queue: str) -> str:
        """Return the hash tag of the queue's own keys, e.g. ``headrace:emails``."""
        return f"{self._prefix}:{queue}"

    def queue(self, queue: str, name: str) -> bytes:
        """Return the queue's key ``name``, e.g. ``{headrace:emails}:hot``."""
        return f"{{{self.tag(queue)}}}:{name}".encode()

    def partition(self, ref: PartitionRef, name: str) -> bytes:
        """Return the partition's key ``name``, e.g. ``{headrace:emails:1:0}:jobs``."""
        return f"{{{self._prefix}:{ref.queue}:{ref.version}:{ref.partition}}}:{name}".encode()

    def patterns(self, queue: str) -> tuple[bytes, bytes]:
        """Return glob patterns that match the keys of a queue, and those of its partitions."""
        prefix = literal(self._prefix)
        return f"{{{prefix}:{queue}}}:*".encode(), f"{{{prefix}:{queue}:*".encode()

    @property
    def pattern(self) -> bytes:
        """A glob pattern that matches every key under the prefix."""
        return f"{{{literal(self._prefix)}[:}}]*".encode()

    def owner(self, key: bytes) -> tuple[str | None, bool]:
        """Return the queue that a key under the prefix belongs to, and whether it is one of a partition.

        "": to all queues. None: to nobody.
        """
        tag, _, name = key.decode(errors="replace").partition("}:")
        parts = tag.removeprefix(f"{{{self._prefix}").split(":")
        match parts:
            case [""] if name in SHARED_KINDS:
                return "", False
            case ["", queue] if is_queue_name(queue):
                return queue, False
            case ["", queue, *numbers] if is_queue_name(queue) and len(numbers) == 2:
                return queue, True
        return None, False

    def whose(self, queue: str, key: bytes) -> PartitionRef | bool:
        """Return the partition that a key of the queue belongs to, or whether it is one of the queue's own."""
        tag, _, name = key.decode(errors="replace").partition("}:")
        if tag == f"{{{self._prefix}:{queue}":
            return name in QUEUE_KEYS
        parts = tag.removeprefix(f"{{{self._prefix}:{queue}:").split(":")
        if name in PARTITION_KEYS and len(parts) == 2 and all(part.isdigit() for part in parts):
            return PartitionRef(queue, int(parts[0]), int(parts[1]))
        return False

    def of_script(self, script: str, ref: PartitionRef) -> tuple[bytes, ...]:
        """Return the KEYS of a partition script."""
        of_partition = self._cache.get(ref)
        if of_partition is None:
            while len(self._cache) >= CACHED:  # versions come and go: the one that was used first is forgotten
                del self._cache[next(iter(self._cache))]
            of_partition = self._cache[ref] = {}
        keys = of_partition.get(script)
        if keys is None:
            own = tuple(self.partition(ref, name) for name in SCRIPT_KEYS[script])
            hints = tuple(self._named(ref.queue, name) for name in HINT_KEYS.get(script, ())) if self._hinted else ()
            keys = of_partition[script] = own + hints
        return keys

    def _named(self, queue: str, name: str) -> bytes:
        return self.shared(name) if name == WAKES else self.queue(queue, name)

    def of_queue_script(self, script: str, queue: str) -> tuple[bytes, ...]:
        """Return the KEYS of a script that works on the queue's own keys, or on the wakes of all queues."""
        return tuple(self._named(queue, name) for name in QUEUE_SCRIPT_KEYS[script])
