"""What may be wrong with each key of docs/protocol.md, and what an audit says of it.

No tests in here, but the table that `test_audit_every_key.py` goes through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from headrace.stores.redis.kinds import PARTITION_KINDS, QUEUE_KINDS, SHARED_KINDS
from tests.integration.damage.hand import FOREIGN, JUNK, Hand


class Damage(NamedTuple):
    """What a hand does to ``key``, and what is to be found: (kind, key), or nothing where it does no harm.

    ``left``: what --repair leaves to a person; else all of it is mended.
    """

    name: str
    key: str
    do: Callable[[Hand], object]
    found: tuple[str, str] | None
    left: bool = False


def replaced(key: str) -> Callable[[Hand], object]:
    """Put a key of another kind in the place of one."""

    def do(hand: Hand) -> None:
        hand("UNLINK", key)
        kinds = {**PARTITION_KINDS, **QUEUE_KINDS, **SHARED_KINDS}
        hand("RPUSH" if kinds[key] == "string" else "SET", key, "x")

    return do


def sent(command: str, key: str, *arguments: object) -> Callable[[Hand], object]:
    """Send one command for a key."""
    return lambda hand: hand(command, key, *arguments)


def field(key: str, name: str | bytes, value: bytes) -> Callable[[Hand], object]:
    """Overwrite a field of a hash."""
    return lambda hand: hand("HSET", key, name, value)


def cut(key: str, name: str | bytes | None = None, size: int = 20) -> Callable[[Hand], object]:
    """Cut the value of a field, of the first one if none is named, to its first bytes."""

    def do(hand: Hand) -> None:
        chosen = name or sorted(hand("HKEYS", key))[0]
        value = hand("HGET", key, chosen)
        assert len(value) > size
        hand("HSET", key, chosen, value[:size])

    return do


def overwritten(key: str) -> Callable[[Hand], object]:
    """Overwrite the value of the first field of a hash."""
    return lambda hand: hand("HSET", key, sorted(hand("HKEYS", key))[0], JUNK)


def aside(value: bytes) -> Callable[[Hand], object]:
    """Let a ready job be on its way to another version, as nobody can read."""

    def do(hand: Hand) -> None:
        hand("LREM", "r1", 1, "ready-1")
        hand("HSET", "moving", "ready-1", value)

    return do


def cut_topology(hand: Hand) -> None:
    """Half a topology."""
    hand("SET", "topology", hand("GET", "topology")[:30])


MEMBERS: dict[str, tuple[Callable[[Hand], object], tuple[str, str] | None, bool]] = {
    **{
        name: (sent("RPUSH", name, FOREIGN), ("index without record", name), False)
        for name in ("r0", "r1", "r2", "suspects", "alone")
    },
    **{
        name: (sent("ZADD", name, 1, FOREIGN), ("index without record", name), False)
        for name in ("scheduled", "retry", "leased", "park")
    },
    "seen": (sent("ZADD", "seen", 1, FOREIGN), None, False),
    "dead": (sent("ZADD", "dead", 1, FOREIGN), ("time without letter", "dead"), False),
    "letters": (field("letters", FOREIGN, JUNK), ("letter without time", "letters"), True),
    "lease": (field("lease", FOREIGN, JUNK), ("lease without job", "lease"), False),
    "jobs": (field("jobs", FOREIGN, JUNK), ("record without index", "jobs"), False),
    "mut": (field("mut", FOREIGN, JUNK), ("changes without record", "mut"), False),
    "moving": (field("moving", FOREIGN, JUNK), ("index without record", "moving"), False),
    "arrived": (field("arrived", FOREIGN, JUNK), ("entry unreadable", "arrived"), True),
    "meta": (field("meta", FOREIGN, JUNK), None, False),
    "done": (sent("XADD", "done", "*", "a", "b"), ("entry unreadable", "done"), False),
    **{
        name: (sent("ZADD", name, 1, FOREIGN), ("hint without partition", "due"), False)
        for name in ("hot", "due", "parked")
    },
    **{
        name: (sent("ZADD", name, 9e12, FOREIGN), ("entry unreadable", name), False)
        for name in ("workers", "gone", "stopping", "queues")
    },
    **{
        name: (field(name, FOREIGN, JUNK), ("entry unreadable", name), False)
        for name in ("about", "schedules", "fence", "lock")
    },
    **{name: (field(name, FOREIGN, JUNK), None, False) for name in ("alarm", "stats")},
    "wakes": (sent("XADD", "wakes", "*", "a", FOREIGN), None, False),
}
"""A foreign member or field in each key that has any."""

LETTER, TOPOLOGY = ("letter unreadable", "dead"), ("topology unreadable", "topology")

CONTENTS = (
    Damage("a truncated record", "jobs", cut("jobs", "ready-1"), ("record unreadable", "jobs")),
    Damage("a record that nobody can read", "jobs", field("jobs", "later-1", JUNK), ("record unreadable", "jobs")),
    Damage("an empty record", "jobs", field("jobs", "parked-1", b""), ("record unreadable", "jobs")),
    Damage("truncated changes", "mut", cut("mut", "retry-1"), ("changes unreadable", "mut")),
    Damage("changes that nobody can read", "mut", field("mut", "retry-1", JUNK), ("changes unreadable", "mut")),
    Damage("changes of a ready job", "mut", field("mut", "ready-1", b""), ("changes unreadable", "mut")),
    Damage("a truncated letter", "letters", cut("letters"), LETTER, left=True),
    Damage("a letter that nobody can read", "letters", overwritten("letters"), LETTER, left=True),
    Damage("a truncated job on its way", "moving", aside(b"\x95\x02"), ("entry unreadable", "moving"), left=True),
    Damage("a job on its way somewhere", "moving", aside(JUNK), ("entry unreadable", "moving"), left=True),
    Damage("no source", "arrived", field("arrived", "ready-1", b"1"), ("entry unreadable", "arrived"), left=True),
    Damage("another token", "lease", field("lease", "leased-1", JUNK), None),
    *(
        Damage(f"{name} of meta", "meta", field("meta", name, value), (kind, "meta"))
        for kind, name, value in (
            ("settings unreadable", "s", b"X"),
            ("settings unreadable", "s", b""),
            ("settings unreadable", "e", JUNK),
            ("settings unreadable", "n", b""),
            ("settings unreadable", "i", JUNK),
            ("settings unreadable", "t", JUNK),
            ("settings unreadable", "marked", JUNK),
            ("settings unreadable", "ft", b""),
            ("settings unreadable", "cap", b"many"),
            ("settings unreadable", "rate", b"1/s"),
            ("settings unreadable", "hold", b"yes"),
            ("settings unreadable", "keep", b"10:20"),
            ("settings unreadable", "fin", JUNK),
            ("settings unreadable", "succ", b'{"format":1,'),
            ("settings unreadable", "once:nightly", JUNK),
            ("settings unreadable", "enq", JUNK),
            ("settings unreadable", "failed", b"1.5"),
        )
    ),
    Damage(
        "a batch of jobs that nobody can read",
        "done",
        sent("XADD", "done", "*", "t", 1, "w", "w", "n", 1, "d", JUNK),
        ("entry unreadable", "done"),
    ),
    Damage(
        "a truncated batch of jobs",
        "done",
        sent("XADD", "done", "*", "t", 1, "w", "w", "n", 1, "d", b"\x94\xa1a\xa4send\x00"),
        ("entry unreadable", "done"),
    ),
    Damage("half a topology", "topology", cut_topology, TOPOLOGY, left=True),
    Damage("no topology", "topology", sent("SET", "topology", JUNK), TOPOLOGY, left=True),
    Damage("no grave", "grave", sent("SET", "grave", JUNK), None),
    Damage("a truncated beat", "about", cut("about", "w", 3), ("entry unreadable", "about")),
    Damage("a beat that nobody can read", "about", field("about", "w", JUNK), ("entry unreadable", "about")),
    Damage("no time for the alarm", "alarm", field("alarm", "t", JUNK), ("entry unreadable", "alarm")),
    Damage("no time of a measurement", "stats", field("stats", "at", JUNK), ("entry unreadable", "stats")),
    Damage("truncated depths", "stats", cut("stats", "depth"), ("entry unreadable", "stats")),
    Damage("no counters", "stats", field("stats", "seen", JUNK), ("entry unreadable", "stats")),
    Damage("no number", "stats", field("stats", "enqueued", b"1.5"), ("entry unreadable", "stats")),
    Damage("a truncated mark", "schedules", field("schedules", "nightly", b""), ("entry unreadable", "schedules")),
    Damage("no mark", "schedules", field("schedules", "nightly", JUNK), ("entry unreadable", "schedules")),
    Damage("no leader of schedules", "schedules", field("schedules", ":e", JUNK), ("entry unreadable", "schedules")),
    Damage("no epoch", "fence", field("fence", "epoch", JUNK), ("entry unreadable", "fence")),
    Damage("no end of a term", "fence", field("fence", "exp", b""), ("entry unreadable", "fence")),
    Damage("no term of a lock", "lock", field("lock", "term", JUNK), ("entry unreadable", "lock")),
)  # fmt: skip
"""What can be wrong with the contents of each key: truncated, or undecodable."""


def every_damage() -> Iterator[Damage]:
    """The whole table: each key as another type, with a foreign member, with contents that are cut or unreadable."""
    for key in (*PARTITION_KINDS, *QUEUE_KINDS, *SHARED_KINDS):
        left = key in ("topology", "marker")
        yield Damage("another type", key, replaced(key), ("key of another kind", key), left)
    for key, (do, found, left) in MEMBERS.items():
        yield Damage("a foreign member", key, do, found, left)
    yield from CONTENTS
