"""The life of one Pod on this node: volumes, init containers, containers, status, deletion."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import kubeconfig
from tests.cluster.guard import Guard
from tests.cluster.node import environment, images, volumes
from tests.cluster.node.api import STRATEGIC, UNREACHABLE, Api
from tests.cluster.node.container import Backoff, Clock, Container, Grace, Launch
from tests.cluster.node.environment import MissingReference, Placement
from tests.cluster.node.images import Image
from tests.cluster.node.status import Waiting, pod_status
from tests.cluster.node.tokens import Tokens
from tests.cluster.rest import ApiError, Object

TERMINAL = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Host:
    """What a Pod needs of its node."""

    api: Api
    guard: Guard
    images: Mapping[str, Image]
    folder: Path  # private files of Pods
    logs: Path
    server: str
    authority: bytes
    allocatable: Mapping[str, str]
    delays: Backoff
    fetch: Callable[[str, str, str], Awaitable[Object | None]]  # kind, namespace, name
    admit: Callable[[str, str], Awaitable[None]]  # namespace, name; returns when the Pod may start
    record: Callable[[Object, str, str, str], None]  # pod, type, reason, message
    clock: Clock


class Pod:
    """Runs one Pod until its API object is gone. ``run()`` is its life, the other methods are told from outside."""

    def __init__(self, item: Object, host: Host, address: str) -> None:
        self.item = item
        self.address = address
        self.namespace: str = item["metadata"]["namespace"]
        self.name: str = item["metadata"]["name"]
        self.references = environment.references(item)
        self._host = host
        metadata, spec = item["metadata"], item["spec"]
        self._folder: Path = host.folder / metadata["uid"]
        self.logs = host.logs / f"{self.namespace}_{self.name}_{metadata['uid']}"
        self._placement = Placement(address, "127.0.0.1", host.allocatable)
        self._tokens = Tokens(host.api, item)
        self._started = self._host.clock()
        make = functools.partial(
            Container,
            pod=item,
            address=address,
            prepare=self._prepare,
            on_change=self._touch,
            record=lambda kind, reason, message: host.record(item, kind, reason, message),
            guard=host.guard,
            delays=host.delays,
            clock=host.clock,
        )
        self._init = [make(each, init=True) for each in spec.get("initContainers", [])]
        self._main = [make(each, init=False) for each in spec["containers"]]
        self._dirty = asyncio.Event()
        self._changed = asyncio.Event()  # something that volumes are made from
        self._mounted = asyncio.Event()
        self._deleting = asyncio.Event()
        self._gone = asyncio.Event()
        self._grace: Grace | None = None
        self._sent: Object = {}

    @property
    def containers(self) -> list[Container]:
        return [*self._init, *self._main]

    @property
    def gone(self) -> bool:
        """Whether the API object is known to have gone."""
        return self._gone.is_set()

    # --- told from outside ----------------------------------------------------------------------------------------

    def update(self, item: Object) -> None:
        """The API object has changed."""
        previous, self.item = self.item, item
        if any(previous["metadata"].get(key) != item["metadata"].get(key) for key in ("labels", "annotations")):
            self._changed.set()
        if previous.get("status", {}).get("conditions") != item.get("status", {}).get("conditions"):
            self._touch()  # a readiness gate may have opened
        if "deletionTimestamp" in item["metadata"]:
            self._delete(float(item["metadata"].get("deletionGracePeriodSeconds", 30)))

    def forget(self) -> None:
        """The API object is gone (it was deleted by force): end the processes within a second."""
        self._gone.set()
        self._delete(1.0)

    def source_changed(self) -> None:
        """A Secret or ConfigMap that this Pod names has changed."""
        self._changed.set()
        for each in self.containers:
            each.wake()

    def kill(self) -> None:
        """SIGKILL everything at once; the node is stopping."""
        for each in self.containers:
            if each.group is not None:
                each.group.signal(signal.SIGKILL)

    def _delete(self, seconds: float) -> None:
        seconds = max(1.0, seconds)  # a kubelet gives a second even to a grace of 0
        if self._grace is None:
            self._grace = Grace(seconds)
        else:
            self._grace.shorten(seconds)
        self._deleting.set()

    # --- its life -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """From start to deletion of the API object."""
        if "deletionTimestamp" in self.item["metadata"]:
            self.update(self.item)
        reason = volumes.unsupported(self.item)
        try:
            if self.item.get("status", {}).get("phase") in TERMINAL:
                await self._deleting.wait()  # ended under an earlier node of this name
            elif reason is not None:
                await self._refuse(reason)
                await self._deleting.wait()
            else:
                await self._live()
            if not self._gone.is_set():
                await self._delete_object()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _live(self) -> None:
        work = [asyncio.create_task(part) for part in (self._start(), self._report(), self._follow())]
        deleting = asyncio.create_task(self._deleting.wait())
        try:
            # The first one ends when every container has ended; the others end only by an error of ours.
            pending = {deleting, *work}
            while not deleting.done():
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    each.result()
            assert self._grace is not None
            grace = self._grace
            await asyncio.gather(*(each.stop(grace) for each in self.containers))
        finally:
            for each in (deleting, *work):
                each.cancel()
            await asyncio.gather(deleting, *work, return_exceptions=True)
        await self._until_done(lambda: self._send(ending=True))

    async def _start(self) -> None:
        self._folder.mkdir(parents=True, mode=0o700)
        self.logs.mkdir(parents=True, exist_ok=True)
        self._touch()
        await self._host.admit(self.namespace, self.name)
        await self._mount()
        self._mounted.set()
        for each in self._init:
            await each.run()
            if not each.succeeded:
                return
        for each in self._main:
            if isinstance(each.status.state, Waiting):
                each.status = each.status.change(state=Waiting("ContainerCreating"))
        await asyncio.gather(*(each.run() for each in self._main))

    async def _mount(self) -> None:
        """Write all volumes; waits while a source is missing."""
        said = ""
        while True:
            self._changed.clear()
            try:
                await self._write_volumes()
                return
            except (MissingReference, ApiError, *UNREACHABLE) as error:
                if str(error) != said:
                    said = str(error)
                    self._host.record(self.item, "Warning", "FailedMount", said)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._changed.wait()

    async def _follow(self) -> None:
        """Rewrite volumes when a source changes or a token is due."""
        await self._mounted.wait()
        while True:
            due = self._tokens.renew()
            wait = None if due is None else max(0.0, (due - self._host.clock()).total_seconds())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await self._write_volumes()
            except MissingReference:
                continue  # a source was deleted: a kubelet keeps the old files too
            except (ApiError, *UNREACHABLE):
                await asyncio.sleep(1.0)
                self._changed.set()

    async def _write_volumes(self) -> None:
        known = await self._fetch_references()
        now = self._host.clock()
        for volume in self.item["spec"].get("volumes", []):
            folder = self._folder / "volumes" / volume["name"]
            for source in volumes.token_sources(volume):
                await self._tokens.get(source, now)
            if volumes.is_written(volume):
                files = volumes.content(volume, self.item, known, self._placement, self._tokens.known)
                volumes.write(folder, files)
            else:
                folder.mkdir(parents=True, exist_ok=True)
        for each in self.containers:
            self._write_kubeconfig(each.spec)

    async def _fetch_references(self) -> dict[tuple[str, str], Object | None]:
        return {(kind, name): await self._host.fetch(kind, self.namespace, name) for kind, name in self.references}

    # --- one container's launch -----------------------------------------------------------------------------------

    async def _prepare(self, spec: Object, restarts: int) -> Launch:
        image = images.find(spec, self._host.images)
        known = await self._fetch_references()
        own = environment.resolve(spec, self.item, known, self._placement)
        places = volumes.mounts(spec, self.item, self._folder / "volumes")
        home = self._home(spec)
        temporary = Path(places.get("/tmp", home / "tmp"))
        temporary.mkdir(parents=True, exist_ok=True)
        relocate = functools.partial(volumes.relocate, places=places)
        env = {
            # The project's commands and its Python come first, as they would in an image.
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
            "HOME": str(home),
            "TMPDIR": str(temporary),
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            "HOSTNAME": self.item["spec"].get("hostname") or self.name,
        }
        if volumes.SERVICE_ACCOUNT_PATH in places:
            # The path where in-cluster clients look for a token cannot be made without root.
            env["KUBECONFIG"] = str(home / "kubeconfig")
        declared = {name: relocate(value) for name, value in own.items()}
        env |= {name: relocate(value) for name, value in image.environment.items()} | declared
        arguments = [*image.entrypoint, *spec.get("args", [])]
        command = tuple(relocate(environment.expand(part, declared)) for part in arguments)
        folder = Path(relocate(spec["workingDir"])) if spec.get("workingDir") else home
        log = self.logs / f"{spec['name']}.{restarts}.log"
        return Launch(command, env, folder if folder.is_dir() else home, log, relocate)

    def _home(self, spec: Object) -> Path:
        home = self._folder / "containers" / str(spec["name"])
        home.mkdir(parents=True, exist_ok=True)
        return home

    def _write_kubeconfig(self, spec: Object) -> None:
        places = volumes.mounts(spec, self.item, self._folder / "volumes")
        if volumes.SERVICE_ACCOUNT_PATH not in places:
            return
        mount = next(each for each in spec["volumeMounts"] if each["mountPath"] == volumes.SERVICE_ACCOUNT_PATH)
        volume = next(each for each in self.item["spec"]["volumes"] if each["name"] == mount["name"])
        source = volumes.token_sources(volume)[0]
        text = kubeconfig.with_token(
            self._host.server,
            self._host.authority,
            self._tokens.known(source),
            f"{places[volumes.SERVICE_ACCOUNT_PATH]}/{source['path']}",
            namespace=self.namespace,
        )
        target = self._home(spec) / "kubeconfig"
        if target.exists() and target.read_text() == text:
            return
        partial = target.with_suffix(".partial")
        partial.touch(mode=0o600)
        partial.write_text(text)
        partial.replace(target)

    # --- what the API server is told ------------------------------------------------------------------------------

    def _touch(self) -> None:
        self._dirty.set()

    async def _report(self) -> None:
        """Send the status whenever it differs from what was sent."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            await self._until_done(lambda: self._send(ending=False))

    async def _send(self, *, ending: bool) -> None:
        status = pod_status(
            self.item,
            [each.status for each in self._init],
            [each.status for each in self._main],
            ending=ending,
            pod_ip=self.address,
            host_ip=self._placement.host_ip,
            started=self._started,
            now=self._host.clock(),
        )
        if status == self._sent:
            return
        await self._patch_status(status)
        self._sent = status

    async def _refuse(self, reason: str) -> None:
        self._host.record(self.item, "Warning", "Unsupported", reason)
        status: Object = {"phase": "Failed", "reason": "Unsupported", "message": reason}
        await self._until_done(lambda: self._patch_status(status))

    async def _patch_status(self, status: Object) -> None:
        # The uid makes the server refuse the status of a Pod that was replaced by one of the same name.
        body = {"metadata": {"uid": self.item["metadata"]["uid"]}, "status": status}
        answer = await self._host.api.request("PATCH", f"{self._path()}/status", body, content_type=STRATEGIC)
        # Times of conditions are taken from what the server holds.
        self.item = {**self.item, "status": answer["status"]}

    async def _delete_object(self) -> None:
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.item["metadata"]["uid"]}}

        async def delete() -> None:
            await self._host.api.request("DELETE", self._path(), body)

        await self._until_done(delete)

    async def _until_done(self, call: Callable[[], Awaitable[None]]) -> None:
        """Repeat a request until the server took it, or the object is gone or another one."""
        pause = 0.05
        while not self._gone.is_set():
            try:
                await call()
                return
            except ApiError as error:
                if error.status == 404 or "Precondition failed: UID" in str(error):
                    return
                if error.status < 500 and error.status not in (409, 429):
                    raise
            except UNREACHABLE:
                pass
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._gone.wait()
            pause = min(1.0, pause * 2)

    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
