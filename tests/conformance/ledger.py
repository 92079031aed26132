"""What must be in a queue, by what clients were told, and what there is: read from the keys, by no script of ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, cast

import msgpack

from headrace.stores.base import Accepted, Store

LISTS = {"r0": 0, "r1": 0, "r2": 0, "suspects": 1, "alone": 1}
ZSETS = ("scheduled", "retry", "leased")
"""Indexes; their entries are ids behind so many bytes of a lane (one in zsets)."""


class Ledger:
    """Passes steps on to a store. ``owed``: stored ids of jobs that were accepted and that nobody has asked to remove.

    A removal counts from the moment in which it is asked for, and an insertion when it is answered: a client that dies
    in between knows neither. A job that is acknowledged stays where finished jobs are kept.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.owed: set[bytes] = set()
        self._copied: set[bytes] = set()
        """Of these there is one more, as dead letters that are elsewhere, too."""

    @property
    def store(self) -> Store:
        return cast(Store, self)

    def __getattr__(self, name: str) -> Any:
        call: Callable[..., Awaitable[Any]] = getattr(self._store, name)
        before, after = getattr(self, f"_before_{name}", None), getattr(self, f"_after_{name}", None)
        if before is None and after is None:
            return call

        async def step(*args: Any, **options: Any) -> Any:
            if before is not None:
                before(*args, **options)
            answer = await call(*args, **options)
            if after is not None:
                after(answer, *args, **options)
            return answer

        return step

    def _after_enqueue(
        self, answer: Any, at: object, partitions: int, nonce: bytes, jobs: Any, *_: Any, **__: Any
    ) -> None:
        if isinstance(answer, Accepted):
            accepted = {job.key[1:] for n, job in enumerate(jobs) if n not in answer.existing}
            self._copied |= accepted & self.owed
            self.owed |= accepted

    def _before_ack(self, at: object, acks: Any, successes: Any = ()) -> None:
        if not successes:
            self.owed -= {ack.key[1:] for ack in acks}

    def _before_claim(self, *args: Any, successes: Any = (), **_: Any) -> None:
        self._before_ack(args[0], args[5] if len(args) > 5 else (), successes)

    def _before_withdraw(self, at: object, ids: Iterable[bytes], **_: Any) -> None:
        self.owed -= set(ids)

    def _before_purge(self, *_: Any, **__: Any) -> None:
        self.owed.clear()

    def _before_delete_partition(self, *_: Any) -> None:
        self.owed.clear()

    def _after_adopt_dead(self, taken: bool, at: object, letters: Any, *_: Any, **__: Any) -> None:
        if taken:
            self._copied |= {letter.stored_id for letter in letters}

    def _before_remove_dead(self, at: object, letters: Iterable[bytes]) -> None:
        for stored_id in (letter.rpartition(b"@")[0] for letter in letters):
            if stored_id in self._copied:
                self._copied.remove(stored_id)
            else:
                self.owed.discard(stored_id)


def holdings(primaries: Iterable[Any], prefix: str) -> tuple[set[bytes], list[str]]:
    """All ids that are in the queues of a prefix, live, dead or finished; and what is wrong with their indexes.

    ``primaries``: a client of each server that takes writes.
    """
    found: set[bytes] = set()
    wrong: list[str] = []
    for client in primaries:
        keys = set(client.scan_iter(match=f"{{{prefix}:*", count=1000))
        for partition in {key.rpartition(b":")[0] for key in keys}:
            there = _Partition(client, partition, keys)
            jobs, letters = set(there.fields("jobs")), set(there.fields("letters"))
            pairs = {
                "jobs and indexes": (Counter(jobs), Counter(there.indexed())),
                "leased and leases": ({key[1:] for key in there.members("leased")}, set(there.fields("lease"))),
                "letters and their times": (letters, set(there.members("dead"))),
                "changes of no job": (set(there.fields("mut")) - jobs, set()),
            }
            wrong += [f"{partition!r} {what}: {one} {other}" for what, (one, other) in pairs.items() if one != other]
            found |= jobs | {letter.rpartition(b"@")[0] for letter in letters}
            for entry in there.entries("done"):
                found.update(msgpack.unpackb(entry[b"d"], raw=True)[::4])
    return found, wrong


class _Partition:
    """Reads what there is of the keys of a partition."""

    def __init__(self, client: Any, tag: bytes, keys: set[bytes]) -> None:
        self._client, self._tag, self._keys = client, tag, keys

    def _read(self, command: str, name: str, *args: int) -> list[Any]:
        key = self._tag + b":" + name.encode()
        return list(getattr(self._client, command)(key, *args)) if key in self._keys else []

    def fields(self, name: str) -> list[bytes]:
        return self._read("hkeys", name)

    def members(self, name: str) -> list[bytes]:
        return self._read("zrange", name, 0, -1)

    def entries(self, name: str) -> list[dict[bytes, bytes]]:
        return [entry for _, entry in self._read("xrange", name)]

    def indexed(self) -> Iterator[bytes]:
        for name, lane in LISTS.items():
            yield from (entry[lane:] for entry in self._read("lrange", name, 0, -1))
        for name in ZSETS:
            yield from (entry[1:] for entry in self.members(name))
        for entry in self.members("park"):
            yield entry.partition(b"\0")[2][1:]
        yield from self.fields("moving")
