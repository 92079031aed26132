"""The operator as a whole: what runs all the time, and what runs only while this process leads."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial

from headrace.worker.health import Health, HealthServer
from headrace_operator.api.names import GROUP_VERSION, QueueKey
from headrace_operator.apply import Applier
from headrace_operator.dispatcher import Dispatcher
from headrace_operator.kubernetes.autoscalers import Autoscalers
from headrace_operator.kubernetes.client import ApiError, ApiUnavailable, Kube, load_configuration
from headrace_operator.kubernetes.events import Recorder
from headrace_operator.kubernetes.listing import Lister
from headrace_operator.kubernetes.pace import Budget, Pace
from headrace_operator.kubernetes.queues_watch import Changes, make_registry, watch
from headrace_operator.kubernetes.recent import Body, Recent, What
from headrace_operator.kubernetes.workers_watch import WorkersWatch
from headrace_operator.leadership import Leadership
from headrace_operator.memory import Memory
from headrace_operator.metrics import Gauges, OperatorMetrics
from headrace_operator.observe import Observer, read_cluster_uid
from headrace_operator.reconciler import Reconciler, go_on
from headrace_operator.redis.connection import Connections
from headrace_operator.scaling.loop import ScalingLoop
from headrace_operator.scaling.replicas import Replicas
from headrace_operator.scaling.scaler import Scaler
from headrace_operator.settings import OperatorSettings
from headrace_operator.steps import Step

START_SECONDS = 60.0
"""How long the operator waits for the API server and its CustomResourceDefinitions before it gives up."""
UNHEALTHY_SECONDS = 1200.0
LAST_EVENTS_SECONDS = 0.5
SETTLE_SECONDS = 0.2
"""A rollout changes a Deployment many times in a moment; one look is enough."""
MEASUREMENTS_PER_SECOND = 5.0
CALLS_PER_SECOND, CALLS_AT_ONCE = 50.0, 100.0
"""To the API server, beside watches and the election."""

log = logging.getLogger("headrace.operator")


class CannotStart(Exception):
    """The operator cannot work here; the message says why and what to do."""


def utc_now() -> datetime:
    """Return the time of day in UTC."""
    return datetime.now(UTC)


class Duties:
    """What the leader does: all of it is made anew for each term, since others may have worked in between.

    ``queues``: what the watch of Queues has delivered. ``after_step``: see `headrace_operator.reconciler.Reconciler`.
    """

    def __init__(
        self,
        kube: Kube,
        settings: OperatorSettings,
        cluster: str,
        clock: Callable[[], float],
        metrics: OperatorMetrics,
        queues: Changes,
        after_step: Callable[[Step], Awaitable[None]],
    ) -> None:
        self._kube = kube
        self._settings = settings
        self._cluster = cluster
        self._clock = clock
        self._metrics = metrics
        self._queues = queues
        self._after_step = after_step
        self._dispatcher: Dispatcher | None = None
        self._recent = Recent(clock)

    def changed(self, key: QueueKey, what: What, body: Body, *, gone: bool, look: bool) -> None:
        """See `queues_watch.Watcher`. Who does not lead forgets it: a term begins with a list of all."""
        if self._dispatcher is None:
            return
        if gone:
            self._recent.gone(what, key, body["metadata"]["uid"], body["metadata"]["resourceVersion"])
        elif what == "queue":
            self._recent.keep_queue(body)
        else:
            self._recent.keep_version(key, body)
        if look:
            self._dispatcher.add(key)

    def gauges(self) -> Gauges:
        """Return what is shown of the work of now."""
        dispatcher = self._dispatcher
        if dispatcher is None:
            return Gauges()
        known, due = dispatcher.depth
        return Gauges(True, known, due, dispatcher.lateness, self._clock() - dispatcher.listed_at)

    def check(self) -> None:
        """Raise RuntimeError if work has been lying for too long, or the watch does not deliver what lists show."""
        dispatcher = self._dispatcher
        if dispatcher is None:
            return
        age, late = self._clock() - dispatcher.listed_at, dispatcher.lateness
        if age > UNHEALTHY_SECONDS or late > UNHEALTHY_SECONDS:
            raise RuntimeError(f"last full list {age:.0f} s ago, work late by {late:.0f} s")
        if age > self._settings.silent_seconds and self._queues.missed(dispatcher.listed, dispatcher.listed_at):
            raise RuntimeError(f"the watch of Queues has not delivered what was listed {age:.0f} s ago")

    async def run(self) -> None:
        """Work until cancelled."""
        kube, settings, clock, memory = self._kube, self._settings, self._clock, Memory()
        recent = self._recent = Recent(clock)
        connections = Connections(kube, default_url=settings.default_redis_url, clock=clock)
        autoscalers = Autoscalers(kube, clock, settings.watch_namespaces)
        recorder = Recorder(kube, clock, self._metrics)

        def scaled(key: QueueKey, delay: float) -> None:
            recent.workers_scaled(key)
            dispatcher.add(key, delay)

        scaler = Scaler(Replicas(kube), recorder, clock=clock, now=utc_now)
        scaling = ScalingLoop(scaler, clock=clock, told=scaled, concurrency=settings.concurrency)
        observer = Observer(
            kube, connections, memory, self._cluster, utc_now, autoscalers, recent, scaling=scaling.report
        )
        reconciler = Reconciler(
            kube,
            connections,
            observer,
            Applier(kube, memory, recent, clock),
            recorder,
            memory,
            recent,
            clock=clock,
            resync_seconds=settings.resync_seconds,
            may_measure=Pace(MEASUREMENTS_PER_SECOND, clock).take,
            after_step=self._after_step,
            metrics=self._metrics,
            scale=scaling.observed,
        )
        dispatcher = Dispatcher(
            reconciler,
            Lister(kube, recent, settings.watch_namespaces),
            clock=clock,
            concurrency=settings.concurrency,
            list_seconds=settings.list_seconds,
            metrics=self._metrics,
        )

        def workers_changed(key: QueueKey, version: int, there: bool) -> None:
            recent.workers_changed(key, version, there=there)
            dispatcher.add(key, SETTLE_SECONDS)

        workers = WorkersWatch(load_configuration, workers_changed, settings.watch_namespaces)
        self._dispatcher = dispatcher
        try:
            async with asyncio.TaskGroup() as tasks:
                parts = (
                    *(workers.run(), dispatcher.run(), scaling.run(), recorder.run()),
                    connections.secrets.watch(dispatcher.add),
                )
                for part in parts:
                    tasks.create_task(part)
        finally:
            self._dispatcher = None
            self._metrics.hide()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_EVENTS_SECONDS):
                    await recorder.flush()
            await connections.close()


async def run(
    settings: OperatorSettings,
    stop: asyncio.Event | None = None,
    after_step: Callable[[Step], Awaitable[None]] = go_on,
) -> None:
    """Run the operator until ``stop`` is set or a signal comes. Raises CannotStart."""
    clock, metrics = time.monotonic, OperatorMetrics()
    stop, stop_watching = stop or asyncio.Event(), asyncio.Event()
    kube = Kube(budget=Budget(CALLS_PER_SECOND, CALLS_AT_ONCE, clock), metrics=metrics)
    try:
        cluster, queues = await _ready(kube, clock), Changes(clock)
        duties = Duties(kube, settings, cluster, clock, metrics, queues, after_step)
        lease = (settings.lease_name, settings.lease_namespace or None)
        leadership = Leadership(duties.run, profile=settings.leader_election, lease=lease)
        kube.may_write, metrics.gauges = leadership.may_write, duties.gauges

        def health() -> Health:
            try:
                duties.check()
                leadership.check()
            except RuntimeError as error:
                return Health(False, {"leader": leadership.may_write(), "problem": str(error)})
            return Health(True, {"leader": leadership.may_write()})

        parts = [asyncio.create_task(leadership.run()), asyncio.create_task(stop.wait())]
        if settings.health_port:
            checks = {"/healthz": health, "/readyz": health}
            server = HealthServer(settings.health_host, settings.health_port, checks, {"/metrics": metrics.render})
            parts.append(asyncio.create_task(server.run()))
        registry = make_registry(duties, queues, partial(_stop_on_signals, stop))
        watching = asyncio.create_task(watch(registry, namespaces=settings.watch_namespaces, stop=stop_watching))
        log.info("headrace-operator runs for %s", ", ".join(settings.watch_namespaces) or "all namespaces")
        done, _ = await asyncio.wait([watching, *parts], return_when=asyncio.FIRST_COMPLETED)
        # kopf waits for every task that was begun after it: ours have to end first.
        for part in parts:
            part.cancel()
        await asyncio.gather(*parts, return_exceptions=True)
        stop_watching.set()
        await watching
        for part in done:
            part.result()  # raises what ended it
    finally:
        await kube.close()


def _stop_on_signals(stop: asyncio.Event) -> None:
    """Set ``stop`` on SIGTERM and SIGINT, in place of what kopf does with them."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)


async def _ready(kube: Kube, clock: Callable[[], float]) -> str:
    """Wait for the API server to serve our kinds; return the identity of the cluster."""
    end = clock() + START_SECONDS
    while True:
        try:
            served = await kube.get(f"/apis/{GROUP_VERSION}")
            missing = {"queues", "queueversions"} - {resource["name"] for resource in served["resources"]}
            if not missing:
                return await read_cluster_uid(kube)
            problem = f"{GROUP_VERSION} lacks {', '.join(sorted(missing))}"
        except ApiUnavailable as error:
            problem = f"the API server does not answer ({error})"
        except ApiError as error:
            problem = str(error)
            if error.status == 404:
                problem = f"{GROUP_VERSION} is not served; install the files of crds/, or the chart with crds.enabled"
        if clock() > end:
            raise CannotStart(problem)
        await asyncio.sleep(0.5)
