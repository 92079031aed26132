"""Log lines of the operator: text for people, or one JSON object per line."""

from __future__ import annotations

import logging
import sys

from headrace.telemetry.logs import configure_logging as configure
from headrace_operator.settings import OperatorSettings


def configure_logging(settings: OperatorSettings) -> None:
    """Send log lines to standard error, in the same form as those of workers."""
    configure(settings.log_format, settings.log_level, sys.stderr)
    # Its own progress is not ours, and its warnings about signals and permissions are.
    for name in ("kopf", "aiohttp.access", "urllib3"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
