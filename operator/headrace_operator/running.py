"""The operator as a whole: what runs all the time, and what runs only while this process leads."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial

from headrace_operator.api.names import GROUP_VERSION, QueueKey
from headrace_operator.apply import Applier
from headrace_operator.autoscalers import Autoscalers
from headrace_operator.connection import Connections
from headrace_operator.dispatcher import Dispatcher
from headrace_operator.events import Recorder
from headrace_operator.kube import ApiError, ApiUnavailable, Kube, load_configuration
from headrace_operator.leadership import Leadership
from headrace_operator.memory import Memory
from headrace_operator.observe import Observer, read_cluster_uid
from headrace_operator.pace import Budget, Pace
from headrace_operator.reconciler import Reconciler, go_on
from headrace_operator.settings import OperatorSettings
from headrace_operator.steps import Step
from headrace_operator.watch import make_registry, watch
from headrace_operator.workers_watch import WorkersWatch

START_SECONDS = 60.0
"""How long the operator waits for the API server and its CustomResourceDefinitions before it gives up."""
UNHEALTHY_SECONDS = 1200.0
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

    ``after_step``: see `headrace_operator.reconciler.Reconciler`.
    """

    def __init__(
        self,
        kube: Kube,
        settings: OperatorSettings,
        cluster: str,
        clock: Callable[[], float],
        after_step: Callable[[Step], Awaitable[None]],
    ) -> None:
        self._kube = kube
        self._settings = settings
        self._cluster = cluster
        self._clock = clock
        self._after_step = after_step
        self._dispatcher: Dispatcher | None = None

    def add(self, key: QueueKey, delay: float = 0.0) -> None:
        """Look at a Queue; forgotten while this process does not lead, since a term begins with all of them."""
        if self._dispatcher is not None:
            self._dispatcher.add(key, delay)

    def check(self) -> None:
        """Raise RuntimeError if work has been lying for too long."""
        if self._dispatcher is None:
            return
        age, late = self._clock() - self._dispatcher.listed_at, self._dispatcher.lateness
        if age > UNHEALTHY_SECONDS or late > UNHEALTHY_SECONDS:
            raise RuntimeError(f"last full list {age:.0f} s ago, work late by {late:.0f} s")

    async def run(self) -> None:
        """Work until cancelled."""
        kube, settings, clock, memory = self._kube, self._settings, self._clock, Memory()
        connections = Connections(kube, default_url=settings.default_redis_url, clock=clock)
        autoscalers = Autoscalers(kube, clock, settings.watch_namespaces)
        reconciler = Reconciler(
            kube,
            connections,
            Observer(kube, connections, memory, self._cluster, utc_now, autoscalers),
            Applier(kube, memory, clock),
            Recorder(kube, clock),
            memory,
            clock=clock,
            resync_seconds=settings.resync_seconds,
            may_measure=Pace(MEASUREMENTS_PER_SECOND, clock).take,
            after_step=self._after_step,
        )
        dispatcher = self._dispatcher = Dispatcher(
            kube, reconciler, clock=clock, namespaces=settings.watch_namespaces, concurrency=settings.concurrency
        )
        workers = WorkersWatch(load_configuration, dispatcher.add, settings.watch_namespaces)
        try:
            async with asyncio.TaskGroup() as tasks:
                for part in (dispatcher.run(), workers.run(), connections.secrets.watch(dispatcher.add)):
                    tasks.create_task(part)
        finally:
            self._dispatcher = None
            await connections.close()


async def run(
    settings: OperatorSettings,
    stop: asyncio.Event | None = None,
    after_step: Callable[[Step], Awaitable[None]] = go_on,
) -> None:
    """Run the operator until ``stop`` is set or a signal comes. Raises CannotStart."""
    clock = time.monotonic
    stop, stop_watching = stop or asyncio.Event(), asyncio.Event()
    kube = Kube(budget=Budget(CALLS_PER_SECOND, CALLS_AT_ONCE, clock))
    try:
        cluster = await _ready(kube, clock)
        duties = Duties(kube, settings, cluster, clock, after_step)
        lease = (settings.lease_name, settings.lease_namespace or None)
        leadership = Leadership(duties.run, profile=settings.leader_election, lease=lease)
        kube.may_write = leadership.may_write

        def healthy() -> None:
            duties.check()
            if not leadership.healthy():
                raise RuntimeError("the election has ended, or the work of a term that is over goes on")

        endpoint = f"http://{settings.health_host}:{settings.health_port}/healthz" if settings.health_port else None
        parts = [asyncio.create_task(leadership.run()), asyncio.create_task(stop.wait())]
        watching = asyncio.create_task(
            watch(
                make_registry(duties.add, healthy, partial(_stop_on_signals, stop)),
                namespaces=settings.watch_namespaces,
                liveness_endpoint=endpoint,
                stop=stop_watching,
            )
        )
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
