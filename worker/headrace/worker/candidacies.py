"""The candidacies of a worker: it may lead each of its queues, one independently of the other."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping
from functools import partial

from headrace.app import App
from headrace.election.fence import Token
from headrace.election.states import Reason, Seat, State
from headrace.errors import InvalidInput
from headrace.leader_term import nobody_leads
from headrace.leadership.candidacy import Candidacy
from headrace.leadership.locks import RANKS, beside, chain, check
from headrace.maintenance import Housekeeping
from headrace.stores.base import Store
from headrace.worker.exclusive import Exclusive
from headrace.worker.metrics import Leading, Metrics
from headrace.worker.settings import WorkerSettings

log = logging.getLogger("headrace.worker")


class Candidacies:
    """Campaigns for every queue of a worker. Construct it in the worker's loop; nothing is sent before `start`.

    ``worker``: its identity in the store, which is a part of its identity as leader. ``exclusive``: whether only its
    leader executes a queue. ``housekeeping``: what the leader of each queue does; ``running``: lets it run jobs. Raises
    InvalidInput if the settings name a lock that cannot be used here.
    """

    def __init__(
        self,
        app: App,
        store: Store,
        settings: WorkerSettings,
        worker: str,
        metrics: Metrics,
        exclusive: Callable[[str], bool],
        housekeeping: Mapping[str, Housekeeping],
        running: Mapping[str, Exclusive],
    ) -> None:
        self._started = False
        self._by_queue: dict[str, Candidacy] = {}
        for queue in settings.queue_names:
            place = beside(store, queue)
            if place is None:
                log.debug("queue %s: its store has no place for a fence, so nobody leads it", queue)
                continue
            check(settings, place())
            if not chain(settings, place()):
                continue
            self._by_queue[queue] = Candidacy(
                queue,
                f"{worker}_{secrets.token_hex(8)}",
                place,
                settings,
                settings.leader_timings(exclusive=exclusive(queue)),
                partial(_work, housekeeping[queue], running[queue]),
                app.elected_hooks,
                app.resigned_hooks,
                ElectionMetrics(queue, metrics),
            )

        for schedule in app.schedules:
            if schedule.queue not in settings.queue_names:
                log.info(
                    "schedule %s is left to workers of queue %s, which this one does not serve",
                    schedule.name,
                    schedule.queue,
                )
                continue
            if schedule.type not in app.handlers:
                log.warning(
                    "schedule %s: this app has no handler of type %r, so its jobs are parked until a worker of queue "
                    "%s knows the type; register the handler here, or ignore this if another app has it",
                    schedule.name,
                    schedule.type,
                    schedule.queue,
                )
            if schedule.queue not in self._by_queue:
                log.warning(
                    "schedule %s: the leader of queue %s enqueues its jobs, and this worker never leads; "
                    "set leader_backends, or let another worker of the queue lead",
                    schedule.name,
                    schedule.queue,
                )

    def start(self) -> None:
        """Begin to campaign."""
        self._started = True
        for candidacy in self._by_queue.values():
            candidacy.start()

    async def stop(self, but: Callable[[str], bool] = lambda queue: False) -> None:
        """Step down everywhere, ``but`` for some queues, and hand over, within 5 s."""
        if not self._started:
            return
        ending = [candidacy for queue, candidacy in self._by_queue.items() if not but(queue)]
        for candidacy in ending:
            candidacy.resign()
        await asyncio.gather(*(candidacy.stop() for candidacy in ending))

    def of(self, queue: str) -> Candidacy | None:
        """Return the candidacy for a queue, None if this worker never leads it."""
        return self._by_queue.get(queue)

    def epoch_of(self, queue: str) -> Callable[[], int | None]:
        """Return what tells under which epoch this worker leads the queue; any thread may call it."""
        candidacy = self._by_queue.get(queue)
        return nobody_leads if candidacy is None else candidacy.leader_epoch

    def leading(self) -> Mapping[str, Leading]:
        """Return whether this worker leads each queue; any thread may call it."""
        return {queue: _leading(candidacy) for queue, candidacy in self._by_queue.items()}

    def healthy(self) -> bool:
        """Return whether every election goes on, and no work of a leader outlived its term."""
        return not self._started or all(candidacy.healthy() for candidacy in self._by_queue.values())


async def _work(
    housekeeping: Housekeeping,
    running: Exclusive,
    token: Callable[[], Token | None],
    fenced: Callable[[int, int], None],
) -> None:
    async with asyncio.TaskGroup() as work:
        work.create_task(running.lead(token, fenced))
        work.create_task(housekeeping.run(token, fenced))


def _leading(candidacy: Candidacy) -> Leading:
    status = candidacy.status()
    if status is None or not candidacy.is_leader():
        return Leading()
    return Leading(status.epoch, RANKS.get(status.backend, 0), status.valid_for)


class ElectionMetrics:
    """Passes on what an elector tells, with the name of its queue."""

    def __init__(self, queue: str, metrics: Metrics) -> None:
        self._queue = queue
        self._metrics = metrics

    def entered(self, state: State) -> None:
        """Log a change of state, for those who look for it."""
        log.debug("queue %s: %s", self._queue, state)

    def seated(self, seat: Seat) -> None:
        """Do nothing: who leads is read when it is shown."""

    def renewed(self, backend: str, seconds: float, valid_for: float) -> None:
        """Note how long a renewal took."""
        self._metrics.leadership_renewed(self._queue, backend, seconds)

    def ended(self, reason: Reason) -> None:
        """Count the end of a term."""
        self._metrics.term_ended(self._queue, reason)

    def fenced(self) -> None:
        """Count a refused token."""
        self._metrics.leader_fenced(self._queue)

    def fell_back(self, backend: str) -> None:
        """Tell that a lock of lower rank is used."""
        log.warning("queue %s: leading through %s now, since the locks above it do not answer", self._queue, backend)
        self._metrics.leader_moved(self._queue, "down")

    def failed_back(self, backend: str) -> None:
        """Tell that a lock of higher rank is used again."""
        log.info("queue %s: leading through %s again", self._queue, backend)
        self._metrics.leader_moved(self._queue, "up")


def led_queue(queue: str | None, queues: tuple[str, ...]) -> str:
    """Return the queue that is asked about; None means the only one. Raises InvalidInput."""
    if queue is None and len(queues) == 1:
        return queues[0]
    if queue is None or queue not in queues:
        raise InvalidInput("queue", f"is {queue!r}", f"name one of {', '.join(queues)}")
    return queue
