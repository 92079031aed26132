"""The registry of one queue in memory: who was heard of when, what they said, and who is to claim nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headrace.stores.protocols.registry import Beat, WorkerEntry

SILENT_MS = 60_000
KEPT_MS = 3_600_000
MOST = 1000


@dataclass(slots=True)
class Roster:
    """``heard``: worker -> when it was last heard of; ``gone``: the same of those that are; ``stopping``: till when.

    ``until``, ``gone_until``: when all is forgotten (ms), because nobody was heard of for an hour.
    """

    heard: dict[str, int] = field(default_factory=dict)
    gone: dict[str, int] = field(default_factory=dict)
    about: dict[str, Beat] = field(default_factory=dict)
    stopping: dict[str, int] = field(default_factory=dict)
    until: int = 0
    gone_until: int = 0

    def forget_old(self, now: int) -> None:
        """Forget everybody, if nobody was heard of for an hour."""
        if self.until <= now:
            self.heard.clear()
            self.about.clear()
        if self.gone_until <= now:
            self.gone.clear()

    def beat(self, worker: str, said: Beat | None, now: int) -> int:
        """Take note of a worker; until when it is to claim nothing, 0 if it may."""
        self.forget_old(now)
        self.until = self.gone_until = now + KEPT_MS
        self.heard[worker] = now
        if said is not None:
            self.about[worker] = said
        for name in [name for name, at in self.heard.items() if at <= now - SILENT_MS]:
            self.gone[name] = self.heard.pop(name)
        for name in [name for name, at in self.gone.items() if at <= now - KEPT_MS]:
            del self.gone[name]
            self.about.pop(name, None)
        till = self.stopping.get(worker, 0)
        return till if till > now else 0

    def leave(self, worker: str, now: int) -> None:
        """Take note that a worker stops."""
        self.forget_old(now)
        self.heard.pop(worker, None)
        self.stopping.pop(worker, None)
        if worker in self.about:
            self.gone[worker] = now
            self.gone_until = now + KEPT_MS

    def stop_claiming(self, workers: Iterable[str], ttl_ms: int, now: int) -> None:
        """Let workers claim nothing for a while, or claim again."""
        for worker in workers:
            if ttl_ms > 0:
                self.stopping[worker] = now + ttl_ms
            else:
                self.stopping.pop(worker, None)

    def living(self, now: int) -> list[WorkerEntry]:
        """Return those that were heard of within a minute, those heard of last first."""
        self.forget_old(now)
        names = [name for name, at in self.heard.items() if at > now - SILENT_MS]
        return self.entries(sorted(names, key=lambda name: (self.heard[name], name), reverse=True)[:MOST], now)

    def entries(self, workers: Sequence[str], now: int) -> list[WorkerEntry]:
        """Return what is known of workers, without those that are not known."""
        self.forget_old(now)
        found = []
        for worker in workers:
            heard = self.heard.get(worker)
            gone = heard is None or heard <= now - SILENT_MS
            at = self.gone.get(worker) if heard is None else heard
            if at is not None:
                till = self.stopping.get(worker, 0)
                stop_ms, beat = till - now if till > now else None, self.about.get(worker, Beat())
                stands_by_ms = max(0, beat.stands_by_till - now)
                found.append(WorkerEntry(worker, now - at, beat, stop_ms, gone, stands_by_ms))
        return found
