"""What a look at servers and queues means: checks, each fine, a warning or a failure, with its remedy.

Functions of values; nothing is asked here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

from headrace.leadership.overview import Overview
from headrace.server_facts import Code, Finding, Level, ServerFacts, findings
from headrace.stores.base import Statistics, WorkerEntry
from headrace.topology import Topology
from headrace.worker.lost_jobs import LIVES_MS

Verdict = Literal["OK", "WARN", "FAIL"]
VERDICTS: Final[dict[Level, Verdict]] = {"unsafe": "FAIL", "warning": "WARN", "note": "OK"}
SKEW_MS = 2000
"""Clocks that differ by less are no reason to look: producers give times of seconds."""
SLOW_START_MS, STALLED_MS = 60_000, 300_000
"""Since when the oldest ready job was due: worth a look, and worth waking somebody, as the alerts have it."""
NEARLY_ALL = 0.9
_OF_SERVERS: Final[dict[str, tuple[Code, ...]]] = {
    "eviction": (Code.EVICTION_POLICY, Code.KEYS_EVICTED),
    "persistence": (Code.SAVING_FAILS, Code.NOT_PERSISTENT, Code.SNAPSHOTS_ONLY, Code.PERSISTENCE_UNKNOWN),
    "memory": (Code.MEMORY_HIGH, Code.NO_MEMORY_LIMIT),
    "replicas": (Code.NO_REPLICA, Code.REPLICA_LATE),
    "load": (Code.SLOW, Code.CLIENTS_HIGH),
}


class Check(NamedTuple):
    """One thing that was looked at. ``remedy``: what to do, "" where nothing is to be done."""

    check: str
    where: str
    verdict: Verdict
    told: str
    remedy: str = ""


class QueueFacts(NamedTuple):
    """A queue as it was found. ``leadership``: None where the store has no place for leaders."""

    topology: Topology
    drift: Sequence[Finding]
    statistics: Statistics | None
    workers: Sequence[WorkerEntry]
    leadership: Overview | None


def worst(checks: Iterable[Check]) -> Verdict:
    """Return the worst verdict."""
    found = {each.verdict for each in checks}
    return "FAIL" if "FAIL" in found else "WARN" if "WARN" in found else "OK"


def server_checks(servers: Sequence[ServerFacts]) -> list[Check]:
    """Return the checks of the servers, one server after the other."""
    return [check for server in servers for check in _server(server)]


def _server(server: ServerFacts) -> Iterator[Check]:
    where, found = server.address, findings([server])
    yield Check("connection", where, "OK", f"a call takes {server.latency_ms:.1f} ms")
    yield Check("version", where, "OK", server.version)
    limit = f"of {server.max_bytes / 2**20:.0f} Mi" if server.max_bytes else "without a limit"
    fine = {
        "eviction": f"maxmemory-policy is {server.policy}",
        "persistence": "it appends to a file" if server.append_only else "it saves snapshots",
        "memory": f"{server.used_bytes / 2**20:.1f} Mi {limit}",
        "replicas": f"{server.replicas} replica(s)",
        "load": f"{server.clients} connection(s)",
    }
    for check, codes in _OF_SERVERS.items():
        yield from _judged(check, where, [each for each in found if each.code in codes], fine[check])


def _judged(check: str, where: str, found: Sequence[Finding], fine: str) -> Iterator[Check]:
    """Yield a check for each finding, or that all is fine."""
    for each in found:
        yield Check(check, where, VERDICTS[each.level], each.problem, each.remedy)
    if not found:
        yield Check(check, where, "OK", fine)


def clock_check(where: str, server_ms: int, before_ms: int, after_ms: int) -> Check:
    """Judge the server's clock by the clock here, which was read before and after; all in ms since the epoch."""
    skew = max(before_ms - server_ms, server_ms - after_ms, 0)
    if skew < SKEW_MS:
        return Check("clock", where, "OK", "the server's clock is that of this machine, within 2 s")
    how = "ahead of" if server_ms > after_ms else "behind"
    return Check(
        "clock",
        where,
        "WARN",
        f"the server's clock is {skew / 1000:.1f} s {how} that of this machine",
        "synchronise both; times that producers give here come so much later or earlier there",
    )


def queue_checks(facts: QueueFacts) -> list[Check]:
    """Return the checks of a queue."""
    topology = facts.topology
    return [
        *_judged("topology", _where(topology), facts.drift, topology.summary()),
        _stop(topology),
        _workers(facts),
        _leader(facts),
        _waiting(facts),
        _parked(facts),
        _dead(facts),
    ]


