"""The operator's parts within the test, so that it can be stopped between any two steps."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

import kubernetes.client
import kubernetes.config

from headrace.stores import Store, open_store
from headrace_operator.api.names import QueueKey
from headrace_operator.apply import Applier
from headrace_operator.kubernetes.autoscalers import Autoscalers
from headrace_operator.kubernetes.client import Kube
from headrace_operator.kubernetes.events import Recorder
from headrace_operator.kubernetes.recent import Recent
from headrace_operator.memory import Memory
from headrace_operator.observe import Observer, read_cluster_uid
from headrace_operator.reconciler import Reconciler
from headrace_operator.redis.connection import Connections
from headrace_operator.running import utc_now
from headrace_operator.steps import Step
from tests.cluster.cluster import LocalCluster

CHANGES = ("write_topology", "install", "settle", "mark", "close_partition", "remove", "discard", "write_marker")


class Killed(Exception):
    """The operator died here."""


async def live_on(_: Step) -> None:
    return None


class DyingStore:
    """A store that is left after ``budget`` changes: the process that used it has died."""

    def __init__(self, store: Store, budget: list[int]) -> None:
        self._store = store
        self._budget = budget

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in CHANGES:
            return method

        async def change(*args: Any) -> Any:
            if self._budget[0] == 0:
                raise Killed
            self._budget[0] -= 1
            return await method(*args)

        return change


class NothingRecent(Recent):
    """Knows nothing: no watch runs here that would tell of changes."""

    def queue(self, key: QueueKey) -> None:
        return None

    def versions(self, key: QueueKey) -> None:
        return None

    def workers(self, key: QueueKey) -> None:
        return None

    def companions(self, key: QueueKey, seconds: float) -> None:
        return None


class OperatorInTest:
    """One life of the operator; an async context manager. ``store_changes``: changes in Redis until it dies."""

    def __init__(
        self,
        cluster: LocalCluster,
        after_step: Callable[[Step], Awaitable[None]] = live_on,
        store_changes: int | None = None,
    ) -> None:
        self._cluster = cluster
        self._after_step = after_step
        self._budget = None if store_changes is None else [store_changes]

    async def __aenter__(self) -> OperatorInTest:
        self.kube = Kube(self._configuration)
        self.memory = Memory()
        self._connections = Connections(self.kube, clock=time.monotonic, open_url=self._open)
        uid = await read_cluster_uid(self.kube)
        autoscalers = Autoscalers(self.kube, time.monotonic)
        recent = NothingRecent(time.monotonic)
        self.observer = Observer(self.kube, self._connections, self.memory, uid, utc_now, autoscalers, recent)
        self._recorder = Recorder(self.kube, time.monotonic)
        self.applier = Applier(self.kube, self.memory, recent, time.monotonic)
        self.reconciler = Reconciler(
            self.kube,
            self._connections,
            self.observer,
            self.applier,
            self._recorder,
            self.memory,
            recent,
            clock=time.monotonic,
            after_step=self._after_step,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._recorder.flush()
        await self._connections.close()
        await self.kube.close()

    def _open(self, url: str) -> Any:
        store = open_store(url)
        return store if self._budget is None else DyingStore(store, self._budget)

    def _configuration(self) -> kubernetes.client.Configuration:
        configuration = kubernetes.client.Configuration()
        path = str(self._cluster.kubeconfig)
        kubernetes.config.load_kube_config(path, client_configuration=configuration)  # type: ignore[no-untyped-call]
        configuration.retries = False
        return configuration
