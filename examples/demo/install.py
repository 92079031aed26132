"""Puts the operator into the cluster, and takes everything of the demo out of a user's cluster again."""

from __future__ import annotations

from pathlib import Path

import redis.asyncio as redis

from examples.demo.report import Report
from examples.demo.results import Results
from examples.demo.setting import Setting
from headrace import Store

CHART = Path(__file__).resolve().parents[2] / "charts" / "headrace"
RELEASE = "headrace"
CRD = "customresourcedefinition/queues.headrace.dev"


class Installation:
    """The operator's release, unless the cluster has an operator already, and the demo's namespace."""

    def __init__(self, setting: Setting, report: Report) -> None:
        self._setting = setting
        self._report = report
        self._installed = False
        self._marker: str | None = ""

    async def install(self, store: Store) -> None:
        """Install the chart and create the namespace. Raises DemoFailed."""
        setting, cluster = self._setting, self._setting.cluster
        self._marker = await store.read_marker()
        if await cluster.get("default", CRD):
            self._report.step("this cluster has the operator already")
        else:
            self._report.step("helm install: the operator, with its own service account")
            self._installed = True
            values = ["--set", "crds.keep=false"] if setting.own else []
            if setting.operator_image:
                repository, _, tag = setting.operator_image.rpartition(":")
                values += ["--set", f"image.repository={repository}", "--set-string", f"image.tag={tag}"]
            await cluster.helm(
                *("install", RELEASE, str(CHART), "--namespace", setting.operator_namespace, "--create-namespace"),
                *("--wait", "--timeout", "90s", *values),
            )
        await cluster.kubectl("create", "namespace", setting.namespace)

    async def remove(self) -> None:
        """Leave cluster and Redis as they were. Raises DemoFailed."""
        setting, cluster = self._setting, self._setting.cluster
        # The Queue first, while its operator is there.
        await cluster.kubectl("delete", "namespace", setting.namespace, "--ignore-not-found", timeout=120)
        if self._installed:
            await cluster.helm("uninstall", RELEASE, "--namespace", setting.operator_namespace, "--wait")
            await cluster.kubectl("delete", "namespace", setting.operator_namespace, "--ignore-not-found", timeout=120)
        results = Results(setting.redis_url, setting.queue)
        await results.remove()
        await results.close()
        async with redis.Redis.from_url(setting.redis_url) as connection:
            async for key in connection.scan_iter(match=f"{{headrace:{setting.queue}[:}}]*", count=1000):
                await connection.unlink(key)
            await connection.zrem("{headrace}:queues", setting.queue)
            if self._installed and self._marker is None:
                await connection.unlink("{headrace}:marker", "{headrace}:wakes")
