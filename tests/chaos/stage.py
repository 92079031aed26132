"""Real parts for leaders to lose: worker processes, an API server with the Lease, FerretDB, and Redis."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, NamedTuple, Self, cast

import redis

from headrace import JobSpec, SyncProducer, open_store
from headrace.lifecycle import promote
from tests.chaos.app import EFFECTS, QUEUE, REFUSED, RUNS
from tests.cluster.control_plane import API_SERVER, ControlPlane
from tests.cluster.processes import Component
from tests.services.mongo import FerretServer

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 120.0
LOOK = 0.02


class Effect(NamedTuple):
    """One effect of a leader, in the order of Redis. ``at``: ms of Redis's clock."""

    epoch: int
    name: str
    at: int


class Stage:
    """``workers`` worker processes of one queue, which may lead through the Lease, MongoDB and Redis.

    ``url``: an empty Redis. ``profile``: of the election. A context manager; nothing outlives it.
    """

    def __init__(self, url: str, *, workers: int = 3, profile: str = "fast") -> None:
        self.url = url
        self._profile = profile
        self._number = workers
        self._stack = ExitStack()
        self.workers: dict[str, Component] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.redis = stack.enter_context(redis.Redis.from_url(self.url))
            self.plane = stack.enter_context(ControlPlane())
            self.mongo = FerretServer(self.plane.guard)
            stack.callback(self.mongo.close)
            self.mongo.start()
            self._folder = Path(stack.enter_context(TemporaryDirectory(prefix="headrace-chaos-")))
            (self._folder / "mongo-url").write_text(self.mongo.url)
            asyncio.run(self._make_queue())
            for number in range(self._number):
                name = f"w{number}"
                self.workers[name] = worker = self._worker(name)
                stack.callback(worker.stop, grace=0)
                worker.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for name, worker in self.workers.items():
                error.add_note(f"{name} said last:\n{worker.tail()}")
        self._stack.close()

    async def _make_queue(self) -> None:
        store = open_store(self.url)
        await promote(store, QUEUE, 1, 4)
        await store.close()

    def _worker(self, name: str) -> Component:
        settings = {
            "REDIS_URL": self.url,
            "QUEUES": QUEUE,
            "WORKER_ID": name,
            "CONCURRENCY": 8,
            "LEASE_MS": 3000,
            "LEADER_BACKENDS": "lease,mongo,redis",
            "LEADER_LEASE_NAMESPACE": "default",
            "LEADER_MONGO_URL_FILE": self._folder / "mongo-url",
            "LEADER_PROFILE": self._profile,
        }
        return Component(
            name,
            [sys.executable, "-m", "headrace", "worker", "run", "tests.chaos.app:app"],
            log=self._folder / f"{name}.log",
            guard=self.plane.guard,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "worker"))),
                "KUBECONFIG": str(self.plane.kubeconfig),
                **{f"HEADRACE_{key}": str(value) for key, value in settings.items()},
            },
        )

    # ---- what there is to see ----------------------------------------------------------------------------------------

    def now(self) -> int:
        """Return Redis's time in ms."""
        seconds, micros = cast(tuple[int, int], self.redis.time())
        return seconds * 1000 + micros // 1000

    def effects(self, first: int = 0) -> list[Effect]:
        """Return the effects of leaders, from number ``first`` on."""
        rows = (row.decode().split() for row in cast(list[bytes], self.redis.lrange(EFFECTS, first, -1)))
        return [Effect(int(epoch), name, int(float(at))) for epoch, name, at in rows]

    def refused(self) -> int:
        """Return how many effects the fence refused."""
        return sum(int(number) for number in cast(list[bytes], self.redis.hvals(REFUSED)))

    def runs(self) -> dict[str, int]:
        """Return how often each job ran."""
        return {job.decode(): int(runs) for job, runs in cast(dict[bytes, bytes], self.redis.hgetall(RUNS)).items()}

    def live(self) -> int:
        """Return how many jobs the queue holds."""
        return sum(cast(int, self.redis.hlen(f"{{headrace:{QUEUE}:1:{n}}}:jobs")) for n in range(4))

    def backend(self) -> str:
        """Return the lock through which somebody leads, or led last."""
        return (cast(bytes | None, self.redis.hget(f"{{headrace:{QUEUE}}}:fence", "backend")) or b"").decode()

    def until(self, what: str, condition: Callable[[], Any], within: float = DEADLINE) -> Any:
        """Wait until something is true; return it. Raises TimeoutError, which says what was waited for."""
        ends = time.monotonic() + within
        while not (found := condition()):
            if time.monotonic() > ends:
                raise TimeoutError(f"waited {within:.0f} s in vain: {what}")
            time.sleep(LOOK)
        return found

    def leader(self) -> str:
        """Return the worker that has the next effect."""
        first = cast(int, self.redis.llen(EFFECTS))
        return cast(str, self.until("an effect of a leader", lambda: self.effects(first))[-1].name)

    # ---- what can be done to them ------------------------------------------------------------------------------------

    def follow(self, leader: str, number: int) -> int:
        """Send a signal to the leader; ms until the first effect of another one under a later epoch."""
        last = self.effects(-1)[-1]
        at = self.now()
        self.workers[leader].signal(number)

        def next_one() -> list[Effect]:
            return [each for each in self.effects(-200) if each.epoch > last.epoch and each.name != leader]

        return cast(int, self.until("an effect of the next leader", next_one)[0].at) - at

    def restart(self, name: str) -> None:
        """Start a worker that was killed or asked to end, once it has ended."""
        self.workers[name].stop(grace=30)
        self.workers[name].start()

    def stop_api(self) -> None:
        """Kill the API server."""
        self.plane.stop_component(API_SERVER, grace=0)

    def start_api(self) -> None:
        """Start it again; returns when it serves."""
        self.plane.start_component(API_SERVER)

    def heal(self) -> None:
        """Bring back whatever does not run."""
        for worker in self.workers.values():
            worker.signal(signal.SIGCONT)
            if not worker.running:
                worker.stop(grace=0)
                worker.start()


class Stream:
    """Enqueues a job every ``pause`` seconds, from a thread, while the block runs; ``ids``: those accepted."""

    def __init__(self, url: str, pause: float = 0.05) -> None:
        self.ids: list[str] = []
        self._url, self._pause = url, pause
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        producer = SyncProducer(self._url)
        while not self._end.wait(self._pause):
            self.ids += [each.id for each in producer.enqueue_many(QUEUE, [JobSpec("count")])]
        producer.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
