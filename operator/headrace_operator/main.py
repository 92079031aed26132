"""The command ``headrace-operator``: starts everything, and ends on SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version as installed_version

import kubernetes.config
from pydantic import ValidationError

from headrace_operator.api.names import GROUP_VERSION
from headrace_operator.apply import Applier
from headrace_operator.autoscalers import Autoscalers
from headrace_operator.connection import Connections
from headrace_operator.dispatcher import Dispatcher
from headrace_operator.events import Recorder
from headrace_operator.kube import ApiError, ApiUnavailable, Kube, load_configuration
from headrace_operator.memory import Memory
from headrace_operator.observe import Observer, read_cluster_uid
from headrace_operator.reconciler import Reconciler
from headrace_operator.settings import OperatorSettings
from headrace_operator.watch import make_registry, watch
from headrace_operator.workers_watch import WorkersWatch

START_SECONDS = 60.0
"""How long the operator waits for the API server and its CustomResourceDefinitions before it gives up."""
UNHEALTHY_SECONDS = 1200.0
MEASUREMENTS_PER_SECOND = 5.0

log = logging.getLogger("headrace.operator")


class CannotStart(Exception):
    """The operator cannot work here; the message says why and what to do."""


class Pace:
    """At most ``rate`` times per second, with the same number at once."""

    def __init__(self, rate: float, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._clock = clock
        self._tokens, self._at = rate, clock()

    def take(self) -> bool:
        """Whether it may happen now; if so, it counts."""
        now = self._clock()
        self._tokens = min(self._rate, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def utc_now() -> datetime:
    """Return the time of day in UTC."""
    return datetime.now(UTC)


async def run(settings: OperatorSettings, stop: asyncio.Event | None = None) -> None:
    """Run the operator until ``stop`` is set or a signal comes. Raises CannotStart."""
    clock = time.monotonic
    kube = Kube()
    connections = Connections(kube, default_url=settings.default_redis_url, clock=clock)
    try:
        cluster = await _ready(kube, clock)
        memory = Memory()
        autoscalers = Autoscalers(kube, clock, settings.watch_namespaces)
        reconciler = Reconciler(
            kube,
            connections,
            Observer(kube, connections, memory, cluster, utc_now, autoscalers),
            Applier(kube, memory),
            Recorder(kube, clock),
            memory,
            clock=clock,
            resync_seconds=settings.resync_seconds,
            may_measure=Pace(MEASUREMENTS_PER_SECOND, clock).take,
        )
        dispatcher = Dispatcher(
            kube, reconciler, clock=clock, namespaces=settings.watch_namespaces, concurrency=settings.concurrency
        )
        workers = WorkersWatch(load_configuration, dispatcher.add, settings.watch_namespaces)

        def healthy() -> None:
            age = clock() - dispatcher.listed_at
            if age > UNHEALTHY_SECONDS or dispatcher.lateness > UNHEALTHY_SECONDS:
                raise RuntimeError(f"last full list {age:.0f} s ago, work late by {dispatcher.lateness:.0f} s")

        endpoint = f"http://{settings.health_host}:{settings.health_port}/healthz" if settings.health_port else None
        secrets = connections.secrets.watch(dispatcher.add)
        stop, stop_watching = stop or asyncio.Event(), asyncio.Event()
        parts = [asyncio.create_task(part) for part in (dispatcher.run(), workers.run(), secrets, stop.wait())]
        watching = asyncio.create_task(
            watch(
                make_registry(dispatcher.add, healthy, partial(_stop_on_signals, stop)),
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
        await connections.close()
        stop_watching.set()
        await watching
        for part in done:
            part.result()  # raises what ended it
    finally:
        await connections.close()
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


class JsonLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def configure_logging(settings: OperatorSettings) -> None:
    """Send log lines to standard error."""
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if settings.log_format == "json" else text)
    logging.basicConfig(level=settings.log_level, handlers=[handler], force=True)
    # Its own progress is not ours, and its warnings about signals and permissions are.
    for name in ("kopf", "aiohttp.access", "urllib3"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))


def main() -> None:
    """Run the operator; exit 1 with one line if it cannot start, 2 if its settings or arguments are wrong."""
    parser = argparse.ArgumentParser(
        prog="headrace-operator",
        description="Kubernetes operator of Headrace queues. Settings come from the environment, HEADRACE_...",
    )
    parser.add_argument("--version", action="version", version=installed_version("headrace-operator"))
    parser.parse_args()
    try:
        settings = OperatorSettings()
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_input=False):
            name = "_".join(str(part) for part in detail["loc"]).upper()
            print(f"headrace-operator: HEADRACE_{name}: {detail['msg']}", file=sys.stderr)
        sys.exit(2)
    configure_logging(settings)
    try:
        asyncio.run(run(settings))
    except (CannotStart, kubernetes.config.ConfigException) as error:
        print(f"headrace-operator: {error}", file=sys.stderr)
        sys.exit(1)
