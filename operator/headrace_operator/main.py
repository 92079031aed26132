"""The command ``headrace-operator``: settings, logs, and the exit code."""

from __future__ import annotations

import argparse
import asyncio
import sys
from importlib.metadata import version as installed_version

import kubernetes.config
from pydantic import ValidationError

from headrace_operator.logs import configure_logging
from headrace_operator.running import CannotStart, run
from headrace_operator.settings import OperatorSettings


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
