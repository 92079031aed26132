"""The life of one container: run, probe, restart with back-off, stop."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import functools
import signal
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.guard import Guard
from tests.cluster.node import probes, process
from tests.cluster.node.api import UNREACHABLE
from tests.cluster.node.environment import MissingReference
from tests.cluster.node.images import ImageNotFound
from tests.cluster.node.status import ContainerStatus, Running, Terminated, Waiting, backoff, should_restart, terminated
from tests.cluster.rest import ApiError, Object

Clock = Callable[[], datetime.datetime]

START_ERROR = 128  # exit code of a container whose command cannot be run


@dataclass(frozen=True)
class Launch:
    """What to run, resolved: command, environment, working folder and where its output goes."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    folder: Path
    log: Path
    relocate: Callable[[str], str]


@dataclass(frozen=True)
class Backoff:
    """Restart delays in seconds: none, ``base``, doubled up to ``cap``; forgotten after a run of ``reset``."""

    base: float = 0.2
    cap: float = 10.0
    reset: float = 600.0


class Grace:
    """A deadline that can be brought forward while others wait for it."""

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + seconds
        self._moved = asyncio.Event()

    def shorten(self, seconds: float) -> None:
        """Let it end in ``seconds`` from now, unless it ends earlier anyway."""
        self._end = min(self._end, self._loop.time() + seconds)
        self._moved.set()

    def at_least(self, seconds: float) -> Grace:
        """This deadline, or one ``seconds`` from now if that is later."""
        return self if self._end - self._loop.time() >= seconds else Grace(seconds)

    async def bound(self, work: Coroutine[Any, Any, Any]) -> bool:
        """Await ``work`` until the deadline, then cancel it; returns whether it finished."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                self._moved.clear()
                left = self._end - self._loop.time()
                if left <= 0:
                    return False
                moved = asyncio.ensure_future(self._moved.wait())
                await asyncio.wait({task, moved}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                moved.cancel()
            return True
        finally:
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task


class Container:
    """Runs one container of a Pod; ``status`` is what to report of it."""

    def __init__(
        self,
        spec: Object,
        *,
        pod: Object,
        init: bool,
        address: str,
        prepare: Callable[[Object, int], Awaitable[Launch]],
        on_change: Callable[[], None],
        record: Callable[[str, str, str], None],
        guard: Guard,
        delays: Backoff,
        clock: Clock,
    ) -> None:
        self.spec = spec
        self.status = ContainerStatus(
            spec["name"], spec["image"], Waiting("PodInitializing" if init else "ContainerCreating")
        )
        self.group: process.Group | None = None
        self._policy = pod["spec"].get("restartPolicy", "Always")
        self._default_grace = float(pod["spec"].get("terminationGracePeriodSeconds", 30))
        self._init = init
        self._address = address
        self._prepare = prepare
        self._on_change = on_change
        self._record = record
        self._guard = guard
        self._delays = delays
        self._clock = clock
        self._stop = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._retry = asyncio.Event()
        self._launch: Launch | None = None
        self._restarts = 0  # reported when the run has begun, not before

    @property
    def succeeded(self) -> bool:
        return isinstance(self.status.state, Terminated) and self.status.state.exit_code == 0

    async def run(self) -> None:
        """Run it until it has ended for good or ``stop()`` was called."""
        self._idle.clear()
        failures = 0
        try:
            while not self._stop.is_set():
                launch = await self._prepared()
                if launch is None or self._stop.is_set():
                    return
                begun = asyncio.get_running_loop().time()
                code = await self._run_once(launch)
                if self._stop.is_set() or not should_restart(self._policy, code, init=self._init):
                    return
                if asyncio.get_running_loop().time() - begun > self._delays.reset:
                    failures = 0
                await self._back_off(failures)
                failures += 1
        finally:
            self._idle.set()

    async def stop(self, grace: Grace) -> None:
        """End it: preStop, SIGTERM, SIGKILL at the deadline. Returns when nothing of it runs."""
        self._stop.set()
        while not self._idle.is_set():
            group = self.group
            if group is not None and group.running:
                await self._kill(group, grace)
            await self._idle.wait()

    def wake(self) -> None:
        """Something that it may be waiting for has changed: try again at once."""
        self._retry.set()

    # --- one run --------------------------------------------------------------------------------------------------

    async def _prepared(self) -> Launch | None:
        """What to run; waits while a reference is missing. None if it was stopped meanwhile."""
        while not self._stop.is_set():
            self._retry.clear()
            try:
                return await self._prepare(self.spec, self._restarts)
            except MissingReference as error:
                self._wait_because("CreateContainerConfigError", str(error))
            except ImageNotFound as error:
                self._wait_because("ImagePullBackOff", str(error))
            except (ApiError, *UNREACHABLE) as error:
                self._wait_because("CreateContainerConfigError", f"API server: {error}")
            await self._until_stop_or(self._retry, 1.0)
        return None

    async def _run_once(self, launch: Launch) -> int:
        self._launch = launch
        container_id = f"process://{uuid.uuid4().hex}"
        started = self._clock()
        try:
            group = process.Group(
                launch.command, env=launch.env, folder=launch.folder, log=launch.log, guard=self._guard
            )
        except OSError as error:
            message = f"cannot run {launch.command[0]!r}: {error.strerror}"
            self._record("Warning", "Failed", message)
            state = Terminated(START_ERROR, 0, "StartError", message, started, self._clock(), container_id)
            self._set(state=state, container_id=container_id, restarts=self._restarts, started=False, ready=False)
            return START_ERROR
        self.group = group
        begun = "startupProbe" not in self.spec
        ready = begun and "readinessProbe" not in self.spec
        self._set(
            state=Running(started), container_id=container_id, restarts=self._restarts, started=begun, ready=ready
        )
        self._record("Normal", "Started", f"Started container {self.spec['name']} (pid {group.pid})")
        care = asyncio.create_task(self._care(group))
        try:
            code = await group.wait()
        finally:
            care.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await care
        self.group = None
        message = _tail(launch.log) if self._wants_log_tail(code) else ""
        state = terminated(code, message=message, started=started, finished=self._clock(), container_id=container_id)
        self._set(state=state, started=False, ready=False)
        return state.exit_code

    async def _care(self, group: process.Group) -> None:
        """Hooks and probes of a running process, until cancelled."""
        target = self._target()
        hook = self.spec.get("lifecycle", {}).get("postStart")
        if hook:
            why = await probes.handle(hook, target, self._default_grace)
            if why is not None:
                self._record("Warning", "FailedPostStartHook", why)
                await self._kill(group, Grace(self._default_grace))
                return
        watches: list[Coroutine[Any, Any, None]] = []
        if "startupProbe" in self.spec:
            passed = asyncio.Event()

            async def on_startup(good: bool, why: str) -> None:
                if good:
                    self._set(started=True, ready="readinessProbe" not in self.spec)
                    passed.set()
                elif not passed.is_set():
                    await self._unhealthy("startupProbe", why, group)

            startup = asyncio.create_task(probes.watch(self.spec["startupProbe"], target, on_startup, healthy=False))
            try:
                await passed.wait()
            finally:
                startup.cancel()
        if "readinessProbe" in self.spec:
            watches.append(probes.watch(self.spec["readinessProbe"], target, self._on_readiness, healthy=False))
        if "livenessProbe" in self.spec:
            on_liveness = functools.partial(self._on_liveness, group)
            watches.append(probes.watch(self.spec["livenessProbe"], target, on_liveness, healthy=True))
        await asyncio.gather(*watches)

    async def _on_readiness(self, good: bool, why: str) -> None:
        if not good:
            self._record("Warning", "Unhealthy", f"Readiness probe failed: {why}")
        self._set(ready=good)

    async def _on_liveness(self, group: process.Group, good: bool, why: str) -> None:
        if not good and not self._stop.is_set():
            await self._unhealthy("livenessProbe", why, group)

    async def _unhealthy(self, probe: str, why: str, group: process.Group) -> None:
        self._record("Warning", "Unhealthy", f"{probe.removesuffix('Probe').capitalize()} probe failed: {why}")
        seconds = float(self.spec[probe].get("terminationGracePeriodSeconds", self._default_grace))
        await self._kill(group, Grace(seconds))

    async def _kill(self, group: process.Group, grace: Grace) -> None:
        self._record("Normal", "Killing", f"Stopping container {self.spec['name']}")
        hook = self.spec.get("lifecycle", {}).get("preStop")
        if hook:
            # A hook bounds itself only by the Pod's grace.
            await grace.bound(probes.handle(hook, self._target(), 86400))
            grace = grace.at_least(2)  # as a kubelet: a hook that used up everything leaves 2 s
        group.signal(signal.SIGTERM)
        if not await grace.bound(group.wait()):
            group.signal(signal.SIGKILL)
            await group.wait()

    async def _back_off(self, failures: int) -> None:
        assert isinstance(self.status.state, Terminated)
        last = self.status.state
        delay = backoff(failures, self._delays.base, self._delays.cap)
        if delay:
            message = f"back-off {delay:g} s restarting failed container {self.spec['name']}"
            self._record("Warning", "BackOff", message)
            self._set(state=Waiting("CrashLoopBackOff", message), last=last)
            await self._until_stop_or(None, delay)
        self._restarts += 1
        self._set(last=last)

    # --- small parts ----------------------------------------------------------------------------------------------

    def _target(self) -> probes.Target:
        assert self._launch is not None
        launch = self._launch
        ports = {each["name"]: each["containerPort"] for each in self.spec.get("ports", []) if "name" in each}

        async def execute(command: list[str], timeout: float) -> int | None:
            try:
                return await process.run(
                    [launch.relocate(part) for part in command],
                    env=launch.env,
                    folder=launch.folder,
                    log=launch.folder / "exec.log",
                    guard=self._guard,
                    timeout=timeout,
                )
            except OSError:
                return 127

        return probes.Target(self._address, ports, execute)

    def _wants_log_tail(self, code: int) -> bool:
        return code != 0 and self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError"

    def _wait_because(self, reason: str, message: str) -> None:
        state = Waiting(reason, message)
        if self.status.state != state:
            self._record("Warning", "Failed", message)
            self._set(state=state, ready=False)

    async def _until_stop_or(self, other: asyncio.Event | None, seconds: float) -> None:
        waits = {asyncio.ensure_future(self._stop.wait())}
        if other is not None:
            waits.add(asyncio.ensure_future(other.wait()))
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    def _set(self, **values: Any) -> None:
        self.status = self.status.change(**values)
        self._on_change()


def _tail(log: Path, lines: int = 80, size: int = 2048) -> str:
    text = log.read_bytes()[-size:].decode(errors="replace")
    return "\n".join(text.splitlines()[-lines:])
