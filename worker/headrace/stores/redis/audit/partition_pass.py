"""One look through a partition: its lists, its other indexes, its records, and where these do not agree.

What a page of an index shows is true at that moment: an entry without a record, or a job in two indexes, is damage.
That a record has no index takes more, for jobs move while the records are read: those that seem to have none are looked
for in what came to the lists since, and a last step looks at all of it in one moment.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import chain, combinations, islice, pairwise
from typing import Any, NamedTuple

import msgpack

from headrace.redis.client import Argument
from headrace.stores.protocols.auditing import Leftover, LeftoverKind, Pause
from headrace.stores.redis.access import pack
from headrace.stores.redis.audit.list_sweep import LARGEST_PAGE, LISTS, SHORT, ListSweep
from headrace.stores.redis.topology import STATES

SIZES = (
    "jobs", "mut", "lease", "letters", *LISTS, "scheduled", "retry", "leased", "park", "moving", "arrived", "dead",
)  # fmt: skip
INDEXES = (*LISTS, "scheduled", "retry", "leased", "park", "moving")
SWEPT = ("scheduled", "retry", "leased", "park", "moving", "arrived", "lease", "mut", "dead", "letters")
CONFIRMED = 200
"""Jobs that one script looks at, and places of jobs that seem to be in two."""
SEARCHED = 50_000
"""Entries of lists that one script looks through: some 1 ms."""
PLACES = 3
"""Places of one job in lists that are compared with each other."""
TRIES = 5
"""Times that a list is begun anew because it changed faster than it was read, or a last look is repeated."""

HINT, DONE, ENTRY = "hint", "done", "entry"
"""Instead of a script that mends a leftover: it takes a hint; it has been mended; an entry of a key is removed."""

LEFT: tuple[LeftoverKind, ...] = ("entry unreadable", "letter unreadable")
"""Of jobs: nobody but a person can say what was there."""

Run = Callable[..., Awaitable[Any]]
Repair = tuple[str, tuple[Argument, ...]]


class Found(NamedTuple):
    """A leftover, and the script with its arguments that mends it; None if none does, or only a look that follows."""

    leftover: Leftover
    repair: Repair | None


class PartitionPass:
    """``run(script, *arguments)`` runs a script of the partition that ``label`` names."""

    def __init__(self, label: str, run: Run, pause: Pause) -> None:
        self._label = label
        self._send = run
        self._pause = pause
        self._sweeps = [ListSweep(number) for number in range(1, len(LISTS) + 1)]
        self._named: set[tuple[str, bytes]] = set()
        self.found: list[Found] = []
        self.sizes: dict[str, int] = {}
        self.state = b"absent"
        self.incarnation = 1
        self.proven = True
        self.steps = 0

    async def look(self, *, repair: bool) -> None:
        """Look at everything. ``repair``: make jobs that are in no index ready again, if nothing else was found."""
        state, self.incarnation, unhinted, _, *sizes = await self._run("audit_sizes", self._label)
        self.state = state if state in STATES else b"absent"  # what cannot be read has been named
        self.sizes = dict(zip(SIZES, sizes, strict=True))
        if unhinted:
            self._add("no hint", "due", self._label.encode(), (HINT, ()))
        if self.sizes["jobs"] and self.state in (b"C", b"T"):
            await self._strand()
        elif any(sizes) and (self.state != b"absent" or not self.sizes["jobs"]):
            await self._compare(repair=repair)  # of one without a state nothing can be said, but that it must get one
        await self._read_finished()

    async def _compare(self, *, repair: bool) -> None:
        for number in range(len(self._sweeps)):
            await self._read(number)
        for which in SWEPT:
            # Letters are large; where every time has one, and there are no more of them, each has a time.
            if self.sizes[which] and (which != "letters" or not self._letters_agree()):
                await self._read_index(which)
        await self._confirm(await self._unlisted(), repair=repair)
        if not self._sizes_agree() and not self.found:
            self._add("sizes differ", "jobs", b"", None)
            # Which jobs they are that an entry which moved has hidden must be found by another look.
            self.proven = self.proven and not any(sweep.shifted for sweep in self._sweeps)

    def _sizes_agree(self) -> bool:
        """Whether the sizes, which were read at one moment, are those of a sound partition."""
        sizes = self.sizes
        return (
            sizes["jobs"] == sum(sizes[name] for name in INDEXES)
            and sizes["lease"] == sizes["leased"]
            and sizes["letters"] == sizes["dead"]
        )

    def _letters_agree(self) -> bool:
        missing = any(found.leftover.kind == "time without letter" for found in self.found)
        return self.sizes["letters"] == self.sizes["dead"] and not missing

    async def _run(self, script: str, *arguments: Argument) -> Any:
        if self.steps:
            await self._pause()
        self.steps += 1
        return await self._send(script, *arguments)

    def _add(self, kind: LeftoverKind, key: str, member: bytes, repair: Repair | None, id: bytes = b"") -> None:
        """Take note of a leftover; a job that is in several indexes is named once."""
        name = (kind, id or b"%b %b" % (key.encode(), member))
        if name not in self._named:
            self._named.add(name)
            self.found.append(Found(Leftover(kind, key, member), repair))

    async def _strand(self) -> None:
        """Name every record of a partition that no worker visits."""
        repair = self.state == b"C"
        async for ids, _ in self._records(every=True):
            for id in ids:
                mend = ("repair", (self._label, "jobs", id, id)) if repair else None
                self._add("record in a closed partition", "jobs", id, mend)

    # ---- indexes ----------------------------------------------------------------------------------------------------

    async def _read(self, number: int) -> None:
        """Read a list to its head; from the beginning if it changes faster than that."""
        for _ in range(TRIES):
            if await self._read_on(self._sweeps[number], tailwards=False):
                return
            self._begin_anew(number)
        self.proven = False

    def _begin_anew(self, number: int) -> None:
        self._sweeps[number] = ListSweep(number + 1, self._sweeps[number])

    async def _read_on(self, sweep: ListSweep, *, tailwards: bool) -> bool:
        """Read what is left of a list in a direction; False if it must be begun anew."""
        tailwards = tailwards and sweep.known > 0
        sweep.done = False
        while not sweep.done:
            reply = await self._run("audit_list", *sweep.question(tailwards=tailwards))
            if reply[0] == b"lost":
                if not sweep.fall_back(reply[1]):
                    return False
                continue
            for distance, entry, (id, record, *_) in sweep.answer(reply, tailwards=tailwards):
                place = (sweep.number, entry, distance)
                if record:
                    mend = ("repair_list", (*place, "elsewhere", 0, 0))
                    self._add("several indexes", sweep.name, entry, mend, id)
                else:
                    self._add("index without record", sweep.name, entry, ("repair_list", (*place, "no record", 0, 0)))
        return True

    async def _read_index(self, which: str) -> None:
        cursor, left = b"0", b""
        while True:
            cursor, left, odd = await self._run("audit_index", which, cursor, LARGEST_PAGE, left)
            for member, id, record, *places in msgpack.unpackb(odd, raw=True):
                kind = _kind(which, record, places)
                mend = ("repair", (self._label, which, member, id)) if kind not in LEFT else None
                self._add(kind, which, member, mend, id if record else b"")
            if cursor == b"0" and not left:
                return

    async def _read_finished(self) -> None:
        entry = b""
        while True:
            entry, odd = await self._run("audit_done", entry)
            for each in odd:
                self._add("entry unreadable", "done", each, (ENTRY, ("done", "stream", each)))
            if not entry:
                return

    # ---- records ----------------------------------------------------------------------------------------------------

    async def _records(self, *, every: bool = False) -> AsyncIterator[tuple[list[bytes], list[list[Any]]]]:
        """Yield pages: ids of the jobs that must be in a list (or of ``every`` job), and what is wrong with others."""
        cursor, left = b"0", b""
        while True:
            cursor, left, ids, odd, unreadable = await self._run(
                "audit_records", cursor, LARGEST_PAGE, int(every), left
            )
            for id in msgpack.unpackb(unreadable, raw=True):
                self._add("record unreadable", "jobs", id, ("repair", (self._label, "record", id, id)))
            yield msgpack.unpackb(ids, raw=True), msgpack.unpackb(odd, raw=True)
            if cursor == b"0" and not left:
                return

    async def _unlisted(self) -> list[bytes]:
        """Return the jobs that are in no index with direct access, nor were seen in a list."""
        seen = array("q", sorted(value for sweep in self._sweeps for value in sweep.hashes()))
        missed: list[bytes] = []
        async for ids, odd in self._records():
            for id in ids:
                value = hash(id)
                place = bisect_left(seen, value)
                if place == len(seen) or seen[place] != value:
                    missed.append(id)
            for id, key, member in odd:
                self._add("several indexes", key.decode(), member, ("repair", (self._label, key, member, id)), id)
        return missed

    def _doubles(self) -> dict[int, list[tuple[int, int, int, int]]]:
        """Return pairs of places in lists that seem to hold one job: list and distance from its anchor, twice.

        An entry that took the place of another may have been read in both, so not all of them do.
        """
        values = sorted(value for sweep in self._sweeps for value, _ in sweep)
        twice = {value for value, following in pairwise(values) if value == following}
        places: dict[int, list[tuple[int, int]]] = {value: [] for value in twice}
        for sweep in self._sweeps if twice else ():
            for value, coordinate in sweep:
                if value in twice:
                    places[value].append((sweep.number, sweep.from_anchor(coordinate)))
        return {
            value: [(*first, *other) for first, other in combinations(found[:PLACES], 2)]
            for value, found in places.items()
        }

    async def _confirm(self, missed: list[bytes], *, repair: bool) -> None:
        """Find out in one step each which jobs are in no index, and which entries name one job."""
        repair = repair and not any(found.repair for found in self.found)
        tries = 0
        if not (missed or any(sweep.forgot for sweep in self._sweeps) or self._doubles()):
            return
        # What comes to be twice while this goes on is a job on its way: taken once, so that it ends.
        twice: set[int] | None = None
        while missed or twice is None or twice:
            missed = await self._catch_up(missed)
            places = self._doubles() if twice is None or twice else {}
            twice = set(places) if twice is None else twice
            some = list(islice(twice, CONFIRMED // PLACES))
            doubles = list(chain(*(places.get(value, ()) for value in some)))
            positions = pack([sweep.seen() if sweep.known > SHORT else "" for sweep in self._sweeps])
            chunk = missed[:CONFIRMED]
            shifts = min(sweep.began or 0 for sweep in self._sweeps)
            mend = int(repair and bool(chunk))
            reply = await self._run(
                "audit_confirm", self._label, positions, pack(chunk), pack(doubles), mend, shifts, SEARCHED
            )
            if reply[0] != b"ok":
                tries += 1
                if tries > TRIES:
                    self.proven = False
                    return
                await self._look_again(*reply)
                continue
            for id in msgpack.unpackb(reply[2], raw=True):
                self._add("record without index", "jobs", id, None)
                if repair:
                    self.found[-1] = self.found[-1]._replace(repair=(DONE, ()))
            for id, first, at, second, other in msgpack.unpackb(reply[3], raw=True):
                place = (second, id if second <= 3 else b"1" + id, other)
                self._add("twice in the lists", LISTS[second - 1], id, ("repair_list", (*place, "twice", first, at)))
            missed = missed[reply[1] :]
            twice.difference_update(some)
            tries = 0

    async def _look_again(self, problem: bytes, number: int = 0, shifts: int = 0) -> None:
        """Read lists again of which AUDIT_CONFIRM could not say what is in them now."""
        if problem == b"lost" and not self._sweeps[number - 1].give_up_seen(shifts):
            self._begin_anew(number - 1)
            await self._read(number - 1)
        if problem == b"shifted":
            for each in range(len(self._sweeps)):
                self._begin_anew(each)
                await self._read(each)

    async def _catch_up(self, missed: list[bytes]) -> list[bytes]:
        """Read what was pushed to the lists since; the jobs that are still not seen."""
        for number, sweep in enumerate(self._sweeps):
            if not await self._read_on(sweep, tailwards=True):
                self._begin_anew(number)
                await self._read(number)
        seen = {value for sweep in self._sweeps for value in sweep.hashes()} if missed else set()
        return [id for id in missed if hash(id) not in seen]


UNREADABLE: dict[str, LeftoverKind] = {
    "mut": "changes unreadable",
    "dead": "letter unreadable",
    "moving": "entry unreadable",
    "arrived": "entry unreadable",
}


def _kind(which: str, record: int, places: list[bytes]) -> LeftoverKind:
    """Say what is wrong with an entry of an index with direct access. ``places``: where else its job is, and there."""
    if places == [b"unreadable"]:
        return UNREADABLE[which]
    match which:
        case "dead":
            return "time without letter"
        case "letters":
            return "letter without time"
        case "mut":
            return "changes without record"
        case "lease":
            return "lease without job"
    if not record:
        return "index without record"
    if which == "park":
        return "several indexes" if places else "parked under another type"
    return "several indexes" if len(places) > 2 else "leased without lease"
