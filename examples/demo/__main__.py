"""Runs the demo; the exit code is 0 only if everything holds."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from types import FrameType

from redis.exceptions import RedisError

from examples.demo.install import Installation
from examples.demo.kube import DemoFailed
from examples.demo.report import Report
from examples.demo.scenario import Scenario
from examples.demo.setting import Setting, open_setting
from headrace.errors import HeadraceError

LIMIT_SECONDS = 300.0
"""For everything after the cluster is up."""


async def play(setting: Setting, report: Report) -> None:
    """Play the demo in ``setting``. Raises DemoFailed, after showing the last words of operator and workers."""
    installation = Installation(setting, report)
    scenario = Scenario(setting, report, installation)
    try:
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                outcome = await scenario.play()
        except TimeoutError:
            raise DemoFailed(f"not finished after {LIMIT_SECONDS:g} s") from None
        except (HeadraceError, RedisError) as error:
            raise DemoFailed(str(error)) from error
        report.finish(outcome)
        if not outcome.passed:
            raise DemoFailed("; ".join(f"{check.claim}: {check.problem}" for check in outcome.checks if check.problem))
    except DemoFailed:
        await show_logs(setting, report)
        raise
    finally:
        if setting.own:
            report.step("removing the demo from the cluster")
            await installation.remove()


async def show_logs(setting: Setting, report: Report) -> None:
    """Show the Queue's status and the last lines of every Pod."""
    with contextlib.suppress(DemoFailed):
        report.say(await setting.cluster.kubectl("get", "queues,queueversions,pods", "--namespace", setting.namespace))
        report.say(await setting.cluster.kubectl("describe", "queues", "--namespace", setting.namespace))
    for namespace in (setting.operator_namespace, setting.namespace):
        with contextlib.suppress(DemoFailed):
            pods = await setting.cluster.get(namespace, "pods") or {}
            for name in (pod["metadata"]["name"] for pod in pods.get("items", [])):
                log = await setting.cluster.kubectl("logs", name, "--namespace", namespace, "--tail=30")
                report.say(f"--- log of {namespace}/{name}\n{log}")


def main() -> int:
    """Run; return the exit code."""
    argparse.ArgumentParser(
        prog="python -m examples.demo",
        description="A real Kubernetes control plane, Redis, the operator and workers; a version bump while jobs run; "
        "and the proof that none was lost. Takes about half a minute, and ends with 0 only if everything holds.",
        epilog="Takes no arguments. A cluster of yours is used if DEMO_KUBECONFIG, DEMO_IMAGE and DEMO_REDIS_URL are "
        "set, and DEMO_OPERATOR_IMAGE if it needs one: docs/development.md, The demo.",
    ).parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    report = Report()
    logs = None
    try:
        with open_setting(report.step) as setting:
            logs = setting.logs
            asyncio.run(play(setting, report))
    except KeyboardInterrupt:
        report.say("interrupted")
        return 130
    except DemoFailed as error:
        report.say(f"The demo failed: {error}" + (f"\nlogs: {logs}" if logs else ""))
        return 1
    return 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
