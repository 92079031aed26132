"""The command ``headrace-operator``: settings, logs, and the exit code."""

from __future__ import annotations

import argparse
import asyncio
import sys
from importlib.metadata import version as installed_version

import kubernetes.config
from pydantic import ValidationError

from headrace.election import LockError
from headrace_operator.kubernetes.client import ApiError, ApiUnavailable, Kube
from headrace_operator.logs import configure_logging
from headrace_operator.running import CannotStart, run
from headrace_operator.settings import OperatorSettings
from headrace_operator.uninstall import release_finalizers


async def _release(settings: OperatorSettings) -> None:
    kube = Kube()
    try:
        print(f"headrace-operator: {await release_finalizers(kube, settings)} finalizers taken off")
    finally:
        await kube.close()


def main() -> None:
    """Run the operator; exit 1 with one line if it cannot start, 2 if its settings or arguments are wrong."""
    parser = argparse.ArgumentParser(
        prog="headrace-operator",
        description="Kubernetes operator of Headrace queues. Settings come from the environment, HEADRACE_...",
    )
    parser.add_argument("--version", action="version", version=installed_version("headrace-operator"))
    parser.add_argument(
        "command",
        nargs="?",
        choices=("run", "release-finalizers"),
        default="run",
        help="run (the default) looks after Queues until it is stopped; release-finalizers lets go of all of them, "
        "for the last operator of a cluster",
    )
    command = parser.parse_args().command
    try:
        settings = OperatorSettings()
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_input=False):
            name = "_".join(str(part) for part in detail["loc"]).upper()
            print(f"headrace-operator: HEADRACE_{name}: {detail['msg']}", file=sys.stderr)
        sys.exit(2)
    configure_logging(settings)
    try:
        asyncio.run(run(settings) if command == "run" else _release(settings))
    except (CannotStart, kubernetes.config.ConfigException, ApiError, ApiUnavailable, LockError) as error:
        print(f"headrace-operator: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
