"""The node: registers itself, learns of its Pods, runs them, and offers their logs and fault switches."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import platform
import shutil
import signal
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from tests.cluster import binaries
from tests.cluster.certificates import Authority, tls_context
from tests.cluster.guard import Guard
from tests.cluster.node import registration
from tests.cluster.node.api import UNREACHABLE, Api, Informer
from tests.cluster.node.container import Backoff, Clock, Container
from tests.cluster.node.faults import Delay, Gate
from tests.cluster.node.images import Image
from tests.cluster.node.kubelet_api import KubeletApi
from tests.cluster.node.network import PodNetwork
from tests.cluster.node.pod import Host, Pod
from tests.cluster.node.status import timestamp
from tests.cluster.rest import ApiError, Object

T = TypeVar("T")

# More than the machine has, on purpose: tests are scheduled by what they prove, not by what they reserve.
CAPACITY: Mapping[str, str] = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "250"}


def system_clock() -> datetime.datetime:
    """The time of this machine, in UTC."""
    return datetime.datetime.now(datetime.UTC)


class ProcessNode:
    """A Kubernetes node whose Pods are local process groups. Linux only (Pod addresses, waitid).

    Runs in a thread of its own between ``start()`` and ``stop()``; all methods may be called from any thread.
    ``folder`` holds the Pods' private files (removed at the stop), ``logs`` their output (kept).
    """

    def __init__(
        self,
        name: str,
        *,
        server: str,
        authority: Authority,
        folder: Path,
        logs: Path,
        guard: Guard,
        images: Mapping[str, Image],
        restart_backoff: float = 0.2,
        capacity: Mapping[str, str] = CAPACITY,
        clock: Clock = system_clock,
    ) -> None:
        self.name = name
        self._server = server
        self._authority = authority
        self._folder = folder
        self._logs = logs
        self._guard = guard
        self._images = images
        self._delays = Backoff(base=restart_backoff)
        self._capacity = capacity
        self._clock = clock
        self._pods: dict[str, Pod] = {}  # by uid
        self._finished: set[str] = set()  # ended here, object not gone yet
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._events: set[asyncio.Task[None]] = set()
        self._errors: list[BaseException] = []
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()

    # --- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Returns when the node is registered and takes Pods. Raises what kept it from starting."""
        if platform.system() != "Linux":
            raise OSError("the process node needs Linux (loopback addresses 127.1.0.0/16, waitid): use a real cluster")
        self._folder.mkdir(parents=True, mode=0o700)
        self._logs.mkdir(parents=True, exist_ok=True)
        self._thread = threading.Thread(target=self._run, name=f"node-{self.name}", daemon=True)
        self._thread.start()
        self._ready.wait(60)
        if self._errors:
            self._thread.join()
            raise self._errors.pop(0)
        if not self._ready.is_set():
            raise TimeoutError(f"node {self.name} was not ready after 60 s")

    def stop(self) -> None:
        """SIGKILL every process of every Pod and remove their files. May be called twice.

        Raises an error of the node's own code that would otherwise have been lost.
        """
        if self._thread is None:
            return
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(60)
        self._thread = None
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._errors:
            raise self._errors.pop(0)

    # --- what tests ask -------------------------------------------------------------------------------------------

    def logs(self, namespace: str, pod: str, container: str | None = None) -> str:
        """Everything the Pod's containers wrote, all runs, oldest first; also after the Pod has gone."""
        return "".join(path.read_text(errors="replace") for path in self._log_files(namespace, pod, container or "*"))

    def pid(self, namespace: str, pod: str, container: str | None = None) -> int | None:
        """Process id (and group) of a container, the first one without a name; None if it does not run."""

        def find() -> int | None:
            groups = [each.group for each in self._containers(namespace, pod, container) if each.group is not None]
            return groups[0].pid if groups else None

        return self._call(find)

    def kill(self, namespace: str, pod: str, container: str | None = None, *, number: int = signal.SIGKILL) -> None:
        """Send a signal (default SIGKILL) to the process group of one container, or of all.

        Raises LookupError if nothing of the Pod runs here.
        """

        def send() -> None:
            groups = [each.group for each in self._containers(namespace, pod, container) if each.group is not None]
            if not groups:
                raise LookupError(f"no process of Pod {namespace}/{pod} runs on {self.name}")
            for group in groups:
                group.signal(number)

        self._call(send)

    def freeze(self, namespace: str, pod: str, container: str | None = None) -> None:
        """SIGSTOP: the process keeps its connections and memory and does nothing. Probes go on and will fail."""
        self.kill(namespace, pod, container, number=signal.SIGSTOP)

    def resume(self, namespace: str, pod: str, container: str | None = None) -> None:
        """SIGCONT after ``freeze``."""
        self.kill(namespace, pod, container, number=signal.SIGCONT)

    @contextlib.contextmanager
    def delay_starts(self, namespace: str, *, prefix: str = "", seconds: float | None = None) -> Iterator[None]:
        """Pods that come in the block wait ``seconds`` before they start; without it, until the block ends."""
        delay = Delay(namespace, prefix, seconds)
        self._call(lambda: self._gate.add(delay))
        try:
            yield
        finally:
            self._call(lambda: self._gate.remove(delay))

    # --- the node's thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            # Not asyncio.run: the process's loop policy may be another one (uvloop), made for the main thread.
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._main())
        except BaseException as error:
            self._errors.append(error)
        finally:
            self._loop = None
            self._ready.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._gate = Gate()
        me = self._authority.client(f"system:node:{self.name}", "system:masters")
        self._api = Api(self._server, tls_context(self._authority, me, server=False))
        kubelet = KubeletApi(self._find_logs)
        network = PodNetwork(binaries.cache_folder() / "pod-networks")
        tasks: list[asyncio.Task[None]] = []
        try:
            serving = self._authority.server(self.name, ["127.0.0.1", self.name])
            port = await kubelet.start(tls_context(self._authority, serving, server=True))
            node = registration.node_object(self.name, self._capacity, port, network.cidr, self._clock())
            await registration.register(self._api, node)
            self._network = network
            self._host = self._make_host()
            mine = f"fieldSelector=spec.nodeName%3D{self.name}"
            self._sources = {
                "Secret": Informer(self._api, "/api/v1/secrets", "", self._on_source("Secret")),
                "ConfigMap": Informer(self._api, "/api/v1/configmaps", "", self._on_source("ConfigMap")),
            }
            informers = [*self._sources.values(), Informer(self._api, "/api/v1/pods", mine, self._on_pod)]
            tasks = [asyncio.create_task(each.run()) for each in informers]
            tasks.append(asyncio.create_task(registration.keep_lease(self._api, self.name)))
            for each in informers:
                await each.synced.wait()
            self._ready.set()
            stopping = asyncio.create_task(self._stopping.wait())
            done, _ = await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            for task in done - {stopping}:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._end_pods()
            await kubelet.stop()
            await self._api.close()
            network.close()

    async def _end_pods(self) -> None:
        groups = [each.group for pod in self._pods.values() for each in pod.containers if each.group is not None]
        # Their tasks first, so that nothing is restarted.
        for task in [*self._tasks.values(), *self._events]:
            task.cancel()
        for pod in self._pods.values():
            pod.kill()
        await asyncio.gather(*self._tasks.values(), *self._events, return_exceptions=True)
        await asyncio.gather(*(group.wait() for group in groups))

    def _make_host(self) -> Host:
        return Host(
            api=self._api,
            guard=self._guard,
            images=self._images,
            folder=self._folder,
            logs=self._logs,
            server=self._server,
            authority=self._authority.certificate,
            allocatable=self._capacity,
            delays=self._delays,
            fetch=self._fetch,
            admit=self._gate.admit,
            record=self._record,
            clock=self._clock,
        )

    # --- what the API server tells --------------------------------------------------------------------------------

    def _on_pod(self, kind: str, item: Object) -> None:
        uid = item["metadata"]["uid"]
        known = self._pods.get(uid)
        if kind == "DELETED":
            self._finished.discard(uid)
            if known is not None:
                known.forget()
        elif uid in self._finished:
            return  # a finalizer keeps the object; there is nothing left to do for it here
        elif known is not None:
            known.update(item)
        else:
            shared = item["spec"].get("hostNetwork", False)
            address = "127.0.0.1" if shared else self._network.allocate()
            pod = self._pods[uid] = Pod(item, self._host, address)
            task = self._tasks[uid] = asyncio.get_running_loop().create_task(pod.run(), name=item["metadata"]["name"])
            task.add_done_callback(lambda task: self._pod_ended(uid, address, task))

    def _pod_ended(self, uid: str, address: str, task: asyncio.Task[None]) -> None:
        if not self._pods[uid].gone:
            self._finished.add(uid)
        del self._pods[uid], self._tasks[uid]
        if address != "127.0.0.1":
            self._network.release(address)
        if not task.cancelled() and task.exception() is not None:
            self._errors.append(task.exception() or RuntimeError())
            self._stopping.set()

    def _on_source(self, source: str) -> Callable[[str, Object], None]:
        def changed(_: str, item: Object) -> None:
            metadata = item["metadata"]
            for pod in self._pods.values():
                if pod.namespace == metadata["namespace"] and (source, metadata["name"]) in pod.references:
                    pod.source_changed()

        return changed

    async def _fetch(self, kind: str, namespace: str, name: str) -> Object | None:
        """A Secret or ConfigMap as it is now; the copy at hand while the API server is away."""
        collection = {"Secret": "secrets", "ConfigMap": "configmaps"}[kind]
        try:
            return await self._api.request("GET", f"/api/v1/namespaces/{namespace}/{collection}/{name}", timeout=3)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        except UNREACHABLE:
            return self._sources[kind].objects.get((namespace, name))

    def _record(self, pod: Object, kind: str, reason: str, message: str) -> None:
        """Send an event about a Pod; it may be lost, as events may."""
        metadata, moment = pod["metadata"], timestamp(self._clock())
        event = {
            "metadata": {"name": f"{metadata['name']}.{uuid.uuid4().hex[:16]}", "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
            },
            "type": kind,
            "reason": reason,
            "message": message[:1024],
            "source": {"component": "process-node", "host": self.name},
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
        }

        async def send() -> None:
            with contextlib.suppress(ApiError, *UNREACHABLE):
                await self._api.request("POST", f"/api/v1/namespaces/{metadata['namespace']}/events", event)

        task = asyncio.get_running_loop().create_task(send())
        self._events.add(task)
        task.add_done_callback(self._events.discard)

    # --- small parts ----------------------------------------------------------------------------------------------

    def _containers(self, namespace: str, name: str, container: str | None) -> list[Container]:
        found = [pod for pod in self._pods.values() if (pod.namespace, pod.name) == (namespace, name)]
        return [each for pod in found for each in pod.containers if container is None or each.spec["name"] == container]

    def _log_files(self, namespace: str, pod: str, container: str) -> list[Path]:
        # Names of objects hold no underscore, so the parts cannot run into each other.
        found = self._logs.glob(f"{namespace}_{pod}_*/{container}.*.log")
        return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path.name))

    def _find_logs(self, namespace: str, pod: str, container: str) -> tuple[list[Path], bool]:
        active = any(each.group is not None for each in self._containers(namespace, pod, container))
        runs = sorted(
            self._log_files(namespace, pod, container),
            key=lambda path: (path.parent.stat().st_mtime_ns, int(path.name.split(".")[-2])),
        )
        return runs, active

    def _call(self, action: Callable[[], T]) -> T:
        """Do something in the node's thread."""
        loop = self._loop
        if loop is None:
            raise RuntimeError(f"node {self.name} is not running")

        async def call() -> T:
            return action()

        return asyncio.run_coroutine_threadsafe(call(), loop).result(30)
