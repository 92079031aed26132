"""Metrics for OpenTelemetry, by its conventions for messaging. Needs ``headrace[otel]``, and an SDK to arrive anywhere.

Counters cost one call per batch and type. The two histograms of runs cost one call of the SDK per run, some
microseconds; where that is too much, let a collector scrape `PrometheusMetrics` instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter_provider

from headrace.schedules import Fate
from headrace.telemetry.counts import BUCKETS, MAX_LABEL_SETS, OTHER
from headrace.worker.metrics import NoMetrics, Outcome, Readings

if TYPE_CHECKING:
    from headrace.worker.leases import Execution

SYSTEM = {"messaging.system": "headrace"}


class Described(NamedTuple):
    """An instrument that several parts record; name and text have to agree."""

    name: str
    text: str


CALLS = Described(
    "messaging.client.operation.duration",
    "Time of an enqueue, a claim or of recording outcomes.",
)
_SETTLED_BY = {"ack", "fail", "release", "park"}


class OpenTelemetryMetrics(NoMetrics):
    """Metrics of a worker, recorded with a MeterProvider (default: the global one). One may serve several workers."""

    def __init__(self, provider: MeterProvider | None = None) -> None:
        meter = (provider or get_meter_provider()).get_meter("headrace")
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Jobs claimed, once per delivery."
        )
        self._calls = meter.create_histogram(CALLS.name, "s", CALLS.text, explicit_bucket_boundaries_advisory=BUCKETS)
        self._durations = meter.create_histogram(
            "messaging.process.duration", "s", "Time that handlers ran.", explicit_bucket_boundaries_advisory=BUCKETS
        )
        self._delays = meter.create_histogram(
            "headrace.start_delay",
            "s",
            "Time from when a job was due to the start of its first run.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        self._finished = meter.create_counter("headrace.jobs.finished", "{job}", "Runs whose outcome is recorded.")
        self._lost = meter.create_counter("headrace.leases.lost", "{job}", "Jobs whose lease a worker here has lost.")
        self._expired = meter.create_counter("headrace.leases.expired", "{job}", "Jobs whose lease had ended.")
        self._poisoned = meter.create_counter(
            "headrace.jobs.poisoned", "{job}", "Jobs that are dead because their worker was lost once too often."
        )
        self._refused = meter.create_counter("headrace.acks.refused", "{job}", "Results that came too late.")
        self._unanswered = meter.create_counter("headrace.store.unanswered_calls", "{call}", "Calls without an answer.")
        self._reads: list[Callable[[], Readings | None]] = []
        self._label_sets: set[tuple[str, str, Outcome]] = set()
        meter.create_observable_gauge(
            "headrace.clock.ahead", [self._ahead], "s", "By how much the clock here is ahead of the store's."
        )
        meter.create_observable_gauge(
            "headrace.redis.memory.used.ratio", [self._memory], "1", "Used part of maxmemory, of the fullest server."
        )
        meter.create_observable_gauge(
            "headrace.claim_cycle.age", [self._cycles], "s", "Since the claim loop last did what it should."
        )
        meter.create_observable_gauge("headrace.slots", [self._slots], "{slot}", "Places for handlers, by state.")
        meter.create_observable_gauge("headrace.leader.epoch", [self._epochs], "1", "Epoch of a leader here, 0: none.")
        self._terms = meter.create_counter("headrace.leader.terms_ended", "{term}", "Terms of workers here as leader.")
        self._moves = meter.create_counter("headrace.leader.moves", "{move}", "Changes of a leader to another lock.")
        self._fenced = meter.create_counter("headrace.leader.fenced", "{token}", "Tokens that the fence refused.")
        self._audited = meter.create_counter("headrace.audited_partitions", "{partition}", "Partitions looked through.")
        self._violations = meter.create_counter("headrace.invariant_violations", "{leftover}", "Damage found there.")
        self._fires = meter.create_counter("headrace.schedule.times", "{time}", "Times of schedules.")
        self._duties = meter.create_histogram(
            "headrace.leader.duty_duration", "s", "Time of duties.", explicit_bucket_boundaries_advisory=BUCKETS
        )
        self._renewals = meter.create_histogram(
            "headrace.leader.renew_duration", "s", "Time of renewals.", explicit_bucket_boundaries_advisory=BUCKETS
        )

    def started(self, read: Callable[[], Readings | None]) -> None:
        """Remember a worker."""
        self._reads.append(read)

    def claimed(self, queue: str, runs: Collection[Execution]) -> None:
        """Count the jobs of a claim."""
        self._consumed.add(len(runs), _operation("claim", "receive") | _destination(queue))

    def settled(self, queue: str, outcome: Outcome, runs: Sequence[Execution]) -> None:
        """Count finished jobs by type, and record how long each ran and how late it began."""
        destination = _destination(queue)
        shown = {type: self._shown(queue, type, outcome) for type in {run.job.type for run in runs}}
        for type, jobs in Counter(shown[run.job.type] for run in runs).items():
            self._finished.add(jobs, destination | {"headrace.job.type": type, "headrace.outcome": outcome})
        failed = {"error.type": "_OTHER"} if outcome in ("retried", "dead") else {}
        process = _operation("process", "process") | destination | failed
        for run in runs:
            if (seconds := run.seconds) is not None:
                self._durations.record(seconds, process | {"headrace.job.type": shown[run.job.type]})
                if (delay := run.start_delay) is not None:
                    self._delays.record(delay, destination)

    def _shown(self, queue: str, type: str, outcome: Outcome) -> str:
        """Return the type that is shown: its own, or ``_OTHER`` beyond 200 sets of labels. Producers name types."""
        labels = queue, type, outcome
        if labels not in self._label_sets:
            if len(self._label_sets) >= MAX_LABEL_SETS:
                return OTHER
            self._label_sets.add(labels)
        return type

    def leases_lost(self, queue: str, jobs: int) -> None:
        """Count jobs whose lease was lost."""
        self._lost.add(jobs, _destination(queue))

    def leases_expired(self, queue: str, jobs: int) -> None:
        """Count jobs that were taken back because their lease had ended."""
        self._expired.add(jobs, _destination(queue))

    def poisoned(self, queue: str, jobs: int) -> None:
        """Count jobs that are dead because their worker was lost once too often."""
        self._poisoned.add(jobs, _destination(queue))

    def acks_refused(self, queue: str, jobs: int) -> None:
        """Count results that came too late."""
        self._refused.add(jobs, _destination(queue))

    def store_called(self, call: str, seconds: float) -> None:
        """Record the time of one call."""
        self._calls.record(seconds, _operation(call, "settle" if call in _SETTLED_BY else "receive"))

    def store_unavailable(self) -> None:
        """Count a call without an answer."""
        self._unanswered.add(1, SYSTEM)

    def leadership_renewed(self, queue: str, backend: str, seconds: float) -> None:
        """Record the time of a renewal."""
        self._renewals.record(seconds, _destination(queue) | {"headrace.leader.backend": backend})

    def leader_moved(self, queue: str, direction: Literal["down", "up"]) -> None:
        """Count a change of the lock."""
        self._moves.add(1, _destination(queue) | {"headrace.leader.direction": direction})

    def leader_fenced(self, queue: str) -> None:
        """Count a refused token."""
        self._fenced.add(1, _destination(queue))

    def term_ended(self, queue: str, reason: str) -> None:
        """Count a term that ended."""
        self._terms.add(1, _destination(queue) | {"headrace.leader.reason": reason})

    def duty_ran(self, queue: str, duty: str, seconds: float, *, failed: bool) -> None:
        """Record the time of a run of a duty."""
        error = {"error.type": "_OTHER"} if failed else {}
        self._duties.record(seconds, _destination(queue) | {"headrace.leader.duty": duty} | error)

    def schedule_fired(self, queue: str, schedule: str, outcome: Fate, times: int) -> None:
        """Count times of a schedule."""
        self._fires.add(
            times, _destination(queue) | {"headrace.schedule": schedule, "headrace.schedule.outcome": outcome}
        )

    def audited(self, queue: str, partitions: int, leftovers: int) -> None:
        """Count partitions that were looked through, and what was found."""
        self._audited.add(partitions, _destination(queue))
        self._violations.add(leftovers, _destination(queue))

    def _readings(self) -> list[Readings]:
        return [found for read in list(self._reads) if (found := read()) is not None]

    def _epochs(self, options: CallbackOptions) -> Iterable[Observation]:
        epochs: dict[str, int] = {}
        for each in self._readings():
            for queue, found in each.leading.items():
                epochs[queue] = max(found.epoch, epochs.get(queue, 0))
        for queue, epoch in epochs.items():
            yield Observation(epoch, _destination(queue))

    def _ahead(self, options: CallbackOptions) -> Iterable[Observation]:
        readings = [found for read in list(self._reads) if (found := read()) is not None]
        if ahead := [each.clock_ahead for each in readings if each.clock_ahead is not None]:
            yield Observation(max(ahead, key=abs), SYSTEM)

    def _memory(self, options: CallbackOptions) -> Iterable[Observation]:
        ratios = [each.memory_ratio for each in self._readings() if each.memory_ratio is not None]
        if ratios:
            yield Observation(max(ratios), SYSTEM)

    def _cycles(self, options: CallbackOptions) -> Iterable[Observation]:
        ages = [found.cycle_age for read in list(self._reads) if (found := read()) is not None]
        if ages:
            yield Observation(max(ages), SYSTEM)

    def _slots(self, options: CallbackOptions) -> Iterable[Observation]:
        readings = self._readings()
        busy = sum(each.busy for each in readings)
        yield Observation(busy, {"headrace.slot.state": "busy"})
        yield Observation(max(0, sum(each.slots for each in readings) - busy), {"headrace.slot.state": "free"})


def _operation(name: str, type: str) -> dict[str, str]:
    return SYSTEM | {"messaging.operation.name": name, "messaging.operation.type": type}


def _destination(queue: str) -> dict[str, str]:
    return SYSTEM | {"messaging.destination.name": queue}
