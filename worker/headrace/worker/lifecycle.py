"""The worker: starts the parts, and stops them in the order that loses nothing."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from secrets import token_hex
from typing import Any

from headrace.app import App
from headrace.errors import HeadraceError, UnsupportedServer
from headrace.forks import check_process, this_process
from headrace.maintenance import Housekeeping, Signs, duties
from headrace.stores import Store, check_store
from headrace.worker.cancellation import cancel_all
from headrace.worker.candidacies import Candidacies, led_queue
from headrace.worker.claims import Claims
from headrace.worker.exclusive import Exclusive
from headrace.worker.execution import Executor
from headrace.worker.failures import FailureLog
from headrace.worker.health import Health, HealthServer
from headrace.worker.keeper import Keeper
from headrace.worker.leases import LeaseTable
from headrace.worker.lifespans import CLOSE_SECONDS, Lifespans
from headrace.worker.lost_jobs import LostJobs
from headrace.worker.measuring import MeasuringExecutor, measured, metrics_for
from headrace.worker.memory_watch import MemoryWatch
from headrace.worker.metrics import Metrics, NoMetrics, Readings, Rendered
from headrace.worker.outage import Reachability
from headrace.worker.parking import Unparker
from headrace.worker.policies import Policies
from headrace.worker.presence import Place, Presence
from headrace.worker.processes import ProcessPool
from headrace.worker.restarts import keep_going
from headrace.worker.results import Results
from headrace.worker.settings import WorkerSettings
from headrace.worker.settlements import POOL_SECONDS, Settlements
from headrace.worker.standby import StandBy
from headrace.worker.tally import Reporter, Tally, tallied
from headrace.worker.vitals import Vitals, readiness, stuck_seconds
from headrace.worker.wakeups import QueueTimer, Waiter

log = logging.getLogger("headrace.worker")

STOP_CLAIMS_SECONDS = 1.0
INTERRUPT_SECONDS = 1.5
DRAIN_SECONDS = 2.0
LEAVE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Ending:
    """How a worker ended. ``abandoned``: handlers whose code still ran; ``unconfirmed``: results never confirmed."""

    abandoned: int = 0
    unconfirmed: int = 0

    @property
    def clean(self) -> bool:
        """Whether every job was finished or handed back, and no code goes on."""
        return self.abandoned == 0 and self.unconfirmed == 0


class Worker:
    """Runs the handlers of an app on the jobs of the store's queues, until `stop` (or a signal, if asked for).

    The store stays the caller's, who closes it afterwards. ``metrics`` receives counts (default: what the settings
    name; InvalidInput if that is not installed). ``settle_delay`` (seconds, default 0.002) is how long a result waits
    for others to be sent along. Its identity in the store, ``name`` plus eight random hex digits, is new for each
    Worker, so that no restart meets its own leases.
    """

    def __init__(
        self,
        app: App,
        store: Store,
        settings: WorkerSettings | None = None,
        metrics: Metrics | None = None,
        *,
        settle_delay: float = POOL_SECONDS,
    ) -> None:
        self._app = app
        self._store = check_store(store)
        self._settings = settings or WorkerSettings()
        self._metrics: Metrics = metrics or metrics_for(self._settings)
        self._settle_delay = settle_delay
        self.identity = f"{self._settings.worker_id}-{token_hex(4)}"
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._ended = asyncio.Event()
        self._ran, self._process = False, this_process()
        self._candidacies: Candidacies | None = None
        self.started = asyncio.Event()
        """Set once the worker claims."""

    async def stop(self, *, at_once: bool = False) -> None:
        """Ask for the end and wait for it. ``at_once``: interrupt running handlers instead of giving them time."""
        self.request_stop(at_once=at_once)
        if self._ran:
            await self._ended.wait()

    def request_stop(self, *, at_once: bool = False) -> None:
        """Ask for the end; a second request interrupts running handlers at once."""
        if at_once or self._stop.is_set():
            self._stop_now.set()
        self._stop.set()

    def is_leader(self, queue: str | None = None) -> bool:
        """Return whether this worker leads ``queue`` (None: its only one) now. Any thread may ask.

        Raises InvalidInput if the worker does not serve it.
        """
        name = led_queue(queue, self._settings.queue_names)
        return self._candidacies is not None and self._candidacies.epoch_of(name)() is not None

    def _may_lead(self, queue: str) -> bool:
        return self._candidacies is not None and self._candidacies.of(queue) is not None

    async def run(self, *, handle_signals: bool = False) -> Ending:
        """Work until `stop`. ``handle_signals``: SIGTERM and SIGINT ask for the end, a second one means at once.

        Cancelled, it ends without grace, within seconds. Raises UnsupportedServer if the store's server is too old, and
        DependencyFailed or ProcessFailed if something that the handlers need cannot be made.
        """
        if self._ran:
            raise RuntimeError("a Worker runs once; make a new one")
        check_process("Worker", self._process)
        self._ran = True
        loop = asyncio.get_running_loop()
        signals = (signal.SIGTERM, signal.SIGINT) if handle_signals else ()
        for number in signals:
            loop.add_signal_handler(number, self.request_stop)
        try:
            async with AsyncExitStack() as stack:
                return await self._work(stack)
        finally:
            for number in signals:
                loop.remove_signal_handler(number)
            self._ended.set()

    async def _work(self, stack: AsyncExitStack) -> Ending:
        """Start the parts and work; ``stack`` takes what has to be closed however this ends."""
        settings, store, metrics = self._settings, self._store, self._metrics
        handlers = self._app.freeze()
        reachability = Reachability()
        policies = Policies(settings)
        leases = LeaseTable()
        failures = FailureLog()
        stack.callback(failures.flush)
        measuring = type(metrics) is not NoMetrics
        working_store = measured(store, metrics.store_called) if measuring else store
        signs = self._signs = {queue: Signs() for queue in settings.queue_names}
        tally = Tally(lambda queue: signs[queue].noticed())
        metrics = tallied(metrics, tally)
        settlements = Settlements(
            working_store, leases, reachability, metrics, failures, Results(policies), self._settle_delay
        )
        kind = MeasuringExecutor if measuring else Executor
        executor = kind(store, settings, policies, leases, settlements, reachability, metrics, failures)
        executor.sample(tally.timed)
        self._memory = MemoryWatch(store, settings.memory_limit)
        health = self._health_server(reachability) if settings.health_port else None
        keeper = Keeper(
            store.clone(),
            leases,
            reachability,
            handlers,
            settings.heartbeat_for,
            settings.timeout_grace_ms / 1000,
            executor.lose,
            health.run if health else None,
        )
        timer_store = self._clone(stack)
        presence = Presence(Place.here(), settings.concurrency, leases.by_queue, self._may_lead)
        timers = {
            queue: QueueTimer(
                queue,
                self.identity,
                timer_store,
                policies,
                Unparker(queue, timer_store, handlers, lambda ref: claims.hint(ref)),
                lambda ref: claims.hint(ref),
                reachability,
                lambda queue: presence.beat(queue, stand_by.till(queue)),
                lambda queue, tick: stand_by.told(queue, tick),
                signs[queue],
            )
            for queue in settings.queue_names
        }
        reporter = Reporter(tally, timer_store, reachability)
        lost_jobs = LostJobs(store, self._app.lost_job_hooks, metrics, failures)
        stack.push_async_callback(lost_jobs.close)
        if self._app.lost_job_hooks:
            executor.on_taken = lost_jobs.recovered
        claims = Claims(
            self.identity,
            working_store,
            settings,
            policies,
            executor,
            leases,
            settlements,
            reachability,
            metrics,
            on_lease=keeper.note_lease,
            on_alarm=lambda queue, ms: timers[queue].due_in(ms),
            on_gone=lambda queue: timers[queue].reread(),
            on_lost=lost_jobs.taken_back,
            on_fenced=lambda ref, fence: exclusive[ref.queue].refused(ref, fence),
            epoch_of=lambda queue: candidacies.epoch_of(queue),
            fence_of=lambda queue: exclusive[queue].fence(),
        )
        exclusive = {
            queue: Exclusive(
                queue,
                timer_store,
                policies,
                signs[queue],
                claims,
                executor,
                reachability,
                timers[queue].reread,
                self._may_lead,
            )
            for queue in settings.queue_names
        }
        stand_by = StandBy(timer_store, claims, executor)
        stack.callback(stand_by.close)
        settlements.on_confirmed = executor.notify_free
        self._claims, self._keeper, self._executor = claims, keeper, executor
        metrics.started(self._read)
        waiters = [
            Waiter(
                claims.rotation.queues[queue],
                self._clone(stack),
                claims,
                reachability,
                settings.poll_ms / 1000,
                timers[queue].rearm,
            )
            for queue in settings.queue_names
        ]
        keeper.start()
        stack.push_async_callback(keeper.stop)
        stack.push_async_callback(executor.close)
        lifespans = Lifespans(self._app.dependencies)
        if not await self._before_stop(lifespans.open()):
            return Ending()
        stack.push_async_callback(lifespans.close, CLOSE_SECONDS)
        processes = ProcessPool(handlers) if any(handler.process for handler in handlers.values()) else None
        if processes is not None and not await self._before_stop(processes.open()):
            return Ending()
        executor.serve(self._app, lifespans.values, processes)
        await self._first_look(policies, signs, reachability)
        housekeeping = {
            # On the timer's connections: one of its own would be idle for days, and not follow a URL that changes.
            queue: Housekeeping(
                queue,
                timer_store,
                signs[queue],
                partial(duties, metrics, settings.parked_limits, self._app.schedules_of(queue)),
                metrics,
                timers[queue].reread,
            )
            for queue in settings.queue_names
        }
        candidacies = Candidacies(
            self._app, store, settings, self.identity, metrics, policies.exclusive, housekeeping, exclusive
        )
        self._candidacies = candidacies
        stack.push_async_callback(candidacies.stop)
        candidacies.start()
        log.info(
            "worker %s runs %d handler(s) on %s, %d at a time",
            self.identity,
            len(handlers),
            ", ".join(settings.queue_names),
            settings.concurrency,
        )
        # First those that may forbid to claim.
        beside = [asyncio.create_task(keep_going("standing by", each.run)) for each in exclusive.values()]
        claiming = asyncio.create_task(keep_going("the claim loop", claims.run))
        beside += [asyncio.create_task(keep_going("a waiter", waiter.run)) for waiter in waiters]
        beside += [asyncio.create_task(keep_going("a timer", timer.run)) for timer in timers.values()]
        beside.append(asyncio.create_task(keep_going("the reporter", reporter.run)))
        if health is not None:
            beside.append(asyncio.create_task(keep_going("the watch over the memory", self._memory.run)))
        stack.push_async_callback(cancel_all, [claiming, *beside])
        self.started.set()
        try:
            await self._stop.wait()
        finally:
            # Also when run() is cancelled: then there is no grace.
            # A leader that alone runs jobs hands over when the last one has ended, see below.
            handing_over = asyncio.create_task(candidacies.stop(but=policies.exclusive))
            winding_down = asyncio.create_task(
                self._wind_down(claims, claiming, executor, settlements, lifespans, reporter, beside, candidacies)
            )
            ending = await self._to_its_end(winding_down)
            await handing_over
        return ending

    async def _before_stop(self, starting: Coroutine[Any, Any, None]) -> bool:
        """Await a part of the start; False, with it cancelled, if the end is asked for meanwhile."""
        task = asyncio.create_task(starting)
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait([task, stop], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
        if task.cancelled():
            return False
        task.result()
        return True

    def _clone(self, stack: AsyncExitStack) -> Store:
        clone = self._store.clone()
        stack.push_async_callback(clone.close)
        return clone

    async def _to_its_end(self, winding_down: asyncio.Task[Ending]) -> Ending:
        """Wait for the end even if cancelled, which only ends the grace: jobs are handed back, and nothing is left."""
        cancelled = False
        while not winding_down.done():
            try:
                await asyncio.shield(winding_down)
            except asyncio.CancelledError:
                self._stop_now.set()
                cancelled = True
        if cancelled and not winding_down.cancelled():
            raise asyncio.CancelledError
        return winding_down.result()

    async def _first_look(self, policies: Policies, signs: Mapping[str, Signs], reachability: Reachability) -> None:
        """Prove the server and read the queues' settings before the first claim, if the store answers at once.

        Raises UnsupportedServer.
        """
        doing = "checking the server"
        try:
            await self._store.check()
            reachability.answered()
            for queue in self._settings.queue_names:
                doing = f"reading the topology of queue {queue}"
                signs[queue].read(await policies.refresh(self._store, queue))
                reachability.answered()
        except UnsupportedServer:
            raise
        except Exception as error:
            reachability.failed(doing, error)

    async def _wind_down(
        self,
        claims: Claims,
        claiming: asyncio.Task[None],
        executor: Executor,
        settlements: Settlements,
        lifespans: Lifespans,
        reporter: Reporter,
        beside: list[asyncio.Task[None]],
        candidacies: Candidacies,
    ) -> Ending:
        grace_ends = time.monotonic() + self._settings.grace_seconds
        waiting_and_ticking = asyncio.create_task(cancel_all(beside))
        executor.wind_down()
        settlements.hurry()
        await claims.stop(STOP_CLAIMS_SECONDS)
        await cancel_all([claiming])
        await waiting_and_ticking
        leaving = asyncio.create_task(self._leave())
        if executor.running:
            log.info("stopping: %d handler(s) still run", len(executor.running))
        if self._stop.is_set():
            await executor.finish(max(0.0, grace_ends - time.monotonic()), self._stop_now)
        abandoned = await executor.interrupt(INTERRUPT_SECONDS) if executor.running else 0
        handing_over = asyncio.create_task(candidacies.stop())
        grace_left = 0.0 if self._stop_now.is_set() else max(0.0, grace_ends - time.monotonic())
        closing = asyncio.create_task(lifespans.close(grace_left + DRAIN_SECONDS))
        ending_processes = asyncio.create_task(executor.close())
        unconfirmed = await settlements.drain(DRAIN_SECONDS)
        await asyncio.gather(closing, ending_processes, handing_over)
        reporting = asyncio.create_task(reporter.send())
        await asyncio.wait([leaving, reporting], timeout=LEAVE_SECONDS)
        await cancel_all([leaving, reporting])
        if abandoned:
            log.error("%d handler(s) did not end when told to; their jobs are handed back", abandoned)
        if unconfirmed:
            log.error("%d result(s) were not confirmed by the store; these jobs run again", unconfirmed)
        log.info("worker %s has ended", self.identity)
        return Ending(abandoned, unconfirmed)

    async def _leave(self) -> None:
        """Hand the alarm of each queue over, so that no delayed job waits for a worker that is gone."""
        for queue in self._settings.queue_names:
            try:
                await self._store.leave(queue, self.identity)
            except HeadraceError as error:
                log.warning("leaving queue %s: %s; delayed jobs may be up to 5 s late now", queue, error)

    def _read(self) -> Readings | None:
        if self._ended.is_set():
            return None
        slots = self._settings.concurrency
        leading = self._candidacies.leading() if self._candidacies is not None else {}
        cycle_age = time.monotonic() - self._claims.cycled_at
        ahead, memory = self._claims.clock_ahead, self._memory.ratio
        return Readings(slots, len(self._executor.running), cycle_age, leading, ahead, memory)

    # ---- health -----------------------------------------------------------------------------------------------------

    def _health_server(self, reachability: Reachability) -> HealthServer:
        def alive() -> Health:
            now, blocked = time.monotonic(), self._keeper.blocked_seconds()
            return Vitals(
                claim_cycle=now - self._claims.cycled_at,
                claim_unanswered=self._claims.unanswered_seconds(),
                lease_cycle=now - self._keeper.kept_at,
                loop_blocked=blocked,
                stuck=stuck_seconds(self._executor.running, self._settings.concurrency, now),
                saturated=self._claims.capacity() <= 0 or self._claims.paused,
                keeps_leases=not blocked or self._keeper.holds_leases(),
                store_down=reachability.down_since is not None,
                election_healthy=self._candidacies is None or self._candidacies.healthy(),
                longest_wait=self._settings.poll_ms / 1000,
            ).alive()

        def ready() -> Health:
            return readiness(
                started=self.started.is_set(),
                store_reachable=reachability.ready(),
                stopping=self._stop.is_set(),
                memory_enough=self._memory.enough,
                memory_ratio=self._memory.ratio,
            )

        settings, metrics = self._settings, self._metrics
        pages = {"/metrics": metrics.render} if isinstance(metrics, Rendered) else {}
        checks = {"/healthz": alive, "/readyz": ready}
        server = HealthServer(settings.health_address, settings.health_port, checks, pages)
        server.listen()
        return server
