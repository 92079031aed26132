"""What happens: install, create the queue, send, repartition while it runs, wait until the old version is gone."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import redis.asyncio as redis

from examples.demo import checks
from examples.demo.checks import Check
from examples.demo.install import Installation
from examples.demo.kube import DemoFailed, until
from examples.demo.report import Progress, Report
from examples.demo.results import Results
from examples.demo.setting import Setting
from examples.demo.workload import Plan, Source, delays, source_tree, split
from headrace import Producer, Store, StoreUnavailable, open_store
from headrace.stores.base import Counts
from headrace.topology import PartitionRef

HERE = Path(__file__).resolve().parent
OLD, NEW = 1, 2
OLD_PARTITIONS, NEW_PARTITIONS = 4, 16
FIRST_DELAY, LAST_DELAY = 6.0, 12.0
"""Seconds after which the first and the last of the delayed jobs are due. Longer than a version bump takes."""
BATCH = 100


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it went. Times are seconds since the version bump was asked for."""

    checks: list[Check]
    left_at_bump: int
    jobs: dict[int, int]
    active_after: float
    gone_after: float

    @property
    def passed(self) -> bool:
        """Whether everything holds."""
        return all(check.holds for check in self.checks)


class Scenario:
    """One run of the demo in one setting."""

    def __init__(self, setting: Setting, report: Report, installation: Installation) -> None:
        self._setting = setting
        self._cluster = setting.cluster
        self._report = report
        self._queue = setting.queue
        self._progress = Progress()
        self._installation = installation
        self._store: Store = open_store(setting.redis_url)
        self._producer = Producer(self._store)
        self._results = Results(setting.redis_url, self._queue)

    async def play(self) -> Outcome:
        """Run it all. Raises DemoFailed if a step does not come to its end."""
        try:
            self._report.step("reading the source tree of the standard library")
            plan = split(await asyncio.to_thread(lambda: list(source_tree())))
            self._progress.files = len(plan.files)
            await self._installation.install(self._store)
            await self._create_queue()
            async with self._watched():
                left = await self._send_first_half(plan)
                active_after, gone_after = await self._bump(plan)
            return Outcome(
                await self._verify(plan), left, await self._results.jobs_by_version(), active_after, gone_after
            )
        finally:
            await self._producer.aclose()
            await self._results.close()

    # ---- steps ----------------------------------------------------------------------------------------------------

    async def _create_queue(self) -> None:
        self._report.step(f"kubectl apply: Queue {self._queue}, version {OLD} with {OLD_PARTITIONS} partitions")
        namespace = self._setting.namespace
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "headrace-redis"},
            "data": {"url": base64.b64encode(self._setting.redis_url.encode()).decode()},
        }
        queue = (HERE / "queue.yaml").read_text()
        queue = queue.replace("$(QUEUE)", self._queue).replace("$(IMAGE)", self._setting.image)
        for manifest in (json.dumps(secret), queue):
            await self._cluster.kubectl("apply", "--namespace", namespace, "--filename=-", stdin=manifest)
        await self._cluster.kubectl(
            *("wait", f"queue/{self._queue}", "--for=condition=Ready", "--namespace", namespace, "--timeout=60s"),
            timeout=70,
        )
        self._progress.old_partitions = OLD_PARTITIONS

    async def _send_first_half(self, plan: Plan) -> int:
        """Return how many jobs v1 still holds at the end: those that are not due yet, at least."""
        self._report.step(f"sending {len(plan.now)} jobs, to be run now")
        await self._send(plan.now)
        await until("the first results", 60, self._results.count)
        # Sent only now, so that however slow the machine is, v1 holds them when the version is bumped.
        self._report.step(f"first results are in; sending {len(plan.delayed)} jobs, due in 6 to 12 seconds")
        await self._send(plan.delayed, delays(len(plan.delayed), FIRST_DELAY, LAST_DELAY))
        left = sum(count.live for count in await self._counts(OLD, OLD_PARTITIONS))
        if not left:
            raise DemoFailed(f"v{OLD} holds no job when the version is to be bumped, though some are not due yet")
        return left

    async def _bump(self, plan: Plan) -> tuple[float, float]:
        self._report.step(f"kubectl patch: version {NEW} with {NEW_PARTITIONS} partitions, while v{OLD} holds jobs")
        loop = asyncio.get_running_loop()
        begun = loop.time()
        patch = json.dumps({"spec": {"version": NEW, "partitions": NEW_PARTITIONS}})
        await self._cluster.kubectl(
            *("patch", "queue", self._queue, "--namespace", self._setting.namespace, "--type=merge", "--patch", patch)
        )
        self._progress.new_partitions = NEW_PARTITIONS
        # A producer knows nothing of the bump: a part goes out at once, the rest when v2 is surely active.
        half = len(plan.after) // 2
        self._report.step(f"sending the other {len(plan.after)} jobs")
        await self._send(plan.after[:half])
        await until(f"v{NEW} active", 60, self._is_active)
        active_after = round(loop.time() - begun, 1)
        await self._send(plan.after[half:])
        await until("all results", 90, self._all_results)
        self._report.step(f"all results are in; v{OLD} is proven empty and removed")
        await until(f"v{OLD} gone", 60, self._is_gone)
        gone_after = round(loop.time() - begun, 1)
        await self._cluster.kubectl(
            *(
                "wait",
                f"queueversion/{self._queue}-v{OLD}",
                "--for=jsonpath={.status.phase}=Completed",
                "--timeout=30s",
            ),
            *("--namespace", self._setting.namespace),
        )
        return active_after, gone_after

    async def _verify(self, plan: Plan) -> list[Check]:
        self._report.step("comparing every result with a direct computation")
        await until("all acknowledgements", 10, self._is_empty)
        async with redis.Redis.from_url(self._setting.redis_url, decode_responses=True) as connection:
            old_keys = [str(key) async for key in connection.scan_iter(f"{{headrace:{self._queue}:{OLD}:*", count=1000)]
            hints = [
                str(hint)
                for name in ("hot", "due")
                async for hint, _ in connection.zscan_iter(f"{{headrace:{self._queue}}}:{name}")
            ]
        return [
            checks.check_results(plan.files, await self._results.all()),
            checks.check_runs(plan.files, await self._results.runs()),
            checks.check_versions(await self._results.jobs_by_version()),
            checks.check_tombstones(await self._counts(OLD, OLD_PARTITIONS), old_keys, hints, OLD),
            checks.check_empty(await self._counts(NEW, NEW_PARTITIONS), NEW),
        ]

    # ---- sending and looking --------------------------------------------------------------------------------------

    async def _send(self, files: Sequence[Source], delayed: Sequence[float] | None = None) -> None:
        for start in range(0, len(files), BATCH):
            part = files[start : start + BATCH]
            waits = delayed[start : start + BATCH] if delayed else [None] * len(part)
            jobs = [file.job(delay) for file, delay in zip(part, waits, strict=True)]
            placed = await self._producer.enqueue_many(self._queue, jobs)
            if existing := [job.id for job in placed if job.existing]:
                raise DemoFailed(f"{len(existing)} jobs were in the queue already, the first {existing[0]}")
            self._progress.sent += len(placed)

    async def _all_results(self) -> bool:
        return await self._results.count() >= self._progress.files

    async def _is_active(self) -> bool:
        topology = await self._store.read_topology(self._queue)
        return topology is not None and topology.active == NEW

    async def _is_gone(self) -> bool:
        topology = await self._store.read_topology(self._queue)
        return topology is not None and OLD not in topology.versions

    async def _is_empty(self) -> bool:
        return not any(count.live for count in await self._counts(NEW, NEW_PARTITIONS))

    async def _counts(self, version: int, partitions: int) -> list[Counts]:
        return await self._store.counts([PartitionRef(self._queue, version, number) for number in range(partitions)])

    @contextlib.asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        """Show the progress while the block runs."""

        async def watch() -> None:
            while True:
                # What is shown is not what is checked: an outage here ends nothing.
                with contextlib.suppress(redis.RedisError, OSError, StoreUnavailable):
                    self._progress.jobs = await self._results.jobs_by_version()
                    self._progress.left = sum(count.live for count in await self._counts(OLD, OLD_PARTITIONS))
                self._report.show(self._progress)
                await asyncio.sleep(0.2)

        with self._report.bars():
            watcher = asyncio.create_task(watch())
            try:
                yield
            finally:
                watcher.cancel()
                await asyncio.gather(watcher, return_exceptions=True)
                self._report.show(self._progress)