def _where(topology: Topology) -> str:
    return f"queue {topology.queue}"


def _stop(topology: Topology) -> Check:
    where, queue = _where(topology), topology.queue
    if topology.deleting:
        return Check("state", where, "WARN", "it is being deleted", f"finish that: `headrace queue delete {queue}`")
    told = {
        "hold": "it is paused: jobs are taken and none is started",
        "hold_and_drain": "it takes no new jobs and runs the rest",
    }.get(topology.settings.stop)
    if told is None:
        return Check("state", where, "OK", "it takes and runs jobs")
    return Check("state", where, "WARN", told, f"`headrace queue resume {queue}`, unless that is meant")


def _workers(facts: QueueFacts) -> Check:
    where, queue = _where(facts.topology), facts.topology.queue
    alive = [each for each in facts.workers if not each.gone and each.heard_ms < LIVES_MS]
    silent = len(facts.workers) - len(alive)
    if not alive and _sum(facts, "ready"):
        remedy = f"start some (`headrace worker run APP --queue {queue}`), or see why their Pods do not run"
        return Check("workers", where, "FAIL", f"{_sum(facts, 'ready')} job(s) are ready and no worker lives", remedy)
    if silent:
        remedy = f"see `headrace worker list {queue}`"
        return Check("workers", where, "WARN", f"{len(alive)} live, {silent} was/were not heard of lately", remedy)
    return Check("workers", where, "OK", f"{len(alive)} live" if alive else "none, and nothing to run")


def _leader(facts: QueueFacts) -> Check:
    where, queue, found = _where(facts.topology), facts.topology.queue, facts.leadership
    if found is not None and found.leads:
        return Check("leader", where, "OK", f"{found.worker} leads, by {found.backend}, epoch {found.epoch}")
    if found is None or not facts.workers:
        return Check("leader", where, "OK", "nobody leads, for no worker runs")
    if found.standing_by:
        remedy = f"look again in 45 s; if it lasts, see the logs of its workers and `headrace leader show {queue}`"
        return Check("leader", where, "WARN", f"nobody leads; {len(found.standing_by)} worker(s) may", remedy)
    return Check("leader", where, "WARN", "nobody leads, and no worker may", "give workers a lock: leader_backends")


def _waiting(facts: QueueFacts) -> Check:
    where, queue = _where(facts.topology), facts.topology.queue
    if facts.statistics is None:
        return Check("waiting", where, "OK", "nothing was measured")
    depths = facts.statistics.versions.values()
    due = [each.oldest_ready_at for each in depths if each.oldest_ready_at is not None]
    waited = max((facts.statistics.now - at for at in due), default=0)
    told = f"the oldest of {_sum(facts, 'ready')} ready job(s) has been due for {max(0, waited) // 1000} s"
    held = facts.topology.settings.stop == "hold"
    if held or waited < SLOW_START_MS:
        return Check("waiting", where, "OK", told if due else "no job is ready")
    remedy = f"add workers, or see what they run: `headrace job list {queue} --state leased`"
    return Check("waiting", where, "FAIL" if waited >= STALLED_MS else "WARN", told, remedy)


def _parked(facts: QueueFacts) -> Check:
    where, queue, parked = _where(facts.topology), facts.topology.queue, _sum(facts, "parked")
    if not parked:
        return Check("types", where, "OK", "no job waits for a worker that knows its type")
    remedy = f"deploy a worker that does: `headrace type list {queue}`"
    return Check("types", where, "WARN", f"{parked} job(s) wait for a worker that knows their type", remedy)


def _dead(facts: QueueFacts) -> Check:
    where, queue, dead = _where(facts.topology), facts.topology.queue, _sum(facts, "dead")
    dropped = facts.statistics.counters.get("dead_dropped", 0) if facts.statistics is not None else 0
    retention = facts.topology.settings.retention
    told = f"{dead} dead letter(s)"
    remedy = f"see `headrace dead groups {queue}`, and put them back, export or delete them"
    if retention is not None and dead >= NEARLY_ALL * retention.dead_count:
        return Check("dead", where, "WARN", f"{told}; beyond {retention.dead_count} the oldest are dropped", remedy)
    if dropped:
        told = f"{told}; {dropped} were dropped in all"
    return Check("dead", where, "OK", told, "")


def _sum(facts: QueueFacts, state: Literal["ready", "parked", "dead"]) -> int:
    depths = facts.statistics.versions.values() if facts.statistics is not None else ()
    return sum(getattr(depth, state) for depth in depths)
